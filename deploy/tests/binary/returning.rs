//! Clusters with durability `async`: after the loss of all processes they return to one restore point.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use skein_client::{Client, Error, Operation, Transaction, Unavailability};

use crate::durable::on_disk;
use crate::support::{Sandbox, halt, is_running, kill, until};

const LAG: Duration = Duration::from_millis(800);
/// For so long, the others wait for a group that does not answer.
const SILENT_AFTER: Duration = Duration::from_secs(5);

/// Starts a cluster, of which all but the last 800 ms is to survive.
fn up(sandbox: &Sandbox) {
    let config = sandbox.config("[node]\ndurability = \"async\"\nlag_ms_max = 800\n");
    let said = sandbox.expect(0, &["up", "--detach", "--groups", "3", "--config", &config]);
    assert!(said.out.contains("in the last 800 ms"), "{}", said.out);
}

/// A client that waits for long: the machine may have no time for the nodes.
pub(crate) fn client(sandbox: &Sandbox) -> Client {
    let mut client = Client::connect(&sandbox.dir).expect("the cluster runs");
    client.set_timeout(Duration::from_mins(1));
    client
}

/// Writes a number to keys of all groups in one transaction.
fn write(client: &mut Client, number: u32) -> Result<(), Error> {
    let put = |key: u32| Operation::Put {
        key: format!("key {key}").into_bytes(),
        value: number.to_string().into_bytes(),
    };
    let mut all = Transaction::of(put(0));
    all.then.extend((1..12).map(put));
    client.transact(&all).map(drop)
}

/// The number that all keys hold, and the highest of their versions.
#[track_caller]
fn read(client: &mut Client) -> (u32, u64) {
    let mut found = None;
    let mut newest = 0;
    for key in 0..12 {
        let (value, version) =
            client.get_versioned(format!("key {key}")).expect("it serves").expect("it was written");
        let number = String::from_utf8_lossy(&value).parse::<u32>().expect("a number");
        assert_eq!(*found.get_or_insert(number), number, "half a transaction");
        newest = newest.max(version);
    }
    (found.expect("keys"), newest)
}

/// Present time in microseconds.
pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    now.as_micros() as u64
}

/// The newest restore point that a node knows to be on f+1 disks of every group.
pub(crate) fn floor(sandbox: &Sandbox) -> u64 {
    let mut newest = None;
    until("a node answers", || {
        let status = sandbox.status();
        let nodes = status["nodes"].as_array().expect("nodes");
        let floors = nodes.iter().filter_map(|node| node["status"]["points"]["floor"].as_u64());
        newest = floors.max();
        newest.is_some()
    });
    newest.expect("it has answered")
}

/// Waits until a node knows that everything that was acknowledged before is on f+1 disks of every group.
fn until_saved(sandbox: &Sandbox) {
    let from = now_us();
    until("everything is on the disks", || {
        let (now, status) = (now_us(), sandbox.status());
        let nodes = status["nodes"].as_array().expect("nodes");
        let mut ages =
            nodes.iter().filter_map(|node| node["status"]["points"]["saved_age_ms"].as_u64());
        ages.any(|age| now.saturating_sub(1_000 * (age + 1)) > from)
    });
}

/// Writes for a while, and until the first number is in front of a point that is on f+1 disks of every group. Returns the
/// numbers that were acknowledged, with the times.
fn load(sandbox: &Sandbox, client: &mut Client, from: u32, lasts: Duration) -> Vec<(u32, u64)> {
    let (begun, mut acknowledged) = (Instant::now(), Vec::<(u32, u64)>::new());
    for number in from.. {
        let is_saved = |(_, at): &(u32, u64)| floor(sandbox) > *at;
        if begun.elapsed() > lasts && acknowledged.first().is_some_and(is_saved) {
            break;
        }
        write(client, number).expect("it serves");
        acknowledged.push((number, now_us()));
    }
    acknowledged
}

/// Kills everything, and starts the cluster again.
fn return_from_nothing(sandbox: &Sandbox) {
    sandbox.kill_all();
    let gone = sandbox.expect(3, &["get", "key 0"]);
    assert!(gone.err.contains("its data is kept"), "{}", gone.err);
    let up = sandbox.expect(0, &["up", "--detach"]);
    assert!(up.err.contains("the cluster returns to its state of"), "{}", up.err);
}

