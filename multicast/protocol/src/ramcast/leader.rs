//! What only a leader does: propose, log, announce, and let go of payloads.

use alloc::vec::Vec;

use super::{Large, Ramcast};
use crate::ids::{GroupSet, MessageId, ReplicaId};
use crate::log::{REMOTES_MAX, Remote};
use crate::message::Announcement;
use crate::step::{Effect, Record};
use crate::timestamp::Timestamp;

/// A message that other groups have announced and we have not received.
pub(super) struct Early {
    announced: Vec<Remote>,
    /// Who can give it to us.
    from: ReplicaId,
    /// When we first heard, or last asked.
    since_ms: u64,
}

impl Ramcast {
    pub(super) fn log_new_ballot(&mut self, effects: &mut Vec<Effect>) {
        self.new_ballot_index = self.append(Record::NewBallot, effects);
    }

    /// Task 2: a message is in our memory; it gets its place in our order unless it has one.
    pub(super) fn receive(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        inline: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !self.known.insert(message, low_water) {
            if self.order.contains(message) {
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
            self.large.push_back(Large { index, message, delivered: false });
        }
        self.order.local(message, low_water, timestamp, destinations, index, self.now_ms);
        let announcement = Announcement {
            message,
            low_water,
            destinations,
            timestamp,
            ballot: self.ballot(),
            index,
        };
        for group in destinations.without(self.group()).iter() {
            effects.push(Effect::Announce { to: self.leader_of(group), announcement });
        }
        if destinations.len() > 1
            && let Some(early) = self.early.remove(&message)
        {
            self.remotes.extend(early.announced);
        }
    }

    /// Task 4: another group's proposal. Whoever announces a message makes us propose it too, so it
    /// is kept until the message is here; a message that is delivered needs no more proposals.
    pub(super) fn hear(&mut self, from: ReplicaId, announcement: Announcement) {
        let Announcement { message, timestamp, ballot, index, .. } = announcement;
        let remote = Remote { message, timestamp, ballot, index };
        if self.known.contains(message) {
            if self.order.contains(message) && !self.remotes.contains(&remote) {
                self.remotes.push(remote);
            }
            return;
        }
        self.paths.announced_early += 1;
        let now_ms = self.now_ms;
        let early = self.early.entry(message).or_insert_with(|| Early {
            announced: Vec::new(),
            from,
            since_ms: now_ms,
        });
        if !early.announced.contains(&remote) {
            early.announced.push(remote);
        }
    }

    /// Logs what was announced in this turn, many to an entry. The clock rises first, so that
    /// nothing proposed from here on can end below.
    pub(super) fn log_remotes(&mut self, effects: &mut Vec<Effect>) {
        let mut remotes = core::mem::take(&mut self.remotes);
        remotes.retain(|remote| !self.order.has_remote(remote));
        for entry in remotes.chunks(REMOTES_MAX) {
            let index = self.last + 1;
            self.last = index;
            self.paths.remotes_merged += u64::from(entry.len() > 1);
            for remote in entry {
                self.clock = self.clock.max(remote.timestamp.clock());
                self.order.remote(*remote, index);
                let record = Record::Remote(*remote);
                effects.push(Effect::Append { index, time_ms: self.now_ms, record });
            }
        }
        remotes.clear();
        self.remotes = remotes;
    }

    pub(super) fn log_exchange(&mut self, effects: &mut Vec<Effect>) {
        self.append(Record::Exchange, effects);
    }

    /// Payloads that are not in the log are kept, past delivery, until every follower has its own.
    pub(super) fn release(&mut self, effects: &mut Vec<Effect>) {
        while let Some(first) = self.large.front() {
            let (group, ballot) = (self.group(), self.ballot());
            let everywhere = (0..self.config.replicas)
                .filter(|slot| *slot != self.config.me.slot)
                .all(|slot| self.accepted(group, slot, ballot) >= first.index);
            if !(first.delivered && everywhere) {
                break;
            }
            effects.push(Effect::Forget { message: first.message });
            self.large.pop_front();
        }
    }

    /// Asks again for what has been missing for too long: our followers' stalled entry, or what
    /// other groups announced to us as leader.
    pub(super) fn fetch_missing(&mut self, effects: &mut Vec<Effect>) {
        let (now_ms, patience) = (self.now_ms, self.config.fetch_after_ms);
        for (message, early) in &mut self.early {
            if now_ms >= early.since_ms + patience {
                early.since_ms = now_ms;
                self.paths.fetched_as_leader += 1;
                effects.push(Effect::Fetch { message: *message, from: early.from });
            }
        }
        let leader = self.leader_of(self.group());
        if let Some(stalled) = &mut self.stalled
            && now_ms >= stalled.since_ms + patience
        {
            stalled.since_ms = now_ms;
            self.paths.fetched_as_follower += 1;
            effects.push(Effect::Fetch { message: stalled.message, from: leader });
        }
    }

    fn append(&mut self, record: Record, effects: &mut Vec<Effect>) -> u64 {
        self.last += 1;
        effects.push(Effect::Append { index: self.last, time_ms: self.now_ms, record });
        self.last
    }
}
