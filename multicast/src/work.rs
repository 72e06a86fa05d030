//! Counts of the work of an engine, or of the sessions of a thread: the input of a model of costs.

use std::ops::Sub;

/// Counts since the start, one for each step that takes instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Turns, whether or not there was anything to do.
    pub turns: u64,
    /// Replicas polled, over all turns.
    pub replicas: u64,
    /// Rings read because their head had moved.
    pub rings: u64,
    /// Datagrams read from rings.
    pub datagrams: u64,
    /// Messages that sessions multicast.
    pub multicasts: u64,
    /// Log entries appended by a leader or read by a follower.
    pub entries: u64,
    /// Other groups' proposals in those entries.
    pub proposals: u64,
    /// Status words that had changed, once for each replica that handled one.
    pub words: u64,
    pub deliveries: u64,
}

impl Work {
    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.turns += other.turns;
        self.replicas += other.replicas;
        self.rings += other.rings;
        self.datagrams += other.datagrams;
        self.multicasts += other.multicasts;
        self.entries += other.entries;
        self.proposals += other.proposals;
        self.words += other.words;
        self.deliveries += other.deliveries;
        self
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            turns: self.turns - before.turns,
            replicas: self.replicas - before.replicas,
            rings: self.rings - before.rings,
            datagrams: self.datagrams - before.datagrams,
            multicasts: self.multicasts - before.multicasts,
            entries: self.entries - before.entries,
            proposals: self.proposals - before.proposals,
            words: self.words - before.words,
            deliveries: self.deliveries - before.deliveries,
        }
    }
}
