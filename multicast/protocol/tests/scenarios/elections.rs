//! Who may lead, whose log is taken over, and what a change of leader makes of it.

use std::time::Duration;

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::{CopyId, Left, Part, Reception, Request};
use skein_protocol::group::{
    Asked, Closing, Control, GroupEffect, GroupEvent, GroupRecord, Question,
};
use skein_protocol::ids::GroupSet;
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::{Cause, Ramcast, Role};
use skein_protocol::ramcast::{Event, Record};
use skein_protocol::rank::Rank;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::{Answer, ByHand, Vote};
use crate::stage::{Stage, config, message, replica};

/// Slot 1 of five in a group without a past, as it asks for votes.
fn candidate() -> (Ramcast, Ballot) {
    let mut core = Ramcast::new(config(replica(0, 1), 0, 1, 5), View::first(5));
    let ballot = core.campaign(Cause::Start);
    assert_eq!(core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 5]), None);
    (core, ballot)
}

#[test]
fn a_promise_never_falls() {
    #[rustfmt::skip]
    let cases = [
        // asked for             forced  answer               because
        (Ballot::new(5, 2, 0),   false,  Vote::GrantAgain, "it was granted, and the answer lost"),
        (Ballot::new(5, 1, 0),   true,   Vote::Refuse,     "the same counter, but a lower slot"),
        (Ballot::new(4, 2, 9),   true,   Vote::Refuse,     "a lower counter, whatever the life"),
        (Ballot::new(5, 2, 1),   true,   Vote::Grant,      "the next life of the same slot"),
        (Ballot::new(6, 0, 0),   true,   Vote::Grant,      "a higher counter"),
    ];
    for (ballot, forced, verdict, because) in cases {
        let mut core = Ramcast::new(config(replica(0, 3), 0, 1, 5), View::first(5));
        core.let_lead(Ballot::new(5, 2, 0));
        assert_eq!(core.judge(ballot, false, forced), verdict, "{because}");
    }
}

#[test]
#[should_panic(expected = "a promise is never taken back")]
fn nobody_promises_less() {
    let mut core = Ramcast::new(config(replica(0, 3), 0, 1, 5), View::first(5));
    core.let_lead(Ballot::new(5, 2, 0));
    core.let_lead(Ballot::new(5, 1, 0));
}

#[test]
fn the_best_log_is_the_last_born_then_the_longest_never_ones_own() {
    let (old, new) = (Ballot::new(1, 0, 0), Ballot::new(2, 3, 0));
    #[rustfmt::skip]
    let cases = [
        // slot 2's     slot 3's     adopted  because
        ((old, 90),     (new, 12),   3,       "what was born later may be committed, longer or not"),
        ((new, 13),     (new, 12),   2,       "of the same ballot, the longer holds the shorter"),
        ((Ballot::ZERO, 0), (Ballot::ZERO, 0), 1, "nothing is copied when its own is as good"),
    ];
    for (second, third, adopted, because) in cases {
        let (mut core, _) = candidate();
        assert_eq!(core.granted(2, 0, second, vec![0; 5]), None, "two of five are no quorum");
        assert_eq!(core.granted(2, 0, second, vec![0; 5]), None, "nobody counts twice");
        assert_eq!(core.granted(3, 0, third, vec![0; 5]), Some(adopted), "{because}");
    }
}

#[test]
fn a_grant_counts_only_from_a_life_that_the_best_log_names() {
    let (mut core, _) = candidate();
    let birth = Ballot::new(1, 0, 0);
    // Slot 2 is in its life 1 by the log of slot 3; the one that granted first is over.
    assert_eq!(core.granted(2, 0, (birth, 10), vec![0; 5]), None);
    assert_eq!(core.granted(3, 0, (birth, 11), vec![0, 0, 1, 0, 0]), None);
    assert_eq!(core.granted(2, 1, (birth, 11), vec![0, 0, 1, 0, 0]), Some(3));
    assert_eq!(core.log().inspect().paths().grant_not_counted, 1);
}

