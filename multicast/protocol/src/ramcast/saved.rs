//! The ordering state at the commit index, as sent to a replica that has none.

use alloc::vec::Vec;

use super::delivery::DeliveryQueue;
use super::passed::Passed;
use super::retained::Retained;
use super::{Ramcast, Role};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, MessageId};
use crate::logged_set::LoggedSet;
use crate::mutants::{Mutant, planted};
use crate::ordering::OrderingProtocol;
use crate::ramcast::Record;
use crate::view::View;

pub(super) const VERSION: u8 = 4;

impl Ramcast {
    /// Appends what a replica needs to go on from our commit index: the last index with its birth, the clock, the
    /// pending table, the logged set, the view and the watermarks.
    pub(super) fn save_order(&mut self, into: &mut Vec<u8>) {
        let mut out = Writer(into);
        out.u8(VERSION);
        out.u64(self.log.commit_index());
        out.u64(self.log.commit_birth().to_word());
        out.u64(self.clock);
        out.u64(self.log.last_time_ms());
        for member in self.log.view().members() {
            out.u32(member.incarnation);
            out.u8(u8::from(member.evicted));
        }
        for group in (0..self.config.groups).map(GroupId) {
            out.u64(self.ballot_of(group).to_word());
        }
        self.order.save(&mut out);
        self.retained.save(&mut out);
        self.passed.save(&mut out);
        // Entries above the commit index may be lost, so the saved logged set must not contain their messages.
        let uncommitted = self.log.uncommitted().filter_map(|entry| match entry.record {
            _ if planted(Mutant::UncommittedRemembered) => None,
            Record::Local { message, low_water, .. } => Some((message, low_water)),
            _ => None,
        });
        let uncommitted: Vec<(MessageId, u64)> = uncommitted.collect();
        for (message, _) in &uncommitted {
            self.logged.remove(*message);
        }
        self.logged.save(&mut out);
        for (message, low_water) in uncommitted {
            self.logged.insert(message, low_water);
        }
        self.paths.saved += 1;
    }

    /// Restores the state that a leader [saved](Self::save), in a replica that is [blank](Role::Blank). The replica
    /// keeps its promise; it also promises itself to that leader's ballot, for no earlier leader's log need hold all
    /// that the state holds.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Option<()> {
        assert_eq!(self.log.role(), Role::Blank, "only a blank replica restores a state");
        let mut from = Reader(bytes);
        if from.u8()? != VERSION {
            return None;
        }
        let (commit, birth) = (from.u64()?, Ballot::from_word(from.u64()?));
        let (clock, time_ms) = (from.u64()?, from.u64()?);
        let mut view = View::first(self.config.group.replicas);
        for slot in 0..self.config.group.replicas {
            view.join(slot, from.u32()?);
            if from.u8()? != 0 {
                view.evict(slot);
            }
        }
        let mut ballots = Vec::new();
        for _ in 0..self.config.groups {
            ballots.push(Ballot::from_word(from.u64()?));
        }
        let order = DeliveryQueue::restore(&mut from, self.log.now_ms())?;
        let shared = Retained::restore(&mut from, self.config.groups)?;
        let passed = Passed::restore(&mut from, self.group(), self.config.groups)?;
        let known = LoggedSet::restore(&mut from)?;
        if !from.0.is_empty() {
            return None;
        }
        let own = self.group().index();
        self.log.restore(commit, birth, time_ms, view, ballots[own]);
        for (i, ballot) in ballots.into_iter().enumerate().filter(|(i, _)| *i != own) {
            self.ballots[i] = ballot.max(self.ballots[i]);
        }
        self.clock = if planted(Mutant::ClockNotTaken) { self.clock } else { clock };
        (self.order, self.logged) = (order, known);
        self.passed = passed;
        if !planted(Mutant::RetainedNotTaken) {
            self.retained = shared;
        }
        self.paths.restored += 1;
        Some(())
    }

    /// A replica of the same incarnation that begins again without its log, because the others went on without it. It
    /// keeps its promise.
    #[must_use]
    pub(super) fn blank(&self) -> Self {
        let log = self.log.blank();
        let (ballots, quorums) = (self.ballots.clone(), self.quorums.again());
        Self {
            log,
            ballots,
            quorums,
            paths: self.paths,
            ..Self::new(self.config, self.log.view().clone())
        }
    }
}
