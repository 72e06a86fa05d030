//! Replicas whose states have diverged: who notices, who answers, and who receives the state again.

#[path = "../harness/clocked.rs"]
mod clocked;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use skein_fabric::shm::Host;
use skein_multicast::application::{Application, Delivery, Digest, Malformed, Outbox};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::{Diverged, Identity, ReplicaStatus, Role};
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

use self::clocked::{Clock, Clocked};

const TURN: Duration = Duration::from_micros(20);
/// A payload of one byte is added everywhere. A payload that begins with this byte adds something else at the
/// replicas whose bits follow.
const PLANT: u8 = 0xff;

/// Adds bytes up, and answers with the sum.
struct Adder {
    slot: u8,
    sum: u64,
    position: u64,
    replies: BTreeMap<MessageId, u64>,
    digests: BTreeMap<u64, u64>,
}

impl Adder {
    fn new(replica: ReplicaId) -> Self {
        let (replies, digests) = Default::default();
        Self { slot: replica.slot, sum: 0, position: 0, replies, digests }
    }
}

impl Application for Adder {
    type Failure = Infallible;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Infallible> {
        self.sum += match delivery.payload {
            [PLANT, slots] if slots & 1 << self.slot != 0 => 1_000 << self.slot,
            [byte, ..] => u64::from(*byte),
            [] => 0,
        };
        self.position = delivery.position;
        self.digests.insert(self.position, self.sum);
        self.replies.insert(delivery.message, self.sum);
        out.reply(delivery.message, &self.sum.to_le_bytes());
        Ok(())
    }

    fn exchanged(
        &mut self,
        _: MessageId,
        _: GroupId,
        _: &[u8],
        _: &mut dyn Outbox,
    ) -> Result<(), Infallible> {
        Ok(())
    }

    fn ready(&self) -> bool {
        true
    }

    fn digests(&self) -> Vec<Digest> {
        vec![Digest { position: self.position, digest: self.sum }]
    }

    fn digest_at(&self, position: u64) -> Option<u64> {
        self.digests.get(&position).copied()
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        if let Some(sum) = self.replies.get(&message) {
            out.reply(message, &sum.to_le_bytes());
        }
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), Infallible> {
        part.extend_from_slice(&self.sum.to_le_bytes());
        part.extend_from_slice(&self.position.to_le_bytes());
        Ok(())
    }

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, part: &[u8], _: bool) -> Result<Result<(), Malformed>, Infallible> {
        if let ([sum, position], []) = part.as_chunks::<8>() {
            (self.sum, self.position) = (u64::from_le_bytes(*sum), u64::from_le_bytes(*position));
        }
        Ok(Ok(()))
    }
}

/// A group of three replicas, and a session.
struct World {
    engines: Vec<Engine<Clocked, Adder>>,
    /// Nodes that take no turns.
    still: Vec<usize>,
    access: SessionTransport<Clocked>,
    session: SessionKey,
    clock: Clock,
    answers: BTreeMap<u64, u64>,
}

impl World {
    fn start() -> Self {
        let layout =
            Layout::propose(Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 }).unwrap();
        let tuning = Tuning { log_bytes: 256 << 10, ..Tuning::default() };
        let host = Host::anonymous();
        let clock = Clock::default();
        let join = |name: &str| Clocked::new(host.join(name).unwrap(), &clock);
        let engine = |node| {
            let fabric = join(&endpoint_name(node, 0));
            Engine::new(fabric, &layout, tuning, Identity::first(node, 0), Adder::new).unwrap()
        };
        let engines = (0..3).map(engine).collect();
        let mut access = SessionTransport::new(join("session"), &layout, tuning);
        let session = access.open(SessionId(0x9E37_79B9_7F4A_7C15));
        let mut world =
            Self { engines, still: Vec::new(), access, session, clock, answers: BTreeMap::new() };
        world.until("one leads", |it| it.roles().contains(&Role::Leader));
        world
    }

    fn turn(&mut self) {
        for (node, engine) in self.engines.iter_mut().enumerate() {
            if !self.still.contains(&node) {
                engine.turn();
            }
        }
        let answers = &mut self.answers;
        let mut got = Vec::new();
        let turned = self.access.turn(&mut |reply| {
            let sum = u64::from_le_bytes(reply.bytes.try_into().expect("a sum"));
            answers.insert(reply.sequence, sum);
            got.push(reply.sequence);
        });
        turned.expect("shared memory of one process does not fail");
        for sequence in got {
            self.access.settle(self.session, sequence);
        }
        self.clock.pass(TURN);
    }

    fn pass(&mut self, time: Duration) {
        (0..time.as_micros() / TURN.as_micros()).for_each(|_| self.turn());
    }

    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..Duration::from_secs(20).as_micros() / TURN.as_micros() {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}, but not within 20 s: {:#?}", self.statuses());
    }

    fn send(&mut self, payload: &[u8]) -> u64 {
        let to = GroupSet::single(GroupId(0));
        self.access.multicast(self.session, to, payload).expect("the window has room")
    }

    #[track_caller]
    fn ask(&mut self, payload: &[u8]) -> u64 {
        let sequence = self.send(payload);
        self.until("it is answered", |it| it.answers.contains_key(&sequence));
        self.answers[&sequence]
    }

    fn statuses(&self) -> Vec<ReplicaStatus> {
        self.engines.iter().flat_map(Engine::status).collect()
    }

    fn roles(&self) -> Vec<Role> {
        self.statuses().iter().map(|replica| replica.role).collect()
    }

    fn sums(&self) -> Vec<u64> {
        let machines = self.engines.iter().flat_map(Engine::applications);
        machines.map(|(_, machine)| machine.sum).collect()
    }

    /// The status of each replica: whose state differs, and whether that is repaired.
    fn found(&self) -> Vec<Option<(Diverged, bool)>> {
        let statuses = self.statuses().into_iter();
        statuses.map(|it| it.divergence.map(|found| (found.what, found.recovered))).collect()
    }
}

