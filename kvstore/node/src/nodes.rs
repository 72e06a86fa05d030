//! The nodes of a cluster, seen from outside: their status, and how to stop them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use skein_cluster::directory::Directory;
use skein_multicast::operate::{Diverged, DivergenceStatus, ReplicaStatus};

use crate::admin::{self, Action, CallError};
use crate::status::NodeStatus;

/// Interval between checks whether something has ended.
const POLL: Duration = Duration::from_millis(5);
/// Time that a node may take to answer once the time to drain is over.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Time that a node may take to end when nothing is left to do.
const END_WITHIN: Duration = Duration::from_secs(3);
/// Time that the kernel may take to end a killed process: it has memory to free.
const KILL_WITHIN: Duration = Duration::from_secs(30);

/// A process that cannot be signalled, usually because it belongs to another user.
#[derive(Debug, thiserror::Error)]
#[error("cannot signal process {pid}")]
pub struct SignalError {
    pub pid: u32,
    pub source: io::Error,
}

/// Reasons for which nodes were not stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// A node cannot be signalled.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// A node was killed, and the kernel has not ended it in time.
    #[error("a node in {} has been killed and does not end", dir.display())]
    StillRuns {
        /// The cluster's directory.
        dir: PathBuf,
    },
}

/// Status of each node; all nodes are asked at once.
pub fn statuses(directory: &Directory, nodes: u16) -> Vec<Result<NodeStatus, CallError>> {
    ask(nodes, |node| admin::status(directory, node))
}

/// Diverged replicas, as the nodes of the cluster in `dir` report them, a line each. Measurements of such a cluster are
/// worthless. Nodes of other hosts are not asked.
pub fn divergences(dir: &Path) -> Vec<String> {
    let Ok(directory) = Directory::at(dir) else { return Vec::new() };
    let Ok(manifest) = directory.manifest() else { return Vec::new() };
    let answers = statuses(&directory, manifest.nodes);
    diverged(answers.iter().flatten())
}

/// Diverged replicas in these statuses, a line each.
fn diverged<'a>(statuses: impl IntoIterator<Item = &'a NodeStatus>) -> Vec<String> {
    let replicas = statuses
        .into_iter()
        .flat_map(|status| status.replicas.iter().map(|replica| (status.node, &replica.order)));
    let line = |(node, order): (u16, &ReplicaStatus)| {
        let DivergenceStatus { what, slots, position, recovered, .. } =
            order.divergence.as_ref()?;
        let (group, slot) = (order.group, order.slot);
        let names: Vec<_> = slots.iter().map(|slot| format!("g{group}.{slot}")).collect();
        let names = names.join(", ");
        let since = match (what, recovered) {
            (_, true) => "and received the state again",
            (Diverged::Own, false) => "and is receiving the state again",
            (Diverged::Others, false) => "as the others of the group report",
            (Diverged::All, false) => "and no state is held by f+1 of them: the group has stopped",
        };
        Some(format!(
            "n{node}: g{group}.{slot} reports that {names} diverged at position {position}, {since}"
        ))
    };
    replicas.filter_map(line).collect()
}

/// Calls `one` for each node, each on a thread of its own. Returns the answers in the order of the nodes.
///
/// # Panics
///
/// If `one` panics.
pub fn ask<T: Send>(nodes: u16, one: impl Fn(u16) -> T + Sync) -> Vec<T> {
    let one = &one;
    thread::scope(|scope| {
        let asked: Vec<_> = (0..nodes).map(|node| scope.spawn(move || one(node))).collect();
        asked.into_iter().map(|asked| asked.join().expect("asking does not panic")).collect()
    })
}

