//! What only a leader does: propose, log, announce, and release payloads.

use alloc::vec::Vec;

use super::Ramcast;
use super::announcement::{Announcement, Proposed};
use super::delivery::Proposal;
use super::log::{Decision, REMOTES_MAX, Remote};
use super::{Effect, PeerEffect, Record};
use crate::backoff::longer;
use crate::ballot::Ballot;
use crate::group::GroupRecord;
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ordering::{MessageStage, OrderingProtocol};
use crate::timestamp::Timestamp;

/// Most pending messages about which other groups are asked at once.
const ASKED_MAX: usize = 256;

/// Most messages about which a follower asks its leader at once.
const LACKING_MAX: usize = 64;
/// Timeouts that a follower waits before it asks. A leader waits one.
const FOLLOWERS_TIMEOUTS: u64 = 3;

/// State of the queries to other groups.
#[derive(Default)]
pub(super) struct Asking {
    /// Messages delivered at the last query, and queries since that number rose.
    delivered: u64,
    in_vain: u32,
}

/// A message that other groups have announced and that has not arrived here.
pub(super) struct Unreceived {
    announced: Vec<Proposal>,
    /// The replica from which it can be fetched.
    from: ReplicaId,
    /// Time of the first announcement, or of the last fetch.
    since_ms: u64,
}

/// The part that the entry at `index` has of all that the last turn's end logged from the entry `from` on.
fn entry_of<T>(logged: &[T], from: u64, index: u64) -> &[T] {
    let at = index.checked_sub(from).and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| logged.chunks(REMOTES_MAX).nth(at)).expect("the last turn's end logged it")
}

impl Ramcast {
    /// Task 2: a message has arrived. Gives it its place in our order unless it has one.
    pub(super) fn receive(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
        effects: &mut Vec<Effect>,
    ) {
        let new = self.logged.insert(message, low_water);
        let awaits_delivery = |this: &Self| this.stage_of(message) != MessageStage::Delivered;
        // For a mutant: a duplicate of a delivered message is logged again.
        let done_again = planted(Mutant::DuplicateExecuted)
            && !destinations.has_several()
            && !awaits_delivery(self);
        if !guard!(Mutant::DuplicateProposed, new) && !done_again {
            if awaits_delivery(self) {
                self.paths.duplicate_pending += 1;
            } else {
                self.paths.duplicate_delivered += 1;
                effects.push(Effect::Repeat { message });
            }
            return;
        }
        self.clock += 1;
        let timestamp = Timestamp::new(self.clock, self.group());
        let record = Record::Local { message, low_water, timestamp, destinations, inline };
        let index = self.append(record, effects);
        if !inline {
            self.log.payloads.keep(index, message);
        }
        if !destinations.has_several() {
            return;
        }
        self.uncommitted_multi_group.insert(message);
        let (ballot, again) = (self.log.ballot(), None);
        let announcement =
            Announcement { message, low_water, destinations, timestamp, ballot, index, again };
        effects.push(Effect::Tell(PeerEffect::Propose { announcement }));
        if let Some(unreceived) = self.unreceived.remove(&message) {
            self.remotes.extend(unreceived.announced.iter().map(|it| it.of(message)));
            self.lists.keep(unreceived.announced);
        }
    }

    /// Task 4: another group's proposal. A message that is announced here must be proposed here too, so the proposal is
    /// kept until the message arrives. A delivered message needs no more proposals, but the announcing leader may need
    /// something of ours; and a slow replica of ours may need a logged decision, if the announcing group has changed
    /// its leader.
    pub(super) fn hear(
        &mut self,
        from: ReplicaId,
        announcement: &Announcement,
        effects: &mut Vec<Effect>,
    ) {
        let &Announcement { message, timestamp, ballot, index, again, .. } = announcement;
        if !self.hears(from.group, ballot, effects) {
            return;
        }
        let remote = Remote { message, timestamp, ballot, index };
        let pending = self.order.get(message);
        if pending.is_some() || self.uncommitted_multi_group.contains(&message) {
            // A proposal that arrives twice in one turn is logged twice, and folded in once.
            if !pending.is_some_and(|pending| pending.has_remote(&remote)) {
                self.remotes.push(remote);
            }
            if again.is_some() {
                self.tell(message, from, false, effects);
            }
            return;
        }
        if self.logged.contains(message) {
            self.hear_of_delivered(announcement, from, effects);
            return;
        }
        if planted(Mutant::EarlyAnnouncementDropped) {
            return;
        }
        self.paths.announced_early += 1;
        let now_ms = self.log.now_ms();
        let lists = &mut self.lists;
        let unreceived = self.unreceived.entry(message).or_insert_with(|| Unreceived {
            announced: lists.take(),
            from,
            since_ms: now_ms,
        });
        unreceived.from = from;
        unreceived.announced.retain(|known| known.group() != remote.group());
        unreceived.announced.push((&remote).into());
    }

