//! What a transferred state holds, and when messages retained for other groups may be dropped.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::{Cause, GroupEvent, GroupRecord, Role};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId, SessionId};
use skein_protocol::ordering::{EffectOf, MessageStage, NotRestored, OrderingProtocol as _};
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
    a_state_is_what_is_committed_and_nothing_else,
    who_has_the_state_of_a_later_leader_lets_no_earlier_one_in,
    a_state_that_makes_no_sense_is_refused,
    who_told_before_its_join_was_known_to_be_committed_is_heard_all_the_same,
    an_ended_session_stays_ended_in_a_state,
    what_a_later_life_told_is_no_word_of_the_one_whose_join_is_committed,
);

/// g0's leader with a message of each kind: 1 is delivered, 2 is committed (and pending if there is another group), 3
/// is only logged.
fn busy<O: Played>() -> Stage<O> {
    let (leader, both) = (replica(0, 0), GroupSet::first(O::GROUPS));
    let mut stage = Stage::<O>::new(O::GROUPS, 3);
    let follow = |stage: &mut Stage<O>| {
        for id in [leader, replica(0, 1), leader] {
            stage.turn(id);
        }
    };
    stage.land(leader, message(1), GroupSet::single(GroupId(0)));
    stage.land(leader, message(2), both);
    follow(&mut stage);
    stage.lose_writes(leader, replica(0, 1));
    stage.lose_writes(leader, replica(0, 2));
    stage.land(leader, message(3), GroupSet::single(GroupId(0)));
    stage.turn(leader);
    stage
}

fn blank<O: Played>() -> O {
    O::new(config(replica(0, 2), 1, O::GROUPS, 3), View::first(3))
}

fn saved<O: Played>(core: &mut O) -> Vec<u8> {
    let mut bytes = Vec::new();
    core.save(&mut bytes);
    bytes
}

fn a_state_is_what_is_committed_and_nothing_else<O: Played>() {
    let mut stage = busy::<O>();
    let core = stage.core(replica(0, 0));
    assert!(core.log().last_index() > core.log().commit_index());
    let bytes = saved(core);
    assert!(core.is_logged(message(3)), "who saves forgets nothing");
    let mut learner = blank::<O>();
    learner.takes(&bytes);
    assert_eq!((learner.log().role(), learner.log().is_silent()), (Role::Follower, true));
    assert_eq!(learner.log().last_index(), core.log().commit_index());
    assert_eq!(learner.delivered(), core.delivered());
    let second = if O::GROUPS > 1 { MessageStage::Pending } else { MessageStage::Delivered };
    for (number, stage) in [(1, MessageStage::Delivered), (2, second)] {
        assert_eq!(learner.stage_of(message(number)), stage);
    }
    assert!(!learner.is_logged(message(3)), "its entry may be lost, and it is proposed again then");
    learner.begin_to_follow(
        core.log().ballot(),
        learner.log().last_index(),
        core.log().first_index(),
    );
    assert_eq!(saved(&mut learner), bytes, "a learner could transfer_state the next one");
}

#[test]
fn who_takes_a_state_has_the_clock_of_whoever_has_saved_it() {
    let mut stage = busy::<Ramcast>();
    let core = stage.core(replica(0, 0));
    let bytes = saved(core);
    let mut learner = blank::<Ramcast>();
    assert!(core.inspect().clock() > learner.inspect().clock());
    learner.takes(&bytes);
    assert_eq!(learner.inspect().clock(), core.inspect().clock());
}

fn who_has_the_state_of_a_later_leader_lets_no_earlier_one_in<O: Played>() {
    let (old, new, learner) = (replica(0, 0), replica(0, 1), replica(0, 4));
    let granters = [replica(0, 2), replica(0, 3)];
    let mut stage = Stage::<O>::new(1, 5);
    stage.restart(learner);
    stage.run(new, &granters);
    for id in [granters[0], granters[1], new] {
        stage.turn(id);
    }
    assert_eq!(stage.core(new).log().commit_index(), stage.core(new).log().last_index());
    // The old leader has not learned of the new one, and both receive the learner's request.
    stage.give_state(new, learner);
    assert!(stage.core(old).log().leads());
    stage.ask(old, learner);
    stage.turn(learner);
    assert!(stage.told().contains("g0.4 refuses 1.r0i0, by its promise of 2.r1i0"));
    stage.ask(new, learner);
    stage.turn(learner);
    let (given, held) =
        (stage.core(new).log().commit_index(), stage.core(learner).log().last_index());
    assert_eq!(held, given, "whoever gave the state goes on from there");
}

