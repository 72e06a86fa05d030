//! What a leader knows to be in the memory of those whose logs it writes.

use alloc::vec;
use alloc::vec::Vec;

use super::GroupLog;
use super::record::LogRecord;

/// A follower to which we write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowerProgress {
    /// Its incarnation.
    pub(crate) incarnation: u32,
    /// Up to here the log may hold entries whose payload it lacks and we have let go: completed writes
    /// count when its word covers this.
    pub(super) from: u64,
    /// The number of our last write that is in its memory.
    pub(super) landed: u64,
    /// It has told us what it has applied.
    pub(crate) told: bool,
    /// It was not admitted yet when it let us write its log.
    pub(super) joins: bool,
    /// Position from which its memory held its log when it granted.
    pub(super) held_from: u64,
}

/// The followers of a leader, by slot.
///
/// **Invariants.** `completed <= last`. `from <= last + 1`; it is `last + 1` only while `joins`.
pub(super) struct Followers {
    /// Those to which we write.
    pub(super) progress: Vec<Option<FollowerProgress>>,
    /// Up to where our writes to each completed.
    pub(super) completed: Vec<u64>,
    /// Position at which the log of a granter ends, if ours does not reach back to it.
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

    /// We begin to lead: nobody's log is open to us.
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

    /// A follower is let in: we write its log from here on.
    pub(crate) fn add_follower(&mut self, slot: u8, incarnation: u32, held_from: u64) {
        // It tells us anew what it has applied when it reads our header. Its former incarnation may have applied
        // more; and so may the same one, if it has taken a state since of somebody who had applied less.
        self.progress.forget(slot);
        // An incarnation that is not let in yet proves that it has caught up by a word behind its `Join`.
        let joins = !self.members.view.names(slot, incarnation);
        let from = self.entries.last + u64::from(joins);
        self.followers.progress[usize::from(slot)] =
            Some(FollowerProgress { incarnation, from, landed: 0, told: false, joins, held_from });
        self.followers.completed[usize::from(slot)] = 0;
        self.followers.out_of_reach[usize::from(slot)] = None;
        self.eviction.forget(slot);
    }

    /// A replica lets us write its log, which ends at a position that ours does not reach back to.
    pub(crate) fn set_out_of_reach(&mut self, slot: u8, end: Option<u64>) {
        self.followers.out_of_reach[usize::from(slot)] = end;
    }

    /// A payload is let go of that these slots may lack: completed writes to them count no more until their words cover
    /// its entry.
    pub(crate) fn lets_go_for(&mut self, slots: u16, index: u64) {
        for (slot, follower) in self.followers.progress.iter_mut().enumerate() {
            if let Some(follower) = follower.as_mut().filter(|_| slots >> slot & 1 == 1) {
                follower.from = follower.from.max(index);
            }
        }
    }

    /// Whether the payloads of what was logged when a follower let us write its log are there, as far as its word says.
    pub(crate) fn covers_what_it_may_lack(&self, slot: u8) -> bool {
        self.follower(slot).is_some_and(|follower| self.accepted(slot) >= follower.from)
    }
}
