//! Data that an earlier version left on disk: this version must go on with it.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde_json::Value;
use skein_client::Client;

use crate::durable::on_disk;
use crate::support::Sandbox;

/// The directory of a cluster in format 1, [packed](pack).
struct Packed {
    file: &'static str,
    bytes: &'static [u8],
    durability: &'static str,
    /// How it differs from a cluster that nobody configures.
    config: &'static str,
    /// So many long values were put under each of two keys.
    long: usize,
    /// Kinds of records that its logs have.
    kinds: &'static [&'static str],
}

const SYNC: Packed = Packed {
    file: "format-1.packed",
    bytes: include_bytes!("format-1.packed"),
    durability: "sync",
    config: "[limits]\nmemory_bytes_max = \"64MiB\"\n",
    long: LONG_FOR_SNAPSHOT,
    kinds: &["began", "resumed", "snapshot-end", "part", "payload", "delivered"],
};

const ASYNC: Packed = Packed {
    file: "format-1-async.packed",
    bytes: include_bytes!("format-1-async.packed"),
    durability: "async",
    config: "[limits]\nmemory_bytes_max = \"64MiB\"\n",
    long: 1,
    kinds: &["point"],
};

#[cfg(feature = "rocksdb")]
const ROCKSDB: Packed = Packed {
    file: "format-1-rocksdb.packed",
    bytes: include_bytes!("format-1-rocksdb.packed"),
    durability: "sync",
    config: "[node]\nstore = \"rocksdb\"\nhot_bytes = \"1MiB\"\n\
             [limits]\nmemory_bytes_max = \"64MiB\"\nstore_bytes_max = \"64MiB\"\n",
    long: LONG_FOR_SNAPSHOT,
    kinds: &["began", "resumed", "snapshot-end", "part", "payload", "delivered"],
};

/// Bytes that are equal in a row, from which on they are packed as one.
const RUN_MIN: usize = 24;

/// The value of a key in the packed cluster.
fn value(number: usize) -> String {
    match number {
        // Too long for the log: it lies beside it.
        7 => "l".repeat(100_000),
        _ => format!("value {number}"),
    }
}

const KEYS: usize = 20;

/// Length of the values of which a group has logged enough for a snapshot after so many of them.
const LONG: usize = 1 << 20;
const LONG_FOR_SNAPSHOT: usize = 265;

/// A transaction of two groups.
const MOVE: &str =
    r#"{"then": [{"increment": "moved1", "by": 3}, {"increment": "moved2", "by": -3}]}"#;

/// What the packed cluster holds: each key, and its value.
fn check(sandbox: &Sandbox) {
    let scanned = sandbox.expect(0, &["scan", "--keys-only"]);
    assert_eq!(scanned.out.lines().count(), KEYS - 1 + 6, "{}", scanned.out);
    for number in (0..KEYS).filter(|number| *number != 11) {
        let got = sandbox.expect(0, &["get", &format!("key{number}")]);
        assert_eq!(got.out, value(number), "key{number}");
    }
    sandbox.expect(1, &["get", "key11"]);
    let others =
        [("counter", "5"), ("moved1", "3"), ("moved2", "-3"), ("once more", "the last value")];
    for (key, value) in others {
        assert_eq!(sandbox.expect(0, &["get", key]).out, value);
    }
    for key in ["zeroes1", "zeroes2"] {
        assert_eq!(sandbox.expect(0, &["get", key]).out.len(), LONG);
    }
}

#[test]
fn a_cluster_in_format_1_goes_on() {
    goes_on(&SYNC);
}