fn a_state_that_makes_no_sense_is_refused<O: Played>() {
    let bytes = saved(busy::<O>().core(replica(0, 0)));
    let malformed = Some(NotRestored::Malformed);
    for cut in 0..bytes.len() {
        assert_eq!(blank::<O>().restored(&bytes[..cut]).err(), malformed, "cut off at {cut}");
    }
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0xff;
        let _ = blank::<O>().restored(&changed); // Valid or malformed, but no panic.
    }
    let (long, version) = ([&bytes[..], &[0]].concat(), [&[bytes[0] + 1], &bytes[1..]].concat());
    assert_eq!(blank::<O>().restored(&long).err(), malformed, "it is too long");
    assert_eq!(blank::<O>().restored(&version).err(), malformed, "it is of another version");
}

/// Two groups that share a message, which all replicas have delivered.
fn shared() -> Stage {
    let mut stage = Stage::<Ramcast>::new(2, 3);
    for id in [replica(0, 0), replica(1, 0)] {
        stage.land(id, message(1), GroupSet::first(2));
    }
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    for id in all.iter().chain(&all).chain(&all) {
        stage.turn(*id);
    }
    stage
}

/// Final timestamp of the first message that a replica has delivered.
fn ends(stage: &Stage, id: ReplicaId) -> Timestamp {
    stage.nodes[&id].delivered[0].1.into()
}

#[test]
fn what_is_owed_is_kept_until_every_destination_is_done() {
    let mut stage = shared();
    let (leader, last) = (replica(0, 0), ends(&stage, replica(0, 0)));
    let settled = |stage: &mut Stage, group, timestamp: Timestamp| {
        let mut effects = Vec::new();
        stage.core(leader).step(Event::Settled { group, rank: timestamp.into() }, &mut effects);
        stage.core(leader).step(Event::Tick { now_ms: 1 }, &mut effects);
        effects.contains(&Effect::DropResult { message: message(1) })
    };
    let before = Timestamp::from_word(last.to_word() - 1);
    assert!(!settled(&mut stage, GroupId(1), last), "our own group is not done");
    assert!(!settled(&mut stage, GroupId(0), before), "nor is it, quite");
    assert!(settled(&mut stage, GroupId(0), last), "now all are");
}

#[test]
fn what_was_forgotten_is_over_for_a_group_that_begins_anew_and_for_nobody_else() {
    let mut stage = shared();
    let last = ends(&stage, replica(0, 0));
    let (leader, mut effects) = (stage.core(replica(0, 0)), Vec::new());
    for group in [GroupId(0), GroupId(1)] {
        leader.step(Event::Settled { group, rank: last.into() }, &mut effects);
    }
    leader.step(Event::Tick { now_ms: 1 }, &mut effects);
    assert!(effects.contains(&Effect::DropResult { message: message(1) }));
    let mut is_over = |from: ReplicaId, ballot, timestamp| {
        let (message, destinations) = (message(1), GroupSet::first(2));
        let again = Some(timestamp);
        let announcement = Announcement {
            message,
            low_water: 1,
            destinations,
            timestamp,
            ballot,
            index: 9,
            again,
        };
        effects.clear();
        leader.step(Event::Heard(PeerEvent::Announced { from, announcement }), &mut effects);
        let says_so = |effect: &EffectOf<Ramcast>| matches!(effect, Effect::Tell(PeerEffect::Announce { announcement, .. }) if announcement.timestamp.is_over());
        effects.iter().any(says_so)
    };
    let (lags, later) = (Ballot::new(2, 1, 0), Timestamp::new(last.clock() + 1, GroupId(1)));
    assert!(
        !is_over(replica(1, 1), lags, last),
        "it would deliver it in another place than the others"
    );
    let anew = Ballot::new(Ballot::recreated(2).unwrap() + 1, 0, 0);
    assert!(is_over(replica(1, 0), anew, later));
}

/// Two groups that share a message, which all replicas have delivered except `slow`, which did nothing.
fn shared_without(slow: ReplicaId) -> Stage {
    let mut stage = Stage::<Ramcast>::new(2, 3);
    for leader in [replica(0, 0), replica(1, 0)] {
        stage.land(leader, message(1), GroupSet::first(2));
    }
    turns_without(&mut stage, slow);
    stage
}

