//! What a leader knows about the memory of the followers that it writes to.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::record::LogRecord;

/// A follower to which this leader writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowerProgress {
    pub(crate) incarnation: u32,
    /// Up to this index the log may contain entries whose payload the follower lacks and we have dropped. Write
    /// completions count once its acceptance word covers this index.
    pub(super) from: u64,
    /// Number of our last write that is in its memory.
    pub(super) landed: u64,
    /// It has reported what it has applied.
    pub(crate) told: bool,
    /// It was not admitted yet when it granted our ballot.
    pub(super) joins: bool,
    /// Position from which its memory held its log when it granted.
    pub(super) held_from: u64,
}

/// The followers of a leader, by slot.
///
/// **Invariants.** `completed <= last`. `from <= last + 1`; it is `last + 1` only while `joins`.
pub(super) struct Followers {
    /// The followers to which we write.
    pub(super) progress: Vec<Option<FollowerProgress>>,
    /// Index up to which our writes to each follower are complete.
    pub(super) completed: Vec<u64>,
    /// End position of a granter's log, if our log does not reach back to it.
    pub(super) out_of_reach: Vec<Option<u64>>,
}

impl Followers {
    pub(super) fn new(replicas: u8) -> Self {
        let replicas = usize::from(replicas);
        Self {
            progress: vec![None; replicas],
            completed: vec![0; replicas],
            out_of_reach: vec![None; replicas],
        }
    }

    /// Resets the followers when we begin to lead: no log is open to us.
    pub(super) fn forget(&mut self) {
        self.progress.fill(None);
        self.completed.fill(0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// The follower in `slot`, if we write its log.
    pub(crate) fn follower(&self, slot: u8) -> Option<&FollowerProgress> {
        self.followers.progress[usize::from(slot)].as_ref()
    }

    /// Adds a follower: from here on we write its log.
    pub(crate) fn add_follower(&mut self, slot: u8, incarnation: u32, held_from: u64) {
        // The follower reports anew what it has applied when it reads our header. Its former incarnation may have
        // applied more. So may the same incarnation, if it has since taken the state of a replica that had applied
        // less.
        self.progress.forget(slot);
        // An incarnation that is not admitted yet proves that it has caught up by an acceptance word behind its `Join`.
        let joins = !self.members.view.names(slot, incarnation);
        let from = self.entries.last + u64::from(joins);
        self.followers.progress[usize::from(slot)] =
            Some(FollowerProgress { incarnation, from, landed: 0, told: false, joins, held_from });
        self.followers.completed[usize::from(slot)] = 0;
        self.followers.out_of_reach[usize::from(slot)] = None;
        self.eviction.forget(slot);
    }

    /// Records that a granter's log ends at a position to which ours does not reach back.
    pub(crate) fn set_out_of_reach(&mut self, slot: u8, end: Option<u64>) {
        self.followers.out_of_reach[usize::from(slot)] = end;
    }

    /// Drops a payload that these slots may lack. Completed writes to them do not count until their words cover its
    /// entry.
    pub(crate) fn lets_go_for(&mut self, slots: u16, index: u64) {
        for (slot, follower) in self.followers.progress.iter_mut().enumerate() {
            if let Some(follower) = follower.as_mut().filter(|_| slots >> slot & 1 == 1) {
                follower.from = follower.from.max(index);
            }
        }
    }

    /// Whether the follower's word shows that it holds the payloads of all entries that were logged when it granted our
    /// ballot.
    pub(crate) fn covers_what_it_may_lack(&self, slot: u8) -> bool {
        self.follower(slot).is_some_and(|follower| self.accepted(slot) >= follower.from)
    }
}
