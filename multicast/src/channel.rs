//! A pair of rings between two processes, and the frames in them.
//!
//! Each side owns the ring that the other side writes, and a *slot* of two words that the other side writes:
//! the tail of that ring, and the number of bytes that the other side has taken from its own ring. A datagram
//! longer than a quarter of the ring travels in several frames, which the reader assembles.
//!
//! A frame is a word, then its bytes, padded to whole words:
//!
//! ```text
//!  0 len: u32 │ kind: u8 │ flags: u8 │ mark: u16, the low bits of the frame's position in words
//!  8 bytes; in the first of several frames, the datagram's length comes first, in 8 bytes
//! ```
//!
//! A side that is finished writes [`GOODBYE`] as its last credit word and writes nothing after it. The slot
//! can be reused once both sides have written it.
//!
//! Frames are written together, just before the tail word that makes them visible, or once they exceed a
//! limit. The tail word is written after the bytes, so nothing between the reader and the tail belongs to an
//! earlier lap; the mark and every length are checked all the same. A side that writes invalid data harms
//! only its own channel.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::sync::Arc;

use skein_fabric::{Fabric, FabricError, Peer, Region, Remote, Source};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ring::{Incoming, Nonsense, Outgoing, offset, spans};

use crate::introductions::Purpose;

/// The last credit word that a side writes.
pub(crate) const GOODBYE: u64 = u64::MAX;

const FRAME: u64 = 8;
/// More than the length of the longest datagram under any configuration: the largest payload, with what goes with it.
const DATAGRAM_MAX: usize = (1 << 30) + (1 << 20);
const FIRST: u8 = 1;
const LAST: u8 = 2;
/// Unwritten frames are written at once when they reach this size in bytes.
const TOGETHER: usize = 4 << 10;

/// Type of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Session to replica: a message's head and payload.
    Message = 1,
    /// Replica to session: the message's sequence number and the reply.
    Reply = 2,
    /// Replica to replica: a message of the ordering. A leader that takes it may log entries for it.
    Order = 3,
    /// Replica to replica: a request for a message.
    Fetch = 4,
    /// Replica to replica, the answer to `Fetch`: session, head, payload.
    Relay = 5,
    /// Leader to leader: results of the state machine about messages.
    Exchange = 6,
    /// Within a group: elections and membership.
    Election = 7,
    /// Replica to replica: a message of the ordering that leads to no entry. It is taken whether or not the
    /// log has room.
    Progress = 8,
    /// Session to replica: a query, which is answered without being ordered.
    Query = 9,
    /// Replica to session: the query's number and the answer.
    Answer = 10,
    /// Engine to engine: like `Order`, from all replicas of one engine to those of the other.
    OrderTogether = 11,
    /// Session to replica: a message's head and payload, for an entry that the replica may receive from another group.
    Hint = 12,
    /// Leader to replica: the name of a message about whose result the sender has waited long. The receiver's group is to
    /// object if it may never speak.
    Objection = 13,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        use Kind::{
            Answer, Election, Exchange, Fetch, Hint, Message, Objection, Order, OrderTogether,
            Progress, Query, Relay, Reply,
        };
        // In the order of their numbers, from 1.
        #[rustfmt::skip]
        const KINDS: [Kind; 13] = [
            Message, Reply, Order, Fetch, Relay, Exchange, Election, Progress, Query, Answer, OrderTogether, Hint,
            Objection,
        ];
        KINDS.get(usize::from(byte.wrapping_sub(1))).copied()
    }
}

/// The next datagram of a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub kind: Kind,
    /// Length in bytes of the whole datagram.
    pub len: usize,
    /// Its first frame was taken before.
    pub begun: bool,
    /// It is in one frame.
    pub whole: bool,
}

struct Backlogged {
    kind: Kind,
    bytes: Arc<[u8]>,
    sent: usize,
}

/// Bytes of datagrams that are being assembled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssemblingBytes {
    pub hints: usize,
    pub others: usize,
}

