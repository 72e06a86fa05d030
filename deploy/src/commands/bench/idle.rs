//! `skein bench idle`: the processor time that a cluster uses while its sessions are idle.
//!
//! Measured as the run time of each thread in the kernel's scheduler (`/proc/PID/task/*/schedstat`,
//! in nanoseconds, system time included), over every process of the cluster on this host and this
//! process, which holds the sessions.

use std::fmt::Write as _;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Serialize;
use skein_checker::chart::Paint;
use skein_client::Client;
use skein_cluster::BUILD;
use skein_cluster::config::ClusterConfig;
use skein_cluster::directory::Directory;
use skein_multicast::config::Topology;
use skein_workloads::multicast::cores;
use skein_workloads::report::{Machine, date};

use super::{clients, seconds};
use crate::exit::{Exit, usage};
use crate::progress::{Bars, Interrupt};

/// How long all sessions put, one after the other, before they become idle.
const LOAD: Duration = Duration::from_secs(1);
/// Interval of checks for an interrupt: long, because a check takes processor time too.
const LOOK: Duration = Duration::from_millis(500);

/// Processor time that a cluster uses while its sessions are idle
///
/// The sessions put for one second in total, then all are idle. After --warmup the run time of each process of
/// the cluster on this host, and of this process, is counted. Nothing else should use the cluster.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Sessions, connected all the time
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clients)]
    sessions: usize,
    /// How long to count
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    duration: Duration,
    /// How long after the load counting begins
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    warmup: Duration,
    /// Prints one JSON object (docs/schema.md) in place of the table
    #[arg(long)]
    json: bool,
}

/// The result.
#[derive(Serialize)]
struct Report {
    workload: &'static str,
    sessions: usize,
    /// Percentage of one core, summed over all processes.
    percent_of_a_core: f64,
    processes: Vec<Process>,
    duration_s: f64,
    warmup_s: f64,
    ended_early: Option<&'static str>,
    skein: String,
    date: String,
    command: String,
    machine: Machine,
    cross_core_ns: Option<f64>,
    topology: Topology,
    durability: &'static str,
    store: &'static str,
}

/// The result of one process.
#[derive(Serialize)]
struct Process {
    role: String,
    pid: u32,
    /// Run time of its threads.
    ran_ms: f64,
    percent_of_a_core: f64,
}

impl Args {
    pub(super) fn run(&self, dir: &Path) -> anyhow::Result<Exit> {
        if self.duration.is_zero() {
            return Err(usage("--duration 0 measures nothing: give a number of seconds above 0"));
        }
        let config = Directory::connect(dir)?.config;
        let mut bars = Bars::new(Interrupt::listen()?);
        let cross_core_ns = cores::round_trip_ns();
        let report = self.measure(dir, &config, cross_core_ns, &mut bars)?;
        bars.end();
        if self.json {
            crate::output::say(serde_json::to_string(&report)? + "\n")?;
        } else {
            crate::output::say(report.table(std::io::stdout().is_terminal()))?;
        }
        Ok(if report.ended_early.is_none() { Exit::Ok } else { Exit::No })
    }

