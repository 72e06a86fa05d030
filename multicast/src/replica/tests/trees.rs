//! A leader whose parent passes on more than its log has room for, and one whose children are yet to be sent what it delivers.

use skein_protocol::step::Event;
use skein_protocol::tram::content::Content as Ordered;
use skein_protocol::tram::edges::{Edge, EdgeNumber};
use skein_protocol::tram::tree::Tree;
use skein_protocol::tram::{PeerEffect, PeerEvent, Tram};

use super::*;

/// What the parent's leader passes on: a large message first, and others behind it that wait for its payload.
fn edge(number: u64) -> Edge {
    let content = Ordered::Message {
        message: MessageId::new(SessionId(1), number),
        low_water: 1,
        destinations: GroupSet::first(2),
        outside: if number == 1 { 5_000 } else { 0 },
        again: false,
    };
    let place = Rank::new(number);
    let number = EdgeNumber { generation: 0, number };
    Edge { number, first: 1, child_generation: 0, place, content }
}

/// Slot 0 leads group 0 of a tree, alone with slot 1.
fn leads_in(parents: &[Option<u16>]) -> Scene<Tram> {
    let groups = parents.len() as u16;
    let topology = Topology { nodes: 3, groups, replicas: 3, engines: 1 };
    let layout = Layout::propose(topology).unwrap();
    let layout = layout.along(&Tree::of(parents).unwrap()).unwrap();
    let mut scene = Scene::<Tram>::start(&layout, 0);
    let granted = scene.granted_from(1, Cursor::START, Cursor::START);
    scene.hear(1, &Election::Granted(granted), &[]);
    assert!(scene.replica.core.log().leads());
    scene
}

#[test]
fn what_is_delivered_is_kept_until_all_children_on_its_way_have_it() {
    let mut scene = leads_in(&[None, Some(0), Some(1)]);
    #[rustfmt::skip]
    let cases: [(&[u16], bool, &str); 4] = [
        // destinations  kept   because
        (&[0],          false, "it goes to no other group"),
        (&[0, 1],       true,  "the child delivers it"),
        (&[0, 2],       true,  "the child passes it on"),
        (&[0, 1, 2],    true,  "the child does both"),
    ];
    let named = |at: usize| MessageId::new(SessionId(1), at as u64 + 1);
    for (at, (groups, ..)) in cases.iter().enumerate() {
        let destinations = groups.iter().map(|group| GroupId(*group)).collect();
        let message = named(at);
        scene.replica.payloads.insert(message, 1, destinations, &[7; 24]);
        let received = Event::Received { message, low_water: 1, destinations, outside: 0 };
        scene.replica.step(received);
        scene.replica.end_turn(&mut scene.links);
    }
    scene.commit();
    scene.replica.deliver(&mut scene.links).expect("it goes on");
    assert_eq!(scene.replica.application.answered.len(), cases.len());
    for (at, (groups, kept, because)) in cases.into_iter().enumerate() {
        let is_held = scene.replica.payloads.get(named(at)).is_some();
        assert_eq!(is_held, kept, "to {groups:?}: {because}");
    }
}

#[test]
fn what_waited_for_a_payload_is_logged_as_the_log_has_room() {
    const PASSED: u64 = 64;
    let mut scene = leads_in(&[Some(1), None]);
    let Scene { replica, links, .. } = &mut scene;

    let (from, ballot) = (ReplicaId::new(GroupId(1), 0), OLD);
    let payload = vec![7; replica.inline_bytes_max() + 1];
    for edge in (1..=PASSED).map(edge) {
        let message = edge.content.message().unwrap();
        let inline = !edge.content.is_large();
        if inline {
            replica.payloads.insert(message, 1, GroupSet::first(2), &payload[1..]);
        }
        let passed = PeerEvent::Passed { from, ballot, edge, sum: 0, held: inline };
        replica.step(Event::Heard(passed));
    }
    replica.effects.clear(); // The parent, which is not there, would be asked for the payload.
    let before = replica.core.log().last_index();
    assert!(!Tram::log_ready(replica, links), "the first one has no payload");

    let (message, destinations) = (MessageId::new(SessionId(1), 1), GroupSet::first(2));
    replica.payloads.insert(message, 1, destinations, &payload);
    replica.step(Event::Received { message, low_water: 1, destinations, outside: 5_000 });
    assert!(Tram::log_ready(replica, links), "the log has no room for all of them");
    let logged = replica.core.log().last_index() - before;
    assert!((1..PASSED).contains(&logged), "{logged} of {PASSED}");
    assert!(!replica.log_has_room());
    assert!(Tram::log_ready(replica, links) && replica.core.log().last_index() == before + logged);
}

