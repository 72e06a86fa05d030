//! Folds committed records into the order.

use alloc::vec::Vec;

use super::Ramcast;
use crate::ballot::Acceptance;
use crate::group::GroupRecord;
use crate::group::uncommitted::Uncommitted;
use crate::ids::ReplicaId;
use crate::ramcast::Record;
use crate::ramcast::delivery::Pending;

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

    /// Folds a committed record.
    pub(super) fn fold_record(&mut self, entry: Uncommitted<Record>) {
        let Uncommitted { index, birth, time_ms, record } = entry;
        match record {
            Record::Group(GroupRecord::NewBallot) => self.log.commits_new_ballot(birth),
            Record::Exchange => {}
            Record::Local { message, low_water, timestamp, destinations, inline } => {
                // A message to this group alone has no proposals of other groups.
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
                if shared && !self.uncommitted_multi_group.is_empty() {
                    self.uncommitted_multi_group.remove(&message);
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
