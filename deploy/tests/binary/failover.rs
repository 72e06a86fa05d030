//! Nodes that die, pause and return while the cluster is used, and the commands of operators.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Sandbox, halt, is_running, kill, until};

fn group(status: &Value, group: usize) -> Value {
    status["groups"][group].clone()
}

/// The answer of a node to a request on its admin socket.
fn ask(sandbox: &Sandbox, node: u16, request: &str) -> Value {
    let stream = sandbox.admin(node);
    (&stream).write_all(format!("{request}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Number of keys of the node's replica of group 0.
fn keys(sandbox: &Sandbox, node: u16) -> Value {
    let status = ask(sandbox, node, "{\"v\":1,\"do\":\"status\"}");
    status["ok"]["replicas"][0]["keys"].clone()
}

/// The replica that leads the group.
fn leading(sandbox: &Sandbox, number: u16) -> Option<Value> {
    let group = group(&sandbox.status(), number.into());
    let slot = group["leader"].as_u64().filter(|_| group["available"] == true)?;
    let mut replicas = group["replicas"].as_array()?.iter();
    replicas.find(|replica| replica["slot"] == slot).cloned()
}

/// Its node.
fn leader(sandbox: &Sandbox, number: u16) -> Option<u16> {
    leading(sandbox, number)?["node"].as_u64().map(|node| node as u16)
}

/// Its slot.
fn leading_slot(sandbox: &Sandbox, number: u16) -> u64 {
    leading(sandbox, number).expect("one leads")["slot"].as_u64().expect("a slot")
}

#[track_caller]
fn until_all_is_well(sandbox: &Sandbox) {
    until("every node is ready, and every group serves", || {
        let status = sandbox.run(&["status", "--wide"]);
        status.code == Some(0) && status.out.matches("ready").count() == 3
    });
}

#[track_caller]
fn kill_node(sandbox: &Sandbox, node: u16) {
    let (pid, incarnations) = (sandbox.pid(node).expect("it runs"), sandbox.incarnations(node));
    kill(pid, Signal::KILL);
    until("it is started again", || sandbox.incarnations(node) > incarnations);
}

/// Puts keys of several groups one after the other while `during` runs. Every acknowledged put must
/// be present afterwards.
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
    let restarts: u64 = status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["incarnation"].as_u64().unwrap())
        .sum();
    assert_eq!(restarts, 4, "{status}");
    let failovers = status["groups"].as_array().unwrap().iter();
    // Leadership may have returned to its former replica by now.
    let moved = |group: &&Value| {
        ["death", "handed-over"].map(Value::from).contains(&group["last_failover"]["cause"])
    };
    assert!(failovers.filter(moved).count() > 0, "{status}");
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
        let status = sandbox.expect(1, &["status", "--wide"]).out;
        status.matches("ready").count() == 2 && status.contains("dead for")
    });
    let status = sandbox.status();
    assert_eq!(status["nodes"][usize::from(victim)]["problem"], "dead");
    assert!(status["nodes"][usize::from(victim)]["dead_for_ms"].is_u64(), "{status}");
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");

    let mut node = sandbox.command(&["node", "--index", &victim.to_string()]).spawn().unwrap();
    until_all_is_well(&sandbox);
    let status = sandbox.status();
    assert_eq!(status["nodes"][usize::from(victim)]["incarnation"], 1);
    assert_eq!(status["nodes"][usize::from(victim)]["life"], 1, "its former name, for one version");
    for group in status["groups"].as_array().unwrap() {
        let incarnations: Vec<_> = group["view"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| m["incarnation"].as_u64().unwrap())
            .collect();
        assert_eq!(
            incarnations.iter().filter(|incarnation| **incarnation > 0).count(),
            1,
            "let in anew: {group}"
        );
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
    assert_eq!(group["last_failover"]["cause"], "operator", "{group}");
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
            let other = (leading_slot(&sandbox, 0) + 1) % 3;
            let done = sandbox.expect(0, &["admin", "evict", "0", &other.to_string()]);
            assert!(done.out.contains("is evicted"), "{}", done.out);
            until_all_is_well(&sandbox);
        }
    });
    let slot = leading_slot(&sandbox, 0).to_string();
    let refused = sandbox.expect(3, &["admin", "evict", "0", &slot]);
    assert!(refused.err.contains("it is the leader itself"), "{}", refused.err);
}

