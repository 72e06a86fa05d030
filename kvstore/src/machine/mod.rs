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
//! **Invariant (as if one after the other).** While a command waits, those behind it that do not meet
//! it take effect and are answered (`under_way`). Every answer, and the state when all is over, is the
//! same as if each command had waited for those before it.
//!
//! Waiting cannot deadlock: a group waits only for groups that deliver the same command, each speaks
//! before it waits unless the command meets one before it, and the order in which groups deliver
//! common commands has no cycle. So there is always a lowest one, that all its groups speak about.

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
/// It holds at most its share of `limits.memory_bytes_max`, keys, values and what sessions are owed:
/// beyond that, writes are refused. The ceiling decides outcomes, so it is the same at every replica:
/// it is computed from the layout and the limits, never from what this node happens to host.
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
    /// Of the last command that is over.
    position: Version,
    /// What a version is more than a position: 0, but in a group that was recreated.
    born: Version,
    history: u64,
    /// The digest of the sessions as of then: some are freed what they are owed before that is over which frees it.
    owed: u64,
    checkpoints: Checkpoints,
    writer: PartWriter,
    progress: Progress,
    /// Commands that wait for nobody were left by the last call. Nothing is delivered before they had their turn.
    unfinished: bool,
    /// Bytes that were copied, filled or scanned since somebody [asked](Application::take_work).
    work: Cell<u64>,
}

/// What the store holds, in bytes that count against the ceiling, and the digest of that and of the slot map.
#[derive(Clone, Copy)]
struct Stock {
    bytes: u64,
    digest: u64,
}

/// Raised with every change of what a command comes to: replicas of a group must not have two versions.
const BEHAVIOUR: u32 = 2;

/// What the store does with a command besides what the configuration says: its version, and what is
/// counted and remembered of sessions.
pub fn behaviour() -> Constants {
    Constants::default()
        .with("behaviour", BEHAVIOUR)
        .with("word_bits", usize::BITS)
        .with("pair_overhead", PAIR_OVERHEAD)
        .and(sessions::constants())
}

/// At positions that are multiples of this a machine takes down its digest, for replicas to compare.
const CHECKPOINT_EVERY: Version = 64;
/// Keeps a digest of nothing from being zero.
const CHAIN: u64 = 0x2545_F491_4F6C_DD1D;

/// Bytes that are copied, filled or scanned in one call for commands that waited: one verdict can make hundreds of
/// them executable, each with megabytes of its own.
const WORK_PER_CALL: u64 = 1 << 20;

/// So much of an answer goes into the history: a page of a scan is not worth another look.
const HASHED: usize = 256;

impl Machine {
    /// The empty machine of `replica` in a cluster of this layout, in this process's memory.
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

    /// Which group owns each hash slot, as far as it has delivered.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    /// Keys it holds.
    pub fn keys(&self) -> u64 {
        self.store.len() as u64
    }

    /// Bytes it counts against its [ceiling](Self::ceiling): keys, values and 96 bytes for each
    /// pair, and what sessions are owed.
    pub fn bytes(&self) -> u64 {
        self.stored() + self.sessions.bytes()
    }

    /// The most that [`bytes`](Self::bytes) may grow to.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// Of keys and values alone.
    fn stored(&self) -> u64 {
        self.store.bytes() + self.keys() * PAIR_OVERHEAD
    }

    /// The last position up to which everything is over, and a hash of what was delivered up to it and of
    /// the answers given to what may have had effects, of long ones of their beginning. Two replicas of a group at the same position
    /// have the same; asking costs nothing.
    pub fn history(&self) -> (Version, u64) {
        (self.position, self.history)
    }

    /// The last position delivered, over or not.
    fn delivered(&self) -> Version {
        self.under_way.last_position().unwrap_or(self.position)
    }

    /// The version of what a command writes. Above all versions that the group ever gave, also before it was
    /// lost and recreated: positions begin anew then, and the clock begins with the time of day.
    fn version(&self, position: Version) -> Version {
        self.born + position
    }

