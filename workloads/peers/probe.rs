//! Time that a disk by itself takes for an append that a majority of three replicas has: the measure of a durable put.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use rustix::fs::OFlags;

use crate::{Came, Load, Outcome, histogram};

/// Files, as there are replicas; an append is done when it is durable in the second of them.
const FILES: usize = 3;
const BLOCK: usize = 4096;
/// Blocks of a file, which are written before and then again from the first one on.
const BLOCKS: u64 = 4096;

/// Blocks of zeroes at an address that direct I/O accepts.
#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

/// One writer a file, all of them at once; `load.clients` is not considered.
pub(crate) fn run(directory: &str, load: Load) -> Outcome<Came> {
    let paths: Vec<_> =
        (0..FILES).map(|i| Path::new(directory).join(format!("probe-{i}"))).collect();
    let files = paths.iter().map(|path| filled(path)).collect::<std::io::Result<Vec<_>>>()?;
    let (start, finish) = (Barrier::new(FILES + 1), Barrier::new(FILES + 1));
    let over = AtomicBool::new(false);
    let took: [AtomicU64; FILES] = Default::default();
    let mut nanoseconds = histogram();
    let begun = Instant::now();
    thread::scope(|scope| {
        for (file, took) in files.iter().zip(&took) {
            let (start, finish, over) = (&start, &finish, &over);
            scope.spawn(move || {
                let block = Aligned([0; BLOCK]);
                for number in 0.. {
                    start.wait();
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    let at = Instant::now();
                    let written = file.write_all_at(&block.0, number % BLOCKS * BLOCK as u64);
                    let passed = written.map_or(u64::MAX, |()| at.elapsed().as_nanos() as u64);
                    took.store(passed, Ordering::Relaxed);
                    finish.wait();
                }
            });
        }
        while begun.elapsed() < load.time {
            start.wait();
            finish.wait();
            let mut times = took.each_ref().map(|it| it.load(Ordering::Relaxed));
            times.sort_unstable();
            nanoseconds.saturating_record(times[FILES / 2]);
        }
        over.store(true, Ordering::Relaxed);
        start.wait();
    });
    let seconds = begun.elapsed().as_secs_f64();
    for path in paths {
        fs::remove_file(path)?;
    }
    Ok(Came { nanoseconds, seconds, errors: 0, led_anew: None })
}

/// A file whose blocks are on disk, to be written directly and durably.
fn filled(path: &Path) -> std::io::Result<File> {
    let flags = (OFlags::DIRECT | OFlags::DSYNC).bits().cast_signed();
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .custom_flags(flags)
        .open(path)?;
    let block = Aligned([0; BLOCK]);
    for number in 0..BLOCKS {
        file.write_all_at(&block.0, number * BLOCK as u64)?;
    }
    Ok(file)
}
