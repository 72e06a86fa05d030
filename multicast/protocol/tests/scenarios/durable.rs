//! What a replica says when its disk holds what is said, and what it is when it begins with that.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::{Cause, GroupConfig, GroupEvent, GroupRecord, OnDisk, Replay};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{Config, EffectOf, Inspect as _, OrderingProtocol as _};
use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{Ramcast, Record};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use crate::by_hand::{ByHand, Vote};
use crate::played::{Played, both};
use crate::stage::{config, message, replica};

both!(
    a_leaders_word_leaves_when_its_disk_has_the_entry,
    a_followers_word_leaves_when_its_disk_has_the_entry,
    a_message_is_delivered_when_a_quorum_of_disks_has_it,
    a_grant_leaves_when_the_promise_is_on_disk,
    a_replica_that_begins_with_its_disk_says_again_what_it_holds,
    what_was_committed_and_promised_is_so_again,
    without_disks_a_word_leaves_at_once_and_a_leader_sends_none,
);

/// The ballot in which slot 0 leads.
const LED: Ballot = Ballot::new(1, 0, 0);

fn new<O: Played>(slot: u8, durable: bool) -> O {
    let config = config(replica(0, slot), 0, O::GROUPS, 3);
    let group = GroupConfig { durable, ..config.group };
    O::new(Config { group, ..config }, View::first(3))
}

/// Slot 0, which leads, and has logged a message to these groups behind the first entry of its ballot.
fn leader<O: Played>(durable: bool, destinations: GroupSet) -> (O, Vec<EffectOf<O>>) {
    let (mut core, mut effects) = (new::<O>(0, durable), Vec::new());
    let ballot = core.campaign(Cause::Start);
    assert_eq!(ballot, LED);
    if durable {
        core.happens(GroupEvent::Durable(OnDisk { promised: LED, ..OnDisk::default() }));
    }
    core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
    core.begin_to_lead(&mut effects);
    let received = Event::Received { message: message(1), low_water: 1, destinations, outside: 0 };
    core.step(received, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    assert_eq!(core.log().last_index(), 2);
    (core, effects)
}

/// Slot 1, which has read the same from slot 0.
fn follower<O: Played>(durable: bool, destinations: GroupSet) -> (O, Vec<EffectOf<O>>) {
    let (mut core, mut effects) = (new::<O>(1, durable), Vec::new());
    core.let_lead(LED);
    core.begin_to_follow(LED, 0, 1);
    let records = [GroupRecord::NewBallot.into(), O::record(message(1), 1, destinations, true)];
    for (index, record) in (1..).zip(records) {
        logged(&mut core, index, record, &mut effects);
    }
    core.step(Event::TurnEnd, &mut effects);
    (core, effects)
}

fn logged<O: Played>(core: &mut O, index: u64, record: O::Record, effects: &mut Vec<EffectOf<O>>) {
    let event = Event::Logged { index, birth: LED, time_ms: 0, record, held: true, last: true };
    core.step(event, effects);
}

/// The disk holds the log up to an index, and the promise. Returns what follows in this turn.
fn on_disk<O: Played>(core: &mut O, last: u64) -> Vec<EffectOf<O>> {
    let (mut effects, promised) = (Vec::new(), core.log().promised());
    let disk = OnDisk { ballot: core.log().ballot(), last, promised };
    core.step(Event::Group(GroupEvent::Durable(disk)), &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    effects
}

/// The words among these effects: to which groups, and up to which index.
fn words<R, T>(effects: &[Effect<R, T>]) -> Vec<(Vec<u16>, u64)> {
    let word = |effect: &Effect<R, T>| match effect {
        Effect::Acknowledge { groups, acceptance } => {
            assert_eq!(acceptance.tag, LED.tag());
            Some((groups.iter().map(|group| group.0).collect(), acceptance.index))
        }
        _ => None,
    };
    effects.iter().filter_map(word).collect()
}

fn acknowledged<R, H>(by: ReplicaId, index: u64) -> Event<R, H> {
    Event::Acknowledged { by, acceptance: Acceptance { tag: LED.tag(), index } }
}

fn ends_turn<O: Played>(core: &mut O) {
    core.step(Event::TurnEnd, &mut Vec::new());
}

fn a_leaders_word_leaves_when_its_disk_has_the_entry<O: Played>() {
    let (mut core, effects) = leader::<O>(true, GroupSet::first(1));
    assert_eq!(words(&effects), []);
    assert_eq!(words(&on_disk(&mut core, 0)), []);
    assert_eq!(words(&on_disk(&mut core, 1)), [(vec![0], 1)]);
    assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0], 2)]);
    assert_eq!(words(&on_disk(&mut core, 2)), []);
}

