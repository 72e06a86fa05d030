//! The deterministic state machine of one replica.
//!
//! **Invariant (all or nothing, in all groups).** All groups of a command take the same branch, or all refuse
//! it. What the command's bytes (`rules`) and its session decide is the same in every group without
//! communication. What a group's keys decide (whether its guards hold, whether its part of a branch can be
//! executed) is the group's verdict. The group sends its verdict to the others when it executes the command,
//! before it waits for theirs. Then each group has every group's verdict and concludes the same from them.
//!
//! A recreated group starts without state and has lost its sessions. It objects to a command of an unknown
//! session, because the other groups wait for its verdict.
//!
//! **Invariant (serial equivalence).** While a command waits, those behind it that do not conflict with it take
//! effect and are answered (`under_way`). Every answer, and the state when all are over, is the same as if each
//! command had waited for those before it.
//!
//! Waiting cannot deadlock. A group waits only for groups that deliver the same command, each group sends its
//! verdict before it waits unless the command conflicts with one before it, and the order in which groups
//! deliver common commands has no cycle. So among the commands that wait there is always a lowest one, about
//! which all its groups send their verdicts.

pub(crate) mod branch;
mod checkpoints;
mod conflict_index;
mod copy;
pub mod digest;
mod exchange;
mod execute;
mod moves;
mod part;
mod read_write_set;
mod sessions;
mod share;
mod stop;
mod under_way;
mod unordered_read;
mod writes;

use std::cell::Cell;

use skein_fabric::Constants;
use skein_multicast::application::{Application, Delivery, Digest, Malformed, Outbox};
use skein_multicast::layout::Layout;
use skein_protocol::guard;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::mutants::Mutant;

use self::branch::PAIR_OVERHEAD;
use self::checkpoints::Checkpoints;
use self::copy::Progress;
use self::exchange::{Early, ReceivedVerdicts, Verdict, version_of};
use self::execute::{Came, Opinion, Turn};
use self::moves::Moved;
use self::sessions::{Admission, Owed, Sessions};
use self::share::Share;
use self::stop::settle;
use self::under_way::{Change, CommandPosition, Deferred, Stage, UnderWay};
use crate::command::{Transaction, Version};
use crate::limits::Limits;
use crate::reply::Refusal;
use crate::rules;
use crate::slots::{HashSlot, SlotMap};
use crate::store::Store;
use crate::store::compact::Compact;
use crate::store::memory::Memory;
use crate::store::sum::fold;
use crate::store::tracked::Tracked;
use crate::wire::{Bytes, Command, Move, PartWriter, Request};

/// One replica's keys, values and sessions.
///
/// Keys, values and what is retained for sessions are bounded by the group's share of
/// `limits.memory_bytes_max`: writes beyond it are refused. The ceiling decides outcomes, so it is the same at
/// every replica: it is computed from the layout and the limits, never from the replicas that this node hosts.
pub struct Machine<S = Memory> {
    group: GroupId,
    slot: u8,
    slots: SlotMap,
    groups: GroupSet,
    limits: Limits,
    ceiling: u64,
    store: Tracked<S>,
    sessions: Sessions,
    early: Early,
    under_way: UnderWay,
    /// Position of the last command that is over.
    position: Version,
    /// A version is `born + position`. 0, except in a group that was recreated or has taken a slot.
    born: Version,
    history: u64,
    /// Digest of the sessions as of `position`. `sessions` may differ: a command that is not over may already
    /// have freed replies.
    owed: u64,
    checkpoints: Checkpoints,
    writer: PartWriter,
    progress: Progress,
    /// The last call has left commands that nothing blocks. Nothing is delivered before they have had their
    /// turn.
    unfinished: bool,
    /// Bytes that were copied, filled or scanned since the last [`take_work`](Application::take_work).
    work: Cell<u64>,
}

/// Bytes of the store that count against the ceiling, and the digest of the store and the slot map.
#[derive(Clone, Copy)]
struct Stock {
    bytes: u64,
    digest: u64,
}

/// Incremented with every change of what a command results in: replicas of a group must not have two versions.
const BEHAVIOUR: u32 = 2;

