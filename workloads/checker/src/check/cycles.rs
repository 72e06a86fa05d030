//! Cycles: transactions each of which must precede the next, and the last the first.
//!
//! For each component one short cycle of the worst kind is reported. The kinds are tried in this
//! order: writes alone; writes and reads of what was written; exactly one read that missed a write;
//! any; then the same with real time; last with the edges derived from real time. The search is
//! breadth-first from each edge that the cycle must contain. Beyond a cost limit it no longer
//! guarantees the shortest cycle.

use std::collections::{BTreeSet, VecDeque};

use super::components::components;
use super::findings::{Anomaly, Evidence};
use super::graph::{Edge, Graph, Helper, Reasons, Why};
use super::model::{Model, NONE, Step};
use super::words::Words;

/// Most edges followed per component.
const COST_MAX: u64 = 20_000_000;

/// An edge between two transactions or unknown writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CycleEdge {
    pub(super) from: u32,
    pub(super) why: Why,
    pub(super) key: u32,
    pub(super) to: u32,
}

/// Kinds of cycles, the worst first: the edges allowed, and the one that the cycle must contain. If
/// the required edge means that a read [missed](is_missed) a write, no other edge of the cycle may
/// mean that.
const LEVELS: [(Reasons, Option<Why>); 9] = {
    use Why::{Hidden, Late, Rt, Rw, Wr, Ww};
    [
        (Reasons::of(&[Ww]), None),
        (Reasons::of(&[Ww, Wr]), Some(Wr)),
        (Reasons::of(&[Ww, Wr, Rw]), Some(Rw)),
        (Reasons::of(&[Ww, Wr, Rw]), None),
        (Reasons::of(&[Ww, Rt]), None),
        (Reasons::of(&[Ww, Wr, Rt]), Some(Wr)),
        (Reasons::of(&[Ww, Wr, Rw, Rt]), Some(Rw)),
        (Reasons::of(&[Ww, Wr, Rt, Late]), Some(Late)),
        (Reasons::of(&[Ww, Wr, Rw, Rt, Hidden, Late]), None),
    ]
};

/// One cycle per strongly connected component, of the worst kind that occurs in it.
pub(super) fn find(graph: &Graph) -> Vec<Vec<CycleEdge>> {
    let mut scratch = vec![NONE; graph.len()];
    let mut found = Vec::new();
    for mut nodes in components(graph, LEVELS[LEVELS.len() - 1].0) {
        nodes.sort_unstable();
        let part = graph.part(&nodes, &mut scratch);
        for (reasons, first) in LEVELS {
            let before = found.len();
            for mut inner in components(&part, reasons) {
                inner.sort_unstable();
                let global: Vec<u32> = inner.iter().map(|node| nodes[*node as usize]).collect();
                let inner = graph.part(&global, &mut scratch);
                let search = Search::new(graph, &global, &inner, reasons);
                if let Some(cycle) = search.shortest(first) {
                    found.push(links(graph, &global, &cycle));
                }
            }
            if found.len() > before {
                break;
            }
        }
    }
    found
}

/// A search in one component.
struct Search<'a> {
    graph: &'a Graph,
    reasons: Reasons,
    /// Barriers. Steps along a chain of barriers add nothing to the length.
    barriers: Vec<bool>,
    cost: u64,
    /// Per node: round of the last visit, distance, predecessor, edge from it.
    met: Vec<(u32, u32, u32, Edge)>,
    round: u32,
}

/// Nodes of a cycle, each with the edge that leaves it.
type Path = Vec<(u32, Edge)>;

impl<'a> Search<'a> {
    fn new(whole: &Graph, nodes: &[u32], graph: &'a Graph, reasons: Reasons) -> Self {
        let barrier = |node: &u32| whole.helper(*node) == Some(Helper::Barrier);
        Self {
            graph,
            reasons,
            barriers: nodes.iter().map(barrier).collect(),
            cost: 0,
            met: vec![(0, 0, NONE, Edge::default()); nodes.len()],
            round: 0,
        }
    }

    fn shortest(mut self, first: Option<Why>) -> Option<Path> {
        let mut best: Option<(u32, Path)> = None;
        let barriers = self.barriers.clone();
        // Every cycle contains a node that is not a barrier.
        for from in (0..self.graph.len() as u32).filter(|node| !barriers[*node as usize]) {
            for edge in self.graph.from(from).iter().copied() {
                let begins = match first {
                    Some(first) => edge.why() == first,
                    None => self.reasons.has(edge.why()) && edge.why() != Why::Via,
                };
                if !begins {
                    continue;
                }
                let most = best.as_ref().map_or(u32::MAX, |(length, _)| *length);
                if most <= 2 || self.cost > COST_MAX {
                    return best.map(|(_, path)| path);
                }
                let only = first.is_some_and(is_missed);
                if let Some((length, path)) = self.back(from, edge, only, most) {
                    best = Some((length, path));
                }
            }
        }
        best.map(|(_, path)| path)
    }

