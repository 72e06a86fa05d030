//! Reading the log while it is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::{OWNER, SMALL};
use skein_wal::disk::{DiskOptions, Handle, LogEnd};
use skein_wal::files::{Directory, FileName, Files, Medium, SegmentName, perform};
use skein_wal::format::{BLOCK, Record};
use skein_wal::inspect::Segment;
use skein_wal::{
    AppendError, Disk, Gone, Group, Lsn, Options, Owner, Progress, Reading, Recovery, Writer,
};

/// Segments of several pieces, and blocks that stand in two of them.
const LONG: Options = Options {
    segment_bytes: 4 << 20,
    first_bytes: 3 << 19,
    block_bytes_max: 256 << 10,
    in_flight_max: 1,
    ..SMALL
};

/// A record: its group and its bytes.
type Written = (Group, Vec<u8>);

/// A log on a disk in memory that others can read, too.
struct Log {
    files: Arc<Medium>,
    writer: Writer,
    written: Vec<(Lsn, Written)>,
}

impl Log {
    /// A start on what the disk holds.
    fn start(files: &Arc<Medium>, options: Options) -> Self {
        let recovery = Recovery::read(files.as_ref(), OWNER, &[]).unwrap();
        let writer = recovery.writer(options, 5);
        let mut log = Self { files: Arc::clone(files), writer, written: Vec::new() };
        log.turn();
        log
    }

    fn new(options: Options) -> Self {
        Self::start(&Arc::new(Medium::new(1)), options)
    }

    /// Writes everything that can be.
    fn turn(&mut self) {
        loop {
            if let Some(task) = self.writer.next_task() {
                let result = perform(self.files.as_ref(), &task);
                self.writer.performed(task, result).unwrap();
            } else if let Some(flush) = self.writer.next_flush() {
                let result = self.files.write(flush.file(), flush.offset(), flush.bytes());
                self.writer.flushed(flush, result).unwrap();
            } else {
                return;
            }
        }
    }

    fn append(&mut self, group: Group, bytes: Vec<u8>) {
        let lsn = loop {
            match self.writer.append(group, 1, &[&bytes]) {
                Ok(lsn) => break lsn,
                Err(AppendError::Busy) => self.turn(),
                Err(error) => panic!("{error}"),
            }
        };
        self.written.push((lsn, (group, bytes)));
    }

    /// Appends so many records of two groups, each to a block of its own.
    fn fill(&mut self, records: u32) {
        for number in 0..records {
            self.append(Group((number % 2) as u16), vec![number as u8; 2000]);
            self.turn();
        }
    }

    fn durable(&self) -> Lsn {
        self.writer.durable()
    }

