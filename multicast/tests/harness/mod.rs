//! A whole cluster on one thread, with a state machine that only replies, unless another is given, to measure
//! the cost of messages alone. All processes take turns, and the clock advances by the same time in each, so
//! every run is the same.

mod clocked;

use std::sync::Arc;
use std::time::Duration;

use skein_fabric::shm::Host;
use skein_multicast::Links;
use skein_multicast::application::{Answer, Application};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::roster::Roster;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupSet, ReplicaId, SessionId};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;
use skein_protocol::tram::tree::Tree;

use self::clocked::{Clock, Clocked};

/// Approximate real time of a turn of all processes.
const TURN: Duration = Duration::from_micros(2);

/// Engines and sessions that take turns.
pub(crate) struct Harness<A: Application = Answer, O: Links = Ramcast> {
    engines: Vec<Engine<Clocked, A, O>>,
    access: SessionTransport<Clocked>,
    clock: Clock,
    /// Time by which the clock advances in each turn.
    turn: Duration,
    sessions: Vec<SessionKey>,
    /// By session, and by sequence number modulo the window: the groups that have not answered.
    unanswered: Vec<Vec<GroupSet>>,
    answered: Vec<(SessionKey, u64)>,
    /// The destinations of messages, used in rotation.
    destinations: Vec<GroupSet>,
    payload: Vec<u8>,
    window: usize,
}

/// Three nodes with replicas of `groups` groups.
fn layout(groups: u16) -> Layout {
    Layout::propose(Topology { nodes: 3, groups, replicas: 3, engines: 1 }).unwrap()
}

impl Harness {
    /// Starts three nodes with replicas of `groups` groups, and opens `sessions` sessions.
    pub(crate) fn start(groups: u16, sessions: usize) -> Self {
        Self::start_with(groups, sessions, |_| Answer)
    }
}

impl<A: Application + 'static> Harness<A> {
    /// Like [`Harness::start`], with state machines that `application` makes.
    pub(crate) fn start_with(
        groups: u16,
        sessions: usize,
        application: fn(ReplicaId) -> A,
    ) -> Self {
        Self::start_in(&layout(groups), sessions, application)
    }
}

impl<A: Application + 'static> Harness<A, Tram> {
    /// Like [`Harness::start_with`], with messages ordered along a tree.
    pub(crate) fn start_along(
        tree: &Tree,
        sessions: usize,
        application: fn(ReplicaId) -> A,
    ) -> Self {
        let layout = layout(tree.groups()).along(tree).unwrap();
        Self::start_in(&layout, sessions, application)
    }
}

impl<A: Application + 'static, O: Links> Harness<A, O> {
    fn start_in(layout: &Layout, sessions: usize, application: fn(ReplicaId) -> A) -> Self {
        // A small log is soon full, and everything that is kept for it has its final size then.
        let tuning = Tuning { log_bytes: 256 << 10, ..Tuning::default() };
        let host = Host::anonymous();
        let clock = Clock::default();
        let join = |name: &str| Clocked::new(host.join(name).unwrap(), &clock);
        let engine = |node| {
            let fabric = join(&endpoint_name(node, 0));
            let (me, roster) = (Identity::first(node, 0), Roster::unrecorded(node, 0));
            let roster = Arc::new(roster);
            Engine::with_roster(fabric, layout, tuning, me, roster, None, application).unwrap()
        };
        let mut engines: Vec<_> = (0..layout.topology().nodes).map(engine).collect();
        while !engines.iter().all(Engine::connected) {
            clock.pass(Duration::from_millis(tuning.heartbeat_ms));
            for engine in &mut engines {
                engine.turn();
            }
        }
        let mut access = SessionTransport::new(join("sessions"), layout, tuning);
        // Names look random, and are the same in each run.
        let name = |i: usize| SessionId((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let sessions: Vec<_> = (0..sessions).map(|i| access.open(name(i))).collect();
        Self {
            engines,
            access,
            clock,
            turn: TURN,
            unanswered: vec![vec![GroupSet::EMPTY; tuning.window]; sessions.len()],
            sessions,
            answered: Vec::new(),
            destinations: vec![layout.topology().all_groups()],
            payload: vec![0x5a; 64],
            window: tuning.window,
        }
    }

    /// The time that each turn takes from here on. None of it stops the clock.
    #[allow(dead_code, reason = "some tests leave it as it is")]
    pub(crate) fn take_turns_of(&mut self, time: Duration) {
        self.turn = time;
    }

    /// Number of busy sessions.
    #[allow(dead_code, reason = "most of those who have a harness know it")]
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Restricts the load to the first `active` sessions; the others are idle from here on.
    #[allow(dead_code, reason = "some tests have no idle sessions")]
    pub(crate) fn keep_busy(&mut self, active: usize) {
        self.sessions.truncate(active);
    }

    /// Sends messages to these destinations in rotation from here on.
    #[allow(dead_code, reason = "most of those who have a harness send everything to all groups")]
    pub(crate) fn send_to(&mut self, destinations: Vec<GroupSet>) {
        self.destinations = destinations;
    }

    /// Sends messages of this length from here on.
    #[allow(dead_code, reason = "most of those who have a harness send short ones")]
    pub(crate) fn send_bytes(&mut self, len: usize) {
        self.payload.resize(len, 0x5a);
    }

    /// Multicasts `bursts` bursts of `depth` messages of each busy session, and returns when all are
    /// answered. A burst begins when the one before is answered: if each message followed an answer, the
    /// batch sizes would depend on chance. `engines` and `sessions` call what they are given, which takes a
    /// turn each.
    pub(crate) fn multicast(
        &mut self,
        bursts: usize,
        depth: usize,
        engines: &mut dyn FnMut(&mut dyn FnMut()),
        sessions: &mut dyn FnMut(&mut dyn FnMut()),
    ) {
        for _ in 0..bursts {
            let mut under_way = 0;
            sessions(&mut || {
                for session in &self.sessions {
                    for _ in 0..depth {
                        self.destinations.rotate_left(1);
                        let to = self.destinations[0];
                        let sequence = self.access.multicast(*session, to, &self.payload);
                        let sequence = sequence.expect("all are answered, and fit the window");
                        let unanswered = &mut self.unanswered[session.0 as usize];
                        unanswered[sequence as usize % self.window] = to;
                        under_way += 1;
                    }
                }
            });
            while under_way > 0 {
                engines(&mut || self.engines.iter_mut().for_each(|engine| _ = engine.turn()));
                sessions(&mut || under_way -= self.take_replies());
                self.clock.pass(self.turn);
            }
        }
    }

    /// Takes a turn of the sessions. Returns the number of messages that all groups have answered now.
    fn take_replies(&mut self) -> usize {
        let Self { access, unanswered, answered, window, .. } = self;
        let turned = access.turn(&mut |reply| {
            let session = &mut unanswered[reply.session.0 as usize];
            let left = &mut session[reply.sequence as usize % *window];
            *left = left.without(reply.group);
            if left.is_empty() {
                answered.push((reply.session, reply.sequence));
            }
        });
        turned.expect("shared memory of one process does not fail");
        let count = answered.len();
        for (session, sequence) in answered.drain(..) {
            access.settle(session, sequence);
        }
        count
    }
}
