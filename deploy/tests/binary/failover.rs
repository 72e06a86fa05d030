//! Nodes that die, pause and come back while the cluster is used, and operators who see to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Sandbox, halt, is_running, kill, until};

fn node_of(group: u16, slot: u64) -> u16 {
    (group + slot as u16) % 3
}

fn group(status: &Value, group: usize) -> Value {
    status["groups"][group].clone()
}

/// The node whose replica leads the group.
fn leader(sandbox: &Sandbox, number: u16) -> Option<u16> {
    let group = group(&sandbox.status(), number.into());
    let slot = group["leader"].as_u64().filter(|_| group["available"] == true)?;
    Some(node_of(number, slot))
}

#[track_caller]
fn until_all_is_well(sandbox: &Sandbox) {
    until("every node is ready, and every group serves", || {
        let status = sandbox.run(&["status"]);
        status.code == Some(0) && status.out.matches("ready").count() == 3
    });
}

#[track_caller]
fn kill_node(sandbox: &Sandbox, node: u16) {
    let (pid, lives) = (sandbox.pid(node).expect("it runs"), sandbox.lives(node));
    kill(pid, Signal::KILL);
    until("it is started again", || sandbox.lives(node) > lives);
}

/// Puts keys that the groups share, one after the other, while `during` happens. Every put that was
/// acknowledged must be there afterwards.
fn under_load(sandbox: &Sandbox, during: impl FnOnce()) {
    let enough = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut acknowledged = Vec::new();
            for i in 0.. {
                if enough.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("key{i}");
                if sandbox.run(&["put", &key, &format!("value{i}")]).code == Some(0) {
                    acknowledged.push(i);
                }
            }
            acknowledged
        });
        during();
        enough.store(true, Ordering::Relaxed);
        load.join().expect("the load does not panic")
    });
    assert!(!acknowledged.is_empty());
    for i in acknowledged {
        let got = sandbox.expect(0, &["get", &format!("key{i}")]).out;
        assert_eq!(got, format!("value{i}"));
    }
}

#[test]
fn a_leader_and_a_follower_die_under_load_and_come_back() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    under_load(&sandbox, || {
        for round in 0..4 {
            let leads = leader(&sandbox, round % 2).expect("one leads");
            let victim = if round < 2 { leads } else { (leads + 1) % 3 };
            kill_node(&sandbox, victim);
            until_all_is_well(&sandbox);
        }
    });
    let status = sandbox.status();
    let restarts: u64 =
        status["nodes"].as_array().unwrap().iter().map(|node| node["life"].as_u64().unwrap()).sum();
    assert_eq!(restarts, 4, "{status}");
    let failovers = status["groups"].as_array().unwrap().iter();
    let failovers = failovers.filter(|group| group["last_failover"]["cause"] == "death").count();
    assert!(failovers > 0, "{status}");
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn a_dead_node_is_called_dead_and_the_others_ready_until_it_is_started_by_hand() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    sandbox.expect(0, &["put", "greeting", "hello"]);
    let victim = leader(&sandbox, 1).expect("one leads");
    sandbox.expect(0, &["admin", "kill", &victim.to_string()]);
    until("the others go on", || leader(&sandbox, 1).is_some_and(|now| now != victim));
    until("the others are ready", || {
        let status = sandbox.expect(1, &["status"]).out;
        status.matches("ready").count() == 2 && status.contains("dead for")
    });
    let status = sandbox.status();
    assert_eq!(status["nodes"][usize::from(victim)]["problem"], "dead");
    assert!(status["nodes"][usize::from(victim)]["dead_for_ms"].is_u64(), "{status}");
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");

    let mut node = sandbox.command(&["node", "--index", &victim.to_string()]).spawn().unwrap();
    until_all_is_well(&sandbox);
    let status = sandbox.status();
    assert_eq!(status["nodes"][usize::from(victim)]["life"], 1);
    for group in status["groups"].as_array().unwrap() {
        let lives: Vec<_> = group["view"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["incarnation"].as_u64().unwrap())
            .collect();
        assert_eq!(lives.iter().filter(|life| **life > 0).count(), 1, "let in anew: {group}");
    }
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn leadership_is_transferred_there_and_back() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    under_load(&sandbox, || {
        for to in [1, 2, 0] {
            let done =
                sandbox.expect(0, &["admin", "transfer-leader", "0", "--to", &to.to_string()]);
            assert!(done.out.contains(&format!("slot {to} of group 0")), "{}", done.out);
        }
        let done = sandbox.expect(0, &["admin", "transfer-leader", "g1", "--node", "n0"]);
        assert!(done.out.contains("slot 2 of group 1, on node 0"), "{}", done.out);
        sandbox.expect(0, &["admin", "transfer-leader", "g1"]);
    });
    let group = group(&sandbox.status(), 1);
    assert_eq!(group["last_failover"]["cause"], "transfer", "{group}");
    assert!(
        group["last_failover"]["took_us"].is_u64() && group["last_failover"]["ago_ms"].is_u64()
    );
}

