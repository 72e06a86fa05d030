//! Durability of what is delivered: when a replica delivers m, the memory of f+1 replicas of each
//! destination group holds a proposal of that group for m, at or below its rank. It looks
//! at the world: at what a candidate would find there.
//!
//! A memory that was lost counts as long as its successor is not let in: it held what it held when
//! somebody counted on it, and no more than f of a group are lost at a time.

use alloc::collections::BTreeMap;
use alloc::format;

use super::Violation;
use crate::group::LogRecord;
use crate::ids::{MessageId, ReplicaId};
use crate::rank::Rank;
use crate::step::Deliver;

/// The log in a replica's memory, or the state that it was folded into.
#[derive(Clone, Debug, Default)]
pub struct Held {
    /// Everything up to this index is in a state that the replica was given.
    given: u64,
    /// Of each message that it logged, the place of the proposal: index and rank.
    proposals: BTreeMap<MessageId, (u64, Rank)>,
}

impl Held {
    /// A state that holds the log up to an index.
    pub fn given(index: u64) -> Self {
        Self { given: index, proposals: BTreeMap::new() }
    }

    /// A record has its place in the log. An index can be taken again: what stood there was cut off.
    pub fn logged(&mut self, index: u64, record: &impl LogRecord) {
        if let Some(logged) = record.message() {
            self.proposals.insert(logged.message, (index, logged.least));
        }
    }

    /// Where it has, or had, the proposal for a message.
    pub fn place_of(&self, message: MessageId) -> Option<(u64, Rank)> {
        self.proposals.get(&message).copied()
    }

    /// Whether the log, which ends at index `last`, holds this proposal at this place.
    pub fn holds(&self, message: MessageId, at: (u64, Rank), last: u64) -> bool {
        at.0 <= self.given || at.0 <= last && self.proposals.get(&message) == Some(&at)
    }
}

/// Holds at the moment of the delivery. `logs` has the log of every replica, as last seen; `holds`
/// says whether the memory of that replica's slot holds its group's proposal for a message at a
/// place, payload included.
pub fn check_quorum(
    by: ReplicaId,
    deliver: &Deliver,
    logs: &BTreeMap<ReplicaId, Held>,
    replicas: u8,
    holds: impl Fn(ReplicaId, (u64, Rank)) -> bool,
) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "quorum", evidence });
    let message = deliver.message;
    let quorum = usize::from(replicas) / 2 + 1;
    for group in deliver.destinations.iter() {
        let slots = || (0..replicas).map(|slot| ReplicaId::new(group, slot));
        let held = || slots().filter_map(|slot| logs.get(&slot));
        let places = held().filter_map(|held| held.proposals.get(&message));
        let below = places.filter(|(_, least)| *least <= deliver.rank);
        let holders = |place: &(u64, Rank)| slots().filter(|s| holds(*s, *place)).count();
        match below.map(holders).max() {
            // All that logged it were given a state since: their group has committed it.
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
