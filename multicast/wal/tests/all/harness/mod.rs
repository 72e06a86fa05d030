//! A driver of the core over a simulated disk, beside a model of what it must give back.

#![allow(dead_code, unreachable_pub)] // Each test binary uses a part of it.

use std::collections::BTreeMap;

use skein_wal::files::{FileName, Files, Medium, WriteId, perform, sync_everything};
use skein_wal::{
    AppendError, Flush, Group, Lsn, Options, Owner, RecoverError, Recovery, Verdict, Writer,
};

pub const OWNER: Owner = Owner { cluster: *b"a cluster's name", node: 7 };

/// Kind of a record that is a promise: its number, in eight bytes.
pub const PROMISE: u8 = 1;
pub const VALUE: u8 = 2;

/// Segments of a few blocks, so that everything happens often.
pub const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    first_bytes: 64 << 10,
    block_bytes_max: 8 << 10,
    groups_max: 6,
    table_bytes_max: 64,
    in_flight_max: 4,
    waiting_max: 8,
    spare_max: 1,
    files_max: usize::MAX,
};

/// The same, where the first segment of a start is short.
pub const SHORT_FIRST: Options = Options { first_bytes: 24 << 10, ..SMALL };

/// A record that was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub lsn: Lsn,
    pub kind: u8,
    pub begins: bool,
    pub bytes: Vec<u8>,
}

/// What one group is owed.
#[derive(Clone, Debug, Default)]
pub struct Owed {
    /// Everything appended that may come back, oldest first.
    pub records: Vec<Appended>,
    /// The group asked for nothing below this.
    pub keep: Lsn,
    pub begins: bool,
    /// The highest promise that was told, and the highest made.
    pub promised: u64,
    pub promise: u64,
}

/// What a restart found, after everything was compared.
#[derive(Debug, Default)]
pub struct Found {
    pub damaged: Vec<Group>,
    pub records: usize,
}

/// A log on a simulated disk.
pub struct Log {
    pub medium: Medium,
    pub writer: Writer,
    pub in_flight: Vec<(Flush, WriteId)>,
    pub owed: BTreeMap<Group, Owed>,
    /// End of what was ever reported as durable.
    pub durable: Lsn,
    pub start: u64,
    pub options: Options,
    entropy: u64,
}

impl Log {
    /// An empty log on a new disk.
    pub fn new(seed: u64, options: Options) -> Self {
        let medium = Medium::new(seed);
        let writer = Recovery::read(&medium, OWNER, &[]).unwrap().writer(options, 1);
        let owed = BTreeMap::new();
        let (in_flight, durable) = (Vec::new(), Lsn::NONE);
        let mut log =
            Self { medium, writer, in_flight, owed, durable, start: 0, options, entropy: 1 };
        log.turn();
        log
    }