impl AddAssign for AssemblingBytes {
    fn add_assign(&mut self, more: Self) {
        self.hints += more.hints;
        self.others += more.others;
    }
}

impl SubAssign for AssemblingBytes {
    fn sub_assign(&mut self, less: Self) {
        self.hints -= less.hints;
        self.others -= less.others;
    }
}

/// A datagram in several frames, of which some are taken.
struct Assembling {
    kind: Kind,
    /// Length in bytes of the datagram, and of the part that is taken.
    total: usize,
    taken: usize,
    /// The part that is taken; `None` if the datagram is skipped.
    bytes: Option<Vec<u8>>,
}

/// The memory of the peer that this side writes.
pub(crate) struct Out {
    /// The peer's number for the channel.
    pub channel: u32,
    pub slots: Remote,
    pub slot_at: usize,
    pub ring: Remote,
}

/// One side of a pair of rings.
pub(crate) struct Channel {
    pub purpose: Purpose,
    pub peer: Peer,
    /// An index for the use of the channel's opener.
    pub owner: u32,
    /// This side has opened the channel, and the peer has neither accepted nor refused it yet.
    pub asked: bool,
    /// `None` until the peer has answered, and after this side has said goodbye.
    pub out: Option<Out>,
    pub outgoing: Outgoing,
    /// The last frames before the tail that are not written yet. The peer's tail word covers none of them.
    unwritten: Vec<u8>,
    /// The last tail word written to the peer.
    tail_told: u64,
    backlog: VecDeque<Backlogged>,
    /// A larger ring was requested: nothing is written until the answer.
    pub growing: bool,
    /// A larger ring was requested once. It is not requested again, whatever the answer.
    pub grown: bool,
    pub ring: Option<Region>,
    pub incoming: Incoming,
    assembling: Option<Assembling>,
    /// If the peer wants a larger ring: the position from which it is used, and its size.
    pub grow_at: Option<(u64, u64)>,
    /// The peer is finished, dead, or has written invalid data. Whole datagrams in the ring are still read.
    pub dying: bool,
    /// The peer's memory cannot be written any more.
    pub failed: bool,
    /// The peer writes our slot no more: it has said goodbye, or is dead.
    pub silent: bool,
    /// This side is finished, and waits for the peer to be silent.
    pub leaving: bool,
    pub dirty: bool,
    /// The owner has scheduled a later read of the ring.
    pub later: bool,
}

impl Channel {
    pub(crate) fn new(
        purpose: Purpose,
        peer: Peer,
        ring: Option<Region>,
        ring_bytes: u64,
        out_bytes: u64,
    ) -> Self {
        Self {
            purpose,
            peer,
            owner: 0,
            asked: false,
            out: None,
            outgoing: Outgoing::new(out_bytes),
            unwritten: Vec::new(),
            tail_told: 0,
            backlog: VecDeque::new(),
            growing: false,
            grown: false,
            ring,
            incoming: Incoming::new(ring_bytes),
            assembling: None,
            grow_at: None,
            dying: false,
            failed: false,
            silent: false,
            leaving: false,
            dirty: false,
            later: false,
        }
    }

    /// Takes in the two words of this side's slot.
    pub(crate) fn see(&mut self, words: [u64; 2]) -> Result<(), Nonsense> {
        if words[1] == GOODBYE {
            self.silent = true;
            self.dying = true;
        } else {
            self.outgoing.credit(words[1])?;
        }
        self.incoming.see(words[0])
    }

    /// Writes the last word to the peer.
    pub(crate) fn say_goodbye<F: Fabric>(&mut self, fabric: &mut F) -> Result<(), FabricError> {
        match self.out.take() {
            Some(out) => {
                let word = GOODBYE.to_le_bytes();
                fabric.write(out.slots, out.slot_at + 8, Source::Inline(&word), None)
            }
            None => Ok(()),
        }
    }

    /// The longest frame, its word included. The reader reports credits by quarters of the ring, so this much
    /// room always comes.
    fn frame_max(&self) -> u64 {
        self.outgoing.capacity() / 4
    }

