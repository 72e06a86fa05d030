//! Sessions that violate the protocol: their writes to channels and their control messages are changed in
//! transit. They harm only themselves: engines keep running, and other sessions are served.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::any::AnyFabric;
use skein_fabric::shm::Host;
use skein_fabric::sim::Rng;
use skein_fabric::tcp::{Book, Net, Security};
use skein_fabric::{
    Completion, Fabric, FabricError, Peer, Permission as Open, Region, RegionKey, Remote, Source,
};
use skein_multicast::Links;
use skein_multicast::application::Answer;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::roster::Roster;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupId, GroupSet, SessionId};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;
use skein_protocol::tram::tree::Tree;

const TOPOLOGY: Topology = Topology { nodes: 3, groups: 3, replicas: 3, engines: 1 };

fn layout() -> Layout {
    Layout::propose(TOPOLOGY).unwrap()
}

fn chain() -> Layout {
    layout().along(&Tree::depth(TOPOLOGY.groups)).unwrap()
}
const ROGUES: u64 = 300;
/// Longer than anything here takes unless it hangs.
const WATCHDOG: Duration = Duration::from_mins(1);

#[derive(Clone)]
enum Ground {
    Host(Host),
    Net(Net),
}

impl Ground {
    fn net() -> Self {
        let book = Book::default();
        for node in 0..TOPOLOGY.nodes {
            book.insert(&endpoint_name(node, 0), "127.0.0.1:0");
        }
        Self::Net(Net::new("rogues", book, Security::Plain))
    }

    fn join(&self, name: &str) -> AnyFabric {
        match self {
            Self::Host(host) => host.join(name).unwrap().into(),
            Self::Net(net) => net.join(name).unwrap().into(),
        }
    }

    fn visit(&self, name: &str) -> AnyFabric {
        match self {
            Self::Host(host) => host.join(name).unwrap().into(),
            Self::Net(net) => {
                let mut fabric = net.visit(name).unwrap();
                fabric.set_dial_timeout(Duration::from_secs(1));
                fabric.into()
            }
        }
    }
}

#[test]
fn rogues_on_shared_memory_harm_nobody_else() {
    harm_nobody_else::<Ramcast>(&Ground::Host(Host::anonymous()), &layout());
}

#[test]
fn rogues_harm_nobody_else_along_a_tree() {
    harm_nobody_else::<Tram>(&Ground::Host(Host::anonymous()), &chain());
}

#[test]
fn rogues_on_a_network_harm_nobody_else() {
    harm_nobody_else::<Ramcast>(&Ground::net(), &layout());
}

/// A process that is admitted under one name introduces itself as an engine of another name. No engine accepts it.
#[test]
fn an_engine_that_goes_by_another_name_is_welcomed_by_nobody() {
    let ground = Ground::net();
    let cluster = Cluster::start::<Ramcast>(&ground, &layout());
    let mut good = SessionTransport::new(ground.visit("good"), &layout(), Tuning::default());
    let session = good.open(SessionId(1));
    serve(&mut good, session);
    let (fabric, me) = (ground.visit("impostor"), Identity::first(1, 0));
    let mut impostor = Engine::new(fabric, &layout(), Tuning::default(), me, |_| Answer).unwrap();
    for _ in 0..20 {
        for _ in 0..20 {
            impostor.turn();
            thread::yield_now();
        }
        serve(&mut good, session);
    }
    assert!(!impostor.connected());
    cluster.stop();
}

/// Engines on threads.
struct Cluster {
    stop: Arc<AtomicBool>,
    engines: Vec<thread::JoinHandle<()>>,
}

impl Cluster {
    fn start<O: Links>(ground: &Ground, layout: &Layout) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let run = |node| {
            let (fabric, stop) = (ground.join(&endpoint_name(node, 0)), Arc::clone(&stop));
            let (layout, roster) = (layout.clone(), Arc::new(Roster::unrecorded(node, 0)));
            thread::spawn(move || {
                let (me, tuning) = (Identity::first(node, 0), Tuning::default());
                let engine = Engine::<_, _, O>::with_roster;
                let engine = engine(fabric, &layout, tuning, me, roster, None, |_| Answer);
                let mut engine = engine.unwrap();
                while !stop.load(Ordering::Relaxed) {
                    if !engine.turn() {
                        thread::yield_now();
                    }
                }
            })
        };
        let engines = (0..TOPOLOGY.nodes).map(run).collect();
        Self { stop, engines }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for engine in self.engines {
            engine.join().unwrap();
        }
    }
}

