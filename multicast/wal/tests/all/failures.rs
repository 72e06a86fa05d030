//! The disk threads end when a disk fails, or when somebody else finds that it did.

use std::error::Error;
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::disk::{Bell, Held, OWNER, SMALL, replay, start, write};
use skein_wal::disk::{DiskError, DiskOptions, Handle};
use skein_wal::files::{FileError, FileName, Files, Medium};
use skein_wal::format::BlockKind;
use skein_wal::inspect::Segment;
use skein_wal::{Disk, Group, Recovery};

fn gone() -> FileError {
    let source = io::Error::other("the directory was removed");
    FileError::Io { operation: "find", file: "the directory".to_owned(), source }
}

/// Starts a log, and gives the causes of its failures.
fn begin(
    files: &Arc<Held>,
    bell: &Arc<Bell>,
) -> (Disk<Held>, Vec<Handle>, Arc<Mutex<Vec<String>>>) {
    let writer = Recovery::read(&**files, OWNER, &[]).unwrap().writer(SMALL, 77);
    let (options, wakes) = (DiskOptions::default(), vec![bell.wake()]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::clone(&told);
    let failed = Box::new(move |error: &DiskError| {
        let cause = error.source().map(ToString::to_string);
        errors.lock().unwrap().push(cause.unwrap_or_else(|| error.to_string()));
    });
    let (disk, handles) = Disk::start(Arc::clone(files), writer, options, wakes, failed).unwrap();
    (disk, handles, told)
}

/// The files of a log that was given up may be nobody's: what still reaches them is not durable.
#[test]
fn nothing_is_written_or_called_durable_after_the_log_was_given_up() {
    let files = Arc::new(Held::new());
    let bell = Arc::new(Bell::default());
    let (disk, mut handles, told) = begin(&files, &bell);
    write(&mut handles[0], Group(0), 1, &[b"before"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    files.hold_next();
    write(&mut handles[0], Group(0), 1, &[b"under way"]).unwrap();
    files.until_held();
    handles[0].append(Group(0), 1, &[b"in the ring"]).unwrap();
    disk.fail(gone());
    disk.fail(gone());
    assert!(handles[0].failed());
    files.release();
    drop(disk);
    assert_eq!(told.lock().unwrap().len(), 1, "once");
    assert_eq!(handles[0].durable(), 1);
    assert_eq!(replay(&*files)[&Group(0)], [b"before".to_vec(), b"under way".to_vec()]);
}

/// The error of a write, and that of a thread which makes files, are told with the file and the cause.
#[test]
fn what_was_not_written_is_not_called_durable() {
    for operation in ["write to", "make"] {
        let files = Arc::new(Held::new());
        let bell = Arc::new(Bell::default());
        let (disk, mut handles, told) = begin(&files, &bell);
        write(&mut handles[0], Group(0), 1, &[b"before"]).unwrap();
        bell.until("it is durable", || handles[0].durable() == 1);
        files.fail(operation);
        bell.until("it failed", || {
            _ = write(&mut handles[0], Group(0), 1, &[&[1; 4000]]);
            handles[0].failed()
        });
        drop(disk);
        let told = told.lock().unwrap();
        assert!(matches!(&told[..], [error] if error.contains(operation)), "{told:?}");
        let (found, durable) = (replay(&*files)[&Group(0)].len(), handles[0].durable());
        // A write beside the one that fails may reach the disk, and is not told.
        assert!(durable <= found as u64, "{durable} of {found}");
        assert_eq!(found == 1, operation == "write to");
    }
}

#[test]
fn a_ring_full_of_records_that_nobody_waits_for_is_written() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (_disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    while handles[0].append(Group(0), 1, &[&[1; 4000]]).is_ok() {}
    bell.until("there is room again", || handles[0].durable() > 0);
}

/// Otherwise a last record that rots looks as if it had torn, and is cut silently.
#[test]
fn a_log_that_is_stopped_is_sealed() {
    let files = Arc::new(Medium::new(1));
    let (disk, mut handles) = start(&files, 2, vec![Arc::new(Bell::default()).wake()]);
    write(&mut handles[0], Group(0), 1, &[b"the last"]).unwrap();
    disk.stop();
    let first = files.list().unwrap().into_iter().find_map(|(file, _)| match file {
        FileName::Segment(name) if name.sequence == 1 => Some(name),
        FileName::Segment(_) | FileName::Spare(_) => None,
    });
    let bytes = files.bytes(FileName::Segment(first.unwrap()));
    let blocks = Segment::read(&bytes, first).unwrap().blocks;
    let kinds: Vec<_> = blocks.iter().map(|block| block.header.kind).collect();
    assert_eq!(kinds, [BlockKind::Records, BlockKind::Seal]);
}

#[test]
fn a_log_ends_though_there_is_no_space_for_all_that_was_appended() {
    let files = Arc::new(Medium::new(1));
    let bell = Arc::new(Bell::default());
    let (disk, mut handles) = start(&files, 2, vec![bell.wake()]);
    files.faults(|faults| faults.capacity = Some(0));
    // Records for which there is no segment stay in the ring, until that is full.
    while write(&mut handles[0], Group(0), 1, &[&[1; 4000]]).is_ok()
        || disk.status().short.is_none()
    {
        thread::yield_now();
    }
    let (ends, ended) = channel();
    let stopping = thread::spawn(move || {
        disk.stop();
        ends.send(())
    });
    ended.recv_timeout(Duration::from_secs(30)).expect("it waits for no space");
    stopping.join().unwrap().unwrap();
    assert!(!handles[0].failed() && handles[0].durable() < handles[0].appended());
    let durable = handles[0].durable() as usize;
    assert!(replay(&*files)[&Group(0)].len() >= durable);
}
