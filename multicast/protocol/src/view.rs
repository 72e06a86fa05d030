//! Membership: the incarnation of each replica slot that its group has admitted.
//!
//! A view is part of the replicated state: it changes only by committed `Evict` and `Join` entries. A group always has
//! 2f+1 slots, and a quorum is always f+1 of them. A view says which incarnation counts in each slot. **Invariant.** A
//! replica that lost its memory is a new incarnation. No view contains it until f+1 *other* slots have committed its
//! `Join`.

use alloc::vec;
use alloc::vec::Vec;

use crate::mutants::{Mutant, planted};

/// One replica slot of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The incarnation that counts.
    pub incarnation: u32,
    /// The log no longer waits for this slot, until its next `Join`.
    pub evicted: bool,
}

/// The members of a group, by slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View(Vec<Member>);

impl View {
    /// The first view of a group: incarnation 0 of each replica.
    pub fn first(replicas: u8) -> Self {
        Self(vec![Member { incarnation: 0, evicted: false }; usize::from(replicas)])
    }

    /// The view of these incarnations, by slot.
    pub fn of(incarnations: impl IntoIterator<Item = u32>) -> Self {
        Self(incarnations.into_iter().map(|i| Member { incarnation: i, evicted: false }).collect())
    }

    /// Whether that incarnation of the slot counts.
    pub fn names(&self, slot: u8, incarnation: u32) -> bool {
        self.0[usize::from(slot)].incarnation == incarnation
    }

    /// The member in `slot`.
    pub fn member(&self, slot: u8) -> Member {
        self.0[usize::from(slot)]
    }

    /// All members, by slot.
    pub fn members(&self) -> &[Member] {
        &self.0
    }

    /// Applies a committed `Evict`.
    pub fn evict(&mut self, slot: u8) {
        if let Some(member) = self.0.get_mut(usize::from(slot)) {
            member.evicted = true;
        }
    }

    /// Applies a committed `Join`.
    pub fn join(&mut self, slot: u8, incarnation: u32) {
        if let Some(member) = self.0.get_mut(usize::from(slot)) {
            let evicted = member.evicted && planted(Mutant::EvictedForEver);
            *member = Member { incarnation, evicted };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_names_one_life_of_each_slot() {
        let mut view = View::first(3);
        for incarnation in [1, 1 << 16, (1 << 24) - 1] {
            assert!(view.names(1, 0) && !view.names(1, incarnation), "{incarnation}");
        }
        view.evict(1);
        assert_eq!(view.member(1), Member { incarnation: 0, evicted: true });
        view.join(1, 1 << 16);
        assert_eq!(view.member(1), Member { incarnation: 1 << 16, evicted: false });
        assert!(!view.names(1, 0));
    }
}
