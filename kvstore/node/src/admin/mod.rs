//! The admin interface of a node: a JSON object per line over a Unix socket (docs/admin.md).

mod call;
mod connection;
mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use skein_multicast::operate::{CommandError, Recreation};

pub use call::{CallError, call, is_paused, status};
pub(super) use server::{Answer, Server, Wanted};

use crate::status::NodeStatus;

/// Version of the interface.
pub const VERSION: u64 = 1;
/// Maximum length of a request in bytes, its newline included.
pub const REQUEST_BYTES_MAX: usize = 4 << 10;
/// Maximum number of connections. If another one arrives, the one that has been silent longest is closed.
pub const CONNECTIONS_MAX: usize = 64;

/// A request to a node. In JSON, `do` names the action, and its fields stand beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub enum Action {
    /// Report a [`NodeStatus`].
    Status,
    /// Report digests of what its replicas hold. Answered with a [`NodeStatus`] that contains them, once nothing has
    /// been delivered for long enough to compute them.
    Digest,
    /// Deliver all pending messages. Answered with a [`NodeStatus`] when nothing is pending or `node.stop_within_ms`
    /// has passed.
    Drain,
    /// Begin to close the cluster with a last restore point, behind which nothing is executed, if it has restore points.
    /// Answered at once with a [`NodeStatus`], which says for which groups the disk leads to that point.
    Close,
    /// Drain, and end. Answered at once.
    Stop,
    /// Make its replica lead the group. Answered when its engine has begun to do so.
    Lead {
        /// Number of the group.
        group: u16,
    },
    /// Make its replica, which must lead the group, evict another. Answered when its engine has begun to do so.
    Evict {
        group: u16,
        /// Slot of the replica to evict.
        slot: u8,
    },
    /// Check whether its replica of a lost group can be recreated by this plan, and keep the plan for a while; see
    /// [`Command::PrepareRecreate`](skein_multicast::operate::Command::PrepareRecreate).
    PrepareRecreate {
        group: u16,
        /// Names the attempt; any number.
        token: u64,
        /// Plan for all replicas of the group.
        plan: Recreation,
    },
    /// Make its replica of a lost group carry out the plan that was prepared under this token.
    CommitRecreate {
        group: u16,
        /// Token of the prepared plan.
        token: u64,
    },
}

/// Names of the actions, and the fields that each requires besides `v` and `do`.
const ACTIONS: [(&str, &[&str]); 9] = [
    ("status", &[]),
    ("digest", &[]),
    ("drain", &[]),
    ("close", &[]),
    ("stop", &[]),
    ("lead", &["group"]),
    ("evict", &["group", "slot"]),
    ("prepare_recreate", &["group", "token", "plan"]),
    ("commit_recreate", &["group", "token"]),
];

/// A line from a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    Ok(Box<NodeStatus>),
    Error(Problem),
}

/// Reason why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    /// For programs.
    pub kind: ProblemKind,
    /// For people.
    pub message: String,
}

/// The kinds of [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// The line is no JSON object, or a field has the wrong type. The connection stays open.
    Malformed,
    /// The line is too long. The connection is closed.
    Oversized,
    /// `v` is missing or another version.
    Version,
    /// `do` is missing or names no action.
    UnknownAction,
    /// An engine does not answer: ask again.
    Busy,
    /// No replica of that group runs on this node.
    NotHere,
    /// The replica here does not lead that group.
    NotLeader,
    /// The replica here is a learner, and cannot lead.
    Learner,
    /// The slot does not exist, or is the leader's own.
    NotEvictable,
    /// The group still has its state.
    NotLost,
    /// A plan to recreate a group names another incarnation of the replica here.
    Outdated,
    /// The group has been recreated as often as a group can be.
    NoGenerationLeft,
    Durable,
    /// The group cannot continue from the replica here.
    NoSurvivor,
    /// No plan was prepared under this token, or it was prepared too long ago.
    NotPrepared,
}

impl From<CommandError> for ProblemKind {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NotHere(_) => Self::NotHere,
            CommandError::NotLeader(_) => Self::NotLeader,
            CommandError::Learner(_) => Self::Learner,
            CommandError::NotEvictable(_) => Self::NotEvictable,
            CommandError::NotLost(_) => Self::NotLost,
            CommandError::Outdated(_) => Self::Outdated,
            CommandError::NoGenerationLeft(_) => Self::NoGenerationLeft,
            CommandError::Durable(_) => Self::Durable,
            CommandError::NoSurvivor(_) => Self::NoSurvivor,
            CommandError::NotPrepared(_) => Self::NotPrepared,
        }
    }
}

