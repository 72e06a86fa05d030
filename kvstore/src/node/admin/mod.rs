//! The admin interface of a node: a JSON object per line over a Unix socket (docs/admin.md).

mod call;
mod connection;
mod server;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use call::{CallError, call, status};
pub(super) use server::{Answer, Server, Wanted};

use super::status::NodeStatus;

/// The version of the interface.
pub const VERSION: u64 = 1;
/// The longest request, in bytes, its newline included.
pub const REQUEST_BYTES_MAX: usize = 4 << 10;
/// The most connections. One more, and the one that has been silent for longest is closed.
pub const CONNECTIONS_MAX: usize = 64;

/// What can be asked of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// What it is doing. Answered with a [`NodeStatus`].
    Status,
    /// To deliver everything it knows of. Answered, with a [`NodeStatus`], when nothing is pending
    /// or `node.stop_within_ms` has passed.
    Drain,
    /// To drain, and to end. Answered at once.
    Stop,
}

const ACTIONS: [(&str, Action); 3] =
    [("status", Action::Status), ("drain", Action::Drain), ("stop", Action::Stop)];

/// A line from a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Response {
    /// Done.
    Ok(Box<NodeStatus>),
    /// Not done.
    Error(Problem),
}

/// Why a request was not carried out.
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
    /// The line is no JSON object, or a field of it has another type. The connection goes on.
    Malformed,
    /// The line is too long. The connection is closed.
    Oversized,
    /// `v` is missing or another version.
    Version,
    /// `do` is missing or names nothing that can be done.
    UnknownAction,
    /// The engine does not answer: ask again.
    Busy,
}

impl Problem {
    fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

/// Reads a request.
fn parse(line: &[u8]) -> Result<Action, Problem> {
    let malformed = |why: String| Problem::new(ProblemKind::Malformed, why);
    let request: Value = serde_json::from_slice(line)
        .map_err(|error| malformed(format!("not a JSON object: {error}")))?;
    let Value::Object(request) = request else {
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
    let known = || ACTIONS.map(|(name, _)| name).join(", ");
    if let Some(field) = request.keys().find(|field| !["v", "do"].contains(&field.as_str())) {
        return Err(malformed(format!("unknown field {field:?}: a request has v and do")));
    }
    let wanted = request.get("do").and_then(Value::as_str).unwrap_or_default();
    ACTIONS.iter().find(|(name, _)| *name == wanted).map(|(_, action)| *action).ok_or_else(|| {
        let message = format!("do names none of the actions {}", known());
        Problem::new(ProblemKind::UnknownAction, message)
    })
}

/// A response as a line.
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
        let cases: [(&[u8], Result<Action, ProblemKind>, &str); 9] = [
            (br#"{"v":1,"do":"status"}"#,        Ok(Action::Status),               "well-formed"),
            (br#" {"do":"stop","v":1} "#,        Ok(Action::Stop),                 "in any order, with spaces"),
            (b"\xff\xfe\x00",                    Err(ProblemKind::Malformed),      "not text"),
            (b"[1,2]",                           Err(ProblemKind::Malformed),      "not an object"),
            (b"",                                Err(ProblemKind::Malformed),      "nothing"),
            (br#"{"do":"status"}"#,              Err(ProblemKind::Version),        "no version"),
            (br#"{"v":2,"do":"status"}"#,        Err(ProblemKind::Version),        "another version"),
            (br#"{"v":1,"do":"explode"}"#,       Err(ProblemKind::UnknownAction),  "no such action"),
            (br#"{"v":1,"do":"stop","now":1}"#,  Err(ProblemKind::Malformed),      "a field that would be ignored"),
        ];
        for (line, expected, because) in cases {
            assert_eq!(parse(line).map_err(|problem| problem.kind), expected, "{because}");
        }
    }
}
