//! The layer that loses what is not synced, over the simulated disk and under the threads.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use skein_wal::Aligned;
use skein_wal::files::{
    FileError, FileName, Files, Medium, Orders, SegmentName, Volatile, perform,
};
use skein_wal::format::BLOCK;
use skein_wal::{Group, Options, Owner, Recovery, Verdict};

const OWNER: Owner = Owner { cluster: [3; 16], node: 2 };
const BYTES: u64 = 8 * BLOCK as u64;

const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    first_bytes: 32 << 10,
    block_bytes_max: 16 << 10,
    groups_max: 4,
    table_bytes_max: 64,
    in_flight_max: 4,
    waiting_max: 8,
    spare_max: 1,
    files_max: usize::MAX,
};

/// A file of orders in a directory of its own.
struct Ordered {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Ordered {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("orders");
        fs::write(&path, text).unwrap();
        Self { _dir: dir, path }
    }

    /// A process that begins on what is below.
    fn over<'a>(&self, medium: &'a Medium) -> Volatile<&'a Medium> {
        Volatile::new(medium, Orders::at(&self.path).unwrap().unwrap()).unwrap()
    }
}

fn segment(sequence: u64) -> FileName {
    FileName::Segment(SegmentName { sequence, start: 1, salt: 9 })
}

