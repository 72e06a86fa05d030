//! Real-time order: if a message was answered before another was multicast, it precedes the other in the order.
//!
//! This is stronger than acyclic order: the orders of two groups may be consistent, and yet one group may put a new
//! message before one that was already answered. So the orders of all groups together with "was answered before it was
//! multicast" must have no cycle. A message is answered when its session has the answers of all its destinations.
//!
//! An unordered read has its own place: behind the last message of its group that it saw, and before the next. So it
//! misses nothing that was answered before it was sent, and no read that is sent after its answer misses what it saw.
//!
//! Answers and multicasts are linked through a chain of moments, so that the size of the graph is linear in the
//! history: a message has an edge to the moment of its answer, each moment to the next, and the last moment before a
//! multicast to that message.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Write;

use super::{History, Read, Violation};
use crate::ids::{GroupId, MessageId};
use crate::step::Deliver;

/// A message, a read, or a moment at which one was answered.
#[derive(Clone, Copy)]
enum Node<'a> {
    Message(&'a Deliver),
    Answered(MessageId),
    Read(&'a Read),
    ReadAnswered,
}

/// Reason for an edge.
#[derive(Clone, Copy)]
enum Why {
    /// This group delivered the first before the second.
    Delivered(GroupId),
    /// The second is the moment of the answer, a later moment, or a message or read that began after it.
    Time,
}

#[derive(Default)]
struct Graph<'a> {
    nodes: Vec<Node<'a>>,
    after: Vec<Vec<(usize, Why)>>,
}

impl<'a> Graph<'a> {
    fn node(&mut self, node: Node<'a>) -> usize {
        self.nodes.push(node);
        self.after.push(Vec::new());
        self.nodes.len() - 1
    }

