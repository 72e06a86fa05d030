//! The group's log in a replica's memory: appended and written as leader, read as follower.

use skein_fabric::{Fabric, FabricError, Peer, RegionKey, Remote as RemoteRegion, Source};
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::log::{self, Body, Cursor, Entry, PREAMBLE, Payload};
use skein_protocol::step::{Event, Record};

use super::{Exchanged, Replica};
use crate::application::{Application, EXCHANGE_MAX};
use crate::wiring::{Column, Note, Wiring};

/// The most room that a leader keeps in its log for what a turn's announcements will need.
const RESERVE_MAX: usize = 16 << 10;
/// Of that room, what one announcement may take: three times what it needs, because the last
/// message received in a turn may bring as many as there are groups.
const RESERVE_PER_REMOTE: usize = 128;
/// The slot map's epoch that log entries carry.
const EPOCH: u32 = 1;

/// A follower, as its leader sees it.
#[derive(Clone, Copy, Default)]
pub(super) struct Follower {
    pub(super) log: Option<RemoteRegion>,
    /// Up to where its copy of the log is written.
    pub(super) sent: u64,
    /// Up to where it needs the log no more.
    pub(super) freed: u64,
}

impl<A: Application> Replica<A> {
    /// A follower's engine has welcomed us and granted us its log.
    pub(crate) fn follower_granted<F: Fabric>(
        &mut self,
        follower: ReplicaId,
        key: [u8; 32],
        wiring: &mut Wiring<F>,
    ) {
        let Some(peer) = wiring.peer_of(follower) else { return };
        match wiring.port.fabric.attach(peer, &RegionKey(key)) {
            Ok(log) => self.followers[usize::from(follower.slot)].log = Some(log),
            Err(error) => tracing::warn!(%error, %follower, "a granted log was of no use"),
        }
    }

    /// Lets the leader's engine write our log, and returns the key to it.
    pub(crate) fn grant<F: Fabric>(
        &mut self,
        leader: Peer,
        fabric: &mut F,
    ) -> Result<[u8; 32], FabricError> {
        if let Some((_, key)) = self.granted.filter(|(to, _)| *to == leader) {
            return Ok(key);
        }
        let key = fabric.grant(self.log, leader)?.0;
        self.granted = Some((leader, key));
        Ok(key)
    }

    /// A follower's process is gone: nothing more is written there.
    pub(crate) fn follower_lost(&mut self, slot: u8) {
        self.followers[usize::from(slot)].log = None;
    }

    pub(super) fn log_has_more<F: Fabric>(&self, fabric: &F) -> bool {
        if self.core.leads() || self.core.stalled_on().is_some() {
            return false;
        }
        let mut cursor = self.cursor;
        let at = cursor.offset(self.tuning.log_bytes as u64);
        fabric.load(self.log, at + log::INDEX_AT) == cursor.index
    }

    /// As follower, takes what the leader has written. Returns whether there was anything.
    pub(crate) fn read_log<F: Fabric>(&mut self, wiring: &mut Wiring<F>) -> bool {
        let capacity = self.tuning.log_bytes as u64;
        let mut any = false;
        let mut entry = std::mem::take(&mut self.entry);
        while self.log_has_more(&wiring.port.fabric) {
            let fabric = &wiring.port.fabric;
            let at = self.cursor.offset(capacity);
            let mut header = [0; log::HEADER];
            fabric.copy_out(self.log, at, &mut header);
            let Some(len) = log::announced_len(&header, self.cursor, capacity) else { break };
            entry.clear();
            entry.extend_from_slice(&header);
            // A pad announces the rest of the ring, of which only the header says anything.
            let pad = log::is_pad(&header);
            if !pad {
                entry.resize(len, 0);
                fabric.copy_out(self.log, at, &mut entry);
            }
            let Ok(read) = Entry::decode(&entry, self.cursor, self.core.ballot()) else {
                self.paths.torn_entry += 1;
                break;
            };
            let index = self.cursor.index;
            self.cursor.pass(len, read.body);
            if read.body != Body::Pad {
                self.ends.push_back((index, self.cursor.position));
                self.take_entry(index, &read, wiring);
            }
            any = true;
        }
        self.entry = entry;
        any
    }

