//! Commands that were delivered and are not over, in the order of delivery.
//!
//! A command that waits for other groups' verdicts holds up those behind it only if they
//! [meet](ReadWriteSet): the others take effect, and are answered, at once. A command is *over*
//! when it has taken effect and all before it are over. Only then is its reply kept, so that the
//! session table and the history are made in the order of delivery, in whichever order commands took
//! effect.

use std::collections::VecDeque;

use skein_protocol::ids::{GroupId, GroupSet, MessageId};
use skein_protocol::mutants::{Mutant, planted};

use super::Memo;
use super::branch::Drafted;
use super::conflict_index::ConflictIndex;
use super::exchange::ReceivedVerdicts;
use super::execute::Judged;
use super::read_write_set::ReadWriteSet;
use super::sessions::REPLY_OVERHEAD;
use crate::command::Version;
use crate::store::compact::Compact;

/// So many are under way at most.
const UNDER_WAY_MAX: usize = 256;
/// When these have so many bytes, no more are taken. They travel with copies of the state.
const UNDER_WAY_BYTES_MAX: usize = 1 << 20;
/// The memory of a command with a longer payload is not used again.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// A delivery, without what was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandPosition {
    pub(super) message: MessageId,
    pub(super) position: Version,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
}

/// What has yet to take effect.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) payload: Vec<u8>,
    pub(super) read_write_set: ReadWriteSet,
    /// The most by which it may let grow what the group holds.
    pub(super) growth_max: u64,
    /// The same, by what it writes alone.
    pub(super) written_max: u64,
    /// Whether what it answers is kept.
    pub(super) memo: Memo,
    /// It has nothing to do here if its guards do not hold.
    pub(super) idle_otherwise: bool,
    /// What we told the others rests on this, when we have.
    pub(super) judged: Judged,
    /// What `then` comes to, if that is known.
    pub(super) then: Drafted,
}

impl Deferred {
    fn clear(&mut self) {
        self.payload.clear();
        self.read_write_set.clear();
        self.judged = Judged::default();
        self.then.clear();
    }
}

/// What a command has changed of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// By how many bytes it has grown.
    pub(super) grown: i64,
    /// What was added to its digest.
    pub(super) digest: u64,
}

impl Change {
    pub(super) const NONE: Self = Self { grown: 0, digest: 0 };
}

/// How far a command has come. It only ever moves down this list.
pub(super) enum Stage {
    /// It meets one before it that has yet to take effect, or needs its turn: that all before it are
    /// over.
    Blocked { command: Box<Deferred>, heard: ReceivedVerdicts, needs_turn: bool },
    /// We have told the other groups our verdict, and wait for theirs.
    Spoken { command: Box<Deferred>, heard: ReceivedVerdicts },
    /// It moves a slot, it is its turn, and the slot's owner has yet to say whether it is empty.
    Awaits { command: Box<Deferred>, owner: GroupId },
    /// It has taken effect, by which the store has changed so much, and was answered.
    Answered { reply: Compact, memo: Option<Memo>, change: Change },
    /// It is one that came before: what that is owed is repeated when it is its turn.
    Again,
}

