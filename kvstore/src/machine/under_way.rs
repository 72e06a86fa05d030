//! Commands that were delivered and are not over, in the order of delivery.
//!
//! A command that waits for other groups' verdicts holds up those behind it only if they
//! [meet](Footprint::meets): the others take effect, and are answered, at once. A command is *over*
//! when it has taken effect and all before it are over. Only then is its reply kept, so that the
//! session table and the history are made in the order of delivery, in whichever order commands took
//! effect.

use std::collections::VecDeque;

use skein_protocol::ids::{GroupSet, MessageId};
use skein_protocol::mutants::{Mutant, planted};

use super::Memo;
use super::exchange::Heard;
use super::execute::Judged;
use super::footprint::Footprint;
use super::sessions::REPLY_OVERHEAD;
use crate::command::Version;

/// So many are under way at most.
const UNDER_WAY_MAX: usize = 256;
/// When these have so many bytes, no more are taken. They travel with copies of the state.
const UNDER_WAY_BYTES_MAX: usize = 1 << 20;

/// A delivery, without what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) message: MessageId,
    pub(super) position: Version,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
}

/// What has yet to take effect.
pub(super) struct Deferred {
    pub(super) payload: Vec<u8>,
    pub(super) footprint: Footprint,
    /// The most by which it may let grow what the group holds.
    pub(super) growth_max: u64,
}

impl Deferred {
    /// Of a request to begin or end sessions.
    pub(super) fn new(payload: &[u8]) -> Self {
        Self { payload: payload.to_vec(), footprint: Footprint::default(), growth_max: 0 }
    }
}

/// How far a command has come. It only ever moves down this list.
pub(super) enum Stage {
    /// It meets one before it that has yet to take effect, or needs its turn: that all before it are
    /// over.
    Blocked { command: Deferred, heard: Heard, needs_turn: bool },
    /// We have told the other groups our verdict, and wait for theirs.
    Spoken { command: Deferred, heard: Heard, judged: Judged },
    /// It has taken effect, by which the store has grown so much, and was answered.
    Answered { reply: Vec<u8>, memo: Option<Memo>, grown: i64 },
    /// It is one that came before: what that is owed is repeated when it is its turn.
    Again,
}

impl Stage {
    fn deferred(&self) -> Option<&Deferred> {
        match self {
            Self::Blocked { command, .. } | Self::Spoken { command, .. } => Some(command),
            Self::Answered { .. } | Self::Again => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Blocked { command, .. } | Self::Spoken { command, .. } => command.payload.len(),
            Self::Answered { reply, .. } => reply.len(),
            Self::Again => 0,
        }
    }
}

#[derive(Default)]
pub(super) struct UnderWay {
    commands: VecDeque<(Place, Stage)>,
    bytes: usize,
}

impl UnderWay {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether it takes another. Nothing is delivered behind what needs its turn: sessions begin and
    /// end there.
    pub(super) fn has_room(&self) -> bool {
        let Some((_, last)) = self.commands.back() else { return true };
        let needs_turn = matches!(last, Stage::Blocked { needs_turn: true, .. });
        !needs_turn && self.len() < UNDER_WAY_MAX && self.bytes < UNDER_WAY_BYTES_MAX
    }

    pub(super) fn push(&mut self, place: Place, stage: Stage) {
        self.bytes += stage.bytes();
        self.commands.push_back((place, stage));
    }

    /// Takes the first one, if it has taken effect: it is over.
    pub(super) fn pop_over(&mut self) -> Option<(Place, Stage)> {
        let over = self.commands.pop_front_if(|(_, stage)| stage.deferred().is_none())?;
        self.bytes -= over.1.bytes();
        Some(over)
    }

    /// Where the message is, unless it has only come again.
    pub(super) fn find(&self, message: MessageId) -> Option<usize> {
        let first = |(place, stage): &(Place, Stage)| {
            place.message == message && !matches!(stage, Stage::Again)
        };
        self.commands.iter().position(first)
    }

    pub(super) fn last_position(&self) -> Option<Version> {
        self.commands.back().map(|(place, _)| place.position)
    }

    pub(super) fn place(&self, at: usize) -> Place {
        self.commands[at].0
    }

    pub(super) fn stage(&mut self, at: usize) -> &mut Stage {
        &mut self.commands[at].1
    }

    /// Moves one down its list. Returns what it was.
    pub(super) fn replace(&mut self, at: usize, stage: Stage) -> Stage {
        self.bytes += stage.bytes();
        let before = std::mem::replace(&mut self.commands[at].1, stage);
        self.bytes -= before.bytes();
        before
    }

    /// Whether something before `at` that has yet to take effect meets what has this footprint.
    pub(super) fn meets(&self, at: usize, footprint: &Footprint) -> bool {
        let before = self.commands.iter().take(at);
        let mut deferred = before.filter_map(|(_, stage)| stage.deferred());
        deferred.any(|earlier| earlier.footprint.meets(footprint))
            && !planted(Mutant::MeetingPasses)
    }

    /// Whether the one at `at` may be tried: it is blocked, and nothing before it is in its way.
    pub(super) fn is_free(&self, at: usize) -> bool {
        match &self.commands[at].1 {
            Stage::Blocked { needs_turn, .. } if at == 0 || *needs_turn => at == 0,
            Stage::Blocked { command, .. } => !self.meets(at, &command.footprint),
            _ => false,
        }
    }

    /// How much more, at most, the group would hold than it does, if all before `at` were over, and
    /// nothing behind had taken effect. Exact for the first.
    pub(super) fn growth_before(&self, at: usize) -> i64 {
        let growth = |(i, (_, stage)): (usize, &(Place, Stage))| match stage {
            Stage::Answered { reply, .. } if i < at => {
                (reply.len() as u64 + REPLY_OVERHEAD).cast_signed()
            }
            Stage::Answered { grown, .. } if i > at => -grown,
            Stage::Blocked { command, .. } | Stage::Spoken { command, .. } if i < at => {
                i64::try_from(command.growth_max).unwrap_or(i64::MAX)
            }
            _ => 0,
        };
        self.commands.iter().enumerate().map(growth).fold(0, i64::saturating_add)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Place, Stage)> {
        self.commands.iter()
    }
}
