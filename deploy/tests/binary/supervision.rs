//! Nodes that are restarted, and their supervisors.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::{Ended, Sandbox, is_running, kill, until};

/// One node without peers, so that only processes are tested.
const SMALL: [&str; 4] = ["--nodes", "1", "--replicas", "1"];

fn up_small(more: &[&str]) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &[&["up"], more, &SMALL].concat());
    sandbox
}

fn log(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.dir.join("supervisor.log")).unwrap_or_default()
}

/// Kills node 0 and waits until another process runs it.
fn kill_and_wait(sandbox: &Sandbox) {
    let (pid, incarnations) = (sandbox.pid(0).expect("node 0 runs"), sandbox.incarnations(0));
    kill(pid, Signal::KILL);
    until("node 0 has been started again", || {
        sandbox.incarnations(0) > incarnations
            && sandbox.pid(0).is_some_and(|now| now != pid && is_running(now))
    });
}

#[test]
fn a_node_that_dies_is_started_again() {
    let sandbox = up_small(&["--detach"]);
    let supervisor = sandbox.supervisor().expect("one supervises");
    kill_and_wait(&sandbox);
    let again = Instant::now();
    kill_and_wait(&sandbox);
    assert!(again.elapsed() >= Duration::from_millis(100));
    until("it is told", || log(&sandbox).contains("as incarnation 2"));
    let said = log(&sandbox);
    assert!(said.contains("node 0 was killed by signal 9 (SIGKILL)"), "{said}");
    assert!(said.contains("it starts again in 100 ms, as incarnation 2"), "{said}");
    assert_eq!(said.lines().count(), 2, "a line each: {said}");
    let (regions, mut pids) = (sandbox.regions(), sandbox.pids());
    pids.push(supervisor);
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn a_foreground_up_starts_again_what_dies_and_says_so() {
    let sandbox = Sandbox::new();
    let mut up = sandbox.up_in_foreground(&SMALL);
    let mut err = BufReader::new(up.stderr.take().unwrap());
    kill_and_wait(&sandbox);
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert_eq!(
        line,
        "node 0 was killed by signal 9 (SIGKILL); it starts again, as incarnation 1\n"
    );
    let (regions, pids) = (sandbox.regions(), sandbox.pids());
    kill(up.id().cast_signed(), Signal::TERM);
    err.read_to_string(&mut line).unwrap();
    assert_eq!(up.wait().unwrap().code(), Some(0), "{line}");
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn a_node_told_to_stop_stays_stopped() {
    let sandbox = Sandbox::new();
    let config = sandbox.memory_apart();
    sandbox.expect(0, &[&["up", "--detach", "--config", &config], &SMALL[..]].concat());
    let pid = sandbox.pids()[0];
    sandbox.admin(0).write_all(b"{\"v\":1,\"do\":\"stop\"}\n").unwrap();
    until("the supervisor has noticed", || log(&sandbox).contains("was told to stop"));
    assert!(!is_running(pid));
    assert_eq!((sandbox.incarnations(0), sandbox.pids().len()), (1, 0));
    // A supervisor that begins now leaves the node dead.
    kill(sandbox.supervisor().unwrap(), Signal::TERM);
    until("the supervisor has ended", || sandbox.supervisor().is_none());
    sandbox.expect(0, &["supervise", "--detach"]);
    assert_eq!((sandbox.incarnations(0), sandbox.pids().len()), (1, 0));
    // No node holds the memory, but it is not taken for abandoned.
    let other = Sandbox::new();
    other.expect(0, &[&["up", "--detach", "--config", &config], &SMALL[..]].concat());
    assert!(sandbox.regions().exists());
    other.expect(0, &["down", "--yes"]);
    // Until the node is started by hand; then it counts like any other.
    let mut node = sandbox.command(&["node", "--index", "0"]);
    let mut node = node.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it runs", || {
        sandbox.pid(0) == Some(node.id().cast_signed()) && sandbox.incarnations(0) == 2
    });
    sandbox.expect(0, &["down", "--yes"]);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// The start count of a node is lost: the supervisor reports that with advice, and continues when
/// the advice is followed.
#[test]
fn a_damaged_count_is_told_and_a_replacement_is_started() {
    let sandbox = Sandbox::new();
    let config = sandbox.memory_apart();
    sandbox.expect(0, &[&["up", "--detach", "--config", &config], &SMALL[..]].concat());
    sandbox.kill_all();
    fs::write(sandbox.dir.join("node0.incarnation"), "many\n").unwrap();
    sandbox.expect(0, &["supervise", "--detach"]);
    let command = format!("`skein --dir {} admin replace 0`", sandbox.dir.display());
    until("it is told", || log(&sandbox).contains(&command));
    sandbox.expect(0, &["admin", "replace", "0"]);
    until("it is started", || sandbox.runs(0) && sandbox.incarnations(0) == 2);
}

#[test]
fn nodes_outlive_their_supervisor_and_another_takes_over() {
    let sandbox = up_small(&["--detach"]);
    let (first, node) = (sandbox.supervisor().unwrap(), sandbox.pids()[0]);
    let refused = sandbox.expect(3, &["supervise"]);
    assert!(refused.err.contains(&format!("process {first} looks after")), "{}", refused.err);
    assert!(!refused.err.contains("skein down"), "{}", refused.err);
    kill(first, Signal::KILL);
    until("the supervisor is gone", || sandbox.supervisor().is_none());
    assert!(is_running(node));
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("no process supervises its nodes"), "{}", refused.err);

    let said = sandbox.expect(0, &["supervise", "--detach"]).out;
    let second = sandbox.supervisor().unwrap();
    assert!(said.contains(&format!("process {second} supervises cluster")), "{said}");
    // It has not started this node, and supervises it nevertheless.
    kill_and_wait(&sandbox);
    until("it is told", || log(&sandbox).contains("as incarnation 1"));
    let (regions, mut pids) = (sandbox.regions(), sandbox.pids());
    pids.extend([first, second]);
    sandbox.expect(0, &["down", "--yes"]);
    sandbox.check_clean(&regions, &pids);
}

