//! Queries and answers between groups: proposals that came early, that are missing, or that were lost with a leader.

use std::ops::Range;

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::GroupRecord;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::log::{Decision, Remote};
use skein_protocol::ramcast::{Cause, PeerEffect, PeerEvent, Ramcast};
use skein_protocol::ramcast::{Effect, Event, Record};
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::ByHand;
use crate::stage::{Stage, config, message, replica};

fn at(clock: u64, group: u16) -> Timestamp {
    Timestamp::new(clock, GroupId(group))
}

/// What g1's leader in this ballot announces for a message to g0 and g1, and whether it asks for something.
fn announced(number: u64, ballot: Ballot, clock: u64, again: Option<Timestamp>) -> Event {
    let announcement = Announcement {
        message: message(number),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: at(clock, 1),
        ballot,
        index: 2,
        again,
    };
    Event::Heard(PeerEvent::Announced { from: replica(1, ballot.slot()), announcement })
}

fn received(number: u64) -> Event {
    let (message, destinations) = (message(number), GroupSet::first(2));
    Event::Received { message, low_water: 1, destinations, outside: 0 }
}

/// The leader of g0, of three replicas and two groups, at time 1,000.
fn leader() -> Ramcast {
    let mut core = Ramcast::new(config(replica(0, 0), 0, 2, 3), View::first(3));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    core.campaign(Cause::Start);
    core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
    core.begin_to_lead(&mut Vec::new());
    commit(&mut core);
    core
}

/// A follower accepts everything that is logged.
fn commit(core: &mut Ramcast) {
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by: replica(0, 1), acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), core.log().last_index());
}

fn step(core: &mut Ramcast, events: impl IntoIterator<Item = Event>) -> Vec<Effect> {
    let mut effects = Vec::new();
    for event in events {
        core.step(event, &mut effects);
    }
    effects
}

/// Clocks of other groups' proposals that this turn's end logs.
fn logs(core: &mut Ramcast) -> Vec<u64> {
    let effects = step(core, [Event::TurnEnd]);
    let records = effects.into_iter().filter_map(|effect| match effect {
        Effect::Append { index, record, .. } => Some(core.logged(index, record)),
        _ => None,
    });
    let clock = |record| match record {
        Record::Remote(remote) => Some(remote.timestamp.clock()),
        _ => None,
    };
    records.flatten().filter_map(clock).collect()
}

/// The announcements among the effects, and their receivers.
fn announces(effects: &[Effect]) -> Vec<(ReplicaId, Announcement)> {
    let announced = effects.iter().filter_map(|effect| match effect {
        Effect::Tell(PeerEffect::Announce { to, announcement }) => Some((*to, *announcement)),
        _ => None,
    });
    announced.collect()
}

/// Two groups that have delivered message 1 everywhere.
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

#[test]
fn of_what_a_group_announced_early_its_last_leader_counts() {
    let mut core = leader();
    let (first, later) = (Ballot::new(1, 0, 0), Ballot::new(2, 1, 0));
    step(&mut core, [announced(1, first, 7, None), announced(1, later, 9, None)]);
    let effects = step(&mut core, [Event::Tick { now_ms: 1_020 }]);
    let fetches = |from| Effect::Fetch { message: message(1), from };
    assert!(
        effects.contains(&fetches(replica(1, 1))) && !effects.contains(&fetches(replica(1, 0)))
    );
    assert_eq!(logs(&mut core), []);
    step(&mut core, [received(1)]);
    assert_eq!(logs(&mut core), [9]);
}

#[test]
fn what_was_announced_early_is_fetched_once_in_a_while_until_its_leader_is_deposed() {
    let mut core = leader();
    step(&mut core, [announced(1, Ballot::new(1, 0, 0), 7, None)]);
    let fetched = |core: &mut Ramcast, times: Range<u64>| -> Vec<u64> {
        times
            .filter(|now_ms| {
                let effects = step(core, [Event::Tick { now_ms: *now_ms }]);
                effects.iter().any(|effect| matches!(effect, Effect::Fetch { .. }))
            })
            .collect()
    };
    assert_eq!(fetched(&mut core, 1_001..1_060), [1_020, 1_040]);
    step(&mut core, [announced(2, Ballot::new(2, 1, 0), 9, None), received(2)]);
    assert_eq!(fetched(&mut core, 1_060..1_200), [], "its successor has not announced that");
}

