//! A read-only view of a replica's order, for operators, the simulator and tests.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Record, Tram};
use crate::group::uncommitted::Uncommitted;
use crate::group::{LogRecord as _, Role};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::ordering::Inspect;
use crate::rank::Rank;

/// A replica's part of the order.
#[derive(Clone, Copy)]
pub struct Inspection<'a>(pub(super) &'a Tram);

impl Inspection<'_> {
    /// Messages that will be delivered here when their entries are committed.
    fn uncommitted(&self) -> impl Iterator<Item = MessageId> {
        let order = self.0;
        order.log.uncommitted().filter_map(|entry| {
            let Record::Ordered { content, taken, .. } = entry.record else { return None };
            let lca = content.lca(&order.tree);
            let stale = taken.is_some_and(|taken| !order.incoming.is_new(taken.place, lca));
            let for_us = content.destinations(&order.tree).contains(order.own());
            content.message().filter(|_| for_us && !stale && !entry.record.is_repeat())
        })
    }
}

impl Inspect for Inspection<'_> {
    fn highest_clock(&self) -> u64 {
        self.0.clock + self.0.log.last_index()
    }

    fn counter_known_of(&self, group: GroupId) -> u32 {
        if group == self.0.own() {
            return self.0.log.ballot_counter();
        }
        self.0.ballots[group.index()].counter()
    }

    /// A rank in the log of that group.
    fn settled_clock_of(&self, group: GroupId) -> u64 {
        self.0.shared.settled_by(group).number()
    }

    /// This replica may have been evicted while it made no progress, and not have read so. Then the others have applied
    /// what it has yet to deliver, and the results for which its machine would wait may be dropped everywhere.
    fn can_be_revived(&self, settled: u64) -> bool {
        let order = self.0;
        let over = |destinations: GroupSet, rank: Rank| {
            destinations.has_several() && rank.number() <= settled
        };
        let logged = |entry: &Uncommitted<Record>| {
            let rank = Tram::rank(entry.birth, entry.index);
            entry.record.message().is_some_and(|it| over(it.destinations, rank))
        };
        let lacks = || {
            order.pending.iter().any(|it| over(it.destinations, it.rank))
                || order.log.uncommitted().any(logged)
        };
        order.log.role() != Role::Blank && order.log.is_whole(&order.deliveries()) && !lacks()
    }

    fn pending(&self) -> usize {
        self.0.pending.len() + self.uncommitted().count()
    }

    fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.0.pending.front().map(|it| (it.since_ms, it.message))
    }

    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)> {
        None
    }

    fn describe_blocked(&self) -> String {
        String::new()
    }

    fn retained(&self) -> usize {
        let edges: usize = self.0.children.iter().map(|(_, it)| it.unacknowledged()).sum();
        self.0.gate.unstable() + edges + self.0.shared.len()
    }

    fn passed(&self) -> Rank {
        self.0.gate.passed(self.0.newest.map_or(Rank::NOTHING, |(_, _, rank)| rank))
    }

    fn undelivered(&self) -> Vec<MessageId> {
        self.0.pending.iter().map(|it| it.message).chain(self.uncommitted()).collect()
    }
}
