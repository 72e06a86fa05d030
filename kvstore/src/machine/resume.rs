//! Commands that waited: they continue when a verdict arrives or when nothing blocks them any more.

use std::cell::Cell;

use skein_multicast::application::{Application, Outbox};

use super::control::AtMark;
use super::exchange::ReceivedVerdicts;
use super::execute::{Came, Turn};
use super::moves::Moved;
use super::share::Share;
use super::under_way::{Change, Stage};
use super::{Machine, Memo};
use crate::store::Store;
use crate::store::compact::Compact;
use crate::wire::{Command, Request};

/// After this many bytes that were copied, filled or scanned, a call leaves the remaining work to another call.
/// One verdict can make hundreds of commands executable, each with megabytes of its own.
const WORK_PER_CALL: u64 = 1 << 20;

impl<S: Store> Machine<S> {
    /// Tries the command at `at`, which is not blocked any more.
    pub(super) fn resume(&mut self, at: usize, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let place = self.under_way.place(at);
        let (Stage::Blocked { mut command, heard, needs_turn }
        | Stage::Fetching { mut command, heard, needs_turn }) = self.under_way.take(at)
        else {
            unreachable!("nothing else is tried again");
        };
        if !self.has(&command.read_write_set) {
            self.pin(&mut command);
            self.under_way.put(at, Stage::Fetching { command, heard, needs_turn });
            return Ok(());
        }
        // `command` is changed while the payload is borrowed.
        let payload = std::mem::take(&mut command.payload);
        self.work.set(self.work.get() + payload.len() as u64);
        let before = self.stock();
        let stage = match Request::decode(&payload).expect("it was decoded when delivered") {
            Request::Transaction(Command { transaction, .. })
            | Request::Read(Command { transaction, .. }) => {
                let (share, _) = Share::of(transaction, &self.slots, self.group);
                if at == 0 {
                    self.sessions.free_for(place.message, place.low_water);
                }
                let room = self.room(self.under_way.growth_before(at));
                let turn =
                    Turn { version: self.completed.version(place.position), room, early: at > 0 };
                match self.execute(turn, place, &share, heard, out)? {
                    Came::Answered(memo) => {
                        let change = self.change_since(before);
                        command.payload = payload;
                        self.answered(at, command, Some(memo), change, out);
                        return Ok(());
                    }
                    Came::Spoken { heard, opinion } => {
                        command.growth_max = self.growth_max(&share, opinion.reply_bytes_max);
                        self.record_opinion(&mut command, opinion);
                        command.payload = payload;
                        self.pin(&mut command);
                        Stage::Spoken { command, heard }
                    }
                    Came::Unsure => {
                        command.payload = payload;
                        Stage::Blocked { command, heard, needs_turn: true }
                    }
                }
            }
            Request::Move(it) => {
                self.sessions.free_for(place.message, place.low_water);
                command.payload = payload;
                match self.move_slot(place, it, heard, out)? {
                    Moved::Answered => {
                        let change = self.change_since(before);
                        self.answered(at, command, Some(Memo::Retained), change, out);
                        return Ok(());
                    }
                    Moved::Awaits(owner) => Stage::Awaits { command, owner },
                }
            }
            mark @ (Request::Mark | Request::RestorePoint(_)) => {
                self.sessions.free_for(place.message, place.low_water);
                let asked = match mark {
                    Request::RestorePoint(it) => AtMark::Point(it),
                    _ => AtMark::Totals,
                };
                self.mark(place, &asked, out)?;
                command.payload = payload;
                self.answered(at, command, Some(Memo::Retained), Change::NONE, out);
                return Ok(());
            }
            control => {
                let memo = self.control(place, &control);
                self.answered(at, command, memo, Change::NONE, out);
                return Ok(());
            }
        };
        self.under_way.put(at, stage);
        Ok(())
    }

    /// Concludes the move at `at`: the owner of the slot has reported whether the slot is empty.
    pub(super) fn moved(&mut self, at: usize, heard: ReceivedVerdicts, out: &mut dyn Outbox) {
        let Stage::Awaits { command, owner } = self.under_way.take(at) else {
            unreachable!("nothing else waits for an owner");
        };
        let Ok(Request::Move(it)) = Request::decode(&command.payload) else {
            unreachable!("it was decoded when it was delivered");
        };
        let before = self.stock();
        self.conclude_move(self.under_way.place(at), it, owner, heard);
        let change = self.change_since(before);
        self.answered(at, command, Some(Memo::Retained), change, out);
    }

    /// Concludes the command at `at`: the verdicts of all its groups are there.
    pub(super) fn concluded(&mut self, at: usize, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let version = self.completed.version(self.under_way.place(at).position);
        let Stage::Spoken { command, heard } = self.under_way.take(at) else {
            unreachable!("nothing else waits for verdicts");
        };
        self.work.set(self.work.get() + command.payload.len() as u64);
        let before = self.stock();
        if let Some(reply) = command.then.reply().filter(|_| heard.verdict.takes_then()) {
            let reply = Compact::from(reply);
            self.store.write(command.then.writes(), version)?;
            let change = self.change_since(before);
            self.answered_with(at, command, reply, Some(Memo::Retained), change, out);
            return Ok(());
        }
        if command.idle_otherwise && !heard.verdict.held() && heard.verdict.executable() {
            self.writer.done(false, 0);
        } else {
            let Ok(Request::Transaction(Command { transaction, .. })) =
                Request::decode(&command.payload)
            else {
                unreachable!("it was decoded when it was delivered");
            };
            let (share, _) = Share::of(transaction, &self.slots, self.group);
            self.conclude(version, &share, &command.judged, heard.verdict)?;
        }
        let (memo, change) = (command.memo, self.change_since(before));
        self.answered(at, command, Some(memo), change, out);
        Ok(())
    }

    /// Called after something has taken effect: removes the commands that are over, and resumes those that are
    /// not blocked any more. After [`WORK_PER_CALL`] bytes of work, the rest is left to [another
    /// call](Application::go_on).
    pub(super) fn catch_up(&mut self, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let before = self.work.get();
        let has_done_enough = |work: &Cell<u64>| work.get() - before >= WORK_PER_CALL;
        self.unfinished = true;
        loop {
            while let Some((place, stage)) = self.under_way.pop_over() {
                self.sessions.free_for(place.message, place.low_water);
                if let Stage::Answered { reply, memo, .. } = stage {
                    self.keep(place, reply.as_slice(), memo);
                } else {
                    self.over(place);
                    self.repeat(place.message, out);
                    if has_done_enough(&self.work) {
                        return Ok(());
                    }
                }
            }
            let mut next = self.next_to_resume(0);
            if next.is_none() {
                self.unfinished = false;
                return Ok(());
            }
            while let Some(at) = next {
                self.resume(at, out)?;
                if has_done_enough(&self.work) {
                    return Ok(());
                }
                next = self.next_to_resume(at + 1);
            }
        }
    }
}