/// What decides a command's result besides the configuration: the version of the behaviour, and what is counted
/// and remembered of sessions.
pub fn behaviour() -> Constants {
    Constants::default()
        .with("behaviour", BEHAVIOUR)
        .with("word_bits", usize::BITS)
        .with("pair_overhead", PAIR_OVERHEAD)
        .and(sessions::constants())
}

/// A machine records its digest at multiples of this position, for replicas to compare.
const CHECKPOINT_EVERY: Version = 64;
/// Keeps a digest of nothing from being zero.
const CHAIN: u64 = 0x2545_F491_4F6C_DD1D;

/// After this many bytes that were copied, filled or scanned, a call leaves the remaining work to another call.
/// One verdict can make hundreds of commands executable, each with megabytes of its own.
const WORK_PER_CALL: u64 = 1 << 20;

/// At most this many bytes of an answer enter the history: hashing a page of a scan is not worth its time.
const HASHED: usize = 256;

impl Machine {
    /// The empty machine of `replica` in a cluster of this layout, with its state in memory.
    pub fn new(replica: ReplicaId, layout: &Layout, slots: SlotMap, limits: Limits) -> Self {
        Self::with_store(Memory::default(), replica, layout, slots, limits)
    }
}

impl<S: Store> Machine<S> {
    /// The same on `store`, which must be empty.
    pub fn with_store(
        store: S,
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Self {
        assert!(store.is_empty(), "a machine starts with nothing in it");
        Self {
            group: replica.group,
            slot: replica.slot,
            groups: slots.groups(),
            slots,
            limits,
            ceiling: limits.group_bytes_max(layout),
            store: Tracked::new(store),
            sessions: Sessions::default(),
            early: Early::default(),
            under_way: UnderWay::default(),
            position: 0,
            born: 0,
            history: 0,
            owed: 0,
            checkpoints: Checkpoints::default(),
            writer: PartWriter::default(),
            progress: Progress::default(),
            unfinished: false,
            work: Cell::new(0),
        }
    }

    /// The slot map as of the moves that this machine has executed.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.store.len() as u64
    }

    /// Bytes that count against the [ceiling](Self::ceiling): keys, values and 96 bytes for each pair, open
    /// sessions and retained replies.
    pub fn bytes(&self) -> u64 {
        self.stored() + self.sessions.bytes()
    }

    /// A write that would raise [`bytes`](Self::bytes) above this is refused.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The part of [`bytes`](Self::bytes) for keys and values.
    fn stored(&self) -> u64 {
        self.store.bytes() + self.keys() * PAIR_OVERHEAD
    }

    /// Position of the last command that is over, and a hash of everything delivered up to it and of the
    /// answers to commands that may have had effects. Only the beginning of a long answer counts. Replicas of a
    /// group at the same position have the same history. Takes constant time.
    pub fn history(&self) -> (Version, u64) {
        (self.position, self.history)
    }

    /// The last position delivered, over or not.
    fn delivered(&self) -> Version {
        self.under_way.last_position().unwrap_or(self.position)
    }

    /// The version that the command at `position` assigns. It is above all versions that the group ever
    /// assigned, also before the group was recreated: positions then begin anew, and the clock begins with the
    /// time of day.
    fn version(&self, position: Version) -> Version {
        self.born + position
    }

