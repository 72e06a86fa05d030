//! The transactions that must precede a transaction according to the [graph](super::graph). The
//! search for a [witness](super::witness) follows this order.
//!
//! Real time is left out, because the search respects it by itself. Helper nodes count as done as
//! soon as all their predecessors are.

use super::graph::{Graph, Why};
use super::model::NONE;

pub(super) struct Hints<'a> {
    graph: &'a Graph,
    in_time: bool,
    /// Number of predecessors of each node that are not done.
    pending: Vec<u32>,
    /// Predecessors of each node.
    offsets: Vec<u32>,
    before: Vec<u32>,
    stack: Vec<u32>,
}

impl<'a> Hints<'a> {
    /// `matter` selects the transactions that are still to be done. Without `in_time`, edges
    /// derived from real time are ignored.
    pub(super) fn new(graph: &'a Graph, in_time: bool, matter: impl Fn(u32) -> bool) -> Self {
        let nodes = graph.len();
        let mut offsets = vec![0u32; nodes + 1];
        let edges = || {
            let all = (0..nodes as u32)
                .flat_map(|from| graph.from(from).iter().map(move |edge| (from, edge)));
            all.filter(move |(_, edge)| counts(edge.why(), in_time))
        };
        edges().for_each(|(_, edge)| offsets[edge.to() as usize + 1] += 1);
        let pending = offsets[1..].to_vec();
        for node in 0..nodes {
            offsets[node + 1] += offsets[node];
        }
        let mut at = offsets.clone();
        let mut before = vec![NONE; edges().count()];
        for (from, edge) in edges() {
            let place = &mut at[edge.to() as usize];
            before[*place as usize] = from;
            *place += 1;
        }
        let mut hints = Self { graph, in_time, pending, offsets, before, stack: Vec::new() };
        // Helpers without predecessors are done at once, and so are transactions that do not
        // matter: they block no other.
        let first: Vec<u32> = (0..nodes as u32)
            .filter(|node| match graph.helper(*node) {
                Some(_) => hints.pending[*node as usize] == 0,
                None => !matter(*node),
            })
            .collect();
        for node in first {
            hints.done(node);
        }
        hints
    }

    /// Notes that a transaction is done.
    pub(super) fn done(&mut self, node: u32) {
        let Self { graph, in_time, pending, stack, .. } = self;
        stack.push(node);
        while let Some(node) = stack.pop() {
            for edge in graph.from(node).iter().filter(|edge| counts(edge.why(), *in_time)) {
                let left = &mut pending[edge.to() as usize];
                *left -= 1;
                if *left == 0 && graph.helper(edge.to()).is_some() {
                    stack.push(edge.to());
                }
            }
        }
    }

    /// Notes that a transaction is undone.
    pub(super) fn undone(&mut self, node: u32) {
        let Self { graph, in_time, pending, stack, .. } = self;
        stack.push(node);
        while let Some(node) = stack.pop() {
            for edge in graph.from(node).iter().filter(|edge| counts(edge.why(), *in_time)) {
                let left = &mut pending[edge.to() as usize];
                if *left == 0 && graph.helper(edge.to()).is_some() {
                    stack.push(edge.to());
                }
                *left += 1;
            }
        }
    }

    /// Whether all predecessors are done.
    pub(super) fn is_free(&self, node: u32) -> bool {
        self.pending[node as usize] == 0
    }

    /// A transaction without open predecessors that must precede `node`, or `node` itself if there
    /// is none. `done` reports whether a transaction is done.
    pub(super) fn first(&self, node: u32, done: impl Fn(u32) -> bool) -> u32 {
        let mut at = node;
        // No path of an acyclic graph is longer.
        for _ in 0..self.graph.len() {
            if self.pending[at as usize] == 0 {
                return at;
            }
            let [from, to] = [at, at + 1].map(|node| self.offsets[node as usize] as usize);
            let is_left = |before: &&u32| match self.graph.helper(**before) {
                Some(_) => self.pending[**before as usize] > 0,
                None => !done(**before),
            };
            match self.before[from..to].iter().find(is_left) {
                Some(before) => at = *before,
                None => return at,
            }
        }
        node
    }
}

/// Whether the hints use an edge. The search respects real time by itself; edges derived from it
/// hold only in a search in real time.
fn counts(why: Why, in_time: bool) -> bool {
    why != Why::Rt && (in_time || !why.needs_time())
}
