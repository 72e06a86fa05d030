//! The commands and results of each transaction, as the store executes them.
//!
//! Every command of the store is represented with its answer. [Executing](super::state) a script on
//! a state shows whether the state explains the answer. Values written are kept as bytes. Of values
//! read only the length and a hash are kept, so that memory grows with the number of commands; a
//! short value, and the tokens of a record, are kept whole, because they may be the first that is
//! known of a key. A longer record is kept once, however often it was read.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::model::{Fate, NEVER, NONE};
use crate::history::{Guard, Header, Held, Invoke, Op, Out, RecordHeader, bytes};

/// Bytes of a written or read value in [`Scripts::text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    at: u64,
    len: u32,
}

/// A value that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) len: u32,
    pub(super) hash: u64,
    /// The value itself, if it is short or a record.
    pub(super) text: Option<Text>,
}

/// A condition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Proviso {
    Exists(u32),
    Missing(u32),
    Equals(u32, Text),
    Version(u32, u64),
    Less(u32, i64),
    AtMost(u32, i64),
    Equal(u32, i64),
    AtLeast(u32, i64),
    Greater(u32, i64),
    /// Number of the range; number of the list of what groups held.
    Unchanged(u32, u32),
    /// A condition on keys outside of a [projection](super::projection). It may hold or not.
    Elsewhere,
}

impl Proviso {
    /// The single key of the condition.
    pub(super) fn key_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Exists(key)
            | Self::Missing(key)
            | Self::Equals(key, _)
            | Self::Version(key, _)
            | Self::Less(key, _)
            | Self::AtMost(key, _)
            | Self::Equal(key, _)
            | Self::AtLeast(key, _)
            | Self::Greater(key, _) => Some(key),
            Self::Unchanged(..) | Self::Elsewhere => None,
        }
    }
}

/// One operation, and its result if it is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Deed {
    Get {
        key: u32,
        seen: Option<Seen>,
        version: u64,
    },
    Put {
        key: u32,
        value: Text,
        version: Option<u64>,
    },
    Append {
        key: u32,
        value: Text,
        length: Option<u64>,
    },
    Incr {
        key: u32,
        by: i64,
        number: Option<i64>,
    },
    Field {
        key: u32,
        field: u32,
        value: Text,
        length: Option<u64>,
    },
    Overwrite {
        key: u32,
        offset: u32,
        value: Text,
        length: Option<u64>,
    },
    Delete {
        key: u32,
        flag: Option<bool>,
    },
    Exists {
        key: u32,
        flag: bool,
    },
    /// Range, most pairs, number of the resulting page.
    Scan {
        range: u32,
        limit: u32,
        page: u32,
    },
}

impl Deed {
    /// The single key of the operation.
    pub(super) fn key_mut(&mut self) -> Option<&mut u32> {
        match self {
            Self::Get { key, .. }
            | Self::Put { key, .. }
            | Self::Append { key, .. }
            | Self::Incr { key, .. }
            | Self::Field { key, .. }
            | Self::Overwrite { key, .. }
            | Self::Delete { key, .. }
            | Self::Exists { key, .. } => Some(key),
            Self::Scan { .. } => None,
        }
    }
}

/// A range of keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Span {
    pub(super) start: Vec<u8>,
    pub(super) end: Option<Vec<u8>>,
}

/// A page that was read, and the key at which the next one begins.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) pairs: Vec<(u32, Seen)>,
    pub(super) next: Option<u32>,
}

/// A transaction. If it was answered, it executed one known branch.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// Its number in the model.
    pub(super) transaction: u32,
    pub(super) invoked: u64,
    /// [`NEVER`] if it was not answered.
    pub(super) returned: u64,
    /// Time of the answer. For a stale read this is no bound: nothing follows it in time.
    pub(super) answered: u64,
    /// Whether its conditions held, so that it executed `then`, or not, so that it executed
    /// `otherwise`. `None` if it is not known.
    pub(super) held: Option<bool>,
    /// It read a key's state of any time before the answer.
    pub(super) stale: bool,
    pub(super) guards: Range<u32>,
    pub(super) then: Range<u32>,
    pub(super) otherwise: Range<u32>,
}

/// How a transaction ended.
#[derive(Clone, Copy)]
pub(super) struct Ended<'a> {
    pub(super) returned: u64,
    pub(super) fate: Fate,
    /// Whether its conditions held, if it executed.
    pub(super) held: bool,
    /// Results of the executed branch.
    pub(super) out: &'a [Out],
}

