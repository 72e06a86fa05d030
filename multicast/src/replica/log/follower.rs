//! A leader's record of a follower.

use std::collections::VecDeque;

use skein_fabric::Remote as RemoteRegion;

/// A leader's record of a follower.
#[derive(Clone, Default)]
pub(crate) struct Follower {
    /// The follower's log, while we may write it.
    pub(in crate::replica) log: Option<RemoteRegion>,
    /// Former logs of the follower that we write no more, and that are yet to be detached.
    pub(super) left: Vec<RemoteRegion>,
    /// Position up to which its copy of the log is written.
    pub(in crate::replica) sent: u64,
    /// Bytes that were written to it since it was last woken for them.
    pub(super) unread: u64,
    /// Position up to which it no longer needs the log.
    pub(in crate::replica) freed: u64,
    /// The number of the last write to it under this grant.
    pub(super) posted: u64,
    /// Raised when it must grant its log again.
    pub(in crate::replica) attempt: u32,
    /// The incarnation to be admitted when it has all of the log.
    pub(in crate::replica) joining: Option<u32>,
    /// Number of feeds from our disk since its log ended at `fed_from`; the limit if our disk has no more what it lacks.
    pub(in crate::replica) feeds: u32,
    pub(in crate::replica) fed_from: u64,
    /// Writes in flight: their numbers, and the log index up to which each goes.
    pub(super) under_way: VecDeque<(u64, u64)>,
}

impl Follower {
    /// Begins to write its log, which it has granted, from `sent` on.
    pub(in crate::replica) fn attached(&mut self, log: RemoteRegion, sent: u64, freed: u64) {
        self.left.extend(self.log.replace(log));
        (self.sent, self.freed, self.posted) = (sent, freed, 0);
        self.forget_writes();
    }

    /// Stops writing its log until it grants it again.
    pub(super) fn lose(&mut self) {
        self.left.extend(self.log.take());
        self.joining = None;
        self.attempt += 1;
    }

    /// Ignores the completions of all writes until now.
    pub(in crate::replica) fn forget_writes(&mut self) {
        self.under_way.clear();
    }

    /// Returns whether everything that was written is in its memory.
    pub(in crate::replica) fn has_all(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Handles the completion of write number `number`. Returns the index up to which it went, if it was
    /// under this grant.
    pub(super) fn completed(&mut self, number: u64) -> Option<u64> {
        let at = self.under_way.iter().position(|(n, _)| *n == number)?;
        self.under_way.drain(..=at).map(|(_, index)| index).max()
    }

    /// Records write number `number`, which carries the log up to `index`, or 0 if it carries none.
    pub(super) fn post(&mut self, number: u64, index: u64) {
        self.posted = number;
        self.under_way.push_back((number, index));
    }
}

#[cfg(test)]
mod tests {
    use skein_fabric::sim::{SimConfig, World};
    use skein_fabric::{Fabric, Permission};
    use skein_protocol::group::frame::PREAMBLE;

    use super::*;

    #[test]
    fn what_completes_of_an_earlier_grant_says_nothing_of_this_one() {
        let world = World::new(1, SimConfig::default());
        let (mut leader, mut follower) = (world.join("leader"), world.join("follower"));
        let region = follower.create(PREAMBLE + 1024, Permission::Granted).unwrap();
        let writer = follower.dial("leader").unwrap();
        let key = follower.grant(region, writer).unwrap();
        let peer = leader.dial("follower").unwrap();
        let mut attach = || leader.attach(peer, &key).unwrap();
        let mut it = Follower::default();
        it.attached(attach(), 0, 0);
        it.post(1, 10);
        it.post(2, 20);
        assert_eq!(it.completed(1), Some(10));
        // We led, stopped, and lead again: what was written up to 20 may have been cut off.
        it.attached(attach(), 0, 0);
        it.post(3, 12);
        assert_eq!((it.completed(2), it.has_all()), (None, false));
        assert_eq!((it.completed(3), it.has_all()), (Some(12), true));
    }
}
