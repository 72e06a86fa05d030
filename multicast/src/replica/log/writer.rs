//! The log as a leader writes it: to its own copy, and from there to its followers.

use std::ops::Range;

use skein_fabric::{Fabric, Source};
use skein_protocol::check::check;
use skein_protocol::group::body::{Body as _, Contents, Draft as _, Payload, Stamp};
use skein_protocol::group::frame::{self, PREAMBLE};
use skein_protocol::group::{GroupEvent, LogRecord as _, LoggedMessage};
use skein_protocol::ids::{GroupId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::results::Results;
use skein_protocol::step::Event;

use super::Follower;
use crate::application::Application;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica::on_disk::entry_soon;
use crate::replica::results::RESULTS_BYTES_MAX;
use crate::replica_links::{Note, ReplicaLinks, StatusColumn, Unwritten};
use crate::wakes::Hurry;

/// Limit of the room in bytes that a leader reserves in its log for the entries besides messages that a turn may log.
const RESERVE_MAX: usize = 64 << 10;
/// Room that one such entry may take: three times the room for another group's proposal, because the last
/// message received in a turn may bring as many as there are groups.
const RESERVE_PER_ENTRY: usize = 128;
/// The epoch that log entries carry: that of the layout, of who hosts which replica. The slot map has epochs of its own.
const EPOCH: u32 = 1;

/// Offset of the word in a follower's memory, in front of its log, that is written if nothing else is.
const TOUCHED_AT: usize = PREAMBLE - 8;
const _: () = assert!(TOUCHED_AT >= frame::LEADERSHIP);

/// Number of writes in flight to a follower at which it is not written a word that only confirms: otherwise
/// words to a stalled follower would pile up without end.
const UNDER_WAY_MAX: usize = 16;

/// Number of unread bytes at which a sleeping follower is woken though nobody waits for it: if it became
/// leader, it would have to read them all first.
pub(in crate::replica) const UNREAD_MAX: u64 = 16 << 10;

/// Room that a leader reserves besides, for changes of the view and first entries of new ballots.
pub(in crate::replica) const RESERVE_FOR_CONTROL: usize = 2 << 10;

/// A leader's writes to its followers.
///
/// **Invariants.** The log of a follower that we may write is written up to `sent <= space.cursor.position`,
/// and `written` was the last entry of our copy when all were last written. The numbers of writes rise over
/// all followers, and `writes` is the last one.
pub(crate) struct LogWriter {
    pub(in crate::replica) followers: Vec<Follower>,
    /// The number of the last write.
    pub(in crate::replica) writes: u64,
    /// The last entry of our log when the followers were last written.
    pub(in crate::replica) written: u64,
    /// Whether somebody waits for the followers' reaction to the appended entries: some are not messages to
    /// our group alone with inline payloads, which the leader knows to be committed when its writes complete.
    pub(in crate::replica) awaited: bool,
}

impl LogWriter {
    /// A writer for so many slots, our own among them, none of whose logs may be written yet.
    pub(in crate::replica) fn new(replicas: u8) -> Self {
        let followers = vec![Follower::default(); usize::from(replicas)];
        Self { followers, writes: 0, written: 0, awaited: false }
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Stops writing a follower's log until the follower grants it again.
    pub(crate) fn follower_lost(&mut self, slot: u8) {
        self.writer.followers[usize::from(slot)].lose();
        self.core.step(Event::Group(GroupEvent::FollowerRemoved { slot }), &mut self.effects);
    }

    /// Detaches from former logs of followers: their memory is kept for as long as a former leader is attached.
    pub(in crate::replica) fn leave_logs<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        for log in self.writer.followers.iter_mut().flat_map(|follower| follower.left.drain(..)) {
            links.endpoint.fabric.detach(log);
        }
    }

    /// Returns whether a message may be taken, or something else for which an entry is logged.
    pub(crate) fn log_has_room(&self) -> bool {
        self.log_has_room_for(1)
    }

    /// Returns whether something may be taken for which `entries` entries are logged. The first in a turn may
    /// need a few more.
    pub(in crate::replica) fn log_has_room_for(&self, entries: usize) -> bool {
        let (groups, payload) = (self.topology.all_groups(), self.tuning.inline_bytes_max);
        let largest = O::Body::longest(groups, payload, RESULTS_BYTES_MAX);
        let reserve = RESERVE_MAX.min(self.tuning.log_bytes / 4);
        let wanted = reserve + RESERVE_FOR_CONTROL + largest;
        let within = self.intake.may_log + entries <= reserve / RESERVE_PER_ENTRY;
        (self.intake.may_log == 0 || within) && self.memory.space.fits(wanted, largest)
    }

    /// Appends an entry to our own copy of the log. If it has several records, `record` is the last of them.
    pub(in crate::replica) fn append<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
        index: u64,
        time_ms: u64,
        record: O::Record,
    ) {
        let ballot = self.core.log().ballot();
        let mut results = links.borrow();
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
        if links.journal.is_some() {
            let by = self.id;
            draft.for_each_record(|record| links.note(|| Note::Logged { by, index, record }));
        }
        let message = record.message();
        let soon = entry_soon(message.map(|it| it.destinations), record.is_results());
        let durable = links.disk.is_some();
        self.writer.awaited |= if durable { soon == Unwritten::Now } else { draft.is_awaited() };
        self.batches.proposals_per_entry.note(draft.items());
        self.work.entries += 1;
        self.work.proposals += draft.items() as u64;
        let stamp = Stamp { ballot, time_ms, epoch: EPOCH };
        let padded = self.memory.append(index, &draft, stamp, &mut links.endpoint.fabric);
        drop(draft);
        if links.disk.is_some() {
            if let Some(LoggedMessage { message, inline: false, .. }) = message {
                self.record_payload(message, links);
            }
            let entry = std::mem::take(&mut self.memory.entry);
            self.record_entry(&entry, soon, links);
            self.memory.entry = entry;
        }
        self.paths.padded += u64::from(padded);
        // If we step down, what is to be read comes after our own entries.
        self.reader.cursor = self.memory.space.cursor;
        links.keep(results);
    }

    /// Writes the entries that each follower lacks, in one write each.
    pub(in crate::replica) fn write_followers<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let before = std::mem::replace(&mut self.writer.written, self.core.log().last_index());
        let awaited = std::mem::take(&mut self.writer.awaited);
        if !self.core.log().leads() {
            return;
        }
        self.batches.entries_per_write.note(self.writer.written.saturating_sub(before) as usize);
        let end = self.memory.space.cursor.position;
        let unread_max = UNREAD_MAX.min(self.memory.space.capacity() / 16);
        for slot in 0..self.topology.replicas {
            let follower = &mut self.writer.followers[usize::from(slot)];
            if follower.log.is_some() && follower.sent < end {
                let from = std::mem::replace(&mut follower.sent, end);
                follower.unread += end - from;
                let hurries =
                    awaited || follower.joining.is_some() || follower.unread >= unread_max;
                let hurry = if hurries { Hurry::Now } else { Hurry::ByTick };
                self.write_log(slot, from..end, self.core.log().last_index(), hurry, links);
            }
        }
    }

    /// Writes a part of our log to a follower; with it, the follower has the log up to `index`.
    pub(in crate::replica) fn write_log<F: Fabric>(
        &mut self,
        slot: u8,
        part: Range<u64>,
        index: u64,
        hurry: Hurry,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let follower = &mut self.writer.followers[usize::from(slot)];
        let Some(log) = follower.log.filter(|_| !part.is_empty()) else { return };
        self.writer.writes += 1;
        follower.post(self.writer.writes, index);
        let tag = tag(self.id, slot, self.writer.writes);
        let spans = skein_protocol::ring::spans(
            self.memory.space.capacity(),
            part.start,
            part.end - part.start,
        );
        let last = usize::from(!spans[1].is_empty());
        for (i, span) in spans.into_iter().enumerate().filter(|(_, span)| !span.is_empty()) {
            let at = PREAMBLE + span.start;
            let source = Source::Span { region: self.memory.region, at, len: span.len() };
            let tag = (i == last).then_some(tag);
            if let Err(error) = links.endpoint.fabric.write(log, at, source, tag) {
                tracing::debug!(%error, slot, "a follower's log cannot be written");
                self.follower_lost(slot);
                break;
            }
        }
        if hurry == Hurry::Now {
            self.writer.followers[usize::from(slot)].unread = 0;
        }
        if let Some(peer) = links.peer_of(ReplicaId::new(self.id.group, slot)) {
            links.endpoint.wakes.note(peer, hurry);
        }
    }

    /// Writes to each voting follower, so that a completion confirms that we may still write there: one word
    /// in front of the log, which nobody reads, unless a write with a higher number than `number` was posted
    /// anyway. Returns whether all of them were or had been written.
    pub(in crate::replica) fn touch_followers<F: Fabric>(
        &mut self,
        number: u64,
        links: &mut ReplicaLinks<F, O>,
    ) -> bool {
        let mut all = true;
        for slot in 0..self.topology.replicas {
            let follower = &mut self.writer.followers[usize::from(slot)];
            let due = follower.posted <= number && follower.joining.is_none();
            let Some(log) = follower.log.filter(|_| due) else { continue };
            if follower.under_way.len() >= UNDER_WAY_MAX {
                all = false;
                continue;
            }
            self.writer.writes += 1;
            let word = self.writer.writes.to_le_bytes();
            let tag = tag(self.id, slot, self.writer.writes);
            match links.endpoint.fabric.write(log, TOUCHED_AT, Source::Inline(&word), Some(tag)) {
                Ok(()) => follower.post(self.writer.writes, 0),
                Err(error) => {
                    tracing::debug!(%error, slot, "a follower's memory cannot be written");
                    self.follower_lost(slot);
                }
            }
        }
        all
    }

    /// Frees committed entries, which are folded and so need their place no more. The leader may overwrite
    /// what all replicas have freed.
    pub(in crate::replica) fn free_log<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let mut commit = self.core.log().commit_index();
        if planted(Mutant::FreedBeforeCommit) {
            commit = self.core.log().last_index();
        }
        self.memory.pass_committed(commit);
        let freed = self.freed();
        if self.core.log().leads() {
            self.let_go_of_evicted();
            let others =
                self.waited_for().map(|slot| self.writer.followers[usize::from(slot)].freed);
            let freed = others.fold(freed, u64::min);
            self.memory.space.free(freed);
        } else if freed >= self.reader.freed_told + self.memory.space.capacity() / 8
            && let Some(leader) = self.core.log().leader()
        {
            self.reader.freed_told = freed;
            links.tell_word(self.id, leader, StatusColumn::Freed, freed);
        }
    }

    /// Stops writing to evicted replicas: entries that they have not read may be overwritten from here on.
    fn let_go_of_evicted(&mut self) {
        for slot in 0..self.topology.replicas {
            let follower = &self.writer.followers[usize::from(slot)];
            let fed = follower.log.is_some() && follower.joining.is_none();
            if fed && self.core.log().view().member(slot).evicted {
                self.follower_lost(slot);
            }
        }
    }

    /// The slots that may still need what our log holds.
    pub(in crate::replica) fn waited_for(&self) -> impl Iterator<Item = u8> {
        (0..self.topology.replicas).filter(|slot| {
            let joins = self.writer.followers[usize::from(*slot)].joining.is_some();
            self.core.log().keeps_log_for(*slot, joins)
        })
    }

    /// Handles the completion of a write to a follower's log.
    pub(crate) fn completed(&mut self, slot: u8, number: u64) {
        self.stir();
        if let Some(index) = self.writer.followers[usize::from(slot)].completed(number) {
            self.core.step(Event::Group(GroupEvent::Landed { slot, number }), &mut self.effects);
            self.core.step(Event::Completed { slot, index }, &mut self.effects);
        }
    }

    /// Handles a write to a follower's log that was denied, or whose outcome is unknown. A write of an
    /// earlier grant is ignored.
    pub(crate) fn failed(&mut self, slot: u8, number: u64, denied: bool) {
        self.stir();
        if denied && planted(Mutant::DeniedLeaderGoesOn) {
            return self.completed(slot, number);
        }
        if self.writer.followers[usize::from(slot)].completed(number).is_none() {
            return;
        }
        // This happens at each change of leader: the follower has granted another leader its log, or its
        // process has ended.
        tracing::info!(group = %self.id.group, slot, denied, "a follower's log cannot be written");
        self.follower_lost(slot);
        // Many writes may be in flight, and all of them fail.
        self.writer.followers[usize::from(slot)].forget_writes();
        if denied {
            self.paths.denied += 1;
            self.core.step(Event::Denied, &mut self.effects);
        }
    }
}

/// The tag of a write's completion: the writer's group, the follower, and the write's number.
fn tag(id: ReplicaId, slot: u8, number: u64) -> u64 {
    u64::from(id.group.0) << 57 | u64::from(slot) << 53 | number
}

/// Decodes a [`tag`].
pub(crate) const fn untag(tag: u64) -> (GroupId, u8, u64) {
    (GroupId((tag >> 57) as u16), (tag >> 53 & 0xf) as u8, tag & ((1 << 53) - 1))
}
