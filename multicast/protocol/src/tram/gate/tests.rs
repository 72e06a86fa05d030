use alloc::vec;

use super::*;
use crate::ids::SessionId;

fn set(groups: &[u16]) -> GroupSet {
    groups.iter().copied().map(GroupId).collect()
}

/// The gate of g1 in the paper's tree, below g0 and above g2 and g3.
fn gate() -> Gate {
    Gate::new(Tree::base(8), GroupId(1))
}

fn entry(rank: u64, to: &[u16], from: Option<u64>, edges: &[(u16, u64)]) -> Unstable {
    let destinations = set(to);
    let delivered = to.contains(&1).then_some(MessageId::new(SessionId(1), rank));
    let edges = edges.iter().map(|(child, number)| (GroupId(*child), *number)).collect();
    Unstable::new(Rank::new(rank), delivered, destinations, from, edges)
}

#[test]
fn an_entry_is_stable_when_the_words_of_all_its_destinations_cover_it() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4, 6], Some(1), &[(2, 1), (3, 1)]));
    assert!(!gate.has_passed(Rank::new(2)), "it was not looked at yet");
    assert!(gate.settle() && !gate.settle());
    assert!(gate.has_passed(Rank::new(1)) && !gate.has_passed(Rank::new(2)));
    #[rustfmt::skip]
    let words = [
        // up?   of  word  up told  passed  because
        (true,   4,  2,    1,       false,  "the other child has told nothing"),
        (true,   5,  2,    1,       false,  "that is no destination"),
        (true,   6,  1,    1,       false,  "through the edge before it"),
        (true,   6,  2,    2,       false,  "it is stable in the subtree"),
        (false,  1,  2,    2,       false,  "of one destination alone"),
        (false,  4,  2,    2,       false,  "two of three"),
        (false,  6,  2,    2,       true,   "all"),
    ];
    for (up, of, word, told, passed, because) in words {
        let of = GroupId(of);
        if up {
            gate.hear_up(of, word);
        } else {
            gate.hear_down(of, word);
        }
        gate.settle();
        assert_eq!(
            (gate.tells_up(GroupId(1)), gate.has_passed(Rank::new(2))),
            (told, passed),
            "{because}"
        );
    }
    assert_eq!(gate.unstable(), 0);
    assert_eq!(gate.tells_down(GroupId(6)), 2);
}

#[test]
fn who_holds_up_answers_is_known_by_the_words_that_are_missing() {
    let mut gate = gate();
    assert_eq!(gate.holds_up(), None);
    // What is only passed on holds up what comes behind it.
    gate.commit(Unstable { since_ms: 7, ..entry(2, &[4, 5], Some(1), &[(2, 1)]) });
    gate.commit(Unstable { since_ms: 9, ..entry(3, &[1, 0, 6], Some(2), &[(3, 1)]) });
    gate.settle();
    let message = MessageId::new(SessionId(1), 3);
    for (up, of, word, lacks) in [
        (true, 6, 2, &[0, 4, 5][..]),
        (true, 4, 2, &[0, 5]),
        (true, 5, 2, &[0]),
        (false, 6, 3, &[0]),
    ] {
        if up {
            gate.hear_up(GroupId(of), word);
        } else {
            gate.hear_down(GroupId(of), word);
        }
        gate.settle();
        assert_eq!(gate.holds_up(), Some((9, message, set(lacks))), "g{of}");
    }
    for of in [1, 4, 5] {
        gate.hear_down(GroupId(of), 3);
    }
    gate.settle();
    assert_eq!(gate.holds_up(), None);
}

#[test]
fn an_entry_waits_for_earlier_ones_with_a_destination_in_common() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4], None, &[(2, 1)]));
    gate.commit(entry(3, &[1, 6], None, &[(3, 1)]));
    gate.commit(entry(4, &[5, 6], None, &[(2, 2), (3, 2)]));
    gate.hear_up(GroupId(6), 3);
    gate.hear_up(GroupId(5), 3);
    gate.settle();
    assert_eq!(gate.unstable(), 3, "the second waits for the first, and the third for the second");
    assert_eq!((gate.tells_down(GroupId(5)), gate.tells_down(GroupId(6))), (2, 1));
    gate.hear_up(GroupId(4), 2);
    gate.settle();
    assert_eq!(gate.unstable(), 0);
    assert_eq!((gate.tells_down(GroupId(4)), gate.tells_down(GroupId(6))), (3, 3));
}