fn harm_nobody_else<O: Links>(ground: &Ground, layout: &Layout) {
    let cluster = Cluster::start::<O>(ground, layout);
    let mut good = SessionTransport::new(ground.visit("good"), layout, Tuning::default());
    let session = good.open(SessionId(1));
    serve(&mut good, session);
    for seed in 0..ROGUES {
        misbehave(ground, layout, seed);
        serve(&mut good, session);
        for engine in &cluster.engines {
            assert!(!engine.is_finished(), "rogue {seed} has ended an engine");
        }
    }
    cluster.stop();
}

/// Multicasts a message to all groups, and waits until all have answered.
fn serve(access: &mut SessionTransport<AnyFabric>, session: SessionKey) {
    let sequence = access.multicast(session, TOPOLOGY.all_groups(), b"something").unwrap();
    let (mut unanswered, end) = (TOPOLOGY.all_groups(), Instant::now() + WATCHDOG);
    while !unanswered.is_empty() {
        let turned = access.turn(&mut |reply| {
            assert_eq!(reply.sequence, sequence);
            unanswered = unanswered.without(reply.group);
        });
        if !turned.unwrap() {
            thread::yield_now();
        }
        assert!(Instant::now() < end, "{unanswered} do not answer");
    }
    access.settle(session, sequence);
}

/// Clients that take each other's name, and send different messages as the same one, to different groups.
#[test]
fn clients_of_one_name_harm_nobody_else_along_a_tree() {
    let ground = Ground::Host(Host::anonymous());
    let cluster = Cluster::start::<Tram>(&ground, &chain());
    let mut good = SessionTransport::new(ground.visit("good"), &chain(), Tuning::default());
    let session = good.open(SessionId(1));
    for seed in 0..ROGUES / 5 {
        let mut rng = Rng::new(seed);
        let fabric = ground.visit(&format!("rogue{seed}"));
        let mut access = SessionTransport::new(fabric, &chain(), Tuning::default());
        let name = SessionId::from_random(rng.word());
        let sessions: Vec<_> = (0..3).map(|_| access.open(name)).collect();
        for _ in 0..rng.between(20, 60) {
            for session in &sessions {
                let bits = rng.between(1, 7);
                let groups = (0..3).filter(|group| bits >> group & 1 == 1).map(GroupId);
                let len = *rng.pick(&[0, 10, 100, 1_000, 20_000]);
                let _ = access.multicast(*session, groups.collect(), &vec![seed as u8; len]);
            }
            for _ in 0..5 {
                access.turn(&mut |_| {}).unwrap();
                thread::yield_now();
            }
        }
        serve(&mut good, session);
    }
    cluster.stop();
}

/// Runs a client of a few sessions whose fabric changes what it sends.
fn misbehave(ground: &Ground, layout: &Layout, seed: u64) {
    let mut rng = Rng::new(seed);
    let one_in = |rng: &mut Rng| *rng.pick(&[0, 2, 10, 50]);
    let whims = Whims {
        letters_one_in: one_in(&mut rng),
        words_one_in: one_in(&mut rng),
        frames_one_in: one_in(&mut rng),
        sequence: if rng.one_in(2) { 0 } else { odd_word(&mut rng) },
        low_water: if rng.one_in(2) { 0 } else { odd_word(&mut rng) },
    };
    let fabric =
        Rough { fabric: ground.visit(&format!("rogue{seed}")), whims, rng: Rng::new(seed) };
    let mut access = SessionTransport::new(fabric, layout, Tuning::default());
    // All of one name, at times: they send different things as the same message.
    let (one, shared) = (rng.word(), rng.one_in(3));
    let mut name = || SessionId::from_random(if shared { one } else { rng.word() });
    let sessions: Vec<_> = (0..3).map(|_| access.open(name())).collect();
    // It receives some answers, and ignores them.
    for _ in 0..rng.between(20, 60) {
        for session in &sessions {
            let one = GroupSet::single(GroupId(rng.below(TOPOLOGY.groups.into()) as u16));
            // Large ones to several groups come with hints, along a tree.
            let groups = if rng.one_in(3) { TOPOLOGY.all_groups() } else { one };
            let len = *rng.pick(&[0, 10, 100, 1_000, 20_000]);
            let _ = access.multicast(*session, groups, &vec![7; len]);
        }
        for _ in 0..5 {
            if access.turn(&mut |_| {}).is_err() {
                return;
            }
            thread::yield_now();
        }
    }
}

/// A word that is seldom valid.
fn odd_word(rng: &mut Rng) -> u64 {
    let word = rng.word();
    *rng.pick(&[u64::MAX, u64::MAX - 1, 1 << 63, 1 << 32, 4096, 8, 7, 1, word, word & !7])
}

