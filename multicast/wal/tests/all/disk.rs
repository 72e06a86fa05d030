//! The threads, over the simulated disk and over a real one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use skein_wal::disk::{DiskError, DiskOptions, Handle, SEAL_AFTER, StageError, Wake};
use skein_wal::files::{Directory, FileError, FileName, Files, Medium, OpenError, sync_everything};
use skein_wal::format::BlockKind;
use skein_wal::inspect::{End, Segment};
use skein_wal::{Disk, Group, Lsn, Options, Owner, Recovery, Verdict};

pub(crate) const OWNER: Owner = Owner { cluster: [3; 16], node: 2 };

pub(crate) const SMALL: Options = Options {
    segment_bytes: 256 << 10,
    first_bytes: 64 << 10,
    block_bytes_max: 32 << 10,
    groups_max: 16,
    table_bytes_max: 64,
    in_flight_max: 4,
    waiting_max: 8,
    spare_max: 1,
    files_max: usize::MAX,
};

/// A directory that is gone at the end. Not in `/tmp`, which may be in memory.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A number that rises with each wake-up, and a way to wait for the next.
#[derive(Default)]
pub(crate) struct Bell(Mutex<u64>, Condvar);

impl Bell {
    pub(crate) fn wake(self: &Arc<Self>) -> Wake {
        let bell = Arc::clone(self);
        Box::new(move || {
            *bell.0.lock().unwrap() += 1;
            bell.1.notify_all();
        })
    }

    /// Waits for wake-ups until it holds. A lost wake-up is a failure.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let mut count = self.0.lock().unwrap();
        while !holds() {
            let (next, timeout) = self.1.wait_timeout(count, Duration::from_secs(30)).unwrap();
            assert!(!timeout.timed_out(), "not in 30 s: {what}");
            count = next;
        }
    }
}

pub(crate) fn start<F: Files + 'static>(
    files: &Arc<F>,
    threads: usize,
    wakes: Vec<Wake>,
) -> (Disk<F>, Vec<Handle>) {
    sync_everything(&**files).unwrap();
    let recovery = Recovery::read(&**files, OWNER, &[]).unwrap();
    let options = DiskOptions { threads, ring_bytes: 256 << 10, ..DiskOptions::default() };
    let failed = Box::new(|error: &_| panic!("{error}"));
    Disk::start(Arc::clone(files), recovery.writer(SMALL, 77), options, wakes, failed).unwrap()
}

/// Everything that is there, by group.
pub(crate) fn replay(files: &impl Files) -> BTreeMap<Group, Vec<Vec<u8>>> {
    let recovery = Recovery::read(files, OWNER, &[]).unwrap();
    assert!(recovery.groups().iter().all(|group| group.verdict == Verdict::Whole));
    let mut found: BTreeMap<Group, Vec<Vec<u8>>> = BTreeMap::new();
    let visit = |record: &skein_wal::format::Record<'_>| {
        found.entry(record.group).or_default().push(record.bytes.to_vec());
    };
    recovery.replay(files, visit).unwrap();
    found
}

/// The `number`-th record of a group: of any length, and unlike the others.
fn record(group: u16, number: u64) -> Vec<u8> {
    let length = 8 + (number * 7919 % 3000) as usize;
    let mut bytes = vec![group as u8; length];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn engines_append<F: Files + 'static>(files: &Arc<F>, threads: usize) {
    const ENGINES: u16 = 3;
    const RECORDS: u64 = 400;
    let bells: Vec<Arc<Bell>> = (0..ENGINES).map(|_| Arc::default()).collect();
    let (disk, handles) = start(files, threads, bells.iter().map(Bell::wake).collect());
    thread::scope(|scope| {
        for (group, (mut handle, bell)) in handles.into_iter().zip(&bells).enumerate() {
            let group = group as u16;
            scope.spawn(move || {
                for number in 1..=RECORDS {
                    let bytes = record(group, number);
                    let (a, b) = bytes.split_at(number as usize % bytes.len());
                    bell.until("there is room", || {
                        match write(&mut handle, Group(group), 1, &[a, b]) {
                            Ok(given) => {
                                assert_eq!(given, number);
                                true
                            }
                            Err(StageError::Full) => false,
                            Err(error) => panic!("{error}"),
                        }
                    });
                    if number % 50 == 0 {
                        bell.until("it is durable", || handle.durable() >= number);
                    }
                }
                bell.until("all is durable", || handle.durable() == RECORDS);
            });
        }
    });
    let status = disk.status();
    assert!(status.flushes.count > 10 && status.sizes.segments > 2, "{status:?}");
    disk.stop();
    let found = replay(&**files);
    assert_eq!(found.len(), usize::from(ENGINES));
    for (group, records) in found {
        let expected: Vec<_> = (1..=RECORDS).map(|number| record(group.0, number)).collect();
        assert!(records == expected, "{group}: {} records", records.len());
    }
}

