//! Tests of engines, one turn at a time.

use skein_fabric::sim::{SimConfig, World};
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::announcement::Proposed;
use skein_protocol::ramcast::log::Remote;
use skein_protocol::timestamp::Timestamp;

use super::*;
use crate::application::Answer;
use crate::config::Topology;
use crate::layout::Location;
use crate::ramcast::proposal_batch;
use crate::session_transport::SessionTransport;

#[test]
fn a_leader_without_room_in_its_log_keeps_no_other_from_hearing_proposals() {
    let world = World::new(1, SimConfig::default());
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 3, replicas: 1, engines: 1 }).unwrap();
    let tuning = Tuning { log_bytes: 16 << 10, inline_bytes_max: 256, ..Tuning::default() };
    let (fabric, me) = (world.join(&endpoint_name(0, 0)), Identity::first(0, 0));
    let mut engine = Engine::new(fabric, &layout, tuning, me, |_| Answer).unwrap();
    while !engine.replicas.iter().all(|replica| replica.core.log().leads()) {
        world.advance(Duration::from_millis(10));
        engine.turn();
    }
    // A proposal of g2 for a message that it shares with another group.
    let proposed = |number, with| {
        let message = MessageId::new(SessionId(1), number);
        let timestamp = Timestamp::new(number, GroupId(2));
        let ballot = Ballot::new(1, 0, 0);
        let destinations = GroupSet::single(GroupId(2)).with(GroupId(with));
        let mut bytes = Vec::new();
        Proposed { message, low_water: 1, destinations }.encode(1, &mut bytes);
        let remote = Remote { message, timestamp, ballot, index: number };
        Proposed::encode_proposal(&remote, &mut bytes);
        bytes
    };
    let hear = |engine: &mut Engine<_, _>, bytes: &[u8]| {
        let (from, Engine { replicas, links, .. }) = (ReplicaId::new(GroupId(2), 0), engine);
        Ramcast::hear_engine(replicas, from, bytes, links);
    };
    let propose = |engine: &mut Engine<_, _>, number, with| {
        hear(engine, &proposed(number, with));
    };
    let heard = |engine: &Engine<_, _>, at: usize| {
        let replica: &Replica<Answer, Ramcast> = &engine.replicas[at];
        replica.core.paths().announced_early
    };
    let mut number = 0;
    while engine.links.loopback.is_empty() {
        number += 1;
        assert!(number < 1_000, "its log has not so much room");
        propose(&mut engine, number, 0);
    }
    assert_eq!((heard(&engine, 0), heard(&engine, 1)), (number - 1, 0), "it has no room for one");
    propose(&mut engine, number + 1, 1);
    assert_eq!(heard(&engine, 1), 1, "another has");
    engine.turn();
    engine.turn();
    assert_eq!(heard(&engine, 0), number, "it has room in the next turn");
    let (before, mut long) = (heard(&engine, 1), Vec::new());
    while long.len() <= proposal_batch::TOGETHER_MAX {
        number += 1;
        long.extend(proposed(number + 1, 1));
    }
    hear(&mut engine, &long);
    assert_eq!(heard(&engine, 1), before, "nobody has room for whatever somebody sends");
}

#[test]
fn what_many_sessions_have_written_is_not_all_read_in_one_turn() {
    const SESSIONS: u64 = 8;
    const LEN: usize = 256 << 10;
    let world = World::new(1, SimConfig::default());
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
    let (fabric, me) = (world.join(&endpoint_name(0, 0)), Identity::first(0, 0));
    let mut engine = Engine::new(fabric, &layout, Tuning::default(), me, |_| Answer).unwrap();
    let mut access = SessionTransport::new(world.join("client"), &layout, Tuning::default());
    let sessions: Vec<_> = (0..SESSIONS).map(|n| access.open(SessionId(n << 8))).collect();
    let mut taken = 0;
    let send = |access: &mut SessionTransport<_>| {
        for session in &sessions {
            access.multicast(*session, GroupSet::single(GroupId(0)), &vec![7; LEN]).unwrap();
        }
    };
    // The sessions' rings grow with the first message.
    send(&mut access);
    while taken < SESSIONS {
        world.advance(Duration::from_millis(1));
        access.turn(&mut |_| taken += 1).unwrap();
        engine.turn();
    }
    // Two more messages of each session wait in the rings.
    send(&mut access);
    send(&mut access);
    world.advance(Duration::from_millis(1));
    access.turn(&mut |_| ()).unwrap();
    world.advance(Duration::from_millis(1));
    let logged = |engine: &Engine<_, Answer>| engine.replicas[0].core.log().last_index();
    let (all, mut turns) = (logged(&engine) + 2 * SESSIONS, 0);
    while logged(&engine) < all {
        let before = logged(&engine);
        engine.turn();
        let read = (logged(&engine) - before) as usize * LEN;
        assert!(read <= READ_PER_TURN + LEN, "{read} bytes were read in one turn");
        turns += 1;
        assert!(turns < 1000, "{} of {all} are logged", logged(&engine));
        world.advance(Duration::from_micros(10));
        access.turn(&mut |_| ()).unwrap();
    }
    assert!(turns >= 4, "four megabytes were read in {turns} turns");
}

#[test]
fn engines_of_other_layouts_refuse_each_other() {
    let world = World::new(1, SimConfig::default());
    let topology = Topology { nodes: 2, groups: 1, replicas: 1, engines: 1 };
    let proposed = Layout::propose(topology).unwrap();
    let other = Layout::new(topology, &[vec![Location { node: 1, engine: 0 }]]).unwrap();
    // Each takes the other one's node for that of the replica.
    let engine = |node, layout| {
        let fabric = world.join(&endpoint_name(node, 0));
        let tuning = Tuning::default();
        Engine::new(fabric, layout, tuning, Identity::first(node, 0), |_| Answer).unwrap()
    };
    let (mut one, mut two) = (engine(0, &other), engine(1, &proposed));
    for _ in 0..100 {
        world.advance(Duration::from_millis(10));
        one.turn();
        two.turn();
    }
    let why = &one.links.refusals[&(1, 0)];
    assert!(why.contains("layout") && why.contains("g0 n1e0"), "{why}");
    assert!(two.links.refusals.contains_key(&(0, 0)));
}
