//! Leases, and reads under them.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::ballot::{Acceptance, Ballot};
use crate::group::election::GrantDecision;
use crate::group::lease::{ASKED_MAX, RENEW_AT};
use crate::group::on_log::OnLog as _;
use crate::group::{GroupConfig, Question};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::ordering::OrderingProtocol as _;
use crate::ramcast::announcement::Announcement;
use crate::ramcast::testing::config;
use crate::ramcast::{Cause, Config, Ramcast};
use crate::ramcast::{Event, PeerEvent};
use crate::timestamp::Timestamp;
use crate::view::View;

const LEASE: u64 = 40;
/// Milliseconds of a lease that a leader counts on, if clocks are off by a tenth.
const COUNTED: u64 = 32;

fn replica(slot: u8, replicas: u8) -> Ramcast {
    let me = ReplicaId::new(GroupId(0), slot);
    let config = config(me, 2, replicas);
    let mut core = Ramcast::new(config, View::first(replicas));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    core
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Slot 0 leads, and its first entry is committed.
fn leader(replicas: u8) -> Ramcast {
    let mut core = replica(0, replicas);
    let ballot = core.log_mut().campaign(Cause::Start);
    for slot in 1..replicas {
        let named = vec![0; usize::from(replicas)];
        core.log_mut().granted(slot, 0, (Ballot::ZERO, 0), named);
    }
    core.lead(&mut Vec::new());
    for slot in 1..replicas {
        let by = ReplicaId::new(GroupId(0), slot);
        let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.log_mut().add_follower(slot, 0, 0);
        core.step(Event::Applied { slot, rank: Timestamp::ZERO.into() }, &mut Vec::new());
    }
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), 1);
    core
}

/// Slot 1 follows slot 0.
fn follower() -> (Ramcast, Ballot) {
    let mut core = replica(1, 3);
    let ballot = Ballot::new(1, 0, 0);
    core.promise(ballot);
    core.follow(ballot, 0, 1);
    (core, ballot)
}

#[test]
fn a_lease_counts_from_when_f_others_were_asked() {
    let mut core = leader(5);
    assert!(!core.log().holds_lease(at(1_000)), "nobody has promised");
    let first = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    let second = core.log_mut().ask_for_lease(at(1_010)).expect("it has none");
    assert_eq!(core.log_mut().ask_for_lease(at(1_011)), None, "it was asked for a moment ago");
    let ballot = core.log().ballot();
    core.log_mut().lease_promised((1, 0), ballot, second, at(1_025));
    assert!(!core.log().holds_lease(at(1_025)), "one other is no quorum");
    core.log_mut().lease_promised((2, 0), ballot, first, at(1_025));
    assert!(core.log().holds_lease(at(1_000 + COUNTED)), "two others are");
    assert!(!core.log().holds_lease(at(1_001 + COUNTED)), "however late their promises came");
    core.log_mut().lease_promised((3, 0), ballot, second, at(1_030));
    assert!(
        core.log().holds_lease(at(1_010 + COUNTED)),
        "the earlier promise is not needed any more"
    );
    core.log_mut().lease_promised((4, 0), Ballot::new(9, 0, 0), second, at(1_030));
    core.log_mut().lease_promised((4, 0), ballot, 77, at(1_030));
    assert!(!core.log().holds_lease(at(1_011 + COUNTED)), "what was not asked counts for nothing");
    core.promise(Ballot::new(7, 1, 0));
    assert!(!core.log().holds_lease(at(1_010)), "who leads no more holds nothing");
}

#[test]
fn a_lease_ends_at_its_end_and_is_renewed_from_its_half_on() {
    let mut core = leader(3);
    let ballot = core.log().ballot();
    let number = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    core.log_mut().lease_promised((1, 0), ballot, number, at(1_001));
    assert!(
        core.log().holds_lease(at(999 + COUNTED)) && core.log().holds_lease(at(1_000 + COUNTED))
    );
    let (end, instant) = (at(1_000) + core.log_mut().counted_on(), Duration::from_nanos(1));
    let before = |at: Duration| at.saturating_sub(instant);
    assert!(!core.log().holds_lease(end) && core.log().holds_lease(before(end)));
    let half = end.saturating_sub(Duration::from_millis(LEASE) / RENEW_AT);
    assert_eq!(core.log_mut().ask_for_lease(before(half)), None, "it is fresh");
    assert!(core.log_mut().ask_for_lease(half).is_some());
}

