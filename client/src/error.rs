//! Errors of the client, one variant per reaction of the caller.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skein_kvstore::reply::Refusal;
use skein_protocol::ids::GroupSet;

/// Reasons why an operation has no reply.
///
/// Some leave open whether the operation took effect: see [`had_no_effect`](Error::had_no_effect).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused it at its place in the order, in every group that it touches.
    #[error("refused, nothing was changed: {0}")]
    Refused(Refusal),

    /// It is over a limit of the cluster, and was not sent.
    #[error(
        "{what} of {len} {unit} is over the cluster's limit of {max}: make it smaller, or start the cluster with a higher {setting}"
    )]
    TooLarge {
        /// The part that is over the limit.
        what: &'static str,
        /// In `unit`.
        len: u64,
        /// In `unit`.
        max: u64,
        /// `bytes`, `keys` or `pairs`.
        unit: &'static str,
        /// Entry of the configuration that sets the limit.
        setting: &'static str,
    },

    /// The cluster, or a group that the operation needs, cannot serve it.
    #[error("{why}{}", unknown_if(*.sent))]
    Unavailable {
        why: Unavailability,
        /// Whether the operation had been sent, so that it may have taken effect, or may yet.
        sent: bool,
    },

    /// No reply arrived within the time allowed. The operation may have taken effect, or may yet, but only once. The
    /// session continues, and resends it until every group has answered.
    #[error(
        "no reply within {after:?} from groups {silent}: the operation may or may not have taken effect; look at `skein status`, and read what it would have changed before repeating it, or allow it more time"
    )]
    UnknownOutcome {
        /// Time allowed.
        after: Duration,
        /// Groups that did not answer.
        silent: GroupSet,
    },

    /// The cluster has ended this session because it considered the session's process dead. Nothing more of the session
    /// takes effect: open another.
    #[error(
        "the cluster has ended this session, having taken its process to be dead: open another{}",
        unknown_if(*.sent)
    )]
    SessionExpired {
        /// Whether the operation had been sent, so that it may have taken effect before.
        sent: bool,
    },

    /// The session has as many operations under way as it may have. Take some results, then try again.
    #[error("the session has {window} operations in flight, its limit: take results first")]
    WindowFull {
        /// Maximum number of operations under way (`tuning.window`).
        window: usize,
    },

    /// Each attempt of a transaction was overtaken by another transaction that changed a value it had read. Nothing was
    /// changed.
    #[error(
        "overtaken {attempts} times by transactions that changed what this one had read, and nothing was changed: try again, or allow it more attempts"
    )]
    Overtaken {
        /// Number of attempts.
        attempts: u32,
    },

    /// The reply does not fit the request. The operation may have taken effect.
    #[error(
        "the cluster's reply cannot be decoded ({0}), and the operation may have taken effect: use the library of the cluster's own version"
    )]
    BadReply(String),

    /// The session or the client was closed: open another.
    #[error("the session is closed: open another")]
    Closed,
}

