//! The state machine of simulations. It checks every payload, exchanges results for some messages, and waits
//! for results. Its state is copied in several parts, and changes while it is copied. In some scenarios its snapshots
//! lack the cells, which are in [checkpoints](super::checkpoints).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;

use serde::{Deserialize, Serialize};
use skein_fabric::sim::mix;
use skein_protocol::ids::{GroupId, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};

use super::checkpoints::Checkpoints;
use crate::application::{Application, Delivery, Malformed, NotRestored, Outbox, Speech};

/// Cells of the state, each changed by some messages.
const CELLS: u64 = 64;
/// Limit of messages in flight in a machine that takes more while it waits.
const UNDER_WAY_MAX: u64 = 12;
/// Limit of entries in a part of a copy: few, so that there are many parts.
const PART_MAX: usize = 16;

/// The payload of message `message`, which its sender and its replicas compute alike.
pub(super) fn payload(message: MessageId, exchanges: bool, reply: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![u8::from(exchanges)];
    bytes.extend_from_slice(&reply.to_le_bytes());
    let word = message.session.0.rotate_left(17) ^ message.sequence;
    bytes.reserve(len);
    for at in (0..len).step_by(8) {
        let part = mix(word ^ at as u64).to_le_bytes();
        bytes.extend_from_slice(&part[..(len - at).min(8)]);
    }
    bytes
}

/// The result of group `from` about a message.
fn result(message: MessageId, from: GroupId) -> Vec<u8> {
    let len = (message.sequence * 37 + u64::from(from.0)) % 500;
    (0..len).map(|i| (message.sequence + i) as u8 ^ from.0 as u8).collect()
}

/// A key of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum StateKey {
    /// A cell, by number.
    Cell(u64),
    /// The reply to a message: session and sequence number.
    Reply(u64, u64),
}

impl StateKey {
    const fn is_cell(self) -> bool {
        matches!(self, Self::Cell(_))
    }
}

/// The part of the state that is not in entries, and is copied with the last part.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Rest {
    /// Digest of all deliveries, in their order.
    digest: u64,
    delivered: u64,
    /// Results received about messages that are not over: session, sequence number, group.
    results: BTreeSet<(u64, u64, u16)>,
    /// Delivered messages for which not all groups' results are here.
    waiting: Vec<Waits>,
}

/// A message that is answered once other groups' results are here.
#[derive(Clone, Serialize, Deserialize)]
struct Waits {
    session: u64,
    sequence: u64,
    position: u64,
    needed: Vec<u16>,
    reply: u16,
}

#[derive(Serialize, Deserialize)]
struct Part {
    entries: Vec<(StateKey, u64)>,
    rest: Option<Rest>,
}

/// Names the checkpoint with the cells that a snapshot lacks. It follows the snapshot's last part.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    number: u64,
    cells: u64,
    digest: u64,
}

/// A copy in progress.
#[derive(Default)]
struct Copying {
    left: VecDeque<StateKey>,
    changed: BTreeSet<StateKey>,
    /// The cells are not copied: they go to a checkpoint.
    keeps: bool,
}

/// The state machine of one replica.
pub(super) struct Machine {
    group: GroupId,
    /// Limit of messages that wait for results.
    waiting_max: usize,
    entries: BTreeMap<StateKey, u64>,
    rest: Rest,
    copying: Option<Copying>,
    /// The checkpoints of its replica, if its snapshots lack the cells.
    checkpoints: Option<Checkpoints>,
    /// The checkpoint of the last snapshot, which is written behind the next write ([`Mutant::KeptWithOneMore`]).
    owed: Option<u64>,
    /// Limit of entries in a part of a copy.
    part: usize,
    /// Number of queries that it has received.
    asked: u64,
    /// The first violation of what a machine may rely on.
    pub(super) broken: Option<String>,
}

impl Machine {
    /// A machine that waits for one message's results before it takes another, or continues until several
    /// messages wait; and whose copies take long, or very long. It is drawn from its own hash, so that
    /// nothing else changes that a seed draws.
    pub(super) fn new(group: GroupId, seed: u64) -> Self {
        let drawn = mix(seed);
        Self {
            group,
            waiting_max: if drawn & 1 == 0 { 4 } else { 1 },
            part: if drawn & 6 == 0 { 1 } else { PART_MAX },
            entries: BTreeMap::new(),
            rest: Rest::default(),
            copying: None,
            checkpoints: None,
            owed: None,
            asked: 0,
            broken: None,
        }
    }