#[test]
fn the_first_questions_are_forgotten_first_and_a_later_promise_counts() {
    let mut core = leader(3);
    let ballot = core.log().ballot();
    let asked: Vec<_> = (0..=ASKED_MAX as u64)
        .map(|i| core.log_mut().ask_for_lease(at(1_000 + 10 * i)).expect("nobody has promised"))
        .collect();
    core.log_mut().lease_promised((1, 0), ballot, asked[0], at(1_400));
    assert_eq!(core.log_mut().lease_until(), None, "that one is forgotten");
    let until = |i: u64| Some(at(1_000 + 10 * i) + counted());
    core.log_mut().lease_promised((1, 0), ballot, asked[1], at(1_400));
    assert_eq!(core.log_mut().lease_until(), until(1));
    core.log_mut().lease_promised((1, 0), ballot, asked[ASKED_MAX], at(1_400));
    assert_eq!(core.log_mut().lease_until(), until(ASKED_MAX as u64), "the newest is known");
    core.log_mut().lease_promised((1, 0), ballot, asked[2], at(1_400));
    assert_eq!(
        core.log_mut().lease_until(),
        until(ASKED_MAX as u64),
        "an earlier one takes nothing back"
    );
}

/// The time for which a leader counts on a lease, to the nanosecond.
fn counted() -> Duration {
    leader(3).log_mut().counted_on()
}

#[test]
fn nobody_holds_a_lease_before_the_first_entry_of_its_ballot_is_committed() {
    let mut core = replica(0, 3);
    let ballot = core.log_mut().campaign(Cause::Start);
    core.log_mut().granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
    core.lead(&mut Vec::new());
    let number = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    core.log_mut().lease_promised((1, 0), ballot, number, at(1_001));
    assert!(!core.log().holds_lease(at(1_002)), "what was answered before may be in another log");
    let by = ReplicaId::new(GroupId(0), 1);
    let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert!(core.log().holds_lease(at(1_002)));
}

#[test]
fn a_leader_that_is_elected_anew_counts_on_no_question_of_its_former_ballot() {
    let mut core = leader(3);
    let number = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    core.step(Event::Denied, &mut Vec::new());
    let ballot = core.log_mut().campaign(Cause::Silence);
    let last = (core.log().last_birth(), core.log().last_index());
    core.log_mut().granted(1, 0, last, vec![0; 3]);
    core.lead(&mut Vec::new());
    let by = ReplicaId::new(GroupId(0), 1);
    let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    core.log_mut().lease_promised((1, 0), ballot, number, at(1_002));
    assert!(!core.log().holds_lease(at(1_002)), "another may have led in between");
}

#[test]
fn a_promise_is_to_one_life_of_a_slot_and_to_the_ballot_that_is_followed() {
    let (mut core, ballot) = follower();
    assert!(core.log_mut().promise_lease(ballot, at(1_000)));
    assert_eq!(
        core.log_mut().judge(Ballot::new(2, 0, 7), false, true),
        GrantDecision::Wait,
        "its next incarnation"
    );
    assert_eq!(
        core.log_mut().judge(Ballot::new(3, 0, 0), false, true),
        GrantDecision::Grant,
        "the same one"
    );
    let mut granted = replica(1, 3);
    granted.promise(ballot);
    assert!(
        !granted.log_mut().promise_lease(ballot, at(1_000)),
        "nothing of that leader is read yet"
    );
    granted.follow(ballot, 0, 1);
    assert!(granted.log_mut().promise_lease(ballot, at(1_000)));
}

#[test]
fn who_begins_anew_is_bound_for_a_whole_lease() {
    let mut anew = replica(2, 3);
    anew.log_mut().resume_time(1_000);
    anew.step(Event::Tick { now_ms: 1_000 + LEASE }, &mut Vec::new());
    assert!(anew.log().is_bound());
    anew.step(Event::Tick { now_ms: 1_001 + LEASE }, &mut Vec::new());
    assert!(!anew.log().is_bound());
}

#[test]
fn a_promise_of_a_life_that_is_over_counts_for_nothing() {
    let mut core = leader(3);
    let number = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    let ballot = core.log().ballot();
    core.log_mut().lease_promised((1, 0), ballot, number, at(1_001));
    assert!(core.log().holds_lease(at(1_002)));
    core.join(1, 1_024, &mut Vec::new());
    assert!(!core.log().holds_lease(at(1_002)), "from when its successor may be let in");
    let ballot = core.log().ballot();
    core.log_mut().lease_promised((1, 1_024), ballot, number, at(1_003));
    assert!(core.log().holds_lease(at(1_004)));
}

