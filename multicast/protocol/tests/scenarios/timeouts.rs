//! Timeouts after which a replica stands for election, and candidacies that are put off.

use std::time::Duration;

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::transfer::{CopyId, Part, Reception};
use skein_protocol::group::{Cause, Closing, Control, GroupEffect, GroupEvent};
use skein_protocol::step::Event;
use skein_protocol::view::View;

use crate::by_hand::Vote;
use crate::played::{Played, both};
use crate::stage::{Stage, config, replica};

both!(
    a_candidacy_that_was_put_off_is_over_when_another_ballot_is_granted,
    a_candidacy_that_was_put_off_is_over_when_the_replica_sets_out,
    what_is_put_off_for_an_operator_is_not_taken_for_a_handover,
    whoever_lets_others_lead_in_vain_waits_longer_each_time,
    who_is_let_lead_though_suspected_has_as_long_as_one_of_whom_nothing_comes,
    who_is_given_a_state_does_not_set_out_meanwhile,
    whoever_is_kept_from_running_has_not_waited,
    who_has_led_waits_no_longer_for_others_than_whoever_has_not,
);

const WISH_TICK: GroupEvent = GroupEvent::WishTick { trusted: true, awaits_leader: false };

/// Slot 1 of three, at 1 s. An operator asks it to lead while its leader has a lease.
fn put_off<O: Played>() -> (Stage<O>, Ballot) {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 1));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let (ballot, now) = (core.log().ballot(), Duration::from_secs(1));
    let lease = Control::Lease { ballot, number: 1, now };
    assert_eq!(core.told(0, lease), [GroupEffect::PromiseLease { to: 0, ballot, number: 1 }]);
    core.happens(GroupEvent::WantedToLead);
    assert_eq!(core.happens(WISH_TICK), [], "its leader has a lease");
    (stage, ballot)
}

fn a_candidacy_that_was_put_off_is_over_when_another_ballot_is_granted<O: Played>() {
    for grants in [false, true] {
        let (mut stage, ballot) = put_off::<O>();
        let core = stage.core(replica(0, 1));
        if grants {
            core.let_lead(Ballot::new(ballot.counter() + 1, 2, 0));
        }
        core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
        assert_eq!(core.wants_to_lead(), (!grants).then_some(Cause::Operator));
    }
}

fn a_candidacy_that_was_put_off_is_over_when_the_replica_sets_out<O: Played>() {
    let (mut stage, _) = put_off::<O>();
    let core = stage.core(replica(0, 1));
    core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
    let cause = Cause::Operator;
    core.happens(GroupEvent::WantedToLead);
    let then = Closing::SetOut(cause);
    assert_eq!(core.happens(WISH_TICK), [GroupEffect::CloseLog { then }]);
    core.campaign(cause);
    assert_eq!(core.wants_to_lead(), None, "a second ballot would void the grants of the first");
}

/// An operator's choice stays until leadership changes for another reason. A handover is no such reason.
fn what_is_put_off_for_an_operator_is_not_taken_for_a_handover<O: Played>() {
    for waits in [false, true] {
        let (mut stage, ballot) = put_off::<O>();
        let core = stage.core(replica(0, 1));
        let (succeed, cause) = (Control::TimeoutNow { ballot }, Cause::Operator);
        if waits {
            assert_eq!(core.told(0, succeed), [], "its leader has a lease");
        }
        core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
        let effects = if waits { core.looks() } else { core.told(0, succeed) };
        assert_eq!(effects, [GroupEffect::CloseLog { then: Closing::SetOut(cause) }]);
    }
}

