//! The group's log in a replica's memory: appended and written as leader, read as follower.

use crate::ordering::Links;
use std::collections::VecDeque;
use std::ops::Range;

use skein_fabric::{Fabric, Remote as RemoteRegion, Source};
use skein_protocol::ballot::Ballot;
use skein_protocol::check::check;
use skein_protocol::group::Role;
use skein_protocol::group::body::{Body as _, Contents, Draft as _, Payload, ReadMessage, Stamp};
use skein_protocol::group::frame::{self, Cursor, Frame, Leadership, PREAMBLE};
use skein_protocol::group::runs::Runs;
use skein_protocol::group::transfer::Stage;
use skein_protocol::group::{GroupEvent, LogRecord as _, LoggedMessage};
use skein_protocol::guard;
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::At;
use skein_protocol::results::Results;
use skein_protocol::step::Event;

use super::Replica;
use super::results::RESULTS_BYTES_MAX;
use crate::application::Application;
use crate::wakes::Hurry;
use crate::wiring::{Column, Note, Wiring};

/// The most room that a leader keeps in its log for what a turn's announcements will need.
const RESERVE_MAX: usize = 64 << 10;
/// Of that room, what one announcement may take: three times what it needs, because the last
/// message received in a turn may bring as many as there are groups.
const RESERVE_PER_REMOTE: usize = 128;
/// The slot map's epoch that log entries carry.
const EPOCH: u32 = 1;

/// The word of a follower's memory, in front of its log, that is written when nothing else is.
const TOUCHED_AT: usize = PREAMBLE - 8;
const _: () = assert!(TOUCHED_AT >= frame::LEADERSHIP);

/// Writes that may be under way to a follower before it is written a word that only confirms: one that stands
/// still behind a network would be written words without end.
const UNDER_WAY_MAX: usize = 16;

/// Entries up to this length are copied out at once, if they are as long as the one before.
const ALIKE_MAX: usize = 256;

/// A sleeping follower is woken when it has so many bytes to read, though nobody waits for it: as leader it would have to
/// read them all first.
pub(super) const UNREAD_MAX: u64 = 16 << 10;

/// Of that room, what changes of the view and first entries of new ballots may take.
pub(super) const RESERVE_FOR_CONTROL: usize = 2 << 10;

/// A follower, as its leader sees it.
#[derive(Clone, Default)]
pub(super) struct Follower {
    pub(super) log: Option<RemoteRegion>,
    /// Its logs that we write no more, whose memory waits for us to detach.
    left: Vec<RemoteRegion>,
    /// Up to where its copy of the log is written.
    pub(super) sent: u64,
    /// Bytes that were written to it since it was last woken for them.
    unread: u64,
    /// Up to where it needs the log no more.
    pub(super) freed: u64,
    /// The number of the last write to it under this grant.
    posted: u64,
    /// Raised when it must let us in again.
    pub(super) attempt: u32,
    /// The life to be let in when it has all of the log.
    pub(super) joining: Option<u32>,
    /// Writes under way: their numbers, and up to which index they go.
    under_way: VecDeque<(u64, u64)>,
}

impl Follower {
    /// It lets us write its log, from `sent` on.
    pub(super) fn let_in(&mut self, log: RemoteRegion, sent: u64, freed: u64) {
        self.left.extend(self.log.replace(log));
        (self.sent, self.freed, self.posted) = (sent, freed, 0);
        self.forget_writes();
    }

    /// Nothing more is written to it until it lets us in again.
    fn lose(&mut self) {
        self.left.extend(self.log.take());
        self.joining = None;
        self.attempt += 1;
    }

    /// What completes or fails of writes until now says nothing of later ones.
    pub(super) fn forget_writes(&mut self) {
        self.under_way.clear();
    }

