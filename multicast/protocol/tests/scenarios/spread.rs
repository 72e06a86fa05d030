//! Leadership that returns to slot 0 by itself.

use skein_protocol::ballot::Ballot;
use skein_protocol::divergence::Slots;
use skein_protocol::group::transfer::Request;
use skein_protocol::group::{Cause, GroupEvent};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::rank::Rank;

use crate::by_hand::{Answer, ByHand};
use crate::played::{Played, both};
use crate::stage::{Stage, message, replica};

both!(the_leader_of_a_single_group_stays,);

/// As in `stage::config`.
const WAIT_MS: u64 = 3_000;

/// A cluster in which slot 1 leads g0, because slot 0 was silent. Slot 0 is a follower again.
fn moved<O: Played>(groups: u16) -> Stage<O> {
    let mut stage = Stage::<O>::new(groups, 3);
    // Time does not begin at 0.
    pass(&mut stage, 100);
    take_over(&mut stage);
    stage
}

fn take_over<O: Played>(stage: &mut Stage<O>) {
    let (old, new, other) = (replica(0, 0), replica(0, 1), replica(0, 2));
    stage.silence(old);
    stage.campaign(new, Cause::Silence);
    stage.ask(new, other);
    stage.ask(new, old);
    settle(stage);
    assert!(stage.core(new).log().leads());
}

/// Slot 0 leads g0 again, on request.
fn give_back(stage: &mut Stage) {
    let (preferred, leader, other) = (replica(0, 0), replica(0, 1), replica(0, 2));
    stage.core(leader).happens(GroupEvent::HandsOver { to: 0 });
    stage.campaign(preferred, Cause::Transfer);
    stage.ask(preferred, other);
    stage.ask(preferred, leader);
    settle(stage);
    assert!(stage.core(preferred).log().leads());
}

fn settle<O: Played>(stage: &mut Stage<O>) {
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    for id in all.iter().chain(&all).chain(&all) {
        stage.turn(*id);
    }
}

/// All replicas are seen to be well for so long.
fn pass<O: Played>(stage: &mut Stage<O>, ms: u64) {
    for _ in 0..ms / 5 {
        stage.pass(5, &[]);
    }
    settle(stage);
}

fn hands_over<O: Played>(stage: &mut Stage<O>) -> Option<u8> {
    stage.core(replica(0, 1)).hands_over(Slots::default())
}

#[test]
fn a_leader_hands_over_to_slot_0_when_both_have_been_well_for_long() {
    let mut stage = moved::<Ramcast>(2);
    assert_eq!(hands_over(&mut stage), None);
    pass(&mut stage, WAIT_MS - 50);
    assert_eq!(hands_over(&mut stage), None, "not so soon");
    pass(&mut stage, 100);
    assert_eq!(hands_over(&mut stage), Some(0));
    give_back(&mut stage);
    pass(&mut stage, 2 * WAIT_MS);
    for slot in 0..3 {
        assert_eq!(stage.core(replica(0, slot)).hands_over(Slots::default()), None, "slot {slot}");
    }
}

#[test]
fn a_request_is_repeated_twice_and_no_more() {
    let mut stage = moved::<Ramcast>(2);
    let mut asked = 0;
    for _ in 0..20 {
        pass(&mut stage, WAIT_MS + 50);
        if hands_over(&mut stage).is_some() {
            stage.core(replica(0, 1)).happens(GroupEvent::HandsOver { to: 0 });
            assert_eq!(hands_over(&mut stage), None, "it waits for an answer");
            asked += 1;
        }
    }
    assert_eq!(asked, 3);
}

#[test]
fn a_leader_that_an_operator_asked_for_stays() {
    let mut stage = Stage::<Ramcast>::new(2, 3);
    pass(&mut stage, 100);
    stage.run(replica(0, 1), &[replica(0, 0), replica(0, 2)]);
    settle(&mut stage);
    // In a higher ballot, which another replica made necessary, it is still the replica that was asked to lead.
    stage.campaign(replica(0, 1), Cause::Preempted);
    stage.ask(replica(0, 1), replica(0, 2));
    stage.ask(replica(0, 1), replica(0, 0));
    settle(&mut stage);
    assert!(stage.core(replica(0, 1)).log().leads());
    pass(&mut stage, 3 * WAIT_MS);
    assert_eq!(hands_over(&mut stage), None);
    // Leadership has changed for another reason.
    give_back(&mut stage);
    take_over(&mut stage);
    pass(&mut stage, 20 * WAIT_MS);
    assert_eq!(hands_over(&mut stage), Some(0));
}

#[test]
fn nothing_is_handed_over_to_a_replica_that_has_not_caught_up() {
    let mut stage = moved::<Ramcast>(2);
    pass(&mut stage, WAIT_MS + 50);
    assert_eq!(hands_over(&mut stage), Some(0));
    let leader = replica(0, 1);
    stage.lose_writes(leader, replica(0, 0));
    stage.land(leader, message(1), GroupSet::single(GroupId(0)));
    settle(&mut stage);
    assert_eq!(hands_over(&mut stage), None, "it lacks what is committed");
}

#[test]
fn nothing_is_handed_over_to_a_replica_that_lags_with_its_log_or_while_another_is_sent_our_state() {
    let mut stage = moved::<Ramcast>(2);
    pass(&mut stage, WAIT_MS + 50);
    let leader = stage.core(replica(0, 1));
    let lags = |slots: &[u8]| slots.iter().copied().collect::<Slots>();
    assert_eq!(leader.hands_over(lags(&[0])), None);
    assert_eq!(leader.hands_over(lags(&[2])), Some(0));
    let request = Request {
        slot: 2,
        incarnation: 1,
        needs: Some(Ballot::ZERO),
        applied: Rank::NOTHING,
        taken: None,
        log: None,
    };
    assert_eq!(leader.asked_for_state(&request, true), Answer::Begin);
    assert_eq!(leader.hands_over(lags(&[])), None);
}

#[test]
fn nothing_is_handed_over_to_a_replica_that_was_silent_for_long() {
    let mut stage = moved::<Ramcast>(2);
    pass(&mut stage, WAIT_MS + 50);
    stage.silence(replica(0, 0));
    assert_eq!(hands_over(&mut stage), None);
    pass(&mut stage, WAIT_MS - 50);
    assert_eq!(hands_over(&mut stage), None);
    pass(&mut stage, 100);
    assert_eq!(hands_over(&mut stage), Some(0));
}

fn the_leader_of_a_single_group_stays<O: Played>() {
    let mut stage = moved::<O>(1);
    pass(&mut stage, 3 * WAIT_MS);
    assert_eq!(hands_over(&mut stage), None);
}

#[test]
fn a_slot_0_that_falls_again_and_again_is_waited_for_longer_each_time() {
    let mut stage = moved::<Ramcast>(2);
    let mut waited = Vec::new();
    for _ in 0..7 {
        let mut ms = 0;
        while hands_over(&mut stage).is_none() {
            pass(&mut stage, 50);
            ms += 50;
            assert!(ms < 40 * WAIT_MS);
        }
        waited.push(ms / WAIT_MS);
        give_back(&mut stage);
        take_over(&mut stage);
    }
    assert_eq!(waited, [1, 2, 4, 8, 16, 16, 16]);
}