#[test]
fn our_own_message_bounds_what_our_parent_is_told_of_an_edge_behind_it() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4], None, &[(2, 1)]));
    gate.commit(entry(3, &[0, 1], Some(1), &[]));
    gate.settle();
    assert_eq!(gate.tells_up(GroupId(1)), 1, "nothing is told of the edge");
    gate.hear_up(GroupId(4), 2);
    gate.settle();
    assert_eq!(gate.tells_up(GroupId(1)), 2);
}

#[test]
fn an_answer_rests_on_messages_with_destinations_outside_its_own() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4], None, &[(2, 1)]));
    gate.commit(entry(3, &[1, 4, 5], None, &[(2, 2)]));
    gate.commit(entry(4, &[4, 5], None, &[(2, 3)]));
    gate.settle();
    let end = Rank::new(u64::MAX);
    #[rustfmt::skip]
    let cases = [
        // answer to    below         rests on  because
        (set(&[1]),       end,          3,      "the last one that is delivered here"),
        (set(&[1, 4]),    end,          3,      "g5 is not asked"),
        (set(&[1, 4, 5]), end,          0,      "all of them are asked"),
        (set(&[1, 4]),    Rank::new(3), 0,      "the one before has no other destination"),
        (set(&[1, 5]),    Rank::new(3), 2,      "g4 is not asked"),
    ];
    for (destinations, below, rank, because) in cases {
        assert_eq!(gate.reply_dependency(destinations, below), Rank::new(rank), "{because}");
    }
    assert_eq!(gate.read_dependency(end), Rank::new(3));
    assert_eq!(gate.passed(Rank::new(3)), Rank::new(1));
}

#[test]
fn nothing_that_a_recreated_neighbour_told_counts_any_more() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4], Some(7), &[(2, 3)]));
    gate.hear_up(GroupId(4), 4);
    gate.child_recreated(GroupId(2));
    gate.hear_down(GroupId(1), 8);
    gate.hear_down(GroupId(4), 8);
    gate.settle();
    assert_eq!(gate.unstable(), 1);
    gate.hear_up(GroupId(4), 4);
    gate.parent_recreated();
    gate.settle();
    assert_eq!(gate.unstable(), 1, "the parent's numbers begin anew");
    assert_eq!(gate.tells_up(GroupId(4)), 1);
    for group in [1, 4] {
        gate.hear_down(GroupId(group), 1);
    }
    gate.settle();
    assert_eq!(gate.unstable(), 0, "any word of the new parent covers what came from the old one");
}

#[test]
fn words_of_an_earlier_numbering_are_not_compared_with_later_numbers() {
    let mut gate = gate();
    gate.commit(entry(2, &[1, 4], None, &[(2, 3)]));
    gate.commit(entry(3, &[1, 4], None, &[(2, 4)]));
    gate.hear_up(GroupId(4), 4);
    gate.renumbered(GroupId(2), 3);
    gate.settle();
    assert_eq!((gate.unstable(), gate.tells_down(GroupId(4))), (2, 0));
    gate.hear_up(GroupId(4), 1);
    gate.settle();
    assert_eq!((gate.unstable(), gate.tells_down(GroupId(4))), (1, 1));
    assert_eq!(vec![gate.entries[0].to_children[0].1], [1]);
}

#[test]
fn what_had_passed_before_a_restart_is_stable_whatever_others_tell() {
    let mut gate = gate();
    gate.commit(entry(2, &[4, 6], None, &[(2, 1), (3, 1)]));
    gate.commit(entry(3, &[1, 6], None, &[(3, 2)]));
    gate.commit(entry(4, &[1, 4], None, &[(2, 2)]));
    gate.had_passed(Rank::new(3));
    assert!(gate.has_passed(Rank::new(3)) && !gate.has_passed(Rank::new(4)));
    let read = |below| gate.read_dependency(Rank::new(below));
    assert_eq!((read(4), read(5)), (Rank::NOTHING, Rank::new(4)));
    assert_eq!(gate.unstable(), 2, "nothing is known of what was not delivered here");
    gate.hear_up(GroupId(4), 3);
    gate.settle();
    assert!(!gate.has_passed(Rank::new(4)), "the first shares g4 with it");
    gate.hear_up(GroupId(6), 2);
    gate.settle();
    assert!(gate.has_passed(Rank::new(4)));
    assert_eq!((gate.tells_down(GroupId(4)), gate.tells_down(GroupId(6))), (3, 3));
}
