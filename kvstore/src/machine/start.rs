//! The beginning of a command: it is checked, then executed or set aside until it can be.

use skein_multicast::application::Outbox;
use skein_protocol::guard;
use skein_protocol::ids::GroupSet;
use skein_protocol::mutants::Mutant;

use super::exchange::{ReceivedVerdicts, Verdict};
use super::execute::{Came, Opinion, Turn};
use super::sessions::Admission;
use super::share::Share;
use super::under_way::{Change, CommandPosition, Deferred, Stage};
use super::{Machine, Memo};
use crate::reply::Refusal;
use crate::rules;
use crate::store::Store;
use crate::wire::{Command, Request};

impl<S: Store> Machine<S> {
    /// Checks what depends only on the command's bytes and the slot map, which is the same in every group.
    /// Returns this group's share.
    pub(super) fn check<'a>(
        &self,
        command: Command<'a>,
        len: usize,
        to: GroupSet,
    ) -> Result<Share<'a>, Refusal> {
        if !guard!(Mutant::EpochNotChecked, command.epoch == self.slots.epoch) {
            return Err(self.wrong_epoch());
        }
        if len > self.limits.transaction_bytes_max {
            let max = self.limits.transaction_bytes_max as u64;
            return Err(Refusal::TransactionTooLarge { len: len as u64, max });
        }
        rules::check(&command.transaction, &self.limits)?;
        let (share, owners) = Share::of(command.transaction, &self.slots, self.group);
        if owners != to {
            let why = "the command was not sent to exactly the groups that own its keys";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        Ok(share)
    }

    /// The refusal for a sender that has another slot map.
    pub(super) fn wrong_epoch(&self) -> Refusal {
        Refusal::WrongEpoch { slots: Box::new(self.slots.clone()) }
    }

    /// Starts a new command of an open session: it takes effect, or is blocked, or waits for the verdicts of
    /// other groups after this group has sent its own.
    pub(super) fn start(
        &mut self,
        place: CommandPosition,
        command: Result<Command<'_>, Refusal>,
        payload: &[u8],
        heard: ReceivedVerdicts,
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        let checked =
            command.and_then(|command| self.check(command, payload.len(), place.destinations));
        let share = match checked {
            Ok(share) => share,
            Err(refusal) => {
                self.writer.refused(Some(&refusal));
                // Only the leader examines a request that is marked as a read, so the refusal stays out of the
                // history.
                let memo = if Request::is_read(payload) { Memo::OnlyRead } else { Memo::Retained };
                self.answer(place, Some(memo), Change::NONE, out);
                return Ok(());
            }
        };
        if share.exchanged && heard.from.contains(self.group) {
            let others = place.destinations.without(self.group);
            out.exchange(place.message, others, &Verdict::NONE.encode());
        }
        let last = self.under_way.len();
        let behind = (last > 0 || S::FETCHES).then(|| self.deferred(&share));
        let meets =
            |behind: &Deferred| last > 0 && self.under_way.meets(last, &behind.read_write_set);
        let is_blocked = behind.as_deref().is_some_and(meets);
        let lacks = |behind: &Deferred| !self.has(&behind.read_write_set);
        let fetches = !is_blocked && behind.as_deref().is_some_and(lacks);
        let came = if is_blocked || fetches {
            None
        } else {
            let room = self.room(self.under_way.growth_before(last));
            let turn =
                Turn { version: self.completed.version(place.position), room, early: last > 0 };
            let before = self.stock();
            match self.execute(turn, place, &share, heard, out)? {
                Came::Answered(memo) => {
                    if let Some(command) = behind {
                        self.under_way.recycle(command);
                    }
                    let change = self.change_since(before);
                    self.answer(place, Some(memo), change, out);
                    return Ok(());
                }
                came => Some(came),
            }
        };
        let mut command = behind.unwrap_or_else(|| self.deferred(&share));
        let stage = if let Some(Came::Spoken { heard, opinion }) = came {
            self.defer(&mut command, &share, payload, opinion.reply_bytes_max);
            self.record_opinion(&mut command, opinion);
            self.pin(&mut command);
            Stage::Spoken { command, heard }
        } else {
            self.defer(&mut command, &share, payload, self.read_max(&share)?);
            if fetches {
                self.pin(&mut command);
                Stage::Fetching { command, heard, needs_turn: false }
            } else {
                Stage::Blocked { command, heard, needs_turn: came.is_some() }
            }
        };
        self.under_way.push(place, stage);
        Ok(())
    }

    /// A command of which only the read-write set is filled in.
    pub(super) fn deferred(&mut self, share: &Share<'_>) -> Box<Deferred> {
        let mut command = self.under_way.spare();
        command.read_write_set.become_of(share);
        command
    }

    /// Fills in the rest, except this group's opinion.
    pub(super) fn defer(
        &self,
        command: &mut Deferred,
        share: &Share<'_>,
        payload: &[u8],
        reply_bytes_max: usize,
    ) {
        command.payload.extend_from_slice(payload);
        command.growth_max = self.growth_max(share, reply_bytes_max);
        command.written_max = Self::written_max(share);
        command.memo = share.memo;
        command.idle_otherwise = share.ours.otherwise.is_empty();
    }

    /// Records this group's opinion, whose verdict was sent. The writer holds the reply of `then`.
    pub(super) fn record_opinion(&self, command: &mut Deferred, opinion: Opinion<'_>) {
        command.judged = opinion.judged;
        if let Some(writes) = opinion.then.filter(|_| command.memo == Memo::Retained) {
            command.then.note(self.writer.bytes(), &writes);
        }
    }

    /// Leaves a read to the leader: this replica's answer would not be sent, and nothing changes but the
    /// session. A duplicate of the read is answered with [`Refusal::Forgotten`].
    pub(super) fn leave(&mut self, place: CommandPosition, out: &mut dyn Outbox) {
        let is_first = self.under_way.is_empty();
        let admission = self.sessions.note(place.message);
        if admission == Admission::Closed {
            self.writer.refused(Some(&Refusal::SessionExpired));
            return self.answer(place, None, Change::NONE, out);
        }
        if is_first {
            self.sessions.free_for(place.message, place.low_water);
            self.over(place);
        } else {
            self.under_way.push(place, Stage::Again);
        }
    }
}
