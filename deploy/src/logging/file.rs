//! A log file of bounded size that is recreated with its directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file of this size is renamed to FILE.1 and replaces the one before, so a log takes up to twice
/// this.
pub(crate) const BYTES_MAX: u64 = 8 << 20;
/// How long no attempt is made after opening the file has failed.
const OPEN_AGAIN: Duration = Duration::from_secs(1);

/// The file. It need not exist.
pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    open: Option<Open>,
    /// Time and error of the last failure to open it.
    failed: Option<(Instant, io::ErrorKind)>,
}

struct Open {
    file: File,
    len: u64,
    /// The last line is incomplete, for instance because the disk was full.
    torn: bool,
}

impl LogFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self { path, bytes_max: BYTES_MAX, open: None, failed: None }
    }

    /// Appends `line` as a whole, or returns an error.
    pub(super) fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let gone = |open: &Open| open.file.metadata().is_ok_and(|about| about.nlink() == 0);
        if self.open.as_ref().is_some_and(gone) {
            self.open = None;
        }
        let len = line.len() as u64;
        if self.open()?.len + len > self.bytes_max && self.open()?.len > 0 {
            self.rotate()?;
        }
        let open = self.open()?;
        if open.torn {
            open.file.write_all(b"\n")?;
            (open.torn, open.len) = (false, open.len + 1);
        }
        let written = open.file.write_all(line);
        if written.is_ok() {
            open.len += len;
        } else {
            let before = open.len;
            open.len = open.file.metadata().map_or(before, |about| about.len());
            open.torn = open.len > before;
        }
        written
    }

    fn open(&mut self) -> io::Result<&mut Open> {
        if let Some((when, kind)) = self.failed
            && when.elapsed() < OPEN_AGAIN
        {
            return Err(kind.into());
        }
        if self.open.is_none() {
            match open(&self.path) {
                Ok(open) => (self.open, self.failed) = (Some(open), None),
                Err(error) => {
                    self.failed = Some((Instant::now(), error.kind()));
                    return Err(error);
                }
            }
        }
        Ok(self.open.as_mut().expect("just opened"))
    }

    /// Makes room: renames the file, or truncates it if that fails.
    fn rotate(&mut self) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        if fs::rename(&self.path, name).is_ok() {
            self.open = None;
            return self.open().map(drop);
        }
        let open = self.open()?;
        open.file.set_len(0)?;
        open.len = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<Open> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let len = file.metadata()?.len();
    Ok(Open { file, len, torn: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &Path) -> LogFile {
        LogFile { bytes_max: 100, ..LogFile::at(dir.join("node0.log")) }
    }

    #[test]
    fn a_log_takes_no_more_than_twice_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        for line in 0..1_000 {
            log.write(format!("line {line}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        let (now, before) = (read("node0.log"), read("node0.log.1"));
        assert!(now.len() <= 100 && before.len() <= 100);
        assert!(now.ends_with("line 999\n"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        // The length of a file that exists at the start counts too.
        let mut again = LogFile { bytes_max: 100, ..LogFile::at(dir.path().join("node0.log")) };
        for _ in 0..20 {
            again.write(b"another\n").unwrap();
        }
        assert!(read("node0.log").len() <= 100);
    }

    #[test]
    fn a_log_that_was_removed_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("below");
        fs::create_dir(&below).unwrap();
        let mut log = log(&below);
        log.write(b"before\n").unwrap();
        fs::remove_dir_all(&below).unwrap();
        assert!(log.write(b"lost\n").is_err());
        fs::create_dir(&below).unwrap();
        log.failed = None;
        log.write(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(below.join("node0.log")).unwrap(), "after\n");
    }

    #[test]
    fn a_line_longer_than_the_bound_is_written_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = log(dir.path());
        log.write(b"short\n").unwrap();
        log.write(&[b'x'; 200]).unwrap();
        assert_eq!(fs::read(dir.path().join("node0.log")).unwrap().len(), 200);
    }
}
