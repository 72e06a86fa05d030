//! Simulation of the store: nodes with the production machines, and clients that retry, on the simulated fabric, in
//! virtual time and from one seed. The results that clients receive are recorded, and checked as any history is.
//!
//! The ordering protocol has a simulation of its own (`skein_multicast::simulate`), which inspects the replicas' state
//! at every step. This one exercises the layers above, and observes them only as a client does: sessions and their
//! replies, results that groups exchange, lease reads and stale reads.

mod clients;
mod faults;
mod nodes;

use std::any::Any;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use skein_checker::chart::Paint;
use skein_checker::check::check;
use skein_checker::history::{Coverage, End, FORMAT, Header, Op, ReadError, Record, line};
use skein_checker::verify::verify;
use skein_client::{Error, ReadMode, Refusal, Reply, Shape, Transaction, Waiting};
use skein_fabric::sim::{Rng, SimConfig, World};
use skein_kvstore::limits::Limits;
use skein_kvstore::slots::{SlotMap, slot_of};
use skein_multicast::Links;
use skein_multicast::config::{Topology, Tuning};
use skein_multicast::layout::Layout;
use skein_multicast::simulate::{Ordering, draw_tree, panicked_at};
use skein_protocol::ids::GroupId;
use skein_protocol::ramcast::Ramcast;
use skein_protocol::tram::Tram;

use self::clients::{Client, Tape, found, reading};
use self::faults::{Faults, Weights};
use self::nodes::Nodes;
use crate::chaos::objects::{Mix, Objects, TOKEN_BYTES};

const NODES: u16 = 3;
/// Number of client processes. Now and then one is killed and another replaces it.
const CLIENTS: usize = 3;
const CLIENT_DIES_ONE_IN: u64 = 20_000;
/// Percentage of the steps that land something on the fabric. In the others a process runs.
const LANDING_PERCENT: u64 = 60;
/// Time limit of an operation, in multiples of the time after which a silent engine is suspected.
const ALLOWED: u32 = 20;
/// A run stops issuing operations after this many, whatever faults there were by then.
const OPERATIONS_MAX: u64 = 1_500;
/// Time limit for progress without faults.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Bound on the steps of a run. A run that takes more is considered livelocked.
const STEPS_MAX: u64 = 20_000_000;
/// Steps between two updates of the faults.
const FAULTS_EVERY: u64 = 16;
/// Longest time that passes at once.
const NAP: Duration = Duration::from_millis(2);

/// A run and its verdict.
pub struct Run {
    pub header: Header,
    pub records: Vec<Record>,
    /// Number of operations issued.
    pub operations: u64,
    /// Number of operations with an unknown outcome.
    pub unknown: u64,
    /// Number of hash slots moved.
    pub moves: u64,
    /// Number of faults of nodes, crashes included.
    pub faults: u64,
    pub crashes: u64,
    /// Hash of everything that landed, and of the times: equal for runs of the same seed.
    pub fingerprint: u64,
    /// Description of the error that was found, if any.
    pub wrong: Option<String>,
    /// Whether the run was completed, so that its history could be checked, and `wrong`, if present, is the verdict on
    /// the history.
    pub judged: bool,
}

impl Run {
    /// The kinds of commands in the history, and their outcomes.
    pub fn coverage(&self) -> Coverage {
        let mut coverage = Coverage::default();
        self.records.iter().for_each(|record| coverage.take(record));
        coverage
    }

    /// Writes the history to `path`, for `skein check`. There must be no file at `path`.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create_new(path)?);
        line(&mut out, &Record::Header(Box::new(self.header.clone())))?;
        self.records.iter().try_for_each(|record| line(&mut out, record))?;
        out.flush()
    }
}

/// Runs a seed in a cluster of three nodes with ample memory.
pub fn run(seed: u64) -> Run {
    finish(Simulation::<Ramcast>::new(seed, None, None))
}

/// Runs a seed with another ordering between groups; along a tree that the seed draws, if the ordering has one. `None`
/// if it orders a single group only: the store of a seed may have several.
pub fn run_ordered_by(seed: u64, ordering: Ordering) -> Option<Run> {
    match ordering {
        Ordering::Ramcast => Some(run(seed)),
        Ordering::Tram => {
            let mut tree = Rng::new(seed ^ 0x07ee_5706);
            Some(finish(Simulation::<Tram>::new(seed, None, Some(&mut tree))))
        }
        Ordering::Single => None,
    }
}

