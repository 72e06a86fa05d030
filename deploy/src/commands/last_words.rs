//! The reason of a node's end, from its log.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use skein_cluster::directory::Directory;

/// Lines shown of the end of a failed node's log.
const LINES_MAX: usize = 10;
/// Bytes read of the end of a log.
const BYTES_MAX: u64 = 64 << 10;
/// The beginning of the line with which a process says why it ends.
const SAID: &str = "skein: ";

/// The lengths of the nodes' logs when a start began: what is in front of them is of earlier starts.
#[derive(Debug)]
pub(super) struct Logs {
    directory: Directory,
    lengths: Vec<u64>,
}

impl Logs {
    /// The logs as they are now.
    pub(super) fn of(directory: &Directory, nodes: u16) -> Self {
        let length = |node| fs::metadata(directory.log(node)).map_or(0, |about| about.len());
        let lengths = (0..nodes).map(length).collect();
        Self { directory: directory.clone(), lengths }
    }

    fn since(&self, node: u16) -> String {
        let from = self.lengths.get(usize::from(node)).copied().unwrap_or(0);
        end_of(&self.directory.log(node), from)
    }

    /// The last lines that a node has written since, indented, each on a line of its own.
    pub(super) fn end(&self, node: u16) -> String {
        let text = self.since(node);
        let lines: Vec<_> = text.lines().collect();
        let from = lines.len().saturating_sub(LINES_MAX);
        lines[from..].iter().flat_map(|line| ["\n  ", line]).collect()
    }

    /// The last error that a node has printed since, if there is one.
    pub(super) fn last_error(&self, node: u16) -> Option<String> {
        error_in(&self.since(node))
    }
}

/// Why a node that does not run ended, or could not be started, if its log says so. `None` if it has begun an incarnation
/// since it wrote to its log: the log says nothing of that one's end.
pub(super) fn of_dead(directory: &Directory, node: u16) -> Option<String> {
    let log = directory.log(node);
    let written = fs::metadata(&log).and_then(|about| about.modified()).ok()?;
    let begun = fs::metadata(directory.node_incarnations(node)).and_then(|about| about.modified());
    if begun.is_ok_and(|begun| begun > written) {
        return None;
    }
    let text = end_of(&log, 0);
    // A process that was started since, and wrote more, was killed without a word.
    let mut last = text.lines().rev().take_while(|line| !line.starts_with('{')).take(LINES_MAX);
    last.find_map(|line| line.strip_prefix(SAID)).map(str::to_owned)
}

/// The end of the file behind `from`, or of all of it if it was replaced by a shorter one.
fn end_of(path: &Path, from: u64) -> String {
    let mut bytes = Vec::new();
    // The log is only shown: what cannot be read of it is left out.
    let _ = File::open(path).and_then(|mut file| {
        let length = file.metadata()?.len();
        let from = if from <= length { from } else { 0 };
        file.seek(SeekFrom::Start(from.max(length.saturating_sub(BYTES_MAX))))?;
        file.take(BYTES_MAX).read_to_end(&mut bytes)
    });
    String::from_utf8_lossy(&bytes).into_owned()
}

fn error_in(text: &str) -> Option<String> {
    let mut last = text.lines().rev().take(LINES_MAX);
    last.find_map(|line| line.strip_prefix(SAID)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_since_a_start_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = Directory::at(root.path()).expect("a directory");
        let log = directory.log(0);
        fs::write(&log, "skein: an old error\n").expect("there is room");
        let logs = Logs::of(&directory, 1);
        assert_eq!((logs.end(0), logs.last_error(0)), (String::new(), None));
        fs::write(&log, "skein: an old error\nskein: a new one\n").expect("there is room");
        assert_eq!(logs.end(0), "\n  skein: a new one");
        assert_eq!(logs.last_error(0).as_deref(), Some("a new one"));
        assert_eq!(of_dead(&directory, 0).as_deref(), Some("a new one"));
        fs::write(&log, "skein: an old error\n{\"level\":\"INFO\"}\n").expect("there is room");
        assert_eq!(of_dead(&directory, 0), None, "a later process was killed");
        // It was rotated.
        fs::write(&log, "a line\n").expect("there is room");
        assert_eq!((logs.end(0), logs.last_error(0)), ("\n  a line".to_owned(), None));
    }
}
