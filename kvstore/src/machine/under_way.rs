//! Commands that were delivered and are not over, in the order of delivery.
//!
//! A command that waits for other groups' verdicts delays those behind it only if they [conflict](ReadWriteSet)
//! with it. The others take effect, and are answered, at once. A command is *over* when it and all commands
//! before it have taken effect. Only then is its reply recorded. So the session table and the history follow
//! the order of delivery, whatever the order in which commands took effect.

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

/// At most this many commands are under way.
pub(super) const UNDER_WAY_MAX: usize = 256;
/// No command is accepted once payloads and replies under way have this many bytes. Copies of the state contain
/// them.
pub(super) const UNDER_WAY_BYTES_MAX: usize = 1 << 20;
/// The buffers of a command with a longer payload are not reused.
const SPARE_BYTES_MAX: usize = 4 << 10;

/// A delivery without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandPosition {
    pub(super) message: MessageId,
    pub(super) position: Version,
    pub(super) low_water: u64,
    pub(super) destinations: GroupSet,
}

/// A command that has not taken effect.
#[derive(Default)]
pub(super) struct Deferred {
    pub(super) payload: Vec<u8>,
    pub(super) read_write_set: ReadWriteSet,
    /// Upper bound, in bytes, of the growth of the group's state by this command, its retained reply included.
    pub(super) growth_max: u64,
    /// Upper bound, in bytes, of the growth of the group's keys and values by this command.
    pub(super) written_max: u64,
    pub(super) memo: Memo,
    /// This group has no operation in `otherwise`.
    pub(super) idle_otherwise: bool,
    /// The refusals on which this group's verdict rests, once the verdict was sent.
    pub(super) judged: Judged,
    /// The result of `then`, if it was kept when the verdict was sent.
    pub(super) then: Drafted,
    /// What it reads or writes is pinned in the store.
    pub(super) pinned: bool,
}

impl Deferred {
    fn clear(&mut self) {
        self.payload.clear();
        self.read_write_set.clear();
        self.judged = Judged::default();
        self.then.clear();
        self.pinned = false;
    }
}

/// Change of the store and the slot map by one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// In bytes; negative if the store has shrunk.
    pub(super) grown: i64,
    /// Difference of the digests, modulo 2^64.
    pub(super) digest: u64,
}

impl Change {
    pub(super) const NONE: Self = Self { grown: 0, digest: 0 };
}

/// Progress of a command. It only moves down this list.
pub(super) enum Stage {
    /// It conflicts with a command before it that has not taken effect, or it needs its turn: all commands
    /// before it must be over.
    Blocked { command: Box<Deferred>, heard: ReceivedVerdicts, needs_turn: bool },
    /// Nothing blocks it, and something that it reads or writes is not in memory yet. Only this replica waits.
    Fetching { command: Box<Deferred>, heard: ReceivedVerdicts, needs_turn: bool },
    /// This group has sent its verdict and waits for the others'.
    Spoken { command: Box<Deferred>, heard: ReceivedVerdicts },
    /// A move at its turn. The slot's owner has not yet reported whether the slot is empty.
    Awaits { command: Box<Deferred>, owner: GroupId },
    /// It has taken effect, with this change, and was answered.
    Answered { reply: Compact, memo: Option<Memo>, change: Change },
    /// A duplicate, or a read that this replica left to the leader. At its turn, the retained reply to it is
    /// repeated.
    Again,
}

