//! Anomalies and the evidence for them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::readable;

/// Pieces of evidence kept per anomaly. All are counted.
const EVIDENCE_MAX: usize = 5;

/// A way in which a history can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions overwrote each other in opposite orders.
    DirtyWrite,
    /// Transactions depend on each other in a cycle.
    CircularInformation,
    /// A transaction overwrote a version that it had not read, though it had read an earlier one.
    LostUpdate,
    /// A transaction observed a part of another's writes.
    FracturedRead,
    /// Two transactions observed two writes in opposite orders.
    LongFork,
    /// Transactions wrote according to what they had read, and each missed the other's write.
    WriteSkew,
    /// A read did not observe a write acknowledged before the read was invoked.
    StaleRead,
    /// Transactions on one shard took effect in an order that contradicts real time.
    RealTimeInversion,
    /// The same with transactions on several shards.
    RealTimeInversionAcrossShards,
    /// A value was read whose write was refused.
    AbortedRead,
    /// A value was read that its own transaction had overwritten.
    IntermediateRead,
    /// A transaction contradicts itself.
    InternalInconsistency,
    /// An acknowledged write has no effect.
    LostWrite,
    /// An operation was applied twice.
    DuplicateApplication,
    /// A value was read that no transaction wrote.
    InventedValue,
    /// Reads of a key that are not versions of one another.
    IncompatibleOrder,
    /// An answer contradicts what was read.
    WrongReply,
    /// The history contradicts itself or is incomplete.
    Contradiction,
    /// All orders were tried, and none explains the answers.
    NoOrder,
    /// No order in real time explains the answers, but one without regard to real time does.
    NoOrderInTime,
}

/// The guarantee that an anomaly disproves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RulesOut {
    /// No serial order of the transactions exists.
    Serializability,
    /// A serial order exists, but none that respects real time.
    StrictSerializability,
}

impl Anomaly {
    /// The name of the anomaly.
    pub fn name(self) -> &'static str {
        match self {
            Self::DirtyWrite => "dirty write",
            Self::CircularInformation => "circular information flow",
            Self::LostUpdate => "lost update",
            Self::FracturedRead => "fractured read",
            Self::LongFork => "long fork",
            Self::WriteSkew => "write skew",
            Self::StaleRead => "stale read",
            Self::RealTimeInversion => "real-time inversion",
            Self::RealTimeInversionAcrossShards => "real-time inversion across shards",
            Self::AbortedRead => "aborted read",
            Self::IntermediateRead => "intermediate read",
            Self::InternalInconsistency => "internal inconsistency",
            Self::LostWrite => "lost acknowledged write",
            Self::DuplicateApplication => "duplicate application",
            Self::InventedValue => "invented value",
            Self::IncompatibleOrder => "incompatible order",
            Self::WrongReply => "wrong reply",
            Self::Contradiction => "broken history",
            Self::NoOrder => "no order",
            Self::NoOrderInTime => "no order in real time",
        }
    }

    /// The guarantee that the anomaly disproves.
    pub fn rules_out(self) -> RulesOut {
        match self {
            Self::StaleRead
            | Self::RealTimeInversion
            | Self::RealTimeInversionAcrossShards
            | Self::NoOrderInTime => RulesOut::StrictSerializability,
            _ => RulesOut::Serializability,
        }
    }
}

/// One violation, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Name of the anomaly.
    pub anomaly: &'static str,
    /// The literature's name.
    pub class: String,
    pub rules_out: RulesOut,
    pub what: String,
    /// The transactions concerned.
    pub transactions: Vec<String>,
    /// Why each transaction precedes the next, and the last the first.
    pub because: Vec<String>,
}

/// All violations.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) counts: BTreeMap<Anomaly, u64>,
    pub(super) evidence: Vec<Evidence>,
}

impl Findings {
    /// Counts a violation, and keeps its evidence if it is among the first of its kind.
    pub(super) fn add(&mut self, anomaly: Anomaly, evidence: impl FnOnce() -> Evidence) {
        let count = self.counts.entry(anomaly).or_default();
        *count += 1;
        if *count <= EVIDENCE_MAX as u64 {
            let mut evidence = evidence();
            let Evidence { what, transactions, because, .. } = &mut evidence;
            for line in [what].into_iter().chain(transactions).chain(because) {
                *line = readable(line);
            }
            self.evidence.push(evidence);
        }
    }

    /// Adds a violation that was found without a cycle.
    pub(super) fn direct(
        &mut self,
        anomaly: Anomaly,
        class: &str,
        what: impl FnOnce() -> (String, Vec<String>),
    ) {
        self.add(anomaly, || {
            let (what, transactions) = what();
            Evidence {
                anomaly: anomaly.name(),
                class: class.to_owned(),
                rules_out: anomaly.rules_out(),
                what,
                transactions,
                because: Vec::new(),
            }
        });
    }
}
