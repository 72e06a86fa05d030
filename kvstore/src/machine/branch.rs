//! Evaluates guards and runs branches on a store.
//!
//! **Invariant (all or nothing).** A branch runs on a draft: its writes go to the draft, and the store stays as
//! it was until all operations have succeeded and the draft is committed. So a refusal leaves no trace, and a
//! dry run is a run whose draft is dropped.

use std::borrow::Cow;
use std::cell::Cell;

use skein_protocol::ids::GroupId;

use super::stop::{Stop, settle};
use super::writes::{Writes, Written};
use crate::command::{Compare, Guard, Operation, Test, Version};
use crate::limits::Limits;
use crate::number::{add, integer};
use crate::plan::pairs_max;
use crate::range::RangeDigest;
use crate::reply::{Outcome, Page, Refusal};
use crate::rules::{check_made, check_value};
use crate::store::{Found, Store};
use crate::wire::{Bytes, Held, PartWriter};

/// Why the execution of a command ends early.
pub(crate) type Halt<S> = Stop<Refusal, <S as Store>::Error>;

/// Bytes counted for a pair besides its key and value.
pub const PAIR_OVERHEAD: u64 = 96;

/// Bytes counted for a pair.
pub(crate) fn pair_bytes(key: &[u8], value_len: usize) -> u64 {
    (key.len() + value_len) as u64 + PAIR_OVERHEAD
}

/// The bytes that a group uses, and its ceiling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) group: u16,
    pub(crate) used: u64,
    pub(crate) ceiling: u64,
}

impl Room {
    /// Refuses to replace `shrunk` bytes that the group holds by `grown` bytes if that exceeds the ceiling.
    /// A change that does not grow the state is never refused.
    pub(crate) fn check(&self, grown: u64, shrunk: u64) -> Result<(), Refusal> {
        if grown <= shrunk || self.used + (grown - shrunk) <= self.ceiling {
            return Ok(());
        }
        Err(Refusal::OutOfMemory { group: self.group, used: self.used, ceiling: self.ceiling })
    }
}

/// Whether a guard holds in this group.
pub(crate) fn holds<S: Store>(
    store: &S,
    group: GroupId,
    guard: &Guard<Bytes<'_>>,
) -> Result<bool, S::Error> {
    if let Test::Unchanged { end, ref held } = guard.test {
        let nothing = || RangeDigest::of(group, []);
        let then = held.iter().find(|held| held.group == group.0);
        let (start, end) = (guard.key.0, end.map(|end| end.0));
        if end.is_some_and(|end| end <= start) {
            return Ok(true); // The range is empty.
        }
        let now = store.range(start, end).map(|pair| pair.map(|(key, found)| (key, found.value)));
        return then.copied().unwrap_or_else(nothing).is_of(now);
    }
    let found = store.get(guard.key.0)?;
    Ok(match guard.test {
        Test::Exists => found.is_some(),
        Test::Missing => found.is_none(),
        Test::Equals(value) => found.is_some_and(|found| *found.value == *value.0),
        Test::Version(version) => found.map_or(0, |found| found.version) == version,
        Test::Number { compare, number } => {
            let Some(ours) = found.map_or(Some(0), |found| integer(&found.value)) else {
                return Ok(false);
            };
            match compare {
                Compare::Less => ours < number,
                Compare::AtMost => ours <= number,
                Compare::Equal => ours == number,
                Compare::AtLeast => ours >= number,
                Compare::Greater => ours > number,
            }
        }
        Test::Unchanged { .. } => unreachable!("it is not of one key"),
    })
}

/// A branch that is being run.
pub(crate) struct Draft<'a, 's, S> {
    store: &'s S,
    limits: &'s Limits,
    room: Room,
    version: Version,
    writes: Writes<'a>,
    /// Bytes of values that append and patch have made anew: copies of stored values, zeros, or both.
    made: usize,
    /// The machine's counter of work, to which the same bytes are added.
    work: &'s Cell<u64>,
}

impl<'a, 's, S: Store> Draft<'a, 's, S> {
    pub(crate) fn new(
        store: &'s S,
        limits: &'s Limits,
        room: Room,
        version: Version,
        work: &'s Cell<u64>,
    ) -> Self {
        Self { store, limits, room, version, writes: Writes::default(), made: 0, work }
    }

    /// Runs `branch`, which contains operations of this group only. Appends the outcomes to `reply`. Returns
    /// the writes to commit.
    pub(crate) fn run(
        self,
        branch: &[Operation<Bytes<'a>>],
        reply: &mut PartWriter,
    ) -> Result<Result<Writes<'a>, Refusal>, S::Error> {
        settle(self.try_run(branch, reply))
    }

