//! Nodes that die, pause and come back, as applications see them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use skein_client::local::Cluster;
use skein_multicast::operate::{ReplicaStatus, Role};

use skein_client::{Error, GroupId, GroupSet, Operation, SessionKey, Transaction, Unavailability};

use crate::clusters::{along_a_tree, builder, local};

/// Keys in group 1 and in group 0, of two groups.
const IN_G1: &str = "foo";
const IN_G0: &str = "";

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

fn group(number: u16) -> GroupSet {
    GroupSet::single(GroupId(number))
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < LONG, "not in {LONG:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn increment(key: &str) -> Transaction {
    Transaction::of(Operation::Increment { key: key.into(), by: 1 })
}

/// Waits until somebody leads the group: on a busy machine an election may be under way at any time.
fn leader(cluster: &Cluster, group: u16) -> u16 {
    let mut leader = None;
    until("somebody leads", || {
        leader = cluster.leader_of(group);
        leader.is_some()
    });
    leader.unwrap()
}

/// Half of the increments of a client go to one group, half to both.
fn counting(number: u64) -> Transaction {
    let one = increment(if number.is_multiple_of(4) { IN_G0 } else { IN_G1 });
    match number % 2 {
        0 => one,
        _ => increment(IN_G0).then(Operation::Increment { key: IN_G1.into(), by: 1 }),
    }
}

/// The counts of both groups after this many increments of a client.
fn counted(times: u64) -> (i64, i64) {
    let (mut g0, mut g1) = (0, 0);
    for number in 0..times {
        g0 += i64::from(number.is_multiple_of(4) || number % 2 == 1);
        g1 += i64::from(number % 4 == 2 || number % 2 == 1);
    }
    (g0, g1)
}

fn assert_counts(cluster: &Cluster, times: impl Iterator<Item = u64>) {
    let (g0, g1) = times.map(counted).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let mut client = cluster.client().unwrap();
    assert_eq!(client.increment(IN_G0, 0).unwrap(), g0, "nothing lost, nothing applied twice");
    assert_eq!(client.increment(IN_G1, 0).unwrap(), g1, "nothing lost, nothing applied twice");
}

/// Three ways to count until `stop` is set; each returns the number of its increments.
fn count_blocking(cluster: &Cluster, stop: &AtomicBool) -> u64 {
    let mut client = cluster.client().unwrap();
    client.set_timeout(LONG);
    let mut times = 0;
    while !stop.load(Ordering::Relaxed) {
        client.transact(&counting(times)).unwrap();
        times += 1;
    }
    times
}

fn count_in_tasks(cluster: &Cluster, stop: &AtomicBool) -> u64 {
    let client = cluster.async_client().unwrap().with_timeout(LONG);
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
        let mut times = 0;
        while !stop.load(Ordering::Relaxed) {
            let eight: Vec<_> = (times..times + 8)
                .map(|number| {
                    let client = client.clone();
                    tokio::spawn(async move { client.transact(&counting(number)).await })
                })
                .collect();
            for task in eight {
                task.await.unwrap().unwrap();
                times += 1;
            }
        }
        times
    })
}

/// Increments of several sessions, each with several operations under way.
fn count_driven(cluster: &Cluster, stop: &AtomicBool) -> Vec<u64> {
    let mut driver = cluster.driver().unwrap();
    driver.set_timeout(LONG);
    let sessions: Vec<SessionKey> = (0..4).map(|_| driver.open()).collect();
    let (mut sent, mut done) = (vec![0; 4], vec![0; 4]);
    loop {
        let going = !stop.load(Ordering::Relaxed);
        for (at, session) in sessions.iter().enumerate().filter(|_| going) {
            while sent[at] < done[at] + 3 {
                driver.submit(*session, &counting(sent[at])).unwrap();
                sent[at] += 1;
            }
        }
        if !going && driver.under_way() == 0 {
            return sent;
        }
        let busy = driver.poll(&mut |ticket, result| {
            let at = sessions.iter().position(|session| *session == ticket.session).unwrap();
            assert!(result.is_ok(), "{result:?}");
            done[at] += 1;
        });
        if !busy.unwrap() {
            driver.wait(Duration::from_millis(10));
        }
    }
}