#[test]
fn a_deposed_leaders_proposals_are_not_heard_together_either() {
    let mut core = leader();
    step(&mut core, [received(1), announced(2, Ballot::new(2, 1, 0), 9, None), received(2)]);
    logs(&mut core);
    commit(&mut core);
    let proposed = Proposed { message: message(1), low_water: 1, destinations: GroupSet::first(2) };
    let stale =
        Remote { message: message(1), timestamp: at(7, 1), ballot: Ballot::new(1, 0, 0), index: 2 };
    core.hear_together(&proposed, [stale].into_iter(), &mut Vec::new());
    assert_eq!(logs(&mut core), []);
}

/// A leader may never have received the announcements of ballots that its log contains.
#[test]
fn a_new_leader_does_not_log_what_a_deposed_one_of_another_group_proposed_if_its_log_says_so() {
    let (first, later) = (Ballot::new(1, 0, 0), Ballot::new(2, 1, 0));
    for (logged, committed, expected) in [
        (first, false, [7].as_slice()),
        (first, true, &[7]),
        (later, false, &[]),
        (later, true, &[]),
    ] {
        let mut core = Ramcast::new(config(replica(0, 1), 0, 2, 5), View::first(5));
        let mut effects = Vec::new();
        core.step(Event::Tick { now_ms: 1_000 }, &mut effects);
        core.let_lead(first);
        core.begin_to_follow(first, 0, 1);
        for (index, number) in [(1, 1), (2, 2)] {
            let (message, destinations) = (message(number), GroupSet::first(2));
            let timestamp = at(number, 0);
            let record =
                Record::Local { message, low_water: 1, timestamp, destinations, inline: true };
            let (birth, time_ms, held, last) = (first, 0, true, true);
            core.step(Event::Logged { index, birth, time_ms, record, held, last }, &mut effects);
        }
        let remote = Remote { message: message(1), timestamp: at(5, 1), ballot: logged, index: 2 };
        core.accept_proposals(3, first, 0, [remote].into_iter());
        core.step(Event::TurnEnd, &mut effects);
        if committed {
            let acceptance = Acceptance { tag: first.tag(), index: 3 };
            core.step(Event::Acknowledged { by: replica(0, 2), acceptance }, &mut effects);
            core.step(Event::TurnEnd, &mut effects);
        }
        assert_eq!(core.log().commit_index(), if committed { 3 } else { 0 });
        core.campaign(Cause::Silence);
        for slot in [2, 3] {
            core.granted(slot, 0, (first, 3), vec![0; 5]);
        }
        core.begin_to_lead(&mut effects);
        step(&mut core, [announced(2, first, 7, None)]);
        assert_eq!(logs(&mut core), expected, "{logged} is in its log, committed: {committed}");
    }
}

#[test]
fn whoever_asks_about_a_pending_message_is_told_where_it_ends_at_least() {
    let mut core = leader();
    step(&mut core, [received(1)]);
    commit(&mut core);
    let first = Ballot::new(1, 0, 0);
    let told = announces(&step(&mut core, [announced(1, first, 9, None)]));
    assert_eq!(told, [], "it does not ask");
    let told = announces(&step(&mut core, [announced(1, first, 9, Some(at(9, 1)))]));
    let [(to, announcement)] = told[..] else { panic!("{told:?}") };
    assert_eq!((to, announcement.timestamp, announcement.again), (replica(1, 0), at(1, 0), None));
}