    fn try_run(
        mut self,
        branch: &[Operation<Bytes<'a>>],
        reply: &mut PartWriter,
    ) -> Result<Writes<'a>, Halt<S>> {
        let mut has_read = false;
        for operation in branch {
            has_read |= matches!(operation, Operation::Get { .. } | Operation::Scan { .. });
            self.step(operation, reply)?;
            if reply.bytes().len() > self.limits.reply_bytes_max {
                let max = self.limits.reply_bytes_max as u64;
                return Err(Refusal::ReplyTooLarge { group: self.room.group, max }.into());
            }
        }
        if self.writes.is_empty() {
            return Ok(self.writes);
        }
        // The outcomes of writes are small. A reply with values that were read may be large, and is retained
        // beside the writes.
        let told = if has_read { reply.bytes().len() as u64 } else { 0 };
        let pair = |(key, value): (&[u8], &Written<'_>)| {
            value.as_ref().map_or(0, |value| pair_bytes(key, value.len()))
        };
        let grown = told + self.writes.iter().map(pair).sum::<u64>();
        // Usually there is room, even if nothing is overwritten.
        if self.room.check(grown, 0).is_err() {
            let mut shrunk = 0;
            for (key, _) in self.writes.iter() {
                let found = self.store.get(key).map_err(Stop::Failed)?;
                shrunk += found.map_or(0, |found| pair_bytes(key, found.value.len()));
            }
            self.room.check(grown, shrunk)?;
        }
        Ok(self.writes)
    }

    fn step(
        &mut self,
        operation: &Operation<Bytes<'a>>,
        reply: &mut PartWriter,
    ) -> Result<(), Halt<S>> {
        let outcome = match *operation {
            Operation::Get { key } => {
                let found = self.get(key.0)?;
                reply.held(&Outcome::Value(found.map(|found| (Held(found.value), found.version))));
                return Ok(());
            }
            Operation::Scan { start, end, limit } => {
                let page = self.page(start.0, end.map(|end| end.0), limit).map_err(Stop::Failed)?;
                reply.held(&Outcome::Page(page));
                return Ok(());
            }
            Operation::Exists { key } => Outcome::Flag(self.get(key.0)?.is_some()),
            Operation::Put { key, value } => {
                check_value(key, value.0.len(), self.limits)?;
                self.writes.insert(key.0, Some(Cow::Borrowed(value.0)));
                Outcome::Written(self.version)
            }
            Operation::Delete { key } => {
                let existed = self.get(key.0)?.is_some();
                self.writes.insert(key.0, None);
                Outcome::Flag(existed)
            }
            Operation::Append { key, value } => {
                let offset = self.get(key.0)?.map_or(0, |found| found.value.len());
                self.patch(key, offset, value.0)?
            }
            Operation::Patch { key, offset, bytes } => self.patch(key, offset as usize, bytes.0)?,
            Operation::Increment { key, by } => {
                let found = self.get(key.0)?;
                let number = add(key.0, found.as_ref().map(|found| &*found.value), by)?;
                drop(found);
                let text = number.to_string().into_bytes();
                check_value(key, text.len(), self.limits)?;
                self.writes.insert(key.0, Some(Cow::Owned(text)));
                Outcome::Number(number)
            }
        };
        reply.outcome(&outcome);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Found<S::Guard<'_>>>, Halt<S>> {
        let Some(written) = self.writes.get(key) else {
            return self.store.get(key).map_err(Stop::Failed);
        };
        let value = written.as_deref().map(S::Guard::from);
        Ok(value.map(|value| Found { value, version: self.version }))
    }