/// Kills all nodes, and leaves the supervisor, which lets the cluster return.
pub(crate) fn kill_nodes(sandbox: &Sandbox) {
    let (pids, name) = (sandbox.pids(), sandbox.manifest().expect("a cluster")["cluster"].clone());
    for pid in &pids {
        kill(*pid, Signal::KILL);
    }
    until("the nodes have ended", || !pids.iter().any(|pid| is_running(*pid)));
    until("the cluster has returned", || {
        sandbox.manifest().is_some_and(|it| it["cluster"] != name)
    });
    until("it serves again", || sandbox.run(&["get", "anything"]).code == Some(1));
}

pub(crate) fn no_panic(sandbox: &Sandbox) {
    for node in 0..3 {
        let log = fs::read_to_string(sandbox.dir.join(format!("node{node}.log")));
        let log = log.unwrap_or_default();
        assert!(!log.contains("panicked"), "node {node}: {log}");
    }
}

fn wipe(sandbox: &Sandbox) {
    no_panic(sandbox);
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn what_is_in_front_of_a_point_survives_in_all_groups_and_no_transaction_by_halves() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    let (mut next, mut newest) = (0, 0);
    for round in 0..3 {
        let mut before = client(&sandbox);
        let written = load(&sandbox, &mut before, next, Duration::from_secs(2));
        let floor = floor(&sandbox);
        return_from_nothing(&sandbox);
        let lost = write(&mut before, 1_000_000).expect_err("its session is gone");
        assert!(is_rolled_back(&lost), "{lost}");
        let again = before.get("key 0").expect_err("its session is gone for good");
        assert!(is_rolled_back(&again), "{again}");

        let mut after = client(&sandbox);
        let (found, _) = read(&mut after);
        let old = written.iter().rfind(|(_, at)| *at < floor);
        let old = old.expect("the load took longer than the lag").0;
        assert!(found >= old, "round {round}: {found}, and {old} was acknowledged before");
        write(&mut after, found).expect("it serves");
        let (_, version) = read(&mut after);
        assert!(version > newest, "version {version} again, after {newest}");
        (next, newest) = (written.last().expect("some").0 + 1, version);
        // From the next start on, what a node has not synced is lost with its process.
        for node in 0..3 {
            fs::write(sandbox.dir.join(format!("node{node}.disk")), format!("seed={round}"))
                .expect("the directory can be written");
        }
    }
    wipe(&sandbox);
}

fn is_rolled_back(error: &Error) -> bool {
    matches!(error, Error::Unavailable { why: Unavailability::RolledBack { .. }, .. })
}

#[test]
fn a_client_that_asks_late_is_told_of_a_rollback_and_no_other() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    let mut before = client(&sandbox);
    load(&sandbox, &mut before, 0, LAG);
    return_from_nothing(&sandbox);
    let mut after = client(&sandbox);
    write(&mut after, 1_000).expect("it serves");
    sandbox.expect(0, &["down"]);
    sandbox.expect(0, &["up", "--detach"]);
    let lost = write(&mut before, 2_000).expect_err("its session is gone");
    assert!(is_rolled_back(&lost), "{lost}");
    let stopped = write(&mut after, 3_000).expect_err("its session is gone");
    assert!(!is_rolled_back(&stopped), "nothing is lost: {stopped}");
    assert_eq!(read(&mut client(&sandbox)).0, 1_000);
    wipe(&sandbox);
}

#[test]
fn a_supervisor_lets_a_cluster_return_whose_nodes_have_all_ended() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    let mut next = 0;
    for _ in 0..2 {
        let mut before = client(&sandbox);
        let written = load(&sandbox, &mut before, next, 2 * LAG);
        let floor = floor(&sandbox);
        kill_nodes(&sandbox);
        let (found, _) = read(&mut client(&sandbox));
        let old = written.iter().rfind(|(_, at)| *at < floor).expect("it took longer").0;
        assert!(found >= old, "{found}, and {old} was acknowledged before");
        assert!(write(&mut before, 1_000_000).is_err_and(|lost| is_rolled_back(&lost)));
        next = written.last().expect("some").0 + 1;
    }
    let said = fs::read_to_string(sandbox.dir.join("supervisor.log")).expect("a log");
    assert_eq!(said.matches("the cluster returns to its state of").count(), 2, "{said}");
    wipe(&sandbox);
}

