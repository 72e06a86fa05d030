//! Elections: who may lead, whose log is adopted, and what a leader change makes of it.

use std::time::Duration;

use skein_protocol::ballot::Ballot;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::{Left, Request};
use skein_protocol::group::{
    Asked, Cause, Closing, Control, GroupEffect, GroupEvent, Question, Role,
};
use skein_protocol::ids::GroupSet;
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::{Answer, Vote};
use crate::played::{Played, both};
use crate::stage::{Stage, config, message, replica};

both!(
    a_promise_never_falls,
    #[should_panic(expected = "a promise is never taken back")]
    nobody_promises_less,
    #[should_panic(expected = "only the leader whose ballot we granted writes our log")]
    nobody_follows_a_ballot_that_it_has_not_granted,
    #[should_panic(expected = "only the leader itself writes its log")]
    nobody_but_a_leader_writes_its_log,
    the_best_log_is_the_last_born_then_the_longest_never_ones_own,
    a_grant_counts_only_from_a_life_that_the_best_log_names,
    a_candidate_that_the_best_log_does_not_name_takes_nothing_over,
    a_replica_whose_state_is_not_the_groups_does_not_set_out,
    a_learner_is_asked_for_its_log_when_it_has_the_state_not_before,
    a_leader_writes_no_log_that_was_granted_to_another_ballot_of_its_own,
    what_is_told_for_another_slot_ballot_or_incarnation_is_not_heard,
    who_has_lost_its_memory_says_nothing,
    an_evicted_life_keeps_its_vote_and_joins_again,
    what_a_deposed_leader_logged_alone_is_not_remembered_and_its_time_does_not_fall,
    a_change_of_the_view_that_was_cut_off_stands_in_nobodys_way,
    a_candidate_commits_nothing_in_the_ballot_that_it_has_left,
    a_leader_outbids_whoever_has_the_same_counter_and_a_higher_slot,
    who_has_stepped_down_is_not_elected_by_a_grant_that_comes_late,
);

/// Slot 1 of five asks for votes, in a group with empty logs.
fn candidate<O: Played>() -> (O, Ballot) {
    let mut core = O::new(config(replica(0, 1), 0, 1, 5), View::first(5));
    let ballot = core.campaign(Cause::Start);
    assert_eq!(core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 5]), None);
    (core, ballot)
}

fn a_promise_never_falls<O: Played>() {
    #[rustfmt::skip]
    let cases = [
        // asked for             forced  answer               because
        (Ballot::new(5, 2, 0),   false,  Vote::GrantAgain, "it was granted, and the answer lost"),
        (Ballot::new(5, 1, 0),   true,   Vote::Refuse,     "the same counter, but a lower slot"),
        (Ballot::new(4, 2, 9),   true,   Vote::Refuse,     "a lower counter, whatever the incarnation"),
        (Ballot::new(5, 2, 1),   true,   Vote::Grant,      "the next incarnation of the same slot"),
        (Ballot::new(6, 0, 0),   true,   Vote::Grant,      "a higher counter"),
    ];
    for (ballot, forced, verdict, because) in cases {
        let mut core = O::new(config(replica(0, 3), 0, 1, 5), View::first(5));
        core.let_lead(Ballot::new(5, 2, 0));
        assert_eq!(core.judge(ballot, false, forced), verdict, "{because}");
    }
}

fn nobody_promises_less<O: Played>() {
    let mut core = O::new(config(replica(0, 3), 0, 1, 5), View::first(5));
    core.let_lead(Ballot::new(5, 2, 0));
    core.let_lead(Ballot::new(5, 1, 0));
}

fn nobody_follows_a_ballot_that_it_has_not_granted<O: Played>() {
    let mut core = O::new(config(replica(0, 3), 0, 1, 5), View::first(5));
    core.let_lead(Ballot::new(5, 2, 0));
    core.begin_to_follow(Ballot::new(4, 2, 0), 0, 1);
}

fn nobody_but_a_leader_writes_its_log<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 0));
    let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
    let (record, held, last) = (O::record(message(1), 1, GroupSet::first(1), true), true, true);
    core.step(Event::Logged { index, birth, time_ms: 0, record, held, last }, &mut Vec::new());
}

