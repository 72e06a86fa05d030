//! A whole cluster on one thread, with a state machine that only replies, unless another is asked for: what a
//! message costs, and nothing else. Everything takes turns, and the clock passes as long in each, so every run does the
//! same.

mod clocked;

use std::time::Duration;

use skein_fabric::shm::Host;
use skein_multicast::application::{Answer, Application};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupSet, ReplicaId, SessionId};

use self::clocked::{Clock, Clocked};

/// About what a turn of all of them does take.
const TURN: Duration = Duration::from_micros(2);

/// Engines and sessions that take turns.
pub(crate) struct Harness<A = Answer> {
    engines: Vec<Engine<Clocked, A>>,
    access: SessionTransport<Clocked>,
    clock: Clock,
    /// What a turn of all of them takes, by their clock.
    turn: Duration,
    sessions: Vec<SessionKey>,
    /// By session, and by sequence number modulo the window: groups that have not answered.
    unanswered: Vec<Vec<GroupSet>>,
    answered: Vec<(SessionKey, u64)>,
    /// Where messages go, in turn.
    destinations: Vec<GroupSet>,
    window: usize,
}

impl Harness {
    /// Three nodes with replicas of `groups` groups, and so many sessions.
    pub(crate) fn start(groups: u16, sessions: usize) -> Self {
        Self::start_with(groups, sessions, |_| Answer)
    }
}

impl<A: Application + 'static> Harness<A> {
    /// The same, with state machines that `application` makes.
    pub(crate) fn start_with(
        groups: u16,
        sessions: usize,
        application: fn(ReplicaId) -> A,
    ) -> Self {
        let topology = Topology { nodes: 3, groups, replicas: 3, engines: 1 };
        // A small log is soon full, and what is kept of it has its size then.
        let tuning = Tuning { log_bytes: 256 << 10, ..Tuning::default() };
        let host = Host::anonymous();
        let clock = Clock::default();
        let join = |name: &str| Clocked::new(host.join(name).unwrap(), &clock);
        let engine = |node| {
            let fabric = join(&endpoint_name(node, 0));
            Engine::new(fabric, topology, tuning, Identity::first(node, 0), application).unwrap()
        };
        let mut engines: Vec<_> = (0..topology.nodes).map(engine).collect();
        while !engines.iter().all(Engine::connected) {
            clock.pass(Duration::from_millis(tuning.heartbeat_ms));
            for engine in &mut engines {
                engine.turn();
            }
        }
        let mut access = SessionTransport::new(join("sessions"), topology, tuning);
        // Names differ as random ones do, and are the same each time.
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
            destinations: vec![topology.all_groups()],
            window: tuning.window,
        }
    }

    /// From here on no time passes.
    #[allow(dead_code, reason = "not everybody who has a harness stops its clock")]
    pub(crate) fn stop_clock(&mut self) {
        self.turn = Duration::ZERO;
    }

    /// All sessions but the first so many have nothing to say from here on.
    #[allow(dead_code, reason = "not everybody who has a harness has idle sessions")]
    pub(crate) fn keep_busy(&mut self, active: usize) {
        self.sessions.truncate(active);
    }

    /// From here on messages go to these, in turn.
    #[allow(dead_code, reason = "most of those who have a harness send everything to all groups")]
    pub(crate) fn send_to(&mut self, destinations: Vec<GroupSet>) {
        self.destinations = destinations;
    }

    /// Multicasts `bursts` times `depth` messages of each busy session, and returns when all are answered. A burst begins when the one before is over: where each message follows an answer,
    /// how many travel together is left to chance. `engines` and `sessions` do what they are given: a
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
                        let sequence = self.access.multicast(*session, to, &[0x5a; 64]);
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

    /// Returns how many messages are answered by all groups now.
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
