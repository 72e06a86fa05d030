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
use super::branch::Drafted;
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
    Spoken { command: Deferred, heard: Heard, judged: Judged, then: Option<Drafted> },
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

    /// The most by which it will yet let grow what the group holds. Something that made it shrink
    /// out of its turn counts as well: it will seem to those before it that it has not.
    fn growth_max(&self) -> i64 {
        match self {
            Self::Blocked { command, .. } | Self::Spoken { command, .. } => {
                command.growth_max.cast_signed()
            }
            Self::Answered { reply, grown, .. } => {
                (reply.len() as u64 + REPLY_OVERHEAD).cast_signed() - grown.min(&0)
            }
            Self::Again => 0,
        }
    }

    fn grown(&self) -> i64 {
        if let Self::Answered { grown, .. } = self { *grown } else { 0 }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Blocked { command, .. } | Self::Spoken { command, .. } => command.payload.len(),
            Self::Answered { reply, .. } => reply.len(),
            Self::Again => 0,
        }
    }
}

/// What is looked for in all that are under way, side by side.
#[derive(Clone, Copy)]
struct Mark {
    message: MessageId,
    /// Of its footprint, until it has taken effect.
    bits: u64,
    /// It is what was not delivered before.
    is_new: bool,
    /// What it met when it was last tried, counted from the first that was ever under way.
    behind: Option<u64>,
}

#[derive(Default)]
pub(super) struct UnderWay {
    commands: VecDeque<(Place, Stage)>,
    /// Of each.
    marks: VecDeque<Mark>,
    /// So many were under way and are over.
    over: u64,
    /// Of all stages together.
    bytes: usize,
    growth_max: i64,
    grown: i64,
    blocked: usize,
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
        let message = place.message;
        self.marks.push_back(Mark { message, bits: 0, is_new: true, behind: None });
        self.commands.push_back((place, Stage::Again));
        self.replace(self.len() - 1, stage);
    }

    /// Takes the first one, if it has taken effect: it is over.
    pub(super) fn pop_over(&mut self) -> Option<(Place, Stage)> {
        self.commands.front().filter(|(_, stage)| stage.deferred().is_none())?;
        let stage = self.replace(0, Stage::Again);
        self.marks.pop_front();
        self.over += 1;
        self.commands.pop_front().map(|(place, _)| (place, stage))
    }

    /// Where the message is, unless it has only come again.
    pub(super) fn find(&self, message: MessageId) -> Option<usize> {
        self.marks.iter().position(|mark| mark.message == message && mark.is_new)
    }

    pub(super) fn last_position(&self) -> Option<Version> {
        self.commands.back().map(|(place, _)| place.position)
    }

    pub(super) fn place(&self, at: usize) -> Place {
        self.commands[at].0
    }

    /// What the one at `at` has heard so far, if it has yet to hear.
    pub(super) fn heard(&mut self, at: usize) -> Option<&mut Heard> {
        match &mut self.commands[at].1 {
            Stage::Blocked { heard, .. } | Stage::Spoken { heard, .. } => Some(heard),
            Stage::Answered { .. } | Stage::Again => None,
        }
    }

    pub(super) fn stage(&self, at: usize) -> &Stage {
        &self.commands[at].1
    }

    /// Moves one down its list. Returns what it was.
    pub(super) fn replace(&mut self, at: usize, stage: Stage) -> Stage {
        let mark = &mut self.marks[at];
        mark.bits = stage.deferred().map_or(0, |command| command.footprint.bits());
        mark.is_new = !matches!(stage, Stage::Again);
        let before = std::mem::replace(&mut self.commands[at].1, stage);
        let after = &self.commands[at].1;
        self.bytes = self.bytes + after.bytes() - before.bytes();
        self.growth_max += after.growth_max() - before.growth_max();
        self.grown += after.grown() - before.grown();
        self.blocked += usize::from(matches!(after, Stage::Blocked { .. }));
        self.blocked -= usize::from(matches!(before, Stage::Blocked { .. }));
        before
    }

    /// Whether something before `at` that has yet to take effect meets what has this footprint.
    pub(super) fn meets(&self, at: usize, footprint: &Footprint) -> bool {
        self.first_met(at, footprint).is_some()
    }

    fn first_met(&self, at: usize, footprint: &Footprint) -> Option<usize> {
        let bits = footprint.bits();
        let mut before = self.marks.iter().take(at).enumerate();
        let met = before.find(|(i, mark)| {
            mark.bits & bits != 0
                && self.commands[*i].1.deferred().is_some_and(|it| it.footprint.meets(footprint))
        });
        met.map(|(i, _)| i).filter(|_| !planted(Mutant::MeetingPasses))
    }

    /// The first one from `from` on that may be tried: it is blocked, and nothing before it is in
    /// its way.
    pub(super) fn next_free(&mut self, from: usize) -> Option<usize> {
        if self.blocked == 0 {
            return None;
        }
        (from..self.len()).find(|at| self.is_free(*at))
    }

    fn is_free(&mut self, at: usize) -> bool {
        let Stage::Blocked { command, needs_turn, .. } = &self.commands[at].1 else { return false };
        if at == 0 || *needs_turn {
            return at == 0;
        }
        // Most often what was in its way still is.
        let behind = self.marks[at].behind.and_then(|behind| behind.checked_sub(self.over));
        if behind.is_some_and(|behind| self.marks[behind as usize].bits != 0) {
            return false;
        }
        let met = self.first_met(at, &command.footprint);
        self.marks[at].behind = met.map(|met| self.over + met as u64);
        met.is_none()
    }

    /// How much more, at most, the group would hold than it does, if all before `at` were over, and
    /// nothing behind had taken effect. Exact for the first.
    pub(super) fn growth_before(&self, at: usize) -> i64 {
        if at == 0 { -self.grown } else { self.growth_max }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(Place, Stage)> {
        self.commands.iter()
    }
}
