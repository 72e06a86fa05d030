//! What must have been done before a transaction, as far as the [graph](super::graph) knows: the order in
//! which a [witness](super::witness) is looked for.
//!
//! Real time is left out, for the search keeps to it by itself. Nodes that stand for no transaction are done
//! as soon as everything before them is.

use super::graph::{Graph, Why};
use super::model::NONE;

pub(super) struct Hints<'a> {
    graph: &'a Graph,
    in_time: bool,
    /// How much of what must come before each node is not done.
    pending: Vec<u32>,
    /// What must come before each node.
    offsets: Vec<u32>,
    before: Vec<u32>,
    stack: Vec<u32>,
}

impl<'a> Hints<'a> {
    /// Of transactions, those that `matter` are still to be done. Without `in_time`, nothing is said that follows from
    /// real time.
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
        // What nothing comes before is done, unless it is a transaction that matters; and what is not to be
        // done keeps nobody waiting.
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

    /// A transaction is done.
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

    /// It is not.
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

    /// Whether nothing must be done before it.
    pub(super) fn is_free(&self, node: u32) -> bool {
        self.pending[node as usize] == 0
    }

    /// A transaction that must be done before `node` can be, and before which nothing must be; `node` itself,
    /// if there is none. `done` tells of transactions whether they are.
    pub(super) fn first(&self, node: u32, done: impl Fn(u32) -> bool) -> u32 {
        let mut at = node;
        // Without circles no way is longer than this.
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

/// Whether an edge is kept to. The search keeps to real time by itself, and what follows from it is of use only then.
fn counts(why: Why, in_time: bool) -> bool {
    why != Why::Rt && (in_time || !why.needs_time())
}