    fn take_entry<F: Fabric>(&mut self, index: u64, entry: &Entry<'_>, wiring: &mut Wiring<F>) {
        let Self { id: by, core, effects, payloads, exchanged, .. } = self;
        let mut log = |record, held, last| {
            wiring.note(|| Note::Logged { by: *by, index, record });
            let (ballot, time_ms) = (entry.written, entry.time_ms);
            core.step(Event::Logged { index, ballot, time_ms, record, held, last }, effects);
        };
        match entry.body {
            Body::Pad => {}
            Body::NewBallot => log(Record::NewBallot, true, true),
            Body::Local { message, low_water, timestamp, destinations, payload } => {
                let inline = matches!(payload, Payload::Inline(_));
                if let Payload::Inline(bytes) = payload {
                    payloads.insert(message, low_water, destinations, bytes);
                }
                let record = Record::Local { message, low_water, timestamp, destinations, inline };
                log(record, payloads.contains(message), true);
            }
            Body::Remotes(remotes) => {
                let mut remotes = remotes.iter().peekable();
                while let Some(remote) = remotes.next() {
                    log(Record::Remote(remote), true, remotes.peek().is_none());
                }
            }
            Body::Exchange { message, from, result } => {
                exchanged.push_back(Exchanged { index, message, from, result: result.to_vec() });
                log(Record::Exchange, true, true);
            }
        }
    }

    pub(super) fn log_has_room(&self) -> bool {
        let largest = Entry::local_len(self.topology.all_groups(), self.tuning.inline_bytes_max)
            .max(Entry::exchange_len(EXCHANGE_MAX));
        let reserve = RESERVE_MAX.min(self.tuning.log_bytes / 4);
        self.announced < reserve / RESERVE_PER_REMOTE && self.space.fits(reserve + largest, largest)
    }

    /// Appends an entry to our own copy of the log; `None` is one of the remotes gathered.
    pub(super) fn append<F: Fabric>(
        &mut self,
        wiring: &mut Wiring<F>,
        index: u64,
        time_ms: u64,
        record: Option<Record>,
    ) {
        let ballot = self.core.ballot();
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        let body = match record {
            None => Body::REMOTES,
            Some(Record::NewBallot) => Body::NewBallot,
            Some(Record::Local { message, low_water, timestamp, destinations, inline }) => {
                let payload = if inline {
                    let held = self.payloads.get(message).expect("proposed with its payload");
                    Payload::Inline(&held.bytes)
                } else {
                    Payload::Held
                };
                Body::Local { message, low_water, timestamp, destinations, payload }
            }
            Some(Record::Exchange) => {
                let exchanged = self.exchanged.back().expect("pushed before the step");
                let Exchanged { message, from, .. } = *exchanged;
                Body::Exchange { message, from, result: &exchanged.result }
            }
            Some(Record::Remote(_)) => unreachable!("remotes are gathered"),
        };
        let whole = Entry { birth: ballot, written: ballot, time_ms, epoch: EPOCH, body };
        let encode = |cursor: Cursor, into: &mut Vec<u8>| match record {
            None => whole.encode_remotes(&self.remotes, cursor, into),
            Some(_) => whole.encode(cursor, into),
        };
        let len = match body {
            Body::Remotes(_) => Entry::remotes_len(self.remotes.len()),
            Body::Local { destinations, payload: Payload::Inline(bytes), .. } => {
                Entry::local_len(destinations, bytes.len())
            }
            Body::Local { destinations, .. } => Entry::local_len(destinations, 0),
            Body::Exchange { result, .. } => Entry::exchange_len(result.len()),
            Body::NewBallot | Body::Pad => Entry::len(0),
        };
        let fabric = &mut wiring.port.fabric;
        if let Some(skip) = self.space.skip(len) {
            self.paths.padded += 1;
            Entry::encode_pad(self.space.cursor, skip, ballot, &mut entry);
            let at = self.space.cursor.offset(self.space.capacity());
            fabric.copy_in(self.log, at, &entry);
            self.space.cursor.pass(skip, Body::Pad);
            entry.clear();
        }
        assert_eq!(self.space.cursor.index, index, "the log is dense");
        let at = self.space.cursor.offset(self.space.capacity());
        encode(self.space.cursor, &mut entry);
        debug_assert_eq!(entry.len(), len);
        fabric.copy_in(self.log, at, &entry);
        self.space.cursor.pass(len, body);
        self.ends.push_back((index, self.space.cursor.position));
        self.remotes.clear();
        self.entry = entry;
    }

