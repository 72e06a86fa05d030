//! Instructions per operation of the store: `cargo bench -p skein-workloads --bench costs`.
//!
//! Counts the client library and the nodes together. They run on one thread and take turns, and the
//! clock advances by a fixed time per turn. The results are recorded in `costs.txt`.

#[path = "../../multicast/tests/harness/clocked.rs"]
mod clocked;
#[path = "../../multicast/benches/counting/mod.rs"]
mod counting;

use std::mem;
use std::process::ExitCode;
use std::time::Duration;

use skein_client::driver::{Driver, SessionKey, Shape};
use skein_client::{Compare, Operation, ReadMode, Test, Transaction};
use skein_fabric::shm::Host;
use skein_fabric::wait::Waiting;
use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_protocol::ids::{ReplicaId, SessionId};

use self::clocked::{Clock, Clocked};
use self::counting::Case;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TOPOLOGY: Topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
const SESSIONS: usize = 64;
const BURSTS: usize = 60;
/// Number of records, of the size of YCSB's.
const RECORDS: usize = 2_000;
const RECORD: usize = 1_000;
/// About the real time of one turn of all nodes and sessions.
const TURN: Duration = Duration::from_micros(2);

/// Name, transaction, mode of read-only transactions.
type Load = (&'static str, fn(usize) -> Transaction, ReadMode);

#[rustfmt::skip]
const LOADS: [Load; 8] = [
    ("get of 1,000 bytes",                    get,      ReadMode::Confirmed),
    ("the same, ordered",                     get,      ReadMode::Ordered),
    ("the same under a lease",                get,      ReadMode::Lease),
    ("put of 100 bytes",                      put,      ReadMode::Ordered),
    ("patch of 100 bytes",                    patch,    ReadMode::Ordered),
    ("scan of 50 records",                    scan,     ReadMode::Ordered),
    ("two gets, two groups",                  two_gets, ReadMode::Ordered),
    ("guarded transfer, two groups",          transfer, ReadMode::Ordered),
];

fn main() -> ExitCode {
    let case = |(name, _, _)| Case { name, burst: SESSIONS, bursts: BURSTS };
    let package = env!("CARGO_MANIFEST_DIR");
    counting::count(
        "an operation",
        &LOADS.map(case),
        package,
        "benches/costs.txt",
        |case, bursts| {
            let (_, transaction, mode) = LOADS[case];
            let mut cluster = Cluster::start();
            for first in (0..RECORDS).step_by(SESSIONS) {
                cluster.burst(|session| load(first + session));
            }
            cluster.driver.set_read_mode(mode);
            for burst in 0..bursts {
                cluster.burst(|session| transaction(burst * SESSIONS + session));
            }
            // Dropping a driver waits for its sessions to close, by a clock that no longer
            // advances.
            mem::forget(cluster);
        },
    )
}

fn load(i: usize) -> Transaction {
    Transaction::of(Operation::Put { key: key(i), value: vec![b'x'; RECORD] })
        .then(Operation::Increment { key: account(i), by: 100 })
}

fn get(i: usize) -> Transaction {
    Transaction::of(Operation::Get { key: key(i) })
}

fn put(i: usize) -> Transaction {
    Transaction::of(Operation::Put { key: named("note", i), value: vec![b'y'; 100] })
}

fn patch(i: usize) -> Transaction {
    Transaction::of(Operation::Patch { key: key(i), offset: 300, bytes: vec![b'z'; 100] })
}

fn scan(i: usize) -> Transaction {
    Transaction::of(Operation::Scan { start: key(i), end: None, limit: 50 })
}

fn two_gets(i: usize) -> Transaction {
    get(2 * i).then(Operation::Get { key: key(2 * i + 1) })
}

fn transfer(i: usize) -> Transaction {
    let (from, to) = (account(2 * i), account(2 * i + 1));
    let covered = Test::Number { compare: Compare::AtLeast, number: 1 };
    Transaction::default()
        .guard(from.clone(), covered)
        .then(Operation::Increment { key: from, by: -1 })
        .then(Operation::Increment { key: to, by: 1 })
}

/// The key of a record. Even ones are in one group, odd ones in the other.
fn key(i: usize) -> Vec<u8> {
    named("user", i)
}

fn account(i: usize) -> Vec<u8> {
    named("account", i)
}

fn named(prefix: &str, i: usize) -> Vec<u8> {
    let number = i % RECORDS;
    // The hash tag in braces decides the group.
    let tag = ["1", "3"][i % 2];
    format!("{prefix}{{{tag}}}{number:012}").into_bytes()
}

/// Nodes and sessions that take turns.
struct Cluster {
    engines: Vec<Engine<Clocked, Machine>>,
    driver: Driver<Clocked>,
    sessions: Vec<SessionKey>,
    clock: Clock,
}

impl Cluster {
    fn start() -> Self {
        // A small log fills up soon, and the memory of retained entries reaches its final size.
        let tuning = Tuning { log_bytes: 256 << 10, ..Tuning::default() };
        let (slots, limits) = (SlotMap::even(TOPOLOGY.groups), Limits::default());
        let groups: Vec<_> = (0..2).map(|i| slots.owner(&key(i))).collect();
        assert_ne!(groups[0], groups[1], "records are in both groups");
        let host = Host::anonymous();
        let clock = Clock::default();
        let join = |name: &str| Clocked::new(host.join(name).unwrap(), &clock);
        let layout = Layout::propose(TOPOLOGY).unwrap();
        let engine = |node| {
            let fabric = join(&endpoint_name(node, 0));
            let (slots, of_machines) = (slots.clone(), layout.clone());
            let machine =
                move |id: ReplicaId| Machine::new(id, &of_machines, slots.clone(), limits);
            Engine::new(fabric, &layout, tuning, Identity::first(node, 0), machine).unwrap()
        };
        let mut engines: Vec<_> = (0..TOPOLOGY.nodes).map(engine).collect();
        while !engines.iter().all(Engine::connected) {
            clock.pass(Duration::from_millis(tuning.heartbeat_ms));
            for engine in &mut engines {
                engine.turn();
            }
        }
        let waiting = Waiting::Busy;
        let shape = Shape { layout, tuning, slots, limits, waiting };
        let mut driver = Driver::new(join("sessions"), shape);
        // The names are spread like random ones, but are the same in each run.
        let bits = |i: usize| (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let name = |i| SessionId::from_random(bits(i));
        let sessions = (0..SESSIONS).map(|i| driver.open_as(name(i))).collect();
        Self { engines, driver, sessions, clock }
    }

    /// Executes one transaction per session, and returns when all have finished.
    fn burst(&mut self, transaction: impl Fn(usize) -> Transaction) {
        for (i, session) in self.sessions.iter().enumerate() {
            self.driver.submit(*session, &transaction(i)).expect("it keeps to all limits");
        }
        while self.driver.under_way() > 0 {
            for engine in &mut self.engines {
                engine.turn();
            }
            let polled = self.driver.poll(&mut |_, result| {
                let reply = result.expect("nothing fails here");
                assert!(reply.held, "every guard holds");
            });
            polled.expect("shared memory of one process does not fail");
            self.clock.pass(TURN);
        }
    }
}
