//! Disks that fail, and data that is damaged, swapped or old. Real processes; what the disk does is ordered by a
//! file (docs/testing.md).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use skein_client::Client;

use crate::durable::on_disk;
use crate::support::{Sandbox, is_running, kill, until};

/// Orders a node's disk to do something.
fn order(sandbox: &Sandbox, node: u16, words: &str) {
    let path = sandbox.dir.join(format!("node{node}.disk"));
    fs::write(path, words).expect("the directory can be written");
}

/// What a node says in its status.
fn disk(sandbox: &Sandbox, node: usize) -> serde_json::Value {
    sandbox.status()["nodes"][node]["status"]["disk"].clone()
}

/// Whether every node says that its replicas lead or follow.
pub(crate) fn ready(sandbox: &Sandbox) -> bool {
    let status = sandbox.run(&["status", "--json"]).out;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
    !nodes.is_empty() && nodes.iter().all(|node| node["status"]["ready"] == true)
}

fn log(sandbox: &Sandbox, node: u16) -> String {
    fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).unwrap_or_default()
}

/// Kills a node, and waits until it runs again.
fn again(sandbox: &Sandbox, node: u16) {
    let pid = sandbox.pid(node).expect("it runs");
    kill(pid, Signal::KILL);
    until("the node runs again", || sandbox.pid(node).is_some_and(|now| now != pid));
    until("all are ready", || ready(sandbox));
}

/// A cluster whose nodes have a layer between themselves and their disks.
fn behind_a_layer(sandbox: &Sandbox, nodes: &[u16]) {
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    for node in nodes {
        order(sandbox, *node, &format!("seed={node}"));
        again(sandbox, *node);
        let disk = disk(sandbox, usize::from(*node));
        assert!(disk["orders"].as_str().is_some_and(|path| path.contains(".disk")), "{disk}");
        assert!(log(sandbox, *node).contains("A TEST stands between this node and its disk"));
    }
    let shown = sandbox.run(&["status"]).out;
    assert_eq!(shown.matches("A TEST MAKES ITS DISK FAIL").count(), nodes.len(), "{shown}");
}

fn put_all(sandbox: &Sandbox, keys: std::ops::Range<u32>) {
    for key in keys {
        sandbox.expect(0, &["put", &format!("key{key}"), &format!("value{key}")]);
    }
}

#[track_caller]
fn all_there(sandbox: &Sandbox, keys: std::ops::Range<u32>) {
    for key in keys {
        let got = sandbox.expect(0, &["get", &format!("key{key}")]);
        assert_eq!(got.out, format!("value{key}"));
    }
}

fn no_panic(sandbox: &Sandbox) {
    for node in 0..3 {
        let log = log(sandbox, node);
        assert!(!log.contains("panicked"), "node {node}: {log}");
    }
}

fn wipe(sandbox: &Sandbox) {
    no_panic(sandbox);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn an_error_of_the_disk_ends_a_node_which_comes_back_with_all_that_it_had() {
    let (_dir, sandbox) = on_disk();
    behind_a_layer(&sandbox, &[1]);
    put_all(&sandbox, 0..5);
    let pid = sandbox.pid(1).expect("it runs");
    order(&sandbox, 1, "fail=write");
    put_all(&sandbox, 5..10);
    until("the node has ended", || !is_running(pid));
    until("all are ready", || ready(&sandbox));
    let said = log(&sandbox, 1);
    assert!(said.contains("node 1 has stopped, as its log cannot be written"), "{said}");
    let line = said.lines().find(|line| line.contains("the log on disk cannot be written"));
    let line = line.expect("the node logs it");
    assert!(line.contains("cannot write") && line.contains("(os error 5)"), "{line}");
    assert!(sandbox.status()["nodes"][1]["cause"].is_null(), "it runs again");
    all_there(&sandbox, 0..10);
    // Its next start fails at the first sync, and the one after that does not.
    order(&sandbox, 1, "fail=sync");
    again(&sandbox, 1);
    let said = log(&sandbox, 1);
    assert!(said.contains("cannot sync") && said.contains("Input/output error"), "{said}");
    put_all(&sandbox, 10..12);
    // So does one that fails to read its log.
    order(&sandbox, 1, "fail=read");
    again(&sandbox, 1);
    let said = log(&sandbox, 1);
    assert!(said.contains("cannot read the log in") && said.contains("started again"), "{said}");
    all_there(&sandbox, 0..12);
    wipe(&sandbox);
}

#[test]
fn a_disk_that_is_read_only_keeps_its_node_from_running_until_it_is_not() {
    let (_dir, sandbox) = on_disk();
    behind_a_layer(&sandbox, &[2]);
    put_all(&sandbox, 0..3);
    let pid = sandbox.pid(2).expect("it runs");
    order(&sandbox, 2, "read-only");
    put_all(&sandbox, 3..8);
    until("the node has ended", || !is_running(pid));
    until("its next start says why it fails", || {
        log(&sandbox, 2).contains("cannot keep its data on disk")
    });
    until("status says it, too", || {
        let cause = sandbox.status()["nodes"][2]["cause"].clone();
        cause.as_str().is_some_and(|cause| cause.contains("cannot keep its data on disk"))
    });
    let status = sandbox.expect(1, &["status"]).out;
    assert!(status.contains("n2 does not serve: node 2 cannot keep its data"), "{status}");
    put_all(&sandbox, 8..10);
    all_there(&sandbox, 0..10);
    order(&sandbox, 2, "seed=2");
    until("all are ready", || ready(&sandbox));
    sandbox.kill_all();
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..10);
    wipe(&sandbox);
}