#[test]
fn whoever_asks_about_a_delivered_message_is_told_what_its_group_had_proposed() {
    let mut stage = shared();
    let core = stage.core(replica(0, 0));
    assert_eq!(core.deliver(), None);
    let (first, last) = (Ballot::new(1, 0, 0), at(1, 1));
    assert_eq!(announces(&step(core, [announced(1, first, 1, None)])), [], "it does not ask");
    let effects = step(core, [announced(1, first, 1, Some(last))]);
    let told = announces(&effects);
    let [(to, announcement)] = told[..] else { panic!("{told:?}") };
    assert_eq!((to, announcement.timestamp), (replica(1, 0), at(1, 0)), "and not where it ended");
    assert!(effects.contains(&Effect::Resend { message: message(1), to: GroupId(1) }));
    // If the state machine waits for others' results, the query carries the message's final timestamp.
    let waits = |heard| Event::Waits { message: message(1), heard };
    let mut effects = Vec::new();
    core.step(waits(GroupSet::single(GroupId(1))), &mut effects);
    assert_eq!(effects, [], "it has them");
    core.step(waits(GroupSet::default()), &mut effects);
    let asked = announces(&effects);
    assert!(asked.iter().map(|(to, _)| *to).eq((0..3).map(|slot| replica(1, slot))), "{asked:?}");
    let its = |it: &Announcement| (it.timestamp, it.again);
    assert!(asked.iter().all(|(_, it)| its(it) == (at(1, 0), Some(last))), "{asked:?}");
}

#[test]
fn a_decision_is_logged_for_replicas_that_lag_and_once_none_does_no_more() {
    let decides = |core: &mut Ramcast| {
        let effects = step(core, [announced(1, Ballot::new(1, 0, 0), 1, None), Event::TurnEnd]);
        effects.iter().any(|effect| {
            let decision = Decision { message: message(1), timestamp: at(1, 1) };
            matches!(effect, Effect::Append { record: Record::Decided(it), .. } if *it == decision)
        })
    };
    let mut stage = shared();
    let core = stage.core(replica(0, 0));
    assert!(decides(core), "a replica of its own group may not have delivered it");
    assert!(!decides(core), "once is enough");
    let mut stage = shared();
    let core = stage.core(replica(0, 0));
    step(core, [Event::Settled { group: GroupId(0), rank: at(1, 1).into() }]);
    assert!(!decides(core), "all of its group are done with it");
}

#[test]
fn a_group_that_asks_for_what_is_forgotten_is_told_so_from_just_above_what_it_was_done_with() {
    let mut stage = shared();
    let (core, last) = (stage.core(replica(0, 0)), at(1, 1));
    for group in [GroupId(0), GroupId(1)] {
        step(core, [Event::Settled { group, rank: last.into() }]);
    }
    step(core, [Event::Tick { now_ms: 1 }]);
    let anew = Ballot::new(Ballot::recreated(2).unwrap() + 1, 0, 0);
    for (bound, over) in [(last, false), (last.above(), true)] {
        let told = announces(&step(core, [announced(1, anew, bound.clock(), Some(bound))]));
        assert_eq!(told.iter().any(|(_, it)| it.timestamp.is_over()), over, "{bound}");
    }
}

/// Times at which a leader asks other groups about a message.
fn asks(core: &mut Ramcast, number: u64, between: Range<u64>) -> Vec<u64> {
    let mut times = Vec::new();
    for now_ms in between {
        let asked = announces(&step(core, [Event::Tick { now_ms }]));
        let about = asked.iter().filter(|(_, it)| it.message == message(number));
        let to: Vec<_> = about.map(|(to, it)| (*to, it.again.is_some())).collect();
        if !to.is_empty() {
            assert_eq!(to, [0, 1, 2].map(|slot| (replica(1, slot), true)), "all of that group");
            times.push(now_ms);
        }
    }
    times
}

