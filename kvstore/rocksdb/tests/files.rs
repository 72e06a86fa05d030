//! Directories that are opened again, damaged, swapped, used twice, or cannot be written.

mod opened;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use skein_kvstore::store::memory::Memory;
use skein_kvstore::store::{Store, StoreError};
use skein_rocksdb::RocksStore;

use crate::opened::{OWNER, SMALL, scratch};

/// For the process that [`a_disk_that_takes_no_more_is_an_error`] starts: the directory of its store.
const LIMITED: &str = "SKEIN_ROCKSDB_LIMITED";

fn open(path: &Path) -> Result<RocksStore, StoreError> {
    RocksStore::open(path, OWNER, SMALL)
}

/// A store with 2,000 pairs, flushed and closed.
fn filled(path: &Path) {
    let mut store = open(path).unwrap();
    for number in 0..2_000u32 {
        store.put(&number.to_be_bytes(), &[number as u8; 100], u64::from(number)).unwrap();
    }
    store.set_position(2_000);
    store.flush().unwrap();
}

/// Reads all pairs. Returns how many there were before the error, if there is one.
fn read_all(store: &RocksStore) -> (usize, Option<StoreError>) {
    let mut count = 0;
    for pair in store.range(b"", None) {
        match pair {
            Ok(_) => count += 1,
            Err(error) => return (count, Some(error)),
        }
    }
    (count, None)
}

fn tables(path: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|it| it == "sst")).collect()
}

#[test]
fn what_was_flushed_is_there_again() {
    let scratch = scratch();
    let path = scratch.path().join("store");
    assert_eq!(open(&path).unwrap().position(), 0, "a new store");
    filled(&path);
    let mut store = open(&path).unwrap();
    assert_eq!((store.position(), store.len(), store.bytes()), (2_000, 2_000, 2_000 * 104));
    let (count, error) = read_all(&store);
    assert_eq!((count, error.map(|it| it.to_string())), (2_000, None));
    let digest = store.digest();
    // The position rises without a write, and is flushed like one.
    store.set_position(2_007);
    store.flush().unwrap();
    drop(store);
    let store = open(&path).unwrap();
    assert_eq!((store.position(), store.digest()), (2_007, digest));
}

#[test]
fn another_replicas_store_is_refused() {
    let scratch = scratch();
    let path = scratch.path().join("store");
    filled(&path);
    let Err(error) = RocksStore::open(&path, [4; 16], SMALL) else { panic!("it was opened") };
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("another replica"), "{error}");
    // Nothing was lost by that.
    assert_eq!(open(&path).unwrap().len(), 2_000);
}

#[test]
fn a_store_is_open_once() {
    let scratch = scratch();
    let path = scratch.path().join("store");
    let _store = open(&path).unwrap();
    let Err(error) = open(&path) else { panic!("it was opened twice") };
    assert!(matches!(error, StoreError::System { attempt: "open", .. }), "{error}");
}

#[test]
fn flipped_bits_are_noticed() {
    let scratch = scratch();
    let path = scratch.path().join("store");
    filled(&path);
    let table = tables(&path).pop().expect("it was flushed");
    let sound = fs::read(&table).unwrap();
    for at in (0..sound.len()).step_by(sound.len() / 60) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        fs::write(&table, &bytes).unwrap();
        // A damaged filter is not needed to read everything.
        let error = match open(&path) {
            Ok(store) => match read_all(&store) {
                (2_000, None) => None,
                (count, error) => {
                    Some(error.unwrap_or_else(|| panic!("{count} pairs, with byte {at} damaged")))
                }
            },
            Err(error) => Some(error),
        };
        assert!(error.is_none_or(|error| matches!(error, StoreError::Damaged { .. })), "byte {at}");
    }
    fs::write(&table, &sound).unwrap();
    assert_eq!(read_all(&open(&path).unwrap()).0, 2_000);
}