#[test]
fn a_disk_that_stands_still_for_five_seconds_ends_nothing() {
    let (_dir, sandbox) = on_disk();
    behind_a_layer(&sandbox, &[0, 1, 2]);
    put_all(&sandbox, 0..3);
    let pids = sandbox.pids();
    for node in 0..3_u16 {
        let since = Instant::now();
        order(&sandbox, node, &format!("seed={node} stall_ms=5000"));
        sandbox.expect(0, &["put", "--timeout", "20", &format!("key{}", 3 + node), "x"]);
        sandbox.expect(
            0,
            &["put", "--timeout", "20", &format!("key{}", 3 + node), &format!("value{}", 3 + node)],
        );
        println!("puts while node {node} stalls: {:?}", since.elapsed());
        until("all are ready", || ready(&sandbox));
    }
    // All at once: nothing is acknowledged meanwhile, and everything goes on behind.
    (0..3).for_each(|node| order(&sandbox, node, &format!("seed={node} stall_ms=5000")));
    sandbox.expect(0, &["put", "--timeout", "30", "key6", "value6"]);
    until("all are ready", || ready(&sandbox));
    assert_eq!(sandbox.pids(), pids, "no node has ended");
    all_there(&sandbox, 0..7);
    wipe(&sandbox);
}

#[test]
fn a_disk_that_fills_and_has_room_again_loses_nothing() {
    let (dir, sandbox) = on_disk();
    behind_a_layer(&sandbox, &[0, 1, 2]);
    put_all(&sandbox, 0..3);
    let pids = sandbox.pids();
    let big = dir.path().join("value");
    fs::write(&big, vec![b'x'; 1 << 20]).expect("it can be written");
    let big = big.to_str().expect("text");
    let put_big = || sandbox.run(&["put", "--timeout", "20", "big", "--file", big]).code == Some(0);
    // One disk is full: the others are enough.
    for (node, words) in [(0, "pause_us=0"), (1, "pause_us=0 room=0"), (2, "pause_us=0")] {
        order(&sandbox, node, words);
    }
    // More than fits the short segment of its start and the one that is ready behind it, and not so much that it stands
    // still.
    for _ in 0..90 {
        assert!(put_big(), "two disks have room");
    }
    until("it says that its disk is full", || disk(&sandbox, 1)["full"] == true);
    let shown = sandbox.run(&["status"]).out;
    assert!(shown.contains("its disk is full: it"), "{shown}");
    put_all(&sandbox, 3..6);
    // All disks are full: nothing is acknowledged.
    (0..3).for_each(|node| order(&sandbox, node, "pause_us=0 room=0"));
    // More than what is left of their segments, and the ones that are ready behind them.
    let enough = 140;
    let put = (0..enough).take_while(|_| put_big()).count();
    assert!(put < enough, "the disks are full, and {put} values were put");
    for node in [0, 1, 2] {
        order(&sandbox, node, "pause_us=0");
    }
    until("all are ready", || ready(&sandbox));
    put_all(&sandbox, 6..8);
    assert_eq!(sandbox.pids(), pids, "no node has ended");
    sandbox.kill_all();
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..8);
    wipe(&sandbox);
}