    /// The same machine, whose snapshots lack the cells.
    pub(super) fn with_checkpoints(self, checkpoints: Option<Checkpoints>) -> Self {
        Self { checkpoints, ..self }
    }

    /// Digest of the whole state: equal at replicas that have delivered the same messages.
    pub(super) fn digest(&self) -> u64 {
        let entries = self.entries.iter().map(|(key, word)| match key {
            StateKey::Cell(cell) => mix(cell ^ mix(*word)),
            StateKey::Reply(session, sequence) => mix(session ^ mix(sequence ^ mix(*word))),
        });
        entries.fold(mix(self.rest.digest ^ self.rest.delivered), |digest, word| mix(digest ^ word))
    }

    /// Number of deliveries that are over, up to the first that is not.
    pub(super) fn done(&self) -> u64 {
        self.rest.waiting.first().map_or(self.rest.delivered, |first| first.position - 1)
    }

    /// Whether the message was delivered: this machine speaks at once.
    fn has_spoken(&self, message: MessageId) -> bool {
        self.entries.contains_key(&StateKey::Reply(message.session.0, message.sequence))
    }

    fn answer_waiting(&mut self, out: &mut dyn Outbox) {
        let results = &mut self.rest.results;
        self.rest.waiting.retain(|Waits { session, sequence, needed, reply, .. }| {
            let here = |group: &u16| results.contains(&(*session, *sequence, *group));
            let waits = !needed.iter().all(here);
            if !waits {
                results.retain(|(s, n, _)| (s, n) != (session, sequence));
                answer(MessageId::new(SessionId(*session), *sequence), *reply, out);
            }
            waits
        });
    }

    fn apply(&mut self, message: MessageId, len: u16) {
        self.set(StateKey::Reply(message.session.0, message.sequence), u64::from(len));
        let cell = mix(message.session.0 ^ message.sequence) % CELLS;
        let before = self.entries.get(&StateKey::Cell(cell)).copied().unwrap_or(0);
        self.set(StateKey::Cell(cell), mix(before ^ message.session.0 ^ message.sequence));
    }

    fn set(&mut self, key: StateKey, word: u64) {
        self.entries.insert(key, word);
        if let Some(copying) = &mut self.copying
            && !(copying.keeps && key.is_cell())
        {
            copying.changed.insert(key);
        }
        if let Some(number) = self.owed.take_if(|_| key.is_cell()) {
            self.write_checkpoint(number);
        }
    }

    fn cells(&self) -> Vec<(StateKey, u64)> {
        let cells = self.entries.iter().filter(|(key, _)| key.is_cell());
        cells.map(|(key, word)| (*key, *word)).collect()
    }

    /// The record of the cells under this number, if the checkpoint has the present ones.
    fn kept(&self, number: u64) -> Kept {
        let cells = self.cells();
        let words = cells.iter().map(|(_, word)| *word);
        let digest = words.fold(0, |digest, word| mix(digest ^ word));
        Kept { number, cells: cells.len() as u64, digest }
    }

