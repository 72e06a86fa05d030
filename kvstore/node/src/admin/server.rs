//! The listening side: one thread, one `poll`, with bounds on everything. It is independent of engines: the caller
//! receives the requests and answers them when it can.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::connection::{Connection, Progress};
use super::{
    Action, CONNECTIONS_MAX, Problem, ProblemKind, REQUEST_BYTES_MAX, Response, line, parse,
};
use crate::socket;

/// Time for which no connection is accepted after `accept` has failed. The listening socket stays readable meanwhile,
/// so that `poll` would return at once.
const CLOSED_FOR: Duration = Duration::from_millis(100);

/// The connection that awaits an answer.
pub(in super::super) type Answer = u64;

/// Something for the caller to do.
pub(in super::super) enum Wanted {
    /// A request, to be [answered](Server::answer).
    Action(Answer, Action),
    /// The descriptor given to [`Server::wait`] is readable.
    Signal,
}

pub(in super::super) struct Server {
    path: PathBuf,
    /// `None` if the socket could not be created; it is tried again.
    listener: Option<Listener>,
    /// No connection is accepted before this time, because `accept` has failed.
    closed_until: Option<Instant>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
}

/// A socket, and the device and inode of its file.
struct Listener {
    socket: UnixListener,
    file: (u64, u64),
}

/// Device and inode of the file at `path`.
fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

impl Server {
    /// A server that will [listen](Self::listen) at `path`.
    pub(in super::super) fn new(path: PathBuf) -> Self {
        let connections = BTreeMap::new();
        Self { path, listener: None, closed_until: None, connections, next: 0 }
    }

    /// Path of the socket.
    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }

    /// Listens at the path unless it does so already. Returns whether an earlier socket file was gone.
    pub(in super::super) fn listen(&mut self) -> io::Result<bool> {
        let listens = |it: &Listener| file_at(&self.path).is_ok_and(|file| file == it.file);
        if self.listener.as_ref().is_some_and(listens) {
            return Ok(false);
        }
        let gone = self.listener.take().is_some();
        // A killed process may have left it: this process holds the node's lock.
        let _ = fs::remove_file(&self.path);
        let socket = socket::listen(&self.path)?;
        socket.set_nonblocking(true)?;
        self.listener = Some(Listener { socket, file: file_at(&self.path)? });
        Ok(gone)
    }

    /// Sleeps until there is something to do or `longest` has passed.
    pub(in super::super) fn wait(
        &mut self,
        signal: BorrowedFd<'_>,
        longest: Duration,
    ) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        self.serve_buffered(&mut wanted);
        if !wanted.is_empty() {
            return wanted;
        }
        let now = Instant::now();
        let closed_for = self.closed_until.map(|until| until.saturating_duration_since(now));
        let closed_for = closed_for.filter(|left| !left.is_zero());
        let longest = closed_for.map_or(longest, |left| left.min(longest));
        let open = self.listener.as_ref().filter(|_| closed_for.is_none());
        let listening = open.is_some();
        let timeout = Timespec::try_from(longest).unwrap_or_default();
        let mut fds = vec![PollFd::from_borrowed_fd(signal, PollFlags::IN)];
        fds.extend(open.map(|it| PollFd::from_borrowed_fd(it.socket.as_fd(), PollFlags::IN)));
        for connection in self.connections.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, connection.wants_to_read());
            flags.set(PollFlags::OUT, connection.wants_to_write());
            fds.push(PollFd::from_borrowed_fd(connection.as_fd(), flags));
        }
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                // Memory or descriptors are exhausted. The caller still has to read the signal's descriptor.
                tracing::warn!(%error, "cannot wait for administrators");
                thread::sleep(longest.min(CLOSED_FOR));
                return vec![Wanted::Signal];
            }
        }
        let happened: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        if !happened[0].is_empty() {
            wanted.push(Wanted::Signal);
        }
        let ids: Vec<u64> = self.connections.keys().copied().collect();
        for (id, happened) in ids.into_iter().zip(&happened[1 + usize::from(listening)..]) {
            if !happened.is_empty() && self.serve(id, &mut wanted).is_none() {
                self.connections.remove(&id);
            }
        }
        if listening && !happened[1].is_empty() {
            self.accept();
        }
        wanted
    }

    /// Serves requests that arrived together with one that has been answered since: `poll` reports no event for them.
    fn serve_buffered(&mut self, wanted: &mut Vec<Wanted>) {
        let has_line = |(id, connection): (&u64, &Connection)| connection.has_line().then_some(*id);
        let ids: Vec<u64> = self.connections.iter().filter_map(has_line).collect();
        for id in ids {
            if self.serve(id, wanted).is_none() {
                self.connections.remove(&id);
            }
        }
    }

    /// Answers a request. Its connection may be closed already.
    pub(in super::super) fn answer(&mut self, to: Answer, response: &Response) {
        let Some(connection) = self.connections.get_mut(&to) else { return };
        connection.waiting = false;
        if connection.send(&line(response)).is_err() || connection.is_over() {
            self.connections.remove(&to);
        }
    }

    /// Handles the events of a connection; `None` if the connection is over.
    fn serve(&mut self, id: u64, wanted: &mut Vec<Wanted>) -> Option<()> {
        let connection = self.connections.get_mut(&id)?;
        if connection.waiting {
            // No event was asked for, so the connection has failed or was closed.
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

    fn accept(&mut self) {
        // Bounded, so that open connections are served however many arrive.
        for _ in 0..CONNECTIONS_MAX {
            let Some(listener) = &self.listener else { return };
            let accepted = listener.socket.accept();
            let now = Instant::now();
            let connection = match accepted.and_then(|(stream, _)| Connection::new(stream, now)) {
                Ok(connection) => connection,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                    // Out of descriptors: closing a connection makes room for the next.
                    _ => {
                        tracing::warn!(%error, "cannot accept an admin connection");
                        self.close_most_silent();
                        self.closed_until = Some(now + CLOSED_FOR);
                        return;
                    }
                },
            };
            if self.connections.len() >= CONNECTIONS_MAX {
                self.close_most_silent();
            }
            self.connections.insert(self.next, connection);
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