    /// Adds a read behind the last message that it saw, and its two moments.
    fn read(
        &mut self,
        read: &'a Read,
        seen: Option<usize>,
        moments: &mut Vec<(u64, usize, Option<Node<'a>>)>,
    ) -> usize {
        let place = self.node(Node::Read(read));
        if let Some(seen) = seen {
            self.after[seen].push((place, Why::Delivered(read.group)));
        }
        moments.push((read.asked_at, place, None));
        moments.push((read.answered_at, place, Some(Node::ReadAnswered)));
        place
    }

    fn of(history: &'a History) -> Self {
        let mut graph = Self::default();
        let mut places: BTreeMap<MessageId, usize> = BTreeMap::new();
        let mut reads: Vec<_> = history.reads.iter().collect();
        reads.sort_by_key(|read| (read.group, read.position));
        let mut reads = reads.into_iter().peekable();
        let mut moments = Vec::new();
        for (group, sequence) in &history.sequences {
            // Skip reads of groups that have delivered nothing.
            while reads.next_if(|read| read.group < *group).is_some() {}
            let mut before = None;
            for deliver in sequence.iter().filter(|it| !history.is_lost(it.message)) {
                // Reads that did not see this delivery and are not placed yet.
                let earlier =
                    |read: &&Read| (read.group, read.position) < (*group, deliver.position);
                let mut unseen = Vec::new();
                while let Some(read) = reads.next_if(earlier) {
                    unseen.push(graph.read(read, before, &mut moments));
                }
                let place = *places
                    .entry(deliver.message)
                    .or_insert_with(|| graph.node(Node::Message(deliver)));
                for read in unseen {
                    graph.after[read].push((place, Why::Delivered(*group)));
                }
                if let Some(before) = before.replace(place) {
                    graph.after[before].push((place, Why::Delivered(*group)));
                }
            }
            while let Some(read) = reads.next_if(|read| read.group == *group) {
                graph.read(read, before, &mut moments);
            }
        }
        for (message, multicast) in &history.multicasts {
            if let Some(place) = places.get(message) {
                moments.push((multicast.sent_at, *place, None));
                let answered = Node::Answered(*message);
                moments.extend(multicast.answered_at.map(|at| (at, *place, Some(answered))));
            }
        }
        moments.sort_unstable_by_key(|(at, ..)| *at);
        let mut last: Option<usize> = None;
        for (_, place, answered) in moments {
            let Some(answered) = answered else {
                if let Some(last) = last {
                    graph.after[last].push((place, Why::Time));
                }
                continue;
            };
            let moment = graph.node(answered);
            graph.after[place].push((moment, Why::Time));
            if let Some(last) = last.replace(moment) {
                graph.after[last].push((moment, Why::Time));
            }
        }
        graph
    }

    /// A cycle, if there is one: each node precedes the next, and the last precedes the first.
    fn cycle(&self) -> Option<Vec<(usize, Why)>> {
        let mut befores = vec![0; self.nodes.len()];
        self.after.iter().flatten().for_each(|(to, _)| befores[*to] += 1);
        let mut free: VecDeque<_> = (0..befores.len()).filter(|at| befores[*at] == 0).collect();
        while let Some(at) = free.pop_front() {
            for &(to, _) in &self.after[at] {
                befores[to] -= 1;
                if befores[to] == 0 {
                    free.push_back(to);
                }
            }
        }
        // Every remaining node has a remaining predecessor, so the path backwards must close a cycle.
        let mut at = befores.iter().position(|count| *count > 0)?;
        let mut before = vec![None; befores.len()];
        for from in (0..befores.len()).filter(|from| befores[*from] > 0) {
            for &(to, why) in self.after[from].iter().filter(|(to, _)| befores[*to] > 0) {
                before[to] = Some((from, why));
            }
        }
        let mut way = Vec::new();
        let mut seen = vec![None; befores.len()];
        while seen[at].is_none() {
            seen[at] = Some(way.len());
            let (from, why) = before[at]?;
            way.push((from, why));
            at = from;
        }
        let mut cycle = way.split_off(seen[at]?);
        cycle.reverse();
        Some(cycle)
    }

    fn tell(&self, cycle: &[(usize, Why)]) -> String {
        let mut told = String::from("a cycle:");
        for (at, why) in cycle {
            let _ = match (self.nodes[*at], why) {
                (Node::Answered(message), _) => write!(told, " [{message} was answered]"),
                (Node::ReadAnswered, _) => write!(told, " [a read was answered]"),
                (Node::Read(read), Why::Delivered(group)) => {
                    write!(told, " a read at {}, which {group} executed before", read.position)
                }
                (Node::Read(read), Why::Time) => {
                    write!(told, " a read at group {}, which was answered before", read.group)
                }
                (Node::Message(it), why) => {
                    let Deliver { message, destinations, rank, .. } = it;
                    let _ = write!(told, " {message} to {destinations} at {rank}, which ");
                    match why {
                        Why::Delivered(group) => write!(told, "{group} delivers before"),
                        Why::Time => write!(told, "was answered before"),
                    }
                }
            };
        }
        told
    }
}

/// Checks a complete history.
pub(super) fn check(history: &History) -> Result<(), Violation> {
    let graph = Graph::of(history);
    let Some(cycle) = graph.cycle() else { return Ok(()) };
    Err(Violation { property: "real-time order", evidence: graph.tell(&cycle) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{GroupSet, ReplicaId, SessionId};
    use crate::rank::Rank;

    /// Sends, delivers and answers messages `a`, `b`, … as the script says: `a>01` multicasts a to groups 0 and 1,
    /// `a@0:5` delivers it at group 0 with clock 5, `a=0` has group 0 answer it. `r?0` sends read r to group 0, and
    /// `r!0:2` is its answer, made behind two deliveries.
    fn run(script: &str) -> Result<(), Violation> {
        let mut history = History::default();
        let mut sent = BTreeMap::new();
        let mut positions = [0; 3];
        let mut asked = BTreeMap::new();
        for word in script.split(' ') {
            let name = u64::from(word.as_bytes()[0] - b'a') + 1;
            let message = MessageId::new(SessionId(1), name);
            let (what, rest) = word[1..].split_at(1);
            let group = GroupId(rest[..1].parse().unwrap());
            match what {
                ">" => {
                    let groups = rest.bytes().map(|digit| GroupId(u16::from(digit - b'0')));
                    let destinations: GroupSet = groups.collect();
                    sent.insert(name, destinations);
                    history.multicast(message, destinations);
                }
                "@" => {
                    positions[group.index()] += 1;
                    let deliver = Deliver {
                        message,
                        low_water: 1,
                        destinations: sent[&name],
                        rank: Rank::new(rest[2..].parse().unwrap()),
                        clock: 0,
                        position: positions[group.index()],
                        time_ms: 0,
                    };
                    history.delivers(ReplicaId::new(group, 0), &deliver).unwrap();
                }
                "?" => _ = asked.insert(name, history.asks()),
                "!" => history.read(group, asked[&name], rest[2..].parse().unwrap()),
                _ => history.answered(message, group).unwrap(),
            }
        }
        check(&history)
    }

    #[test]
    fn an_answer_before_a_multicast_counts_and_nothing_else_does() {
        assert_eq!(run("a>01 a@0:9 a@1:9 a=0 a=1 b>1 b@1:10 b=1"), Ok(()));
        let while_a_waits = "a>01 a@0:9 a=0 b>1 b@1:4 b=1 a@1:9 a=1";
        assert_eq!(run(while_a_waits), Ok(()), "a lacks an answer when b is multicast");
    }

    #[test]
    fn an_inversion_between_two_groups_is_a_cycle() {
        // g0 has delivered a and answers b, which depends on it; g1 delivers c before a.
        let inverted = "a>01 b>0 a@0:9 b@0:10 b=0 c>1 c@1:4 c=1 a@1:9 a=0 a=1";
        let evidence = run(inverted).unwrap_err().evidence;
        assert!(evidence.contains("s0000000000000001:1 to {g0 g1} at 9, which g0 delivers before"));
        assert!(evidence.contains("[s0000000000000001:2 was answered]"), "{evidence}");
    }

    #[test]
    fn a_read_misses_nothing_that_was_answered_before_it_was_asked_for() {
        assert_eq!(run("a>0 a@0:1 r?0 a=0 r!0:0"), Ok(()), "a was answered meanwhile");
        let stale = run("a>0 a@0:1 a=0 r?0 r!0:0").unwrap_err().evidence;
        assert!(stale.contains("a read at 0, which g0 executed before"), "{stale}");
        let back = run("a>0 a@0:1 r?0 r!0:1 s?0 s!0:0").unwrap_err();
        assert_eq!(back.property, "real-time order", "what one has seen the next does not miss");
    }

    #[test]
    fn what_a_read_saw_of_two_groups_is_missed_by_no_later_one() {
        let missed = "a>01 a@0:9 r?0 r!0:1 s?1 s!1:0 a@1:9 a=0 a=1";
        assert_eq!(run(missed).unwrap_err().property, "real-time order");
        let gated = "a>01 a@0:9 r?0 a@1:9 r!0:1 s?1 s!1:1 a=0 a=1";
        assert_eq!(run(gated), Ok(()));
    }

    #[test]
    fn a_chain_through_three_groups_is_a_cycle() {
        // b precedes a at g1, and c follows a at g0. A session that has c's answer sends d to g2 alone, which delivers
        // d before b.
        let chain = "b>12 a>01 b@1:5 a@1:6 a@0:6 c>0 c@0:7 c=0 d>2 d@2:3 d=2 b@2:5 b=1 b=2 a=0 a=1";
        assert_eq!(run(chain).unwrap_err().property, "real-time order");
        let gated = "b>12 a>01 b@1:5 a@1:6 a@0:6 c>0 c@0:7 b@2:5 c=0 d>2 d@2:7 d=2 b=1 b=2 a=0 a=1";
        assert_eq!(run(gated), Ok(()));
    }
}