/// A file of the log that holds nothing, of so many bytes, of which none is on the disk.
fn spare(sandbox: &Sandbox, node: u16, bytes: u64) -> PathBuf {
    let path = sandbox.dir.join(format!("node{node}.data/{:016x}.spare", 1_u64 << 40));
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("it is sparse");
    path
}

#[test]
fn a_log_that_takes_all_it_may_waits_as_on_a_full_disk_and_may_be_given_more() {
    let (dir, sandbox) = on_disk();
    let config = |most: &str| {
        sandbox.config(&format!(
            "[node]\ndisk_bytes_max = \"{most}\"\n[limits]\nmemory_bytes_max = \"64MiB\"\n"
        ))
    };
    // Two groups, each with as much log as is written before its state is, twice, and the states.
    let refused = sandbox.expect(2, &["up", "--detach", "--config", &config("1GiB")]);
    let numbers = "node.disk_bytes_max = 1GiB (1.4 GiB may be needed) does not work with \
                   limits.memory_bytes_max = 64MiB";
    assert!(refused.err.contains(numbers), "{}", refused.err);
    sandbox.expect(0, &["up", "--detach", "--config", &config("1472MiB")]);
    put_all(&sandbox, 0..3);
    let bound = disk(&sandbox, 1);
    assert_eq!(bound["bytes_max"].as_u64(), Some(1472 << 20), "{bound}");
    assert!(bound["files_bytes"].as_u64() >= bound["log_bytes"].as_u64(), "{bound}");
    let shown = sandbox.run(&["status"]).out;
    assert!(!shown.contains("disk_bytes_max"), "{shown}");

    // The space that is left is enough for the segment that is written, and for starts.
    let pids = sandbox.pids();
    let path = spare(&sandbox, 1, (1472 - 2 * 64) << 20);
    let big = dir.path().join("value");
    fs::write(&big, vec![b'x'; 1 << 18]).expect("it can be written");
    let big = big.to_str().expect("text");
    let put_big = || _ = sandbox.run(&["put", "--timeout", "20", "big", "--file", big]);
    let of_bound = |status: &serde_json::Value| status["at_bound"] == true;
    for _ in 0..200 {
        put_big();
        if of_bound(&disk(&sandbox, 1)) {
            break;
        }
    }
    let full = disk(&sandbox, 1);
    assert!(of_bound(&full) && full["full"] == false, "{full}");
    let shown = sandbox.run(&["status"]).out;
    let words: Vec<&str> = shown.split_whitespace().collect();
    assert!(
        words.join(" ").contains("its log is at node.disk_bytes_max: it acknowledges what fits"),
        "{shown}"
    );
    put_all(&sandbox, 3..5);

    // A bound that is higher is taken by `up`, and nothing else may be changed.
    sandbox.kill_all();
    let other = sandbox
        .config("[node]\ndisk_bytes_max = \"3GiB\"\n[limits]\nmemory_bytes_max = \"32MiB\"\n");
    let refused = sandbox.expect(3, &["up", "--detach", "--config", &other]);
    assert!(refused.err.contains("keeps its data and its settings"), "{}", refused.err);
    sandbox.expect(0, &["up", "--detach", "--config", &config("3GiB")]);
    until("all are ready", || ready(&sandbox));
    assert_eq!(disk(&sandbox, 1)["bytes_max"].as_u64(), Some(3 << 30));
    assert_ne!(sandbox.pids(), pids);
    put_all(&sandbox, 5..8);
    all_there(&sandbox, 0..8);
    // A start removes what the log does not use.
    until("the file is gone", || !path.exists());
    sandbox.expect(0, &["down"]);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(disk(&sandbox, 1)["bytes_max"].as_u64(), Some(3 << 30), "it is kept");
    wipe(&sandbox);
}

#[test]
fn a_disk_that_forgets_what_it_called_durable_is_noticed_by_a_loss_of_power() {
    let (_dir, sandbox) = on_disk();
    behind_a_layer(&sandbox, &[0, 1, 2]);
    put_all(&sandbox, 0..3);
    (0..3).for_each(|node| order(&sandbox, node, "lies"));
    sandbox.expect(0, &["put", "acknowledged", "1"]);
    sandbox.kill_all();
    (0..3).for_each(|node| order(&sandbox, node, "seed=1"));
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..3);
    // So a test that reads back what was acknowledged notices a node that acknowledges too early.
    let lost = sandbox.run(&["get", "acknowledged"]);
    assert_eq!((lost.code, &*lost.out), (Some(1), ""), "{}", lost.err);
    wipe(&sandbox);
}

