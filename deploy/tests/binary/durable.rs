//! Clusters whose data outlives their processes.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use skein_client::{Client, Operation, Transaction};

use crate::support::{Ended, Sandbox, is_running, kill, until};

/// A directory on a disk: the temporary directory may be in memory.
pub(crate) fn on_disk() -> (tempfile::TempDir, Sandbox) {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = tempfile::tempdir_in(root).expect("a directory");
    let sandbox = Sandbox::as_chosen(dir.path().join("cluster"));
    (dir, sandbox)
}

#[test]
fn what_was_acknowledged_outlives_all_processes() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    for number in 0..20 {
        sandbox.expect(0, &["put", &format!("key{number}"), &format!("value{number}")]);
    }
    sandbox.kill_all();
    let gone = sandbox.expect(3, &["get", "key7"]);
    assert!(gone.err.contains("its data is kept"), "{}", gone.err);
    sandbox.expect(0, &["up", "--detach"]);
    for number in 0..20 {
        let got = sandbox.expect(0, &["get", &format!("key{number}")]);
        assert_eq!(got.out, format!("value{number}"));
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
    assert!(sandbox.manifest().is_none());
}

#[test]
fn a_cluster_that_is_stopped_goes_on_as_it_was() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync", "--groups", "3"]);
    sandbox.expect(0, &["put", "one", "1"]);
    let down = sandbox.expect(0, &["down"]);
    assert!(down.err.contains("its data is kept"), "{}", down.err);
    let other = sandbox.expect(3, &["up", "--detach", "--groups", "2"]);
    assert!(other.err.contains("keeps its data and its settings"), "{}", other.err);
    assert!(other.err.contains("`groups = 2` was given and `groups = 3` is kept"), "{}", other.err);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.status()["groups"].as_array().map(Vec::len), Some(3));
    assert_eq!(sandbox.expect(0, &["get", "one"]).out, "1");
    sandbox.expect(0, &["put", "two", "2"]);
    sandbox.expect(0, &["down"]);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "two"]).out, "2");
    let asked = sandbox.expect(2, &["down", "--wipe"]);
    assert!(asked.err.contains("confirm with --yes"), "{}", asked.err);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
    let left = std::fs::read_dir(&sandbox.dir).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left");
}

#[test]
fn a_node_begins_again_with_its_disk_and_no_other_state() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    sandbox.expect(0, &["put", "key", "value"]);
    let status = sandbox.status();
    let mut durable = 0;
    for replica in status["groups"][0]["replicas"].as_array().expect("replicas") {
        let index = replica["disk"]["durable_index"].as_u64().expect("a number");
        assert!(index <= replica["log_index"].as_u64().expect("a number"), "{replica}");
        assert!(replica["disk"]["since_snapshot_bytes"].is_u64(), "{replica}");
        durable += u64::from(index > 0);
    }
    assert!(durable >= 2, "a group that serves is on two disks: {status}");
    let disk = &status["nodes"][0]["status"]["disk"];
    assert!(disk["free_bytes"].is_u64() && disk["log_bytes_expected"].is_u64(), "{disk}");
    assert_eq!((&status["durability"], &status["store"]), (&"sync".into(), &"memory".into()));
    let wide = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(wide.contains("durability sync, store memory"), "{wide}");
    assert!(wide.contains("on disk  since snapshot  snapshot"), "{wide}");
    let pid = sandbox.pid(1).expect("it runs");
    kill(pid, Signal::KILL);
    until("node 1 runs again", || sandbox.pid(1).is_some_and(|now| now != pid) && sandbox.runs(1));
    let log = std::fs::read_to_string(sandbox.dir.join("node1.log")).expect("a log");
    assert!(!log.contains("is damaged"), "{log}");
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "value");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

/// The log of a node, as it is by now.
fn log_of(sandbox: &Sandbox, node: u16) -> String {
    std::fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).unwrap_or_default()
}

