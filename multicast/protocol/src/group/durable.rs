//! What this replica's disk holds of the log and of its promises.
//!
//! In a durable cluster a statement leaves a replica only when its disk could repeat it after a loss of power: an
//! acceptance word when the entries that it covers and the ballot are on disk, a grant and a request for grants when the
//! promise is. What rests on deliveries needs nothing more: those rest on f+1 such words of each group.
//!
//! In a cluster that is not durable, everything that is held in memory counts as if it were on disk.

use super::control::Closing;
use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::rank::Rank;

/// What a disk holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OnDisk {
    /// The ballot in which the log was written.
    pub ballot: Ballot,
    /// The last entry of the log.
    pub last: u64,
    /// The highest promise.
    pub promised: Ballot,
}

/// What a replica finds on its disk when it begins, besides the log: that it reads as a follower does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// It begins at this time. Whatever waits for something has waited since then.
    Begins { now_ms: u64 },
    /// It had promised this ballot.
    Promised(Ballot),
    /// The state that it has read is one that it saved itself, with this
    /// [recovery barrier](super::GroupLog::recovery_barrier).
    OwnState { recovery_barrier: u64 },
    /// It knew the log up to `commit` to be committed, and had delivered everything up to `delivered` by what stands
    /// there: other groups may have forgotten since what proved it.
    Delivered { commit: u64, delivered: Rank },
    /// That was all. It begins at this time, and may have promised a lease just before it ended.
    Over { now_ms: u64 },
}

/// What our disk holds.
///
/// **Invariants.** `disk.promised <= promised`. In the ballot in which we log, `disk.last <= last`.
#[derive(Clone, Copy, Default)]
pub(super) struct Durable {
    disk: OnDisk,
    /// What is to follow when our promise is on disk.
    awaited: Option<Closing>,
}

impl Durable {
    /// Another ballot is promised.
    pub(super) const fn forget_awaited(&mut self) {
        self.awaited = None;
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Whether replicas say only what their disks hold.
    pub const fn is_durable(&self) -> bool {
        self.config.durable
    }

    /// We had promised this ballot.
    pub(super) fn promised_before(&mut self, ballot: Ballot) {
        if ballot <= self.election.promised {
            return;
        }
        if self.role == Role::Blank {
            // It is kept when the state comes.
            self.election.promised = ballot;
            self.election.heard = self.election.heard.max(ballot.counter());
        } else {
            self.promise(ballot);
        }
    }

    /// Our disk holds this by now.
    pub(crate) fn has_on_disk(&mut self, disk: OnDisk) {
        debug_assert!(disk.promised <= self.election.promised, "what is on disk was promised");
        self.durable.disk = disk;
    }

    /// The index up to which we may say that we hold the log in the ballot in which we log; `None` if nothing may be
    /// said in that ballot.
    pub(super) fn durable_index(&self) -> Option<u64> {
        let OnDisk { ballot, last, .. } = self.durable.disk;
        if !self.config.durable || planted(Mutant::WordBeforeDisk) {
            return Some(self.entries.last);
        }
        (ballot == self.entries.ballot).then_some(last.min(self.entries.last))
    }

    /// Whether our promise may be spoken of.
    pub(super) fn is_promise_durable(&self) -> bool {
        let durable = self.durable.disk.promised >= self.election.promised;
        !self.config.durable || guard!(Mutant::PromiseBeforeDisk, durable)
    }

    /// The log was closed for this, and the ballot is promised.
    pub(super) const fn await_promise(&mut self, then: Closing) {
        self.durable.awaited = Some(then);
    }

    /// What follows now that our promise is on disk.
    pub(super) fn take_promised(&mut self) -> Option<Closing> {
        if !self.is_promise_durable() {
            return None;
        }
        let then = self.durable.awaited.take();
        debug_assert!(
            then.is_none() || matches!(self.role, Role::Follower | Role::Candidate),
            "who leads has spoken of its promise"
        );
        then
    }
}

#[cfg(test)]
mod tests;