    /// Number of commands that this replica has not delivered and for which it has verdicts.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// Opens or ends sessions. The writer holds the reply.
    fn control(&mut self, place: CommandPosition, request: &Request<'_>) -> Option<Memo> {
        let message = place.message;
        // Decided by the destinations alone, so all groups of the message decide alike.
        let result = match request {
            _ if place.destinations != self.groups => {
                let why = "a request to open, close or expire sessions must go to all groups";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Open => self.sessions.open(message),
            Request::Close => self.sessions.close(message),
            Request::Expire(_) if !message.session.is_own() => {
                let why = "only a node may end sessions of others";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Expire(sessions) => {
                for session in sessions {
                    self.sessions.expire(*session);
                }
                Ok(())
            }
            Request::Transaction(_) | Request::Read(_) | Request::Move(_) => {
                unreachable!("nothing that begins or ends a session")
            }
        };
        match &result {
            Ok(()) => self.writer.done(true, 0),
            Err(refusal) => self.writer.refused(Some(refusal)),
        }
        let opened = matches!(request, Request::Open) && result.is_ok();
        opened.then_some(Memo::Owed)
    }

    /// Reports the sessions that a control request will end at its turn. No message of any session is delivered
    /// in between.
    fn end_sessions(&self, place: CommandPosition, request: &Request<'_>, out: &mut dyn Outbox) {
        match request {
            _ if place.destinations != self.groups => {}
            Request::Close if self.sessions.closes(place.message) => {
                out.end_session(place.message.session);
            }
            Request::Expire(sessions) if place.message.session.is_own() => {
                for session in sessions {
                    out.end_session(*session);
                }
            }
            _ => {}
        }
    }

    /// Objects to a command whose session is not open here, if other groups may wait for that. If the session
    /// has ended, it has ended in all groups. If it is unknown, this group may have been recreated after it had
    /// lost its state; other groups may have the session open and wait for this group's verdict.
    fn object(
        &mut self,
        place: CommandPosition,
        asked: &Result<Asked<'_>, Refusal>,
        out: &mut dyn Outbox,
    ) {
        let others = place.destinations.without(self.group);
        if others.is_empty() || self.sessions.is_past(place.message) {
            return;
        }
        let (waited_for, is_told) = match asked {
            Ok(Asked::Command(command)) => {
                let exchanges = rules::needs_exchange(&command.transaction);
                (exchanges, exchanges)
            }
            // The slot's owner sends a verdict and receives none.
            Ok(Asked::Move(it)) => {
                let owns = self.slots.owner_of(HashSlot(it.slot)) == Some(self.group);
                (owns, !owns)
            }
            Err(_) => (false, false),
        };
        if waited_for {
            out.exchange(place.message, others, &Verdict::NONE.encode());
        }
        if is_told {
            self.early.refuse(place.message);
        }
    }

    /// Checks what depends only on the command's bytes and the slot map, which is the same in every group.
    /// Returns this group's share.
    fn check<'a>(
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
    fn wrong_epoch(&self) -> Refusal {
        Refusal::WrongEpoch { slots: Box::new(self.slots.clone()) }
    }

    /// Starts a new command of an open session: it takes effect, or is blocked, or waits for the verdicts of
    /// other groups after this group has sent its own.
    fn start(
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
                let memo = if Request::is_read(payload) { Memo::OnlyRead } else { Memo::Owed };
                self.answer(place, Some(memo), Change::NONE, out);
                return Ok(());
            }
        };
        let last = self.under_way.len();
        let behind = (last > 0).then(|| self.deferred(&share));
        let meets = |behind: &Deferred| self.under_way.meets(last, &behind.read_write_set);
        let came = if behind.as_deref().is_some_and(meets) {
            None
        } else {
            let room = self.room(self.under_way.growth_before(last));
            let turn = Turn { version: self.version(place.position), room, early: last > 0 };
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
            self.take_down(&mut command, opinion);
            Stage::Spoken { command, heard }
        } else {
            self.defer(&mut command, &share, payload, self.read_max(&share)?);
            Stage::Blocked { command, heard, needs_turn: came.is_some() }
        };
        self.under_way.push(place, stage);
        Ok(())
    }

    /// A command of which only the read-write set is filled in.
    fn deferred(&mut self, share: &Share<'_>) -> Box<Deferred> {
        let mut command = self.under_way.spare();
        command.read_write_set.become_of(share);
        command
    }

