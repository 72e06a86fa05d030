//! The replicated session table: which sessions are open, which messages were delivered, and which replies are
//! retained.
//!
//! **Invariant (at most once).** A message is admitted at most once. Delivered messages are remembered exactly
//! for the last [`WINDOW`] sequence numbers of a session; anything older counts as delivered. The low-water
//! mark only frees replies. It does not decide what is a duplicate: a message that its session has given up may
//! still be delivered, in all its groups or in none, while the groups receive the mark at different times.
//!
//! A message is [noted](Sessions::note) when it is delivered. When all messages before it are over, the replies
//! that it frees are [freed](Sessions::free_for), and its own reply is [recorded](Sessions::record). So both
//! follow the order of delivery, whatever the order in which messages took effect.
//!
//! **Invariant (digest).** `digest` depends only on the open sessions, their floors and retained replies, and
//! the ended sessions. All of these change in the order of delivery. The delivered sequence numbers are not in
//! it: they run ahead of what is over.
//!
//! Sessions begin and end by messages to all groups, which all groups deliver in one order. So at any message,
//! its groups agree about its session. See `docs/decisions/0003-what-a-session-is-owed.md`.

mod copy;

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_fabric::Constants;
use skein_protocol::guard;
use skein_protocol::ids::{MessageId, SessionId};
use skein_protocol::mutants::Mutant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::copy::SessionsCopy;
use super::completed::CHAIN;
use crate::reply::Refusal;
use crate::store::compact::Compact;
use crate::store::sum::fold;

/// Maximum number of open sessions.
pub(crate) const SESSIONS_MAX: usize = 1 << 16;
/// Number of ended sessions that are remembered, the last ones, so that none of them opens again.
pub(crate) const ENDED_MAX: usize = 1 << 16;
/// Number of sequence numbers, up to the highest delivered, that are remembered one by one: twice the widest
/// window a session can have.
pub(crate) const WINDOW: u64 = 1 << 13;

/// At most this many bytes of an answer enter the history: hashing a page of a scan is not worth its time.
const HASHED: usize = 256;
/// Bytes counted for an open session: its table entry and [`WINDOW`] bits.
const SESSION_OVERHEAD: u64 = 2 << 10;
/// Bytes counted for a retained reply besides its own.
pub(crate) const REPLY_OVERHEAD: u64 = 64;

/// The constants that decide which sessions open, what is a duplicate, and how much of the ceiling sessions
/// use.
pub(super) fn constants() -> Constants {
    Constants::default()
        .with("sessions_max", SESSIONS_MAX)
        .with("sessions_ended_max", ENDED_MAX)
        .with("session_window", WINDOW)
        .with("session_overhead", SESSION_OVERHEAD)
        .with("reply_overhead", REPLY_OVERHEAD)
}

#[derive(Default)]
pub(crate) struct Sessions {
    open: HashMap<SessionId, Session>,
    /// Sequence number of the message that closed the session; 0 if the session expired. No session is both here
    /// and in `open`.
    ended: HashMap<SessionId, u64>,
    /// The keys of `ended`, the oldest first: `ended_order.len() == ended.len() <= ENDED_MAX`.
    ended_order: VecDeque<SessionId>,
    /// Number of sessions that have ever ended.
    ended_count: u64,
    /// Bytes counted for all retained replies.
    owed_bytes: u64,
    /// Sum, modulo 2^64, of the contributions of open sessions, retained replies and ended sessions.
    digest: u64,
    copy: Option<Box<SessionsCopy>>,
    /// Number of copies begun.
    generation: u32,
}

#[derive(Default)]
struct Session {
    /// Generation of the last copy that contains the session.
    copied: u32,
    /// No reply below this is retained. It is the low-water mark, or a window below the highest number that has
    /// had its turn, whichever is higher.
    floor: u64,
    delivered: Delivered,
    /// Ascending by sequence number.
    replies: VecDeque<Kept>,
}

struct Kept {
    sequence: u64,
    reply: Compact,
    /// The reply's contribution to the digest.
    sum: u64,
}

