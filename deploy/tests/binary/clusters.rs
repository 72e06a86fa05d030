//! Clusters from `up` to `down`, with real processes and with failures in between.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::support::{Ended, Sandbox, halt, is_running, kill, until};
use rustix::process::Signal;

fn end(mut up: Child) -> Ended {
    let mut err = String::new();
    up.stderr.take().expect("piped").read_to_string(&mut err).expect("text");
    Ended { code: up.wait().expect("our child").code(), out: String::new(), err }
}

#[test]
fn a_cluster_starts_says_what_it_does_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    let up =
        sandbox.expect(0, &["up", "--detach", "--nodes", "5", "--groups", "4", "--replicas", "5"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    assert_eq!(pids.len(), 5);
    assert!(pids.iter().all(|pid| up.out.contains(&pid.to_string())), "{}", up.out);

    let status = sandbox.status();
    assert_eq!(status["nodes"].as_array().unwrap().len(), 5);
    for (node, pid) in status["nodes"].as_array().unwrap().iter().zip(&pids) {
        assert_eq!(node["pid"], *pid);
        assert_eq!(node["status"]["ready"], true);
    }
    assert_eq!(status["groups"].as_array().unwrap().len(), 4);
    assert!(sandbox.expect(0, &["status"]).out.contains("ready"));

    sandbox.expect(0, &["put", "key", "value"]);
    let refused = sandbox.expect(2, &["down"]);
    assert!(refused.err.contains("1 key") && refused.err.contains("--yes"), "{}", refused.err);
    sandbox.expect(0, &["del", "key"]);
    // Without data there is no question.
    sandbox.expect(0, &["down"]);
    sandbox.check_clean(&regions, &pids);
    assert!(sandbox.expect(3, &["status"]).err.contains("no cluster in"));
    assert!(sandbox.expect(3, &["down", "--yes"]).err.contains("no cluster in"));
}

#[test]
fn a_second_up_is_refused_and_harms_nothing() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let refused = sandbox.expect(3, &["up", "--detach"]);
    for pid in sandbox.pids() {
        assert!(refused.err.contains(&pid.to_string()), "{}", refused.err);
    }
    sandbox.expect(0, &["status"]);
}

#[test]
fn what_was_killed_is_recognised_and_removed() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let first = sandbox.regions();
    // The system takes a moment to release what killed processes held. They count as dead at once.
    sandbox.kill();
    assert!(sandbox.expect(3, &["status"]).err.contains("not running any more"));

    sandbox.expect(0, &["up", "--detach"]);
    assert!(!first.exists(), "the next `up` removes it");
    sandbox.kill();
    sandbox.expect(0, &["up", "--detach"]);
    let (second, pids) = (sandbox.regions(), sandbox.pids());
    sandbox.kill();
    // Nothing can be lost any more, so there is no question.
    sandbox.expect(0, &["down"]);
    sandbox.check_clean(&second, &pids);
}

#[test]
fn abandoned_memory_is_removed_by_any_later_up() {
    let (lost, other) = (Sandbox::new(), Sandbox::new());
    let config = lost.memory_apart();
    let root = lost.dir.with_file_name("memory");
    lost.expect(0, &["up", "--detach", "--config", &config]);
    let regions = lost.regions();
    lost.kill_all();
    fs::remove_dir_all(&lost.dir).unwrap();
    assert!(regions.starts_with(&root) && regions.exists());

    other.expect(0, &["up", "--detach", "--config", &config]);
    assert!(!regions.exists());
    other.expect(0, &["down", "--yes"]);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
}