    /// Whether everything that was written is in its memory.
    pub(super) fn has_all(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Write number `number` is complete: up to which index it went, if it was under this grant.
    fn completed(&mut self, number: u64) -> Option<u64> {
        let at = self.under_way.iter().position(|(n, _)| *n == number)?;
        self.under_way.drain(..=at).map(|(_, index)| index).max()
    }

    /// Write number `number` is under way, and with it the log up to `index`, if it is of that.
    fn post(&mut self, number: u64, index: u64) {
        self.posted = number;
        self.under_way.push_back((number, index));
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Nothing more is written to a follower until it lets us in again.
    pub(crate) fn follower_lost(&mut self, slot: u8) {
        self.followers[usize::from(slot)].lose();
        self.core.step(Event::Group(GroupEvent::FeedsNoMore { slot }), &mut self.effects);
    }

    /// Detaches from logs of followers that are not written any more: their memory is kept for as long as
    /// a former leader is attached.
    pub(super) fn leave_logs<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        for log in self.followers.iter_mut().flat_map(|follower| follower.left.drain(..)) {
            wiring.port.fabric.detach(log);
        }
    }

    /// Lets nobody write our log any more, and reads what is whole in it.
    pub(super) fn close_log<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        if planted(Mutant::ReadBeforeRevoked) {
            self.read_log(wiring, usize::MAX);
        }
        if self.granted.take().is_some()
            && let Err(error) = wiring.port.fabric.revoke(self.log)
        {
            // Without this guarantee nothing of the group's order can be relied on.
            panic!("{}: the log cannot be closed to its old leader: {error}", self.id);
        }
        if !planted(Mutant::LogUnreadAtGrant) && !planted(Mutant::ReadBeforeRevoked) {
            self.read_log(wiring, usize::MAX);
        }
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.carry_out(wiring);
        self.free_log(wiring);
        if self.core.log().stalled_on().is_some() && !planted(Mutant::StalledEntryReported) {
            // An entry whose payload we lack is none of ours: nobody may count on us for it.
            self.paths.closed_while_stalled += 1;
            self.cut_log(self.end_of(self.core.log().last_index()));
        }
    }

    /// Does what need not be done when the next leader waits for it.
    pub(crate) fn prepare_log<F: Fabric>(&self, wiring: &mut Wiring<F, O>) {
        if self.core.log().leads() || !self.awaiting {
            wiring.port.fabric.prepare(self.log);
        }
    }

    /// Right behind an entry: the last committed one, or one after it.
    pub(super) fn end_of(&self, index: u64) -> Cursor {
        let ends = self.ends.iter().rev();
        let end = ends.copied().find(|(of, _)| *of == index).map(|(_, position)| position);
        Cursor { index: index + 1, position: end.unwrap_or(self.freed) }
    }

    /// Cuts off what our log holds behind `base`.
    pub(super) fn cut_log(&mut self, base: Cursor) {
        let event = GroupEvent::CutOff { last: base.index - 1 };
        self.core.step(Event::Group(event), &mut self.effects);
        self.runs.truncate(base);
        self.cursor = base;
        while self.ends.pop_back_if(|(index, _)| *index >= base.index).is_some() {}
        self.exchange.truncate(base.index);
    }

    /// The words with which the leader that we let in begins, if they are there and whole.
    fn leadership<F: Fabric>(&self, fabric: &F) -> Option<Leadership> {
        let mut bytes = [0; frame::LEADERSHIP];
        fabric.copy_out(self.log, 0, &mut bytes);
        Leadership::decode(&bytes).filter(|header| {
            let of_this_grant = guard!(Mutant::StaleHeaderTaken, header.grant == self.grants);
            header.ballot == self.core.log().promised() && of_this_grant
        })
    }

    /// What stands where a leader's first words go: none of those that we are about to wait for.
    pub(super) fn header_there<F: Fabric>(&self, fabric: &F) -> u64 {
        if planted(Mutant::StaleHeaderTaken) { 0 } else { fabric.load(self.log, 0) }
    }

    /// As follower, takes the words with which a new leader begins. Returns whether they are there.
    fn read_leadership<F: Fabric>(&mut self, wiring: &Wiring<F, O>) -> bool {
        let Some(header) = self.leadership(&wiring.port.fabric) else {
            self.paths.torn_header += 1;
            return false;
        };
        self.awaiting = false;
        // It writes our log where that ends: nobody's state is needed.
        self.transfer.received = None;
        self.filled_from = Some(header.held_from);
        let Leadership { ballot, base, first, .. } = header;
        let event = GroupEvent::Followed { ballot, base: base.index - 1, first };
        self.core.step(Event::Group(event), &mut self.effects);
        self.cut_log(header.base);
        self.forget_unsent(wiring);
        // The new leader knows nothing of what we told the old one.
        (self.freed_told, self.applied_told) = (0, None);
        true
    }

