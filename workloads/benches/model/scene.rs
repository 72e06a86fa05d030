//! Engines and sessions that take turns on one thread, over shared memory.

use std::fmt;
use std::hint::black_box;
use std::ops::Sub;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_fabric::counted::Counted;
use skein_fabric::shm::Host;
use skein_multicast::application::Answer;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId, SessionId};
use skein_workloads::multicast::simulated::cpu::Amounts;

use super::clocked::{Clock, Clocked};

/// Clock time of one round of turns.
const TURN: Duration = Duration::from_micros(2);

#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) groups: u16,
    pub(super) destinations: u16,
    pub(super) replicas: u8,
    /// Engines per node.
    pub(super) engines: u16,
    pub(super) sessions: usize,
    /// Messages of each session in a burst.
    pub(super) depth: usize,
    /// Bytes per message.
    pub(super) payload: usize,
    pub(super) bursts: usize,
}

impl Load {
    /// Number of messages, or of bursts if the load has no messages.
    pub(super) fn messages(&self) -> usize {
        self.bursts * (self.sessions * self.depth).max(1)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { groups, destinations, replicas, engines, sessions, depth, payload, .. } = self;
        write!(
            f,
            "{payload:>4} B to {destinations} of {groups} groups of {replicas} on {engines} engines, \
             {sessions:>2} sessions × {depth:>2}"
        )
    }
}

/// Work done, by kind of turn.
#[derive(Clone, Copy)]
pub(super) struct Done {
    /// Engines that lead a group.
    pub(super) leaders: Amounts,
    /// The other engines.
    pub(super) followers: Amounts,
    pub(super) sessions: Amounts,
}

impl Sub for Done {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            leaders: self.leaders - before.leaders,
            followers: self.followers - before.followers,
            sessions: self.sessions - before.sessions,
        }
    }
}

pub(super) struct Scene<F> {
    load: Load,
    leaders: Vec<Engine<F, Answer>>,
    followers: Vec<Engine<F, Answer>>,
    transport: SessionTransport<F>,
    sessions: Vec<SessionKey>,
    clock: Clock,
    /// Messages without a reply of every group.
    under_way: usize,
    /// Groups without a reply, by session and by sequence number modulo the window.
    unanswered: Vec<Vec<u16>>,
    window: usize,
    answered: Vec<(SessionKey, u64)>,
    /// First destination of the next message.
    next: u16,
}

impl Scene<Clocked> {
    pub(super) fn plain(load: Load) -> Self {
        Self::start(load, |fabric| fabric)
    }
}

impl Scene<Counted<Clocked>> {
    pub(super) fn counted(load: Load) -> Self {
        Self::start(load, Counted::new)
    }

    pub(super) fn done(&mut self) -> Done {
        let of = |engines: &mut Vec<Engine<Counted<Clocked>, Answer>>| {
            let all = engines.iter_mut().map(|it| Amounts::new(&it.work(), &it.fabric().asked()));
            all.fold(Amounts::default(), |sum, more| sum.and(&more))
        };
        let (leaders, followers) = (of(&mut self.leaders), of(&mut self.followers));
        let work = self.transport.work();
        let sessions = Amounts::new(&work, &self.transport.fabric().asked());
        Done { leaders, followers, sessions }
    }
}

