//! `skein bench`: how fast, and was it right.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use skein_client::Driver;
use skein_fabric::any::AnyFabric;
use skein_kvstore::BUILD;
use skein_kvstore::config::ClusterConfig;
use skein_kvstore::node::admin;
use skein_kvstore::node::directory::Directory;
use skein_kvstore::node::status::NodeStatus;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Topology;
use skein_workloads::bench::{self, BankPlan, Cluster, Watch, YcsbPlan};
use skein_workloads::keys::Distribution;
use skein_workloads::mix::{Kind, Mix, RECORD};
use skein_workloads::report::Report;
use skein_workloads::ycsb::CLIENTS_MAX;

use super::recorded::{About, Recording};
use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::progress::{Bars, Interrupt};

/// Measures a running cluster, and checks its answers
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The core workloads of YCSB over records of 1,000 bytes
    ///
    /// a: half reads, half updates. b: 95 % reads, 5 % updates. c: reads. d: 95 % reads of what was
    /// inserted last, 5 % inserts. e: 95 % scans of up to 100 records, 5 % inserts. f: half reads, half
    /// reads each followed by an update of the same record. An update overwrites one of ten fields.
    Ycsb(Ycsb),
    /// Transfers between accounts on different shards, while readers add all accounts up
    ///
    /// Every sum must be what the accounts were opened with, and no account may be overdrawn.
    Bank(Bank),
    Multicast(super::multicast::Args),
    #[command(hide = true)]
    MulticastNode(super::multicast::node::Args),
    Chaos(super::chaos::Args),
    #[command(hide = true)]
    ChaosClient(super::chaos::client::Args),
}

#[derive(clap::Args)]
struct Ycsb {
    /// Which core workload: a, b, c, d, e or f
    #[arg(long, short, value_name = "LETTER", value_parser = mix)]
    workload: Mix,
    /// How many records there shall be
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// Sessions, each with one operation under way
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clients)]
    clients: usize,
    /// Measures the records that are there, without putting them first
    #[arg(long)]
    no_load: bool,
    /// Which records are popular [default: latest for workload d, else zipfian]
    #[arg(long, value_name = "WHICH")]
    distribution: Option<Popularity>,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args)]
struct Bank {
    /// Accounts: at most limits.transaction_keys_max, for all are read in one transaction
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = accounts)]
    accounts: usize,
    /// Sessions that move money, each with one transfer under way
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clients)]
    clients: usize,
    /// Sessions that add all accounts up
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clients)]
    readers: usize,
    #[command(flatten)]
    run: Run,
}

/// What all benchmarks take.
#[derive(clap::Args)]
struct Run {
    /// How long to measure
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// How long to run before measuring
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// What all random choices are drawn from [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Records what is asked and answered (docs/histories.md), for `skein check`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Prints one JSON object (docs/performance.md) in place of the table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Popularity {
    /// A few records are asked for most of the time
    Zipfian,
    /// The newest are
    Latest,
    /// All are asked for alike
    Uniform,
}

fn mix(letter: &str) -> Result<Mix, String> {
    let mut letters = letter.chars();
    let mix = letters.next().filter(|_| letters.next().is_none()).and_then(Mix::named);
    mix.ok_or_else(|| "the core workloads are a, b, c, d, e and f".to_owned())
}

pub(super) fn clients(text: &str) -> Result<usize, String> {
    between(text, 1, CLIENTS_MAX)
}

fn accounts(text: &str) -> Result<usize, String> {
    between(text, 2, 1_000_000)
}

fn between(text: &str, low: usize, high: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| format!("give a whole number from {low} to {high}"))
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or("give a number of seconds, from 0 to 86400, such as 10 or 0.5")?;
    Ok(Duration::from_secs_f64(seconds))
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let dir = global.dir();
        match self.what {
            What::Ycsb(args) => args.run(&dir),
            What::Bank(args) => args.run(&dir),
            What::Multicast(args) => args.run(global.verbose),
            What::MulticastNode(args) => args.run(),
            What::Chaos(args) => args.run(global),
            What::ChaosClient(args) => args.run(global),
        }
    }
}

impl Ycsb {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        let plan = YcsbPlan {
            mix: self.workload,
            distribution: match self.distribution {
                None => self.workload.distribution,
                Some(Popularity::Zipfian) => Distribution::Zipfian,
                Some(Popularity::Latest) => Distribution::Latest,
                Some(Popularity::Uniform) => Distribution::Uniform,
            },
            records: self.records,
            load: !self.no_load,
            clients: self.clients,
            warm_up: self.run.warmup,
            duration: self.run.measured_for()?,
            seed: self.run.seed.unwrap_or_else(bench::any_seed),
        };
        let mut bars = Bars::new(Interrupt::listen()?);
        let report = ycsb(dir, &plan, self.run.history.as_deref(), &mut bars)?;
        bars.end();
        self.run.print(&report)
    }
}