    fn measure(
        &self,
        dir: &Path,
        config: &ClusterConfig,
        cross_core_ns: Option<f64>,
        bars: &mut Bars,
    ) -> anyhow::Result<Report> {
        bars.message("connecting");
        let connect = |_| Client::connect(dir);
        let mut sessions = (0..self.sessions).map(connect).collect::<Result<Vec<_>, _>>()?;
        bars.message("putting");
        let begun = Instant::now();
        let key = |at: usize| format!("skein-bench-idle-{}-{at}", std::process::id());
        loop {
            for (at, session) in sessions.iter_mut().enumerate() {
                session.put(key(at), "x")?;
            }
            if begun.elapsed() >= LOAD || bars.asked() {
                break;
            }
        }
        for (at, session) in sessions.iter_mut().enumerate() {
            session.delete(key(at))?;
        }
        bars.message("resting");
        rest(self.warmup, bars);
        let members = members(dir, config.topology)?;
        let before = members.iter().map(Member::ran).collect::<anyhow::Result<Vec<_>>>()?;
        let begun = Instant::now();
        bars.message("counting");
        rest(self.duration, bars);
        let elapsed = begun.elapsed();
        let after = members.iter().map(Member::ran).collect::<anyhow::Result<Vec<_>>>()?;
        let percent = |ran: Duration| ran.as_secs_f64() / elapsed.as_secs_f64() * 100.0;
        let ran = || after.iter().zip(&before).map(|(after, before)| after.saturating_sub(*before));
        let processes = members.iter().zip(ran()).map(|(member, ran)| Process {
            role: member.role.clone(),
            pid: member.pid,
            ran_ms: ran.as_secs_f64() * 1e3,
            percent_of_a_core: percent(ran),
        });
        Ok(Report {
            workload: "idle",
            sessions: self.sessions,
            percent_of_a_core: percent(ran().sum()),
            processes: processes.collect(),
            duration_s: elapsed.as_secs_f64(),
            warmup_s: self.warmup.as_secs_f64(),
            ended_early: bars.asked().then_some("interrupted"),
            skein: BUILD.text().to_owned(),
            date: date::now(),
            command: date::command(),
            machine: Machine::here(),
            cross_core_ns,
            topology: config.topology,
            durability: config.durability.name(),
            store: config.store.name(),
        })
    }
}

/// Sleeps for `duration`, or until an interrupt.
fn rest(duration: Duration, bars: &Bars) {
    let until = Instant::now() + duration;
    while let Some(left) = until.checked_duration_since(Instant::now()).filter(|_| !bars.asked()) {
        thread::sleep(left.min(LOOK));
    }
}

/// A process whose run time is counted.
struct Member {
    role: String,
    pid: u32,
}

/// The nodes that run on this host, whoever supervises them, and this process.
fn members(dir: &Path, topology: Topology) -> anyhow::Result<Vec<Member>> {
    let directory = Directory::at(dir)?;
    let node = |node| Some((format!("node {node}"), directory.node(node)?.pid));
    let nodes: Vec<_> = (0..topology.nodes).filter_map(node).collect();
    if nodes.is_empty() {
        bail!("no node of this cluster runs on this host: run this where one does");
    }
    let supervisor = directory.supervisor().map(|it| ("supervisor".to_owned(), it.pid));
    let us = ("sessions".to_owned(), std::process::id());
    let all = nodes.into_iter().chain(supervisor).chain([us]);
    Ok(all.map(|(role, pid)| Member { role, pid }).collect())
}

impl Member {
    /// Run time of its threads.
    fn ran(&self) -> anyhow::Result<Duration> {
        let Self { role, pid } = self;
        let gone = || format!("{role}, process {pid}, has ended: nothing was measured");
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).with_context(gone)?;
        // A thread may end meanwhile.
        let stats =
            tasks.flatten().flat_map(|task| fs::read_to_string(task.path().join("schedstat")));
        let ran =
            stats.filter_map(|stat| stat.split(' ').next()?.parse().ok()).map(Duration::from_nanos);
        ran.reduce(|all, one| all + one).context(
            "this kernel does not report the run time of threads (/proc/PID/task/TID/schedstat)",
        )
    }
}

impl Report {
    /// The report for people.
    fn table(&self, colour: bool) -> String {
        let Self { sessions, duration_s, warmup_s, durability, store, .. } = self;
        let plural = if *sessions == 1 { "" } else { "s" };
        let mut text = format!(
            "idle: {sessions} session{plural}, {duration_s:.1} s, from {warmup_s} s after a load, durability \
             {durability}, store {store}\n\n"
        );
        for Process { role, pid, ran_ms, percent_of_a_core } in &self.processes {
            let line = format!("{role:<12}{pid:>9}{ran_ms:>10.1} ms{percent_of_a_core:>8.3} %");
            writeln!(text, "  {line}").expect("a string takes everything");
        }
        let all: f64 = self.processes.iter().map(|process| process.ran_ms).sum();
        let share = format!("{:.3} % of a core", self.percent_of_a_core);
        let share = Paint(colour).strong(&share);
        writeln!(text, "\n  in all {all:.1} ms, {share}").expect("a string takes everything");
        if let Some(why) = self.ended_early {
            writeln!(text, "  ended early: {why}").expect("a string takes everything");
        }
        text
    }
}
