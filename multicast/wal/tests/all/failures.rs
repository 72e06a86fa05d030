//! What the threads do when a disk fails, or when somebody else finds that it did.

use std::io;
use std::sync::{Arc, Mutex};

use crate::disk::{Bell, Held, OWNER, SMALL, replay, write};
use skein_wal::disk::{DiskError, DiskOptions};
use skein_wal::files::FileError;
use skein_wal::{Disk, Group, Recovery};

fn gone() -> FileError {
    let source = io::Error::other("the directory was removed");
    FileError::Io { operation: "find", file: "the directory".to_owned(), source }
}

/// The files of a log that was given up may be nobody's: what still reaches them is not durable.
#[test]
fn nothing_is_written_or_called_durable_after_the_log_was_given_up() {
    let files = Arc::new(Held::new());
    let bell = Arc::new(Bell::default());
    let writer = Recovery::read(&*files, OWNER, &[]).unwrap().writer(SMALL, 77);
    let (options, wakes) = (DiskOptions::default(), vec![bell.wake()]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::clone(&told);
    let failed = Box::new(move |error: &DiskError| errors.lock().unwrap().push(error.to_string()));
    let (disk, mut handles) =
        Disk::start(Arc::clone(&files), writer, options, wakes, failed).unwrap();
    write(&mut handles[0], Group(0), 1, &[b"before"]).unwrap();
    bell.until("it is durable", || handles[0].durable() == 1);
    files.hold_next();
    write(&mut handles[0], Group(0), 1, &[b"under way"]).unwrap();
    files.until_held();
    handles[0].append(Group(0), 1, &[b"in the ring"]).unwrap();
    disk.fail(gone());
    disk.fail(gone());
    assert_eq!(told.lock().unwrap().len(), 1, "once");
    assert!(handles[0].failed());
    files.release();
    drop(disk);
    assert_eq!(handles[0].durable(), 1);
    assert_eq!(replay(&*files)[&Group(0)], [b"before".to_vec(), b"under way".to_vec()]);
}
