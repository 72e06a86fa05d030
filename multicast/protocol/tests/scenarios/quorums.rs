//! What counts towards a quorum, and what does not.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::{Cause, GroupRecord};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{EffectOf, OrderingProtocol as _};
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::{PeerEffect, PeerEvent, Ramcast};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::ByHand;
use crate::played::{Played, both};
use crate::stage::{Stage, config, message, replica, sends_state};

both!(
    an_acknowledgement_counts_only_for_the_ballot_it_names,
    nothing_is_committed_below_the_ballots_first_entry,
    completions_count_only_for_whoever_has_caught_up,
    what_completed_in_an_earlier_ballot_counts_for_nothing_in_this_one,
    completions_behind_a_payload_that_was_let_go_count_only_with_a_word,
    #[should_panic(expected = "a follower never skips an entry")]
    a_gap_in_the_log_is_no_log,
);

fn received<R, H>(destinations: GroupSet) -> Event<R, H> {
    Event::Received { message: message(1), low_water: 1, destinations, outside: 0 }
}

fn acknowledged<R, H>(by: ReplicaId, ballot: Ballot, index: u64) -> Event<R, H> {
    Event::Acknowledged { by, acceptance: Acceptance { tag: ballot.tag(), index } }
}

/// Slot 0 of g0, which leads in ballot 1.r0i0.
fn leader<O: Played>(groups: u16) -> O {
    let mut effects = Vec::new();
    let mut leader = O::new(config(replica(0, 0), 0, groups, 3), View::first(3));
    let ballot = leader.campaign(Cause::Start);
    for slot in 0..2 {
        leader.granted(slot, 0, (Ballot::ZERO, 0), vec![0; 3]);
    }
    leader.begin_to_lead(&mut effects);
    leader.add_follower(1, 0);
    leader.step(acknowledged(replica(0, 1), ballot, 1), &mut effects);
    assert_eq!(ballot, Ballot::new(1, 0, 0));
    leader
}

/// Slot 1 of g0, which follows slot 0 in a ballot whose own first entry is `first`.
fn follower<O: Played>(ballot: Ballot, first: u64) -> O {
    let mut follower = O::new(config(replica(0, 1), 0, 1, 3), View::first(3));
    follower.let_lead(ballot);
    follower.begin_to_follow(ballot, 0, first);
    follower
}

fn an_acknowledgement_counts_only_for_the_ballot_it_names<O: Played>() {
    let ours = Ballot::new(1, 0, 0);
    #[rustfmt::skip]
    let cases = [
        // acknowledged in       delivered  because
        (ours,                   true,      "it is the leader's ballot"),
        (Ballot::new(2, 0, 0),   false,     "the same leader may have come back with another log"),
        (Ballot::new(1, 1, 0),   false,     "another leader has another log"),
    ];
    for (ballot, delivered, because) in cases {
        let mut effects = Vec::new();
        let mut leader = self::leader::<O>(1);
        leader.step(received(GroupSet::first(1)), &mut effects);
        leader.step(acknowledged(replica(0, 1), ballot, 2), &mut effects);
        leader.step(Event::TurnEnd, &mut effects);
        assert_eq!(leader.deliver().is_some(), delivered, "{because}");
    }
}

#[test]
fn a_word_of_another_group_counts_only_for_the_ballot_it_names() {
    let ours = Ballot::new(1, 0, 0);
    #[rustfmt::skip]
    let cases = [
        // acknowledged in       delivered  because
        (ours,                   true,      "g1 has proposed in it"),
        (Ballot::new(2, 0, 0),   false,     "g1's leader may have come back with another log"),
        (Ballot::new(1, 1, 0),   false,     "another leader of g1 has another log"),
    ];
    for (ballot, delivered, because) in cases {
        let mut effects = Vec::new();
        let mut leader = self::leader::<Ramcast>(2);
        leader.step(received(GroupSet::first(2)), &mut effects);
        let announcement = Announcement {
            message: message(1),
            low_water: 1,
            destinations: GroupSet::first(2),
            timestamp: Timestamp::new(7, GroupId(1)),
            ballot: ours,
            index: 2,
            again: None,
        };
        leader.step(
            Event::Heard(PeerEvent::Announced { from: replica(1, 0), announcement }),
            &mut effects,
        );
        leader.step(Event::TurnEnd, &mut effects);
        leader.step(Event::Completed { slot: 1, index: 3 }, &mut effects);
        leader.step(acknowledged(replica(1, 2), ballot, 2), &mut effects);
        assert_eq!(leader.deliver().is_some(), delivered, "{because}");
    }
}

