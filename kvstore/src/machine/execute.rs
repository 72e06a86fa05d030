//! Executes a transaction in one group.

use skein_multicast::application::Outbox;
use skein_protocol::mutants::{Mutant, planted};

use super::branch::{Draft, Halt, Room, holds, pair_bytes};
use super::exchange::{ReceivedVerdicts, Verdict};
use super::share::Share;
use super::stop::{Stop, settle};
use super::under_way::CommandPosition;
use super::writes::Writes;
use super::{Machine, Memo};
use crate::command::{Operation, Version};
use crate::number::add;
use crate::reply::{Outcome, Refusal};
use crate::rules;
use crate::store::{Store, Wanted};
use crate::wire::Bytes;

/// Maximum length, in bytes, of an outcome without a value that was read, and of a number.
const OUTCOME_MAX: u64 = 32;

/// Inputs of a command's execution besides keys and values.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) version: Version,
    pub(super) room: Room,
    /// Some commands before it are not over: `room` then contains an upper bound of what the group holds when
    /// they are.
    pub(super) early: bool,
}

/// Result of executing a command.
pub(super) enum Came<'a> {
    /// It took effect or was refused. The writer holds the reply.
    Answered(Memo),
    /// This group has sent its verdict, and those of other groups are missing.
    Spoken { heard: ReceivedVerdicts, opinion: Opinion<'a> },
    /// Whether it is refused depends on the results of commands before it. Nothing has changed.
    Unsure,
}

/// Why this group's part of a branch cannot be executed. `None` if it can, or if it was not tried.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judged {
    pub(super) then: Option<Box<Refusal>>,
    pub(super) otherwise: Option<Box<Refusal>>,
}

/// The conclusions of this group from its own keys.
pub(super) struct Opinion<'a> {
    verdict: Verdict,
    pub(super) judged: Judged,
    /// The writes of `then`, if it can be executed. The writer then holds its reply.
    pub(super) then: Option<Writes<'a>>,
    /// Upper bound of the length, in bytes, of an answer that is not a refusal.
    pub(super) reply_bytes_max: usize,
}

impl Judged {
    pub(super) fn refusal(&self, held: bool) -> Option<&Refusal> {
        if held { self.then.as_deref() } else { self.otherwise.as_deref() }
    }
}

/// Whether room was refused because of an upper bound, so that there may be room after all.
fn is_unsure<T>(result: &Result<T, Refusal>, turn: Turn) -> bool {
    turn.early && matches!(result, Err(Refusal::OutOfMemory { .. }))
}