/// A cluster of given sizes with so little memory that writes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    pub topology: Topology,
    /// Memory ceiling of each group.
    pub group_bytes_max: u64,
}

/// Runs a seed in a small cluster.
pub fn run_small(seed: u64, small: Small) -> Run {
    finish(Simulation::<Ramcast>::new(seed, Some(small), None))
}

fn finish<O: Links>(mut simulation: Simulation<O>) -> Run {
    let end = catch_unwind(AssertUnwindSafe(|| simulation.run()));
    let stuck = end.unwrap_or_else(|panic| Err(said(&*panic))).err();
    let Simulation { header, tape, faults, world, amiss, .. } = simulation;
    let verdict = if stuck.is_none() { judge(&header, &tape.records) } else { None };
    let judged = stuck.is_none() && (verdict.is_some() || amiss.is_none());
    let wrong = stuck.or(verdict).or(amiss);
    Run {
        header,
        operations: tape.invoked,
        unknown: tape.unknown,
        moves: tape.moves,
        records: tape.records,
        faults: faults.count,
        crashes: faults.crashes,
        fingerprint: world.fingerprint(),
        wrong,
        judged,
    }
}

/// The message and the place of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let at = panicked_at().map(|at| format!(", at {at}")).unwrap_or_default();
    format!("a panic: {}{at}", text.unwrap_or("without a message"))
}

/// Errors that the two checkers found in a history.
fn judge(header: &Header, records: &[Record]) -> Option<String> {
    let read = || records.iter().cloned().map(Ok::<_, ReadError>);
    let verdict = verify(header, read()).expect("it was never a file");
    let order = check(header, read()).expect("it was never a file");
    let good = verdict.is_good() && order.strictly_serializable;
    (!good).then(|| format!("{}\n{}", verdict.evidence.join("\n"), order.text(Paint(false))))
}

/// The kind of a run, which depends on its seed.
#[derive(Clone, Copy)]
struct Style {
    /// A move of a hash slot is attempted in one of this many turns; `None` means never.
    move_one_in: Option<u64>,
    mix: Mix,
    /// Read modes, from which one is drawn for each read-only transaction.
    modes: &'static [ReadMode],
    /// Least number of groups, and length of the range of numbers from there.
    groups: (u64, u64),
    /// Sessions of each client, in the same form.
    sessions: (u64, u64),
    /// Operations of the run, in the same form.
    operations: (u64, u64),
    /// Bounds on a session's time between two operations, in microseconds. One is drawn for each run.
    thinks: [u64; 3],
    weights: Weights,
    /// Average number of faults within the time after which a silent engine is suspected, about.
    hurry: u32,
}

const ALL_MODES: [ReadMode; 6] = [
    ReadMode::Confirmed,
    ReadMode::Confirmed,
    ReadMode::Ordered,
    ReadMode::Lease,
    ReadMode::Lease,
    ReadMode::Stale,
];

const STYLES: [Style; 3] = [
    // All kinds of faults and operations.
    Style {
        move_one_in: None,
        mix: Mix::Everything,
        modes: &ALL_MODES,
        groups: (2, 3),
        sessions: (2, 4),
        operations: (100, 200),
        thinks: [1, 100, 5_000],
        weights: Weights {
            crashes: 3,
            pauses: 2,
            slows: 1,
            cuts: 1,
            one_way_cuts: 1,
            held_links: 1,
        },
        hurry: 1,
    },
    // Transactions that overlap in chains of groups, with slow links between the groups.
    Style {
        move_one_in: None,
        mix: Mix::Looks,
        modes: &[ReadMode::Ordered],
        groups: (2, 4),
        sessions: (4, 6),
        operations: (400, 600),
        thinks: [1, 50, 200],
        weights: Weights {
            crashes: 1,
            pauses: 1,
            slows: 1,
            cuts: 0,
            one_way_cuts: 0,
            held_links: 8,
        },
        hurry: 16,
    },
    // Reads at leaders that were deposed.
    Style {
        move_one_in: None,
        mix: Mix::OneGroup,
        modes: &ALL_MODES,
        groups: (1, 3),
        sessions: (2, 4),
        operations: (100, 200),
        thinks: [100, 500, 2_000],
        weights: Weights {
            crashes: 1,
            pauses: 1,
            slows: 0,
            cuts: 5,
            one_way_cuts: 3,
            held_links: 0,
        },
        hurry: 1,
    },
];