    /// Verdicts kept about commands that this replica has yet to deliver.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// Begins or ends sessions. The reply stands in the writer.
    fn control(&mut self, place: CommandPosition, request: &Request<'_>) -> Option<Memo> {
        let message = place.message;
        // Judged by the destinations alone, so every group that gets it judges alike.
        let result = match request {
            _ if place.destinations != self.groups => {
                let why = "sessions open, close and expire in all groups";
                Err(Refusal::Malformed(why.to_owned()))
            }
            Request::Open => self.sessions.open(message),
            Request::Close => self.sessions.close(message),
            Request::Expire(_) if !message.session.is_own() => {
                let why = "only nodes end sessions of others";
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

    /// Says which sessions a control request will end, when it is its turn: nothing of any session is
    /// delivered before that.
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

    /// The session of a command is not open here. If it has ended, it has in all groups. If it is
    /// not known, this group may have been recreated after it had lost its memory, and others may
    /// have the session open, and wait for our verdict.
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
            // The owner of the slot tells the others, and is told nothing.
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

    /// What the command's bytes decide, in every group alike. Gives what is ours to do.
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
            let why = "it was sent to other groups than those that own its keys";
            return Err(Refusal::Malformed(why.to_owned()));
        }
        Ok(share)
    }

    /// For a sender that has another slot map.
    fn wrong_epoch(&self) -> Refusal {
        Refusal::WrongEpoch { slots: Box::new(self.slots.clone()) }
    }

    /// A new command of an open session: it takes effect, or waits for its turn, or speaks and waits
    /// for others.
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
                // Who leads alone has looked into what says that it only reads.
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

    /// A command with nothing of it but its read_write_set.
    fn deferred(&mut self, share: &Share<'_>) -> Box<Deferred> {
        let mut command = self.under_way.spare();
        command.read_write_set.become_of(share);
        command
    }

    /// The rest of it, but for what we come to.
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

    /// What we come to, of which the others were told. The reply to it stands in the writer.
    fn take_down(&self, command: &mut Deferred, opinion: Opinion<'_>) {
        command.judged = opinion.judged;
        if let Some(writes) = opinion.then.filter(|_| command.memo == Memo::Owed) {
            command.then.note(self.writer.bytes(), &writes);
        }
    }

    /// Leaves what only reads to who leads: nobody hears our answer, and nothing changes but its
    /// session. Whoever asks for it again is told that its answer is forgotten.
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

    /// Tries the command at `at`, which was blocked and is not any more.
    fn resume(&mut self, at: usize, out: &mut dyn Outbox) -> Result<(), S::Error> {
        let place = self.under_way.place(at);
        let Stage::Blocked { mut command, heard, .. } = self.under_way.take(at) else {
            unreachable!("nothing else is blocked");
        };
        // What it comes to is put down beside it while it is read.
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

    /// The owner of a slot has said whether it is empty, for which the move at `at` waits.
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

    /// The command at `at` has told its verdict, and now all others have.
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

    /// Sends what the writer holds in answer to what was just delivered, and keeps it when all before
    /// it are over.
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

    /// Sends what the writer holds in answer to the command at `at`, which was taken out.
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

    /// A command is over, and was answered.
    fn keep(&mut self, place: CommandPosition, reply: &[u8], memo: Option<Memo>) {
        // Only the leader has executed what only reads.
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

    /// A command is over, and so are all before it.
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

    /// A digest of the state and the slot map, of what sessions are owed, and of everything that was delivered and answered, as of the
    /// last command that is over. Those behind it that have taken effect already do not count.
    fn digest_over(&self) -> u64 {
        let stored = self.stock().digest.wrapping_sub(self.under_way.changed());
        fold(stored ^ CHAIN, self.history ^ self.owed.rotate_left(32) ^ !CHAIN)
    }

    fn stock(&self) -> Stock {
        let digest = self.store.digest().wrapping_add(self.slots.digest());
        Stock { bytes: self.stored(), digest }
    }

    /// What has changed since the store held this.
    fn change_since(&self, before: Stock) -> Change {
        let Stock { bytes, digest } = self.stock();
        let grown = bytes.cast_signed() - before.bytes.cast_signed();
        Change { grown, digest: digest.wrapping_sub(before.digest) }
    }

    /// Something has taken effect: takes what is over by now, and goes on with what it had blocked. Leaves the rest
    /// for [another call](Application::go_on) when it has done enough for one.
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

/// What a session asks for once it is open.
enum Asked<'a> {
    Command(Command<'a>),
    Move(Move),
}

/// A clock that began with a recreation is above this, for it began with the time in microseconds; one that
/// counts from 0 does not come so far.
const RECREATED_FROM: u64 = 1 << 50;

/// What versions begin with in a group whose first delivery has this clock.
fn born(clock: u64) -> Version {
    if clock < RECREATED_FROM { 0 } else { clock }
}

/// Whether a reply is kept.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Memo {
    /// The command had effects, or was refused: it must never be executed in place of being
    /// answered, so its reply is owed.
    #[default]
    Owed,
    /// The command could only read: it can be given again under another name. Only who leads has
    /// executed it.
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
            Ok(Request::Read(_)) => {
                Err(Refusal::Malformed("it says that it only reads, and does not".to_owned()))
            }
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
        // It may be said again, by a leader that does not know what the last one did; and whatever
        // is said, nothing but another group's word about a common message counts.
        if from == self.group || !self.groups.contains(from) {
            return Ok(());
        }
        let verdict = Verdict::decode(result);
        let Some(at) = self.under_way.find(message) else {
            // A verdict on what is behind us has nobody to wait for it.
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
        // It may be about a move whose turn is yet to come.
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
            return; // Or its reply is to come.
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
