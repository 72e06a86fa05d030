//! Reading groups' records back from a node's log while it is written: a thread for each group reads, and its engine
//! takes what was read in its turns.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use skein_multicast::disk::{ReadOn, entry_index};
use skein_wal::disk::LogEnd;
use skein_wal::format::Record;
use skein_wal::{Group, Lsn, Owner, Progress, Reading};

use crate::disk::LogFiles;
use crate::engine_log::{Begun, CONTINUED, PIECE_BYTES};

/// Name of the threads.
const THREAD: &str = "skein-reading";
/// Bytes of records that an engine is given at once, or those of one longer record.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that wait for an engine.
const BATCHES_MAX: usize = 2;
/// The time between two looks whether more is on disk.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The log of the present process, as a thread reads it.
#[derive(Clone)]
pub(crate) struct Written {
    pub(crate) files: Arc<LogFiles>,
    pub(crate) owner: Owner,
    pub(crate) start: u64,
    /// Where the records of this start begin.
    pub(crate) from: Lsn,
    pub(crate) end: LogEnd,
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Written").field("start", &self.start).finish_non_exhaustive()
    }
}

/// Records of a group: the kind and the end of each in the bytes of all.
#[derive(Debug, Default)]
struct Batch {
    records: Vec<(u8, usize)>,
    bytes: Vec<u8>,
}

impl Batch {
    fn push(&mut self, kind: u8, record: &[u8]) {
        self.bytes.extend_from_slice(record);
        self.records.push((kind, self.bytes.len()));
    }

    fn each(&self, each: &mut dyn FnMut(u8, &[u8])) {
        let mut from = 0;
        for &(kind, to) in &self.records {
            each(kind, &self.bytes[from..to]);
            from = to;
        }
    }
}

/// A message of a thread to its engine.
#[derive(Debug)]
enum Read {
    Records(Batch),
    /// Everything that is on disk was sent.
    All,
}

/// The engine's end of a reading. The thread ends soon after it was dropped.
#[derive(Debug)]
struct Reader {
    read: Receiver<Read>,
    /// Tells the thread that it is wanted.
    _wanted: Arc<()>,
}

/// The groups that an engine reads back.
#[derive(Debug)]
pub(crate) struct Readings {
    log: Written,
    readers: BTreeMap<Group, Reader>,
}

impl Readings {
    pub(crate) const fn of(log: Written) -> Self {
        Self { log, readers: BTreeMap::new() }
    }

    /// Begins to read a group's records from that of entry `index` on, or from an earlier one. Ends what was read of
    /// them before.
    pub(crate) fn begin(&mut self, group: Group, index: u64) {
        let (sender, read) = sync_channel(BATCHES_MAX);
        let wanted = Arc::new(());
        let (log, still_wanted) = (self.log.clone(), Arc::downgrade(&wanted));
        let run = move || {
            read_group(&log, group, index, &sender, &still_wanted);
        };
        // Without a thread its end of the channel is dropped: what is wanted cannot be read.
        if let Err(why) = thread::Builder::new().name(THREAD.to_owned()).spawn(run) {
            tracing::warn!(%group, %why, "cannot start a thread that reads the log");
        }
        self.readers.insert(group, Reader { read, _wanted: wanted });
    }

    /// Hands out the next records that were read of a group.
    pub(crate) fn go_on(&mut self, group: Group, each: &mut dyn FnMut(u8, &[u8])) -> ReadOn {
        let Some(reader) = self.readers.get(&group) else { return ReadOn::Gone };
        match reader.read.try_recv() {
            Ok(Read::Records(batch)) => {
                batch.each(each);
                ReadOn::Some
            }
            Ok(Read::All) => ReadOn::End,
            Err(TryRecvError::Empty) => ReadOn::Pending,
            Err(TryRecvError::Disconnected) => {
                self.end(group);
                ReadOn::Gone
            }
        }
    }

    /// Ends reading a group's records. Does not wait for the thread.
    pub(crate) fn end(&mut self, group: Group) {
        self.readers.remove(&group);
    }
}

