//! States that are kept as checkpoints: taken again, by another replica, damaged, removed and made while a process is
//! killed.

mod opened;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use skein_kvstore::store::{Found, Store, StoreError, Wanted};
use skein_rocksdb::{Checkpoints, Owner, TieredOptions, TieredStore};

use crate::opened::{OWNER, SMALL, scratch};

/// For the process that is killed: the directory of its replica, and the number of its first checkpoint.
const KEEPER: &str = "SKEIN_ROCKSDB_KEEPER";
/// Pairs of the first state.
const PAIRS: u32 = 3_000;

/// Count, bytes and digest of a store.
type Sums = (usize, u64, u64);

fn sums(store: &TieredStore) -> Sums {
    (store.len(), store.bytes(), store.digest())
}

/// The directory of a replica, whose next checkpoint has this number.
fn directory(path: &Path, next: u64) -> Checkpoints {
    Checkpoints::open(path, Arc::new(AtomicU64::new(next))).unwrap()
}

/// A store, whose threads wake this one when they have news.
fn open_for(owner: Owner, checkpoints: &Checkpoints) -> TieredStore {
    static OPENED: AtomicU64 = AtomicU64::new(0);
    let name = format!("live-{}", OPENED.fetch_add(1, Ordering::Relaxed));
    let (path, waits) = (checkpoints.directory().join(name), thread::current());
    let wake = Arc::new(move || waits.unpark());
    let options = TieredOptions { database: SMALL, hot_bytes: 0, readers: 1 };
    TieredStore::open_beside(checkpoints.clone(), &path, owner, options, wake).unwrap()
}

fn open(checkpoints: &Checkpoints) -> TieredStore {
    open_for(OWNER, checkpoints)
}

/// Writes pairs with these numbers.
fn write(store: &mut TieredStore, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let value = [number as u8; 150];
        let found = Found { value: &value[..], version: u64::from(number) };
        store.load(&number.to_be_bytes(), Some(found)).unwrap();
    }
    store.settle().unwrap();
}

/// Waits until that is so: whenever it is not, the store will have news.
fn wait_until(
    store: &mut TieredStore,
    holds: impl Fn(&TieredStore) -> bool,
) -> Result<(), StoreError> {
    while !holds(store) {
        while !store.has_news() {
            thread::park();
        }
        store.poll()?;
    }
    Ok(())
}

/// Keeps the state, and waits until it is on disk.
fn keep(store: &mut TieredStore) -> u64 {
    let number = store.keep();
    wait_until(store, TieredStore::has_kept).unwrap();
    number
}

/// A directory with one checkpoint and nothing else. Returns the checkpoint's number and sums.
fn with_one(path: &Path) -> (u64, Sums) {
    let mut store = open(&directory(path, 7));
    write(&mut store, 0..PAIRS);
    let number = keep(&mut store);
    (number, sums(&store))
}

/// Reads all pairs. Returns their number.
fn read_all(store: &mut TieredStore) -> Result<usize, StoreError> {
    let all = Wanted::Range { start: b"", end: None, pairs: usize::MAX, bytes: usize::MAX };
    store.pin(all);
    wait_until(store, |store| store.has(all))?;
    let count = store.range(b"", None).map(Result::unwrap).count();
    store.unpin(all);
    Ok(count)
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(name_of(number))
}

fn name_of(number: u64) -> String {
    format!("kept-{number:016x}")
}

#[test]
fn a_kept_state_is_that_of_its_moment() {
    let scratch = scratch();
    let path = scratch.path().join("g0.0");
    let checkpoints = directory(&path, 7);
    let mut store = open(&checkpoints);
    write(&mut store, 0..PAIRS);
    let (before, number) = (sums(&store), store.keep());
    assert!(!store.has_kept() || number == 7);
    // They come behind it, whenever it is made.
    write(&mut store, PAIRS - 100..PAIRS + 500);
    wait_until(&mut store, TieredStore::has_kept).unwrap();
    assert_ne!(sums(&store), before);
    drop(store);
    for _ in 0..2 {
        let mut again = open(&checkpoints);
        again.take_kept(number).unwrap().unwrap();
        assert_eq!(sums(&again), before);
        assert_eq!(read_all(&mut again).unwrap(), PAIRS as usize);
        // Nothing that is written to this one reaches the checkpoint.
        write(&mut again, 0..PAIRS + 200);
        let next = keep(&mut again);
        assert!(next > number && sums(&again) != before);
    }
}

