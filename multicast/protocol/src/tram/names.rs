//! The names of the messages in a group's log, so that none is ordered twice.
//!
//! A session's low-water mark counts when the entry that carries it is committed. The mark says that the group has delivered
//! every message below it, and so that those stand before it in the group's log. But a leader that was deposed may log an
//! entry, and lose it, whose mark is above messages that its log lacks: they are in its successor's.

use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::bytes::{Reader, Writer};
use crate::ids::{MessageId, SessionId};
use crate::logged_set::LoggedSet;
use crate::mutants::{Mutant, planted};

/// The names.
///
/// **Invariant.** `uncommitted` has the messages of the entries of the log behind the commit index.
#[derive(Default)]
pub(super) struct Names {
    committed: LoggedSet,
    uncommitted: Uncommitted,
}

impl Names {
    /// Whether the message is, or was, in our log.
    pub(super) fn contains(&self, message: MessageId) -> bool {
        self.uncommitted.contains(message) || self.committed.contains(message)
    }

    /// Whether the message itself is in our log, or was since its session's low-water mark was last raised above it.
    pub(super) fn names(&self, message: MessageId) -> bool {
        self.uncommitted.contains(message) || self.committed.names(message)
    }

    /// Whether the message is in an entry behind the commit index.
    pub(super) fn is_uncommitted(&self, message: MessageId) -> bool {
        self.uncommitted.contains(message)
    }

    /// An entry with the message is at the end of our log.
    pub(super) fn log(&mut self, message: MessageId, low_water: u64) {
        self.uncommitted.insert(message);
        if planted(Mutant::LostMarkCounts) {
            self.committed.insert(message, low_water);
            self.committed.remove(message);
        }
    }

    /// An entry with the message was cut off.
    pub(super) fn cut(&mut self, message: MessageId) {
        self.uncommitted.remove(message);
    }

    /// An entry with the message is committed. If its name was known when it was logged, it is known by an earlier entry,
    /// or that entry brought nothing.
    pub(super) fn commit(&mut self, message: MessageId, low_water: u64, known: bool) {
        self.uncommitted.remove(message);
        let new = self.committed.insert(message, low_water);
        if known && new {
            self.committed.remove(message);
        }
    }

    /// The entry that was just committed with the message's name brought nothing: the name is not known by it.
    pub(super) fn forget(&mut self, message: MessageId) {
        self.committed.remove(message);
    }

    /// The committed messages from each open session's low-water mark on, sorted.
    pub(super) fn recent(&self) -> Vec<MessageId> {
        self.committed.recent()
    }

    /// The session has ended.
    pub(super) fn end(&mut self, session: SessionId) {
        self.committed.end(session);
    }

    pub(super) fn has_ended(&self, session: SessionId) -> bool {
        self.committed.has_ended(session)
    }

    /// Appends those of the committed entries.
    pub(super) fn save(&self, out: &mut Writer<'_>) {
        self.committed.save(out);
    }

    pub(super) fn restore(from: &mut Reader<'_>) -> Option<Self> {
        Some(Self { committed: LoggedSet::restore(from)?, uncommitted: Uncommitted::default() })
    }
}

/// The messages of the uncommitted entries, each as often as it stands there.
///
/// A session numbers its messages one after the other, and few are uncommitted. So nearly all have a place of their own in
/// `places`, which costs less than a lookup by hash. The others are counted in `displaced`.
struct Uncommitted {
    places: Vec<Option<MessageId>>,
    displaced: HashMap<MessageId, u32>,
}

/// Number of places, a power of two.
const PLACES: usize = 1024;

impl Default for Uncommitted {
    fn default() -> Self {
        Self { places: vec![None; PLACES], displaced: HashMap::new() }
    }
}

impl Uncommitted {
    #[inline]
    fn place(message: MessageId) -> usize {
        (message.session.0 ^ message.sequence) as usize % PLACES
    }