    /// Payloads of what was cut off now are kept for those sessions only that are here to be answered:
    /// what we multicast ourselves, or a session that is gone, may never be logged again, and then
    /// nothing would end it.
    pub(super) fn forget_unsent<F: Fabric>(&mut self, wiring: &Wiring<F, O>) {
        let (core, id) = (&self.core, self.id);
        self.payloads.retain_all(|message| {
            core.is_known(message) || wiring.has_session(message.session, id)
        });
    }

    /// Whether [`read_log`](Self::read_log) would find something.
    #[inline]
    pub(crate) fn log_has_more<F: Fabric>(&self, fabric: &F) -> bool {
        if self.core.log().leads() || self.core.log().role() == Role::Blank {
            return false;
        }
        if self.awaiting {
            return fabric.load(self.log, 0) != self.header_seen;
        }
        if self.core.log().stalled_on().is_some() {
            return false;
        }
        let mut cursor = self.cursor;
        let at = cursor.offset(self.tuning.log_bytes as u64);
        guard!(Mutant::LapNotChecked, fabric.load(self.log, at + frame::INDEX_AT) == cursor.index)
    }

    /// As follower, takes what the leader has written, and no more entries when they are `most` bytes. Returns whether
    /// there was anything.
    pub(crate) fn read_log<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>, most: usize) -> bool {
        let capacity = self.tuning.log_bytes as u64;
        let (mut any, mut entries, mut taken) = (false, 0, 0);
        let mut entry = std::mem::take(&mut self.entry);
        while taken < most as u64 && self.log_has_more(&wiring.port.fabric) {
            let fabric = &wiring.port.fabric;
            if self.awaiting {
                if !self.read_leadership(wiring) {
                    break;
                }
                (any, taken) = (true, 0);
                continue;
            }
            let at = self.cursor.offset(capacity);
            // Most are as long as the one before.
            let alike = if entry.len() <= ALIKE_MAX { entry.len() } else { frame::HEADER };
            let left = frame::PREAMBLE + self.tuning.log_bytes - at;
            entry.resize(alike.clamp(frame::HEADER, left), 0);
            fabric.copy_out(self.log, at, &mut entry);
            let header = entry.first_chunk().expect("a header at least");
            let Some(len) = frame::announced_len(header, self.cursor, capacity) else { break };
            // A pad announces the rest of the ring, of which only the header says anything.
            if frame::is_pad(header) {
                entry.truncate(frame::HEADER);
            } else if len != entry.len() {
                entry.resize(len, 0);
                fabric.copy_out(self.log, at, &mut entry);
            }
            let ballot = self.core.log().ballot();
            let frame = Frame::decode(&entry, self.cursor, ballot).ok();
            let Some((frame, body)) = frame.and_then(|frame| Some((frame, self.body(&frame)?)))
            else {
                self.paths.torn_entry += 1;
                break;
            };
            let index = self.cursor.index;
            frame.step_over(&mut self.cursor, len);
            // Room is given back at the end of the turn: nobody has written more until then.
            taken += len as u64;
            debug_assert!(taken <= capacity, "more was read in one look than a log holds");
            if let Some(body) = body {
                let Frame { birth, time_ms, .. } = frame;
                self.note_entry(index, birth, self.cursor.position);
                self.take_entry(At { index, birth, time_ms }, &body, wiring);
                entries += 1;
            }
            any = true;
        }
        self.batches.entries_per_look.note(entries);
        self.entry = entry;
        if any {
            self.stir();
        }
        any
    }

    /// An entry has its place in our log, and ends at `position`.
    pub(super) fn note_entry(&mut self, index: u64, birth: Ballot, position: u64) {
        self.ends.push_back((index, position));
        self.runs.push(birth, position, self.freed_index);
    }

    /// What an entry says; `None` of a pad, which says nothing. `None` at all if it makes no sense.
    #[expect(clippy::option_option, reason = "a pad is whole, and says nothing")]
    pub(super) fn body<'a>(&self, frame: &Frame<'a>) -> Option<Option<O::Body<'a>>> {
        if frame.is_pad() { Some(None) } else { O::Body::read(frame).map(Some) }
    }

    /// Takes an entry that has its place in our log.
    pub(super) fn take_entry<F: Fabric>(
        &mut self,
        at: At,
        body: &O::Body<'_>,
        wiring: &mut Wiring<F, O>,
    ) {
        let index = at.index;
        if wiring.journal.is_some() {
            let by = self.id;
            body.for_each_record(|record| wiring.note(|| Note::Logged { by, index, record }));
        }
        let mut held = true;
        if let Some(ReadMessage { message, low_water, destinations, payload }) = body.message() {
            match payload {
                Payload::Inline(bytes) => {
                    self.payloads.replace(message, low_water, destinations, bytes);
                }
                Payload::Held { check } => {
                    self.lacking = (destinations, check);
                    held = self.payloads.keep_only(message, destinations, check);
                }
            }
        } else if let Some((from, results)) = body.results() {
            self.exchange.logged(index, from, results);
        }
        self.core.accept(at, body, held, &mut self.effects);
    }

    /// Whether another message may be taken, or another announcement.
    pub(crate) fn log_has_room(&self) -> bool {
        self.log_has_room_for(1)
    }

    /// Whether so many announcements may be taken, of which the first in a turn may be a few more.
    pub(super) fn log_has_room_for(&self, announced: usize) -> bool {
        let (groups, payload) = (self.topology.all_groups(), self.tuning.inline_bytes_max);
        let largest = O::Body::longest(groups, payload, RESULTS_BYTES_MAX);
        let reserve = RESERVE_MAX.min(self.tuning.log_bytes / 4);
        let wanted = reserve + RESERVE_FOR_CONTROL + largest;
        let within = self.announced + announced <= reserve / RESERVE_PER_REMOTE;
        (self.announced == 0 || within) && self.space.fits(wanted, largest)
    }

    /// Appends an entry to our own copy of the log; the record stands for all of it.
    pub(super) fn append<F: Fabric>(
        &mut self,
        wiring: &mut Wiring<F, O>,
        index: u64,
        time_ms: u64,
        record: O::Record,
    ) {
        let ballot = self.core.log().ballot();
        let mut entry = std::mem::take(&mut self.entry);
        entry.clear();
        let mut results = wiring.borrow();
        let contents = if let Some(LoggedMessage { message, inline, .. }) = record.message() {
            let held = self.payloads.get(message).expect("proposed with its payload");
            Contents::Payload(if inline {
                Payload::Inline(&held.bytes)
            } else {
                Payload::Held { check: check(&held.bytes) }
            })
        } else if record.is_results() {
            let from = self.exchange.entry(index, &mut results);
            Contents::Results { from, results: Results(&results) }
        } else {
            Contents::None
        };
        let draft = self.core.draft(index, &record, contents);
        if wiring.journal.is_some() {
            let by = self.id;
            draft.for_each_record(|record| wiring.note(|| Note::Logged { by, index, record }));
        }
        self.awaited |= draft.is_awaited();
        self.batches.proposals_per_entry.note(draft.proposals());
        let len = draft.entry_len();
        let fabric = &mut wiring.port.fabric;
        if let Some(skip) = self.space.skip(len) {
            self.paths.padded += 1;
            frame::encode_pad(self.space.cursor, skip, ballot, &mut entry);
            let at = self.space.cursor.offset(self.space.capacity());
            fabric.copy_in(self.log, at, &entry);
            self.space.cursor.skip(skip);
            entry.clear();
        }
        assert_eq!(self.space.cursor.index, index, "the log is dense");
        let at = self.space.cursor.offset(self.space.capacity());
        let stamp = Stamp { ballot, time_ms, epoch: EPOCH };
        draft.encode(stamp, self.space.cursor, &mut entry);
        debug_assert_eq!(entry.len(), len);
        fabric.copy_in(self.log, at, &entry);
        drop(draft);
        self.space.cursor.pass(len);
        self.note_entry(index, ballot, self.space.cursor.position);
        // Should we step down, what is there to read comes after our own.
        self.cursor = self.space.cursor;
        self.entry = entry;
        wiring.keep(results);
    }

    /// Writes to each follower what it has not been written yet, however many entries that is.
    pub(super) fn write_followers<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        let before = std::mem::replace(&mut self.written, self.core.log().last_index());
        let awaited = std::mem::take(&mut self.awaited);
        if !self.core.log().leads() {
            return;
        }
        self.batches.entries_per_write.note(self.written.saturating_sub(before) as usize);
        let end = self.space.cursor.position;
        let unread_max = UNREAD_MAX.min(self.space.capacity() / 16);
        for slot in 0..self.topology.replicas {
            let follower = &mut self.followers[usize::from(slot)];
            if follower.log.is_some() && follower.sent < end {
                let from = std::mem::replace(&mut follower.sent, end);
                follower.unread += end - from;
                let hurries =
                    awaited || follower.joining.is_some() || follower.unread >= unread_max;
                let hurry = if hurries { Hurry::Now } else { Hurry::ByTick };
                self.write_log(slot, from..end, self.core.log().last_index(), hurry, wiring);
            }
        }
    }

    /// Writes a part of our log to a follower; with it goes the log up to `index`.
    pub(super) fn write_log<F: Fabric>(
        &mut self,
        slot: u8,
        part: Range<u64>,
        index: u64,
        hurry: Hurry,
        wiring: &mut Wiring<F, O>,
    ) {
        let follower = &mut self.followers[usize::from(slot)];
        let Some(log) = follower.log.filter(|_| !part.is_empty()) else { return };
        self.writes += 1;
        follower.post(self.writes, index);
        let tag = tag(self.id, slot, self.writes);
        let spans =
            skein_protocol::ring::spans(self.space.capacity(), part.start, part.end - part.start);
        let last = usize::from(!spans[1].is_empty());
        for (i, span) in spans.into_iter().enumerate().filter(|(_, span)| !span.is_empty()) {
            let at = PREAMBLE + span.start;
            let source = Source::Span { region: self.log, at, len: span.len() };
            let tag = (i == last).then_some(tag);
            if let Err(error) = wiring.port.fabric.write(log, at, source, tag) {
                tracing::debug!(%error, slot, "a follower's log cannot be written");
                self.follower_lost(slot);
                break;
            }
        }
        if hurry == Hurry::Now {
            self.followers[usize::from(slot)].unread = 0;
        }
        if let Some(peer) = wiring.peer_of(ReplicaId::new(self.id.group, slot)) {
            wiring.port.wakes.note(peer, hurry);
        }
    }

    /// Writes to each follower that counts, so that what completes says that it lets us: one word in front of
    /// the log, which nobody reads, unless something was posted behind write `number` anyhow.
    /// Returns whether everybody was written to, or had been.
    pub(super) fn touch_followers<F: Fabric>(
        &mut self,
        number: u64,
        wiring: &mut Wiring<F, O>,
    ) -> bool {
        let mut all = true;
        for slot in 0..self.topology.replicas {
            let follower = &mut self.followers[usize::from(slot)];
            let due = follower.posted <= number && follower.joining.is_none();
            let Some(log) = follower.log.filter(|_| due) else { continue };
            if follower.under_way.len() >= UNDER_WAY_MAX {
                all = false;
                continue;
            }
            self.writes += 1;
            let word = self.writes.to_le_bytes();
            let tag = tag(self.id, slot, self.writes);
            match wiring.port.fabric.write(log, TOUCHED_AT, Source::Inline(&word), Some(tag)) {
                Ok(()) => follower.post(self.writes, 0),
                Err(error) => {
                    tracing::debug!(%error, slot, "a follower's memory cannot be written");
                    self.follower_lost(slot);
                }
            }
        }
        all
    }

    /// Entries that are committed, hence folded, need their place no more. The leader may overwrite
    /// what everybody has freed.
    pub(super) fn free_log<F: Fabric>(&mut self, wiring: &mut Wiring<F, O>) {
        self.pass_committed();
        if self.core.log().leads() {
            self.let_go_of_evicted();
            let others = self.waited_for().map(|slot| self.followers[usize::from(slot)].freed);
            let freed = others.fold(self.freed, u64::min);
            self.space.free(freed);
        } else if self.freed - self.freed_told >= self.space.capacity() / 8
            && let Some(leader) = self.core.log().leader()
        {
            self.freed_told = self.freed;
            wiring.tell_word(self.id, leader, Column::Freed, self.freed);
        }
    }

    /// Takes note of where the last entry ends that is committed by now.
    pub(super) fn pass_committed(&mut self) {
        let mut commit = self.core.log().commit_index();
        if planted(Mutant::FreedBeforeCommit) {
            commit = self.core.log().last_index();
        }
        while let Some((index, end)) = self.ends.pop_front_if(|(index, _)| *index <= commit) {
            self.freed_index = index;
            self.freed = end;
        }
    }

    /// What an evicted replica has not read may be overwritten from here on: nothing more is written
    /// there.
    fn let_go_of_evicted(&mut self) {
        for slot in 0..self.topology.replicas {
            let follower = &self.followers[usize::from(slot)];
            let fed = follower.log.is_some() && follower.joining.is_none();
            if fed && self.core.log().view().member(slot).evicted {
                self.follower_lost(slot);
            }
        }
    }

    /// The slots that may still need what our log holds.
    pub(super) fn waited_for(&self) -> impl Iterator<Item = u8> {
        (0..self.topology.replicas).filter(|slot| {
            let taught = self.core.log().sends_state() == Some((*slot, Stage::Sent));
            let joins = self.followers[usize::from(*slot)].joining.is_some()
                && !planted(Mutant::LogNotHeldForJoiner);
            let counts = !self.core.log().view().member(*slot).evicted;
            *slot != self.id.slot && (counts || taught || joins)
        })
    }

    /// Up to which index our log stays as we have read it: a leader that we let in may have said from
    /// where on it is another.
    pub(crate) fn keeps<F: Fabric>(&self, fabric: &F) -> u64 {
        let last = self.core.log().last_index();
        let header = self.leadership(fabric).filter(|_| self.awaiting && !self.core.log().leads());
        header.map_or(last, |header| last.min(header.base.index - 1))
    }

    /// Up to which index our memory holds the log without a gap, payloads included: what a
    /// candidate would find here.
    pub(crate) fn holds<F: Fabric>(&self, fabric: &F) -> u64 {
        self.would_report(fabric).end().index - 1
    }

    /// The births of our log's entries.
    pub(crate) const fn runs(&self) -> &Runs {
        &self.runs
    }

    /// What we would report of our log if we closed it now.
    pub(crate) fn would_report<F: Fabric>(&self, fabric: &F) -> Runs {
        self.in_memory(fabric, true)
    }

    /// Up to which index our memory holds the log without a gap, whether we hold its payloads or not: those
    /// may come yet, and what others had acknowledged be seen to be committed.
    pub(crate) fn written_up_to<F: Fabric>(&self, fabric: &F) -> u64 {
        self.in_memory(fabric, false).end().index - 1
    }

    /// The births of the entries in our memory; if `with_payloads`, up to the first whose payload we lack.
    pub(crate) fn in_memory<F: Fabric>(&self, fabric: &F, with_payloads: bool) -> Runs {
        let mut runs = self.runs.clone();
        if with_payloads && self.core.log().stalled_on().is_some() {
            runs.truncate(self.end_of(self.core.log().last_index()));
            return runs;
        }
        if self.core.log().leads() || self.core.log().role() == Role::Blank {
            return runs;
        }
        let (mut cursor, mut ballot) = (self.cursor, self.core.log().ballot());
        if self.awaiting {
            let Some(header) = self.leadership(fabric) else { return runs };
            (cursor, ballot) = (header.base, header.ballot);
            runs.truncate(header.base);
        }
        let capacity = self.tuning.log_bytes as u64;
        loop {
            let at = cursor.offset(capacity);
            let mut header = [0; frame::HEADER];
            fabric.copy_out(self.log, at, &mut header);
            let len = frame::announced_len(&header, cursor, capacity);
            let Some(len) = len.filter(|_| !frame::is_pad(&header)) else {
                let pad = Frame::decode(&header, cursor, ballot);
                match (len, pad) {
                    (Some(len), Ok(pad)) => pad.step_over(&mut cursor, len),
                    _ => return runs,
                }
                continue;
            };
            let mut bytes = vec![0; len];
            fabric.copy_out(self.log, at, &mut bytes);
            let Ok(frame) = Frame::decode(&bytes, cursor, ballot) else { return runs };
            let Some(body) = O::Body::read(&frame) else { return runs };
            if let Some(ReadMessage { message, destinations, payload, .. }) = body.message()
                && let Payload::Held { check } = payload
                && with_payloads
                && !self.payloads.holds(message, destinations, check)
            {
                return runs;
            }
            frame.step_over(&mut cursor, len);
            runs.push(frame.birth, cursor.position, self.freed_index);
        }
    }

    /// As leader: up to which position we have written a follower's log, if we may write it.
    pub(crate) fn written_to(&self, slot: u8) -> Option<u64> {
        let follower = &self.followers[usize::from(slot)];
        follower.log.is_some().then_some(follower.sent).filter(|_| self.core.log().leads())
    }

    /// As leader: in front of which position we may overwrite what a follower has of our log. One that we have let in
    /// and lost since, perhaps in the same turn, was written so far and no further. But a card reads what a write takes when it
    /// sends it, and we go on overwriting our own log.
    pub(crate) fn overwrites_to(&self, slot: u8) -> u64 {
        let (follower, freed) = (&self.followers[usize::from(slot)], self.space.freed());
        let overwrote = follower.sent.saturating_sub(self.space.capacity());
        if follower.log.is_some() || !follower.has_all() { freed } else { freed.min(overwrote) }
    }

    /// As follower of the leader of `ballot`: at which position we read on.
    pub(crate) fn reads_at(&self, ballot: Ballot) -> Option<u64> {
        let follows =
            self.core.log().promised() == ballot && !self.awaiting && !self.core.log().leads();
        follows.then_some(self.cursor.position)
    }

    /// As leader: whether all that we have written of a follower's log is in its memory, and it reads on behind it.
    pub(crate) fn feeds_all_to(&self, follower: &Self) -> bool {
        let ours = &self.followers[usize::from(follower.id.slot)];
        let fed = ours.log.is_some() && ours.has_all() && ours.sent >= self.runs.end().position;
        let follows =
            follower.core.log().promised() == self.core.log().ballot() && !follower.awaiting;
        fed && self.core.log().leads() && follows && !follower.core.log().leads()
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

    /// A write of the log to a follower has completed.
    pub(crate) fn completed(&mut self, slot: u8, number: u64) {
        self.stir();
        if let Some(index) = self.followers[usize::from(slot)].completed(number) {
            self.core.step(Event::Group(GroupEvent::Landed { slot, number }), &mut self.effects);
            self.core.step(Event::Completed { slot, index }, &mut self.effects);
        }
    }

    /// A write of the log to a follower was denied, or its end is not known. One of an earlier grant
    /// says nothing of this one.
    pub(crate) fn failed(&mut self, slot: u8, number: u64, denied: bool) {
        self.stir();
        if denied && planted(Mutant::DeniedLeaderGoesOn) {
            return self.completed(slot, number);
        }
        if self.followers[usize::from(slot)].completed(number).is_none() {
            return;
        }
        // At each change of leader: the follower has let another one in, or its process has ended.
        tracing::info!(group = %self.id.group, slot, denied, "a follower's log cannot be written");
        self.follower_lost(slot);
        // Many may be under way, and all of them fail.
        self.followers[usize::from(slot)].forget_writes();
        if denied {
            self.paths.denied += 1;
            self.core.step(Event::Denied, &mut self.effects);
        }
    }
}

