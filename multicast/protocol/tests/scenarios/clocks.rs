//! Clocks and counters: where they rise, and that none of them falls.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::{Cause, GroupRecord};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::{Inspect as _, MessageStage, OrderingProtocol as _};
use skein_protocol::ramcast::Record;
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{PeerEvent, Ramcast};
use skein_protocol::step::Event;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::ByHand;
use crate::played::{Played, both};
use crate::stage::{Stage, config, message, replica};

both!(
    time_does_not_fall,
    what_is_logged_is_pending_committed_or_not,
    whoever_is_not_first_gives_a_first_leader_time_from_its_own_first_tick_on,
);

/// Slot 1 of g0, one of three groups, follows slot 0.
fn follower() -> Ramcast {
    let mut follower = Ramcast::new(config(replica(0, 1), 0, 3, 3), View::first(3));
    let ballot = Ballot::new(1, 0, 0);
    follower.let_lead(ballot);
    follower.begin_to_follow(ballot, 0, 1);
    logged(&mut follower, Record::Group(GroupRecord::NewBallot));
    follower
}

fn logged(core: &mut Ramcast, record: Record) {
    let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
    let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
    core.step(event, &mut Vec::new());
}

fn at(clock: u64, group: u16) -> Timestamp {
    Timestamp::new(clock, GroupId(group))
}

/// A group's proposal for message 1.
fn remote(clock: u64, group: u16, counter: u32) -> Remote {
    let ballot = Ballot::new(counter, 0, 0);
    Remote { message: message(1), timestamp: at(clock, group), ballot, index: 2 }
}

#[test]
fn a_followers_clock_rises_to_all_that_its_log_says() {
    let mut core = follower();
    let (destinations, inline) = (GroupSet::first(3), true);
    let timestamp = at(5, 0);
    let local =
        Record::Local { message: message(1), low_water: 1, timestamp, destinations, inline };
    logged(&mut core, local);
    assert_eq!(core.inspect().clock(), 5);
    logged(&mut core, Record::Remote(remote(9, 1, 1)));
    assert_eq!(core.inspect().clock(), 9);
    logged(&mut core, Record::Raise { timestamp: at(20, 2) });
    assert_eq!(core.inspect().clock(), 20);
    for proposed in [[30, 40], [60, 50]] {
        let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
        let proposals = (1..).zip(proposed).map(|(group, clock)| remote(clock, group, 1));
        core.accept_proposals(index, birth, 0, proposals);
        assert_eq!(Some(&core.inspect().clock()), proposed.iter().max());
    }
    logged(&mut core, Record::Remote(remote(7, 1, 1)));
    assert_eq!(core.inspect().clock(), 60, "and never falls");
}

#[test]
fn a_leaders_clock_rises_to_all_proposals_of_an_entry() {
    for clocks in [[40, 30], [30, 40]] {
        let mut stage = Stage::<Ramcast>::new(3, 3);
        let core = stage.core(replica(0, 0));
        let (message, destinations, again) = (message(1), GroupSet::first(3), None);
        let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
        core.step(received, &mut Vec::new());
        for (group, clock) in (1..).zip(clocks) {
            let Remote { timestamp, ballot, index, .. } = remote(clock, group, 1);
            let announcement = Announcement {
                message,
                low_water: 1,
                destinations,
                timestamp,
                ballot,
                index,
                again,
            };
            let from = replica(group, 0);
            core.step(Event::Heard(PeerEvent::Announced { from, announcement }), &mut Vec::new());
        }
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(core.inspect().clock(), 40, "{clocks:?}");
    }
}

