//! What a replica keeps, and what it discards, when it restores a state, begins again in the same incarnation, steps
//! down, or leads again.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::detector::Pulse;
use skein_protocol::group::{Cause, GroupEvent, GroupRecord, Replay};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{
    EffectOf, EventOf, Inspect as _, MessageStage, OrderingProtocol as _,
};
use skein_protocol::ramcast::announcement::Announcement;
use skein_protocol::ramcast::{PeerEvent, Ramcast, Record};
use skein_protocol::step::{Effect, Event};
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::ByHand;
use crate::played::{Played, both};
use crate::stage::{Stage, config, message, replica};

both!(
    who_takes_a_state_could_give_the_same_one,
    who_begins_anew_in_the_same_life_keeps_what_it_owes_and_knows,
    who_has_just_taken_a_state_gives_its_leader_time_to_write,
    a_view_that_was_changing_goes_on_to_change_under_the_next_leader,
    who_has_stepped_down_lets_others_go_first,
    a_follower_tells_its_new_leader_and_whoever_shares_with_it_what_it_holds,
);

/// The leader of g0 with its followers, and with a message to all groups that is committed and not delivered. A slot is
/// evicted, if `evicted` names one.
fn leader<O: Played>(evicted: Option<u8>) -> O {
    let mut core = O::new(config(replica(0, 0), 0, O::GROUPS, 3), View::first(3));
    core.step(Event::Tick { now_ms: 5_000 }, &mut Vec::new());
    core.campaign(Cause::Start);
    core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
    core.begin_to_lead(&mut Vec::new());
    let (message, destinations) = (message(1), GroupSet::first(O::GROUPS));
    let event = Event::Received { message, low_water: 1, destinations, outside: 0 };
    core.step(event, &mut Vec::new());
    if let Some(slot) = evicted {
        assert!(core.evicts(slot, &mut Vec::new()));
    }
    accepted(&mut core, 1);
    core
}