impl Problem {
    fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn busy() -> Self {
        Self::busy_with("an engine thread does not answer: ask again")
    }

    pub(super) fn busy_with(message: &str) -> Self {
        Self::new(ProblemKind::Busy, message)
    }
}

/// Parses a request.
fn parse(line: &[u8]) -> Result<Action, Problem> {
    let malformed = |why: String| Problem::new(ProblemKind::Malformed, why);
    let request: Value = serde_json::from_slice(line)
        .map_err(|error| malformed(format!("not a JSON object: {error}")))?;
    let Value::Object(mut request) = request else {
        return Err(malformed("not a JSON object, such as {\"v\":1,\"do\":\"status\"}".into()));
    };
    match request.get("v").map(Value::as_u64) {
        Some(Some(VERSION)) => {}
        other => {
            let got = other.flatten().map_or("not given".to_owned(), |v| format!("{v}"));
            let message = format!("the version v is {got}; this node speaks version {VERSION}");
            return Err(Problem::new(ProblemKind::Version, message));
        }
    }
    request.remove("v");
    let wanted = request.get("do").and_then(Value::as_str).unwrap_or_default();
    let Some((name, fields)) = ACTIONS.iter().find(|(name, _)| *name == wanted) else {
        let known = ACTIONS.map(|(name, _)| name).join(", ");
        let message = format!("do names none of the actions {known}");
        return Err(Problem::new(ProblemKind::UnknownAction, message));
    };
    let takes = || match fields.split_last() {
        None => format!("{name} takes no fields besides v and do"),
        Some(_) => format!("{name} takes the fields {} besides v and do", fields.join(", ")),
    };
    let unknown = |field: &&String| *field != "do" && !fields.contains(&field.as_str());
    if let Some(field) = request.keys().find(unknown) {
        return Err(malformed(format!("unknown field {field:?}: {}", takes())));
    }
    serde_json::from_value(Value::Object(request))
        .map_err(|error| malformed(format!("{error}: {}", takes())))
}

/// Encodes a response as a line.
fn line(response: &Response) -> Vec<u8> {
    let mut value = serde_json::to_value(response).expect("responses are JSON");
    value["v"] = VERSION.into();
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_told_why() {
        #[rustfmt::skip]
        let cases: [(&[u8], Result<Action, ProblemKind>, &str); 16] = [
            (br#"{"v":1,"do":"status"}"#,        Ok(Action::Status),               "well-formed"),
            (br#" {"do":"stop","v":1} "#,        Ok(Action::Stop),                 "in any order, with spaces"),
            (b"\xff\xfe\x00",                    Err(ProblemKind::Malformed),      "not text"),
            (b"[1,2]",                           Err(ProblemKind::Malformed),      "not an object"),
            (b"",                                Err(ProblemKind::Malformed),      "nothing"),
            (br#"{"do":"status"}"#,              Err(ProblemKind::Version),        "no version"),
            (br#"{"v":2,"do":"status"}"#,        Err(ProblemKind::Version),        "another version"),
            (br#"{"v":1,"do":"explode"}"#,       Err(ProblemKind::UnknownAction),  "no such action"),
            (br#"{"v":1,"do":"stop","now":1}"#,  Err(ProblemKind::Malformed),      "a field that would be ignored"),
            (br#"{"v":1,"do":"lead","group":3}"#,          Ok(Action::Lead { group: 3 }), "with its field"),
            (br#"{"v":1,"do":"lead"}"#,                    Err(ProblemKind::Malformed), "without its field"),
            (br#"{"v":1,"do":"lead","group":70000}"#,      Err(ProblemKind::Malformed), "no group can have that number"),
            (br#"{"v":1,"do":"lead","group":"g3"}"#,       Err(ProblemKind::Malformed), "groups are numbers"),
            (br#"{"v":1,"do":"lead","group":3,"slot":1}"#, Err(ProblemKind::Malformed), "another action's field"),
            (br#"{"v":1,"do":"evict","group":3,"slot":1}"#,Ok(Action::Evict { group: 3, slot: 1 }), "with both fields"),
            (br#"{"v":1,"do":"commit_recreate","group":0}"#, Err(ProblemKind::Malformed), "only one field of several"),
        ];
        for (line, expected, because) in cases {
            assert_eq!(parse(line).map_err(|problem| problem.kind), expected, "{because}");
        }
    }
}