#[test]
fn a_groups_ballots_are_known_from_wherever_one_of_them_stands() {
    let known =
        |core: &Ramcast| [1, 2].map(|group| core.inspect().counter_known_of(GroupId(group)));
    let mut core = follower();
    assert_eq!(known(&core), [0, 0]);
    let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
    core.accept_proposals(index, birth, 0, [remote(9, 1, 7)].into_iter());
    assert_eq!(known(&core), [7, 0], "it is logged");

    let mut core = follower();
    let (timestamp, destinations, inline) = (at(5, 0), GroupSet::first(3), true);
    logged(
        &mut core,
        Record::Local { message: message(1), low_water: 1, timestamp, destinations, inline },
    );
    logged(&mut core, Record::Remote(remote(9, 1, 7)));
    core.step(Event::TurnEnd, &mut Vec::new());
    assert!(core.stage_of(message(1)) == MessageStage::Pending);
    assert_eq!(known(&core), [7, 0], "it is committed, and not delivered");
    logged(&mut core, Record::Remote(Remote { message: message(2), ..remote(9, 1, 8) }));
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(known(&core), [8, 0], "it is committed, and the message is not pending");

    let mut core = follower();
    let acceptance = Acceptance { tag: Ballot::new(12, 1, 0).tag(), index: 3 };
    core.step(Event::Acknowledged { by: replica(2, 1), acceptance }, &mut Vec::new());
    assert_eq!(known(&core), [0, 12], "it stands in a word");
    assert_eq!(core.inspect().counter_known_of(GroupId(0)), core.log().inspect().ballot_counter());
}

fn time_does_not_fall<O: Played>() {
    let mut core = O::new(config(replica(0, 1), 0, 1, 3), View::first(3));
    for (now_ms, is) in [(10, 10), (5, 10), (11, 11)] {
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        assert_eq!(core.log().now_ms(), is);
    }
}

fn what_is_logged_is_pending_committed_or_not<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 0));
    let destinations = GroupSet::first(1);
    for number in [1, 2] {
        let message = message(number);
        let event = Event::Received { message, low_water: 1, destinations, outside: 0 };
        core.step(event, &mut Vec::new());
    }
    assert_eq!((core.inspect().pending(), core.log().commit_index()), (2, 1));
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: 2 };
    core.step(Event::Acknowledged { by: replica(0, 1), acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!((core.inspect().pending(), core.log().commit_index()), (2, 2));
    assert!(core.deliver().is_some());
    assert_eq!(core.inspect().pending(), 1);
}

fn whoever_is_not_first_gives_a_first_leader_time_from_its_own_first_tick_on<O: Played>() {
    let config = config(replica(0, 1), 0, 1, 3);
    let mut core = O::new(config, View::first(3));
    let began = 1_000_000;
    let mut now_ms = began;
    let wanted = loop {
        for slot in [0, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        if let Some(cause) = core.wants_to_lead() {
            break cause;
        }
        now_ms += 10;
    };
    assert_eq!((wanted, now_ms - began), (Cause::Start, 40 * config.group.timeout_ms));
}

#[test]
fn a_groups_highest_clock_is_that_of_whatever_anybody_was_told_of_it() {
    let mut core = Ramcast::new(config(replica(0, 0), 0, 2, 3), View::first(3));
    assert_eq!((core.inspect().clock(), core.inspect().highest_clock()), (0, 0));
    let timestamp = Timestamp::new(70, GroupId(1));
    core.step(Event::Settled { group: GroupId(1), rank: timestamp.into() }, &mut Vec::new());
    assert_eq!(
        (core.inspect().clock(), core.inspect().highest_clock()),
        (0, 70),
        "a group was done up to there"
    );
    let other =
        Ramcast::new(config(replica(1, 0), 0, 2, 3), View::first(3)).anew(View::first(3), 1, 80);
    let mut report = Vec::new();
    other.report_passed(GroupSet::single(GroupId(1)), false, &mut report);
    core.hear_passed(replica(1, 0), &report, &mut Vec::new());
    assert_eq!(
        (core.inspect().clock(), core.inspect().highest_clock()),
        (0, 80),
        "a group had delivered up to there"
    );
}
