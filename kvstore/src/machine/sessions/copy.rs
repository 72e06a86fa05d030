//! Copies the session table while it changes, and restores it.
//!
//! **Invariant (nothing is missed).** A session is copied whole, then message by message. Every message that
//! changed a session already copied is in `touched`, and is sent again with its state at that time. This
//! suffices, however late it is sent: bits and floors only grow, replies below the floor are dropped alike
//! everywhere, and sessions end in one order.

use std::collections::VecDeque;

use skein_multicast::application::Malformed;
use skein_protocol::ids::{MessageId, SessionId};

use super::{Books, Delivered, ENDED_MAX, Kept, SESSIONS_MAX, Session, Sessions, WINDOW, sum};
use crate::machine::part::{PartMaker, Record};
use crate::wire::Bytes;

/// Maximum number of touched messages that are remembered. If no part takes them in time, it is cheaper to send
/// all sessions again.
const TOUCHED_MAX: usize = ENDED_MAX / 2;

const DELIVERED_BYTES: usize = (WINDOW / 8) as usize;

/// Replies that are still to be copied: those to messages from `next` up to `last`. Later messages have touched
/// the session since.
struct Replies {
    session: SessionId,
    next: u64,
    last: u64,
}

/// Progress of a copy of the table.
pub(super) struct SessionsCopy {
    /// Sessions with this generation were copied, or opened after the copy began.
    pub(super) generation: u32,
    /// Sessions still to be copied, in descending order.
    left: Vec<SessionId>,
    /// The remaining replies of the session that is being copied.
    replies: Option<Replies>,
    touched: VecDeque<MessageId>,
    /// Number of messages added to `touched` since the last part.
    changed: usize,
    /// Number of the next ended session to send, counted from the first that ever ended.
    ended: u64,
    /// More messages were touched than can be remembered: the copy must begin again.
    overrun: bool,
}

impl SessionsCopy {
    pub(super) fn touch(&mut self, message: MessageId) {
        // A message is admitted and then answered, usually at once.
        if self.overrun || self.touched.back() == Some(&message) {
            return;
        }
        if self.touched.len() == TOUCHED_MAX {
            self.touched.clear();
            self.overrun = true;
            return;
        }
        self.touched.push_back(message);
        self.changed += 1;
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.touched.capacity()
    }
}

impl Sessions {
    pub(crate) fn give_up_copy(&mut self) {
        self.copy = None;
    }

    /// Continues a copy, or begins one. Returns whether nothing is left.
    pub(crate) fn copy(&mut self, part: &mut PartMaker<'_>) -> bool {
        let mut copy = match self.copy.take() {
            Some(copy) if !copy.overrun && copy.ended >= self.ended_first() => copy,
            before => {
                if before.is_some() {
                    part.add(&Record::NoSessions);
                }
                Box::new(self.begin_copy())
            }
        };
        let done = self.go_on(&mut copy, part);
        self.copy = Some(copy);
        done
    }

    fn begin_copy(&mut self) -> SessionsCopy {
        self.generation += 1;
        let mut left: Vec<_> = self.open.keys().copied().collect();
        // The order is the same in every run.
        left.sort_unstable_by(|a, b| b.cmp(a));
        SessionsCopy {
            generation: self.generation,
            left,
            replies: None,
            touched: VecDeque::new(),
            changed: 0,
            ended: self.ended_first(),
            overrun: false,
        }
    }

    fn go_on(&mut self, copy: &mut SessionsCopy, part: &mut PartMaker<'_>) -> bool {
        let first = self.ended_first();
        while copy.ended < self.ended_count {
            let id = self.ended_order[(copy.ended - first) as usize];
            copy.ended += 1;
            let closed_by = self.ended[&id];
            if !part.add_found(&Record::Ended { session: id.0, closed_by }) {
                return false;
            }
        }
        part.next_kind(std::mem::take(&mut copy.changed));
        while let Some(message) = copy.touched.pop_front() {
            if !self.tell(message, part) && !copy.touched.is_empty() {
                return false;
            }
        }
        part.next_kind(0);
        loop {
            if let Some(Replies { session: id, next, last }) = copy.replies.take()
                && let Some(session) = self.open.get(&id)
            {
                let at = session.find(next).unwrap_or_else(|at| at);
                let until = |kept: &&Kept| kept.sequence <= last;
                for kept in session.replies.range(at..).take_while(until) {
                    if !part.add(&kept.record(id)) {
                        let next = kept.sequence.saturating_add(1);
                        copy.replies = Some(Replies { session: id, next, last });
                        return false;
                    }
                }
            }
            let Some(id) = copy.left.pop() else { return true };
            let Some(session) = self.open.get_mut(&id) else { continue };
            session.copied = copy.generation;
            let last = session.delivered.highest;
            copy.replies = Some(Replies { session: id, next: 0, last });
            let delivered = session.delivered.to_bytes();
            let record = Record::Session {
                id: id.0,
                floor: session.floor,
                highest: session.delivered.highest,
                delivered: Bytes(&delivered),
            };
            if !part.add_found(&record) {
                return false;
            }
        }
    }

