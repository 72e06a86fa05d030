//! Kills of leaders at given times of a load.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use skein_cluster::directory::{Directory, DirectoryError};
use skein_multicast::config::Topology;
use skein_node::nodes::SignalError;

use crate::bench::{Phase, Watch};
use crate::chaos::processes::Processes;
use crate::generator::Progress;
use crate::report::Event;

/// Interval of checks whether the load has ended early.
const POLL: Duration = Duration::from_millis(50);

/// Reasons for which a leader was not killed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// No node that answers leads a group.
    #[error("no group has a leader that could be killed")]
    NoLeader,
    /// The leader cannot be signalled.
    #[error(transparent)]
    Signal(#[from] SignalError),
}

/// Observes a load, and kills the node that leads most groups at given times.
pub struct Drill<'a, W> {
    watch: &'a mut W,
    /// Taken when the load begins to run.
    plan: Option<Plan>,
    killer: Option<JoinHandle<Result<Vec<Killed>, DrillError>>>,
    warm_up: Duration,
    /// When the load began to run.
    began: Option<Instant>,
    over: Arc<AtomicBool>,
}

struct Plan {
    processes: Processes,
    topology: Topology,
    /// Since the load began to run.
    times: Vec<Duration>,
}

struct Killed {
    at: Instant,
    node: u16,
    led: Vec<u16>,
}

impl<'a, W: Watch> Drill<'a, W> {
    /// Will kill nodes of the cluster in `dir` at `kills` after the start of the measurement.
    /// Forwards all calls to `watch`.
    ///
    /// # Errors
    ///
    /// `dir` is not the directory of a cluster.
    pub fn new(
        dir: &Path,
        topology: Topology,
        kills: &[Duration],
        warm_up: Duration,
        watch: &'a mut W,
    ) -> Result<Self, DirectoryError> {
        let mut times: Vec<_> = kills.iter().map(|kill| warm_up + *kill).collect();
        times.sort_unstable();
        let processes = Processes::new(Directory::at(dir)?, topology);
        let plan = (!times.is_empty()).then_some(Plan { processes, topology, times });
        let over = Arc::default();
        Ok(Self { watch, plan, killer: None, warm_up, began: None, over })
    }

    /// Ends the drill after the load. Returns the kills.
    ///
    /// # Errors
    ///
    /// A leader was not killed, nor were those after it.
    pub fn end(self) -> Result<Vec<Event>, DrillError> {
        self.over.store(true, Ordering::Relaxed);
        let Some(killer) = self.killer else { return Ok(Vec::new()) };
        let killed = killer.join().expect("killing does not panic")?;
        let event = |Killed { at, node, led }| {
            let began = self.began.unwrap_or(at) + self.warm_up;
            let at_s = at.saturating_duration_since(began).as_micros() as f64 / 1e6;
            Event { at_s, what: "kill", nodes: vec![node], led }
        };
        Ok(killed.into_iter().map(event).collect())
    }
}

impl<W: Watch> Watch for Drill<'_, W> {
    fn begin(&mut self, phase: Phase) {
        if let Phase::Run(_) = phase
            && let Some(plan) = self.plan.take()
        {
            let over = Arc::clone(&self.over);
            self.killer = Some(thread::spawn(move || plan.carry_out(Instant::now(), &over)));
        }
        self.watch.begin(phase);
    }

    fn progress(&mut self, progress: Progress) -> bool {
        if self.killer.is_some() {
            self.began = self.began.or_else(|| Instant::now().checked_sub(progress.elapsed));
        }
        self.watch.progress(progress)
    }
}

impl Plan {
    fn carry_out(mut self, began: Instant, over: &AtomicBool) -> Result<Vec<Killed>, DrillError> {
        let mut killed = Vec::new();
        for time in std::mem::take(&mut self.times) {
            while let Some(left) = (began + time).checked_duration_since(Instant::now()) {
                if over.load(Ordering::Relaxed) {
                    return Ok(killed);
                }
                thread::sleep(left.min(POLL));
            }
            let seen = self.processes.look();
            let leaders = seen.view(self.topology, &BTreeSet::new()).leaders;
            let leads =
                |node: &u16| leaders.iter().filter(|leader| **leader == Some(*node)).count();
            let node = (0..self.topology.nodes).rev().max_by_key(leads);
            let Some(node) = node.filter(|node| leads(node) > 0) else {
                return Err(DrillError::NoLeader);
            };
            let at = Instant::now();
            self.processes.signal(&[node], Signal::KILL)?;
            killed.push(Killed { at, node, led: seen.led_by(node) });
        }
        Ok(killed)
    }
}