/// A reply's contribution to the digest of its group's sessions. Only its length and its first [`HASHED`] bytes
/// count.
pub(super) fn sum(message: MessageId, reply: &[u8]) -> u64 {
    let MessageId { session, sequence } = message;
    let seed = fold(session.0 ^ CHAIN, sequence ^ !CHAIN) ^ reply.len() as u64;
    xxh3_64_with_seed(&reply[..reply.len().min(HASHED)], seed)
}

/// A session's contribution to the digest, without its replies. `number` is the floor of an open session, or
/// the sequence number that closed an ended one.
fn sum_of(id: SessionId, number: u64, ended: bool) -> u64 {
    fold(id.0 ^ CHAIN, number.rotate_left(1) ^ u64::from(ended) ^ !CHAIN)
}

impl Kept {
    fn new(message: MessageId, reply: &[u8], sum: u64) -> Self {
        Self { sequence: message.sequence, reply: reply.into(), sum }
    }

    fn bytes(&self) -> u64 {
        self.reply.as_slice().len() as u64 + REPLY_OVERHEAD
    }
}

/// Result of [noting](Sessions::note) a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The session is open, and the message is new.
    Fresh,
    /// The session is open, and the message was delivered before.
    Known,
    /// The session is not open.
    Closed,
}

/// The answer to a duplicate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owed<'a> {
    Reply(&'a [u8]),
    /// The message has ended its session, as it asked.
    Done,
    Refusal(Refusal),
    /// No answer: the session does not wait for one.
    Nothing,
}

impl Sessions {
    /// Opens the session of `message`, unless it has ended. Idempotent.
    pub(crate) fn open(&mut self, message: MessageId) -> Result<(), Refusal> {
        if self.ended.contains_key(&message.session) {
            return Err(Refusal::SessionExpired);
        }
        if !self.open.contains_key(&message.session) && self.open.len() == SESSIONS_MAX {
            return Err(Refusal::TooManySessions { max: SESSIONS_MAX as u64 });
        }
        let copied = self.copy.as_ref().map_or(0, |copy| copy.generation);
        let mut books = Books { owed_bytes: &mut self.owed_bytes, digest: &mut self.digest };
        let new = || Session { copied, ..books.opened(message.session) };
        let session = self.open.entry(message.session).or_insert_with(new);
        session.delivered.insert(message.sequence);
        session.raise(message, 0, &mut books);
        touch(&mut self.copy, session, message);
        Ok(())
    }

    /// Whether [closing](Self::close) the session of `message` would succeed.
    pub(crate) fn closes(&self, message: MessageId) -> bool {
        let closed_by = self.ended.get(&message.session);
        self.open.contains_key(&message.session) || closed_by == Some(&message.sequence)
    }

    /// Closes the session of `message`. Idempotent for the same message.
    pub(crate) fn close(&mut self, message: MessageId) -> Result<(), Refusal> {
        if self.free(message.session) {
            self.remember_ended(message.session, message.sequence);
        }
        match self.ended.get(&message.session) {
            Some(closed_by) if *closed_by == message.sequence => Ok(()),
            _ => Err(Refusal::SessionExpired),
        }
    }

    /// Ends `session`, whether or not it was opened before.
    pub(crate) fn expire(&mut self, session: SessionId) {
        self.free(session);
        if !self.ended.contains_key(&session) {
            self.remember_ended(session, 0);
        }
    }

    /// Ends all sessions.
    pub(crate) fn expire_all(&mut self) {
        let mut open: Vec<_> = self.open.keys().copied().collect();
        open.sort_unstable();
        for session in open {
            self.expire(session);
        }
    }

    /// Records that `message` was delivered.
    pub(crate) fn note(&mut self, message: MessageId) -> Admission {
        let Some(session) = self.open.get_mut(&message.session) else {
            return Admission::Closed;
        };
        let fresh = session.delivered.insert(message.sequence);
        touch(&mut self.copy, session, message);
        if guard!(Mutant::DuplicateExecuted, fresh) { Admission::Fresh } else { Admission::Known }
    }

