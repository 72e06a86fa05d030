//! Who may lead, whose log is taken over, and what a change of leader makes of it.

use skein_protocol::ids::GroupSet;
use skein_protocol::ramcast::{Cause, Role};
use skein_protocol::step::Event;

use crate::stage::{Stage, message, replica};

#[test]
fn a_candidate_commits_nothing_in_the_ballot_that_it_has_left() {
    let (old, other, candidate) = (replica(0, 0), replica(0, 2), replica(0, 1));
    let mut stage = Stage::new(1, 3);
    stage.run(other, &[old]);
    stage.lose_writes(other, old);
    stage.lose_writes(other, candidate);
    stage.land(other, message(1), GroupSet::first(1));
    stage.turn(other);
    // It takes over what nobody else holds. Whom it followed before has not written a word of it.
    stage.run(candidate, &[other]);
    stage.turn(candidate);
    assert!(stage.core(candidate).leads());
    assert_eq!(stage.core(candidate).commit_index(), 1);
    assert!(stage.delivered(candidate).is_empty());
}

#[test]
fn a_leader_outbids_whoever_has_the_same_counter_and_a_higher_slot() {
    let (leader, loser) = (replica(0, 1), replica(0, 4));
    let mut stage = Stage::unled(1, 5);
    stage.campaign(loser, Cause::Start);
    stage.campaign(leader, Cause::Start);
    for slot in [2, 3] {
        stage.ask(leader, replica(0, slot));
    }
    assert!(stage.core(leader).leads() && !stage.core(leader).is_outbid());
    stage.ask(leader, loser);
    assert!(stage.core(leader).is_outbid(), "{}", stage.told());
    stage.run(leader, &[loser]);
    assert_eq!(stage.core(loser).promised(), stage.core(leader).promised());
}

#[test]
fn who_has_stepped_down_is_not_elected_by_a_grant_that_comes_late() {
    let leader = replica(0, 0);
    let mut stage = Stage::unled(1, 3);
    stage.campaign(leader, Cause::Start);
    stage.ask(leader, replica(0, 1));
    let core = stage.core(leader);
    core.step(Event::Denied, &mut Vec::new());
    assert_eq!((core.role(), core.asks()), (Role::Follower, None));
    let last = (core.last_birth(), core.last_index());
    assert_eq!(core.granted(2, 0, last, vec![0; 3]), None);
}
