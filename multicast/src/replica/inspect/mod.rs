//! Views of a replica for tests and the simulation: what it holds and waits for, and what its memory has of
//! the log. Nothing here changes anything.

mod status;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::Role;
use skein_protocol::group::body::{Body as _, Payload, ReadMessage};
use skein_protocol::group::frame::{self, Cursor, Frame, HEADER};
use skein_protocol::group::runs::Runs;
use skein_protocol::ids::MessageId;
use skein_protocol::ordering::{Inspect as _, MessageStage};
use skein_protocol::properties::Footprint;

use super::Replica;
use super::log::{RESERVE_FOR_CONTROL, announced};
use crate::application::Application;
use crate::channel::AssemblingBytes;
use crate::ordering::Links;
use crate::replica_links::{WAITING_MAX, members};

impl<A: Application, O: Links> Replica<A, O> {
    /// Its present use of memory, and the limits of that, while its engine assembles so much.
    pub(crate) fn footprint(
        &self,
        sessions: usize,
        waiting: usize,
        assembling: AssemblingBytes,
    ) -> Footprint {
        let groups = usize::from(self.topology.groups);
        // A replica receives every message that its log names, whatever it holds already: the group cannot go
        // on otherwise. If it begins to lead then, it delivers them, and keeps them for followers that lag.
        let logged = self.memory.ends.len()
            + self.core.inspect().pending()
            + self.core.log().inspect().inherited_payloads();
        let logged = logged + self.payloads.beyond();
        let large_bytes_max =
            self.tuning.held_bytes_max + (sessions + logged) * self.tuning.payload_bytes_max;
        Footprint {
            pending: self.core.inspect().pending(),
            payloads: self.payloads.len(),
            large_bytes: self.payloads.large_bytes(),
            hints: self.payloads.hints(),
            hint_bytes: self.payloads.hint_bytes() + assembling.hints,
            hint_bytes_max: self.tuning.held_bytes_max.saturating_sub(self.payloads.large_bytes()),
            beyond_budget: self.payloads.beyond(),
            log_entries: self.memory.ends.len(),
            waiting,
            sessions,
            window: self.tuning.window,
            large_bytes_max,
            log_entries_max: self.tuning.log_bytes / HEADER,
            repeated_max: WAITING_MAX * members(self.topology) * groups,
            groups,
        }
    }

    /// A description of what it waits for and holds, for people to read.
    pub(crate) fn describe_waiting(&self) -> String {
        let message = |message: &MessageId| {
            let core = &self.core;
            let (known, pending) =
                (core.is_logged(*message), core.stage_of(*message) == MessageStage::Pending);
            format!("{message} (known: {known}, pending: {pending})")
        };
        let exchange = self.exchange.describe();
        let blocked = self.core.inspect().describe_blocked();
        let held: Vec<_> = self.payloads.messages().iter().map(message).collect();
        let leaders = self.topology.all_groups().iter().map(|g| self.core.leader_of(g).to_string());
        let leaders: Vec<_> = leaders.collect();
        let feeds = self
            .writer
            .followers
            .iter()
            .map(|it| (it.log.is_some(), it.sent, it.attempt, it.joining));
        let feeds: Vec<_> = feeds.collect();
        format!(
            "{}: {exchange}, is blocked by \
            {blocked}, holds {held:?}, sees the leaders {leaders:?}, has promised {}, awaits its leader {}, reads \
            on at {:?}, its log waits for {:?}, lags behind {:?}, receives {}, has answered {:?}, follower progress \
            {feeds:?}",
            self.id,
            self.core.log().promised(),
            self.reader.awaiting,
            self.reader.cursor,
            self.core.log().stalled_on(),
            self.core.log().lagging(),
            self.takes_state(),
            self.reader.answered
        )
    }

    /// Index up to which our log stays as we have read it: a leader to which we granted it may have announced
    /// from where on it is another.
    pub(crate) fn keeps<F: Fabric>(&self, fabric: &F) -> u64 {
        let last = self.core.log().last_index();
        let header = self
            .reader
            .leadership(&self.memory, self.core.log().promised(), fabric)
            .filter(|_| self.reader.awaiting && !self.core.log().leads());
        header.map_or(last, |header| last.min(header.base.index - 1))
    }

    /// Index up to which our memory holds the log without a gap, payloads included: what a candidate would find here.
    pub(crate) fn holds<F: Fabric>(&self, fabric: &F) -> u64 {
        self.would_report(fabric).end().index - 1
    }

    /// The births of our log's entries.
    pub(crate) const fn runs(&self) -> &Runs {
        &self.memory.runs
    }

    /// The report of our log if we closed it now.
    pub(crate) fn would_report<F: Fabric>(&self, fabric: &F) -> Runs {
        self.in_memory(fabric, true)
    }

    /// Index up to which our memory holds the log without a gap, with or without payloads: those may still
    /// arrive, and entries that others had acknowledged may still be committed.
    pub(crate) fn written_up_to<F: Fabric>(&self, fabric: &F) -> u64 {
        self.in_memory(fabric, false).end().index - 1
    }

