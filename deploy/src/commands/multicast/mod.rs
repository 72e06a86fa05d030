//! `skein bench multicast`: the ordering protocol alone, without a store.

mod cluster;
pub(super) mod node;
mod order;

use std::io::IsTerminal;
use std::time::Duration;

use clap::ValueEnum;
use skein_cluster::BUILD;
use skein_fabric::wait::Waiting;
use skein_multicast::config::{Topology, Tuning};
use skein_multicast::layout::Layout;
use skein_multicast::protocol::tram::tree::Tree;
use skein_multicast::session_transport::SessionTransport;
use skein_workloads::bench::{Phase, Watch, any_seed};
use skein_workloads::multicast::load::{self, Measured, Plan};
use skein_workloads::multicast::report::{Report, Setting};
use skein_workloads::multicast::simulated::{self, profile::Hardware};
use skein_workloads::multicast::{compare, cores};
use skein_workloads::neighbours::Neighbours;

use self::cluster::Running;
use super::bench::neighbours;
use crate::exit::{Exit, usage};
use crate::progress::{Bars, Interrupt};

/// The multicast by itself: from a message to the last of its groups' replies
///
/// Starts replicas of its own, whose state machine only replies, and measures them over the session
/// layer that the client library is built on. Each run has fresh replicas, and reports the time that a
/// word takes from one core to another and back at that moment.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Groups
    #[arg(long, default_value_t = 1, value_name = "G", value_parser = clap::value_parser!(u16).range(1..=64))]
    groups: u16,
    /// Groups that each message goes to, drawn for each message [default: all]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u16).range(1..=64))]
    dst: Option<u16>,
    #[command(flatten)]
    order: order::Orders,
    /// Bytes of each message
    #[arg(long, default_value_t = 64, value_name = "B")]
    payload: usize,
    /// Sessions
    #[arg(long, default_value_t = 1, value_name = "C", value_parser = super::bench::clients)]
    clients: usize,
    /// Further sessions, connected and idle
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=10_000), conflicts_with = "simulated")]
    idle: u16,
    /// Messages in flight per session; in an open loop the maximum [default: 1, or 64 in an open loop]
    #[arg(long, value_name = "W", value_parser = clap::value_parser!(u16).range(1..=4096))]
    window: Option<u16>,
    /// Messages per second that are due, whether or not earlier ones were answered; latencies count
    /// from the due time
    #[arg(long, value_name = "RATE", value_parser = super::bench::rate)]
    open_loop: Option<f64>,
    /// All engines on one thread, pinned to a core, the sessions on another, both polling
    #[arg(long)]
    threads: bool,
    /// Each node is a process, as `skein up` would run them: this is the default
    #[arg(long, conflicts_with = "threads")]
    processes: bool,
    /// In virtual time, on hardware that is not here: cores, cards and cables (docs/performance.md says what is
    /// modelled). Seconds are virtual ones, too
    #[arg(long, conflicts_with_all = ["threads", "processes", "fabric", "nodes", "engines", "waiting", "open_loop"])]
    simulated: bool,
    /// The simulated hardware: xl170 or r320 (the nodes of RamCast's authors, one for each replica and session), or
    /// two-cores (like --threads on this machine)
    #[arg(long, default_value_t = Hardware::Xl170, value_name = "HARDWARE", requires = "simulated")]
    hardware: Hardware,
    /// The fabric
    #[arg(long, default_value = "shm", value_name = "FABRIC")]
    fabric: FabricName,
    /// Replicas of each group, an odd number
    #[arg(long, default_value_t = 3, value_name = "N")]
    replicas: u8,
    /// Nodes [default: as many as replicas]
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,
    /// Engine threads of each node
    #[arg(long, default_value_t = 1, value_name = "N")]
    engines: u16,
    /// How engines and sessions wait: adaptive, busy (never sleeping) or park [default: adaptive; busy with --threads]
    #[arg(long, value_name = "HOW", conflicts_with = "threads")]
    waiting: Option<Waiting>,
    /// Number of runs
    #[arg(long, default_value_t = 3, value_name = "R", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measured time of each run [default: 2; 0.02 if simulated]
    #[arg(long, value_name = "SECONDS", value_parser = super::bench::seconds)]
    duration: Option<Duration>,
    /// Warm-up of each run [default: 0.5; 0.002 if simulated]
    #[arg(long, value_name = "SECONDS", value_parser = super::bench::seconds)]
    warmup: Option<Duration>,
    /// Seed of destinations and times [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Runs N processes that compute beside it: at niceness 19 (nice) or idle priority (idle), each in a session of
    /// its own (own-session) or in the client's
    #[arg(long, value_name = "N[:nice|:idle][:own-session]", conflicts_with = "simulated")]
    neighbours: Option<Neighbours>,
    /// Prints one JSON object (docs/schema.md) for each ordering in place of the table
    #[arg(long)]
    json: bool,
    /// Prints a line of CSV for each run in place of the table
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Defaults of the measured time and of the warm-up.
const REAL: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(500)];
const SIMULATED: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(2)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FabricName {
    /// Shared memory
    Shm,
    /// Connections over the loopback interface
    Tcp,
    /// The same, encrypted, with certificates on both sides
    Tls,
}