/// Three turns of every replica except `slow`.
fn turns_without(stage: &mut Stage, slow: ReplicaId) {
    let fast: Vec<_> = stage.nodes.keys().copied().filter(|id| *id != slow).collect();
    for id in fast.iter().chain(&fast).chain(&fast) {
        stage.turn(*id);
    }
}

#[test]
fn a_leader_waits_for_all_that_count_before_it_says_that_its_group_is_done() {
    let mut stage = shared_without(replica(0, 2));
    stage.told();
    stage.pass(5, &[]);
    let told = stage.told();
    assert!(!told.contains("g0.0 tells"), "g0.2 has applied nothing: {told}");
    stage.turn(replica(0, 2));
    stage.pass(5, &[]);
    let told = stage.told();
    assert!(told.contains("g0.0 tells g1: all of us are done"), "{told}");
}

#[test]
fn who_is_dead_and_may_come_back_is_waited_for_until_it_is_evicted() {
    let slow = replica(0, 2);
    let mut stage = shared_without(slow);
    stage.told();
    stage.pass(5, &[slow]);
    assert!(stage.core(replica(0, 0)).log().inspect().detector().suspects(slow.slot));
    assert!(!stage.told().contains("g0.0 tells"), "it has applied nothing");
}

#[test]
fn what_a_former_life_had_applied_the_next_one_may_lack() {
    let (leader, slot) = (replica(0, 0), 2);
    for applied in [false, true] {
        let mut stage = shared_without(replica(0, slot));
        let (rank, now_ms) = (stage.nodes[&leader].delivered[0].1, 5);
        let core = stage.core(leader);
        for slot in [1, slot] {
            core.step(Event::Applied { slot, rank }, &mut Vec::new());
        }
        core.step(Event::Applied { slot: leader.slot, rank }, &mut Vec::new());
        core.add_follower(slot, 1);
        if applied {
            core.step(Event::Applied { slot, rank }, &mut Vec::new());
        }
        let mut effects = Vec::new();
        core.step(Event::Tick { now_ms }, &mut effects);
        let settles = effects.iter().any(|effect| matches!(effect, Effect::Settle { .. }));
        assert_eq!(settles, applied);
    }
}

#[test]
fn a_life_counts_only_when_it_has_applied_what_its_group_is_done_with() {
    let (old, new, slot, incarnation) = (replica(0, 0), replica(0, 1), 2, 1);
    let (none, all) = (Timestamp::ZERO, ends(&shared(), old));
    #[rustfmt::skip]
    let cases = [
        // said   another told  it has  counts  because
        (none,    Some(none),   none,   true,   "nobody is done with anything"),
        (all,     Some(none),   none,   false,  "others may have forgotten what it needs"),
        (none,    Some(all),    none,   false,  "whoever said so may have died before it told us"),
        (none,    None,         all,    false,  "nor do we know what was said before nobody tells us"),
        (all,     Some(all),    all,    true,   "it needs nothing that was forgotten"),
    ];
    for (said, told, has, counts, because) in cases {
        let mut stage = Stage::<Ramcast>::new(2, 3);
        stage.run(new, &[old]);
        let (core, mut effects) = (stage.core(new), Vec::new());
        let acceptance =
            Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
        core.step(Event::Acknowledged { by: old, acceptance }, &mut effects);
        core.step(Event::TurnEnd, &mut effects);
        core.step(Event::Settled { group: GroupId(0), rank: said.into() }, &mut effects);
        if let Some(timestamp) = told {
            core.step(Event::Applied { slot: old.slot, rank: timestamp.into() }, &mut effects);
        }
        core.add_follower(slot, incarnation);
        core.step(Event::Applied { slot, rank: has.into() }, &mut effects);
        effects.clear();
        core.caught_up(slot, incarnation, &mut effects);
        assert_eq!(!effects.is_empty(), counts, "{because}");
    }
}

