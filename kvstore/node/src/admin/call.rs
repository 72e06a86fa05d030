//! The calling side of the admin interface.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use skein_cluster::directory::Directory;

use super::{Action, Problem, Response, VERSION};
use crate::socket;
use crate::status::NodeStatus;

/// Larger than any response of a node.
const RESPONSE_BYTES_MAX: u64 = 1 << 20;

/// Reasons why a node did not carry out an action.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The node does not listen: it does not run, or has not started to listen yet.
    #[error("cannot connect to {}: {source}", path.display())]
    Unreachable {
        /// Path of the socket.
        path: PathBuf,
        source: io::Error,
    },
    /// The process cannot answer.
    #[error("process {pid} is paused: `skein admin kill {node} --signal CONT` resumes it")]
    Paused {
        node: u16,
        /// Process id.
        pid: u32,
    },
    /// The node listens, but does not answer in time or closes the connection.
    #[error("no answer from {}: {source}", path.display())]
    Silent {
        /// Path of the socket.
        path: PathBuf,
        source: io::Error,
    },
    /// The answer does not conform to this version of the interface.
    #[error("{} answered something else than version {VERSION} of the admin interface: {why}", path.display())]
    Strange {
        path: PathBuf,
        /// The defect of the answer.
        why: String,
    },
    /// The node refused the action.
    #[error(transparent)]
    Refused(#[from] Problem),
}

/// Sends `action` to `node` of the cluster in `directory`, and waits at most `longest` for the answer.
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

/// Status of `node`.
pub fn status(directory: &Directory, node: u16) -> Result<NodeStatus, CallError> {
    if let Some(pid) = directory.node(node).map(|holder| holder.pid).filter(|pid| is_paused(*pid)) {
        return Err(CallError::Paused { node, pid });
    }
    call(directory, node, Action::Status, Duration::from_secs(4))
}

/// Whether every thread of the process was stopped by a signal, according to `/proc`.
pub fn is_paused(pid: u32) -> bool {
    let stands_still = |thread: io::Result<std::fs::DirEntry>| {
        let stat = thread.and_then(|thread| std::fs::read_to_string(thread.path().join("stat")));
        // The state follows the name, which ends with the last parenthesis.
        stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
    };
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    threads.is_ok_and(|mut threads| threads.all(stands_still))
}
