//! Starts the node processes of a cluster and keeps them running.
//!
//! A dedicated thread sleeps until a process ends, an order arrives, or a process is due to be restarted. It starts the
//! processes itself, because a child may ask to end with the *thread* that created it. Nodes that other processes have
//! started are followed in the same way, but how they ended cannot be determined.
//!
//! A node is this program, called with the arguments `node --dir DIR --index N` and flags of `skein node`: the calling
//! program must have that subcommand.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use skein_cluster::directory::{Directory, DirectoryError};
use skein_multicast::operate::{Identity, Role};

use crate::admin::{self, Action};
use crate::status::ReplicaReport;

/// A node that ran for less than this has died soon after its start.
const AGAIN_WITHIN: Duration = Duration::from_secs(2);
/// Delay before a first restart: the other nodes may need the cores to elect a leader, and the host to clean up after
/// the node.
const DELAY_FIRST: Duration = Duration::from_millis(50);
/// Delay after the second quick death in a row. It doubles with each further one, up to `DELAY_MAX`.
const DELAY_MIN: Duration = Duration::from_millis(100);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Least delay of a restart if the cluster [returns](Plan::returns) when all nodes have ended. Processes that end for one
/// cause do not end at once: each has memory to free.
const DELAY_ALONE: Duration = Duration::from_millis(200);
/// Interval between checks whether a node has a state, and time that it may take to answer.
const STATE_POLL: Duration = Duration::from_millis(100);
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// Interval between checks of a node that cannot start because files of its directory are gone.
const DAMAGED_POLL: Duration = Duration::from_secs(1);
/// Number of such checks after which the problem is reported.
const DAMAGED_POLLS_TOLD: u32 = 4;

/// Exit code of a node that must not be restarted: bad usage.
const USAGE: i32 = 2;

/// Orders to the thread: a byte, and the number of a node in two more.
const RESTART: u8 = b'r';
const HOLD: u8 = b'h';
const START: u8 = b's';

/// How nodes are started.
#[derive(Clone, Debug)]
pub struct Plan {
    pub directory: Directory,
    pub nodes: u16,
    /// Nodes that are not to be started here: other hosts run them, or they lack data that a group needs.
    pub left_out: BTreeSet<u16>,
    /// Number of `-v` flags.
    pub verbose: u8,
    /// The nodes leave the terminal and outlive this process; otherwise they end with it.
    pub detached: bool,
    /// When no node is left that has a state, none is restarted by itself: the cluster first returns to a restore point.
    pub returns: bool,
    /// If given, each node runs in the network namespace whose name is this and the node's number.
    pub namespaces: Option<String>,
}

impl Plan {
    /// Whether the node is to be started here.
    fn starts(&self, node: u16) -> bool {
        !self.left_out.contains(&node) && !self.directory.was_stopped(node)
    }

    /// Whether no node runs, whoever has started it.
    fn none_runs(&self) -> bool {
        (0..self.nodes).all(|node| self.directory.node(node).is_none())
    }
}

/// The end of a node's process.
#[derive(Debug)]
pub struct Ended {
    pub node: u16,
    /// Text that follows the node's name.
    pub how: String,
    next: Next,
    /// Number of nodes that run or are due to start.
    pub left: usize,
}

/// What follows from the end of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Next {
    /// The node is restarted as this incarnation.
    Restart { incarnation: u32, delay: Duration },
    /// Another process has started the node.
    Taken { pid: u32 },
    /// The node is not restarted now, for this reason.
    Stays(String),
}

impl fmt::Display for Ended {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, how, next, .. } = self;
        write!(f, "node {node} {how}")?;
        match next {
            Next::Restart { incarnation, delay } if *delay == DELAY_FIRST => {
                write!(f, "; it starts again, as incarnation {incarnation}")
            }
            Next::Restart { incarnation, delay } => {
                write!(
                    f,
                    "; it starts again in {} ms, as incarnation {incarnation}",
                    delay.as_millis()
                )
            }
            Next::Taken { pid } => write!(f, "; process {pid} runs it now, started by another"),
            Next::Stays(why) => write!(f, "; {why}"),
        }
    }
}