/// Hash slots are moved between groups while they are empty.
const MOVING: Style = Style {
    move_one_in: Some(300),
    mix: Mix::Slots,
    groups: (2, 3),
    sessions: (2, 4),
    operations: (200, 300),
    thinks: [1, 100, 2_000],
    ..STYLES[0]
};
/// One in this many seeds uses [`MOVING`].
const MOVING_ONE_IN: u64 = 8;

struct Simulation<O: Links> {
    style: Style,
    world: World,
    rng: Rng,
    shape: Shape,
    header: Header,
    objects: Objects,
    nodes: Nodes<O>,
    faults: Faults,
    clients: Vec<Client>,
    /// The client that moves slots, and whether a move is in progress.
    mover: Option<(Client, bool)>,
    /// An error that does not show in the history.
    amiss: Option<String>,
    joined: u16,
    sessions: usize,
    /// Timeout of operations while there are faults.
    allowed: Duration,
    /// Least number of operations, and least number of faults meanwhile.
    operations: u64,
    wanted_faults: u64,
    thinks: Duration,
    tape: Tape,
    steps: u64,
    /// Number of consecutive turns, of any processes, that found no work.
    idle: usize,
}

impl<O: Links> Simulation<O> {
    /// A run that has not begun. `tree` draws the tree of an ordering that has one.
    fn new(seed: u64, small: Option<Small>, tree: Option<&mut Rng>) -> Self {
        let mut rng = Rng::new(seed ^ 0x0005_706e);
        let style = match small {
            Some(_) => STYLES[0],
            None if seed % MOVING_ONE_IN == MOVING_ONE_IN - 1 => MOVING,
            None => STYLES[(seed % STYLES.len() as u64) as usize],
        };
        let mut draw = |(least, more): (u64, u64)| least + rng.below(more);
        let (groups, sessions) = (draw(style.groups) as u16, draw(style.sessions) as usize);
        let operations = draw(style.operations);
        let plenty = Topology { nodes: NODES, groups, replicas: 3, engines: 1 };
        let topology = small.map_or(plenty, |small| small.topology);
        let layout = Layout::propose(topology).expect("sizes that can be");
        let layout = match tree {
            Some(rng) => layout.along(&draw_tree(groups, rng)).expect("a tree of all groups"),
            None => layout,
        };
        let limits = small.map_or_else(Limits::default, |Small { group_bytes_max, .. }| {
            let most = u64::from(layout.replicas_per_node_max());
            Limits { memory_bytes_max: group_bytes_max * most, ..Limits::default() }
        });
        let mut weights = style.weights;
        if topology.replicas == 1 {
            weights.crashes = 0; // A group of one replica tolerates no failure.
        }
        if topology.nodes == 1 {
            (weights.cuts, weights.one_way_cuts, weights.held_links) = (0, 0, 0);
        }
        let heartbeat_ms = 1 + rng.below(4);
        let missed = 4 + rng.below(8);
        let silence = heartbeat_ms * missed;
        let tuning = Tuning {
            log_bytes: 16 << 10,
            inline_bytes_max: 1 << 10,
            ring_bytes: 4 << 10,
            peer_ring_bytes: 4 << 10,
            window: 8,
            heartbeat_ms,
            heartbeats_missed_max: missed as u32,
            evict_after_ms: 20 + rng.below(80),
            // Shorter or longer than the time after which a silent engine is suspected.
            lease_ms: silence / 2 + rng.below(4 * silence),
            ..Tuning::default()
        };
        let rough = rng.one_in(3);
        let usual = SimConfig::default();
        let config = SimConfig {
            latency: (Duration::from_nanos(500), Duration::from_micros(if rough { 50 } else { 5 })),
            hiccup_one_in: if rough { 16 } else { 64 },
            hiccup_max: Duration::from_micros(if rough { 3_000 } else { 300 }),
            drag_one_in: if rough { 16 } else { 128 },
            drag_max: if rough { 100 } else { 20 },
            ..usual
        };
        let world = World::new(seed, config);
        let slots = SlotMap::even(topology.groups);
        let silence = Duration::from_millis(silence);
        let objects = Objects::new("sim", &slots, topology.groups, 0);
        let objects = if rng.one_in(3) { objects } else { objects.scarce() };
        let header = Header {
            format: FORMAT,
            workload: "simulated".to_owned(),
            skein: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: topology,
            seed,
            t: 0,
            unix_ms: 0,
            token_bytes: TOKEN_BYTES,
            bank: Some(objects.bank()),
            record: None,
            before: false,
        };
        let shape = Shape { layout: layout.clone(), tuning, slots, limits, waiting: Waiting::Park };
        Self {
            nodes: Nodes::new(&world, &shape),
            faults: Faults::new(rng.fork(), weights, silence / style.hurry),
            sessions,
            allowed: ALLOWED * silence,
            operations,
            wanted_faults: rng.below(10) * u64::from(style.hurry),
            thinks: Duration::from_micros(*rng.pick(&style.thinks)),
            style,
            clients: Vec::new(),
            mover: None,
            amiss: None,
            joined: 0,
            tape: Tape::default(),
            steps: 0,
            idle: 0,
            world,
            shape,
            header,
            objects,
            rng,
        }
    }