impl Stage {
    fn deferred(&self) -> Option<&Deferred> {
        match self {
            Self::Blocked { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => Some(command),
            Self::Answered { .. } | Self::Again => None,
        }
    }

    /// The most by which it will yet let grow what the group holds. Something that made it shrink
    /// out of its turn counts as well: it will seem to those before it that it has not.
    fn growth_max(&self) -> i64 {
        match self {
            Self::Blocked { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => command.growth_max.cast_signed(),
            Self::Answered { reply, change, .. } => {
                (reply.as_slice().len() as u64 + REPLY_OVERHEAD).cast_signed() - change.grown.min(0)
            }
            Self::Again => 0,
        }
    }

    /// The most by which it will yet let grow the values of this group, together.
    fn written_max(&self) -> u64 {
        self.deferred().map_or(0, |command| command.written_max)
    }

    fn change(&self) -> Change {
        if let Self::Answered { change, .. } = self { *change } else { Change::NONE }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Blocked { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => command.payload.len(),
            Self::Answered { reply, .. } => reply.as_slice().len(),
            Self::Again => 0,
        }
    }
}

/// What is looked for in all that are under way, side by side.
#[derive(Clone, Copy)]
struct Mark {
    message: MessageId,
    /// It has yet to take effect.
    waits: bool,
    /// It is what was not delivered before.
    is_new: bool,
    /// The number of what it met when it was last tried.
    behind: Option<u64>,
}

/// Commands have numbers here, from the first that was ever under way.
#[derive(Default)]
pub(super) struct UnderWay {
    commands: VecDeque<(CommandPosition, Stage)>,
    /// Of each.
    marks: VecDeque<Mark>,
    /// So many were under way and are over.
    over: u64,
    /// Of all stages together.
    bytes: usize,
    growth_max: i64,
    written_max: u64,
    grown: i64,
    changed: u64,
    /// The numbers of those that are blocked, rising.
    blocked: Vec<u64>,
    /// Of those that have yet to take effect.
    conflicts: ConflictIndex,
    /// So many of them read ranges.
    with_ranges: usize,
    /// Memory of those that have taken effect.
    #[expect(clippy::vec_box, reason = "they are used as they are")]
    spare: Vec<Box<Deferred>>,
}

impl UnderWay {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether it takes another. Nothing is delivered behind what needs its turn: sessions begin and
    /// end there, and slots are moved.
    pub(super) fn has_room(&self) -> bool {
        let Some((_, last)) = self.commands.back() else { return true };
        let needs_turn =
            matches!(last, Stage::Blocked { needs_turn: true, .. } | Stage::Awaits { .. });
        !needs_turn && self.len() < UNDER_WAY_MAX && self.bytes < UNDER_WAY_BYTES_MAX
    }

    /// A command without anything in it, in memory that was used before.
    pub(super) fn spare(&mut self) -> Box<Deferred> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps its memory for another.
    pub(super) fn recycle(&mut self, mut command: Box<Deferred>) {
        if command.payload.capacity() <= SPARE_BYTES_MAX && self.spare.len() < UNDER_WAY_MAX {
            command.clear();
            self.spare.push(command);
        }
    }

    pub(super) fn push(&mut self, place: CommandPosition, stage: Stage) {
        let (message, number) = (place.message, self.over + self.len() as u64);
        let is_new = !matches!(stage, Stage::Again);
        let mark = Mark { message, waits: false, is_new, behind: None };
        self.marks.push_back(mark);
        self.commands.push_back((place, Stage::Again));
        if let Some(command) = stage.deferred() {
            self.marks.back_mut().expect("just pushed").waits = true;
            self.conflicts.add(number, &command.read_write_set);
            self.with_ranges += usize::from(command.read_write_set.has_ranges());
        }
        self.put(self.len() - 1, stage);
    }

    /// Takes the first one, if it has taken effect: it is over.
    pub(super) fn pop_over(&mut self) -> Option<(CommandPosition, Stage)> {
        if self.marks.front()?.waits {
            return None;
        }
        let stage = self.take(0);
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

    pub(super) fn place(&self, at: usize) -> CommandPosition {
        self.commands[at].0
    }

    /// What the one at `at` has heard so far, if it has yet to hear.
    pub(super) fn heard(&mut self, at: usize) -> Option<&mut ReceivedVerdicts> {
        match &mut self.commands[at].1 {
            Stage::Blocked { heard, .. } | Stage::Spoken { heard, .. } => Some(heard),
            Stage::Awaits { .. } | Stage::Answered { .. } | Stage::Again => None,
        }
    }

    pub(super) fn stage(&self, at: usize) -> &Stage {
        &self.commands[at].1
    }

    /// Takes the one at `at` out, to [put](Self::put) it back further down its list. Until then it counts
    /// for nothing, except that what it meets behind it still waits for it.
    pub(super) fn take(&mut self, at: usize) -> Stage {
        let stage = std::mem::replace(&mut self.commands[at].1, Stage::Again);
        self.bytes -= stage.bytes();
        self.growth_max -= stage.growth_max();
        self.written_max -= stage.written_max();
        let Change { grown, digest } = stage.change();
        self.grown -= grown;
        self.changed = self.changed.wrapping_sub(digest);
        if matches!(stage, Stage::Blocked { .. }) {
            let number = self.over + at as u64;
            let place = self.blocked.binary_search(&number).expect("it is blocked");
            self.blocked.remove(place);
        }
        stage
    }

    /// Puts one back that was taken out.
    pub(super) fn put(&mut self, at: usize, stage: Stage) {
        self.bytes += stage.bytes();
        self.growth_max += stage.growth_max();
        self.written_max += stage.written_max();
        let Change { grown, digest } = stage.change();
        self.grown += grown;
        self.changed = self.changed.wrapping_add(digest);
        if matches!(stage, Stage::Blocked { .. }) {
            let number = self.over + at as u64;
            let place = self.blocked.partition_point(|blocked| *blocked < number);
            self.blocked.insert(place, number);
        }
        self.commands[at].1 = stage;
    }

    /// The one at `at`, which was taken out, has taken effect.
    pub(super) fn put_answered(&mut self, at: usize, command: Box<Deferred>, stage: Stage) {
        self.marks[at].waits = false;
        self.conflicts.remove(self.over + at as u64, &command.read_write_set);
        self.with_ranges -= usize::from(command.read_write_set.has_ranges());
        self.recycle(command);
        self.put(at, stage);
    }

    /// Whether something before `at` that has yet to take effect meets what has this read_write_set.
    pub(super) fn meets(&self, at: usize, read_write_set: &ReadWriteSet) -> bool {
        self.last_met(at, read_write_set).is_some()
    }

    /// The number of the last such: most often, when that has taken effect, so have the others.
    fn last_met(&self, at: usize, read_write_set: &ReadWriteSet) -> Option<u64> {
        let met = self.conflicts.last_met(self.over + at as u64, read_write_set);
        let by_range = if self.with_ranges > 0 || read_write_set.has_ranges() {
            let meets = |at: &usize| {
                let command = self.commands[*at].1.deferred();
                command.is_some_and(|it| it.read_write_set.meets_by_range(read_write_set))
            };
            (0..at).rfind(meets).map(|at| self.over + at as u64)
        } else {
            None
        };
        met.max(by_range).filter(|_| !planted(Mutant::MeetingPasses))
    }

    /// The first one from `from` on that may be tried: it is blocked, and nothing before it is in
    /// its way.
    pub(super) fn next_free(&mut self, from: usize) -> Option<usize> {
        let first = self.over + from as u64;
        let first = self.blocked.partition_point(|number| *number < first);
        let free = (first..self.blocked.len()).find(|blocked| self.is_free(self.blocked[*blocked]));
        free.map(|blocked| (self.blocked[blocked] - self.over) as usize)
    }

    fn is_free(&mut self, number: u64) -> bool {
        let at = (number - self.over) as usize;
        // Most often what was in its way still is.
        let behind = self.marks[at].behind.and_then(|behind| behind.checked_sub(self.over));
        if behind.is_some_and(|behind| self.marks[behind as usize].waits) {
            return false;
        }
        let Stage::Blocked { command, needs_turn, .. } = &self.commands[at].1 else {
            unreachable!("it is among those that are blocked");
        };
        if at == 0 || *needs_turn {
            return at == 0;
        }
        let met = self.last_met(at, &command.read_write_set);
        self.marks[at].behind = met;
        met.is_none()
    }

    /// How much more, at most, the group would hold than it does, if all before `at` were over, and
    /// nothing behind had taken effect. Exact for the first.
    pub(super) fn growth_before(&self, at: usize) -> i64 {
        if at == 0 { -self.grown } else { self.growth_max }
    }

    /// The most by which all that are under way will yet let grow the values of this group, together.
    pub(super) fn written_max(&self) -> u64 {
        self.written_max
    }

    /// What those that have taken effect and are not over have added to the store's digest.
    pub(super) fn changed(&self) -> u64 {
        self.changed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(CommandPosition, Stage)> {
        self.commands.iter()
    }
}
