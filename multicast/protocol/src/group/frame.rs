//! The group log as bytes, for every ordering: dense, self-validating entries in a ring of memory.
//!
//! A leader appends entries to its own copy and writes the new bytes, however many entries they contain, to each
//! follower at once. No word says how far it has written: an entry is present when its 64-bit checksum is right.
//! **Invariant.** Bytes that pass [`Frame::decode`] at a [`Cursor`] were written completely, for that index, at that
//! position (hence in that lap) and in that ballot: the checksum covers all of them. A 32-bit checksum would accept a
//! torn read every half day.
//!
//! Layout of an entry, little-endian, in units of 8 bytes:
//!
//! ```text
//!  0 check     xxh3 of everything below
//!  8 index     dense, from 1
//! 16 position  bytes from the log's beginning to this entry; modulo the ring's size, its place
//! 24 birth     ballot in which the entry was first appended; adopted entries keep it
//! 32 written   ballot in which these bytes were written
//! 40 len: u32  header and body, a multiple of 8 │ kind: u8 │ version: u8 │ body's padding: u16
//! 48 time      the leader's clock in milliseconds: replicated time
//! 56 epoch: u32 of the layout │ zero: u32
//! 64 body
//! ```
//!
//! A kind is the [group's](super::GroupRecord), or the ordering's, which reads the body. Kind 0 is a *pad*: it skips
//! the ring's end and has the index of the next entry.

use alloc::vec::Vec;

use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::check::check;
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::ring;

/// Length of an entry's header in bytes.
pub const HEADER: usize = 64;
/// Length in bytes of the log region before its ring. It contains the [`Leadership`] header of a leader that took over
/// and, in its last word, the word that a leader writes to verify its permission.
pub const PREAMBLE: usize = 64;
/// Offset, in an entry, of the word by which a reader can detect cheaply that the entry is not there yet.
pub const INDEX_AT: usize = 8;
/// Offset, in an entry, of the word with its position.
pub const POSITION_AT: usize = 16;
/// Length in bytes of the header that a leader writes into the [`PREAMBLE`] before it writes entries.
pub const LEADERSHIP: usize = 56;
/// The kind of a pad, which skips the ring's end.
pub const PAD: u8 = 0;

const VERSION: u8 = 1;

/// The header that a leader writes before entries: the place from which it rewrites a follower's log.
///
/// **Invariant.** A follower's log is valid up to `base`, and from there on as far as entries were written in `ballot`,
/// so a half-rewritten log is never mistaken for a newer one. The checksum covers all fields: a torn header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    pub ballot: Ballot,
    /// The place right behind the prefix that the leader shares with the follower.
    pub base: Cursor,
    /// The follower's count of its grants: the header of an earlier grant is not valid for this one.
    pub grant: u64,
    /// Index of the ballot's first entry: nothing below it is committed by this ballot alone.
    pub first: u64,
    /// Position from which the leader writes the log. It is before `base` if the follower received a state, and others
    /// that count still need the entries there.
    pub held_from: u64,
}

impl Leadership {
    /// The bytes that are written to memory.
    pub fn encode(&self) -> [u8; LEADERSHIP] {
        let mut bytes = [0; LEADERSHIP];
        let Cursor { index, position } = self.base;
        let Self { ballot, grant, first, held_from, .. } = *self;
        let words = [ballot.to_word(), index, position, grant, first, held_from];
        for (at, word) in bytes[8..].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_le_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// Decodes what [`encode`](Self::encode) wrote. `None` if it is not complete.
    pub fn decode(bytes: &[u8; LEADERSHIP]) -> Option<Self> {
        let mut from = Reader(bytes);
        let whole = from.u64()? == check(&bytes[8..]);
        if !guard!(Mutant::TornHeaderTaken, whole) {
            return None;
        }
        Some(Self {
            ballot: Ballot::from_word(from.u64()?),
            base: Cursor { index: from.u64()?, position: from.u64()? },
            grant: from.u64()?,
            first: from.u64()?,
            held_from: from.u64()?,
        })
    }
}

/// A place in the log: the next entry's index, and the position of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Index of the next entry.
    pub index: u64,
    /// Position of the next entry, in bytes from the log's beginning.
    pub position: u64,
}

