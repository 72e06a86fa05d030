//! Admission of a replica that has lost its memory, and which replicas have learned of it.

use skein_protocol::ballot::Ballot;
use skein_protocol::group::GroupRecord;
use skein_protocol::step::Event;

use crate::played::{Played, both};
use crate::stage::{Stage, replica};

both!(
    who_has_not_seen_that_it_is_admitted_elects_whoever_has,
    a_join_that_may_be_lost_makes_nobody_grant,
    who_was_told_that_it_is_admitted_says_nothing_of_an_earlier_ballot,
    a_leader_tells_whoever_may_not_know_that_it_is_admitted,
    a_leader_tells_whoever_lets_it_in_again_that_it_is_admitted,
    a_follower_that_alone_knows_of_a_join_tells_whom_it_admits,
);

/// Slot 2 of three, or of five, has lost its memory and restored the state. It lacks its `Join`, which slot 0 has
/// logged and slot 1 holds.
fn join_unseen<O: Played>(count: u8) -> Stage<O> {
    let (leader, other, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, count);
    stage.restart(joiner);
    stage.transfer_state(leader, joiner);
    stage.turn(joiner);
    for slot in 2..count {
        stage.lose_writes(leader, replica(0, slot));
    }
    stage.admitted(leader, joiner);
    stage.turn(other);
    stage.turn(leader);
    stage.told();
    stage
}

fn who_has_not_seen_that_it_is_admitted_elects_whoever_has<O: Played>() {
    let (leader, other, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = join_unseen::<O>(3);
    let incarnation = stage.nodes[&joiner].incarnation;
    assert!(
        stage.core(other).log().view().names(joiner.slot, incarnation),
        "the Join is committed"
    );
    assert!(stage.core(joiner).log().is_silent(), "and the one it is about lacks it");
    stage.restart(leader);
    stage.heal();
    stage.run(other, &[joiner]);
    assert!(stage.core(other).log().leads(), "two of three have their memory: {}", stage.told());
    for id in [joiner, other] {
        stage.turn(id);
    }
    assert!(!stage.core(joiner).log().is_silent());
    assert_eq!(stage.core(other).log().commit_index(), stage.core(other).log().last_index());
}

fn a_join_that_may_be_lost_makes_nobody_grant<O: Played>() {
    let (other, joiner) = (replica(0, 1), replica(0, 2));
    let mut stage = join_unseen::<O>(5);
    let incarnation = stage.nodes[&joiner].incarnation;
    assert_eq!(
        stage.core(other).log().named()[usize::from(joiner.slot)],
        incarnation,
        "it is logged"
    );
    assert_eq!(stage.core(other).log().admitted()[usize::from(joiner.slot)], 0, "by two of five");
    stage.run(other, &[joiner]);
    let told = stage.told();
    assert!(told.contains("g0.2 does not answer g0.1"), "{told}");
}

fn who_was_told_that_it_is_admitted_says_nothing_of_an_earlier_ballot<O: Played>() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 5);
    stage.restart(joiner);
    stage.transfer_state(leader, joiner);
    stage.turn(joiner);
    stage.admitted(leader, joiner);
    stage.turn(joiner);
    let core = stage.core(joiner);
    let (old, join) = (core.log().ballot(), core.log().last_index());
    let later = Ballot::new(old.counter() + 1, 1, 0);
    // A later leader has committed another `Join` of it, and this one may be cut off.
    core.hear_admitted(later, 1);
    assert!(
        core.log().is_silent(),
        "what it says in {old} may count with what its former incarnation had said"
    );
    core.let_lead(later);
    core.begin_to_follow(later, join - 1, join);
    assert!(core.log().is_silent(), "it has no Join of the later log");
    core.step(
        Event::Logged {
            index: join,
            birth: later,
            time_ms: 0,
            record: GroupRecord::Join { slot: joiner.slot, incarnation: 1 }.into(),
            held: true,
            last: true,
        },
        &mut Vec::new(),
    );
    assert!(!core.log().is_silent(), "it holds that one, and knows that it is committed");
}

fn a_leader_tells_whoever_may_not_know_that_it_is_admitted<O: Played>() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(joiner);
    stage.transfer_state(leader, joiner);
    stage.turn(joiner);
    stage.admitted(leader, joiner);
    assert!(!stage.core(leader).tells_admitted(joiner.slot), "it is not committed");
    // The other's words do not reach the joiner. Then the other dies.
    stage.lose_words(replica(0, 1), joiner);
    for id in [replica(0, 1), leader, joiner] {
        stage.turn(id);
    }
    stage.restart(replica(0, 1));
    assert!(stage.core(joiner).log().is_silent());
    assert!(stage.core(leader).tells_admitted(joiner.slot));
    let ballot = stage.core(leader).log().ballot();
    stage.core(joiner).hear_admitted(ballot, 1);
    stage.turn(joiner);
    stage.turn(leader);
    assert!(!stage.core(leader).tells_admitted(joiner.slot), "it has acknowledged");
}

/// The joiner asked for admission again before the `Join` was committed, so nothing sent at that time reports it.
fn a_leader_tells_whoever_lets_it_in_again_that_it_is_admitted<O: Played>() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(joiner);
    stage.transfer_state(leader, joiner);
    stage.turn(joiner);
    stage.admitted(leader, joiner);
    stage.lose_words(replica(0, 1), joiner);
    for id in [replica(0, 1), leader, joiner] {
        stage.turn(id);
    }
    stage.restart(replica(0, 1));
    let core = stage.core(leader);
    let incarnation = core.log().view().member(joiner.slot).incarnation;
    core.remove_follower(joiner.slot);
    assert!(!core.tells_admitted(joiner.slot), "it does not listen");
    core.add_follower(joiner.slot, incarnation);
    assert!(core.tells_admitted(joiner.slot), "or it would be silent for ever");
    let ballot = core.log().ballot();
    assert!(stage.core(joiner).log().is_silent());
    stage.core(joiner).hear_admitted(ballot, 1);
    stage.turn(joiner);
    stage.turn(leader);
    assert!(!stage.core(leader).tells_admitted(joiner.slot), "it has acknowledged");
}

fn a_follower_that_alone_knows_of_a_join_tells_whom_it_admits<O: Played>() {
    let (leader, follower, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(joiner);
    stage.transfer_state(leader, joiner);
    stage.turn(joiner);
    stage.admitted(leader, joiner);
    assert!(!stage.core(follower).tells_admitted(joiner.slot), "it has not read it");
    // The follower's words reach no other replica, so it alone sees that the `Join` is committed.
    stage.lose_words(follower, leader);
    stage.lose_words(follower, joiner);
    for id in [follower, joiner] {
        stage.turn(id);
    }
    assert!(stage.core(joiner).log().is_silent());
    assert!(stage.core(follower).tells_admitted(joiner.slot));
    let ballot = stage.core(follower).log().ballot();
    stage.core(joiner).hear_admitted(ballot, 1);
    stage.turn(joiner);
    stage.turn(follower);
    assert!(!stage.core(joiner).log().is_silent());
    assert!(!stage.core(follower).tells_admitted(joiner.slot), "it has acknowledged");
}
