//! Threads that listen, call and wait, so that the fabric's own thread does not have to.
//!
//! Whatever may block is done here: name look-ups, connecting, listening, and waiting for a hello or for its answer.
//! Only the fabric's thread decides whether a caller is accepted, and answers it: so nothing of an earlier connection
//! is placed once its successor was welcomed.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::hello::{Answer, Hello, NotMet, Side};
use super::net::Net;
use super::stream::{Stream, left};
use crate::Difference;

/// Time limit of a handshake.
const MEET_MAX: Duration = Duration::from_secs(3);
/// Most callers in the handshake at once. When more come, the one that has been silent for longest is disconnected: an
/// honest caller has sent its hello by then, or calls again.
const CALLERS_MAX: usize = 256;
/// Stack size of a thread that only waits and exchanges hellos.
const STACK: usize = 256 << 10;
/// How long to wait before listening again when the system has no room for another connection.
const NO_ROOM_NAP: Duration = Duration::from_millis(10);

/// A new connection, or the end of a call.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Another process has called us.
    Caller { stream: Stream, hello: Hello },
    /// Our call has ended.
    Called { name: String, met: Result<(Stream, Side), NotMet> },
}

/// The threads, as the fabric holds them.
#[derive(Debug)]
pub(super) struct Door {
    hall: Arc<Hall>,
    listener: Option<(JoinHandle<()>, OwnedFd)>,
}

/// State shared by the fabric and the threads.
#[derive(Debug)]
struct Hall {
    net: Net,
    name: String,
    arrivals: Mutex<Vec<Arrival>>,
    /// Whether `arrivals` is not empty.
    any: AtomicBool,
    /// Whether the fabric was dropped: nobody takes arrivals any more.
    closed: AtomicBool,
    /// Callers in the handshake, in the order in which they came.
    callers: Mutex<VecDeque<(u64, TcpStream)>>,
    bell: Arc<OwnedFd>,
}

impl Door {
    /// A door that does not listen: only calls are made.
    pub(super) fn new(net: Net, name: &str, bell: Arc<OwnedFd>) -> Self {
        let hall = Hall {
            net,
            name: name.to_owned(),
            arrivals: Mutex::default(),
            any: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            callers: Mutex::default(),
            bell,
        };
        Self { hall: Arc::new(hall), listener: None }
    }

    /// Starts to listen for callers.
    pub(super) fn listen(&mut self, socket: TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let stopped = stop.try_clone()?;
        let hall = Arc::clone(&self.hall);
        let thread = builder(&format!("{}-door", hall.name))
            .spawn(move || listen(&hall, &socket, &stopped))?;
        self.listener = Some((thread, stop));
        Ok(())
    }

    /// Calls `name`. The result is an arrival.
    pub(super) fn call(&self, name: &str, address: String, hello: Hello) -> io::Result<()> {
        let hall = Arc::clone(&self.hall);
        let name = name.to_owned();
        let calling = move || {
            let met = call(&hall, &name, &address, &hello);
            hall.put(Arrival::Called { name, met });
        };
        builder("skein-call").spawn(calling).map(drop)
    }

    /// The arrivals since the last call, in order.
    pub(super) fn arrivals(&self) -> Vec<Arrival> {
        if !self.hall.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut arrivals = unpoisoned(&self.hall.arrivals);
        self.hall.any.store(false, Ordering::Release);
        std::mem::take(&mut arrivals)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.hall.closed.store(true, Ordering::Release);
        if let Some((thread, stop)) = self.listener.take() {
            // The address is free when this returns.
            ring(&stop);
            let _ = thread.join();
        }
        drop(self.arrivals());
    }
}

impl Hall {
    fn put(&self, arrival: Arrival) {
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let mut arrivals = unpoisoned(&self.arrivals);
        arrivals.push(arrival);
        self.any.store(true, Ordering::Release);
        ring(&self.bell);
    }

    /// Registers a caller that begins its handshake.
    fn came(&self, number: u64, caller: &TcpStream) -> io::Result<()> {
        let caller = caller.try_clone()?;
        let mut callers = unpoisoned(&self.callers);
        if callers.len() >= CALLERS_MAX
            && let Some((_, oldest)) = callers.pop_front()
        {
            tracing::warn!("{CALLERS_MAX} callers in the handshake: the oldest is disconnected");
            let _ = oldest.shutdown(Shutdown::Both);
        }
        callers.push_back((number, caller));
        Ok(())
    }