fn a_followers_word_leaves_when_its_disk_has_the_entry<O: Played>() {
    let (mut core, effects) = follower::<O>(true, GroupSet::first(1));
    assert_eq!(words(&effects), []);
    assert_eq!(words(&on_disk(&mut core, 1)), [(vec![0], 1)]);
    assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0], 2)]);
}

#[test]
fn every_group_that_shares_a_message_is_told_when_the_disk_has_it_and_not_before() {
    let both = GroupSet::first(2);
    for (mut core, effects) in [leader::<Ramcast>(true, both), follower(true, both)] {
        assert_eq!(words(&effects), []);
        assert_eq!(words(&on_disk(&mut core, 1)), [(vec![0], 1)], "the message is behind it");
        assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0, 1], 2)]);
    }
}

fn a_message_is_delivered_when_a_quorum_of_disks_has_it<O: Played>() {
    let (mut core, _) = leader::<O>(true, GroupSet::first(1));
    core.add_follower(1, 0);
    core.add_follower(2, 0);
    for slot in [1, 2] {
        core.step(Event::Completed { slot, index: 2 }, &mut Vec::new());
    }
    core.step(acknowledged(replica(0, 1), 2), &mut Vec::new());
    ends_turn(&mut core);
    assert_eq!(core.deliver(), None, "one disk has it, and two memories");
    on_disk(&mut core, 2);
    assert_eq!(core.deliver().map(|deliver| deliver.message), Some(message(1)));
}

fn a_grant_leaves_when_the_promise_is_on_disk<O: Played>() {
    let mut core = new::<O>(1, true);
    core.let_lead(LED);
    assert_eq!((core.asks(), core.judge(LED, false, false)), (LED, Vote::Nothing));
    let effects = on_disk(&mut core, 0);
    assert!(matches!(effects[..], [Effect::Group(_)]), "it is granted");
    assert_eq!(core.judge(LED, false, false), Vote::GrantAgain);
}

/// Slot 1, which begins with a disk that holds two entries of slot 0.
fn begun<O: Played>(destinations: GroupSet) -> O {
    let mut core = new::<O>(1, true);
    core.happens(GroupEvent::Replay(Replay::Promised(LED)));
    core.begin_to_follow(LED, 0, 1);
    let records = [GroupRecord::NewBallot.into(), O::record(message(1), 1, destinations, true)];
    for (index, record) in (1..).zip(records) {
        logged(&mut core, index, record, &mut Vec::new());
    }
    core
}

fn a_replica_that_begins_with_its_disk_says_again_what_it_holds<O: Played>() {
    let mut core = begun::<O>(GroupSet::first(1));
    let delivered = Replay::Delivered { commit: 2, delivered: Rank::NOTHING };
    core.happens(GroupEvent::Replay(delivered));
    assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0], 2)], "as it was read");
    core.happens(GroupEvent::Replay(Replay::Over { now_ms: 7 }));
    assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0], 2)], "others may have lost it");
    assert_eq!(core.log().now_ms(), 7);
}