fn who_told_before_its_join_was_known_to_be_committed_is_heard_all_the_same<O: Played>() {
    let [old, restarted, new, other, lost] = [0, 1, 2, 3, 4].map(|slot| replica(0, slot));
    let mut stage = Stage::<O>::new(1, 5);
    let turns = |stage: &mut Stage<O>, ids: &[ReplicaId]| {
        for id in ids.iter().chain(ids).chain(ids) {
            stage.turn(*id);
        }
    };
    stage.restart(restarted);
    stage.turn(old);
    stage.transfer_state(old, restarted);
    turns(&mut stage, &[restarted, old]);
    stage.admitted(old, restarted);
    // The next leader does not learn that it counts, and all replicas that have learned it are lost, except itself.
    stage.lose_writes(old, new);
    turns(&mut stage, &[old, restarted, other, lost]);
    stage.restart(old);
    stage.restart(lost);
    stage.heal();
    stage.run(new, &[restarted, other]);
    let incarnation = stage.nodes[&restarted].incarnation;
    assert!(
        stage.core(new).log().leads()
            && !stage.core(new).log().view().names(restarted.slot, incarnation)
    );
    turns(&mut stage, &[restarted, new, other]);
    assert!(stage.core(new).log().view().names(restarted.slot, incarnation));
    stage.transfer_state(new, old);
    turns(&mut stage, &[new, old, restarted, other]);
    let (mut effects, incarnation) = (Vec::new(), stage.nodes[&old].incarnation);
    stage.core(new).caught_up(old.slot, incarnation, &mut effects);
    assert!(!effects.is_empty(), "three that count have told what they had applied");
}

#[test]
fn who_may_count_by_what_is_logged_is_waited_for_before_anything_is_settled() {
    let (leader, slow) = (replica(0, 0), replica(0, 2));
    for joins in [false, true] {
        let mut stage = shared_without(slow);
        assert!(stage.evict(leader, slow.slot));
        turns_without(&mut stage, slow);
        if joins {
            stage.admitted(leader, slow);
        }
        stage.told();
        stage.pass(5, &[]);
        assert_eq!(stage.told().contains("g0.0 tells g1"), !joins, "its `Join` may be committed");
        if joins {
            stage.turn(slow);
            stage.pass(5, &[]);
            assert!(stage.told().contains("g0.0 tells g1"), "it has applied what the others have");
        }
    }
}

#[test]
fn who_is_about_to_count_is_not_outrun_by_what_is_settled() {
    let (leader, learner) = (replica(0, 0), replica(0, 2));
    #[rustfmt::skip]
    let cases = [
        // taught  well   waited for
        (true,     true,  true),
        (true,     false, false),
        (false,    true,  false),
    ];
    for (taught, well, waited_for) in cases {
        let mut stage = shared_without(learner);
        assert!(stage.evict(leader, learner.slot));
        turns_without(&mut stage, learner);
        stage.pass(5, &[]);
        stage.restart(learner);
        stage.run(leader, &[replica(0, 1)]);
        turns_without(&mut stage, learner);
        let incarnation = stage.nodes[&learner].incarnation;
        if taught {
            stage.transfer_state(leader, learner);
        } else {
            stage.core(leader).add_follower(learner.slot, incarnation);
        }
        stage.pass(5, &[]);
        // Later messages reach it late.
        for leader in [leader, replica(1, 0)] {
            stage.land(leader, message(2), GroupSet::first(2));
        }
        turns_without(&mut stage, learner);
        stage.told();
        let down = if well { vec![] } else { vec![learner] };
        for _ in 0..9 {
            stage.pass(1, &down);
        }
        assert_eq!(stage.told().contains("g0.0 tells g1"), !waited_for);
        let mut effects = Vec::new();
        stage.core(leader).caught_up(learner.slot, incarnation, &mut effects);
        assert_eq!(!effects.is_empty(), waited_for, "it has what is settled, though it is behind");
    }
}

