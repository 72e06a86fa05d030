//! The calling side.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use skein_cluster::directory::Directory;

use super::{Action, Problem, Response, VERSION};
use crate::socket;
use crate::status::NodeStatus;

/// Larger than any response of ours.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Why a node did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It does not listen: not running, or not yet.
    #[error("cannot connect to {}: {source}", path.display())]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It cannot answer.
    #[error("process {pid} is paused: `skein admin kill {node} --signal CONT` lets it go on")]
    Paused {
        /// The node.
        node: u16,
        /// Its process.
        pid: u32,
    },
    /// It listens and does not answer in time, or breaks off.
    #[error("no answer from {}: {source}", path.display())]
    Silent {
        /// Its socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// What it said is not of this version.
    #[error("{} answered something else than version {VERSION} of the admin interface: {why}", path.display())]
    Strange {
        /// Its socket.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// It said no.
    #[error(transparent)]
    Refused(#[from] Problem),
}

/// Asks `node` of the cluster in `directory`, and waits for the answer no longer than `longest`.
pub fn call(
    directory: &Directory,
    node: u16,
    action: Action,
    longest: Duration,
) -> Result<NodeStatus, CallError> {
    let path = directory.socket(node);
    let mut stream = socket::connect(&path)
        .map_err(|source| CallError::Unreachable { path: path.clone(), source })?;
    let silent = |source: io::Error| {
        let late = source.kind() == io::ErrorKind::WouldBlock;
        let source = if late { io::ErrorKind::TimedOut.into() } else { source };
        CallError::Silent { path: path.clone(), source }
    };
    let longest = Some(longest.max(Duration::from_millis(1)));
    stream.set_read_timeout(longest).map_err(silent)?;
    stream.set_write_timeout(longest).map_err(silent)?;
    let mut request = serde_json::to_value(&action).expect("actions are JSON objects");
    request["v"] = VERSION.into();
    stream.write_all(format!("{request}\n").as_bytes()).map_err(silent)?;
    let mut line = String::new();
    BufReader::new(stream.take(RESPONSE_BYTES_MAX)).read_line(&mut line).map_err(silent)?;
    if line.is_empty() {
        return Err(silent(io::ErrorKind::UnexpectedEof.into()));
    }
    let strange = |why: String| CallError::Strange { path: path.clone(), why };
    let mut value: serde_json::Value =
        serde_json::from_str(&line).map_err(|error| strange(error.to_string()))?;
    let version = value.as_object_mut().and_then(|fields| fields.remove("v"));
    if version != Some(VERSION.into()) {
        return Err(strange(format!("its version is {version:?}")));
    }
    match serde_json::from_value(value).map_err(|error| strange(error.to_string()))? {
        Response::Ok(status) => Ok(*status),
        Response::Error(problem) => Err(problem.into()),
    }
}

/// What `node` is doing.
pub fn status(directory: &Directory, node: u16) -> Result<NodeStatus, CallError> {
    if let Some(pid) = directory.node(node).map(|holder| holder.pid).filter(|pid| is_paused(*pid)) {
        return Err(CallError::Paused { node, pid });
    }
    call(directory, node, Action::Status, Duration::from_secs(4))
}

/// Whether the process has been stopped by a signal, each thread of it, as far as the system says.
pub fn is_paused(pid: u32) -> bool {
    let stands_still = |thread: io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
        // The state comes after the name, which ends with the last parenthesis.
        stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.is_ok_and(|mut threads| threads.all(stands_still))
}