    /// Writes to each follower what it has not been written yet, however many entries that is.
    pub(super) fn write_followers<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        if !self.core.leads() {
            return;
        }
        let end = self.space.cursor.position;
        let capacity = self.space.capacity();
        for slot in 0..self.topology.replicas {
            let follower = &mut self.followers[usize::from(slot)];
            let Some(log) = follower.log.filter(|_| follower.sent < end) else { continue };
            let tag = tag(self.id, slot, self.core.last_index());
            let spans = skein_protocol::ring::spans(capacity, follower.sent, end - follower.sent);
            let last = usize::from(!spans[1].is_empty());
            for (i, span) in spans.into_iter().enumerate().filter(|(_, span)| !span.is_empty()) {
                let at = PREAMBLE + span.start;
                let source = Source::Span { region: self.log, at, len: span.len() };
                let tag = (i == last).then_some(tag);
                if let Err(error) = wiring.port.fabric.write(log, at, source, tag) {
                    tracing::debug!(%error, slot, "a follower's log cannot be written");
                    follower.log = None;
                }
            }
            follower.sent = end;
            if let Some(peer) = wiring.peer_of(ReplicaId::new(self.id.group, slot)) {
                wiring.port.wake_later(peer);
            }
        }
    }

    /// Entries that are committed, hence folded, need their place no more. The leader may overwrite
    /// what everybody has freed.
    pub(super) fn free_log<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        let commit = self.core.commit_index();
        while let Some((index, end)) = self.ends.pop_front_if(|(index, _)| *index <= commit) {
            self.freed_index = index;
            self.freed = end;
        }
        if self.core.leads() {
            let others = self.followers.iter().enumerate();
            let freed = others
                .filter(|(slot, _)| *slot != usize::from(self.id.slot))
                .map(|(_, follower)| follower.freed)
                .fold(self.freed, u64::min);
            self.space.free(freed);
        } else if self.freed - self.freed_told >= self.space.capacity() / 8 {
            self.freed_told = self.freed;
            let leader = self.core.leader_of(self.id.group);
            wiring.tell_word(self.id, leader, Column::Freed, self.freed);
        }
    }

    /// Up to which index our memory holds the log without a gap, payloads included: what a
    /// candidate would find here.
    pub(crate) fn holds<F: Fabric>(&self, fabric: &F) -> u64 {
        if self.core.leads() || self.core.stalled_on().is_some() {
            return self.core.last_index();
        }
        let capacity = self.tuning.log_bytes as u64;
        let mut cursor = self.cursor;
        loop {
            let at = cursor.offset(capacity);
            let mut header = [0; log::HEADER];
            fabric.copy_out(self.log, at, &mut header);
            let len = log::announced_len(&header, cursor, capacity);
            let Some(len) = len.filter(|_| !log::is_pad(&header)) else {
                let pad = Entry::decode(&header, cursor, self.core.ballot());
                match (len, pad) {
                    (Some(len), Ok(pad)) => cursor.pass(len, pad.body),
                    _ => return cursor.index - 1,
                }
                continue;
            };
            let mut bytes = vec![0; len];
            fabric.copy_out(self.log, at, &mut bytes);
            let Ok(entry) = Entry::decode(&bytes, cursor, self.core.ballot()) else {
                return cursor.index - 1;
            };
            if let Body::Local { message, payload: Payload::Held, .. } = entry.body
                && !self.payloads.contains(message)
            {
                return cursor.index - 1;
            }
            cursor.pass(len, entry.body);
        }
    }

    /// How often the log ring went round.
    pub(crate) const fn laps(&self) -> u64 {
        let position = if self.space.cursor.position > self.cursor.position {
            self.space.cursor.position
        } else {
            self.cursor.position
        };
        position / self.space.capacity()
    }

    /// Our write of the log to a follower has completed, up to `index`.
    pub(crate) fn completed(&mut self, slot: u8, index: u64) {
        self.core.step(Event::Completed { slot, index }, &mut self.effects);
    }
}

/// What a completion of a write of the log says: whose, to whom, up to where.
fn tag(id: ReplicaId, slot: u8, index: u64) -> u64 {
    u64::from(id.group.0) << 56 | u64::from(slot) << 48 | index
}

/// Reads what [`tag`] wrote.
pub(crate) const fn untag(tag: u64) -> (GroupId, u8, u64) {
    (GroupId((tag >> 56) as u16), (tag >> 48) as u8, tag & ((1 << 48) - 1))
}