#[test]
fn a_node_that_has_no_state_yet_does_not_keep_the_cluster_from_returning() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    load(&sandbox, &mut client(&sandbox), 0, LAG);
    let name = sandbox.manifest().expect("a cluster")["cluster"].clone();
    let pids: Vec<i32> = (0..3).map(|node| sandbox.pid(node).expect("it runs")).collect();
    // From a process that stands still, the first node can receive nothing.
    halt(pids[1]);
    halt(pids[2]);
    kill(pids[0], Signal::KILL);
    until("a node runs again", || sandbox.pid(0).is_some_and(|pid| pid != pids[0]));
    kill(pids[1], Signal::KILL);
    kill(pids[2], Signal::KILL);
    until("the cluster has returned", || {
        sandbox.manifest().is_some_and(|it| it["cluster"] != name)
    });
    until("it serves again", || sandbox.run(&["get", "anything"]).code == Some(1));
    read(&mut client(&sandbox));
    wipe(&sandbox);
}

#[test]
fn a_supervisor_ends_if_more_disks_are_lost_than_are_tolerated() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    load(&sandbox, &mut client(&sandbox), 0, LAG);
    let supervisor = sandbox.supervisor().expect("it runs");
    let data = |node: u16| sandbox.dir.join(format!("node{node}.data"));
    for node in 1..3 {
        fs::rename(data(node), sandbox.dir.with_file_name(format!("away{node}")))
            .expect("it is there");
    }
    for pid in sandbox.pids() {
        kill(pid, Signal::KILL);
    }
    until("the supervisor has ended", || !is_running(supervisor));
    let said = fs::read_to_string(sandbox.dir.join("supervisor.log")).expect("a log");
    assert!(said.contains("more disks are lost than the cluster tolerates"), "{said}");
    for node in 1..3 {
        fs::rename(sandbox.dir.with_file_name(format!("away{node}")), data(node))
            .expect("it is there");
    }
    let up = sandbox.expect(0, &["up", "--detach"]);
    assert!(up.err.contains("the cluster returns to its state of"), "{}", up.err);
    read(&mut client(&sandbox));
    wipe(&sandbox);
}

#[test]
fn a_cluster_that_is_stopped_loses_nothing() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    for round in 0..2 {
        let mut writer = client(&sandbox);
        let stopped = thread::scope(|scope| {
            let load = scope.spawn(|| {
                let mut last = None;
                for number in 1_000 * round.. {
                    match write(&mut writer, number) {
                        Ok(()) => last = Some(number),
                        Err(error) => return (last, error),
                    }
                }
                unreachable!("it is stopped before that")
            });
            thread::sleep(Duration::from_millis(500));
            let down = sandbox.expect(0, &["down"]);
            assert!(!down.err.contains("warning"), "{}", down.err);
            load.join().expect("it does not panic")
        });
        let (last, why) = stopped;
        let last = last.expect("some were acknowledged");
        let up = sandbox.expect(0, &["up", "--detach"]);
        assert!(!up.err.contains("lost"), "{}", up.err);
        let (found, _) = read(&mut client(&sandbox));
        // The last one may have taken effect without an answer.
        assert!((last..=last + 1).contains(&found), "{found}, and {last} was acknowledged: {why}");
    }
    wipe(&sandbox);
}