fn what_was_committed_and_promised_is_so_again<O: Played>() {
    let mut core = begun::<O>(GroupSet::first(1));
    ends_turn(&mut core);
    assert_eq!((core.log().commit_index(), core.deliver()), (0, None), "that alone says nothing");
    let delivered = Replay::Delivered { commit: 2, delivered: Rank::NOTHING };
    core.happens(GroupEvent::Replay(delivered));
    assert_eq!(core.log().commit_index(), 2);
    assert_eq!(core.deliver().map(|deliver| deliver.message), Some(message(1)));
    let earlier = Replay::Delivered { commit: 1, delivered: Rank::NOTHING };
    core.happens(GroupEvent::Replay(earlier));
    assert_eq!(core.log().commit_index(), 2);
    let later = Ballot::new(3, 2, 0);
    core.happens(GroupEvent::Replay(Replay::Promised(later)));
    core.happens(GroupEvent::Replay(Replay::Promised(LED)));
    assert_eq!(core.log().promised(), later);
    core.happens(GroupEvent::Replay(Replay::Over { now_ms: 7 }));
    assert_eq!(core.judge(Ballot::new(2, 0, 0), true, true), Vote::Refuse);
}

#[test]
fn what_was_delivered_is_delivered_again_and_no_group_is_asked() {
    let both = GroupSet::first(2);
    for known in [true, false] {
        let mut core = begun::<Ramcast>(both);
        let (timestamp, ballot) = (Timestamp::new(7, GroupId(1)), LED);
        let remote = Remote { message: message(1), timestamp, ballot, index: 5 };
        logged(&mut core, 3, Record::Remote(remote), &mut Vec::new());
        let reached = if known { timestamp.into() } else { Rank::NOTHING };
        core.happens(GroupEvent::Replay(Replay::Delivered { commit: 3, delivered: reached }));
        let delivered = core.deliver().map(|deliver| deliver.rank);
        assert_eq!(delivered, known.then_some(timestamp.into()));
        core.step(acknowledged(replica(1, 1), 5), &mut Vec::new());
        assert_eq!(core.deliver(), None, "one disk of g1 has its proposal");
        core.step(acknowledged(replica(1, 0), 5), &mut Vec::new());
        assert_eq!(core.deliver().is_some(), !known, "it was delivered once");
    }
}

#[test]
fn what_waits_on_disk_waits_from_the_beginning_of_the_process_on() {
    let mut core = new::<Ramcast>(1, true);
    core.happens(GroupEvent::Replay(Replay::Begins { now_ms: 40_000 }));
    core.happens(GroupEvent::Replay(Replay::Promised(LED)));
    core.begin_to_follow(LED, 0, 1);
    let record = Ramcast::record(message(1), 1, GroupSet::first(2), true);
    logged(&mut core, 1, record, &mut Vec::new());
    core.happens(GroupEvent::Replay(Replay::Delivered { commit: 1, delivered: Rank::NOTHING }));
    core.happens(GroupEvent::Replay(Replay::Over { now_ms: 40_007 }));
    assert_eq!(core.inspect().oldest_pending(), Some((40_000, message(1))));
}

#[test]
fn a_replica_that_begins_with_its_disk_says_so_to_all_that_share_a_message() {
    let mut core = begun::<Ramcast>(GroupSet::first(2));
    on_disk(&mut core, 2);
    core.happens(GroupEvent::Replay(Replay::Over { now_ms: 7 }));
    assert_eq!(words(&on_disk(&mut core, 2)), [(vec![0, 1], 2)]);
}

fn without_disks_a_word_leaves_at_once_and_a_leader_sends_none<O: Played>() {
    let (_, effects) = follower::<O>(false, GroupSet::first(1));
    assert_eq!(words(&effects), [(vec![0], 2)]);
    let (mut core, effects) = leader::<O>(false, GroupSet::first(1));
    assert_eq!(words(&effects), []);
    core.step(acknowledged(replica(0, 1), 2), &mut Vec::new());
    ends_turn(&mut core);
    assert!(core.deliver().is_some());
}