impl FabricName {
    fn word(self) -> &'static str {
        match self {
            Self::Shm => "shm",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// How the replicas run.
#[derive(Clone, Debug)]
struct Placement {
    threads: bool,
    fabric: FabricName,
    waiting: Waiting,
    layout: Layout,
    tuning: Tuning,
    ungated: bool,
}

impl Args {
    pub(crate) fn run(self, verbose: u8) -> anyhow::Result<Exit> {
        let trees = self.order.trees(self.groups)?;
        let plan = self.plan()?;
        let subjects: Vec<_> = trees
            .iter()
            .map(|tree| self.placement(plan.window, tree.as_ref()))
            .collect::<Result<_, _>>()?;
        let mut bars = Bars::new(Interrupt::listen_and_stay()?);
        let mut measured: Vec<Vec<_>> = subjects.iter().map(|_| Vec::new()).collect();
        let beside = neighbours::Running::start(self.neighbours)?;
        'runs: for run in 0..self.runs {
            for (placement, measured) in subjects.iter().zip(&mut measured) {
                let one = self.measure_once(run, &plan, placement, verbose, &mut bars)?;
                let stop = one.1.ended_early.is_some();
                measured.push(one);
                if stop {
                    break 'runs;
                }
            }
        }
        bars.end();
        beside.end()?;
        let reports: Vec<Report> = subjects
            .iter()
            .zip(&measured)
            .map(|(placement, measured)| Report::new(self.setting(&plan, placement), measured))
            .collect();
        self.say(&reports)?;
        Ok(if reports.iter().all(|report| report.good) { Exit::Ok } else { Exit::No })
    }

    /// One run of one ordering, and the round trip between cores just before.
    fn measure_once(
        &self,
        run: u32,
        plan: &Plan,
        placement: &Placement,
        verbose: u8,
        bars: &mut Bars,
    ) -> anyhow::Result<(Option<f64>, Measured)> {
        if !self.simulated {
            return Ok((cores::round_trip_ns(), measure(plan, placement, verbose, bars)?));
        }
        bars.begin(Phase::Run(plan.warm_up + plan.duration));
        let plan = Plan { seed: plan.seed.wrapping_add(run.into()), ..*plan };
        let Placement { layout, ungated, .. } = placement;
        let watch = &mut |progress| bars.progress(progress);
        Ok((None, simulated::run(&plan, layout, self.hardware, *ungated, watch)?))
    }

    fn setting(&self, plan: &Plan, placement: &Placement) -> Setting {
        let words = match (self.simulated, self.threads) {
            (true, _) => ["simulated", if self.hardware.shares_cores() { "shm" } else { "rdma" }],
            (false, true) => ["threads", self.fabric.word()],
            (false, false) => ["processes", self.fabric.word()],
        };
        let waiting = placement.waiting.to_string();
        let skein = BUILD.text().to_owned();
        let setting = Setting::new(plan, &placement.layout, words, waiting, command(), skein);
        Setting {
            neighbours: self.neighbours,
            hardware: self.simulated.then_some(self.hardware.name()),
            ungated: placement.ungated,
            ..setting
        }
    }

    fn say(&self, reports: &[Report]) -> anyhow::Result<()> {
        let colour = std::io::stdout().is_terminal();
        for (number, report) in reports.iter().enumerate() {
            let text = if self.json {
                serde_json::to_string(report)? + "\n"
            } else if self.csv {
                let csv = report.csv();
                let heads = csv.find('\n').map_or(0, |end| end + 1);
                csv[if number == 0 { 0 } else { heads }..].to_owned()
            } else {
                report.table(colour) + if number + 1 < reports.len() { "\n" } else { "" }
            };
            crate::output::say(text)?;
        }
        if let (false, [first, second]) = (self.json || self.csv, reports) {
            crate::output::say(format!("\n{}", compare::compared([first, second], colour)))?;
        }
        Ok(())
    }

    /// The load.
    fn plan(&self) -> anyhow::Result<Plan> {
        let destinations = self.dst.unwrap_or(self.groups);
        if destinations > self.groups {
            return Err(usage(format!(
                "--dst {destinations} is more than the groups: --groups is {}",
                self.groups
            )));
        }
        let tuning = Tuning::default();
        let (payload, max) = (self.payload, tuning.payload_bytes_max);
        if payload > max {
            let what = format!("--payload {payload} is too long: {max} bytes at most");
            return Err(usage(what));
        }
        let [duration, warm_up] = if self.simulated { SIMULATED } else { REAL };
        let (duration, warm_up) =
            (self.duration.unwrap_or(duration), self.warmup.unwrap_or(warm_up));
        if duration.is_zero() {
            return Err(usage("--duration 0 measures nothing: give a number of seconds above 0"));
        }
        let depth = self.window.unwrap_or(if self.open_loop.is_some() { 64 } else { 1 });
        let depth = usize::from(depth);
        Ok(Plan {
            groups: self.groups,
            destinations,
            adjacent: self.order.adjacent(self.groups)?,
            payload_bytes: payload,
            clients: self.clients,
            idle: usize::from(self.idle),
            depth,
            window: depth.max(Tuning::default().window),
            rate: self.open_loop,
            warm_up,
            duration,
            seed: self.seed.unwrap_or_else(any_seed),
        })
    }

    /// How the replicas of an ordering run: along the tree, if there is one.
    fn placement(&self, window: usize, tree: Option<&Tree>) -> anyhow::Result<Placement> {
        let nodes = self.nodes.unwrap_or_else(|| u16::from(self.replicas));
        let Self { groups, replicas, engines, .. } = *self;
        let topology = if self.simulated {
            self.hardware.topology(groups, replicas)
        } else {
            Topology { nodes, groups, replicas, engines }
        };
        let layout = Layout::propose(topology).map_err(usage)?;
        let tuning = Tuning { window, ..Tuning::default() };
        let layout = match tree {
            Some(tree) => layout.along(tree).map_err(usage)?,
            None => layout,
        };
        let adaptive_or_busy =
            if self.threads || self.simulated { Waiting::Busy } else { Waiting::Adaptive };
        Ok(Placement {
            threads: self.threads,
            fabric: self.fabric,
            waiting: self.waiting.unwrap_or(adaptive_or_busy),
            layout,
            tuning,
            ungated: self.order.ungated && tree.is_some(),
        })
    }
}

/// One run on replicas of its own.
fn measure(
    plan: &Plan,
    placement: &Placement,
    verbose: u8,
    bars: &mut Bars,
) -> anyhow::Result<Measured> {
    bars.message("starting");
    let running = Running::start(placement, verbose)?;
    let Placement { layout, tuning, waiting, .. } = placement;
    let fabric = running.visit()?;
    // A generator that sends at given times must not sleep past them.
    let waiting = if plan.rate.is_some() { Waiting::Busy } else { *waiting };
    bars.begin(Phase::Run(plan.warm_up + plan.duration));
    let measured = std::thread::scope(|scope| {
        let generator = scope.spawn(|| {
            if placement.threads
                && let Some(core) = cores::usable().last()
            {
                cores::pin(*core);
            }
            let mut access = SessionTransport::new(fabric, layout, *tuning);
            load::run(&mut access, waiting, plan, &mut |progress| bars.progress(progress))
        });
        generator.join().expect("a generator does not panic")
    });
    Ok(Measured { batches: running.stop()?, ..measured })
}

/// The command line as given.
fn command() -> String {
    let arguments = std::env::args().skip(1);
    std::iter::once("skein".to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}
