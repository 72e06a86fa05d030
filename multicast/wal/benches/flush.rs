//! What durability costs on this machine's disk: `cargo bench -p skein-wal`, in the directory
//! `SKEIN_BENCH_DIR`, by default the target directory.
//!
//! The probe is a bare write of 4 KiB, direct and synced. Everything else is a ratio to it: disks
//! change by the hour, and a figure without the probe beside it says nothing. Rounds of the probe and of
//! the log take turns, so both have the same neighbours.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use skein_wal::disk::{DiskOptions, Wake};
use skein_wal::files::{Directory, FileName, Files};
use skein_wal::format::BLOCK;
use skein_wal::{Aligned, Disk, Group, Options, Owner, Recovery};

const ROUNDS: usize = 3;
const PROBES: usize = 400;
const APPENDS: u64 = 500;
const RECORD: [u8; 100] = [7; 100];

fn main() {
    let parent = std::env::var_os("SKEIN_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let dir = parent.join(format!("skein-wal-bench-{}", std::process::id()));
    let mut probe = Vec::new();
    let paces = [None, Some(Duration::from_micros(50)), Some(Duration::from_micros(10))];
    let mut rows: Vec<(usize, Option<Duration>, Vec<Duration>)> = Vec::new();
    for threads in [1, 2, 3] {
        rows.extend(paces.map(|pace| (threads, pace, Vec::new())));
    }
    for _ in 0..ROUNDS {
        probe.extend(probes(&dir));
        for (threads, pace, took) in &mut rows {
            took.extend(appends(&dir, *threads, *pace));
        }
    }
    let (median, p99) = percentiles(&mut probe);
    println!("probe, 4 KiB: p50 {median:?}, p99 {p99:?}");
    for (threads, pace, mut took) in rows {
        let (p50, p99) = percentiles(&mut took);
        let ratio = |took: Duration| took.as_secs_f64() / median.as_secs_f64();
        let pace =
            pace.map_or_else(|| "one after the other".to_owned(), |p| format!("one in {p:?}"));
        println!(
            "100 B durable, {threads} threads, {pace:19}: p50 {:.2}, p99 {:.2} of the probe's p50",
            ratio(p50),
            ratio(p99)
        );
    }
}

/// How long bare writes take.
fn probes(dir: &Path) -> Vec<Duration> {
    let files = Directory::open(dir).unwrap();
    let (file, block) = (FileName::Spare(0), Aligned::new(BLOCK));
    files.create(file, (PROBES * BLOCK) as u64).unwrap();
    let took = (0..PROBES).map(|at| {
        let began = Instant::now();
        files.write(file, (at * BLOCK) as u64, block.bytes()).unwrap();
        began.elapsed()
    });
    let took = took.collect();
    std::fs::remove_dir_all(dir).unwrap();
    took
}

/// How long records take from being appended to being seen durable: one after the other, or one at
/// each `pace` whether or not those before are durable.
fn appends(dir: &Path, threads: usize, pace: Option<Duration>) -> Vec<Duration> {
    let files = Arc::new(Directory::open(dir).unwrap());
    let owner = Owner { cluster: [0; 16], node: 0 };
    let writer = Recovery::read(&*files, owner, &[]).unwrap().writer(Options::default(), 1);
    let engine = thread::current();
    let wake: Wake = Box::new(move || engine.unpark());
    let failed = Box::new(|error: &_| panic!("{error}"));
    let options = DiskOptions { threads, ..DiskOptions::default() };
    let (disk, mut handles) =
        Disk::start(Arc::clone(&files), writer, options, vec![wake], failed).unwrap();
    // The next segment is zeroed meanwhile, which is rare later and would be all that is measured.
    let segment = |(name, _): &(FileName, u64)| matches!(name, FileName::Segment(_));
    while files.list().unwrap().iter().filter(|file| segment(file)).count() < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    let handle = &mut handles[0];
    let mut began = Vec::new();
    let mut took = Vec::new();
    let start = Instant::now();
    while (took.len() as u64) < APPENDS {
        let due = pace
            .map_or(took.len() == began.len(), |pace| start.elapsed() >= pace * began.len() as u32);
        if due && (began.len() as u64) < APPENDS {
            began.push(Instant::now());
            handle.append(Group(1), 1, &[&RECORD]).unwrap();
        }
        let now = Instant::now();
        let seen = took.len()..handle.durable() as usize;
        took.extend(began[seen].iter().map(|began| now - *began));
        match pace {
            None => thread::park_timeout(Duration::from_millis(10)),
            Some(pace) => thread::park_timeout(pace / 2),
        }
    }
    disk.stop();
    std::fs::remove_dir_all(dir).unwrap();
    took
}

fn percentiles(took: &mut [Duration]) -> (Duration, Duration) {
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}