    /// Begins to write the present cells into a checkpoint.
    fn write_checkpoint(&mut self, number: u64) {
        let bytes = postcard::to_stdvec(&self.cells()).expect("plain data");
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.write(number, bytes);
        }
    }

    /// Takes the cells of the checkpoint that a snapshot names.
    fn take_kept(&mut self, kept: &Kept) -> Result<(), NotRestored> {
        let number = kept.number;
        let bytes = self.checkpoints.as_ref().and_then(|it| it.read(number));
        let lacks = |what: &str| NotRestored::NotKept(format!("checkpoint {number} {what}"));
        let bytes = bytes.ok_or_else(|| lacks("is not there"))?;
        let cells: Vec<(StateKey, u64)> =
            postcard::from_bytes(&bytes).map_err(|_| lacks("is damaged"))?;
        self.entries.extend(cells);
        if self.kept(number) != *kept {
            return Err(lacks("has other cells than its snapshot"));
        }
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.began_with(number);
        }
        Ok(())
    }

    /// Number of the checkpoint of its last snapshot, if that is not on its disk.
    pub(super) fn lacks_checkpoint(&self) -> Option<u64> {
        self.checkpoints.as_ref().and_then(Checkpoints::lacks)
    }

    /// Restores a part of a copy. Returns what follows it.
    fn restore_part<'a>(&mut self, part: &'a [u8], last: bool) -> Result<&'a [u8], Malformed> {
        let (Part { entries, rest }, more) =
            postcard::take_from_bytes(part).map_err(|_| Malformed)?;
        self.entries.extend(entries);
        match rest {
            Some(rest) if last => self.rest = rest,
            None if !last => {}
            _ => return Err(Malformed),
        }
        Ok(more)
    }

    /// Takes up to `most` entries that were not copied, or have changed since.
    fn next_places(&mut self, most: usize) -> Vec<(StateKey, u64)> {
        let copying = self.copying.as_mut().expect("a copy was begun");
        let mut entries = Vec::new();
        while entries.len() < most {
            let next = copying.left.pop_front().or_else(|| copying.changed.pop_first());
            let Some(key) = next else { break };
            entries.push((key, self.entries[&key]));
        }
        entries
    }
}

fn answer(message: MessageId, len: u16, out: &mut dyn Outbox) {
    out.reply(message, &vec![message.sequence as u8; usize::from(len)]);
}

impl Application for Machine {
    type Failure = Infallible;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Infallible> {
        let Delivery { message, destinations, position, payload: bytes, .. } = delivery;
        if !self.ready() {
            self.broken = Some(format!("{message} was delivered to a machine that was not ready"));
        }
        if position != self.rest.delivered + 1 {
            self.broken = Some(format!("{message} was delivered as {position}, out of turn"));
        }
        self.rest.delivered = position;
        let word = mix(message.session.0 ^ message.sequence ^ delivery.clock);
        self.rest.digest = mix(self.rest.digest ^ word ^ delivery.time_ms);
        if message.session.is_own() {
            // A node reports the death of a client's process: the payload names its session.
            let session = bytes.try_into().expect("eight bytes");
            out.end_session(SessionId(u64::from_le_bytes(session)));
            return Ok(());
        }
        let (exchanges, reply) = (bytes[0] == 1, u16::from_le_bytes([bytes[1], bytes[2]]));
        if bytes != payload(message, exchanges, reply, bytes.len() - 3) {
            self.broken = Some(format!("{message} was delivered with another payload"));
        }
        if self.has_spoken(message) {
            self.broken = Some(format!("{message} was applied before"));
        }
        self.apply(message, reply);
        let others = destinations.without(self.group);
        let own = (message.session.0, message.sequence, self.group.0);
        if self.rest.results.contains(&own) {
            // Our group has objected. It waits for nobody.
            self.rest
                .results
                .retain(|(session, sequence, _)| (*session, *sequence) != (own.0, own.1));
            self.rest.digest = mix(self.rest.digest);
            out.exchange(message, others, &[]);
            answer(message, reply, out);
        } else if exchanges && !others.is_empty() {
            out.exchange(message, others, &result(message, self.group));
            let needed = others.iter().map(|group| group.0).collect();
            let MessageId { session, sequence } = message;
            self.rest.waiting.push(Waits { session: session.0, sequence, position, needed, reply });
            self.answer_waiting(out);
        } else {
            answer(message, reply, out);
        }
        Ok(())
    }

    fn exchanged(
        &mut self,
        message: MessageId,
        from: GroupId,
        bytes: &[u8],
        out: &mut dyn Outbox,
    ) -> Result<(), Infallible> {
        let new = self.rest.results.insert((message.session.0, message.sequence, from.0));
        if !new || !bytes.is_empty() && bytes != result(message, from) {
            self.broken = Some(format!("a wrong result of {from} about {message}"));
        }
        if from == self.group && self.has_spoken(message) {
            self.broken =
                Some(format!("{from} has objected to {message}, about which it had spoken"));
        }
        self.answer_waiting(out);
        Ok(())
    }