    /// Writes a datagram, or queues it behind others that wait for room.
    #[inline]
    pub(crate) fn send<F: Fabric>(
        &mut self,
        fabric: &mut F,
        kind: Kind,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), FabricError> {
        let len = head.len() + body.len();
        let frame = FRAME + (len as u64).next_multiple_of(8);
        let fits = frame <= self.frame_max() && frame <= self.outgoing.room();
        if self.out.is_none() || self.growing || !self.backlog.is_empty() || !fits {
            return self.send_later(fabric, kind, head, body);
        }
        self.write_frame(fabric, kind, FIRST | LAST, head, body)
    }

    #[cold]
    fn send_later<F: Fabric>(
        &mut self,
        fabric: &mut F,
        kind: Kind,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), FabricError> {
        self.send_shared(kind, [head, body].concat().into());
        self.pump(fabric)
    }

    /// Queues a datagram whose bytes several channels share. It goes in front of hints that are not begun: what they are
    /// about may be answered long ago.
    pub(crate) fn send_shared(&mut self, kind: Kind, bytes: Arc<[u8]>) {
        let is_hint = |waiting: &&Backlogged| waiting.kind == Kind::Hint && waiting.sent == 0;
        let hints = if kind == Kind::Hint {
            0
        } else {
            self.backlog.iter().rev().take_while(is_hint).count()
        };
        self.backlog.insert(self.backlog.len() - hints, Backlogged { kind, bytes, sent: 0 });
    }

    /// Writes queued datagrams as far as there is room.
    pub(crate) fn pump<F: Fabric>(&mut self, fabric: &mut F) -> Result<(), FabricError> {
        while self.out.is_some()
            && !self.growing
            && let Some(front) = self.backlog.front_mut()
        {
            let (kind, sent, whole) = (front.kind, front.sent, front.bytes.len());
            let bytes = Arc::clone(&front.bytes);
            let frame_max = (self.outgoing.capacity() / 4 - 2 * FRAME) as usize;
            let several = whole > frame_max;
            let take = (whole - sent).min(frame_max);
            let frame = 2 * FRAME + (take as u64).next_multiple_of(8);
            if frame > self.outgoing.room() {
                break;
            }
            let first = if sent == 0 { FIRST } else { 0 };
            let last = if sent + take == whole { LAST } else { 0 };
            let total = (whole as u64).to_le_bytes();
            let head: &[u8] = if several && sent == 0 { &total } else { &[] };
            front.sent += take;
            if last != 0 {
                self.backlog.pop_front();
            }
            let part = &bytes[sent..sent + take];
            self.write_frame(fabric, kind, first | last, head, part)?;
        }
        Ok(())
    }

    /// Appends a frame to the unwritten ones.
    #[inline]
    fn write_frame<F: Fabric>(
        &mut self,
        fabric: &mut F,
        kind: Kind,
        flags: u8,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), FabricError> {
        let len = head.len() + body.len();
        let padded = (FRAME as usize) + len.next_multiple_of(8);
        let position = self.outgoing.reserve(padded as u64);
        let mark = u64::from((position / 8) as u16);
        let word = len as u64 | (kind as u64) << 32 | u64::from(flags) << 40 | mark << 48;
        let frames = &mut self.unwritten;
        let end = frames.len() + padded;
        frames.reserve(padded + 8);
        frames.extend_from_slice(&word.to_le_bytes());
        frames.extend_from_slice(head);
        // Most datagrams of a session have no body.
        if !body.is_empty() {
            frames.extend_from_slice(body);
        }
        frames.extend_from_slice(&[0; 8]);
        frames.truncate(end);
        if end >= TOGETHER { self.write_frames(fabric) } else { Ok(()) }
    }