#[test]
fn who_has_promised_supports_nobody_else_until_it_is_over() {
    let (mut core, ballot) = follower();
    let other = Ballot::new(2, 2, 0);
    assert!(core.log_mut().promise_lease(ballot, at(1_000)));
    assert!(core.log().is_bound());
    assert_eq!(core.log_mut().judge(other, false, true), GrantDecision::Wait);
    assert!(!core.log_mut().promise_lease(ballot, at(1_001)), "somebody waits for it to be over");
    assert_eq!(
        core.log_mut().judge(Ballot::new(3, 0, 0), false, true),
        GrantDecision::Grant,
        "to the same one"
    );
    assert_eq!(
        core.log_mut().judge(other, true, false),
        GrantDecision::Grant,
        "who is elected already"
    );
    core.step(Event::Tick { now_ms: 1_000 + LEASE }, &mut Vec::new());
    assert_eq!(core.log_mut().judge(other, false, true), GrantDecision::Wait);
    core.step(Event::Tick { now_ms: 1_001 + LEASE }, &mut Vec::new());
    assert_eq!(core.log_mut().judge(other, false, true), GrantDecision::Grant);
}

#[test]
fn a_candidacy_that_a_promise_puts_off_is_due_once_when_it_is_over() {
    for forgotten in [false, true] {
        let (mut core, ballot) = follower();
        assert!(!core.log_mut().puts_off(Cause::Operator), "nothing is promised");
        assert!(core.log_mut().promise_lease(ballot, at(1_000)));
        assert!(core.log_mut().puts_off(Cause::Operator));
        assert!(!core.log_mut().promise_lease(ballot, at(1_001)), "it must not go on for ever");
        assert_eq!(core.log_mut().is_due(), None);
        if forgotten {
            core.log_mut().forget_put_off();
        }
        core.step(Event::Tick { now_ms: 1_001 + LEASE }, &mut Vec::new());
        let mut blank = core.blank();
        for core in [&mut core, &mut blank] {
            assert_eq!(core.log_mut().is_due(), (!forgotten).then_some(Cause::Operator));
            assert_eq!(core.log_mut().is_due(), None, "once");
        }
    }
}

#[test]
fn who_has_not_granted_is_asked_again_every_other_heartbeat_and_by_who_may_ask_alone() {
    let (mut core, _) = follower();
    assert_eq!(core.log_mut().asks_now(), None, "a follower asks for nothing");
    let mut core = leader(3);
    let (ballot, every) = (core.log().ballot(), 2 * core.config.group.beat_ms);
    let question = Some(Question { ballot, leads: true, forced: false });
    let now_ms = core.log().now_ms();
    let mut asks = |now_ms, soon| {
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        if soon {
            core.log_mut().ask_soon();
        }
        core.log_mut().asks_now()
    };
    #[rustfmt::skip]
    let cases = [
        (now_ms,              false, question, "nobody was asked yet"),
        (now_ms + every - 1,  false, None,     "they may answer still"),
        (now_ms + every,      false, question, "what was asked or answered may be lost"),
        (now_ms + every + 1,  true,  question, "somebody could not answer before"),
    ];
    for (now_ms, soon, expected, because) in cases {
        assert_eq!(asks(now_ms, soon), expected, "{because}");
    }
    core.step(Event::Denied, &mut Vec::new());
    core.log_mut().ask_soon();
    assert_eq!(core.log_mut().asks_now(), None, "who has stepped down does not ask");
    let ballot = core.log_mut().campaign(Cause::Operator);
    let question = Question { ballot, leads: false, forced: true };
    assert_eq!(core.log_mut().asks_now(), Some(question), "a new ballot is asked for at once");
}

#[test]
fn nothing_is_owed_to_who_is_known_to_be_dead_and_everything_by_who_begins_anew() {
    let (mut core, ballot) = follower();
    assert!(core.log_mut().promise_lease(ballot, at(1_000)));
    let blank = core.blank();
    assert!(blank.log().is_bound(), "the incarnation is the same");
    core.log_mut().leader_has_died();
    assert!(!core.log().is_bound());
    let mut anew = replica(2, 3);
    anew.log_mut().resume_time(1_000);
    assert!(anew.log().is_bound(), "its former self may have promised anything");
}

