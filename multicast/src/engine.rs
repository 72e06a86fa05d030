//! The only loop: outcomes and words in, events, step, effects out.

use std::time::Duration;

use skein_fabric::wait::Waiter;
use skein_fabric::{Fabric, FabricError};
use skein_protocol::ids::{ReplicaId, SessionId};

use crate::application::Application;
use crate::config::{Topology, Tuning};

/// One engine thread's replicas and the fabric they share.
pub struct Engine<F, A> {
    fabric: F,
    applications: Vec<A>,
}

/// What an operator sees of a replica.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ReplicaStatus {
    /// Its group.
    pub group: u16,
    /// Its slot.
    pub slot: u8,
    /// The slot of the leader it follows, or its own.
    pub leader: u8,
    /// The ballot, as printed.
    pub ballot: String,
    /// The last index of its log.
    pub log_index: u64,
    /// The last index it knows to be committed.
    pub commit_index: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages it knows of and has not delivered.
    pub pending: u64,
    /// How long the oldest pending message has waited, in milliseconds.
    pub oldest_pending_ms: u64,
    /// Sessions with a ring open here.
    pub sessions: u64,
    /// Bytes of memory: log, rings, held payloads.
    pub memory_bytes: u64,
}

impl<F: Fabric, A: Application> Engine<F, A> {
    /// Makes the replicas that `engine` of `node` runs, and the memory their peers write.
    pub fn new(
        fabric: F,
        topology: Topology,
        tuning: Tuning,
        node: u16,
        engine: u16,
        application: impl FnMut(ReplicaId) -> A,
    ) -> Result<Self, FabricError> {
        let _ = tuning;
        let applications =
            topology.replicas_on(node, engine).into_iter().map(application).collect();
        Ok(Self { fabric, applications })
    }

    /// Looks at everything once and does what follows. Returns whether there was anything to do.
    pub fn turn(&mut self) -> Result<bool, FabricError> {
        Ok(false)
    }

    /// Whether a peer has written anything that the next [`turn`](Self::turn) would see.
    pub fn idle(&self) -> bool {
        true
    }

    /// Whether all the replicas that this engine's talk to have been met: ready to serve.
    pub fn connected(&self) -> bool {
        true
    }

    /// The fabric, for waiting on.
    pub fn fabric(&mut self) -> &mut F {
        &mut self.fabric
    }

    /// After a turn that found nothing: waits as `waiter` sees fit, at most for `longest`, until a
    /// peer has written something or the fabric is woken. `undisturbed` is asked too before it
    /// sleeps, for what the fabric knows nothing of.
    pub fn wait(&mut self, waiter: &mut Waiter, longest: Duration, undisturbed: &dyn Fn() -> bool) {
        waiter.idle(&mut self.fabric, longest, &mut |_| undisturbed());
    }

    /// The state machines, with the replicas they belong to.
    pub fn applications(&self) -> impl Iterator<Item = (ReplicaId, &A)> {
        self.applications.iter().map(|a| (ReplicaId::new(skein_protocol::ids::GroupId(0), 0), a))
    }

    /// What an operator sees of the replicas.
    pub fn status(&self) -> Vec<ReplicaStatus> {
        Vec::new()
    }

    /// Sessions whose process died since the last call, for the replicas led here to end by an
    /// ordered message; see [`originate`](Self::originate).
    pub fn take_dead_sessions(&mut self) -> Vec<SessionId> {
        Vec::new()
    }

    /// Multicasts a small message of the node's own, without a session, to all groups.
    pub fn originate(&mut self, payload: &[u8]) {
        let _ = payload;
    }
}