    /// The births of the entries in our memory; if `with_payloads`, up to the first entry whose payload we lack.
    pub(crate) fn in_memory<F: Fabric>(&self, fabric: &F, with_payloads: bool) -> Runs {
        let mut runs = self.memory.runs.clone();
        if with_payloads && self.core.log().stalled_on().is_some() {
            runs.truncate(self.memory.end_of(self.core.log().last_index()));
            return runs;
        }
        if self.core.log().leads() || self.core.log().role() == Role::Blank {
            return runs;
        }
        let (mut cursor, mut ballot) = (self.reader.cursor, self.core.log().ballot());
        if self.reader.awaiting {
            let Some(header) =
                self.reader.leadership(&self.memory, self.core.log().promised(), fabric)
            else {
                return runs;
            };
            (cursor, ballot) = (header.base, header.ballot);
            runs.truncate(header.base);
        }
        let capacity = self.tuning.log_bytes as u64;
        loop {
            let at = cursor.offset(capacity);
            let mut header = [0; frame::HEADER];
            fabric.copy_out(self.memory.region, at, &mut header);
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
            fabric.copy_out(self.memory.region, at, &mut bytes);
            let Ok(frame) = Frame::decode(&bytes, cursor, ballot) else { return runs };
            let Some(body) = O::Body::read(&frame) else { return runs };
            if let Some(ReadMessage { message, destinations, payload, repeat, .. }) = body.message()
                && let Payload::Held { check } = payload
                && with_payloads
                && !self.payloads.holds(message, destinations, check)
                && !(repeat && self.payloads.get(message).is_some())
            {
                return runs;
            }
            frame.step_over(&mut cursor, len);
            runs.push(frame.birth, cursor.position, self.memory.freed_index);
        }
    }

    /// Whether a new leader with the same log would not write it from where we have not freed it: with the
    /// leader's first entries it does not fit into a ring.
    pub(crate) fn keeps_too_much(&self) -> bool {
        let end = self.memory.runs.end().position + 2 * HEADER as u64;
        end + RESERVE_FOR_CONTROL as u64 > self.memory.freed + self.memory.space.capacity()
    }

    /// As leader: position up to which we have written a follower's log, if we may write it.
    pub(crate) fn written_to(&self, slot: u8) -> Option<u64> {
        let follower = &self.writer.followers[usize::from(slot)];
        follower.log.is_some().then_some(follower.sent).filter(|_| self.core.log().leads())
    }

    /// As leader: position up to which we may overwrite a follower's copy of our log. A follower that has
    /// granted its log and was lost since, perhaps in the same turn, was written up to `sent` and no further.
    /// But a network card reads the bytes of a write when it sends them, while we continue to overwrite our
    /// own log.
    pub(crate) fn overwrites_to(&self, slot: u8) -> u64 {
        let (follower, freed) =
            (&self.writer.followers[usize::from(slot)], self.memory.space.freed());
        let overwrote = follower.sent.saturating_sub(self.memory.space.capacity());
        if follower.log.is_some() || !follower.has_all() { freed } else { freed.min(overwrote) }
    }

    /// As follower of the leader of `ballot`: the position at which we read on.
    pub(crate) fn reads_at(&self, ballot: Ballot) -> Option<u64> {
        let follows = self.core.log().promised() == ballot
            && !self.reader.awaiting
            && !self.core.log().leads();
        follows.then_some(self.reader.cursor.position)
    }

    /// As leader: whether all that we have written of a follower's log is in its memory, and it reads on behind that.
    pub(crate) fn feeds_all_to(&self, follower: &Self) -> bool {
        let ours = &self.writer.followers[usize::from(follower.id.slot)];
        let fed =
            ours.log.is_some() && ours.has_all() && ours.sent >= self.memory.runs.end().position;
        let follows =
            follower.core.log().promised() == self.core.log().ballot() && !follower.reader.awaiting;
        fed && self.core.log().leads() && follows && !follower.core.log().leads()
    }

    /// Number of times that the log ring went round.
    pub(crate) const fn laps(&self) -> u64 {
        let position = if self.memory.space.cursor.position > self.reader.cursor.position {
            self.memory.space.cursor.position
        } else {
            self.reader.cursor.position
        };
        position / self.memory.space.capacity()
    }

    /// The first place, from the committed end on, where our memory does not hold our log as we have read it.
    /// There must be none at any time. Leaders may have overwritten what is in front of `floor`.
    pub(crate) fn lost_at<F: Fabric>(&self, floor: u64, fabric: &F) -> Option<Cursor> {
        let mut at = self.memory.commit_end();
        if floor > at.position {
            at = self.memory.first_entry(floor, self.memory.runs.end().position, fabric)?;
        }
        self.gap_from(at, fabric)
    }

    /// The first entry of our log, from `at` on, that our memory does not hold as we have read it.
    pub(crate) fn gap_from<F: Fabric>(&self, mut at: Cursor, fabric: &F) -> Option<Cursor> {
        let last = self.keeps(fabric);
        while at.index <= last {
            let bytes = self.memory.raw_entry(&mut at, fabric);
            let entry = bytes.as_ref().and_then(|bytes| Frame::parse(bytes, at));
            match (&bytes, entry.filter(|it| self.memory.holds(it, at.index))) {
                (Some(bytes), Some(entry)) => entry.step_over(&mut at, announced(bytes)),
                _ => return Some(at),
            }
        }
        None
    }
}