    /// Handles the proposals that leaders of one engine announce together for a message, as
    /// [`Announced`](super::PeerEvent::Announced) would one after the other.
    pub fn hear_together(
        &mut self,
        proposed: &Proposed,
        proposals: impl Iterator<Item = Remote> + Clone,
        effects: &mut Vec<Effect>,
    ) {
        let &Proposed { message, low_water, destinations } = proposed;
        let before = self.remotes.len();
        let leads = self.log.leads();
        for remote in proposals {
            let (group, ballot) = (remote.group(), remote.ballot);
            let expected = leads && ballot == self.ballots[group.index()];
            if expected || self.hears(group, ballot, effects) {
                self.remotes.push(remote);
            }
        }
        let heard = &self.remotes[before..];
        let known = match self.order.hear(message, heard) {
            Some(pending) => heard.iter().any(|it| pending.has_remote(it)),
            None => !self.uncommitted_multi_group.contains(&message),
        };
        if known {
            // Some of them are duplicates, or the message is not pending here: handle them one after the other.
            for _ in before..self.remotes.len() {
                let Remote { timestamp, ballot, index, .. } = self.remotes.remove(before);
                let from = ReplicaId::new(timestamp.group(), ballot.slot());
                let again = None;
                let announcement = Announcement {
                    message,
                    low_water,
                    destinations,
                    timestamp,
                    ballot,
                    index,
                    again,
                };
                self.hear(from, &announcement, effects);
            }
        }
    }

    /// Notes a group's ballot. Returns whether this replica leads and the ballot is no earlier than the highest seen.
    fn hears(&mut self, group: GroupId, ballot: Ballot, effects: &mut Vec<Effect>) -> bool {
        let known = &mut self.ballots[group.index()];
        let (newer, stale) = (ballot > *known, ballot < *known);
        *known = ballot.max(*known);
        if !self.log.leads() {
            return false;
        }
        if newer && ballot.counter() > 1 {
            self.paths.heard_new_leader += 1;
            self.tell_all(group, effects);
        }
        self.paths.heard_old_leader += u64::from(stale);
        !stale
    }

    fn hear_of_delivered(
        &mut self,
        announcement: &Announcement,
        from: ReplicaId,
        effects: &mut Vec<Effect>,
    ) {
        let &Announcement { message, again, .. } = announcement;
        let Some(retained) = self.retained.get(message).copied() else {
            // All groups were done with the message, and our proposal is forgotten. A replica that still asks belongs
            // to a group that was recreated since, or lags behind a replica of its group that has applied the message.
            // In the latter case the group is done with everything that ends where this message does. A recreated group
            // is not: it cannot deliver beyond this message, though it may deliver beyond its own proposal for it, and
            // it begins above all that its former self was done with.
            let begins_anew = |bound| self.retained.settled_by(from.group) < bound;
            if again.is_some_and(begins_anew) && !planted(Mutant::OverNotTold) {
                self.paths.told_over += 1;
                let (ballot, index) = (self.log.ballot(), self.log.first_index());
                let timestamp = Timestamp::over(self.group());
                let over = Announcement { timestamp, ballot, index, again: None, ..*announcement };
                effects.push(Effect::Tell(PeerEffect::Announce { to: from, announcement: over }));
            }
            return;
        };
        if self.retained.unsettled_in(self.group(), &retained) {
            self.decisions.extend(self.retained.decide(message));
        }
        if again.is_some() {
            self.tell(message, from, false, effects);
        }
    }

    /// Announces one of our messages to a replica of another group, and sends the result of our state machine, if there
    /// is one.
    pub(super) fn tell(
        &mut self,
        message: MessageId,
        to: ReplicaId,
        again: bool,
        effects: &mut Vec<Effect>,
    ) {
        if planted(Mutant::NotAnnouncedAgain) {
            return;
        }
        if let Some(announcement) = self.announcement(message, again) {
            effects.push(Effect::Tell(PeerEffect::Announce { to, announcement }));
        }
        if self.retained.get(message).is_some() {
            effects.push(Effect::Resend { message, to: to.group });
        }
    }

