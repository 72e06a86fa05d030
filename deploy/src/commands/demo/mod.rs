//! `skein demo`: starts a cluster, loads it, kills a leader, checks the results, and stops the
//! cluster.

mod failover;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use skein_checker::chart::{Paint, grouped};
use skein_client::ReadMode;
use skein_cluster::config::ClusterConfig;
use skein_node::nodes;
use skein_workloads::bench::{self, BankPlan, Terms, YcsbPlan};
use skein_workloads::mix::Mix;
use skein_workloads::report::Report;

use self::failover::{Failover, Killer};
use crate::args::Global;
use crate::exit::Exit;
use crate::own::Own;
use crate::progress::{Bars, Interrupt};

/// Prefix of the directories of demos in the temporary directory. A process id follows.
const DIR_PREFIX: &str = "skein-demo-";
const RECORDS: u64 = 100_000;
const CLIENTS: usize = 32;
const YCSB_FOR: Duration = Duration::from_secs(10);
const BANK_FOR: Duration = Duration::from_secs(5);
/// Time from the start of the bank workload to the kill of a leader.
const KILL_AFTER: Duration = Duration::from_secs(2);
const WARM_UP: Duration = Duration::from_secs(1);

/// Starts a cluster, loads it, measures it, kills a leader, checks it, and stops it: a minute at most
///
/// Three node processes on this machine, in a temporary directory of their own unless --dir names
/// one. While money moves, a node that leads a group is killed: another leads, and the killed one returns
/// without its state and receives it again. Nothing is left behind. Exits with 0 only if nothing was
/// wrong.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Prints one JSON object in place of the report
    #[arg(long)]
    json: bool,
}

/// The findings of the demo, for programs.
#[derive(Default, Serialize)]
struct Findings {
    good: bool,
    /// Whether it was interrupted before its end.
    interrupted: bool,
    /// Problems that are not in the reports.
    problems: Vec<String>,
    /// Time from the first process start until all nodes were ready.
    up_s: f64,
    /// Load, and workload a.
    ycsb: Option<Report>,
    bank: Option<Report>,
    /// Result of the kill of a leader during the bank workload.
    failover: Option<Failover>,
    /// Time until all nodes had ended and their files were removed.
    down_s: f64,
    /// Total time.
    total_s: f64,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let started = Instant::now();
        let interrupt = Interrupt::listen_and_stay()?;
        let show = Show { quiet: self.json, paint: Paint(std::io::stdout().is_terminal()) };
        let mut findings = Findings::default();
        let config = ClusterConfig::default();
        show.title(&config)?;

        let clock = Instant::now();
        let named = global.named_dir().cloned();
        let cluster = Own::start(DIR_PREFIX, named, config, global.verbose, None)?;
        findings.up_s = seconds(clock);
        let (dir, nodes) = (cluster.dir().to_owned(), cluster.pids());

        // From here on nothing returns before the cluster is stopped.
        let mut bars = Bars::new(interrupt.clone());
        let driven = show
            .up(&nodes, findings.up_s)
            .and_then(|()| drive(&dir, &mut bars, &interrupt, &show, &mut findings));
        bars.end();

        let clock = Instant::now();
        findings.problems.extend(driven.err().map(|error| format!("{error:#}")));
        findings.problems.extend(cluster.stop());
        findings.down_s = seconds(clock);
        findings.interrupted = interrupt.asked();
        let reports = [&findings.ycsb, &findings.bank];
        findings.good = findings.problems.is_empty()
            && !findings.interrupted
            && reports.iter().all(|report| report.as_ref().is_some_and(Report::is_good));
        findings.total_s = seconds(started);
        show.end(&findings, nodes.len())?;
        if self.json {
            crate::output::say(serde_json::to_string(&findings)? + "\n")?;
        }
        Ok(if findings.good { Exit::Ok } else { Exit::No })
    }
}

/// The steps between start and stop of the cluster.
fn drive(
    dir: &Path,
    bars: &mut Bars,
    interrupt: &Interrupt,
    show: &Show,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let mix = Mix::named('a').expect("a is a core workload");
    let ycsb = YcsbPlan {
        mix,
        distribution: mix.distribution,
        records: RECORDS,
        load: true,
        clients: CLIENTS,
        terms: Terms {
            warm_up: WARM_UP,
            duration: YCSB_FOR,
            sessions: None,
            rate: None,
            read_mode: ReadMode::default(),
            seed: bench::any_seed(),
        },
    };
    let report = super::bench::measure::ycsb(dir, &ycsb, None, bars)?;
    bars.end();
    show.loaded(&report)?;
    show.report("ycsb-a", "half reads, half updates", &report)?;
    let ended = report.ended_early.is_some();
    findings.ycsb = Some(report);
    if !ended {
        open_bank(dir, bars, show, findings)?;
    }
    if !interrupt.asked() {
        show.status(dir)?;
    }
    Ok(())
}

