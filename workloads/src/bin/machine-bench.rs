//! Cost of each command on one machine, without multicast: `cargo run --release -p skein-workloads
//! --bin machine-bench`.

use std::fs;
use std::hint::black_box;

use skein_kvstore::command::{Operation, Test, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::plan::Plan;
use skein_kvstore::slots::SlotMap;
use skein_multicast::application::{Application, Delivery, Outbox};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

const RECORDS: u64 = 100_000;
const COMMANDS: u64 = 300_000;
/// Different commands of each kind: few enough to stay in the cache, as commands just received are.
const DIFFERENT: u64 = 4_096;
const WINDOW: u64 = 32;

/// Processor time of this thread in nanoseconds. Other threads on the same core do not affect it.
fn run_ns() -> u64 {
    let line = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux keeps the count");
    line.split(' ').next().expect("a first word").parse().expect("a number")
}

struct Discard(usize);

impl Outbox for Discard {
    fn reply(&mut self, _: MessageId, reply: &[u8]) {
        self.0 += reply.len();
    }

    fn exchange(&mut self, _: MessageId, _: GroupSet, _: &[u8]) {}

    fn end_session(&mut self, _: SessionId) {}
}

struct Driver {
    machine: Machine,
    slots: SlotMap,
    sequence: u64,
    out: Discard,
}

impl Driver {
    fn deliver(&mut self, payload: &[u8]) {
        self.sequence += 1;
        let delivery = Delivery {
            message: MessageId::new(SessionId(1), self.sequence),
            low_water: self.sequence.saturating_sub(WINDOW),
            destinations: GroupSet::single(GroupId(0)),
            clock: self.sequence,
            position: self.sequence,
            time_ms: 0,
            payload,
            answers: true,
        };
        let Ok(()) = self.machine.deliver(delivery, &mut self.out);
    }

    fn measure(&mut self, name: &str, transaction: impl Fn(u64) -> Transaction) {
        let limits = Limits::default();
        let mut state = 88_172_645_463_325_252u64;
        let mut record = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % RECORDS
        };
        let plans: Vec<_> = (0..DIFFERENT)
            .map(|_| Plan::of(&transaction(record()), &self.slots, &limits).expect("a good form"))
            .collect();
        let start = run_ns();
        for at in 0..COMMANDS {
            self.deliver(plans[(at % DIFFERENT) as usize].request());
        }
        let each = (run_ns() - start) / COMMANDS;
        black_box(self.out.0);
        println!("{name:<44} {each:>6} ns");
    }
}

/// Names records as YCSB does.
fn key(record: u64) -> Vec<u8> {
    format!("user{}", record.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 4).into_bytes()
}

fn main() {
    let slots = SlotMap::even(1);
    let limits = Limits { memory_bytes_max: 4 << 30, ..Limits::default() };
    let id = ReplicaId::new(GroupId(0), 0);
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
    let machine = Machine::new(id, &layout, slots.clone(), limits);
    let mut driver = Driver { machine, slots, sequence: 0, out: Discard(0) };
    driver.deliver(Plan::open(&driver.slots.clone()).request());
    for record in 0..RECORDS {
        let put = Operation::Put { key: key(record), value: vec![b'x'; 1000] };
        let plan = Plan::of(&Transaction::of(put), &driver.slots, &limits).expect("a good form");
        driver.deliver(plan.request());
    }
    println!("{RECORDS} records of 1000 bytes, {COMMANDS} commands of each kind, processor time\n");
    driver.measure("get 1000 bytes", |r| Transaction::of(Operation::Get { key: key(r) }));
    driver.measure("put 1000 bytes", |r| {
        Transaction::of(Operation::Put { key: key(r), value: vec![b'y'; 1000] })
    });
    driver.measure("patch 100 of 1000 bytes", |r| {
        Transaction::of(Operation::Patch { key: key(r), offset: 300, bytes: vec![b'z'; 100] })
    });
    driver.measure("scan 50 x 1000 bytes", |r| {
        Transaction::of(Operation::Scan { start: key(r), end: None, limit: 50 })
    });
    driver.measure("compare-and-swap 1000 bytes (guard and put)", |r| {
        Transaction::default()
            .guard(key(r), Test::Exists)
            .then(Operation::Put { key: key(r), value: vec![b'y'; 1000] })
    });
    driver.measure("two guards, two increments", |r| {
        let number = |r| format!("number{}", r % 1000).into_bytes();
        Transaction::default()
            .guard(key(r), Test::Exists)
            .guard(key(r + 1), Test::Exists)
            .then(Operation::Increment { key: number(r), by: -1 })
            .then(Operation::Increment { key: number(r + 1), by: 1 })
    });
    driver.measure("put 100 bytes", |r| {
        Transaction::of(Operation::Put { key: key(r), value: vec![b'y'; 100] })
    });
    driver.measure("get 100 bytes", |r| Transaction::of(Operation::Get { key: key(r) }));
    let slots = SlotMap::even(1);
    let put = Transaction::of(Operation::Put { key: key(1), value: vec![b'y'; 1000] });
    let start = run_ns();
    for _ in 0..COMMANDS {
        black_box(Plan::of(black_box(&put), &slots, &limits).expect("a good form"));
    }
    let each = (run_ns() - start) / COMMANDS;
    println!("{:<44} {each:>6} ns", "the sender's plan of a put of 1000 bytes");
}