/// A node misses far more than a ring of its groups' logs holds. Their leaders read that from their disks, and what the node
/// was fed is on its own disk: without the disk of another node it is needed.
#[test]
fn a_node_that_missed_more_than_a_ring_holds_is_fed_from_the_disks_of_others() {
    let (_dir, sandbox) = on_disk();
    let config = sandbox.config("[tuning]\nlog_bytes = 65536\n");
    let up = [
        "up",
        "--detach",
        "--no-restart",
        "--groups",
        "2",
        "--durability",
        "sync",
        "--config",
        &config,
    ];
    let up: Ended =
        sandbox.command(&up).env("SKEIN_LOG", "skein=info").output().expect("it runs").into();
    assert_eq!(up.code, Some(0), "{}", up.err);
    let mut client = Client::connect(&sandbox.dir).expect("the cluster runs");
    client.set_timeout(Duration::from_secs(20));
    let write = |client: &mut Client, number: u32| {
        // A key of each group, a value that stands in no entry, and both groups together.
        let key = |of: &str| format!("{of} {}", number % 50).into_bytes();
        let mut all =
            Transaction::of(Operation::Put { key: key("value"), value: vec![number as u8; 2_000] });
        all.then.push(Operation::Increment { key: key("count"), by: 1 });
        all.then.push(Operation::Put { key: key("large"), value: vec![number as u8; 9_000] });
        client.transact(&all).expect("it serves");
    };
    (0..100).for_each(|number| write(&mut client, number));
    let pid = sandbox.pid(2).expect("it runs");
    kill(pid, Signal::KILL);
    until("it has ended", || !is_running(pid));
    (100..400).for_each(|number| write(&mut client, number));
    let node = sandbox
        .command(&["node", "--index", "2", "--log-file"])
        .env("SKEIN_LOG", "skein=info")
        .spawn();
    let mut node = node.expect("the binary runs");
    until("both groups have fed it", || {
        log_of(&sandbox, 2).matches("was fed the log").count() == 2
    });
    (400..450).for_each(|number| write(&mut client, number));
    for node in [0, 1] {
        let log = log_of(&sandbox, node);
        assert!(!log.contains("sends its state"), "{log}");
    }
    sandbox.kill_all();
    let _ = node.wait();
    std::fs::remove_dir_all(sandbox.dir.join("node0.data")).expect("it is there");
    sandbox.expect(0, &["up", "--detach"]);
    let mut client = Client::connect(&sandbox.dir).expect("the cluster runs");
    for key in 0..50_u32 {
        let get = |client: &mut Client, of: &str| {
            client.get(format!("{of} {key}").into_bytes()).expect("it serves").expect("it was put")
        };
        let last = (key + 400) as u8;
        assert_eq!(get(&mut client, "value"), vec![last; 2_000], "{key}");
        assert_eq!(get(&mut client, "large"), vec![last; 9_000], "{key}");
        assert_eq!(get(&mut client, "count"), b"9", "{key}");
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_directory_in_memory_is_refused_and_nothing_is_left_there() {
    let root = Path::new("/dev/shm");
    if !root.is_dir() {
        return; // No file system in memory to try.
    }
    let dir = tempfile::tempdir_in(root).expect("a directory");
    let sandbox = Sandbox::with_dir(dir.path().join("cluster"));
    let refused = sandbox.expect(3, &["up", "--detach", "--durability", "sync"]);
    assert!(refused.err.contains("forgets everything with the power"), "{}", refused.err);
    assert!(!dir.path().join("cluster").exists(), "nothing is left");
}

#[test]
fn a_command_with_a_cluster_of_its_own_leaves_kept_data_alone() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    sandbox.expect(0, &["put", "key", "value"]);
    sandbox.expect(0, &["down"]);
    let mut demo = sandbox.command(&["demo", "--dir", sandbox.dir.to_str().expect("text")]);
    let demo: Ended = demo.env_remove("SKEIN_DIR").output().expect("the binary runs").into();
    assert_eq!(demo.code, Some(2), "{}", demo.err);
    assert!(demo.err.contains("whose data is kept"), "{}", demo.err);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "value");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_cluster_is_as_durable_as_its_disk_allows_unless_somebody_says_otherwise() {
    let (_dir, sandbox) = on_disk();
    let up = sandbox.expect(0, &["up", "--detach", "--groups", "1"]);
    assert!(up.out.contains("survives a loss of power (durability \"sync\")"), "{}", up.out);
    sandbox.expect(0, &["put", "key", "value"]);
    sandbox.kill_all();
    // The same settings, as far as they are named.
    sandbox.expect(0, &["up", "--detach", "--groups", "1"]);
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "value");
    sandbox.expect(0, &["down"]);
    let other = sandbox.expect(3, &["up", "--detach", "--groups", "1", "--durability", "memory"]);
    assert!(other.err.contains("keeps its data and its settings"), "{}", other.err);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);

    let config = sandbox.config("[node]\ndurability = \"memory\"\n");
    for named in [&["--durability", "memory"][..], &["--config", &config]] {
        let up = sandbox.expect(0, &[&["up", "--detach"], named].concat());
        assert!(!up.out.contains("durability"), "{}", up.out);
        assert!(!sandbox.dir.join("node0.data").exists(), "{named:?}");
        sandbox.expect(0, &["down", "--yes"]);
    }
}