    /// A cycle that begins with `edge` at `from` and is shorter than `most`. With `only`, `edge` is
    /// the only one of the cycle that means that a read missed a write.
    fn back(&mut self, from: u32, edge: Edge, only: bool, most: u32) -> Option<(u32, Path)> {
        self.round += 1;
        let began = self.length(edge);
        self.met[edge.to() as usize] = (self.round, began, from, edge);
        let mut queue = VecDeque::from([(edge.to(), began)]);
        while let Some((node, length)) = queue.pop_front() {
            if length > self.met[node as usize].1 {
                continue; // A shorter way was found since.
            }
            if node == from {
                return Some((length, self.path(from, edge)));
            }
            for next in self.graph.from(node).iter().copied() {
                self.cost += 1;
                if !self.reasons.has(next.why()) || only && is_missed(next.why()) {
                    continue;
                }
                let step = self.length(next);
                let (round, known, ..) = self.met[next.to() as usize];
                if length + step >= most || round == self.round && known <= length + step {
                    continue;
                }
                self.met[next.to() as usize] = (self.round, length + step, node, next);
                if step == 0 {
                    queue.push_front((next.to(), length));
                } else {
                    queue.push_back((next.to(), length + step));
                }
            }
        }
        None
    }

    fn length(&self, edge: Edge) -> u32 {
        let free = match edge.why() {
            Why::Via => true,
            Why::Rt => self.barriers[edge.to() as usize],
            Why::Ww | Why::Wr | Why::Rw | Why::Hidden | Why::Late => false,
        };
        u32::from(!free)
    }

    fn path(&self, from: u32, first: Edge) -> Path {
        let mut path = Vec::new();
        let mut at = from;
        loop {
            let (_, _, before, edge) = self.met[at as usize];
            path.push((before, edge));
            if before == from && edge == first {
                break;
            }
            at = before;
        }
        path.reverse();
        path
    }
}

/// The path over transactions and unknown writers, rotated to begin at one, without barriers and
/// junctions.
fn links(graph: &Graph, nodes: &[u32], path: &Path) -> Vec<CycleEdge> {
    let solid = |node: u32| !matches!(graph.helper(node), Some(Helper::Barrier | Helper::Junction));
    let steps: Vec<(u32, Edge, u32)> = path
        .iter()
        .map(|(from, edge)| (nodes[*from as usize], *edge, nodes[edge.to() as usize]))
        .collect();
    let Some(start) = steps.iter().position(|(from, ..)| solid(*from)) else { return Vec::new() };
    let mut links = Vec::new();
    let mut from = steps[start].0;
    let mut begun = None;
    for (_, edge, to) in steps[start..].iter().chain(&steps[..start]) {
        if edge.why() != Why::Via {
            begun = Some((edge.why(), edge.key));
        }
        if solid(*to) {
            let (why, key) = begun.take().expect("what goes on has begun");
            links.push(CycleEdge { from, why, key, to: *to });
            from = *to;
        }
    }
    let first = links.iter().enumerate().min_by_key(|(_, link)| link.from).map_or(0, |(i, _)| i);
    links.rotate_left(first);
    links
}

/// Whether the edge means that a read missed the write of another transaction.
fn is_missed(why: Why) -> bool {
    matches!(why, Why::Rw | Why::Late)
}

/// The anomaly of a cycle, and its class in the literature.
fn name(words: &Words, cycle: &[CycleEdge]) -> (Anomaly, String) {
    let count = |why| cycle.iter().filter(|link| link.why == why).count();
    let (missed, read) = (count(Why::Rw) + count(Why::Late), count(Why::Wr));
    let next = |i: usize| cycle[(i + 1) % cycle.len()].why;
    let missed_twice =
        (0..cycle.len()).any(|i| missed > 1 && is_missed(cycle[i].why) && is_missed(next(i)));
    let class = match (missed, read) {
        (0, 0) => "G0",
        (0, _) => "G1c",
        (1, _) => "G-single",
        _ if missed_twice => "G2-item",
        _ => "G-nonadjacent",
    };
    let keys: BTreeSet<u32> =
        cycle.iter().map(|link| link.key).filter(|key| *key != NONE).collect();
    if cycle.iter().any(|link| link.why.needs_time()) {
        let groups: BTreeSet<u16> = keys.iter().map(|key| words.group(*key)).collect();
        let anomaly = match (keys.len(), missed) {
            (1, 1) => Anomaly::StaleRead,
            _ if groups.len() > 1 => Anomaly::RealTimeInversionAcrossShards,
            _ => Anomaly::RealTimeInversion,
        };
        return (anomaly, format!("{class}-realtime"));
    }
    let anomaly = match (missed, read) {
        (0, 0) => Anomaly::DirtyWrite,
        (0, _) => Anomaly::CircularInformation,
        (1, 0) if keys.len() == 1 => Anomaly::LostUpdate,
        (1, _) => Anomaly::FracturedRead,
        _ if missed_twice => Anomaly::WriteSkew,
        _ => Anomaly::LongFork,
    };
    (anomaly, class.to_owned())
}