fn the_best_log_is_the_last_born_then_the_longest_never_ones_own<O: Played>() {
    let (old, new) = (Ballot::new(1, 0, 0), Ballot::new(2, 3, 0));
    #[rustfmt::skip]
    let cases = [
        // slot 2's     slot 3's     adopted  because
        ((old, 90),     (new, 12),   3,       "what was born later may be committed, longer or not"),
        ((new, 13),     (new, 12),   2,       "of the same ballot, the longer holds the shorter"),
        ((Ballot::ZERO, 0), (Ballot::ZERO, 0), 1, "nothing is copied when its own is as good"),
    ];
    for (second, third, adopted, because) in cases {
        let (mut core, _) = candidate::<O>();
        assert_eq!(core.granted(2, 0, second, vec![0; 5]), None, "two of five are no quorum");
        assert_eq!(core.granted(2, 0, second, vec![0; 5]), None, "nobody counts twice");
        assert_eq!(core.granted(3, 0, third, vec![0; 5]), Some(adopted), "{because}");
    }
}

fn a_grant_counts_only_from_a_life_that_the_best_log_names<O: Played>() {
    let (mut core, _) = candidate::<O>();
    let birth = Ballot::new(1, 0, 0);
    // By the log of slot 3, slot 2 is in its incarnation 1, so the one that granted first is over.
    assert_eq!(core.granted(2, 0, (birth, 10), vec![0; 5]), None);
    assert_eq!(core.granted(3, 0, (birth, 11), vec![0, 0, 1, 0, 0]), None);
    assert_eq!(core.granted(2, 1, (birth, 11), vec![0, 0, 1, 0, 0]), Some(3));
    assert_eq!(core.log().inspect().paths().grant_not_counted, 1);
}

/// The group has admitted a later incarnation of the candidate's slot.
fn a_candidate_that_the_best_log_does_not_name_takes_nothing_over<O: Played>() {
    let birth = Ballot::new(1, 0, 0);
    for (incarnation, elected) in [(0, true), (1, false)] {
        let (mut core, _) = candidate::<O>();
        let named = vec![0, incarnation, 0, 0, 0];
        let best = [2, 3, 4].map(|slot| core.granted(slot, 0, (birth, 11), named.clone()));
        assert_eq!(best.iter().any(Option::is_some), elected, "it is incarnation 0");
    }
}

fn a_replica_whose_state_is_not_the_groups_does_not_set_out<O: Played>() {
    let (leader, follower) = (replica(0, 0), replica(0, 1));
    let mut stage = Stage::<O>::new(1, 3);
    stage.pass(500, &[leader]);
    let core = stage.core(follower);
    assert_eq!(core.happens(GroupEvent::Watched { trusted: false }), []);
    let close = GroupEffect::CloseLog { then: Closing::SetOut(Cause::Death) };
    assert_eq!(core.happens(GroupEvent::Watched { trusted: true }), [close]);
}

fn a_learner_is_asked_for_its_log_when_it_has_the_state_not_before<O: Played>() {
    let (leader, learner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(learner);
    let core = stage.core(leader);
    core.remove_follower(learner.slot);
    let ballot = core.log().ballot();
    let question = Question { ballot, leads: true, forced: false };
    let ask = GroupEffect::Ask { to: learner.slot, question };
    let asks = |core: &mut O, now_ms| {
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        core.looks().contains(&ask)
    };
    assert!(asks(core, 1_000));
    let (slot, applied, needs) = (learner.slot, Rank::NOTHING, Some(Ballot::ZERO));
    let request = Request { slot, incarnation: 1, needs, applied, taken: None, log: None };
    assert_eq!(core.asked_for_state(&request, true), Answer::Begin);
    assert!(!asks(core, 2_000), "it would grant with the log that it had");
    core.log_mut().sends_part(Left::Nothing);
    assert!(asks(core, 2_000));
}

fn a_leader_writes_no_log_that_was_granted_to_another_ballot_of_its_own<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 0));
    let ballot = core.log().ballot();
    for (counter, admits) in [(ballot.counter() + 1, false), (ballot.counter(), true)] {
        let granted = Control::Granted {
            ballot: Ballot::new(counter, 0, 0),
            incarnation: 0,
            last: (ballot, 1),
            named: &[0; 3],
            applied: Rank::NOTHING,
        };
        let effects = core.told(2, granted);
        assert_eq!(effects == [GroupEffect::Admit { slot: 2 }], admits);
    }
}