fn version_of(sandbox: &Sandbox, key: &str) -> u64 {
    let got = sandbox.expect(0, &["get", key, "--json"]).out;
    let got: Value = serde_json::from_str(&got).unwrap();
    got["version"].as_u64().unwrap()
}

/// The group no longer serves by itself, reports so, and is recreated only on command.
#[test]
fn a_lost_group_says_so_and_is_recreated_on_purpose() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", "1"]);
    for _ in 0..10 {
        sandbox.expect(0, &["put", "greeting", "hello"]);
    }
    let before = version_of(&sandbox, "greeting");
    // All but the remaining follower.
    for node in [0, 1] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("the group is lost", || group(&sandbox.status(), 0)["lost"] == true);
    let status = sandbox.expect(1, &["status", "--wide"]).out;
    assert!(status.contains("LOST"), "{status}");
    assert!(status.contains("`skein admin recreate 0`"), "{status}");
    assert_ne!(sandbox.run(&["get", "greeting"]).code, Some(0), "it never comes back by itself");

    let asked = sandbox.expect(2, &["admin", "recreate", "0"]);
    assert!(asked.err.contains("group 0 is lost"), "{}", asked.err);
    assert!(asked.err.contains("n2  1 keys") && asked.err.contains("--from n2"), "{}", asked.err);
    let kept = sandbox.expect(2, &["admin", "recreate", "g0", "--accept-data-loss"]);
    assert!(kept.err.contains("has survivors") && kept.err.contains("--from n2"), "{}", kept.err);
    let wrong = sandbox.expect(2, &["admin", "recreate", "g0", "--from", "n1"]);
    assert!(wrong.err.contains("node 1 holds no state"), "{}", wrong.err);
    let done = sandbox
        .expect(0, &["admin", "recreate", "g0", "--accept-data-loss", "--discard-survivors"]);
    assert!(done.out.contains("serves again, empty"), "{}", done.out);
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(1, &["get", "greeting"]).out, "");
    sandbox.expect(0, &["put", "greeting", "hello again"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello again");
    // A guard on a version from before can never hold on a value from after.
    let after = version_of(&sandbox, "greeting");
    assert!(after > before, "version {after} after version {before}");
    let kept = sandbox.expect(3, &["admin", "recreate", "0", "--accept-data-loss"]);
    assert!(kept.err.contains("is not lost"), "{}", kept.err);
    // The group tolerates a death again.
    kill_node(&sandbox, leader(&sandbox, 0).expect("one leads"));
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello again");
}

/// A refused recreation changes nothing: the holders of the group's state keep it.
#[test]
fn a_refused_recreation_erases_nothing() {
    let sandbox = Sandbox::new();
    sandbox.expect(
        0,
        &["up", "--detach", "--no-restart", "--groups", "1", "--nodes", "5", "--replicas", "5"],
    );
    sandbox.expect(0, &["put", "greeting", "hello"]);
    // A replica that has not received the commit when the others die executes the put only when the
    // group continues.
    until("both survivors have executed it", || [0, 1].iter().all(|it| keys(&sandbox, *it) == 1));
    let dead = [2, 3, 4];
    for node in dead {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("they are gone", || dead.iter().all(|node| !sandbox.runs(*node)));
    // Until a survivor has noticed a death, its writes into the dead replica's memory count, and it
    // may admit the replicas one after the other: then nothing is lost, and the group continues.
    until("both survivors know it", || {
        [0, 1].iter().all(|node| {
            let status = ask(&sandbox, *node, "{\"v\":1,\"do\":\"status\"}");
            let alive =
                |slot: u16| status["ok"]["replicas"][0]["view"][usize::from(slot)]["alive"] == true;
            dead.iter().all(|node| !alive(*node))
        })
    });
    let mut again: Vec<_> = dead
        .iter()
        .map(|node| sandbox.command(&["node", "--index", &node.to_string()]).spawn().unwrap())
        .collect();
    until("both survivors say that the group is lost", || {
        let replicas = group(&sandbox.status(), 0)["replicas"].clone();
        let lost = replicas.as_array().unwrap().iter().filter(|it| it["lost"] == true);
        lost.filter(|it| it["slot"].as_u64() < Some(2)).count() == 2
    });
    // A commit without a preparation is refused, and so is a preparation that is out of date.
    let commit = "{\"v\":1,\"do\":\"commit_recreate\",\"group\":0,\"token\":7}";
    assert_eq!(ask(&sandbox, 0, commit)["error"]["kind"], "not_prepared");
    let prepare = "{\"v\":1,\"do\":\"prepare_recreate\",\"group\":0,\"token\":7,\"plan\":\
                   {\"incarnations\":[1,0,0,0,0],\"ballot_counter\":9,\"clock\":9,\
                   \"settled_clock\":9}}";
    assert_eq!(ask(&sandbox, 0, prepare)["error"]["kind"], "outdated");
    assert_eq!(ask(&sandbox, 0, commit)["error"]["kind"], "not_prepared");
    // A replica that does not answer keeps all others from beginning.
    let paused = sandbox.pid(3).unwrap();
    halt(paused);
    let unknown = sandbox.expect(3, &["admin", "recreate", "0", "--from", "n3"]);
    assert!(
        unknown.err.contains("node 3 holds a state of group 0 is not known"),
        "{}",
        unknown.err
    );
    assert!(unknown.err.contains("--signal CONT"), "{}", unknown.err);
    let discard = ["admin", "recreate", "0", "--accept-data-loss", "--discard-survivors"];
    sandbox.expect(3, &discard);
    sandbox.expect(3, &["admin", "recreate", "0", "--from", "n0"]);
    assert_eq!([0, 1].map(|node| keys(&sandbox, node)), [1, 1], "nothing is erased");
    kill(paused, Signal::CONT);
    until("it goes on", || !sandbox.run(&["status", "--wide"]).out.contains("paused"));
    sandbox.expect(0, &["admin", "recreate", "0", "--from", "n0"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");
    // Five members with long names leave no room for the last change of leader.
    let status = sandbox.run(&["status"]).out;
    let mut groups = status.lines().skip_while(|line| !line.starts_with("group"));
    assert!(groups.nth(1).unwrap().starts_with("g0"), "the head has one line: {status}");
    assert!(status.contains("--wide shows more columns"), "{status}");
    sandbox.expect(0, &["down", "--yes"]);
    for node in &mut again {
        node.wait().unwrap();
    }
}

/// A put is committed when it is in the logs of a quorum, even if no follower runs. A replica that
/// has it only in its log, without knowing that it is committed, continues with it.
#[test]
fn what_a_survivor_has_not_executed_is_not_lost() {
    let sandbox = Sandbox::new();
    sandbox.expect(
        0,
        &["up", "--detach", "--no-restart", "--groups", "1", "--nodes", "5", "--replicas", "5"],
    );
    assert_eq!(leader(&sandbox, 0), Some(0));
    let survivor = sandbox.pid(1).unwrap();
    for node in 1..5 {
        halt(sandbox.pid(node).unwrap());
    }
    sandbox.expect(0, &["put", "greeting", "hello"]);
    let dead = [0, 2, 3, 4];
    for node in dead {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("they are gone", || dead.iter().all(|node| !sandbox.runs(*node)));
    kill(survivor, Signal::CONT);
    let mut again: Vec<_> = dead
        .iter()
        .map(|node| sandbox.command(&["node", "--index", &node.to_string()]).spawn().unwrap())
        .collect();
    until("the group is lost", || group(&sandbox.status(), 0)["lost"] == true);
    let asked = sandbox.expect(2, &["admin", "recreate", "0"]);
    assert!(asked.err.contains("n1  0 keys"), "it has executed nothing: {}", asked.err);
    sandbox.expect(0, &["admin", "recreate", "0", "--from", "n1"]);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");
    sandbox.expect(0, &["down", "--yes"]);
    for node in &mut again {
        node.wait().unwrap();
    }
}

#[test]
fn a_group_is_not_recreated_without_a_quorum_or_behind_the_back_of_a_paused_node() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart", "--groups", "1"]);
    for node in [0, 1] {
        sandbox.expect(0, &["admin", "kill", &node.to_string()]);
    }
    let mut node = sandbox.command(&["node", "--index", "0"]).spawn().unwrap();
    let recreate = ["admin", "recreate", "0", "--accept-data-loss", "--discard-survivors"];
    until("it runs", || sandbox.incarnations(0) == 2 && sandbox.dir.join("node0.sock").exists());
    let refused = sandbox.expect(3, &recreate);
    assert!(refused.err.contains("group 0"), "{}", refused.err);

    let paused = sandbox.pid(2).unwrap();
    halt(paused);
    let refused = sandbox.expect(3, &recreate);
    assert!(
        refused.err.contains("node 2 may hold a state") && refused.err.contains("--signal CONT"),
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
        let status = sandbox.expect(1, &["status", "--wide"]).out;
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

/// A remaining follower of a group that shares transactions with another group has all that the
/// group held.
#[test]
fn a_group_goes_on_from_the_follower_that_is_left() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    for i in 0..40 {
        sandbox.expect(0, &["put", &format!("key{i}"), &format!("value{i}")]);
    }
    for node in [0, 1] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("both groups are lost", || {
        let status = sandbox.status();
        [0, 1].iter().all(|of| group(&status, *of)["lost"] == true)
    });
    for of in ["g0", "g1"] {
        sandbox.expect(0, &["admin", "recreate", of, "--from", "n2"]);
    }
    until_all_is_well(&sandbox);
    for i in 0..40 {
        let got = sandbox.expect(0, &["get", &format!("key{i}")]).out;
        assert_eq!(got, format!("value{i}"));
    }
    under_load(&sandbox, || {
        kill_node(&sandbox, 2);
        until_all_is_well(&sandbox);
    });
    for i in 0..40 {
        let got = sandbox.expect(0, &["get", &format!("key{i}")]).out;
        assert_eq!(got, format!("value{i}"));
    }
}

/// A former leader may not have noticed that others led after it and that their followers have
/// died.
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
    let asked = sandbox.expect(2, &["admin", "recreate", "0"]);
    assert!(asked.err.contains("n0 led the group"), "{}", asked.err);
    let done = sandbox.expect(0, &["admin", "recreate", "0", "--from", "n0"]);
    assert!(done.out.contains("with the state of node 0"), "{}", done.out);
    until_all_is_well(&sandbox);
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");
    // The others have the state that the leader continued from.
    under_load(&sandbox, || kill_node(&sandbox, 0));
    assert_eq!(sandbox.expect(0, &["get", "greeting"]).out, "hello");
}

/// Until most replicas have the state that a recreated group continues from, a replica that held it
/// before can still be used: the command is repeated with another survivor.
#[test]
fn a_survivor_that_dies_while_a_group_goes_on_from_it_is_not_the_last() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--nodes", "5", "--groups", "1", "--replicas", "5"]);
    let value = "x".repeat(100_000);
    for key in 0..20 {
        sandbox.expect(0, &["put", &format!("key{key}"), &value]);
    }
    // Nodes 0, 2 and 3 are a quorum, so node 1 may still lack acknowledged values.
    until("node 1 holds all of it", || keys(&sandbox, 1) == 20);
    for node in [2, 3, 4] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    until("the group is lost", || group(&sandbox.status(), 0)["lost"] == true);
    let mut recreate = sandbox.command(&["admin", "recreate", "0", "--from", "n0"]);
    let mut recreate = recreate.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = |slot: &Value| slot["ballot"] != "1.r0i0" || slot["lost"] == false;
    until("node 0 has begun anew", || {
        begun(&group(&sandbox.status(), 0)["replicas"][0]) || recreate.try_wait().unwrap().is_some()
    });
    kill(sandbox.pid(0).unwrap(), Signal::KILL);
    recreate.wait().unwrap();
    let is_well = || sandbox.run(&["status"]).code == Some(0);
    until("it serves, or is lost again", || {
        is_well() || group(&sandbox.status(), 0)["lost"] == true
    });
    if !is_well() {
        sandbox.expect(0, &["admin", "recreate", "0", "--from", "n1"]);
    }
    until("all is well", is_well);
    for key in 0..20 {
        assert!(sandbox.expect(0, &["get", &format!("key{key}")]).out == value, "key{key}");
    }
    sandbox.expect(0, &["down", "--yes"]);
}
