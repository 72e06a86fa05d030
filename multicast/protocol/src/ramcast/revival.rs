//! Recreating a lost group from the log of a survivor.
//!
//! More memories of a group are lost than it tolerates, so nobody can tell what it had acknowledged: a
//! quorum that does not contain the survivor may have committed more. An operator declares the
//! survivor's log to be all that was committed, and a view in which the replicas that lost their
//! memory count in their present incarnations.
//!
//! **Invariant (nobody counts without the state).** All this happens in a ballot of a new generation, the
//! *marker*, which every replica of the group promises: no leader of an earlier one writes a log any
//! more. The survivor [begins](Ramcast::revive) with its whole log committed, and gives its state away.
//! Every other replica is blank or [suspended](Ramcast::suspend), and neither grants nor
//! acknowledges anything, until it has taken a state of that generation. So the first leader is elected
//! by f+1 replicas of which each holds all that the survivor held, and from there on the group is one
//! like any other. A suspended replica keeps its own state until then: if the survivor is lost
//! meanwhile, the operator can begin with another.

use super::Ramcast;
use crate::ballot::Ballot;
use crate::bytes::Reader;
use crate::group::Role;
use crate::group::uncommitted::Uncommitted;
use crate::ids::GroupSet;
use crate::step::Record;
use crate::timestamp::Timestamp;
use crate::view::View;

impl Ramcast {
    /// As the survivor: all that our log holds is committed, in a group of this view. Our log must be
    /// closed to its leader, and read to its end, before.
    pub fn revive(&mut self, marker: Ballot, view: View, clock: u64) {
        self.promise(marker);
        self.fold(self.log.last_index());
        self.log.revive(marker, view);
        self.clock = self.clock.max(clock);
    }

    /// As any other replica of the group: nothing of ours counts until we have taken the survivor's
    /// state.
    pub fn suspend(&mut self, marker: Ballot) {
        if self.log.role() != Role::Blank {
            self.promise(marker);
        }
        self.log.suspend(marker);
    }

    /// Whether a [saved](Self::save) state is of the generation in which our group goes on, or of a later
    /// one. One that makes no sense is not.
    pub fn is_current(&self, saved: &[u8]) -> bool {
        let mut from = Reader(saved);
        let mut own_ballot = || {
            from.u8()?;
            for _ in 0..4 {
                from.u64()?;
            }
            for _ in 0..self.config.group.replicas {
                from.u32()?;
                from.u8()?;
            }
            for _ in 0..self.group().index() {
                from.u64()?;
            }
            from.u64().map(Ballot::from_word)
        };
        own_ballot().is_some_and(|ballot| ballot.generation() >= self.log.promised().generation())
    }

    /// Whether our group can go on from our state: we have one, and lack nothing that other groups tell
    /// nobody any more, since they know that our group is done with it. `settled` is the highest clock up to
    /// which any replica was told that. We may have been evicted while we stood still, and not have read so:
    /// then the others were done without us, and nobody knows where what is pending here ended.
    pub fn can_be_revived(&self, settled: u64) -> bool {
        let over = |to: GroupSet, bound: Timestamp| to.has_several() && bound.clock() <= settled;
        let logged = |entry: &Uncommitted<Record>| match entry.record {
            Record::Local { destinations, timestamp, .. } => over(destinations, timestamp),
            _ => false,
        };
        let pending = || self.order.iter().any(|it| over(it.destinations, it.bound()));
        let lacks = || pending() || self.log.uncommitted().any(logged);
        let whole = self.log.is_whole(&self.deliveries());
        self.log.role() != Role::Blank && whole && !lacks()
    }
}
