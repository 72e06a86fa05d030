//! `skein bench chaos`: random faults during a recorded workload, and the verdict on its history.

mod acceptance;
pub(super) mod client;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use skein_cluster::config::{ClusterConfig, Encryption, FabricKind, StoreKind};
use skein_node::supervise::Supervisor;
use skein_workloads::bench::any_seed;
use skein_workloads::chaos::hosts::Hosts;
use skein_workloads::chaos::report::Report;
use skein_workloads::chaos::run::{End, Plan, Program, Run, RunError};
use skein_workloads::chaos::schedule::{Kind, STOP_MAX, Target};

use crate::args::Global;
use crate::data::Mode;
use crate::exit::{Exit, usage};
use crate::own::Own;
use crate::progress::{Bars, Interrupt};
use crate::shape::Shape;

/// Prefix of the directories of its own clusters in the temporary directory.
const DIR_PREFIX: &str = "skein-chaos-";
/// Memory that a cluster needs besides the records: for the workload's writes and for sessions.
const ROOM_BYTES: u64 = 1 << 28;
/// Overhead of a record besides its value.
const RECORD_OVERHEAD: u64 = 160;

/// Kills and stops nodes and clients under load, and checks that nothing is lost
///
/// Nodes are killed, stopped for up to ten seconds, for moments, several at once, and restarted, leaders
/// change, replicas are evicted, and clients are killed in the middle of transactions, in an order drawn from
/// the seed. No group ever has more than f replicas without their state. With `power` all nodes are killed in the same
/// instant, and their disks lose what was not synced. Meanwhile appends, registers,
/// counters and transactions over all groups are recorded (docs/histories.md). Then everything is read back,
/// all replicas are compared, and the history is checked. With --dir or SKEIN_DIR the faults hit the cluster
/// there, otherwise one of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long faults are injected
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = super::bench::seconds)]
    duration: Duration,
    /// Ends after so many kills, of nodes, clients or all nodes at once, instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    kills: Option<u32>,
    /// Kinds of faults: kill, stop, stutter, pause, restart, transfer, evict, client-kill, partition, power, disk-loss
    /// [default: all but partition, which takes root, --fabric tcp and a cluster of its own, and power and disk-loss, which
    /// take --durability sync and a cluster of its own; with --kills only kill]
    #[arg(long, value_name = "KINDS", value_delimiter = ',', value_parser = kind)]
    faults: Vec<Kind>,
    /// Nodes that faults hit [default: leaders two times out of three]
    #[arg(long, value_name = "WHICH")]
    only: Option<Only>,
    /// The longest that a node is stopped
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = stop_max)]
    stop_max: Duration,
    /// Sessions, each with one operation in flight
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = super::bench::clients)]
    clients: usize,
    /// Operations per second of all sessions together; 0 is as many as are answered
    #[arg(long, default_value_t = 4_000.0, value_name = "N", value_parser = rate)]
    rate: f64,
    /// Records put first: state that must be transferred to replicas that lost it
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=100_000_000))]
    records: u64,
    /// Bytes of the value of each record
    #[arg(long, default_value_t = 1_000, value_name = "BYTES")]
    value_size: usize,
    /// Modes of read-only operations: each is used for some of them
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        default_value = "confirmed,ordered,lease,stale"
    )]
    read_mode: Vec<Mode>,
    /// Seed of all random choices [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where to keep the history [default: kept in the temporary directory if something is wrong]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Runs it on clusters of all kinds: shm and tcp, 3 and 5 replicas, even and uneven placement, with memory to
    /// spare and with none, 1000 faults in all, partitions among them where network namespaces can be made
    #[arg(long, conflicts_with_all = ["duration", "kills", "history", "records", "value_size"])]
    acceptance: bool,
    /// Faults in all, shared equally by the kinds of clusters
    #[arg(long, requires = "acceptance", default_value_t = 1_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    acceptance_faults: u32,
    /// Prints one JSON object (docs/schema.md) in place of the report
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "The shape of a cluster of its own")]
    shape: Shape,
}

#[derive(Clone, Copy, ValueEnum)]
enum Only {
    /// Nodes that lead a group
    Leaders,
    /// Nodes that lead none
    Followers,
}

fn kind(name: &str) -> Result<Kind, String> {
    let known = || Kind::ALL.map(Kind::name).join(", ");
    Kind::named(name).ok_or_else(|| format!("the kinds of faults are {}", known()))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1e9).contains(rate));
    rate.ok_or_else(|| "give a number of operations a second, such as 4000".to_owned())
}

fn stop_max(text: &str) -> Result<Duration, String> {
    let time = super::bench::seconds(text)?;
    let known = (Duration::from_millis(10)..=STOP_MAX.max(Duration::from_mins(10))).contains(&time);
    known.then_some(time).ok_or_else(|| "give a number of seconds from 0.01 to 600".to_owned())
}

/// Runs on a cluster that is started for the run.
fn on_its_own(
    mut config: ClusterConfig,
    plan: Plan,
    interrupt: Interrupt,
    verbose: u8,
) -> anyhow::Result<Report> {
    if !plan.kinds.contains(&Kind::Partition) {
        return on_hosts(config, plan, interrupt, verbose, None);
    }
    if config.network.fabric != FabricKind::Tcp {
        return Err(usage("partition takes connections that can be cut: add --fabric tcp"));
    }
    let hosts = Hosts::join(config.topology.nodes);
    let hosts = hosts.context("partition takes network namespaces, one for each node")?;
    "chaos".clone_into(&mut config.network.cluster);
    config.network.addresses = hosts.addresses();
    config.network.encryption = Encryption::Never;
    // Entering a host affects a thread and the processes that it starts, so the run has a thread of
    // its own.
    let run = || {
        hosts.enter()?;
        on_hosts(config, plan, interrupt, verbose, Some(&hosts))
    };
    thread::scope(|scope| scope.spawn(run).join()).expect("a run does not panic")
}