impl<S: Store> Machine<S> {
    pub(super) fn execute<'a>(
        &mut self,
        turn: Turn,
        place: CommandPosition,
        share: &Share<'a>,
        mut heard: ReceivedVerdicts,
        out: &mut dyn Outbox,
    ) -> Result<Came<'a>, S::Error> {
        let alone = place.destinations.len() == 1;
        let exchanged = !alone && !planted(Mutant::VerdictsNotExchanged);
        if exchanged && share.exchanged {
            if heard.from.contains(self.group) {
                self.writer.refused(Some(&Refusal::Objected { group: self.group.0 }));
                return Ok(Came::Answered(share.memo));
            }
            let Some(opinion) = self.judge(turn, share)? else {
                return Ok(Came::Unsure);
            };
            let others = place.destinations.without(self.group);
            out.exchange(place.message, others, &opinion.verdict.encode());
            heard.hear(self.group, opinion.verdict);
            if !heard.from.contains_all(place.destinations) {
                return Ok(Came::Spoken { heard, opinion });
            }
            match opinion.then {
                Some(writes) if heard.verdict.takes_then() => {
                    self.store.write(writes, turn.version)?;
                }
                _ => self.conclude(turn.version, share, &opinion.judged, heard.verdict)?,
            }
            return Ok(Came::Answered(share.memo));
        }
        let done = if alone && !share.guarded && share.ours.then.len() == 1 {
            settle(self.single(turn, &share.ours.then[0]))?
        } else {
            let held = self.held(share)?;
            match self.run(turn, share, held)? {
                Ok(writes) => Ok(self.store.write(writes, turn.version)?),
                Err(refusal) => Err(refusal),
            }
        };
        if is_unsure(&done, turn) {
            return Ok(Came::Unsure);
        }
        if let Err(refusal) = done {
            self.writer.refused(Some(&refusal));
        }
        Ok(Came::Answered(share.memo))
    }

    fn held(&self, share: &Share<'_>) -> Result<bool, S::Error> {
        for guard in &share.ours.guards {
            if !holds(&self.store, self.group, guard)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// This group's verdict and what it rests on. `None` if it depends on the results of commands before it.
    fn judge<'a>(
        &mut self,
        turn: Turn,
        share: &Share<'a>,
    ) -> Result<Option<Opinion<'a>>, S::Error> {
        let held = self.held(share)?;
        let mut judged = Judged::default();
        let mut reply_bytes_max = 0;
        // Without guards, `otherwise` is never taken. If this group's guards do not hold, `then` is not. A
        // branch without operations can be executed, and its answer is shorter than any refusal.
        if share.guarded && !share.ours.otherwise.is_empty() {
            let otherwise = self.run(turn, share, false)?;
            if is_unsure(&otherwise, turn) {
                return Ok(None);
            }
            judged.otherwise = otherwise.err().map(Box::new);
            reply_bytes_max = self.writer.bytes().len();
        }
        let mut writes = None;
        if held {
            let then = self.run(turn, share, true)?;
            if is_unsure(&then, turn) {
                return Ok(None);
            }
            reply_bytes_max = reply_bytes_max.max(self.writer.bytes().len());
            match then {
                Ok(then) => writes = Some(then),
                Err(refusal) => judged.then = Some(Box::new(refusal)),
            }
        }
        let verdict = Verdict::new(held, writes.is_some(), judged.otherwise.is_none());
        Ok(Some(Opinion { verdict, judged, then: writes, reply_bytes_max }))
    }

    /// Executes or refuses a command when the verdicts of all its groups are there. This group's opinion is
    /// still right: no conflicting command has taken effect meanwhile.
    pub(super) fn conclude(
        &mut self,
        version: Version,
        share: &Share<'_>,
        judged: &Judged,
        verdict: Verdict,
    ) -> Result<(), S::Error> {
        let held = verdict.held();
        if !verdict.executable() {
            self.writer.refused(judged.refusal(held));
            return Ok(());
        }
        // Whether there is room was decided with this group's verdict.
        let room = Room { ceiling: u64::MAX, ..self.room(0) };
        let turn = Turn { version, room, early: false };
        let writes = self.run(turn, share, held)?.expect("we judged that it can be done");
        self.store.write(writes, version)
    }

    /// Runs this group's part of a branch. The writer holds the reply; the store is unchanged.
    pub(super) fn run<'a>(
        &mut self,
        turn: Turn,
        share: &Share<'a>,
        held: bool,
    ) -> Result<Result<Writes<'a>, Refusal>, S::Error> {
        let branch = if held { &share.ours.then } else { &share.ours.otherwise };
        let mut writer = std::mem::take(&mut self.writer);
        writer.done(held, branch.len());
        let draft = Draft::new(&self.store, &self.limits, turn.room, turn.version, &self.work);
        let result = draft.run(branch, &mut writer);
        self.writer = writer;
        result
    }

    /// Executes a single operation, the most common command, in place and without a draft.
    fn single(&mut self, turn: Turn, operation: &Operation<Bytes<'_>>) -> Result<(), Halt<S>> {
        let Turn { room, version, .. } = turn;
        let outcome = match *operation {
            Operation::Put { key, value } => {
                let grown = pair_bytes(key.0, value.0.len());
                // Usually there is room, even if nothing is overwritten.
                if room.check(grown, 0).is_err() {
                    room.check(grown, self.counted(key)?)?;
                }
                self.store.put(key.0, value.0, version).map_err(Stop::Failed)?;
                if planted(Mutant::StoreDiverges) {
                    self.diverge(key, version).map_err(Stop::Failed)?;
                }
                Outcome::Written(version)
            }
            Operation::Delete { key } => {
                Outcome::Flag(self.store.delete(key.0).map_err(Stop::Failed)?)
            }
            Operation::Append { key, value } => {
                let found = self.store.get(key.0).map_err(Stop::Failed)?;
                let offset = found.map_or(0, |found| found.value.len());
                self.patch(turn, key, offset, value.0)?
            }
            Operation::Patch { key, offset, bytes } => {
                self.patch(turn, key, offset as usize, bytes.0)?
            }
            Operation::Increment { key, by } => {
                let found = self.store.get(key.0).map_err(Stop::Failed)?;
                let number = add(key.0, found.as_ref().map(|found| &*found.value), by)?;
                drop(found);
                let text = number.to_string();
                rules::check_value(key, text.len(), &self.limits)?;
                room.check(pair_bytes(key.0, text.len()), self.counted(key)?)?;
                self.store.put(key.0, text.as_bytes(), version).map_err(Stop::Failed)?;
                Outcome::Number(number)
            }
            Operation::Get { .. } | Operation::Exists { .. } | Operation::Scan { .. } => {
                self.writer.done(true, 1);
                let draft = Draft::new(&self.store, &self.limits, room, version, &self.work);
                let ran = draft.run(std::slice::from_ref(operation), &mut self.writer);
                let nothing = ran.map_err(Stop::Failed)??;
                debug_assert!(nothing.is_empty(), "reads write nothing");
                return Ok(());
            }
        };
        self.writer.done(true, 1);
        self.writer.outcome(&outcome);
        Ok(())
    }

    /// For mutation tests: writes a value that no other replica writes, if the key asks for it.
    fn diverge(&mut self, key: Bytes<'_>, version: Version) -> Result<(), S::Error> {
        let of = key.0.strip_prefix(b"diverge/").unwrap_or_default();
        if of == b"all" || of == self.slot.to_string().as_bytes() {
            self.store.patch(key.0, 0, &[b'0' + self.slot], version)?;
        }
        Ok(())
    }

    fn patch<'a>(
        &mut self,
        turn: Turn,
        key: Bytes<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Outcome<Bytes<'a>>, Halt<S>> {
        let end = offset + bytes.len();
        let found = self.store.get(key.0).map_err(Stop::Failed)?;
        let before = found.map(|found| found.value.len());
        let after = end.max(before.unwrap_or(0));
        rules::check_value(key, after, &self.limits)?;
        let counted = before.map_or(0, |len| pair_bytes(key.0, len));
        turn.room.check(pair_bytes(key.0, after), counted)?;
        // A value that grows is copied.
        let moved = if before == Some(after) { bytes.len() } else { after };
        self.work.set(self.work.get() + moved as u64);
        let len = self.store.patch(key.0, offset, bytes, turn.version).map_err(Stop::Failed)?;
        Ok(Outcome::Length(len as u64))
    }

    /// The room for a command at whose turn the group will hold `more` bytes more than now.
    pub(super) fn room(&self, more: i64) -> Room {
        let used = self.bytes().saturating_add_signed(more);
        Room { group: self.group.0, used, ceiling: self.ceiling }
    }

    /// Bytes counted for the pair at `key` now.
    fn counted(&self, key: Bytes<'_>) -> Result<u64, Halt<S>> {
        let found = self.store.get(key.0).map_err(Stop::Failed)?;
        Ok(found.map_or(0, |found| pair_bytes(key.0, found.value.len())))
    }

    /// Upper bound, in bytes, by which the writes of both branches may increase the keys and values of this
    /// group.
    pub(super) fn written_max(share: &Share<'_>) -> u64 {
        let grown = |operation: &Operation<Bytes<'_>>| match *operation {
            Operation::Put { key, value } | Operation::Append { key, value } => {
                pair_bytes(key.0, value.0.len())
            }
            Operation::Patch { key, offset, bytes } => {
                pair_bytes(key.0, offset as usize + bytes.0.len())
            }
            Operation::Increment { key, .. } => pair_bytes(key.0, OUTCOME_MAX as usize),
            _ => 0,
        };
        share.ours.then.iter().chain(&share.ours.otherwise).map(grown).sum()
    }

    /// Upper bound, in bytes, of the values that the answer to a waiting transaction contains. Each value is
    /// counted with its present length and with all bytes that commands under way and the transaction itself
    /// may write. The length of a value that is not in memory is not known.
    pub(super) fn read_max(&self, share: &Share<'_>) -> Result<usize, S::Error> {
        let most = self.limits.reply_bytes_max;
        let grown = Self::written_max(share) + self.under_way.written_max();
        let mut sum = 0;
        for operation in share.ours.then.iter().chain(&share.ours.otherwise) {
            sum += match *operation {
                Operation::Get { key } if !self.store.has(Wanted::Key(key.0)) => most,
                Operation::Get { key } => {
                    let now = self.store.get(key.0)?.map_or(0, |found| found.value.len());
                    (now as u64 + grown + OUTCOME_MAX) as usize
                }
                Operation::Scan { .. } => most,
                _ => 0,
            };
        }
        Ok(sum.min(most))
    }

    /// Upper bound, in bytes, by which a transaction may increase the state of this group: the writes of both
    /// branches, and its retained reply, which has at most `read_bytes_max` bytes of values that it reads.
    pub(super) fn growth_max(&self, share: &Share<'_>, read_bytes_max: usize) -> u64 {
        if share.memo == Memo::OnlyRead {
            return 0; // Replies to reads are not retained.
        }
        let operations = || share.ours.then.iter().chain(&share.ours.otherwise);
        let has_read = operations()
            .any(|operation| matches!(operation, Operation::Get { .. } | Operation::Scan { .. }));
        // A refusal contains a key.
        let reply = self.limits.key_bytes_max as u64 + OUTCOME_MAX * operations().count() as u64;
        let read = if has_read { read_bytes_max as u64 } else { 0 };
        Self::written_max(share) + reply.max(read) + super::sessions::REPLY_OVERHEAD
    }
}
