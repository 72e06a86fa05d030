//! What only a follower does: accept entries and acknowledge them.

use alloc::vec::Vec;

use super::Ramcast;
use crate::ballot::Ballot;
use crate::group::GroupRecord;
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::guard;
use crate::ids::{GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::log::Remote;
use crate::ramcast::{Effect, Record};
use crate::timestamp::Timestamp;

impl Ramcast {
    /// Task 3: accepts the next record of the log.
    pub(super) fn accept(&mut self, entry: Uncommitted<Record>, held: bool, last: bool) {
        assert!(self.log.stalled_on().is_none(), "the log waits for a payload");
        debug_assert!(entry.birth >= self.log.last_birth(), "births never fall along a log");
        match entry.record {
            Record::Group(GroupRecord::NewBallot) => {
                // A `NewBallot` of an earlier ballot was adopted like any other entry.
                if entry.birth == self.log.ballot() {
                    debug_assert_eq!(entry.index, self.log.first_index(), "as its leader said");
                    self.log.push(entry);
                    self.note_accepted(entry.index, entry.time_ms, last);
                    self.owe_all();
                    return;
                }
            }
            Record::Local { message, inline: false, .. }
                if !guard!(Mutant::AcceptanceWithoutPayload, held) =>
            {
                self.paths.stalled += 1;
                let ask_from_ms = self.log.now_ms() + self.config.fetch_after_ms;
                self.log.payloads.stall(message, ask_from_ms, entry, last);
                return;
            }
            Record::Local { message, low_water, timestamp, destinations, .. } => {
                self.raise_clock(timestamp);
                self.logged.insert(message, low_water);
                self.log.owe(entry.index, destinations);
            }
            Record::Remote(remote) => self.raise_clock(remote.timestamp),
            Record::Raise { timestamp } => self.raise_clock(timestamp),
            Record::Exchange
            | Record::Decided(_)
            | Record::Group(GroupRecord::Evict { .. } | GroupRecord::Join { .. }) => {}
        }
        self.log.push(entry);
        self.note_accepted(entry.index, entry.time_ms, last);
    }

    /// Task 3 for an entry of other groups' proposals: accepts all of them, as [`Logged`](crate::step::Event::Logged)
    /// would one after the other.
    pub fn accept_proposals(
        &mut self,
        index: u64,
        birth: Ballot,
        time_ms: u64,
        proposals: impl Iterator<Item = Remote> + Clone,
    ) {
        assert!(!self.log.leads(), "only the leader itself writes its log");
        assert!(self.log.stalled_on().is_none(), "the log waits for a payload");
        assert_eq!(index, self.log.last_index() + 1, "a follower never skips an entry");
        debug_assert!(birth >= self.log.last_birth(), "births never fall along a log");
        let highest = proposals.clone().map(|proposal| proposal.timestamp).max();
        self.raise_clock(highest.unwrap_or_default());
        self.log.push_items(index, birth, time_ms, proposals);
        self.note_accepted(index, time_ms, true);
    }

    #[inline]
    fn note_accepted(&mut self, index: u64, time_ms: u64, last: bool) {
        self.log.note_accepted(index, time_ms, last);
        if last {
            self.log.owe(index, GroupSet::single(self.group()));
        }
    }

    /// A replica that leads one day must propose above everything in its log.
    fn raise_clock(&mut self, timestamp: Timestamp) {
        if !planted(Mutant::FollowerClockNotRaised) {
            self.clock = self.clock.max(timestamp.clock());
        }
    }

    /// The payload of `message` has arrived.
    pub(super) fn unstall(&mut self, message: MessageId) {
        if let Some((entry, last)) = self.log.payloads.unstall(message) {
            self.accept(entry, true, last);
        }
    }

    /// Sends one word, which covers everything accepted in this turn, to our own group and to the groups with which we
    /// share one of its messages, and to no other.
    pub(super) fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        let Some((mut groups, acceptance)) = self.log.take_word() else { return };
        if planted(Mutant::BystandersTold) {
            groups = GroupSet::first(self.config.groups);
        }
        effects.push(Effect::Acknowledge { groups, acceptance });
    }
}