#[test]
fn replicas_that_hold_the_same_find_nothing() {
    let mut world = World::start();
    for round in 0..200 {
        world.ask(&[round as u8]);
        world.pass(Duration::from_millis(round % 7));
    }
    world.still = vec![2];
    world.pass(Duration::from_secs(5));
    world.ask(&[1]);
    world.still.clear();
    world.pass(Duration::from_secs(5));
    assert_eq!(world.found(), [None, None, None]);
}

#[test]
fn a_follower_that_has_diverged_takes_the_state_anew() {
    let mut world = World::start();
    assert_eq!(world.ask(&[5]), 5);
    assert_eq!(world.ask(&[PLANT, 0b100]), 260);
    assert_eq!(world.sums(), [260, 260, 4_005]);
    world.until("slot 2 has the state anew", |it| it.sums() == [260; 3]);
    assert_eq!(world.found()[2], Some((Diverged::Own, true)));
    assert_eq!(world.statuses()[2].divergence.as_ref().unwrap().slots, [2]);
    // It counts again: the group continues with it and the leader alone.
    world.until("it follows", |it| it.roles()[2] == Role::Follower);
    world.until("the others see that all is well", |it| it.found()[..2] == [None, None]);
    world.still = vec![1];
    assert_eq!(world.ask(&[1]), 261);
    assert_eq!(world.sums()[2], 261);
    assert_eq!(world.statuses()[0].divergence, None);
}

#[test]
fn a_leader_that_has_diverged_lets_another_lead_and_takes_its_state() {
    let mut world = World::start();
    assert_eq!(world.ask(&[5]), 5);
    world.ask(&[PLANT, 0b001]);
    world.until("slot 0 has the state anew", |it| it.sums() == [260; 3]);
    assert_eq!(world.found()[0], Some((Diverged::Own, true)));
    assert_ne!(world.roles()[0], Role::Leader);
    assert_eq!(world.ask(&[1]), 261);
    world.until("all hold the same", |it| it.sums() == [261; 3]);
}

#[test]
fn a_group_without_a_state_that_most_hold_stops() {
    let mut world = World::start();
    assert_eq!(world.ask(&[5]), 5);
    world.ask(&[PLANT, 0b111]);
    world.until("all say so", |it| it.found() == [Some((Diverged::All, false)); 3]);
    let before = world.sums();
    let sequence = world.send(&[1]);
    world.pass(Duration::from_secs(3));
    assert!(!world.answers.contains_key(&sequence), "it has stopped");
    assert_eq!(world.sums(), before, "and takes nothing");
    assert!(world.statuses().iter().all(|replica| !replica.available && replica.is_stopped()));
}

#[test]
fn a_replica_that_was_silent_decides_for_one_of_two_states() {
    let mut world = World::start();
    assert_eq!(world.ask(&[5]), 5);
    world.still = vec![2];
    world.ask(&[PLANT, 0b001]);
    world.until("two that differ stop", |it| it.found()[..2] == [Some((Diverged::All, false)); 2]);
    world.still.clear();
    world.until("all hold what two do", |it| it.sums() == [260; 3]);
    assert_eq!(world.found()[0], Some((Diverged::Own, true)));
    assert_eq!(world.ask(&[1]), 261);
}