#[test]
fn a_payload_that_was_not_passed_on_is_not_logged_for_one_that_was() {
    let mut scene = leads_in(&[Some(1), None]);
    let Scene { replica, links, .. } = &mut scene;
    let parent = ReplicaId::new(GroupId(1), 0);
    let payload = vec![7; replica.inline_bytes_max() + 1];
    let passed = edge(1);
    let message = passed.content.message().unwrap();
    let event = PeerEvent::Passed {
        from: parent,
        ballot: OLD,
        edge: passed,
        sum: check(&payload),
        held: false,
    };
    replica.step(Event::Heard(event));
    replica.effects.clear(); // The parent, which is not there, would be asked for the payload.
    for (bytes, logs) in [(vec![8; payload.len()], false), (payload, true)] {
        let mut datagram = Vec::new();
        encode_name(message, &mut datagram);
        Head { sequence: 1, low_water: 1, destinations: GroupSet::first(2) }.encode(&mut datagram);
        datagram.extend(bytes);
        replica.relayed(parent, &datagram, links);
        assert_eq!(
            (replica.payloads.get(message).is_some(), replica.core.has_ready()),
            (logs, logs)
        );
    }
}

/// The log is full at the moment at which a child has room again.
#[test]
fn what_waited_for_a_child_is_ordered_when_the_log_has_room() {
    let mut scene = leads_in(&[None, Some(0)]);
    scene.replica.end_turn(&mut scene.links); // A new leader proposes what it holds.
    let both = GroupSet::first(2);
    let named = |number| MessageId::new(SessionId(1), number);
    let Scene { replica, links, .. } = &mut scene;
    let len = replica.inline_bytes_max();
    for number in 1..=64 {
        replica.payloads.insert(named(number), 1, both, &vec![7; len]);
        let closed = GroupSet::single(GroupId(1));
        Tram::tell(replica, PeerEffect::Refuse { message: named(number), closed }, links);
    }
    Tram::hear(replica, ReplicaId::new(GroupId(1), 0), Kind::Progress, &[], links);
    let logged = |replica: &Replica<_, Tram>| {
        (1..=64).filter(|number| replica.core.is_logged(named(*number))).count()
    };
    let first = logged(&scene.replica);
    assert!((1..64).contains(&first), "{first}: the log has room for some");
    scene.replica.end_turn(&mut scene.links);
    assert_eq!(logged(&scene.replica), first, "there is no more room yet");
    scene.commit();
    let freed = scene.replica.memory.runs.end().position;
    for other in 1..3 {
        scene.replica.told(StatusColumn::Freed, ReplicaId::new(GroupId(0), other), freed);
    }
    scene.replica.deliver(&mut scene.links).expect("it goes on");
    scene.replica.end_turn(&mut scene.links);
    assert!(logged(&scene.replica) > first, "no report has come");
}

#[test]
fn a_message_to_groups_that_do_not_exist_is_dropped() {
    let mut scene = leads_in(&[None, Some(0)]);
    for groups in [&[9][..], &[0, 9], &[1, 9]] {
        let destinations = groups.iter().map(|group| GroupId(*group)).collect();
        let head = Head { sequence: 1, low_water: 1, destinations };
        scene.replica.receive(SessionId(1), head, b"1", &mut scene.links);
        assert_eq!(scene.replica.payloads.len(), 0, "{destinations}");
    }
}
