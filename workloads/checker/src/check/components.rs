//! Strongly connected components: a node on a cycle shares its component with the whole cycle.
//!
//! Tarjan's algorithm with an explicit stack, because a chain may have a million operations.

use super::graph::{Graph, Reasons};
use super::model::NONE;

/// The components of more than one node in the graph of the edges with these `reasons`.
pub(super) fn components(graph: &Graph, reasons: Reasons) -> Vec<Vec<u32>> {
    let nodes = graph.len();
    // Discovery order of each node, NONE before; and the lowest discovery order that it leads back
    // to.
    let mut met = vec![NONE; nodes];
    let mut low = vec![NONE; nodes];
    let mut next = 0;
    let mut stack: Vec<u32> = Vec::new();
    // Nodes on the current path, with the number of their edges followed.
    let mut path: Vec<(u32, u32)> = Vec::new();
    let mut found = Vec::new();
    for root in 0..nodes as u32 {
        if met[root as usize] != NONE {
            continue;
        }
        path.push((root, 0));
        while let Some((node, followed)) = path.last_mut() {
            let (node, at) = (*node, *followed as usize);
            if at == 0 {
                met[node as usize] = next;
                low[node as usize] = next;
                next += 1;
                stack.push(node);
            }
            if let Some(edge) = graph.from(node).get(at) {
                *followed += 1;
                if !reasons.has(edge.why()) {
                    continue;
                }
                let to = edge.to();
                if met[to as usize] == NONE {
                    path.push((to, 0));
                } else if low[to as usize] != NONE {
                    low[node as usize] = low[node as usize].min(met[to as usize]);
                }
                continue;
            }
            path.pop();
            let lowest = low[node as usize];
            if lowest == met[node as usize] {
                let at = stack.iter().rposition(|other| *other == node).expect("it was put there");
                // Nodes of a finished component are ignored from here on.
                stack[at..].iter().for_each(|done| low[*done as usize] = NONE);
                if stack.len() - at > 1 {
                    found.push(stack[at..].to_vec());
                }
                stack.truncate(at);
            }
            if let Some((parent, _)) = path.last()
                && lowest < low[*parent as usize]
            {
                low[*parent as usize] = lowest;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::graph::{Builder, Why};
    use super::*;

    const ALL: Reasons = Reasons::of(&[Why::Ww, Why::Wr, Why::Rw, Why::Rt]);

    fn graph(nodes: usize, edges: &[(u32, u32, Why)]) -> Graph {
        let mut builder = Builder::new(nodes);
        for (from, to, why) in edges {
            builder.edge(*from, *to, *why, 0);
        }
        builder.finish()
    }

    #[test]
    fn components_are_those_of_who_reaches_whom() {
        // Compares with reachability on many small graphs.
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let nodes = 1 + random(8) as usize;
            let edges: Vec<_> = (0..random(14))
                .map(|_| (random(nodes as u64) as u32, random(nodes as u64) as u32, Why::Ww))
                .collect();
            let mut reaches = vec![vec![false; nodes]; nodes];
            for (from, to, _) in &edges {
                reaches[*from as usize][*to as usize] = true;
            }
            for via in 0..nodes {
                for from in 0..nodes {
                    for to in 0..nodes {
                        reaches[from][to] |= reaches[from][via] && reaches[via][to];
                    }
                }
            }
            let together = |a: usize, b: usize| a != b && reaches[a][b] && reaches[b][a];
            let with = |a: usize| -> Vec<u32> {
                (0..nodes).filter(|b| *b == a || together(a, *b)).map(|b| b as u32).collect()
            };
            let firsts = (0..nodes).filter(|a| !(0..*a).any(|b| together(*a, b)));
            let mut wanted: Vec<Vec<u32>> =
                firsts.map(with).filter(|component| component.len() > 1).collect();
            let mut found = components(&graph(nodes, &edges), ALL);
            for component in &mut found {
                component.sort_unstable();
            }
            found.sort();
            wanted.sort();
            assert_eq!(found, wanted, "{edges:?}");
        }
    }

    #[test]
    fn a_chain_of_a_million_is_no_trouble_and_one_edge_closes_it() {
        let nodes = 1_000_000;
        let mut edges: Vec<_> = (1..nodes).map(|node| (node - 1, node, Why::Rt)).collect();
        assert!(components(&graph(nodes as usize, &edges), ALL).is_empty());
        edges.push((nodes - 1, 0, Why::Rw));
        let all = graph(nodes as usize, &edges);
        assert_eq!(components(&all, ALL)[0].len(), nodes as usize);
        assert!(components(&all, Reasons::of(&[Why::Rt])).is_empty());
    }
}
