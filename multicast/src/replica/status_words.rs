//! Status words of replicas: what the others have accepted, applied and freed, and what we have applied.

use skein_fabric::Fabric;
use skein_protocol::ballot::Acceptance;
use skein_protocol::ids::ReplicaId;
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;

use super::Replica;
use super::log::LogReader;
use crate::application::Application;
use crate::ordering::Links;
use crate::replica_links::{ReplicaLinks, StatusColumn};

impl<A: Application, O: Links> Replica<A, O> {
    /// Reports to the leader how far our machine has applied deliveries, so that the leader can report it to
    /// other groups. A report that nothing is applied is sent too, since the leader waits for it.
    pub(super) fn tell_applied<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let applied = self.applied(links.disk.is_some());
        self.step(Event::Applied { slot: self.id.slot, rank: applied });
        self.told_after = self.core.delivered();
        if links.disk.is_some() && !self.has_begun_on_disk(links) {
            // With the first report our leader may admit us.
            return;
        }
        if let Some(leader) = self.core.log().leader().filter(|leader| *leader != self.id)
            && self.applied_told != Some(applied)
        {
            self.applied_told = Some(applied);
            links.tell_word(self.id, leader, StatusColumn::Applied, applied.to_word());
        }
    }

    /// Whether our disk holds all of the log with which our leader began.
    fn has_begun_on_disk<F: Fabric>(&self, links: &ReplicaLinks<F, O>) -> bool {
        let LogReader { awaiting, is_filled, begun_on_disk, .. } = self.reader;
        !awaiting && !is_filled && begun_on_disk <= links.durable
    }

    /// Handles a status word that a peer has written for us.
    #[inline] // Nearly all changed words are acceptance words, for all replicas here.
    pub(crate) fn told(&mut self, column: StatusColumn, by: ReplicaId, word: u64) {
        if column != StatusColumn::Accepted {
            return self.told_seldom(column, by, word);
        }
        let acceptance = Acceptance::from_word(word);
        self.core.step(Event::Acknowledged { by, acceptance }, &mut self.effects);
        if self.core.waits_for(by.group) {
            self.stir();
        }
    }

    fn told_seldom(&mut self, column: StatusColumn, by: ReplicaId, word: u64) {
        let event = match column {
            StatusColumn::Accepted => unreachable!("it is heard often"),
            StatusColumn::Settled => {
                Event::Settled { group: by.group, rank: Rank::from_word(word) }
            }
            StatusColumn::Applied => Event::Applied { slot: by.slot, rank: Rank::from_word(word) },
            StatusColumn::Freed => {
                let freed = &mut self.writer.followers[usize::from(by.slot)].freed;
                *freed = word.max(*freed);
                return self.stir();
            }
        };
        self.stir();
        self.core.step(event, &mut self.effects);
        self.intake.throttled = self.core.log().is_somebody_behind();
    }
}
