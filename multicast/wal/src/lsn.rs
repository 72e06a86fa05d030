//! The numbers of the log: places in it, and the groups that write to it.

use std::fmt;

/// A place in the log, in bytes from its beginning.
///
/// A segment covers `base..base + size`, so an LSN is a segment and an offset in its file. LSNs are
/// never used twice: a start begins above everything that an earlier start could have written, and
/// leaves a gap. Zero is no place, and stands for "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// No place: smaller than every place.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A group that has records in the log. The log does not know what a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(pub u16);

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// Whose log it is. A log is read by its owner alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Identity of the cluster, opaque.
    pub cluster: [u8; 16],
    /// Number of the node in the cluster.
    pub node: u32,
}
