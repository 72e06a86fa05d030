//! Copies this group's pairs for a backup, while commands go on.
//!
//! The copy is no part of the replicated state: it changes neither what is answered nor what is digested, and
//! ends with the session that asked for it. It is independent of the copy for a replica that has no state
//! ([`copy`](super::copy)). Only the client's questions make parts, so a slow client costs the names of the keys
//! that change meanwhile, and at a mark at most [`MARK_BYTES_MAX`] of records.

use std::collections::VecDeque;

use skein_multicast::application::Outbox;
use skein_protocol::ids::{MessageId, SessionId};

use super::control::AtMark;
use super::exchange::ReceivedVerdicts;
use super::part::LOOK_UP;
use super::under_way::{Change, CommandPosition, Stage};
use super::{Machine, Memo};
use crate::backup::{ANSWER_HEAD, Content, CopyAnswer, CopyPart, CopyQuery, Mark, Record};
use crate::command::Version;
use crate::reply::{Outcome, Refusal};
use crate::store::Store;
use crate::store::tracked::CopyFor;
use crate::wire::Bytes;

/// Bytes of a part, besides its last record. A part of changes may be as long as a page of a scan, to keep pace with them.
const PART_BYTES: usize = 128 << 10;
/// A copy of which more than this is left at a mark, in bytes of records, is not completed there.
const MARK_BYTES_MAX: usize = 4 << 20;

/// A copy that is being made.
pub(super) struct BackupCopy {
    session: SessionId,
    attempt: u32,
    /// Number of the next part.
    next: u32,
    /// The answer with part `next - 1`, whose receiver may ask for it again. Empty before part 0.
    last: Vec<u8>,
    /// Parts that were made at a mark and are not sent yet.
    made: VecDeque<(Content, Vec<u8>)>,
    /// All keys were sent at least once.
    has_walked: bool,
}

impl<S: Store> Machine<S> {
    /// Answers a query for a part of a copy. Returns false if its session is not open here yet, or the next pairs are not
    /// in memory yet.
    pub(super) fn copy_for_backup(
        &mut self,
        query: &[u8],
        answer: &mut Vec<u8>,
    ) -> Result<bool, S::Error> {
        let Some(CopyQuery { session, attempt, number }) = CopyQuery::decode(query) else {
            CopyAnswer::Gone.encode(answer);
            return Ok(true);
        };
        let session = SessionId(session);
        if !self.sessions.is_open(session) {
            if self.sessions.has_ended(session) {
                CopyAnswer::Gone.encode(answer);
                return Ok(true);
            }
            return Ok(false);
        }
        match &self.backup {
            Some(copy) if copy.session != session => {
                CopyAnswer::Busy.encode(answer);
                return Ok(true);
            }
            Some(copy) if copy.attempt == attempt && number == copy.next => {}
            Some(copy) if copy.attempt == attempt && number + 1 == copy.next => {
                answer.extend_from_slice(&copy.last);
                return Ok(true);
            }
            Some(copy) if copy.attempt >= attempt => {
                CopyAnswer::Gone.encode(answer);
                return Ok(true);
            }
            _ if number == 0 => self.begin_backup(session, attempt),
            _ => {
                CopyAnswer::Gone.encode(answer);
                return Ok(true);
            }
        }
        let waits = |copy: &BackupCopy| copy.made.is_empty() && !copy.has_walked;
        if self.backup.as_deref().is_some_and(waits) && !self.store.can_copy(CopyFor::Backup) {
            return Ok(false);
        }
        self.next_backup_part()?;
        if let Some(copy) = &self.backup {
            self.work.set(self.work.get() + 2 * copy.last.len() as u64);
            answer.extend_from_slice(&copy.last);
        }
        Ok(true)
    }

    /// Whether it makes a copy for a backup.
    pub fn makes_backup(&self) -> bool {
        self.backup.is_some()
    }

    /// Drops the copy of this session, which has ended.
    pub(super) fn end_backup_of(&mut self, session: SessionId) {
        if self.backup.take_if(|copy| copy.session == session).is_some() {
            self.store.give_up_copy(CopyFor::Backup);
        }
    }

    fn begin_backup(&mut self, session: SessionId, attempt: u32) {
        self.store.begin_copy(CopyFor::Backup);
        self.backup = Some(Box::new(BackupCopy {
            session,
            attempt,
            next: 0,
            last: Vec::new(),
            made: VecDeque::new(),
            has_walked: false,
        }));
    }