#[test]
fn a_supervisor_starts_what_has_died_before_it_began() {
    let sandbox = Sandbox::new();
    let config = sandbox.memory_apart();
    let up = ["up", "--detach", "--no-restart", "--config", &config];
    sandbox.expect(0, &[&up[..], &SMALL].concat());
    assert_eq!(sandbox.supervisor(), None);
    let node = sandbox.pids()[0];
    kill(node, Signal::KILL);
    until("the node is gone", || !is_running(node));
    sandbox.expect(0, &["supervise", "--detach"]);
    until("it runs again", || sandbox.pid(0).is_some_and(|pid| pid != node && is_running(pid)));
    // Paused with its nodes, it is killed in the end.
    sandbox.expect(0, &["down", "--yes"]);
    assert!(sandbox.expect(3, &["supervise"]).err.contains("no cluster in"));
}

#[test]
fn a_supervisor_that_is_told_to_end_starts_nothing_more() {
    let sandbox = Sandbox::new();
    let config = sandbox.memory_apart();
    sandbox.expect(0, &[&["up", "--detach", "--config", &config], &SMALL[..]].concat());
    for _ in 0..3 {
        kill_and_wait(&sandbox);
    }
    kill(sandbox.pid(0).unwrap(), Signal::KILL);
    until("it waits for its time", || log(&sandbox).contains("again in 400 ms"));
    let incarnations = sandbox.incarnations(0);
    kill(sandbox.supervisor().unwrap(), Signal::TERM);
    until("the supervisor has ended", || sandbox.supervisor().is_none());
    sandbox.until_deserted();
    assert_eq!(sandbox.incarnations(0), incarnations);
    assert!(log(&sandbox).contains("no process supervises them"), "{}", log(&sandbox));
}

/// A process that stops a cluster marks that before it searches for nodes; a node checks the mark
/// after it can be found.
#[test]
fn a_node_does_not_start_in_a_cluster_that_is_being_stopped() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    let victim = sandbox.pids()[2];
    kill(victim, Signal::KILL);
    until("it is gone", || !is_running(victim));
    let path = sandbox.dir.join("lock");
    let mut down = fs::OpenOptions::new().write(true).truncate(true).open(path).unwrap();
    down.lock().unwrap();
    down.write_all(format!("down {}\n", std::process::id()).as_bytes()).unwrap();
    let node = sandbox.command(&["node", "--index", "2"]).stderr(Stdio::piped()).spawn();
    let mut node = node.unwrap();
    until("it has ended", || node.try_wait().unwrap().is_some());
    let refused = Ended::from(node.wait_with_output().unwrap());
    let by = format!("is being stopped by process {}", std::process::id());
    assert!(refused.code == Some(3) && refused.err.contains(&by), "{}", refused.err);
    assert_eq!(sandbox.incarnations(2), 1, "nothing has begun");
    drop(down);
}

/// However `down` and restarts interleave, nothing is restarted and nothing is left.
#[test]
fn down_does_not_race_with_restarts() {
    let sandbox = Sandbox::new();
    for round in 0..8 {
        sandbox.expect(0, &["up", "--detach"]);
        let regions = sandbox.regions();
        let mut pids = sandbox.pids();
        pids.extend(sandbox.supervisor());
        for pid in sandbox.pids() {
            kill(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(round));
        sandbox.expect(0, &["down", "--yes"]);
        sandbox.check_clean(&regions, &pids);
    }
}

/// A node whose supervisor died just after starting it either finds the cluster gone or is found.
#[test]
fn down_does_not_race_with_a_node_that_nobody_follows() {
    let sandbox = Sandbox::new();
    for round in 0..8 {
        sandbox.expect(0, &["up", "--detach"]);
        let regions = sandbox.regions();
        let mut pids = sandbox.pids();
        kill(pids[1], Signal::KILL);
        std::thread::sleep(Duration::from_micros(700 * round));
        let supervisor = sandbox.supervisor().unwrap();
        kill(supervisor, Signal::KILL);
        pids.push(supervisor);
        sandbox.expect(0, &["down", "--yes"]);
        sandbox.check_clean(&regions, &pids);
    }
}