#[test]
fn who_leads_again_does_not_know_what_others_have_applied() {
    let (first, second, restarted) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(2, 3);
    // Only the replica that dies can deliver m1.
    for (from, to) in stage.members(GroupId(1)).flat_map(|from| [(from, first), (from, second)]) {
        stage.lose_words(from, to);
    }
    for leader in [first, replica(1, 0)] {
        stage.land(leader, message(1), GroupSet::first(2));
    }
    turns_without(&mut stage, second);
    assert_eq!((stage.delivered(first), stage.delivered(restarted)), (vec![], vec![1]));
    let rank = stage.nodes[&restarted].delivered[0].1;
    let applied = Event::Applied { slot: restarted.slot, rank };
    stage.core(first).step(applied, &mut Vec::new());
    stage.restart(restarted);
    stage.turn(second);
    stage.run(second, &[first]);
    stage.turn(first);
    stage.turn(second);
    stage.transfer_state(second, restarted);
    stage.admitted(second, restarted);
    for id in [first, second, first] {
        stage.turn(id);
    }
    let incarnation = stage.nodes[&restarted].incarnation;
    assert!(stage.core(first).log().view().names(restarted.slot, incarnation));
    stage.run(first, &[second]);
    stage.heal();
    turns_without(&mut stage, restarted);
    assert_eq!(stage.delivered(first), [1]);
    let core = stage.core(first);
    core.step(Event::Applied { slot: first.slot, rank }, &mut Vec::new());
    let applied = Event::Applied { slot: second.slot, rank };
    let mut effects = Vec::new();
    core.step(applied, &mut effects);
    core.step(Event::Tick { now_ms: 9 }, &mut effects);
    let settles = effects.iter().any(|effect| matches!(effect, Effect::Settle { .. }));
    assert!(core.log().leads() && !settles, "that was its former incarnation");
}

#[test]
fn who_is_given_a_state_tells_others_what_it_holds_of_theirs_when_it_counts() {
    let (leader, other) = (replica(0, 0), replica(0, 2));
    for dies in [true, false] {
        // m1 is committed in g0, and g1 has not received it.
        let mut stage = Stage::<Ramcast>::new(2, 3);
        stage.land(leader, message(1), GroupSet::first(2));
        for id in [leader, replica(0, 1), leader] {
            stage.turn(id);
        }
        let tells = |stage: &mut Stage| {
            stage.turn(other);
            stage.told().lines().any(|it| it.starts_with("g0.2 ack") && it.ends_with("{g0 g1}"))
        };
        if dies {
            stage.restart(other);
        }
        stage.transfer_state(leader, other);
        assert_eq!(tells(&mut stage), !dies, "one that has lost its memory is to be let in first");
        stage.admitted(leader, other);
        for id in [replica(0, 1), leader] {
            stage.turn(id);
        }
        stage.complete(leader);
        // It reads that it is admitted, and reports so in its next turn.
        assert!(tells(&mut stage) || tells(&mut stage) || !dies);
    }
}

#[test]
fn who_begins_anew_in_the_same_life_forgets_no_ballot_of_anybody() {
    let (leader, slow) = (replica(0, 0), replica(0, 2));
    let (ours, theirs) = (Ballot::new(9, 1, 0), Ballot::new(3, 2, 0));
    let mut stage = busy::<Ramcast>();
    let bytes = saved(stage.core(leader));
    let core = stage.core(slow);
    core.hear_refusal(ours);
    let announcement = Announcement {
        message: message(7),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(7, GroupId(1)),
        ballot: theirs,
        index: 2,
        again: None,
    };
    let from = replica(1, theirs.slot());
    core.step(Event::Heard(PeerEvent::Announced { from, announcement }), &mut Vec::new());
    let blank = core.restored(&bytes).expect("what was saved");
    assert_eq!(blank.leader_of(GroupId(1)), from, "the state is of before it led");
    assert_eq!(blank.log().inspect().ballot_counter(), ours.counter());
}

#[test]
fn what_a_group_was_done_with_once_stays_so_when_a_slow_replica_counts_again() {
    let (leader, next, slow) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = shared_without(slow);
    assert!(stage.evict(leader, 2));
    turns_without(&mut stage, slow);
    stage.told();
    stage.pass(5, &[]);
    let done = |told: String, by| {
        let tells = format!("{by} tells g1: ");
        told.lines().find_map(|line| line.strip_prefix(&tells).map(str::to_owned))
    };
    let before = done(stage.told(), leader);
    assert!(before.is_some(), "nobody waits for one that is evicted");
    // Other groups may have dropped by now what the slow replica needs; and its successor in the lead must report again
    // what was reported.
    stage.admitted(leader, slow);
    turns_without(&mut stage, slow);
    stage.run(next, &[leader]);
    turns_without(&mut stage, slow);
    assert!(stage.core(next).log().leads() && !stage.core(next).log().view().member(2).evicted);
    stage.told();
    stage.pass(5, &[]);
    assert_eq!(done(stage.told(), next), before);
}

