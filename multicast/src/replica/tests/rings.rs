//! Rings and logs without room: which datagrams wait, and which are dropped.

use skein_protocol::group::GroupRecord;

use super::*;

#[test]
fn a_full_log_keeps_nobody_of_the_group_from_being_heard() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let mut sent = 0;
    while scene.replica.log_has_room() {
        sent += 1;
        scene.replica.relayed(FOLLOWER, &relay(SessionId(1), sent), &mut scene.links);
    }
    let last = scene.replica.core.log().last_index();
    assert_eq!(last, 1 + sent, "nothing is committed");
    let (ours, other) = (GroupId(0), GroupId(1));
    for kind in [Kind::Election, Kind::Fetch, Kind::Relay] {
        assert!(scene.replica.admits_from_replica(ours, kind, 1), "{kind:?}");
    }
    assert!(!scene.replica.admits_from_replica(other, Kind::Order, 1));
    let engine = "who names a replica of ours may speak for all that run beside it";
    assert!(!scene.replica.admits_from_replica(ours, Kind::OrderTogether, 1), "{engine}");
    scene.replica.relayed(FOLLOWER, &relay(SessionId(1), sent + 1), &mut scene.links);
    assert_eq!(scene.replica.core.log().last_index(), last, "it has no room");
}

#[test]
fn what_waits_for_room_already_is_not_told_again_behind_it() {
    let mut scene = Scene::new();
    let (ours, other) = (scene.replica.id, ReplicaId::new(GroupId(0), 2));
    #[rustfmt::skip]
    let datagrams: [(_, &[u8], &[u8], _, _); 8] = [
        // kind            head   body   waits  because
        (Kind::Fetch,     b"ab", b"c",  true,  "nothing like it waits"),
        (Kind::Fetch,     b"ab", b"c",  false, "it waits already"),
        (Kind::Fetch,     b"a",  b"bc", false, "it is the same to who reads it"),
        (Kind::Fetch,     b"ab", b"",   true,  "it is the beginning of another"),
        (Kind::Order,  b"ab", b"c",  true,  "another kind is another datagram"),
        (Kind::Order,  b"ab", b"c",  false, "whatever else was told meanwhile"),
        (Kind::Relay,     b"ab", b"c",  true,  "its payload is told once"),
        (Kind::Relay,     b"ab", b"c",  true,  "and twice if it is sent twice"),
    ];
    for (kind, head, body, waits, because) in datagrams {
        let before = scene.told(2);
        scene.links.send(ours, other, kind, head, body);
        assert_eq!(scene.told(2) - before, usize::from(waits), "{kind:?}: {because}");
    }
}

#[test]
fn what_is_told_again_on_demand_does_not_wait_for_who_stands_still() {
    let mut scene = Scene::new();
    let (ours, other) = (scene.replica.id, ReplicaId::new(GroupId(0), 2));
    for number in 0..1000_u64 {
        scene.links.send(ours, other, Kind::Order, &number.to_le_bytes(), &[]);
    }
    let waiting = scene.told(2);
    assert!(waiting < 200, "{waiting} wait, and each can be told again");
    scene.links.send(ours, other, Kind::Election, &[], &[]);
    assert_eq!(scene.told(2), waiting + 1, "nobody asks for this one again");
}

#[test]
fn a_follower_that_stands_still_is_not_written_words_without_end() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.commit();
    let before = scene.replica.writer.writes;
    for number in 0..1000_u64 {
        let mut question = number.to_le_bytes().to_vec();
        question.push(2);
        scene.replica.asked(SessionId(9), &question, &mut scene.links);
        scene.replica.seek_confirmation(&mut scene.links);
    }
    assert!(
        scene.replica.writer.writes - before < 100,
        "{} words wait",
        scene.replica.writer.writes - before
    );
}

#[test]
fn a_follower_is_lost_once_however_many_writes_to_it_fail() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    let before = scene.replica.writer.followers[2].attempt;
    for _ in 0..3 {
        scene.replica.touch_followers(u64::MAX, &mut scene.links);
    }
    for number in 1..=scene.replica.writer.writes {
        scene.replica.failed(2, number, false);
    }
    assert_eq!(
        scene.replica.writer.followers[2].attempt,
        before + 1,
        "each time it would be asked anew"
    );
}

#[test]
fn a_log_waits_for_a_payload_to_those_groups_that_it_names() {
    let mut scene = Scene::with(Topology { groups: 2, ..TOPOLOGY });
    let birth = scene.let_lead(1);
    scene.happens(GroupEvent::Followed { ballot: birth, base: 0, first: 1 });
    let message = MessageId::new(SessionId(9), 1);
    let (both, bytes) = (GroupSet::first(2), vec![7; scene.replica.tuning.inline_bytes_max + 1]);
    let (timestamp, payload) = (Timestamp::new(1, GroupId(0)), check(&bytes));
    let payload = Payload::Held { check: payload };
    let local = Body::Local { message, low_water: 1, timestamp, destinations: both, payload };
    for (index, body) in [(1, Body::Group(GroupRecord::NewBallot)), (2, local)] {
        scene.replica.take_entry(At { index, birth, time_ms: 0 }, &body, &mut scene.links);
    }
    for (destinations, waits) in [(GroupSet::first(1), true), (both, false)] {
        assert_eq!(scene.replica.core.log().stalled_on(), Some(message));
        let head = Head { sequence: 1, low_water: 1, destinations };
        scene.replica.receive(message.session, head, &bytes, &mut scene.links);
        assert_eq!(scene.replica.core.log().stalled_on().is_some(), waits, "{destinations}");
    }
}