    /// The announcement of one of our messages. Its index is no lower than our first entry's: below that, nothing is
    /// acknowledged in our ballot.
    pub(super) fn announcement(&self, message: MessageId, again: bool) -> Option<Announcement> {
        let (low_water, destinations, timestamp, index, bound) = match self.order.get(message) {
            Some(p) => (p.low_water, p.destinations, p.local, p.index, p.bound()),
            None => match self.retained.get(message) {
                Some(retained) => (
                    retained.low_water,
                    retained.destinations,
                    retained.local,
                    retained.index,
                    retained.last,
                ),
                None => self.log.uncommitted().find_map(|entry| match entry.record {
                    Record::Local { message: m, low_water, timestamp, destinations, .. } => {
                        let found = (low_water, destinations, timestamp, entry.index, timestamp);
                        (m == message).then_some(found)
                    }
                    _ => None,
                })?,
            },
        };
        let again = again.then_some(bound);
        let least =
            if planted(Mutant::AnnouncedBelowNewBallot) { 0 } else { self.log.first_index() };
        let (ballot, index) = (self.log.ballot(), index.max(least));
        Some(Announcement { message, low_water, destinations, timestamp, ballot, index, again })
    }

    /// Asks all replicas of other groups for what pending messages have lacked for too long: the leader of such a group
    /// may have died with what it had received, or with what it had sent to us.
    pub(super) fn ask_again(&mut self, effects: &mut Vec<Effect>) {
        let (now, timeout) = (self.log.now_ms(), self.config.group.timeout_ms);
        let delivered = self.delivered();
        if self.asking.delivered != delivered {
            self.asking = Asking { delivered, in_vain: 0 };
        }
        if now < self.asked_ms + longer(timeout, self.asking.in_vain) {
            return;
        }
        self.asked_ms = now;
        let late = self.order.iter().filter(|pending| now >= pending.since_ms + timeout);
        let late: Vec<_> = late
            .map(|pending| (pending.message, self.lacking(pending)))
            .filter(|(_, lacking)| !lacking.is_empty())
            .take(ASKED_MAX)
            .collect();
        self.asking.in_vain = if late.is_empty() { 0 } else { self.asking.in_vain + 1 };
        for (message, lacking) in late {
            self.ask_all(message, lacking, effects);
        }
    }

    /// As follower: messages that have waited too long for what other groups no longer send, because their leader
    /// changed after ours had delivered the messages, or for what does not reach this replica. Our leader is to be
    /// asked. Once it has answered, it is asked for the next ones at once, so that the follower catches up as fast as
    /// it is answered.
    pub(super) fn lacks_for_long(&mut self) -> Vec<MessageId> {
        let (now, timeout) = (self.log.now_ms(), self.config.group.timeout_ms);
        let answered = core::mem::take(&mut self.answered);
        if self.log.leads() || !answered && now < self.asked_ms + timeout {
            return Vec::new();
        }
        self.asked_ms = now;
        let waits = |since: u64| answered || now >= since + FOLLOWERS_TIMEOUTS * timeout;
        let late = self.order.iter().take_while(|pending| waits(pending.since_ms));
        let late = late.filter(|pending| !self.lacking(pending).is_empty());
        let late: Vec<_> = late.take(LACKING_MAX).map(|pending| pending.message).collect();
        self.asked = !late.is_empty();
        self.paths.asked_at_once += u64::from(answered && self.asked);
        late
    }

    /// A follower of ours cannot deliver a message. If this leader has delivered it, logs where it ended.
    pub(super) fn decide_for_follower(&mut self, message: MessageId) {
        if !self.log.leads() {
            return;
        }
        if let Some(decision) = self.retained.decide(message) {
            self.paths.decided_for_follower += 1;
            self.decisions.push(decision);
        }
    }

    /// Our state machine waits for other groups' results about a delivered message. It has received those of `heard`.
    pub(super) fn wait_for_results(
        &mut self,
        message: MessageId,
        heard: GroupSet,
        effects: &mut Vec<Effect>,
    ) {
        let groups = self.retained.get(message).map(|retained| retained.destinations);
        if let Some(groups) = groups.filter(|_| self.log.leads()) {
            self.ask_all(message, groups.without(self.group()).minus(heard), effects);
        }
    }

    fn ask_all(&mut self, message: MessageId, groups: GroupSet, effects: &mut Vec<Effect>) {
        self.paths.asked_again += 1;
        for group in groups.iter() {
            for slot in 0..self.config.group.replicas {
                self.tell(message, ReplicaId::new(group, slot), true, effects);
            }
        }
    }

