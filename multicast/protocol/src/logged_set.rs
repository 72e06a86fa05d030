//! The messages that a group has logged, so that none is proposed twice.
//!
//! **Invariant.** Every message of an open session that the group has ever logged is in the set. Message 6 to group X
//! may be delivered before message 5 to X and Y, so this is a *set* above a low-water mark, not a highest number. The
//! session reports the mark: it has received every reply below it, so everything below it that is addressed to this
//! group is delivered. (`docs/protocols/ramcast.md`, 9 and 14.)

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::by_session::BySession;
use crate::bytes::{Reader, Writer};
use crate::ids::{MessageId, SessionId};
use crate::mutants::{Mutant, planted};

/// Number of ended sessions that are remembered; the one that ended first is forgotten first. Only messages that were
/// in flight when their session ended can still arrive, and they arrive soon after.
const ENDED_MAX: usize = 1 << 16;

/// Sequence numbers of the logged messages, by session.
#[derive(Default)]
pub struct LoggedSet {
    sessions: BySession<Window>,
    ended: VecDeque<SessionId>,
}

/// The logged numbers of one session: all below `low`, and those from `low` on whose bit is set.
#[derive(Default)]
struct Window {
    low: u64,
    bits: VecDeque<u64>,
    ended: bool,
}

impl LoggedSet {
    /// Whether the message was logged.
    pub fn contains(&self, message: MessageId) -> bool {
        self.sessions.get(message.session).is_some_and(|window| window.contains(message.sequence))
    }

    /// Whether the message was logged and is not below its session's low-water mark.
    pub fn names(&self, message: MessageId) -> bool {
        let window = self.sessions.get(message.session);
        window.is_some_and(|it| message.sequence >= it.low && it.contains(message.sequence))
    }

    /// Adds the message and raises its session's low-water mark. Returns whether the message is new.
    pub fn insert(&mut self, message: MessageId, low_water: u64) -> bool {
        let window = self.sessions.or_default(message.session);
        // The mark first: it is never above the message, and a session may begin with any number.
        window.raise(low_water);
        window.insert(message.sequence)
    }

    /// Removes a message whose entry was lost with its leader before it was committed: it may be logged again.
    pub fn remove(&mut self, message: MessageId) {
        if let Some(window) = self.sessions.get_mut(message.session) {
            window.remove(message.sequence);
        }
    }

    /// The logged messages from each open session's low-water mark on, sorted.
    pub fn recent(&self) -> Vec<MessageId> {
        let open = self.sessions.iter().filter(|(_, window)| !window.ended);
        let numbers = open.flat_map(|(session, window)| {
            window.recent().map(move |sequence| MessageId::new(session, sequence))
        });
        let mut recent: Vec<_> = numbers.collect();
        recent.sort_unstable();
        recent
    }

    pub(crate) fn save(&self, out: &mut Writer<'_>) {
        let mut sessions: Vec<_> = self.sessions.iter().collect();
        sessions.sort_unstable_by_key(|(session, _)| *session);
        out.u64(sessions.len() as u64);
        for (session, window) in sessions {
            out.u64(session.0);
            out.u64(window.low);
            out.u64(window.bits.len() as u64);
            for word in &window.bits {
                out.u64(*word);
            }
        }
        out.u64(self.ended.len() as u64);
        for session in &self.ended {
            out.u64(session.0);
        }
    }

    pub(crate) fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let mut logged = Self::default();
        for _ in 0..from.u64()? {
            let session = SessionId(from.u64()?);
            let mut window = Window { low: from.u64()?, ..Window::default() };
            for _ in 0..from.u64()? {
                window.bits.push_back(from.u64()?);
            }
            *logged.sessions.or_default(session) = window;
        }
        for _ in 0..from.u64()? {
            let session = SessionId(from.u64()?);
            logged.sessions.get_mut(session)?.ended = true;
            logged.ended.push_back(session);
        }
        Some(logged)
    }

    /// Marks the session as ended. Its record is dropped after `ENDED_MAX` later sessions have ended.
    pub fn end(&mut self, session: SessionId) {
        let Some(window) = self.sessions.get_mut(session) else { return };
        if core::mem::replace(&mut window.ended, true) {
            return;
        }
        self.ended.push_back(session);
        if self.ended.len() > ENDED_MAX {
            let oldest = self.ended.pop_front().expect("just counted");
            self.sessions.remove(oldest);
        }
    }

    /// Whether the session has ended.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_some_and(|window| window.ended)
    }

    /// Number of sessions that are remembered, ended ones included.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }
}

impl Window {
    /// Word index and bit mask of a number. Words are counted from the word that contains `low`.
    fn place(&self, sequence: u64) -> Option<(usize, u64)> {
        let word = (sequence / 64).checked_sub(self.low / 64)?;
        Some((word as usize, 1 << (sequence % 64)))
    }

    fn contains(&self, sequence: u64) -> bool {
        sequence < self.low
            || self
                .place(sequence)
                .is_some_and(|(word, bit)| self.bits.get(word).is_some_and(|bits| bits & bit != 0))
    }

