//! The fabric in one thread, in virtual time, from one seed.
//!
//! It keeps the promises of [`Fabric`](crate::Fabric) and nothing beyond them. Connections have different and changing
//! latencies, so writes on one connection overtake writes on another. A long write lands in pieces, in any order, while
//! others read. A completion arrives some time after the bytes. A revocation finds writes half done. Control messages
//! and writes overtake each other. The source span of a write is read when the write lands, not when it is posted, as a
//! network card would.
//!
//! Nothing happens without a call. [`World::step`] lands the next event. Between steps, the harness runs processes, in
//! any order. [`Fabric::park`](crate::Fabric::park) only marks a process as parked: the harness does not run it until
//! [`World::is_parked`] returns false, so a lost wake-up shows as a run without progress.
//!
//! The same seed and the same calls give the same run, which [`World::fingerprint`] verifies.

mod counters;
mod fabric;
mod hardware;
mod link;
mod nic;
mod past;
mod port;
mod process;
mod queue;
mod rng;
mod state;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub use counters::Counters;
pub use fabric::SimFabric;
pub use hardware::{Busy, Costs, PostCosts};
pub use nic::NicCosts;
pub use port::LinkCosts;
pub use rng::{Rng, mix};

use self::past::Past;
use self::state::State;
use crate::{FabricError, Region};

/// Parameters of a simulated world.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The usual latency of a step: minimum and maximum.
    pub latency: (Duration, Duration),
    /// One in this many steps is delayed further, by up to `hiccup_max`; 0 means none.
    pub hiccup_one_in: u64,
    pub hiccup_max: Duration,
    /// One in this many steps changes the factor on the latency of its connection; 0 means none.
    pub drag_one_in: u64,
    /// Maximum of that factor.
    pub drag_max: u64,
    /// One in this many operations of more than a word lands in pieces; 0 means none.
    pub tear_one_in: u64,
    /// Longest time from a crash, or from the break of a connection, until a process may observe it.
    pub gone_lag: Duration,
    /// Each process observes a crash independently, up to another `gone_lag` later than the first may. Until then its
    /// writes into the memory of the dead process succeed, as in memory that both have mapped, unless another process has
    /// joined under the dead one's name.
    pub memory_outlives: bool,
    /// Read the source span of a write when the write lands, and not when it is posted.
    pub late_spans: bool,
    /// Land steps during a revocation, so that a look immediately before it may miss some writes.
    pub racing_revocations: bool,
    /// While memory is [stirred](World::stir), something lands immediately before one in this many looks; 0 means none.
    pub stirred_looks_one_in: u64,
    /// The same for looks that copy bytes. Another step then lands in the middle of the copy.
    pub stirred_copies_one_in: u64,
    /// Maximum number of steps that land before such a look. All of them are due within `stirred_for`, the longest time
    /// for which the process may be delayed.
    pub stirred_events_max: u64,
    pub stirred_for: Duration,
    /// Some answers on their way back arrive up to this much later than usual.
    pub late_completions_max: Duration,
    /// One in this many answers does.
    pub late_completions_one_in: u64,
    /// Maximum number of control messages that wait for a process.
    pub mail_waiting_max: usize,
    /// The end of a connection does not show that the process behind it has died, as over a network.
    pub peers_may_return: bool,
    /// Costs of operations, for performance figures and not for finding faults. Requests leave only at
    /// [`World::post_all`].
    pub costs: Option<Costs>,
}

impl SimConfig {
    /// A world without random delays and torn writes, in which each operation takes what it costs.
    pub fn of_costs(costs: Costs) -> Self {
        Self {
            latency: (Duration::from_nanos(1), Duration::from_nanos(1)),
            hiccup_one_in: 0,
            drag_one_in: 0,
            tear_one_in: 0,
            late_spans: false,
            costs: Some(costs),
            ..Self::default()
        }
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            latency: (Duration::from_nanos(500), Duration::from_micros(5)),
            hiccup_one_in: 64,
            hiccup_max: Duration::from_micros(300),
            drag_one_in: 128,
            drag_max: 20,
            tear_one_in: 2,
            gone_lag: Duration::from_micros(100),
            memory_outlives: false,
            late_spans: true,
            racing_revocations: false,
            stirred_looks_one_in: 0,
            stirred_copies_one_in: 0,
            stirred_events_max: 4,
            stirred_for: Duration::MAX,
            late_completions_max: Duration::ZERO,
            late_completions_one_in: 64,
            mail_waiting_max: 4096,
            peers_may_return: false,
            costs: None,
        }
    }
}