/// Errors of a supervisor.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SuperviseError {
    /// The supervisor did not start, and no node was started.
    #[error("cannot {attempt}")]
    NoSupervisor {
        /// Step that failed.
        attempt: &'static str,
        source: io::Error,
    },
    /// A node did not start. Once [`Supervisor::restart`] has been called, it is tried again.
    #[error("cannot {attempt}")]
    NotStarted {
        /// Step that failed, and its node.
        attempt: String,
        source: io::Error,
    },
    /// A node that has died waits until its files are repaired, and is started then.
    #[error("node {node} is not started: {why}")]
    Damaged {
        node: u16,
        /// Error of the files, with the remedy.
        why: DirectoryError,
    },
    /// All nodes that had a state have ended, and with them those that had none yet. No node is started before the next
    /// [`Supervisor::restart`]: the plan says that the cluster [returns](Plan::returns) first.
    #[error("all nodes have ended")]
    AllEnded,
}

/// Starts nodes and keeps them running. Dropping it starts no more nodes, and waits for the nodes that end with this
/// process.
pub struct Supervisor {
    orders: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Supervisor {
    /// Starts every node that does not run, unless an operator has stopped it. Reports to `tell`, on the supervisor's
    /// thread, what becomes of the nodes. No node is restarted before [`restart`](Self::restart).
    ///
    /// # Errors
    ///
    /// Returns [`SuperviseError::NoSupervisor`]. The other errors concern single nodes, and are passed to `tell`.
    pub fn start(
        plan: Plan,
        tell: impl Fn(Result<Ended, SuperviseError>) + Send + 'static,
    ) -> Result<Self, SuperviseError> {
        let failed = |attempt| move |source| SuperviseError::NoSupervisor { attempt, source };
        let (orders, ours) = UnixStream::pair().map_err(failed("make a socket"))?;
        let now = Instant::now();
        let founds = plan.none_runs();
        let fresh = |node| {
            let due = plan.starts(node).then_some(now);
            Watched {
                process: None,
                due,
                founds: founds && due.is_some(),
                has_state: false,
                since: now,
                again: 0,
                damaged_polls: 0,
            }
        };
        let nodes = (0..plan.nodes).map(fresh).collect();
        let tell = Box::new(tell);
        let mut crew = Crew { plan, nodes, restart: false, held: false, orders: ours, tell };
        let thread = thread::Builder::new().name("supervisor".into()).spawn(move || crew.run());
        let thread = thread.map_err(failed("start a thread"))?;
        Ok(Self { orders: Some(orders), thread: Some(thread) })
    }

    /// From now on, nodes that have died or die are restarted.
    pub fn restart(&self) {
        self.order(RESTART, 0);
    }

    /// From now on, no node is started. A node that was started a moment ago, and does not hold the lock yet by which
    /// other processes could find it, is killed. Both are done when this returns.
    pub fn hold(&self) {
        self.order(HOLD, 0);
    }

    /// Starts a node now, though nodes are not started by themselves. Does nothing if it runs.
    pub fn start_node(&self, node: u16) {
        self.order(START, node);
    }

    fn order(&self, order: u8, node: u16) {
        let Some(mut orders) = self.orders.as_ref() else { return };
        let [low, high] = node.to_le_bytes();
        // The thread answers when it is done. If it has ended, it starts no node either.
        if orders.write_all(&[order, low, high]).is_ok() {
            let _ = orders.read(&mut [0]);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the supervisor's thread.
struct Crew {
    plan: Plan,
    nodes: Vec<Watched>,
    restart: bool,
    /// The last order was to hold.
    held: bool,
    orders: UnixStream,
    tell: Box<dyn Fn(Result<Ended, SuperviseError>) + Send>,
}

/// State of one node.
struct Watched {
    process: Option<Process>,
    /// Time of the next start, if one is due.
    due: Option<Instant>,
    /// Its next start is one of the cluster, with the state that this begins with.
    founds: bool,
    /// It began with a state, or was seen to have received one.
    has_state: bool,
    /// Time of the last start.
    since: Instant,
    /// Number of times in a row that it died soon after its start.
    again: u32,
    /// Number of times in a row that its files were found damaged.
    damaged_polls: u32,
}

struct Process {
    pid: u32,
    /// A process id could come to mean another process.
    handle: OwnedFd,
    /// `None` if another process has started it.
    child: Option<Child>,
}

impl Crew {
    fn run(&mut self) {
        loop {
            self.start_due();
            let (ordered, ended) = self.wait();
            for node in ended {
                self.ended(node);
            }
            if ordered && !self.obey() {
                break;
            }
        }
        if self.plan.detached {
            return;
        }
        // They would be signalled when this thread ends; they are signalled now, and may take their time.
        let processes = self.nodes.iter_mut().filter_map(|watched| watched.process.take());
        let mut ours: Vec<_> = processes.filter(|process| process.child.is_some()).collect();
        for process in &ours {
            let _ = pidfd_send_signal(&process.handle, Signal::TERM);
        }
        for child in ours.iter_mut().filter_map(|process| process.child.as_mut()) {
            let _ = child.wait();
        }
    }

    /// Sleeps until something happens. Returns whether there is an order, and which nodes have ended.
    fn wait(&self) -> (bool, Vec<usize>) {
        let due = self.nodes.iter().filter_map(|watched| watched.due).min();
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec::try_from(left).unwrap_or_default()
        });
        let nodes = self.nodes.iter().enumerate();
        let followed: Vec<(usize, BorrowedFd<'_>)> = nodes
            .filter_map(|(i, node)| Some((i, node.process.as_ref()?.handle.as_fd())))
            .collect();
        let mut fds = vec![PollFd::from_borrowed_fd(self.orders.as_fd(), PollFlags::IN)];
        fds.extend(followed.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for nodes to end");
                thread::sleep(DELAY_MIN);
            }
        }
        let happened: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let ended = followed.iter().zip(&happened[1..]).filter(|(_, happened)| **happened);
        (happened[0], ended.map(|((node, _), _)| *node).collect())
    }

    /// Executes an order. Returns false if no supervisor is left to send another.
    fn obey(&mut self) -> bool {
        let mut order = [0; 3];
        if self.orders.read_exact(&mut order).is_err() {
            return false;
        }
        let [order, low, high] = order;
        if order == START {
            let node = u16::from_le_bytes([low, high]);
            let watched = &mut self.nodes[usize::from(node)];
            if watched.process.is_none() && self.plan.starts(node) {
                watched.due = Some(Instant::now());
            }
            return self.orders.write_all(&[order]).is_ok();
        }
        self.restart = order == RESTART;
        let all_ended = self.nodes.iter().all(|watched| watched.process.is_none());
        // A cluster whose nodes have all ended is held, and returns meanwhile.
        let founds = self.held && self.restart && all_ended && self.plan.none_runs();
        self.held = !self.restart;
        for (node, watched) in (0..).zip(&mut self.nodes) {
            (watched.due, watched.founds) = (None, false);
            match &mut watched.process {
                None if self.restart && self.plan.starts(node) => {
                    (watched.due, watched.founds) = (Some(Instant::now()), founds);
                }
                Some(Process { pid, child: Some(child), .. }) if !self.restart => {
                    let found = self.plan.directory.node(node);
                    if found.is_none_or(|holder| holder.pid != *pid) {
                        let _ = child.kill().and_then(|()| child.wait());
                        watched.process = None;
                    }
                }
                _ => {}
            }
        }
        self.orders.write_all(&[order]).is_ok()
    }

    fn start_due(&mut self) {
        let now = Instant::now();
        let is_due = |watched: &Watched| watched.due.is_some_and(|due| due <= now);
        if self.plan.returns && self.restart && self.nodes.iter().any(is_due) {
            match self.any_has_state() {
                Some(true) => {}
                Some(false) => return self.all_ended(),
                None => {
                    let later = Instant::now() + STATE_POLL;
                    for due in self.nodes.iter_mut().filter_map(|it| it.due.as_mut()) {
                        *due = later.max(*due);
                    }
                    return;
                }
            }
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].due.is_some_and(|due| due <= now) {
                self.start(node);
            }
        }
    }

    /// Whether a node has a state, or begins with one. A node that is started alone receives it from the others, and has none
    /// if they end before. `None` while that cannot be told.
    fn any_has_state(&mut self) -> Option<bool> {
        if self.nodes.iter().any(|it| it.has_state || it.founds) {
            return Some(true);
        }
        let mut unknown = false;
        for (node, watched) in (0..).zip(&mut self.nodes) {
            if watched.process.is_none() {
                // Somebody may have started it.
                if self.plan.directory.node(node).is_some() {
                    return Some(true);
                }
                continue;
            }
            match admin::call(&self.plan.directory, node, Action::Status, ANSWER_WITHIN) {
                Ok(status) => {
                    let has_none = |replica: &ReplicaReport| replica.order.role == Role::Learner;
                    watched.has_state = !status.replicas.iter().all(has_none);
                }
                Err(_) => unknown = true,
            }
            if watched.has_state {
                return Some(true);
            }
        }
        (!unknown).then_some(false)
    }

    /// Ends the nodes that wait in vain for a state, and says that no node is left.
    fn all_ended(&mut self) {
        for watched in &mut self.nodes {
            watched.due = None;
            if let Some(mut child) = watched.process.take().and_then(|process| process.child) {
                let _ = child.kill().and_then(|()| child.wait());
            }
        }
        (self.tell)(Err(SuperviseError::AllEnded));
    }

    fn start(&mut self, node: usize) {
        let number = node as u16;
        let process = match self.adopt(number) {
            Some(process) => Ok(process),
            None => match self.waits_for_its_files(number) {
                Some(why) => {
                    let watched = &mut self.nodes[node];
                    watched.due = Some(Instant::now() + DAMAGED_POLL);
                    watched.damaged_polls += 1;
                    // A file that is only missing is created again before that.
                    if watched.damaged_polls == DAMAGED_POLLS_TOLD {
                        (self.tell)(Err(SuperviseError::Damaged { node: number, why }));
                    }
                    return;
                }
                None => self.spawn(number),
            },
        };
        let watched = &mut self.nodes[node];
        (watched.since, watched.damaged_polls) = (Instant::now(), 0);
        match process {
            Ok(process) => {
                // What another process has started is not judged.
                watched.has_state = mem::take(&mut watched.founds) || process.child.is_none();
                watched.process = Some(process);
                watched.due = None;
            }
            Err(error) => {
                watched.again += 1;
                watched.due = self.restart.then(|| Instant::now() + delay(watched.again));
                (self.tell)(Err(error));
            }
        }
    }

    /// The error that keeps the node from starting until its files are mended, once nodes are restarted.
    fn waits_for_its_files(&self, node: u16) -> Option<DirectoryError> {
        self.next_incarnation(node).err().filter(|_| self.restart)
    }

    /// Number of the node's next incarnation, unless it must not start: its count is damaged, or others have refused it.
    fn next_incarnation(&self, node: u16) -> Result<u32, DirectoryError> {
        self.plan.directory.check_refused(node)?;
        self.plan.directory.incarnations(node)
    }

    /// Follows the process that already runs the node.
    fn adopt(&self, node: u16) -> Option<Process> {
        let pid = self.plan.directory.node(node)?.pid;
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let handle = pidfd_open(number, PidfdFlags::empty()).ok()?;
        // The process still holds the node after the handle was opened, so the handle is the holder's.
        let holds = self.plan.directory.node(node).is_some_and(|holder| holder.pid == pid);
        holds.then_some(Process { pid, handle, child: None })
    }

    fn spawn(&self, node: u16) -> Result<Process, SuperviseError> {
        let failed = |attempt| move |source| SuperviseError::NotStarted { attempt, source };
        let command = self.command(node).map_err(failed("find this program".to_owned()));
        let mut child = command?.spawn().map_err(failed(format!("start node {node}")))?;
        let pid = child.id();
        // The child has not been waited for, so the number is still its own.
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a child's number");
        match pidfd_open(number, PidfdFlags::empty()) {
            Ok(handle) => Ok(Process { pid, handle, child: Some(child) }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed(format!("follow node {node}"))(error.into()))
            }
        }
    }