    /// Executes the run.
    ///
    /// # Errors
    /// Lack of progress, a failure of the setup, or diverged replicas.
    fn run(&mut self) -> Result<(), String> {
        self.join(TIMEOUT);
        let opening = self.objects.opening();
        self.ask(&opening)?.map_err(|refusal| refusal.to_string())?;
        self.clients.clear();
        (0..CLIENTS).for_each(|_| self.join(self.allowed));
        if self.style.move_one_in.is_some() {
            self.join(self.allowed);
            self.mover = self.clients.pop().map(|mover| (mover, false));
        }
        while !self.has_asked_enough() {
            self.step(true)?;
            if self.rng.one_in(CLIENT_DIES_ONE_IN) {
                let at = self.rng.index(self.clients.len());
                let mut client = self.clients.swap_remove(at);
                client.kill(&self.world, &mut self.tape);
                self.join(self.allowed);
            }
        }
        self.faults.end_all(&mut self.nodes, &self.world);
        self.until("every operation ends", |it| it.clients.iter().all(Client::is_idle))?;
        self.until("the last move ends", |it| it.mover.as_ref().is_none_or(|(_, moves)| !moves))?;
        self.until("every replica is admitted", |it| it.nodes.are_whole())?;
        self.read_everything()?;
        self.until("replicas agree", |it| it.nodes.digests(0).is_some())?;
        if let Some(diverged) = self.nodes.divergence() {
            return Err(format!("replicas have diverged: {diverged}"));
        }
        if !self.nodes.have_one_map() {
            self.amiss = Some("two replicas have two slot maps".to_owned());
        } else if self.tape.saw_wrong_epoch {
            self.amiss = Some("a client was told that the slot map has changed".to_owned());
        }
        let digests = self.nodes.digests(self.tape.now()).expect("just looked at");
        self.tape.records.extend(digests.into_iter().map(Record::Digest));
        let t = self.tape.now();
        self.tape.records.push(Record::End(End { t }));
        Ok(())
    }

    fn has_asked_enough(&self) -> bool {
        let (asked, faults) = (self.tape.invoked, self.faults.count);
        asked >= OPERATIONS_MAX || (asked >= self.operations && faults >= self.wanted_faults)
    }

    /// Adds a client process whose operations have this timeout.
    fn join(&mut self, allowed: Duration) {
        self.joined += 1;
        let Self { world, shape, joined, sessions, rng, tape, .. } = self;
        let mut client = Client::new(world, shape, *joined, *sessions, rng, tape);
        client.set_timeout(allowed);
        self.clients.push(client);
    }

    /// Reads every key that was used.
    fn read_everything(&mut self) -> Result<(), String> {
        self.join(TIMEOUT);
        let asked = self.tape.records.iter().filter_map(|record| match record {
            Record::Invoke(invoke) => Some(invoke.ops.iter().chain(&invoke.otherwise).map(Op::key)),
            _ => None,
        });
        let keys: BTreeSet<String> = asked.flatten().map(str::to_owned).collect();
        for key in keys {
            let t = self.tape.now();
            match self.ask(&reading(&key))? {
                Ok(reply) => self.tape.records.extend(found(t, &key, &reply)),
                Err(refusal) => self.amiss = Some(format!("{key} cannot be read: {refusal}")),
            }
        }
        Ok(())
    }

