//! Bytes to and from a peer's process, in the clear or encrypted.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// A connection ends when the other host has not acknowledged data or answered a keep-alive for so long, or when the
/// other process has read nothing for so long and all buffers on the way to it are full. Engines suspect each other
/// much earlier; this limit only lets another connection replace this one.
const SILENCE_MAX: Duration = Duration::from_secs(4);
/// How long a connection without anything to send is silent before the other host is sent a keep-alive.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// Encrypted bytes taken in one system call. By default, a connection takes fewer.
const CAME_MAX: usize = 64 << 10;

/// A connection. It blocks, until a deadline, during the handshake, and never afterwards.
#[derive(Debug)]
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Encryption>>,
    /// Whether the last receive took all that had arrived.
    drained: bool,
}

/// A TLS connection, and its encrypted input that was not processed: `came[from..to]`.
#[derive(Debug)]
struct Encryption {
    connection: Connection,
    came: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Stream {
    /// A stream over a new connection.
    pub(super) fn plain(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        sockopt::set_tcp_user_timeout(&socket, SILENCE_MAX.as_millis() as u32)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, IDLE_MAX)?;
        sockopt::set_tcp_keepintvl(&socket, IDLE_MAX)?;
        sockopt::set_tcp_keepcnt(&socket, 4)?;
        // Little is under way at a time: after a short loss the retry interval must not grow.
        let _ = sockopt::set_tcp_thin_linear_timeouts(&socket, true);
        Ok(Self { socket, tls: None, drained: false })
    }

    /// A stream over a connection whose sides have authenticated each other.
    pub(super) fn encrypted(socket: TcpStream, tls: Connection) -> io::Result<Self> {
        let came = vec![0; CAME_MAX].into();
        let encryption = Encryption { connection: tls, came, from: 0, to: 0 };
        Ok(Self { tls: Some(Box::new(encryption)), ..Self::plain(socket)? })
    }

    /// The other side's certificate.
    pub(super) fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.tls.as_ref()?.connection.peer_certificates()?.first()
    }

    /// Takes up to `into.len()` bytes; 0 at the end of the stream. `WouldBlock` if there are none yet.
    pub(super) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            let came = self.socket.read(into)?;
            self.drained = came < into.len();
            return Ok(came);
        };
        loop {
            match tls.connection.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A process that was killed sends no closing alert, and frames show where they end.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => {
                    let all = tls.from == tls.to && tls.to < tls.came.len();
                    self.drained = all && matches!(read, Ok(len) if len < into.len());
                    return read;
                }
            }
            if tls.from == tls.to {
                (tls.from, tls.to) = (0, self.socket.read(&mut tls.came)?);
            }
            tls.from += tls.connection.read_tls(&mut &tls.came[tls.from..tls.to])?;
            tls.connection.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Whether [`receive`](Self::receive) took all that had arrived. If so, the system reports what arrives next, and
    /// there is no need to try again.
    pub(super) fn is_drained(&self) -> bool {
        self.drained
    }

    /// Gives the system up to `bytes.len()` bytes, after the rest of earlier ones. If only that rest is to be sent,
    /// `bytes` is empty.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(Encryption { connection: tls, .. }) = self.tls.as_deref_mut() else {
            return self.socket.write(bytes);
        };
        while tls.wants_write() {
            tls.write_tls(&mut self.socket)?;
        }
        let taken = tls.writer().write(bytes)?;
        while tls.wants_write() {
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Whether something that [`send`](Self::send) took has not been given to the system yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.connection.wants_write())
    }

    /// Makes the stream non-blocking.
    pub(super) fn go(&mut self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// Takes exactly `into.len()` bytes, before `deadline`.
    pub(super) fn receive_by(&mut self, into: &mut [u8], deadline: Instant) -> io::Result<()> {
        let mut taken = 0;
        while taken < into.len() {
            self.socket.set_read_timeout(Some(left(deadline)?))?;
            match self.receive(&mut into[taken..]) {
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
        let mut sent = 0;
        while sent < bytes.len() || self.has_unsent() {
            self.socket.set_write_timeout(Some(left(deadline)?))?;
            sent += self.send(&bytes[sent..])?;
        }
        Ok(())
    }

    /// Ends our direction of the stream.
    pub(super) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.connection.send_close_notify();
            let _ = tls.connection.write_tls(&mut self.socket);
        }
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
