//! The exchange as part of a state that is copied to another replica.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::rank::Rank;

use super::{EarlyResults, InFlightDelivery, ResultExchange};

/// The part of the exchange that follows from the deliveries up to a commit index. Replicas send its encoding
/// to each other: the order of the fields is part of the format.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::replica) struct Saved {
    /// Results that the machine has received about messages that are not over: name, group.
    pub(in crate::replica) heard: Vec<(u64, u64, u16)>,
    /// Results of the machine that other groups may still need: name, groups, result.
    pub(in crate::replica) results: Vec<(u64, u64, Vec<u16>, Vec<u8>)>,
    pub(in crate::replica) last_applied: u64,
    pub(in crate::replica) last_delivered: u64,
    /// Deliveries in flight: name, rank, reply dependency.
    pub(in crate::replica) given: Vec<(u64, u64, u64, u64)>,
}

impl Saved {
    /// Returns whether it names only groups that a cluster may have.
    pub(in crate::replica) fn is_sound(&self) -> bool {
        let heard = self.heard.iter().map(|(.., from)| from);
        let told = self.results.iter().flat_map(|(_, _, to, _)| to);
        are_groups(heard.chain(told))
    }
}

/// Whether all of these are groups that a cluster may have.
pub(in crate::replica) fn are_groups<'a>(mut groups: impl Iterator<Item = &'a u16>) -> bool {
    groups.all(|group| *group < GroupSet::CAPACITY)
}

/// The entries in the order of their messages, so that equal maps are saved as equal bytes.
pub(super) fn sorted<T>(of: &HashMap<MessageId, T>) -> impl Iterator<Item = (&MessageId, &T)> {
    let mut all: Vec<_> = of.iter().collect();
    all.sort_unstable_by_key(|(message, _)| **message);
    all.into_iter()
}

impl ResultExchange {
    pub(in crate::replica) fn save(&self) -> Saved {
        Saved {
            heard: sorted(&self.heard)
                .filter(|_| !planted(Mutant::HeardNotTaken))
                .flat_map(|(m, from)| from.iter().map(|g| (m.session.0, m.sequence, g.0)))
                .collect(),
            results: sorted(&self.outgoing.results)
                .filter(|_| !planted(Mutant::ResultsNotTaken))
                .map(|(m, (to, result))| {
                    (m.session.0, m.sequence, to.iter().map(|g| g.0).collect(), result.to_vec())
                })
                .collect(),
            last_applied: self.last_applied.number(),
            last_delivered: self.last_delivered.number(),
            given: self.given.iter().map(InFlightDelivery::saved).collect(),
        }
    }

    /// Results that the machine has received, and that the log up to its commit index may lack: name, group.
    pub(in crate::replica) fn save_early(&self) -> Vec<(u64, u64, u16)> {
        self.early.save()
    }

    /// Resumes from a saved exchange, which must be [sound](Saved::is_sound), with results that the log may lack.
    pub(in crate::replica) fn restore(
        &mut self,
        saved: Saved,
        early: Vec<(u64, u64, u16)>,
        now_ms: u64,
    ) {
        self.early = EarlyResults::restored(early);
        self.heard.clear();
        for (session, sequence, from) in saved.heard {
            let message = MessageId::new(SessionId(session), sequence);
            self.heard.entry(message).or_default().insert(GroupId(from));
        }
        let results = saved.results.into_iter().map(|(session, sequence, to, result)| {
            let to = to.into_iter().map(GroupId).collect();
            (MessageId::new(SessionId(session), sequence), (to, result[..].into()))
        });
        self.outgoing.results = results.collect();
        self.last_applied = Rank::new(saved.last_applied);
        self.last_delivered = Rank::new(saved.last_delivered);
        self.given =
            saved.given.into_iter().map(|it| InFlightDelivery::restored(it, now_ms)).collect();
    }
}