#[test]
fn a_cluster_is_stopped_without_a_loss_while_a_node_does_not_run() {
    let (_dir, sandbox) = on_disk();
    let config = sandbox.config("[node]\ndurability = \"async\"\n");
    let shape = ["--groups", "3", "--config", &config];
    sandbox.expect(0, &[&["up", "--detach", "--no-restart"][..], &shape].concat());
    write(&mut client(&sandbox), 1).expect("it serves");
    kill(sandbox.pid(0).expect("it runs"), Signal::KILL);
    write(&mut client(&sandbox), 2).expect("two of three are a quorum");
    let down = sandbox.expect(0, &["down"]);
    assert!(!down.err.contains("warning"), "{}", down.err);
    let up = sandbox.expect(0, &["up", "--detach", "--no-restart"]);
    assert!(!up.err.contains("lost"), "{}", up.err);
    assert_eq!(read(&mut client(&sandbox)).0, 2);
    // One node of three cannot make a point.
    for node in 0..2 {
        kill(sandbox.pid(node).expect("it runs"), Signal::KILL);
    }
    let begun = Instant::now();
    let down = sandbox.expect(0, &["down"]);
    assert!(down.err.contains("too few nodes of g0, g1 and g2 run"), "{}", down.err);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(read(&mut client(&sandbox)).0, 2);
    wipe(&sandbox);
}

#[test]
fn a_log_that_cannot_be_read_keeps_only_its_own_node_from_starting() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    load(&sandbox, &mut client(&sandbox), 0, LAG);
    sandbox.kill_all();
    let data = sandbox.dir.join("node1.data");
    for file in fs::read_dir(&data).expect("a log").map(|file| file.expect("a file").path()) {
        if file.extension().is_some_and(|extension| extension == "log") {
            let file = fs::OpenOptions::new().write(true).open(&file).expect("it is there");
            file.set_len(5_000).expect("it can be cut");
        }
    }
    let up = sandbox.expect(5, &["up", "--detach"]);
    let said = up.out + &up.err;
    assert!(said.contains("counts as lost") && said.contains("n1 does not run"), "{said}");
    let number = read(&mut client(&sandbox)).0 + 1;
    write(&mut client(&sandbox), number).expect("two of three are a quorum");
    fs::remove_dir_all(&data).expect("it is there");
    until("the node runs", || {
        sandbox.pid(1).is_some() && sandbox.status()["nodes"][1]["status"]["ready"] == true
    });
    let down = sandbox.expect(0, &["down"]);
    assert!(!down.err.contains("warning"), "{}", down.err);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(read(&mut client(&sandbox)).0, number);
    wipe(&sandbox);
}

#[test]
fn logs_of_other_nodes_are_moved_away_before_their_loss_is_accepted() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    load(&sandbox, &mut client(&sandbox), 0, LAG);
    sandbox.kill_all();
    let data = |node: u16| sandbox.dir.join(format!("node{node}.data"));
    let aside = sandbox.dir.with_file_name("aside");
    let swap = || {
        for (from, to) in [(data(0), aside.clone()), (data(1), data(0)), (aside.clone(), data(1))] {
            fs::rename(from, to).expect("it is there");
        }
    };
    swap();
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("belongs to node 1, and this is node 0"), "{}", refused.err);
    let refused = sandbox.expect(3, &["up", "--detach", "--accept-lost-disks"]);
    assert!(refused.err.contains("move these directories away"), "{}", refused.err);
    swap();
    sandbox.expect(0, &["up", "--detach"]);
    read(&mut client(&sandbox));
    wipe(&sandbox);
}

#[test]
fn a_node_that_is_started_again_takes_the_state_of_the_others_and_writes_it() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    let mut writer = client(&sandbox);
    load(&sandbox, &mut writer, 0, Duration::from_millis(500));
    for node in 0..3 {
        let pid = sandbox.pid(node).expect("it runs");
        kill(pid, Signal::KILL);
        until("the node runs again", || sandbox.pid(node).is_some_and(|now| now != pid));
        until("all are ready", || {
            let status = sandbox.run(&["status", "--json"]).out;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
            let nodes = status["nodes"].as_array().map_or(&[][..], Vec::as_slice);
            !nodes.is_empty() && nodes.iter().all(|node| node["status"]["ready"] == true)
        });
        write(&mut writer, u32::from(node)).expect("it serves");
    }
    until_saved(&sandbox);
    return_from_nothing(&sandbox);
    assert_eq!(read(&mut client(&sandbox)).0, 2);
    wipe(&sandbox);
}

