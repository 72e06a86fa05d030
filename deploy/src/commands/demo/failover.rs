//! Kills a leader during a load, and measures the silence that clients noticed and the time to full
//! recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;
use serde::Serialize;
use skein_checker::chart;
use skein_cluster::directory::Directory;
use skein_multicast::config::Topology;
use skein_workloads::bench::{Phase, Watch};
use skein_workloads::chaos::processes::{Incarnations, Processes};
use skein_workloads::generator::Progress;
use skein_workloads::report::{Report, Timeline};

/// How long a node may take from its death until its replicas are followers again.
const READMITTED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// Period shown around the kill.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(1);
const WIDTH: usize = 75;

/// The result of a kill.
#[derive(Debug, Serialize)]
pub(super) struct Failover {
    /// The node that was killed.
    pub(super) node: u16,
    /// The groups that it led.
    pub(super) led: Vec<u16>,
    /// Time of the kill since the load began.
    pub(super) killed_at_s: f64,
    /// Time without any answer after the kill, at the resolution of the timeline.
    pub(super) silent_ms: u64,
    /// Time until its replicas, in a new process that started without their state, were followers
    /// again.
    pub(super) readmitted_s: Option<f64>,
}

/// Watches a load, and kills a leader some time after its start.
pub(super) struct Killer<'a, W> {
    watch: &'a mut W,
    /// Taken by the thread that waits for the node's recovery.
    processes: Option<Processes>,
    incarnations: Incarnations,
    victim: u16,
    led: Vec<u16>,
    pid: u32,
    after: Duration,
    killed: Option<Killed>,
    problem: Option<String>,
}

struct Killed {
    /// Time since the load began.
    at: Duration,
    /// Returns the time to recovery, or `None` after a timeout.
    well_after: JoinHandle<Option<Duration>>,
}

impl<'a, W: Watch> Killer<'a, W> {
    /// Will kill the node that leads group 0, at `after` since the load's start.
    pub(super) fn new(
        dir: &Path,
        topology: Topology,
        after: Duration,
        watch: &'a mut W,
    ) -> anyhow::Result<Self> {
        let directory = Directory::at(dir)?;
        let incarnations = Incarnations::of(&directory, topology.nodes);
        let processes = Processes::new(directory, topology);
        let seen = processes.look();
        let view = seen.view(topology, &BTreeSet::new());
        let Some(Some(victim)) = view.leaders.first().copied() else {
            bail!("group 0 has no leader that could be killed");
        };
        let pid = processes.pid(victim).context("the leader of group 0 does not run")?;
        let led = seen.led_by(victim);
        let processes = Some(processes);
        Ok(Self {
            watch,
            processes,
            incarnations,
            victim,
            led,
            pid,
            after,
            killed: None,
            problem: None,
        })
    }

    /// Waits for the node's recovery. Returns the result of the kill, and the problems.
    pub(super) fn end(self, report: &Report) -> (Option<Failover>, Vec<String>) {
        let mut problems: Vec<String> = self.problem.into_iter().collect();
        let Some(Killed { at, well_after }) = self.killed else { return (None, problems) };
        let node = self.victim;
        let well_after = well_after.join().expect("waiting does not panic");
        if well_after.is_none() {
            let within = READMITTED_WITHIN.as_secs();
            problems.push(format!("node {node} was killed, and is no follower {within} s later"));
        }
        problems.extend(self.incarnations.unexpected(&BTreeMap::from([(node, 1)])));
        let failover = Failover {
            node,
            led: self.led,
            killed_at_s: millis(at) as f64 / 1e3,
            silent_ms: silence(&report.timeline, at),
            readmitted_s: well_after.map(|time| millis(time) as f64 / 1e3),
        };
        (Some(failover), problems)
    }
}

impl<W: Watch> Watch for Killer<'_, W> {
    fn begin(&mut self, phase: Phase) {
        self.watch.begin(phase);
    }

    fn progress(&mut self, progress: Progress) -> bool {
        if let Some(mut processes) = self.processes.take_if(|_| progress.elapsed >= self.after) {
            let (node, killed) = (self.victim, self.pid);
            match processes.signal(&[node], Signal::KILL) {
                Ok(_) => {
                    let at = progress.elapsed;
                    let well_after = thread::spawn(move || wait(&processes, node, killed));
                    self.killed = Some(Killed { at, well_after });
                }
                Err(error) => self.problem = Some(format!("{:#}", anyhow::Error::new(error))),
            }
        }
        self.watch.progress(progress)
    }
}

/// Waits until the node has recovered in another process. Returns the time that took.
fn wait(processes: &Processes, node: u16, killed: u32) -> Option<Duration> {
    let since = Instant::now();
    while since.elapsed() < READMITTED_WITHIN {
        thread::sleep(POLL);
        let seen = processes.look();
        if seen.pid(node).is_some_and(|pid| pid != killed) && seen.is_well(node) {
            return Some(since.elapsed());
        }
    }
    None
}

impl Failover {
    /// Throughput around the kill, with a mark at the kill.
    pub(super) fn picture(&self, timeline: &Timeline) -> String {
        let interval = timeline.interval_ms;
        let at = (chart::whole(self.killed_at_s * 1e3) / interval) as usize;
        let from = at.saturating_sub((millis(BEFORE) / interval) as usize);
        let to = at + (millis(AFTER) / interval) as usize;
        let ops = timeline.ops.get(from..to.min(timeline.ops.len())).unwrap_or_default();
        let rates: Vec<u64> = ops.iter().map(|ops| ops * 1_000 / interval).collect();
        let ends = [-(BEFORE.as_secs_f64()), AFTER.as_secs_f64()].map(|s| format!("{s:+.1} s"));
        chart::timeline(&rates, &[at - from], [WIDTH, 5], [&ends[0], &ends[1]])
    }
}

/// The longest time after `at` without any answer, in milliseconds.
fn silence(timeline: &Timeline, at: Duration) -> u64 {
    let from = (millis(at) / timeline.interval_ms) as usize;
    let to = from + (millis(AFTER) / timeline.interval_ms) as usize;
    let ops = timeline.ops.get(from..to.min(timeline.ops.len())).unwrap_or_default();
    let longest = ops.split(|ops| *ops > 0).map(<[u64]>::len).max().unwrap_or(0);
    longest as u64 * timeline.interval_ms
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_the_longest_gap_after_the_kill() {
        let mut ops = vec![7; 400];
        ops[100..110].fill(0); // Before the kill.
        ops[202..205].fill(0);
        ops[207] = 0;
        let timeline = Timeline { interval_ms: 10, ops, worst_us: Vec::new() };
        assert_eq!(silence(&timeline, Duration::from_secs(2)), 30);
        let failover =
            Failover { node: 0, led: vec![0], killed_at_s: 2.0, silent_ms: 30, readmitted_s: None };
        let picture = failover.picture(&timeline);
        assert_eq!(picture.matches('▲').count(), 1, "{picture}");
        assert!(picture.lines().all(|line| line.chars().count() <= WIDTH + 12), "{picture}");
    }
}
