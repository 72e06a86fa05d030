//! What orders messages: measured along trees, and chosen for a cluster.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Sandbox, halt, kill, until};

const MULTICAST: [&str; 8] =
    ["bench", "multicast", "--runs", "1", "--warmup", "0.1", "--clients", "4"];

/// The reports of a command that measures something, however busy the machine is.
#[track_caller]
fn measured(sandbox: &Sandbox, arguments: &[&str]) -> Vec<Value> {
    for duration in ["0.2", "2", "20"] {
        let rest = ["--json", "--duration", duration];
        let ended = sandbox.run(&[&MULTICAST[..], arguments, &rest].concat());
        if ended.code == Some(1) && ended.out.contains("nothing was measured") {
            continue;
        }
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}\n{}", ended.out, ended.err);
        let reports = ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        return reports.collect();
    }
    panic!("something is measured in 20 s");
}

#[test]
fn every_tree_is_measured_wherever_its_replicas_run() {
    let sandbox = Sandbox::new();
    #[rustfmt::skip]
    let cases: [(&[&str], &str, &str); 6] = [
        (&["--processes"],                    "3", "base"),
        (&["--processes"],                    "1", "depth"),
        (&["--threads"],                      "8", "breadth"),
        (&["--threads", "--dst", "2"],        "8", "depth"),
        (&["--fabric", "tcp", "--dst", "2"],  "3", "-1,0,1"),
        (&["--fabric", "tls", "--engines", "3"], "3", "1,-1,1"),
    ];
    for (placement, groups, tree) in cases {
        let order = ["--order", "tram", "--tree", tree, "--groups", groups];
        let reports = measured(&sandbox, &[placement, &order].concat());
        let [report] = &reports[..] else { panic!("one report") };
        assert_eq!((&report["order"], &report["good"]), (&json!("tram"), &json!(true)));
        assert!(report["messages_per_s"]["low"].as_f64() > Some(0.0), "{report}");
        let named = report["tree"].as_str().unwrap();
        // Trees of few groups are the same, and have the simplest name.
        let wanted = match (groups, tree) {
            ("1", _) => "breadth",
            ("3", "-1,0,1" | "base") => "depth",
            (_, "1,-1,1") => "[1, -1, 1]",
            _ => tree,
        };
        assert_eq!(named, wanted, "{report}");
    }
}

#[test]
fn both_orderings_are_compared_over_the_same_sets() {
    let sandbox = Sandbox::new();
    let load = ["--groups", "3", "--dst", "2", "--threads", "--seed", "1"];
    let compare = ["--compare", "--tree", "depth", "--adjacent", "--ungated"];
    let reports = measured(&sandbox, &[&load[..], &compare].concat());
    let names: Vec<_> = reports.iter().map(|it| it["order"].as_str().unwrap()).collect();
    assert_eq!(names, ["ramcast", "tram"]);
    for report in &reports {
        assert_eq!((&report["tree"], &report["adjacent"]), (&json!("depth"), &json!(true)));
    }
    assert_eq!(reports[0]["ungated"], json!(false), "RamCast has no such gate to open");
    assert_eq!(reports[1]["ungated"], json!(true));

    let simulated = ["bench", "multicast", "--simulated", "--duration", "0.002", "--runs", "2"];
    let more = ["--groups", "8", "--clients", "8", "--compare", "--tree", "depth", "--ungated"];
    let ended = sandbox.expect(0, &[&simulated[..], &more].concat());
    for words in [
        "ordered by ramcast",
        "ordered by tram along depth, ungated: not strictly real-time",
        "tram along depth against ramcast, medians of 2 runs",
        "█",
        "× ",
    ] {
        assert!(ended.out.contains(words), "{words}: {}", ended.out);
    }
    let csv = sandbox.expect(0, &[&simulated[..], &more, &["--csv"]].concat()).out;
    assert_eq!(csv.matches("order,tree").count(), 1, "{csv}");
    assert_eq!(csv.lines().filter(|line| line.starts_with("tram,depth,false,true")).count(), 2);
}