#[test]
fn a_node_that_is_started_again_and_again_does_not_fill_its_disk() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    put_all(&sandbox, 0..3);
    let data = sandbox.dir.join("node1.data");
    let files = || fs::read_dir(&data).expect("data").count();
    let bytes = || {
        let listed = fs::read_dir(&data).expect("data").flatten();
        listed.map(|file| file.metadata().map_or(0, |about| about.len())).sum::<u64>()
    };
    for _ in 0..11 {
        again(&sandbox, 1);
        // Segments of eight starts, the current one and what is ready for later ones.
        until("its state is written, and older segments go", || files() <= 12);
        until("a start takes little", || bytes() <= 5 * (64 << 20));
    }
    // One that fails before it has said anything leaves nothing: its count of starts cannot be written.
    let (before, obstacle) = (files(), sandbox.dir.join(".node1.incarnation.new"));
    fs::create_dir(&obstacle).expect("there is room");
    kill(sandbox.pid(1).expect("it runs"), Signal::KILL);
    let failures = || log(&sandbox, 1).matches("node1.incarnation: Is a directory").count();
    until("it has failed six times", || failures() >= 6);
    assert!(files() <= before + 2, "{} files, and {before} before", files());
    fs::remove_dir(&obstacle).expect("it is empty");
    until("all are ready", || ready(&sandbox));
    all_there(&sandbox, 0..3);
    sandbox.kill_all();
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..3);
    wipe(&sandbox);
}

/// The segments of a node that hold something, the oldest first.
fn segments(data: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(data).expect("data").map(|entry| entry.expect("an entry").path());
    let holds_something = |path: &PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        path.extension().is_some_and(|kind| kind == "log") && bytes.iter().any(|byte| *byte != 0)
    };
    let mut found: Vec<_> = listed.filter(holds_something).collect();
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("data") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

/// Flips one bit of what a segment has in use.
fn flip(segment: &Path, permille: u64) {
    let file = File::options().read(true).write(true).open(segment).expect("it is there");
    let bytes = fs::read(segment).expect("it can be read");
    let used = bytes.iter().rposition(|byte| *byte != 0).expect("something is there") as u64;
    let at = used * permille / 1000;
    let mut byte = [bytes[at as usize]];
    byte[0] ^= 1 << (permille % 8);
    file.write_all_at(&byte, at).expect("it can be written");
    file.sync_all().expect("a sync");
}

/// Starts a cluster whose node 1 was tampered with: it starts, or it says what is wrong, and starts without that node's
/// data. Returns what it said.
fn up_or_without_node_1(sandbox: &Sandbox) -> Option<String> {
    let up = sandbox.run(&["up", "--detach"]);
    if up.code == Some(0) {
        return None;
    }
    assert_eq!(up.code, Some(5), "{}", up.err);
    sandbox.expect(0, &["down", "--yes"]);
    fs::remove_dir_all(sandbox.dir.join("node1.data")).expect("it is there");
    sandbox.expect(0, &["up", "--detach"]);
    Some(up.err)
}

#[test]
fn a_flipped_bit_is_mended_or_named_and_nothing_is_lost() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    let mut next = 0;
    for permille in [0, 3, 17, 250, 500, 777, 960, 999] {
        put_all(&sandbox, next..next + 3);
        next += 3;
        sandbox.kill_all();
        let newest = segments(&sandbox.dir.join("node1.data")).pop().expect("a segment");
        flip(&newest, permille);
        let refused = up_or_without_node_1(&sandbox);
        println!("a bit at {permille} ‰: {}", refused.as_deref().unwrap_or("started"));
        all_there(&sandbox, 0..next);
        no_panic(&sandbox);
    }
    wipe(&sandbox);
}

