//! What groups tell each other about a command, and who still has to.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_protocol::ids::{GroupId, GroupSet, MessageId};

use crate::command::Version;

/// One group's view of a command, or several groups' together: one byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict(u8);

const HELD: u8 = 1;
const THEN: u8 = 2;
const OTHERWISE: u8 = 4;

impl Verdict {
    /// No objections: what no group has said anything against yet.
    pub(crate) const ALL: Self = Self(HELD | THEN | OTHERWISE);

    /// An objection to everything.
    pub(crate) const NONE: Self = Self(0);

    /// Do the guards hold; can `then` be executed; can `otherwise`.
    pub(crate) fn new(held: bool, then: bool, otherwise: bool) -> Self {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        Self(bit(held, HELD) | bit(then, THEN) | bit(otherwise, OTHERWISE))
    }

    pub(crate) fn encode(self) -> [u8; 1] {
        [self.0]
    }

    /// Of what a group says, which may have a version behind it. Bytes that no group of this version sends are an objection to
    /// everything.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        match bytes {
            [byte] | [byte, _, _, _, _, _, _, _, _] => Self(byte & Self::ALL.0),
            _ => Self::NONE,
        }
    }

    /// With the last version that the group has given.
    pub(crate) fn encode_with(self, version: Version) -> [u8; 9] {
        let mut bytes = [self.0; 9];
        bytes[1..].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// Guards hold, and a branch can be executed, if every group says so.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the guards hold, and so which branch is taken.
    pub(crate) fn held(self) -> bool {
        self.0 & HELD != 0
    }

    /// Whether `then` is taken, and can be executed.
    pub(crate) fn takes_then(self) -> bool {
        self.held() && self.executable()
    }

    /// Whether the branch taken can be executed.
    pub(crate) fn executable(self) -> bool {
        self.0 & if self.held() { THEN } else { OTHERWISE } != 0
    }
}

/// The version that stands behind a verdict; 0 if none does.
pub(crate) fn version_of(bytes: &[u8]) -> Version {
    bytes.get(1..).and_then(|rest| rest.try_into().ok()).map_or(0, Version::from_le_bytes)
}

/// The verdicts of a command, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedVerdicts {
    pub(crate) from: GroupSet,
    pub(crate) verdict: Verdict,
    /// The highest version that was told with them.
    pub(crate) version: Version,
}

impl ReceivedVerdicts {
    pub(crate) const NOBODY: Self =
        Self { from: GroupSet::EMPTY, verdict: Verdict::ALL, version: 0 };

    /// One group's word.
    pub(crate) fn of(from: GroupId, bytes: &[u8]) -> Self {
        let (verdict, version) = (Verdict::decode(bytes), version_of(bytes));
        Self { from: GroupSet::single(from), verdict, version }
    }

    pub(crate) fn hear(&mut self, from: GroupId, verdict: Verdict) {
        self.from = self.from.with(from);
        self.verdict = self.verdict.and(verdict);
    }
}

/// Verdicts on commands that this replica has not delivered yet.
///
/// Another group goes on only when it has this group's verdict, but that may be given by a replica
/// ahead of this one. So these are commands that this group has ordered and this replica has not
/// delivered: their number is bounded by what a log holds, and each is a few words here.
#[derive(Default)]
pub(crate) struct Early {
    heard: HashMap<MessageId, ReceivedVerdicts>,
    /// The last commands that were refused because their sessions are not open, for what is still
    /// said about these has nobody to wait for it, and no session table that would know.
    refused: VecDeque<MessageId>,
}

/// So many are remembered: more than can be refused while a verdict is on its way.
const REFUSED_MAX: usize = 1 << 10;

impl Early {
    pub(crate) fn hear(&mut self, message: MessageId, heard: ReceivedVerdicts) {
        if self.refused.contains(&message) {
            return;
        }
        let ours = self.heard.entry(message).or_insert(ReceivedVerdicts::NOBODY);
        ours.from = heard.from.iter().fold(ours.from, GroupSet::with);
        ours.verdict = ours.verdict.and(heard.verdict);
        ours.version = ours.version.max(heard.version);
    }

    /// What was heard about a command that is now delivered.
    pub(crate) fn take(&mut self, message: MessageId) -> ReceivedVerdicts {
        self.heard.remove(&message).unwrap_or(ReceivedVerdicts::NOBODY)
    }

    /// Nobody waits for verdicts on this one.
    pub(crate) fn refuse(&mut self, message: MessageId) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(message);
    }

    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }

    /// All that was heard, in the order of the messages' names.
    pub(crate) fn heard(&self) -> impl Iterator<Item = (MessageId, ReceivedVerdicts)> {
        let mut all: Vec<_> =
            self.heard.iter().map(|(message, heard)| (*message, *heard)).collect();
        all.sort_unstable_by_key(|(message, _)| *message);
        all.into_iter()
    }

    /// All that were refused, the oldest first.
    pub(crate) fn refused(&self) -> impl Iterator<Item = MessageId> {
        self.refused.iter().copied()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(MessageId) -> bool) {
        let refused = &self.refused;
        self.heard.retain(|message, _| keep(*message) && !refused.contains(message));
    }
}
