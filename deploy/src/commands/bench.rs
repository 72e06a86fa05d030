//! `skein bench`: throughput, latency, and a check of the answers.

mod idle;
pub(super) mod measure;
pub(super) mod neighbours;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use skein_client::ReadMode;
use skein_cluster::directory::Directory;
use skein_node::nodes;
use skein_workloads::bench::{self, BankPlan, RetwisPlan, SmallBankPlan, Terms, YcsbPlan};
use skein_workloads::drill::Drill;
use skein_workloads::keys::Distribution;
use skein_workloads::mix::Mix;
use skein_workloads::neighbours::Neighbours;
use skein_workloads::report::Report;
use skein_workloads::ycsb::CLIENTS_MAX;

use crate::args::Global;
use crate::data::Reading;
use crate::exit::{Exit, usage};
use crate::output::tell;
use crate::progress::{Bars, Interrupt};

/// Measures a running cluster, and checks its answers
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

impl Args {
    /// Whether it measures replicas that it starts itself and that end with it.
    pub(super) fn runs_replicas_of_its_own(&self) -> bool {
        matches!(self.what, What::Multicast(_) | What::MulticastNode(_))
    }
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
    /// SmallBank: customers pay, cash and move money between their accounts and those of others
    ///
    /// 25 % payments, 15 % each of deposits, withdrawals, checks, looks at a balance, and moves of all
    /// that a customer has. All accounts must add up to what was paid in and out.
    Smallbank(SmallBank),
    /// Retwis: transactions of a social network, each on up to ten records
    ///
    /// 50 % timelines (1 to 10 reads), 30 % posts (3 reads, 5 writes), 15 % follows (2 and 2), 5 % new
    /// users (1 and 3). Every value that is read must belong to its record.
    Retwis(Retwis),
    Idle(idle::Args),
    Multicast(super::multicast::Args),
    #[command(hide = true)]
    Neighbour(neighbours::Args),
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
    /// Number of records
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    records: u64,
    /// Clients, each with one operation in flight
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clients)]
    clients: usize,
    /// Measures existing records, without putting them first
    #[arg(long)]
    no_load: bool,
    /// Which records are popular [default: latest for workload d, else zipfian]
    #[arg(long, value_name = "WHICH")]
    distribution: Option<Popularity>,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args)]
struct SmallBank {
    /// Customers, with two accounts each
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(2..=100_000_000))]
    customers: u64,
    /// Clients, each with one transaction in flight
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clients)]
    clients: usize,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args)]
struct Retwis {
    /// Number of records
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(100..=1_000_000_000))]
    records: u64,
    /// Clients, each with one transaction in flight
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clients)]
    clients: usize,
    /// Measures existing records, without putting them first
    #[arg(long)]
    no_load: bool,
    /// Which records are popular
    #[arg(long, value_name = "WHICH", default_value = "zipfian")]
    distribution: Popularity,
    #[command(flatten)]
    run: Run,
}

#[derive(clap::Args)]
struct Bank {
    /// Accounts: at most limits.transaction_keys_max, for all are read in one transaction
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = accounts)]
    accounts: usize,
    /// Money moves among this many of the accounts only, so that transfers meet [default: all]
    #[arg(long, value_name = "N", value_parser = accounts)]
    hot: Option<usize>,
    /// Clients that move money, each with one transfer in flight
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clients)]
    clients: usize,
    /// Clients that add all accounts up
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clients)]
    readers: usize,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    run: Run,
}

/// Options of all benchmarks.
#[derive(clap::Args)]
struct Run {
    /// How long to measure
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// How long to run before measuring
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Seed of all random choices [default: a new one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Clients share this many sessions, as tasks of one application do [default: each has its own]
    #[arg(long, value_name = "N", value_parser = clients)]
    sessions: Option<usize>,
    /// Operations per second that are due, whether or not earlier ones were answered; latencies count from
    /// the due time. Several rates, separated by commas, are measured one after the other
    #[arg(long, value_name = "RATE", value_delimiter = ',', value_parser = rate)]
    rate: Vec<f64>,
    /// Kills the node that leads most groups after this many measured seconds; several, separated by commas
    #[arg(long, value_name = "SECONDS", value_delimiter = ',', value_parser = seconds)]
    kill: Vec<Duration>,
    /// Runs N processes that compute beside the load: at niceness 19 (nice) or idle priority (idle), each in a
    /// session of its own (own-session) or in the client's
    #[arg(long, value_name = "N[:nice|:idle][:own-session]")]
    neighbours: Option<Neighbours>,
    /// Records operations and answers (docs/histories.md), for `skein check`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Prints one JSON object (docs/schema.md) in place of the table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Popularity {
    /// A few records are requested most of the time
    Zipfian,
    /// The newest records are requested most
    Latest,
    /// All records are requested equally
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

/// Parses a rate in operations or messages a second.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (1.0..=1e8).contains(rate));
    rate.ok_or_else(|| "give the number that is due per second, such as 50000".to_owned())
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
            What::Smallbank(args) => args.run(&dir),
            What::Retwis(args) => args.run(&dir),
            What::Idle(args) => args.run(&dir),
            What::Multicast(args) => args.run(global.verbose),
            What::Neighbour(args) => args.run(),
            What::MulticastNode(args) => args.run(),
            What::Chaos(args) => args.run(global),
            What::ChaosClient(args) => args.run(global),
        }
    }
}

