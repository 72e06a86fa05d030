//! Whether the log of a running node is still where its next start looks for it.
//!
//! **Invariant (nothing is acknowledged that is not kept).** A file that was removed can be written as long as it is open,
//! and nothing fails. So the node looks about once a second whether its directory is the one that it has opened, and holds
//! the segment that is written. If it is gone at two looks in a row, nothing more is acknowledged: the log fails, and the node
//! ends; or it stands still, if what the node has in memory may be all that is left.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use skein_wal::files::{FileError, FileName, Gate};

/// Watches the directory of a log.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    /// Device and number of the directory.
    place: (u64, u64),
    /// Whether files have their names at once; with the layer of a test they get them when they are synced.
    names: bool,
    /// The way to the log's files.
    gate: Arc<Gate>,
    /// Looks in a row at which it was gone.
    gone: u32,
    /// Why the log stands still, if it does.
    problem: Option<String>,
}

/// What follows from a look.
#[derive(Debug)]
pub(crate) enum Found {
    /// The log goes on, or stands still.
    Nothing,
    /// The log has failed with this error.
    Gone(FileError),
}

impl Watch {
    /// Watches the directory at `path`, in which the log has been opened.
    pub(crate) fn begin(path: PathBuf, names: bool, gate: Arc<Gate>) -> io::Result<Self> {
        let about = fs::metadata(&path)?;
        let place = (about.dev(), about.ino());
        Ok(Self { path, place, names, gate, gone: 0, problem: None })
    }

    /// Why the log stands still, if it does.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Looks for the directory, and for the segment that is written. `is_needed` says whether a group would have no quorum
    /// without this node.
    pub(crate) fn look(
        &mut self,
        current: Option<FileName>,
        is_needed: impl FnOnce() -> bool,
    ) -> Found {
        let Some(what) = self.missing(current) else {
            self.gone = 0;
            if self.problem.take().is_some() {
                tracing::warn!("{} is there again, and the log goes on", self.path.display());
                self.gate.open();
            }
            return Found::Nothing;
        };
        self.gone += 1;
        if self.gone < 2 {
            return Found::Nothing;
        }
        let what = format!("{what} while the node ran, and what was written since is not kept");
        if is_needed() {
            if self.problem.is_none() {
                let problem = format!(
                    "{what}; too few other nodes run with their data, so this one runs on for what is in its memory, and \
                     acknowledges nothing: put the directory back if it was moved; if it is gone, what is in memory \
                     ends with `skein down`"
                );
                tracing::error!("{problem}");
                self.problem = Some(problem);
                self.gate.shut();
            }
            return Found::Nothing;
        }
        let (operation, file) = ("find", self.path.display().to_string());
        let source = io::Error::other(format!(
            "{what}; the node takes the data of the others when it is started again"
        ));
        self.gate.break_down();
        Found::Gone(FileError::Io { operation, file, source })
    }

    /// Ends a standstill, since the node ends: nothing more is written.
    pub(crate) fn end(&self) {
        if self.problem.is_some() {
            self.gate.break_down();
        }
    }

    fn missing(&self, current: Option<FileName>) -> Option<String> {
        let path = self.path.display();
        let is_gone = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        };
        match fs::metadata(&self.path) {
            Ok(about) if (about.dev(), about.ino()) != self.place => {
                return Some(format!("another directory has taken the place of {path}"));
            }
            Err(error) if is_gone(&error) => return Some(format!("{path} was removed")),
            // A disk that fails says so when it is written to.
            Err(_) => return None,
            Ok(_) => {}
        }
        let file = current.filter(|_| self.names)?;
        let found = fs::symlink_metadata(self.path.join(file.to_string()));
        found.err().filter(is_gone).map(|_| format!("{file} was removed from {path}"))
    }
}

#[cfg(test)]
mod tests {
    use skein_wal::files::SegmentName;

    use super::*;

    const CURRENT: FileName = FileName::Segment(SegmentName { sequence: 1, start: 1, salt: 1 });

    #[test]
    fn a_log_fails_when_its_directory_is_gone_and_stands_still_when_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let (data, away) = (dir.path().join("node0.data"), dir.path().join("away"));
        fs::create_dir(&data).unwrap();
        let file = data.join(CURRENT.to_string());
        fs::write(&file, "").unwrap();
        let mut watch = Watch::begin(data.clone(), true, Arc::default()).unwrap();
        let mut look = |needed| watch_look(&mut watch, needed);
        assert_eq!(look(false), (false, None));
        fs::rename(&data, &away).unwrap();
        assert_eq!(look(true), (false, None), "once is not enough");
        let (failed, problem) = look(true);
        let problem = problem.expect("it stands still");
        assert!(!failed && problem.contains("node0.data was removed"), "{problem}");
        fs::rename(&away, &data).unwrap();
        assert_eq!(look(true), (false, None), "it goes on");
        fs::remove_file(&file).unwrap();
        assert_eq!(look(false), (false, None));
        assert_eq!(look(false), (true, None), "its segment is gone");
        fs::write(&file, "").unwrap();
        assert_eq!(look(false), (false, None));
        fs::rename(&data, &away).unwrap();
        fs::create_dir(&data).unwrap();
        look(false);
        assert_eq!(look(false), (true, None), "another directory");
    }

    /// Whether the log has failed, and why it stands still.
    fn watch_look(watch: &mut Watch, needed: bool) -> (bool, Option<String>) {
        let failed = matches!(watch.look(Some(CURRENT), || needed), Found::Gone(_));
        (failed, watch.problem().map(str::to_owned))
    }
}