#[test]
fn files_that_are_not_the_ones_a_node_wrote_are_refused_with_a_reason() {
    let (dir, sandbox) = on_disk();
    let (_other_dir, other) = on_disk();
    other.expect(0, &["up", "--detach", "--durability", "sync"]);
    other.expect(0, &["down"]);
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    put_all(&sandbox, 0..3);
    sandbox.expect(0, &["down"]);
    let [ours, theirs] = [1, 2].map(|node| sandbox.dir.join(format!("node{node}.data")));
    let foreign = other.dir.join("node1.data");
    let old = dir.path().join("old");
    copy(&ours, &old);
    sandbox.expect(0, &["up", "--detach"]);
    let newest = |data: &Path| segments(data).pop().expect("a segment");
    let oldest = |data: &Path| segments(data).swap_remove(0);
    type Tamper<'a> = &'a dyn Fn();
    #[rustfmt::skip]
    let cases: [(&str, Tamper<'_>, &str); 7] = [
        ("another node's data",
         &|| copy(&theirs, &ours),
         "belongs to node 2, and this is node 1"),
        ("another cluster's data",
         &|| copy(&foreign, &ours),
         "belongs to another cluster"),
        ("one segment of another node",
         &|| _ = fs::copy(newest(&theirs), newest(&ours)).expect("a copy"),
         // It is of node 2, and of another number, perhaps.
         "Put the node's own files back"),
        ("a segment cut short",
         &|| File::options().write(true).open(oldest(&ours)).and_then(|file| file.set_len(8192)).expect("cut"),
         "is 8192 bytes long instead of"),
        ("a segment of an odd length",
         &|| File::options().write(true).open(oldest(&ours)).and_then(|file| file.set_len(777)).expect("cut"),
         "is 777 bytes long instead of"),
        ("an older copy of the data",
         &|| copy(&old, &ours),
         "is an older copy of this node's data"),
        ("one segment under another's name",
         &|| {
             let all = segments(&ours);
             fs::copy(&all[0], &all[1]).expect("a copy");
         },
         "files were swapped or copied"),
    ];
    let mut next = 3;
    for (what, tamper, said) in cases {
        put_all(&sandbox, next..next + 2);
        next += 2;
        // So that there are two segments at least.
        sandbox.kill_all();
        sandbox.expect(0, &["up", "--detach"]);
        sandbox.expect(0, &["down"]);
        tamper();
        let refused =
            up_or_without_node_1(&sandbox).unwrap_or_else(|| panic!("{what} is accepted"));
        assert!(refused.contains(said), "{what}: {refused}");
        all_there(&sandbox, 0..next);
        no_panic(&sandbox);
    }
    wipe(&sandbox);
    other.expect(0, &["down", "--wipe", "--yes"]);
}

/// Starts one node, with nobody to restart it.
fn start(sandbox: &Sandbox, node: u16) -> Child {
    let child = sandbox.command(&["node", "--index", &node.to_string(), "--log-file"]).spawn();
    child.expect("the binary runs")
}

/// A copy of a node's data is put back that was made since the node was last started, so that no number tells that it
/// is old. Of the disks that the others start with, one lacks a write, too, and the third one has it.
#[test]
fn a_copy_of_the_running_nodes_data_that_is_put_back_loses_nothing_when_all_start() {
    let (dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--durability", "sync"]);
    put_all(&sandbox, 0..3);
    let (data, old) = (sandbox.dir.join("node1.data"), dir.path().join("old"));
    std::thread::sleep(Duration::from_millis(100));
    copy(&data, &old);
    // Node 2 misses what is written now.
    let pid = sandbox.pid(2).expect("it runs");
    kill(pid, Signal::KILL);
    until("it has ended", || !is_running(pid));
    sandbox.expect(0, &["put", "--timeout", "20", "acknowledged", "1"]);
    sandbox.kill_all();
    copy(&old, &data);
    // Two of them are a quorum, and the third one is as soon there.
    let mut nodes: Vec<_> = [1, 2, 0].map(|node| start(&sandbox, node)).into();
    until("it is answered", || {
        let got = sandbox.run(&["get", "acknowledged"]);
        assert_ne!(got.code, Some(1), "it is answered that there is nothing");
        got.out == "1"
    });
    sandbox.kill_all();
    for node in &mut nodes {
        let _ = node.wait();
    }
}

/// As above, but the node that lacks the write runs, and remembers what the copy's node had acknowledged.
#[test]
fn a_node_that_lags_is_not_elected_by_a_copy_that_was_put_back_alone() {
    let (dir, sandbox) = on_disk();
    // The puts below take more than a ring, which the leader fills though the node stands still.
    let config = sandbox.config("[node]\ndurability = \"sync\"\n[tuning]\nlog_bytes = 65536\n");
    let up = ["up", "--detach", "--no-restart", "--groups", "1", "--config", &config];
    sandbox.expect(0, &up);
    let mut client = Client::connect(&sandbox.dir).expect("it serves");
    put_all(&sandbox, 0..3);
    let (data, old) = (sandbox.dir.join("node2.data"), dir.path().join("old"));
    let on_disk = || {
        let replica = sandbox.status()["groups"][0]["replicas"][2].clone();
        replica["disk"]["durable_index"] == replica["log_index"]
    };
    until("its disk holds its log", on_disk);
    copy(&data, &old);
    let pids = sandbox.pids();
    kill(pids[1], Signal::STOP);
    for _ in 0..200 {
        client.put(b"key0", [b'v'; 1000]).expect("two are a quorum");
    }
    client.put(b"acknowledged", b"1").expect("two are a quorum");
    kill(pids[0], Signal::STOP);
    kill(pids[2], Signal::KILL);
    until("it has ended", || !is_running(pids[2]));
    copy(&old, &data);
    let mut node = start(&sandbox, 2);
    kill(pids[1], Signal::CONT);
    until("the copy's node has granted", || {
        let status = sandbox.status();
        let replicas = status["groups"][0]["replicas"].as_array();
        let mut replicas = replicas.map_or(&[][..], Vec::as_slice).iter();
        replicas.any(|it| it["slot"] == 2 && it["elections"]["granted"] != 0)
    });
    let serves = (0..5).any(|_| sandbox.status()["groups"][0]["available"] == true);
    assert!(!serves, "node 0 is awaited");
    kill(pids[0], Signal::CONT);
    until("it is answered", || {
        let got = sandbox.run(&["get", "acknowledged"]);
        assert_ne!(got.code, Some(1), "it is answered that there is nothing");
        got.out == "1"
    });
    sandbox.kill_all();
    let _ = node.wait();
}

#[test]
fn a_node_whose_data_is_removed_while_it_runs_ends_and_takes_that_of_the_others() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    put_all(&sandbox, 0..3);
    let pids = sandbox.pids();
    fs::remove_dir_all(sandbox.dir.join("node0.data")).expect("it is there");
    until("the node has ended", || !is_running(pids[0]));
    until("all are ready", || ready(&sandbox));
    let said = log(&sandbox, 0);
    assert!(said.contains("node 0 has stopped, as its log cannot be written"), "{said}");
    assert!(said.contains("node0.data was removed while the node ran"), "{said}");
    assert!(said.contains("what was written since is not kept"), "{said}");
    put_all(&sandbox, 3..6);
    assert_eq!(sandbox.pids()[1..], pids[1..], "no other node has ended");
    sandbox.kill_all();
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..6);
    wipe(&sandbox);
}