    /// Frees replies at the turn of `message`, whose session needs none below `low_water`.
    pub(crate) fn free_for(&mut self, message: MessageId, low_water: u64) {
        let Some(session) = self.open.get_mut(&message.session) else { return };
        let mut books = Books { owed_bytes: &mut self.owed_bytes, digest: &mut self.digest };
        if session.raise(message, low_water, &mut books) {
            touch(&mut self.copy, session, message);
        }
    }

    /// Retains the reply to an admitted message until its session no longer needs it. `sum` is the reply's
    /// [`sum`].
    pub(crate) fn record(&mut self, message: MessageId, reply: &[u8], sum: u64) {
        let Some(session) = self.open.get_mut(&message.session) else { return };
        if message.sequence < session.floor {
            return;
        }
        let Err(at) = session.find(message.sequence) else { return };
        let kept = Kept::new(message, reply, sum);
        Books { owed_bytes: &mut self.owed_bytes, digest: &mut self.digest }.add(&kept);
        session.replies.insert(at, kept);
        touch(&mut self.copy, session, message);
    }

    /// The answer to a duplicate.
    pub(crate) fn owed(&self, message: MessageId) -> Owed<'_> {
        let Some(session) = self.open.get(&message.session) else {
            return match self.ended.get(&message.session) {
                Some(closed_by) if *closed_by == message.sequence => Owed::Done,
                _ => Owed::Refusal(Refusal::SessionExpired),
            };
        };
        match session.find(message.sequence) {
            Ok(at) => Owed::Reply(session.replies[at].reply.as_slice()),
            // Replies to reads are not retained.
            Err(_) if session.is_owed(message.sequence) => Owed::Refusal(Refusal::Forgotten),
            Err(_) => Owed::Nothing,
        }
    }

    /// Whether `message` was delivered, or its session has ended.
    pub(crate) fn is_past(&self, message: MessageId) -> bool {
        match self.open.get(&message.session) {
            Some(session) => session.delivered.contains(message.sequence),
            None => self.ended.contains_key(&message.session),
        }
    }

    /// Whether the session is open.
    pub(crate) fn is_open(&self, session: SessionId) -> bool {
        self.open.contains_key(&session)
    }

    /// Whether the session is among those that have ended.
    pub(crate) fn has_ended(&self, session: SessionId) -> bool {
        self.ended.contains_key(&session)
    }

    /// Bytes that count against the ceiling.
    pub(crate) fn bytes(&self) -> u64 {
        self.open.len() as u64 * SESSION_OVERHEAD + self.owed_bytes
    }

    /// The digest of the sessions, which is maintained with each change.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Passes each item of the table to `see`, in an order that does not depend on how the items came about.
    pub(crate) fn visit(&self, see: &mut dyn FnMut(&[u8])) {
        let mut ids: Vec<_> = self.open.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let session = &self.open[&id];
            see(&id.0.to_le_bytes());
            see(&session.floor.to_le_bytes());
            see(&session.delivered.highest.to_le_bytes());
            session.delivered.words.iter().for_each(|word| see(&word.to_le_bytes()));
            for kept in &session.replies {
                see(&kept.sequence.to_le_bytes());
                see(kept.reply.as_slice());
            }
        }
        for id in &self.ended_order {
            see(&id.0.to_le_bytes());
            see(&self.ended[id].to_le_bytes());
        }
    }

    /// Removes the session and its replies. Returns whether it was open.
    fn free(&mut self, id: SessionId) -> bool {
        let Some(session) = self.open.remove(&id) else { return false };
        let mut books = Books { owed_bytes: &mut self.owed_bytes, digest: &mut self.digest };
        session.replies.iter().for_each(|kept| books.remove(kept));
        self.digest = self.digest.wrapping_sub(sum_of(id, session.floor, false));
        true
    }

    fn remember_ended(&mut self, id: SessionId, closed_by: u64) {
        if self.ended_order.len() == ENDED_MAX {
            let oldest = self.ended_order.pop_front().expect("ENDED_MAX is not 0");
            let closed_by = self.ended.remove(&oldest).expect("it is remembered");
            self.digest = self.digest.wrapping_sub(sum_of(oldest, closed_by, true));
        }
        self.digest = self.digest.wrapping_add(sum_of(id, closed_by, true));
        self.ended_count += 1;
        self.ended_order.push_back(id);
        self.ended.insert(id, closed_by);
    }
}

