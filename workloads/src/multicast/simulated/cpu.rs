//! The model of a core: work takes instructions, and instructions take time.
//!
//! The code under test counts its work ([`Work`]), and its fabric counts requests ([`Asked`]).
//! `workloads/benches/model.rs` fits the instructions for each kind of work to counts by callgrind.

use std::ops::Sub;
use std::time::Duration;

use skein_fabric::counted::Asked;
use skein_multicast::work::Work;

/// Kinds of work that take instructions.
pub const KINDS: usize = 12;

/// Amounts of each kind: turns; replicas polled in them; words polled, two for each ring; rings read; datagrams
/// handled; messages multicast; log entries; other groups' proposals logged; status words that had changed;
/// deliveries; bytes copied; requests posted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amounts(pub [f64; KINDS]);

impl Amounts {
    /// In the order of the type's documentation.
    pub fn new(work: &Work, asked: &Asked) -> Self {
        let Work { turns, replicas, rings, datagrams, multicasts, .. } = *work;
        let Work { entries, proposals, words, deliveries, .. } = *work;
        let Asked { words: polled, copied, requests } = *asked;
        let all = [
            turns, replicas, polled, rings, datagrams, multicasts, entries, proposals, words,
            deliveries, copied, requests,
        ];
        Self(all.map(|count| count as f64))
    }

    /// The sum of both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(sum, more)| *sum += more);
        self
    }
}

impl Sub for Amounts {
    type Output = Self;

    fn sub(mut self, before: Self) -> Self {
        self.0.iter_mut().zip(before.0).for_each(|(all, before)| *all -= before);
        self
    }
}

/// Instructions for one of each kind, in the order of [`Amounts`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Instructions(pub [f64; KINDS]);

impl Instructions {
    /// Instructions for these amounts.
    pub fn of(&self, amounts: &Amounts) -> f64 {
        self.0.iter().zip(amounts.0).map(|(each, amount)| each * amount).sum()
    }

    /// The same without those for posting requests, where [`PostCosts`](skein_fabric::sim::PostCosts) has them.
    #[must_use]
    pub const fn without_requests(mut self) -> Self {
        self.0[KINDS - 1] = 0.0;
        self
    }
}

/// The speed of a core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    pub ghz: f64,
    /// Instructions per cycle.
    pub per_cycle: f64,
}

impl Speed {
    /// Time for so many instructions, rounded to nanoseconds.
    pub fn time(&self, instructions: f64) -> Duration {
        Duration::from_secs_f64(instructions / (self.ghz * self.per_cycle) / 1e9)
    }
}

/// A core and the actors that take turns on it.
#[derive(Debug)]
pub(super) struct Cpu {
    /// Indices of actors.
    actors: Vec<usize>,
    next: usize,
    /// Time in turns that had something to do, and in posting.
    pub(super) busy: Duration,
}

impl Cpu {
    pub(super) fn new(actors: Vec<usize>) -> Self {
        Self { actors, next: 0, busy: Duration::ZERO }
    }

    /// The actor whose turn is next or in progress.
    pub(super) fn actor(&self) -> usize {
        self.actors[self.next]
    }

    pub(super) fn next_actor(&mut self) {
        self.next = (self.next + 1) % self.actors.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_work_takes_instructions() {
        let work = Work {
            turns: 1,
            replicas: 1_024,
            rings: 2,
            datagrams: 4,
            multicasts: 8,
            entries: 16,
            proposals: 2_048,
            words: 32,
            deliveries: 64,
        };
        let asked = Asked { words: 128, copied: 256, requests: 512 };
        let amounts = Amounts::new(&work, &asked);
        let sum = |costs: Instructions| costs.of(&amounts).round() as i64;
        assert_eq!(sum(Instructions([1.0; KINDS])), 4_095);
        for kind in 0..KINDS {
            let mut costs = Instructions([1.0; KINDS]);
            costs.0[kind] = 0.0;
            assert_eq!(sum(costs), 4_095 - amounts.0[kind] as i64, "without kind {kind}");
        }
        let costs = Instructions([1.0; KINDS]).without_requests();
        assert_eq!(sum(costs), 4_095 - 512);
    }

    #[test]
    fn a_faster_core_takes_less_time() {
        let speed = Speed { ghz: 2.0, per_cycle: 1.5 };
        assert_eq!(speed.time(3_000.0), Duration::from_micros(1));
        assert_eq!(Speed { ghz: 4.0, ..speed }.time(3_000.0), Duration::from_nanos(500));
        assert_eq!(Speed { per_cycle: 3.0, ..speed }.time(3_000.0), Duration::from_nanos(500));
    }

    #[test]
    fn actors_of_a_core_take_turns() {
        let mut cpu = Cpu::new(vec![3, 5]);
        let turns = [(); 3].map(|()| {
            let actor = cpu.actor();
            cpu.next_actor();
            actor
        });
        assert_eq!(turns, [3, 5, 3]);
    }
}