/// Reasons why an operation cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailability {
    /// No group of the cluster can order anything.
    #[error(
        "the cluster has stopped, or lost too many nodes: look at `skein status`; once `skein up` has started it again, connect again"
    )]
    Stopped,
    /// All nodes had ended, and the cluster has returned to a restore point: durability `async`. What was acknowledged behind
    /// that point is lost, and the session with it.
    #[error(
        "the cluster had lost all its nodes, and has returned to its state of {}: what was acknowledged later is lost, and the session with it; connect again, and read what comes next depends on",
        time_of(*.point)
    )]
    RolledBack {
        /// When the point was made, in microseconds since 1970; 0 if the cluster began empty.
        point: u64,
    },
    /// No node can be reached over the network; whether the cluster runs is unknown.
    #[error(
        "no node can be reached over the network: either the cluster has stopped, or this host's network or what lies between is down; look at `skein status` on a node, and connect again"
    )]
    Unreachable,
    /// This process was forked from the one that opened the session, and the session continues there. If two processes
    /// used one session, operations of one would be taken for duplicates of the other's.
    #[error(
        "this process was forked after the client had connected, and the session is its parent's: connect again in this process"
    )]
    Forked,
    /// No node has admitted us: our certificate, our configuration or our version is not the cluster's.
    #[error("no node admits us: {0}")]
    Refused(String),
    /// This process lacks descriptors or memory to look for the nodes; whether they run is unknown.
    #[error(
        "no node can be looked for: {0}; close what this process has open, or raise its limits (ulimit -n, LimitNOFILE=), and connect again"
    )]
    Lacking(String),
    /// These groups did not serve when the time allowed was over. Too few of their replicas for a quorum run and can be
    /// reached; or no replica has said for the last few hundred milliseconds that its group serves, since most of them are
    /// stopped or have lost their state, or because they have no leader. An operation needs the groups of its keys, and a new
    /// session needs all groups.
    #[error(
        "not within {after:?}: groups {groups} are without a quorum: most of their replicas do not run, cannot be reached, do not answer or have lost their state, or they have no leader; look at `skein status`; mend what it names, and try again: the session continues by itself"
    )]
    NoQuorum {
        /// Groups that do not serve.
        groups: GroupSet,
        /// Time allowed.
        after: Duration,
    },
    /// The operation waits for groups that do not serve, as [`NoQuorum`](Self::NoQuorum) means it. If messages are ordered
    /// along a tree of groups, these are on the operation's path, destinations or not, and a new session is opened in all
    /// groups, along the tree. Otherwise they are destinations of an operation that was sent.
    #[error(
        "not within {after:?}: messages of several groups to {groups}, and new sessions, wait for {by}, without a quorum: most replicas there do not run, cannot be reached, do not answer or have lost their state, or have no leader; look at `skein status`; mend what it names, and try again: the session continues by itself"
    )]
    HeldUp {
        /// Groups that do not serve.
        by: GroupSet,
        /// The groups to which messages of several groups wait for `by`: along a tree, the subtrees of `by`; otherwise the
        /// destinations of the operation.
        groups: GroupSet,
        /// Time allowed.
        after: Duration,
    },
    /// The session could not send the operation in time: the cluster accepts nothing, or unanswered operations fill the
    /// session's window.
    #[error(
        "not sent within {after:?}, nothing was changed: {}; look at `skein status`, and try again: the session continues by itself",
        waiting_for(*.silent)
    )]
    NotSent {
        /// Time allowed.
        after: Duration,
        /// Groups whose replies to earlier messages of the session are missing, for instance to its first one.
        silent: GroupSet,
    },
    /// The memory shared with the cluster cannot be used.
    #[error("cannot reach the cluster's memory: {0}")]
    Fabric(String),
}

fn time_of(point: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    match Duration::from_micros(point) {
        Duration::ZERO => "its beginning".to_owned(),
        point => format!("{:.1} s ago", now.saturating_sub(point).as_secs_f64()),
    }
}

fn waiting_for(silent: GroupSet) -> String {
    if silent.is_empty() {
        return "the cluster is overloaded".to_owned();
    }
    format!("groups {silent} do not answer, because they are blocked, lost or overloaded")
}

fn unknown_if(sent: bool) -> &'static str {
    if sent { "; the operation had been sent, and may or may not have taken effect" } else { "" }
}

impl Error {
    /// Whether the operation certainly had no effect and never will.
    pub fn had_no_effect(&self) -> bool {
        !matches!(
            self,
            Self::UnknownOutcome { .. }
                | Self::Unavailable { sent: true, .. }
                | Self::SessionExpired { sent: true }
                | Self::BadReply(_)
        )
    }

    /// Converts a refusal by the groups.
    pub(crate) fn refused(refusal: Refusal, sent: bool) -> Self {
        match refusal {
            Refusal::SessionExpired => Self::SessionExpired { sent },
            Refusal::Unreadable { .. } => Self::BadReply(refusal.to_string()),
            refusal => Self::Refused(refusal),
        }
    }

    /// Converts a refusal before anything is sent: limits become [`TooLarge`](Error::TooLarge).
    pub(crate) fn before_sending(refusal: Refusal) -> Self {
        let too_large =
            |what, len, max, unit, setting| Self::TooLarge { what, len, max, unit, setting };
        match refusal {
            Refusal::KeyTooLarge { len, max } => {
                too_large("a key", len, max, "bytes", "limits.key_bytes_max")
            }
            Refusal::ValueTooLarge { len, max, .. } => {
                too_large("a value", len, max, "bytes", "limits.value_bytes_max")
            }
            Refusal::TooManyKeys { keys, max } => {
                too_large("a transaction", keys, max, "keys", "limits.transaction_keys_max")
            }
            Refusal::TransactionTooLarge { len, max } => {
                too_large("a transaction", len, max, "bytes", "limits.transaction_bytes_max")
            }
            Refusal::WritesTooLarge { len, max } => {
                too_large("what is patched", len, max, "bytes", "limits.transaction_bytes_max")
            }
            Refusal::RangesTooLarge { pairs, pairs_max, .. } if pairs > pairs_max => {
                too_large("what was scanned", pairs, pairs_max, "pairs", "limits.scan_pairs_max")
            }
            Refusal::RangesTooLarge { bytes, bytes_max, .. } => {
                too_large("what was scanned", bytes, bytes_max, "bytes", "limits.reply_bytes_max")
            }
            other => Self::Refused(other),
        }
    }
}