/// The same on the given hosts.
fn on_hosts(
    config: ClusterConfig,
    plan: Plan,
    interrupt: Interrupt,
    verbose: u8,
    hosts: Option<&Hosts>,
) -> anyhow::Result<Report> {
    let own = Own::start(DIR_PREFIX, None, config, verbose, hosts.map(Hosts::prefix))?;
    let dir = own.dir().to_owned();
    let report = drive(&dir, plan, interrupt, hosts, Some(own.supervisor()));
    let left = own.stop();
    let mut report = report?;
    report.problems.extend(left);
    Ok(report.judged())
}

/// Runs on the cluster in `dir`.
fn drive(
    dir: &Path,
    plan: Plan,
    interrupt: Interrupt,
    hosts: Option<&Hosts>,
    supervisor: Option<&Supervisor>,
) -> anyhow::Result<Report> {
    let program = Program {
        client: client::command,
        tell: |error| crate::output::tell(format_args!("{:#}", anyhow::Error::new(error))),
    };
    let run = Run::on(dir, plan, program, hosts, supervisor);
    run.and_then(|run| run.drive(&mut Bars::new(interrupt))).map_err(explained)
}

/// Converts the error, to bad usage if the caller's options caused it.
fn explained(error: RunError) -> anyhow::Error {
    match error {
        RunError::TooFewReplicas { .. } => usage(format!("{error}: leave it out of --faults")),
        RunError::InMemory { .. } => usage(format!("{error}: add --durability sync")),
        RunError::ValueTooLong { bytes, max } => usage(format!(
            "--value-size {bytes} is over this cluster's limits.value_bytes_max, {max}"
        )),
        other => other.into(),
    }
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if self.acceptance {
            if global.dir_if_named().is_some() || self.shape.is_given() {
                return Err(usage(
                    "--acceptance starts clusters of its own, of many shapes: leave out --dir, SKEIN_DIR and the flags of a shape",
                ));
            }
            return acceptance::run(
                &self.plan()?,
                self.acceptance_faults,
                global.verbose,
                self.json,
            );
        }
        let plan = self.plan()?;
        let interrupt = Interrupt::listen_and_stay()?;
        let report = if let Some(dir) = global.dir_if_named() {
            self.refuse_shape()?;
            if plan.kinds.contains(&Kind::Partition) {
                return Err(usage(
                    "partition takes a cluster of its own, whose nodes are on hosts that can be parted: leave out --dir and SKEIN_DIR",
                ));
            }
            if let Some(kind) = plan.kinds.iter().find(|kind| kind.is_of_disks()) {
                return Err(usage(format!(
                    "{} takes a cluster of its own, whose disks lose what is not synced: leave out --dir and SKEIN_DIR",
                    kind.name()
                )));
            }
            drive(&dir, plan, interrupt, None, None)?.judged()
        } else {
            on_its_own(self.own_config()?, plan, interrupt, global.verbose)?
        };
        if self.json {
            crate::output::say(serde_json::to_string(&report)? + "\n")?;
        } else {
            crate::output::say(report.table(std::io::stdout().is_terminal()))?;
        }
        Ok(if report.good { Exit::Ok } else { Exit::No })
    }

    fn plan(&self) -> anyhow::Result<Plan> {
        let end = match self.kills {
            Some(kills) => End::Kills(kills as usize),
            None if self.duration.is_zero() => {
                return Err(usage("--duration 0 does nothing: give a number of seconds above 0"));
            }
            None => End::After(self.duration),
        };
        let kinds = match (&self.faults[..], self.kills) {
            ([], Some(_)) => vec![Kind::Kill],
            ([], None) => {
                let anywhere = |kind: &Kind| *kind != Kind::Partition && !kind.is_of_disks();
                Kind::ALL.into_iter().filter(anywhere).collect()
            }
            (given, _) => given.to_vec(),
        };
        if self.kills.is_some() && !kinds.iter().any(|kind| kind.kills()) {
            return Err(usage(
                "--kills never ends without kill, client-kill, power or disk-loss among the --faults",
            ));
        }
        Ok(Plan {
            end,
            kinds,
            target: match self.only {
                None => Target::Any,
                Some(Only::Leaders) => Target::Leaders,
                Some(Only::Followers) => Target::Followers,
            },
            stop_max: self.stop_max,
            clients: self.clients,
            rate: Some(self.rate).filter(|rate| *rate > 0.0),
            records: self.records,
            value_bytes: self.value_size,
            read_modes: self.read_mode.iter().map(|mode| mode.mode()).collect(),
            seed: self.seed.unwrap_or_else(any_seed),
            history: self.history.clone(),
        })
    }

    /// Refuses options of shape for a cluster that already runs.
    fn refuse_shape(&self) -> anyhow::Result<()> {
        if self.shape.is_given() {
            return Err(usage(
                "--nodes, --groups, --replicas, --order, --tree, --fabric, --durability and --config are of a cluster of its own: leave them out, or leave out --dir and SKEIN_DIR",
            ));
        }
        Ok(())
    }

    fn own_config(&self) -> anyhow::Result<ClusterConfig> {
        let mut config = self.shape.config()?;
        let state = self.records * (self.value_size as u64 + RECORD_OVERHEAD);
        let needed = state + ROOM_BYTES;
        let limits = &mut config.limits;
        let most = match config.store {
            StoreKind::Memory => &mut limits.memory_bytes_max,
            StoreKind::Rocksdb => &mut limits.store_bytes_max,
        };
        *most = needed.max(*most);
        Ok(config)
    }
}
