//! What can be wrong, by name, and the evidence of it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::history::readable;

/// Pieces of evidence of one kind that are kept; all are counted.
const EVIDENCE_MAX: usize = 5;

/// A way in which a history can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions wrote over each other, in opposite orders.
    DirtyWrite,
    /// Transactions depend on each other in a circle.
    CircularInformation,
    /// A transaction wrote over what it had not read, though it had read what came before.
    LostUpdate,
    /// A transaction saw a part of what another did.
    FracturedRead,
    /// Two transactions saw two writes in opposite orders.
    LongFork,
    /// Transactions wrote by what they had read, and each missed the other's write.
    WriteSkew,
    /// A read did not see what was acknowledged before it was asked for.
    StaleRead,
    /// Transactions took effect in an order that contradicts real time, all on one shard.
    RealTimeInversion,
    /// The same, and they concern several shards.
    RealTimeInversionAcrossShards,
    /// What was not done was read.
    AbortedRead,
    /// What a transaction wrote and wrote over was read.
    IntermediateRead,
    /// A transaction contradicts itself.
    InternalInconsistency,
    /// What was acknowledged is nowhere to be seen.
    LostWrite,
    /// Something was done twice.
    DuplicateApplication,
    /// A value was read that nobody wrote.
    InventedValue,
    /// Reads of a key that are no versions of one another.
    IncompatibleOrder,
    /// An answer that contradicts what was read.
    WrongReply,
    /// The history contradicts itself, or breaks off.
    Contradiction,
    /// All orders were tried, and none explains what was told.
    NoOrder,
    /// The same, and there is one that does not keep to real time.
    NoOrderInTime,
}

/// What an anomaly rules out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RulesOut {
    /// There is no order in which the transactions can have happened one after the other.
    Serializability,
    /// There is one, but none that keeps to real time.
    StrictSerializability,
}

impl Anomaly {
    /// Its name.
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

    /// What it rules out.
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

/// One thing that is wrong, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The anomaly's name.
    pub anomaly: &'static str,
    /// What the literature calls it.
    pub class: String,
    /// What it rules out.
    pub rules_out: RulesOut,
    /// What is wrong.
    pub what: String,
    /// The transactions concerned.
    pub transactions: Vec<String>,
    /// Why each comes before the next, and the last before the first.
    pub because: Vec<String>,
}

/// Everything that is wrong.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) counts: BTreeMap<Anomaly, u64>,
    pub(super) evidence: Vec<Evidence>,
}

impl Findings {
    /// Counts one more, and keeps it if it is among the first of its kind.
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

    /// One that is seen without a cycle.
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