/// A follower of g0 accepts all of the leader's log.
fn accepted<O: Played>(core: &mut O, slot: u8) {
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
    core.step(Event::Acknowledged { by: replica(0, slot), acceptance }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
    assert_eq!(core.log().commit_index(), core.log().last_index());
}

fn saved<O: Played>(core: &mut O) -> Vec<u8> {
    let mut bytes = Vec::new();
    core.save(&mut bytes);
    bytes
}

fn who_takes_a_state_could_give_the_same_one<O: Played>() {
    for evicted in [None, Some(2)] {
        let mut leader = leader::<O>(evicted);
        let state = saved(&mut leader);
        let mut learner = O::new(config(replica(0, 2), 1, O::GROUPS, 3), View::first(3));
        learner.takes(&state);
        assert_eq!(learner.log().view(), leader.log().view());
        learner.begin_to_follow(
            leader.log().ballot(),
            learner.log().last_index(),
            leader.log().first_index(),
        );
        assert_eq!(saved(&mut learner), state, "evicted: {evicted:?}");
    }
}

#[test]
fn a_state_is_whole_for_a_life_that_is_waited_for() {
    #[rustfmt::skip]
    let cases = [
        // incarnation  evicted  whole  because
        (0,      None,    true,  "nobody lets go of what it lacks"),
        (0,      Some(2), false, "others may have let go meanwhile"),
        (1,      None,    false, "the state is of before it counts"),
    ];
    for (incarnation, evicted, whole, because) in cases {
        let state = saved(&mut leader::<Ramcast>(evicted));
        let mut learner = Ramcast::new(config(replica(0, 2), incarnation, 2, 3), View::first(3));
        learner.takes(&state);
        assert!(learner.stage_of(message(1)) == MessageStage::Pending);
        assert_eq!(learner.inspect().can_be_revived(0), whole, "{because}");
    }
}

#[test]
fn a_state_that_a_replica_saved_itself_is_as_whole_as_it_was() {
    for (recovery_barrier, whole) in [(0, true), (1, true), (u64::MAX, false)] {
        let mut core = Ramcast::new(config(replica(0, 2), 0, 2, 3), View::first(3));
        core.takes(&saved(&mut leader::<Ramcast>(None)));
        let replay = Replay::OwnState { recovery_barrier };
        core.step(Event::Group(GroupEvent::Replay(replay)), &mut Vec::new());
        assert_eq!(core.inspect().can_be_revived(0), whole, "below {recovery_barrier}");
        assert_eq!(core.log().recovery_barrier(), recovery_barrier);
    }
}

#[cfg(feature = "mutants")]
#[test]
fn the_guard_of_a_state_of_its_own_that_is_taken_out_is_noticed() {
    use skein_protocol::mutants::{Mutant, plant};

    plant(Some(Mutant::OwnStateTakenForWhole));
    let noticed =
        std::panic::catch_unwind(a_state_that_a_replica_saved_itself_is_as_whole_as_it_was);
    plant(None);
    assert!(noticed.is_err());
}

fn who_begins_anew_in_the_same_life_keeps_what_it_owes_and_knows<O: Played>() {
    let mut core = O::new(config(replica(0, 2), 1, O::GROUPS, 3), View::first(3));
    core.step(Event::Tick { now_ms: 7_000 }, &mut Vec::new());
    for _ in 0..500 {
        let pulse = Pulse::Missed;
        core.step(Event::Heartbeat { slot: 1, pulse }, &mut Vec::new());
    }
    let promised = Ballot::new(5, 1, 0);
    core.hear_admitted(promised, 1);
    core.hear_admitted(Ballot::new(6, 1, 0), 1);
    core.hear_refusal(Ballot::new(9, 0, 0));
    core.waits_for_survivor(promised);
    // The state is of an earlier leader.
    core.takes(&saved(&mut leader::<O>(None)));
    let blank = core;
    assert!(blank.log().inspect().is_admitted(), "somebody has folded its `Join`");
    assert_eq!((blank.log().now_ms(), blank.log().promised()), (7_000, promised));
    assert_eq!(blank.log().inspect().ballot_counter(), 9, "it has heard of that one");
    assert!(
        blank.log().inspect().detector().suspects(1)
            && !blank.log().inspect().detector().suspects(0)
    );
}

#[test]
fn who_begins_anew_in_the_same_life_keeps_what_another_groups_word_says() {
    let mut core = Ramcast::new(config(replica(0, 2), 1, 2, 3), View::first(3));
    let acceptance = Acceptance { tag: Ballot::new(12, 1, 0).tag(), index: 3 };
    core.step(Event::Acknowledged { by: replica(1, 1), acceptance }, &mut Vec::new());
    core.takes(&saved(&mut leader::<Ramcast>(None)));
    assert_eq!(core.inspect().counter_known_of(GroupId(1)), 12);
}

fn who_has_just_taken_a_state_gives_its_leader_time_to_write<O: Played>() {
    let config = config(replica(0, 2), 0, O::GROUPS, 3);
    let state = saved(&mut leader::<O>(None));
    let mut core = O::new(config, View::first(3));
    core.step(Event::Tick { now_ms: 7_000 }, &mut Vec::new());
    core.takes(&state);
    let mut now_ms = 7_000;
    while core.still_waits() {
        now_ms += 10;
        for slot in [0, 1] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
    }
    // Slot 1 would come first.
    assert_eq!((now_ms - 7_000) / config.group.timeout_ms, 16 + 1);
}

fn announced(from: ReplicaId, counter: u32, number: u64, clock: u64) -> EventOf<Ramcast> {
    let announcement = Announcement {
        message: message(number),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(clock, from.group),
        ballot: Ballot::new(counter, from.slot, 0),
        index: 2,
        again: None,
    };
    Event::Heard(PeerEvent::Announced { from, announcement })
}

/// The leader steps down, and leads again. Returns what it appends.
fn leads_again<O: Played>(core: &mut O) -> Vec<O::Record> {
    core.step(Event::Denied, &mut Vec::new());
    core.campaign(Cause::Silence);
    let last = (core.log().inspect().last_birth(), core.log().last_index());
    let named = core.log().named();
    core.granted(1, 0, last, named);
    let mut effects = Vec::new();
    core.begin_to_lead(&mut effects);
    core.step(Event::TurnEnd, &mut effects);
    appended::<O>(&effects)
}

fn appended<O: Played>(effects: &[EffectOf<O>]) -> Vec<O::Record> {
    let records = effects.iter().filter_map(|effect| match effect {
        Effect::Append { record, .. } => Some(*record),
        _ => None,
    });
    records.collect()
}

#[test]
fn what_was_to_be_logged_in_a_ballot_is_not_logged_in_the_next_one() {
    let mut core = leader::<Ramcast>(None);
    core.step(announced(replica(1, 0), 1, 1, 9), &mut Vec::new());
    assert_eq!(
        leads_again(&mut core),
        [Record::Group(GroupRecord::NewBallot)],
        "its group may say something else by now"
    );

    let mut stage = Stage::<Ramcast>::new(2, 3);
    for id in [replica(0, 0), replica(1, 0)] {
        stage.land(id, message(1), GroupSet::first(2));
    }
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    for id in all.iter().chain(&all).chain(&all) {
        stage.turn(*id);
    }
    let core = stage.core(replica(0, 0));
    core.step(Event::Lacked { message: message(1) }, &mut Vec::new());
    assert_eq!(
        leads_again(core),
        [Record::Group(GroupRecord::NewBallot)],
        "whoever lags asks again"
    );
    core.step(Event::Lacked { message: message(1) }, &mut Vec::new());
    let mut effects = Vec::new();
    core.step(Event::TurnEnd, &mut effects);
    assert!(
        matches!(appended::<Ramcast>(&effects)[..], [Record::Decided(_)]),
        "what was logged may be lost"
    );
    core.step(Event::Denied, &mut effects);
    effects.clear();
    core.step(Event::Lacked { message: message(1) }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut effects);
    assert_eq!(appended::<Ramcast>(&effects), [], "nobody but a leader logs");
}

#[test]
fn a_message_that_was_cut_off_with_its_leader_is_not_taken_for_logged() {
    let mut core = leader::<Ramcast>(None);
    let (message, destinations) = (message(2), GroupSet::first(2));
    let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
    core.step(received, &mut Vec::new());
    // Another replica leads, whose log ends before the message, and then this one again.
    let other = Ballot::new(2, 1, 0);
    core.let_lead(other);
    core.begin_to_follow(other, core.log().commit_index(), core.log().commit_index() + 1);
    assert!(!core.is_logged(message));
    core.campaign(Cause::Silence);
    let last = (core.log().inspect().last_birth(), core.log().last_index());
    core.granted(1, 0, last, vec![0; 3]);
    core.begin_to_lead(&mut Vec::new());
    let mut effects = Vec::new();
    core.step(announced(replica(1, 0), 1, 2, 9), &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    assert_eq!(appended::<Ramcast>(&effects), [], "it waits until the message is here");
    core.step(received, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    let logged = appended::<Ramcast>(&effects);
    assert!(matches!(logged[..], [Record::Local { .. }, Record::Remote(_)]), "{logged:?}");
}

fn a_view_that_was_changing_goes_on_to_change_under_the_next_leader<O: Played>() {
    let mut core = leader::<O>(None);
    assert!(core.evicts(2, &mut Vec::new()));
    leads_again(&mut core);
    assert!(!core.evicts(2, &mut Vec::new()), "it is logged, and may be committed");
}

fn who_has_stepped_down_lets_others_go_first<O: Played>() {
    let mut core = leader::<O>(None);
    core.step(Event::Denied, &mut Vec::new());
    let began = core.log().now_ms();
    while core.still_waits() {
        let now_ms = core.log().now_ms() + 10;
        for slot in [1, 2] {
            core.step(Event::Heartbeat { slot, pulse: Pulse::Beat }, &mut Vec::new());
        }
        core.step(Event::Tick { now_ms }, &mut Vec::new());
    }
    // Four timeouts, and one for each of the two other replicas that seem well.
    assert_eq!(core.log().now_ms() - began, 6 * 20);
}

#[test]
fn who_leads_again_tells_again_how_far_its_group_is_done() {
    let (leader, other) = (replica(0, 0), replica(0, 1));
    let mut stage = Stage::<Ramcast>::new(2, 3);
    for id in [leader, replica(1, 0)] {
        stage.land(id, message(1), GroupSet::first(2));
    }
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    let turns = |stage: &mut Stage| {
        for id in all.iter().chain(&all).chain(&all) {
            stage.turn(*id);
        }
    };
    turns(&mut stage);
    stage.told();
    let tells = |stage: &mut Stage| {
        stage.pass(5, &[]);
        stage.told().contains("g0.0 tells g1: all of us are done")
    };
    assert!(tells(&mut stage));
    assert!(!tells(&mut stage), "once is enough");
    stage.run(leader, &[other, replica(0, 2)]);
    turns(&mut stage);
    stage.told();
    assert!(tells(&mut stage), "what it told before may have been lost");
}

fn a_follower_tells_its_new_leader_and_whoever_shares_with_it_what_it_holds<O: Played>() {
    // Message 1 is delivered everywhere, and another group may have lost sight of this group's quorum.
    let mut stage = Stage::<O>::new(O::GROUPS, 3);
    let sharing = GroupSet::first(O::GROUPS);
    for group in 0..O::GROUPS {
        stage.land(replica(group, 0), message(1), sharing);
    }
    let all: Vec<_> = stage.nodes.keys().copied().collect();
    for id in all.iter().chain(&all).chain(&all) {
        stage.turn(*id);
    }
    let core = stage.core(replica(0, 1));
    assert!(core.stage_of(message(1)) == MessageStage::Delivered);
    let told = |core: &mut O| {
        let mut effects = Vec::new();
        core.step(Event::TurnEnd, &mut effects);
        effects.into_iter().find_map(|effect| match effect {
            Effect::Acknowledge { groups, acceptance } => Some((groups, acceptance.index)),
            _ => None,
        })
    };
    let last = core.log().last_index();
    assert_eq!(told(core), None, "there is nothing new");
    #[rustfmt::skip]
    let cases = [
        // first entry  sent to               because
        (last + 1,      GroupSet::first(1),   "others count nothing below the ballot's first entry"),
        (last,          sharing,              "it holds that one already"),
        (last - 1,      sharing,              "and what stands behind it"),
    ];
    for (i, (first, groups, because)) in (2..).zip(cases) {
        let ballot = Ballot::new(i, 2, 0);
        core.let_lead(ballot);
        assert_eq!(told(core), None, "of a leader of whom nothing is read");
        core.begin_to_follow(ballot, last, first);
        assert_eq!(told(core), Some((groups, last)), "{because}");
    }
    // The same happens when it reads the ballot's first entry.
    let birth = Ballot::new(9, 2, 0);
    core.let_lead(birth);
    core.begin_to_follow(birth, last, last + 1);
    let (index, record) = (last + 1, GroupRecord::NewBallot.into());
    core.step(
        Event::Logged { index, birth, time_ms: 0, record, held: true, last: true },
        &mut Vec::new(),
    );
    assert_eq!(told(core), Some((sharing, index)));
}