impl Stage {
    fn deferred(&self) -> Option<&Deferred> {
        match self {
            Self::Blocked { command, .. }
            | Self::Fetching { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => Some(command),
            Self::Answered { .. } | Self::Again => None,
        }
    }

    pub(super) fn read_write_set(&self) -> Option<&ReadWriteSet> {
        self.deferred().map(|command| &command.read_write_set)
    }

    /// Upper bound, in bytes, by which this command will still increase the state of the group. If it has
    /// shrunk the store out of its turn, that counts too: commands before it are judged as if it had not.
    fn growth_max(&self) -> i64 {
        match self {
            Self::Blocked { command, .. }
            | Self::Fetching { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => command.growth_max.cast_signed(),
            Self::Answered { reply, change, .. } => {
                (reply.as_slice().len() as u64 + REPLY_OVERHEAD).cast_signed() - change.grown.min(0)
            }
            Self::Again => 0,
        }
    }

    /// Upper bound, in bytes, by which this command will still increase the group's keys and values.
    fn written_max(&self) -> u64 {
        self.deferred().map_or(0, |command| command.written_max)
    }

    fn change(&self) -> Change {
        if let Self::Answered { change, .. } = self { *change } else { Change::NONE }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Blocked { command, .. }
            | Self::Fetching { command, .. }
            | Self::Spoken { command, .. }
            | Self::Awaits { command, .. } => command.payload.len(),
            Self::Answered { reply, .. } => reply.as_slice().len(),
            Self::Again => 0,
        }
    }
}

/// The fields that searches through all commands read, side by side in memory.
#[derive(Clone, Copy)]
struct Mark {
    message: MessageId,
    /// It has not taken effect.
    waits: bool,
    /// It is not [`Stage::Again`].
    is_new: bool,
    /// Number of the last command that it conflicted with when it was last tried.
    behind: Option<u64>,
}

/// Commands are numbered from the first that was ever under way: `commands[i]` has the number `over + i`.
#[derive(Default)]
pub(super) struct UnderWay {
    commands: VecDeque<(CommandPosition, Stage)>,
    /// One per command: `marks.len() == commands.len()`.
    marks: VecDeque<Mark>,
    /// Number of commands that were under way and are over.
    over: u64,
    /// This and the next four are sums over all stages.
    bytes: usize,
    growth_max: i64,
    written_max: u64,
    grown: i64,
    changed: u64,
    /// Numbers of the blocked commands, ascending.
    blocked: Vec<u64>,
    /// Numbers of the commands that are fetching, ascending.
    fetching: Vec<u64>,
    /// The commands that have not taken effect.
    conflicts: ConflictIndex,
    /// Number of commands in `conflicts` that read ranges.
    with_ranges: usize,
    /// Empty commands whose buffers are reused.
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

    /// Whether another command may be delivered. Nothing is delivered behind a command that needs its turn:
    /// such a command may open or end sessions, or move a slot.
    pub(super) fn has_room(&self) -> bool {
        let Some((_, last)) = self.commands.back() else { return true };
        let needs_turn = matches!(
            last,
            Stage::Blocked { needs_turn: true, .. }
                | Stage::Fetching { needs_turn: true, .. }
                | Stage::Awaits { .. }
        );
        !needs_turn && self.len() < UNDER_WAY_MAX && self.bytes < UNDER_WAY_BYTES_MAX
    }

    /// An empty command, with the buffers of an earlier one if possible.
    pub(super) fn spare(&mut self) -> Box<Deferred> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the buffers of `command` for another one.
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

    /// Removes the first command if it has taken effect: it is over.
    pub(super) fn pop_over(&mut self) -> Option<(CommandPosition, Stage)> {
        if self.marks.front()?.waits {
            return None;
        }
        let stage = self.take(0);
        self.marks.pop_front();
        self.over += 1;
        self.commands.pop_front().map(|(place, _)| (place, stage))
    }

    /// Index of the message's command. [`Stage::Again`] is not found.
    pub(super) fn find(&self, message: MessageId) -> Option<usize> {
        self.marks.iter().position(|mark| mark.message == message && mark.is_new)
    }

    pub(super) fn last_position(&self) -> Option<Version> {
        self.commands.back().map(|(place, _)| place.position)
    }

    pub(super) fn place(&self, at: usize) -> CommandPosition {
        self.commands[at].0
    }

    /// The verdicts about the command at `at`, if it collects verdicts.
    pub(super) fn heard(&mut self, at: usize) -> Option<&mut ReceivedVerdicts> {
        match &mut self.commands[at].1 {
            Stage::Blocked { heard, .. }
            | Stage::Fetching { heard, .. }
            | Stage::Spoken { heard, .. } => Some(heard),
            Stage::Awaits { .. } | Stage::Answered { .. } | Stage::Again => None,
        }
    }

    pub(super) fn stage(&self, at: usize) -> &Stage {
        &self.commands[at].1
    }

