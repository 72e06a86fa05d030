//! Tests of engines, one turn at a time.

mod disks;
mod large_payloads;

use skein_fabric::sim::{SimConfig, SimFabric, World};
use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::OrderingProtocol as _;
use skein_protocol::ramcast::announcement::Proposed;
use skein_protocol::ramcast::log::Remote;
use skein_protocol::timestamp::Timestamp;

use super::*;
use crate::application::{Answer, Delivery, Malformed, Outbox};
use crate::config::Topology;
use crate::layout::Location;
use crate::ramcast::proposal_batch;
use crate::session_transport::{Of, SessionTransport};

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

/// A machine that fails in one call. It answers what it is told in all others, and has no state.
struct Fails(When);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Never,
    Delivering(u64),
    Queried,
    Copied,
    Restored,
}

impl Fails {
    fn check(&self, now: When) -> Result<(), Failed> {
        if self.0 == now { Err(Failed) } else { Ok(()) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("it was to fail")]
struct Failed;

impl Application for Fails {
    type Failure = Failed;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Failed> {
        // What was said in a call that fails is not to go out.
        self.repeat(delivery.message, out);
        self.check(When::Delivering(delivery.position))
    }
    fn exchanged(
        &mut self,
        _: MessageId,
        _: GroupId,
        _: &[u8],
        _: &mut dyn Outbox,
    ) -> Result<(), Failed> {
        Ok(())
    }
    fn ready(&self) -> bool {
        true
    }
    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        out.reply(message, b"done");
    }
    fn query(&mut self, _: &[u8], answer: &mut Vec<u8>) -> Result<bool, Failed> {
        answer.extend_from_slice(b"so");
        self.check(When::Queried).map(|()| true)
    }
    fn begin_copy(&mut self) {}
    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> Result<bool, Failed> {
        self.check(When::Copied).map(|()| true)
    }
    fn finish_copy(&mut self, _: &mut Vec<u8>) -> Result<(), Failed> {
        Ok(())
    }
    fn give_up_copy(&mut self) {}
    fn restore(&mut self, _: &[u8], _: bool) -> Result<Result<(), Malformed>, Failed> {
        self.check(When::Restored).map(Ok)
    }
}

#[test]
fn an_engine_whose_machine_fails_says_nothing_of_that_message_and_does_nothing_any_more() {
    // One group is well, and stops with the other, whose machine fails at its third message, or at a query.
    for when in [When::Delivering(3), When::Queried] {
        let world = World::new(1, SimConfig::default());
        let layout =
            Layout::propose(Topology { nodes: 1, groups: 2, replicas: 1, engines: 1 }).unwrap();
        let (fabric, me) = (world.join(&endpoint_name(0, 0)), Identity::first(0, 0));
        let machine =
            move |id: ReplicaId| Fails(if id.group == GroupId(1) { when } else { When::Never });
        let mut engine = Engine::new(fabric, &layout, Tuning::default(), me, machine).unwrap();
        let mut access = SessionTransport::new(world.join("client"), &layout, Tuning::default());
        let session = access.open(SessionId(1 << 8));
        let mut replies = 0;
        let mut pass = |engine: &mut Engine<_, _>, access: &mut SessionTransport<_>| {
            for _ in 0..200 {
                world.advance(Duration::from_micros(100));
                engine.turn();
                access.turn(&mut |_| replies += 1).unwrap();
            }
            replies
        };
        let to = |access: &mut SessionTransport<_>, group| {
            access.multicast(session, GroupSet::single(GroupId(group)), b"message").unwrap();
        };
        for group in [0, 1, 1] {
            to(&mut access, group);
        }
        assert_eq!(pass(&mut engine, &mut access), 3);
        assert!(engine.take_stopped().is_none());
        if when == When::Queried {
            access.query(world.now(), session, GroupId(1), Of::Anybody, b"what");
        } else {
            to(&mut access, 1);
        }
        to(&mut access, 0);
        let well = pass(&mut engine, &mut access);
        assert!(well <= 4, "only what was delivered before is answered: {well}");
        assert!(access.take_answer().is_none());
        let stopped = engine.take_stopped().expect("it has failed");
        assert_eq!(stopped.to_string(), "replica g1.0 has stopped: it was to fail");
        to(&mut access, 0);
        assert_eq!(pass(&mut engine, &mut access), well, "the group that was well has stopped too");
        assert!(!engine.turn() && engine.take_stopped().is_none(), "it was told once");
    }
}

/// A group of three replicas, each on a node of its own.
struct Three {
    world: World,
    engines: [Engine<SimFabric, Fails>; 3],
    stopped: [bool; 3],
}

impl Three {
    /// Whose machines fail so. The first leads.
    fn start(when: [When; 3]) -> Self {
        let world = World::new(1, SimConfig::default());
        let engines = [0, 1, 2].map(|node| Self::node(&world, node, 0, when[usize::from(node)]));
        let mut three = Self { world, engines, stopped: [false; 3] };
        assert_eq!(three.pass(), [false; 3]);
        assert!(three.engines[0].replicas[0].core.log().leads());
        three
    }

