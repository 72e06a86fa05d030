//! What counts towards a quorum, and what does not: guards that no schedule without a leader change
//! can exercise.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::Announcement;
use skein_protocol::ramcast::{Config, Ramcast};
use skein_protocol::step::{Event, Record};
use skein_protocol::timestamp::Timestamp;

fn replica(group: u16, slot: u8) -> ReplicaId {
    ReplicaId::new(GroupId(group), slot)
}

fn ramcast(me: ReplicaId, groups: u16, replicas: u8) -> Ramcast {
    Ramcast::new(Config { me, groups, replicas, fetch_after_ms: 20 })
}

const MESSAGE: MessageId = MessageId::new(SessionId(1), 1);

fn received(destinations: GroupSet) -> Event {
    Event::Received { message: MESSAGE, low_water: 1, destinations, inline: true }
}

fn acknowledged(by: ReplicaId, ballot: Ballot, index: u64) -> Event {
    Event::Acknowledged { by, acceptance: Acceptance { tag: ballot.tag(), index } }
}

#[test]
fn an_acknowledgement_counts_only_for_the_ballot_it_names() {
    let ours = Ballot::new(1, 0, 0);
    #[rustfmt::skip]
    let cases = [
        // acknowledged in       delivered  because
        (ours,                   true,      "it is the leader's ballot"),
        (Ballot::new(2, 0, 0),   false,     "the same leader may have come back with another log"),
        (Ballot::new(1, 1, 0),   false,     "another leader has another log"),
    ];
    for (ballot, delivered, because) in cases {
        let mut effects = Vec::new();
        let mut leader = ramcast(replica(0, 0), 1, 3);
        leader.start(&mut effects);
        leader.step(received(GroupSet::first(1)), &mut effects);
        leader.step(acknowledged(replica(0, 1), ballot, 2), &mut effects);
        leader.step(Event::TurnEnd, &mut effects);
        assert_eq!(leader.deliver(&mut effects).is_some(), delivered, "own group: {because}");

        // The same between groups: g1 proposed in `ours`.
        let mut leader = ramcast(replica(0, 0), 2, 3);
        leader.start(&mut effects);
        leader.step(received(GroupSet::first(2)), &mut effects);
        let announcement = Announcement {
            message: MESSAGE,
            low_water: 1,
            destinations: GroupSet::first(2),
            timestamp: Timestamp::new(7, GroupId(1)),
            ballot: ours,
            index: 2,
        };
        leader.step(Event::Announced { from: replica(1, 0), announcement }, &mut effects);
        leader.step(Event::TurnEnd, &mut effects);
        leader.step(Event::Completed { slot: 1, index: 3 }, &mut effects);
        leader.step(acknowledged(replica(1, 2), ballot, 2), &mut effects);
        assert_eq!(leader.deliver(&mut effects).is_some(), delivered, "other group: {because}");
    }
}

#[test]
fn nothing_is_committed_below_the_ballots_first_entry() {
    let mut effects = Vec::new();
    let mut follower = ramcast(replica(0, 1), 1, 3);
    let ballot = follower.ballot();
    let mut logged = |index, record| {
        let event = Event::Logged { index, ballot, time_ms: 0, record, held: true, last: true };
        follower.step(event, &mut effects);
        follower.step(Event::TurnEnd, &mut effects);
        follower.deliver(&mut effects).map(|deliver| deliver.message)
    };
    let local = Record::Local {
        message: MESSAGE,
        low_water: 1,
        timestamp: Timestamp::new(1, GroupId(0)),
        destinations: GroupSet::first(1),
        inline: true,
    };
    // An adopted entry: leader and follower hold it, and it was accepted in an earlier ballot.
    assert_eq!(logged(1, local), None);
    assert_eq!(logged(2, Record::NewBallot), Some(MESSAGE));
}

#[test]
#[should_panic(expected = "a follower never skips an entry")]
fn a_gap_in_the_log_is_no_log() {
    let mut follower = ramcast(replica(0, 1), 1, 3);
    let (ballot, record) = (follower.ballot(), Record::NewBallot);
    let event = Event::Logged { index: 2, ballot, time_ms: 0, record, held: true, last: true };
    follower.step(event, &mut Vec::new());
}
