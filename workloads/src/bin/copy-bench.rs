//! Cost of copying a machine that continues meanwhile, and of restoring it: `cargo run --release -p
//! skein-workloads --bin copy-bench`. Takes 3 GB of memory.

use std::fs;

use rustix::time::{ClockId, clock_gettime};
use skein_kvstore::command::{Operation, Transaction};
use skein_kvstore::limits::Limits;
use skein_kvstore::machine::Machine;
use skein_kvstore::plan::Plan;
use skein_kvstore::slots::SlotMap;
use skein_multicast::application::{Application, Delivery, Outbox};
use skein_multicast::config::Topology;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

const RECORDS: u64 = 1_000_000;
const VALUE_BYTES: usize = 1_000;
const SESSIONS: u64 = 1_000;
/// Replies kept per session.
const WINDOW: u64 = 64;
const PART_BYTES: usize = 256 << 10;

/// Processor time of this thread in microseconds. Other threads on the same core do not affect it.
fn run_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}

/// The field `name` of `/proc/self/status`, in MiB.
fn memory_mib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux says what a process takes");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line for it");
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number of KiB") >> 10
}

struct Discard;

impl Outbox for Discard {
    fn reply(&mut self, _: MessageId, _: &[u8]) {}

    fn exchange(&mut self, _: MessageId, _: GroupSet, _: &[u8]) {}

    fn end_session(&mut self, _: SessionId) {}
}

struct Driver {
    machine: Machine,
    slots: SlotMap,
    limits: Limits,
    position: u64,
    random: u64,
}

impl Driver {
    fn new() -> Self {
        let limits = Limits { memory_bytes_max: 4 << 30, ..Limits::default() };
        let slots = SlotMap::even(1);
        let mut driver = Self {
            machine: empty(&slots, limits),
            slots,
            limits,
            position: 0,
            random: 88_172_645_463_325_252,
        };
        for _ in 0..SESSIONS {
            let open = Plan::open(&driver.slots);
            driver.deliver(&open);
        }
        for record in 0..RECORDS {
            driver.put(record);
        }
        driver
    }

    fn put(&mut self, record: u64) {
        let key = format!("user{}", record.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 4).into_bytes();
        let value = vec![self.position as u8; VALUE_BYTES];
        let put = Transaction::of(Operation::Put { key, value });
        let plan = Plan::of(&put, &self.slots, &self.limits).expect("a good form");
        self.deliver(&plan);
    }

    fn put_any(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.put(self.random % RECORDS);
    }

    /// Delivers a write of the next session in turn.
    fn deliver(&mut self, plan: &Plan) {
        let (session, sequence) = (self.position % SESSIONS, self.position / SESSIONS + 1);
        self.position += 1;
        let delivery = Delivery {
            message: MessageId::new(SessionId(session), sequence),
            low_water: sequence.saturating_sub(WINDOW - 1),
            destinations: GroupSet::single(GroupId(0)),
            clock: self.position,
            position: self.position,
            time_ms: 0,
            payload: plan.request(),
            answers: true,
        };
        let Ok(()) = self.machine.deliver(delivery, &mut Discard);
    }

    /// Copies the machine with `writes_per_s` writes per second of this thread's processor time.
    fn copy(&mut self, writes_per_s: u64, mut give: impl FnMut(&[u8], bool)) {
        let (mut parts, mut bytes, mut longest, mut copying) = (0u64, 0, 0, 0);
        let mut part = Vec::with_capacity(2 * PART_BYTES);
        let (mut elapsed, mut written) = (0, 0);
        self.machine.begin_copy();
        loop {
            let start = run_us();
            part.clear();
            let Ok(little) = self.machine.copy(PART_BYTES, &mut part);
            let took = run_us() - start;
            parts += 1;
            bytes += part.len();
            longest = longest.max(took);
            copying += took;
            give(&part, false);
            if little {
                break;
            }
            // Writes of this time are not part of the measured time.
            let start = run_us();
            while written < (elapsed + copying) * writes_per_s / 1_000_000 {
                self.put_any();
                written += 1;
            }
            elapsed += run_us() - start;
        }
        let start = run_us();
        part.clear();
        let Ok(()) = self.machine.finish_copy(&mut part);
        let finish = run_us() - start;
        give(&part, true);
        println!(
            "  {parts} parts, {} MiB in {} ms, {} ms of it copying ({} MB/s), {written} writes",
            bytes >> 20,
            (elapsed + copying) / 1_000,
            copying / 1_000,
            bytes as u64 / copying.max(1),
        );
        println!("  longest part {longest} us; the last one {} bytes, {finish} us", part.len());
    }
}

fn empty(slots: &SlotMap, limits: Limits) -> Machine {
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
    Machine::new(ReplicaId::new(GroupId(0), 0), &layout, slots.clone(), limits)
}

fn main() {
    let mut driver = Driver::new();
    println!(
        "{RECORDS} records of {VALUE_BYTES} bytes, {SESSIONS} sessions with {WINDOW} kept replies each, \
         parts of {} KiB, processor time",
        PART_BYTES >> 10
    );
    for writes_per_s in [0, 100_000] {
        println!("\ncopying, {writes_per_s} writes/s");
        // Resets the peak of resident memory.
        fs::write("/proc/self/clear_refs", "5").expect("a process may clear its own marks");
        let before = memory_mib("VmRSS");
        driver.copy(writes_per_s, |_, _| {});
        println!("  {} MiB more at most", memory_mib("VmHWM").saturating_sub(before));
    }
    println!("\ncopying, 100000 writes/s, and restoring");
    let mut copy = empty(&driver.slots, driver.limits);
    let (mut restoring, mut longest, mut bytes) = (0, 0, 0);
    driver.copy(100_000, |part, last| {
        let start = run_us();
        let Ok(restored) = copy.restore(part, last);
        restored.expect("a good part");
        let took = run_us() - start;
        restoring += took;
        longest = longest.max(took);
        bytes += part.len() as u64;
    });
    println!(
        "  restored in {} ms ({} MB/s), longest part {longest} us",
        restoring / 1_000,
        bytes / restoring.max(1)
    );
    assert_eq!(copy.digest(), driver.machine.digest(), "the copy is the machine");
    println!("  digests are equal");
}
