//! The deterministic state machine of one replica.
//!
//! **Invariant (whole or not at all, everywhere).** All groups of a command take the same branch, or
//! all refuse it. What the command's bytes decide (`rules`), and what its session
//! decides, is the same in every group by itself. What a group's keys decide (its guards, whether its
//! part of a branch can be executed) it tells the others when it delivers the command, before it
//! waits for theirs; then each has every group's verdict and concludes the same from them.
//!
//! A group that was recreated, with nothing, has lost its sessions. To a command of a session that it
//! does not know it objects, which is what the other groups wait for.
//!
//! Waiting cannot deadlock: a group waits only for groups that deliver the same command, each speaks
//! before it waits, and the order in which groups deliver common commands has no cycle.

pub(crate) mod branch;
mod copy;
pub(crate) mod digest;
mod exchange;
mod part;
mod sessions;

use std::num::NonZeroU64;

use skein_multicast::application::{Application, Delivery, Malformed, Outbox};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use self::branch::{Draft, PAIR_OVERHEAD, Room, commit, holds, increment, pair_bytes};
use self::copy::Progress;
use self::exchange::{Early, Heard, Verdict, Waiting};
use self::sessions::{Admission, Owed, Sessions};
use crate::command::{Operation, Transaction, Version};
use crate::limits::Limits;
use crate::reply::{Outcome, Refusal};
use crate::rules;
use crate::slots::SlotMap;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::tracked::Tracked;
use crate::wire::{Bytes, Command, PartWriter, Request};

/// One replica's keys, values and sessions.
///
/// It holds at most its share of `limits.memory_bytes_max`: fifteen sixteenths for keys, values and
/// what sessions are owed, beyond which writes are refused, and one for replies to reads, beyond
/// which the oldest are forgotten.
pub struct Machine<S = Memory> {
    group: GroupId,
    slots: SlotMap,
    groups: GroupSet,
    limits: Limits,
    ceiling: u64,
    store: Tracked<S>,
    sessions: Sessions,
    early: Early,
    waiting: Option<Waiting>,
    position: Version,
    history: u64,
    writer: PartWriter,
    progress: Progress,
}

/// So much of an answer goes into the history: a page of a scan is not worth another look.
const HASHED: usize = 256;

impl Machine {
    /// The machine of `replica`, with nothing in it, in this process's memory. `groups_on_node`
    /// share the node's.
    pub fn new(replica: ReplicaId, slots: SlotMap, limits: Limits, groups_on_node: u16) -> Self {
        Self::with_store(Memory::default(), replica, slots, limits, groups_on_node)
    }
}

impl<S: Store> Machine<S> {
    /// The same on `store`, which must be empty.
    pub fn with_store(
        store: S,
        replica: ReplicaId,
        slots: SlotMap,
        limits: Limits,
        groups_on_node: u16,
    ) -> Self {
        assert!(store.is_empty(), "a machine starts with nothing in it");
        let share = limits.memory_bytes_max / u64::from(groups_on_node.max(1));
        let for_reads = share / 16;
        Self {
            group: replica.group,
            groups: slots.groups(),
            slots,
            limits,
            ceiling: share - for_reads,
            store: Tracked::new(store),
            sessions: Sessions::new(for_reads),
            early: Early::default(),
            waiting: None,
            position: 0,
            history: 0,
            writer: PartWriter::default(),
            progress: Progress::default(),
        }
    }

    /// Keys it holds.
    pub fn keys(&self) -> u64 {
        self.store.len() as u64
    }

    /// Bytes it counts against its [ceiling](Self::ceiling): keys, values and 96 bytes for each
    /// pair, and what sessions are owed.
    pub fn bytes(&self) -> u64 {
        self.store.bytes() + self.keys() * PAIR_OVERHEAD + self.sessions.bytes()
    }

    /// The most that [`bytes`](Self::bytes) may grow to.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The last position delivered, and a hash of every answer given up to it, of long ones of their
    /// beginning. Two replicas of a group at the same position have the same; asking costs nothing.
    pub fn history(&self) -> (Version, u64) {
        (self.position, self.history)
    }

