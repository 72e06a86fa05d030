//! The graph of what must have come before what.
//!
//! Its nodes are transactions, and some that stand for no transaction of the history: barriers, by
//! which real time needs one edge in and one edge out for each transaction however many overlap;
//! writers that nobody told of, but that must have been there; and junctions, by which everybody of
//! one set comes before everybody of another without an edge for each pair. So there are never more
//! edges than a few for each thing that was read or written.

use hashbrown::HashMap;

use super::model::{COUNT_MAX, NONE};

/// Why one node comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Why {
    /// It wrote a version of a key, and the other the next one.
    Ww = 0,
    /// It wrote the version that the other read.
    Wr = 1,
    /// It read a version, and the other wrote the next one.
    Rw = 2,
    /// It was answered before the other was asked for.
    Rt = 3,
    /// The other goes on with what an edge into this node began, or ends what it began.
    Via = 4,
    /// Nobody saw what it wrote, and what the other wrote was read after it was answered: it was asked for later.
    Hidden = 5,
    /// It read what others had read, or had written, before the other was asked for, by which it was written over.
    Late = 6,
}

impl Why {
    /// Whether it says nothing of a history whose times are left out.
    pub(super) fn needs_time(self) -> bool {
        matches!(self, Self::Rt | Self::Hidden | Self::Late)
    }
}

/// Some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reasons(u32);

impl Reasons {
    pub(super) const fn of(reasons: &[Why]) -> Self {
        let mut bits = 1 << Why::Via as u32;
        let mut i = 0;
        while i < reasons.len() {
            bits |= 1 << reasons[i] as u32;
            i += 1;
        }
        Self(bits)
    }

    pub(super) fn has(self, why: Why) -> bool {
        self.0 & 1 << why as u32 != 0
    }
}

/// What stands for no transaction of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    /// What was answered comes before it; what is asked for later comes after it.
    Barrier,
    /// Somebody nobody told of, who wrote this version of the key.
    Writer { key: u32, version: u64 },
    /// Everybody of one set, then everybody of another.
    Junction,
}

const BITS: u32 = 29;
// Transactions, a barrier after each, and at most four writers and junctions for each step.
const _: () = assert!(6 * COUNT_MAX <= 1 << BITS);
const MASK: u32 = (1 << BITS) - 1;

/// An edge as it is kept: where to, why, and about which key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edge {
    packed: u32,
    pub(super) key: u32,
}

impl Edge {
    pub(super) fn new(to: u32, why: Why, key: u32) -> Self {
        debug_assert!(to <= MASK);
        Self { packed: to | (why as u32) << BITS, key }
    }

    pub(super) fn to(self) -> u32 {
        self.packed & MASK
    }

    pub(super) fn why(self) -> Why {
        use Why::{Hidden, Late, Rt, Rw, Via, Wr, Ww};
        [Ww, Wr, Rw, Rt, Via, Hidden, Late][(self.packed >> BITS) as usize]
    }
}

/// Edges as they are found.
pub(super) struct Builder {
    transactions: u32,
    helpers: Vec<Helper>,
    edges: Vec<(u32, Edge)>,
}

impl Builder {
    /// Over so many transactions.
    pub(super) fn new(transactions: usize) -> Self {
        Self { transactions: transactions as u32, helpers: Vec::new(), edges: Vec::new() }
    }

    /// Another node.
    pub(super) fn helper(&mut self, helper: Helper) -> u32 {
        self.helpers.push(helper);
        self.transactions + self.helpers.len() as u32 - 1
    }

    /// `from` comes before `to`. That a transaction comes before itself is no news.
    pub(super) fn edge(&mut self, from: u32, to: u32, why: Why, key: u32) {
        if from != to {
            self.edges.push((from, Edge::new(to, why, key)));
        }
    }

    /// `from` was answered, or a barrier was, before `to`.
    pub(super) fn in_time(&mut self, from: u32, to: u32) {
        self.edge(from, to, Why::Rt, NONE);
    }

