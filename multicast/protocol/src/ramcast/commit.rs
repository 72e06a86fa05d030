//! What is committed, folded into the order: what each record means there.

use alloc::vec::Vec;

use super::Ramcast;
use crate::ballot::Acceptance;
use crate::group::GroupRecord;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, ReplicaId};
use crate::ramcast::delivery::Pending;
use crate::step::Record;

impl Ramcast {
    /// A replica's acceptance word has changed.
    #[inline]
    pub(super) fn acknowledged(&mut self, by: ReplicaId, acceptance: Acceptance) {
        if by.group == self.group() {
            self.log.acknowledged(by.slot, acceptance);
        } else {
            self.quorums.acknowledged(by, acceptance);
        }
    }

    /// Whether an acceptance word of that group may let us go on. What it says is counted in any case,
    /// when something comes that rests on it.
    #[inline]
    pub fn waits_for(&self, group: GroupId) -> bool {
        if group == self.group() {
            return !self.log.is_all_committed() || self.log.keeps_payloads();
        }
        self.order.len() > 0
    }

    /// Raises the commit index to the highest that f+1 slots of our group are known to hold in our
    /// ballot, and folds in what it passes. A turn's end and the next delivery do it by themselves.
    pub fn advance_commit(&mut self) {
        if let Some(index) = self.log.newly_committed() {
            self.fold(index);
        }
    }

    /// As candidate, with the log that is adopted: everything up to `index` is committed, since a replica that
    /// granted our ballot has folded it. A log is full of what its holder does not know to be committed; one that
    /// only replicas without that knowledge campaigned for would have no room for a ballot of theirs.
    pub(super) fn learn_committed(&mut self, index: u64) {
        let index = index.min(self.log.last_index());
        if index > self.log.commit_index() {
            self.log.paths.learned_committed += 1;
            self.fold(index);
        }
    }

    /// Everything up to `index` is committed: it is part of the replicated state from here on.
    pub(super) fn fold(&mut self, index: u64) {
        self.log.commit_to(index);
        while let Some(entry) = self.log.next_committed() {
            self.fold_record(entry);
        }
    }

    fn fold_record(&mut self, entry: Uncommitted<Record>) {
        let Uncommitted { index, birth, time_ms, record } = entry;
        match record {
            Record::Group(GroupRecord::NewBallot) => self.log.commits_new_ballot(birth),
            Record::Exchange => {}
            Record::Local { message, low_water, timestamp, destinations, inline } => {
                // A message to us alone has no others' proposals.
                let shared = destinations.has_several();
                let remotes = if shared { self.lists.take() } else { Vec::new() };
                let mut pending = Pending::new(
                    message,
                    low_water,
                    destinations,
                    timestamp,
                    index,
                    time_ms,
                    inline,
                    remotes,
                );
                pending.since_ms = self.log.now_ms();
                self.order.local(pending);
                if shared && !self.afloat.is_empty() {
                    self.afloat.remove(&message);
                }
            }
            Record::Remote(_) => {
                let Self { order, log, .. } = self;
                log.take_items(|proposals| order.remotes(proposals));
            }
            Record::Decided(decision) => {
                let news = self.order.decide(decision);
                self.answered |= news && self.asked;
            }
            Record::Raise { timestamp } => self.passed.raise(timestamp),
            Record::Group(GroupRecord::Evict { slot }) => self.log.commits_evict(slot),
            Record::Group(GroupRecord::Join { slot, incarnation }) => {
                self.log.commits_join(slot, incarnation, index);
            }
        }
    }
}