/// Number of keys that the answering nodes hold, each counted once: for each group, the count of the replica that has
/// delivered most.
pub fn keys<'a>(statuses: impl IntoIterator<Item = &'a NodeStatus>) -> u64 {
    let mut groups = BTreeMap::<u16, (u64, u64)>::new();
    for replica in statuses.into_iter().flat_map(|status| &status.replicas) {
        let furthest = groups.entry(replica.order.group).or_default();
        *furthest = (*furthest).max((replica.order.delivered, replica.keys));
    }
    groups.values().map(|(_, keys)| keys).sum()
}

/// Stops the running nodes: drains them together, then ends them, then kills those that do not end. `hurry` is polled.
/// If it returns true, draining is cut short, and then nodes that have not ended are killed at once.
///
/// # Errors
///
/// A node cannot be signalled, or a killed node does not end. Some nodes may still run then.
pub fn stop(
    directory: &Directory,
    nodes: u16,
    stop_within: Duration,
    hurry: &mut dyn FnMut() -> bool,
) -> Result<(), StopError> {
    let running = || (0..nodes).any(|node| directory.node_or_dying(node).is_some());
    if !running() {
        return Ok(());
    }
    // Together, because a node that has ended no longer acknowledges what another waits for.
    let (drained, draining) = channel();
    let asker = directory.clone();
    thread::spawn(move || {
        let longest = stop_within + ANSWER_WITHIN;
        let _ = ask(nodes, |node| admin::call(&asker, node, Action::Drain, longest));
        let _ = drained.send(());
    });
    while draining.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) && !hurry() && running() {}
    // Nodes that have drained do not drain again.
    let mut ending = signal_nodes(directory, nodes, Signal::TERM)?;
    let mut deadline = Instant::now() + END_WITHIN;
    let mut killed = false;
    while running() || !ending.iter().all(has_ended) {
        if !killed && (hurry() || Instant::now() >= deadline) {
            tracing::warn!("nodes that do not end are killed");
            ending.extend(signal_nodes(directory, nodes, Signal::KILL)?);
            (killed, deadline) = (true, Instant::now() + KILL_WITHIN);
        } else if killed && Instant::now() >= deadline {
            return Err(StopError::StillRuns { dir: directory.path().to_owned() });
        }
        thread::sleep(POLL);
    }
    Ok(())
}

fn signal_nodes(
    directory: &Directory,
    nodes: u16,
    signal: Signal,
) -> Result<Vec<OwnedFd>, SignalError> {
    let pid = |node| move || directory.node_or_dying(node).map(|holder| holder.pid);
    (0..nodes).filter_map(|node| signal_holder(pid(node), signal).transpose()).collect()
}

/// Signals the process that `holder` returns, if there is one, and no other process that may have got its number since.
/// Returns a handle of the process.
pub fn signal_holder(
    holder: impl Fn() -> Option<u32>,
    signal: Signal,
) -> Result<Option<OwnedFd>, SignalError> {
    let Some(pid) = holder() else { return Ok(None) };
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let told = match pidfd_open(number, PidfdFlags::empty()) {
        // The process still holds the file after the handle was opened, so the handle is the holder's.
        Ok(handle) if holder() == Some(pid) => {
            pidfd_send_signal(&handle, signal).map(|()| Some(handle))
        }
        Ok(_) => return Ok(None),
        Err(error) => Err(error),
    };
    match told {
        Err(Errno::SRCH) => Ok(None),
        Ok(handle) => Ok(handle),
        Err(error) => Err(SignalError { pid, source: error.into() }),
    }
}

/// Whether the whole process is gone, and with it everything that it held.
pub fn has_ended(process: &OwnedFd) -> bool {
    ends_within(process, Duration::ZERO)
}

/// Waits for the end of processes that have already released their locks, which the kernel does before a process has
/// ended.
pub fn await_end(ending: &[OwnedFd]) {
    for process in ending {
        ends_within(process, END_WITHIN);
    }
}

fn ends_within(process: &OwnedFd, within: Duration) -> bool {
    let within = Timespec::try_from(within).expect("a short time");
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&within)).is_ok_and(|ended| ended > 0)
}
