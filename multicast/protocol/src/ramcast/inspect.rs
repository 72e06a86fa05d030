//! What an onlooker may look at: operators, the simulator's rules and tests. Nothing here changes anything.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Paths, Ramcast};
use crate::ballot::Ballot;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::step::Record;
use crate::timestamp::Timestamp;

/// A replica's part of the order, as it stands. Its group's log is looked at [by itself](Ramcast::log).
#[derive(Clone, Copy)]
pub struct Inspection<'a>(&'a Ramcast);

impl Ramcast {
    /// What stands here, for an onlooker.
    pub const fn inspect(&self) -> Inspection<'_> {
        Inspection(self)
    }
}

impl<'a> Inspection<'a> {
    /// Our logical clock: at least every timestamp in our log.
    pub const fn clock(&self) -> u64 {
        self.0.clock
    }

    /// The highest clock that we know any replica to have had: our own, and what groups have told us that they
    /// were done with or had delivered. A group that is recreated begins above it. What it said before it was
    /// lost stands in the memory of others, and a proposal at or below that would be taken for one of the past.
    pub fn highest_clock(&self) -> u64 {
        self.0.clock.max(self.0.shared.highest_clock()).max(self.0.passed.highest_clock())
    }

    /// The highest ballot counter of a group that stands anywhere in our memory: announced, logged, or in a word. A group
    /// that begins anew above all of these is taken for its former self by nobody.
    pub fn counter_known_of(&self, group: GroupId) -> u32 {
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

    /// The highest clock up to which a group is done, with messages to several, as far as we were told.
    pub fn settled_clock_of(&self, group: GroupId) -> u64 {
        self.0.shared.settled_by(group).clock()
    }

    /// Messages logged here and not delivered.
    pub fn pending(&self) -> usize {
        let local = |entry: &&Uncommitted<Record>| matches!(entry.record, Record::Local { .. });
        self.0.order.len() + self.0.log.uncommitted().filter(local).count()
    }

    /// Since when the oldest pending message waits, and which it is.
    pub fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.0.order.oldest()
    }

    /// The pending message to several groups that no other such can pass by: since when it waits,
    /// which it is, and the groups whose proposal, or whose quorum for it, is missing here.
    pub fn stuck(&self) -> Option<(u64, MessageId, GroupSet)> {
        let several = self.0.order.iter().filter(|pending| pending.destinations.has_several());
        let pending = several.min_by_key(|pending| pending.bound())?;
        Some((pending.since_ms, pending.message, self.0.lacking(pending)))
    }

    /// What keeps the next message from being delivered, for an onlooker.
    pub fn describe_stuck(&self) -> String {
        let Some((_, message, lacks)) = self.stuck() else { return String::new() };
        let settled = self.0.shared.settled_by(self.0.group());
        let pending = self.0.order.get(message).expect("it waits");
        format!("{message} lacks {lacks}, of all that is settled up to {settled}: {pending:?}")
    }

    /// Delivered messages to several groups that are kept, since somebody may not be done with them.
    pub fn owes(&self) -> usize {
        self.0.shared.len()
    }

    /// Up to where our group has passed, as far as we know.
    pub fn passed(&self) -> Timestamp {
        self.0.passed.by_us()
    }

    /// Messages in our log that are not delivered here, for an onlooker.
    pub fn undelivered(&self) -> Vec<MessageId> {
        let pending = self.0.order.iter().map(|pending| pending.message);
        pending.chain(self.0.log.uncommitted().filter_map(|entry| entry.record.message())).collect()
    }

    /// How often each path was taken that is not the common one.
    pub const fn paths(&self) -> &'a Paths {
        &self.0.paths
    }
}
