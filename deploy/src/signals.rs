//! Signals that ask the process to stop.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

const STOP: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// From now on each signal to stop writes a byte that can be read from the peer of `end`.
pub(crate) fn to_stream(end: &UnixStream) -> io::Result<()> {
    for signal in STOP {
        signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
    }
    Ok(())
}

/// From now on each signal to stop is sent as a message, as long as there is a receiver.
pub(crate) fn to_channel<T: Send + 'static>(
    sender: Sender<T>,
    message: fn(i32) -> T,
) -> io::Result<()> {
    let mut signals = Signals::new(STOP)?;
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(message(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// From now on a write beyond the limit of file size (`ulimit -f`) is an error. By default its
/// signal ends the process.
pub(crate) fn ignore_size_limits() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default()).map(drop)
}

/// The signal as it is named in messages.
pub(crate) fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "Ctrl-C",
        SIGHUP => "the terminal hung up",
        _ => "SIGTERM",
    }
}