/// What the store holds, read pair by pair, is what it says that it holds.
fn is_consistent(store: &RocksStore) -> bool {
    let mut read = Memory::default();
    for pair in store.range(b"", None) {
        let Ok((key, found)) = pair else { return false };
        let Ok(()) = read.put(&key, &found.value, found.version);
    }
    let shown = (store.len(), store.bytes(), store.digest());
    shown == (read.len(), read.bytes(), read.digest())
}

#[test]
fn files_that_are_gone_or_cut_are_noticed() {
    let scratch = scratch();
    let (sound, path) = (scratch.path().join("sound"), scratch.path().join("store"));
    filled(&sound);
    let names: Vec<_> =
        fs::read_dir(&sound).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    for (name, cut) in names.iter().flat_map(|name| [(name, false), (name, true)]) {
        fs::create_dir(&path).unwrap();
        for file in &names {
            fs::copy(sound.join(file), path.join(file)).unwrap();
        }
        let file = path.join(name);
        let len = fs::metadata(&file).unwrap().len();
        if cut {
            fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(len / 2).unwrap();
        } else {
            fs::remove_file(&file).unwrap();
        }
        let name = name.to_str().unwrap();
        let manifest = name.starts_with("MANIFEST");
        match open(&path) {
            // A manifest that is cut is one of an earlier flush. The position tells.
            Ok(store) if store.position() < 2_000 => {
                assert!(manifest && cut, "{name}: it was taken for another state");
                assert!(is_consistent(&store), "{name}");
            }
            Ok(store) => {
                assert!(is_consistent(&store) && store.len() == 2_000, "{name}: pairs are missing");
            }
            Err(error) => {
                let table = Path::new(name).extension().is_some_and(|it| it == "sst");
                assert!(table || manifest || name == "CURRENT", "{name}: {error}");
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
        }
        fs::remove_dir_all(&path).unwrap();
    }
}

/// RocksDB alone would begin with nothing, and remove what is there.
#[test]
fn pairs_without_a_manifest_are_kept() {
    let scratch = scratch();
    let path = scratch.path().join("store");
    filled(&path);
    let tables = tables(&path);
    for file in fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        if !tables.contains(&file) {
            fs::remove_file(file).unwrap();
        }
    }
    let Err(error) = open(&path) else { panic!("it was opened") };
    assert!(matches!(error, StoreError::System { attempt: "open", .. }), "{error}");
    assert!(tables.iter().all(|table| table.exists()));
}

/// A process whose files may not grow writes until it is told that it cannot.
#[test]
fn a_disk_that_takes_no_more_is_an_error() {
    if let Some(path) = std::env::var_os(LIMITED) {
        return write_until_it_fails(Path::new(&path));
    }
    let scratch = scratch();
    let path = scratch.path().join("store");
    filled(&path);
    let child = Command::new("sh")
        // Files of at most 100 blocks of 512 or 1,024 bytes. A write beyond that is an error, not a signal.
        .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" --exact \"$1\" --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg("a_disk_that_takes_no_more_is_an_error")
        .env(LIMITED, &path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("it said so"), "{text}");
    // What was flushed before is there.
    let store = open(&path).unwrap();
    assert!(store.position() >= 2_000);
    assert_eq!(read_all(&store).0, store.len());
}

fn write_until_it_fails(path: &Path) {
    let mut store = open(path).unwrap();
    let mut noise = 1u64;
    for number in 2_001..100_000u64 {
        // Bytes that cannot be compressed.
        let value: Vec<u8> = (0..100)
            .flat_map(|_| {
                noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
                noise.to_be_bytes()
            })
            .collect();
        store.set_position(number);
        let written = store.put(&number.to_be_bytes(), &value, number);
        if let Err(error) = written {
            assert!(matches!(&error, StoreError::System { attempt: "write", .. }), "{error}");
            println!("it said so: {error}");
            return;
        }
    }
    panic!("files grew beyond their limit");
}
