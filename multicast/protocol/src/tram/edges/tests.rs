use super::*;
use crate::ids::{MessageId, SessionId};

fn message(sequence: u64) -> Content {
    let (message, destinations) = (MessageId::new(SessionId(1), sequence), GroupSet::first(2));
    Content::Message { message, low_water: 1, destinations, outside: 0, again: false }
}

/// A table of a parent in generation 0 with so many edges.
fn table(edges: u64) -> Outgoing {
    let mut table = Outgoing::default();
    for number in 1..=edges {
        assert_eq!(table.push(Rank::new(10 * number), message(number)), number);
    }
    table
}

fn at(generation: u32, number: u64) -> EdgeNumber {
    EdgeNumber { generation, number }
}

fn numbers(table: &mut Outgoing, ours: u32, most: usize) -> Vec<u64> {
    table.send(ours, most).map(|edge| edge.number.number).collect()
}

/// A child's leader that logs and commits at once.
struct Child {
    taken: Incoming,
    generation: u32,
    messages: Vec<u64>,
}

impl Child {
    fn new(generation: u32) -> Self {
        Self { taken: Incoming::new(2), generation, messages: Vec::new() }
    }

    fn hear(&mut self, edge: &Edge) -> Judgement {
        let judgement = self.taken.judge(edge, self.generation);
        if judgement == Judgement::Next {
            self.taken.log(edge.number);
            if self.taken.fold(edge.number, edge.place, GroupId(0)) {
                self.messages.extend(edge.content.message().map(|it| it.sequence));
            }
        }
        judgement
    }
}

#[test]
fn what_is_sent_is_sent_once_until_it_is_to_be_sent_again() {
    let mut table = table(5);
    assert_eq!(numbers(&mut table, 0, 2), [1, 2]);
    assert_eq!(numbers(&mut table, 0, 9), [3, 4, 5]);
    assert_eq!(numbers(&mut table, 0, 9), []);
    assert!(table.acknowledge(0, at(0, 3), 0));
    assert_eq!((table.first(), table.unacknowledged(), table.is_awaited()), (4, 2, true));
    table.rewind();
    assert!(!table.is_awaited());
    let sent: Vec<_> = table.send(0, 1).collect();
    let number = at(0, 4);
    let edge =
        Edge { number, first: 4, child_generation: 0, place: Rank::new(40), content: message(4) };
    assert_eq!(sent, [edge]);
}

#[test]
fn an_acknowledgement_counts_for_the_generations_that_it_names_and_once() {
    #[rustfmt::skip]
    let cases = [
        // ours, taken,     child, counts, because
        (0,      at(0, 2),  0,     true,   "it is of this parent and of this child"),
        (1,      at(0, 2),  0,     false,  "the parent numbers anew"),
        (0,      at(1, 2),  0,     false,  "it is of a later parent"),
        (0,      at(0, 2),  1,     false,  "no marker of that child is committed"),
        (0,      at(0, 0),  0,     false,  "nothing is taken"),
    ];
    for (ours, taken, child, counts, because) in cases {
        let mut table = table(5);
        assert_eq!(table.acknowledge(ours, taken, child), counts, "{because}");
        assert_eq!(table.unacknowledged(), if counts { 3 } else { 5 }, "{because}");
        assert!(!table.acknowledge(ours, taken, child), "a second time: {because}");
    }
    let mut late = table(5);
    assert!(late.acknowledge(0, at(0, 4), 0) && !late.acknowledge(0, at(0, 2), 0), "reordered");
    assert_eq!(numbers(&mut late, 0, 9), [5], "what was acknowledged need not be sent");
}