fn names(files: &impl Files) -> Vec<FileName> {
    let mut names: Vec<_> = files.list().unwrap().into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

fn block(byte: u8) -> Aligned {
    let mut block = Aligned::new(BLOCK);
    block.bytes_mut().fill(byte);
    block
}

#[test]
fn names_last_from_the_sync_of_the_directory_on() {
    let mut lost = 0;
    for seed in 0..40 {
        let (medium, ordered) = (Medium::new(1), Ordered::new(&format!("seed={seed} pause_us=0")));
        let files = ordered.over(&medium);
        files.create(FileName::Spare(1), BYTES).unwrap();
        files.rename(FileName::Spare(1), segment(1)).unwrap();
        assert_eq!(names(&files), [segment(1)], "for the process it is there");
        files.write(segment(1), 0, block(5).bytes()).unwrap();
        let killed = names(&ordered.over(&medium));
        assert!(
            [&[][..], &[FileName::Spare(1)], &[segment(1)]].contains(&&killed[..]),
            "some of the changes, in their order: {killed:?}"
        );
        lost += u32::from(killed != [segment(1)]);

        let files = ordered.over(&medium);
        for name in killed {
            files.remove(name).unwrap();
        }
        files.create(segment(2), BYTES).unwrap();
        files.write(segment(2), 0, block(6).bytes()).unwrap();
        files.sync_directory().unwrap();
        let files = ordered.over(&medium);
        assert_eq!(names(&files), [segment(2)]);
        let mut read = Aligned::new(BLOCK);
        files.read(segment(2), 0, read.bytes_mut()).unwrap();
        assert!(read.bytes().iter().all(|byte| *byte == 6), "what was written before is there");
    }
    assert!(lost > 10, "lost {lost} times of 40");
}

#[test]
fn a_write_under_way_is_torn_in_sectors() {
    let medium = Medium::new(1);
    let ordered = Ordered::new("seed=3 pause_us=3000");
    let files = ordered.over(&medium);
    files.create(segment(1), BYTES).unwrap();
    files.sync_directory().unwrap();
    let mut bytes = Aligned::new(BYTES as usize);
    bytes.bytes_mut().fill(7);
    let (mut torn_blocks, mut torn_sectors, mut out_of_order) = (false, false, false);
    thread::scope(|scope| {
        let write = scope.spawn(|| files.write(segment(1), 0, bytes.bytes()).unwrap());
        while !write.is_finished() {
            let now = medium.bytes(segment(1));
            let whole: Vec<bool> =
                now.chunks(BLOCK).map(|block| block.iter().all(|byte| *byte == 7)).collect();
            torn_blocks |= whole.contains(&true) && whole.contains(&false);
            out_of_order |= whole.windows(2).any(|pair| pair == [false, true]);
            torn_sectors |= now.chunks(BLOCK).any(|block| block.contains(&0) && block.contains(&7));
            assert!(now.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            thread::sleep(Duration::from_micros(100));
        }
    });
    assert!(torn_blocks && torn_sectors && out_of_order);
    assert!(medium.bytes(segment(1)).iter().all(|byte| *byte == 7), "when it returns it is whole");
}

#[test]
fn a_disk_that_lies_loses_what_it_called_durable() {
    let (medium, ordered) = (Medium::new(1), Ordered::new("lies pause_us=0"));
    medium.create(segment(1), BYTES).unwrap();
    let files = ordered.over(&medium);
    files.write(segment(1), BLOCK as u64, block(7).bytes()).unwrap();
    files.sync(segment(1)).unwrap();
    let mut read = Aligned::new(2 * BLOCK);
    files.read(segment(1), 0, read.bytes_mut()).unwrap();
    assert_eq!((read.bytes()[0], read.bytes()[BLOCK]), (0, 7), "as long as the process lives");
    assert!(medium.bytes(segment(1)).iter().all(|byte| *byte == 0));
}

#[test]
fn what_is_ordered_goes_wrong() {
    let (medium, ordered) = (Medium::new(1), Ordered::new("fail=sync"));
    medium.create(segment(1), BYTES).unwrap();
    let files = ordered.over(&medium);
    let errno = |result: Result<(), FileError>| match result {
        Err(FileError::Io { source, .. }) => source.raw_os_error(),
        Err(FileError::Full { .. } | FileError::Bound { .. }) => Some(0),
        Ok(()) => None,
    };
    let of = |error: rustix::io::Errno| Some(error.raw_os_error());
    assert_eq!(errno(files.sync(segment(1))), of(rustix::io::Errno::IO));
    assert_eq!(errno(files.sync(segment(1))), None, "once");
    fs::write(&ordered.path, "room=0").unwrap();
    assert_eq!(errno(files.create(segment(2), BYTES)), Some(0));
    assert_eq!(errno(files.write(segment(1), 0, block(1).bytes())), None, "it has its space");
    fs::write(&ordered.path, "read-only").unwrap();
    assert_eq!(errno(files.write(segment(1), 0, block(2).bytes())), of(rustix::io::Errno::ROFS));
    fs::remove_file(&ordered.path).unwrap();
    assert_eq!(errno(files.create(segment(2), BYTES)), None, "there is room again");
    fs::write(&ordered.path, "stall_ms=200").unwrap();
    let since = std::time::Instant::now();
    files.sync(segment(1)).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(200));
}

/// A log that is written until the disk below fails at some operation, which is where its process is killed. Returns how
/// many records it called durable, and whether the run came to its end.
fn write_until_killed(files: &impl Files, records: u64) -> Result<u64, u64> {
    let mut called_durable = 0;
    let mut run = || -> Result<(), FileError> {
        let read = |error| match error {
            skein_wal::RecoverError::File(error) => error,
            error => panic!("{error}"),
        };
        skein_wal::files::sync_everything(files)?;
        let recovery = Recovery::read(files, OWNER, &[]).map_err(read)?;
        let mut before = 0;
        recovery.replay(files, |_| before += 1).map_err(read)?;
        let mut writer = recovery.writer(SMALL, 77 + before);
        let mut last = Vec::new();
        let mut number = before;
        while number < records {
            while let Some(task) = writer.next_task() {
                let result = perform(files, &task);
                writer.performed(task, result)?;
            }
            while let Some(flush) = writer.next_flush() {
                let result = files.write(flush.file(), flush.offset(), flush.bytes());
                writer.flushed(flush, result)?;
            }
            for (number, lsn) in last.drain(..) {
                assert!(writer.durable() > lsn);
                called_durable = number;
            }
            number += 1;
            let bytes = vec![number as u8; 3000 + number as usize];
            match writer.append(Group(0), 1, &[&bytes]) {
                Ok(lsn) => last.push((number, lsn)),
                Err(_) => number -= 1,
            }
        }
        Ok(())
    };
    match run() {
        Ok(()) => Ok(called_durable),
        Err(_) => Err(called_durable),
    }
}

#[test]
fn a_kill_at_any_operation_below_leaves_a_log_with_all_that_was_called_durable() {
    const RECORDS: u64 = 150;
    let (mut at, mut finished) = (1, false);
    while !finished {
        let (medium, ordered) = (Medium::new(1), Ordered::new(&format!("seed={at} pause_us=0")));
        medium.faults(|faults| faults.power_at = Some(at));
        let called_durable =
            match Volatile::new(&medium, Orders::at(&ordered.path).unwrap().unwrap()) {
                Ok(files) => write_until_killed(&files, RECORDS).unwrap_or_else(|called| called),
                Err(_) => 0,
            };
        finished = medium.operations() < at;
        medium.power_loss();
        let files = ordered.over(&medium);
        let recovery = Recovery::read(&files, OWNER, &[]).unwrap();
        assert!(recovery.groups().iter().all(|group| group.verdict == Verdict::Whole), "{at}");
        let mut found = 0;
        recovery
            .replay(&files, |record| {
                found += 1;
                assert_eq!(record.bytes, vec![found as u8; 3000 + found as usize], "{at}");
            })
            .unwrap();
        assert!(found >= called_durable, "killed at {at}: {found} of {called_durable}");
        at += 1 + at / 64;
    }
    assert!(at > 400, "{at}");
}