/// What a completion of a write of the log names: whose write, to whom, and its number.
fn tag(id: ReplicaId, slot: u8, number: u64) -> u64 {
    u64::from(id.group.0) << 57 | u64::from(slot) << 53 | number
}

/// Reads what [`tag`] wrote.
pub(crate) const fn untag(tag: u64) -> (GroupId, u8, u64) {
    (GroupId((tag >> 57) as u16), (tag >> 53 & 0xf) as u8, tag & ((1 << 53) - 1))
}

#[cfg(test)]
mod tests {
    use skein_fabric::sim::{SimConfig, World};
    use skein_fabric::{Access, Fabric};

    use super::*;

    #[test]
    fn what_completes_of_an_earlier_grant_says_nothing_of_this_one() {
        let world = World::new(1, SimConfig::default());
        let (mut leader, mut follower) = (world.join("leader"), world.join("follower"));
        let region = follower.create(PREAMBLE + 1024, Access::Granted).unwrap();
        let writer = follower.dial("leader").unwrap();
        let key = follower.grant(region, writer).unwrap();
        let peer = leader.dial("follower").unwrap();
        let mut let_in = || leader.attach(peer, &key).unwrap();
        let mut it = Follower::default();
        it.let_in(let_in(), 0, 0);
        it.post(1, 10);
        it.post(2, 20);
        assert_eq!(it.completed(1), Some(10));
        // It led no more, and leads again: what it had written up to 20 may have been cut off.
        it.let_in(let_in(), 0, 0);
        it.post(3, 12);
        assert_eq!((it.completed(2), it.has_all()), (None, false));
        assert_eq!((it.completed(3), it.has_all()), (Some(12), true));
    }
}