    fn insert(&mut self, sequence: u64) -> bool {
        let passed = || self.recent().any(|known| known > sequence);
        if sequence < self.low || planted(Mutant::HighestTakenForSet) && passed() {
            return false;
        }
        let (word, bit) = self.place(sequence).expect("not below the mark");
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        let bits = &mut self.bits[word];
        let new = *bits & bit == 0;
        *bits |= bit;
        new
    }

    fn remove(&mut self, sequence: u64) {
        if sequence >= self.low
            && let Some((word, bit)) = self.place(sequence)
            && let Some(bits) = self.bits.get_mut(word)
        {
            *bits &= !bit;
        }
    }

    /// The logged numbers from `low` on.
    fn recent(&self) -> impl Iterator<Item = u64> {
        let first = self.low / 64 * 64;
        let set = self.bits.iter().enumerate().flat_map(move |(word, bits)| {
            (0..64)
                .filter(move |bit| bits >> bit & 1 == 1)
                .map(move |bit| first + word as u64 * 64 + bit)
        });
        set.filter(|sequence| *sequence >= self.low)
    }

    fn raise(&mut self, low_water: u64) {
        if low_water <= self.low {
            return;
        }
        let words = (low_water / 64 - self.low / 64) as usize;
        if words > 0 {
            self.bits.drain(..words.min(self.bits.len()));
        }
        self.low = low_water;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(sequence: u64) -> MessageId {
        MessageId::new(SessionId(7), sequence)
    }

    #[test]
    fn a_message_is_new_once_in_any_order() {
        let mut logged = LoggedSet::default();
        for sequence in [6, 5, 200, 64, 63] {
            assert!(!logged.contains(id(sequence)));
            assert!(logged.insert(id(sequence), 1));
            assert!(!logged.insert(id(sequence), 1));
        }
        assert!(!logged.contains(id(7)) && !logged.contains(id(65)));
    }

    #[test]
    fn a_session_that_begins_with_a_high_number_costs_no_more_than_another() {
        let mut logged = LoggedSet::default();
        assert!(logged.insert(id(u64::MAX - 1), u64::MAX - 9));
        assert!(logged.insert(id(u64::MAX - 2), u64::MAX - 9));
        assert!(!logged.insert(id(u64::MAX - 1), u64::MAX - 9));
        assert!(logged.sessions.get(SessionId(7)).unwrap().bits.len() <= 2);
        assert!(logged.contains(id(1)) && !logged.contains(id(u64::MAX)));
    }

    #[test]
    fn everything_below_the_mark_is_known_and_costs_nothing() {
        let mut logged = LoggedSet::default();
        for sequence in 1..10_000 {
            assert!(logged.insert(id(sequence), sequence.saturating_sub(10)));
        }
        let window = logged.sessions.get(SessionId(7)).unwrap();
        assert!(window.bits.len() <= 2, "{}", window.bits.len());
        assert!(
            logged.contains(id(3)) && logged.contains(id(9_999)) && !logged.contains(id(10_000))
        );
    }

    #[test]
    fn a_state_holds_all_that_is_known() {
        let mut logged = LoggedSet::default();
        let of = |session, sequence| MessageId::new(SessionId(session), sequence);
        for (session, numbers) in [(1, &[70, 71, 99, 127, 300][..]), (2, &[1]), (3, &[64, 65])] {
            for sequence in numbers {
                logged.insert(of(session, *sequence), numbers[0]);
            }
        }
        logged.end(SessionId(3));
        logged.end(SessionId(2));
        let saved = |logged: &LoggedSet| {
            let mut bytes = Vec::new();
            logged.save(&mut Writer(&mut bytes));
            bytes
        };
        let bytes = saved(&logged);
        let mut restored = LoggedSet::restore(&mut Reader(&bytes)).expect("what was saved");
        assert_eq!(saved(&restored), bytes);
        for sequence in [69, 70, 71, 72, 98, 99, 127, 128, 299, 300, 301] {
            let (is, was) = (restored.contains(of(1, sequence)), logged.contains(of(1, sequence)));
            assert_eq!(is, was, "{sequence}");
        }
        // The restored set forgets the session that ended first before the others.
        for session in 10..9 + ENDED_MAX as u64 {
            restored.insert(of(session, 1), 1);
            restored.end(SessionId(session));
        }
        assert!(!restored.has_ended(SessionId(3)) && restored.has_ended(SessionId(2)));
    }

    #[test]
    fn whoever_has_ended_is_owed_nothing() {
        let mut logged = LoggedSet::default();
        for session in [7, 8] {
            logged.insert(MessageId::new(SessionId(session), 5), 5);
        }
        logged.end(SessionId(7));
        assert_eq!(logged.recent(), [MessageId::new(SessionId(8), 5)]);
    }

    #[test]
    fn ended_sessions_are_forgotten_oldest_first() {
        let mut logged = LoggedSet::default();
        for session in 0..ENDED_MAX as u64 + 2 {
            logged.insert(MessageId::new(SessionId(session), 1), 0);
            logged.end(SessionId(session));
            logged.end(SessionId(session));
        }
        assert_eq!(logged.sessions(), ENDED_MAX);
        assert!(!logged.contains(MessageId::new(SessionId(1), 1)));
        assert!(logged.contains(MessageId::new(SessionId(2), 1)));
    }
}
