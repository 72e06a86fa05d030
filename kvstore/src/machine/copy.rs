//! Copies a machine's state to a replica that has none, while deliveries continue.
//!
//! A copy walks over the keys, in their order, then over the sessions, and then sends repeatedly what has
//! changed since it was copied. Meanwhile only the names of changed keys and messages are kept, never a second
//! state. A part takes about as many bytes as requested, and more, within bounds, if so much changes that the
//! copy would never end. When one part has taken all that there was, the last part is small: the changes
//! between two calls and a few counters.
//!
//! A snapshot for the replica's own disk has time: as long as much has changed, its parts keep to the bytes requested,
//! until it is to be hastened.
//!
//! A snapshot for the replica's own disk has no pairs if the store can keep them. Its last part has the store keep the state
//! of that moment, and names what was kept.

use skein_multicast::application::{Malformed, NotRestored};
use skein_protocol::ids::{GroupId, GroupSet, MessageId};

use super::completed::Completed;
use super::exchange::{ReceivedVerdicts, Verdict};
use super::execute::Judged;
use super::part::{PartMaker, Record, StageRecord, id, kept, open};
use super::read_write_set::ReadWriteSet;
use super::sessions::Sessions;
use super::share::Share;
use super::stop::{Stop, settle};
use super::under_way::{Change, CommandPosition, Deferred, Stage, UnderWay};
use super::{Machine, Memo};
use crate::reply::Refusal;
use crate::store::tracked::CopyFor;
use crate::store::{Found, Store};
use crate::wire::{Bytes, Request};

/// Bytes of changed pairs that are so few that a snapshot catches up with them.
const FEW: u64 = 8 << 20;

/// Progress of a copy, as its sender and as its receiver.
#[derive(Clone, Copy, Default)]
pub(super) struct Progress {
    /// Number of the next part to make.
    pub(super) copied: u32,
    /// The pairs are not copied: the store keeps them.
    keeps: bool,
    /// Parts may keep to the bytes requested although keys change.
    has_time: bool,
    /// All pairs were copied once.
    pub(super) walked: bool,
    /// Number of the next part to restore; 0 unless the preceding parts were restored.
    restored: u32,
    /// Number of the kept pairs that the store has taken; 0 for none.
    taken: u64,
}

impl<S: Store> Machine<S> {
    pub(super) fn begin(&mut self) {
        self.give_up();
        self.store.begin_copy(CopyFor::Replica);
    }

    /// Begins a copy for the replica's own disk.
    pub(super) fn begin_snapshot(&mut self) {
        if self.store.keeps() {
            self.give_up();
            self.progress.keeps = true;
        } else {
            self.begin();
            self.progress.has_time = true;
        }
    }

    /// The copy has no time any more.
    pub(super) const fn hasten(&mut self) {
        self.progress.has_time = false;
    }

    pub(super) fn give_up(&mut self) {
        self.store.give_up_copy(CopyFor::Replica);
        self.sessions.give_up_copy();
        let Progress { restored, taken, .. } = self.progress;
        self.progress = Progress { restored, taken, ..Progress::default() };
    }