/// What is changed, and how often: one in so many, or nothing if zero.
struct Whims {
    letters_one_in: u64,
    /// Words of slots.
    words_one_in: u64,
    /// First words of frames.
    frames_one_in: u64,
    /// Masks by which the numbers in all messages are changed. They are the same for all replicas, since
    /// these protocols do not tolerate a client that sends different messages to different replicas.
    sequence: u64,
    low_water: u64,
}

/// A fabric that changes some of what it sends.
struct Rough {
    fabric: AnyFabric,
    whims: Whims,
    rng: Rng,
}

impl Rough {
    fn change(&mut self, bytes: &mut [u8]) {
        let Whims { words_one_in, frames_one_in, sequence, low_water, .. } = self.whims;
        if let Ok(word) = <&mut [u8; 8]>::try_from(&mut *bytes) {
            if words_one_in > 0 && self.rng.one_in(words_one_in) {
                let odd = odd_word(&mut self.rng);
                let near = u64::from_le_bytes(*word) ^ 1 << self.rng.below(64);
                *word = if self.rng.one_in(2) { odd } else { near }.to_le_bytes();
            }
            return;
        }
        for (at, by) in [(8, sequence), (16, low_water)] {
            if let Some(word) = bytes.get_mut(at..at + 8) {
                let word: &mut [u8; 8] = word.try_into().expect("eight bytes");
                *word = (u64::from_le_bytes(*word) ^ by).to_le_bytes();
            }
        }
        if frames_one_in > 0 && self.rng.one_in(frames_one_in) {
            bytes[self.rng.below(8) as usize] ^= 1 << self.rng.below(8);
        }
    }
}

impl Fabric for Rough {
    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError> {
        let Source::Inline(bytes) = from else { return self.fabric.write(to, at, from, tag) };
        let mut bytes = bytes.to_vec();
        self.change(&mut bytes);
        self.fabric.write(to, at, Source::Inline(&bytes), tag)
    }

    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError> {
        let mut bytes = bytes.to_vec();
        let Whims { letters_one_in, .. } = self.whims;
        if letters_one_in > 0 && self.rng.one_in(letters_one_in) {
            for _ in 0..self.rng.between(1, 4) {
                let at = self.rng.below(bytes.len() as u64) as usize;
                bytes[at] = self.rng.word() as u8;
            }
            bytes.truncate(self.rng.between(bytes.len() as u64 / 2, 2 * bytes.len() as u64) as usize);
        }
        self.fabric.send(to, &bytes)
    }

    fn now(&self) -> Duration {
        self.fabric.now()
    }
    fn dial(&mut self, name: &str) -> Result<Peer, FabricError> {
        self.fabric.dial(name)
    }
    fn is_gone(&mut self, peer: Peer) -> bool {
        self.fabric.is_gone(peer)
    }
    fn may_return(&self) -> bool {
        self.fabric.may_return()
    }
    fn name_of(&self, peer: Peer) -> Option<String> {
        self.fabric.name_of(peer)
    }
    fn hang_up(&mut self, peer: Peer) {
        self.fabric.hang_up(peer);
    }
    fn create(&mut self, len: usize, access: Open) -> Result<Region, FabricError> {
        self.fabric.create(len, access)
    }
    fn destroy(&mut self, region: Region) {
        self.fabric.destroy(region);
    }
    fn key(&self, region: Region) -> RegionKey {
        self.fabric.key(region)
    }
    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError> {
        self.fabric.grant(region, writer)
    }
    fn revoke(&mut self, region: Region) -> Result<(), FabricError> {
        self.fabric.revoke(region)
    }
    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError> {
        self.fabric.attach(peer, key)
    }
    fn detach(&mut self, remote: Remote) {
        self.fabric.detach(remote);
    }
    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError> {
        self.fabric.read(from, at, len, into, tag)
    }
    fn flush(&mut self) {
        self.fabric.flush();
    }
    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.fabric.poll(completions);
    }
    fn wake(&mut self, peer: Peer) {
        self.fabric.wake(peer);
    }
    fn park(&mut self, _: Duration, _: &mut dyn FnMut(&Self) -> bool) {
        unreachable!("a rogue does not sleep")
    }
    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer> {
        self.fabric.recv(into)
    }
    fn load(&self, region: Region, at: usize) -> u64 {
        self.fabric.load(region, at)
    }
    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize> {
        self.fabric.changed(region, seen, from)
    }
    fn store(&mut self, region: Region, at: usize, word: u64) {
        self.fabric.store(region, at, word);
    }
    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]) {
        self.fabric.copy_out(region, at, into);
    }
    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]) {
        self.fabric.copy_in(region, at, bytes);
    }
}
