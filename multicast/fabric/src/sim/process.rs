//! A simulated process: its memory, and what it knows of others.

use std::collections::VecDeque;

use super::hardware::Outbox;
use super::past::Past;
use crate::memory::WORD;
use crate::slab::Slab;
use crate::{Completion, RegionKey};

#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) incarnation: u64,
    pub(super) alive: bool,
    /// When everybody may know that it is dead; when the first may, where each learns it by itself.
    pub(super) gone_at: u64,
    pub(super) paused: bool,
    /// Until when it sleeps, if it does.
    pub(super) parked: Option<u64>,
    /// Whoever would have woken it has died in between, or cannot reach it any more.
    pub(super) unwoken: bool,
    pub(super) regions: Slab<Region>,
    /// By [`Peer`](crate::Peer).
    pub(super) peers: Vec<Known>,
    pub(super) remotes: Slab<Reached>,
    pub(super) completions: Vec<Completion>,
    pub(super) mail: VecDeque<(usize, Vec<u8>)>,
    pub(super) generations: u32,
    /// The latest posting time of what has landed here, to notice reordering.
    pub(super) landed: u64,
    /// Index of its host.
    pub(super) host: usize,
    /// Where operations have costs: the requests of this turn.
    pub(super) outbox: Outbox,
    pub(super) clock: Clock,
    /// It was stopped in the middle of a turn: what it had looked at before.
    pub(super) past: Option<Past>,
    /// No memory is to be had: it can neither create a region nor attach one.
    pub(super) scarce: bool,
}

/// What a process takes for the time: it has met the world's time at some moment, and goes by a rate
/// of its own since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    world: u64,
    own: u64,
    /// Of its own time, in so much of the world's, in thousandths.
    per_mille: u64,
}

impl Clock {
    const TRUE: Self = Self { world: 0, own: 0, per_mille: 1000 };

    /// What it shows at that time of the world's.
    pub(super) fn at(&self, world: u64) -> u64 {
        let passed = u128::from(world - self.world) * u128::from(self.per_mille) / 1000;
        self.own.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Whether no time passes for it.
    pub(super) fn stands_still(&self) -> bool {
        self.per_mille == 0
    }

    /// How much of the world's time passes in so much of its own, at least.
    pub(super) fn of_world(&self, own: u64) -> u64 {
        if self.stands_still() {
            return u64::MAX;
        }
        let passed = (u128::from(own) * 1000).div_ceil(u128::from(self.per_mille));
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// Goes by another rate from here on.
    pub(super) fn skew(&mut self, world: u64, per_mille: u64) {
        *self = Self { world, own: self.at(world), per_mille };
    }

    /// Is so much ahead of what it showed, from here on.
    pub(super) fn jump(&mut self, world: u64, by: u64) {
        *self = Self { world, own: self.at(world).saturating_add(by), ..*self };
    }
}

/// A peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) process: usize,
    pub(super) link: usize,
    pub(super) hung_up: bool,
    /// When we can know that the connection has broken, if it has.
    pub(super) broken_at: Option<u64>,
}

/// A peer's region that we have attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) peer: u32,
    pub(super) link: usize,
    pub(super) process: usize,
    pub(super) region: u32,
    pub(super) generation: u32,
    pub(super) len: usize,
}

/// A region of the process's memory.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) words: Vec<u64>,
    pub(super) lent: Lent,
    /// What has landed of writes that are still landing.
    pub(super) landing: Vec<Landing>,
}

/// Who may reach a region, and under which generation of its key.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lent {
    Shared(u32),
    Nobody,
    To { writer: usize, generation: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    pub(super) op: u32,
    pub(super) at: usize,
    pub(super) len: usize,
}

impl Known {
    /// Whether nothing more goes this way.
    pub(super) fn is_over(&self) -> bool {
        self.hung_up || self.broken_at.is_some()
    }
}

impl Process {
    pub(super) fn new(name: &str, incarnation: u64, host: usize) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            alive: true,
            gone_at: u64::MAX,
            paused: false,
            parked: None,
            unwoken: false,
            regions: Slab::default(),
            peers: Vec::new(),
            remotes: Slab::default(),
            completions: Vec::new(),
            mail: VecDeque::new(),
            generations: 0,
            landed: 0,
            host,
            outbox: Outbox::default(),
            clock: Clock::TRUE,
            past: None,
            scarce: false,
        }
    }

    pub(super) fn generation(&mut self) -> u32 {
        self.generations += 1;
        self.generations
    }

    pub(super) fn region(&self, region: crate::Region) -> &Region {
        self.regions.get(region.0).expect("the region was destroyed")
    }

    pub(super) fn region_mut(&mut self, region: crate::Region) -> &mut Region {
        self.regions.get_mut(region.0).expect("the region was destroyed")
    }
}

impl Region {
    pub(super) fn len(&self) -> usize {
        self.words.len() * WORD
    }

    /// Whether that key opens it, for reading at least.
    pub(super) fn is_open(&self, key: u32) -> bool {
        match self.lent {
            Lent::Shared(generation) | Lent::To { generation, .. } => generation == key,
            Lent::Nobody => false,
        }
    }

    pub(super) fn may_write(&self, key: u32, process: usize) -> bool {
        self.is_open(key) && !matches!(self.lent, Lent::To { writer, .. } if writer != process)
    }

    /// Whether a write to any of these bytes is landing.
    pub(super) fn is_torn(&self, at: usize, len: usize) -> bool {
        self.landing.iter().any(|write| at < write.at + write.len && write.at < at + len)
    }

    pub(super) fn get(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        get(&self.words, at, into);
    }

    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        if at.is_multiple_of(WORD) && bytes.len().is_multiple_of(WORD) {
            let (whole, _) = bytes.as_chunks::<WORD>();
            for (word, bytes) in self.words[at / WORD..].iter_mut().zip(whole) {
                *word = u64::from_ne_bytes(*bytes);
            }
            return;
        }
        for (i, &byte) in bytes.iter().enumerate() {
            let at = at + i;
            let mut word = self.words[at / WORD].to_ne_bytes();
            word[at % WORD] = byte;
            self.words[at / WORD] = u64::from_ne_bytes(word);
        }
    }

    pub(super) fn check(&self, at: usize, len: usize) {
        let size = self.len();
        assert!(at <= size && len <= size - at, "span {at}+{len} leaves {size}");
    }
}

/// Copies bytes out of words.
pub(super) fn get(words: &[u64], at: usize, into: &mut [u8]) {
    if at.is_multiple_of(WORD) && into.len().is_multiple_of(WORD) {
        let (whole, _) = into.as_chunks_mut::<WORD>();
        for (bytes, word) in whole.iter_mut().zip(&words[at / WORD..]) {
            *bytes = word.to_ne_bytes();
        }
        return;
    }
    for (i, byte) in into.iter_mut().enumerate() {
        let at = at + i;
        *byte = words[at / WORD].to_ne_bytes()[at % WORD];
    }
}

/// The fields of a [`RegionKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) incarnation: u64,
    pub(super) region: u32,
    pub(super) generation: u32,
}

impl Key {
    pub(super) fn to_bytes(self) -> RegionKey {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.region.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.generation.to_le_bytes());
        RegionKey(bytes)
    }

    pub(super) fn from_bytes(key: &RegionKey) -> Self {
        let word = |at: usize| u64::from_le_bytes(key.0[at..at + 8].try_into().expect("8 bytes"));
        let second = word(8);
        Self { incarnation: word(0), region: second as u32, generation: (second >> 32) as u32 }
    }
}