/// Stops the counters when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Clients of all kinds count while `fail` happens to the cluster. No operation may fail, and each takes effect once.
fn count_through(cluster: &Cluster, fail: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let times = std::thread::scope(|scope| {
        let blocking: Vec<_> =
            (0..2).map(|_| scope.spawn(|| vec![count_blocking(cluster, &stop)])).collect();
        let others = [
            scope.spawn(|| vec![count_in_tasks(cluster, &stop)]),
            scope.spawn(|| count_driven(cluster, &stop)),
        ];
        {
            // The counters also stop if the test fails.
            let _stopping = Stop(&stop);
            std::thread::sleep(SHORT);
            fail();
            std::thread::sleep(SHORT);
        }
        let all = blocking.into_iter().chain(others);
        all.flat_map(|counter| counter.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(times.iter().all(|times| *times > 0), "{times:?}");
    assert_counts(cluster, times.into_iter());
}

#[test]
fn a_dead_leader_is_waited_for() {
    let cluster = local();
    count_through(&cluster, || {
        cluster.kill_node(leader(&cluster, 0)).unwrap();
    });
}

#[test]
fn every_node_may_die_one_after_the_other() {
    let cluster = local();
    count_through(&cluster, || {
        for round in 0..6 {
            let node = match round % 2 {
                0 => cluster.leader_of(round / 2 % 2).unwrap_or(0),
                _ => round / 2,
            };
            cluster.kill_node(node).unwrap();
            std::thread::sleep(SHORT);
            cluster.restart_node(node).unwrap();
            assert!(cluster.wait_until_whole(LONG), "round {round}: {:#?}", cluster.status());
        }
    });
}

#[test]
fn two_of_five_may_be_dead() {
    let cluster = builder().nodes(5).replicas(5).start().unwrap();
    count_through(&cluster, || {
        let (one, other) = (leader(&cluster, 0), leader(&cluster, 1));
        // On a machine that is busy elsewhere, one node may have become the leader of both groups.
        let other = if one == other { (one + 1) % 5 } else { other };
        cluster.kill_node(one).unwrap();
        cluster.kill_node(other).unwrap();
        std::thread::sleep(SHORT);
        cluster.restart_node(one).unwrap();
        cluster.restart_node(other).unwrap();
        assert!(cluster.wait_until_whole(LONG), "{:#?}", cluster.status());
    });
}

#[test]
fn a_leader_that_stands_still_is_replaced_and_goes_on() {
    let cluster = local();
    count_through(&cluster, || {
        let leader = leader(&cluster, 1);
        cluster.pause_node(leader).unwrap();
        until("another leads", || cluster.leader_of(1).is_some_and(|now| now != leader));
        cluster.resume_node(leader).unwrap();
        assert!(cluster.wait_until_whole(LONG), "{:#?}", cluster.status());
    });
}

#[test]
fn clients_that_come_while_nodes_are_down_are_served() {
    let cluster = local();
    for node in 0..3 {
        cluster.kill_node(node).unwrap();
        let mut client = cluster.client().unwrap();
        client.set_timeout(LONG);
        assert_eq!(client.increment(IN_G0, 1).unwrap(), i64::from(node) + 1);
        cluster.restart_node(node).unwrap();
        let mut client = cluster.client().unwrap();
        client.set_timeout(LONG);
        assert_eq!(client.increment(IN_G1, 1).unwrap(), i64::from(node) + 1);
        assert!(cluster.wait_until_whole(LONG), "{:#?}", cluster.status());
    }
}

/// Checks the error of an operation that group 1 does not answer.
fn assert_blocked(error: &Error) {
    assert_eq!(*error, Error::UnknownOutcome { after: SHORT, silent: group(1) });
    assert!(!error.had_no_effect());
    assert!(error.to_string().contains("{g1}") && error.to_string().contains("skein status"));
}

/// Five nodes: group 1 has replicas on 1, 2 and 3, and group 0 on 0, 1 and 2.
fn five() -> Cluster {
    builder().nodes(5).start().unwrap()
}

#[test]
fn a_group_that_stands_still_is_told_in_time_and_goes_on_by_itself() {
    let cluster = five();
    let mut client = cluster.client().unwrap();
    let tasks = cluster.async_client().unwrap().with_timeout(SHORT);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    client.increment(IN_G1, 1).unwrap();
    runtime.block_on(tasks.increment(IN_G1, 1)).unwrap();
    client.set_timeout(SHORT);
    for node in [1, 2, 3] {
        cluster.pause_node(node).unwrap();
    }
    let started = Instant::now();
    assert_blocked(&client.increment(IN_G1, 1).unwrap_err());
    assert_blocked(&runtime.block_on(tasks.increment(IN_G1, 1)).unwrap_err());
    let mut late = cluster.client().unwrap();
    late.set_timeout(SHORT);
    let error = late.increment(IN_G1, 1).unwrap_err();
    assert!(error.had_no_effect(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    for node in [1, 2, 3] {
        cluster.resume_node(node).unwrap();
    }
    // The same clients continue; operations that had timed out take effect, once.
    client.set_timeout(LONG);
    late.set_timeout(LONG);
    let tasks = tasks.with_timeout(LONG);
    client.increment(IN_G1, 1).unwrap();
    late.increment(IN_G1, 1).unwrap();
    runtime.block_on(tasks.increment(IN_G1, 1)).unwrap();
    assert_eq!(client.increment(IN_G1, 0).unwrap(), 7);
}

#[test]
fn nothing_is_sent_to_a_group_whose_quorum_is_dead() {
    let cluster = five();
    let mut client = cluster.client().unwrap();
    client.increment(IN_G1, 1).unwrap();
    client.increment(IN_G0, 1).unwrap();
    for node in [2, 3] {
        cluster.kill_node(node).unwrap();
    }
    client.set_timeout(SHORT);
    std::thread::sleep(SHORT);
    for key in [IN_G1, IN_G0, IN_G1] {
        let started = Instant::now();
        let ended = client.increment(key, 1);
        match (key, ended) {
            (IN_G0, Ok(_)) => {}
            (IN_G1, Err(error)) => {
                let why = Unavailability::NoQuorum { groups: group(1), after: SHORT };
                assert_eq!(error, Error::Unavailable { why, sent: false });
                assert!(error.had_no_effect() && error.to_string().contains("{g1}"), "{error}");
                assert!(started.elapsed() >= SHORT, "it might have come back");
            }
            (_, ended) => panic!("{key:?}: {ended:?}"),
        }
    }
    let mut late = cluster.client().unwrap();
    late.set_timeout(SHORT);
    // A session opens in all groups.
    let (dead, after) = (group(1), SHORT);
    let why = if along_a_tree() {
        Unavailability::HeldUp { by: dead, groups: dead, after }
    } else {
        Unavailability::NoQuorum { groups: dead, after }
    };
    assert_eq!(late.increment(IN_G0, 1), Err(Error::Unavailable { why, sent: false }));
    // The new session's first message would have delayed group 0 for clients that have a session.
    client.increment(IN_G0, 1).unwrap();
}

#[test]
fn a_group_that_has_lost_its_memory_says_nothing_and_that_is_said() {
    let cluster = five();
    let mut client = cluster.client().unwrap();
    client.increment(IN_G1, 1).unwrap();
    client.set_timeout(SHORT);
    for node in [2, 3] {
        cluster.kill_node(node).unwrap();
    }
    for node in [2, 3] {
        cluster.restart_node(node).unwrap();
    }
    assert_blocked(&client.increment(IN_G1, 1).unwrap_err());
    client.increment(IN_G0, 1).unwrap();
    let mut late = cluster.client().unwrap();
    late.set_timeout(SHORT);
    let error = late.increment(IN_G0, 1).unwrap_err();
    assert!(error.had_no_effect() && error.to_string().contains("g1"), "{error}");
    assert!(!cluster.wait_until_whole(SHORT));
}

/// Time allowed to operations whose errors are to name a group: most of their replicas' silence must be seen in it.
const ENOUGH: Duration = Duration::from_secs(3);

/// Checks that clients are told that group 1 holds up what goes to both groups, and that it is named no more when `mend` has
/// made it serve again. `sends` has sent its messages before.
fn assert_named_until(cluster: &Cluster, mut sends: skein_client::Client, mend: impl FnOnce()) {
    let both = increment(IN_G0).then(Operation::Increment { key: IN_G1.into(), by: 1 });
    let tasks = cluster.async_client().unwrap().with_timeout(ENOUGH);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (by, after) = (group(1), ENOUGH);
    let held_up = |groups, sent| {
        let why = Unavailability::HeldUp { by, groups, after };
        Err(Error::Unavailable { why, sent })
    };
    sends.set_timeout(ENOUGH);
    let groups = if along_a_tree() { by } else { GroupSet::first(2) };
    assert_eq!(sends.transact(&both).map(|_| ()), held_up(groups, true));
    let silent = Error::UnknownOutcome { after, silent: by };
    assert_eq!(sends.increment(IN_G1, 1), Err(silent), "nothing else is why");
    // A session opens in all groups.
    let opens = if along_a_tree() {
        held_up(by, false)
    } else {
        Err(Error::Unavailable { why: Unavailability::NoQuorum { groups: by, after }, sent: false })
    };
    assert_eq!(runtime.block_on(tasks.increment(IN_G0, 1)).map(|_| ()), opens);
    mend();
    sends.set_timeout(LONG);
    sends.transact(&both).unwrap();
    runtime.block_on(tasks.with_timeout(LONG).transact(&both)).unwrap();
    assert_eq!(
        sends.increment(IN_G1, 0).unwrap(),
        5,
        "the operations that had timed out took effect"
    );
}

#[test]
fn a_group_that_stands_still_is_named_for_what_it_holds_up() {
    let cluster = five();
    let mut client = cluster.client().unwrap();
    client.set_timeout(LONG);
    client.increment(IN_G1, 1).unwrap();
    // Its leader and a follower; group 0 has its leader and another follower.
    for node in [1, 3] {
        cluster.pause_node(node).unwrap();
    }
    assert_named_until(&cluster, client, || {
        for node in [1, 3] {
            cluster.resume_node(node).unwrap();
        }
    });
}

#[test]
fn a_group_whose_followers_stand_still_serves_and_is_available() {
    let cluster = five();
    let mut client = cluster.client().unwrap();
    client.set_timeout(LONG);
    client.increment(IN_G1, 1).unwrap();
    for node in [2, 3] {
        cluster.pause_node(node).unwrap();
    }
    let leads = |replica: &ReplicaStatus| replica.group == 1 && replica.role == Role::Leader;
    let leader = || {
        let engines = cluster.status().into_iter();
        let mut replicas = engines.flat_map(|it| it.replicas).map(|it| it.order);
        replicas.find(leads).expect("node 1 leads it")
    };
    until("its leader sees them silent", || {
        leader().view.iter().filter(|member| !member.alive).count() == 2
    });
    assert_eq!(client.increment(IN_G1, 1).unwrap(), 2, "their memory takes what it writes");
    assert!(leader().available, "{:#?}", leader());
    let both = increment(IN_G0).then(Operation::Increment { key: IN_G1.into(), by: 1 });
    let mut late = cluster.client().unwrap();
    if along_a_tree() {
        client.transact(&both).unwrap();
        late.set_timeout(LONG);
        assert_eq!(late.increment(IN_G1, 1).unwrap(), 4, "a session opens in both groups");
        return;
    }
    // Group 0 rests on words of the followers.
    client.set_timeout(ENOUGH);
    late.set_timeout(ENOUGH);
    let (by, after) = (group(1), ENOUGH);
    let why = Unavailability::HeldUp { by, groups: GroupSet::first(2), after };
    let held_up = Err(Error::Unavailable { why, sent: true });
    assert_eq!(client.transact(&both).map(|_| ()), held_up);
    let why = Unavailability::NoQuorum { groups: by, after };
    assert_eq!(late.increment(IN_G1, 1), Err(Error::Unavailable { why, sent: false }));
}

#[test]
fn a_node_that_does_not_exist_is_named() {
    let cluster = local();
    let error = cluster.kill_node(3).unwrap_err();
    assert_eq!(error.to_string(), "there is no node 3: the cluster has nodes 0 to 2");
    assert!(cluster.restart_node(9).is_err() && cluster.pause_node(9).is_err());
    // Requests that have no meaning have no effect.
    cluster.resume_node(0).unwrap();
    cluster.kill_node(2).unwrap();
    cluster.kill_node(2).unwrap();
    cluster.pause_node(2).unwrap();
    cluster.restart_node(2).unwrap();
    assert_eq!(cluster.status().len(), 3);
}
