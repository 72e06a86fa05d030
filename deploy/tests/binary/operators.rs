//! Requests of operators that cannot be fulfilled, or that need no quorum.

use rustix::process::Signal;
use serde_json::Value;

use crate::durable::on_disk;
use crate::support::{Sandbox, is_running, kill, until};

#[test]
fn what_is_not_there_is_named() {
    let sandbox = Sandbox::new();
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 13] = [
        (&["transfer-leader", "2"],                    "no group 2: this cluster has 2"),
        (&["transfer-leader", "zero"],                 "not a group"),
        (&["transfer-leader", "0", "--to", "3"],       "no slot 3 in group 0"),
        (&["transfer-leader", "0", "--to", "999"],     "--to"),
        (&["transfer-leader", "0", "--node", "3"],     "no node 3: this cluster has 3"),
        (&["transfer-leader", "0", "--to", "0", "--node", "0"], "cannot be used with"),
        (&["evict", "2", "0"],                         "no group 2"),
        (&["evict", "g0", "3"],                        "no slot 3 in group 0"),
        (&["kill", "3"],                               "no node 3"),
        (&["kill", "0", "--signal", "HUP"],            "--signal"),
        (&["recreate", "2"],                           "no group 2"),
        (&["recreate", "0"],                           "--accept-data-loss"),
        (&["recreate", "0", "--from", "n9"],           "no node 9: this cluster has 3"),
    ];
    for (arguments, _) in cases {
        // Without a cluster nothing exists at all.
        let refused = sandbox.run(&[&["admin"], arguments].concat());
        assert!([Some(2), Some(3)].contains(&refused.code), "{arguments:?}: {}", refused.err);
    }
    sandbox.expect(0, &["up", "--detach"]);
    for (arguments, why) in cases {
        let refused = sandbox.expect(2, &[&["admin"], arguments].concat());
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
    let kept = sandbox.expect(3, &["admin", "recreate", "0", "--accept-data-loss"]);
    assert!(kept.err.contains("is not lost"), "{}", kept.err);
    let leads = sandbox.expect(0, &["admin", "transfer-leader", "0", "--to", "0"]);
    assert!(leads.out.contains("leads it already"), "{}", leads.out);
    sandbox.expect(0, &["status", "--wide"]);
}

#[test]
fn a_cluster_that_does_not_run_does_nothing() {
    let sandbox = Sandbox::new();
    let commands: [&[&str]; 4] =
        [&["transfer-leader", "0"], &["evict", "0", "1"], &["kill", "0"], &["recreate", "0"]];
    for command in commands {
        let refused = sandbox.expect(3, &[&["admin"], command].concat());
        assert!(refused.err.contains("no cluster in"), "{}", refused.err);
    }
    sandbox.expect(0, &["up", "--detach"]);
    sandbox.kill_all();
    // The last threads of the processes release what they held.
    until("it is seen", || sandbox.run(&["status", "--wide"]).err.contains("not running any more"));
    for command in commands {
        let refused = sandbox.expect(3, &[&["admin"], command].concat());
        assert!(refused.err.contains("not running any more"), "{}", refused.err);
    }
}

#[test]
fn a_node_can_be_paused_ended_and_killed_for_a_drill() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    let pids = sandbox.pids();
    sandbox.expect(0, &["admin", "kill", "1", "--signal", "STOP"]);
    let status = sandbox.expect(1, &["status", "--wide"]);
    assert!(status.out.contains("paused; `skein admin kill 1 --signal CONT`"), "{}", status.out);
    sandbox.expect(0, &["admin", "kill", "n1", "--signal", "cont"]);
    until("it goes on", || !sandbox.run(&["status", "--wide"]).out.contains("paused"));
    let ended = sandbox.expect(0, &["admin", "kill", "2", "--signal", "TERM"]);
    assert!(ended.out.contains("`skein node --index 2` starts it again"), "{}", ended.out);
    let killed = sandbox.expect(0, &["admin", "kill", "1"]);
    assert!(killed.out.contains(&format!("process {}, is killed", pids[1])), "{}", killed.out);
    let again = sandbox.expect(3, &["admin", "kill", "1"]);
    assert!(again.err.contains("node 1 does not run"), "{}", again.err);
    assert!(is_running(pids[0]));
    until("the last node has noticed", || {
        sandbox.run(&["status", "--wide"]).out.contains("dead for")
    });
    let status = sandbox.expect(1, &["status", "--wide"]);
    assert!(!status.out.contains("connecting"), "{}", status.out);
}

/// The findings of `doctor --json` about the cluster, and whether all is well.
fn found_of_cluster(sandbox: &Sandbox) -> (Value, bool) {
    let ended = sandbox.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let healthy = report["healthy"] == true;
    assert_eq!(ended.code, Some(i32::from(!healthy)), "{report}");
    let mut findings = report["findings"].as_array().unwrap().iter();
    (findings.find(|finding| finding["name"] == "cluster").unwrap().clone(), healthy)
}

#[test]
fn the_doctor_says_whether_the_cluster_serves_and_that_its_data_is_kept() {
    let (_dir, sandbox) = on_disk();
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--durability", "sync", "--groups", "1"]);
    for node in 0..2 {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("the group has no quorum", || sandbox.status()["groups"][0]["available"] == false);
    let (found, healthy) = found_of_cluster(&sandbox);
    assert!(!healthy && found["grade"] == "problem", "{found}");
    let advice = found["advice"].as_str().unwrap();
    assert!(advice.contains("g0 does not serve: `skein status` says why"), "{advice}");
    let status =
        sandbox.expect(1, &["status"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(status.contains("Start those that are dead"), "{status}");
    assert!(!status.contains("It resumes by itself"), "{status}");
    sandbox.expect(0, &["down"]);
    let (found, _) = found_of_cluster(&sandbox);
    let advice = found["advice"].as_str().unwrap();
    assert!(advice.contains("`skein up` goes on with it"), "{advice}");
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn status_and_doctor_say_who_supervises() {
    let sandbox = Sandbox::new();
    let up = ["--nodes", "1", "--replicas", "1"];
    let said = |sandbox: &Sandbox| {
        let doctor = sandbox.run(&["doctor"]).out;
        (sandbox.run(&["status", "--wide"]).out, sandbox.status()["supervisor"].clone(), doctor)
    };
    sandbox.expect(0, &[&["up", "--detach"], &up[..]].concat());
    let supervisor = sandbox.supervisor().unwrap();
    let (status, json, doctor) = said(&sandbox);
    assert!(status.contains(&format!("supervised by process {supervisor}")), "{status}");
    assert_eq!((&json["pid"], &json["restarts"]), (&supervisor.into(), &true.into()));
    assert!(doctor.contains(&format!("supervised by process {supervisor}")), "{doctor}");

    kill(supervisor, Signal::KILL);
    until("the supervisor is gone", || !is_running(supervisor));
    let (status, json, doctor) = said(&sandbox);
    for text in [&status, &doctor] {
        assert!(text.contains("o process supervises the"), "{text}");
        assert!(text.contains("`skein supervise --detach`"), "{text}");
    }
    assert!(json.is_null());
    sandbox.expect(0, &["down", "--yes"]);

    let mut foreground = sandbox.up_in_foreground(&[&up[..], &["--no-restart"]].concat());
    let (status, json, _) = said(&sandbox);
    assert!(status.contains("which restarts nothing"), "{status}");
    assert_eq!(json["restarts"], false);
    sandbox.expect(0, &["down", "--yes"]);
    foreground.wait().unwrap();
}