    /// Verdicts kept about commands that this replica has yet to deliver.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    fn control(&mut self, delivery: &Delivery<'_>, request: &Request<'_>, out: &mut dyn Outbox) {
        let message = delivery.message;
        // Judged by the destinations alone, so every group that gets it judges alike.
        let result = match request {
            _ if delivery.destinations != self.groups => {
                let why = "sessions open, close and expire in all groups";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Open => self.sessions.open(message),
            Request::Close => {
                self.sessions.close(message).inspect(|()| out.end_session(message.session))
            }
            Request::Expire(sessions) => {
                for session in sessions {
                    self.sessions.expire(*session);
                    out.end_session(*session);
                }
                Ok(())
            }
            Request::Transaction(_) => unreachable!("transactions are no control requests"),
        };
        match &result {
            Ok(()) => self.writer.done(true, 0),
            Err(refusal) => self.writer.refused(Some(refusal)),
        }
        let opened = matches!(request, Request::Open) && result.is_ok();
        self.answer(message, opened.then_some(Memo::Owed), out);
    }

    /// Decides about a transaction that is new, if its bytes can be read.
    fn transaction(
        &mut self,
        delivery: &Delivery<'_>,
        command: Result<Command<'_>, Refusal>,
        heard: Heard,
        out: &mut dyn Outbox,
    ) {
        let message = delivery.message;
        let command = command.and_then(|command| {
            self.check(&command, delivery)?;
            Ok(command)
        });
        let transaction = match command {
            Ok(command) => command.transaction,
            Err(refusal) => {
                self.writer.refused(Some(&refusal));
                return self.answer(message, Some(Memo::Owed), out);
            }
        };
        let alone = delivery.destinations.len() == 1;
        if alone && transaction.guards.is_empty() && transaction.then.len() == 1 {
            let result = self.single(&transaction.then[0]);
            if let Err(refusal) = result {
                self.writer.refused(Some(&refusal));
            }
            return self.answer(message, Some(Memo::of(&transaction)), out);
        }
        if alone || !rules::needs_exchange(&transaction) {
            let held = self.held(&transaction);
            return self.conclude(message, &transaction, Conclusion::Alone { held }, out);
        }
        let verdict = self.judge(&transaction);
        out.exchange(message, delivery.destinations.without(self.group), &verdict.encode());
        let mut waiting =
            Waiting { message, destinations: delivery.destinations, payload: Vec::new(), heard };
        waiting.heard.hear(self.group, verdict);
        if waiting.is_over() {
            let together = Conclusion::Together(waiting.heard.verdict);
            return self.conclude(message, &transaction, together, out);
        }
        waiting.payload = delivery.payload.to_vec();
        self.waiting = Some(waiting);
    }

    /// The session of a command is not open here. If it has ended, it has in all groups. If it is
    /// not known, this group may have been recreated after it had lost its memory, and others may
    /// have the session open, and wait for our verdict.
    fn object(
        &mut self,
        delivery: &Delivery<'_>,
        command: &Result<Command<'_>, Refusal>,
        out: &mut dyn Outbox,
    ) {
        let others = delivery.destinations.without(self.group);
        if let Ok(command) = command
            && !others.is_empty()
            && !self.sessions.is_past(delivery.message)
            && rules::needs_exchange(&command.transaction)
        {
            out.exchange(delivery.message, others, &Verdict::NONE.encode());
            self.early.refuse(delivery.message);
        }
    }

