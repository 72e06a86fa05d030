//! What a leader does not do yet, does not do at all, and no longer does.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::{EventOf, OrderingProtocol as _};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{PeerEvent, Record};
use skein_protocol::step::{Effect, Event};
use skein_protocol::timestamp::Timestamp;

use crate::by_hand::ByHand as _;
use crate::played::{Played, both};
use crate::stage::{Stage, message, replica};

both!(
    nobody_is_admitted_before_the_leaders_own_first_entry_is_committed,
    a_leader_waits_for_itself,
    the_time_that_entries_carry_never_falls,
    what_a_follower_reads_in_its_log_says_what_sessions_are_done_with,
);

/// What g1's leader in this ballot proposes for message 1, which goes to both groups.
fn proposed(ballot: Ballot, clock: u64) -> EventOf<Ramcast> {
    let announcement = Announcement {
        message: message(1),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(clock, GroupId(1)),
        ballot,
        index: 2,
        again: None,
    };
    Event::Heard(PeerEvent::Announced { from: replica(1, ballot.slot()), announcement })
}

/// The other groups' proposals that a replica logs in a turn with these events.
fn logs(core: &mut Ramcast, events: impl IntoIterator<Item = EventOf<Ramcast>>) -> Vec<u64> {
    let mut effects = Vec::new();
    for event in events {
        core.step(event, &mut effects);
    }
    core.step(Event::TurnEnd, &mut effects);
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

fn received() -> EventOf<Ramcast> {
    let (message, destinations) = (message(1), GroupSet::first(2));
    Event::Received { message, low_water: 1, destinations, outside: 0 }
}

fn nobody_is_admitted_before_the_leaders_own_first_entry_is_committed<O: Played>() {
    let (old, new, learner) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    stage.restart(learner);
    stage.run(new, &[old]);
    let last = stage.core(new).log().last_index();
    stage.admitted(new, learner);
    assert_eq!(stage.core(new).log().last_index(), last, "another may lead in its place still");
    stage.turn(old);
    stage.turn(new);
    stage.admitted(new, learner);
    assert_eq!(stage.core(new).log().last_index(), last + 1);
}

fn a_leader_waits_for_itself<O: Played>() {
    let leader = replica(0, 0);
    let mut stage = Stage::<O>::new(1, 3);
    assert!(!stage.evict(leader, leader.slot));
    assert!(stage.evict(leader, 1));
}

#[test]
fn what_a_deposed_leader_announces_is_not_logged() {
    let (old, new) = (Ballot::new(1, 0, 0), Ballot::new(2, 1, 0));
    let mut stage = Stage::<Ramcast>::new(2, 3);
    let core = stage.core(replica(0, 0));
    assert_eq!(logs(core, [received(), proposed(new, 9)]), [9]);
    assert_eq!(logs(core, [proposed(old, 7)]), []);
    assert_eq!(core.leader_of(GroupId(1)), replica(1, 1));
}

/// A leader handles proposals that are announced together as it handles them one after the other, whatever it has
/// received of the message before.
#[test]
fn what_is_proposed_together_is_heard_as_if_it_came_one_after_the_other() {
    let destinations = GroupSet::first(3);
    let by = |group, ballot: Ballot, clock| Remote {
        message: message(1),
        timestamp: Timestamp::new(clock, GroupId(group)),
        ballot,
        index: 2,
    };
    let (first, later) = (Ballot::new(1, 0, 0), Ballot::new(2, 1, 0));
    #[rustfmt::skip]
    let turns = [
        // received  proposed                                      logs         because
        (true,  vec![by(1, first, 7), by(2, first, 8)],            vec![7, 8],  "it is logged"),
        (true,  vec![by(1, first, 7), by(2, first, 8)],            vec![],      "it has them already"),
        (true,  vec![by(1, later, 9), by(2, first, 8)],            vec![9],     "one of them has another leader"),
        (true,  vec![by(1, first, 7), by(2, later, 6)],            vec![6],     "and is heard no more as it was"),
        (false, vec![by(1, first, 7), by(2, first, 8)],            vec![],      "nobody knows the message"),
        (true,  vec![],                                            vec![7, 8],  "it had been announced early"),
    ];
    let received =
        || Event::Received { message: message(1), low_water: 1, destinations, outside: 0 };
    for together in [false, true] {
        let mut stage = Stage::<Ramcast>::new(3, 3);
        logs(stage.core(replica(0, 0)), [received()]);
        for (known, proposals, expected, because) in &turns {
            if !known {
                stage = Stage::<Ramcast>::new(3, 3);
            }
            let core = stage.core(replica(0, 0));
            // Commits what it logged before.
            let index = core.log().last_index();
            logs(core, [Event::Completed { slot: 1, index }]);
            let mut effects = Vec::new();
            if together {
                let proposed = Proposed { message: message(1), low_water: 1, destinations };
                core.hear_together(&proposed, proposals.iter().copied(), &mut effects);
            }
            for remote in proposals.iter().filter(|_| !together) {
                let &Remote { message, timestamp, ballot, index } = remote;
                let (low_water, again) = (1, None);
                let announcement = Announcement {
                    message,
                    low_water,
                    destinations,
                    timestamp,
                    ballot,
                    index,
                    again,
                };
                let from = replica(timestamp.group().0, ballot.slot());
                core.step(Event::Heard(PeerEvent::Announced { from, announcement }), &mut effects);
            }
            let received = proposals.is_empty().then(received);
            assert_eq!(&logs(core, received), expected, "{because}, together: {together}");
        }
    }
}

#[test]
fn what_was_announced_early_is_forgotten_by_who_leads_no_more() {
    let fetches = |deposed: bool| {
        let mut stage = Stage::<Ramcast>::new(2, 3);
        let core = stage.core(replica(0, 0));
        assert_eq!(logs(core, [proposed(Ballot::new(1, 0, 0), 7)]), []);
        let mut effects = Vec::new();
        if deposed {
            core.step(Event::Denied, &mut effects);
        }
        core.step(Event::Tick { now_ms: 1_000 }, &mut effects);
        effects.iter().any(|effect| matches!(effect, Effect::Fetch { .. }))
    };
    assert!(fetches(false), "a leader proposes what others have proposed");
    assert!(!fetches(true), "and nobody else does");
}

fn the_time_that_entries_carry_never_falls<O: Played>() {
    let leader = replica(0, 1);
    let mut stage = Stage::<O>::new(1, 3);
    stage.pass(5, &[]);
    // Its former leader, whose clock is ahead, had logged that time.
    let core = stage.core(leader);
    let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
    let (destinations, held, last) = (GroupSet::first(1), true, true);
    let record = O::record(message(1), 1, destinations, true);
    let logged = Event::Logged { index, birth, time_ms: 7_000, record, held, last };
    core.step(logged, &mut Vec::new());
    stage.run(leader, &[replica(0, 2)]);
    let (mut times, core) = (Vec::new(), stage.core(leader));
    for (number, now_ms) in [(2, 10), (3, 400)] {
        let (message, mut effects) = (message(number), Vec::new());
        core.step(Event::Tick { now_ms }, &mut effects);
        let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
        core.step(received, &mut effects);
        times.extend(effects.into_iter().filter_map(|effect| match effect {
            Effect::Append { time_ms, .. } => Some(time_ms),
            _ => None,
        }));
    }
    assert_eq!(times, [7_005, 7_395], "and goes on from there");
}

fn what_a_follower_reads_in_its_log_says_what_sessions_are_done_with<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 1));
    let (index, birth) = (core.log().last_index() + 1, core.log().ballot());
    let record = O::record(message(9), 8, GroupSet::first(1), true);
    let (held, last) = (true, true);
    core.step(Event::Logged { index, birth, time_ms: 0, record, held, last }, &mut Vec::new());
    // Along a tree, an entry says so once it is committed.
    for by in [replica(0, 0), replica(0, 2)] {
        let acceptance = Acceptance { tag: birth.tag(), index };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    }
    core.advance_commit();
    assert!(core.is_logged(message(7)), "it will never be proposed again");
    assert!(!core.is_logged(message(8)));
}
