//! The precedence graph.
//!
//! Its nodes are transactions and helpers. Barriers give real time with one edge in and one edge
//! out per transaction, however many transactions overlap. Unknown writers stand for writes that
//! must exist but that no transaction is known to have made. Junctions put all of one set before
//! all of another without an edge per pair. So the number of edges is a small multiple of the
//! number of reads and writes.

use hashbrown::HashMap;

use super::model::{COUNT_MAX, NONE};

/// Why one node precedes another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Why {
    /// It wrote a version of a key, and the other the next one.
    Ww = 0,
    /// It wrote the version that the other read.
    Wr = 1,
    /// It read a version, and the other wrote the next one.
    Rw = 2,
    /// It was answered before the other was invoked.
    Rt = 3,
    /// Continuation of an edge through a helper: the other continues or ends what an edge into this
    /// node began.
    Via = 4,
    /// No read observed its write, and a read invoked after its answer observed the other's: the
    /// other is later.
    Hidden = 5,
    /// It read a value of a field that the other overwrote. The value is known to have stood before
    /// the other was invoked, because its writer or a reader of it was answered before.
    Late = 6,
}

impl Why {
    /// Whether the edge is meaningless without real time.
    pub(super) fn needs_time(self) -> bool {
        matches!(self, Self::Rt | Self::Hidden | Self::Late)
    }
}

/// A set of reasons.
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

/// A node that is no transaction of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Helper {
    /// Transactions answered before it precede it; transactions invoked after it follow it.
    Barrier,
    /// Unknown writer of this version of the key.
    Writer { key: u32, version: u64 },
    /// All of one set, then all of another.
    Junction,
}

const BITS: u32 = 29;
// Transactions, a barrier after each, and at most four writers and junctions per step.
const _: () = assert!(6 * COUNT_MAX <= 1 << BITS);
const MASK: u32 = (1 << BITS) - 1;

/// Target, reason and key of an edge.
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

/// A graph under construction.
pub(super) struct Builder {
    transactions: u32,
    helpers: Vec<Helper>,
    edges: Vec<(u32, Edge)>,
}

impl Builder {
    /// A graph of this many transactions.
    pub(super) fn new(transactions: usize) -> Self {
        Self { transactions: transactions as u32, helpers: Vec::new(), edges: Vec::new() }
    }

    /// Adds a helper.
    pub(super) fn helper(&mut self, helper: Helper) -> u32 {
        self.helpers.push(helper);
        self.transactions + self.helpers.len() as u32 - 1
    }

    /// Adds the edge "`from` precedes `to`", unless they are the same node.
    pub(super) fn edge(&mut self, from: u32, to: u32, why: Why, key: u32) {
        if from != to {
            self.edges.push((from, Edge::new(to, why, key)));
        }
    }

    /// Adds an edge of real time: the transaction or barrier `from` ended before `to`.
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

/// The graph. Edges are sorted by source.
pub(super) struct Graph {
    /// Number of transactions. They are the first nodes.
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

    /// The helper that `node` is, or `None` for a transaction.
    pub(super) fn helper(&self, node: u32) -> Option<Helper> {
        let at = node.checked_sub(self.transactions)?;
        Some(self.helpers[at as usize])
    }

    /// The subgraph induced by `nodes`, renumbered in the order given.
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

    /// The subgraph of some transactions, renumbered in the order given, with the edges about
    /// `keys` and without real time.
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
