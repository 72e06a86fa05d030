//! The other side: roles played by processes or threads, and tools to communicate with them.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use skein_fabric::shm::{Host, ShmFabric};
use skein_fabric::tcp::{Book, Net, Security, TcpFabric};
use skein_fabric::{Completion, Fabric, Outcome, Peer, RegionKey, Remote, Source};
use tempfile::TempDir;

use crate::{fencing, incarnations, ordering, space, waiting};

/// No step of a test takes this long unless it hangs.
pub(crate) const WATCHDOG: Duration = Duration::from_mins(1);

pub(crate) const OWNER: &str = "owner";
const ROLE: &str = "SKEIN_TEST_ROLE";

/// A meeting place of processes or threads, and a way to launch others.
pub(crate) trait Ground {
    type F: Fabric;

    /// Joins as the process that the others can dial.
    fn join_as_owner(&self) -> Self::F;

    fn launch(&self, role: &str, name: &str) -> Hand;

    /// All have left: checks that nothing of theirs is left behind.
    fn check_empty(&self);
}

/// A host, shared by processes or threads.
pub(crate) enum Harness {
    Processes { host: Host, _dir: TempDir },
    Threads(Host),
}

impl Harness {
    pub(crate) fn of_processes() -> Self {
        let memory = PathBuf::from("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.unwrap();
        let host = Host::at(&dir.path().join("host")).unwrap();
        Self::Processes { host, _dir: dir }
    }

    pub(crate) fn of_threads() -> Self {
        Self::Threads(Host::anonymous())
    }

    pub(crate) fn host(&self) -> &Host {
        match self {
            Self::Processes { host, .. } | Self::Threads(host) => host,
        }
    }
}

impl Ground for Harness {
    type F = ShmFabric;

    fn join_as_owner(&self) -> ShmFabric {
        self.host().join(OWNER).unwrap()
    }

    fn launch(&self, role: &str, name: &str) -> Hand {
        match self {
            Self::Processes { host, .. } => {
                process(role, name, &format!("host {}", host.dir().unwrap().display()))
            }
            Self::Threads(host) => {
                let (host, role, name) = (host.clone(), role.to_owned(), name.to_owned());
                Hand::Thread(Some(thread::spawn(move || play(&role, host.join(&name).unwrap()))))
            }
        }
    }

    fn check_empty(&self) {
        assert_eq!(self.host().bytes_reserved(), 0, "all memory was given back");
    }
}

/// A network of processes, on which only the owner can be called.
pub(crate) struct Wire(pub(crate) Net);

impl Wire {
    pub(crate) fn plain() -> Self {
        let book = Book::default();
        book.insert(OWNER, "127.0.0.1:0");
        Self(Net::new("conformance", book, Security::Plain))
    }
}

impl Ground for Wire {
    type F = TcpFabric;

    fn join_as_owner(&self) -> TcpFabric {
        self.0.join(OWNER).unwrap()
    }

    fn launch(&self, role: &str, name: &str) -> Hand {
        process(role, name, &format!("net {}", self.0.book().find(OWNER).unwrap()))
    }

    fn check_empty(&self) {}
}

/// Whether there is an RDMA device to run on.
#[cfg(feature = "verbs")]
pub(crate) fn has_adapter() -> bool {
    let some = !skein_fabric::adapters::adapters().is_empty();
    if !some {
        println!("verbs: not run: no RDMA device");
    }
    some
}

/// A network of processes with RDMA cards, on which only the owner can be called.
#[cfg(feature = "verbs")]
pub(crate) struct Cards(pub(crate) Net);

#[cfg(feature = "verbs")]
impl Cards {
    /// `None` without an RDMA device.
    pub(crate) fn plain() -> Option<Self> {
        has_adapter().then(|| Self(Wire::plain().0))
    }
}

#[cfg(feature = "verbs")]
impl Ground for Cards {
    type F = skein_fabric::verbs::VerbsFabric;

    fn join_as_owner(&self) -> Self::F {
        Self::F::join(&self.0, OWNER, &skein_fabric::verbs::Config::default()).unwrap()
    }

    fn launch(&self, role: &str, name: &str) -> Hand {
        process(role, name, &format!("cards {}", self.0.book().find(OWNER).unwrap()))
    }