    /// Sends the present state of a delivered message. Returns whether there is room for more.
    fn tell(&self, message: MessageId, part: &mut PartMaker<'_>) -> bool {
        let MessageId { session: id, sequence } = message;
        // If the session has ended, an earlier record says so.
        let Some(session) = self.open.get(&id) else { return true };
        let floor = session.floor;
        part.add_found(&Record::Delivered { session: id.0, sequence, floor });
        match session.find(sequence) {
            Ok(at) => part.add(&session.replies[at].record(id)),
            Err(_) => part.add(&Record::NoReply { session: id.0, sequence }),
        }
    }

    /// Number of the oldest ended session that is remembered, counted from the first that ever ended.
    fn ended_first(&self) -> u64 {
        self.ended_count - self.ended_order.len() as u64
    }

    /// Applies a record about sessions.
    pub(crate) fn restore(&mut self, record: &Record<'_>) -> Result<(), Malformed> {
        match *record {
            Record::NoSessions => *self = Self::default(),
            Record::Session { id, floor, highest, delivered } => {
                let delivered = Delivered::from_bytes(highest, delivered.0)?;
                let id = SessionId(id);
                self.free(id);
                let (session, mut books) = self.restored(id)?;
                session.delivered = delivered;
                session.free_below(id, floor, &mut books);
            }
            Record::Delivered { session, sequence, floor } => {
                let id = SessionId(session);
                let (session, mut books) = self.restored(id)?;
                session.delivered.insert(sequence);
                session.free_below(id, floor, &mut books);
            }
            Record::Reply { session, sequence, reply } => {
                let message = MessageId::new(SessionId(session), sequence);
                let (session, mut books) = self.found(message.session)?;
                session.forget(sequence, &mut books);
                let at = session.find(sequence).unwrap_or_else(|at| at);
                let kept = Kept::new(message, reply.0, sum(message, reply.0));
                books.add(&kept);
                session.replies.insert(at, kept);
            }
            Record::NoReply { session, sequence } => {
                let (session, mut books) = self.found(SessionId(session))?;
                session.forget(sequence, &mut books);
            }
            Record::Ended { session, closed_by } => {
                let id = SessionId(session);
                if self.ended.contains_key(&id) {
                    return Err(Malformed);
                }
                self.free(id);
                self.remember_ended(id, closed_by);
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    /// The session, which is opened if it is not open.
    fn restored(&mut self, id: SessionId) -> Result<(&mut Session, Books<'_>), Malformed> {
        if self.ended.contains_key(&id)
            || (self.open.len() == SESSIONS_MAX && !self.open.contains_key(&id))
        {
            return Err(Malformed);
        }
        let Self { open, owed_bytes, digest, .. } = self;
        let mut books = Books { owed_bytes, digest };
        let session = open.entry(id).or_insert_with(|| books.opened(id));
        Ok((session, books))
    }

    /// The session, which must be open.
    fn found(&mut self, id: SessionId) -> Result<(&mut Session, Books<'_>), Malformed> {
        let Self { open, owed_bytes, digest, .. } = self;
        Ok((open.get_mut(&id).ok_or(Malformed)?, Books { owed_bytes, digest }))
    }
}

impl Kept {
    fn record(&self, session: SessionId) -> Record<'_> {
        Record::Reply {
            session: session.0,
            sequence: self.sequence,
            reply: Bytes(self.reply.as_slice()),
        }
    }
}

impl Delivered {
    fn to_bytes(&self) -> [u8; DELIVERED_BYTES] {
        let mut bytes = [0; DELIVERED_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(self.words.iter()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(highest: u64, bytes: &[u8]) -> Result<Self, Malformed> {
        if bytes.len() != DELIVERED_BYTES {
            return Err(Malformed);
        }
        let mut delivered = Self { highest, ..Self::default() };
        for (word, from) in delivered.words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(from.try_into().expect("eight bytes"));
        }
        Ok(delivered)
    }
}