    /// Makes the next part. Returns whether only the last part is left.
    pub(super) fn copy_part(
        &mut self,
        budget: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<bool, S::Error> {
        let mut part = self.next_part(budget, bytes);
        let done = self.copy_changes(&mut part)?;
        part.seal();
        Ok(done)
    }

    /// Makes the last part.
    pub(super) fn finish(&mut self, bytes: &mut Vec<u8>) -> Result<(), S::Error> {
        let mut part = self.next_part(usize::MAX, bytes);
        if self.progress.keeps {
            let number = self.store.keep();
            part.add(&self.kept(number));
        }
        let done = self.copy_changes(&mut part)?;
        assert!(done, "a part without a bound takes everything");
        // Precedes the commands under way: the map decides which of their keys this group owns.
        part.add(&Record::Slots(self.slots.clone()));
        if let Some(points) = self.points.record() {
            part.add(&points);
        }
        for (message, heard) in self.early.heard() {
            part.add(&Record::Early {
                session: message.session.0,
                sequence: message.sequence,
                from: numbers(heard.from),
                verdict: heard.verdict.encode()[0],
                version: heard.version,
            });
        }
        for message in self.early.refused() {
            let (session, sequence) = (message.session.0, message.sequence);
            part.add(&Record::Refused { session, sequence });
        }
        for (place, stage) in self.under_way.iter() {
            part.add(&under_way(place, stage));
        }
        part.add(&self.end());
        part.seal();
        self.give_up();
        Ok(())
    }

    fn next_part<'a>(&mut self, budget: usize, bytes: &'a mut Vec<u8>) -> PartMaker<'a> {
        let number = self.progress.copied;
        self.progress.copied += 1;
        PartMaker::new(bytes, self.group, number, budget)
    }

    fn copy_changes(&mut self, part: &mut PartMaker<'_>) -> Result<bool, S::Error> {
        if self.progress.keeps {
            self.progress.walked = true;
            return Ok(self.sessions.copy(part));
        }
        let changed = self.store.changed(CopyFor::Replica);
        let walked = self.store.copy(CopyFor::Replica, |key, found| {
            let (value, version) = (Bytes(found.value), found.version);
            part.add(&Record::Pair { key: Bytes(key), value, version })
        })?;
        self.progress.walked = walked;
        if !walked || !self.sessions.copy(part) {
            return Ok(false);
        }
        part.next_kind(if self.catches_up() { changed } else { 0 });
        self.store.copy_again(CopyFor::Replica, |key, found| {
            let key = Bytes(key);
            part.add_found(&match found {
                Some(found) => {
                    Record::Pair { key, value: Bytes(found.value), version: found.version }
                }
                None => Record::NoPair { key },
            })
        })
    }

    /// Whether a part takes more changed pairs than have changed since the last one, however long it becomes.
    fn catches_up(&self) -> bool {
        let behind = self.store.behind(CopyFor::Replica) as u64;
        let pair = self.store.bytes() / (self.store.len() as u64).max(1);
        !self.progress.has_time || behind.saturating_mul(pair) <= FEW
    }

    /// The record of pairs that the store has kept under this number, if they are the present ones.
    fn kept(&self, number: u64) -> Record<'static> {
        let (keys, bytes, digest) = (self.keys(), self.store.bytes(), self.store.digest());
        Record::Kept { number, keys, bytes, digest }
    }

    fn end(&self) -> Record<'static> {
        Record::End {
            epoch: self.slots.epoch,
            position: self.completed.position(),
            born: self.completed.born(),
            history: self.completed.history(),
            owed: self.completed.sessions_digest(),
            keys: self.keys(),
            bytes: self.bytes(),
            digest: self.stock().digest,
            sessions: self.sessions.digest(),
        }
    }

    /// Restores the next part of a snapshot of this replica's own. With the last one, the store takes what it had kept.
    pub(super) fn restore_own(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, S::Error> {
        self.progress.taken = 0;
        let kept = match kept(part, self.group) {
            Ok(kept) => kept.filter(|_| last),
            Err(Malformed) => return Ok(Err(NotRestored::Malformed)),
        };
        if let Some(record @ Record::Kept { number, .. }) = kept {
            if let Err(why) = self.store.take_kept(number)? {
                return Ok(Err(NotRestored::NotKept(why)));
            }
            if record != self.kept(number) {
                let why = format!("the pairs that were kept under number {number} are others");
                return Ok(Err(NotRestored::NotKept(why)));
            }
            self.progress.taken = number;
        }
        let restored = settle(self.restore_part(part, last))?;
        Ok(restored.map_err(|Malformed| NotRestored::Malformed))
    }

    /// Restores the next part of a copy. The first part discards the state that was there before.
    pub(super) fn restore_part(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<(), Stop<Malformed, S::Error>> {
        let restored = self.restore_records(part, last);
        if restored.is_err() {
            // What was restored is no state that may be written as that at the last point.
            self.points.forget();
        }
        restored
    }

    fn restore_records(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<(), Stop<Malformed, S::Error>> {
        // After an invalid part, only a first part may follow.
        let expected = std::mem::take(&mut self.progress.restored);
        let (number, mut records) = open(part, self.group)?;
        match number {
            0 => self.clear().map_err(Stop::Failed)?,
            _ if number == expected => {}
            _ => return Err(Malformed.into()),
        }
        let mut ended = false;
        while let Some(record) = records.next()? {
            if ended {
                return Err(Malformed.into());
            }
            ended = matches!(record, Record::End { .. });
            self.restore_record(&record)?;
        }
        if ended != last {
            return Err(Malformed.into());
        }
        // The sender may have left some of these commands to its next call.
        self.unfinished = last && !self.under_way.is_empty();
        if !last {
            self.progress.restored = number.checked_add(1).ok_or(Malformed)?;
        }
        Ok(())
    }

    fn clear(&mut self) -> Result<(), S::Error> {
        self.give_up();
        self.backup = None;
        self.queries.clear();
        self.points.forget();
        self.store.clear()?;
        self.sessions = Sessions::default();
        self.early = super::Early::default();
        self.under_way = UnderWay::default();
        self.completed = Completed::default();
        self.unfinished = false;
        Ok(())
    }

    /// The groups with these numbers, which must be groups of this cluster.
    fn ours(&self, numbers: &[u16]) -> Result<GroupSet, Malformed> {
        if numbers.iter().any(|number| *number >= GroupSet::CAPACITY) {
            return Err(Malformed);
        }
        let groups = numbers.iter().copied().map(GroupId).collect();
        if self.groups.contains_all(groups) { Ok(groups) } else { Err(Malformed) }
    }

    fn restore_stage(
        &mut self,
        stage: &StageRecord<'_>,
    ) -> Result<Stage, Stop<Malformed, S::Error>> {
        Ok(match *stage {
            StageRecord::Blocked { payload, needs_turn, ref from, verdict, version } => {
                let (from, verdict) = (self.ours(from)?, Verdict::decode(&[verdict]));
                let heard = ReceivedVerdicts { from, verdict, version };
                let command = match self.restore_deferred(payload) {
                    // It may also open or end sessions, or move a slot.
                    Err(Stop::Refused(Malformed))
                        if needs_turn && Request::decode(payload.0).is_ok() =>
                    {
                        let payload = payload.0.to_vec();
                        let mut command = Box::new(Deferred { payload, ..Deferred::default() });
                        self.want_slot(&mut command);
                        command
                    }
                    command => command?,
                };
                Stage::Blocked { command, heard, needs_turn }
            }
            StageRecord::Spoken { payload, ref then, ref otherwise, ref from, verdict } => {
                let (from, verdict) = (self.ours(from)?, Verdict::decode(&[verdict]));
                let heard = ReceivedVerdicts { from, verdict, version: 0 };
                let mut command = self.restore_deferred(payload)?;
                let of = |refusal: &Option<Refusal>| refusal.clone().map(Box::new);
                command.judged = Judged { then: of(then), otherwise: of(otherwise) };
                self.pin(&mut command);
                Stage::Spoken { command, heard }
            }
            StageRecord::Awaits { payload, owner } => {
                let Ok(Request::Move(_)) = Request::decode(payload.0) else {
                    return Err(Malformed.into());
                };
                self.ours(&[owner])?;
                let payload = payload.0.to_vec();
                let command = Box::new(Deferred { payload, ..Deferred::default() });
                Stage::Awaits { command, owner: GroupId(owner) }
            }
            StageRecord::Answered { reply, only_read, grown, digest } => {
                let memo = |reads| if reads { Memo::OnlyRead } else { Memo::Retained };
                let (reply, memo) = (reply.0.into(), only_read.map(memo));
                Stage::Answered { reply, memo, change: Change { grown, digest } }
            }
            StageRecord::Again => Stage::Again,
        })
    }

    fn restore_deferred(
        &self,
        payload: Bytes<'_>,
    ) -> Result<Box<Deferred>, Stop<Malformed, S::Error>> {
        let command = Request::decode(payload.0).ok().and_then(Request::command);
        let (share, _) = Share::of(command.ok_or(Malformed)?.transaction, &self.slots, self.group);
        let mut command = Box::<Deferred>::default();
        command.read_write_set = ReadWriteSet::of(&share);
        let reply_bytes_max = self.read_max(&share).map_err(Stop::Failed)?;
        self.defer(&mut command, &share, payload.0, reply_bytes_max);
        Ok(command)
    }

    fn restore_record(&mut self, record: &Record<'_>) -> Result<(), Stop<Malformed, S::Error>> {
        match *record {
            Record::Pair { key, value, version } => {
                let found = Some(Found { value: value.0, version });
                self.store.load(key.0, found).map_err(Stop::Failed)?;
            }
            Record::NoPair { key } => self.store.load(key.0, None).map_err(Stop::Failed)?,
            Record::Early { session, sequence, ref from, verdict, version } => {
                let (from, verdict) = (self.ours(from)?, Verdict::decode(&[verdict]));
                let heard = ReceivedVerdicts { from, verdict, version };
                self.early.hear(MessageId::new(id(session), sequence), heard);
            }
            Record::UnderWay {
                session,
                sequence,
                position,
                low_water,
                ref destinations,
                ref stage,
            } => {
                let message = MessageId::new(id(session), sequence);
                let destinations = self.ours(destinations)?;
                let place = CommandPosition { message, position, low_water, destinations };
                let stage = self.restore_stage(stage)?;
                if let Stage::Spoken { heard, .. } = &stage
                    && heard.from.contains_all(destinations)
                {
                    return Err(Malformed.into());
                }
                self.under_way.push(place, stage);
            }
            Record::Slots(ref slots) => {
                if slots.groups() != self.groups {
                    return Err(Malformed.into());
                }
                self.slots = slots.clone();
            }
            Record::Points { last, state, closed, floor, ref holds } => {
                self.points.restore((last, state), closed, floor, holds);
            }
            // Another replica's copy has pairs.
            Record::Kept { number, .. } if number == self.progress.taken && number != 0 => {}
            Record::Kept { .. } => return Err(Malformed.into()),
            Record::Refused { session, sequence } => {
                self.early.refuse(MessageId::new(id(session), sequence));
            }
            Record::End { position, born, history, owed, .. } => {
                self.completed = Completed::restored(position, born, history, owed);
                // Verdicts received during the copy may be about messages that are past in the copied state.
                let sessions = &self.sessions;
                self.early.retain(|message| !sessions.is_past(message));
                self.store.settle().map_err(Stop::Failed)?;
                if *record != self.end() {
                    return Err(Malformed.into());
                }
            }
            _ => self.sessions.restore(record)?,
        }
        Ok(())
    }
}

fn under_way<'a>(place: &CommandPosition, stage: &'a Stage) -> Record<'a> {
    let stage = match stage {
        // Whoever restores this fetches for itself.
        Stage::Blocked { command, heard, needs_turn }
        | Stage::Fetching { command, heard, needs_turn } => StageRecord::Blocked {
            payload: Bytes(&command.payload),
            needs_turn: *needs_turn,
            from: numbers(heard.from),
            verdict: heard.verdict.encode()[0],
            version: heard.version,
        },
        Stage::Spoken { command, heard } => StageRecord::Spoken {
            payload: Bytes(&command.payload),
            then: command.judged.refusal(true).cloned(),
            otherwise: command.judged.refusal(false).cloned(),
            from: numbers(heard.from),
            verdict: heard.verdict.encode()[0],
        },
        Stage::Awaits { command, owner } => {
            StageRecord::Awaits { payload: Bytes(&command.payload), owner: owner.0 }
        }
        Stage::Answered { reply, memo, change } => StageRecord::Answered {
            reply: Bytes(reply.as_slice()),
            only_read: memo.map(|memo| memo == Memo::OnlyRead),
            grown: change.grown,
            digest: change.digest,
        },
        Stage::Again => StageRecord::Again,
    };
    Record::UnderWay {
        session: place.message.session.0,
        sequence: place.message.sequence,
        position: place.position,
        low_water: place.low_water,
        destinations: numbers(place.destinations),
        stage,
    }
}

fn numbers(groups: GroupSet) -> Vec<u16> {
    groups.iter().map(|group| group.0).collect()
}