#[test]
fn a_lease_is_of_one_ballot() {
    let mut core = leader(3);
    let number = core.log_mut().ask_for_lease(at(1_000)).expect("it was never asked");
    let ballot = core.log().ballot();
    core.log_mut().lease_promised((1, 0), ballot, number, at(1_001));
    assert!(core.log().holds_lease(at(1_002)));
    core.step(Event::Denied, &mut Vec::new());
    let ballot = core.log_mut().campaign(Cause::Silence);
    let last = (core.log().last_birth(), core.log().last_index());
    core.log_mut().granted(0, 0, last, vec![0; 3]);
    let last = (core.log().last_birth(), core.log().last_index());
    core.log_mut().granted(1, 0, last, vec![0; 3]);
    core.lead(&mut Vec::new());
    let acceptance = Acceptance { tag: ballot.tag(), index: core.log().last_index() };
    let by = ReplicaId::new(GroupId(0), 1);
    core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), core.log().last_index());
    assert!(!core.log().holds_lease(at(1_002)), "who has promised may have let another lead since");
}

#[test]
fn a_read_waits_for_what_others_may_have_delivered() {
    let mut core = leader(3);
    let receive = |core: &mut Ramcast, sequence, destinations| {
        let message = MessageId::new(SessionId(1), sequence);
        let (low_water, outside) = (1, 0);
        let event = Event::Received { message, low_water, destinations, outside };
        core.step(event, &mut Vec::new());
    };
    receive(&mut core, 1, GroupSet::first(1));
    let from = core.read_from();
    assert!(core.has_caught_up(from), "nobody but us answers that");
    receive(&mut core, 2, GroupSet::first(2));
    let from = core.read_from();
    assert!(!core.has_caught_up(from), "the other group may have delivered it");
}

#[test]
fn a_read_waits_for_what_may_end_at_the_clock_it_came_at() {
    let mut core = leader(3);
    let before = core.read_from();
    let (message, destinations) = (MessageId::new(SessionId(1), 1), GroupSet::first(2));
    let event = Event::Received { message, low_water: 1, destinations, outside: 0 };
    core.step(event, &mut Vec::new());
    let after = core.read_from();
    let by = ReplicaId::new(GroupId(0), 1);
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!((core.log().commit_index(), core.deliver()), (core.log().last_index(), None));
    assert!(!core.has_caught_up(after), "its proposal has that very clock, and it may end there");
    assert!(core.has_caught_up(before), "it cannot end at the clock of an earlier read");
}

#[test]
fn a_read_waits_for_all_that_was_logged_with_others_when_it_came() {
    let mut core = leader(3);
    let theirs = Announcement {
        message: MessageId::new(SessionId(1), 1),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(7, GroupId(1)),
        ballot: Ballot::new(1, 0, 0),
        index: 2,
        again: None,
    };
    let (message, destinations) = (theirs.message, theirs.destinations);
    let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
    core.step(received, &mut Vec::new());
    let announced = Event::Heard(PeerEvent::Announced {
        from: ReplicaId::new(GroupId(1), 0),
        announcement: theirs,
    });
    core.step(announced, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    let (clock, shared) = core.read_from();
    assert_eq!(
        (clock, shared),
        (7, core.log().last_index()),
        "its last entry is of another's proposal"
    );
    let by = ReplicaId::new(GroupId(0), 1);
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: shared - 1 };
    core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), shared - 1);
    assert!(!core.has_caught_up((0, shared)) && core.has_caught_up((0, shared - 1)));
}

#[test]
fn who_is_not_admitted_promises_nothing() {
    let mut leader = leader(3);
    let mut state = Vec::new();
    leader.save(&mut state);
    for incarnation in [0, 1_024] {
        let former = replica(1, 3).config;
        let group = GroupConfig { incarnation, ..former.group };
        let mut core = Ramcast::new(Config { group, ..former }, View::first(3)).blank();
        core.restore(&state).expect("what was saved");
        core.follow(leader.log().ballot(), core.log().last_index(), leader.log().first_index());
        assert_eq!(
            core.log_mut().promise_lease(leader.log().ballot(), at(1_000)),
            incarnation == 0
        );
    }
}

#[test]
fn only_the_leader_that_is_followed_and_seems_well_is_promised_anything() {
    let (mut core, ballot) = follower();
    assert!(!core.log_mut().promise_lease(Ballot::new(2, 2, 0), at(1_000)));
    for _ in 0..2_000 {
        core.step(
            Event::Heartbeat { slot: 0, pulse: crate::detector::Pulse::Missed },
            &mut Vec::new(),
        );
    }
    assert!(!core.log_mut().promise_lease(ballot, at(1_000)), "or it would be let lead for ever");
}
