//! Durability of deliveries: when a replica delivers m, the memory of f+1 replicas of each destination group holds a
//! proposal of that group for m, at or below its rank. The check looks at the world: at what a candidate would find
//! there.
//!
//! A lost memory counts until its successor is admitted: it held its content when another replica relied on it, and at
//! most f memories of a group are lost at a time.

use alloc::collections::BTreeMap;
use alloc::format;

use super::Violation;
use crate::group::LogRecord;
use crate::ids::{MessageId, ReplicaId};
use crate::rank::Rank;
use crate::step::Deliver;

/// The log in a replica's memory, or the state that contains it.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// The state that the replica received contains everything up to this index.
    given: u64,
    /// Index and rank of the proposal for each logged message.
    proposals: BTreeMap<MessageId, (u64, Rank)>,
}

impl Held {
    /// A state that contains the log up to an index.
    pub fn given(index: u64) -> Self {
        Self { given: index, proposals: BTreeMap::new() }
    }

    /// Records a log record. A later record may reuse the index, if the earlier one was cut off.
    pub fn logged(&mut self, index: u64, record: &impl LogRecord) {
        if let Some(logged) = record.message().filter(|_| !record.is_repeat()) {
            self.proposals.insert(logged.message, (index, logged.least));
        }
    }

    /// Index and rank of the proposal for a message that it holds or held.
    pub fn place_of(&self, message: MessageId) -> Option<(u64, Rank)> {
        self.proposals.get(&message).copied()
    }

    /// Whether the log, which ends at index `last`, holds this proposal at this index and rank. A log that ends in front
    /// of a state has lost that state with its power.
    pub fn holds(&self, message: MessageId, at: (u64, Rank), last: u64) -> bool {
        at.0 <= last && (at.0 <= self.given || self.proposals.get(&message) == Some(&at))
    }
}

/// Checks a delivery at the moment at which it is made. `logs` returns the logs of a replica, as last seen. `holds` says
/// whether the memory of that replica's slot holds its group's proposal for the message at an index and rank, payload
/// included.
pub fn check_quorum<'a, Logs: IntoIterator<Item = &'a Held>>(
    by: ReplicaId,
    deliver: &Deliver,
    logs: impl Fn(ReplicaId) -> Logs,
    replicas: u8,
    holds: impl Fn(ReplicaId, (u64, Rank)) -> bool,
) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "quorum", evidence });
    let message = deliver.message;
    let quorum = usize::from(replicas) / 2 + 1;
    for group in deliver.destinations.iter() {
        let slots = || (0..replicas).map(|slot| ReplicaId::new(group, slot));
        let held = || slots().flat_map(&logs);
        let places = held().filter_map(|held| held.proposals.get(&message));
        let below = places.filter(|(_, least)| *least <= deliver.rank);
        let holders = |place: &(u64, Rank)| slots().filter(|s| holds(*s, *place)).count();
        match below.map(holders).max() {
            // Each replica that logged it has received a state since: its group has committed it.
            None if held().any(|held| held.given > 0) => {}
            None => {
                return violated(format!("{by} delivered {message}, which {group} never logged"));
            }
            Some(holders) if holders < quorum => {
                return violated(format!(
                    "{by} delivered {message} when {holders} replicas of {group} held its proposal"
                ));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