#[test]
fn down_stops_what_is_left_of_a_cluster() {
    let sandbox = Sandbox::new();
    let config = sandbox.config("[node]\nstop_within_ms = 50\n");
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--config", &config]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    kill(pids[0], Signal::KILL);
    halt(pids[1]);
    until("node 0 is gone", || !is_running(pids[0]));
    let status = sandbox.expect(1, &["status"]);
    assert!(status.out.contains("dead") && status.out.contains("paused"), "{}", status.out);
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn a_foreground_cluster_ends_with_its_up() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let sandbox = Sandbox::new();
        let up = sandbox.up_in_foreground(&[]);
        let (regions, pids) = (sandbox.regions(), sandbox.pids());
        kill(up.id().cast_signed(), signal);
        let ended = end(up);
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        sandbox.check_clean(&regions, &pids);
    }
}

#[test]
fn down_ends_a_foreground_up() {
    let sandbox = Sandbox::new();
    let up = sandbox.up_in_foreground(&[]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(end(up).code, Some(0));
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn nodes_end_when_their_up_is_killed() {
    let sandbox = Sandbox::new();
    let mut up = sandbox.up_in_foreground(&[]);
    let pids = sandbox.pids();
    up.kill().unwrap();
    up.wait().unwrap();
    until("the nodes have ended", || pids.iter().all(|pid| !is_running(*pid)));
    sandbox.expect(0, &["up", "--detach"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn the_death_of_a_node_is_told() {
    let sandbox = Sandbox::new();
    let mut up = sandbox.up_in_foreground(&["--no-restart"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    kill(pids[1], Signal::KILL);
    let mut err = BufReader::new(up.stderr.take().unwrap()).lines();
    let told = err.find(|line| line.as_ref().is_ok_and(|line| line.contains("node 1 was killed")));
    assert!(told.is_some());

    for pid in &pids {
        kill(*pid, Signal::KILL);
    }
    assert_eq!(up.wait().unwrap().code(), Some(3), "nothing is left to run");
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn clusters_live_side_by_side() {
    let (one, other) = (Sandbox::new(), Sandbox::new());
    one.expect(0, &["up", "--detach"]);
    other.expect(0, &["up", "--detach", "--groups", "1"]);
    let (regions, pids) = (one.regions(), one.pids());
    one.expect(0, &["down", "--yes"]);
    one.check_clean(&regions, &pids);
    assert_eq!(other.status()["groups"].as_array().unwrap().len(), 1);
    other.expect(0, &["status"]);
}

#[test]
fn directories_may_have_long_names() {
    let sandbox = Sandbox::with_dir(["d".repeat(100), "e".repeat(100)].iter().collect::<PathBuf>());
    sandbox.expect(0, &["up", "--detach"]);
    sandbox.expect(0, &["status"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
    assert!(!sandbox.dir.parent().unwrap().exists(), "what `up` had made above it is gone too");
}

#[test]
fn what_is_not_ours_stays() {
    let sandbox = Sandbox::new();
    fs::create_dir(&sandbox.dir).unwrap();
    let mine = ["config.toml", "node.txt", "nodeX.lock", "cluster.toml.bak"];
    for name in mine {
        fs::write(sandbox.dir.join(name), "mine").unwrap();
    }
    sandbox.expect(0, &["up", "--detach"]);
    sandbox.expect(0, &["down", "--yes"]);
    let mut left: Vec<_> = fs::read_dir(&sandbox.dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    left.sort();
    let mut mine: Vec<_> = mine.into();
    mine.sort_unstable();
    assert_eq!(left, mine);

    for name in ["lock", "cluster.toml", "node1.sock"] {
        let path = sandbox.dir.join(name);
        fs::write(&path, "mine, too").unwrap();
        let refused = sandbox.expect(3, &["up", "--detach"]);
        assert!(refused.err.contains("is not ours"), "{name}: {}", refused.err);
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine, too");
        fs::remove_file(path).unwrap();
    }
    let manifest = sandbox.dir.join("cluster.json");
    fs::write(&manifest, "{}").unwrap();
    assert!(sandbox.expect(3, &["up", "--detach"]).err.contains("is not the manifest"));
    fs::remove_file(manifest).unwrap();
    assert!(!sandbox.dir.join("lock").exists());
}

#[test]
fn a_binary_that_does_not_match_is_refused() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let path = sandbox.dir.join("cluster.json");
    let before = fs::read_to_string(&path).unwrap();
    let mut manifest = sandbox.manifest().unwrap();
    let ours = manifest["build"]["commit"].as_str().unwrap().to_owned();
    manifest["build"]["commit"] = "feedfacecafe".into();
    fs::write(&path, manifest.to_string()).unwrap();
    let refused = sandbox.expect(3, &["status"]);
    assert!(refused.err.contains("feedfacecafe") && refused.err.contains(&ours), "{}", refused.err);
    fs::write(&path, before).unwrap();
    sandbox.expect(0, &["status"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_a_clear_error() {
    let sandbox = Sandbox::new();
    fs::write(&sandbox.dir, "a file").unwrap();
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains(sandbox.dir.to_str().unwrap()), "{}", refused.err);
    let below = sandbox.dir.join("below");
    let refused = sandbox.expect(3, &["up", "--detach", "--dir", below.to_str().unwrap()]);
    assert!(refused.err.contains("below"), "{}", refused.err);
}

#[test]
fn a_node_that_cannot_start_shows_why_and_nothing_is_left() {
    let sandbox = Sandbox::new();
    // Room for the small files that `up` writes, but not for a log.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 64; exec \"$0\" up --detach", env!("CARGO_BIN_EXE_skein")]);
    let output = limited.env("SKEIN_DIR", &sandbox.dir).stdin(Stdio::null()).output().unwrap();
    let ended = Ended::from(output);
    assert_eq!(ended.code, Some(3), "{}", ended.err);
    assert!(ended.err.contains("not started: node"), "{}", ended.err);
    assert!(!sandbox.dir.exists());
}

#[test]
fn directories_need_names_that_are_text() {
    let sandbox = Sandbox::with_dir(OsStr::from_bytes(b"not\xfftext"));
    sandbox.expect(3, &["up", "--detach"]);
    assert!(!sandbox.dir.exists());
}

#[test]
fn down_says_what_is_lost_and_dead_clients_are_forgotten() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    for key in ["one", "two", "three"] {
        sandbox.expect(0, &["put", key, "value"]);
    }
    assert!(sandbox.expect(2, &["down"]).err.contains("3 keys exist"));

    let bench = [
        "bench",
        "ycsb",
        "--workload",
        "a",
        "--records",
        "100",
        "--clients",
        "4",
        "--duration",
        "600",
    ];
    let mut client =
        sandbox.command(&bench).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("sessions are open", || sandbox.sum("sessions") > 0);
    client.kill().unwrap();
    client.wait().unwrap();
    until("sessions have expired", || sandbox.sum("sessions") + sandbox.sum("pending") == 0);
    assert_eq!(sandbox.expect(0, &["get", "two"]).out.trim(), "value");
}

#[test]
fn clients_that_came_and_went_hold_no_memory() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    let of_nodes_alone = || {
        let files = fs::read_dir(&regions).expect("a directory").flatten();
        files.map(|file| file.file_name()).all(|name| name.as_bytes().starts_with(b"n"))
    };
    for i in 0..20 {
        sandbox.expect(0, &["put", &format!("key{i}"), "value"]);
        let child = sandbox.command(&["bench", "ycsb", "-w", "a", "--records", "100000"]);
        let child = { child }.stdout(Stdio::null()).spawn();
        let mut child = child.expect("the binary runs");
        std::thread::sleep(std::time::Duration::from_millis(7 * i));
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
    until("what was killed has left no files", of_nodes_alone);
    let mapped = |pid: &i32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a node runs");
        maps.lines().filter(|line| line.ends_with(" (deleted)")).count()
    };
    until("no node maps what is gone", || pids.iter().map(mapped).sum::<usize>() == 0);
    // Each new leader writes to logs that are newly created for it.
    for _ in 0..10 {
        sandbox.expect(0, &["admin", "transfer-leader", "0"]);
    }
    until("no former leader maps logs", || pids.iter().map(mapped).sum::<usize>() == 0);
}