#[test]
fn lost_reordered_and_repeated_edges_are_taken_once_each_and_in_order() {
    for seed in 0..300_u64 {
        let (mut state, mut child) = (seed, Child::new(0));
        let mut random = move |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        // Two replicas of the parent, either of which may lead.
        let mut parents = [table(0), table(0)];
        let (mut leader, mut numbered, mut way) = (0, 0, Vec::new());
        for _ in 0..400 {
            match random(8) {
                0 | 1 if numbered < 40 => {
                    numbered += 1;
                    for parent in &mut parents {
                        parent.push(Rank::new(10 * numbered), message(numbered));
                    }
                }
                2 => way.extend(parents[leader].send(0, 3)),
                3 => parents[leader].rewind(),
                4 if !way.is_empty() => _ = way.swap_remove(random(way.len() as u64) as usize),
                5 | 6 if !way.is_empty() => {
                    let edge = way[random(way.len() as u64) as usize];
                    child.hear(&edge);
                }
                7 => {
                    // Either replica may miss the acknowledgement.
                    parents[random(2) as usize].acknowledge(0, child.taken.committed(), 0);
                    if random(8) == 0 {
                        leader = 1 - leader;
                        parents[leader].rewind();
                    }
                }
                _ => {}
            }
        }
        parents[leader].rewind();
        for edge in parents[leader].send(0, usize::MAX) {
            child.hear(&edge);
        }
        assert_eq!(child.messages, (1..=numbered).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn a_leader_of_the_child_counts_to_the_end_of_its_log() {
    let mut parent = table(3);
    let edges: Vec<_> = parent.send(0, 9).collect();
    let mut taken = Incoming::new(2);
    assert_eq!(taken.judge(&edges[1], 0), Judgement::Early);
    assert_eq!(taken.judge(&edges[0], 0), Judgement::Next);
    taken.log(edges[0].number);
    assert_eq!(taken.judge(&edges[0], 0), Judgement::Known);
    assert_eq!(taken.judge(&edges[1], 0), Judgement::Next);
    assert_eq!(taken.committed(), at(0, 0), "nothing is committed");
    taken.truncate(None);
    assert_eq!(taken.judge(&edges[0], 0), Judgement::Next, "its end was cut off");
}

/// A parent that was recreated from a survivor's state numbers anew what the child had not acknowledged to it. The child
/// had taken more.
#[test]
fn a_recreated_parent_repeats_with_new_numbers_what_the_child_takes_once() {
    let (mut parent, mut child) = (table(5), Child::new(0));
    for edge in parent.send(0, 4) {
        assert_eq!(child.hear(&edge), Judgement::Next);
    }
    let old: Vec<_> = parent.send(0, 1).collect();
    parent.acknowledge(0, at(0, 2), 0);
    assert_eq!((parent.renumber(), parent.first(), parent.numbered()), (2, 1, 3));
    let new: Vec<_> = parent.send(1, 9).collect();
    assert_eq!(child.hear(&new[1]), Judgement::Early);
    assert_eq!(child.hear(&new[0]), Judgement::Next);
    assert_eq!(
        child.hear(&old[0]),
        Judgement::Former,
        "no edge of the former generation after that"
    );
    assert_eq!(child.hear(&new[1]), Judgement::Next);
    assert_eq!(child.hear(&new[2]), Judgement::Next);
    assert_eq!(child.messages, [1, 2, 3, 4, 5]);
}

#[test]
fn a_recreated_child_begins_behind_what_its_former_self_acknowledged() {
    let mut parent = table(5);
    let former: Vec<_> = parent.send(0, 9).collect();
    parent.acknowledge(0, at(0, 3), 0);
    let mut child = Child::new(1);
    assert!(!child.taken.may_order(1));
    assert_eq!(child.hear(&former[0]), Judgement::Former, "it is meant for the former self");
    parent.recreated(1);
    let marker = Content::Marker { group: GroupId(1), generation: 1 };
    parent.push(Rank::new(60), marker);
    assert!(!parent.acknowledge(0, at(0, 5), 0), "the former self had taken more");
    let edges: Vec<_> = parent.send(0, 9).collect();
    let heard: Vec<_> = edges.iter().map(|edge| child.hear(edge)).collect();
    assert_eq!(heard, [Judgement::Next; 3]);
    assert_eq!(child.messages, [4, 5]);
    child.taken.mark(1);
    assert!(child.taken.may_order(1) && !child.taken.may_order(2));
    assert!(parent.acknowledge(0, at(0, 6), 1));
    assert_eq!(
        child.hear(&Edge { number: at(0, 9), first: 9, ..edges[2] }),
        Judgement::Early,
        "no jump from now on"
    );
}

#[test]
fn a_group_closes_what_is_behind_a_full_table_and_reopens_it() {
    let (below, elsewhere) = (GroupSet::first(3), GroupSet::single(GroupId(9)));
    let mut table = table(ROOM as u64 / 2 - 1);
    assert_eq!(table.closed(below), GroupSet::EMPTY);
    table.report_closed(GroupSet::first(1).union(elsewhere));
    assert_eq!(table.closed(below), GroupSet::first(1), "a child says what is closed below it");
    table.push(Rank::new(u64::MAX), message(1));
    assert_eq!(table.closed(below), below);
    table.acknowledge(0, at(0, ROOM as u64 / 4), 0);
    assert_eq!(table.closed(below), below, "there is some room");
    table.acknowledge(0, at(0, ROOM as u64 / 4 + 1), 0);
    assert_eq!(table.closed(below), GroupSet::first(1));
}

/// A message with a payload of so many bytes outside the log.
fn large(sequence: u64, outside: u32) -> Content {
    let (message, destinations) = (MessageId::new(SessionId(1), sequence), GroupSet::first(2));
    Content::Message { message, low_water: 1, destinations, outside, again: false }
}

/// The guard that `Mutant::KeptBytesNotCounted` takes out.
fn a_table_is_full_of_bytes() {
    let below = GroupSet::first(3);
    let mut table = Outgoing::with_room(100);
    for (outside, closed) in [(50, false), (0, false), (1, true), (30, true)] {
        table.push(Rank::new(u64::MAX), large(1, outside));
        assert_eq!(!table.closed(below).is_empty(), closed, "{outside} more bytes");
        let restored = Outgoing::restore(100, 0, table.numbered, table.kept.clone());
        assert_eq!(restored.closed(below), table.closed(below), "so is the state");
    }
    for (number, closed) in [(1, true), (2, true), (3, true), (4, false)] {
        table.acknowledge(0, at(0, number), 0);
        assert_eq!(!table.closed(below).is_empty(), closed, "{number} are acknowledged");
    }
    assert_eq!(table.kept_bytes, 0);
}

#[test]
fn a_group_closes_what_is_behind_a_table_that_is_full_of_bytes() {
    a_table_is_full_of_bytes();
}

#[test]
fn what_a_leader_logs_counts_before_it_is_committed() {
    let (tree, own, below) = (Tree::breadth(3), GroupId(0), GroupSet::single(GroupId(1)));
    let mut children = Children::of(&tree, own, 200);
    let two = [large(1, 40), large(2, 40)];
    for content in &two {
        children.log(&tree, own, content);
    }
    assert_eq!(children.closed(&tree), below, "they go to that child alone");
    let table = children.get_mut(GroupId(1)).expect("a child");
    table.push(Rank::new(1), two[0]);
    table.acknowledge(0, at(0, 1), 0);
    assert_eq!(table.closed(below), below, "the other one is under way");
    children.commit_stale(&tree, own, &two[1]);
    let table = children.get_mut(GroupId(1)).expect("a child");
    table.push(Rank::new(2), large(3, 25));
    table.acknowledge(0, at(0, 2), 0);
    assert_eq!(table.closed(below), GroupSet::EMPTY, "it has all");

    for content in &two {
        children.log(&tree, own, content);
    }
    let table = children.get_mut(GroupId(1)).expect("a child");
    assert_eq!(table.closed(below), below);
    table.forget_logged();
    assert_eq!(table.closed(below), GroupSet::EMPTY, "they may have been cut off");
    table.push(Rank::new(3), two[0]);
    table.push(Rank::new(4), two[1]);
    table.forget_logged();
    assert_eq!(table.closed(below), below, "what is committed counts whoever leads");
}

#[cfg(feature = "mutants")]
#[test]
fn a_table_that_counts_no_bytes_is_noticed() {
    use crate::mutants::plant;

    plant(Some(Mutant::KeptBytesNotCounted));
    let noticed = std::panic::catch_unwind(a_table_is_full_of_bytes).is_err();
    plant(None);
    assert!(noticed);
}

#[test]
fn children_that_are_down_together_leave_half_of_what_a_replica_may_hold() {
    let tree = Tree::breadth(8);
    let mut children = Children::of(&tree, GroupId(0), 14_000);
    assert_eq!(bytes_for_each(&tree, GroupId(1), 14_000), 14_000, "it has none");
    for (child, table) in children.iter_mut() {
        table.push(Rank::new(1), large(1, 1_000));
        assert_eq!(table.closed(tree.below(child)), GroupSet::EMPTY);
        table.push(Rank::new(2), large(2, 1));
        assert_eq!(table.closed(tree.below(child)), tree.below(child));
    }
}

#[test]
fn the_tables_of_a_group_are_its_childrens() {
    let tree = Tree::base(8);
    let mut children = Children::of(&tree, GroupId(1), u64::MAX);
    assert!(children.iter().map(|(child, _)| child).eq([GroupId(2), GroupId(3)]));
    assert!(children.get_mut(GroupId(4)).is_none());
    children.get_mut(GroupId(3)).expect("a child").report_closed(GroupSet::single(GroupId(7)));
    assert_eq!(children.closed(&tree), GroupSet::single(GroupId(7)));
}

#[test]
fn an_edge_is_read_as_it_was_written_and_not_if_it_is_cut_off() {
    let mut parent = table(3);
    parent.recreated(7);
    parent.push(Rank::new(u64::MAX), Content::Marker { group: GroupId(63), generation: 9 });
    parent.acknowledge(5, at(5, 1), 7);
    for edge in parent.send(5, 9).collect::<Vec<_>>() {
        let mut bytes = Vec::new();
        edge.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Edge::decode(&bytes[..cut]), None, "{edge:?}, cut off at {cut}");
        }
        bytes.extend_from_slice(b"payload");
        assert_eq!(Edge::decode(&bytes), Some((edge, &b"payload"[..])));
        let mut refused = Vec::new();
        Edge { first: edge.number.number + 1, ..edge }.encode(&mut refused);
        assert_eq!(Edge::decode(&refused), None, "its number is below the oldest");
    }
}

#[test]
fn a_group_takes_from_its_parent_what_goes_past_it() {
    let tree = Tree::base(8);
    let to = |groups: &[u16]| {
        let destinations = groups.iter().copied().map(GroupId).collect();
        let message = MessageId::new(SessionId(1), 1);
        Content::Message { message, low_water: 1, destinations, outside: 0, again: false }
    };
    let marker = |group| Content::Marker { group: GroupId(group), generation: 1 };
    #[rustfmt::skip]
    let cases = [
        // content        group  passes  because
        (to(&[2, 3]),     2,     true,   "it is a destination below the ancestor g1"),
        (to(&[4, 6]),     2,     true,   "it is a bystander"),
        (to(&[4, 5]),     2,     false,  "it is the ancestor itself"),
        (to(&[6, 7]),     2,     false,  "it is on another branch"),
        (to(&[1, 3]),     2,     false,  "nobody there is a destination"),
        (to(&[2, 9]),     2,     false,  "there is no such group"),
        (marker(2),       2,     true,   "its own, from its parent"),
        (marker(2),       4,     true,   "it is in the subtree"),
        (marker(2),       3,     false,  "it is in another one"),
        (marker(8),       2,     false,  "there is no such group"),
    ];
    for (content, group, passes, because) in cases {
        assert_eq!(content.passes(GroupId(group), &tree), passes, "{because}");
    }
}

#[test]
fn a_follower_keeps_no_edge_that_was_acknowledged_before_it_commits_it() {
    let mut table = table(2);
    assert!(table.acknowledge(0, at(0, 4), 0));
    assert_eq!((table.unacknowledged(), table.first()), (0, 3));
    for number in 3..=5 {
        assert_eq!(table.push(Rank::new(10 * number), message(number)), number);
    }
    assert_eq!(numbers(&mut table, 0, 9), [5]);
    assert_eq!((table.unacknowledged(), table.first()), (1, 5));
}