impl<F: Fabric> Scene<F> {
    fn start(load: Load, wrap: impl Fn(Clocked) -> F) -> Self {
        let Load { groups, replicas, engines, .. } = load;
        let topology = Topology { nodes: replicas.into(), groups, replicas, engines };
        let layout = Layout::propose(topology).unwrap();
        // A small log is soon full, like the log of a cluster that has run for long.
        let tuning = Tuning { log_bytes: 256 << 10, ..Tuning::default() };
        let host = Host::anonymous();
        let clock = Clock::default();
        let join = |name: &str| wrap(Clocked::new(host.join(name).unwrap(), &clock));
        let engine = |(node, engine)| {
            let me = Identity::first(node, engine);
            let fabric = join(&endpoint_name(node, engine));
            Engine::new(fabric, &layout, tuning, me, |_| Answer).unwrap()
        };
        // The first replica of each group leads it.
        let leads = |(node, engine): &(u16, u16)| {
            topology.all_groups().iter().any(|group| {
                let first = ReplicaId::new(group, 0);
                (layout.node_of(first), layout.engine_of(first)) == (*node, *engine)
            })
        };
        let all = (0..topology.nodes).flat_map(|node| (0..engines).map(move |it| (node, it)));
        let (leading, following): (Vec<_>, Vec<_>) = all.partition(leads);
        let mut leaders: Vec<_> = leading.into_iter().map(engine).collect();
        let mut followers: Vec<_> = following.into_iter().map(engine).collect();
        while !leaders.iter().chain(&followers).all(Engine::connected) {
            clock.pass(Duration::from_millis(tuning.heartbeat_ms));
            for engine in leaders.iter_mut().chain(&mut followers) {
                engine.turn();
            }
        }
        let mut transport = SessionTransport::new(join("sessions"), &layout, tuning);
        // Like random names, but the same each time.
        let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let name = |i| SessionId::from_random(bits(i));
        let sessions = (0..load.sessions).map(|i| transport.open(name(i))).collect();
        let mut scene = Self {
            load,
            leaders,
            followers,
            transport,
            sessions,
            clock,
            under_way: 0,
            unanswered: vec![vec![0; tuning.window]; load.sessions],
            window: tuning.window,
            answered: Vec::new(),
            next: 0,
        };
        // Opens all channels, which is not counted.
        scene.load.depth = load.depth.max(1);
        scene.bursts(4, [&mut |turn| turn(), &mut |turn| turn(), &mut |turn| turn()]);
        scene.load = load;
        scene
    }

    /// Runs `bursts` bursts: every session multicasts `depth` messages, and turns follow until all have returned. With
    /// a depth of 0, a burst is one turn of each actor.
    pub(super) fn run(&mut self, bursts: usize) {
        let collected: [Collected<'_>; 3] =
            [&mut turn_of_leaders, &mut turn_of_followers, &mut turn_of_sessions];
        self.bursts(bursts, collected);
    }

    fn bursts(&mut self, bursts: usize, [leaders, followers, sessions]: [Collected<'_>; 3]) {
        for _ in 0..bursts {
            sessions(&mut || self.multicast());
            loop {
                leaders(&mut || self.leaders.iter_mut().for_each(|it| _ = it.turn()));
                followers(&mut || self.followers.iter_mut().for_each(|it| _ = it.turn()));
                sessions(&mut || self.take_replies());
                self.clock.pass(TURN);
                if self.under_way == 0 {
                    break;
                }
            }
        }
    }

    fn multicast(&mut self) {
        let payload = vec![0x5a; self.load.payload];
        let Load { groups, destinations, depth, .. } = self.load;
        for session in &self.sessions {
            for _ in 0..depth {
                let to = (0..destinations).map(|i| GroupId((self.next + i) % groups));
                let to = to.fold(GroupSet::EMPTY, GroupSet::with);
                self.next = (self.next + 1) % groups;
                let sent = self.transport.multicast(*session, to, &payload);
                let sequence = sent.expect("all are answered, and fit the window");
                let unanswered = &mut self.unanswered[session.0 as usize];
                unanswered[sequence as usize % self.window] = destinations;
                self.under_way += 1;
            }
        }
    }

    fn take_replies(&mut self) {
        let Self { transport, unanswered, answered, window, .. } = self;
        let turned = transport.turn(&mut |reply| {
            let session = &mut unanswered[reply.session.0 as usize];
            let left = &mut session[reply.sequence as usize % *window];
            *left -= 1;
            if *left == 0 {
                answered.push((reply.session, reply.sequence));
            }
        });
        turned.expect("shared memory of one process does not fail");
        self.under_way -= answered.len();
        for (session, sequence) in answered.drain(..) {
            transport.settle(session, sequence);
        }
    }
}

/// Calls its argument.
type Collected<'a> = &'a mut dyn FnMut(&mut dyn FnMut());

/// Callgrind counts the instructions within each of these. Their bodies differ, or the compiler would merge them.
#[inline(never)]
fn turn_of_leaders(turn: &mut dyn FnMut()) {
    black_box(1_u8);
    turn();
}

#[inline(never)]
fn turn_of_followers(turn: &mut dyn FnMut()) {
    black_box(2_u16);
    turn();
}

#[inline(never)]
fn turn_of_sessions(turn: &mut dyn FnMut()) {
    black_box(3_u32);
    turn();
}
