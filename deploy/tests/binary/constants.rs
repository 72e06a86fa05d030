//! Nodes with different configurations refuse each other and name the entry that differs.

use std::fs;

use crate::support::{Sandbox, kill, until};
use rustix::process::Signal;

#[test]
fn a_node_with_another_limit_is_refused_and_the_entry_is_named() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    sandbox.expect(0, &["put", "greeting", "hello"]);
    sandbox.expect(0, &["admin", "kill", "2"]);
    until("node 2 has ended", || sandbox.run(&["status"]).out.contains("dead"));

    let file = sandbox.dir.join("cluster.toml");
    let right = fs::read_to_string(&file).unwrap();
    let wrong = right.replace("scan_pairs_max = 10000", "scan_pairs_max = 9999");
    assert_ne!(right, wrong, "{right}");
    fs::write(&file, wrong).unwrap();
    let mut node = sandbox.command(&["node", "--index", "2"]).spawn().unwrap();
    let why = "limits.scan_pairs_max is 9999 there and 10000 here";
    until("the others refuse it", || {
        let status = sandbox.run(&["status"]);
        // Long lines are wrapped.
        let text = status.out.split_whitespace().collect::<Vec<_>>().join(" ");
        let refuses = |node| format!("n{node} refuses n2, whose configuration differs: {why}");
        status.code == Some(1) && (0..2).all(|node| text.contains(&refuses(node)))
    });
    let status = sandbox.status();
    assert_eq!(status["nodes"][0]["status"]["refused"][0]["why"], why);
    for node in [0, 1] {
        let log = fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).unwrap();
        let lines: Vec<_> = log.lines().filter(|line| line.contains(why)).collect();
        assert!(lines.len() == 1 && lines[0].contains("ERROR"), "{lines:?}");
        assert!(!log.contains("has no memory"), "another reason beside the right one: {log}");
    }
    let log = fs::read_to_string(sandbox.dir.join("node2.log")).unwrap();
    assert!(!log.contains("has no memory"), "{log}");
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello", "the others serve");

    kill(sandbox.pid(2).expect("it runs"), Signal::KILL);
    node.wait().unwrap();
    fs::write(&file, right).unwrap();
    let mut node = sandbox.command(&["node", "--index", "2"]).spawn().unwrap();
    until("it is let in", || {
        let status = sandbox.run(&["status"]);
        status.code == Some(0) && status.out.matches("ready").count() == 3
    });
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}
