//! The fabric in one thread, in virtual time, from one seed.
//!
//! It keeps the promises of [`Fabric`](crate::Fabric) and nothing beyond them: connections are slow
//! and fast as they like, so what is written on one overtakes what is written on another; a long
//! write lands in pieces, in any order, with readers looking on; a completion comes some time after
//! the bytes; a revocation catches writes half way; mail and writes overtake each other; and the
//! span a write names is read when it lands, not when it is posted, as a network card would.
//!
//! Nothing happens on its own. [`World::step`] lands the next event; between steps, the harness
//! runs whichever processes it likes, in any order. [`Fabric::park`](crate::Fabric::park) only
//! marks a process as parked: the harness leaves it alone until [`World::is_parked`] says no, so a
//! lost wake-up is a run that stands still.
//!
//! The same seed and the same calls make the same run, which [`World::fingerprint`] compares.

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

/// How rough the simulated world is.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// The shortest and the longest that something is usually under way.
    pub latency: (Duration, Duration),
    /// One in so many is delayed further, by up to `hiccup_max`; none if zero.
    pub hiccup_one_in: u64,
    /// The longest such delay.
    pub hiccup_max: Duration,
    /// One in so many changes how slow its whole connection is; none if zero.
    pub drag_one_in: u64,
    /// How many times slower a connection can get.
    pub drag_max: u64,
    /// One in so many operations of more than a word happens in pieces; none if zero.
    pub tear_one_in: u64,
    /// How long it takes at most until everybody may know that a process has crashed.
    pub gone_lag: Duration,
    /// Each process learns of a crash by itself, up to another `gone_lag` later than the first may. What it writes into the
    /// memory of the dead before is done, as in memory that both map.
    pub memory_outlives: bool,
    /// Read the spans that writes name when they land. Without it, when they are posted.
    pub late_spans: bool,
    /// Land writes while a revocation is under way: what was looked at right before is not all.
    pub racing_revocations: bool,
    /// Where memory is [stirred](World::stir), one in so many looks at it finds that something has
    /// landed since the last one; none if zero.
    pub stirred_looks_one_in: u64,
    /// One in so many looks that copy more than a word.
    pub stirred_copies_one_in: u64,
    /// So many things at most, and what is due so soon: for so long whoever looks may be held up.
    pub stirred_events_max: u64,
    /// See there.
    pub stirred_for: Duration,
    /// Now and then, what was posted on a connection is known to be over so much later at most.
    pub late_completions_max: Duration,
    /// One in so many then is.
    pub late_completions_one_in: u64,
    /// How many letters may wait for a process.
    pub mail_waiting_max: usize,
    /// That a connection has ended says nothing of the process behind it, as over a network.
    pub peers_may_return: bool,
    /// Costs of operations, for performance figures and not for finding faults. Requests leave only at
    /// [`World::post_all`].
    pub costs: Option<Costs>,
}

impl SimConfig {
    /// A world in which nothing happens but what was posted, and each takes what it costs.
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

/// A simulated world. Clones are the same world.
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
    /// If a process of that name lives.
    pub fn join(&self, name: &str) -> SimFabric {
        self.try_join(name).expect("the name is taken")
    }

    /// Starts a process, if none of that name lives.
    pub fn try_join(&self, name: &str) -> Result<SimFabric, FabricError> {
        fabric::join(&self.0, name)
    }

    /// Lands the next event and moves the time to it. False if nothing is under way.
    pub fn step(&self) -> bool {
        self.0.borrow_mut().step()
    }

    /// Whether memory changes, from here on, while somebody looks at it: between two looks, and in the
    /// middle of one that takes more than a word. It does for a process, as real memory; a harness
    /// that looks for itself wants to see it stand still.
    pub fn stir(&self, on: bool) {
        let mut state = self.0.borrow_mut();
        state.stirred = on;
        if !on {
            state.end_pasts();
        }
    }

