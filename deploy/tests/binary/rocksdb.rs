//! Clusters whose keys and values are in RocksDB.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::disks::ready;
use crate::durable::on_disk;
use crate::support::{Sandbox, until};

/// Five of them fit into the budget of the group.
const VALUE_BYTES: usize = 2 << 20;
const BUDGET: u64 = 12 << 20;

#[test]
fn a_group_holds_what_its_budget_on_disk_allows_and_no_more() {
    let (dir, sandbox) = on_disk();
    let text = format!(
        "[topology]\ngroups = 1\n[node]\nstore = \"rocksdb\"\nhot_bytes = \"1MiB\"\n\
         [limits]\nvalue_bytes_max = \"2MiB\"\nmemory_bytes_max = \"512MiB\"\nstore_bytes_max = {BUDGET}\n"
    );
    let up = sandbox.expect(0, &["up", "--detach", "--config", &sandbox.config(&text)]);
    let sizes = "1.0 MiB a node for keys and values, of at most 12.0 MiB on disk";
    assert!(up.out.contains(sizes), "{}", up.out);
    let file = dir.path().join("value");
    fs::write(&file, vec![b'x'; VALUE_BYTES]).expect("it can be written");
    let file = file.to_str().expect("text");
    let put = |code, key: &str| sandbox.expect(code, &["put", key, "--file", file]).err;
    for key in ["one", "two", "three", "four"] {
        put(0, key);
    }
    let warned = "limits.store_bytes_max allows each group";
    let shown = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(shown.contains("durability sync, store rocksdb"), "{shown}");
    assert!(!shown.contains(warned), "{shown}");
    put(0, "five");
    let shown = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(shown.contains(warned), "{shown}");
    let full = |err: &str| err.contains(&format!("and its ceiling is {BUDGET}"));
    let refused = put(3, "six");
    assert!(full(&refused), "{refused}");

    // A restart reads the log: it refuses the same write again, and has all others.
    sandbox.kill_all();
    sandbox.expect(0, &["up", "--detach"]);
    let refused = put(3, "six");
    assert!(full(&refused), "{refused}");
    for key in ["one", "two", "three", "four", "five"] {
        assert_eq!(sandbox.expect(0, &["get", key]).out.trim().len(), VALUE_BYTES);
    }
    sandbox.expect(0, &["del", "one"]);
    put(0, "six");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

/// So many values of [`VALUE_BYTES`] are put that a group's state is written.
const VALUES: usize = 136;
const KEYS: usize = 12;

/// A cluster of one group whose replicas have kept a state in RocksDB, and dropped the log in front of it.
fn with_checkpoints(dir: &Path, sandbox: &Sandbox) {
    let text = "[topology]\ngroups = 1\n[node]\nstore = \"rocksdb\"\nhot_bytes = \"1MiB\"\n\
         [limits]\nvalue_bytes_max = \"2MiB\"\n";
    sandbox.expect(0, &["up", "--detach", "--config", &sandbox.config(text)]);
    for key in 0..KEYS {
        sandbox.expect(0, &["put", &format!("key{key}"), &format!("value{key}")]);
    }
    let file = dir.join("value");
    fs::write(&file, vec![b'x'; VALUE_BYTES]).expect("it can be written");
    let file = file.to_str().expect("text");
    for number in 0..VALUES {
        sandbox.expect(0, &["put", &format!("long{}", number % 3), "--file", file]);
    }
    until("each replica has kept its state", || (0..3).all(|node| !kept(sandbox, node).is_empty()));
}

/// The directory of a node's replica.
fn replica(sandbox: &Sandbox, node: u16) -> PathBuf {
    let stores = sandbox.dir.join(format!("node{node}.data")).join("stores");
    let mut found = fs::read_dir(&stores).expect("it has stores");
    found.next().expect("it has a replica").expect("it can be read").path()
}

/// The checkpoints of a node's replica.
fn kept(sandbox: &Sandbox, node: u16) -> Vec<PathBuf> {
    let found = fs::read_dir(replica(sandbox, node)).expect("it is there");
    let found = found.map(|entry| entry.expect("it can be read").path());
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    // One that is not whole has a longer name.
    let is_kept = |name: String| name.starts_with("kept-") && name.len() == 21;
    found.filter(|path| name(path).is_some_and(is_kept)).collect()
}

#[track_caller]
fn all_there(sandbox: &Sandbox) {
    until("all are ready", || ready(sandbox));
    for key in 0..KEYS {
        let got = sandbox.expect(0, &["get", &format!("key{key}")]);
        assert_eq!(got.out, format!("value{key}"));
    }
    for long in 0..3 {
        let got = sandbox.expect(0, &["get", &format!("long{long}")]);
        assert_eq!(got.out.trim().len(), VALUE_BYTES);
    }
    for node in 0..3 {
        assert!(!log(sandbox, node).contains("panicked"), "{}", log(sandbox, node));
    }
}

fn log(sandbox: &Sandbox, node: u16) -> String {
    fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).unwrap_or_default()
}