#[test]
fn an_evicted_replica_comes_back() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    under_load(&sandbox, || {
        for _ in 0..3 {
            let slot = u64::from(leader(&sandbox, 0).expect("one leads"));
            let other = (slot + 1) % 3;
            let done = sandbox.expect(0, &["admin", "evict", "0", &other.to_string()]);
            assert!(done.out.contains("is evicted"), "{}", done.out);
            until_all_is_well(&sandbox);
        }
    });
    let slot = leader(&sandbox, 0).expect("one leads").to_string();
    let refused = sandbox.expect(3, &["admin", "evict", "0", &slot]);
    assert!(refused.err.contains("it is the leader itself"), "{}", refused.err);
}

/// The group serves nothing by itself any more, says so, and is begun anew only on purpose.
#[test]
fn a_lost_group_says_so_and_is_recreated_on_purpose() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", "1"]);
    sandbox.expect(0, &["put", "greeting", "hello"]);
    // All but the follower that is left.
    for node in [0, 1] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("the group is lost", || group(&sandbox.status(), 0)["lost"] == true);
    let status = sandbox.expect(1, &["status"]).out;
    assert!(status.contains("LOST"), "{status}");
    assert!(status.contains("`skein admin recreate 0 --accept-data-loss`"), "{status}");
    assert_ne!(sandbox.run(&["get", "greeting"]).code, Some(0), "it never comes back by itself");

    let asked = sandbox.expect(2, &["admin", "recreate", "0"]);
    assert!(asked.err.contains("group 0 is lost"), "{}", asked.err);
    let done = sandbox.expect(0, &["admin", "recreate", "g0", "--accept-data-loss"]);
    assert!(done.out.contains("serves again, empty"), "{}", done.out);
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(1, &["get", "greeting"]).out, "");
    sandbox.expect(0, &["put", "greeting", "hello again"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello again");
    let kept = sandbox.expect(3, &["admin", "recreate", "0", "--accept-data-loss"]);
    assert!(kept.err.contains("is not lost"), "{}", kept.err);
    // And it tolerates a death as before.
    kill_node(&sandbox, leader(&sandbox, 0).expect("one leads"));
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello again");
}

#[test]
fn a_group_is_not_recreated_without_a_quorum_or_behind_the_back_of_a_paused_node() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--groups", "1"]);
    for node in [0, 1] {
        sandbox.expect(0, &["admin", "kill", &node.to_string()]);
    }
    let mut node = sandbox.command(&["node", "--index", "0"]).spawn().unwrap();
    let recreate = ["admin", "recreate", "0", "--accept-data-loss"];
    until("it runs", || sandbox.lives(0) == 2 && sandbox.dir.join("node0.sock").exists());
    let refused = sandbox.expect(3, &recreate);
    assert!(refused.err.contains("group 0"), "{}", refused.err);

    let paused = sandbox.pid(2).unwrap();
    halt(paused);
    let refused = sandbox.expect(3, &recreate);
    assert!(
        refused.err.contains("node 2 runs") && refused.err.contains("paused"),
        "{}",
        refused.err
    );
    kill(paused, Signal::CONT);
    assert!(is_running(paused));
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

#[test]
fn a_paused_leader_is_replaced_and_follows_when_it_goes_on() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    under_load(&sandbox, || {
        let paused = leader(&sandbox, 0).expect("one leads");
        sandbox.expect(0, &["admin", "kill", &paused.to_string(), "--signal", "STOP"]);
        until("another leads", || leader(&sandbox, 0).is_some_and(|now| now != paused));
        let status = sandbox.expect(1, &["status"]).out;
        assert!(status.contains("paused"), "{status}");
        let failover = group(&sandbox.status(), 0)["last_failover"].clone();
        assert_eq!(failover["cause"], "silence", "{failover}");
        sandbox.expect(0, &["admin", "kill", &paused.to_string(), "--signal", "CONT"]);
        until_all_is_well(&sandbox);
    });
}

#[test]
fn a_cluster_can_be_stopped_while_its_nodes_come_back() {
    let sandbox = Sandbox::new();
    for round in 0..4 {
        sandbox.expect(0, &["up", "--detach"]);
        sandbox.expect(0, &["put", "greeting", "hello"]);
        let (regions, mut pids) = (sandbox.regions(), sandbox.pids());
        pids.extend(sandbox.supervisor());
        kill_node(&sandbox, round % 3);
        thread::sleep(Duration::from_millis(20 * u64::from(round)));
        pids.extend(sandbox.pids());
        sandbox.expect(0, &["down", "--yes"]);
        sandbox.check_clean(&regions, &pids);
    }
}

/// A leader may not know that others led after it, and that those who followed them have died.
#[test]
fn a_group_whose_leader_alone_remembers_is_lost() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", "1"]);
    sandbox.expect(0, &["put", "greeting", "hello"]);
    for node in [1, 2] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("the group is lost", || {
        let group = group(&sandbox.status(), 0);
        group["lost"] == true && group["available"] == false
    });
    assert_ne!(sandbox.run(&["get", "greeting"]).code, Some(0), "it never comes back by itself");
    sandbox.expect(0, &["admin", "recreate", "0", "--accept-data-loss"]);
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(1, &["get", "greeting"]).out, "");
    under_load(&sandbox, || kill_node(&sandbox, 0));
}