#[test]
fn a_store_without_a_directory_for_them_keeps_none() {
    let scratch = scratch();
    let options = TieredOptions { database: SMALL, ..TieredOptions::default() };
    let path = scratch.path().join("store");
    let mut store = TieredStore::open(&path, OWNER, options, Arc::new(|| ())).unwrap();
    assert!(!store.keeps() && store.has_kept());
    assert!(store.take_kept(7).unwrap().is_err());
}

#[test]
fn another_state_is_refused_and_says_why() {
    let scratch = scratch();
    let path = scratch.path().join("g0.0");
    let (number, before) = with_one(&path);
    let refused = |owner, number| {
        let checkpoints = directory(&path, 100);
        let mut store = open_for(owner, &checkpoints);
        let why = store.take_kept(number).unwrap().unwrap_err();
        assert!(why.contains("is of no use"), "{why}");
        why
    };
    let why = refused(OWNER, number + 1);
    assert!(why.contains("No such file"), "{why}");
    let why = refused([9; 16], number);
    assert!(why.contains("another replica"), "{why}");
    fs::rename(path_of(&path, number), path_of(&path, 50)).unwrap();
    let why = refused(OWNER, 50);
    assert!(why.contains("another number"), "{why}");
    // Nothing was lost by any of that.
    fs::rename(path_of(&path, 50), path_of(&path, number)).unwrap();
    let mut store = open(&directory(&path, 100));
    store.take_kept(number).unwrap().unwrap();
    assert_eq!(sums(&store), before);
}

#[test]
fn files_that_are_gone_cut_or_swapped_are_noticed() {
    let scratch = scratch();
    let (path, other) = (scratch.path().join("g0.0"), scratch.path().join("g0.1"));
    let (number, before) = with_one(&path);
    let kept = path_of(&path, number);
    {
        let mut store = open(&directory(&other, 7));
        write(&mut store, 5..PAIRS / 2);
        keep(&mut store);
    }
    let other = path_of(&other, number);
    for name in names(&kept) {
        let (file, aside) = (kept.join(&name), scratch.path().join("aside"));
        fs::rename(&file, &aside).unwrap();
        for what in ["gone", "cut", "empty", "swapped"] {
            let len = fs::metadata(&aside).unwrap().len();
            match what {
                "gone" => {}
                "swapped" if !other.join(&name).exists() => {}
                "swapped" => _ = fs::copy(other.join(&name), &file).unwrap(),
                _ => {
                    fs::copy(&aside, &file).unwrap();
                    let len = if what == "cut" { len / 2 } else { 0 };
                    fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(len).unwrap();
                }
            }
            let mut store = open(&directory(&path, 100));
            let taken = store.take_kept(number).unwrap();
            // Whoever takes it compares the sums.
            let is_whole = taken.is_ok() && sums(&store) == before;
            let vital = name == "CURRENT" || name.starts_with("MANIFEST") || name.ends_with("sst");
            // A manifest or a name of one is the same at both.
            let may_be_whole = !vital || what == "swapped" && name == "CURRENT";
            assert!(!is_whole || may_be_whole, "{name} is {what}, and it was taken");
            if is_whole {
                assert_eq!(read_all(&mut store).unwrap(), PAIRS as usize, "{name} is {what}");
            }
            drop(store);
            let _ = fs::remove_file(&file);
        }
        fs::rename(&aside, &file).unwrap();
    }
    let mut store = open(&directory(&path, 100));
    store.take_kept(number).unwrap().unwrap();
    assert_eq!((sums(&store), read_all(&mut store).unwrap()), (before, PAIRS as usize));
}

