//! Datagrams of an ordering to replicas of other groups: what a replica has for each of them in one turn, in a few
//! datagrams.

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, ReplicaId};

use crate::channel::Kind;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Limit of items in one datagram: the reader's log must have room for an entry for each of them.
pub(crate) const TOGETHER_MAX: usize = 16;

/// The items for one group's replica `slot`.
struct Batch {
    slot: u8,
    count: usize,
    bytes: Vec<u8>,
}

/// The batches to send, by group.
pub struct TurnBatches {
    batches: Vec<Batch>,
    by: ReplicaId,
    /// Length in bytes from which a datagram takes no further item.
    full_at: usize,
    /// Some batch is not empty.
    any: bool,
}

impl TurnBatches {
    /// Empty batches of one replica.
    pub(crate) fn new(by: ReplicaId, groups: u16, full_at: usize) -> Self {
        let batch = |_| Batch { slot: 0, count: 0, bytes: Vec::new() };
        let batches = (0..groups).map(batch).collect();
        Self { batches, by, full_at, any: false }
    }

    /// Adds an item that `encode` appends.
    pub(crate) fn push<F: Fabric, O: Links>(
        &mut self,
        to: ReplicaId,
        encode: impl FnOnce(&mut Vec<u8>),
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.any = true;
        let batch = &self.batches[to.group.index()];
        let full = batch.count == TOGETHER_MAX || batch.bytes.len() >= self.full_at;
        if full || batch.slot != to.slot {
            self.send_to(to.group, links);
        }
        let batch = &mut self.batches[to.group.index()];
        encode(&mut batch.bytes);
        batch.slot = to.slot;
        batch.count += 1;
    }

    /// Sends all batches. Returns whether there were any.
    pub(crate) fn send<F: Fabric, O: Links>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        if !std::mem::take(&mut self.any) {
            return false;
        }
        for group in (0..self.batches.len()).map(|group| GroupId(group as u16)) {
            self.send_to(group, links);
        }
        true
    }

    fn send_to<F: Fabric, O: Links>(&mut self, group: GroupId, links: &mut ReplicaLinks<F, O>) {
        let batch = &mut self.batches[group.index()];
        if batch.count > 0 {
            let to = ReplicaId::new(group, batch.slot);
            links.send(self.by, to, Kind::Order, &batch.bytes, &[]);
            batch.count = 0;
            batch.bytes.clear();
        }
    }
}
