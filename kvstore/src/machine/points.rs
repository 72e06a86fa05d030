//! Writes the state of this group to disk at restore points ([`crate::points`]).
//!
//! What is written is no part of the replicated state. The last point's number, what disks hold and whether the
//! cluster is closed are, since they decide answers.

use std::collections::BTreeMap;

use skein_multicast::application::Outbox;
use skein_protocol::ids::SessionId;

use super::Machine;
use super::part::Record as PartRecord;
use super::under_way::{Change, CommandPosition, Stage};
use crate::backup::Record;
use crate::command::Version;
use crate::points::{Holds, PointAnswer, PointEnd, PointLog, RestorePoint, floor, is_maker};
use crate::reply::{Outcome, Refusal};
use crate::store::Store;
use crate::store::tracked::CopyFor;
use crate::wire::Bytes;

/// Bytes of a record of pairs, besides its last pair.
const RECORD_BYTES: usize = 256 << 10;

/// What a machine knows of restore points.
pub(super) struct RestorePoints {
    /// `f + 1`
    quorum: usize,
    /// Number of the last point; 0 before the first.
    last: u64,
    /// Digest of the pairs and of the slot map at the last point.
    digest: u64,
    /// The last point closed the cluster.
    pub(super) closed: bool,
    /// The newest floor that was ever known.
    floor: u64,
    /// What the disk of each replica of each group holds.
    holds: BTreeMap<(u16, u8), Holds>,
    /// This replica's own disk, if the cluster has restore points.
    log: Option<Box<dyn PointLog>>,
    /// The log leads to the state at the last point, or will with the end of the copy under way; and the store notes which
    /// keys were written since.
    follows: bool,
    /// The first key that is not written yet of the copy under way.
    front: Option<Vec<u8>>,
}

impl RestorePoints {
    pub(super) fn of(replicas: u8) -> Self {
        Self {
            quorum: usize::from(replicas) / 2 + 1,
            last: 0,
            digest: 0,
            closed: false,
            floor: 0,
            holds: BTreeMap::new(),
            log: None,
            follows: false,
            front: None,
        }
    }

    /// Takes a report. Other reports may have overtaken it.
    fn note(&mut self, report: &[Holds]) {
        for it in report {
            let known = self.holds.entry((it.group, it.slot)).or_insert(*it);
            // Both rise.
            if (it.to, it.from) >= (known.to, known.from) {
                *known = *it;
            }
        }
    }

    /// Whether a leader may take a message of this session.
    pub(super) fn take(&self, session: SessionId) -> bool {
        self.log.as_ref().is_none_or(|log| is_maker(session) || log.takes_commands())
    }

    /// For a replica without a state; `None` if there is nothing to tell.
    pub(super) fn record(&self) -> Option<PartRecord<'static>> {
        let Self { last, digest, closed, floor, holds, .. } = self;
        (*last > 0 || !holds.is_empty()).then(|| PartRecord::Points {
            last: *last,
            state: *digest,
            closed: *closed,
            floor: *floor,
            holds: holds.values().copied().collect(),
        })
    }

    pub(super) fn restore(
        &mut self,
        (last, digest): (u64, u64),
        closed: bool,
        floor: u64,
        holds: &[Holds],
    ) {
        (self.last, self.digest, self.closed, self.floor) = (last, digest, closed, floor);
        self.holds.clear();
        self.note(holds);
    }

    /// The cluster is closed, and the log does not lead to its last point yet: this state came from another replica behind
    /// that point, or the copy under way is not whole.
    pub(super) fn owes_last(&self) -> bool {
        self.closed && self.log.is_some() && (!self.follows || self.front.is_some())
    }

    /// Another state takes the place of the present one.
    pub(super) fn forget(&mut self) {
        (self.follows, self.front) = (false, None);
        self.restore((0, 0), false, 0, &[]);
    }
}

impl<S: Store> Machine<S> {
    /// From the next restore point on, the state at each is written to `log`.
    pub fn write_points_to(&mut self, log: Box<dyn PointLog>) {
        self.points.log = Some(log);
    }

    /// Writes the whole state as point `number`, to begin with it.
    ///
    /// # Errors
    /// The store fails.
    pub fn write_first_point(&mut self, number: u64) -> Result<(), S::Error> {
        (self.points.last, self.points.digest) = (number, self.stock().digest);
        let Some(mut log) = self.points.log.take() else { return Ok(()) };
        let first = RestorePoint { number, after: 0, closes: false, holds: Vec::new() };
        let version = self.completed.version(self.completed.position());
        let written = self.write_point(&mut *log, &first, version, usize::MAX);
        self.points.log = Some(log);
        written
    }

    /// Writes more of what the log lacks of the point that closed the cluster. Nothing has changed since that.
    pub(super) fn write_more_of_last(&mut self) -> Result<(), S::Error> {
        let Some(mut log) = self.points.log.take() else { return Ok(()) };
        let number = self.points.last;
        let last = RestorePoint { number, after: 0, closes: true, holds: Vec::new() };
        let version = self.completed.version(self.completed.position());
        let most = log.copy_bytes();
        let written = self.write_point(&mut *log, &last, version, most);
        self.points.log = Some(log);
        written
    }

