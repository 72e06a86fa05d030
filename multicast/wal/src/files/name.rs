//! The names of the log's files, which carry what a damaged header would lose.

use std::fmt;
use std::str::FromStr;

/// A segment's identity, which is also the name of its file.
///
/// The salt stands in the name, and not in the header alone: blocks of a segment whose header was
/// damaged can still be verified, so the damage is told from a header that was never written. The
/// start stands there so that a start whose header tore is not numbered again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentName {
    /// Rises by at least one from each segment to the next, over all starts. Begins at 1.
    pub sequence: u64,
    /// Number of the start that wrote it. Begins at 1.
    pub start: u64,
    /// Seed of the checksums of its blocks, random for each segment.
    pub salt: u64,
}

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileName {
    /// A segment that is written, or prepared to be written next.
    Segment(SegmentName),
    /// A file that holds nothing that counts: of a segment that nobody needs, with its sequence, or on its way to become the
    /// segment of that sequence.
    Spare(u64),
}

impl fmt::Display for SegmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:08x}-{:016x}.log", self.sequence, self.start, self.salt)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment(name) => name.fmt(f),
            Self::Spare(number) => write!(f, "{number:016x}.spare"),
        }
    }
}

/// The file is none of the log's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a file of the log")]
pub struct NotOurs;

impl FromStr for FileName {
    type Err = NotOurs;

    fn from_str(text: &str) -> Result<Self, NotOurs> {
        let hex = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NotOurs);
        let name = if let Some(number) = text.strip_suffix(".spare") {
            Self::Spare(hex(number)?)
        } else {
            let mut parts = text.strip_suffix(".log").ok_or(NotOurs)?.split('-');
            let mut part = || parts.next().ok_or(NotOurs).and_then(hex);
            Self::Segment(SegmentName { sequence: part()?, start: part()?, salt: part()? })
        };
        // One spelling for each name, so that two files never have the same one.
        if name.to_string() == text { Ok(name) } else { Err(NotOurs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_in_one_spelling() {
        let names = [
            FileName::Segment(SegmentName { sequence: 1, start: 2, salt: u64::MAX }),
            FileName::Segment(SegmentName { sequence: u64::MAX, start: u64::MAX, salt: 0 }),
            FileName::Spare(7),
        ];
        for name in names {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        for text in ["", "1-2-3.log", "7.spare", "0000000000000007.spare~", "lost+found"] {
            assert_eq!(text.parse::<FileName>(), Err(NotOurs), "{text}");
        }
    }
}