/// Reports a change of the session to the copy, if the copy contains the session.
fn touch(copy: &mut Option<Box<SessionsCopy>>, session: &Session, message: MessageId) {
    if let Some(copy) = copy
        && session.copied == copy.generation
    {
        copy.touch(message);
    }
}

/// The totals, which are updated with each reply that is retained or freed.
struct Books<'a> {
    owed_bytes: &'a mut u64,
    digest: &'a mut u64,
}

impl Books<'_> {
    /// Creates a session.
    fn opened(&mut self, id: SessionId) -> Session {
        let session = Session::default();
        *self.digest = self.digest.wrapping_add(sum_of(id, session.floor, false));
        session
    }

    fn add(&mut self, kept: &Kept) {
        *self.owed_bytes += kept.bytes();
        *self.digest = self.digest.wrapping_add(kept.sum);
    }

    fn remove(&mut self, kept: &Kept) {
        *self.owed_bytes -= kept.bytes();
        *self.digest = self.digest.wrapping_sub(kept.sum);
    }
}

impl Session {
    /// Index of the reply to `sequence`, or where it would be inserted.
    fn find(&self, sequence: u64) -> Result<usize, usize> {
        match self.replies.back() {
            Some(last) if last.sequence < sequence => Err(self.replies.len()),
            _ => self.replies.binary_search_by_key(&sequence, |kept| kept.sequence),
        }
    }

    /// Raises the floor at the turn of a message with this number and mark. Returns whether the floor has
    /// changed.
    fn raise(&mut self, message: MessageId, low_water: u64, books: &mut Books<'_>) -> bool {
        // For a session that never raises its mark, at most a window of replies is retained.
        let window = message.sequence.saturating_add(1).saturating_sub(WINDOW);
        self.free_below(message.session, low_water.max(window), books)
    }

    fn free_below(&mut self, id: SessionId, floor: u64, books: &mut Books<'_>) -> bool {
        if floor <= self.floor {
            return false;
        }
        let (before, after) = (sum_of(id, self.floor, false), sum_of(id, floor, false));
        *books.digest = books.digest.wrapping_sub(before).wrapping_add(after);
        self.floor = floor;
        while let Some(kept) = self.replies.pop_front_if(|kept| kept.sequence < floor) {
            books.remove(&kept);
        }
        true
    }

    fn forget(&mut self, sequence: u64, books: &mut Books<'_>) {
        if let Ok(at) = self.find(sequence) {
            books.remove(&self.replies.remove(at).expect("just found"));
        }
    }

    fn is_owed(&self, sequence: u64) -> bool {
        sequence >= self.floor && self.delivered.contains(sequence)
    }
}

/// The delivered sequence numbers: a ring of bits for the last [`WINDOW`]. All older numbers count as
/// delivered.
struct Delivered {
    highest: u64,
    words: Box<[u64; (WINDOW / 64) as usize]>,
}

impl Default for Delivered {
    fn default() -> Self {
        Self { highest: 0, words: Box::new([0; (WINDOW / 64) as usize]) }
    }
}

impl Delivered {
    fn contains(&self, sequence: u64) -> bool {
        if sequence > self.highest {
            return false;
        }
        let (word, bit) = Self::place(sequence);
        self.highest - sequence >= WINDOW || self.words[word] & bit != 0
    }

    /// Returns whether the number is new.
    fn insert(&mut self, sequence: u64) -> bool {
        if self.contains(sequence) {
            return false;
        }
        if sequence > self.highest {
            if sequence - self.highest >= WINDOW {
                self.words.fill(0);
            } else {
                for passed in self.highest + 1..sequence {
                    let (word, bit) = Self::place(passed);
                    self.words[word] &= !bit;
                }
            }
            self.highest = sequence;
        }
        let (word, bit) = Self::place(sequence);
        self.words[word] |= bit;
        true
    }

    fn place(sequence: u64) -> (usize, u64) {
        let at = sequence % WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests;
