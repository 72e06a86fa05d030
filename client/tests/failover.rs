//! Nodes that die, stand still and come back, as applications see them.

use std::time::{Duration, Instant};

use skein_client::local::Cluster;
use skein_client::{Error, GroupId, GroupSet, Unavailability};

/// In group 1 and group 0, of two.
const IN_G1: &str = "foo";
const IN_G0: &str = "";

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

fn group(number: u16) -> GroupSet {
    GroupSet::single(GroupId(number))
}

/// How an operation ends that group 1, and it alone, keeps from being answered.
fn assert_stuck(error: &Error, sent: bool) {
    match error {
        Error::UnknownOutcome { after: SHORT, silent } if sent => assert_eq!(*silent, group(1)),
        Error::Unavailable { why: Unavailability::NotSent { silent, .. }, sent: false }
            if !sent =>
        {
            assert_eq!(*silent, group(1));
        }
        error => panic!("{error}"),
    }
    assert_eq!(error.had_no_effect(), !sent);
    assert!(error.to_string().contains("{g1}") && error.to_string().contains("skein status"));
}

/// Five nodes, of which group 1 has replicas on 1, 2 and 3, and group 0 on 0, 1 and 2.
fn five() -> Cluster {
    Cluster::builder().nodes(5).start().unwrap()
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
    assert_stuck(&client.increment(IN_G1, 1).unwrap_err(), true);
    assert_stuck(&runtime.block_on(tasks.increment(IN_G1, 1)).unwrap_err(), true);
    let mut late = cluster.client().unwrap();
    late.set_timeout(SHORT);
    let error = late.increment(IN_G1, 1).unwrap_err();
    assert!(error.had_no_effect(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    for node in [1, 2, 3] {
        cluster.resume_node(node).unwrap();
    }
    // The same clients; what had timed out takes effect, once.
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
    let error = late.increment(IN_G0, 1).unwrap_err();
    assert!(matches!(error, Error::Unavailable { sent: false, .. }), "{error}");
}

#[test]
fn a_node_that_does_not_exist_is_named() {
    let cluster = Cluster::local().unwrap();
    let error = cluster.kill_node(3).unwrap_err();
    assert_eq!(error.to_string(), "there is no node 3: the cluster has nodes 0 to 2");
    assert!(cluster.restart_node(9).is_err() && cluster.pause_node(9).is_err());
    // What has no meaning does no harm.
    cluster.resume_node(0).unwrap();
    cluster.kill_node(2).unwrap();
    cluster.kill_node(2).unwrap();
    cluster.pause_node(2).unwrap();
    cluster.restart_node(2).unwrap();
    assert_eq!(cluster.status().len(), 3);
}
