//! Which process may speak for a node: the identities and incarnations that were seen.
//!
//! **Invariant (an incarnation never goes back).** The replicas of a group rely on the promises that an
//! incarnation of a node has made, so a process that has lost its memory must never pass for one that has
//! not. Every node remembers, of each other node, the highest incarnation that it has met or was sent, and
//! sends this to every process that it meets. It refuses a process of a lower incarnation, another process of
//! the same incarnation, and another identity, unless an operator has made that identity the node's
//! replacement. If two nodes have met two processes of one incarnation, neither process may speak for the
//! node once either node learns of both: one of the two has forgotten what the other promised, and no node
//! can tell which.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use skein_protocol::guard;
use skein_protocol::mutants::Mutant;

/// A process that ran a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Number of times that an operator had made another host the node's replacement.
    pub replaced: u32,
    /// Drawn at random with the node's directory, and again for each replacement; never [`NOBODYS`].
    pub identity: u64,
    /// Number of earlier starts of the node.
    pub incarnation: u32,
    /// Drawn at random by the process; never [`NOBODYS`].
    pub process: u64,
}

/// Identity or process number of an incarnation of which two were seen.
pub const NOBODYS: u64 = 0;

/// How a process introduces itself to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    pub seen: Seen,
    /// Last process that it remembers for each other node.
    pub known: Vec<(u16, Seen)>,
}

/// Why a process may not speak for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Mistrust {
    /// The number of its start is too low, or belongs to another process.
    #[error(
        "node {node} claims start number {}, but start number {} was seen before: its directory is out of date, and what it had promised since is lost; on its host, `skein admin replace {node}` makes it a new one", .incarnation.saturating_add(1), .known.saturating_add(1)
    )]
    WentBack {
        node: u16,
        /// The incarnation that it claims.
        incarnation: u32,
        /// The incarnation that was seen before.
        known: u32,
    },
    /// Its directory was created again or belongs to another host.
    #[error(
        "node {node} has another identity than the node {node} that was seen before: its directory was lost or belongs to another host; on its host, `skein admin replace {node}` makes it a new one"
    )]
    OtherIdentity {
        /// Number of the node.
        node: u16,
    },
    /// Another host has replaced it.
    #[error(
        "node {node} was replaced by another host, and this one comes back: remove its directory, and let only the new one run"
    )]
    Replaced {
        /// Number of the node.
        node: u16,
    },
}

/// The processes that this process remembers as having run nodes. The engines of a node share it.
#[derive(Debug)]
pub struct Roster {
    node: u16,
    own: Seen,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    others: BTreeMap<u16, Seen>,
    /// The process that others accept for this node, if it is not this one.
    successor: Option<(Seen, Mistrust)>,
    /// Something has changed since the last [`Roster::take_news`].
    news: bool,
    /// For each node, the last reason for refusing it.
    refused: BTreeMap<u16, Mistrust>,
}

impl Seen {
    /// Checks whether `other` may speak for `node`, where `self` was the last process seen to do so.
    fn accepts(self, node: u16, other: Self) -> Result<(), Mistrust> {
        let (incarnation, known) = (other.incarnation, self.incarnation);
        if other.replaced < self.replaced {
            return Err(Mistrust::Replaced { node });
        }
        let replaces = other.replaced > self.replaced;
        if !replaces && other.identity != self.identity {
            return Err(Mistrust::OtherIdentity { node });
        }
        let same = other == self;
        if guard!(Mutant::StaleIncarnationMet, incarnation > known || same) {
            Ok(())
        } else {
            Err(Mistrust::WentBack { node, incarnation, known })
        }
    }

    /// Merges two sightings of one node. The result does not depend on their order.
    fn and(self, other: Self) -> Self {
        let one = |a, b| if a == b { a } else { NOBODYS };
        match self.rank().cmp(&other.rank()) {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => Self {
                identity: one(self.identity, other.identity),
                process: one(self.process, other.process),
                ..self
            },
        }
    }

    fn rank(self) -> (u32, u32) {
        (self.replaced, self.incarnation)
    }
}

impl Roster {
    /// The roster of a process that runs `node`, as it starts: `others` is what it remembers.
    pub fn new(node: u16, own: Seen, others: BTreeMap<u16, Seen>) -> Self {
        let state = State { others, ..State::default() };
        Self { node, own, state: Mutex::new(state) }
    }

    /// The roster of a process in a cluster that keeps nothing on disk.
    pub fn unrecorded(node: u16, incarnation: u32) -> Self {
        let own =
            Seen { replaced: 0, identity: 1, incarnation, process: u64::from(incarnation) + 1 };
        Self::new(node, own, BTreeMap::new())
    }

    /// The last process remembered for each other node.
    pub fn others(&self) -> BTreeMap<u16, Seen> {
        self.state().others.clone()
    }

