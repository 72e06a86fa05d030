//! The commands that are over: a prefix of the order.

use skein_multicast::application::Digest;
use skein_protocol::ids::MessageId;

use super::checkpoints::Checkpoints;
use crate::command::Version;
use crate::store::sum::fold;

/// A machine records its digest at multiples of this position, for replicas to compare.
const CHECKPOINT_EVERY: Version = 64;
/// Keeps a digest of nothing from being zero.
pub(super) const CHAIN: u64 = 0x2545_F491_4F6C_DD1D;
/// The clock of a recreated group begins with the time in microseconds and is above this. A clock that began
/// with 0 does not reach it.
const RECREATED_FROM: u64 = 1 << 50;

/// The prefix of the order whose commands are over, and its digests.
#[derive(Default)]
pub(super) struct Completed {
    position: Version,
    /// A version is `born + position`. `born` is 0 except in a group that was recreated, has taken a slot, or began with the state at a restore point, and
    /// never falls.
    born: Version,
    history: u64,
    /// Digest of the sessions as of `position`. The sessions themselves may differ: a command that is not over may
    /// already have freed replies.
    sessions_digest: u64,
    checkpoints: Checkpoints,
}

impl Completed {
    /// A prefix as a copy of the state has it.
    pub(super) fn restored(
        position: Version,
        born: Version,
        history: u64,
        sessions_digest: u64,
    ) -> Self {
        Self { position, born, history, sessions_digest, checkpoints: Checkpoints::default() }
    }

    /// Called at the first delivery of the group, which has this clock.
    pub(super) const fn begin(&mut self, clock: u64) {
        if clock >= RECREATED_FROM && clock > self.born {
            self.born = clock;
        }
    }

    /// Position of the last command of the prefix, or 0.
    pub(super) const fn position(&self) -> Version {
        self.position
    }

    pub(super) const fn born(&self) -> Version {
        self.born
    }

    /// Hash of all commands, and of the answers to those that may have had effects.
    pub(super) const fn history(&self) -> u64 {
        self.history
    }

    pub(super) const fn sessions_digest(&self) -> u64 {
        self.sessions_digest
    }

    /// The version that the command at `position` assigns. It is above all versions that the group ever
    /// assigned, also before the group was recreated: positions then begin anew, and the clock begins with the
    /// time of day.
    pub(super) const fn version(&self, position: Version) -> Version {
        self.born + position
    }

    /// The commands after `position` assign versions above `version`.
    pub(super) fn raise(&mut self, version: Version, position: Version) {
        self.born = self.born.max(version.saturating_sub(position));
    }

    /// Adds an answer to the history, before its command [ends](Self::end).
    pub(super) fn add_answer(&mut self, position: Version, sum: u64) {
        self.history = fold(self.history ^ position.rotate_left(32) ^ CHAIN, sum ^ !CHAIN);
    }

    /// Adds the command at `position`, after which the sessions have the digest `sessions_digest`. Returns whether the
    /// digest is [due](Self::note) for a checkpoint.
    pub(super) fn end(
        &mut self,
        message: MessageId,
        position: Version,
        sessions_digest: u64,
    ) -> bool {
        let MessageId { session, sequence } = message;
        (self.position, self.sessions_digest) = (position, sessions_digest);
        let name = session.0 ^ sequence.rotate_left(48);
        self.history = fold(self.history ^ CHAIN, name ^ position.rotate_left(24) ^ !CHAIN);
        position.is_multiple_of(CHECKPOINT_EVERY)
    }

    /// The digest of the prefix, after which the store and the slot map have the digest `stored`.
    pub(super) fn digest(&self, stored: u64) -> u64 {
        fold(stored ^ CHAIN, self.history ^ self.sessions_digest.rotate_left(32) ^ !CHAIN)
    }

    /// Records the present digest as a checkpoint.
    pub(super) fn note(&mut self, digest: u64) {
        self.checkpoints.note(self.position, digest);
    }

    pub(super) const fn checkpoints(&self) -> &Checkpoints {
        &self.checkpoints
    }

    /// The present digest, `now`, beside the position.
    pub(super) const fn at(&self, now: u64) -> Digest {
        Digest { position: self.position, digest: now }
    }
}
