//! The machine as an application of the multicast: what a delivery and a verdict of another group do.

use std::thread;
use std::time::Duration;

use skein_fabric::Constants;
use skein_multicast::application::{
    Application, Delivery, Digest, Malformed, NotRestored, Outbox, Speech,
};
use skein_protocol::ids::{GroupId, MessageId, SessionId};

use super::control::{Asked, AtMark};
use super::exchange::{ReceivedVerdicts, Verdict, version_of};
use super::sessions::{Admission, Owed};
use super::stop::settle;
use super::under_way::{Change, CommandPosition, Stage};
use super::{Machine, Memo, behaviour};
use crate::backup::CopyQuery;
use crate::reply::Refusal;
use crate::store::Store;
use crate::store::tracked::CopyFor;
use crate::wire::Request;

/// How often it is looked for news where they are waited for.
const NEWS_POLL: Duration = Duration::from_micros(50);

impl<S: Store> Application for Machine<S> {
    type Failure = S::Error;

    fn constants(&self) -> Constants {
        let limits = self.limits.constants();
        // Digests of machines over different stores differ.
        let limits = if S::FETCHES { limits.with("node.store", "rocksdb") } else { limits };
        limits
            .with("group_bytes_max", self.ceiling)
            .with("slots.epoch", self.slots.epoch)
            .and(behaviour())
    }

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), S::Error> {
        assert!(self.ready(), "delivered without room for it");
        let Delivery { message, position, low_water, destinations, payload, answers, .. } =
            delivery;
        if position == 1 {
            self.completed.begin(delivery.clock);
        }
        let place = CommandPosition { message, position, low_water, destinations };
        self.work.set(self.work.get() + payload.len() as u64);
        if !answers && Request::is_read(payload) {
            self.leave(place, out);
            return Ok(());
        }
        let is_first = self.under_way.is_empty();
        let asked = match Request::decode(payload) {
            Ok(Request::Transaction(command)) => Ok(Asked::Command(command)),
            Ok(Request::Read(command)) if command.transaction.only_reads() => {
                Ok(Asked::Command(command))
            }
            Ok(Request::Move(it)) => Ok(Asked::Move(it)),
            Ok(Request::Mark) => Ok(Asked::Mark(AtMark::Totals)),
            Ok(Request::RestorePoint(it)) => Ok(Asked::Mark(AtMark::Point(it))),
            Ok(Request::Read(_)) => Err(Refusal::Malformed(
                "the request is marked as read-only but has a guard or a write".to_owned(),
            )),
            Ok(control) => {
                self.end_sessions(place, &control, out);
                self.drop_early(place, &control);
                if is_first {
                    let memo = self.control(place, &control);
                    self.sessions.free_for(message, low_water);
                    self.answer(place, memo, Change::NONE, out);
                    return Ok(());
                }
                let mut command = self.under_way.spare();
                command.payload.extend_from_slice(payload);
                (command.growth_max, command.written_max, command.memo) = (0, 0, Memo::Retained);
                let stage =
                    Stage::Blocked { command, heard: ReceivedVerdicts::NOBODY, needs_turn: true };
                self.under_way.push(place, stage);
                return Ok(());
            }
            Err(unreadable) => Err(Refusal::Malformed(unreadable.to_string())),
        };
        let heard = match destinations.len() {
            1 => ReceivedVerdicts::NOBODY,
            _ => self.early.take(message),
        };
        let admission = self.sessions.note(message);
        if is_first {
            self.sessions.free_for(message, low_water);
        }
        match admission {
            Admission::Fresh => match asked {
                Ok(Asked::Move(it)) => self.start_move(place, it, payload, heard, out)?,
                Ok(Asked::Mark(at)) => self.start_mark(place, &at, payload, out)?,
                Ok(Asked::Command(command)) => {
                    self.start(place, Ok(command), payload, heard, out)?;
                }
                Err(refusal) => self.start(place, Err(refusal), payload, heard, out)?,
            },
            Admission::Known if is_first => {
                self.over(place);
                self.repeat(message, out);
            }
            Admission::Known => self.under_way.push(place, Stage::Again),
            Admission::Closed => {
                self.object(place, &asked, out);
                self.writer.refused(Some(&Refusal::SessionExpired));
                self.answer(place, None, Change::NONE, out);
            }
        }
        Ok(())
    }

    fn exchanged(
        &mut self,
        message: MessageId,
        from: GroupId,
        result: &[u8],
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        // A new leader may repeat a verdict. A verdict counts only if it comes from a group of this cluster; of its own
        // group, a machine is told objections only.
        if !self.groups.contains(from) || from == self.group && !result.is_empty() {
            return Ok(());
        }
        let verdict = Verdict::decode(result);
        let Some(at) = self.under_way.find(message) else {
            // Nothing waits for a verdict about a message that is past.
            if !self.sessions.is_past(message) {
                self.early.hear(message, ReceivedVerdicts::of(from, result));
            }
            return Ok(());
        };
        if let Stage::Awaits { owner, .. } = self.under_way.stage(at) {
            if *owner == from {
                self.moved(at, ReceivedVerdicts::of(from, result), out);
                self.catch_up(out)?;
            }
            return Ok(());
        }
        let destinations = self.under_way.place(at).destinations;
        if from == self.group {
            let stage = self.under_way.stage(at);
            if !matches!(stage, Stage::Blocked { .. } | Stage::Fetching { .. }) {
                debug_assert!(false, "objects to {message}, about which it has spoken");
                return Ok(());
            }
            out.exchange(message, destinations.without(from), &Verdict::NONE.encode());
        }
        let Some(heard) = self.under_way.heard(at) else { return Ok(()) };
        heard.hear(from, verdict);
        // The verdict may be about a move that has not had its turn.
        heard.version = heard.version.max(version_of(result));
        let all = heard.from.contains_all(destinations);
        if all && matches!(self.under_way.stage(at), Stage::Spoken { .. }) {
            self.concluded(at, out)?;
            self.catch_up(out)?;
        }
        Ok(())
    }

    fn speech(&self, message: MessageId) -> Speech {
        let is_blocked = match self.under_way.find(message) {
            Some(at) => self.under_way.is_stuck_behind(at),
            None if self.sessions.is_past(message) => return Speech::Given,
            None => self.under_way.is_full_everywhere(),
        };
        if is_blocked { Speech::Blocked } else { Speech::Open }
    }

    fn takes(&self, session: SessionId) -> bool {
        self.points.take(session)
    }

    fn ready(&self) -> bool {
        !self.unfinished && self.under_way.has_room() && self.store.has_room()
    }

    fn go_on(&mut self, out: &mut dyn Outbox) -> Result<bool, S::Error> {
        let fetched = S::FETCHES && self.store.poll()?;
        let goes_on = fetched || self.unfinished;
        if goes_on {
            self.catch_up(out)?;
        } else if self.points.owes_last() {
            self.write_more_of_last()?;
            return Ok(true);
        }
        Ok(goes_on)
    }

    fn has_news(&self) -> bool {
        S::FETCHES && self.store.has_news()
    }

    fn await_news(&mut self) -> bool {
        if !S::FETCHES || (self.fetching() == 0 && self.store.has_room()) {
            return false;
        }
        while !self.store.has_news() {
            thread::sleep(NEWS_POLL);
        }
        true
    }

    fn can_copy(&self) -> bool {
        self.store.can_copy(CopyFor::Replica)
    }

    fn take_work(&mut self) -> u64 {
        self.work.take()
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn digests(&self) -> Vec<Digest> {
        let now = self.completed.at(self.digest_over());
        self.completed.checkpoints().last().into_iter().chain([now]).collect()
    }

    fn digest_at(&self, position: u64) -> Option<u64> {
        if position == self.completed.position() {
            return Some(self.digest_over());
        }
        self.completed.checkpoints().find(position)
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        if let Some(at) = self.under_way.find(message) {
            if let Stage::Answered { reply, .. } = self.under_way.stage(at) {
                out.reply(message, reply.as_slice());
            }
            return; // Otherwise the reply is still to be sent.
        }
        match self.sessions.owed(message) {
            Owed::Reply(reply) => {
                self.work.set(self.work.get() + reply.len() as u64);
                return out.reply(message, reply);
            }
            Owed::Nothing => return,
            Owed::Done => self.writer.done(true, 0),
            Owed::Refusal(refusal) => self.writer.refused(Some(&refusal)),
        }
        out.reply(message, self.writer.bytes());
    }

    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> Result<bool, S::Error> {
        if CopyQuery::is_one(query) {
            return self.copy_for_backup(query, answer);
        }
        self.read_unordered(query, answer)
    }

    fn begin_copy(&mut self) {
        self.begin();
    }

    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> Result<bool, S::Error> {
        self.copy_part(bytes, part)
    }

    fn has_walked(&self) -> bool {
        self.progress.walked
    }

    fn hasten_copy(&mut self) {
        self.hasten();
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), S::Error> {
        self.finish(part)
    }

    fn give_up_copy(&mut self) {
        self.give_up();
    }

    fn begin_snapshot(&mut self) {
        Machine::begin_snapshot(self);
    }

    fn has_kept(&self) -> bool {
        self.store.has_kept()
    }

    fn drop_earlier(&mut self) {
        self.store.drop_earlier();
    }

    fn restore_snapshot(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, S::Error> {
        self.restore_own(part, last)
    }

    fn restore(&mut self, part: &[u8], last: bool) -> Result<Result<(), Malformed>, S::Error> {
        settle(self.restore_part(part, last))
    }
}