    /// Logs the proposals that were announced in this turn, many to an entry. The clock rises first, so that nothing
    /// proposed from here on can end below them.
    pub(super) fn log_remotes(&mut self, effects: &mut Vec<Effect>) {
        let remotes = core::mem::take(&mut self.remotes);
        self.logged_from = self.log.last_index() + 1;
        for entry in remotes.chunks(REMOTES_MAX) {
            self.paths.remotes_merged += u64::from(entry.len() > 1);
            for remote in entry {
                if !planted(Mutant::LeaderClockNotRaised) {
                    self.clock = self.clock.max(remote.timestamp.clock());
                    self.clock_has_risen();
                }
            }
            let (index, birth, time_ms) = self.log.next_entry();
            self.log.push_items(index, birth, time_ms, entry.iter().copied());
            let record = Record::Remote(entry[0]);
            self.note_logged(index, &record);
            effects.push(Effect::Append { index, time_ms, record });
        }
        self.remotes = core::mem::replace(&mut self.logged_remotes, remotes);
        self.remotes.clear();
    }

    /// All proposals of the entry at `index`, which the last turn's end has appended.
    pub(super) fn logged_remotes(&self, index: u64) -> &[Remote] {
        entry_of(&self.logged_remotes, self.logged_from, index)
    }

    /// Logs the decisions of this turn, many to an entry.
    pub(super) fn log_decisions(&mut self, effects: &mut Vec<Effect>) {
        let decisions = core::mem::take(&mut self.decisions);
        self.decided_from = self.log.last_index() + 1;
        for entry in decisions.chunks(REMOTES_MAX) {
            self.paths.decided += entry.len() as u64;
            self.append_all(entry.iter().map(|decision| Record::Decided(*decision)), effects);
        }
        self.decisions = core::mem::replace(&mut self.logged_decisions, decisions);
        self.decisions.clear();
    }

    /// All decisions of the entry at `index`, which the last turn's end has appended.
    pub(super) fn logged_decisions(&self, index: u64) -> &[Decision] {
        entry_of(&self.logged_decisions, self.decided_from, index)
    }

    /// Releases payloads that are not in the log. Each is kept, past delivery, until every follower that the log waits
    /// for has its own.
    pub(super) fn release(&mut self, effects: &mut Vec<Effect>) {
        self.log.release(|message| effects.push(Effect::Forget { message }));
    }

    /// Drops the delivered payloads that this replica kept while it led.
    pub(super) fn forget_kept(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.log.payloads.forget().map(|message| Effect::Forget { message }));
    }

    /// Asks again for what has been missing for too long: as follower the payload of the stalled entry, as leader a
    /// message that other groups announced.
    pub(super) fn fetch_missing(&mut self, effects: &mut Vec<Effect>) {
        let (now_ms, timeout) = (self.log.now_ms(), self.config.fetch_after_ms);
        let ballots = &self.ballots;
        // A message that a deposed leader announced and its successor does not announce is in no log.
        self.unreceived.retain(|_, unreceived| {
            let lives = |remote: &Proposal| remote.ballot == ballots[remote.group().index()];
            unreceived.announced.iter().any(lives)
        });
        for (message, unreceived) in &mut self.unreceived {
            if now_ms >= unreceived.since_ms + timeout && !planted(Mutant::NeverFetched) {
                unreceived.since_ms = now_ms;
                self.paths.fetched_as_leader += 1;
                effects.push(Effect::Fetch { message: *message, from: unreceived.from });
            }
        }
        if let Some(message) = self.log.payloads.ask_for_stalled(now_ms, timeout) {
            self.paths.fetched_as_follower += 1;
            let from = self.leader_of(self.group());
            effects.push(Effect::Fetch { message, from });
        }
    }

    /// Notes the index of a logged record in `last_shared`, if a replica other than this one may have answered it, or
    /// may answer it: a record of a former ballot, or of a message to several groups.
    #[inline]
    fn note_logged(&mut self, index: u64, record: &Record) {
        let shared = match record {
            Record::Group(GroupRecord::NewBallot) | Record::Remote(_) | Record::Decided(_) => true,
            Record::Local { destinations, .. } => destinations.has_several(),
            Record::Exchange
            | Record::Group(GroupRecord::Evict { .. } | GroupRecord::Join { .. })
            | Record::Raise { .. } => false,
        };
        if shared {
            self.last_shared = index;
        }
        if self.log.is_durable() {
            let own = GroupSet::single(self.group());
            let shared = match record {
                Record::Local { destinations, .. } => *destinations,
                _ => own,
            };
            self.log.owe(index, shared.union(own));
        }
    }

    /// Appends one entry of these records.
    pub(super) fn append_all(
        &mut self,
        records: impl IntoIterator<Item = Record>,
        effects: &mut Vec<Effect>,
    ) {
        let (index, birth, time_ms) = self.log.next_entry();
        for record in records {
            self.note_logged(index, &record);
            self.log.push(Uncommitted { index, birth, time_ms, record });
            effects.push(Effect::Append { index, time_ms, record });
        }
    }
}
