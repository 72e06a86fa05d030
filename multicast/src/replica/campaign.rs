//! Our own attempts to lead: what others granted, and how long it took.

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
/// **Invariant.** Grants are kept from when we set out until we take over a log, or set out again; `heard_grant` only while one is
/// handled.
pub(super) struct Campaign {
    /// As candidate: what others reported, by slot, with what their logs hold.
    pub(super) grants_received: Vec<Option<(Granted, Vec<u8>)>>,
    /// What a replica has just told us with its grant, until it is known whether that counts.
    pub(super) heard_grant: Option<(Granted, Vec<u8>)>,
    /// When we last set out to lead.
    pub(super) set_out_at: Option<Duration>,
    /// What came of it.
    pub(super) won: Option<Won>,
    /// It was said that there is no ballot left in which we could set out.
    pub(super) exhausted: bool,
}

impl Campaign {
    /// None, in a group of so many replicas.
    pub(super) fn new(replicas: u8) -> Self {
        let grants_received = vec![None; usize::from(replicas)];
        Self { grants_received, heard_grant: None, set_out_at: None, won: None, exhausted: false }
    }
}

/// The last campaign that was won, measured by our own clock.
#[derive(Clone, Copy)]
pub(super) struct Won {
    pub(super) ballot: u64,
    pub(super) cause: group::Cause,
    pub(super) took_us: u64,
    pub(super) at_ms: u64,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Takes note of how long a change of leader took, as soon as it is known.
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