#[test]
fn nobody_is_evicted_for_whom_only_a_replica_that_is_left_behind_would_stay() {
    let (leader, other, slow) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = shared_without(slow);
    assert!(stage.evict(leader, slow.slot), "the two others have it all");
    turns_without(&mut stage, slow);
    stage.pass(5, &[]);
    stage.admitted(leader, slow);
    turns_without(&mut stage, slow);
    assert!(!stage.core(leader).log().view().member(slow.slot).evicted);
    assert!(
        !stage.evict(leader, other.slot),
        "the slow one has the log, and may deliver nothing of it"
    );
    stage.turn(slow);
    stage.pass(5, &[]);
    assert!(stage.evict(leader, other.slot), "it has delivered what its group is done with");
}

#[test]
fn who_was_not_waited_for_and_leads_gives_no_state_before_it_has_delivered_what_was_logged_then() {
    let (leader, other, slow) = (replica(0, 0), replica(0, 1), replica(0, 2));
    for evicted in [false, true] {
        let mut stage = Stage::<Ramcast>::new(2, 3);
        for id in [leader, replica(1, 0)] {
            stage.land(id, message(1), GroupSet::first(2));
        }
        let fast: Vec<_> = stage.nodes.keys().copied().filter(|id| *id != slow).collect();
        let turns = |stage: &mut Stage| {
            for id in fast.iter().chain(&fast).chain(&fast) {
                stage.turn(*id);
            }
        };
        turns(&mut stage);
        if evicted {
            assert!(stage.evict(leader, slow.slot));
            turns(&mut stage);
        }
        // Other groups may have dropped m1, but only if they did not wait for this replica.
        stage.run(slow, &[other]);
        assert_eq!((stage.core(slow).log().leads(), stage.delivered(slow)), (true, vec![]));
        assert_eq!(sends_state(stage.core(slow), leader.slot, 0, Rank::NOTHING), !evicted);
        for id in [other, slow] {
            stage.turn(id);
        }
        assert_eq!(stage.delivered(slow), [1]);
        assert!(sends_state(stage.core(slow), leader.slot, 0, Rank::NOTHING));
    }
}

#[test]
fn who_is_evicted_succeeds_nobody_for_it_may_lack_the_log() {
    let (old, slow, ahead) = (replica(0, 0), replica(0, 1), replica(0, 2));
    for evicted in [false, true] {
        let mut stage = shared_without(slow);
        if evicted {
            assert!(stage.evict(old, ahead.slot));
            turns_without(&mut stage, slow);
        }
        stage.run(slow, &[ahead]);
        assert_eq!((stage.core(slow).log().leads(), stage.delivered(slow)), (true, vec![]));
        stage.pass(5, &[old]);
        assert!(sends_state(stage.core(slow), old.slot, 0, Rank::NOTHING) || !evicted);
        stage.pass(500, &[old]);
        assert_eq!(stage.core(slow).transferee(), (!evicted).then_some(ahead.slot));
    }
}

fn an_ended_session_stays_ended_in_a_state<O: Played>() {
    let mut stage = busy::<O>();
    let core = stage.core(replica(0, 0));
    core.step(Event::SessionEnded { session: SessionId(1) }, &mut Vec::new());
    let bytes = saved(core);
    let mut learner = blank::<O>();
    learner.takes(&bytes);
    assert!(learner.has_ended(SessionId(1)));
}

#[test]
fn who_has_taken_an_older_state_is_waited_for_until_it_has_applied_that_again() {
    let (leader, other, back) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(2, 3);
    // Slot 2 alone can deliver m1, and reports so.
    for (from, to) in stage.members(GroupId(1)).flat_map(|from| [(from, leader), (from, other)]) {
        stage.lose_words(from, to);
    }
    for leader in [leader, replica(1, 0)] {
        stage.land(leader, message(1), GroupSet::first(2));
    }
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    for id in all.iter().chain(&all).chain(&all) {
        stage.turn(*id);
    }
    assert_eq!((stage.delivered(leader), stage.delivered(back)), (vec![], vec![1]));
    stage.pass(5, &[]);
    // It restores the state of its leader, in which m1 is pending.
    assert!(sends_state(stage.core(leader), back.slot, 0, Rank::NOTHING));
    stage.give_state(leader, back);
    assert_eq!(stage.delivered(back), [], "it is as far as its leader");
    stage.ask(leader, back);
    stage.heal();
    turns_without(&mut stage, back);
    assert_eq!((stage.delivered(leader), stage.delivered(other)), (vec![1], vec![1]));
    stage.told();
    let rank = stage.nodes[&leader].applied;
    let (core, mut effects) = (stage.core(leader), Vec::new());
    core.step(Event::Applied { slot: leader.slot, rank }, &mut Vec::new());
    core.step(Event::Applied { slot: other.slot, rank }, &mut effects);
    core.step(Event::Tick { now_ms: 9 }, &mut effects);
    let settles = effects.iter().any(|effect| matches!(effect, Effect::Settle { .. }));
    assert!(!settles, "g0.2 has not applied m1 in the state that it has now");
}

