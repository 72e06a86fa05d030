//! Durable clusters that are started again though some of their data is gone.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::durable::on_disk;
use crate::support::{Sandbox, until};

/// Above what a start takes that waits for nothing, on a busy machine, and below what it waits for nodes to be ready.
const SOON: Duration = Duration::from_mins(1);

/// The value of one key in each of two groups, by the groups' numbers.
fn keys_of_two_groups(sandbox: &Sandbox) -> [String; 2] {
    for number in 0..10 {
        sandbox.expect(0, &["put", &format!("key{number}"), &format!("value of key{number}")]);
    }
    ["g0", "g1"].map(|group| {
        let keys = sandbox.expect(0, &["scan", "--group", group, "--keys-only"]).out;
        keys.lines().next().expect("ten keys are in both groups").to_owned()
    })
}

#[track_caller]
fn check(sandbox: &Sandbox, key: &str) {
    assert_eq!(sandbox.expect(0, &["get", key]).out, format!("value of {key}"));
}

fn set_aside(dir: &Path, node: u16) {
    let data = dir.join(format!("node{node}.data"));
    fs::rename(&data, data.with_extension("aside")).expect("a name");
}

fn put_back(dir: &Path, node: u16) {
    let data = dir.join(format!("node{node}.data"));
    fs::rename(data.with_extension("aside"), &data).expect("a name");
}

#[test]
fn a_group_whose_data_is_gone_is_named_and_the_other_one_serves() {
    one_of_two_is_gone(&["--order", "ramcast"]);
}

/// The root serves what had passed before it was stopped: the group below it does not tell that again.
#[test]
fn a_root_serves_while_the_data_of_the_group_below_it_is_gone() {
    one_of_two_is_gone(&["--order", "tram", "--tree", "depth"]);
}

/// The groups that are left serve what had passed before they were stopped, though no replica of the other can tell it again.
#[test]
fn groups_serve_while_all_data_of_another_is_gone() {
    let (_dir, sandbox) = on_disk();
    // g0 is on nodes 0, 1 and 2, and g3 on nodes 3, 4 and 5.
    let up = ["up", "--detach", "--durability", "sync", "--nodes", "6", "--groups", "4"];
    sandbox.expect(0, &up);
    for number in 0..20 {
        sandbox.expect(0, &["put", &format!("key{number}"), &format!("value of key{number}")]);
    }
    until("all sessions are closed", || sandbox.sum("sessions") + sandbox.sum("pending") == 0);
    let keys = sandbox.expect(0, &["scan", "--group", "g0", "--keys-only"]).out;
    sandbox.expect(0, &["down"]);
    for node in [3, 4, 5] {
        set_aside(&sandbox.dir, node);
    }
    sandbox.expect(5, &["up", "--detach"]);
    check(&sandbox, keys.lines().next().expect("twenty keys are in all groups"));
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

fn one_of_two_is_gone(order: &[&str]) {
    let (_dir, sandbox) = on_disk();
    // g0 is on nodes 0, 1 and 2, and g1 on nodes 1, 2 and 3.
    let up = ["up", "--detach", "--durability", "sync", "--nodes", "4"];
    sandbox.expect(0, &[&up[..], order].concat());
    let [served, lost] = keys_of_two_groups(&sandbox);
    // Sessions begin and end in all groups. One that is about to would hold g0 up until g1 is back.
    until("all sessions are closed", || sandbox.sum("sessions") + sandbox.sum("pending") == 0);
    sandbox.expect(0, &["down"]);
    for node in [2, 3] {
        set_aside(&sandbox.dir, node);
    }

    let begun = Instant::now();
    let up = sandbox.expect(5, &["up", "--detach"]);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(up.out.contains("runs, and serves all but g1"), "{}", up.out);
    assert!(up.err.contains("g1 has no quorum: it takes 2 of its 3 replicas"), "{}", up.err);
    assert!(!up.err.contains("g0 has no quorum") && !up.err.contains("n1 "), "{}", up.err);
    for node in [2, 3] {
        let data = sandbox.dir.join(format!("node{node}.data"));
        let missing = format!(
            "n{node} is not started: its data is gone, though it had run before: {}",
            data.display()
        );
        assert!(up.err.contains(&missing), "{}", up.err);
        assert!(!data.exists(), "nothing is begun in its place");
    }
    assert!(up.err.contains("put it back where it was"), "{}", up.err);

    check(&sandbox, &served);
    let status = sandbox.expect(1, &["status"]);
    assert_eq!(status.out.matches("not started: its data is gone").count(), 2, "{}", status.out);

    let begun = sandbox.expect(3, &["node", "--index", "2"]);
    assert!(begun.err.contains("node 2 does not start: its data is gone"), "{}", begun.err);
    let got = sandbox.expect(3, &["get", "--timeout", "1", &lost]);
    assert!(got.err.contains("node 3: its data is gone"), "{}", got.err);

    // The data was elsewhere.
    sandbox.expect(0, &["down"]);
    for node in [2, 3] {
        put_back(&sandbox.dir, node);
    }
    sandbox.expect(0, &["up", "--detach"]);
    check(&sandbox, &served);
    check(&sandbox, &lost);

    sandbox.expect(0, &["down"]);
    (0..4).for_each(|node| set_aside(&sandbox.dir, node));
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("the data of all nodes is gone"), "{}", refused.err);
    (0..4).for_each(|node| put_back(&sandbox.dir, node));
    sandbox.expect(0, &["up", "--detach"]);
    check(&sandbox, &lost);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn one_node_without_its_data_is_given_the_state_of_the_others() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    let [first, second] = keys_of_two_groups(&sandbox);
    sandbox.expect(0, &["down"]);
    set_aside(&sandbox.dir, 1);
    sandbox.expect(0, &["up", "--detach"]);
    let status = sandbox.expect(0, &["status"]);
    let text = status.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("n1 found no data when it was started"), "{}", status.out);
    let node = &sandbox.status()["nodes"][1]["status"]["disk"];
    assert_eq!(node["missing"], true, "{node}");
    check(&sandbox, &first);
    check(&sandbox, &second);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_node_that_cannot_start_is_named_and_the_others_serve() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--durability", "sync"]);
    let [first, second] = keys_of_two_groups(&sandbox);
    sandbox.expect(0, &["down"]);
    let data = fs::read_dir(sandbox.dir.join("node2.data")).expect("a directory");
    for file in data.flatten() {
        let file = fs::File::options().write(true).open(file.path()).expect("a file");
        file.set_len(1 << 19).expect("it can be cut");
    }
    let up = sandbox.expect(5, &["up", "--detach"]);
    assert!(up.out.contains("serves, and not all of its nodes run"), "{}", up.out);
    assert!(up.err.contains("n2 does not run: it has ended with exit code 3"), "{}", up.err);
    assert!(up.err.contains("bytes long instead of 1048576"), "{}", up.err);
    check(&sandbox, &first);
    check(&sandbox, &second);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}