/// Sends the records of a group until they are not wanted any more. None if so, or if they cannot be read.
fn read_group(
    log: &Written,
    group: Group,
    index: u64,
    sender: &SyncSender<Read>,
    wanted: &Weak<()>,
) -> Option<()> {
    let gone = |gone| tracing::info!(%group, index, %gone, "a group's log is read no further");
    let mut entries = Pieces::of(group, log.from);
    let is_old = |record: &Record<'_>| {
        let mut old = None;
        entries.take(record, |kind, bytes| old = entry_index(kind, bytes).map(|it| it <= index));
        old
    };
    let (files, end) = (Arc::clone(&log.files), log.end.get());
    let begun = Reading::begin(files, log.owner, log.start, end, is_old);
    let mut reading = begun.map_err(gone).ok()?;
    let (mut pieces, mut batch) = (Pieces::of(group, log.from), Batch::default());
    let mut said = false;
    while wanted.strong_count() > 0 {
        let progress = reading.go_on(log.end.get(), BATCH_BYTES as u64, |record| {
            pieces.take(record, |kind, bytes| batch.push(kind, bytes));
        });
        let full = batch.bytes.len() >= BATCH_BYTES || progress != Ok(Progress::More);
        if full && !batch.records.is_empty() {
            sender.send(Read::Records(mem::take(&mut batch))).ok()?;
            said = false;
        }
        if progress.map_err(gone).ok()? == Progress::End {
            if !said {
                sender.send(Read::All).ok()?;
                said = true;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
    None
}

/// Puts the pieces of a group's records together, wherever in the log they are begun to be read.
///
/// **Invariant.** `begun` holds all pieces of a record up to that at `last`, or none.
#[derive(Debug)]
struct Pieces {
    group: Group,
    /// Where the log of this process begins: no record of an earlier one goes on in it.
    from: Lsn,
    /// The group's last record that was seen.
    last: Lsn,
    /// The next one goes on with a record of which the beginning was not seen.
    cut: bool,
    begun: Begun,
}

impl Pieces {
    const fn of(group: Group, from: Lsn) -> Self {
        Self { group, from, last: Lsn::NONE, cut: true, begun: Begun::new() }
    }

    /// Takes the next record of the log, and hands out that of the group which it completes.
    fn take(&mut self, record: &Record<'_>, each: impl FnOnce(u8, &[u8])) {
        if record.group != self.group {
            return;
        }
        let previous = mem::replace(&mut self.last, record.lsn);
        let begins = record.begins || record.previous < self.from;
        if begins || record.previous != previous {
            // A piece is long: what begins closer to the record before it does not continue that.
            let close = record.lsn.0 < record.previous.0.saturating_add(PIECE_BYTES as u64);
            self.cut = !(begins || close);
            self.begun.clear();
        }
        if !self.cut {
            self.begun.take(record, each);
        } else if record.kind != CONTINUED {
            self.cut = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use skein_multicast::disk::Disk as _;
    use skein_protocol::ids::GroupId;
    use skein_wal::Options;
    use skein_wal::files::{Directory, Medium};

    use super::*;
    use crate::engine_log::EngineLog;
    use crate::engine_log::tests::{ENTRY, GROUP, OPTIONS, start};

    const OTHER: GroupId = GroupId(1);
    /// Segments that take the pieces of long records.
    const LONG: Options = Options {
        segment_bytes: 4 << 20,
        first_bytes: 2 << 20,
        block_bytes_max: 256 << 10,
        ..OPTIONS
    };

    /// The record of an entry.
    fn entry(index: u64, length: usize) -> (u8, Vec<u8>) {
        let head = [[7; 8], index.to_le_bytes()].concat();
        (ENTRY, [&head[..], &vec![index as u8; length]].concat())
    }

    /// Appends records of both groups: these of one, and others of the other.
    fn append(log: &mut EngineLog, records: &[(u8, Vec<u8>)]) {
        for (kind, bytes) in records {
            let (head, rest) = bytes.split_at(3);
            log.append(GROUP, *kind, &[head, rest]);
            log.append(OTHER, ENTRY, &[&bytes[..16], b"of another group"]);
        }
        log.sync();
    }

    /// Everything that is read of a group until the end, or until it is gone.
    fn read(log: &mut EngineLog, group: GroupId) -> (Vec<(u8, Vec<u8>)>, ReadOn) {
        let (mut found, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
        loop {
            match log.read_on(group, &mut |kind, bytes| found.push((kind, bytes.to_vec()))) {
                ReadOn::Some => {}
                ReadOn::Pending => thread::sleep(Duration::from_micros(100)),
                over @ (ReadOn::End | ReadOn::Gone) => return (found, over),
            }
            assert!(Instant::now() < deadline, "{} records", found.len());
        }
    }

    /// Reads until so many records were found, which may take several ends.
    fn read_records(log: &mut EngineLog, group: GroupId, records: usize) -> Vec<(u8, Vec<u8>)> {
        let mut found = Vec::new();
        while found.len() < records {
            let (more, over) = read(log, group);
            assert_eq!(over, ReadOn::End);
            found.extend(more);
        }
        found
    }

    #[test]
    fn what_is_appended_is_read_back_while_more_is_written() {
        let program = std::env::current_exe().expect("it is running");
        // Not in `/tmp`, which may be in memory.
        let scratch = tempfile::tempdir_in(program.parent().expect("it is in a directory"))
            .expect("there is room");
        let directory = Directory::open(&scratch.path().join("log")).expect("it is a new one");
        let files: Arc<LogFiles> = Arc::new(Box::new(directory));
        let mut indices = 1..;
        // The first start has an entry of three pieces, the second one begins with such.
        for lengths in [[900, 70_000, 3 << 20], [3 << 20, 900, 70_000]] {
            let (disk, mut log) = start(&files, LONG, None);
            let mut records = |count: usize| -> Vec<_> {
                let lengths = lengths.iter().cycle().take(count);
                lengths
                    .map(|length| entry(indices.next().expect("it is endless"), *length))
                    .collect()
            };
            let mut written = records(30);
            written.insert(3, (ENTRY + 1, vec![1; 100]));
            append(&mut log, &written);
            log.begin_reading(GROUP, 0);
            assert!(read_records(&mut log, GROUP, 31) == written);
            let more = records(9);
            append(&mut log, &more);
            assert!(read_records(&mut log, GROUP, 9) == more);
            log.begin_reading(OTHER, 0);
            let other = read_records(&mut log, OTHER, 40);
            assert!(other.iter().all(|(_, bytes)| bytes.ends_with(b"of another group")));
            log.end_reading(GROUP);
            assert_eq!(read(&mut log, GROUP), (Vec::new(), ReadOn::Gone));
            drop((log, disk));
        }
    }

    #[test]
    fn a_reading_begins_not_long_before_the_wanted_entry() {
        let (_disk, mut log) = start(&Arc::new(Box::new(Medium::new(1))), LONG, None);
        // Some segments begin in the middle of an entry.
        let long = |index: u64| if index.is_multiple_of(7) { 2_500_000 } else { 30_000 };
        let written: Vec<_> = (1..=150).map(|index| entry(index, long(index))).collect();
        append(&mut log, &written);
        for wanted in [1, 2, 60, 100, 149, 150, 151] {
            // This ends what was begun before, though nobody has read it.
            log.begin_reading(GROUP, wanted);
            let (found, over) = read(&mut log, GROUP);
            assert_eq!(over, ReadOn::End);
            assert!(written.ends_with(&found), "{wanted}: {} records", found.len());
            let first = entry_index(found[0].0, &found[0].1).expect("all are entries");
            assert!(first <= wanted && first + 40 > wanted, "{wanted}: from {first} on");
        }
    }

    #[test]
    fn what_is_used_again_before_it_was_read_is_gone() {
        let (disk, mut log) = start(&Arc::new(Box::new(Medium::new(1))), LONG, None);
        let written: Vec<_> = (1..=200).map(|index| entry(index, 50_000)).collect();
        append(&mut log, &written);
        log.begin_reading(GROUP, 0);
        let (mut found, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
        let mut first = |kind, bytes: &[u8]| found.push((kind, bytes.to_vec()));
        while log.read_on(GROUP, &mut first) == ReadOn::Pending {
            thread::yield_now();
        }
        let bytes = vec![1; 50_000];
        while disk.status().sizes.recycled < 3 {
            assert!(Instant::now() < deadline, "{:?}", disk.status().sizes);
            for group in [GROUP, OTHER] {
                let position = log.append(group, ENTRY, &[&bytes]);
                log.keep_from(group, position);
            }
            log.sync();
        }
        let (more, over) = read(&mut log, GROUP);
        assert_eq!(over, ReadOn::Gone);
        found.extend(more);
        assert!(written.starts_with(&found), "{} records", found.len());
        assert_eq!(read(&mut log, GROUP), (Vec::new(), ReadOn::Gone), "for good");
    }

    #[test]
    fn a_group_is_fed_with_less_than_its_state() {
        let (_disk, log) = start(&Arc::new(Box::new(Medium::new(1))), OPTIONS, None);
        let after = log.snapshot_after();
        assert!(log.feeds(GROUP, 1000, 1000) && !log.feeds(GROUP, 1001, 1000));
        assert!(log.feeds(GROUP, after, 0) && !log.feeds(GROUP, after + 1, 0));
    }

    /// The records that are read when they stand at these places, each with the place of the one before it and a kind.
    fn pieces(records: &[(u64, u64, u8)]) -> Vec<(u8, Vec<u8>)> {
        let (mut pieces, mut found) = (Pieces::of(Group(0), Lsn(100)), Vec::new());
        for &(lsn, previous, kind) in records {
            let (lsn, previous, bytes) = (Lsn(lsn), Lsn(previous), [lsn as u8]);
            for group in [Group(1), Group(0)] {
                let record = Record {
                    group,
                    kind,
                    begins: previous == Lsn::NONE,
                    previous,
                    lsn,
                    bytes: &bytes,
                };
                pieces.take(&record, |kind, bytes| {
                    assert_eq!(group, Group(0));
                    found.push((kind, bytes.to_vec()));
                });
            }
        }
        found
    }

    #[test]
    fn a_record_whose_beginning_was_not_seen_is_left_out() {
        const FAR: u64 = PIECE_BYTES as u64;
        let at = 1 << 30;
        let next = [(at + 1, at, ENTRY), (at + 2, at + 1, CONTINUED), (at + 3, at + 2, ENTRY)];
        let with = |first| pieces(&[&[first][..], &next].concat());
        let found = [(ENTRY, vec![1]), (ENTRY, vec![2, 3])];
        assert_eq!(with((at, at - FAR, ENTRY)), found, "it may be the last piece of one");
        assert_eq!(with((at, at - FAR, CONTINUED)), found[1..], "it may be the second piece");
        for (previous, why) in [
            (at - FAR + 1, "there is no room for a piece"),
            (99, "that one is of an earlier start"),
            (0, "the group begins"),
        ] {
            let begun = [(ENTRY, vec![0]), (ENTRY, vec![1]), (ENTRY, vec![2, 3])];
            assert_eq!(with((at, previous, ENTRY)), begun, "{why}");
            assert_eq!(with((at, previous, CONTINUED))[0], (ENTRY, vec![0, 1]), "{why}");
        }
        // Between two of them some were not seen.
        let jump = [(at, at - 1, CONTINUED), (at + 2 * FAR, at + FAR, ENTRY)];
        assert_eq!(pieces(&jump), []);
        let anew = [(at, at - 1, CONTINUED), (at + 3, 0, ENTRY)];
        assert_eq!(pieces(&anew), [(ENTRY, vec![3])]);
    }
}