impl Ycsb {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        self.run.each(dir, |round, drill| {
            let plan = YcsbPlan {
                mix: self.workload,
                distribution: self.distribution.map_or(self.workload.distribution, Into::into),
                records: self.records,
                load: !self.no_load && round.first,
                clients: self.clients,
                terms: Terms { read_mode: self.reading.mode(), ..round.terms },
            };
            measure::ycsb(dir, &plan, self.run.history.as_deref(), drill)
        })
    }
}

impl Bank {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        if self.reading.mode() == ReadMode::Stale {
            return Err(usage(
                "--read-mode stale adds up accounts of different moments, and no sum could be wrong: use confirmed, ordered or lease",
            ));
        }
        if let Some(hot) = self.hot.filter(|hot| *hot > self.accounts) {
            return Err(usage(format_args!(
                "--hot {hot} is more than there are: --accounts {}",
                self.accounts
            )));
        }
        self.run.each(dir, |round, drill| {
            let Self { accounts, hot, clients, readers, .. } = self;
            let terms = Terms { read_mode: self.reading.mode(), ..round.terms };
            let plan = BankPlan { accounts, hot, clients, readers, terms };
            measure::bank(dir, &plan, self.run.history.as_deref(), drill)
        })
    }
}

impl SmallBank {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        self.run.each(dir, |round, drill| {
            let Self { customers, clients, .. } = self;
            let plan = SmallBankPlan { customers, clients, terms: round.terms };
            measure::smallbank(dir, &plan, self.run.history.as_deref(), drill)
        })
    }
}

impl Retwis {
    fn run(self, dir: &Path) -> anyhow::Result<Exit> {
        self.run.each(dir, |round, drill| {
            let plan = RetwisPlan {
                records: self.records,
                distribution: self.distribution.into(),
                load: !self.no_load && round.first,
                clients: self.clients,
                terms: round.terms,
            };
            measure::retwis(dir, &plan, self.run.history.as_deref(), drill)
        })
    }
}

impl From<Popularity> for Distribution {
    fn from(which: Popularity) -> Self {
        match which {
            Popularity::Zipfian => Self::Zipfian,
            Popularity::Latest => Self::Latest,
            Popularity::Uniform => Self::Uniform,
        }
    }
}

/// One of several runs of a benchmark.
struct Round {
    terms: Terms,
    /// Whether this is the first run, before which no records were put.
    first: bool,
}

impl Run {
    /// Measures at each requested rate, and prints each result.
    fn each(
        &self,
        dir: &Path,
        measure: impl Fn(Round, &mut Drill<'_, Bars>) -> anyhow::Result<Report>,
    ) -> anyhow::Result<Exit> {
        let duration = self.measured_for()?;
        if self.history.is_some() && self.rate.len() > 1 {
            return Err(usage("--history records one run: give one --rate with it"));
        }
        if let Some(late) = self.kill.iter().find(|kill| **kill >= duration) {
            let late = late.as_secs_f64();
            return Err(usage(format!("--kill {late} comes when --duration is over")));
        }
        let rates: Vec<_> = match &self.rate[..] {
            [] => vec![None],
            rates => rates.iter().copied().map(Some).collect(),
        };
        let topology = Directory::connect(dir)?.config.topology;
        let mut bars = Bars::new(Interrupt::listen()?);
        let mut exit = Exit::Ok;
        let beside = neighbours::Running::start(self.neighbours)?;
        for (i, rate) in rates.into_iter().enumerate() {
            let (warm_up, seed) = (self.warmup, self.seed.unwrap_or_else(bench::any_seed));
            let (sessions, read_mode) = (self.sessions, ReadMode::default());
            let terms = Terms { warm_up, duration, sessions, rate, read_mode, seed };
            let mut drill = Drill::new(dir, topology, &self.kill, warm_up, &mut bars)?;
            let mut report = measure(Round { terms, first: i == 0 }, &mut drill)?;
            report.events = drill.end()?;
            report.neighbours = self.neighbours;
            bars.end();
            if self.print(&report)? != Exit::Ok {
                exit = Exit::No;
            }
            if report.ended_early.is_some() {
                break;
            }
        }
        beside.end()?;
        let diverged = nodes::divergences(dir);
        for line in &diverged {
            tell(format_args!(
                "skein: replicas have diverged, and the numbers mean nothing: {line}"
            ));
        }
        Ok(if diverged.is_empty() { exit } else { Exit::No })
    }

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
