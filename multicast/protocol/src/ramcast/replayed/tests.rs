use alloc::vec::Vec;

use super::super::delivery::DeliveryQueue;
use super::super::log::Remote;
use super::*;
use crate::ballot::Ballot;
use crate::ids::{GroupId, MessageId, SessionId};

/// Everything up to here had been delivered.
const THROUGH: u64 = 10;

fn at(clock: u64, group: u16) -> Timestamp {
    Timestamp::new(clock, GroupId(group))
}

/// What is known of a message to groups 0, 1 and 2, when everything up to `THROUGH` had been delivered. Group 0, which is
/// ours, has proposed to deliver it at `local`; the others' proposals that are there are not proven.
fn known(local: u64, remotes: &[Timestamp]) -> (Vec<u16>, Timestamp) {
    let mut replayed = Replayed::default();
    replayed.reach(at(THROUGH, 2).into());
    let (proven, bound) = replayed.known_of(&pending(local, remotes));
    (proven.iter().map(|group| group.0).collect(), bound)
}

fn pending(local: u64, remotes: &[Timestamp]) -> Pending {
    let message = MessageId::new(SessionId(1), 1);
    let (ballot, index) = (Ballot::new(1, 0, 0), 5);
    let proposed = |timestamp: &Timestamp| Remote { message, timestamp: *timestamp, ballot, index };
    let mut order = DeliveryQueue::default();
    let (destinations, local) = (GroupSet::first(3), at(local, 0));
    order.local(Pending::new(message, 1, destinations, local, 1, 0, true, Vec::new()));
    order.remotes(&remotes.iter().map(proposed).collect::<Vec<_>>());
    order.get(message).expect("it is pending").clone()
}

#[test]
fn a_message_ends_at_its_highest_proposal_if_all_are_there_and_none_is_above() {
    assert_eq!(known(3, &[at(7, 1), at(5, 2)]), ([1, 2].into(), at(7, 1)));
    assert_eq!(known(8, &[at(7, 1), at(5, 2)]), ([1, 2].into(), at(8, 0)));
    assert_eq!(known(3, &[at(7, 1), at(THROUGH, 2)]), ([1, 2].into(), at(THROUGH, 2)), "the last");
}

#[test]
fn a_message_with_a_proposal_above_ends_at_the_lowest_such_or_above_and_nothing_is_proven() {
    assert_eq!(known(3, &[at(12, 1), at(5, 2)]), ([].into(), at(12, 1)));
    assert_eq!(known(3, &[at(12, 1), at(11, 2)]), ([].into(), at(11, 2)));
    assert_eq!(known(3, &[at(12, 1)]), ([].into(), at(12, 1)), "one is not there");
}

#[test]
fn a_message_that_lacks_a_proposal_and_has_none_above_stays_blocked() {
    assert_eq!(known(3, &[at(7, 1)]), ([].into(), at(3, 0)));
    assert_eq!(known(3, &[]), ([].into(), at(3, 0)));
}

#[test]
fn nothing_more_is_known_of_what_ends_above_what_was_delivered() {
    assert_eq!(known(11, &[at(7, 1), at(5, 2)]), ([].into(), at(11, 0)));
    let fresh = Replayed::default().known_of(&pending(3, &[at(7, 1), at(5, 2)]));
    assert_eq!(fresh, (GroupSet::EMPTY, at(3, 0)), "it did not begin with what a disk holds");
}