/// All replicas hold the same, at the same position.
#[track_caller]
fn agree(sandbox: &Sandbox) {
    let digest = |node| {
        let mut stream = sandbox.admin(node);
        stream.write_all(b"{\"v\":1,\"do\":\"digest\"}\n").expect("it listens");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it answers");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        let digest = &answer["ok"]["replicas"][0]["digest"];
        assert!(digest["hash"].is_string() || digest["hash"].is_u64(), "{line}");
        digest.clone()
    };
    let first = digest(0);
    assert!((1..3).all(|node| digest(node) == first), "{first}");
}

fn joined_anew(sandbox: &Sandbox, node: u16) -> bool {
    let status = &sandbox.status()["nodes"][usize::from(node)]["status"];
    let said = log(sandbox, node).contains("the files of a replica's state are lost");
    said && status["disk"]["checkpoints_lost"][0] == 0
}

#[test]
fn a_start_begins_with_a_checkpoint_and_a_replica_that_lacks_it_joins_anew() {
    let (dir, sandbox) = on_disk();
    with_checkpoints(dir.path(), &sandbox);
    all_there(&sandbox);
    // Some of the log follows the checkpoint.
    sandbox.expect(0, &["put", "key0", "later"]);
    sandbox.expect(0, &["put", "key0", "value0"]);
    sandbox.kill_all();
    let data = sandbox.dir.join("node0.data");
    let inspect = ["inspect", "--summary", data.to_str().expect("text")];
    let text = sandbox.expect(0, &inspect).out;
    let stores = format!("NOT VERIFIED: {}", data.join("stores").display());
    assert!(text.contains(&stores) && text.contains("kept-"), "{text}");
    assert!(text.contains("the log is sound; the stores were not verified"), "{text}");
    let json = sandbox.expect(0, &[&inspect[..], &["--json"]].concat()).out;
    let line: Value = serde_json::from_str(json.lines().last().expect("a log")).expect("JSON");
    assert_eq!(line["log"]["stores"]["verified"], false, "{line}");
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox);
    agree(&sandbox);
    let anew = |node| log(&sandbox, node).contains("the files of a replica's state are lost");
    assert!(!(0..3).any(anew), "each has begun with its own");

    // One is another replica's.
    sandbox.kill_all();
    let (own, other) = (kept(&sandbox, 2), kept(&sandbox, 0).pop().expect("it has one"));
    for path in own {
        fs::remove_dir_all(&path).expect("it is there");
        fs::create_dir(&path).expect("there is room");
        for file in fs::read_dir(&other).expect("it is there") {
            let file = file.expect("it can be read");
            fs::copy(file.path(), path.join(file.file_name())).expect("there is room");
        }
    }
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox);
    assert!(joined_anew(&sandbox, 2), "{}", log(&sandbox, 2));
    // One is gone.
    sandbox.kill_all();
    for path in kept(&sandbox, 0) {
        fs::remove_dir_all(&path).expect("it is there");
    }
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox);
    assert!(joined_anew(&sandbox, 0), "{}", log(&sandbox, 0));

    // One has a table cut off in its middle.
    sandbox.kill_all();
    for path in kept(&sandbox, 1) {
        for file in fs::read_dir(&path).expect("it is there") {
            let file = file.expect("it can be read").path();
            if file.extension().is_some_and(|it| it == "sst") {
                let len = fs::metadata(&file).expect("it is there").len();
                let file = fs::OpenOptions::new().write(true).open(&file).expect("it is there");
                file.set_len(len / 2).expect("it can be cut");
            }
        }
    }
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox);
    assert!(joined_anew(&sandbox, 1), "{}", log(&sandbox, 1));

    agree(&sandbox);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}
