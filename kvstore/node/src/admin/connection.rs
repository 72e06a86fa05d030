//! One connection to the admin interface. Never blocks; holds at most one request and its answer.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use super::REQUEST_BYTES_MAX;

/// Result of reading from a connection.
pub(super) enum Progress {
    /// A line without its newline.
    Line(Vec<u8>),
    /// The line is longer than a request may be.
    Oversized,
    /// No complete line yet.
    Wait,
    /// The peer has closed the connection, or the connection has failed.
    Closed,
}

pub(super) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    to_send: Vec<u8>,
    /// To be closed once everything is sent.
    pub(super) last: bool,
    /// A request awaits its answer; nothing is read meanwhile.
    pub(super) waiting: bool,
    /// Time at which bytes were last received.
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

    /// Whether everything is sent and no further request is read.
    pub(super) fn is_over(&self) -> bool {
        self.last && !self.waiting && self.to_send.is_empty()
    }

    pub(super) fn wants_to_write(&self) -> bool {
        !self.to_send.is_empty()
    }

    /// Whether a complete line is buffered and may be taken.
    pub(super) fn has_line(&self) -> bool {
        self.wants_to_read() && self.received.contains(&b'\n')
    }

    /// Takes the next line, reading from the socket if none is buffered.
    pub(super) fn read(&mut self, now: Instant) -> Progress {
        if self.has_line() {
            return self.line();
        }
        let mut buffer = [0; REQUEST_BYTES_MAX];
        match self.stream.read(&mut buffer) {
            // Bytes before the end of the stream count as a line: `printf` adds no newline.
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

    /// Takes the next line that is buffered.
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

    /// Sends as much as the socket accepts.
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
