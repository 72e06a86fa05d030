//! Unix sockets in directories with long names. The address of a socket holds at most 107 bytes; a longer path is
//! reached through an open directory, whose path below `/proc` is short.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const ADDRESS_MAX: usize = 107;

/// A path to the socket that fits into an address. The directory must stay open while the path is used.
fn reach(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= ADDRESS_MAX {
        return Ok((path.to_owned(), None));
    }
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let dir = File::open(dir)?;
    Ok((Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name), Some(dir)))
}

/// Listens at `path`, which must not exist, for this user alone.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    let (short, _dir) = reach(path)?;
    let listener = UnixListener::bind(&short)?;
    fs::set_permissions(&short, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to the listener at `path`.
pub(super) fn connect(path: &Path) -> io::Result<UnixStream> {
    let (short, _dir) = reach(path)?;
    UnixStream::connect(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_length_can_be_reached() {
        let dir = tempfile::tempdir().unwrap();
        for parts in [0, 1, 4] {
            let long = (0..parts).fold(dir.path().to_owned(), |dir, _| dir.join("d".repeat(200)));
            std::fs::create_dir_all(&long).unwrap();
            let path = long.join("node0.sock");
            let listener = listen(&path).unwrap();
            connect(&path).unwrap();
            listener.accept().unwrap();
            assert!(path.exists(), "{parts} parts");
        }
    }
}