    /// Writes the unwritten frames into the peer's ring.
    fn write_frames<F: Fabric>(&mut self, fabric: &mut F) -> Result<(), FabricError> {
        let mut frames = std::mem::take(&mut self.unwritten);
        let ring = self.out.as_ref().expect("only an open channel is written").ring;
        let (len, mut from) = (frames.len() as u64, 0);
        for span in spans(self.outgoing.capacity(), self.outgoing.tail() - len, len) {
            if !span.is_empty() {
                let bytes = &frames[from..from + span.len()];
                fabric.write(ring, span.start, Source::Inline(bytes), None)?;
                from += span.len();
            }
        }
        if frames.capacity() <= 2 * TOGETHER {
            frames.clear();
            self.unwritten = frames;
        }
        Ok(())
    }

    /// Makes written frames visible, and reports credit if there is enough to report. Returns whether it
    /// wrote anything.
    pub(crate) fn tell<F: Fabric>(&mut self, fabric: &mut F) -> Result<bool, FabricError> {
        if self.out.is_some() && !self.unwritten.is_empty() {
            self.write_frames(fabric)?;
        }
        let Some(out) = &self.out else { return Ok(false) };
        let tail = self.outgoing.tail();
        let credit = if self.grow_at.is_some() && self.incoming.unreported() {
            Some(self.incoming.report_now())
        } else {
            self.incoming.report()
        };
        let credit = credit.filter(|_| !planted(Mutant::CreditNotTold));
        let told = tail != self.tail_told || credit.is_some();
        if tail != self.tail_told {
            self.tail_told = tail;
            fabric.write(out.slots, out.slot_at, Source::Inline(&tail.to_le_bytes()), None)?;
        }
        if let Some(taken) = credit {
            fabric.write(out.slots, out.slot_at + 8, Source::Inline(&taken.to_le_bytes()), None)?;
        }
        Ok(told)
    }

    /// The ring size that suits the queued datagrams, if the present ring is too small for them.
    pub(crate) fn wants(&self, bytes_max: u64) -> Option<u64> {
        let capacity = self.outgoing.capacity();
        let longest = self.backlog.iter().map(|b| b.bytes.len() as u64).max()?;
        let suits = (4 * longest).next_power_of_two().min(bytes_max);
        (self.out.is_some() && !self.growing && suits > capacity).then_some(suits)
    }

    /// Returns whether everything given to [`send`](Self::send) is in the peer's ring.
    pub(crate) fn sent_all(&self) -> bool {
        self.backlog.is_empty()
    }

    /// Returns whether an identical datagram waits for room.
    pub(crate) fn holds(&self, kind: Kind, head: &[u8], body: &[u8]) -> bool {
        self.backlog.iter().any(|waiting| {
            let bytes = waiting.bytes.strip_prefix(head);
            waiting.kind == kind && bytes.is_some_and(|rest| rest == body)
        })
    }

    /// Number of datagrams that wait for room.
    pub(crate) fn waiting(&self) -> usize {
        self.backlog.len()
    }

    /// Returns whether an answer of `len` bytes to query `number` may wait for room: no answer to the same
    /// query waits, fewer than `most` datagrams wait, and they have at most `bytes_max` bytes with it. An
    /// answer may always wait alone.
    pub(crate) fn takes_answer(
        &self,
        number: u64,
        len: usize,
        most: usize,
        bytes_max: usize,
    ) -> bool {
        let to_it = |waiting: &Backlogged| {
            let of = waiting.bytes.first_chunk().copied().map(u64::from_le_bytes);
            waiting.kind == Kind::Answer && of == Some(number)
        };
        self.backlog.is_empty()
            || self.backlog.len() < most
                && self.waiting_bytes() + len <= bytes_max
                && !self.backlog.iter().any(to_it)
    }