impl Bank {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        let plan = BankPlan {
            accounts: self.accounts,
            clients: self.clients,
            readers: self.readers,
            warm_up: self.run.warmup,
            duration: self.run.measured_for()?,
            seed: self.run.seed.unwrap_or_else(bench::any_seed),
        };
        let mut bars = Bars::new(Interrupt::listen()?);
        let report = bank(dir, &plan, self.run.history.as_deref(), &mut bars)?;
        bars.end();
        self.run.print(&report)
    }
}

impl Run {
    fn measured_for(&self) -> anyhow::Result<Duration> {
        if self.duration.is_zero() {
            return Err(usage("--duration 0 measures nothing: give a number of seconds above 0"));
        }
        Ok(self.duration)
    }

    fn print(&self, report: &Report) -> anyhow::Result<Exit> {
        if self.json {
            crate::output::say(serde_json::to_string(report)? + "\n")?;
        } else {
            crate::output::say(report.table(std::io::stdout().is_terminal()))?;
        }
        Ok(if report.is_good() { Exit::Ok } else { Exit::No })
    }
}

/// Measures the cluster in `dir` with YCSB, and records it at `history`.
pub(crate) fn ycsb(
    dir: &Path,
    plan: &YcsbPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, _) = connect(dir)?;
    let Some(path) = history else { return Ok(bench::ycsb(&mut driver, &cluster, plan, watch)) };
    let about = About {
        workload: format!("ycsb-{}", plan.mix.letter),
        seed: plan.seed,
        bank: None,
        record: Some(RECORD),
        // What earlier runs have inserted is there.
        before: !plan.load || plan.mix.percent_of(Kind::Insert) > 0,
    };
    let recording = Recording::begin(path, &cluster, about)?;
    let report = bench::ycsb(&mut recording.of(&mut driver), &cluster, plan, watch);
    recording.end(&mut driver, watch)?;
    Ok(report)
}

/// Runs the bank on the cluster in `dir`, and records it at `history`.
pub(crate) fn bank(
    dir: &Path,
    plan: &BankPlan,
    history: Option<&Path>,
    watch: &mut impl Watch,
) -> anyhow::Result<Report> {
    let (mut driver, cluster, config) = connect(dir)?;
    let max = config.limits.transaction_keys_max;
    if plan.accounts > max {
        let accounts = plan.accounts;
        return Err(usage(format!(
            "--accounts {accounts} cannot be read in one transaction: this cluster's limits.transaction_keys_max is {max}"
        )));
    }
    let mut report = match history {
        None => bench::bank(&mut driver, &cluster, plan, watch),
        Some(path) => {
            let bank = bench::open_bank(&cluster, plan).header();
            let about = About {
                workload: "bank".to_owned(),
                seed: plan.seed,
                bank: Some(bank),
                record: None,
                before: true,
            };
            let recording = Recording::begin(path, &cluster, about)?;
            let report = bench::bank(&mut recording.of(&mut driver), &cluster, plan, watch);
            recording.end(&mut driver, watch)?;
            report
        }
    };
    drop(driver);
    if let Some(bank) = &mut report.bank {
        bank.pending = pending(dir, config.topology);
    }
    Ok(report)
}

fn connect(dir: &Path) -> anyhow::Result<(Driver<AnyFabric>, Cluster, ClusterConfig)> {
    let running = Directory::connect(dir)?;
    let config = running.config.clone();
    let slots = SlotMap::even(config.topology.groups);
    let driver = Driver::to(&running).context("cannot reach the cluster's memory")?;
    let cluster = Cluster {
        topology: config.topology,
        slots,
        window: config.tuning.window,
        skein: BUILD.text().to_owned(),
    };
    Ok((driver, cluster, config))
}

/// What the running nodes of the cluster in `dir` hold undelivered, once they had time to deliver
/// it; `None` if one does not say. The messages of others who use the cluster come and go: only those
/// that stay are counted.
fn pending(dir: &Path, topology: Topology) -> Option<u64> {
    let directory = Directory::at(dir).ok()?;
    let until = Instant::now() + DELIVERED_WITHIN;
    loop {
        let running = (0..topology.nodes).filter(|node| directory.node(*node).is_some());
        let statuses = running.map(|node| admin::status(&directory, node).ok());
        let statuses: Option<Vec<NodeStatus>> = statuses.collect();
        let late = Instant::now() >= until;
        // One that has only just been started again may not answer yet.
        let Some(statuses) = statuses.filter(|statuses| !statuses.is_empty()) else {
            if late {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let replicas = || statuses.iter().flat_map(|status| &status.replicas).map(|r| &r.order);
        if replicas().all(|replica| replica.pending == 0) {
            return Some(0);
        }
        if late {
            let stuck = DELIVERED_WITHIN.as_millis() as u64 / 2;
            let stuck = replicas().filter(|replica| replica.oldest_pending_ms >= stuck);
            return Some(stuck.map(|replica| replica.pending).sum());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How long a message may take from its session to every replica, at the end of a run.
const DELIVERED_WITHIN: Duration = Duration::from_secs(4);
