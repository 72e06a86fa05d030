//! The hooks of the [group log](crate::group) for this ordering.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Effect, Pending, Record, Single};
use crate::ballot::Ballot;
use crate::group::on_log::OnLog;
use crate::group::ordering::{Next, NoOthers};
use crate::group::payloads::Large;
use crate::group::uncommitted::Uncommitted;
use crate::group::{GroupLog, GroupRecord};
use crate::rank::Rank;

impl OnLog for Single {
    type Deliveries<'a> = NoOthers;

    fn log_and_deliveries(&mut self) -> (&mut GroupLog<Record>, NoOthers) {
        (&mut self.log, NoOthers)
    }

    fn waits_first(&mut self) -> Option<Next> {
        let Pending { rank, since_ms, .. } = *self.pending.front()?;
        Some(Next { least: rank, since_ms })
    }

    fn append(&mut self, record: Record, effects: &mut Vec<Effect>) -> u64 {
        let (index, birth, time_ms) = self.log.next_entry();
        self.log.push(Uncommitted { index, birth, time_ms, record });
        effects.push(Effect::Append { index, time_ms, record });
        if self.log.is_durable() {
            self.owe(index);
        }
        index
    }

    fn fold(&mut self, index: u64) {
        self.log.commit_to(index);
        while let Some(Uncommitted { index, birth, time_ms, record }) = self.log.next_committed() {
            match record {
                Record::Message { message, low_water, inline } => {
                    let (rank, since_ms) = (self.rank(index), self.log.now_ms());
                    let pending =
                        Pending { message, low_water, index, rank, time_ms, since_ms, inline };
                    self.pending.push_back(pending);
                }
                Record::Group(GroupRecord::NewBallot) => self.log.commits_new_ballot(birth),
                Record::Group(GroupRecord::Evict { slot }) => self.log.commits_evict(slot),
                Record::Group(GroupRecord::Join { slot, incarnation }) => {
                    self.log.commits_join(slot, incarnation, index);
                }
            }
        }
    }

    fn truncate(&mut self, index: u64) {
        let known = &mut self.logged;
        self.log.truncate(index, |record| {
            if let Record::Message { message, .. } = record {
                known.remove(*message);
            }
        });
    }

    fn follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        let granted = ballot == self.log.promised() && !self.log.leads();
        assert!(granted, "only the leader whose ballot we granted writes our log");
        self.truncate(base);
        self.log.follow(ballot, first);
        self.owe(self.log.last_index());
    }

    /// Also repeats every reply that a session may have missed.
    fn lead(&mut self, effects: &mut Vec<Effect>) {
        self.log.begin_to_lead();
        self.forget_kept(effects);
        let kept = |index, message| Large { index, message, delivered: false };
        let pending = self.pending.iter().filter(|it| !it.inline);
        let mut large: Vec<_> = pending.map(|it| kept(it.index, it.message)).collect();
        let mut undelivered: BTreeSet<_> = self.pending.iter().map(|it| it.message).collect();
        for Uncommitted { index, record, .. } in self.log.uncommitted() {
            if let Record::Message { message, inline, .. } = *record {
                undelivered.insert(message);
                if !inline {
                    large.push(kept(*index, message));
                }
            }
        }
        self.log.payloads.rebuild(large);
        self.last_shared = self.append(Record::Group(GroupRecord::NewBallot), effects);
        self.log.led_from(self.last_shared);
        let missed = self.logged.recent().into_iter().filter(|it| !undelivered.contains(it));
        effects.extend(missed.map(|message| Effect::Repeat { message }));
    }

    fn owe_all(&mut self) {
        self.owe(self.log.last_index());
    }

    /// What is committed is delivered without more.
    fn has_delivered(&mut self, _: Rank) {}

    fn step_down(&mut self) {
        if self.log.leads() {
            self.log.step_down();
        }
    }
}