/// The evidence for a cycle, in words.
pub(super) fn explain(
    model: &Model,
    graph: &Graph,
    words: &Words,
    cycle: &[CycleEdge],
) -> (Anomaly, impl FnOnce() -> Evidence) {
    let (anomaly, class) = name(words, cycle);
    let evidence = move || {
        let mut known = cycle.iter().map(|link| link.from);
        let transactions = known.by_ref().enumerate().map(|(i, node)| match graph.helper(node) {
            None => format!("T{}  {}", i + 1, words.transaction(node)),
            Some(_) => format!("T{}  {}", i + 1, unknown(graph, words, node)),
        });
        let transactions = transactions.collect();
        let because = (0..cycle.len()).map(|i| {
            let [from, to] = [i, (i + 1) % cycle.len()].map(|i| format!("T{}", i + 1));
            let reason = reason(model, graph, words, cycle[i], &from, &to);
            format!("{from} before {to}: {reason}")
        });
        Evidence {
            anomaly: anomaly.name(),
            class,
            rules_out: anomaly.rules_out(),
            what: what(anomaly).to_owned(),
            transactions,
            because: because.collect(),
        }
    };
    (anomaly, evidence)
}

/// The meaning of an anomaly, in words.
fn what(anomaly: Anomaly) -> &'static str {
    match anomaly {
        Anomaly::DirtyWrite => "transactions wrote over each other in different orders",
        Anomaly::LostUpdate => {
            "a transaction wrote over a version that it had not read, though it had read an earlier one"
        }
        Anomaly::FracturedRead => {
            "a transaction saw a part of what another did, or of what came before it"
        }
        Anomaly::LongFork => "writes were seen in different orders",
        Anomaly::WriteSkew => "each of these transactions missed what another wrote",
        Anomaly::StaleRead => "a read missed what was acknowledged before it was invoked",
        Anomaly::RealTimeInversion | Anomaly::RealTimeInversionAcrossShards => {
            "these transactions took effect in an order that contradicts the times of invocation and answer"
        }
        _ => "each of these transactions must precede the next, and the last the first",
    }
}

fn unknown(graph: &Graph, words: &Words, node: u32) -> String {
    match graph.helper(node) {
        Some(Helper::Writer { key, version }) => {
            format!("an unknown writer of version {version} of {}", words.key(key))
        }
        _ => "an unknown writer".to_owned(),
    }
}

/// Why one transaction precedes the other, in words.
fn reason(
    model: &Model,
    graph: &Graph,
    words: &Words,
    link: CycleEdge,
    from: &str,
    to: &str,
) -> String {
    let CycleEdge { from: one, why, key, to: other } = link;
    let wrote = |node: u32| match graph.helper(node) {
        None => words.wrote(node, key),
        Some(_) => format!("wrote {}", words.key(key)),
    };
    match why {
        Why::Ww => format!("{from} {}, and {to} {} after that", wrote(one), wrote(other)),
        Why::Wr => {
            format!("{from} {}, and {to} saw it: {to} {}", wrote(one), words.read(other, key))
        }
        Why::Rw => {
            let missed =
                if missed_whole(model, one, key) { "and only then" } else { "and after that" };
            format!("{from} {}, {missed} {to} {}", words.read(one, key), wrote(other))
        }
        Why::Hidden => format!(
            "{from} {}, which was never observed, and {to} {}, which was observed by a read invoked after {from} was answered",
            wrote(one),
            wrote(other)
        ),
        Why::Late => format!(
            "{from} {}, which was there before {to} was invoked, and {to} {}",
            words.read(one, key),
            wrote(other)
        ),
        Why::Rt | Why::Via => {
            let at = |t| words.at(t);
            let [one, other] = [one, other].map(|node| model.transactions[node as usize]);
            format!(
                "{from} was answered at {}, before {to} was invoked at {}",
                at(one.returned),
                at(other.invoked)
            )
        }
    }
}

/// Whether a transaction found no value at a key.
fn missed_whole(model: &Model, transaction: u32, key: u32) -> bool {
    let first = model.steps_of(transaction).iter().find(|step| step.key() == key);
    matches!(first, Some(Step::Get { version: 0, .. }))
}
