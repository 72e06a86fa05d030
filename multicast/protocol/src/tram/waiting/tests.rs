use alloc::vec::Vec;

use super::*;
use crate::ids::{GroupId, SessionId};
use crate::rank::Rank;

fn message(sequence: u64) -> MessageId {
    MessageId::new(SessionId(1), sequence)
}

fn groups() -> GroupSet {
    [1, 2].map(GroupId).into_iter().collect()
}

/// The entry with this number, about the message of that number.
fn edge(number: u64) -> Edge {
    let content = Content::Message {
        message: message(number),
        low_water: 1,
        destinations: groups(),
        outside: 5_000,
        again: false,
    };
    let number = EdgeNumber { generation: 3, number };
    Edge { number, first: 1, child_generation: 0, place: Rank::new(number.number), content }
}

/// Entries from number 5 on: whether the payload of each is here.
fn waiting(held: &[bool]) -> Waiting {
    let mut waiting = Waiting::default();
    for (number, held) in (5..).zip(held) {
        waiting.push(edge(number), number * 10, *held);
    }
    waiting
}

fn pop(waiting: &mut Waiting) -> Option<u64> {
    waiting.pop_held().map(|edge| edge.number.number)
}

#[test]
fn entries_behind_a_missing_payload_wait_for_it_and_leave_in_order() {
    let mut waiting = waiting(&[false, true, false, true]);
    assert_eq!(waiting.last(), Some(edge(8).number));
    assert_eq!(pop(&mut waiting), None, "the first one has no payload");
    waiting.arrives(message(7));
    assert_eq!(pop(&mut waiting), None, "it was another one's");
    waiting.arrives(message(5));
    assert_eq!([(); 5].map(|()| pop(&mut waiting)), [Some(5), Some(6), Some(7), Some(8), None]);
    assert_eq!(waiting.last(), None);
}

#[test]
fn a_payload_is_awaited_until_its_entry_is_taken() {
    let mut waiting = waiting(&[false, true]);
    assert_eq!(waiting.awaits(message(5)), Some((groups(), 50)));
    assert_eq!(waiting.awaits(message(6)), Some((groups(), 60)), "it is here, and may be a hint");
    assert!(waiting.has(message(6)) && !waiting.has(message(7)));
    waiting.arrives(message(5));
    assert!(waiting.has(message(5)), "until it is taken");
    assert_eq!((pop(&mut waiting), waiting.has(message(5))), (Some(5), false));
    assert_eq!(waiting.awaits(message(5)), None);
}

#[test]
fn an_entry_that_comes_again_may_have_its_payload_by_then() {
    let mut waiting = waiting(&[false, false]);
    assert!(waiting.hear_again(edge(5).number, false) && pop(&mut waiting).is_none());
    assert!(waiting.hear_again(edge(5).number, true));
    assert!(waiting.hear_again(edge(5).number, false), "it stays here");
    assert_eq!(pop(&mut waiting), Some(5));
    assert!(!waiting.hear_again(edge(5).number, true), "it waits no more");
    let former = EdgeNumber { generation: 2, ..edge(6).number };
    assert!(!waiting.hear_again(former, true), "numbers of another generation are others");
    assert_eq!(pop(&mut waiting), None);
}

#[test]
fn no_more_wait_than_the_parent_may_have_under_way() {
    let mut waiting = waiting(&[false; WAITING_MAX + 1]);
    let end = 4 + WAITING_MAX as u64;
    assert_eq!(waiting.last(), Some(edge(end).number));
    waiting.clear();
    assert_eq!((waiting.last(), waiting.has(message(5))), (None, false));
}

#[test]
fn a_payload_that_was_not_fetched_says_nothing_of_those_that_are_on_their_way() {
    let mut waiting = waiting(&[false, false, false]);
    let asked = |waiting: &mut Waiting| waiting.ask().collect::<Vec<_>>();
    assert_eq!(asked(&mut waiting), [5, 6, 7].map(message));
    waiting.hold(message(6));
    assert_eq!(asked(&mut waiting), []);
    waiting.arrives(message(7));
    assert_eq!(asked(&mut waiting), [message(5)], "it was asked for before");
    waiting.hold(message(5));
    assert_eq!(waiting.first().map(|(first, sum)| (first.number, sum)), Some((edge(5).number, 50)));
    assert!(waiting.is_ready());
}

/// The guard that `Mutant::LostHintAskedAgain` takes out.
fn what_was_asked_for_is_on_its_way() {
    let mut waiting = waiting(&[false, true]);
    let asked = |waiting: &mut Waiting| waiting.ask().collect::<Vec<_>>();
    assert_eq!(asked(&mut waiting), [message(5)]);
    for _ in 0..3 {
        waiting.hold(message(5));
        waiting.lose(|_| false);
    }
    assert_eq!(asked(&mut waiting), [message(6)], "it had a hint from the beginning");
    waiting.ask_again();
    assert_eq!(asked(&mut waiting), [message(5)], "the parent has passed it on again");
}

#[test]
fn a_hint_that_comes_and_goes_has_its_payload_fetched_once() {
    what_was_asked_for_is_on_its_way();
}

#[cfg(feature = "mutants")]
#[test]
fn a_payload_that_is_fetched_for_each_lost_hint_is_noticed() {
    use crate::mutants::plant;

    plant(Some(Mutant::LostHintAskedAgain));
    let noticed = std::panic::catch_unwind(what_was_asked_for_is_on_its_way).is_err();
    plant(None);
    assert!(noticed);
}

#[test]
fn payloads_that_are_gone_are_asked_for_together() {
    let mut waiting = waiting(&[true, true, true, false]);
    waiting.lose(|it| it == message(6));
    let asked: Vec<_> = waiting.ask().collect();
    assert_eq!((waiting.is_ready(), asked), (false, [5, 7, 8].map(message).to_vec()));
}
