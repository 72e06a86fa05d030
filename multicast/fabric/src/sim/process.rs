//! A simulated process: its memory, its connections and its clock.

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
    /// Earliest time at which other processes may observe its death. With `memory_outlives` each observes it with a
    /// delay of its own.
    pub(super) gone_at: u64,
    pub(super) paused: bool,
    /// End of its sleep in the world's time; `None` while it is awake.
    pub(super) parked: Option<u64>,
    /// A wake-up was lost since the process parked: the sender died or lost its connection.
    pub(super) unwoken: bool,
    pub(super) regions: Slab<Region>,
    /// Indexed by [`Peer`](crate::Peer).
    pub(super) peers: Vec<Known>,
    pub(super) remotes: Slab<Reached>,
    pub(super) completions: Vec<Completion>,
    /// Sender and bytes of each control message.
    pub(super) mail: VecDeque<(usize, Vec<u8>)>,
    /// The last generation assigned to a key. Generations start at 1.
    pub(super) generations: u32,
    /// The highest posting number of the writes that have landed here, to detect reordering.
    pub(super) landed: u64,
    /// Index of its host.
    pub(super) host: usize,
    /// With costs only: the requests of this turn.
    pub(super) outbox: Outbox,
    pub(super) clock: Clock,
    /// Set while the process is stopped in the middle of a turn.
    pub(super) past: Option<Past>,
    /// Creating and attaching regions fails for lack of memory.
    pub(super) scarce: bool,
}

/// The clock of a process. It showed `own` at the world's time `world`, and has run at a constant rate since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    world: u64,
    own: u64,
    /// Rate, in thousandths of the world's.
    per_mille: u64,
}

impl Clock {
    const TRUE: Self = Self { world: 0, own: 0, per_mille: 1000 };

    /// The time that it shows at a time of the world's.
    pub(super) fn at(&self, world: u64) -> u64 {
        let passed = u128::from(world - self.world) * u128::from(self.per_mille) / 1000;
        self.own.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(super) fn stands_still(&self) -> bool {
        self.per_mille == 0
    }

    /// The least time of the world's in which `own` passes on this clock, rounded up.
    pub(super) fn of_world(&self, own: u64) -> u64 {
        if self.stands_still() {
            return u64::MAX;
        }
        let passed = (u128::from(own) * 1000).div_ceil(u128::from(self.per_mille));
        u64::try_from(passed).unwrap_or(u64::MAX)
    }

    /// Changes the rate from now on.
    pub(super) fn skew(&mut self, world: u64, per_mille: u64) {
        *self = Self { world, own: self.at(world), per_mille };
    }

    /// Advances the clock by `by` from now on.
    pub(super) fn jump(&mut self, world: u64, by: u64) {
        *self = Self { world, own: self.at(world).saturating_add(by), ..*self };
    }
}

/// A connection to a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) process: usize,
    pub(super) link: usize,
    pub(super) hung_up: bool,
    /// Time from which we may observe that the connection has broken.
    pub(super) broken_at: Option<u64>,
}

/// A region of a peer that we have attached.
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
    /// Writes that have landed in part.
    pub(super) landing: Vec<Landing>,
}

/// Processes with access to a region, and the generation of their key.
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
    /// Whether nothing more can be sent on this connection.
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

    /// Whether the key opens the region, at least for reading.
    pub(super) fn is_open(&self, key: u32) -> bool {
        match self.lent {
            Lent::Shared(generation) | Lent::To { generation, .. } => generation == key,
            Lent::Nobody => false,
        }
    }

    pub(super) fn may_write(&self, key: u32, process: usize) -> bool {
        self.is_open(key) && !matches!(self.lent, Lent::To { writer, .. } if writer != process)
    }

    /// Whether a write to any of these bytes has landed in part.
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
