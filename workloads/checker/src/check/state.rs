//! The sequential model of the store: one map, on which one script at a time is executed.
//!
//! It defines the semantics by which histories are judged. For each key a state holds the value,
//! and what is known of its version: the version itself, or that it is later than the last known
//! one. It assumes of versions only that they rise with each write of a key, and that a transaction
//! makes at most one per key.
//!
//! **Invariant (undo).** Every change of an execution is in the log, and [`State::undo`] restores
//! the state at any mark.

mod fields;

use std::cmp::Ordering;
use std::collections::BTreeSet;

use skein_kvstore::range::RangeDigest;
use skein_kvstore::slots::SlotMap;
use skein_protocol::ids::GroupId;

use super::eager::Sight;
use super::names::Names;
use super::places::Places;
use super::scripts::{Deed, Proviso, Script, Scripts, Seen, Text};
use super::subject::Subject;
use crate::history::{Held, RecordHeader, bytes, text};

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Absent,
    Bytes {
        bytes: Vec<u8>,
        hash: u64,
    },
    /// Length and hash of a value from before the history that is too long to be kept.
    Hashed {
        len: u32,
        hash: u64,
    },
    /// There is a value, but it is not known.
    Present,
    /// Any value or none: it is from before the history and was not observed.
    Any,
}

/// The version made by the last write of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    Told(u64),
    /// At least this, and none of `not`. The successor of the highest version that can be returned
    /// does not fit in a `u64`.
    Untold {
        least: u128,
        not: Vec<u64>,
    },
}

