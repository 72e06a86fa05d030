//! A read-only view of a replica's order, for operators, the simulator and tests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Paths, Ramcast, Record};
use crate::ballot::Ballot;
use crate::group::Role;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::ordering::Inspect;
use crate::rank::Rank;
use crate::timestamp::Timestamp;

/// A replica's part of the order. Its group's log is inspected [separately](crate::ordering::OrderingProtocol::log).
#[derive(Clone, Copy)]
pub struct Inspection<'a>(pub(super) &'a Ramcast);

impl Ramcast {
    /// Counts of the uncommon paths taken.
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }
}

impl Inspection<'_> {
    /// Our logical clock: at least every timestamp in our log.
    pub const fn clock(&self) -> u64 {
        self.0.clock
    }
}

impl Inspect for Inspection<'_> {
    /// The highest of our clock and the clocks up to which groups have reported that they were done or had delivered. A
    /// report that a group sent before it was lost remains in other memories, and a proposal at or below it would be
    /// taken for one of the past.
    fn highest_clock(&self) -> u64 {
        self.0.clock.max(self.0.retained.highest_clock()).max(self.0.passed.highest_clock())
    }

    fn counter_known_of(&self, group: GroupId) -> u32 {
        if group == self.0.group() {
            return self.0.log.ballot_counter();
        }
        let committed = self.0.order.highest_ballot_of(group);
        let logged = self.0.log.uncommitted_items().filter(|remote| remote.group() == group);
        let known = committed.max(self.0.ballots[group.index()]);
        let known = logged.map(|it| it.ballot).fold(known, Ballot::max).counter();
        let words = self.0.quorums.words_of(group);
        words.fold(known, |most, word| most.max(word.counter_beyond(known)))
    }

    fn settled_clock_of(&self, group: GroupId) -> u64 {
        self.0.retained.settled_by(group).clock()
    }

    /// This replica may have been evicted while it made no progress, and not have read so. Then the others finished
    /// without it, and no replica can report where its pending messages ended.
    fn can_be_revived(&self, settled: u64) -> bool {
        let order = self.0;
        let over = |to: GroupSet, bound: Timestamp| to.has_several() && bound.clock() <= settled;
        let logged = |entry: &Uncommitted<Record>| match entry.record {
            Record::Local { destinations, timestamp, .. } => over(destinations, timestamp),
            _ => false,
        };
        let pending = || order.order.iter().any(|it| over(it.destinations, it.bound()));
        let lacks = || pending() || order.log.uncommitted().any(logged);
        let whole = order.log.is_whole(&order.deliveries());
        order.log.role() != Role::Blank && whole && !lacks()
    }

    fn pending(&self) -> usize {
        let local = |entry: &&Uncommitted<Record>| matches!(entry.record, Record::Local { .. });
        self.0.order.len() + self.0.log.uncommitted().filter(local).count()
    }

    fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.0.order.oldest()
    }

    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)> {
        let several = self.0.order.iter().filter(|pending| pending.destinations.has_several());
        let pending = several.min_by_key(|pending| pending.bound())?;
        Some((pending.since_ms, pending.message, self.0.lacking(pending)))
    }

    fn describe_blocked(&self) -> String {
        let Some((_, message, lacks)) = self.blocked() else { return String::new() };
        let settled = self.0.retained.settled_by(self.0.group());
        let pending = self.0.order.get(message).expect("it waits");
        format!("{message} lacks {lacks}, of all that is settled up to {settled}: {pending:?}")
    }

    fn retained(&self) -> usize {
        self.0.retained.len()
    }

    fn passed(&self) -> Rank {
        self.0.passed.by_us().into()
    }

    fn undelivered(&self) -> Vec<MessageId> {
        let pending = self.0.order.iter().map(|pending| pending.message);
        pending.chain(self.0.log.uncommitted().filter_map(|entry| entry.record.local())).collect()
    }
}