/// All scripts of a history.
pub(super) struct Scripts {
    pub(super) all: Vec<Script>,
    pub(super) guards: Vec<Proviso>,
    pub(super) deeds: Vec<Deed>,
    pub(super) spans: Vec<Span>,
    pub(super) pages: Vec<Page>,
    pub(super) held: Vec<Vec<Held>>,
    /// Pairs of transactions of one process, the first of which was invoked at the moment at which
    /// the second was answered. Sorted by number.
    pub(super) ties: Vec<(u32, u32)>,
    /// Shared with projections.
    bytes: Arc<Vec<u8>>,
    base: u64,
    /// Bytes of the tokens of a record, in a history of records.
    tokens: Option<usize>,
    /// Records that were read and are not short, by hash. Each is kept once.
    records: HashMap<u64, Text>,
}

/// Longest value that is kept with each read.
const SHORT: usize = 32;
/// Hashes are polynomials modulo this prime, so that the hash of a grown value is computed from the
/// old hash.
const PRIME: u64 = (1 << 61) - 1;

impl Scripts {
    pub(super) fn new(record: Option<RecordHeader>) -> Self {
        Self {
            all: Vec::new(),
            guards: Vec::new(),
            deeds: Vec::new(),
            spans: Vec::new(),
            pages: Vec::new(),
            held: Vec::new(),
            ties: Vec::new(),
            bytes: Arc::new(Vec::new()),
            base: (RandomState::new().hash_one(0) % (PRIME - 512)) + 256,
            tokens: record.map(RecordHeader::tokens_len),
            records: HashMap::new(),
        }
    }

    /// An empty set of scripts that shares the texts of this one.
    pub(super) fn none_of(&self) -> Self {
        let (bytes, base, tokens) = (Arc::clone(&self.bytes), self.base, self.tokens);
        Self { bytes, base, tokens, ..Self::new(None) }
    }

    /// The hash of a value with the hash `before`, extended by `bytes`.
    pub(super) fn hash(&self, before: u64, bytes: &[u8]) -> u64 {
        let add = |hash: u64, byte: &u8| {
            let product = u128::from(hash) * u128::from(self.base) + u128::from(*byte) + 1;
            let folded = (product as u64 & PRIME) + (product >> 61) as u64;
            if folded >= PRIME { folded - PRIME } else { folded }
        };
        bytes.iter().fold(before, add)
    }

    pub(super) fn text(&self, text: Text) -> &[u8] {
        &self.bytes[text.at as usize..][..text.len as usize]
    }

    fn keep(&mut self, text: &[u8]) -> Text {
        let at = self.bytes.len() as u64;
        Arc::make_mut(&mut self.bytes).extend_from_slice(text);
        Text { at, len: text.len() as u32 }
    }

    fn seen(&mut self, value: &str) -> Seen {
        let value = bytes(value);
        let (len, hash) = (value.len(), self.hash(0, &value));
        let text = match self.records.get(&hash).copied() {
            _ if len <= SHORT => Some(self.keep(&value)),
            _ if self.tokens != Some(len) => None,
            Some(text) => Some(text),
            None => {
                let text = self.keep(&value);
                self.records.insert(hash, text);
                Some(text)
            }
        };
        Seen { len: len as u32, hash, text }
    }

    fn span(&mut self, start: &str, end: Option<&String>) -> u32 {
        let span =
            Span { start: bytes(start).into_owned(), end: end.map(|end| bytes(end).into_owned()) };
        if self.spans.last() != Some(&span) {
            self.spans.push(span);
        }
        self.spans.len() as u32 - 1
    }

    fn guard(&mut self, guard: &Guard, key: &mut impl FnMut(&str) -> u32) -> Proviso {
        match guard {
            Guard::Exists(of) => Proviso::Exists(key(of)),
            Guard::Missing(of) => Proviso::Missing(key(of)),
            Guard::Equals(of, value) => Proviso::Equals(key(of), self.keep(&bytes(value))),
            Guard::Version(of, version) => Proviso::Version(key(of), *version),
            Guard::Less(of, number) => Proviso::Less(key(of), *number),
            Guard::AtMost(of, number) => Proviso::AtMost(key(of), *number),
            Guard::Equal(of, number) => Proviso::Equal(key(of), *number),
            Guard::AtLeast(of, number) => Proviso::AtLeast(key(of), *number),
            Guard::Greater(of, number) => Proviso::Greater(key(of), *number),
            Guard::Unchanged(start, end, held) => {
                self.held.push(held.clone());
                let held = self.held.len() as u32 - 1;
                Proviso::Unchanged(self.span(start, end.as_ref()), held)
            }
        }
    }

