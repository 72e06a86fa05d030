//! Whether the group serves, as far as this replica knows.
//!
//! A leader whose followers do not answer may serve nevertheless. It writes into their memory, and in a cluster without disks
//! that commits an entry, though their processes are stopped. Whoever asks such a leader makes it write a word to them: if that
//! lands, its group serves, though under RamCast not what is sent to several groups: others rest on words of its followers.
//!
//! **Invariant (proof).** A proof says that after it was sought, a quorum's memory has taken a write of ours in our ballot, that
//! all we had logged before is committed, and that sessions' messages are taken now. It is sought again after [`PROOF_MS`].

use skein_protocol::group;

use super::Replica;
use crate::application::Application;
use crate::operate::Role;
use crate::ordering::Links;
use crate::standing::Standing;

/// Time in milliseconds after which a proof is sought again when it is asked for.
const PROOF_MS: u64 = 500;

/// A proof that was sought, by a leader that sees too few of its followers alive.
#[derive(Clone, Copy)]
pub(super) struct Proof {
    sought_ms: u64,
    /// Number of our last write to followers when it was sought.
    behind: u64,
    /// Our last index when it was sought.
    logged: u64,
}

impl<A: Application, O: Links> Replica<A, O> {
    /// What this replica is in its group.
    pub(super) fn role(&self) -> Role {
        match self.core.log().role() {
            group::Role::Leader => Role::Leader,
            group::Role::Candidate => Role::Candidate,
            _ if self.core.log().is_silent() || self.core.log().lagging().is_some() => {
                Role::Learner
            }
            _ => Role::Follower,
        }
    }

    /// As leader: whether the group serves. Otherwise: whether the leader that we follow is alive. What is not known before
    /// it is [proved](Self::seek_proof) counts as not being so.
    pub(super) fn serves(&self) -> bool {
        let alive = match self.role() {
            Role::Leader => self.has_a_living_quorum() || self.has_proof(),
            _ => self.living_leader().is_some(),
        };
        alive && !self.is_lost() && self.is_trusted()
    }

    /// As leader that sees too few of its followers alive: asks their memory. Returns whether the answer is awaited. To be
    /// called before [`serves`](Self::serves), which does not ask.
    pub(crate) fn seek_proof(&mut self) -> bool {
        let log = self.core.log();
        let durable = self.config.group.durable;
        if !log.leads() || durable || self.has_a_living_quorum() {
            self.proof = None;
            return false;
        }
        let now_ms = log.now_ms();
        if self.proof.is_none_or(|proof| now_ms > proof.sought_ms + PROOF_MS) {
            let (behind, logged) = (self.writer.writes, log.last_index());
            self.proof = Some(Proof { sought_ms: now_ms, behind, logged });
            self.reads.confirm(behind);
        }
        !self.has_proof()
    }

    fn has_proof(&self) -> bool {
        let log = self.core.log();
        self.proof.is_some_and(|Proof { behind, logged, .. }| {
            log.is_confirmed(behind)
                && log.commit_index() >= logged
                && self.log_has_room()
                && !self.intake.throttled
        })
    }

    /// The answer to a session that asks whether the group serves.
    pub(super) fn standing(&mut self) -> Standing {
        self.seek_proof();
        if !self.serves() {
            return Standing::DoesNotServe;
        }
        match self.living_leader() {
            Some(slot) if slot != self.id.slot => Standing::Follows(slot),
            _ if self.proof.is_some() => Standing::Commits,
            _ => Standing::Serves,
        }
    }

    /// The slot of the leader that we follow, or are, if its heartbeats are seen.
    fn living_leader(&self) -> Option<u8> {
        let log = self.core.log();
        let blank = log.role() == group::Role::Blank;
        let slot = log.leader().filter(|_| !blank)?.slot;
        (slot == self.id.slot || !log.inspect().detector().suspects(slot)).then_some(slot)
    }

    /// Returns whether f other replicas are alive that have not lost their memory.
    fn has_a_living_quorum(&self) -> bool {
        let remember = |slot: &u8| {
            !self.core.log().inspect().detector().suspects(*slot)
                && !self.has_lost_its_memory(*slot)
        };
        let f = usize::from(self.topology.replicas) / 2;
        self.other_slots().filter(remember).count() >= f
    }
}