impl Cursor {
    /// The place of the first entry.
    pub const START: Self = Self { index: 1, position: 0 };

    /// Offset of the next entry in the log region. It skips the ring's end if that is too short for a header.
    pub fn offset(&mut self, capacity: u64) -> usize {
        let left = capacity - ring::offset(capacity, self.position);
        if left < HEADER as u64 {
            self.position += left;
        }
        PREAMBLE + ring::offset(capacity, self.position) as usize
    }

    /// Steps over an entry of `len` bytes.
    pub const fn pass(&mut self, len: usize) {
        self.index += 1;
        self.skip(len);
    }

    /// Steps over a pad of `len` bytes.
    pub const fn skip(&mut self, len: usize) {
        self.position += len as u64;
    }
}

/// The bytes at a cursor are not the entry that belongs there, or not all of it yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotThere;

/// The length of the entry whose header was read at `cursor`, if it is possible there. Only [`Frame::decode`] checks
/// whether it is the right entry, and complete.
pub fn announced_len(header: &[u8; HEADER], cursor: Cursor, capacity: u64) -> Option<usize> {
    let len = u32::from_le_bytes(header[40..44].try_into().expect("four bytes")) as usize;
    let left = (capacity - ring::offset(capacity, cursor.position)) as usize;
    (len.is_multiple_of(8) && (HEADER..=left).contains(&len)).then_some(len)
}

/// Whether the header is a pad's. A pad covers the rest of the ring and has no body.
pub const fn is_pad(header: &[u8; HEADER]) -> bool {
    header[44] == PAD
}

/// Length in bytes of an entry with a body of `body_len` bytes.
pub const fn entry_len(body_len: usize) -> usize {
    HEADER + body_len.next_multiple_of(8)
}

/// One entry of the log: its header, and its undecoded body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Ballot in which the entry was first appended.
    pub birth: Ballot,
    /// Ballot in which it was written here.
    pub written: Ballot,
    /// The leader's clock, in milliseconds.
    pub time_ms: u64,
    /// The layout's epoch.
    pub epoch: u32,
    pub kind: u8,
    /// The body, in the encoding of its kind.
    pub body: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Appends the entry that belongs at `cursor` to `bytes`. The function `body` appends the entry's body.
    pub(crate) fn encode_with(
        &self,
        cursor: Cursor,
        bytes: &mut Vec<u8>,
        body: impl FnOnce(&mut Writer<'_>),
    ) {
        let start = bytes.len();
        bytes.reserve(2 * HEADER);
        let mut out = Writer(bytes);
        let (birth, written) = (self.birth.to_word(), self.written.to_word());
        let shape = u64::from(self.kind) << 32 | u64::from(VERSION) << 40;
        let Cursor { index, position } = cursor;
        let epoch = u64::from(self.epoch);
        out.words([0, index, position, birth, written, shape, self.time_ms, epoch]);
        body(&mut out);
        let exact = bytes.len() - start;
        let len = exact.next_multiple_of(8);
        bytes.resize(start + len, 0);
        bytes[start + 40..start + 44].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[start + 46..start + 48].copy_from_slice(&((len - exact) as u16).to_le_bytes());
        seal(&mut bytes[start..]);
    }

    /// Decodes the entry that belongs at `cursor`, in `ballot`, from bytes that were copied there: a header and as many
    /// bytes as it [announced](announced_len). The leader may have been writing it between two copies. If its length
    /// has changed since, a reader that used the first length would expect the next entry at a wrong position for ever.
    ///
    /// # Errors
    /// If the bytes are not that entry, or not all of it.
    pub fn decode(bytes: &'a [u8], cursor: Cursor, ballot: Ballot) -> Result<Self, NotThere> {
        Self::parse(bytes, cursor).filter(|frame| frame.written == ballot).ok_or(NotThere)
    }

    /// Decodes the entry that belongs at `cursor`, in whatever ballot it was written: for bytes that were validated
    /// before, or that do not come from writes into the log.
    #[inline]
    pub fn parse(bytes: &'a [u8], cursor: Cursor) -> Option<Self> {
        let mut from = Reader(bytes);
        let [sum, index, position, birth, written, shape, time_ms, epoch] = from.words()?;
        let belongs = (index, position) == (cursor.index, cursor.position);
        if !guard!(Mutant::LapNotChecked, belongs) {
            return None;
        }
        let (birth, written) = (Ballot::from_word(birth), Ballot::from_word(written));
        let (len, kind, version) =
            (shape as u32 as usize, (shape >> 32) as u8, (shape >> 40) as u8);
        let padding = (shape >> 48) as usize;
        let epoch = epoch as u32;
        let covered = if kind == PAD { HEADER } else { len };
        if !guard!(Mutant::EntryLengthNotChecked, bytes.len() == covered) {
            return None;
        }
        let whole = check(bytes.get(8..covered)?) == sum;
        if version != VERSION || padding >= 8 || !guard!(Mutant::TornEntryTaken, whole) {
            return None;
        }
        let body = bytes.get(HEADER..covered.checked_sub(padding)?)?;
        Some(Self { birth, written, time_ms, epoch, kind, body })
    }
}