    fn read_from(
        &self,
        is_old: impl FnMut(&Record<'_>) -> Option<bool>,
    ) -> Result<Reading<Medium>, Gone> {
        let (files, start) = (Arc::clone(&self.files), self.writer.start());
        Reading::begin(files, OWNER, start, self.durable(), is_old)
    }

    /// A reading of the whole start.
    fn read(&self) -> Reading<Medium> {
        self.read_from(|_| None).expect("it has begun")
    }

    /// The segments that were written, the oldest first.
    fn segments(&self) -> Vec<SegmentName> {
        let names = self.files.list().unwrap().into_iter().filter_map(|(file, _)| match file {
            FileName::Segment(name) => Some(name),
            FileName::Spare(_) => None,
        });
        let begun = |name: &SegmentName| {
            Segment::read(&self.files.bytes(FileName::Segment(*name)), Some(*name)).is_ok()
        };
        names.filter(begun).collect()
    }

    /// What was written below a place.
    fn below(&self, end: Lsn) -> Vec<Written> {
        let below = self.written.iter().filter(|(lsn, _)| *lsn < end);
        below.map(|(_, written)| written.clone()).collect()
    }
}

fn written(record: &Record<'_>) -> Written {
    (record.group, record.bytes.to_vec())
}

/// Reads everything below `end`, and adds it to what was read before.
fn read_to<F: Files>(
    reading: &mut Reading<F>,
    end: Lsn,
    found: &mut Vec<Written>,
) -> Result<(), Gone> {
    while reading.go_on(end, 1, |record| found.push(written(record)))? == Progress::More {}
    Ok(())
}

#[test]
fn every_record_is_read_once_and_in_order_while_more_are_appended() {
    for (options, longest, records) in [(SMALL, 5000, 600), (LONG, 100_000, 400)] {
        let mut log = Log::new(options);
        let (mut reading, mut found) = (log.read(), Vec::new());
        for number in 0..records {
            let length = 1 + number * 7919 % longest;
            log.append(Group((number % 2) as u16), vec![number as u8; length]);
            if number % 7 == 0 {
                log.turn();
            }
            if number % 50 == 0 {
                read_to(&mut reading, log.durable(), &mut found).unwrap();
                assert!(found == log.below(log.durable()), "{number}");
            }
        }
        if options == LONG {
            // Longer than what is read at once.
            log.append(Group(0), vec![9; 2 << 20]);
            log.append(Group(1), vec![8; 100]);
        }
        log.turn();
        assert!(log.segments().len() > 3);
        assert_eq!(log.below(log.durable()).len(), log.written.len(), "all of it is durable");
        read_to(&mut reading, log.durable(), &mut found).unwrap();
        assert!(found == log.below(log.durable()));
        // Again, in one go, from the beginning.
        let mut again = Vec::new();
        let read = log.read().go_on(log.durable(), u64::MAX, |record| again.push(written(record)));
        assert_eq!(read, Ok(Progress::End));
        assert!(again == found);
    }
}

#[test]
fn nothing_at_or_above_the_end_is_handed_out() {
    let mut log = Log::new(SMALL);
    let begun = log.durable();
    log.fill(10);
    let early = log.durable();
    log.fill(40);
    let mut found = Vec::new();
    read_to(&mut log.read(), begun, &mut found).unwrap();
    assert_eq!(found, []);
    let mut reading = log.read();
    read_to(&mut reading, early, &mut found).unwrap();
    assert!(found == log.below(early) && found.len() == 10);
    // No block is read of which a part stands behind the end.
    let inside = Lsn(log.written[10].0.0.next_multiple_of(BLOCK as u64) - 1);
    assert!(inside > early && read_to(&mut reading, inside, &mut found).is_err());
    assert_eq!(found.len(), 10);
    read_to(&mut reading, log.durable(), &mut found).unwrap();
    assert!(found == log.below(log.durable()));
}

#[test]
fn a_segment_that_is_used_again_is_gone_and_no_wrong_record_is_read() {
    let mut log = Log::new(SMALL);
    log.fill(60);
    let mut readings: Vec<_> = (0..3).map(|_| (log.read(), Vec::new())).collect();
    // One has read nothing, one a part of a segment, and one all of it.
    readings[1].0.go_on(log.durable(), 20 << 10, |_| ()).unwrap();
    let (reading, found) = &mut readings[2];
    read_to(reading, log.durable(), found).unwrap();
    let mut needed = log.durable();
    for _ in 0..40 {
        log.writer.keep_from(Group(0), needed);
        log.writer.keep_from(Group(1), needed);
        needed = log.durable();
        log.fill(20);
        read_to(reading, log.durable(), found).expect("it keeps up");
    }
    assert!(log.writer.sizes().recycled > 10, "{:?}", log.writer.sizes());
    assert!(*found == log.below(log.durable()));
    let all = log.below(log.durable());
    for (reading, found) in &mut readings[..2] {
        let mut read = 0;
        assert!(read_to(reading, log.durable(), found).is_err());
        assert!(found.iter().all(|record| all.contains(record)));
        read += found.len();
        assert!(read_to(reading, log.durable(), found).is_err() && found.len() == read, "for good");
    }
    let mut late = Vec::new();
    read_to(&mut log.read(), log.durable(), &mut late).unwrap();
    assert!(all.ends_with(&late) && late.len() < all.len(), "what is left can be read");
}

/// As if the reader had the file open while it became another segment's.
#[test]
fn what_another_segment_wrote_to_the_same_file_is_not_read() {
    let mut log = Log::new(SMALL);
    log.fill(60);
    let segments = log.segments();
    let bytes = |name: SegmentName| log.files.bytes(FileName::Segment(name));
    let (old, new) = (bytes(segments[1]), bytes(segments[3]));
    let count =
        |name: SegmentName| Segment::read(&bytes(name), Some(name)).expect("it is begun").records;
    let before = count(segments[0]);
    for blocks in 0..new.len() / BLOCK {
        let mixed = [&new[..blocks * BLOCK], &old[blocks * BLOCK..]].concat();
        log.files.overwrite(FileName::Segment(segments[1]), 0, &old);
        let (mut reading, mut found) = (log.read(), Vec::new());
        log.files.overwrite(FileName::Segment(segments[1]), 0, &mixed);
        let read = read_to(&mut reading, log.durable(), &mut found);
        assert_eq!(read.is_err(), blocks > 0);
        assert!(log.below(log.durable()).starts_with(&found));
        assert!(blocks == 0 || found.len() == before, "{blocks} blocks: {}", found.len());
    }
}

#[test]
fn a_start_reads_its_own_segments_only() {
    let mut first = Log::new(SMALL);
    first.fill(60);
    let mut second = Log::start(&first.files, SMALL);
    assert_eq!(second.writer.start(), first.writer.start() + 1);
    second.fill(60);
    let mut found = Vec::new();
    read_to(&mut second.read(), second.durable(), &mut found).unwrap();
    assert!(found == second.below(second.durable()) && found.len() == 60);
    let (files, end) = (Arc::clone(&second.files), second.durable());
    let third = Reading::begin(files, OWNER, second.writer.start() + 1, end, |_| None);
    assert_eq!(third.err(), Some(Gone { at: end }), "it has not begun");
    for owner in [Owner { node: 1, ..OWNER }, Owner { cluster: [1; 16], ..OWNER }] {
        let (files, start) = (Arc::clone(&second.files), second.writer.start());
        assert!(Reading::begin(files, owner, start, end, |_| None).is_err(), "{owner:?}");
    }
}

#[test]
fn a_flipped_bit_ends_the_reading_in_front_of_it() {
    let mut log = Log::new(SMALL);
    log.fill(40);
    let name = log.segments()[1];
    let bytes = log.files.bytes(FileName::Segment(name));
    let segment = Segment::read(&bytes, Some(name)).unwrap();
    let base = segment.base();
    // The header stands twice, and its second copy is not read.
    let ends = segment.blocks.last().map(|last| last.offset + u64::from(last.header.length));
    let offsets = (0..BLOCK as u64).chain(2 * BLOCK as u64..ends.unwrap());
    for bit in offsets.map(|offset| offset * 8 + offset % 8).step_by(13) {
        let (mut reading, mut found) = (log.read(), Vec::new());
        log.files.flip(FileName::Segment(name), bit);
        let gone = read_to(&mut reading, log.durable(), &mut found).unwrap_err();
        assert!(gone.at.0 <= base.0 + bit / 8, "{gone}");
        assert!(found == log.below(gone.at), "bit {bit}: {} records", found.len());
        log.files.flip(FileName::Segment(name), bit);
    }
}

#[test]
fn a_block_that_does_not_follow_the_one_before_it_is_not_read() {
    // Their salts are the same, and so are the places of their blocks.
    let (mut log, mut other) = (Log::new(SMALL), Log::new(SMALL));
    log.fill(3);
    other.fill(1);
    other.append(Group(1), vec![77; 2000]);
    other.turn();
    other.append(Group(0), vec![2; 2000]);
    other.turn();
    assert_eq!(log.durable(), other.durable());
    let name = FileName::Segment(log.segments()[0]);
    // The header stands twice in front of the records.
    let block = 4 * BLOCK..5 * BLOCK;
    let exchanged = other.files.bytes(FileName::Segment(other.segments()[0]));
    assert_ne!(
        log.files.bytes(name)[block.clone()],
        exchanged[block.clone()],
        "their predecessors differ"
    );
    log.files.overwrite(name, block.start as u64, &exchanged[block]);
    let (mut reading, mut found) = (log.read_from(|_| Some(true)).unwrap(), Vec::new());
    assert!(read_to(&mut reading, log.durable(), &mut found).is_err());
    assert!(found == log.below(log.written[2].0), "{} records", found.len());
}

#[test]
fn files_that_are_not_begun_disturb_nobody() {
    let mut log = Log::new(SMALL);
    let early = log.durable();
    log.fill(60);
    let last = *log.segments().last().unwrap();
    let former = log.files.bytes(FileName::Segment(log.segments()[0]));
    let end = log.durable();
    for (index, length) in [0, 512, BLOCK, 3 * BLOCK + 512, 64 << 10, 64 << 10].iter().enumerate() {
        let sequence = last.sequence + 10 + index as u64;
        let name = FileName::Segment(SegmentName { sequence, salt: sequence, ..last });
        log.files.create(name, 64 << 10).unwrap();
        if index == 5 {
            // A segment that is used again keeps what stood behind its header.
            log.files.overwrite(name, BLOCK as u64, &former[BLOCK..]);
        }
        log.files.truncate(name, *length as u64);
        let mut found = Vec::new();
        read_to(&mut log.read(), end, &mut found).unwrap();
        assert!(found == log.below(end));
    }
    // Nor do headers above the end.
    let begun = Reading::begin(Arc::clone(&log.files), OWNER, 1, early, |_| None);
    let (mut reading, mut found) = (begun.unwrap(), Vec::new());
    read_to(&mut reading, end, &mut found).unwrap();
    assert!(found == log.below(end));
}

/// What the records of group 0 say for this number.
fn older_than(number: u64) -> impl Fn(&Record<'_>) -> Option<bool> {
    move |record| {
        let says = u64::from_le_bytes(record.bytes[..8].try_into().unwrap());
        (record.group == Group(0)).then_some(says <= number)
    }
}

#[test]
fn a_reading_begins_one_segment_in_front_of_the_newest_that_is_old() {
    let mut log = Log::new(SMALL);
    for number in 0..100_u64 {
        // Records of the other group say nothing, though they stand first.
        for group in [Group(1), Group(0)] {
            let says = if group == Group(0) { number } else { 1 };
            log.append(group, [&says.to_le_bytes()[..], &[0; 3000]].concat());
            log.turn();
        }
    }
    let segments = log.segments();
    assert!(segments.len() > 6);
    let numbers = |name: &SegmentName| {
        let bytes = log.files.bytes(FileName::Segment(*name));
        let segment = Segment::read(&bytes, Some(*name)).unwrap();
        let records = segment.blocks.iter().flat_map(|block| segment.records_of(block));
        let ours = records.filter(|record| record.group == Group(0));
        ours.map(|record| u64::from_le_bytes(record.bytes[..8].try_into().unwrap())).collect()
    };
    let numbers: Vec<Vec<u64>> = segments.iter().map(numbers).collect();
    for wanted in 0..110 {
        let mut reading = log.read_from(older_than(wanted)).unwrap();
        let mut first = None;
        let until = log.durable();
        let visit = |record: &Record<'_>| {
            if record.group == Group(0) {
                let says = u64::from_le_bytes(record.bytes[..8].try_into().unwrap());
                first.get_or_insert(says);
            }
        };
        assert_eq!(reading.go_on(until, u64::MAX, visit), Ok(Progress::End));
        let newest = numbers.iter().rposition(|numbers| numbers.first() <= Some(&wanted));
        let from = newest.unwrap_or(0).saturating_sub(1);
        assert_eq!(first, numbers[from].first().copied(), "{wanted}");
    }
    // The oldest that can be read is where it ends at last.
    log.files.flip(FileName::Segment(segments[2]), 800);
    let mut reading = log.read_from(older_than(0)).unwrap();
    let mut first = None;
    reading.go_on(log.durable(), u64::MAX, |record| _ = first.get_or_insert(record.lsn)).unwrap();
    let name = segments[3];
    let bytes = log.files.bytes(FileName::Segment(name));
    assert!(first > Some(Segment::read(&bytes, Some(name)).unwrap().base()));
}

