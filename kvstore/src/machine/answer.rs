//! The end of a command: its reply, and its place among the commands that are over.

use skein_multicast::application::Outbox;

use super::under_way::{Change, CommandPosition, Deferred, Stage};
use super::{Machine, Memo, sessions};
use crate::store::Store;
use crate::store::compact::Compact;

impl<S: Store> Machine<S> {
    /// Sends the reply in the writer to the command that was just delivered. It is recorded when all commands
    /// before it are over.
    pub(super) fn answer(
        &mut self,
        place: CommandPosition,
        memo: Option<Memo>,
        change: Change,
        out: &mut dyn Outbox,
    ) {
        let writer = std::mem::take(&mut self.writer);
        self.work.set(self.work.get() + writer.bytes().len() as u64);
        out.reply(place.message, writer.bytes());
        if self.under_way.is_empty() {
            self.keep(place, writer.bytes(), memo);
        } else {
            let reply = writer.bytes().into();
            self.under_way.push(place, Stage::Answered { reply, memo, change });
        }
        self.writer = writer;
    }

    /// Sends the reply in the writer to the command at `at`, which was taken out.
    pub(super) fn answered(
        &mut self,
        at: usize,
        command: Box<Deferred>,
        memo: Option<Memo>,
        change: Change,
        out: &mut dyn Outbox,
    ) {
        let reply = self.writer.bytes().into();
        self.answered_with(at, command, reply, memo, change, out);
    }

    pub(super) fn answered_with(
        &mut self,
        at: usize,
        mut command: Box<Deferred>,
        reply: Compact,
        memo: Option<Memo>,
        change: Change,
        out: &mut dyn Outbox,
    ) {
        self.work.set(self.work.get() + reply.as_slice().len() as u64);
        out.reply(self.under_way.place(at).message, reply.as_slice());
        self.unpin(&mut command);
        let stage = Stage::Answered { reply, memo, change };
        self.under_way.put_answered(at, command, stage);
    }

    /// Records a command that is over and was answered.
    pub(super) fn keep(&mut self, place: CommandPosition, reply: &[u8], memo: Option<Memo>) {
        // Possibly only the leader has executed a read, so its answer stays out of the history.
        if memo != Some(Memo::OnlyRead) {
            let sum = sessions::sum(place.message, reply);
            self.completed.add_answer(place.position, sum);
            if memo == Some(Memo::Retained) {
                self.sessions.record(place.message, reply, sum);
            }
        }
        self.over(place);
    }

    /// Records that a command is over.
    pub(super) fn over(&mut self, place: CommandPosition) {
        if self.completed.end(place.message, place.position, self.sessions.digest()) {
            let digest = self.digest_over();
            self.completed.note(digest);
        }
    }

    /// Digest of the store, the slot map, the sessions and the history as of the last command that is over.
    /// Later commands do not count, even if they have taken effect.
    pub(super) fn digest_over(&self) -> u64 {
        let stored = self.stock().digest.wrapping_sub(self.under_way.changed());
        self.completed.digest(stored)
    }
}