    /// The process that has replaced this one as its node, and the reason why this one must stop, if there is
    /// such a process.
    pub fn successor(&self) -> Option<(Seen, Mistrust)> {
        self.state().successor
    }

    /// Returns whether something has changed since the last call.
    pub fn take_news(&self) -> bool {
        std::mem::take(&mut self.state().news)
    }

    pub(crate) fn has_news(&self) -> bool {
        self.state().news
    }

    pub(crate) fn introduction(&self) -> Credentials {
        let known = self.state().others.iter().map(|(node, seen)| (*node, *seen)).collect();
        Credentials { seen: self.own, known }
    }

    /// Checks whether the process that introduces itself may speak for `node`. If it may, learns what it remembers.
    pub(crate) fn meet(&self, node: u16, it: &Credentials) -> Result<(), Mistrust> {
        let mut state = self.state();
        if let Some((_, known)) = it.known.iter().find(|(of, _)| *of == self.node) {
            self.hear_of_ourselves(&mut state, *known);
        }
        let known = state.others.get(&node).copied();
        if let Some(why) = known.and_then(|known| known.accepts(node, it.seen).err()) {
            if state.refused.insert(node, why) != Some(why) {
                tracing::error!(%why, "refused a node");
            }
            return Err(why);
        }
        state.refused.remove(&node);
        state.learn(node, it.seen);
        for (of, seen) in it.known.iter().filter(|(of, _)| ![self.node, node].contains(of)) {
            state.learn(*of, *seen);
        }
        state.successor.map_or(Ok(()), |(_, why)| Err(why))
    }

    /// Returns whether a process that was met may still speak for `node`.
    pub(crate) fn trusts(&self, node: u16, seen: Seen) -> bool {
        self.known(node).is_none_or(|known| known.accepts(node, seen).is_ok())
    }

    /// The last process remembered for `node`; sent to a process that is refused.
    pub(crate) fn known(&self, node: u16) -> Option<Seen> {
        self.state().others.get(&node).copied()
    }

    /// Another process has refused this one, and remembers `known` for this node.
    pub(crate) fn refused(&self, known: Seen) {
        self.hear_of_ourselves(&mut self.state(), known);
    }

