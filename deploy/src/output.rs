//! Standard output that may be a closed pipe.

use std::io::{self, ErrorKind, Write};

/// Writes all of `bytes` to standard output. A reader that has gone away is no error: it has seen
/// enough, as in `skein status | head`.
pub(crate) fn say(bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