    /// Fills in the rest, except this group's opinion.
    fn defer(
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
    fn take_down(&self, command: &mut Deferred, opinion: Opinion<'_>) {
        command.judged = opinion.judged;
        if let Some(writes) = opinion.then.filter(|_| command.memo == Memo::Owed) {
            command.then.note(self.writer.bytes(), &writes);
        }
    }

    /// Leaves a read to the leader: this replica's answer would not be sent, and nothing changes but the
    /// session. A duplicate of the read is answered with [`Refusal::Forgotten`].
    fn leave(&mut self, place: CommandPosition, out: &mut dyn Outbox) {
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

    /// Tries the command at `at`, which is not blocked any more.
    fn resume(&mut self, at: usize, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let place = self.under_way.place(at);
        let Stage::Blocked { mut command, heard, .. } = self.under_way.take(at) else {
            unreachable!("nothing else is blocked");
        };
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
                let turn = Turn { version: self.version(place.position), room, early: at > 0 };
                match self.execute(turn, place, &share, heard, out)? {
                    Came::Answered(memo) => {
                        let change = self.change_since(before);
                        command.payload = payload;
                        self.answered(at, command, Some(memo), change, out);
                        return Ok(());
                    }
                    Came::Spoken { heard, opinion } => {
                        command.growth_max = self.growth_max(&share, opinion.reply_bytes_max);
                        self.take_down(&mut command, opinion);
                        command.payload = payload;
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
                        self.answered(at, command, Some(Memo::Owed), change, out);
                        return Ok(());
                    }
                    Moved::Awaits(owner) => Stage::Awaits { command, owner },
                }
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
    fn moved(&mut self, at: usize, heard: ReceivedVerdicts, out: &mut dyn Outbox) {
        let Stage::Awaits { command, owner } = self.under_way.take(at) else {
            unreachable!("nothing else waits for an owner");
        };
        let Ok(Request::Move(it)) = Request::decode(&command.payload) else {
            unreachable!("it was decoded when it was delivered");
        };
        let before = self.stock();
        self.conclude_move(self.under_way.place(at), it, owner, heard);
        let change = self.change_since(before);
        self.answered(at, command, Some(Memo::Owed), change, out);
    }

    /// Concludes the command at `at`: the verdicts of all its groups are there.
    fn concluded(&mut self, at: usize, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let version = self.version(self.under_way.place(at).position);
        let Stage::Spoken { command, heard } = self.under_way.take(at) else {
            unreachable!("nothing else waits for verdicts");
        };
        self.work.set(self.work.get() + command.payload.len() as u64);
        let before = self.stock();
        if let Some(reply) = command.then.reply().filter(|_| heard.verdict.takes_then()) {
            let reply = Compact::from(reply);
            self.store.write(command.then.writes(), version)?;
            let change = self.change_since(before);
            self.answered_with(at, command, reply, Some(Memo::Owed), change, out);
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

    /// Sends the reply in the writer to the command that was just delivered. It is recorded when all commands
    /// before it are over.
    fn answer(
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
    fn answered(
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

    fn answered_with(
        &mut self,
        at: usize,
        command: Box<Deferred>,
        reply: Compact,
        memo: Option<Memo>,
        change: Change,
        out: &mut dyn Outbox,
    ) {
        self.work.set(self.work.get() + reply.as_slice().len() as u64);
        out.reply(self.under_way.place(at).message, reply.as_slice());
        let stage = Stage::Answered { reply, memo, change };
        self.under_way.put_answered(at, command, stage);
    }

    /// Records a command that is over and was answered.
    fn keep(&mut self, place: CommandPosition, reply: &[u8], memo: Option<Memo>) {
        // Possibly only the leader has executed a read, so its answer stays out of the history.
        if memo != Some(Memo::OnlyRead) {
            let sum = sessions::sum(place.message, reply);
            self.history =
                fold(self.history ^ place.position.rotate_left(32) ^ CHAIN, sum ^ !CHAIN);
            if memo == Some(Memo::Owed) {
                self.sessions.record(place.message, reply, sum);
            }
        }
        self.over(place);
    }

    /// Records that a command is over.
    fn over(&mut self, place: CommandPosition) {
        let MessageId { session, sequence } = place.message;
        self.position = place.position;
        self.owed = self.sessions.digest();
        let name = session.0 ^ sequence.rotate_left(48);
        self.history = fold(self.history ^ CHAIN, name ^ place.position.rotate_left(24) ^ !CHAIN);
        if place.position.is_multiple_of(CHECKPOINT_EVERY) {
            self.checkpoints.note(place.position, self.digest_over());
        }
    }

    /// Digest of the store, the slot map, the sessions and the history as of the last command that is over.
    /// Later commands do not count, even if they have taken effect.
    fn digest_over(&self) -> u64 {
        let stored = self.stock().digest.wrapping_sub(self.under_way.changed());
        fold(stored ^ CHAIN, self.history ^ self.owed.rotate_left(32) ^ !CHAIN)
    }

    fn stock(&self) -> Stock {
        let digest = self.store.digest().wrapping_add(self.slots.digest());
        Stock { bytes: self.stored(), digest }
    }

    /// The change since the store had the stock `before`.
    fn change_since(&self, before: Stock) -> Change {
        let Stock { bytes, digest } = self.stock();
        let grown = bytes.cast_signed() - before.bytes.cast_signed();
        Change { grown, digest: digest.wrapping_sub(before.digest) }
    }

    /// Called after something has taken effect: removes the commands that are over, and resumes those that are
    /// not blocked any more. After [`WORK_PER_CALL`] bytes of work, the rest is left to [another
    /// call](Application::go_on).
    fn catch_up(&mut self, out: &mut dyn Outbox) -> Result<(), S::Error> {
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
            let mut next = self.under_way.next_free(0);
            if next.is_none() {
                self.unfinished = false;
                return Ok(());
            }
            while let Some(at) = next {
                self.resume(at, out)?;
                if has_done_enough(&self.work) {
                    return Ok(());
                }
                next = self.under_way.next_free(at + 1);
            }
        }
    }
}

/// A request that needs an open session.
enum Asked<'a> {
    Command(Command<'a>),
    Move(Move),
}

/// The clock of a recreated group begins with the time in microseconds and is above this. A clock that began
/// with 0 does not reach it.
const RECREATED_FROM: u64 = 1 << 50;

/// The value of `Machine::born` in a group whose first delivery has this clock.
fn born(clock: u64) -> Version {
    if clock < RECREATED_FROM { 0 } else { clock }
}

/// Whether a reply is retained.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Memo {
    /// The command had effects or was refused. A duplicate must be answered and never executed, so the reply is
    /// retained.
    #[default]
    Owed,
    /// The command could only read. The client can send it again under another name. Perhaps only the leader
    /// has executed it.
    OnlyRead,
}

impl Memo {
    fn of(transaction: &Transaction<Bytes<'_>>) -> Self {
        if transaction.has_no_effect() { Self::OnlyRead } else { Self::Owed }
    }
}

impl<S: Store> Application for Machine<S> {
    type Failure = S::Error;

    fn constants(&self) -> Constants {
        self.limits
            .constants()
            .with("group_bytes_max", self.ceiling)
            .with("slots.epoch", self.slots.epoch)
            .and(behaviour())
    }

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), S::Error> {
        assert!(self.ready(), "delivered without room for it");
        let Delivery { message, position, low_water, destinations, payload, answers, .. } =
            delivery;
        if position == 1 {
            self.born = born(delivery.clock);
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
            Ok(Request::Read(_)) => Err(Refusal::Malformed(
                "the request is marked as read-only but has a guard or a write".to_owned(),
            )),
            Ok(control) => {
                self.end_sessions(place, &control, out);
                if is_first {
                    let memo = self.control(place, &control);
                    self.sessions.free_for(message, low_water);
                    self.answer(place, memo, Change::NONE, out);
                    return Ok(());
                }
                let mut command = self.under_way.spare();
                command.payload.extend_from_slice(payload);
                (command.growth_max, command.written_max, command.memo) = (0, 0, Memo::Owed);
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
        // A new leader may repeat a verdict. A verdict counts only if it comes from another group of this
        // cluster.
        if from == self.group || !self.groups.contains(from) {
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

    fn ready(&self) -> bool {
        !self.unfinished && self.under_way.has_room()
    }

    fn go_on(&mut self, out: &mut dyn Outbox) -> Result<bool, S::Error> {
        let unfinished = self.unfinished;
        if unfinished {
            self.catch_up(out)?;
        }
        Ok(unfinished)
    }

    fn take_work(&mut self) -> u64 {
        self.work.take()
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn digests(&self) -> Vec<Digest> {
        let now = Digest { position: self.position, digest: self.digest_over() };
        self.checkpoints.last().into_iter().chain([now]).collect()
    }

    fn digest_at(&self, position: u64) -> Option<u64> {
        if position == self.position {
            return Some(self.digest_over());
        }
        self.checkpoints.find(position)
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
        self.read_unordered(query, answer)
    }

    fn begin_copy(&mut self) {
        self.begin();
    }

    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> Result<bool, S::Error> {
        self.copy_part(bytes, part)
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), S::Error> {
        self.finish(part)
    }

    fn give_up_copy(&mut self) {
        self.give_up();
    }

    fn restore(&mut self, part: &[u8], last: bool) -> Result<Result<(), Malformed>, S::Error> {
        settle(self.restore_part(part, last))
    }
}
