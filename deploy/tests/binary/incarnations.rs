//! A node's incarnations: counted from the cluster's start, each used once.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Sandbox, is_running, kill, until};

#[test]
fn what_cannot_be_a_node_is_refused() {
    let sandbox = Sandbox::new();
    assert!(sandbox.expect(3, &["node", "--index", "0"]).err.contains("no cluster in"));
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    let running = sandbox.expect(3, &["node", "--index", "2"]);
    assert!(running.err.contains("running already"), "{}", running.err);
    let unknown = sandbox.expect(3, &["node", "--index", "3"]);
    assert!(unknown.err.contains("no node 3 in a cluster of 3"), "{}", unknown.err);
    assert_eq!([0, 1, 2].map(|node| sandbox.incarnations(node)), [1, 1, 1], "nothing has begun");
}

/// A restarted node that is killed at any moment of its start either has a higher number or has not
/// begun: no two processes that joined have the same incarnation.
#[test]
fn no_life_is_lived_twice_however_its_start_ends() {
    let sandbox = Sandbox::new();
    let config = sandbox.memory_apart();
    let up = ["up", "--detach", "--no-restart", "--nodes", "1", "--replicas", "1", "--config"];
    sandbox.expect(0, &[&up[..], &[&config]].concat());
    sandbox.kill_all();
    let log = sandbox.dir.join("incarnations.log");
    let mut joined = vec![0];
    for round in 0..40 {
        let before = sandbox.incarnations(0);
        let file = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let mut node = sandbox.command(&["node", "--index", "0", "-v"]);
        let mut node = node.stdout(Stdio::null()).stderr(file).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_micros(100 * round * round));
        node.kill().unwrap();
        node.wait().unwrap();
        let incarnations = sandbox.incarnations(0);
        assert!(
            (before..=before + 1).contains(&incarnations),
            "round {round}: {before}, then {incarnations}"
        );
    }
    let said = fs::read_to_string(&log).unwrap();
    for line in said.lines().filter(|line| line.contains("the node is running")) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        joined.push(line["fields"]["incarnation"].as_u64().unwrap());
    }
    assert!(joined.len() > 1, "no start came to its end: {said}");
    assert!(joined.is_sorted_by(|one, next| one < next), "{joined:?}");
    fs::remove_file(&log).unwrap();
}

#[test]
fn a_count_that_is_damaged_or_used_up_is_a_clear_error() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    let pids = sandbox.pids();
    kill(pids[2], Signal::KILL);
    until("node 2 is gone", || !is_running(pids[2]));
    let file = sandbox.dir.join("node2.incarnation");
    #[rustfmt::skip]
    let cases = [
        (Some("16384\n"), "has been started 16384 times"),
        (Some("many\n"),  "holds no number"),
        (None,            "is missing"),
    ];
    for (text, why) in cases {
        match text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let refused = sandbox.expect(3, &["node", "--index", "2"]);
        assert!(refused.err.contains(why), "{}", refused.err);
        if !why.contains("16384") {
            assert!(refused.err.contains("admin replace 2`"), "{}", refused.err);
        }
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), text, "left as it was");
    }
    assert_eq!(sandbox.expect(0, &["down", "--yes"]).code, Some(0));
    assert!(!sandbox.dir.exists());
}

#[test]
fn a_new_cluster_counts_from_the_beginning() {
    let sandbox = Sandbox::new();
    let up = ["up", "--detach", "--nodes", "1", "--replicas", "1"];
    sandbox.expect(0, &up);
    let pid = sandbox.pids()[0];
    kill(pid, Signal::KILL);
    until("it is started again", || sandbox.incarnations(0) == 2);
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.expect(0, &up);
    assert_eq!(sandbox.incarnations(0), 1);
}