    fn check_empty(&self) {}
}

/// Starts a process that plays a role.
fn process(role: &str, name: &str, place: &str) -> Hand {
    let me = env::current_exe().unwrap();
    let child = Command::new(me)
        .args(["--exact", "harness::play_the_role", "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{role}\n{name}\n{place}"))
        .stdout(Stdio::null())
        .spawn();
    Hand::Process(child.unwrap())
}

/// A launched process or thread. A process is killed if the test gives up on it.
pub(crate) enum Hand {
    Process(Child),
    Thread(Option<JoinHandle<()>>),
}

impl Hand {
    /// Waits for the role to end, and checks that it succeeded.
    pub(crate) fn finish(mut self) {
        match &mut self {
            Self::Process(child) => assert!(child.wait().unwrap().success(), "the role failed"),
            Self::Thread(thread) => thread.take().unwrap().join().unwrap(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        let Self::Process(child) = self else { panic!("a thread has no pid of its own") };
        Pid::from_child(child)
    }

    /// Stops the process, and returns once it has stopped.
    pub(crate) fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let stat = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let end = Instant::now() + WATCHDOG;
        loop {
            let text = fs::read_to_string(&stat).unwrap();
            let state = text.rsplit_once(") ").unwrap().1;
            if state.starts_with('T') {
                return;
            }
            assert!(Instant::now() < end, "it does not stop");
        }
    }

    pub(crate) fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Kills the process, as `kill -9` does.
    pub(crate) fn kill(mut self) {
        let Self::Process(child) = &mut self else { panic!("a thread cannot be killed") };
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        if let Self::Process(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Not a test: the processes that the tests launch run this.
#[test]
fn play_the_role() {
    let Ok(told) = env::var(ROLE) else { return };
    let mut told = told.split('\n');
    let mut next = || told.next().unwrap();
    let (role, name, place) = (next(), next(), next());
    match place.split_once(' ').unwrap() {
        ("host", dir) => play(role, Host::at(dir.as_ref()).unwrap().join(name).unwrap()),
        #[cfg(feature = "verbs")]
        ("cards", address) => {
            let config = skein_fabric::verbs::Config::default();
            let net = net_with(address);
            let mut fabric = skein_fabric::verbs::VerbsFabric::visit(&net, name, &config).unwrap();
            fabric.set_dial_timeout(WATCHDOG);
            play(role, fabric);
        }
        (_, address) => {
            let net = net_with(address);
            let mut fabric = net.visit(name).unwrap();
            fabric.set_dial_timeout(WATCHDOG);
            play(role, fabric);
        }
    }
}

/// A network on which the owner is at that address.
fn net_with(address: &str) -> Net {
    let book = Book::default();
    book.insert(OWNER, address);
    Net::new("conformance", book, Security::Plain)
}

fn play<F: Fabric>(role: &str, fabric: F) {
    match role {
        "order" => ordering::writer(fabric),
        "hammer" => fencing::hammer(fabric),
        "victim" => fencing::victim(fabric),
        "revoker" => fencing::revoker(fabric),
        "partner" => waiting::partner(fabric),
        "patient" => waiting::patient(fabric),
        "sleeper" => waiting::sleeper(fabric),
        "tenant" => incarnations::tenant(fabric),
        "pauper" => space::pauper(fabric),
        _ => panic!("no role {role}"),
    }
}

/// Dials the owner. On a busy or emulated machine, connecting takes longer than one call may.
pub(crate) fn meet_owner<F: Fabric>(fabric: &mut F) -> Peer {
    let end = Instant::now() + WATCHDOG;
    loop {
        match fabric.dial(OWNER) {
            Ok(peer) => return peer,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        thread::yield_now();
    }
}

/// Waits for a control message.
pub(crate) fn mail<F: Fabric>(fabric: &mut F) -> (Peer, Vec<u8>) {
    let end = Instant::now() + WATCHDOG;
    let mut bytes = Vec::new();
    loop {
        if let Some(peer) = fabric.recv(&mut bytes) {
            return (peer, bytes);
        }
        assert!(Instant::now() < end, "no mail");
        thread::yield_now();
    }
}

/// Splits a control message into keys.
pub(crate) fn keys(bytes: &[u8]) -> impl Iterator<Item = RegionKey> {
    bytes.as_chunks::<32>().0.iter().map(|key| RegionKey(*key))
}

/// Writes one word.
pub(crate) fn put<F: Fabric>(fabric: &mut F, to: Remote, at: usize, word: u64, tag: Option<u64>) {
    fabric.write(to, at, Source::Inline(&word.to_ne_bytes()), tag).unwrap();
}

/// The completions since the last call.
pub(crate) fn ends<F: Fabric>(fabric: &mut F) -> Vec<(u64, Outcome)> {
    let mut completions = Vec::new();
    fabric.poll(&mut completions);
    completions.into_iter().map(|Completion { tag, outcome }| (tag, outcome)).collect()
}

/// Places the writes of peers, on backends where nothing else does.
pub(crate) fn look<F: Fabric>(fabric: &mut F) {
    assert_eq!(ends(fabric), []);
}

/// The region's first words.
pub(crate) fn words<F: Fabric>(fabric: &F, region: skein_fabric::Region, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; count * 8];
    fabric.copy_out(region, 0, &mut bytes);
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}