    /// What the command's bytes decide, in every group alike.
    fn check(&self, command: &Command<'_>, delivery: &Delivery<'_>) -> Result<(), Refusal> {
        if command.epoch != self.slots.epoch {
            return Err(Refusal::WrongEpoch);
        }
        if delivery.payload.len() > self.limits.transaction_bytes_max {
            let max = self.limits.transaction_bytes_max as u64;
            return Err(Refusal::TransactionTooLarge { len: delivery.payload.len() as u64, max });
        }
        rules::check(&command.transaction, &self.limits)?;
        if rules::destinations(&command.transaction, &self.slots) != delivery.destinations {
            let why = "it was sent to other groups than those that own its keys";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        Ok(())
    }

    fn held(&self, transaction: &Transaction<Bytes<'_>>) -> bool {
        let mut ours = transaction.guards.iter().filter(|guard| self.owns(guard.key));
        ours.all(|guard| holds(&self.store, guard))
    }

    /// This group's verdict: what it tells the others.
    fn judge(&mut self, transaction: &Transaction<Bytes<'_>>) -> Verdict {
        let held = self.held(transaction);
        // If our guards do not hold, `then` is out of the question. If there are none, `otherwise`.
        let then = held && self.run(transaction, true).is_ok();
        let otherwise = transaction.guards.is_empty() || self.run(transaction, false).is_ok();
        Verdict::new(held, then, otherwise)
    }

    fn conclude(
        &mut self,
        message: MessageId,
        transaction: &Transaction<Bytes<'_>>,
        conclusion: Conclusion,
        out: &mut dyn Outbox,
    ) {
        let (held, agreed) = match conclusion {
            Conclusion::Alone { held } => (held, true),
            Conclusion::Together(verdict) => (verdict.held(), verdict.executable()),
        };
        match self.run(transaction, held) {
            Ok(writes) if agreed => commit(&mut self.store, writes, self.position),
            Ok(_) => self.writer.refused(None),
            Err(refusal) => self.writer.refused(Some(&refusal)),
        }
        self.answer(message, Some(Memo::of(transaction)), out);
    }

    /// Runs this group's part of a branch. The reply stands in the writer; nothing has changed yet.
    fn run<'a>(
        &mut self,
        transaction: &Transaction<Bytes<'a>>,
        held: bool,
    ) -> Result<branch::Writes<'a>, Refusal> {
        let branch = if held { &transaction.then } else { &transaction.otherwise };
        let mut writer = std::mem::take(&mut self.writer);
        let ours = || branch.iter().filter(|op| op.key().is_none_or(|key| self.owns(*key)));
        writer.done(held, ours().count());
        let draft = Draft::new(&self.store, &self.limits, self.room(), self.position);
        let result = draft.run(ours(), &mut writer);
        self.writer = writer;
        result
    }

    /// One operation that stands alone: the commonest command, done in place without a draft.
    fn single(&mut self, operation: &Operation<Bytes<'_>>) -> Result<(), Refusal> {
        let room = self.room();
        let position = self.position;
        let outcome = match *operation {
            Operation::Put { key, value } => {
                let grown = pair_bytes(key.0, value.0.len());
                // Most often there is room for it, whatever stood there.
                if room.check(grown, 0).is_err() {
                    room.check(grown, self.counted(key))?;
                }
                self.store.put(key.0, value.0, position);
                Outcome::Written(position)
            }
            Operation::Delete { key } => Outcome::Flag(self.store.delete(key.0)),
            Operation::Append { key, value } => {
                let offset = self.store.get(key.0).map_or(0, |found| found.value.len());
                self.patch(key, offset, value.0)?
            }
            Operation::Patch { key, offset, bytes } => self.patch(key, offset as usize, bytes.0)?,
            Operation::Increment { key, by } => {
                let value = self.store.get(key.0).map(|found| found.value);
                let number = increment(key, value, by)?;
                let text = number.to_string();
                rules::check_value(key, text.len(), &self.limits)?;
                room.check(pair_bytes(key.0, text.len()), self.counted(key))?;
                self.store.put(key.0, text.as_bytes(), position);
                Outcome::Number(number)
            }
            Operation::Get { .. } | Operation::Exists { .. } | Operation::Scan { .. } => {
                self.writer.done(true, 1);
                let draft = Draft::new(&self.store, &self.limits, room, position);
                let nothing = draft.run(std::iter::once(operation), &mut self.writer)?;
                debug_assert!(nothing.is_empty(), "reads write nothing");
                return Ok(());
            }
        };
        self.writer.done(true, 1);
        self.writer.outcome(&outcome);
        Ok(())
    }

    fn patch<'a>(
        &mut self,
        key: Bytes<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Result<Outcome<Bytes<'a>>, Refusal> {
        let end = offset + bytes.len();
        let before = self.store.get(key.0).map(|found| found.value.len());
        let after = end.max(before.unwrap_or(0));
        rules::check_value(key, after, &self.limits)?;
        let counted = before.map_or(0, |len| pair_bytes(key.0, len));
        self.room().check(pair_bytes(key.0, after), counted)?;
        Ok(Outcome::Length(self.store.patch(key.0, offset, bytes, self.position) as u64))
    }

    /// Sends what the writer holds, and keeps it as `memo` says.
    fn answer(&mut self, message: MessageId, memo: Option<Memo>, out: &mut dyn Outbox) {
        let reply = self.writer.bytes();
        out.reply(message, reply);
        if let Some(memo) = memo {
            let read_at = match memo {
                Memo::Owed => None,
                Memo::OnlyRead => NonZeroU64::new(self.position),
            };
            self.sessions.record(message, reply, read_at);
        }
        let begins = &reply[..reply.len().min(HASHED)];
        let seed = self.history ^ self.position.rotate_left(32) ^ reply.len() as u64;
        self.history = xxh3_64_with_seed(begins, seed);
    }

    fn owns(&self, key: Bytes<'_>) -> bool {
        self.slots.owner(key.0) == self.group
    }

    fn room(&self) -> Room {
        Room { group: self.group.0, used: self.bytes(), ceiling: self.ceiling }
    }

    /// What the pair at `key` is counted at now.
    fn counted(&self, key: Bytes<'_>) -> u64 {
        self.store.get(key.0).map_or(0, |found| pair_bytes(key.0, found.value.len()))
    }
}