    /// Bytes of the datagrams that wait for room.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.backlog.iter().map(|waiting| waiting.bytes.len()).sum()
    }

    /// Returns whether a datagram of that kind waits for room.
    pub(crate) fn has_waiting(&self, kind: Kind) -> bool {
        self.backlog.iter().any(|waiting| waiting.kind == kind)
    }

    /// A description for an observer.
    pub(crate) fn describe(&self) -> String {
        let Self { purpose, growing, dying, failed, leaving, .. } = self;
        let (open, waiting, room) = (self.out.is_some(), self.waiting(), self.outgoing.room());
        format!(
            "{purpose:?}: {waiting} wait, room {room}, open {open}, growing {growing}, dying {dying}, \
            failed {failed}, leaving {leaving}"
        )
    }

    /// Decides whether to send a reply to message `sequence`, if at most `most` datagrams, more than a window
    /// of the session, may wait for room. Returns that, and whether a reply is dropped because there are too
    /// many.
    ///
    /// A new leader repeats replies that the session has received, faster than the session reads them. Each
    /// reply waits once. If too many wait, the session has received the one with the lowest number, since it
    /// has no more than a window of messages in flight.
    pub(crate) fn make_room_for_reply(&mut self, sequence: u64, most: usize) -> (bool, bool) {
        let of = |waiting: &Backlogged| {
            let number = waiting.bytes.first_chunk().copied().map(u64::from_le_bytes);
            number.filter(|_| waiting.kind == Kind::Reply)
        };
        if self.backlog.iter().any(|waiting| of(waiting) == Some(sequence)) {
            return (false, false);
        }
        if self.backlog.len() < most {
            return (true, false);
        }
        let replies = |waiting: &Backlogged| waiting.sent == 0 && waiting.kind == Kind::Reply;
        let whole = self.backlog.iter().enumerate().filter(|(_, waiting)| replies(waiting));
        let lowest = whole.min_by_key(|(_, waiting)| of(waiting));
        let lowest = lowest.filter(|(_, waiting)| of(waiting) < Some(sequence)).map(|(at, _)| at);
        let dropped = lowest.and_then(|at| self.backlog.remove(at));
        (dropped.is_some(), true)
    }

    /// Drops the queued datagrams: the peer will not read them.
    pub(crate) fn drop_backlog(&mut self) {
        self.backlog.clear();
    }

    /// The next datagram, if any of it is readable.
    #[inline]
    pub(crate) fn next<F: Fabric>(&self, fabric: &F) -> Result<Option<Next>, Nonsense> {
        if let Some(Assembling { kind, total, .. }) = &self.assembling {
            let next = Next { kind: *kind, len: *total, begun: true, whole: false };
            return Ok((self.incoming.available() > 0).then_some(next));
        }
        let Some(frame) = self.frame(fabric)? else { return Ok(None) };
        if frame.flags & FIRST == 0 {
            return Err(Nonsense);
        }
        let whole = frame.flags & LAST != 0;
        let len =
            if whole { frame.len } else { self.total(fabric, self.incoming.position() + FRAME)? };
        Ok(Some(Next { kind: frame.kind, len, begun: false, whole }))
    }

    /// Copies the next datagram, which was found to be of `len` bytes in one frame, into `into`.
    #[inline]
    pub(crate) fn take_whole<F: Fabric>(&mut self, fabric: &F, len: usize, into: &mut Vec<u8>) {
        into.resize(len, 0);
        self.copy(fabric, self.incoming.position() + FRAME, into);
        self.skip(len);
    }

    /// Takes the next datagram, which is in several frames, as far as it is there. Returns whether it is
    /// complete, and if so puts it in `into`. A hint whose length `keeps_hint` refuses is skipped: nothing is put there.
    pub(crate) fn take<F: Fabric>(
        &mut self,
        fabric: &F,
        mut keeps_hint: impl FnMut(usize) -> bool,
        into: &mut Vec<u8>,
    ) -> Result<bool, Nonsense> {
        loop {
            let Some(frame) = self.frame(fabric)? else { return Ok(false) };
            let at = self.incoming.position() + FRAME;
            let padded = FRAME + (frame.len as u64).next_multiple_of(8);
            match (&mut self.assembling, frame.flags & FIRST != 0, frame.flags & LAST != 0) {
                (None, true, false) if frame.len > 8 => {
                    // The length was read before, and the writer may have changed it since.
                    let (kind, total, taken) = (frame.kind, self.total(fabric, at)?, frame.len - 8);
                    let keeps = kind != Kind::Hint || keeps_hint(total);
                    let bytes = keeps.then(|| {
                        let mut bytes = Vec::with_capacity(total);
                        bytes.resize(taken, 0);
                        self.copy(fabric, at + 8, &mut bytes);
                        bytes
                    });
                    self.incoming.take(padded);
                    self.assembling = Some(Assembling { kind, total, taken, bytes });
                }
                (Some(Assembling { kind, total, taken, bytes }), false, last) => {
                    let (start, end) = (*taken, *taken + frame.len);
                    if frame.kind != *kind || end > *total || last != (end == *total) {
                        return Err(Nonsense);
                    }
                    *taken = end;
                    let mut bytes = bytes.take();
                    if let Some(bytes) = &mut bytes {
                        bytes.resize(end, 0);
                        self.copy(fabric, at, &mut bytes[start..]);
                    }
                    self.incoming.take(padded);
                    if last {
                        self.assembling = None;
                        *into = bytes.unwrap_or_default();
                        return Ok(true);
                    }
                    self.assembling.as_mut().expect("just matched").bytes = bytes;
                }
                _ => return Err(Nonsense),
            }
        }
    }

    /// The first word of the next datagram, which is in one frame.
    fn first_word<F: Fabric>(&self, fabric: &F) -> u64 {
        self.word(fabric, self.incoming.position() + FRAME)
    }

    /// The first bytes of the next datagram, which is in one frame if `whole`, or in several: as many as fit `into` and are
    /// in its first frame. `None` if there are none.
    pub(crate) fn peek<'a, F: Fabric>(
        &self,
        fabric: &F,
        whole: bool,
        into: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let Frame { len, .. } = self.frame(fabric).ok()??;
        // The first of several frames begins with the datagram's length.
        let skipped = if whole { 0 } else { 8 };
        let len = len.checked_sub(skipped)?.min(into.len());
        self.copy(fabric, self.incoming.position() + FRAME + skipped as u64, &mut into[..len]);
        Some(&into[..len])
    }

    /// Skips the next datagram, which is in one frame of `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) {
        self.incoming.take(FRAME + (len as u64).next_multiple_of(8));
    }

    /// Skips messages whose first words satisfy `known`, as long as each is in one frame and no longer than
    /// `len_max`. Returns whether it skipped any.
    pub(crate) fn skip_known<F: Fabric>(
        &mut self,
        fabric: &F,
        len_max: usize,
        known: impl Fn(u64) -> bool,
    ) -> Result<bool, Nonsense> {
        let from = self.incoming.position();
        while self.assembling.is_none()
            && let Some(Frame { kind: Kind::Message, flags, len }) = self.frame(fabric)?
            && flags == FIRST | LAST
            && len <= len_max
            && known(self.first_word(fabric))
        {
            self.skip(len);
        }
        Ok(self.incoming.position() > from)
    }

    /// Returns whether unread bytes fill more than half of the ring, or keep it from growing: its writer may wait.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.grow_at.is_some() || self.incoming.available() > self.incoming.capacity() / 2
    }

    /// Length in bytes of the datagram that is being assembled: of a hint, and of any other.
    pub(crate) fn assembling_bytes(&self) -> AssemblingBytes {
        let mut bytes = AssemblingBytes::default();
        if let Some(Assembling { kind, total, bytes: Some(_), .. }) = &self.assembling {
            let to = if *kind == Kind::Hint { &mut bytes.hints } else { &mut bytes.others };
            *to = *total;
        }
        bytes
    }

    /// If a hint is being assembled, its rest is skipped, too.
    pub(crate) fn skip_hint(&mut self) {
        if let Some(Assembling { kind: Kind::Hint, bytes, .. }) = &mut self.assembling {
            *bytes = None;
        }
    }

    /// Drops the datagram that is being assembled.
    pub(crate) fn stop_assembling(&mut self) {
        self.assembling = None;
    }

    #[inline]
    fn frame<F: Fabric>(&self, fabric: &F) -> Result<Option<Frame>, Nonsense> {
        if self.incoming.available() == 0 {
            return Ok(None);
        }
        let position = self.incoming.position();
        let word = self.word(fabric, position);
        let len = word as u32 as usize;
        let kind = Kind::from_byte((word >> 32) as u8).ok_or(Nonsense)?;
        let flags = (word >> 40) as u8;
        let padded = FRAME + (len as u64).next_multiple_of(8);
        let marked = (word >> 48) as u16 == (position / 8) as u16;
        if !marked || padded > self.incoming.available() {
            return Err(Nonsense);
        }
        Ok(Some(Frame { kind, flags, len }))
    }

    /// The length of a datagram that is in several frames.
    fn total<F: Fabric>(&self, fabric: &F, position: u64) -> Result<usize, Nonsense> {
        let total = self.word(fabric, position);
        usize::try_from(total).ok().filter(|len| *len <= DATAGRAM_MAX).ok_or(Nonsense)
    }

    fn word<F: Fabric>(&self, fabric: &F, position: u64) -> u64 {
        let ring = self.ring.expect("only a channel with a ring is read");
        fabric.load(ring, offset(self.incoming.capacity(), position) as usize)
    }

    fn copy<F: Fabric>(&self, fabric: &F, position: u64, into: &mut [u8]) {
        let ring = self.ring.expect("only a channel with a ring is read");
        let [first, second] = spans(self.incoming.capacity(), position, into.len() as u64);
        let (start, rest) = into.split_at_mut(first.len());
        fabric.copy_out(ring, first.start, start);
        if !rest.is_empty() {
            fabric.copy_out(ring, second.start, rest);
        }
    }
}