    fn patch(
        &mut self,
        key: Bytes<'a>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Outcome<Bytes<'a>>, Halt<S>> {
        let before = self.get(key.0)?.map_or(0, |found| found.value.len());
        let len = before.max(offset + bytes.len());
        check_value(key, len, self.limits)?;
        // A value that this branch has made already only grows.
        let is_made = matches!(self.writes.get(key.0), Some(Some(Cow::Owned(_))));
        let made = if is_made { len - before } else { len };
        self.made += made;
        check_made(self.made, self.limits)?;
        self.work.set(self.work.get() + made as u64);
        let stored = || {
            let found = self.store.get(key.0).map_err(Stop::Failed)?;
            Ok::<_, Halt<S>>(found.map(|found| {
                let mut value = Vec::with_capacity(len);
                value.extend_from_slice(&found.value);
                Cow::Owned(value)
            }))
        };
        let written = self.writes.get_or(key.0, stored)?;
        let value = written.get_or_insert_default().to_mut();
        value.resize(len, 0);
        value[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(Outcome::Length(len as u64))
    }

    /// This group's pairs of a page, with the draft's writes.
    fn page(
        &self,
        start: &[u8],
        end: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page<Held<S::Guard<'_>>>, S::Error> {
        let mut page = Page::default();
        if end.is_some_and(|end| end <= start) {
            return Ok(page);
        }
        let mut ours = self.writes.range(start, end).peekable();
        let mut stored = self.store.range(start, end).fuse();
        let mut waits = None;
        let mut bytes = 0;
        loop {
            if waits.is_none() {
                waits = stored.next().transpose()?;
            }
            // Takes the lower key. Of equal keys, takes the draft's, which replaces the stored one.
            let next =
                ours.next_if(|(ours, _)| waits.as_ref().is_none_or(|(it, _)| *ours <= &**it));
            let (key, value) = match next {
                Some((ours, written)) => {
                    waits = waits.filter(|(stored, _)| **stored != *ours);
                    let Some(value) = written else { continue };
                    (S::Guard::from(ours), S::Guard::from(value))
                }
                None => match waits.take() {
                    Some((key, found)) => (key, found.value),
                    None => return Ok(page),
                },
            };
            bytes += key.len() + value.len();
            let full = page.pairs.len() == pairs_max(limit, self.limits)
                || bytes > self.limits.scan_page_bytes_max;
            if full && !page.pairs.is_empty() {
                page.next = Some(Held(key));
                return Ok(page);
            }
            page.pairs.push((Held(key), Held(value)));
        }
    }
}

/// The result of a branch, if it was kept: then the branch need not be run again.
#[derive(Default)]
pub(crate) struct Drafted {
    /// The reply, then each written key followed by its value.
    bytes: Vec<u8>,
    /// Length of the reply in `bytes`; `None` if no result was kept.
    reply: Option<usize>,
    /// Lengths of each key and its value; `None` for a deleted key.
    writes: Vec<(usize, Option<usize>)>,
}

impl Drafted {
    /// A result with more bytes is not worth its memory.
    const BYTES_MAX: usize = 2 << 10;

    /// Keeps `reply` and `writes`, unless they have more than [`BYTES_MAX`](Self::BYTES_MAX) bytes.
    pub(crate) fn note(&mut self, reply: &[u8], writes: &Writes<'_>) {
        let pair = |(key, value): (&[u8], &Written<'_>)| {
            key.len() + value.as_ref().map_or(0, |value| value.len())
        };
        if reply.len() + writes.iter().map(pair).sum::<usize>() > Self::BYTES_MAX {
            return;
        }
        self.bytes.extend_from_slice(reply);
        self.reply = Some(reply.len());
        for (key, value) in writes.iter() {
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(value.as_deref().unwrap_or_default());
            self.writes.push((key.len(), value.as_ref().map(|value| value.len())));
        }
    }

    /// The reply, if a result was kept.
    pub(crate) fn reply(&self) -> Option<&[u8]> {
        self.reply.map(|len| &self.bytes[..len])
    }

    /// The written keys and their values; `None` for a deleted key.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let mut left = &self.bytes[self.reply.unwrap_or(0)..];
        let mut next = move |len| {
            let (first, rest) = left.split_at(len);
            left = rest;
            first
        };
        self.writes.iter().map(move |(key, value)| (next(*key), value.map(&mut next)))
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.reply = None;
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Memory;

    #[test]
    fn every_bit_of_a_version_is_compared() {
        let mut store = Memory::default();
        let version = 5 | 1 << 32;
        let Ok(()) = store.put(b"k", b"v", version);
        let at = |version| {
            let test = Test::Version(version);
            let Ok(holds) = holds(&store, GroupId(0), &Guard { key: Bytes(b"k"), test });
            holds
        };
        assert!(at(version));
        for bit in 0..u64::BITS {
            assert!(!at(version ^ 1 << bit), "bit {bit}");
        }
    }

    #[test]
    fn a_group_is_full_at_its_ceiling_and_not_before() {
        let room = |used| Room { group: 0, used, ceiling: 1_000 };
        let cases = [
            (900, 100, 0, true, "it is full then"),
            (900, 101, 0, false, "a byte more"),
            (900, 300, 200, true, "for something else"),
            (1_200, 100, 100, true, "as much as before, however full it is"),
            (1_200, 101, 100, false, "a byte more, and it is full"),
        ];
        for (used, grown, shrunk, fits, because) in cases {
            assert_eq!(room(used).check(grown, shrunk).is_ok(), fits, "{because}");
        }
    }

    #[test]
    fn what_is_read_counts_beside_what_is_written_and_has_a_bound_of_its_own() {
        let mut store = Memory::default();
        let Ok(()) = store.put(b"old", &[7; 500], 1);
        let branch = [
            Operation::Put { key: Bytes(b"new"), value: Bytes(b"1") },
            Operation::Get { key: Bytes(b"old") },
        ];
        let run = |ceiling, reply_bytes_max| {
            let limits = Limits { reply_bytes_max, ..Limits::default() };
            let (room, work) = (Room { group: 0, used: 1_000, ceiling }, Cell::new(0));
            let mut reply = PartWriter::default();
            reply.done(true, branch.len());
            let Ok(ran) = Draft::new(&store, &limits, room, 2, &work).run(&branch, &mut reply);
            ran.map(|_| reply.bytes().len())
        };
        let reply = run(u64::MAX, usize::MAX).expect("there are no bounds");
        assert!(reply > 500);
        let full = 1_000 + pair_bytes(b"new", 1) + reply as u64;
        assert!(run(full, reply).is_ok(), "it fits exactly");
        assert!(matches!(run(full - 1, reply), Err(Refusal::OutOfMemory { .. })));
        assert!(matches!(run(full, reply - 1), Err(Refusal::ReplyTooLarge { .. })));
    }
}
