//! Which replicas ask for a state or for admission, and whether so many do that the group is lost.

use alloc::vec;
use alloc::vec::Vec;

use super::super::record::LogRecord;
use super::super::{GroupLog, Role};

/// Time for which an incarnation counts as asking, after its last request.
const ASKED_RECENTLY_MS: u64 = 400;

/// An incarnation that has asked.
#[derive(Clone, Copy, Debug)]
struct Asking {
    incarnation: u32,
    at_ms: u64,
    /// It has no state of the group's present generation.
    stateless: bool,
}

/// The requests of all slots, our own included.
#[derive(Clone)]
pub(in crate::group) struct Learners {
    /// The last request of each slot.
    asking: Vec<Option<Asking>>,
}

impl Learners {
    pub(super) fn new(replicas: u8) -> Self {
        Self { asking: vec![None; usize::from(replicas)] }
    }

    pub(super) fn asks(&mut self, slot: u8, incarnation: u32, at_ms: u64, stateless: bool) {
        self.asking[usize::from(slot)] = Some(Asking { incarnation, at_ms, stateless });
    }

    /// Whether the last request of a slot said that it has no state.
    pub(super) fn was_stateless(&self, slot: u8) -> bool {
        self.asking[usize::from(slot)].is_some_and(|asking| asking.stateless)
    }

    fn recent(&self, slot: u8, now_ms: u64) -> Option<Asking> {
        self.asking[usize::from(slot)].filter(|asking| now_ms < asking.at_ms + ASKED_RECENTLY_MS)
    }

    /// Whether one of these slots has asked recently.
    pub(super) fn any_asks(&self, mut slots: impl Iterator<Item = u8>, now_ms: u64) -> bool {
        slots.any(|slot| self.recent(slot, now_ms).is_some())
    }

    pub(super) fn forget(&mut self) {
        self.asking.fill(None);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Forgets the request of a slot that our log has admitted.
    pub(crate) fn asks_no_more(&mut self, slot: u8) {
        self.transfer.learners.asking[usize::from(slot)] = None;
    }

    /// Whether more memories are lost than our group tolerates. `joining` returns the incarnation of a slot that we are
    /// about to admit.
    pub fn is_lost(&self, joining: impl Fn(u8) -> Option<u32>) -> bool {
        let slots = 0..self.config.replicas;
        let lost = slots.filter(|slot| self.has_lost_its_memory(*slot, joining(*slot))).count();
        lost > usize::from(self.config.replicas) / 2
    }

    /// Whether the slot's memory is lost: an incarnation that is not in our view has asked recently, or waits as
    /// `joining` for admission; or, while no replica can send it a state, one without a state has asked recently.
    pub fn has_lost_its_memory(&self, slot: u8, joining: Option<u32>) -> bool {
        let blank = self.role == Role::Blank;
        // A replica whose `Join` is committed counts, although it may not have read that: a replica that has read it
        // says so when it sets out to lead.
        let admitted = slot == self.config.me.slot && self.is_admitted();
        let unnamed =
            |incarnation| blank || !admitted && !self.members.view.names(slot, incarnation);
        // The view of a recreated group contains replicas before they have its state. Only a leader or the survivor
        // sends it to them: without either, such a replica is a lost memory like any other.
        let served = |incarnation| self.leader().is_some() || self.seeds(slot, incarnation);
        let asking = self.transfer.learners.recent(slot, self.now_ms);
        let asks = asking.is_some_and(|Asking { incarnation, stateless, .. }| {
            unnamed(incarnation) || stateless && !served(incarnation)
        });
        asks || joining.is_some_and(unnamed)
    }
}