    fn command(&self, node: u16) -> io::Result<Command> {
        let Plan { directory, verbose, detached, namespaces, .. } = &self.plan;
        // The node writes this file itself. What is printed when the node dies goes there too. If the file cannot be
        // written, the node starts nevertheless.
        let mut options = OpenOptions::new();
        let log = options.create(true).append(true).mode(0o600).open(directory.log(node));
        let log = log.map_or_else(|_| Stdio::null(), Stdio::from);
        let us = std::env::current_exe()?;
        let mut command = match namespaces {
            None => Command::new(us),
            // `ip` becomes the node: the process is the same.
            Some(prefix) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &format!("{prefix}{node}")]).arg(us);
                command
            }
        };
        command.arg("node").arg("--dir").arg(directory.path());
        command.arg("--index").arg(node.to_string()).arg("--log-file");
        command.args((0..*verbose).map(|_| "-v"));
        if *detached {
            command.arg("--detached");
        } else {
            command.arg("--with-parent").arg(std::process::id().to_string());
            // Ctrl-C is for this process, which stops the nodes in an orderly way.
            command.process_group(0);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    fn ended(&mut self, node: usize) {
        let number = node as u16;
        let Some(process) = self.nodes[node].process.take() else { return };
        let mut refused = false;
        let how = match process.child {
            Some(mut child) => {
                let status = child.wait();
                let code = status.as_ref().ok().and_then(ExitStatus::code);
                refused = code == Some(USAGE);
                let mut how = how(status);
                // The node's log is in the same directory, and cannot report it.
                if code.is_some_and(|code| code != 0)
                    && let Some(error) = self.plan.directory.unwritable()
                {
                    let _ =
                        write!(how, ": {error}, and a start that is not written down may not be");
                }
                how
            }
            None => "has ended; how is known only to the process that had started it".into(),
        };
        let taken = self.adopt(number);
        let incarnations = self.next_incarnation(number);
        let watched = &mut self.nodes[node];
        watched.has_state = taken.is_some();
        watched.again = if watched.since.elapsed() < AGAIN_WITHIN { watched.again + 1 } else { 0 };
        let next = match (taken, incarnations) {
            (Some(process), _) => {
                let pid = process.pid;
                (watched.process, watched.since) = (Some(process), Instant::now());
                Next::Taken { pid }
            }
            _ if refused => Next::Stays(
                "it does not belong here, as its log says, and is not started again".into(),
            ),
            _ if !self.restart => Next::Stays("it is not started again".into()),
            _ if self.plan.directory.was_stopped(number) => {
                Next::Stays("it was told to stop, and is not started again".into())
            }
            (None, Ok(incarnations)) if incarnations >= Identity::INCARNATIONS_MAX => {
                Next::Stays("it cannot be started again: its incarnations are used up".into())
            }
            (None, Ok(incarnation)) => {
                let least = if self.plan.returns { DELAY_ALONE } else { DELAY_FIRST };
                let delay = delay(watched.again).max(least);
                watched.due = Some(Instant::now() + delay);
                Next::Restart { incarnation, delay }
            }
            (None, Err(error)) => {
                watched.due = Some(Instant::now() + DAMAGED_POLL);
                Next::Stays(format!("it is started again when this is mended: {error}"))
            }
        };
        let busy = |watched: &&Watched| watched.process.is_some() || watched.due.is_some();
        let left = self.nodes.iter().filter(busy).count();
        (self.tell)(Ok(Ended { node: number, how, next, left }));
    }
}

/// Delay before the restart of a node that has died this often in a row, each time soon after its start.
fn delay(again: u32) -> Duration {
    match again.checked_sub(2) {
        None => DELAY_FIRST,
        Some(doublings) => DELAY_MIN.saturating_mul(1 << doublings.min(16)).min(DELAY_MAX),
    }
}

fn how(status: io::Result<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        Ok((Some(0), _)) => "has ended in an orderly way".into(),
        Ok((Some(code), _)) => format!("has ended with exit code {code}"),
        Ok((None, Some(signal))) => match signal_hook::low_level::signal_name(signal) {
            Some(name) => format!("was killed by signal {signal} ({name})"),
            None => format!("was killed by signal {signal}"),
        },
        _ => "has ended".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_dies_again_and_again_waits_longer_each_time() {
        let delays: Vec<u128> = (0..10).map(|again| delay(again).as_millis()).collect();
        assert_eq!(delays, [50, 50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(delay(u32::MAX), DELAY_MAX);
    }
}