/// Appends a record that is wanted on disk now.
pub(crate) fn write(
    handle: &mut Handle,
    group: Group,
    kind: u8,
    parts: &[&[u8]],
) -> Result<u64, StageError> {
    let appended = handle.append(group, kind, parts);
    handle.flush();
    appended
}

#[test]
fn what_engines_append_is_durable_and_comes_back_in_order() {
    for threads in [1, 2, 4] {
        engines_append(&Arc::new(Medium::new(1)), threads);
    }
}

#[test]
fn so_it_is_on_a_real_disk_over_several_starts() {
    let scratch = scratch();
    let files = Arc::new(Directory::open(&scratch.path().join("log")).unwrap());
    engines_append(&files, 2);
    let bell = Arc::new(Bell::default());
    for start_number in 0..3_u64 {
        let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
        write(&mut handles[0], Group(9), 1, &[&start_number.to_le_bytes()]).unwrap();
        bell.until("it is durable", || handles[0].durable() == 1);
        disk.stop();
        assert_eq!(replay(&*files)[&Group(9)].len() as u64, start_number + 1);
    }
}

#[test]
fn what_no_group_keeps_is_recycled() {
    let scratch = scratch();
    let files = Arc::new(Directory::open(&scratch.path().join("log")).unwrap());
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    let handle = &mut handles[0];
    for number in 1..=600 {
        let group = Group((number % 2) as u16);
        bell.until("there is room", || write(handle, group, 1, &[&[1; 8000]]).is_ok());
        if number % 20 == 0 {
            bell.until("it is durable", || handle.durable() >= number);
            for group in [Group(0), Group(1)] {
                handle.keep_from_record(group, number).unwrap();
            }
        }
    }
    let sizes = disk.status().sizes;
    assert!(sizes.recycled > 10 && sizes.segments < 8, "{sizes:?}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while handles[0].log_bytes() != disk.status().sizes.bytes {
        assert!(Instant::now() < deadline, "engines are told what is needed");
        thread::sleep(Duration::from_millis(1));
    }
    disk.stop();
    let files = files.list().unwrap().len();
    assert!(files < 10, "{files} files");
}

