//! Standard output and standard error that may be closed: a pipe whose reader has seen enough, a
//! terminal that hung up. That is no reason to fail, least of all in the middle of cleaning up.

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Writes all of `bytes` to standard output.
pub(crate) fn say(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    say_if_heard(bytes).map(|_| ())
}

/// The same, and returns whether anybody still reads it.
pub(crate) fn say_if_heard(bytes: impl AsRef<[u8]>) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            Err(io::Error::new(error.kind(), format!("cannot write to standard output: {error}")))
        }
    }
}

/// Writes a line to standard error, if anybody is there to read it, or to the log file of a process
/// that has one.
pub(crate) fn tell(line: impl fmt::Display) {
    crate::logging::tell(&line.to_string());
}
