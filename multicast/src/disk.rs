//! The log on a node's disk, as the replicas of an engine write it: records of each group, in one order.

use skein_protocol::ids::GroupId;

pub use crate::replica::{Described, describe, entry_index, is_of_a_state};

/// Takes a record that is read back: a kind and a record. The error says what is wrong with it.
pub type Reader<'a> = dyn FnMut(u8, &[u8]) -> Result<(), String> + 'a;

/// The outcome of reading on in a log beside its being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOn {
    /// Records were handed out, and more may be there.
    Some,
    /// The next ones are being read.
    Pending,
    /// Everything was handed out that was on disk a moment ago. What is written meanwhile follows.
    End,
    /// The next records are not there any more, or cannot be read.
    Gone,
}

/// A log on disk. A node writes what its replicas must be able to repeat when it has lost its memory.
///
/// What is on disk is always the first records up to some position, without a gap.
pub trait Disk: Send {
    /// Appends a record of a group, given in parts, and returns its position. Positions rise. It may stay in memory until
    /// the next [`flush`](Self::flush).
    fn append(&mut self, group: GroupId, kind: u8, record: &[&[u8]]) -> u64;

    /// Asks for what was appended to be written. Does not wait for it.
    fn flush(&mut self);

    /// The position up to which all records are on disk, and stay there when power is lost.
    fn durable(&self) -> u64;

    /// Passes on what the disk could not take before. To be called once a turn.
    fn go_on(&mut self) {}

    /// Waits until everything that was appended is on disk.
    fn sync(&mut self);

    /// A snapshot of a group begins here. When it is whole, the group needs [nothing in front of it](Self::keep_from).
    fn begins_snapshot(&mut self, group: GroupId) {
        let _ = group;
    }

    /// A group needs no record in front of this position any more: of its last whole snapshot.
    fn keep_from(&mut self, group: GroupId, position: u64);

    /// A group begins anew: its next record is the first that counts.
    fn begin(&mut self, group: GroupId);

    /// Bytes of a group's log after which its state is written, so that what is in front of it can go.
    fn snapshot_after(&self) -> u64;

    /// Whether the state of a group is to be written now. `log` bytes of its log were written since the last time, when
    /// its state had `state` bytes: a large one is due after as much log.
    fn wants_snapshot(&self, group: GroupId, log: u64, state: u64) -> bool {
        let _ = group;
        log >= self.snapshot_after().max(state)
    }

    /// Bytes by which the log has grown on disk because of a group, beside states, since its snapshot
    /// [began](Self::begins_snapshot): for the pace of that. The group has written `own` bytes of records since.
    fn logged(&self, group: GroupId, own: u64) -> u64 {
        let _ = group;
        own
    }

    /// Whether a snapshot of a group, whose state had `state` bytes the last time, is to be written as fast as the disk takes
    /// it: what it is to free is needed soon.
    fn hurries(&self, group: GroupId, state: u64) -> bool {
        let _ = (group, state);
        false
    }

    /// Reads the records of a group that were on disk when this process began, in their order: a kind and a record
    /// each. Some in front of the position that was given last to [`keep_from`](Self::keep_from) may be among them.
    ///
    /// # Errors
    /// What keeps the log from being read. The replica must not begin with a part of it.
    fn replay(&mut self, group: GroupId, each: &mut Reader<'_>) -> Result<(), String>;

    /// Whether another replica of a group is to be fed from the log rather than sent the state. It lacks `log` bytes of it,
    /// and the state had `state` bytes when it was last written; 0 if it never was.
    fn feeds(&self, group: GroupId, log: u64, state: u64) -> bool {
        let _ = (group, log, state);
        false
    }

    /// Begins to read a group's records beside their being written, in their order, and ends what was read of them before.
    /// If the records from that of entry `index` on are there, they are among those that follow; earlier ones may be, too.
    fn begin_reading(&mut self, group: GroupId, index: u64) {
        let _ = (group, index);
    }

    /// Hands out the next records of what [was begun](Self::begin_reading). Does not wait for the disk.
    fn read_on(&mut self, group: GroupId, each: &mut dyn FnMut(u8, &[u8])) -> ReadOn {
        let _ = (group, each);
        ReadOn::Gone
    }

    /// Ends reading a group's records.
    fn end_reading(&mut self, group: GroupId) {
        let _ = group;
    }
}
