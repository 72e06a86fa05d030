//! Faults under a recorded load: `bench chaos`, and the leader killed by the demo.

use std::fs;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::durable::on_disk;
use crate::support::{Ended, Sandbox, kill, until};

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).expect("one JSON object")
}

/// Number of records of a kind in a history.
fn count(history: &str, kind: &str) -> usize {
    let begins = format!("{{\"{kind}\":");
    history.lines().filter(|line| line.starts_with(&begins)).count()
}

#[test]
fn nothing_is_lost_whatever_dies() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let history = sandbox.dir.join("../history.jsonl");
    let history = history.to_str().expect("text");
    let arguments = ["bench", "chaos", "--duration", "12", "--stop-max", "2", "--rate", "1000"];
    let arguments = [&arguments[..], &["--seed", "5", "--json", "--history", history]].concat();
    let report = json(&sandbox.expect(0, &arguments));
    assert!(report["faults"].as_object().expect("faults").len() >= 2, "{report}");
    assert_eq!((&report["good"], &report["verdict"]["replicas"]), (&true.into(), &6.into()));
    assert!(report["verdict"]["acknowledged"].as_u64() > Some(1_000), "{report}");

    let text = fs::read_to_string(history).expect("the history was named, so it is kept");
    assert!(text.starts_with("{\"header\":{\"format\":3,"), "{}", &text[..100]);
    assert_eq!((count(&text, "digest"), count(&text, "end")), (6, 1));
    assert_eq!(count(&text, "invoke") as u64, report["verdict"]["operations"].as_u64().unwrap());
    assert!(count(&text, "fault") > 0 && count(&text, "final") > 50);
    let ended = sandbox.expect(3, &arguments);
    assert!(ended.err.contains("history.jsonl"), "what was kept is not overwritten: {}", ended.err);
}

#[test]
fn leaders_are_killed_and_their_groups_go_on() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let arguments = ["bench", "chaos", "--kills", "3", "--only", "leaders", "--rate", "1000"];
    let arguments = [&arguments[..], &["--records", "2000", "--json"]].concat();
    let report = json(&sandbox.expect(0, &arguments));
    assert_eq!(
        (&report["good"], &report["faults"]),
        (&true.into(), &serde_json::json!({"kill": 3}))
    );
    for times in ["failover_ms", "readmission_ms"] {
        assert!(report[times]["count"].as_u64() >= Some(3), "{report}");
    }
    assert_eq!(report["history"], Value::Null, "nobody wanted it, and nothing is wrong");
}

#[test]
fn losses_of_power_and_of_a_disk_lose_nothing() {
    let (dir, sandbox) = on_disk();
    let arguments =
        ["bench", "chaos", "--durability", "sync", "--faults", "power,disk-loss", "--json"];
    let load = ["--kills", "6", "--rate", "500", "--clients", "8", "--seed", "3"];
    let mut command = sandbox.command(&[&arguments[..], &load].concat());
    command.env_remove("SKEIN_DIR").env("TMPDIR", dir.path());
    let ended: Ended = command.output().expect("the binary runs").into();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    let report = json(&ended);
    let counts = &report["faults"];
    assert!(counts["power"].as_u64() >= Some(2), "{counts}");
    assert!(report["power_on_ms"]["count"].as_u64() > Some(0), "{report}");
    assert_eq!((&report["good"], &report["verdict"]["replicas"]), (&true.into(), &6.into()));
    let left: Vec<_> = fs::read_dir(dir.path()).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn killed_clients_leave_nothing_pending() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let arguments = ["bench", "chaos", "--kills", "5", "--faults", "client-kill", "--json"];
    let report = json(&sandbox.expect(0, &arguments));
    assert_eq!(report["good"], true, "{report}");
    assert!(
        report["verdict"]["unknown"].as_u64() > Some(0),
        "they were in the middle of something"
    );
}

#[test]
fn a_history_with_a_hole_is_evidence_and_is_kept() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let root = sandbox.dir.parent().expect("a directory in another").to_owned();
    let arguments = ["bench", "chaos", "--duration", "60", "--faults", "stop", "--json"];
    let mut command = sandbox.command(&arguments);
    command.env("TMPDIR", &root).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the binary runs");
    until("a node stands still", || sandbox.run(&["status"]).out.contains("paused"));
    kill(child.id().try_into().expect("a process number"), Signal::INT);
    let ended: Ended = child.wait_with_output().expect("our child").into();
    assert_eq!(ended.code, Some(1), "{}", ended.err);
    let report = json(&ended);
    assert_eq!(report["problems"], serde_json::json!(["interrupted"]), "{report}");
    let history = report["history"].as_str().expect("it is kept");
    assert_eq!(count(&fs::read_to_string(history).expect("it is there"), "end"), 1);
    until("what was stopped goes on", || sandbox.run(&["status"]).code == Some(0));
}

#[test]
fn what_cannot_be_done_is_said() {
    let sandbox = Sandbox::new();
    let ended = sandbox.expect(3, &["bench", "chaos"]);
    assert!(ended.err.contains("skein up") && ended.out.is_empty(), "{}", ended.err);
    sandbox.expect(0, &["up", "--detach", "--nodes", "1", "--replicas", "1"]);
    for (arguments, wanted) in [
        (
            &["--faults", "flood"][..],
            "kill, stop, stutter, pause, restart, transfer, evict, client-kill, partition, power, disk-loss",
        ),
        (&["--duration", "0"], "does nothing"),
        (&["--kills", "3", "--faults", "stop"], "never ends"),
        (&["--nodes", "5"], "a cluster of its own"),
        (&["--faults", "partition"], "a cluster of its own"),
        (&["--faults", "power"], "a cluster of its own"),
        (&["--faults", "kill"], "three replicas at least"),
        (&["--faults", "client-kill", "--value-size", "99999999"], "limits.value_bytes_max"),
    ] {
        let ended = sandbox.expect(2, &[&["bench", "chaos"], arguments].concat());
        assert!(ended.err.contains(wanted), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn a_demo_kills_a_leader_and_all_is_well() {
    let sandbox = Sandbox::new();
    let root = sandbox.dir.parent().expect("a directory in another");
    let mut command = sandbox.command(&["demo", "--json"]);
    let ended: Ended = command.env("TMPDIR", root).output().expect("the binary runs").into();
    assert_eq!(ended.code, Some(0), "{}\n{}", ended.out, ended.err);
    let findings = json(&ended);
    assert_eq!((&findings["good"], &findings["problems"]), (&true.into(), &serde_json::json!([])));
    let failover = &findings["failover"];
    assert!(!failover["led"].as_array().expect("groups").is_empty(), "{failover}");
    assert!(failover["readmitted_s"].as_f64() > Some(0.0), "{failover}");
    let bank = &findings["bank"]["bank"];
    assert_eq!(bank["final_sum"], bank["expected_sum"], "{bank}");
    assert_eq!(fs::read_dir(root).expect("a directory").count(), 0, "nothing is left");
}