    pub(super) fn finish(self) -> Graph {
        let Self { transactions, helpers, edges } = self;
        let nodes = transactions as usize + helpers.len();
        let (offsets, sorted) = by_source(nodes, &edges);
        Graph { transactions, helpers, offsets, edges: sorted }
    }
}

/// The graph, edges by the node they lead from.
pub(super) struct Graph {
    /// How many of its nodes are transactions, which come first.
    pub(super) transactions: u32,
    helpers: Vec<Helper>,
    offsets: Vec<u32>,
    edges: Vec<Edge>,
}

impl Graph {
    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn edges(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn from(&self, node: u32) -> &[Edge] {
        &self.edges[self.offsets[node as usize] as usize..self.offsets[node as usize + 1] as usize]
    }

    /// What `node` is, if it is no transaction.
    pub(super) fn helper(&self, node: u32) -> Option<Helper> {
        let at = node.checked_sub(self.transactions)?;
        Some(self.helpers[at as usize])
    }

    /// The same graph of some of its nodes, renumbered in the order given, with the edges between them.
    pub(super) fn part(&self, nodes: &[u32], scratch: &mut [u32]) -> Self {
        for (i, node) in nodes.iter().enumerate() {
            scratch[*node as usize] = i as u32;
        }
        let mut edges = Vec::new();
        for (i, node) in nodes.iter().enumerate() {
            let within = self.from(*node).iter().filter(|edge| scratch[edge.to() as usize] != NONE);
            edges.extend(within.map(|edge| {
                (i as u32, Edge::new(scratch[edge.to() as usize], edge.why(), edge.key))
            }));
        }
        for node in nodes {
            scratch[*node as usize] = NONE;
        }
        let (offsets, edges) = by_source(nodes.len(), &edges);
        Self { transactions: nodes.len() as u32, helpers: Vec::new(), offsets, edges }
    }

    /// The same graph of some transactions, renumbered in the order given, with what it knows of `keys`, and
    /// without real time.
    pub(super) fn of_keys(&self, transactions: &[u32], keys: impl Fn(u32) -> bool) -> Self {
        let mut numbers: HashMap<u32, u32> = transactions.iter().copied().zip(0..).collect();
        let mut nodes = transactions.to_vec();
        let (mut helpers, mut edges) = (Vec::new(), Vec::new());
        let mut at = 0;
        while let Some(node) = nodes.get(at) {
            let known = self.from(*node).iter();
            for edge in known.filter(|edge| edge.why() != Why::Rt && keys(edge.key)) {
                let next = nodes.len() as u32;
                let to = match (numbers.get(&edge.to()), self.helper(edge.to())) {
                    (Some(to), _) => *to,
                    (None, None) => continue,
                    (None, Some(helper)) => {
                        numbers.insert(edge.to(), next);
                        nodes.push(edge.to());
                        helpers.push(helper);
                        next
                    }
                };
                edges.push((at as u32, Edge::new(to, edge.why(), edge.key)));
            }
            at += 1;
        }
        let (offsets, edges) = by_source(nodes.len(), &edges);
        Self { transactions: transactions.len() as u32, helpers, offsets, edges }
    }
}

fn by_source(nodes: usize, edges: &[(u32, Edge)]) -> (Vec<u32>, Vec<Edge>) {
    let mut offsets = vec![0u32; nodes + 1];
    for (from, _) in edges {
        offsets[*from as usize + 1] += 1;
    }
    for i in 0..nodes {
        offsets[i + 1] += offsets[i];
    }
    let mut at = offsets.clone();
    let mut sorted = vec![Edge::default(); edges.len()];
    for (from, edge) in edges {
        let place = &mut at[*from as usize];
        sorted[*place as usize] = *edge;
        *place += 1;
    }
    (offsets, sorted)
}