#[test]
fn one_lost_disk_is_tolerated_and_two_are_said() {
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    load(&sandbox, &mut client(&sandbox), 0, LAG);
    sandbox.kill_all();
    let data = |node: u16| sandbox.dir.join(format!("node{node}.data"));
    let (one, other) = (sandbox.dir.with_file_name("one"), sandbox.dir.with_file_name("other"));
    let set_aside = |node: u16, to: &Path| fs::rename(data(node), to).expect("it is there");
    set_aside(0, &one);
    set_aside(2, &other);
    let refused = sandbox.expect(3, &["up", "--detach"]);
    for words in ["more disks are lost than the cluster tolerates", "node0.data", "node2.data"] {
        assert!(refused.err.contains(words), "{words}: {}", refused.err);
    }
    fs::rename(&other, data(2)).expect("it is put back");
    let up = sandbox.expect(0, &["up", "--detach"]);
    assert!(up.err.contains("there is no log in"), "{}", up.err);
    let mut after = client(&sandbox);
    read(&mut after);
    // What was lost is written again by the node without a disk.
    write(&mut after, 77).expect("it serves");
    until_saved(&sandbox);
    sandbox.kill_all();
    set_aside(1, &other);
    sandbox.expect(0, &["up", "--detach"]);
    assert_eq!(read(&mut client(&sandbox)).0, 77);
    // With the last disk alone, only an operator can say that there is nothing newer.
    sandbox.kill_all();
    fs::remove_dir_all(data(0)).expect("it is there");
    fs::remove_dir_all(data(1)).expect("it is there");
    let refused = sandbox.expect(3, &["up", "--detach"]);
    assert!(refused.err.contains("--accept-lost-disks"), "{}", refused.err);
    sandbox.expect(0, &["up", "--detach", "--accept-lost-disks"]);
    assert_eq!(read(&mut client(&sandbox)).0, 77);
    wipe(&sandbox);
}

/// Puts the layer between each node and its disk that loses what is not synced, and starts the cluster with it.
fn behind_a_layer(sandbox: &Sandbox) {
    sandbox.kill_all();
    order_disks(sandbox, "seed=1");
    sandbox.expect(0, &["up", "--detach"]);
}

fn order_disks(sandbox: &Sandbox, orders: &str) {
    for node in 0..3 {
        let path = sandbox.dir.join(format!("node{node}.disk"));
        fs::write(path, orders).expect("the directory can be written");
    }
}

#[test]
fn while_the_disks_stand_still_no_more_is_acknowledged_than_may_be_lost() {
    const STALL: Duration = Duration::from_secs(2);
    let (_dir, sandbox) = on_disk();
    up(&sandbox);
    behind_a_layer(&sandbox);
    let stalled = thread::scope(|scope| {
        let stall = scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            order_disks(&sandbox, &format!("seed=1 stall_ms={}", STALL.as_millis()));
            now_us()
        });
        let acknowledged = load(&sandbox, &mut client(&sandbox), 0, Duration::from_secs(7));
        let stalled = stall.join().expect("it does not panic");
        let pause = acknowledged.windows(2).map(|two| (two[1].1 - two[0].1, two[0].1));
        let (lasts, from) = pause.max().expect("some were acknowledged");
        let (lasts, late) = (Duration::from_micros(lasts), from.saturating_sub(stalled));
        println!("a pause of {lasts:?}, {late} us after the order to stall");
        assert!(Duration::from_micros(late) < 2 * LAG, "{late} us");
        assert!(lasts + LAG + LAG / 2 > STALL, "{lasts:?}");
        stalled
    });
    // It goes on by itself, with new points: their sessions were not held, and no group was passed over.
    until("a newer point is on the disks", || floor(&sandbox) > stalled);
    for node in 0..3 {
        let log = fs::read_to_string(sandbox.dir.join(format!("node{node}.log"))).expect("it runs");
        assert!(!log.contains("no restore points are made"), "node {node}: {log}");
    }
    wipe(&sandbox);
}