#[test]
fn who_cannot_be_served_leads_not_and_keeps_what_it_alone_may_have_applied() {
    let (old, slow, ahead) = (replica(0, 0), replica(0, 1), replica(0, 2));
    for evicted in [false, true] {
        let mut stage = shared_without(slow);
        if evicted {
            assert!(stage.evict(old, slow.slot));
            turns_without(&mut stage, slow);
        }
        stage.run(slow, &[ahead]);
        let applied = stage.nodes[&ahead].applied;
        assert_eq!((stage.core(slow).log().leads(), stage.delivered(slow)), (true, vec![]));
        // The leader's log does not reach back to where the other's log ends.
        let core = stage.core(slow);
        core.remove_follower(ahead.slot);
        let (last, named) = ((Ballot::ZERO, 0), vec![0; 3]);
        core.granted_having_applied(applied, ahead.slot, 0, last, &named);
        core.happens(GroupEvent::OutOfReach { slot: ahead.slot, end: Some(64) });
        stage.pass(500, &[old]);
        let core = stage.core(slow);
        assert_eq!(
            core.transferee(),
            None,
            "it cannot take over the leader's log, and would ask it to lead"
        );
        assert_eq!(
            sends_state(core, old.slot, 0, applied),
            !evicted,
            "one that was waited for lacks nothing that its group is done with"
        );
        // Another replica comes back whose log does.
        core.step(Event::Heartbeat { slot: old.slot, pulse: Pulse::Beat }, &mut Vec::new());
        for (held_from, reaches_back) in [(65, false), (64, true)] {
            core.happens(GroupEvent::FollowerAdded { slot: old.slot, incarnation: 0, held_from });
            assert_eq!(core.transferee(), (evicted && reaches_back).then_some(old.slot));
        }
        assert!(
            sends_state(core, old.slot, 0, Rank::NOTHING),
            "who has applied less loses nothing"
        );
    }
}

fn what_a_later_life_told_is_no_word_of_the_one_whose_join_is_committed<O: Played>() {
    let (me, other, learner) = (replica(0, 0), 1, 2);
    let (earlier, joined) = (Ballot::new(1, 2, 0), 5);
    for (incarnation, counts) in [(joined, true), (joined + 1, false)] {
        let mut effects = Vec::new();
        let mut core = O::new(config(me, 0, 1, 3), View::first(3));
        core.let_lead(earlier);
        core.begin_to_follow(earlier, 0, 1);
        let records = [
            GroupRecord::NewBallot.into(),
            GroupRecord::Join { slot: other, incarnation: joined }.into(),
        ];
        for (index, record) in (1..).zip(records) {
            let (birth, time_ms) = (earlier, 0);
            let event = Event::Logged { index, birth, time_ms, record, held: true, last: true };
            core.step(event, &mut effects);
        }
        let ballot = core.campaign(Cause::Death);
        assert_eq!(core.granted(learner, 0, (Ballot::ZERO, 0), vec![0; 3]), Some(0));
        core.begin_to_lead(&mut effects);
        core.add_follower(other, incarnation);
        core.add_follower(learner, 9);
        for slot in [other, learner] {
            core.step(Event::Applied { slot, rank: Rank::NOTHING }, &mut effects);
        }
        let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
        core.step(Event::Acknowledged { by: replica(0, 1), acceptance }, &mut effects);
        core.step(Event::TurnEnd, &mut effects);
        assert!(core.log().view().names(other, joined));
        effects.clear();
        core.caught_up(learner, 9, &mut effects);
        assert_eq!(!effects.is_empty(), counts, "a quorum that counts has told what it applied");
    }
}
