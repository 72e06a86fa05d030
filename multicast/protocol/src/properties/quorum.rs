//! Durability of what was delivered: when a replica delivers m, the memory of f+1 replicas of each
//! destination group holds that group's proposal for m, and f+1 of the delivering replica's own
//! group hold all the proposals. It looks at the world: at what a candidate would find there.

use alloc::collections::BTreeMap;
use alloc::format;

use super::Violation;
use crate::ballot::Ballot;
use crate::ids::{GroupId, MessageId, ReplicaId};
use crate::step::{Deliver, Record};

/// Where each group's log holds its part of each message's place in the order.
#[derive(Clone, Debug, Default)]
pub struct Places {
    local: BTreeMap<(GroupId, MessageId), u64>,
    last: BTreeMap<(GroupId, MessageId), u64>,
    /// The ballot of each proposal of another group that was logged last.
    remotes: BTreeMap<(GroupId, MessageId, GroupId), Ballot>,
}

impl Places {
    /// A leader has appended a record to its group's log.
    pub fn appended(&mut self, group: GroupId, index: u64, record: &Record) {
        match record {
            Record::Local { message, .. } => {
                self.local.insert((group, *message), index);
                self.last.insert((group, *message), index);
            }
            // Logged again in the same ballot, it says nothing new.
            Record::Remote(remote) => {
                let (message, from) = (remote.message, remote.group());
                if self.remotes.insert((group, message, from), remote.ballot) != Some(remote.ballot)
                {
                    self.last.insert((group, message), index);
                }
            }
            Record::NewBallot
            | Record::Exchange
            | Record::Decided(_)
            | Record::Evict { .. }
            | Record::Join { .. } => {}
        }
    }
}

/// Holds at the moment of the delivery. `holds` says whether the memory of a replica holds its
/// group's log up to an index, payloads included, without a gap.
pub fn check_quorum(
    by: ReplicaId,
    deliver: &Deliver,
    places: &Places,
    replicas: u8,
    holds: impl Fn(ReplicaId, u64) -> bool,
) -> Result<(), Violation> {
    let quorum = usize::from(replicas) / 2 + 1;
    for group in deliver.destinations.iter() {
        let places = if group == by.group { &places.last } else { &places.local };
        let Some(index) = places.get(&(group, deliver.message)) else {
            let evidence =
                format!("{by} delivered {}, which {group} never logged", deliver.message);
            return Err(Violation { property: "quorum", evidence });
        };
        let holders =
            (0..replicas).filter(|slot| holds(ReplicaId::new(group, *slot), *index)).count();
        if holders < quorum {
            let evidence = format!(
                "{by} delivered {} when {holders} replicas of {group} held its log up to {index}",
                deliver.message
            );
            return Err(Violation { property: "quorum", evidence });
        }
    }
    Ok(())
}
