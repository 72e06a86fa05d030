//! Gets of keys that are not in memory, through the store in two parts and in a plain loop over RocksDB.
//!
//! ```console
//! $ cargo bench -p skein-rocksdb --features rocksdb -- DIR [MEGABYTES]
//! ```
//!
//! The loaded data stays in DIR, and the next run with as many megabytes measures it again.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_kvstore::store::{Found, Store, Wanted};
use skein_rocksdb::{Checkpoints, Options, RocksStore, TieredOptions, TieredStore, Wake};

const VALUE_BYTES: usize = 1 << 10;
/// Commands that a replica has under way.
const WINDOW: usize = 256;
/// The time for which each loop runs.
const LASTS: Duration = Duration::from_secs(5);
const READERS: usize = 4;
const OWNER: [u8; 16] = [1; 16];
/// Number of the state that is measured.
const KEPT: u64 = 1;
/// Pairs that wait for RocksDB while it is loaded.
const WAITING_BYTES: usize = 256 << 20;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// A value that cannot be compressed much.
fn value(number: u64) -> Vec<u8> {
    let mut noise = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (0..VALUE_BYTES / 8).flat_map(|_| next(&mut noise).to_le_bytes());
    words.collect()
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn options() -> Options {
    Options { cache_bytes: 128 << 20, ..Options::default() }
}

/// Gets a second of a plain loop in `threads` threads.
fn plain(store: &RocksStore, keys: u64, threads: usize) -> f64 {
    let began = Instant::now();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let done = &done;
            scope.spawn(move || {
                let mut random = seed() + thread;
                while began.elapsed() < LASTS {
                    let found = store.get(&key(next(&mut random) % keys)).unwrap();
                    assert_eq!(found.expect("it is there").value.len(), VALUE_BYTES);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.into_inner() as f64 / began.elapsed().as_secs_f64()
}

/// Another one each time: keys that were read by one loop may be in memory for the next.
fn seed() -> u64 {
    static LOOPS: AtomicU64 = AtomicU64::new(1);
    LOOPS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Gets a second through the store in two parts, each key pinned until it was read.
fn tiered(store: &mut TieredStore, keys: u64, woken: &AtomicBool) -> f64 {
    let (mut random, mut under_way) = (seed(), Vec::new());
    let (began, mut done) = (Instant::now(), 0_u32);
    while began.elapsed() < LASTS {
        while under_way.len() < WINDOW {
            let key = key(next(&mut random) % keys);
            store.pin(Wanted::Key(&key));
            under_way.push(key);
        }
        let mut ready = Vec::new();
        under_way.retain(|key| {
            let is_ready = store.has(Wanted::Key(key));
            ready.extend(is_ready.then_some(*key));
            !is_ready
        });
        for key in ready {
            let len = store.get(&key).unwrap().expect("it is there").value.len();
            assert_eq!(len, VALUE_BYTES);
            store.unpin(Wanted::Key(&key));
            done += 1;
        }
        while !store.poll().unwrap() {
            if !woken.swap(false, Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(1));
            }
        }
    }
    for key in &under_way {
        store.unpin(Wanted::Key(key));
    }
    f64::from(done) / began.elapsed().as_secs_f64()
}

/// Loads all keys, and keeps that state.
fn load(mut store: TieredStore, keys: u64) {
    for number in 0..keys {
        if number % (keys / 10).max(1) == 0 {
            eprintln!("{} %", number * 100 / keys);
        }
        let value = value(number);
        let found = Found { value: &value[..], version: number };
        store.load(&key(number), Some(found)).unwrap();
        while store.hot_bytes() > WAITING_BYTES && !store.poll().unwrap() {
            thread::park_timeout(Duration::from_millis(1));
        }
    }
    store.settle().unwrap();
    store.keep();
    while !store.has_kept() {
        thread::park_timeout(Duration::from_millis(1));
        store.poll().unwrap();
    }
}

/// Copies a state that was kept: its tables do not change.
fn copy(from: &Path, to: &Path) {
    _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let (file, target) = (file.path(), to.join(file.file_name()));
        if file.extension().is_some_and(|it| it == "sst") {
            fs::hard_link(&file, target).unwrap();
        } else {
            fs::copy(&file, target).unwrap();
        }
    }
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let Some(dir) = arguments.first().map(Path::new) else {
        eprintln!("say in which directory: cargo bench … -- DIR [MEGABYTES]");
        std::process::exit(2);
    };
    let megabytes = arguments.get(1).map_or(512, |it| it.parse().expect("a number"));
    let keys = megabytes << 20 >> VALUE_BYTES.trailing_zeros();
    let (woken, engine) = (Arc::new(AtomicBool::new(false)), thread::current());
    let wake = woken.clone();
    let wake: Wake = Arc::new(move || {
        wake.store(true, Ordering::SeqCst);
        engine.unpark();
    });
    let states = dir.join(format!("{megabytes}-megabytes"));
    let kept = states.join(format!("kept-{KEPT:016x}"));
    let open = || {
        let options = TieredOptions { database: options(), hot_bytes: 32 << 20, readers: READERS };
        let checkpoints = Checkpoints::open(&states, Arc::new(AtomicU64::new(KEPT))).unwrap();
        let path = states.join("tiered");
        TieredStore::open_beside(checkpoints, &path, OWNER, options, wake.clone()).unwrap()
    };
    if !kept.exists() {
        load(open(), keys);
    }
    let mut in_parts = open();
    in_parts.take_kept(KEPT).unwrap().expect("what was loaded");
    copy(&kept, &dir.join("plain"));
    let store = RocksStore::open(&dir.join("plain"), OWNER, options()).unwrap();
    assert_eq!((store.len() as u64, in_parts.len() as u64), (keys, keys));
    println!(
        "{keys} keys of {VALUE_BYTES} bytes, in memory at most 128 MiB of blocks and 32 MiB of pairs"
    );
    for round in 1..=5 {
        let one = plain(&store, keys, 1);
        let many = plain(&store, keys, READERS);
        let ours = tiered(&mut in_parts, keys, &woken);
        println!(
            "round {round}: plain loop {one:.0}/s, in {READERS} threads {many:.0}/s; in two parts {ours:.0}/s, {:.2} × and \
             {:.2} ×",
            ours / one,
            ours / many
        );
    }
}