fn open_bank(
    dir: &Path,
    bars: &mut Bars,
    show: &Show,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let bank = BankPlan {
        hot: None,
        accounts: 128,
        clients: 16,
        readers: 4,
        terms: Terms {
            warm_up: Duration::ZERO,
            duration: BANK_FOR,
            sessions: None,
            rate: None,
            read_mode: ReadMode::default(),
            seed: bench::any_seed(),
        },
    };
    let topology = ClusterConfig::default().topology;
    let mut killer = Killer::new(dir, topology, KILL_AFTER, bars)?;
    let report = super::bench::measure::bank(dir, &bank, None, &mut killer)?;
    let (failover, problems) = killer.end(&report);
    bars.end();
    show.report("bank", "transfers across shards, and readers who add all up", &report)?;
    if let Some(failover) = &failover {
        show.failover(failover, &report)?;
    }
    findings.problems.extend(problems);
    findings.problems.extend(nodes::divergences(dir));
    (findings.bank, findings.failover) = (Some(report), failover);
    Ok(())
}

fn seconds(since: Instant) -> f64 {
    (since.elapsed().as_secs_f64() * 1e3).round() / 1e3
}

/// Progress of the demo, for people.
struct Show {
    quiet: bool,
    paint: Paint,
}

impl Show {
    fn say(&self, text: &str) -> anyhow::Result<()> {
        if !self.quiet {
            crate::output::say(text)?;
        }
        Ok(())
    }

    /// Prints one step: its name, and its result.
    fn step(&self, name: &str, what: &str) -> anyhow::Result<()> {
        let name = self.paint.strong(&format!("{name:<9}"));
        self.say(&format!("{name}{what}\n"))
    }

    fn title(&self, config: &ClusterConfig) -> anyhow::Result<()> {
        let topology = config.topology;
        let build = skein_cluster::BUILD.text();
        self.say(&format!(
            "skein {build}: {} nodes as processes of this machine, {} groups of {} replicas\n\n",
            topology.nodes, topology.groups, topology.replicas
        ))
    }

    fn up(&self, nodes: &[u32], took: f64) -> anyhow::Result<()> {
        let pids: Vec<_> = nodes.iter().map(u32::to_string).collect();
        self.step("up", &format!("ready after {took:.1} s, processes {}", pids.join(", ")))
    }

    fn loaded(&self, report: &Report) -> anyhow::Result<()> {
        let Some(load) = &report.load else { return Ok(()) };
        let (records, took) = (grouped(load.records), load.duration_s);
        self.step("load", &format!("{records} records of 1,000 bytes in {took:.1} s"))
    }

    fn report(&self, name: &str, about: &str, report: &Report) -> anyhow::Result<()> {
        self.step(name, about)?;
        let table = report.table(self.paint.0);
        // The first line of the table repeats what was just printed.
        let rest = table.split_once('\n').map_or("", |(_, rest)| rest);
        self.say(&format!("{rest}\n"))
    }

    fn failover(&self, failover: &Failover, report: &Report) -> anyhow::Result<()> {
        let Failover { node, led, killed_at_s, silent_ms, readmitted_s } = failover;
        let groups: Vec<_> = led.iter().map(|group| format!("g{group}")).collect();
        let led = groups.join(" and ");
        let again =
            readmitted_s.map_or("not again".to_owned(), |s| format!("again after {s:.1} s"));
        self.step(
            "kill",
            &format!(
                "node {node}, which led {led}, after {killed_at_s:.1} s: silence of {silent_ms} ms; \
                 a follower {again}, with a copy of the state"
            ),
        )?;
        self.say(&format!("\n{}\n", failover.picture(&report.timeline)))
    }

    fn status(&self, dir: &Path) -> anyhow::Result<()> {
        let picture = super::status::picture(dir)?;
        self.step("status", "what the nodes say of themselves")?;
        let mut text = String::new();
        for line in picture.lines() {
            let _ = writeln!(text, "{}", format!("  {line}").trim_end());
        }
        self.say(&format!("{text}\n"))
    }

    fn end(&self, findings: &Findings, nodes: usize) -> anyhow::Result<()> {
        let Findings { good, interrupted, problems, down_s, total_s, .. } = findings;
        self.step("down", &format!("{nodes} nodes stopped in {down_s:.1} s"))?;
        for problem in problems {
            self.say(&format!("  {}\n", self.paint.bad(problem)))?;
        }
        let verdict = match (good, problems.is_empty() && *interrupted) {
            (true, _) => self.paint.good("all was well, and nothing is left behind"),
            (_, true) => self.paint.bad("interrupted; nothing is left behind"),
            _ => self.paint.bad("something was wrong"),
        };
        self.say(&format!("\n{verdict} ({total_s:.0} s)\n"))
    }
}