/// A record with its number in its group.
fn numbered(number: u64) -> Vec<u8> {
    let length = 8 + (number * 7919 % 5000) as usize;
    let mut bytes = vec![number as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Appends so many records of a group, and needs all of them or no more than the last ones.
fn append(handle: &mut Handle, group: Group, records: u64, all: bool) {
    for number in 1..=records {
        let bytes = numbered(number);
        while handle.append(group, 1, &[&bytes]).is_err() {
            thread::sleep(Duration::from_micros(50));
        }
        handle.flush();
        if number % 64 == 0 && !all {
            while handle.keep_from_record(group, number - 50).is_err() {
                thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

/// Reads until the log is over, beginning anew where something is gone. Returns how often that was, and the last numbers.
fn follow<F: Files>(
    files: &Arc<F>,
    start: u64,
    end: &LogEnd,
    over: &AtomicBool,
    nap: Duration,
) -> (usize, BTreeMap<Group, u64>) {
    let mut gone = 0;
    loop {
        let begun = Reading::begin(Arc::clone(files), OWNER, start, end.get(), |_| None);
        let Ok(mut reading) = begun else { continue };
        let mut last = BTreeMap::new();
        loop {
            let was_over = over.load(Ordering::SeqCst);
            let read = reading.go_on(end.get(), 20_000, |record| {
                let number = u64::from_le_bytes(record.bytes[..8].try_into().unwrap());
                assert!(record.bytes == numbered(number));
                let before = last.insert(record.group, number);
                assert!(before.is_none_or(|before| before + 1 == number), "{before:?}, {number}");
            });
            match read {
                Ok(Progress::End) if was_over => return (gone, last),
                Ok(_) => {}
                Err(_) => break,
            }
            thread::sleep(nap);
        }
        gone += 1;
    }
}

fn is_followed<F: Files + 'static>(files: &Arc<F>, all: bool) {
    const RECORDS: u64 = 3000;
    let options = Options { segment_bytes: 256 << 10, block_bytes_max: 32 << 10, ..SMALL };
    let recovery = Recovery::read(files.as_ref(), OWNER, &[]).unwrap();
    let (start, writer) = (recovery.start(), recovery.writer(options, 3));
    let threads = DiskOptions { ring_bytes: 64 << 10, ..DiskOptions::default() };
    let failed = Box::new(|error: &_| panic!("{error}"));
    let wakes: Vec<skein_wal::disk::Wake> = vec![Box::new(|| ()), Box::new(|| ())];
    let (disk, mut handles) =
        Disk::start(Arc::clone(files), writer, threads, wakes, failed).unwrap();
    let (end, over) = (handles[0].shared_log_end(), AtomicBool::new(false));
    thread::scope(|scope| {
        let follow = |nap| follow(files, start, &end, &over, nap);
        let fast = scope.spawn(move || follow(Duration::ZERO));
        let slow = scope.spawn(move || follow(Duration::from_millis(5)));
        thread::scope(|scope| {
            for (handle, group) in handles.iter_mut().zip([Group(0), Group(1)]) {
                scope.spawn(move || append(handle, group, RECORDS, all));
            }
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        while handles.iter().any(|handle| handle.durable() < RECORDS) {
            assert!(Instant::now() < deadline, "all of it is to be durable");
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::SeqCst);
        let last = BTreeMap::from([(Group(0), RECORDS), (Group(1), RECORDS)]);
        let (fast, slow) = (fast.join().unwrap(), slow.join().unwrap());
        assert_eq!((&fast.1, &slow.1), (&last, &last));
        // Segments were used again before the slow one had read them.
        assert_eq!((slow.0 > 0, fast.0 > 0 && all), (!all, false));
    });
    assert_eq!(disk.status().sizes.recycled > 10, !all, "{:?}", disk.status().sizes);
}

#[test]
fn a_log_with_threads_is_followed() {
    for all in [true, false] {
        is_followed(&Arc::new(Medium::new(1)), all);
    }
}

#[test]
fn so_it_is_in_a_directory() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (name, all) in [("all", true), ("some", false)] {
        let directory = Directory::open(&scratch.path().join(name)).unwrap();
        is_followed(&Arc::new(directory), all);
    }
}

#[test]
fn files_are_listed_while_others_get_new_names() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let files = Directory::open(&scratch.path().join("log")).unwrap();
    let [first, second, other] = [1, 2, 3].map(FileName::Spare);
    files.create(first, 4096).unwrap();
    files.create(other, 8192).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2000 {
                files.rename(first, second).unwrap();
                files.rename(second, first).unwrap();
            }
            over.store(true, Ordering::SeqCst);
        });
        while !over.load(Ordering::SeqCst) {
            let listed = files.list().unwrap();
            assert!(listed.contains(&(other, 8192)), "{listed:?}");
        }
    });
}
