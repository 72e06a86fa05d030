//! The log as a follower reads it, and the grant of it to a leader.

use skein_fabric::{Fabric, Peer};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::{Body as _, Payload, ReadMessage};
use skein_protocol::group::frame::{self, Cursor, Frame, Leadership};
use skein_protocol::group::{GroupEvent, Role};
use skein_protocol::guard;
use skein_protocol::ids::GroupSet;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::ordering::At;
use skein_protocol::step::Event;

use super::LogMemory;
use crate::application::Application;
use crate::ordering::Links;
use crate::replica::Replica;
use crate::replica::granting::Answered;
use crate::replica::on_disk::{DiskRecord, soon_of};
use crate::replica_links::{Note, ReplicaLinks};

/// Entries up to this length are copied in one go, if they are as long as the one before.
const ALIKE_MAX: usize = 256;

/// The replica that may write our log, and how far we have read it.
///
/// **Invariants.**
/// - While `awaiting`, only the header is read, and only if its first word differs from `header_seen`.
/// - Otherwise `cursor` is right behind the last entry of our copy, or behind the pad that follows it.
pub(crate) struct LogReader {
    /// The peer that may write it, and the number of grants so far.
    pub(in crate::replica) granted: Option<Peer>,
    pub(in crate::replica) grants: u64,
    /// The last grant of our log.
    pub(in crate::replica) answered: Option<Answered>,
    /// The granted leader has not written its header yet, whose first word is then `header_seen`.
    pub(in crate::replica) awaiting: bool,
    pub(in crate::replica) header_seen: u64,
    /// As follower: the next entry to read.
    pub(in crate::replica) cursor: Cursor,
    /// Destinations of the message that our log waits for, and the check of its payload.
    pub(in crate::replica) lacking: (GroupSet, u64),
    /// An earlier entry has the message, perhaps to other groups: only the payload is to be what the log says.
    pub(in crate::replica) lacks_repeat: bool,
    /// Position up to which we have reported to our leader that we no longer need the log.
    pub(in crate::replica) freed_told: u64,
    /// Our leader writes a part in front of the state with which our log begins, which is not on our disk.
    pub(in crate::replica) is_filled: bool,
    /// When everything up to this position is on our disk, it holds the log with which our leader began.
    pub(in crate::replica) begun_on_disk: u64,
}

impl LogReader {
    /// No peer may write the log yet.
    pub(in crate::replica) const fn new() -> Self {
        Self {
            granted: None,
            grants: 0,
            answered: None,
            awaiting: true,
            header_seen: 0,
            cursor: Cursor::START,
            lacking: (GroupSet::EMPTY, 0),
            lacks_repeat: false,
            freed_told: 0,
            is_filled: false,
            begun_on_disk: 0,
        }
    }

    /// From here on a leader's header is awaited, other than the one that is there.
    pub(in crate::replica) fn await_leader<F: Fabric>(&mut self, memory: &LogMemory, fabric: &F) {
        self.awaiting = true;
        let there = || fabric.load(memory.region, 0);
        self.header_seen = if planted(Mutant::StaleHeaderTaken) { 0 } else { there() };
    }

    /// The header of the leader to which we granted our log, if it is there and whole. We have `promised` its ballot.
    pub(in crate::replica) fn leadership<F: Fabric>(
        &self,
        memory: &LogMemory,
        promised: Ballot,
        fabric: &F,
    ) -> Option<Leadership> {
        let mut bytes = [0; frame::LEADERSHIP];
        fabric.copy_out(memory.region, 0, &mut bytes);
        Leadership::decode(&bytes).filter(|header| {
            let of_this_grant = guard!(Mutant::StaleHeaderTaken, header.grant == self.grants);
            header.ballot == promised && of_this_grant
        })
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Revokes the grant of our log, and reads all whole entries.
    pub(in crate::replica) fn close_log<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if planted(Mutant::ReadBeforeRevoked) {
            self.read_log(links, usize::MAX);
        }
        if self.reader.granted.take().is_some()
            && let Err(error) = links.endpoint.fabric.revoke(self.memory.region)
        {
            // Without this guarantee nothing of the group's order can be relied on.
            panic!("{}: the log cannot be closed to its old leader: {error}", self.id);
        }
        if !planted(Mutant::LogUnreadAtGrant) && !planted(Mutant::ReadBeforeRevoked) {
            self.read_log(links, usize::MAX);
        }
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.carry_out(links);
        self.free_log(links);
        if self.core.log().stalled_on().is_some() && !planted(Mutant::StalledEntryReported) {
            // An entry whose payload we lack is none of ours: no replica may count on us for it.
            self.paths.closed_while_stalled += 1;
            self.cut_log(self.memory.end_of(self.core.log().last_index()), links);
        }
    }