    /// Executes a restore point at its turn: all commands before it are over. The writer holds the reply.
    pub(super) fn restore_point(
        &mut self,
        place: CommandPosition,
        it: &RestorePoint,
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        if self.points.log.is_none() {
            // All replicas have such a log, or none.
            let why = "the cluster has no restore points: its durability is not \"async\"";
            self.writer.refused(Some(&Refusal::Malformed(why.to_owned())));
            return Ok(());
        }
        self.points.note(&it.holds);
        let known = floor(self.groups, self.points.quorum, self.points.holds.values());
        self.points.floor = self.points.floor.max(known);
        let version = self.completed.version(place.position);
        if it.number > self.points.last && (it.closes || it.after == self.points.last) {
            if place.destinations != self.groups {
                let why = "a restore point must go to all groups";
                self.writer.refused(Some(&Refusal::Malformed(why.to_owned())));
                return Ok(());
            }
            (self.points.last, self.points.digest) = (it.number, self.stock().digest);
            if it.closes {
                self.close(out);
            }
            if let Some(mut log) = self.points.log.take() {
                let most = log.copy_bytes();
                let written = self.write_point(&mut *log, it, version, most);
                self.points.log = Some(log);
                written?;
            }
        }
        let RestorePoints { last, floor, digest, .. } = self.points;
        let answer = PointAnswer { last, floor, changed: digest != self.stock().digest };
        if let Some(log) = &mut self.points.log {
            log.saved(floor, answer.is_saved());
        }
        self.writer.done(true, 1);
        self.writer.outcome(&Outcome::Value(Some((Bytes(&answer.encode()), version))));
        Ok(())
    }

    /// Ends all sessions, and refuses what they have sent behind this point: nothing of it has begun.
    fn close(&mut self, out: &mut dyn Outbox) {
        self.points.closed = true;
        self.sessions.expire_all();
        for at in 1..self.under_way.len() {
            if let Stage::Blocked { .. } = self.under_way.stage(at)
                && let Stage::Blocked { command, .. } = self.under_way.take(at)
            {
                self.writer.refused(Some(&Refusal::Stopping));
                self.answered(at, command, None, Change::NONE, out);
            }
        }
    }

    /// Writes what has changed since the last point, and `most` bytes more of the copy under way.
    fn write_point(
        &mut self,
        log: &mut dyn PointLog,
        it: &RestorePoint,
        version: Version,
        most: usize,
    ) -> Result<(), S::Error> {
        if !self.points.follows {
            log.begin(true);
            self.store.begin_changes(CopyFor::Point);
            (self.points.follows, self.points.front) = (true, Some(Vec::new()));
        } else if self.points.front.is_none() && log.is_copy_due() {
            log.begin(false);
            self.points.front = Some(Vec::new());
        }
        let mut bytes = self.write_changes(log)?;
        if let Some(front) = self.points.front.take() {
            let (next, copied) = self.write_copy(log, &front, most)?;
            self.points.front = next;
            bytes += copied;
        }
        self.work.set(self.work.get() + bytes as u64);
        let end = PointEnd {
            number: it.number,
            version,
            closes: it.closes,
            floor: self.points.floor,
            whole: self.points.front.is_none(),
            keys: self.keys(),
            bytes: self.store.bytes(),
            digest: self.store.digest(),
            slots: self.slots.clone(),
        };
        log.end(end);
        Ok(())
    }

    /// Writes the keys that have changed. Returns the number of bytes.
    fn write_changes(&mut self, log: &mut dyn PointLog) -> Result<usize, S::Error> {
        let (mut bytes, mut over) = (0, false);
        let mut records = Vec::new();
        while !over {
            over = self.store.copy_again(CopyFor::Point, |key, found| {
                let value = found.map(|found| found.value);
                let version = found.map_or(0, |found| found.version);
                Record { key, value, version }.encode(&mut records);
                records.len() < RECORD_BYTES
            })?;
            if !records.is_empty() {
                log.write(&records);
            }
            bytes += records.len();
            records.clear();
        }
        Ok(bytes)
    }

    /// Writes pairs from the key `front` on. Returns the first key that is left, and the number of bytes.
    fn write_copy(
        &self,
        log: &mut dyn PointLog,
        front: &[u8],
        most: usize,
    ) -> Result<(Option<Vec<u8>>, usize), S::Error> {
        let (mut records, mut bytes, mut next) = (Vec::new(), 0, None);
        for pair in self.store.range(front, None) {
            let (key, found) = pair?;
            if bytes + records.len() >= most {
                next = Some(key.to_vec());
                break;
            }
            let value = Some(&*found.value);
            Record { key: &key, value, version: found.version }.encode(&mut records);
            if records.len() >= RECORD_BYTES {
                log.write(&records);
                bytes += records.len();
                records.clear();
            }
        }
        if !records.is_empty() {
            log.write(&records);
        }
        Ok((next, bytes + records.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_report_does_not_take_the_place_of_a_newer_one() {
        let mut points = RestorePoints::of(3);
        let reports = [(10, 50), (10, 90), (10, 50), (90, 90), (10, 90)];
        let held = reports.map(|(from, to)| {
            points.note(&[Holds { group: 0, slot: 1, from, to }]);
            let known = points.holds[&(0, 1)];
            (known.from, known.to)
        });
        assert_eq!(held, [(10, 50), (10, 90), (10, 90), (90, 90), (90, 90)]);
    }
}
