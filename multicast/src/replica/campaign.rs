//! A replica's own attempts to lead: the grants that it received, and the time that it took.

use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::group;

use super::Replica;
use crate::application::Application;
use crate::election::Granted;
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// A replica's attempts to lead.
///
/// **Invariant.** Grants are kept from the moment when we stand for election until we take over a log, or
/// stand again; `heard_grant` is set only while one is handled.
pub(super) struct Campaign {
    /// As candidate: the grants that we received, by slot, each with the log pieces behind it.
    pub(super) grants_received: Vec<Option<(Granted, Vec<u8>)>>,
    /// The grant that is being handled, until the protocol decides whether it counts.
    pub(super) heard_grant: Option<(Granted, Vec<u8>)>,
    /// Time at which we last stood for election.
    pub(super) set_out_at: Option<Duration>,
    /// The last campaign that we won.
    pub(super) won: Option<Won>,
    /// It was logged that no ballot is left in which we could stand for election.
    pub(super) exhausted: bool,
}

impl Campaign {
    /// No attempts yet, in a group of so many replicas.
    pub(super) fn new(replicas: u8) -> Self {
        let grants_received = vec![None; usize::from(replicas)];
        Self { grants_received, heard_grant: None, set_out_at: None, won: None, exhausted: false }
    }
}

/// A campaign that was won. Times are of our own clock.
#[derive(Clone, Copy)]
pub(super) struct Won {
    pub(super) ballot: u64,
    pub(super) cause: group::Cause,
    pub(super) took_us: u64,
    pub(super) at_ms: u64,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Records how long a change of leader took, once it is complete.
    pub(super) fn note_failover<F: Fabric>(&mut self, links: &ReplicaLinks<F, O>) {
        let ballot = self.core.log().ballot().to_word();
        if self.campaign.won.is_some_and(|won| won.ballot == ballot) {
            return;
        }
        let Some(cause) = self.core.log().won() else { return };
        let now = links.endpoint.fabric.now();
        let took = now.saturating_sub(self.campaign.set_out_at.unwrap_or(now));
        let (took_us, at_ms) = (took.as_micros() as u64, self.core.log().now_ms());
        tracing::info!(replica = %self.id, ?cause, took_us, "leads its group");
        self.campaign.won = Some(Won { ballot, cause, took_us, at_ms });
    }
}