#[test]
fn an_idle_log_gives_back_the_segments_of_many_starts() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    for _ in 0..9 {
        let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
        write(&mut handles[0], Group(4), 5, &[b"some bytes"]).unwrap();
        bell.until("it is durable", || handles[0].durable() == 1);
        disk.stop();
    }
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    assert_eq!(disk.status().sizes.segments, 10);
    write(&mut handles[0], Group(4), 5, &[b"all that is needed"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.status().flushes.count < 2 {
        assert!(Instant::now() < deadline, "the log is idle, and sealed");
        thread::sleep(Duration::from_millis(1));
    }
    handles[0].keep_from_record(Group(4), 1).unwrap();
    while disk.status().sizes.segments > 3 || files.list().unwrap().len() > 5 {
        assert!(Instant::now() < deadline, "{:?}", disk.status().sizes);
        thread::sleep(Duration::from_millis(5));
    }
    disk.stop();
    assert_eq!(replay(&*files)[&Group(4)], [b"all that is needed".to_vec()]);
}

#[test]
fn a_start_reads_what_it_needs_while_it_gives_other_segments_back() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    for _ in 0..5 {
        let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
        write(&mut handles[0], Group(4), 5, &[b"some bytes"]).unwrap();
        bell.until("it is durable", || handles[0].durable() == 1);
        disk.stop();
    }
    let before = files.snapshot();
    let old: Vec<FileName> = files.list().unwrap().into_iter().map(|(name, _)| name).collect();
    let old: Vec<FileName> =
        old.into_iter().filter(|name| matches!(name, FileName::Segment(_))).collect();
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    write(&mut handles[0], Group(4), 5, &[b"all that is needed"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    handles[0].keep_from_record(Group(4), 1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.status().sizes.segments > 3 {
        assert!(Instant::now() < deadline, "{:?}", disk.status().sizes);
        thread::sleep(Duration::from_millis(5));
    }
    disk.stop();
    // As if the process had ended before it gave anything back.
    files.restore(&before, Some(&old));
    let spares = files.list().unwrap().into_iter().map(|(name, _)| name);
    for spare in spares.filter(|name| matches!(name, FileName::Spare(_))) {
        files.remove(spare).unwrap();
    }
    sync_everything(&*files).unwrap();
    let recovery = Recovery::read(&*files, OWNER, &[]).unwrap();
    let options = DiskOptions { ring_bytes: 256 << 10, ..DiskOptions::default() };
    let failed = Box::new(|error: &_| panic!("{error}"));
    let writer = recovery.writer(SMALL, 78);
    let (_disk, _handles) =
        Disk::start(Arc::clone(&files), writer, options, vec![bell.wake()], failed).unwrap();
    let there = |name: &FileName| files.list().unwrap().iter().any(|(other, _)| other == name);
    while there(&old[0]) {
        assert!(Instant::now() < deadline, "it is used again, or removed");
        thread::sleep(Duration::from_millis(1));
    }
    let mut found = Vec::new();
    recovery.replay_group(Group(4), &*files, |record| found.push(record.bytes.to_vec())).unwrap();
    assert_eq!(found, [b"all that is needed".to_vec()]);
}

#[test]
fn an_idle_log_is_sealed_and_can_be_shown() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    write(&mut handles[0], Group(4), 5, &[b"some bytes"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    let segments = files.list().unwrap().into_iter();
    let mut segments = segments.filter_map(|(file, _)| match file {
        FileName::Segment(name) => Some(name),
        FileName::Spare(_) => None,
    });
    let first = segments.find(|name| name.sequence == 1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let bytes = files.bytes(FileName::Segment(first));
        let shown = Segment::read(&bytes, Some(first)).unwrap();
        assert_eq!((shown.records, &shown.faults[..]), (1, &[][..]));
        let record = shown.records_of(&shown.blocks[0]).next().unwrap();
        assert_eq!((record.group, record.kind, record.bytes), (Group(4), 5, &b"some bytes"[..]));
        if let [_, seal] = &shown.blocks[..] {
            assert_eq!(seal.header.kind, BlockKind::Seal);
            assert_eq!(shown.end, End::Open { offset: seal.offset + 4096 });
            break;
        }
        assert!(Instant::now() < deadline, "not sealed: {shown:?}");
        thread::sleep(Duration::from_millis(5));
    }
    drop(disk);
}

/// A disk of which one write can be held up, and an operation can fail.
pub(crate) struct Held {
    pub(crate) medium: Medium,
    /// Whether the next write is to be held, and whether one is.
    hold: Mutex<(bool, bool)>,
    changed: Condvar,
    /// The operation that fails.
    fails: Mutex<Option<&'static str>>,
}

impl Held {
    pub(crate) fn new() -> Self {
        let (hold, changed) = (Mutex::new((false, false)), Condvar::new());
        Self { medium: Medium::new(1), hold, changed, fails: Mutex::default() }
    }

    /// From now on this operation fails.
    pub(crate) fn fail(&self, operation: &'static str) {
        *self.fails.lock().unwrap() = Some(operation);
    }

    fn begin(&self, operation: &'static str, name: FileName) -> Result<(), FileError> {
        if *self.fails.lock().unwrap() != Some(operation) {
            return Ok(());
        }
        let source = std::io::Error::other("the disk is gone");
        Err(FileError::Io { operation, file: name.to_string(), source })
    }

    /// Holds the next write up.
    pub(crate) fn hold_next(&self) {
        self.hold.lock().unwrap().0 = true;
    }

    /// Waits until a write is held up.
    pub(crate) fn until_held(&self) {
        drop(self.changed.wait_while(self.hold.lock().unwrap(), |hold| !hold.1).unwrap());
    }

    pub(crate) fn release(&self) {
        self.hold.lock().unwrap().1 = false;
        self.changed.notify_all();
    }
}

impl Files for Held {
    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut hold = self.hold.lock().unwrap();
        if std::mem::take(&mut hold.0) {
            hold.1 = true;
            self.changed.notify_all();
            hold = self.changed.wait_while(hold, |hold| hold.1).unwrap();
        }
        drop(hold);
        self.begin("write to", name)?;
        self.medium.write(name, offset, bytes)
    }

    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.medium.list()
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        self.begin("make", name)?;
        self.medium.create(name, bytes)
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.medium.read(name, offset, into)
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        self.medium.sync(name)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.medium.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.medium.remove(name)
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        self.medium.sync_directory()
    }
}

#[test]
fn a_later_write_that_ends_first_makes_nothing_durable() {
    let files = Arc::new(Held::new());
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    write(&mut handles[0], Group(0), 1, &[b"before"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    files.hold_next();
    write(&mut handles[0], Group(0), 1, &[b"held up"]).unwrap();
    files.until_held();
    let flushes = disk.status().flushes.count;
    let mut seen = Vec::new();
    for later in 1..=3 {
        write(&mut handles[0], Group(0), 1, &[b"later"]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while disk.status().flushes.count < flushes + later {
            assert!(Instant::now() < deadline, "the other thread writes meanwhile");
            thread::sleep(Duration::from_millis(1));
        }
        seen.push(handles[0].durable());
    }
    files.release();
    assert_eq!(seen, [1, 1, 1], "one before them is not durable");
    bell.until("all is durable", || handles[0].durable() == 5);
}

#[test]
fn a_full_disk_makes_appends_wait_until_there_is_room() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    files.faults(|faults| faults.capacity = Some(2 * SMALL.segment_bytes));
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.status().short.is_none() {
        _ = write(&mut handles[0], Group(0), 1, &[&[1; 4000]]);
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    while write(&mut handles[0], Group(0), 1, &[&[1; 4000]]).is_ok() {
        thread::sleep(Duration::from_micros(100));
    }
    assert!(!handles[0].failed());
    files.faults(|faults| faults.capacity = None);
    let appended = handles[0].appended();
    bell.until("there is room again", || handles[0].durable() == appended);
    assert!(disk.status().short.is_none());
}

/// All bytes of the files.
fn bytes(files: &impl Files) -> u64 {
    files.list().unwrap().into_iter().map(|(_, length)| length).sum()
}

#[test]
fn starts_that_write_nothing_take_no_space() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    write(&mut handles[0], Group(4), 5, &[b"some bytes"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    disk.stop();
    for number in 2..30 {
        let recovery = Recovery::read(&*files, OWNER, &[]).unwrap();
        assert_eq!((recovery.start(), recovery.starts_kept()), (number, 1));
        let (disk, _handles) = start(&files, 2, vec![bell.wake()]);
        // A start that ends at once may not come to removing what it does not use.
        let most = 8 * SMALL.first_bytes + 4 * SMALL.segment_bytes;
        let deadline = Instant::now() + Duration::from_secs(30);
        while bytes(&*files) > most {
            assert!(Instant::now() < deadline, "{} bytes at start {number}", bytes(&*files));
            thread::sleep(Duration::from_millis(1));
        }
        disk.stop();
    }
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    write(&mut handles[0], Group(4), 5, &[b"and more"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    disk.stop();
    assert_eq!(replay(&*files)[&Group(4)], [b"some bytes".to_vec(), b"and more".to_vec()]);
}

#[test]
fn a_start_that_finds_no_space_begins_in_what_an_earlier_one_prepared() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, _handles) = start(&files, 2, vec![bell.wake()]);
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.status().sizes.files_bytes < SMALL.first_bytes + SMALL.segment_bytes {
        assert!(Instant::now() < deadline, "a successor is prepared");
        thread::sleep(Duration::from_millis(1));
    }
    disk.stop();
    for number in 0..5_u64 {
        let full = bytes(&*files);
        files.faults(|faults| faults.capacity = Some(full));
        let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
        write(&mut handles[0], Group(4), 5, &[&number.to_le_bytes()]).unwrap();
        bell.until("it is durable", || handles[0].durable() == 1);
        let deadline = Instant::now() + Duration::from_secs(30);
        while disk.status().short.is_none() {
            assert!(Instant::now() < deadline, "there is no space for a successor");
            thread::sleep(Duration::from_millis(1));
        }
        // With space for one more, the next start finds something prepared.
        files.faults(|faults| faults.capacity = Some(full + SMALL.segment_bytes));
        while disk.status().short.is_some() {
            assert!(Instant::now() < deadline, "there is space for a successor");
            thread::sleep(Duration::from_millis(1));
        }
        disk.stop();
        let values: Vec<_> = (0..=number).map(|number| number.to_le_bytes().to_vec()).collect();
        assert_eq!(replay(&*files)[&Group(4)], values);
    }
    // Nothing is prepared.
    let prepared = |name: &FileName| {
        let FileName::Segment(name) = name else { return true };
        let bytes = files.bytes(FileName::Segment(*name));
        bytes.iter().all(|byte| *byte == 0)
    };
    let names: Vec<FileName> = files.list().unwrap().into_iter().map(|(name, _)| name).collect();
    for name in names.into_iter().filter(prepared) {
        files.remove(name).unwrap();
    }
    sync_everything(&*files).unwrap();
    let full = bytes(&*files);
    files.faults(|faults| faults.capacity = Some(full + SMALL.first_bytes - 1));
    let writer = Recovery::read(&*files, OWNER, &[]).unwrap().writer(SMALL, 79);
    let wakes = vec![bell.wake()];
    let started =
        Disk::start(Arc::clone(&files), writer, DiskOptions::default(), wakes, Box::new(|_| {}));
    let error = started.expect_err("no space");
    assert!(matches!(error, DiskError::File(FileError::Full { .. })), "{error}");
}

#[test]
fn an_error_of_the_disk_is_told_once_and_ends_everything() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let errors = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&errors);
    let writer = Recovery::read(&*files, OWNER, &[]).unwrap().writer(SMALL, 1);
    let failed = Box::new(move |_: &_| _ = counted.fetch_add(1, Ordering::SeqCst));
    let options = DiskOptions::default();
    let (disk, mut handles) =
        Disk::start(Arc::clone(&files), writer, options, vec![bell.wake()], failed).unwrap();
    write(&mut handles[0], Group(0), 1, &[b"fine"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    let at = files.operations() + 1;
    files.faults(|faults| faults.power_at = Some(at));
    write(&mut handles[0], Group(0), 1, &[b"lost"]).unwrap();
    bell.until("it failed", || handles[0].failed());
    assert_eq!(write(&mut handles[0], Group(0), 1, &[]), Err(StageError::Failed));
    drop(disk);
    assert_eq!(errors.load(Ordering::SeqCst), 1);
}

#[test]
fn a_record_that_nobody_waits_for_is_written_with_the_next_one() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake(), bell.wake()]);
    write(&mut handles[0], Group(0), 1, &[b"waited for"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    let deadline = Instant::now() + Duration::from_secs(30);
    while disk.status().flushes.count < 2 {
        assert!(Instant::now() < deadline, "the log is idle, and sealed");
        thread::sleep(Duration::from_millis(1));
    }
    handles[0].append(Group(0), 1, &[b"not waited for"]).unwrap();
    thread::sleep(3 * SEAL_AFTER);
    assert_eq!((handles[0].durable(), disk.status().flushes.count), (1, 2));
    // Another engine's record takes it along.
    write(&mut handles[1], Group(1), 1, &[b"waited for"]).unwrap();
    bell.until("both are durable", || handles[1].durable() == 1);
    assert_eq!(handles[0].durable(), 2);
    handles[1].append(Group(1), 1, &[b"the last"]).unwrap();
    disk.stop();
    assert_eq!(replay(&*files)[&Group(1)], [b"waited for".to_vec(), b"the last".to_vec()]);
}

#[test]
fn a_request_that_is_too_long_is_refused_and_an_append_allocates_nothing() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (_disk, mut handles) = start(&files, 1, vec![bell.wake()]);
    let long = vec![0; 200 << 10];
    let refused = write(&mut handles[0], Group(0), 1, &[&long]);
    assert!(matches!(refused, Err(StageError::TooLong { .. })));
    write(&mut handles[0], Group(0), 1, &[&[1; 100]]).unwrap();
    let info = allocation_counter::measure(|| {
        for _ in 0..50 {
            write(&mut handles[0], Group(0), 1, &[&[1; 100], &[2; 100]]).unwrap();
            handles[0].table(Group(0), &[1; 20]).unwrap();
            handles[0].keep_from(Group(0), Lsn(1)).unwrap();
        }
    });
    assert_eq!(info.count_total, 0);
    bell.until("all is durable", || handles[0].durable() == 51);
}

#[test]
fn a_file_system_in_memory_is_refused() {
    match Directory::open(&PathBuf::from("/dev/shm/skein-wal-test")) {
        Err(error @ OpenError::Volatile { .. }) => {
            assert!(error.to_string().contains("tmpfs"), "{error}");
        }
        other => println!("no tmpfs in /dev/shm: {other:?}"),
    }
    _ = std::fs::remove_dir("/dev/shm/skein-wal-test");
}

/// Set for a child, which appends to the log there until it is killed.
const CHILD: &str = "SKEIN_WAL_TEST_CHILD";

#[test]
fn what_a_killed_process_called_durable_comes_back() {
    use std::io::{BufRead, BufReader};
    if let Ok(path) = std::env::var(CHILD) {
        return append_until_killed(&PathBuf::from(path));
    }
    let scratch = scratch();
    let path = scratch.path().join("log");
    let mut called_durable = 0;
    for round in 0..5_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "disk::what_a_killed_process_called_durable_comes_back",
                "--nocapture",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // What the test runner prints, then numbers.
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok());
        for number in numbers.take(200 + round as usize * 150) {
            called_durable = number;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let files = Directory::open(&path).unwrap();
        let found = replay(&files).remove(&Group(0)).unwrap_or_default();
        assert!(found.len() as u64 >= called_durable, "{} of {called_durable}", found.len());
        for (at, bytes) in found.iter().enumerate() {
            assert_eq!(*bytes, record(0, at as u64 + 1));
        }
        called_durable = found.len() as u64;
    }
    assert!(called_durable >= 1000, "{called_durable}");
}

fn append_until_killed(path: &std::path::Path) {
    let files = Arc::new(Directory::open(path).unwrap());
    let before = replay(&*files).remove(&Group(0)).map_or(0, |records| records.len() as u64);
    let bell = Arc::new(Bell::default());
    let (_disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    for number in 1.. {
        let bytes = record(0, before + number);
        bell.until("there is room", || write(&mut handles[0], Group(0), 1, &[&bytes]).is_ok());
        if number % 3 == 0 {
            bell.until("some are durable", || handles[0].durable() + 5 >= number);
            println!("{}", before + handles[0].durable());
        }
    }
}