struct Frame {
    kind: Kind,
    flags: u8,
    len: usize,
}

#[cfg(test)]
mod tests {
    use skein_fabric::sim::{SimConfig, World};
    use skein_protocol::ids::{GroupId, ReplicaId, SessionId};

    use super::*;

    #[test]
    fn what_waits_is_counted_in_bytes() {
        let mut fabric = World::new(1, SimConfig::default()).join("engine");
        let purpose = Purpose::session(SessionId(1), ReplicaId::new(GroupId(0), 0));
        let mut channel = Channel::new(purpose, Peer(0), None, 0, 4096);
        assert_eq!(channel.waiting_bytes(), 0);
        for (len, all) in [(100, 108), (1 << 20, (1 << 20) + 116)] {
            channel.send(&mut fabric, Kind::Reply, &[0; 8], &vec![7; len]).unwrap();
            assert_eq!(channel.waiting_bytes(), all);
        }
    }

    #[test]
    fn of_too_many_replies_the_session_has_had_the_first() {
        let mut fabric = World::new(1, SimConfig::default()).join("engine");
        let purpose = Purpose::session(SessionId(1), ReplicaId::new(GroupId(0), 0));
        // The session has not answered yet, so everything waits.
        let mut channel = Channel::new(purpose, Peer(0), None, 0, 4096);
        #[rustfmt::skip]
        let replies = [
            // to  wanted  dropped  because
            (7,    true,   false,   "there is room"),
            (5,    true,   false,   "whatever the order"),
            (7,    false,  false,   "it waits already"),
            (6,    true,   false,   "three may wait"),
            (8,    true,   true,    "5 is no longer under way, or 8 were not"),
            (8,    false,  false,   "it waits already, and what waits is needed"),
            (5,    false,  true,    "it is the lowest itself"),
        ];
        for (sequence, wanted, dropped, because) in replies {
            let room = channel.make_room_for_reply(sequence, 3);
            assert_eq!(room, (wanted, dropped), "{sequence}: {because}");
            if wanted {
                let (head, body) = (u64::to_le_bytes(sequence), b"reply");
                channel.send(&mut fabric, Kind::Reply, &head, body).unwrap();
            }
        }
        let left = channel.backlog.iter().map(|waiting| waiting.bytes[0]);
        assert_eq!(left.collect::<Vec<_>>(), [7, 6, 8]);
    }
}
