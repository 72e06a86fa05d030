//! Verdicts that groups exchange about a command, and verdicts that arrive before their command is delivered.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_protocol::ids::{GroupId, GroupSet, MessageId};

use crate::command::Version;

/// The verdict of one group about a command, or of several groups combined. One byte on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict(u8);

const HELD: u8 = 1;
const THEN: u8 = 2;
const OTHERWISE: u8 = 4;

impl Verdict {
    /// No objection: the neutral element of [`and`](Self::and).
    pub(crate) const ALL: Self = Self(HELD | THEN | OTHERWISE);

    /// An objection to everything.
    pub(crate) const NONE: Self = Self(0);

    /// Whether the guards hold, whether `then` can be executed, and whether `otherwise` can.
    pub(crate) fn new(held: bool, then: bool, otherwise: bool) -> Self {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        Self(bit(held, HELD) | bit(then, THEN) | bit(otherwise, OTHERWISE))
    }

    pub(crate) fn encode(self) -> [u8; 1] {
        [self.0]
    }

    /// Decodes a group's verdict, which a version may follow. Bytes that no group of this version sends are an
    /// objection to everything.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        match bytes {
            [byte] | [byte, _, _, _, _, _, _, _, _] => Self(byte & Self::ALL.0),
            _ => Self::NONE,
        }
    }

    /// The verdict followed by the group's version.
    pub(crate) fn encode_with(self, version: Version) -> [u8; 9] {
        let mut bytes = [self.0; 9];
        bytes[1..].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// The combined verdict: guards hold, and a branch can be executed, if both verdicts say so.
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether the guards hold: `then` is taken if they do, `otherwise` if not.
    pub(crate) fn held(self) -> bool {
        self.0 & HELD != 0
    }

    /// Whether `then` is taken and can be executed.
    pub(crate) fn takes_then(self) -> bool {
        self.held() && self.executable()
    }

    /// Whether the branch taken can be executed.
    pub(crate) fn executable(self) -> bool {
        self.0 & if self.held() { THEN } else { OTHERWISE } != 0
    }
}

/// The version that follows a verdict; 0 if there is none.
pub(crate) fn version_of(bytes: &[u8]) -> Version {
    bytes.get(1..).and_then(|rest| rest.try_into().ok()).map_or(0, Version::from_le_bytes)
}

/// The verdicts about a command that were received so far. `verdict` combines the verdicts of the groups in
/// `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedVerdicts {
    pub(crate) from: GroupSet,
    pub(crate) verdict: Verdict,
    /// The highest version received with a verdict; 0 if there was none.
    pub(crate) version: Version,
}

impl ReceivedVerdicts {
    pub(crate) const NOBODY: Self =
        Self { from: GroupSet::EMPTY, verdict: Verdict::ALL, version: 0 };

    /// The verdict of one group.
    pub(crate) fn of(from: GroupId, bytes: &[u8]) -> Self {
        let (verdict, version) = (Verdict::decode(bytes), version_of(bytes));
        Self { from: GroupSet::single(from), verdict, version }
    }

    pub(crate) fn hear(&mut self, from: GroupId, verdict: Verdict) {
        self.from = self.from.with(from);
        self.verdict = self.verdict.and(verdict);
    }
}

/// Verdicts about commands that this replica has not delivered yet.
///
/// Another group completes a command only after it has received this group's verdict, which a replica ahead of
/// this one may have sent. So this group has ordered each of these commands, unless it has forgotten some: it was recreated,
/// or has objected. These go with their sessions. The number of the others is bounded by the entries of a log, and each takes
/// a few words.
#[derive(Default)]
pub(crate) struct Early {
    heard: HashMap<MessageId, ReceivedVerdicts>,
    /// The last commands that were refused because their sessions are not open. No command waits for verdicts
    /// about them that arrive later, and the session table has no record of them. Their number is at most
    /// [`REFUSED_MAX`].
    refused: VecDeque<MessageId>,
}

/// More commands than can be refused while a verdict is in transit.
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

    /// Removes and returns the verdicts about a command that is now delivered.
    pub(crate) fn take(&mut self, message: MessageId) -> ReceivedVerdicts {
        self.heard.remove(&message).unwrap_or(ReceivedVerdicts::NOBODY)
    }

    /// Records a refused command. Later verdicts about it are dropped.
    pub(crate) fn refuse(&mut self, message: MessageId) {
        if self.refused.len() == REFUSED_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(message);
    }

    pub(crate) fn len(&self) -> usize {
        self.heard.len()
    }

    /// All verdicts, sorted by message.
    pub(crate) fn heard(&self) -> impl Iterator<Item = (MessageId, ReceivedVerdicts)> {
        let mut all: Vec<_> =
            self.heard.iter().map(|(message, heard)| (*message, *heard)).collect();
        all.sort_unstable_by_key(|(message, _)| *message);
        all.into_iter()
    }

    /// All refused commands, the oldest first.
    pub(crate) fn refused(&self) -> impl Iterator<Item = MessageId> {
        self.refused.iter().copied()
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(MessageId) -> bool) {
        let refused = &self.refused;
        self.heard.retain(|message, _| keep(*message) && !refused.contains(message));
    }
}
