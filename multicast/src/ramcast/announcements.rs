//! Repeated announcements of a leader to replicas of other groups: all of a turn, in a few datagrams. First
//! announcements go into the [`ProposalBatch`](super::proposal_batch).

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::ramcast::announcement::Announcement;

use crate::channel::Kind;
use crate::replica_links::ReplicaLinks;

/// Limit of announcements in one datagram: the reader's log must have room for all of them.
const TOGETHER_MAX: usize = 16;

/// The announcements to one group's replica `slot`.
struct Batch {
    slot: u8,
    count: usize,
    bytes: Vec<u8>,
}

/// The announcements to be sent, by group.
pub struct Announcements {
    batches: Vec<Batch>,
    by: ReplicaId,
    /// Some batch is not empty.
    any: bool,
}

impl Announcements {
    pub(super) fn new(by: ReplicaId, groups: u16) -> Self {
        let batch = |_| Batch { slot: 0, count: 0, bytes: Vec::new() };
        let batches = (0..groups).map(batch).collect();
        Self { batches, by, any: false }
    }

    pub(super) fn push<F: Fabric>(
        &mut self,
        to: ReplicaId,
        announcement: &Announcement,
        links: &mut ReplicaLinks<F, Ramcast>,
    ) {
        self.any = true;
        let batch = &self.batches[to.group.index()];
        if batch.count == TOGETHER_MAX || batch.slot != to.slot {
            self.send_to(to.group, links);
        }
        let batch = &mut self.batches[to.group.index()];
        announcement.encode(&mut batch.bytes);
        batch.slot = to.slot;
        batch.count += 1;
    }

    /// Sends all batches. Returns whether there were any.
    pub(super) fn send<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, Ramcast>) -> bool {
        if !std::mem::take(&mut self.any) {
            return false;
        }
        for group in (0..self.batches.len()).map(|group| GroupId(group as u16)) {
            self.send_to(group, links);
        }
        true
    }

    fn send_to<F: Fabric>(&mut self, group: GroupId, links: &mut ReplicaLinks<F, Ramcast>) {
        let batch = &mut self.batches[group.index()];
        if batch.count > 0 {
            let to = ReplicaId::new(group, batch.slot);
            links.send(self.by, to, Kind::Order, &batch.bytes, &[]);
            batch.count = 0;
            batch.bytes.clear();
        }
    }
}