    /// When the next event is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.0.borrow().next_due().map(Duration::from_nanos)
    }

    /// The time, as [`Fabric::now`](crate::Fabric::now) tells it to everybody whose clock is true.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.borrow().now)
    }

    /// Ends a turn of a process where operations have [costs](SimConfig::costs): its core posts the requests of the turn.
    /// Returns when it has.
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

    /// Moves a process to the host of another, whose card and cable they share. By default each process has a host of its
    /// own.
    pub fn share_host(&self, name: &str, with: &str) {
        let host = self.with(with, |state, it| state.processes[it].host);
        self.with(name, |state, it| state.processes[it].host = host);
    }

    /// Busy time of the resources of a process's host.
    pub fn busy(&self, name: &str) -> Busy {
        self.with(name, |state, it| state.busy(it))
    }

    /// Lets time pass, landing what falls due.
    pub fn advance(&self, by: Duration) {
        let mut state = self.0.borrow_mut();
        let end = state.now.saturating_add(nanos(by));
        while state.next_due().is_some_and(|due| due <= end) {
            state.step();
        }
        state.now = state.now.max(end);
    }

    /// Whether the process sleeps: it parked, nobody woke it, and its time is not up.
    pub fn is_parked(&self, name: &str) -> bool {
        self.parked_until(name).is_some_and(|end| end > self.now())
    }

    /// When a process that parked and was not woken will wake by itself.
    pub fn parked_until(&self, name: &str) -> Option<Duration> {
        self.with(name, |state, it| state.processes[it].parked.map(Duration::from_nanos))
    }

    /// Whoever would have woken the process later dies now.
    pub fn leave_asleep(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].unwoken = true);
    }

    /// Whether whoever would have woken the process since it parked has died before it could, or lost its
    /// connection: it will see what that one had written when its time is up.
    pub fn is_left_asleep(&self, name: &str) -> bool {
        self.with(name, |state, it| state.processes[it].unwoken)
    }

    /// Wakes a process from outside of the world, if it sleeps.
    pub fn wake(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].parked = None);
    }

    /// Kills a process: any number of the words it has posted still land, and nothing else of it.
    pub fn crash(&self, name: &str) {
        self.with(name, |state, it| state.end(it, true));
    }

    /// Breaks the connection between two processes that live, both ways: what is under way on it ends,
    /// nobody knows how, and each side finds out some time later. Either can dial the other again.
    pub fn flap(&self, one: &str, other: &str) {
        let mut state = self.0.borrow_mut();
        let find = |name: &str| state.names.get(name).copied();
        if let (Some(one), Some(other)) = (find(one), find(other)) {
            state.flap(one, other);
        }
    }

    /// Lets the clock of a process run at another rate: so many thousandths of the world's. It stands still
    /// at none.
    pub fn skew(&self, name: &str, per_mille: u64) {
        self.with(name, |state, it| {
            let now = state.now;
            let process = &mut state.processes[it];
            if process.clock.stands_still() {
                process.parked = None; // It cannot have known when its time would be up.
            }
            process.clock.skew(now, per_mille);
        });
    }

    /// Puts the clock of a process forward. One that sleeps wakes, as its time may be up.
    pub fn jump(&self, name: &str, by: Duration) {
        self.with(name, |state, it| {
            let now = state.now;
            state.processes[it].clock.jump(now, nanos(by));
            state.processes[it].parked = None;
        });
    }

    /// Whether a process that lives can neither create a region nor attach one.
    pub fn scarce(&self, name: &str, on: bool) {
        self.with(name, |state, it| state.processes[it].scarce = on);
    }

    /// Stops a process in the middle of its next turn, after so many looks, or so many at its clock. The harness is to leave it alone
    /// for as long as it stands still; its turn then finds what was there before, and goes on with
    /// what is there by then.
    pub fn stop_inside(&self, name: &str, looks: u64, clock_looks: u64) {
        self.with(name, |state, it| {
            let past = Past::of(&state.processes[it], state.now, (looks, clock_looks));
            state.processes[it].past = Some(past);
            state.processes[it].parked = None;
        });
    }

    /// Whether a process of that name lives.
    pub fn is_alive(&self, name: &str) -> bool {
        let state = self.0.borrow();
        state.names.get(name).is_some_and(|&it| state.processes[it].alive)
    }

    /// Marks a process as stopped. What it posted goes on, as hardware does; the harness is to
    /// leave it alone until it is resumed.
    pub fn pause(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].paused = true);
    }

    /// Ends a pause.
    pub fn resume(&self, name: &str) {
        self.with(name, |state, it| state.processes[it].paused = false);
    }

    /// Whether a process is paused.
    pub fn is_paused(&self, name: &str) -> bool {
        self.with(name, |state, it| state.processes[it].paused)
    }

    /// Makes everything from and to that name so many times slower, in all its incarnations; 1 is
    /// as usual.
    pub fn slow(&self, name: &str, factor: u64) {
        self.0.borrow_mut().slow.insert(name.to_owned(), factor.max(1));
    }

    /// Holds back everything that travels from one name to another: writes and mail, and answers to
    /// what the other has posted. The other direction is not affected.
    pub fn partition(&self, from: &str, to: &str) {
        self.0.borrow_mut().stalled.insert((from.to_owned(), to.to_owned()));
    }

    /// Lets what was held back from one name to another go on.
    pub fn heal(&self, from: &str, to: &str) {
        let mut state = self.0.borrow_mut();
        state.stalled.remove(&(from.to_owned(), to.to_owned()));
        state.release();
    }

    /// Ends all partitions, pauses and slowness.
    pub fn heal_all(&self) {
        let mut state = self.0.borrow_mut();
        state.stalled.clear();
        state.slow.clear();
        for process in &mut state.processes {
            process.paused = false;
        }
        state.release();
    }

    /// From here on, nothing is known to be over [late](SimConfig::late_completions_max).
    pub fn complete_in_time(&self) {
        self.0.borrow_mut().config.late_completions_max = Duration::ZERO;
    }

    /// Looks at anybody's memory, that of the dead included.
    pub fn peek(&self, name: &str, region: Region, at: usize, into: &mut [u8]) {
        self.with(name, |state, it| state.processes[it].region(region).get(at, into));
    }

    /// A hash of everything that has landed so far, and when.
    pub fn fingerprint(&self) -> u64 {
        self.0.borrow().fingerprint
    }

    /// What has been offered so far.
    pub fn counters(&self) -> Counters {
        self.0.borrow().counters
    }

    /// Starts to keep a readable line for everything that lands.
    pub fn start_trace(&self) {
        self.0.borrow_mut().trace.get_or_insert_default();
    }

    /// Takes the lines kept so far.
    pub fn take_trace(&self) -> Vec<String> {
        self.0.borrow_mut().trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// A generator of the world's, for the harness: what the harness draws changes nothing else.
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