#[test]
fn earlier_ones_go_when_they_are_told_to() {
    let scratch = scratch();
    let path = scratch.path().join("g0.0");
    let checkpoints = directory(&path, 7);
    let mut store = open(&checkpoints);
    let kept: Vec<_> = (0..3)
        .map(|round| {
            write(&mut store, round * 100..(round + 1) * 100);
            keep(&mut store)
        })
        .collect();
    assert!(kept.iter().all(|number| path_of(&path, *number).exists()));
    // Another store of the replica has kept nothing, and so drops nothing.
    let mut second = open(&checkpoints);
    second.drop_earlier();
    keep(&mut second);
    assert!(path_of(&path, kept[0]).exists());
    store.drop_earlier();
    keep(&mut store);
    assert!(!path_of(&path, kept[0]).exists() && !path_of(&path, kept[1]).exists());
    assert!(path_of(&path, kept[2]).exists());
}

#[test]
fn a_start_removes_everything_but_whole_checkpoints() {
    let scratch = scratch();
    let path = scratch.path().join("g0.0");
    let (number, _) = with_one(&path);
    fs::create_dir(path.join("kept-0000000000000009.tmp")).unwrap();
    fs::create_dir(path.join("live-3")).unwrap();
    fs::write(path.join("live-3").join("000004.sst"), "pairs").unwrap();
    directory(&path, 100);
    assert_eq!(names(&path), [format!("kept-{number:016x}")]);
}

#[test]
fn what_was_found_to_be_damaged_is_not_taken_again() {
    let scratch = scratch();
    let path = scratch.path().join("g0.0");
    let (number, _) = with_one(&path);
    let kept = path_of(&path, number);
    let table = names(&kept).into_iter().find(|name| name.ends_with("sst")).unwrap();
    let file = kept.join(table);
    let mut bytes = fs::read(&file).unwrap();
    // The state is in the first block.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&file, bytes).unwrap();
    let mut store = open(&directory(&path, 100));
    store.take_kept(number).unwrap().expect("only a read notices it");
    let error = read_all(&mut store).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    drop(store);
    assert!(path.join("damaged").exists());
    directory(&path, 200);
    assert_eq!(names(&path), [""; 0]);
}

/// Keeps states until it is killed. Says which are on disk.
fn keep_until_killed(path: &Path) {
    let mut store = open(&directory(path, 1));
    for round in 0.. {
        write(&mut store, round * 40..(round + 1) * 50);
        let (number, (len, bytes, digest)) = (keep(&mut store), sums(&store));
        println!("kept {number} {len} {bytes} {digest}");
        if round % 3 == 2 {
            store.drop_earlier();
        }
    }
}

/// Moments at which a process is killed, by the number of checkpoints in its directory and whether another is being made. Each
/// comes again with every third checkpoint, when the earlier ones go.
const MOMENTS: [fn(usize, bool) -> bool; 6] = [
    |_, _| true,
    |_, makes| makes,
    |kept, makes| makes && kept == 1,
    |kept, makes| makes && kept == 2,
    |kept, _| kept == 3,
    |kept, makes| !makes && kept == 1,
];

/// Whether that moment is now.
fn is_now(moment: fn(usize, bool) -> bool, path: &Path) -> bool {
    let all = names(path);
    let (made, others): (Vec<_>, Vec<_>) =
        all.iter().filter(|name| name.starts_with("kept-")).partition(|it| !it.contains('.'));
    moment(made.len(), !others.is_empty())
}

#[test]
fn a_killed_process_leaves_the_states_that_it_has_kept() {
    if let Some(path) = std::env::var_os(KEEPER) {
        return keep_until_killed(Path::new(&path));
    }
    let scratch = scratch();
    for (round, moment) in MOMENTS.into_iter().enumerate() {
        let path = scratch.path().join(format!("g{round}.0"));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_process_leaves_the_states_that_it_has_kept", "--nocapture"])
            .env(KEEPER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let mut kept = lines.filter(|line| line.starts_with("kept "));
        let said = kept.nth(4 + round).expect("it goes on");
        let said: Vec<u64> = said.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        let [number, len, bytes, digest] = said[..] else { panic!("{said:?}") };
        while !is_now(moment, &path) {
            assert!(child.try_wait().unwrap().is_none(), "it goes on");
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut store = open(&directory(&path, 1_000));
        // It may have removed this one, and kept a later one by then.
        let Ok(()) = store.take_kept(number).unwrap() else {
            assert!(names(&path).iter().any(|name| *name > name_of(number)));
            continue;
        };
        assert_eq!(sums(&store), (len as usize, bytes, digest));
        assert_eq!(read_all(&mut store).unwrap() as u64, len);
    }
}
