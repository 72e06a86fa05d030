//! A follower, as its leader sees it.

use std::collections::VecDeque;

use skein_fabric::Remote as RemoteRegion;

/// A follower, as its leader sees it.
#[derive(Clone, Default)]
pub(crate) struct Follower {
    pub(in crate::replica) log: Option<RemoteRegion>,
    /// Its logs that we write no more, whose memory waits for us to detach.
    pub(super) left: Vec<RemoteRegion>,
    /// Up to where its copy of the log is written.
    pub(in crate::replica) sent: u64,
    /// Bytes that were written to it since it was last woken for them.
    pub(super) unread: u64,
    /// Up to where it needs the log no more.
    pub(in crate::replica) freed: u64,
    /// The number of the last write to it under this grant.
    pub(super) posted: u64,
    /// Raised when it must let us in again.
    pub(in crate::replica) attempt: u32,
    /// The incarnation to be admitted when it has all of the log.
    pub(in crate::replica) joining: Option<u32>,
    /// Writes under way: their numbers, and up to which index they go.
    pub(super) under_way: VecDeque<(u64, u64)>,
}

impl Follower {
    /// It lets us write its log, from `sent` on.
    pub(in crate::replica) fn let_in(&mut self, log: RemoteRegion, sent: u64, freed: u64) {
        self.left.extend(self.log.replace(log));
        (self.sent, self.freed, self.posted) = (sent, freed, 0);
        self.forget_writes();
    }

    /// Nothing more is written to it until it lets us in again.
    pub(super) fn lose(&mut self) {
        self.left.extend(self.log.take());
        self.joining = None;
        self.attempt += 1;
    }

    /// What completes or fails of writes until now says nothing of later ones.
    pub(in crate::replica) fn forget_writes(&mut self) {
        self.under_way.clear();
    }

    /// Whether everything that was written is in its memory.
    pub(in crate::replica) fn has_all(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Write number `number` is complete: up to which index it went, if it was under this grant.
    pub(super) fn completed(&mut self, number: u64) -> Option<u64> {
        let at = self.under_way.iter().position(|(n, _)| *n == number)?;
        self.under_way.drain(..=at).map(|(_, index)| index).max()
    }

    /// Write number `number` is under way, and with it the log up to `index`, if it is of that.
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
        let mut let_in = || leader.attach(peer, &key).unwrap();
        let mut it = Follower::default();
        it.let_in(let_in(), 0, 0);
        it.post(1, 10);
        it.post(2, 20);
        assert_eq!(it.completed(1), Some(10));
        // It led no more, and leads again: what it had written up to 20 may have been cut off.
        it.let_in(let_in(), 0, 0);
        it.post(3, 12);
        assert_eq!((it.completed(2), it.has_all()), (None, false));
        assert_eq!((it.completed(3), it.has_all()), (Some(12), true));
    }
}
