//! Output to standard output and standard error that may be closed: a pipe without a reader, a
//! terminal that hung up. A closed output is not an error, above all during cleanup.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Writes `bytes` to standard output.
pub(crate) fn say(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    say_if_heard(bytes).map(|_| ())
}

/// The same. Returns whether there is still a reader.
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

/// Writes a line to standard error, or to the log file of a process that has one.
pub(crate) fn tell(line: impl fmt::Display) {
    crate::logging::tell(&line.to_string());
}

/// The names of groups: `g0`, `g0 and g2`, `g0, g1 and g2`.
pub(crate) fn names(groups: &BTreeSet<u16>) -> String {
    let mut names: Vec<_> = groups.iter().map(|group| format!("g{group}")).collect();
    let Some(last) = names.pop() else { return String::new() };
    if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) }
}
