//! Bytes to and from a peer's process, in the clear.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

/// A connection ends when the other host has answered nothing for so long, neither what was sent nor
/// whether it is still there; or when the other process has read nothing for so long, and all buffers
/// on the way to it are full. Engines suspect each other much earlier; this is for the connection
/// alone, so that another can take its place.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// How long a connection without anything to send is silent before the other host is asked whether
/// it is still there.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// A connection. It blocks until a deadline while two processes meet, and never after that.
#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
}

impl Stream {
    /// A stream over a fresh connection, to be read and written until `deadline` at most.
    pub(super) fn plain(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        sockopt::set_tcp_user_timeout(&socket, SILENCE_MAX.as_millis() as u32)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, IDLE_MAX)?;
        sockopt::set_tcp_keepintvl(&socket, IDLE_MAX)?;
        sockopt::set_tcp_keepcnt(&socket, 2)?;
        // Little is under way at a time: after a short loss it must not wait ever longer.
        let _ = sockopt::set_tcp_thin_linear_timeouts(&socket, true);
        Ok(Self { socket })
    }

    /// Takes up to `into.len()` bytes; none at the end of the stream. `WouldBlock` if there are none
    /// yet.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.read(into)
    }

    /// Gives up to `bytes.len()` bytes to the system.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.write(bytes)
    }

    /// From here on it never blocks.
    pub(super) fn go(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// Takes exactly `into.len()` bytes, before `deadline`.
    pub(super) fn receive_by(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut taken = 0;
        while taken < into.len() {
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            match self.socket.read(&mut into[taken..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => taken += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives all bytes to the system, before `deadline`.
    pub(super) fn send_by(&mut self, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.socket.set_write_timeout(Some(left(deadline)?))?;
        self.socket.write_all(bytes)
    }

    /// Says that nothing more comes from us.
    pub(super) fn end(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The time until `deadline`, if there is any.
pub(super) fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}
