//! Nodes that the others refuse, and files by which nodes remember each other.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::disks::ready;
use crate::durable::on_disk;
use crate::support::{Sandbox, until};

/// The files of a node that are put back from a copy.
const KINDS: [&str; 4] = ["data", "identity", "incarnation", "peers"];

fn copy(from: &Path, to: &Path) {
    for kind in KINDS {
        let name = format!("node0.{kind}");
        let copied = Command::new("cp").arg("-a").arg(from.join(&name)).arg(to).status();
        assert!(copied.expect("cp runs").success(), "{name}");
    }
}

fn log(sandbox: &Sandbox, node: u16) -> String {
    fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).unwrap_or_default()
}

#[test]
fn a_node_whose_files_are_put_back_from_an_older_copy_stays_refused_until_it_is_replaced() {
    let (dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    sandbox.expect(0, &["down"]);
    let old = dir.path().join("old");
    fs::create_dir(&old).expect("the directory can be written");
    copy(&sandbox.dir, &old);
    for round in 0..3 {
        sandbox.expect(0, &["up", "--detach"]);
        sandbox.expect(0, &["put", &format!("key{round}"), "value"]);
        sandbox.expect(0, &["down"]);
    }
    for kind in KINDS {
        let path = sandbox.dir.join(format!("node0.{kind}"));
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("it is there");
    }
    copy(&old, &sandbox.dir);
    let up = sandbox.run(&["up", "--detach"]);
    assert!([Some(0), Some(5)].contains(&up.code), "{}", up.err);
    until("node 0 is marked", || sandbox.dir.join("node0.refused").exists());
    until("the supervisor says why it waits", || {
        let said = fs::read_to_string(sandbox.dir.join("supervisor.log")).unwrap_or_default();
        said.contains(
            "node 0 is not started: node 0 does not start, for the other nodes have refused it",
        )
    });
    let starts = sandbox.incarnations(0);
    assert_eq!(starts, 2, "the start that was refused, and none after it");
    for _ in 0..4 {
        let refused = sandbox.expect(3, &["node", "--index", "0"]);
        for part in ["node 0 claims start number 2", "`skein admin replace 0`", "node0.refused"] {
            assert!(refused.err.contains(part), "{}", refused.err);
        }
    }
    assert_eq!(sandbox.incarnations(0), starts, "no start of it counts");
    let said = sandbox.expect(0, &["admin", "replace", "0"]).out;
    assert!(said.contains("node0.data.replaced-"), "{said}");
    until("all are ready", || ready(&sandbox));
    for round in 0..3 {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{round}")]).out, "value");
    }
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
    let left = fs::read_dir(&sandbox.dir).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left");
}

#[test]
fn what_a_node_of_another_cluster_remembers_is_set_aside() {
    let (_dir, sandbox) = on_disk();
    let (_other_dir, other) = on_disk();
    for sandbox in [&sandbox, &other] {
        sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
        sandbox.expect(0, &["put", "key", "value"]);
        let peers = || fs::read_to_string(sandbox.dir.join("node1.peers")).unwrap_or_default();
        until("node 1 knows the others", || {
            peers().contains("\"0\":") && peers().contains("\"2\":")
        });
        sandbox.expect(0, &["down"]);
    }
    fs::copy(other.dir.join("node1.peers"), sandbox.dir.join("node1.peers")).expect("both exist");
    sandbox.expect(0, &["up", "--detach"]);
    until("all are ready", || ready(&sandbox));
    assert_eq!(sandbox.expect(0, &["get", "key"]).out, "value");
    let said = log(&sandbox, 1);
    assert!(said.contains("node1.peers is of another cluster"), "{said}");
    for sandbox in [&sandbox, &other] {
        sandbox.expect(0, &["down", "--wipe", "--yes"]);
    }
}