/// A simulated world. Clones share it.
#[derive(Clone, Debug)]
pub struct World(Rc<RefCell<State>>);

impl World {
    /// An empty world, at time zero.
    pub fn new(seed: u64, config: SimConfig) -> Self {
        Self(Rc::new(RefCell::new(State::new(seed, config))))
    }

    /// Starts a process, or a new incarnation of one that was crashed or dropped.
    ///
    /// # Panics
    /// If a process with that name is alive.
    pub fn join(&self, name: &str) -> SimFabric {
        self.try_join(name).expect("the name is taken")
    }

    /// Starts a process.
    ///
    /// # Errors
    /// [`FabricError::NameTaken`] if a process with that name is alive.
    pub fn try_join(&self, name: &str) -> Result<SimFabric, FabricError> {
        fabric::join(&self.0, name)
    }

    /// Lands the next event and advances the time to it. Returns false if nothing is in flight.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step()
    }

    /// Sets whether memory changes while a process reads it: between two looks, and in the middle of a look at more
    /// than a word. The harness must set it during the turn of a process, and clear it while the harness itself reads
    /// memory.
    pub fn stir(&self, on: bool) {
        let mut state = self.0.borrow_mut();
        state.stirred = on;
        if !on {
            state.end_pasts();
        }
    }

    /// The time at which the next event is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.0.borrow().next_due().map(Duration::from_nanos)
    }

    /// The time, as [`Fabric::now`](crate::Fabric::now) returns it to processes whose clocks are correct.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.borrow().now)
    }

    /// Ends a turn of a process where operations have [costs](SimConfig::costs): its core posts the requests of the
    /// turn. Returns when it has.
    ///
    /// # Panics
    /// If operations have no costs.
    pub fn post_all(&self, name: &str) -> Duration {
        self.with(name, |state, it| {
            let costs = state.config.costs.expect("operations have costs");
            Duration::from_nanos(state.post_all(it, &costs))
        })
    }

    /// Whether a process has requests for [`post_all`](Self::post_all).
    pub fn has_unposted(&self, name: &str) -> bool {
        self.with(name, |state, it| !state.processes[it].outbox.is_empty())
    }

    /// Moves a process to the host of another, whose card and cable they share. By default each process has a host of
    /// its own.
    pub fn share_host(&self, name: &str, with: &str) {
        let host = self.with(with, |state, it| state.processes[it].host);
        self.with(name, |state, it| state.processes[it].host = host);
    }

    /// Busy time of the resources of a process's host.
    pub fn busy(&self, name: &str) -> Busy {
        self.with(name, |state, it| state.busy(it))
    }

    /// Advances the time, and lands everything that is due by then.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.borrow_mut();
        let end = state.now.saturating_add(nanos(by));
        while state.next_due().is_some_and(|due| due <= end) {
            state.step();
        }
        state.now = state.now.max(end);
    }

    /// Whether the process sleeps: it parked, was not woken, and its timeout has not expired.
    pub fn is_parked(&self, name: &str) -> bool {
        self.parked_until(name).is_some_and(|end| end > self.now())
    }

    /// The time at which the timeout of a parked process expires.
    pub fn parked_until(&self, name: &str) -> Option<Duration> {
        self.with(name, |state, it| state.processes[it].parked.map(Duration::from_nanos))
    }

    /// Records that a wake-up of the process is lost, because the harness ends the process that would have sent it.
    pub fn leave_asleep(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].unwoken = true);
    }

    /// Whether a wake-up was lost since the process parked, because the sender died or lost its connection. The process
    /// sees what the sender had written when its timeout expires.
    pub fn is_left_asleep(&self, name: &str) -> bool {
        self.with(name, |state, it| state.processes[it].unwoken)
    }

    /// Wakes a process from outside the world, if it sleeps.
    pub fn wake(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].parked = None);
    }

    /// Crashes a process. A random prefix of the steps in each of its outgoing lanes still lands, and nothing else of
    /// it.
    pub fn crash(&self, name: &str) {
        self.with(name, |state, it| state.end(it, true));
    }

    /// Breaks the connection between two live processes in both directions. Operations in flight end with an unknown
    /// outcome, and each side observes the break some time later. Either can dial the other again.
    pub fn flap(&self, one: &str, other: &str) {
        let mut state = self.0.borrow_mut();
        let find = |name: &str| state.names.get(name).copied();
        if let (Some(one), Some(other)) = (find(one), find(other)) {
            state.flap(one, other);
        }
    }

    /// Sets the rate of a process's clock, in thousandths of the world's. At 0 the clock stands still.
    pub fn skew(&self, name: &str, per_mille: u64) {
        self.with(name, |state, it| {
            let now = state.now;
            let process = &mut state.processes[it];
            if process.clock.stands_still() {
                process.parked = None; // Its timeout was computed for a clock that stood still.
            }
            process.clock.skew(now, per_mille);
        });
    }

    /// Advances the clock of a process. A parked process wakes, since its timeout may have expired.
    pub fn jump(&self, name: &str, by: Duration) {
        self.with(name, |state, it| {
            let now = state.now;
            state.processes[it].clock.jump(now, nanos(by));
            state.processes[it].parked = None;
        });
    }

    /// Sets whether creating and attaching regions fails at a process, for lack of memory.
    pub fn scarce(&self, name: &str, on: bool) {
        self.with(name, |state, it| state.processes[it].scarce = on);
    }

    /// Stops a process in the middle of its next turn, after `looks` looks or `clock_looks` looks at its clock. In that
    /// turn, the looks before the stop show memory as of this call, and the looks after the stop show present memory.
    /// The harness must not run the process while it is stopped.
    pub fn stop_inside(&self, name: &str, looks: u64, clock_looks: u64) {
        self.with(name, |state, it| {
            let past = Past::of(&state.processes[it], state.now, (looks, clock_looks));
            state.processes[it].past = Some(past);
            state.processes[it].parked = None;
        });
    }

    /// Whether a process with that name is alive.
    pub fn is_alive(&self, name: &str) -> bool {
        let state = self.0.borrow();
        state.names.get(name).is_some_and(|&it| state.processes[it].alive)
    }

    /// Marks a process as paused. Its posted operations continue, as in hardware. The harness must not run it until it
    /// is resumed.
    pub fn pause(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].paused = true);
    }

    /// Resumes a process after [`pause`](Self::pause).
    pub fn resume(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].paused = false);
    }

    /// Whether a process is [paused](Self::pause).
    pub fn is_paused(&self, name: &str) -> bool {
        self.with(name, |state, it| state.processes[it].paused)
    }

    /// Multiplies the latency of everything from and to that name, in all incarnations, by `factor`; 1 is normal.
    pub fn slow(&self, name: &str, factor: u64) {
        self.0.borrow_mut().slow.insert(name.to_owned(), factor.max(1));
    }

    /// Holds back everything that travels from one name to another: writes, control messages, and answers to operations
    /// of the other. The other direction is not affected.
    pub fn partition(&self, from: &str, to: &str) {
        self.0.borrow_mut().stalled.insert((from.to_owned(), to.to_owned()));
    }

    /// Releases what was held back from one name to another.
    pub fn heal(&self, from: &str, to: &str) {
        let mut state = self.0.borrow_mut();
        state.stalled.remove(&(from.to_owned(), to.to_owned()));
        state.release();
    }

    /// Ends all partitions, pauses and slowdowns.
    pub fn heal_all(&self) {
        let mut state = self.0.borrow_mut();
        state.stalled.clear();
        state.slow.clear();
        for process in &mut state.processes {
            process.paused = false;
        }
        state.release();
    }

    /// From now on, no answer is [late](SimConfig::late_completions_max).
    pub fn complete_in_time(&self) {
        self.0.borrow_mut().config.late_completions_max = Duration::ZERO;
    }

    /// Copies memory of any process, including a dead one.
    pub fn peek(&self, name: &str, region: Region, at: usize, into: &mut [u8]) {
        self.with(name, |state, it| state.processes[it].region(region).get(at, into));
    }

    /// A hash of everything that has landed so far, and of the times.
    pub fn fingerprint(&self) -> u64 {
        self.0.borrow().fingerprint
    }

    /// Counts of the events so far.
    pub fn counters(&self) -> Counters {
        self.0.borrow().counters
    }

    /// Starts to record a readable line for everything that lands.
    pub fn start_trace(&self) {
        self.0.borrow_mut().trace.get_or_insert_default();
    }

    /// Returns the lines recorded since the last call.
    pub fn take_trace(&self) -> Vec<String> {
        self.0.borrow_mut().trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A generator for the harness, derived from the world's. Draws from it do not change the world's choices.
    pub fn fork_rng(&self) -> Rng {
        self.0.borrow_mut().rng.fork()
    }

    fn with<R>(&self, name: &str, act: impl FnOnce(&mut State, usize) -> R) -> R {
        let mut state = self.0.borrow_mut();
        let latest = state.names.get(name).copied();
        act(&mut state, latest.unwrap_or_else(|| panic!("no process was ever named {name}")))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