fn whoever_lets_others_lead_in_vain_waits_longer_each_time<O: Played>() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = O::new(config, View::first(3));
    let (mut now_ms, mut counter) = (1, 0);
    let mut timeouts = |core: &mut O, comes_to_something: bool| {
        counter += 1;
        let ballot = Ballot::new(counter, 2, 0);
        core.let_lead(ballot);
        if comes_to_something {
            core.begin_to_follow(ballot, 0, 1);
            return 0;
        }
        let began = now_ms;
        while core.still_waits() {
            now_ms += 1;
            for slot in [0, 2] {
                core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
            }
            core.step(Event::Tick { now_ms }, &mut Vec::new());
        }
        (now_ms - began) / config.group.timeout_ms
    };
    core.step(Event::Tick { now_ms: 1 }, &mut Vec::new());
    // One timeout more, since g0.0 would be first.
    for expected in [12, 24, 48, 96, 96] {
        assert_eq!(timeouts(&mut core, false), expected + 1);
    }
    timeouts(&mut core, true);
    assert_eq!(timeouts(&mut core, false), 12 + 1, "somebody led in between");
}

/// Words of slot 2 arrive, and its heartbeats do not.
fn who_is_let_lead_though_suspected_has_as_long_as_one_of_whom_nothing_comes<O: Played>() {
    #[rustfmt::skip]
    let cases = [
        // suspected  leads  pulse          timeouts
        (true,        false, Pulse::Missed, 12 + 1),
        (true,        true,  Pulse::Missed, 12 + 1),
        (true,        true,  Pulse::Dead,   1),
        // It is suspected after 20 missed heartbeats, which take one timeout here.
        (false,       true,  Pulse::Missed, 1 + 1),
    ];
    for (suspected, leads, pulse, expected) in cases {
        let config = config(replica(0, 1), 0, 1, 3);
        let mut core = O::new(config, View::first(3));
        let mut now_ms = 0;
        let mut tick = |core: &mut O, pulse| {
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
        while core.still_waits() {
            tick(&mut core, pulse);
            waited += 1;
        }
        // Slot 0 would be first, and has one timeout.
        assert_eq!(
            waited.div_ceil(config.group.timeout_ms),
            expected,
            "{suspected} {leads} {pulse:?}"
        );
    }
}

fn who_is_given_a_state_does_not_set_out_meanwhile<O: Played>() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = O::new(config, View::first(3));
    core.step(Event::Tick { now_ms: 1 }, &mut Vec::new());
    let ballot = Ballot::new(1, 2, 0);
    core.let_lead(ballot);
    core.told(2, Control::Behind { ballot });
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
    // But the sender of the state may die.
    core.step(Event::Heartbeat { slot: 2, pulse: Pulse::Dead }, &mut Vec::new());
    let ticks = usize::try_from(config.group.beat_ms).expect("it is short");
    for now_ms in (1000..=1000 + config.group.timeout_ms).step_by(ticks) {
        assert_eq!(core.wants_to_lead(), None, "g0.0 comes first");
        core.step(Event::Tick { now_ms }, &mut Vec::new());
    }
    assert_eq!(core.wants_to_lead(), Some(Cause::Death));
}

fn whoever_is_kept_from_running_has_not_waited<O: Played>() {
    let config = config(replica(0, 1), 0, 1, 3);
    let ballot = Ballot::new(1, 2, 0);
    let waits = 12 * config.group.timeout_ms;
    let mut core = O::new(config, View::first(3));
    let tick = |core: &mut O, now_ms| {
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        core.wants_to_lead()
    };
    assert_eq!(tick(&mut core, 1), None);
    core.let_lead(ballot);
    // Its leader's writes in between are read only after this tick.
    assert_eq!(tick(&mut core, 1 + 10 * waits), None);
    assert_eq!(core.judge(ballot, true, false), Vote::GrantAgain);
    let mut now_ms = 1 + 10 * waits;
    while tick(&mut core, now_ms).is_none() {
        now_ms += config.group.timeout_ms;
        assert!(now_ms < 100 * waits, "it never sets out");
    }
    assert!(now_ms > 1 + 11 * waits, "its leader has just said that it leads");
}

fn who_has_led_waits_no_longer_for_others_than_whoever_has_not<O: Played>() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = O::new(config, View::first(3));
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
    while core.still_waits() {
        now_ms += 1;
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
    }
    // One timeout more than it stands back, since g0.0 would be first.
    assert_eq!((now_ms - 1) / config.group.timeout_ms, 12 + 1);
}