#[test]
fn nodes_that_all_lose_their_data_run_on_and_acknowledge_nothing_until_it_is_back() {
    let (dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    put_all(&sandbox, 0..3);
    let pids = sandbox.pids();
    let data = |node: u16| sandbox.dir.join(format!("node{node}.data"));
    let away = |node: u16| dir.path().join(format!("away{node}"));
    (0..3).for_each(|node| fs::rename(data(node), away(node)).expect("it is there"));
    until("all say so", || (0..3).all(|node| log(&sandbox, node).contains("acknowledges nothing")));
    let put = sandbox.run(&["put", "--timeout", "2", "later", "value"]);
    assert_ne!(put.code, Some(0), "nothing would be kept of it: {}", put.out);
    let shown = sandbox.run(&["status"]).out;
    let words: Vec<_> = shown.split_whitespace().collect();
    assert!(words.join(" ").contains("node1.data was removed while the node ran"), "{shown}");
    assert_eq!(sandbox.pids(), pids, "what is in their memory is not lost");
    (0..3).for_each(|node| fs::rename(away(node), data(node)).expect("it is there"));
    until("it goes on", || {
        sandbox.run(&["put", "--timeout", "5", "last", "value"]).code == Some(0)
    });
    assert_eq!(sandbox.pids(), pids, "no node has ended");
    until("all have seen it", || (0..3).all(|node| log(&sandbox, node).contains("is there again")));
    // They are told to stop while their logs stand still.
    (0..3).for_each(|node| fs::rename(data(node), away(node)).expect("it is there"));
    let times = |node| log(&sandbox, node).matches("acknowledges nothing").count();
    until("all say so again", || (0..3).all(|node| times(node) == 2));
    sandbox.expect(0, &["down"]);
    (0..3).for_each(|node| fs::rename(away(node), data(node)).expect("it is there"));
    sandbox.expect(0, &["up", "--detach"]);
    all_there(&sandbox, 0..3);
    assert_eq!(sandbox.expect(0, &["get", "last"]).out, "value");
    wipe(&sandbox);
}