#[test]
fn a_leader_asks_for_what_a_message_lacks_ever_less_often() {
    let mut core = leader();
    step(&mut core, [received(1), received(2), announced(2, Ballot::new(1, 0, 0), 9, None)]);
    logs(&mut core);
    commit(&mut core);
    let acceptance = Acceptance { tag: Ballot::new(1, 0, 0).tag(), index: 2 };
    step(&mut core, [Event::Acknowledged { by: replica(1, 1), acceptance }]);
    assert_eq!(core.deliver(), None, "message 1 may end before 2, which lacks nothing");
    assert_eq!((asks(&mut core, 1, 1_001..1_100), core.lacks()), (vec![1_021, 1_061], vec![]));
    let mut core = leader();
    step(&mut core, [received(1), received(2), announced(2, Ballot::new(1, 0, 0), 9, None)]);
    logs(&mut core);
    commit(&mut core);
    step(&mut core, [Event::Acknowledged { by: replica(1, 1), acceptance }]);
    assert_eq!(asks(&mut core, 2, 1_001..1_100), [], "it lacks nothing");
}

#[test]
fn whoever_leads_again_asks_as_soon_as_the_first_time() {
    let mut core = leader();
    step(&mut core, [received(1)]);
    logs(&mut core);
    commit(&mut core);
    assert_eq!(asks(&mut core, 1, 1_001..1_100), [1_021, 1_061], "the next would be 1,141");
    core.campaign(Cause::Transfer);
    let last = (core.log().ballot(), core.log().last_index());
    core.granted(1, 0, last, vec![0; 3]);
    core.begin_to_lead(&mut Vec::new());
    commit(&mut core);
    assert_eq!(asks(&mut core, 1, 1_100..1_140), [1_100]);
}

#[test]
fn a_follower_waits_longer_than_a_leader_and_lacks_nothing_of_what_is_decided() {
    let mut core = Ramcast::new(config(replica(0, 1), 0, 2, 3), View::first(3));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let birth = Ballot::new(1, 0, 0);
    core.let_lead(birth);
    core.begin_to_follow(birth, 0, 1);
    let local = |number| Record::Local {
        message: message(number),
        low_water: 1,
        timestamp: at(number, 0),
        destinations: GroupSet::first(2),
        inline: true,
    };
    let decided = Record::Decided(Decision { message: message(2), timestamp: at(9, 1) });
    for (index, record) in
        (1..).zip([Record::Group(GroupRecord::NewBallot), local(1), local(2), decided])
    {
        let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
        core.step(event, &mut Vec::new());
    }
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!((core.log().commit_index(), core.deliver()), (4, None));
    let mut lacked = Vec::new();
    for now_ms in 1_001..1_100 {
        core.step(Event::Tick { now_ms }, &mut Vec::new());
        lacked.extend(core.lacks().into_iter().map(|message| (now_ms, message.sequence)));
    }
    assert_eq!(lacked, [(1_061, 1), (1_081, 1)], "three timeouts, at its next question");
}

#[test]
fn a_follower_that_was_answered_asks_for_the_next_ones_at_once() {
    let mut core = Ramcast::new(config(replica(0, 1), 0, 2, 3), View::first(3));
    core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let birth = Ballot::new(1, 0, 0);
    core.let_lead(birth);
    core.begin_to_follow(birth, 0, 1);
    let mut index = 0;
    let mut log = |core: &mut Ramcast, record| {
        index += 1;
        let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
        core.step(event, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
    };
    let local = |number| Record::Local {
        message: message(number),
        low_water: 1,
        timestamp: at(number, 0),
        destinations: GroupSet::first(2),
        inline: true,
    };
    let decided =
        |number| Record::Decided(Decision { message: message(number), timestamp: at(number, 1) });
    log(&mut core, Record::Group(GroupRecord::NewBallot));
    (1..=3).for_each(|number| log(&mut core, local(number)));
    log(&mut core, decided(1));
    assert_eq!(core.lacks(), [], "it did not ask, and so waits for what is on its way");
    core.step(Event::Tick { now_ms: 1_060 }, &mut Vec::new());
    assert_eq!(core.lacks(), [message(2), message(3)]);
    assert_eq!(core.lacks(), [], "its leader is about to answer");
    log(&mut core, local(4));
    assert_eq!(core.lacks(), [], "this is no answer");
    log(&mut core, decided(2));
    assert_eq!(core.lacks(), [message(3), message(4)], "and not a timeout later");
    assert_eq!(core.lacks(), []);
}