    /// Executes a transaction in the client that joined last. It may be refused.
    fn ask(&mut self, transaction: &Transaction) -> Result<Result<Reply, Refusal>, String> {
        let client = self.clients.last_mut().expect("one has joined");
        client.submit(transaction).map_err(|error| error.to_string())?;
        loop {
            let client = self.clients.last_mut().expect("nobody leaves");
            match client.take_answer() {
                Some(Err(Error::Refused(refusal))) => return Ok(Err(refusal)),
                Some(answer) => return answer.map(Ok).map_err(|error| error.to_string()),
                None => self.step(false)?,
            }
        }
    }

    /// Runs until a condition holds. It is an error if that takes too long.
    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<(), String> {
        let end = self.world.now() + TIMEOUT;
        while !is_so(self) {
            if self.world.now() > end {
                return Err(format!("liveness: {what}, but not in {TIMEOUT:?}"));
            }
            for _ in 0..FAULTS_EVERY {
                self.step(false)?;
            }
        }
        Ok(())
    }

    /// Lands an event or runs a process.
    fn step(&mut self, asking: bool) -> Result<(), String> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(format!("liveness: {STEPS_MAX} steps were not enough"));
        }
        if self.rng.below(100) < LANDING_PERCENT {
            self.world.step();
        } else {
            let worked = self.turn(asking)?;
            self.idle = if worked { 0 } else { self.idle + 1 };
        }
        if self.idle > 4 * (self.nodes.len() + self.clients.len()) {
            self.idle = 0;
            self.let_time_pass();
        }
        if self.steps.is_multiple_of(FAULTS_EVERY) {
            self.faults.go_on(&mut self.nodes, self.shape.layout.topology().groups, &self.world);
        }
        Ok(())
    }

    /// Runs one turn of a random process. Returns whether it found work.
    fn turn(&mut self, asking: bool) -> Result<bool, String> {
        self.move_slots(asking)?;
        let nodes = self.nodes.len();
        let chosen = self.rng.index(nodes + self.clients.len());
        let Some(at) = chosen.checked_sub(nodes) else { return Ok(self.nodes.turn(chosen)) };
        let Self { style, clients, objects, rng, tape, world, thinks, .. } = self;
        let client = &mut clients[at];
        if world.is_parked(&client.name) {
            return Ok(false);
        }
        if asking {
            client.ask(objects, style, world.now(), *thinks, rng, tape);
        }
        client.turn(tape).map_err(|error| format!("a client is cut off for good: {error}"))
    }

    /// Now and then attempts to move a slot. A slot that holds keys is refused.
    fn move_slots(&mut self, asking: bool) -> Result<(), String> {
        let Self { mover: Some((mover, moves)), rng, objects, world, tape, .. } = self else {
            return Ok(());
        };
        if world.is_parked(&mover.name) {
            return Ok(());
        }
        let one_in = self.style.move_one_in.expect("or nobody moves any");
        if asking && !*moves && rng.one_in(one_in) {
            let keys = objects.movable();
            let slot = slot_of(&keys[rng.index(keys.len())]);
            let to = GroupId(rng.below(u64::from(self.shape.layout.topology().groups)) as u16);
            *moves = mover.move_slot(slot, to).is_ok();
        }
        if *moves {
            mover.turn(tape).map_err(|error| format!("the mover is cut off for good: {error}"))?;
            if let Some(answer) = mover.take_answer() {
                *moves = false;
                tape.moves += u64::from(answer.is_ok());
            }
        }
        Ok(())
    }

    /// Advances the time while no process finds work.
    fn let_time_pass(&mut self) {
        if self.world.next_due().is_some() {
            self.world.step();
            return;
        }
        let alarm = self.nodes.first_alarm();
        let alarm = alarm.and_then(|alarm| alarm.checked_sub(self.world.now()));
        let alarm = alarm.filter(|it| !it.is_zero()).unwrap_or(NAP);
        self.world.advance(alarm.min(NAP));
    }
}