    #[inline]
    fn contains(&self, message: MessageId) -> bool {
        self.places[Self::place(message)] == Some(message)
            || !self.displaced.is_empty() && self.displaced.contains_key(&message)
    }

    #[inline]
    fn insert(&mut self, message: MessageId) {
        let place = &mut self.places[Self::place(message)];
        if place.is_none() {
            *place = Some(message);
        } else {
            *self.displaced.entry(message).or_default() += 1;
        }
    }

    /// Removes one entry of the message.
    #[inline]
    fn remove(&mut self, message: MessageId) {
        let place = &mut self.places[Self::place(message)];
        if *place == Some(message) {
            *place = None;
        } else if let Some(entries) = self.displaced.get_mut(&message) {
            *entries -= 1;
            if *entries == 0 {
                self.displaced.remove(&message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u64) -> MessageId {
        MessageId::new(SessionId(1), sequence)
    }

    #[test]
    fn a_mark_counts_when_its_entry_is_committed() {
        let mut names = Names::default();
        names.log(message(60), 50);
        names.commit(message(60), 50, false);
        names.log(message(82), 70);
        assert!(names.contains(message(82)) && !names.contains(message(67)));
        names.cut(message(82));
        assert!(!names.contains(message(82)) && !names.contains(message(67)));
        assert!(names.contains(message(49)) && names.contains(message(60)));
        names.log(message(67), 53);
        names.log(message(82), 70);
        names.commit(message(67), 53, false);
        names.commit(message(82), 70, false);
        assert!(names.contains(message(69)), "the group has delivered it, or is no destination");
        assert_eq!(names.recent(), [message(82)]);
    }

    #[test]
    fn a_name_that_is_logged_twice_is_known_until_both_entries_are_gone() {
        let mut names = Names::default();
        names.log(message(5), 1);
        names.log(message(5), 1);
        names.cut(message(5));
        assert!(names.contains(message(5)));
        names.cut(message(5));
        names.cut(message(5));
        assert!(!names.contains(message(5)));
    }

    #[test]
    fn a_name_is_forgotten_with_the_entry_that_brought_nothing() {
        let mut names = Names::default();
        names.log(message(5), 1);
        names.log(message(5), 1);
        names.commit(message(5), 1, false);
        names.forget(message(5));
        assert!(names.contains(message(5)), "the second one is in the log");
        names.commit(message(5), 1, true);
        assert!(!names.contains(message(5)), "nothing was delivered");
        names.log(message(5), 1);
        names.commit(message(5), 1, false);
        names.log(message(5), 1);
        names.commit(message(5), 4, true);
        assert!(names.contains(message(5)), "the first one was delivered");
        assert!(names.contains(message(3)), "marks count all the same");
    }

    #[test]
    fn a_state_has_the_committed_names() {
        let mut names = Names::default();
        for sequence in [5, 6] {
            names.log(message(sequence), 4);
        }
        names.commit(message(5), 4, false);
        let mut saved = Vec::new();
        names.save(&mut Writer(&mut saved));
        let restored = Names::restore(&mut Reader(&saved)).unwrap();
        assert!(restored.contains(message(5)) && !restored.contains(message(6)));
    }
    #[test]
    fn messages_that_share_a_place_are_counted_apart() {
        let mut names = Uncommitted::default();
        let [one, other] = [message(5), message(5 + PLACES as u64)];
        let mut counts = [0_u32; 2];
        // All sequences of eight steps, one behind the other.
        let mut step = |names: &mut Uncommitted, which: usize, comes: bool| {
            let message = [one, other][which];
            if comes {
                names.insert(message);
                counts[which] += 1;
            } else if counts[which] > 0 {
                names.remove(message);
                counts[which] -= 1;
            }
            assert_eq!([one, other].map(|it| names.contains(it)), counts.map(|it| it > 0));
        };
        for moves in 0..1_u32 << 16 {
            for at in (0..16).step_by(2) {
                step(&mut names, (moves >> at & 1) as usize, moves >> (at + 1) & 1 == 1);
            }
        }
    }
}