#[test]
fn a_cluster_in_format_1_with_restore_points_goes_on() {
    goes_on(&ASYNC);
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_cluster_in_format_1_with_stores_in_rocksdb_goes_on() {
    goes_on(&ROCKSDB);
}

fn goes_on(packed: &Packed) {
    let (_dir, sandbox) = on_disk();
    unpack(packed.bytes, &sandbox.dir);
    let dir = sandbox.dir.to_str().expect("text");
    let shown = sandbox.expect(0, &["inspect", dir]);
    for kind in packed.kinds {
        assert!(shown.out.contains(&format!(" {kind}")), "there is no record {kind}");
    }
    sandbox.expect(0, &["up", "--detach"]);
    check(&sandbox);
    sandbox.expect(0, &["put", "key3", &value(3)]);
    sandbox.expect(0, &["down"]);
    sandbox.expect(0, &["up", "--detach"]);
    check(&sandbox);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

/// Makes the packed clusters: `cargo nextest run -p skein-deploy --run-ignored only packs_a_cluster`.
#[test]
#[ignore = "writes the file of which another test is made"]
fn packs_a_cluster() {
    packs(&SYNC);
}

#[test]
#[ignore = "writes the file of which another test is made"]
fn packs_a_cluster_with_restore_points() {
    packs(&ASYNC);
}

#[cfg(feature = "rocksdb")]
#[test]
#[ignore = "writes the file of which another test is made"]
fn packs_a_cluster_with_stores_in_rocksdb() {
    packs(&ROCKSDB);
}

/// With `sync`, one node has lost its data and was given the state of the others, and its processes are killed, so logs end
/// as after a loss of power. With `async`, a cluster that is stopped loses nothing.
fn packs(packed: &Packed) {
    let (_dir, sandbox) = on_disk();
    let (config, is_sync) = (sandbox.config(packed.config), packed.durability == "sync");
    let up = ["up", "--detach", "--durability", packed.durability, "--config", &config];
    sandbox.expect(0, &up);
    let mut client = Client::connect(&sandbox.dir).expect("a session");
    let keys = ["zeroes1", "zeroes2"];
    for [one, other] in [keys, ["moved1", "moved2"]] {
        let owner = |key: &str| client.shape().slots.owner(key.as_bytes());
        assert_ne!(owner(one), owner(other), "they are to be of two groups");
    }
    let long = vec![0; LONG];
    for _ in 0..packed.long {
        for key in keys {
            client.put(key.as_bytes(), &long).expect("it serves");
        }
    }
    drop(client);
    for number in 0..KEYS {
        sandbox.expect(0, &["put", &format!("key{number}"), &value(number)]);
    }
    sandbox.expect(0, &["del", "key11"]);
    for _ in 0..5 {
        sandbox.expect(0, &["incr", "counter"]);
    }
    let moves = sandbox.dir.with_file_name("moves.json");
    fs::write(&moves, MOVE).expect("there is room");
    sandbox.expect(0, &["txn", moves.to_str().expect("text")]);
    sandbox.expect(0, &["down"]);
    if is_sync {
        fs::remove_dir_all(sandbox.dir.join("node2.data")).expect("it is ours");
    }
    sandbox.expect(0, &up[..2]);
    sandbox.expect(0, &["put", "once more", "the last value"]);
    check(&sandbox);
    if is_sync {
        sandbox.kill_all();
    } else {
        sandbox.expect(0, &["down"]);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/binary").join(packed.file);
    fs::write(file, pack(&sandbox.dir)).expect("the repository can be written");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

/// Packs what outlives the processes of a cluster. Logs are mostly zeroes.
///
/// For each file: the lengths of its name and of its contents, the name, and runs that end with one of length 0. A run
/// is a position, a length, and 0 with the bytes, or 1 with a byte that fills it. All numbers have four bytes.
fn pack(dir: &Path) -> Vec<u8> {
    let mut names = Vec::new();
    for name in names_in(dir) {
        let kind = name.rsplit('.').next().unwrap_or_default();
        if kind == "data" {
            names.extend(files_below(dir, &name));
        } else if ["json", "toml", "incarnation", "identity", "peers"].contains(&kind) {
            names.push(name);
        }
    }
    names.sort_unstable();
    let mut packed = Vec::new();
    for name in names {
        let mut bytes = fs::read(dir.join(&name)).expect("it can be read");
        if name == "cluster.json" {
            let mut manifest: Value = serde_json::from_slice(&bytes).expect("JSON");
            // Directories of the machine on which it is packed.
            manifest["made"] = Value::Array(Vec::new());
            manifest["regions"] = "".into();
            manifest.as_object_mut().expect("an object").remove("checksum");
            bytes = manifest.to_string().into_bytes();
        }
        number(&mut packed, name.len());
        number(&mut packed, bytes.len());
        packed.extend_from_slice(name.as_bytes());
        let mut at = 0;
        while at < bytes.len() {
            let same = |from: usize| {
                let rest = &bytes[from..];
                rest.iter().take_while(|byte| **byte == rest[0]).count()
            };
            let (run, begin) = (same(at), at);
            if run >= RUN_MIN {
                at += run;
                if bytes[begin] == 0 {
                    continue; // What is not written is zero.
                }
                number(&mut packed, begin);
                number(&mut packed, run);
                packed.extend([1, bytes[begin]]);
                continue;
            }
            while at < bytes.len() && same(at) < RUN_MIN {
                at += same(at);
            }
            number(&mut packed, begin);
            number(&mut packed, at - begin);
            packed.push(0);
            packed.extend_from_slice(&bytes[begin..at]);
        }
        number(&mut packed, bytes.len());
        number(&mut packed, 0);
    }
    packed
}

fn names_in(dir: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(dir).expect("a directory").flatten();
    entries.map(|entry| entry.file_name().into_string().expect("text"))
}

/// All files below a directory of `dir` that a start may read. A store that is open is none of them, and of RocksDB's files
/// neither its report nor the options that it had, which name directories of the machine.
fn files_below(dir: &Path, below: &str) -> Vec<String> {
    let mut files = Vec::new();
    for name in names_in(&dir.join(below)) {
        let path = format!("{below}/{name}");
        if dir.join(&path).is_file() {
            let counts = !name.starts_with("LOG") && !name.starts_with("OPTIONS-");
            files.extend(counts.then_some(path));
        } else if !name.starts_with("live-") {
            files.extend(files_below(dir, &path));
        }
    }
    files
}

/// Writes out what was [packed](pack), for a cluster whose shared memory lies beside it.
fn unpack(mut packed: &[u8], dir: &Path) {
    while !packed.is_empty() {
        let (name, length) = (take_number(&mut packed), take_number(&mut packed));
        let name = std::str::from_utf8(take(&mut packed, name)).expect("text").to_owned();
        let path = dir.join(&name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("there is room");
        let mut file = File::create(&path).expect("there is room");
        file.set_len(length as u64).expect("there is room");
        loop {
            let (at, length) = (take_number(&mut packed), take_number(&mut packed));
            if length == 0 {
                break;
            }
            match take(&mut packed, 1) {
                [0] => file.write_all_at(take(&mut packed, length), at as u64),
                _ => file.write_all_at(&vec![take(&mut packed, 1)[0]; length], at as u64),
            }
            .expect("there is room");
        }
        if name == "cluster.json" {
            let mut manifest: Value =
                serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
            let regions = dir.with_file_name("memory");
            manifest["regions"] = regions.to_str().expect("text").into();
            file.set_len(0).expect("a file");
            file.write_all(manifest.to_string().as_bytes()).expect("there is room");
        }
    }
}

fn number(packed: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("files of a log are short");
    packed.extend_from_slice(&number.to_le_bytes());
}

fn take_number(packed: &mut &[u8]) -> usize {
    u32::from_le_bytes(take(packed, 4).try_into().expect("four bytes")) as usize
}

fn take<'a>(packed: &mut &'a [u8], length: usize) -> &'a [u8] {
    packed.split_off(..length).expect("it was packed as a whole")
}