#[test]
fn a_group_without_a_quorum_does_not_keep_the_others_from_serving() {
    let (_dir, sandbox) = on_disk();
    let config = sandbox.config("[node]\ndurability = \"async\"\nlag_ms_max = 800\n");
    let shape = ["--nodes", "5", "--groups", "5", "--config", &config];
    sandbox.expect(0, &[&["up", "--detach"][..], &shape].concat());
    // A session of before: one that opens now would wait for all groups.
    let mut client = client(&sandbox);
    let mut serving = |within: Duration| {
        client.set_timeout(within);
        (0..24).filter(|key| client.put(format!("key {key}"), "value").is_ok()).count()
    };
    assert_eq!(serving(Duration::from_secs(10)), 24);
    let stopped: Vec<i32> = (0..2).map(|node| sandbox.pid(node).expect("it runs")).collect();
    for pid in &stopped {
        halt(*pid);
    }
    thread::sleep(SILENT_AFTER + 4 * LAG);
    // The keys of the group are not served, and each of them takes all of the time.
    until("the others serve", || (5..24).contains(&serving(Duration::from_millis(800))));
    let says = |words: &str| {
        let said = sandbox.run(&["status"]).out;
        said.split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    };
    until("it is said", || says("not answer, and no new ones are made"));
    for pid in &stopped {
        kill(*pid, Signal::CONT);
    }
    until("all groups serve", || serving(Duration::from_secs(2)) == 24);
    until("points are made again", || !says("not answer"));
    sandbox.expect(0, &["down", "--wipe", "--yes"]);
}

#[test]
fn what_cannot_work_with_restore_points_is_refused_with_a_reason() {
    let (_dir, sandbox) = on_disk();
    let hosts = "addresses = [\"10.0.0.1:7400\", \"10.0.0.2:7400\", \"10.0.0.3:7400\"]";
    #[rustfmt::skip]
    let cases = [
        (format!("[node]\ndurability = \"async\"\n[network]\nfabric = \"tcp\"\ncluster = \"one\"\n{hosts}\n[limits]\nmemory_bytes_max = \"1GiB\"\n"),
         "all run on one host"),
        ("[node]\ndurability = \"async\"\n[network]\ncluster = \"one\"\n".to_owned(), "another name"),
        ("[node]\ndurability = \"async\"\nlag_ms_max = 1\n".to_owned(), "at least 40"),
        ("[node]\ndurability = \"async\"\nstore = \"rocksdb\"\n".to_owned(), "restore points are written from memory"),
        ("[node]\ndurability = \"asynchronous\"\n".to_owned(), "\"async\""),
    ];
    for (text, why) in cases {
        let config = sandbox.config(&text);
        let refused = sandbox.expect(2, &["up", "--detach", "--config", &config]);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
}

#[test]
fn a_manifest_that_is_older_than_the_data_is_refused_and_nothing_is_lost() {
    let (dir, sandbox) = on_disk();
    let manifests = ["cluster.json", "cluster.json.copy"];
    let keep = |from: &Path, to: &Path| {
        fs::create_dir_all(to).expect("the directory can be written");
        for name in manifests {
            fs::copy(from.join(name), to.join(name)).expect("it is there");
        }
    };
    sandbox.expect(0, &["up", "--detach", "--durability", "async"]);
    for generation in 0..3 {
        sandbox.expect(0, &["put", &format!("key{generation}"), "value"]);
        sandbox.expect(0, &["down"]);
        keep(&sandbox.dir, &dir.path().join(generation.to_string()));
        if generation < 2 {
            sandbox.expect(0, &["up", "--detach"]);
        }
    }
    for older in 0..2 {
        keep(&dir.path().join(older.to_string()), &sandbox.dir);
        for arguments in [&["up", "--detach"][..], &["up", "--detach", "--accept-lost-disks"]] {
            let refused = sandbox.expect(3, arguments);
            for part in
                ["cluster.json is older than the data", "cluster.json.copy back", "node0.data"]
            {
                assert!(refused.err.contains(part), "{}", refused.err);
            }
        }
    }
    // One of the two is enough.
    let newest = dir.path().join("2");
    fs::copy(newest.join(manifests[1]), sandbox.dir.join(manifests[1])).expect("it is there");
    sandbox.expect(0, &["up", "--detach"]);
    for generation in 0..3 {
        assert_eq!(sandbox.expect(0, &["get", &format!("key{generation}")]).out, "value");
    }
    wipe(&sandbox);
}
