//! Gets of keys that are not in memory, through the store in two parts and in a plain loop over RocksDB.
//!
//! ```console
//! $ cargo bench -p skein-rocksdb --features rocksdb -- DIR [MEGABYTES]
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use skein_kvstore::store::{Found, Store, Wanted};
use skein_rocksdb::{Options, RocksStore, TieredOptions, TieredStore};

const VALUE_BYTES: usize = 1 << 10;
/// Commands that a replica has under way.
const WINDOW: usize = 256;
const GETS: u64 = 40_000;
const READERS: usize = 4;

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
    Options { cache_bytes: 32 << 20, ..Options::default() }
}

/// Gets a second of a plain loop in `threads` threads.
fn plain(store: &RocksStore, keys: u64, threads: usize) -> f64 {
    let began = Instant::now();
    thread::scope(|scope| {
        for thread in 0..threads as u64 {
            scope.spawn(move || {
                let mut random = 77 + thread;
                for _ in 0..GETS / threads as u64 {
                    let found = store.get(&key(next(&mut random) % keys)).unwrap();
                    assert_eq!(found.expect("it is there").value.len(), VALUE_BYTES);
                }
            });
        }
    });
    GETS as f64 / began.elapsed().as_secs_f64()
}

/// Gets a second through the store in two parts, each key pinned until it was read.
fn tiered(store: &mut TieredStore, keys: u64, woken: &AtomicBool) -> f64 {
    let (mut random, mut under_way) = (99, Vec::new());
    let (began, mut done) = (Instant::now(), 0);
    while done < GETS {
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
    done as f64 / began.elapsed().as_secs_f64()
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
    let wake = Arc::new(move || {
        wake.store(true, Ordering::SeqCst);
        engine.unpark();
    });
    let (one, two) = (dir.join("plain"), dir.join("tiered"));
    let mut store = RocksStore::open(&one, [1; 16], options()).unwrap();
    let open = TieredOptions { database: options(), hot_bytes: 32 << 20, readers: READERS };
    let mut in_parts = TieredStore::open(&two, [2; 16], open, wake).unwrap();
    for number in 0..keys {
        let value = value(number);
        store.put(&key(number), &value, number).unwrap();
        in_parts.load(&key(number), Some(Found { value: &value, version: number })).unwrap();
    }
    store.flush().unwrap();
    in_parts.settle().unwrap();
    println!(
        "{keys} keys of {VALUE_BYTES} bytes, in memory at most 32 MiB of blocks and 32 MiB of pairs"
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
    drop((store, in_parts));
    std::fs::remove_dir_all(one).unwrap();
}