impl Frame<'_> {
    /// Whether it is a pad, which skips the ring's end.
    pub const fn is_pad(&self) -> bool {
        self.kind == PAD
    }

    /// Steps over the entry or pad, which has `len` bytes.
    pub const fn step_over(&self, cursor: &mut Cursor, len: usize) {
        if self.is_pad() { cursor.skip(len) } else { cursor.pass(len) }
    }
}

/// Appends the header of a pad that covers `len` bytes of the ring's end.
pub fn encode_pad(cursor: Cursor, len: usize, written: Ballot, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    let pad = Frame { birth: written, written, time_ms: 0, epoch: 0, kind: PAD, body: &[] };
    pad.encode_with(cursor, bytes, |_| {});
    bytes[start + 40..start + 44].copy_from_slice(&(len as u32).to_le_bytes());
    seal(&mut bytes[start..start + HEADER]);
}

/// Changes a complete entry, or the header of a pad, into one that was written in `ballot`. A new leader rewrites
/// adopted entries; their birth and everything else is unchanged.
pub fn rewrite(entry: &mut [u8], ballot: Ballot) {
    entry[32..40].copy_from_slice(&ballot.to_word().to_le_bytes());
    if planted(Mutant::BirthNotKept) {
        entry[24..32].copy_from_slice(&ballot.to_word().to_le_bytes());
    }
    seal(entry);
}

pub(crate) fn seal(entry: &mut [u8]) {
    let sum = check(&entry[8..]);
    entry[..8].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_may_end_where_the_ring_ends() {
        const RING: u64 = 1 << 10;
        // One header's length before the end.
        let mut cursor = Cursor { index: 3, position: RING - HEADER as u64 };
        let before = cursor;
        assert_eq!(cursor.offset(RING), PREAMBLE + RING as usize - HEADER);
        assert_eq!(cursor, before, "a header fits there");
        let announced = |len: u32, position| {
            let mut header = [0; HEADER];
            header[40..44].copy_from_slice(&len.to_le_bytes());
            announced_len(&header, Cursor { index: 3, position }, RING)
        };
        assert_eq!(announced(64, RING - 64), Some(64), "a bare header to the end");
        assert_eq!(announced(72, RING - 72), Some(72), "an entry to the end");
        assert_eq!(announced(72, RING - 64), None, "one beyond it");
        assert_eq!(announced(56, 0), None, "less than a header");
        assert_eq!(announced(68, 0), None, "half a word");
    }
}