/// A replica speaks only for its own slot and incarnation, and only about the present ballot.
fn what_is_told_for_another_slot_ballot_or_incarnation_is_not_heard<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 1));
    let (ballot, now) = (core.log().ballot(), Duration::from_millis(1));
    for (from, answers) in [(2, false), (0, true)] {
        let lease = Control::Lease { ballot, number: 1, now };
        assert_eq!(!core.told(from, lease).is_empty(), answers, "slot 0 leads");
    }
    let core = stage.core(replica(0, 2));
    let question = Question { ballot: Ballot::new(9, 0, 0), leads: false, forced: true };
    for (by, answers) in [(1, false), (0, true)] {
        let asked = Asked { by, question, attempt: 0, from: Cursor::START };
        let effects = core.told(by, Control::Prepare { asked, admitted: &[] });
        assert_eq!(!effects.is_empty(), answers, "it is a ballot of slot 0");
    }
    for (of, sets_out) in [(Ballot::new(9, 0, 0), false), (ballot, true)] {
        let effects = core.told(0, Control::TimeoutNow { ballot: of });
        assert_eq!(!effects.is_empty(), sets_out, "it has granted {ballot}");
    }
    let mut blank = O::new(config(replica(0, 3), 1, 1, 5), View::first(5));
    for (incarnation, admitted) in [(0, false), (2, false), (1, true)] {
        blank.hear_admitted(ballot, incarnation);
        assert_eq!(blank.log().inspect().is_admitted(), admitted, "it is incarnation 1");
    }
}