    /// Removes a caller whose handshake has ended.
    fn left(&self, number: u64) {
        unpoisoned(&self.callers).retain(|(caller, _)| *caller != number);
    }
}

/// No operation under a lock of this file can be left half done, so a panic elsewhere does no harm.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the thread that sleeps on the bell.
pub(super) fn ring(bell: &OwnedFd) {
    // It fails only if the bell rings already.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

fn builder(name: &str) -> thread::Builder {
    thread::Builder::new().name(name.to_owned()).stack_size(STACK)
}

/// Listens until told to stop.
fn listen(hall: &Arc<Hall>, socket: &TcpListener, stop: &OwnedFd) {
    for number in 0.. {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_ok() && !fds[1].revents().is_empty() {
            return;
        }
        match socket.accept() {
            Ok((caller, from)) => {
                let theirs = Arc::clone(hall);
                let taken = hall.came(number, &caller).and_then(|()| {
                    builder("skein-caller").spawn(move || {
                        if let Err(error) = receive(&theirs, caller, number) {
                            tracing::warn!(%from, %error, "a connection was refused");
                        }
                        theirs.left(number);
                    })
                });
                if let Err(error) = taken {
                    tracing::warn!(%from, %error, "a connection cannot be accepted");
                    hall.left(number);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept another connection");
                thread::sleep(NO_ROOM_NAP);
            }
        }
    }
}

/// Waits for a caller's hello, and refuses callers that do not belong here.
fn receive(hall: &Hall, caller: TcpStream, number: u64) -> Result<(), NotMet> {
    let deadline = Instant::now() + MEET_MAX;
    caller.set_nonblocking(false)?;
    let mut stream = hall.net.security().accept(caller, deadline)?;
    let met = Hello::receive(&mut stream, deadline).and_then(|hello| {
        let refused = |why| Err(NotMet::Refused(why));
        let (theirs, ours) = (&hello.cluster, hall.net.cluster());
        if theirs != ours {
            return refused(format!("it belongs to cluster {theirs}, and this is cluster {ours}"));
        }
        if hello.to != hall.name {
            return refused(format!("it looks for {}, and this is {}", hello.to, hall.name));
        }
        if let Some(Difference { name, theirs, ours }) =
            hall.net.constants().difference(&hello.constants)
        {
            return refused(format!(
                "its configuration is not that of the others of this cluster, or its version of Skein \
                 is not: {name} is {theirs} at {}, and {ours} at {}; it must be the same on all hosts",
                hello.from, hall.name
            ));
        }
        let node = hall.net.book().find(&hello.from).is_some();
        match (hello.side.card, hall.net.has_cards()) {
            (true, false) => {
                return refused("its network.fabric is \"verbs\", and here it is \"tcp\"".into());
            }
            // Clients need no card.
            (false, true) if node => {
                return refused("its network.fabric is \"tcp\", and here it is \"verbs\"".into());
            }
            _ => {}
        }
        hall.net.security().check_name(&stream, &hello.from)?;
        Ok(hello)
    });
    match met {
        Ok(hello) => {
            stream.go()?;
            hall.left(number);
            hall.put(Arrival::Caller { stream, hello });
            Ok(())
        }
        Err(NotMet::Refused(why)) => {
            let answer = Answer::Refused(why.clone()).encode();
            let _ = stream.send_by(&answer, deadline);
            stream.end();
            Err(NotMet::Refused(why))
        }
        Err(error) => Err(error),
    }
}

/// Connects, sends the hello, and waits for the answer.
fn call(hall: &Hall, name: &str, address: &str, hello: &Hello) -> Result<(Stream, Side), NotMet> {
    let deadline = Instant::now() + MEET_MAX;
    let socket = connect(address, deadline)?;
    let mut stream = hall.net.security().connect(socket, name, deadline)?;
    stream.send_by(&hello.encode(), deadline)?;
    let side = Answer::receive(&mut stream, deadline)?;
    stream.go()?;
    Ok((stream, side))
}

fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left(deadline)?) {
            Ok(socket) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