    /// Prepares the log's memory in advance, so that the next leader need not wait for it.
    pub(crate) fn prepare_log<F: Fabric>(&self, links: &mut ReplicaLinks<F, O>) {
        if self.core.log().leads() || !self.reader.awaiting {
            links.endpoint.fabric.prepare(self.memory.region);
        }
    }

    /// Cuts off our log behind `base`.
    pub(in crate::replica) fn cut_log<F: Fabric>(
        &mut self,
        base: Cursor,
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.cut_results(base, links);
        self.record(DiskRecord::Cut { base }, links);
        let event = GroupEvent::CutOff { last: base.index - 1 };
        self.core.step(Event::Group(event), &mut self.effects);
        self.memory.cut(base);
        self.reader.cursor = base;
    }

    /// As follower: takes the header of a new leader. Returns whether it is there.
    fn read_leadership<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) -> bool {
        let promised = self.core.log().promised();
        let header = self.reader.leadership(&self.memory, promised, &links.endpoint.fabric);
        let Some(header) = header else {
            self.paths.torn_header += 1;
            return false;
        };
        self.reader.awaiting = false;
        // The leader writes our log where it ends, so no state is needed.
        self.transfer.received = None;
        self.memory.filled_from = Some(header.held_from);
        let Leadership { ballot, base, first, .. } = header;
        let event = GroupEvent::Followed { ballot, base: base.index - 1, first };
        self.core.step(Event::Group(event), &mut self.effects);
        self.cut_results(base, links);
        self.record(DiskRecord::Ballot { ballot, base, first }, links);
        self.cut_log(base, links);
        self.reader.is_filled =
            links.disk.is_some() && header.held_from < self.memory.begun_at.position;
        self.reader.begun_on_disk = self.last_on_disk();
        self.forget_unsent(links);
        // The new leader has received none of our reports to the old one.
        (self.reader.freed_told, self.applied_told) = (0, None);
        true
    }

    /// Keeps payloads of entries that were cut off only for sessions with a channel here. A message of our
    /// own node, or of a session that is gone, may never be logged again, and then nothing would drop it.
    pub(in crate::replica) fn forget_unsent<F: Fabric>(&mut self, links: &ReplicaLinks<F, O>) {
        let (core, id) = (&self.core, self.id);
        self.payloads.retain_all(|message| {
            let ordered = core.is_logged(message) || core.is_waiting(message);
            ordered || links.has_session(message.session, id)
        });
    }

    /// Returns whether [`read_log`](Self::read_log) would find something.
    #[inline]
    pub(crate) fn log_has_more<F: Fabric>(&self, fabric: &F) -> bool {
        if self.core.log().leads() || self.core.log().role() == Role::Blank {
            return false;
        }
        if self.reader.awaiting {
            return fabric.load(self.memory.region, 0) != self.reader.header_seen;
        }
        if self.core.log().stalled_on().is_some() {
            return false;
        }
        let mut cursor = self.reader.cursor;
        let at = cursor.offset(self.tuning.log_bytes as u64);
        guard!(
            Mutant::LapNotChecked,
            fabric.load(self.memory.region, at + frame::INDEX_AT) == cursor.index
        )
    }

    /// As follower: reads what the leader has written, until at least `most` bytes are read. Returns whether
    /// there was anything.
    pub(crate) fn read_log<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
        most: usize,
    ) -> bool {
        let capacity = self.tuning.log_bytes as u64;
        let (mut any, mut entries, mut taken) = (false, 0, 0);
        let mut entry = std::mem::take(&mut self.memory.entry);
        while taken < most as u64 && self.log_has_more(&links.endpoint.fabric) {
            let fabric = &links.endpoint.fabric;
            if self.reader.awaiting {
                if !self.read_leadership(links) {
                    break;
                }
                (any, taken) = (true, 0);
                continue;
            }
            let at = self.reader.cursor.offset(capacity);
            // Most entries are as long as the one before.
            let alike = if entry.len() <= ALIKE_MAX { entry.len() } else { frame::HEADER };
            let left = frame::PREAMBLE + self.tuning.log_bytes - at;
            entry.resize(alike.clamp(frame::HEADER, left), 0);
            fabric.copy_out(self.memory.region, at, &mut entry);
            let header = entry.first_chunk().expect("a header at least");
            let Some(len) = frame::announced_len(header, self.reader.cursor, capacity) else {
                break;
            };
            // A pad announces the rest of the ring, of which only its header is meaningful.
            if frame::is_pad(header) {
                entry.truncate(frame::HEADER);
            } else if len != entry.len() {
                entry.resize(len, 0);
                fabric.copy_out(self.memory.region, at, &mut entry);
            }
            let ballot = self.core.log().ballot();
            let frame = Frame::decode(&entry, self.reader.cursor, ballot).ok();
            let Some((frame, body)) = frame.and_then(|frame| Some((frame, Self::body(&frame)?)))
            else {
                self.paths.torn_entry += 1;
                break;
            };
            let index = self.reader.cursor.index;
            frame.step_over(&mut self.reader.cursor, len);
            // Room is freed at the end of the turn, so the leader cannot have written more until then.
            taken += len as u64;
            debug_assert!(taken <= capacity, "more was read in one look than a log holds");
            if let Some(body) = body {
                let Frame { birth, time_ms, .. } = frame;
                // What a leader writes in front was written before this.
                self.record_filled(true, links);
                self.memory.note(index, birth, self.reader.cursor.position);
                self.record_entry(&entry, soon_of(&body), links);
                self.work.proposals += body.items() as u64;
                self.take_entry(At { index, birth, time_ms }, &body, links);
                entries += 1;
            }
            any = true;
        }
        self.batches.entries_per_look.note(entries);
        self.work.entries += entries as u64;
        self.memory.entry = entry;
        if any {
            self.stir();
        }
        any
    }

    /// The body of an entry; `Some(None)` for a pad, which has none, and `None` if the entry is invalid.
    #[expect(clippy::option_option, reason = "a pad is whole, and says nothing")]
    pub(in crate::replica) fn body<'a>(frame: &Frame<'a>) -> Option<Option<O::Body<'a>>> {
        if frame.is_pad() { Some(None) } else { O::Body::read(frame).map(Some) }
    }

    /// Takes an entry into our log.
    pub(in crate::replica) fn take_entry<F: Fabric>(
        &mut self,
        at: At,
        body: &O::Body<'_>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let index = at.index;
        if links.journal.is_some() {
            let by = self.id;
            body.for_each_record(|record| links.note(|| Note::Logged { by, index, record }));
        }
        let mut held = true;
        if let Some(read) = body.message() {
            let ReadMessage { message, low_water, destinations, payload, repeat } = read;
            // What an earlier entry says of the message counts, and may be yet to be delivered.
            let is_here = repeat && self.payloads.get(message).is_some();
            match payload {
                _ if is_here => self.record_payload(message, links),
                Payload::Inline(bytes) => {
                    self.payloads.replace(message, low_water, destinations, bytes);
                }
                Payload::Held { check } => {
                    self.reader.lacking = (destinations, check);
                    self.reader.lacks_repeat = repeat;
                    held = self.payloads.keep_only(message, destinations, check);
                    if !held {
                        held = self.payloads.take_hint(message, low_water, destinations, check);
                        self.paths.hint_used += u64::from(held);
                    }
                    if held {
                        self.record_payload(message, links);
                    }
                }
            }
        } else if let Some((from, results)) = body.results() {
            self.exchange.logged(index, from, results);
        }
        self.core.accept(at, body, held, &mut self.effects);
    }
}