fn who_has_lost_its_memory_says_nothing<O: Played>() {
    let mut blank = O::new(config(replica(0, 3), 1, 1, 5), View::first(5));
    assert_eq!(blank.log().role(), Role::Blank);
    for leads in [false, true] {
        let verdict = blank.judge(Ballot::new(9, 0, 0), leads, true);
        assert_eq!(verdict, Vote::Nothing, "it has nothing to report");
    }
    assert_eq!(blank.wants_to_lead(), None);
    // With the state, but not admitted, it follows the leader and votes for nobody.
    let (leader, learner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(learner);
    stage.transfer_state(leader, learner);
    stage.turn(learner);
    assert!(!stage.told().contains("g0.2 acknowledges"));
    let core = stage.core(learner);
    assert!(core.log().is_silent());
    assert_eq!(core.judge(Ballot::new(9, 1, 0), false, true), Vote::Nothing);
    assert_eq!(core.wants_to_lead(), None);
}

fn an_evicted_life_keeps_its_vote_and_joins_again<O: Played>() {
    let (leader, evicted) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    assert!(stage.evict(leader, 2) && !stage.evict(leader, 2), "once is enough");
    assert!(!stage.evict(leader, 1), "fewer than a quorum would be left");
    for id in [replica(0, 1), leader, evicted] {
        stage.turn(id);
    }
    assert!(stage.core(leader).log().view().member(2).evicted);
    assert!(!stage.core(evicted).log().is_silent(), "its memory is what it was");
    stage.admitted(leader, evicted);
    stage.turn(replica(0, 1));
    stage.turn(leader);
    assert!(!stage.core(leader).log().view().member(2).evicted);
}

fn what_a_deposed_leader_logged_alone_is_not_remembered_and_its_time_does_not_fall<O: Played>() {
    let (old, new) = (replica(0, 0), replica(0, 1));
    let mut stage = Stage::<O>::new(1, 3);
    stage.pass(70, &[]);
    stage.land(old, message(1), GroupSet::first(1));
    stage.turn(old);
    stage.turn(new);
    stage.lose_writes(old, new);
    stage.lose_writes(old, replica(0, 2));
    stage.land(old, message(2), GroupSet::first(1));
    stage.turn(old);
    assert!(stage.core(old).is_logged(message(2)));
    stage.run(new, &[replica(0, 2)]);
    stage.ask(new, old);
    stage.turn(old);
    assert!(!stage.core(old).is_logged(message(2)), "it may be proposed again");
    assert!(stage.core(old).is_logged(message(1)));
}

fn a_change_of_the_view_that_was_cut_off_stands_in_nobodys_way<O: Played>() {
    let (old, new, third) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.lose_writes(old, new);
    stage.lose_writes(old, third);
    assert!(stage.evict(old, 2));
    stage.turn(old);
    assert!(!stage.evict(old, 2), "one thing after the other");
    stage.run(new, &[third]);
    stage.ask(new, old);
    stage.heal();
    for id in [old, third, new] {
        stage.turn(id);
    }
    stage.run(old, &[new, third]);
    for id in [new, third, old] {
        stage.turn(id);
    }
    assert!(stage.core(old).log().leads() && !stage.core(old).log().view().member(2).evicted);
    assert!(stage.evict(old, 2), "nothing is under way");
}

#[test]
fn a_new_leader_proposes_above_everything_that_may_have_been_delivered() {
    let both = GroupSet::first(2);
    let (g0, g1) = (replica(0, 0), replica(1, 0));
    let mut stage = Stage::<Ramcast>::new(2, 3);
    for number in 11..20 {
        stage.land(g1, message(number), GroupSet::single(g1.group));
    }
    stage.turn(g1);
    for id in [g0, g1] {
        stage.land(id, message(1), both);
    }
    let followers = [replica(1, 1), replica(0, 1)];
    for id in [g1, g0, g1].into_iter().chain(followers).chain([g1, g0]).chain(followers) {
        stage.turn(id);
    }
    let (number, rank) = *stage.nodes[&g0].delivered.last().expect("m1 is delivered");
    let last = Timestamp::from(rank);
    assert_eq!((number, last.group()), (1, g1.group), "it ended where g1 proposed it");
    let next = replica(0, 1);
    stage.run(next, &[replica(0, 2)]);
    stage.land(next, message(2), GroupSet::single(next.group));
    stage.turn(next);
    assert!(stage.core(next).inspect().clock() > last.clock());
}

fn a_candidate_commits_nothing_in_the_ballot_that_it_has_left<O: Played>() {
    let (old, other, candidate) = (replica(0, 0), replica(0, 2), replica(0, 1));
    let mut stage = Stage::<O>::new(1, 3);
    stage.run(other, &[old]);
    stage.lose_writes(other, old);
    stage.lose_writes(other, candidate);
    stage.land(other, message(1), GroupSet::first(1));
    stage.turn(other);
    // It adopts an entry that no other replica holds. The leader that it followed before has not written any of it.
    stage.run(candidate, &[other]);
    stage.turn(candidate);
    assert!(stage.core(candidate).log().leads());
    assert_eq!(stage.core(candidate).log().commit_index(), 1);
    assert!(stage.delivered(candidate).is_empty());
}

fn a_leader_outbids_whoever_has_the_same_counter_and_a_higher_slot<O: Played>() {
    let (leader, loser) = (replica(0, 1), replica(0, 4));
    let mut stage = Stage::<O>::unled(1, 5);
    stage.campaign(loser, Cause::Start);
    stage.campaign(leader, Cause::Start);
    for slot in [2, 3] {
        stage.ask(leader, replica(0, slot));
    }
    assert!(stage.core(leader).log().leads() && stage.core(leader).wants_to_lead().is_none());
    stage.ask(leader, loser);
    assert!(stage.core(leader).wants_to_lead() == Some(Cause::Preempted), "{}", stage.told());
    stage.run(leader, &[loser]);
    assert_eq!(stage.core(loser).log().promised(), stage.core(leader).log().promised());
}

fn who_has_stepped_down_is_not_elected_by_a_grant_that_comes_late<O: Played>() {
    let leader = replica(0, 0);
    let mut stage = Stage::<O>::unled(1, 3);
    stage.campaign(leader, Cause::Start);
    stage.ask(leader, replica(0, 1));
    let core = stage.core(leader);
    core.step(Event::Denied, &mut Vec::new());
    assert_eq!(core.log().role(), Role::Follower);
    let last = (core.log().inspect().last_birth(), core.log().last_index());
    assert_eq!(core.granted(2, 0, last, vec![0; 3]), None);
}