    /// Takes out the stage of the command at `at`, to [put](Self::put) back a later one. Until then the command
    /// counts in none of the sums, but it stays in the conflict index.
    pub(super) fn take(&mut self, at: usize) -> Stage {
        let stage = std::mem::replace(&mut self.commands[at].1, Stage::Again);
        self.bytes -= stage.bytes();
        self.growth_max -= stage.growth_max();
        self.written_max -= stage.written_max();
        let Change { grown, digest } = stage.change();
        self.grown -= grown;
        self.changed = self.changed.wrapping_sub(digest);
        let number = self.over + at as u64;
        if let Some(list) = self.list_of(&stage) {
            let place = list.binary_search(&number).expect("it is listed");
            list.remove(place);
        }
        stage
    }

    /// Puts back a stage after [`take`](Self::take).
    pub(super) fn put(&mut self, at: usize, stage: Stage) {
        self.bytes += stage.bytes();
        self.growth_max += stage.growth_max();
        self.written_max += stage.written_max();
        let Change { grown, digest } = stage.change();
        self.grown += grown;
        self.changed = self.changed.wrapping_add(digest);
        let number = self.over + at as u64;
        if let Some(list) = self.list_of(&stage) {
            let place = list.partition_point(|listed| *listed < number);
            list.insert(place, number);
        }
        self.commands[at].1 = stage;
    }

    /// The list that has all commands of this stage.
    const fn list_of(&mut self, stage: &Stage) -> Option<&mut Vec<u64>> {
        match stage {
            Stage::Blocked { .. } => Some(&mut self.blocked),
            Stage::Fetching { .. } => Some(&mut self.fetching),
            Stage::Spoken { .. } | Stage::Awaits { .. } | Stage::Answered { .. } | Stage::Again => {
                None
            }
        }
    }

    /// Puts back the command at `at`, which was taken out and has taken effect.
    pub(super) fn put_answered(&mut self, at: usize, command: Box<Deferred>, stage: Stage) {
        self.marks[at].waits = false;
        self.conflicts.remove(self.over + at as u64, &command.read_write_set);
        self.with_ranges -= usize::from(command.read_write_set.has_ranges());
        self.recycle(command);
        self.put(at, stage);
    }

    /// Whether a command before `at` that has not taken effect conflicts with this read-write set.
    pub(super) fn meets(&self, at: usize, read_write_set: &ReadWriteSet) -> bool {
        self.last_met(at, read_write_set).is_some()
    }

    /// Number of the last such command. Usually all others have taken effect when the last one has.
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

    /// Index of the first command, from `from` on, that is blocked and that nothing before it blocks any more.
    pub(super) fn next_free(&mut self, from: usize) -> Option<usize> {
        let first = self.over + from as u64;
        let first = self.blocked.partition_point(|number| *number < first);
        let free = (first..self.blocked.len()).find(|blocked| self.is_free(self.blocked[*blocked]));
        free.map(|blocked| (self.blocked[blocked] - self.over) as usize)
    }

    /// Index of the first command, from `from` on, whose fetch is over: `has` says so.
    pub(super) fn next_fetched(
        &self,
        from: usize,
        has: impl Fn(&ReadWriteSet) -> bool,
    ) -> Option<usize> {
        let first = self.over + from as u64;
        let mut later = self.fetching.iter().filter(|number| **number >= first);
        let fetched = later.find(|number| {
            let command = self.commands[(**number - self.over) as usize].1.deferred();
            command.is_some_and(|command| has(&command.read_write_set))
        });
        fetched.map(|number| (number - self.over) as usize)
    }

    /// Number of commands that are fetching.
    pub(super) const fn fetching(&self) -> usize {
        self.fetching.len()
    }

    fn is_free(&mut self, number: u64) -> bool {
        let at = (number - self.over) as usize;
        // Usually, the command that was in its way still is.
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

    /// Upper bound, in bytes, by which the state of the group would grow from now if all commands before `at`
    /// were over and none from `at` on had taken effect. Exact for the first command.
    pub(super) fn growth_before(&self, at: usize) -> i64 {
        if at == 0 { -self.grown } else { self.growth_max }
    }

    /// Upper bound, in bytes, by which all commands under way will still increase the group's keys and values.
    pub(super) fn written_max(&self) -> u64 {
        self.written_max
    }

    /// Sum of the digest changes by commands that have taken effect and are not over.
    pub(super) fn changed(&self) -> u64 {
        self.changed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(CommandPosition, Stage)> {
        self.commands.iter()
    }
}