    /// Records `known`, which another process accepts for this node. If it excludes this process, this
    /// process must stop.
    fn hear_of_ourselves(&self, state: &mut State, known: Seen) {
        let Err(why) = known.accepts(self.node, self.own) else { return };
        if state.successor.is_none_or(|(before, _)| before.rank() < known.rank()) {
            state.successor = Some((known, why));
            state.news = true;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn learn(&mut self, node: u16, seen: Seen) {
        let known = self.others.get(&node).copied();
        let both = known.map_or(seen, |known| known.and(seen));
        if known != Some(both) {
            self.others.insert(node, both);
            self.news = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(replaced: u32, identity: u64, incarnation: u32) -> Seen {
        Seen { replaced, identity, incarnation, process: u64::from(incarnation) + 100 * identity }
    }

    fn introduction(seen: Seen) -> Credentials {
        Credentials { seen, known: Vec::new() }
    }

    #[test]
    fn only_a_later_process_of_the_same_identity_or_a_replacement_is_met() {
        let cases = [
            (seen(0, 7, 4), Ok(()), "the same process, by another connection"),
            (seen(0, 7, 5), Ok(()), "its next incarnation"),
            (
                seen(0, 7, 3),
                Err(Mistrust::WentBack { node: 1, incarnation: 3, known: 4 }),
                "an old count",
            ),
            (
                Seen { process: 1, ..seen(0, 7, 4) },
                Err(Mistrust::WentBack { node: 1, incarnation: 4, known: 4 }),
                "another process that counts the same",
            ),
            (seen(0, 8, 9), Err(Mistrust::OtherIdentity { node: 1 }), "a directory made anew"),
            (seen(1, 8, 5), Ok(()), "a replacement"),
            (
                seen(1, 8, 4),
                Err(Mistrust::WentBack { node: 1, incarnation: 4, known: 4 }),
                "a replacement that does not know how far the node had come",
            ),
        ];
        for (comes, expected, what) in cases {
            let roster = Roster::new(0, seen(0, 1, 0), BTreeMap::from([(1, seen(0, 7, 4))]));
            assert_eq!(roster.meet(1, &introduction(comes)), expected, "{what}");
        }
        let roster = Roster::new(0, seen(0, 1, 0), BTreeMap::from([(1, seen(1, 8, 5))]));
        let former = roster.meet(1, &introduction(seen(0, 7, 9)));
        assert_eq!(former, Err(Mistrust::Replaced { node: 1 }), "whom it has replaced");
    }

    #[test]
    fn what_one_remembers_others_learn() {
        let roster = Roster::new(2, seen(0, 3, 1), BTreeMap::new());
        assert!(!roster.take_news());
        let known = vec![(1, seen(0, 7, 4)), (2, seen(0, 3, 0))];
        roster.meet(0, &Credentials { seen: seen(0, 1, 0), known }).unwrap();
        assert!(roster.take_news() && !roster.take_news());
        let back = roster.meet(1, &introduction(seen(0, 7, 0)));
        assert_eq!(back, Err(Mistrust::WentBack { node: 1, incarnation: 0, known: 4 }));
        assert_eq!(roster.successor(), None, "what others know of us is before us");
    }

    #[test]
    fn of_two_starts_that_are_heard_of_the_later_is_kept() {
        let roster = Roster::new(0, seen(0, 1, 0), BTreeMap::from([(1, seen(0, 7, 4))]));
        let knows = |known| Credentials { seen: seen(0, 3, 0), known: vec![(1, known)] };
        #[rustfmt::skip]
        let cases = [
            // received         kept              because
            (seen(0, 7, 3),    seen(0, 7, 4),    "it is over"),
            (seen(0, 7, 5),    seen(0, 7, 5),    "it came later"),
            (seen(1, 8, 2),    seen(1, 8, 2),    "it replaces that host, whatever that one counted"),
            (seen(0, 7, 9),    seen(1, 8, 2),    "its host was replaced"),
        ];
        for (heard, kept, because) in cases {
            roster.meet(2, &knows(heard)).unwrap();
            assert_eq!(roster.known(1), Some(kept), "{because}");
        }
        assert!(!roster.trusts(1, seen(0, 7, 5)), "a process that was met is let go of");
    }

    #[test]
    fn two_processes_of_one_start_are_both_refused_by_whoever_hears_of_both() {
        let (one, other) = (seen(0, 7, 4), Seen { process: 1, ..seen(0, 7, 4) });
        let back = Err(Mistrust::WentBack { node: 1, incarnation: 4, known: 4 });
        let met = BTreeMap::from([(1, one), (2, seen(0, 3, 0))]);
        let roster = Roster::new(0, seen(0, 1, 0), met);
        let witness = |known| Credentials { seen: seen(0, 3, 0), known: vec![(1, known)] };
        roster.meet(2, &witness(one)).unwrap();
        assert!(roster.trusts(1, one) && !roster.take_news(), "it is known");
        roster.meet(2, &witness(other)).unwrap();
        assert!(!roster.trusts(1, one) && !roster.trusts(1, other) && roster.take_news());
        assert_eq!(roster.meet(1, &introduction(one)), back);
        assert_eq!(roster.meet(1, &introduction(other)), back);
        roster.meet(2, &witness(one)).unwrap();
        assert!(!roster.trusts(1, one) && !roster.take_news(), "nothing undoes it");
        let told = roster.known(1).unwrap();
        let third = Roster::new(2, seen(0, 3, 0), BTreeMap::from([(1, other)]));
        third.meet(0, &Credentials { seen: seen(0, 1, 0), known: vec![(1, told)] }).unwrap();
        assert_eq!(
            (third.trusts(1, other), third.known(1)),
            (false, Some(told)),
            "others learn it"
        );
        let process = Roster::new(1, one, BTreeMap::new());
        process.refused(told);
        assert_eq!(process.successor().map(|(_, why)| Err(why)), Some(back), "it learns it itself");
        assert_eq!(
            roster.meet(1, &introduction(seen(0, 7, 5))),
            Ok(()),
            "its next start is its own"
        );
    }

    #[test]
    fn two_hosts_that_count_the_same_are_both_refused_by_whoever_hears_of_both() {
        let (one, other) = (seen(1, 7, 4), seen(1, 8, 4));
        let roster = Roster::new(0, seen(0, 1, 0), BTreeMap::from([(1, one)]));
        roster.meet(2, &Credentials { seen: seen(0, 3, 0), known: vec![(1, other)] }).unwrap();
        for host in [one, other, seen(1, 7, 5), seen(1, 8, 5)] {
            let met = roster.meet(1, &introduction(host));
            assert_eq!(met, Err(Mistrust::OtherIdentity { node: 1 }), "{host:?}");
        }
        assert_eq!(
            roster.meet(1, &introduction(seen(2, 8, 5))),
            Ok(()),
            "one is made the node again"
        );
    }

    #[test]
    fn one_whose_place_is_taken_meets_nobody() {
        let roster = Roster::new(1, seen(0, 9, 0), BTreeMap::new());
        let known = vec![(1, seen(0, 7, 4))];
        let met = roster.meet(0, &Credentials { seen: seen(0, 1, 0), known });
        assert_eq!(met, Err(Mistrust::OtherIdentity { node: 1 }));
        roster.refused(seen(0, 7, 6));
        assert_eq!(
            roster.successor().map(|(seen, _)| seen.incarnation),
            Some(6),
            "the latest is kept"
        );
        let met = roster.meet(2, &introduction(seen(0, 2, 0)));
        assert_eq!(met, Err(Mistrust::OtherIdentity { node: 1 }));
    }
}