/// How a command is concluded.
#[derive(Clone, Copy)]
enum Conclusion {
    /// By this group by itself.
    Alone { held: bool },
    /// By all its groups' verdicts.
    Together(Verdict),
}

/// Why a reply is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memo {
    /// The command had effects, or was refused: it must never be executed in place of being
    /// answered, so its reply is owed.
    Owed,
    /// The command could only read. It can be given again under another name.
    OnlyRead,
}

impl Memo {
    fn of(transaction: &Transaction<Bytes<'_>>) -> Self {
        let mut operations = transaction.then.iter().chain(&transaction.otherwise);
        if operations.all(Operation::is_read) { Self::OnlyRead } else { Self::Owed }
    }
}

impl<S: Store> Application for Machine<S> {
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) {
        assert!(self.ready(), "delivered while waiting for other groups' verdicts");
        let message = delivery.message;
        self.position = delivery.position;
        let command = match Request::decode(delivery.payload) {
            Ok(Request::Transaction(command)) => Ok(command),
            Ok(control) => return self.control(&delivery, &control, out),
            Err(unreadable) => Err(Refusal::Malformed(unreadable.to_string())),
        };
        let heard = match delivery.destinations.len() {
            1 => Heard::NOBODY,
            _ => self.early.take(message),
        };
        match self.sessions.admit(message, delivery.low_water) {
            Admission::Fresh => self.transaction(&delivery, command, heard, out),
            Admission::Known => self.repeat(message, out),
            Admission::Closed => {
                self.object(&delivery, &command, out);
                self.writer.refused(Some(&Refusal::SessionExpired));
                self.answer(message, None, out);
            }
        }
    }

    fn exchanged(
        &mut self,
        message: MessageId,
        from: GroupId,
        result: &[u8],
        out: &mut dyn Outbox,
    ) {
        // It may be said again, by a leader that does not know what the last one did; and whatever
        // is said, nothing but another group's word about a common message counts.
        if from == self.group || !self.groups.contains(from) {
            return;
        }
        let verdict = Verdict::decode(result);
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| waiting.message == message)
        else {
            // A verdict on what is behind us has nobody to wait for it.
            if !self.sessions.is_past(message) {
                self.early.hear(message, Heard::of(from, verdict));
            }
            return;
        };
        waiting.heard.hear(from, verdict);
        if !waiting.is_over() {
            return;
        }
        let over = self.waiting.take().expect("it was there a moment ago");
        let Ok(Request::Transaction(command)) = Request::decode(&over.payload) else {
            unreachable!("it was decoded when it was delivered");
        };
        let together = Conclusion::Together(over.heard.verdict);
        self.conclude(message, &command.transaction, together, out);
    }

    fn ready(&self) -> bool {
        self.waiting.is_none()
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        if self.waiting.as_ref().is_some_and(|waiting| waiting.message == message) {
            return; // Its reply is to come.
        }
        match self.sessions.owed(message) {
            Owed::Reply(reply) => return out.reply(message, reply),
            Owed::Nothing => return,
            Owed::Done => self.writer.done(true, 0),
            Owed::Refusal(refusal) => self.writer.refused(Some(&refusal)),
        }
        out.reply(message, self.writer.bytes());
    }

    fn begin_copy(&mut self) {
        self.begin();
    }

    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> bool {
        self.copy_part(bytes, part)
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) {
        self.finish(part);
    }

    fn give_up_copy(&mut self) {
        self.give_up();
    }

    fn restore(&mut self, part: &[u8], last: bool) -> Result<(), Malformed> {
        self.restore_part(part, last)
    }
}
