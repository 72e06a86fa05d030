//! The listening side: one thread, one `poll`, bounded in everything. It knows nothing of engines:
//! what is asked is handed to the caller, who answers when it can.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::connection::{Connection, Progress};
use super::{
    Action, CONNECTIONS_MAX, Problem, ProblemKind, REQUEST_BYTES_MAX, Response, line, parse,
};

/// Who asked.
pub(in super::super) type Answer = u64;

/// Something to do.
pub(in super::super) enum Wanted {
    /// A request, to be [answered](Server::answer).
    Action(Answer, Action),
    /// The descriptor given to [`Server::wait`] is readable.
    Signal,
}

pub(in super::super) struct Server {
    listener: UnixListener,
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

impl Server {
    pub(in super::super) fn new(listener: UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, connections: BTreeMap::new(), next: 0 })
    }

    /// Sleeps until something is wanted or `longest` has passed.
    pub(in super::super) fn wait(
        &mut self,
        signal: BorrowedFd<'_>,
        longest: Option<Duration>,
    ) -> io::Result<Vec<Wanted>> {
        let mut wanted = Vec::new();
        self.serve_buffered(&mut wanted);
        if !wanted.is_empty() {
            return Ok(wanted);
        }
        let timeout = longest.map(|longest| Timespec::try_from(longest).unwrap_or_default());
        let mut fds = vec![
            PollFd::from_borrowed_fd(signal, PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        for connection in self.connections.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.wants_to_read());
            flags.set(PollFlags::OUT, connection.wants_to_write());
            fds.push(PollFd::from_borrowed_fd(connection.as_fd(), flags));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let happened: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if !happened[0].is_empty() {
            wanted.push(Wanted::Signal);
        }
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for (id, happened) in ids.into_iter().zip(&happened[2..]) {
            if !happened.is_empty() && self.serve(id, &mut wanted).is_none() {
                self.connections.remove(&id);
            }
        }
        if !happened[1].is_empty() {
            self.accept()?;
        }
        Ok(wanted)
    }

    /// Requests that came together with one that has been answered since: no event tells of them.
    fn serve_buffered(&mut self, wanted: &mut Vec<Wanted>) {
        let has_line = |(id, connection): (&u64, &Connection)| connection.has_line().then_some(*id);
        let ids: Vec<u64> = self.connections.iter().filter_map(has_line).collect();
        for id in ids {
            if self.serve(id, wanted).is_none() {
                self.connections.remove(&id);
            }
        }
    }

    /// Answers a request. The one who asked may be gone.
    pub(in super::super) fn answer(&mut self, to: Answer, response: &Response) {
        let Some(connection) = self.connections.get_mut(&to) else { return };
        connection.waiting = false;
        if connection.send(&line(response)).is_err() || connection.is_over() {
            self.connections.remove(&to);
        }
    }

    /// Does what one connection is ready for; `None` if it is over.
    fn serve(&mut self, id: u64, wanted: &mut Vec<Wanted>) -> Option<()> {
        let connection = self.connections.get_mut(&id)?;
        if connection.waiting {
            // Not asked for anything: it can only be broken.
            return None;
        }
        connection.write().ok()?;
        let mut progress = if connection.wants_to_read() {
            connection.read(Instant::now())
        } else {
            Progress::Wait
        };
        loop {
            let response = match progress {
                Progress::Closed => return None,
                Progress::Wait => break,
                Progress::Oversized => {
                    connection.last = true;
                    let message = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                    Response::Error(Problem::new(ProblemKind::Oversized, message))
                }
                Progress::Line(line) => match parse(&line) {
                    Ok(action) => {
                        connection.waiting = true;
                        wanted.push(Wanted::Action(id, action));
                        break;
                    }
                    Err(problem) => Response::Error(problem),
                },
            };
            connection.send(&line(&response)).ok()?;
            if !connection.wants_to_read() {
                break;
            }
            progress = connection.line();
        }
        (!connection.is_over()).then_some(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // Out of descriptors: those who wait are served when others leave.
                    _ => {
                        tracing::warn!(%error, "cannot accept an admin connection");
                        self.close_most_silent();
                        return Ok(());
                    }
                },
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                self.close_most_silent();
            }
            self.connections.insert(self.next, Connection::new(stream, Instant::now())?);
            self.next += 1;
        }
    }

    fn close_most_silent(&mut self) {
        let most = self.connections.iter().min_by_key(|(_, connection)| connection.heard);
        if let Some(id) = most.map(|(id, _)| *id) {
            self.connections.remove(&id);
        }
    }
}