    fn node(world: &World, node: u16, incarnation: u32, when: When) -> Engine<SimFabric, Fails> {
        let layout =
            Layout::propose(Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 }).unwrap();
        let me = Identity { node, engine: 0, incarnation };
        let fabric = world.join(&endpoint_name(node, 0));
        Engine::new(fabric, &layout, Tuning::default(), me, move |_| Fails(when)).unwrap()
    }

    /// Turns until one has stopped, or for half a second. Returns who has.
    fn pass(&mut self) -> [bool; 3] {
        for _ in 0..1_000 {
            self.world.advance(Duration::from_micros(500));
            for (engine, stopped) in self.engines.iter_mut().zip(&mut self.stopped) {
                engine.turn();
                *stopped |= engine.take_stopped().is_some();
            }
            if self.stopped.contains(&true) {
                break;
            }
        }
        self.stopped
    }
}

#[test]
fn a_query_to_one_replica_waits_for_that_replica() {
    let mut three = Three::start([When::Never; 3]);
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 }).unwrap();
    let mut access = SessionTransport::new(three.world.join("client"), &layout, Tuning::default());
    let session = access.open(SessionId(1 << 8));
    let asked = access.query(three.world.now(), session, GroupId(0), Of::Replica(2), b"what");
    let mut pass = |nodes: &[usize]| {
        for _ in 0..100 {
            three.world.advance(Duration::from_micros(500));
            for node in nodes {
                three.engines[*node].turn();
            }
            access.turn(&mut |_| ()).unwrap();
        }
        access.take_answer()
    };
    assert_eq!(pass(&[0, 1]), None);
    assert_eq!(pass(&[0, 1, 2]), Some((asked, b"so".to_vec())));
}

#[test]
fn a_follower_whose_machine_fails_stops_by_itself() {
    let mut three = Three::start([When::Never, When::Delivering(1), When::Never]);
    three.engines[0].originate(b"message");
    assert_eq!(three.pass(), [false, true, false]);
}

#[test]
fn an_engine_stops_that_cannot_give_its_state_or_take_one() {
    // What fails at the two that have a state, and at the one that comes back without one; who stops then.
    let cases = [
        (When::Never, When::Restored, [false, false, true]),
        (When::Copied, When::Never, [true, false, false]),
    ];
    for (at_givers, at_learner, expected) in cases {
        let mut three = Three::start([at_givers; 3]);
        three.world.crash(&endpoint_name(2, 0));
        three.engines[2] = Three::node(&three.world, 2, 1, at_learner);
        assert_eq!(three.pass(), expected, "{at_givers:?} {at_learner:?}");
    }
}

#[test]
fn an_engine_without_replicas_is_refused_by_none() {
    let world = World::new(1, SimConfig::default());
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 1, replicas: 1, engines: 1 }).unwrap();
    let engine = |node| {
        let (fabric, me) = (world.join(&endpoint_name(node, 0)), Identity::first(node, 0));
        Engine::new(fabric, &layout, Tuning::default(), me, |_| Answer).unwrap()
    };
    let mut engines: Vec<_> = (0..3).map(engine).collect();
    // Settings of machines are known where there is one.
    let limits = Constants::default().with("limits.key_bytes_max", 4096);
    let ours = engines.iter_mut().find(|it| !it.replicas.is_empty()).expect("it is somewhere");
    ours.links.constants = ours.links.constants.clone().and(limits);
    for _ in 0..100 {
        world.advance(Duration::from_millis(10));
        for engine in &mut engines {
            engine.turn();
        }
    }
    assert!(engines.iter().all(|it| it.links.refusals.is_empty()));
    assert_eq!(engines.iter().filter(|it| it.replicas.is_empty()).count(), 2);
}

#[test]
fn engines_of_other_layouts_refuse_each_other() {
    let world = World::new(1, SimConfig::default());
    let topology = Topology { nodes: 2, groups: 2, replicas: 1, engines: 1 };
    let proposed = Layout::propose(topology).unwrap();
    let at = |node| vec![Location { node, engine: 0 }];
    let other = Layout::new(topology, &[at(1), at(0)]).unwrap();
    // Each takes itself for the node of the same group.
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