    fn speech(&self, message: MessageId) -> Speech {
        match () {
            () if self.has_spoken(message) => Speech::Given,
            () if !self.ready() => Speech::Blocked,
            () => Speech::Open,
        }
    }

    fn ready(&self) -> bool {
        let waiting = self.rest.waiting.len();
        waiting < self.waiting_max && (self.under_way() as u64) < UNDER_WAY_MAX
    }

    fn under_way(&self) -> usize {
        let first = self.rest.waiting.first();
        first.map_or(0, |first| self.rest.delivered + 1 - first.position) as usize
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        let MessageId { session, sequence } = message;
        let waits = |it: &Waits| (it.session, it.sequence) == (session.0, sequence);
        if self.rest.waiting.iter().any(waits) {
            return; // Its reply is to come.
        }
        if let Some(len) = self.entries.get(&StateKey::Reply(session.0, sequence)) {
            answer(message, *len as u16, out);
        }
    }

    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> Result<bool, Infallible> {
        // Some queries must be repeated before they are answered.
        self.asked += 1;
        let one_in = u16::from_le_bytes(query.try_into().expect("as it was asked"));
        answer.extend_from_slice(&self.rest.delivered.to_le_bytes());
        Ok(self.rest.waiting.is_empty() && mix(self.asked).is_multiple_of(u64::from(one_in)))
    }

    fn begin_copy(&mut self) {
        let left = self.entries.keys().copied().collect();
        self.copying = Some(Copying { left, ..Copying::default() });
    }

    fn copy(&mut self, _: usize, part: &mut Vec<u8>) -> Result<bool, Infallible> {
        let entries = self.next_places(self.part);
        part.extend(postcard::to_stdvec(&Part { entries, rest: None }).expect("plain data"));
        let copying = self.copying.as_ref().expect("a copy was begun");
        Ok(copying.left.is_empty() && copying.changed.len() <= PART_MAX)
    }

    fn has_walked(&self) -> bool {
        self.copying.as_ref().is_none_or(|copying| copying.left.is_empty())
    }

    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), Infallible> {
        let entries = self.next_places(usize::MAX);
        let rest = Some(self.rest.clone());
        part.extend(postcard::to_stdvec(&Part { entries, rest }).expect("plain data"));
        let copying = self.copying.take().expect("a copy was begun");
        if let Some(checkpoints) = self.checkpoints.as_mut().filter(|_| copying.keeps) {
            let number = checkpoints.next();
            part.extend(postcard::to_stdvec(&self.kept(number)).expect("plain data"));
            if planted(Mutant::KeptWithOneMore) {
                self.owed = Some(number);
            } else {
                self.write_checkpoint(number);
            }
        }
        Ok(())
    }

    fn begin_snapshot(&mut self) {
        self.begin_copy();
        if let Some(copying) = self.copying.as_mut().filter(|_| self.checkpoints.is_some()) {
            copying.keeps = true;
            copying.left.retain(|key| !key.is_cell());
        }
    }

    fn has_kept(&self) -> bool {
        self.checkpoints.as_ref().is_none_or(Checkpoints::are_written)
    }

    fn has_news(&self) -> bool {
        self.checkpoints.as_ref().is_some_and(Checkpoints::has_news)
    }

    fn go_on(&mut self, _: &mut dyn Outbox) -> Result<bool, Infallible> {
        Ok(self.checkpoints.as_mut().is_some_and(Checkpoints::take_news))
    }

    fn drop_earlier(&mut self) {
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoints.drop_earlier();
        }
    }

    fn restore_snapshot(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, Infallible> {
        let more = match self.restore_part(part, last) {
            Ok([]) => return Ok(Ok(())),
            Ok(more) => more,
            Err(Malformed) => return Ok(Err(NotRestored::Malformed)),
        };
        let kept = postcard::from_bytes(more);
        Ok(kept.map_err(|_| NotRestored::Malformed).and_then(|kept| self.take_kept(&kept)))
    }

    fn give_up_copy(&mut self) {
        self.copying = None;
    }

    fn restore(&mut self, part: &[u8], last: bool) -> Result<Result<(), Malformed>, Infallible> {
        let more = self.restore_part(part, last);
        Ok(more.and_then(|more| if more.is_empty() { Ok(()) } else { Err(Malformed) }))
    }
}