#[test]
fn without_a_disk_a_cluster_is_in_memory_and_says_why() {
    let root = Path::new("/dev/shm");
    if !root.is_dir() {
        return; // No file system in memory to try.
    }
    let dir = tempfile::tempdir_in(root).expect("a directory");
    let sandbox = Sandbox::as_chosen(dir.path().join("cluster"));
    let up = sandbox.expect(0, &["up", "--detach"]);
    let why = "in memory only: ";
    assert!(up.out.contains(why) && up.out.contains("is on tmpfs, which forgets"), "{}", up.out);
    sandbox.expect(0, &["down", "--yes"]);
    assert!(!dir.path().join("cluster").exists(), "nothing is left");
}

#[test]
fn data_lies_where_the_configuration_says() {
    let (root, sandbox) = on_disk();
    let (place, link) = (root.path().join("place"), root.path().join("link"));
    std::fs::create_dir(&place).expect("there is room");
    std::os::unix::fs::symlink(&place, &link).expect("there is room");
    let config = |dir: &str| sandbox.config(&format!("[node]\ndata_dir = '{dir}'\n"));
    let text = |path: &Path| path.to_str().expect("text").to_owned();

    let relative = config("place");
    let refused = sandbox.expect(2, &["up", "--detach", "--config", &relative]);
    assert!(refused.err.contains("it takes the absolute path of a directory"), "{}", refused.err);
    let missing = config(&text(&root.path().join("missing")));
    let refused = sandbox.expect(3, &["up", "--detach", "--config", &missing]);
    let advice =
        "missing cannot be used: No such file or directory (os error 2); create it, mount its disk";
    assert!(refused.err.contains(advice), "{}", refused.err);
    assert!(!sandbox.dir.exists(), "nothing is left");
    let in_memory = config(&text(&link));
    let refused =
        sandbox.expect(2, &["up", "--detach", "--config", &in_memory, "--durability", "memory"]);
    assert!(refused.err.contains("a cluster in memory writes no data"), "{}", refused.err);

    let config = config(&text(&link));
    let up = sandbox.expect(0, &["up", "--detach", "--config", &config]);
    assert!(up.out.contains(&format!("data       in {}: ", link.display())), "{}", up.out);
    sandbox.expect(0, &["put", "key", "value"]);
    sandbox.kill_all();
    let places = || std::fs::read_dir(&place).expect("a directory").count();
    assert_eq!(places(), 3, "a directory for each node");
    let shown = sandbox.expect(0, &["inspect", "--summary", &text(&sandbox.dir)]);
    assert_eq!(shown.out.matches("  g0 whole").count(), 3, "{}", shown.out);

    // Without its disk nothing is begun in its place.
    std::fs::rename(&place, root.path().join("aside")).expect("a name");
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("the data of all nodes is gone"), "{}", refused.err);
    assert!(refused.err.contains("is its disk mounted?"), "{}", refused.err);
    std::fs::rename(root.path().join("aside"), &place).expect("a name");
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "value");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
    assert_eq!(places(), 0, "all data is removed");
}