/// Its group has admitted a later incarnation of the candidate.
#[test]
fn a_candidate_that_the_best_log_does_not_name_takes_nothing_over() {
    let birth = Ballot::new(1, 0, 0);
    for (incarnation, elected) in [(0, true), (1, false)] {
        let (mut core, _) = candidate();
        let named = vec![0, incarnation, 0, 0, 0];
        let best = [2, 3, 4].map(|slot| core.granted(slot, 0, (birth, 11), named.clone()));
        assert_eq!(best.iter().any(Option::is_some), elected, "it is incarnation 0");
    }
}

#[test]
fn a_replica_whose_state_is_not_the_groups_does_not_set_out() {
    let (leader, follower) = (replica(0, 0), replica(0, 1));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.pass(500, &[leader]);
    let core = stage.core(follower);
    assert_eq!(core.happens(GroupEvent::Watched { trusted: false }), []);
    let close = GroupEffect::CloseLog { then: Closing::SetOut(Cause::Death) };
    assert_eq!(core.happens(GroupEvent::Watched { trusted: true }), [close]);
}

#[test]
fn a_learner_is_asked_for_its_log_when_it_has_the_state_not_before() {
    let (leader, learner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.restart(learner);
    let core = stage.core(leader);
    core.feeds_no_more(learner.slot);
    let ballot = core.log().ballot();
    let question = Question { ballot, leads: true, forced: false };
    let ask = GroupEffect::Ask { to: learner.slot, question };
    let asks = |core: &mut Ramcast, now_ms| {
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        core.looks().contains(&ask)
    };
    assert!(asks(core, 1_000));
    let (slot, applied, needs) = (learner.slot, Rank::NOTHING, Some(Ballot::ZERO));
    let request = Request { slot, incarnation: 1, needs, applied, taken: None };
    assert_eq!(core.asked_for_state(&request, true), Answer::Begin);
    assert!(!asks(core, 2_000), "it would grant with the log that it had");
    core.log_mut().sends_part(Left::Nothing);
    assert!(asks(core, 2_000));
}

#[test]
fn a_leader_writes_no_log_that_was_granted_to_another_ballot_of_its_own() {
    let mut stage = Stage::<Ramcast>::new(1, 3);
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

/// Slot 1 of three, at 1 s, that an operator asks to lead while its leader has a lease.
fn put_off() -> (Stage, Ballot) {
    let mut stage = Stage::<Ramcast>::new(1, 3);
    let core = stage.core(replica(0, 1));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let (ballot, now) = (core.log().ballot(), Duration::from_secs(1));
    let lease = Control::Lease { ballot, number: 1, now };
    assert_eq!(core.told(0, lease), [GroupEffect::PromiseLease { to: 0, ballot, number: 1 }]);
    let cause = Cause::Transfer;
    assert_eq!(core.happens(GroupEvent::SetOut { cause }), [], "its leader has a lease");
    (stage, ballot)
}

#[test]
fn a_candidacy_that_was_put_off_is_over_when_another_ballot_is_granted() {
    for grants in [false, true] {
        let (mut stage, ballot) = put_off();
        let core = stage.core(replica(0, 1));
        if grants {
            core.let_lead(Ballot::new(ballot.counter() + 1, 2, 0));
        }
        core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
        assert_eq!(core.wants_to_lead(), (!grants).then_some(Cause::Transfer));
    }
}

#[test]
fn a_candidacy_that_was_put_off_is_over_when_the_replica_sets_out() {
    let (mut stage, _) = put_off();
    let core = stage.core(replica(0, 1));
    core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
    let (cause, then) = (Cause::Transfer, Closing::SetOut(Cause::Transfer));
    assert_eq!(core.happens(GroupEvent::SetOut { cause }), [GroupEffect::CloseLog { then }]);
    core.campaign(cause);
    assert_eq!(core.wants_to_lead(), None, "a second ballot would void the grants of the first");
}

/// An operator's choice stays until leadership changes for another reason; a handover is none.
#[test]
fn what_is_put_off_for_an_operator_is_not_taken_for_a_handover() {
    for waits in [false, true] {
        let (mut stage, ballot) = put_off();
        let core = stage.core(replica(0, 1));
        let (succeed, cause) = (Control::Succeed { ballot }, Cause::Transfer);
        if waits {
            assert_eq!(core.told(0, succeed), [], "its leader has a lease");
        }
        core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
        let effects = if waits { core.looks() } else { core.told(0, succeed) };
        assert_eq!(effects, [GroupEffect::CloseLog { then: Closing::SetOut(cause) }]);
    }
}

/// A replica speaks for its own slot and incarnation, and of the present ballot.
#[test]
fn what_is_told_for_another_slot_ballot_or_incarnation_is_not_heard() {
    let mut stage = Stage::<Ramcast>::new(1, 3);
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
        let effects = core.told(0, Control::Succeed { ballot: of });
        assert_eq!(!effects.is_empty(), sets_out, "it has granted {ballot}");
    }
    let mut blank = Ramcast::new(config(replica(0, 3), 1, 1, 5), View::first(5));
    for (incarnation, admitted) in [(0, false), (2, false), (1, true)] {
        blank.hear_admitted(ballot, incarnation);
        assert_eq!(blank.log().inspect().is_admitted(), admitted, "it is incarnation 1");
    }
}

#[test]
fn who_has_lost_its_memory_says_nothing() {
    let mut blank = Ramcast::new(config(replica(0, 3), 1, 1, 5), View::first(5));
    assert_eq!(blank.log().role(), Role::Blank);
    for leads in [false, true] {
        let verdict = blank.judge(Ballot::new(9, 0, 0), leads, true);
        assert_eq!(verdict, Vote::Nothing, "it has nothing to report");
    }
    assert_eq!(blank.wants_to_lead(), None);
    // With the state, but not let in, it follows whoever leads, and elects nobody.
    let (leader, learner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.restart(learner);
    stage.teach(leader, learner);
    stage.turn(learner);
    assert!(!stage.told().contains("g0.2 acknowledges"));
    let core = stage.core(learner);
    assert!(core.log().is_silent());
    assert_eq!(core.judge(Ballot::new(9, 1, 0), false, true), Vote::Nothing);
    assert_eq!(core.wants_to_lead(), None);
}

#[test]
fn an_evicted_life_keeps_its_vote_and_joins_again() {
    let (leader, evicted) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    assert!(stage.evict(leader, 2) && !stage.evict(leader, 2), "once is enough");
    assert!(!stage.evict(leader, 1), "fewer than a quorum would be left");
    for id in [replica(0, 1), leader, evicted] {
        stage.turn(id);
    }
    assert!(stage.core(leader).log().view().member(2).evicted);
    assert!(!stage.core(evicted).log().is_silent(), "its memory is what it was");
    stage.let_in(leader, evicted);
    stage.turn(replica(0, 1));
    stage.turn(leader);
    assert!(!stage.core(leader).log().view().member(2).evicted);
}

#[test]
fn what_a_deposed_leader_logged_alone_is_not_remembered_and_its_time_does_not_fall() {
    let (old, new) = (replica(0, 0), replica(0, 1));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.pass(70, &[]);
    stage.land(old, message(1), GroupSet::first(1));
    stage.turn(old);
    stage.turn(new);
    stage.lose_writes(old, new);
    stage.lose_writes(old, replica(0, 2));
    stage.land(old, message(2), GroupSet::first(1));
    stage.turn(old);
    assert!(stage.core(old).is_known(message(2)));
    stage.run(new, &[replica(0, 2)]);
    stage.ask(new, old);
    stage.turn(old);
    assert!(!stage.core(old).is_known(message(2)), "it may be proposed again");
    assert!(stage.core(old).is_known(message(1)));
}

#[test]
fn a_change_of_the_view_that_was_cut_off_stands_in_nobodys_way() {
    let (old, new, third) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
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

#[test]
fn a_candidate_commits_nothing_in_the_ballot_that_it_has_left() {
    let (old, other, candidate) = (replica(0, 0), replica(0, 2), replica(0, 1));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.run(other, &[old]);
    stage.lose_writes(other, old);
    stage.lose_writes(other, candidate);
    stage.land(other, message(1), GroupSet::first(1));
    stage.turn(other);
    // It takes over what nobody else holds. Whom it followed before has not written a word of it.
    stage.run(candidate, &[other]);
    stage.turn(candidate);
    assert!(stage.core(candidate).log().leads());
    assert_eq!(stage.core(candidate).log().commit_index(), 1);
    assert!(stage.delivered(candidate).is_empty());
}

#[test]
fn a_leader_outbids_whoever_has_the_same_counter_and_a_higher_slot() {
    let (leader, loser) = (replica(0, 1), replica(0, 4));
    let mut stage = Stage::<Ramcast>::unled(1, 5);
    stage.campaign(loser, Cause::Start);
    stage.campaign(leader, Cause::Start);
    for slot in [2, 3] {
        stage.ask(leader, replica(0, slot));
    }
    assert!(stage.core(leader).log().leads() && stage.core(leader).wants_to_lead().is_none());
    stage.ask(leader, loser);
    assert!(stage.core(leader).wants_to_lead() == Some(Cause::Outbid), "{}", stage.told());
    stage.run(leader, &[loser]);
    assert_eq!(stage.core(loser).log().promised(), stage.core(leader).log().promised());
}

#[test]
fn who_has_stepped_down_is_not_elected_by_a_grant_that_comes_late() {
    let leader = replica(0, 0);
    let mut stage = Stage::<Ramcast>::unled(1, 3);
    stage.campaign(leader, Cause::Start);
    stage.ask(leader, replica(0, 1));
    let core = stage.core(leader);
    core.step(Event::Denied, &mut Vec::new());
    assert_eq!(core.log().role(), Role::Follower);
    let last = (core.log().inspect().last_birth(), core.log().last_index());
    assert_eq!(core.granted(2, 0, last, vec![0; 3]), None);
}

#[test]
fn whoever_lets_others_lead_in_vain_waits_longer_each_time() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = Ramcast::new(config, View::first(3));
    let (mut now_ms, mut counter) = (1, 0);
    let mut patiences = |core: &mut Ramcast, comes_to_something: bool| {
        counter += 1;
        let ballot = Ballot::new(counter, 2, 0);
        core.let_lead(ballot);
        if comes_to_something {
            core.begin_to_follow(ballot, 0, 1);
            return 0;
        }
        let began = now_ms;
        while core.wants_to_lead().is_none() {
            now_ms += 1;
            for slot in [0, 2] {
                core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
            }
            core.step(Event::Tick { now_ms }, &mut Vec::new());
        }
        (now_ms - began) / config.group.patience_ms
    };
    core.step(Event::Tick { now_ms: 1 }, &mut Vec::new());
    // One more than that, since g0.0 would be first.
    for expected in [12, 24, 48, 96, 96] {
        assert_eq!(patiences(&mut core, false), expected + 1);
    }
    patiences(&mut core, true);
    assert_eq!(patiences(&mut core, false), 12 + 1, "somebody led in between");
}

/// Words of slot 2 come, and its heartbeats do not.
#[test]
fn who_is_let_lead_though_suspected_has_as_long_as_one_of_whom_nothing_comes() {
    #[rustfmt::skip]
    let cases = [
        // suspected  leads  pulse          patiences
        (true,        false, Pulse::Missed, 12 + 1),
        (true,        true,  Pulse::Missed, 12 + 1),
        (true,        true,  Pulse::Dead,   1),
        // It is suspected after 20 looks, which take a patience here.
        (false,       true,  Pulse::Missed, 1 + 1),
    ];
    for (suspected, leads, pulse, expected) in cases {
        let config = config(replica(0, 1), 0, 1, 3);
        let mut core = Ramcast::new(config, View::first(3));
        let mut now_ms = 0;
        let mut tick = |core: &mut Ramcast, pulse| {
            now_ms += 1;
            for (slot, pulse) in [(0, Pulse::Beat), (2, pulse)] {
                core.step(Event::Heartbeat { slot, pulse }, &mut Vec::new());
            }
            core.step(Event::Tick { now_ms }, &mut Vec::new());
        };
        tick(&mut core, Pulse::Beat);
        for _ in 0..500 {
            tick(&mut core, if suspected { Pulse::Missed } else { Pulse::Beat });
        }
        assert_eq!(core.log().inspect().detector().suspects(2), suspected);
        let ballot = Ballot::new(1, 2, 0);
        core.let_lead(ballot);
        if leads {
            core.begin_to_follow(ballot, 0, 1);
        }
        let mut waited = 0_u64;
        while core.wants_to_lead().is_none() {
            tick(&mut core, pulse);
            waited += 1;
        }
        // Slot 0 would be first, and has one patience.
        assert_eq!(
            waited.div_ceil(config.group.patience_ms),
            expected,
            "{suspected} {leads} {pulse:?}"
        );
    }
}

#[test]
fn who_is_given_a_state_does_not_set_out_meanwhile() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = Ramcast::new(config, View::first(3));
    core.step(Event::Tick { now_ms: 1 }, &mut Vec::new());
    let ballot = Ballot::new(1, 2, 0);
    core.let_lead(ballot);
    core.happens(GroupEvent::NeedsState);
    let copy = CopyId { sender: 0, number: 1 };
    for now_ms in 2..1000 {
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        assert_eq!(core.wants_to_lead(), None, "at {now_ms}");
        let part = Part { incarnation: 0, copy, number: now_ms - 2 };
        let first = if now_ms == 2 { Reception::First } else { Reception::Next };
        assert_eq!(core.log_mut().takes_part(2, &part, false), first);
    }
    // But whoever gives it may die.
    core.step(Event::Heartbeat { slot: 2, pulse: Pulse::Dead }, &mut Vec::new());
    core.step(Event::Tick { now_ms: 1000 + config.group.patience_ms }, &mut Vec::new());
    assert_eq!(core.wants_to_lead(), Some(Cause::Death));
}

#[test]
fn whoever_is_kept_from_running_has_not_waited() {
    let config = config(replica(0, 1), 0, 1, 3);
    let ballot = Ballot::new(1, 2, 0);
    let waits = 12 * config.group.patience_ms;
    let mut core = Ramcast::new(config, View::first(3));
    let tick = |core: &mut Ramcast, now_ms| {
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        core.wants_to_lead()
    };
    assert_eq!(tick(&mut core, 1), None);
    core.let_lead(ballot);
    // What its leader wrote meanwhile is read only after this tick.
    assert_eq!(tick(&mut core, 1 + 10 * waits), None);
    assert_eq!(core.judge(ballot, true, false), Vote::GrantAgain);
    let mut now_ms = 1 + 10 * waits;
    while tick(&mut core, now_ms).is_none() {
        now_ms += config.group.patience_ms;
    }
    assert!(now_ms > 1 + 11 * waits, "its leader has just said that it leads");
}

/// Slot 2 of three, or of five, has lost its memory, has the state, and lacks its `Join`, which slot 0 has logged
/// and slot 1 holds.
fn join_unseen(count: u8) -> Stage {
    let (leader, other, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, count);
    stage.restart(joiner);
    stage.teach(leader, joiner);
    stage.turn(joiner);
    for slot in 2..count {
        stage.lose_writes(leader, replica(0, slot));
    }
    stage.let_in(leader, joiner);
    stage.turn(other);
    stage.turn(leader);
    stage.told();
    stage
}

#[test]
fn who_has_not_seen_that_it_is_admitted_elects_whoever_has() {
    let (leader, other, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = join_unseen(3);
    let life = stage.nodes[&joiner].life;
    assert!(stage.core(other).log().view().names(joiner.slot, life), "the Join is committed");
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

#[test]
fn a_join_that_may_be_lost_makes_nobody_grant() {
    let (other, joiner) = (replica(0, 1), replica(0, 2));
    let mut stage = join_unseen(5);
    let life = stage.nodes[&joiner].life;
    assert_eq!(stage.core(other).log().named()[usize::from(joiner.slot)], life, "it is logged");
    assert_eq!(stage.core(other).log().admitted()[usize::from(joiner.slot)], 0, "by two of five");
    stage.run(other, &[joiner]);
    let told = stage.told();
    assert!(told.contains("g0.2 does not answer g0.1"), "{told}");
}

#[test]
fn who_was_told_that_it_is_admitted_says_nothing_of_an_earlier_ballot() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 5);
    stage.restart(joiner);
    stage.teach(leader, joiner);
    stage.turn(joiner);
    stage.let_in(leader, joiner);
    stage.turn(joiner);
    let core = stage.core(joiner);
    let (old, join) = (core.log().ballot(), core.log().last_index());
    let later = Ballot::new(old.counter() + 1, 1, 0);
    // Another `Join` of it is committed by whoever leads since, and this one may be cut off.
    core.hear_admitted(later, 1);
    assert!(
        core.log().is_silent(),
        "what it says in {old} may count with what its former life had said"
    );
    core.let_lead(later);
    core.begin_to_follow(later, join - 1, join);
    assert!(core.log().is_silent(), "it has no Join of the later log");
    core.step(
        Event::Logged {
            index: join,
            birth: later,
            time_ms: 0,
            record: Record::Group(GroupRecord::Join { slot: joiner.slot, incarnation: 1 }),
            held: true,
            last: true,
        },
        &mut Vec::new(),
    );
    assert!(!core.log().is_silent(), "it holds that one, and knows that it is committed");
}

#[test]
fn a_leader_tells_whoever_may_not_know_that_it_is_admitted() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.restart(joiner);
    stage.teach(leader, joiner);
    stage.turn(joiner);
    stage.let_in(leader, joiner);
    assert!(!stage.core(leader).tells_admitted(joiner.slot), "it is not committed");
    // The other's words do not reach the joiner, and then the other dies.
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

/// It asked to be let in again before the `Join` was committed, so nothing that was said then says so.
#[test]
fn a_leader_tells_whoever_lets_it_in_again_that_it_is_admitted() {
    let (leader, joiner) = (replica(0, 0), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.restart(joiner);
    stage.teach(leader, joiner);
    stage.turn(joiner);
    stage.let_in(leader, joiner);
    stage.lose_words(replica(0, 1), joiner);
    for id in [replica(0, 1), leader, joiner] {
        stage.turn(id);
    }
    stage.restart(replica(0, 1));
    let core = stage.core(leader);
    let life = core.log().view().member(joiner.slot).incarnation;
    core.feeds_no_more(joiner.slot);
    assert!(!core.tells_admitted(joiner.slot), "it does not listen");
    core.feeds(joiner.slot, life);
    assert!(core.tells_admitted(joiner.slot), "or it would be silent for ever");
    let ballot = core.log().ballot();
    assert!(stage.core(joiner).log().is_silent());
    stage.core(joiner).hear_admitted(ballot, 1);
    stage.turn(joiner);
    stage.turn(leader);
    assert!(!stage.core(leader).tells_admitted(joiner.slot), "it has acknowledged");
}

#[test]
fn a_follower_that_alone_knows_of_a_join_tells_whom_it_admits() {
    let (leader, follower, joiner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<Ramcast>::new(1, 3);
    stage.restart(joiner);
    stage.teach(leader, joiner);
    stage.turn(joiner);
    stage.let_in(leader, joiner);
    assert!(!stage.core(follower).tells_admitted(joiner.slot), "it has not read it");
    // The follower's words reach nobody, so it alone sees that the `Join` is committed.
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

#[test]
fn who_has_led_waits_no_longer_for_others_than_whoever_has_not() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = Ramcast::new(config, View::first(3));
    core.step(Event::Tick { now_ms: 1 }, &mut Vec::new());
    for counter in 1..=3 {
        core.let_lead(Ballot::new(counter, 2, 0));
    }
    let ballot = core.campaign(Cause::Silence);
    core.granted(2, 0, (Ballot::ZERO, 0), vec![0; 3]);
    core.begin_to_lead(&mut Vec::new());
    let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by: replica(0, 2), acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), core.log().first_index());
    core.let_lead(Ballot::new(ballot.counter() + 1, 2, 0));
    let mut now_ms = 1;
    while core.wants_to_lead().is_none() {
        now_ms += 1;
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
    }
    // One more than it stands back, since g0.0 would be first.
    assert_eq!((now_ms - 1) / config.group.patience_ms, 12 + 1);
}
