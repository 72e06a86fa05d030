//! One connection to the admin interface. Never blocks; holds at most one request and its answer.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::REQUEST_BYTES_MAX;

/// What a connection has come to.
pub(super) enum Progress {
    /// A line, without its end.
    Line(Vec<u8>),
    /// A line that never ends.
    Oversized,
    /// Not a whole line yet.
    Wait,
    /// The other side has closed, or is broken.
    Closed,
}

pub(super) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    to_send: Vec<u8>,
    /// Close it once everything is sent.
    pub(super) last: bool,
    /// Waits for its answer; nothing is read meanwhile.
    pub(super) waiting: bool,
    /// When it last said something.
    pub(super) heard: Instant,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (received, to_send) = (Vec::new(), Vec::new());
        Ok(Self { stream, received, to_send, last: false, waiting: false, heard: now })
    }

    pub(super) fn wants_to_read(&self) -> bool {
        !self.waiting && !self.last && self.to_send.is_empty()
    }

    /// Everything is said, and nothing more will be asked.
    pub(super) fn is_over(&self) -> bool {
        self.last && !self.waiting && self.to_send.is_empty()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Whether a line waits to be taken without anything more to come.
    pub(super) fn has_line(&self) -> bool {
        self.wants_to_read() && self.received.contains(&b'\n')
    }

    /// Takes what has come.
    pub(super) fn read(&mut self, now: Instant) -> Progress {
        if self.has_line() {
            return self.line();
        }
        let mut buffer = [0; REQUEST_BYTES_MAX];
        match self.stream.read(&mut buffer) {
            // What stands before the end counts as a line: `printf` forgets the newline.
            Ok(0) if self.received.is_empty() => Progress::Closed,
            Ok(0) => {
                self.last = true;
                Progress::Line(std::mem::take(&mut self.received))
            }
            Ok(len) => {
                self.heard = now;
                self.received.extend_from_slice(&buffer[..len]);
                self.line()
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Progress::Wait
            }
            Err(_) => Progress::Closed,
        }
    }

    /// Takes the next line of what has come before.
    pub(super) fn line(&mut self) -> Progress {
        match self.received.iter().position(|byte| *byte == b'\n') {
            Some(end) if end < REQUEST_BYTES_MAX => {
                let rest = self.received.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.received, rest);
                line.pop();
                Progress::Line(line)
            }
            None if self.received.len() < REQUEST_BYTES_MAX => Progress::Wait,
            _ => Progress::Oversized,
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.to_send.extend_from_slice(bytes);
        self.write()
    }

    /// Sends what the other side takes.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => _ = self.to_send.drain(..sent),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