#[test]
fn what_cannot_be_measured_along_a_tree_is_said() {
    let sandbox = Sandbox::new();
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 10] = [
        (&["--tree", "depth"],                              "add --order tram, --compare or --adjacent"),
        (&["--ungated"],                                    "add --order tram or --compare"),
        (&["--adjacent"],                                   "add --tree"),
        (&["--compare", "--order", "tram"],                 "cannot be used with"),
        (&["--order", "paxos"],                             "ramcast, tram"),
        (&["--order", "tram", "--tree", "wide"],            "\"base\", \"breadth\", \"depth\""),
        (&["--order", "tram", "--tree", "-1,0"],            "parents for 2, and the number of groups is 3"),
        (&["--order", "tram", "--tree", "-1,-1,0"],         "both g0 and g1 have no parent"),
        (&["--order", "tram", "--tree", "-1,2,1"],          "are each other's ancestors"),
        (&["--compare", "--tree", "-1,1,0"],                "g1 is its own parent"),
    ];
    for (arguments, why) in cases {
        let groups = ["bench", "multicast", "--groups", "3"];
        let refused = sandbox.expect(2, &[&groups[..], arguments].concat());
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
}

#[test]
fn a_cluster_of_one_group_is_ordered_along_a_tree() {
    let sandbox = Sandbox::new();
    let up = ["up", "--detach", "--groups", "1"];
    sandbox.expect(0, &[&up[..], &["--order", "tram"]].concat());
    let manifest = sandbox.manifest().expect("a cluster");
    assert_eq!(manifest["tree"], json!([null]));
    let status = sandbox.status();
    assert_eq!((&status["order"], &status["tree"]), (&json!("tram"), &json!("breadth")));
    let shown = sandbox.expect(0, &["status"]).out;
    assert!(shown.contains("ordered by tram along breadth"), "{shown}");
    let doctor = sandbox.run(&["doctor"]).out;
    assert!(doctor.contains("3 of 3 nodes run, ordered by tram along breadth"), "{doctor}");
    sandbox.expect(0, &["put", "greeting", "hello"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out.trim(), "hello");
    sandbox.expect(0, &["admin", "kill", "0"]);
    sandbox.expect(0, &["put", "greeting", "again"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out.trim(), "again");

    // Another ordering than that of the cluster is refused, whoever changes the file.
    let file = sandbox.dir.join("cluster.toml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("protocol = \"tram\"") && text.contains("tree = \"breadth\""), "{text}");
    let changed = text.replace("protocol = \"tram\"", "protocol = \"ramcast\"");
    fs::write(&file, changed.replace("tree = \"breadth\"", "tree = \"\"")).unwrap();
    let refused = sandbox.run(&["node", "--index", "0"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("order.protocol = ramcast"), "{}", refused.err);
    assert!(refused.err.contains("made with tram"), "{}", refused.err);
    // So is another tree.
    fs::write(&file, text.replace("tree = \"breadth\"", "tree = [1, -1]")).unwrap();
    let refused = sandbox.run(&["node", "--index", "0"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("order.tree = [1, -1]"), "{}", refused.err);
    fs::write(&file, text).unwrap();
    sandbox.expect(0, &["down", "--yes"]);
}

#[test]
fn a_cluster_with_a_tree_that_does_not_fit_is_refused() {
    let sandbox = Sandbox::new();
    let up = ["up", "--detach", "--order", "tram"];
    let refused = sandbox.expect(2, &["up", "--detach", "--groups", "1", "--tree", "depth"]);
    assert!(refused.err.contains("order.tree = depth (from the command line)"), "{}", refused.err);
    assert!(refused.err.contains("only tram orders along a tree"), "{}", refused.err);
    let refused = sandbox.expect(2, &[&up[..], &["--tree", "-1,1"]].concat());
    assert!(refused.err.contains("g1 is its own parent"), "{}", refused.err);
    assert!(!sandbox.dir.exists(), "nothing was done");
}

/// Each group of a chain is lost at once: one begins empty, and the others go on from the node that is left.
#[test]
fn lost_groups_of_a_tree_are_recreated_empty_or_from_a_survivor() {
    let sandbox = Sandbox::new();
    let up = ["up", "--detach", "--groups", "3", "--order", "tram", "--tree", "depth"];
    sandbox.expect(0, &up);
    let keys: Vec<_> = (0..30).map(|i| format!("key{i}")).collect();
    for key in &keys {
        sandbox.expect(0, &["put", key, "value"]);
    }
    let version = |key: &str| {
        let got = sandbox.expect(0, &["get", key, "--json"]).out;
        serde_json::from_str::<Value>(&got).unwrap()["version"].as_u64().unwrap()
    };
    let before = keys.iter().map(|key| version(key)).max().unwrap();
    for node in [0, 1] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    let lost = |group: usize| sandbox.status()["groups"][group]["lost"] == true;
    until("all groups are lost", || (0..3).all(lost));
    let empty = ["admin", "recreate", "g1", "--accept-data-loss", "--discard-survivors"];
    let done = sandbox.expect(0, &empty);
    assert!(done.out.contains("serves again, empty"), "{}", done.out);
    assert!(done.out.contains("may be done in some of their groups"), "{}", done.out);
    for group in ["g0", "g2"] {
        let done = sandbox.expect(0, &["admin", "recreate", group, "--from", "n2"]);
        assert!(done.out.contains("with the state of node 2"), "{}", done.out);
    }
    until("every node is ready, and every group serves", || {
        let status = sandbox.run(&["status", "--wide"]);
        status.code == Some(0) && status.out.matches("ready").count() == 3
    });
    let kept = keys.iter().filter(|key| sandbox.run(&["get", key]).code == Some(0)).count();
    assert!((1..30).contains(&kept), "one group of three has lost its keys: {kept} are left");
    // Commands of all groups go through each of them, in a session that begins there.
    let puts: Vec<_> = keys.iter().map(|key| json!({"put": key, "value": "again"})).collect();
    let file = sandbox.dir.with_file_name("all.json");
    fs::write(file, json!({ "then": puts }).to_string()).unwrap();
    sandbox.expect(0, &["txn", "all.json"]);
    for key in &keys {
        assert_eq!(sandbox.expect(0, &["get", key]).out, "again");
    }
    let after = keys.iter().map(|key| version(key)).max().unwrap();
    assert!(after > before, "version {after} after version {before}");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

/// Groups without copies lose what they knew of transactions that others have, and the clients are dead: nobody sends them
/// again. `waits` says of the first replica of each group when there are some.
fn half_done(order: &[&str], stopped: u16, lost: &[u16], waits: impl Fn(&[Value]) -> bool) {
    let sandbox = Sandbox::new();
    let up = ["up", "--detach", "--groups", "3", "--replicas", "1", "--durability", "memory"];
    sandbox.expect(0, &[&up[..], order].concat());
    let load = ["bench", "bank", "--readers", "1", "--duration", "600"];
    let mut load =
        sandbox.command(&load).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("transactions are done", || sandbox.sum("delivered") > 500);
    halt(sandbox.pid(stopped).unwrap());
    let replicas = || -> Vec<Value> {
        let groups = sandbox.status()["groups"].take();
        groups.as_array().unwrap().iter().map(|group| group["replicas"][0].clone()).collect()
    };
    until("transactions wait for the group that was stopped", || waits(&replicas()));
    load.kill().unwrap();
    load.wait().unwrap();
    for node in lost {
        kill(sandbox.pid(*node).unwrap(), Signal::KILL);
    }
    if !lost.contains(&stopped) {
        kill(sandbox.pid(stopped).unwrap(), Signal::CONT);
    }
    for group in lost {
        until("the group is lost", || {
            sandbox.status()["groups"][usize::from(*group)]["lost"] == true
        });
        let group = format!("g{group}");
        let recreate = ["admin", "recreate", &group, "--accept-data-loss", "--discard-survivors"];
        sandbox.expect(0, &recreate);
    }
    until("nothing waits for a group that has forgotten it", || {
        let rests =
            |it: &Value| it["results"]["under_way"] == json!(0) && it["pending"] == json!(0);
        replicas().iter().all(rests)
    });
    sandbox.expect(0, &["bench", "bank", "--duration", "0.5"]);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn a_recreated_group_objects_to_what_it_has_forgotten() {
    // The last group has the proposals of the one that is lost, and delivers when it runs again.
    half_done(&["--order", "ramcast"], 2, &[1], |replicas| {
        replicas[..2].iter().all(|it| it["blocked"]["held_up_by"] == json!([2]))
    });
}

#[test]
fn a_recreated_group_of_a_tree_objects_to_what_was_lost_on_its_way() {
    // The group in between has acknowledged what the root has delivered, and nobody else has it.
    half_done(&["--order", "tram", "--tree", "depth"], 2, &[1, 2], |replicas| {
        let kept = &replicas[0]["edges"]["children"][0]["unacknowledged"];
        replicas[0]["results"]["under_way"] != json!(0) && *kept == json!(0)
    });
}