    /// Makes the answer with the next part.
    fn next_backup_part(&mut self) -> Result<(), S::Error> {
        let Some(mut copy) = self.backup.take() else { return Ok(()) };
        let made = match copy.made.pop_front() {
            Some(made) => Ok(made),
            None => self.make_backup_part(&mut copy),
        };
        let made = made.map(|(content, records)| {
            let behind = self.store.behind(CopyFor::Backup) as u64;
            let part = CopyPart { number: copy.next, content, behind, records: &records };
            copy.last.clear();
            CopyAnswer::Part(part).encode(&mut copy.last);
            copy.next += 1;
        });
        self.backup = Some(copy);
        made
    }

    /// Makes a part of what was not sent, or has changed since.
    fn make_backup_part(&mut self, copy: &mut BackupCopy) -> Result<(Content, Vec<u8>), S::Error> {
        let most = self.limits.scan_page_bytes_max.saturating_sub(ANSWER_HEAD);
        let budget = PART_BYTES.min(most);
        let mut records = Vec::with_capacity(budget + 2048);
        if !copy.has_walked {
            copy.has_walked = self.store.copy(CopyFor::Backup, |key, found| {
                Record { key, value: Some(found.value), version: found.version }
                    .encode(&mut records);
                records.len() < budget
            })?;
            return Ok((Content::Walk, records));
        }
        // Twice as many as have changed since the last part, so that the copy catches up.
        let mut due = 2 * self.store.changed(CopyFor::Backup);
        let mut looked_up = 0;
        self.store.copy_again(CopyFor::Backup, |key, found| {
            let value = found.map(|found| found.value);
            let version = found.map_or(0, |found| found.version);
            Record { key, value, version }.encode(&mut records);
            looked_up += LOOK_UP;
            due = due.saturating_sub(1);
            let used = records.len() + looked_up;
            used < budget || (due > 0 && records.len() < most)
        })?;
        Ok((Content::Changes, records))
    }

    /// Completes the copy of the session that sent a mark, if little is left. The store is the state at the mark.
    fn complete_backup(&mut self, message: MessageId, position: Version) -> Result<(), S::Error> {
        let Some(mut copy) = self.backup.take_if(|copy| copy.session == message.session) else {
            return Ok(());
        };
        let completed = self.make_rest(&mut copy, position);
        self.backup = Some(copy);
        completed
    }

    fn make_rest(&mut self, copy: &mut BackupCopy, position: Version) -> Result<(), S::Error> {
        if !copy.made.is_empty() {
            return Ok(()); // The parts of the mark before are not sent: the client does not wait for this one.
        }
        let mut bytes = 0;
        while copy.has_walked && bytes < MARK_BYTES_MAX && self.store.behind(CopyFor::Backup) > 0 {
            let (content, records) = self.make_backup_part(copy)?;
            bytes += records.len();
            copy.made.push_back((content, records));
        }
        self.work.set(self.work.get() + bytes as u64);
        let whole = copy.has_walked && self.store.behind(CopyFor::Backup) == 0;
        let end = if whole { Content::Complete(position) } else { Content::Missed(position) };
        match copy.made.back_mut() {
            Some((content, _)) => *content = end,
            None => copy.made.push_back((end, Vec::new())),
        }
        Ok(())
    }

    /// Starts a mark of an open session: it is executed when all commands before it are over.
    pub(super) fn start_mark(
        &mut self,
        place: CommandPosition,
        at: &AtMark,
        payload: &[u8],
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        if self.under_way.is_empty() {
            self.mark(place, at, out)?;
            self.answer(place, Some(Memo::Retained), Change::NONE, out);
            return Ok(());
        }
        let mut command = self.under_way.spare();
        command.payload.extend_from_slice(payload);
        (command.growth_max, command.written_max, command.memo) = (0, 0, Memo::Retained);
        let heard = ReceivedVerdicts::NOBODY;
        self.under_way.push(place, Stage::Blocked { command, heard, needs_turn: true });
        Ok(())
    }

    /// Executes a mark at its turn: all commands before it are over. The writer holds the reply.
    pub(super) fn mark(
        &mut self,
        place: CommandPosition,
        at: &AtMark,
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        if let AtMark::Point(it) = at {
            return self.restore_point(place, it, out);
        }
        if place.destinations != self.groups {
            let why = "a mark must go to all groups";
            self.writer.refused(Some(&Refusal::Malformed(why.to_owned())));
            return Ok(());
        }
        let mark = Mark {
            position: self.completed.version(place.position),
            keys: self.keys(),
            bytes: self.store.bytes(),
            digest: self.store.digest(),
        };
        self.complete_backup(place.message, mark.position)?;
        self.writer.done(true, 1);
        self.writer.outcome(&Outcome::Value(Some((Bytes(&mark.totals()), mark.position))));
        Ok(())
    }
}
