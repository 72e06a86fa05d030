//! A process is killed between writes. What is on disk is the state at some position, whole.

mod opened;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use skein_kvstore::store::Store;
use skein_kvstore::store::memory::Memory;
use skein_rocksdb::RocksStore;

use crate::opened::{OWNER, SMALL, scratch};

/// For the process that is killed: the directory of its store.
const WRITER: &str = "SKEIN_ROCKSDB_WRITER";
const KEYS: u64 = 400;
const ROUNDS: u64 = 8;

/// The writes of the command at a position: a function of the position alone.
fn command(position: u64, store: &mut impl Store) {
    let mut random = position.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let writes: Vec<_> = (0..=next(4))
        .map(|_| {
            let (key, len) = (next(KEYS), next(600) as usize);
            let value = (len > 60).then(|| vec![position as u8; len]);
            (key, value)
        })
        .collect::<std::collections::BTreeMap<_, _>>()
        .into_iter()
        .map(|(key, value)| (key.to_be_bytes(), value))
        .collect();
    store.write(writes, position).unwrap();
}

/// Writes until it is killed. Says where it is, and which positions it has flushed.
fn write(path: &Path) {
    let mut store = RocksStore::open(path, OWNER, SMALL).unwrap();
    println!("begins at {}", store.position());
    for position in store.position() + 1.. {
        store.set_position(position);
        command(position, &mut store);
        if position.is_multiple_of(1_000) {
            store.flush().unwrap();
            println!("flushed {position}");
        } else if position.is_multiple_of(10) {
            println!("at {position}");
        }
    }
}

#[test]
fn a_killed_process_leaves_the_state_at_a_position() {
    if let Some(path) = std::env::var_os(WRITER) {
        return write(Path::new(&path));
    }
    let scratch = scratch();
    let path = scratch.path().join("store");
    let (mut model, mut position) = (Memory::default(), 0);
    let mut beyond = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_the_state_at_a_position", "--nocapture"])
            .env(WRITER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Between two flushes that it was told to make. RocksDB makes others.
        let until = position + 1_000 * (1 + round % 3) + 110 * round;
        let mut flushed = 0;
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            let (what, at) = line.split_once(' ').unwrap_or_default();
            let at = at.parse().unwrap_or(0);
            if what == "flushed" {
                flushed = at;
            } else if what == "at" && flushed > 0 && at >= until {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = RocksStore::open(&path, OWNER, SMALL).unwrap();
        assert!(store.position() >= flushed && flushed > position, "{flushed} was flushed");
        beyond += u64::from(store.position() > flushed);
        while position < store.position() {
            position += 1;
            command(position, &mut model);
        }
        let pairs = store.range(b"", None).map(Result::unwrap);
        let pairs = pairs.map(|(key, it)| (key.to_vec(), it.value.to_vec(), it.version));
        let expected = model.range(b"", None).map(|pair| {
            let Ok((key, found)) = pair;
            (key.to_vec(), found.value.to_vec(), found.version)
        });
        assert!(pairs.eq(expected), "the state at {position}");
        assert_eq!(
            (store.len(), store.bytes(), store.digest()),
            (model.len(), model.bytes(), model.digest()),
            "the sums at {position}"
        );
    }
    assert!(beyond > 0, "RocksDB has flushed nothing by itself");
}