    /// An operation with its result if there is one; `None` if it changes nothing and has no
    /// result.
    fn deed(
        &mut self,
        op: &Op,
        out: Option<&Out>,
        key: &mut impl FnMut(&str) -> u32,
    ) -> Option<Deed> {
        let length = if let Some(Out::Length(length)) = out { Some(*length) } else { None };
        let flag = if let Some(Out::Flag(flag)) = out { Some(*flag) } else { None };
        Some(match (op, out) {
            (Op::Get(of), Some(Out::Value(found))) => {
                let seen = found.as_ref().map(|(value, _)| self.seen(value));
                let version = found.as_ref().map_or(0, |(_, version)| *version);
                Deed::Get { key: key(of), seen, version }
            }
            (Op::Put(of, value), _) => {
                let version = if let Some(Out::Version(told)) = out { Some(*told) } else { None };
                Deed::Put { key: key(of), value: self.keep(&bytes(value)), version }
            }
            (Op::Append(of, value), _) => {
                Deed::Append { key: key(of), value: self.keep(&bytes(value)), length }
            }
            (Op::Incr(of, by), _) => {
                let number = if let Some(Out::Number(number)) = out { Some(*number) } else { None };
                Deed::Incr { key: key(of), by: *by, number }
            }
            (Op::Patch(of, field, value), _) => {
                let field = u32::try_from(*field).unwrap_or(NONE);
                Deed::Field { key: key(of), field, value: self.keep(&bytes(value)), length }
            }
            (Op::Overwrite(of, offset, value), _) => {
                let value = self.keep(&bytes(value));
                Deed::Overwrite { key: key(of), offset: *offset, value, length }
            }
            (Op::Delete(of), _) => Deed::Delete { key: key(of), flag },
            (Op::Exists(of), Some(Out::Flag(flag))) => Deed::Exists { key: key(of), flag: *flag },
            (Op::Scan(start, end, limit), Some(Out::Page(pairs, next))) => {
                let pair = |(of, value): &(String, String)| (key(of), self.seen(value));
                let pairs = pairs.iter().map(pair).collect();
                self.pages.push(Page { pairs, next: next.as_ref().map(|next| key(next)) });
                let page = self.pages.len() as u32 - 1;
                Deed::Scan { range: self.span(start, end.as_ref()), limit: *limit, page }
            }
            _ => return None,
        })
    }

    fn branch(&mut self, ops: &[Op], out: &[Out], key: &mut impl FnMut(&str) -> u32) -> Range<u32> {
        let from = self.deeds.len() as u32;
        for (i, op) in ops.iter().enumerate() {
            let deed = self.deed(op, out.get(i), key);
            self.deeds.extend(deed);
        }
        from..self.deeds.len() as u32
    }

    /// Takes a transaction that executed or has an unknown outcome.
    pub(super) fn take(
        &mut self,
        transaction: u32,
        invoke: &Invoke,
        ended: Ended<'_>,
        key: &mut impl FnMut(&str) -> u32,
    ) {
        let Ended { returned, fate, held, out } = ended;
        if fate == Fate::Refused {
            return;
        }
        let from = self.guards.len() as u32;
        for guard in &invoke.guards {
            let guard = self.guard(guard, key);
            self.guards.push(guard);
        }
        let guards = from..self.guards.len() as u32;
        let done = fate == Fate::Done;
        let nothing = 0..0;
        let (then, otherwise) = match (done, held) {
            (true, true) => (self.branch(&invoke.ops, out, key), nothing),
            (true, false) => (nothing, self.branch(&invoke.otherwise, out, key)),
            (false, _) => {
                (self.branch(&invoke.ops, &[], key), self.branch(&invoke.otherwise, &[], key))
            }
        };
        if !done && then.is_empty() && otherwise.is_empty() {
            return; // It has no effect, whether it executed or not.
        }
        self.all.push(Script {
            transaction,
            invoked: invoke.t,
            returned: if done && !invoke.stale { returned } else { NEVER },
            answered: returned,
            held: done.then_some(held),
            stale: invoke.stale,
            guards,
            then,
            otherwise,
        });
    }

    pub(super) fn branch_of(&self, branch: &Range<u32>) -> &[Deed] {
        &self.deeds[branch.start as usize..branch.end as usize]
    }

    /// The operations of the branch taken, or of both if it is not known.
    pub(super) fn deeds_of(&self, script: &Script) -> impl Iterator<Item = &Deed> {
        self.branch_of(&script.then).iter().chain(self.branch_of(&script.otherwise))
    }

    /// The keys that the scans of a script found.
    pub(super) fn found_by(&self, script: &Script) -> impl Iterator<Item = u32> {
        let pages = self.deeds_of(script).filter_map(|deed| match deed {
            Deed::Scan { page, .. } => Some(&self.pages[*page as usize]),
            _ => None,
        });
        pages.flat_map(|page| page.pairs.iter().map(|(key, _)| *key))
    }

    pub(super) fn guards_of(&self, script: &Script) -> &[Proviso] {
        &self.guards[script.guards.start as usize..script.guards.end as usize]
    }

    /// What is known of values before the history: nothing, or the opening balance of accounts.
    pub(super) fn opening(&mut self, header: &Header) -> Option<Text> {
        let bank = header.bank.as_ref().filter(|_| !header.before)?;
        Some(self.keep(bank.opening.to_string().as_bytes()))
    }
}