    /// Appends, if the log takes it. None if it is busy or its disk is gone.
    pub fn append(&mut self, group: Group, kind: u8, bytes: &[u8]) -> Option<Lsn> {
        // Whoever begins anew says first what it has promised.
        if kind != PROMISE && self.owed.get(&group).is_some_and(|owed| owed.begins) {
            self.promise(group);
            if self.owed[&group].begins {
                return None;
            }
        }
        let (a, b) = bytes.split_at(bytes.len() / 3);
        match self.writer.append(group, kind, &[a, b]) {
            Ok(lsn) => {
                let owed = self.owed.entry(group).or_default();
                let begins = std::mem::take(&mut owed.begins) || owed.records.is_empty();
                owed.records.push(Appended { lsn, kind, begins, bytes: bytes.to_vec() });
                Some(lsn)
            }
            Err(AppendError::Busy | AppendError::Failed) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Promises the next number, as a driver does: a record, then the table.
    /// Without it, what is logged after `begin` would be all that is known.
    pub fn promise(&mut self, group: Group) {
        let next = self.owed.entry(group).or_default().promise + 1;
        if self.append(group, PROMISE, &next.to_le_bytes()).is_some() {
            self.writer.table(group, &next.to_le_bytes()).unwrap();
            self.owed.get_mut(&group).unwrap().promise = next;
        }
    }

    pub fn keep_from(&mut self, group: Group, lsn: Lsn) {
        self.writer.keep_from(group, lsn);
        let owed = self.owed.entry(group).or_default();
        owed.keep = owed.keep.max(lsn);
    }

    pub fn begin(&mut self, group: Group) {
        self.writer.begin(group).unwrap();
        self.owed.entry(group).or_default().begins = true;
    }

    /// Begins a write, if there is one.
    pub fn flush(&mut self) -> bool {
        let Some(flush) = self.writer.next_flush() else { return false };
        match self.medium.begin_write(flush.file(), flush.offset(), flush.bytes()) {
            Ok(id) => self.in_flight.push((flush, id)),
            Err(error) => _ = self.writer.flushed(flush, Err(error)),
        }
        true
    }

    /// Ends one of the writes under way.
    pub fn finish(&mut self, which: usize) {
        if self.in_flight.is_empty() {
            return;
        }
        let (flush, id) = self.in_flight.remove(which % self.in_flight.len());
        let result = self.medium.finish_write(id);
        _ = self.writer.flushed(flush, result);
        self.told();
    }

    /// Does one task of the writer.
    pub fn task(&mut self) -> bool {
        let Some(task) = self.writer.next_task() else { return false };
        let result = perform(&self.medium, &task);
        let full = result.as_ref().is_err_and(|error| error.shortage().is_some());
        _ = self.writer.performed(task, result);
        !full
    }

    /// Lets everything happen that can.
    pub fn turn(&mut self) {
        loop {
            let mut more = self.task() || self.flush();
            if !self.in_flight.is_empty() {
                self.finish(0);
                more = true;
            }
            if !more {
                return;
            }
        }
    }

    /// Takes note of what the writer says is durable.
    fn told(&mut self) {
        assert!(self.writer.durable() >= self.durable || self.durable == Lsn::NONE);
        self.durable = self.durable.max(self.writer.durable());
        if self.writer.started() {
            self.start = self.writer.start();
        }
        for owed in self.owed.values_mut() {
            for record in owed.records.iter().rev().filter(|record| record.lsn < self.durable) {
                if record.kind == PROMISE {
                    let number = u64::from_le_bytes(record.bytes[..].try_into().unwrap());
                    owed.promised = owed.promised.max(number);
                    break;
                }
            }
        }
    }

    /// Starts anew on what the disk has, as a node does, and compares.
    pub fn restart(&mut self) -> Result<Found, RecoverError> {
        let found = self.reopen()?;
        self.turn();
        Ok(found)
    }

    /// Does the same, and leaves the first segment of the new start to be written. Errors of the disk
    /// are the caller's: it may have lost power again.
    pub fn reopen(&mut self) -> Result<Found, RecoverError> {
        self.in_flight.clear();
        sync_everything(&self.medium)?;
        let hosted: Vec<Group> = self.owed.keys().copied().collect();
        let recovery = Recovery::read(&self.medium, OWNER, &hosted)?;
        let mut replayed: BTreeMap<Group, Vec<Appended>> = BTreeMap::new();
        recovery.replay(&self.medium, |record| {
            replayed.entry(record.group).or_default().push(Appended {
                lsn: record.lsn,
                kind: record.kind,
                begins: record.begins,
                bytes: record.bytes.to_vec(),
            });
        })?;
        let mut found = Found::default();
        self.entropy += 1;
        let entropy = self.entropy.wrapping_mul(0x1234_5678_9abc_def1);
        let mut writer = recovery.writer(self.options, entropy);
        assert!(recovery.start() > self.start, "starts rise");
        for group in recovery.groups() {
            let owed = self.owed.entry(group.group).or_default();
            let records = replayed.remove(&group.group).unwrap_or_default();
            let whole = group.verdict == Verdict::Whole;
            compare(group.group, owed, &records, self.durable, whole);
            if whole {
                let told = records.iter().filter(|record| record.kind == PROMISE);
                let told = told.map(|record| &record.bytes[..]).chain([&group.table[..]]);
                let told =
                    told.filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
                let promise = told.max().unwrap_or(0);
                assert!(promise >= owed.promised, "{}: a promise is lost", group.group);
                assert!(promise <= owed.promise, "{}: nobody promised that", group.group);
                // The table is as old as the last header; records behind it said more.
                if promise > 0 {
                    writer.table(group.group, &promise.to_le_bytes()).unwrap();
                }
            } else {
                found.damaged.push(group.group);
            }
            found.records += records.len();
            // What came back counts from here, and what did not is gone.
            let end = records.last().map_or(group.last, |record| record.lsn.max(group.last));
            owed.records.retain(|record| record.lsn <= end);
            owed.begins = false;
        }
        assert!(replayed.is_empty(), "records of unknown groups");
        self.writer = writer;
        // All of it was synced.
        self.durable = recovery.cut().map_or(Lsn::NONE, |cut| cut.lsn);
        for owed in self.owed.values_mut() {
            owed.promised = owed
                .records
                .iter()
                .filter(|record| record.kind == PROMISE)
                .fold(owed.promised, |most, record| {
                    most.max(u64::from_le_bytes(record.bytes[..].try_into().unwrap()))
                });
        }
        Ok(found)
    }

    pub fn segments(&self) -> Vec<FileName> {
        let mut names: Vec<_> = self.medium.list().unwrap().into_iter().map(|(n, _)| n).collect();
        names.retain(|name| matches!(name, FileName::Segment(_)));
        names
    }
}

fn compare(group: Group, owed: &Owed, records: &[Appended], durable: Lsn, whole: bool) {
    let Some(first) = records.first() else {
        let missed = owed.records.iter().find(|r| r.lsn < durable && r.lsn >= owed.keep);
        assert!(!whole || missed.is_none(), "{group}: lost {:?}", missed.map(|r| r.lsn));
        return;
    };
    let at = owed.records.iter().position(|record| record.lsn == first.lsn);
    let at = at.unwrap_or_else(|| panic!("{group}: nobody appended {}", first.lsn));
    let through = at + records.len();
    assert!(through <= owed.records.len(), "{group}: more than was appended");
    for (appended, found) in owed.records[at..].iter().zip(records) {
        assert_eq!(appended, found, "{group}");
    }
    if !whole {
        return;
    }
    // A chain that began anew hides what was before.
    let begins = owed.records[..through].iter().rposition(|record| record.begins).unwrap_or(0);
    let owed_first = owed.records[begins..].iter().find(|record| record.lsn >= owed.keep);
    if let Some(owed_first) = owed_first.filter(|record| record.lsn < durable) {
        assert!(first.lsn <= owed_first.lsn, "{group}: lost {}", owed_first.lsn);
    }
    let missed = owed.records[through..].iter().find(|r| r.lsn < durable && r.lsn >= owed.keep);
    assert!(missed.is_none(), "{group}: lost {:?}, durable to {durable}", missed.map(|r| r.lsn));
}
