//! The faults of a run, drawn one after the other while it runs.

use std::time::Duration;

use skein_fabric::sim::{Rng, World};
use skein_multicast::Links;

use super::nodes::Nodes;

/// The end of a fault.
enum Undo {
    Restart(usize),
    Resume(usize),
    Fast(usize),
    Heal(Vec<(String, String)>),
}

/// Relative frequencies of the kinds of faults.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    /// A node crashes and loses its memory.
    pub(super) crashes: u64,
    /// A node stands still.
    pub(super) pauses: u64,
    /// A node is slow.
    pub(super) slows: u64,
    /// A node is cut off from the other nodes, but not from clients.
    pub(super) cuts: u64,
    /// A node receives from the other nodes, and nothing that it sends reaches them.
    pub(super) one_way_cuts: u64,
    /// Nothing that a node sends reaches one of the others.
    pub(super) held_links: u64,
}

/// The faults of the nodes.
pub(super) struct Faults {
    weights: Weights,
    rng: Rng,
    /// Unit of all times.
    beat: Duration,
    next: Duration,
    ends: Vec<(Duration, Undo)>,
    pub(super) count: u64,
    pub(super) crashes: u64,
}

impl Faults {
    pub(super) fn new(mut rng: Rng, weights: Weights, beat: Duration) -> Self {
        let next = beat.mul_f64(rng.below(100) as f64 / 1e2);
        Self { weights, rng, beat, next, ends: Vec::new(), count: 0, crashes: 0 }
    }

    /// Ends faults that are over, and begins the next one if it is due.
    pub(super) fn go_on<O: Links>(&mut self, nodes: &mut Nodes<O>, groups: u16, world: &World) {
        let now = world.now();
        while let Some(at) = self.ends.iter().position(|(end, _)| *end <= now) {
            let (_, undo) = self.ends.swap_remove(at);
            Self::undo(undo, nodes, world);
        }
        if now < self.next {
            return;
        }
        self.next = now + self.some(2);
        let leader = nodes.leader(self.rng.below(u64::from(groups)) as u16);
        let anybody = self.rng.index(nodes.len());
        let node = leader.filter(|_| !self.rng.one_in(3)).unwrap_or(anybody);
        self.count += 1;
        let Weights { crashes, pauses, slows, cuts, one_way_cuts, held_links } = self.weights;
        let kinds = [crashes, pauses, slows, cuts, one_way_cuts, held_links];
        let mut drawn = self.rng.below(kinds.iter().sum());
        let kind = kinds.iter().position(|weight| {
            let is_it = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            is_it
        });
        let (undo, lasts) = match kind {
            Some(0) => {
                // A node may only crash while all replicas are members: a restarted replica has lost its state until it
                // is admitted again.
                if !nodes.are_whole() {
                    return;
                }
                self.crashes += 1;
                nodes.crash(node);
                (Undo::Restart(node), self.some(4))
            }
            Some(1) => {
                nodes.stand_still(node, true);
                (Undo::Resume(node), self.some(4))
            }
            Some(2) => {
                world.slow(nodes.name(node), 2 + self.rng.below(20));
                (Undo::Fast(node), self.some(4))
            }
            Some(5) => {
                let other = (node + 1 + self.rng.index(nodes.len() - 1)) % nodes.len();
                let pairs = vec![(nodes.name(node).to_owned(), nodes.name(other).to_owned())];
                (Self::cut(pairs, world), self.some(2))
            }
            cut => {
                let mut pairs = Vec::new();
                for other in (0..nodes.len()).filter(|other| *other != node) {
                    let (one, two) = (nodes.name(node).to_owned(), nodes.name(other).to_owned());
                    if cut == Some(3) {
                        pairs.push((two.clone(), one.clone()));
                    }
                    pairs.push((one, two));
                }
                // Long enough for leases to expire and for other replicas to lead.
                (Self::cut(pairs, world), self.some(10))
            }
        };
        self.ends.push((now + lasts, undo));
    }

    fn cut(pairs: Vec<(String, String)>, world: &World) -> Undo {
        for (from, to) in &pairs {
            world.partition(from, to);
        }
        Undo::Heal(pairs)
    }

    /// A random time shorter than `times` beats.
    fn some(&mut self, times: u32) -> Duration {
        let most = (self.beat * times).as_nanos() as u64;
        Duration::from_nanos(self.rng.below(most))
    }

    fn undo<O: Links>(undo: Undo, nodes: &mut Nodes<O>, world: &World) {
        match undo {
            Undo::Restart(node) => nodes.restart(node),
            Undo::Resume(node) => nodes.stand_still(node, false),
            Undo::Fast(node) => world.slow(nodes.name(node), 1),
            Undo::Heal(pairs) => pairs.iter().for_each(|(from, to)| world.heal(from, to)),
        }
    }

    /// Ends all faults. No other begins.
    pub(super) fn end_all<O: Links>(&mut self, nodes: &mut Nodes<O>, world: &World) {
        for (_, undo) in std::mem::take(&mut self.ends) {
            Self::undo(undo, nodes, world);
        }
        world.heal_all();
        self.next = Duration::MAX;
    }
}