impl Version {
    /// The lowest possible version.
    fn least(&self) -> u128 {
        match self {
            Self::Told(version) => u128::from(*version),
            Self::Untold { least, not } => {
                let is_not = |version: &u128| not.iter().all(|not| u128::from(*not) != *version);
                let mut free = (*least..=*least + not.len() as u128).filter(is_not);
                free.next().expect("one of them is none of those, which are fewer")
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    value: Value,
    version: Version,
    /// The execution that wrote it last. The writes of one execution make one version.
    by: u32,
}

/// How to revert a change.
enum Undo {
    Slot(u32, Slot),
    /// The previous knowledge of the version.
    Version(u32, Version),
    /// Previous length, hash, version and writer of a value that has grown.
    Grown {
        key: u32,
        len: u32,
        hash: u64,
        version: Version,
        by: u32,
    },
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    /// It holds if the unknown version of the key is the one required.
    If,
    /// The value it depends on is not known, and never will be.
    Unknown,
}

pub(super) struct State<'a> {
    scripts: &'a Scripts,
    record: Option<RecordHeader>,
    /// For each key, whether its value may have been no record at some time. Used only in a history
    /// of records.
    raw: Vec<bool>,
    places: Places,
    slots: Vec<Slot>,
    /// Ranks of keys that have or may have a value. `None` if there are no ranges.
    present: Option<BTreeSet<u32>>,
    names: &'a Names,
    /// The first slot map, for conditions on ranges only. Of a cluster whose slots move, no history has any.
    owners: SlotMap,
    log: Vec<Undo>,
    execution: u32,
    /// The keys written by the last execution.
    wrote: Vec<u32>,
    /// Hash of all knowledge of all keys.
    pub(super) hash: u64,
}

/// The state cannot explain the answer.
struct Misfit;

fn mix(a: u64, b: u64) -> u64 {
    let mixed = (a ^ b.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

fn hash(key: u32, slot: &Slot) -> u64 {
    let value = match &slot.value {
        Value::Absent => 1,
        Value::Any => 2,
        Value::Present => 3,
        Value::Hashed { len, hash } => mix(mix(*hash, u64::from(*len)), 4),
        Value::Bytes { bytes, hash } => mix(*hash, bytes.len() as u64 + 3),
    };
    let version = match &slot.version {
        Version::Told(version) => mix(*version, 1),
        Version::Untold { least, not } => {
            let least = mix(*least as u64, (*least >> 64) as u64);
            not.iter().fold(mix(least, 2), |sum, one| sum ^ mix(*one, 3))
        }
    };
    mix(mix(u64::from(key) + 1, value), version)
}

/// A number as the store parses it.
fn number(text: &[u8]) -> Option<i64> {
    skein_kvstore::number::add(b"", Some(text), 0).ok()
}

impl<'a> State<'a> {
    pub(super) fn new(subject: &Subject<'a>) -> Self {
        let Subject { header, keys: names, scripts, .. } = *subject;
        let keys = names.len();
        let nothing = Slot {
            value: if header.before { Value::Any } else { Value::Absent },
            version: Version::Untold { least: 0, not: Vec::new() },
            by: 0,
        };
        let mut slots = vec![nothing; keys];
        if let Some(opening) = subject.opening {
            for account in &subject.accounts {
                let bytes = scripts.text(opening).to_vec();
                let hash = scripts.hash(0, &bytes);
                let slot = &mut slots[*account as usize];
                slot.value = Value::Bytes { bytes, hash };
                slot.version = Version::Untold { least: 1, not: Vec::new() };
            }
        }
        let places = Places::new(names, &scripts.spans);
        let present = (!scripts.spans.is_empty()).then(|| {
            let is_there = |rank: &u32| slots[places.key(*rank) as usize].value != Value::Absent;
            (0..keys as u32).filter(is_there).collect()
        });
        let groups = if scripts.held.is_empty() { 1 } else { header.cluster.groups };
        Self {
            scripts,
            record: header.record,
            raw: header.record.map_or(Vec::new(), |record| fields::raw_keys(scripts, record, keys)),
            places,
            hash: (0..).zip(&slots).fold(0, |sum, (key, slot)| sum ^ hash(key, slot)),
            slots,
            present,
            names,
            owners: SlotMap::even(groups),
            log: Vec::new(),
            execution: 0,
            wrote: Vec::new(),
        }
    }

    /// A mark that [`undo`](Self::undo) can restore.
    pub(super) fn mark(&self) -> usize {
        self.log.len()
    }

    pub(super) fn undo(&mut self, mark: usize) {
        while self.log.len() > mark {
            match self.log.pop().expect("it is longer") {
                Undo::Slot(key, slot) => _ = self.exchange(key, slot),
                Undo::Version(key, version) => _ = self.exchange_version(key, version),
                Undo::Grown { key, len, hash: before, version, by } => {
                    let slot = &mut self.slots[key as usize];
                    self.hash ^= self::hash(key, slot);
                    if let Value::Bytes { bytes, hash } = &mut slot.value {
                        bytes.truncate(len as usize);
                        *hash = before;
                    }
                    (slot.version, slot.by) = (version, by);
                    self.hash ^= self::hash(key, slot);
                }
            }
        }
    }

    fn exchange(&mut self, key: u32, slot: Slot) -> Slot {
        let is_there = slot.value != Value::Absent;
        let before = std::mem::replace(&mut self.slots[key as usize], slot);
        self.hash ^= hash(key, &before) ^ hash(key, &self.slots[key as usize]);
        if let Some(present) = &mut self.present
            && is_there != (before.value != Value::Absent)
        {
            let rank = self.places.rank(key).expect("there are ranges");
            if is_there {
                present.insert(rank)
            } else {
                present.remove(&rank)
            };
        }
        before
    }

    fn exchange_version(&mut self, key: u32, version: Version) -> Version {
        let slot = &mut self.slots[key as usize];
        self.hash ^= hash(key, slot);
        let before = std::mem::replace(&mut slot.version, version);
        self.hash ^= hash(key, slot);
        before
    }

    fn set_version(&mut self, key: u32, version: Version) {
        let before = self.exchange_version(key, version);
        self.log.push(Undo::Version(key, before));
    }

    fn set(&mut self, key: u32, value: Value, version: Version, by: u32) {
        let before = self.exchange(key, Slot { value, version, by });
        self.log.push(Undo::Slot(key, before));
    }

    /// Whether a read of the key reveals something that was unknown.
    pub(super) fn is_open(&self, key: u32) -> bool {
        let slot = &self.slots[key as usize];
        match slot.value {
            Value::Absent => false,
            Value::Any | Value::Present => true,
            Value::Bytes { .. } | Value::Hashed { .. } => {
                matches!(slot.version, Version::Untold { .. })
            }
        }
    }

    /// What a read of the key would observe; `None` if that is not known.
    pub(super) fn sight(&self, key: u32) -> Option<Sight> {
        match &self.slots[key as usize].value {
            Value::Absent => Some(Sight::Absent),
            Value::Any | Value::Present => None,
            Value::Hashed { len, hash } => Some(Sight::Value(*len, *hash)),
            Value::Bytes { bytes, hash } => Some(Sight::Value(bytes.len() as u32, *hash)),
        }
    }

    /// The ranks of the keys of a range.
    pub(super) fn span(&self, range: u32) -> (u32, u32) {
        self.places.span(range)
    }

    pub(super) fn rank(&self, key: u32) -> Option<u32> {
        self.places.rank(key)
    }

    /// Executes a script in one of the ways that its conditions leave open. Returns `false` and
    /// changes nothing if the state does not explain the answer, or if there is no such way.
    pub(super) fn execute(&mut self, script: &Script, way: u32) -> bool {
        let mark = self.mark();
        self.execution += 1;
        self.wrote.clear();
        let fits = self.perform(script, way).is_ok();
        if !fits {
            self.undo(mark);
        }
        fits
    }

    /// The keys that the last [execution](Self::execute) wrote.
    pub(super) fn wrote(&self) -> &[u32] {
        &self.wrote
    }

    fn perform(&mut self, script: &Script, way: u32) -> Result<(), Misfit> {
        let scripts = self.scripts;
        let guards = scripts.guards_of(script);
        let all: Vec<Holds> = guards.iter().map(|guard| self.holds(guard)).collect();
        let refuted = all.contains(&Holds::No);
        let doubted = all.contains(&Holds::Unknown);
        // Ways: first all open conditions hold; then, for each of them, it does not hold.
        let ways = all.iter().filter(|holds| **holds == Holds::If).count() as u32;
        let held = match script.held {
            Some(true) if refuted || way > 0 => return Err(Misfit),
            Some(true) => true,
            Some(false) if guards.is_empty() => return Err(Misfit),
            Some(false) if refuted || doubted => {
                if way > 0 {
                    return Err(Misfit);
                }
                self.presume(guards, &all, script.held)?;
                return self.deeds(script, false);
            }
            Some(false) if way >= ways => return Err(Misfit),
            Some(false) => false,
            None if refuted && way > 0 => return Err(Misfit),
            None if refuted => return self.deeds(script, false),
            None if way > ways + u32::from(doubted) => return Err(Misfit),
            None => way == 0,
        };
        let chosen = if script.held.is_none() { way.wrapping_sub(1) } else { way };
        self.presume(guards, &all, script.held)?;
        let mut open = 0;
        for (guard, holds) in guards.iter().zip(&all) {
            let Proviso::Version(key, version) = *guard else { continue };
            if *holds != Holds::If {
                continue;
            }
            if held {
                self.tell(key, version)?;
            } else if open == chosen {
                self.exclude(key, version);
            }
            open += 1;
        }
        self.deeds(script, held)
    }

    /// Learns the state before the history from the answer: if the conditions held, all of them
    /// did; if not, and all others do, the one left did not. `all` says of each whether it holds as
    /// far as known.
    fn presume(
        &mut self,
        guards: &[Proviso],
        all: &[Holds],
        held: Option<bool>,
    ) -> Result<(), Misfit> {
        let Some(held) = held else { return Ok(()) };
        if !held && all.iter().filter(|holds| **holds != Holds::Yes).count() > 1 {
            return Ok(());
        }
        let open = guards.iter().zip(all).filter(|(_, holds)| **holds == Holds::Unknown);
        for (guard, _) in open {
            match *guard {
                Proviso::Exists(key) => self.assume(key, held)?,
                Proviso::Missing(key) | Proviso::Version(key, 0) => self.assume(key, !held)?,
                Proviso::Version(key, version) if held => {
                    self.assume(key, true)?;
                    self.tell(key, version)?;
                }
                Proviso::Equals(key, text) if held => {
                    self.assume(key, true)?;
                    self.know(key, text);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Learns whether the key has a value.
    fn assume(&mut self, key: u32, is_there: bool) -> Result<(), Misfit> {
        let slot = &self.slots[key as usize];
        match slot.value {
            Value::Any => {
                let (value, least) =
                    if is_there { (Value::Present, 1) } else { (Value::Absent, 0) };
                let by = slot.by;
                self.set(key, value, Version::Untold { least, not: Vec::new() }, by);
                Ok(())
            }
            Value::Absent if is_there => Err(Misfit),
            Value::Absent => Ok(()),
            _ if is_there => Ok(()),
            _ => Err(Misfit),
        }
    }

    fn deeds(&mut self, script: &Script, held: bool) -> Result<(), Misfit> {
        let scripts = self.scripts;
        let branch = if held { &script.then } else { &script.otherwise };
        let mark = self.mark();
        for deed in &scripts.deeds[branch.start as usize..branch.end as usize] {
            if self.deed(deed).is_err() {
                if script.held.is_some() {
                    return Err(Misfit);
                }
                // The command would have been refused and would not have executed.
                self.undo(mark);
                return Err(Misfit);
            }
        }
        Ok(())
    }

    fn holds(&self, guard: &Proviso) -> Holds {
        let of = |key: u32| &self.slots[key as usize];
        let sure = |holds: bool| if holds { Holds::Yes } else { Holds::No };
        let compared = |key: u32, with: i64, holds: fn(Ordering) -> bool| match &of(key).value {
            Value::Any | Value::Present | Value::Hashed { .. } => Holds::Unknown,
            Value::Absent => sure(holds(0.cmp(&with))),
            Value::Bytes { bytes, .. } if self.hides_number(bytes) => Holds::Unknown,
            Value::Bytes { bytes, .. } => {
                sure(number(bytes).is_some_and(|ours| holds(ours.cmp(&with))))
            }
        };
        match *guard {
            Proviso::Exists(key) | Proviso::Missing(key) if of(key).value == Value::Any => {
                Holds::Unknown
            }
            Proviso::Exists(key) => sure(of(key).value != Value::Absent),
            Proviso::Missing(key) => sure(of(key).value == Value::Absent),
            // Records are represented by tokens, which are unique to their writes: equal tokens
            // mean equal records.
            Proviso::Equals(key, text) => match &of(key).value {
                Value::Any | Value::Present => Holds::Unknown,
                Value::Absent => Holds::No,
                Value::Hashed { len, hash } => {
                    let text = self.scripts.text(text);
                    sure(*len as usize == text.len() && *hash == self.scripts.hash(0, text))
                }
                Value::Bytes { bytes, .. } => sure(*bytes == self.scripts.text(text)),
            },
            Proviso::Version(key, version) => match (&of(key).value, &of(key).version) {
                (Value::Any, _) => Holds::Unknown,
                (Value::Absent, _) => sure(version == 0),
                (_, Version::Told(ours)) => sure(*ours == version),
                (_, Version::Untold { least, not })
                    if u128::from(version) < *least || not.contains(&version) =>
                {
                    Holds::No
                }
                _ => Holds::If,
            },
            Proviso::Less(key, with) => compared(key, with, Ordering::is_lt),
            Proviso::AtMost(key, with) => compared(key, with, Ordering::is_le),
            Proviso::Equal(key, with) => compared(key, with, Ordering::is_eq),
            Proviso::AtLeast(key, with) => compared(key, with, Ordering::is_ge),
            Proviso::Greater(key, with) => compared(key, with, Ordering::is_gt),
            Proviso::Elsewhere => Holds::Unknown,
            Proviso::Unchanged(range, held) => {
                self.unchanged(range, &self.scripts.held[held as usize])
            }
        }
    }

    /// Whether each group still holds in a range what `held` says.
    fn unchanged(&self, range: u32, held: &[Held]) -> Holds {
        if self.record.is_some() {
            return Holds::Unknown; // The history contains only a part of each value.
        }
        let (from, to) = self.places.span(range);
        let mut groups: Vec<Vec<(Vec<u8>, &[u8])>> = vec![Vec::new(); self.owners.groups().len()];
        for rank in self.present.iter().flat_map(|present| present.range(from..to)) {
            let key = self.places.key(*rank);
            let Value::Bytes { bytes: value, .. } = &self.slots[key as usize].value else {
                return Holds::Unknown;
            };
            let key = bytes(self.names.text(key)).into_owned();
            groups[usize::from(self.owners.owner(&key).0)].push((key, value));
        }
        let same = (0..).zip(&groups).all(|(group, pairs)| {
            let pairs = pairs.iter().map(|(key, value)| (&key[..], *value));
            let now = RangeDigest::of(GroupId(group), pairs);
            let mut of_it = held.iter().filter(|held| held.group == group).peekable();
            if of_it.peek().is_none() {
                return now.pairs == 0;
            }
            of_it.all(|held| {
                now.pairs == held.pairs
                    && now.bytes == held.bytes
                    && u128::from_str_radix(&held.digest, 16) == Ok(now.digest)
            })
        });
        let is_empty = |held: &Held| usize::from(held.group) < groups.len() || held.pairs == 0;
        let same = same && held.iter().all(is_empty);
        if same { Holds::Yes } else { Holds::No }
    }

    /// Learns the version of a key that has a value.
    fn tell(&mut self, key: u32, version: u64) -> Result<(), Misfit> {
        let slot = &self.slots[key as usize];
        match &slot.version {
            Version::Told(ours) if *ours == version => Ok(()),
            Version::Untold { least, not }
                if u128::from(version) >= (*least).max(1) && !not.contains(&version) =>
            {
                self.set_version(key, Version::Told(version));
                Ok(())
            }
            _ => Err(Misfit),
        }
    }

    /// Learns that the key is not at this version.
    fn exclude(&mut self, key: u32, version: u64) {
        let mut known = self.slots[key as usize].version.clone();
        if let Version::Untold { not, .. } = &mut known {
            not.push(version);
            not.sort_unstable();
        }
        self.set_version(key, known);
    }

    /// The version of the key after a write by the current execution.
    fn next(&self, key: u32) -> Version {
        let slot = &self.slots[key as usize];
        if slot.by == self.execution {
            return slot.version.clone();
        }
        Version::Untold { least: slot.version.least() + 1, not: Vec::new() }
    }

    fn write(&mut self, key: u32, bytes: Vec<u8>) {
        let hash = self.scripts.hash(0, &bytes);
        self.wrote.push(key);
        self.set(key, Value::Bytes { bytes, hash }, self.next(key), self.execution);
    }

    fn deed(&mut self, deed: &Deed) -> Result<(), Misfit> {
        let scripts = self.scripts;
        let fits = |fits: bool| if fits { Ok(()) } else { Err(Misfit) };
        match *deed {
            Deed::Get { key, seen, version } => self.get(key, seen, version),
            Deed::Exists { key, flag } => self.assume(key, flag),
            Deed::Put { key, value, version } => {
                self.write(key, scripts.text(value).to_vec());
                version.map_or(Ok(()), |version| self.tell(key, version))
            }
            Deed::Delete { key, flag } => {
                let slot = &self.slots[key as usize];
                let was = match slot.value {
                    Value::Any => None,
                    Value::Absent => Some(false),
                    _ => Some(true),
                };
                if was.is_some() && flag.is_some() && was != flag {
                    return Err(Misfit);
                }
                if was != Some(false) {
                    self.wrote.push(key);
                    let (version, by) = (slot.version.clone(), slot.by);
                    self.set(key, Value::Absent, version, by);
                }
                Ok(())
            }
            Deed::Incr { key, by, number: told } => {
                let is_hidden = |bytes: &[u8]| self.hides_number(bytes);
                let before = match &self.slots[key as usize].value {
                    Value::Bytes { bytes, .. } if !is_hidden(bytes) => {
                        number(bytes).ok_or(Misfit)?
                    }
                    Value::Absent => 0,
                    Value::Any | Value::Present | Value::Hashed { .. } | Value::Bytes { .. } => {
                        let Some(told) = told else {
                            self.blur(key);
                            return Ok(());
                        };
                        told.checked_sub(by).ok_or(Misfit)?
                    }
                };
                let now = before.checked_add(by).ok_or(Misfit)?;
                self.write(key, now.to_string().into_bytes());
                fits(told.is_none_or(|told| told == now))
            }
            Deed::Append { key, value, length } => {
                let more = scripts.text(value);
                if let Some(record) = self.record {
                    let longer = |now: usize| now.saturating_add(more.len());
                    return self.change_record(key, record, longer, more.len(), length);
                }
                let now = self.append(key, more);
                Self::fits_length(now.map(|now| [now; 2]), more.len(), length)
            }
            Deed::Overwrite { key, offset, value, length } => {
                let with = scripts.text(value);
                let end = (offset as usize).saturating_add(with.len());
                if let Some(record) = self.record {
                    return self.change_record(key, record, |now| now.max(end), end, length);
                }
                let now = self.overwrite(key, offset as usize, with);
                Self::fits_length(now.map(|now| [now; 2]), end, length)
            }
            Deed::Field { key, field, value, length } => {
                self.field(key, field as usize, scripts.text(value), length)
            }
            Deed::Scan { range, limit, page } => self.page(range, limit, page),
        }
    }

    /// Checks the returned length against the two possible lengths, or against `least` bytes if no
    /// length is known.
    fn fits_length(now: Option<[usize; 2]>, least: usize, told: Option<u64>) -> Result<(), Misfit> {
        match (now, told) {
            (Some(now), Some(told)) if now.iter().all(|now| *now as u64 != told) => Err(Misfit),
            (None, Some(told)) if told < least as u64 => Err(Misfit),
            _ => Ok(()),
        }
    }

    /// Writes an unknown value.
    fn blur(&mut self, key: u32) {
        self.wrote.push(key);
        self.set(key, Value::Present, self.next(key), self.execution);
    }

    fn append(&mut self, key: u32, more: &[u8]) -> Option<usize> {
        let version = self.next(key);
        let scripts = self.scripts;
        let execution = self.execution;
        let slot = &mut self.slots[key as usize];
        match &mut slot.value {
            Value::Any | Value::Present => {
                self.blur(key);
                return None;
            }
            Value::Absent => {
                self.write(key, more.to_vec());
                return Some(more.len());
            }
            Value::Hashed { len, hash } => {
                let (len, hash) = (*len + more.len() as u32, scripts.hash(*hash, more));
                self.wrote.push(key);
                self.set(key, Value::Hashed { len, hash }, version, execution);
                return Some(len as usize);
            }
            Value::Bytes { .. } => {}
        }
        self.wrote.push(key);
        self.hash ^= hash(key, slot);
        let Value::Bytes { bytes, hash: of } = &mut slot.value else { return None };
        let (len, before) = (bytes.len(), *of);
        bytes.extend_from_slice(more);
        *of = scripts.hash(before, more);
        let now = bytes.len();
        let version = std::mem::replace(&mut slot.version, version);
        let by = std::mem::replace(&mut slot.by, execution);
        self.hash ^= hash(key, slot);
        self.log.push(Undo::Grown { key, len: len as u32, hash: before, version, by });
        Some(now)
    }

    fn overwrite(&mut self, key: u32, offset: usize, with: &[u8]) -> Option<usize> {
        let end = offset.saturating_add(with.len());
        let mut bytes = match &self.slots[key as usize].value {
            Value::Any | Value::Present => {
                self.blur(key);
                return None;
            }
            Value::Hashed { len, .. } => {
                let len = *len as usize;
                self.blur(key);
                return Some(len.max(end));
            }
            _ if end > LENGTH_MAX => {
                self.blur(key);
                return Some(end);
            }
            Value::Absent => Vec::new(),
            Value::Bytes { bytes, .. } => bytes.clone(),
        };
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset..end].copy_from_slice(with);
        let now = bytes.len();
        self.write(key, bytes);
        Some(now)
    }

    /// Compares a value with what was read. An unknown value becomes what was read.
    fn saw(&mut self, key: u32, seen: Seen) -> Result<(), Misfit> {
        match &self.slots[key as usize].value {
            Value::Bytes { bytes, hash }
                if (bytes.len() as u32, *hash) == (seen.len, seen.hash) =>
            {
                Ok(())
            }
            Value::Hashed { len, hash } if (*len, *hash) == (seen.len, seen.hash) => Ok(()),
            Value::Absent | Value::Bytes { .. } | Value::Hashed { .. } => Err(Misfit),
            Value::Any | Value::Present => {
                self.assume(key, true)?;
                if let Some(text) = seen.text {
                    self.know(key, text);
                    return Ok(());
                }
                let Slot { version, by, .. } = self.slots[key as usize].clone();
                let Seen { len, hash, .. } = seen;
                self.set(key, Value::Hashed { len, hash }, version, by);
                Ok(())
            }
        }
    }

    fn know(&mut self, key: u32, text: Text) {
        let bytes = self.scripts.text(text).to_vec();
        let hash = self.scripts.hash(0, &bytes);
        let Slot { version, by, .. } = self.slots[key as usize].clone();
        self.set(key, Value::Bytes { bytes, hash }, version, by);
    }

    fn get(&mut self, key: u32, seen: Option<Seen>, version: u64) -> Result<(), Misfit> {
        if let Some(seen) = seen {
            self.saw(key, seen)?;
            return self.tell(key, version);
        }
        self.assume(key, false)
    }

    fn page(&mut self, range: u32, limit: u32, page: u32) -> Result<(), Misfit> {
        let scripts = self.scripts;
        let page = &scripts.pages[page as usize];
        let (from, to) = self.places.span(range);
        if page.pairs.len() > limit as usize {
            return Err(Misfit);
        }
        let told = page.pairs.iter().map(|(key, _)| *key).chain(page.next);
        let mut at = from;
        // The answer lists all keys of the range up to the next page's first key, in order.
        for key in told {
            let rank = self.places.rank(key).expect("there are ranges");
            if !(at..to).contains(&rank) {
                return Err(Misfit);
            }
            self.nothing_between(at, rank)?;
            self.assume(key, true)?;
            at = rank + 1;
        }
        if page.next.is_none() {
            self.nothing_between(at, to)?;
        }
        page.pairs.iter().try_for_each(|(key, seen)| self.saw(*key, *seen))
    }

    /// Learns that there is no key between these ranks.
    fn nothing_between(&mut self, from: u32, to: u32) -> Result<(), Misfit> {
        let there = self.present.iter().flat_map(|present| present.range(from..to));
        let there: Vec<u32> = there.map(|rank| self.places.key(*rank)).collect();
        there.into_iter().try_for_each(|key| self.assume(key, false))
    }

    /// The value of a key, for people.
    pub(super) fn show(&self, key: u32) -> String {
        let slot = &self.slots[key as usize];
        let version = match &slot.version {
            Version::Told(version) => format!(" (version {version})"),
            Version::Untold { .. } => String::new(),
        };
        match &slot.value {
            Value::Absent => "nothing".to_owned(),
            Value::Any => "what was there before, or nothing".to_owned(),
            Value::Present => format!("an unknown value{version}"),
            Value::Hashed { len, .. } => format!("{len} bytes from before{version}"),
            Value::Bytes { bytes, .. } => {
                let last = &bytes[bytes.len().saturating_sub(40)..];
                let text = match std::str::from_utf8(bytes) {
                    Ok(_) => String::from_utf8_lossy(last),
                    Err(_) => text(last).into(),
                };
                let cut = if bytes.len() > 40 { "…" } else { "" };
                format!("{cut}{text}{version}")
            }
        }
    }
}

/// Longest value. An offset in a corrupt history must not cost memory.
const LENGTH_MAX: usize = 1 << 28;