fn nothing_is_committed_below_the_ballots_first_entry<O: Played>() {
    let mut effects = Vec::new();
    let mut follower = follower::<O>(Ballot::new(2, 0, 0), 2);
    let mut logged = |index, birth, record| {
        let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
        follower.step(event, &mut effects);
        follower.step(Event::TurnEnd, &mut effects);
        follower.deliver().map(|deliver| deliver.message)
    };
    let local = O::record(message(1), 1, GroupSet::first(1), true);
    // An adopted entry: leader and follower hold it, but no replica has acknowledged more in the new ballot.
    assert_eq!(logged(1, Ballot::new(1, 0, 0), local), None);
    assert_eq!(logged(2, Ballot::new(2, 0, 0), GroupRecord::NewBallot.into()), Some(message(1)));
}

fn completions_count_only_for_whoever_has_caught_up<O: Played>() {
    let old = Ballot::new(1, 0, 0);
    let mut effects = Vec::new();
    let mut core = follower::<O>(old, 1);
    let local = O::record(message(1), 1, GroupSet::first(1), false);
    for (index, record) in [(1, GroupRecord::NewBallot.into()), (2, local)] {
        let event = Event::Logged { index, birth: old, time_ms: 0, record, held: true, last: true };
        core.step(event, &mut effects);
    }
    core.step(Event::TurnEnd, &mut effects);
    assert!(core.deliver().is_some());
    // It leads, and has dropped a payload that g0.2, whose log ends before it, may lack.
    let ballot = core.campaign(Cause::Death);
    assert_eq!(core.granted(2, 0, (old, 1), vec![0; 3]), Some(1));
    core.begin_to_lead(&mut effects);
    core.add_follower(2, 0);
    core.step(Event::Completed { slot: 2, index: 3 }, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    assert_eq!(core.log().commit_index(), 2, "g0.2 can report nothing behind what it lacks");
    core.step(acknowledged(replica(0, 2), ballot, 3), &mut effects);
    let (message, destinations) = (message(2), GroupSet::first(1));
    let another = Event::Received { message, low_water: 1, destinations, outside: 0 };
    core.step(another, &mut effects);
    core.step(Event::Completed { slot: 2, index: 4 }, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    assert_eq!((core.log().commit_index(), core.log().last_index()), (4, 4));
}

fn what_completed_in_an_earlier_ballot_counts_for_nothing_in_this_one<O: Played>() {
    let (leader, other, next) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 5);
    for slot in 2..5 {
        stage.lose_writes(leader, replica(0, slot));
    }
    for number in 1..=5 {
        stage.land(leader, message(number), GroupSet::first(1));
    }
    stage.turn(leader);
    stage.complete(leader);
    assert_eq!(stage.core(leader).log().inspect().counts_on(1), 6);
    // Another replica leads, which has none of it, and then the first one again, with what the other had.
    stage.run(next, &[replica(0, 3), replica(0, 4)]);
    stage.heal();
    stage.run(leader, &[next, replica(0, 3), other]);
    stage.turn(other);
    let held = stage.core(other).log().last_index();
    assert!(held < 6, "what it had of the first ballot is cut off");
    stage.lose_writes(leader, other);
    stage.turn(leader);
    assert_eq!(
        (stage.core(leader).log().last_index(), stage.core(leader).log().inspect().counts_on(1)),
        (held + 5, held)
    );
}

#[test]
fn nothing_passes_a_message_by_on_a_proposal_that_may_be_lost() {
    let mut effects = Vec::new();
    let mut leader = self::leader::<Ramcast>(2);
    let theirs = Ballot::new(1, 0, 0);
    let announced = |ballot, clock, index| {
        Event::Heard(PeerEvent::Announced {
            from: replica(1, 0),
            announcement: Announcement {
                message: message(1),
                low_water: 1,
                destinations: GroupSet::first(2),
                timestamp: Timestamp::new(clock, GroupId(1)),
                ballot,
                index,
                again: None,
            },
        })
    };
    let single = Event::Received {
        message: message(2),
        low_water: 1,
        destinations: GroupSet::first(1),
        outside: 0,
    };
    leader.step(received(GroupSet::first(2)), &mut effects);
    leader.step(single, &mut effects);
    leader.step(announced(theirs, 9, 2), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    leader.step(Event::Completed { slot: 1, index: leader.log().last_index() }, &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    assert_eq!(leader.log().commit_index(), leader.log().last_index());
    assert_eq!(leader.deliver(), None, "nobody but g1.0 is known to hold 9@g1");
    // The proposal was lost with g1.0: g1.1 proposes the message anew, lower.
    let later = Ballot::new(2, 1, 0);
    leader.step(announced(later, 1, 3), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    leader.step(Event::Completed { slot: 1, index: leader.log().last_index() }, &mut effects);
    leader.step(acknowledged(replica(1, 2), later, 3), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    let next = [leader.deliver(), leader.deliver()];
    let next = next.map(|deliver| deliver.expect("both are final").message);
    assert_eq!(next, [message(1), message(2)]);
}

fn completions_behind_a_payload_that_was_let_go_count_only_with_a_word<O: Played>() {
    let mut effects = Vec::new();
    let mut leader = self::leader::<O>(1);
    let ballot = leader.log().ballot();
    leader.add_follower(2, 0);
    let all = |leader: &mut O, slot, effects: &mut Vec<_>| {
        leader.step(acknowledged(replica(0, slot), ballot, leader.log().last_index()), effects);
        leader.step(Event::TurnEnd, effects);
        while leader.deliver().is_some() {}
    };
    // Until now g0.2 lacks nothing, and completed writes count.
    all(&mut leader, 2, &mut effects);
    assert!(leader.evicts(2, &mut effects));
    all(&mut leader, 1, &mut effects);
    // The log does not wait for g0.2, which lacks this payload; the payload is dropped.
    let large = |sequence| Event::Received {
        message: message(sequence),
        low_water: 1,
        destinations: GroupSet::first(1),
        outside: 5_000,
    };
    leader.step(large(1), &mut effects);
    all(&mut leader, 1, &mut effects);
    let committed = leader.log().commit_index();
    leader.step(Event::TurnEnd, &mut effects);
    let single = Event::Received {
        message: message(2),
        low_water: 1,
        destinations: GroupSet::first(1),
        outside: 0,
    };
    leader.step(single, &mut effects);
    leader.step(Event::Completed { slot: 2, index: leader.log().last_index() }, &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    assert_eq!(
        leader.log().commit_index(),
        committed,
        "g0.2 can report nothing behind what it lacks"
    );
    leader.step(acknowledged(replica(0, 2), ballot, committed), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    assert_eq!(leader.log().commit_index(), leader.log().last_index());
}

#[test]
fn a_leader_that_lacks_what_its_group_is_done_with_names_who_does_not() {
    let mut effects = Vec::new();
    let mut leader = self::leader::<Ramcast>(2);
    leader.step(received(GroupSet::first(2)), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    leader.step(Event::Completed { slot: 1, index: leader.log().last_index() }, &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    assert_eq!(leader.log().commit_index(), leader.log().last_index());
    assert_eq!(leader.transferee(), None, "what is pending may be delivered yet");
    // An earlier leader, which did not wait for this replica, had reported it settled.
    let settled = Timestamp::new(9, GroupId(1));
    leader.step(Event::Settled { group: GroupId(0), rank: settled.into() }, &mut effects);
    assert!(!sends_state(&mut leader, 1, 0, Rank::NOTHING), "it lacks what nobody tells");
    assert_eq!(leader.transferee(), None, "nobody is known to be better off");
    leader.add_follower(2, 0);
    leader.step(Event::Applied { slot: 2, rank: settled.into() }, &mut effects);
    assert_eq!(leader.transferee(), Some(2));
    // Slot 2 sets out, and a replica that has granted its ballot refuses ours before slot 2's request arrives here.
    leader.hear_refusal(Ballot::new(2, 2, 0));
    assert!(leader.wants_to_lead().is_none(), "it was asked to lead");
    leader.hear_refusal(Ballot::new(2, 1, 0));
    assert_eq!(leader.wants_to_lead(), Some(Cause::Preempted));
}

/// A leader at 1 s, with a message to two groups that is committed and pending.
fn leader_with_pending(effects: &mut Vec<EffectOf<Ramcast>>) -> Ramcast {
    let mut leader = self::leader::<Ramcast>(2);
    leader.step(Event::Tick { now_ms: 1000 }, effects);
    leader.step(received(GroupSet::first(2)), effects);
    leader.step(Event::TurnEnd, effects);
    leader.step(Event::Completed { slot: 1, index: leader.log().last_index() }, effects);
    leader.step(Event::TurnEnd, effects);
    leader
}

#[test]
fn a_leader_that_nobody_told_what_is_settled_sees_that_another_has_applied_it() {
    let mut effects = Vec::new();
    let mut leader = leader_with_pending(&mut effects);
    let applied = Timestamp::new(9, GroupId(1));
    leader.add_follower(2, 0);
    leader.step(Event::Applied { slot: 2, rank: applied.into() }, &mut effects);
    assert_eq!(leader.transferee(), None, "a follower is ahead for a moment");
    leader.step(Event::Tick { now_ms: 2000 }, &mut effects);
    assert_eq!(leader.transferee(), Some(2));
}

/// A replica that is not admitted cannot lead. If the leader waited for that, and sent its state to nobody meanwhile, a
/// group in which too few replicas are admitted could commit nothing any more.
#[test]
fn nobody_who_is_not_admitted_is_waited_for_to_lead() {
    let mut effects = Vec::new();
    let mut leader = leader_with_pending(&mut effects);
    let applied = Timestamp::new(9, GroupId(1));
    for (incarnation, transferee) in [(1 << 10, None), (0, Some(2))] {
        leader.add_follower(2, incarnation);
        leader.step(Event::Applied { slot: 2, rank: applied.into() }, &mut effects);
        leader.step(Event::Tick { now_ms: 2000 }, &mut effects);
        assert_eq!(leader.transferee(), transferee, "incarnation {incarnation}");
        let sends = sends_state(&mut leader, 1, 0, Rank::NOTHING);
        assert_eq!(sends, transferee.is_none(), "incarnation {incarnation}");
    }
}

fn a_gap_in_the_log_is_no_log<O: Played>() {
    let birth = Ballot::new(1, 0, 0);
    let record = GroupRecord::NewBallot.into();
    let event = Event::Logged { index: 2, birth, time_ms: 0, record, held: true, last: true };
    follower::<O>(birth, 1).step(event, &mut Vec::new());
}

#[test]
fn a_group_that_begins_anew_proposes_above_all_that_its_former_self_may_have() {
    let (mut effects, clock) = (Vec::new(), 100);
    let view = View::of([1 << 10, 1 << 10, 1 << 10]);
    let mut leader =
        Ramcast::new(config(replica(0, 0), 1 << 10, 2, 3), view.clone()).anew(view, 7, clock);
    let ballot = leader.campaign(Cause::Start);
    assert!(ballot > Ballot::new(8, 2, 0) && ballot.generation() == 1);
    for slot in 0..2 {
        leader.granted(slot, 1 << 10, (Ballot::ZERO, 0), vec![1 << 10; 3]);
    }
    leader.begin_to_lead(&mut effects);
    leader.step(received(GroupSet::first(2)), &mut effects);
    let proposed = effects.iter().find_map(|effect| match effect {
        Effect::Tell(PeerEffect::Propose { announcement }) => Some(announcement.timestamp),
        _ => None,
    });
    let former = Timestamp::new(clock, GroupId(0));
    assert!(proposed > Some(former), "others may have that one pinned of another message");
}

#[test]
fn a_leader_is_left_behind_by_who_has_applied_its_next_message_and_nothing_behind_it() {
    let mut effects = Vec::new();
    let mut leader = self::leader::<Ramcast>(2);
    leader.step(received(GroupSet::first(2)), &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    leader.step(Event::Completed { slot: 1, index: leader.log().last_index() }, &mut effects);
    leader.step(Event::TurnEnd, &mut effects);
    let next = Timestamp::new(leader.inspect().clock(), GroupId(0));
    leader.add_follower(2, 0);
    for (up_to, behind) in [(next.below(), false), (next, true)] {
        leader.step(Event::Settled { group: GroupId(0), rank: up_to.into() }, &mut effects);
        leader.step(Event::Applied { slot: 2, rank: up_to.into() }, &mut effects);
        let sends = sends_state(&mut leader, 1, 0, Rank::NOTHING);
        assert_eq!(sends, !behind, "{up_to}");
        assert_eq!(leader.transferee(), behind.then_some(2), "{up_to}");
    }
}
