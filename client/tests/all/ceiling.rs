//! Full groups: every replica refuses the same operations.

use std::time::{Duration, Instant};

use skein_client::local::Cluster;
use skein_client::{Client, Error, Refusal};
use skein_kvstore::limits::Limits;

use crate::clusters::builder;

/// Tags of keys in group 0 and in group 1, of two groups.
const TAGS: [&str; 2] = ["{bar}", "{foo}"];
const VALUE: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(30);

/// Writes values of a mebibyte to new keys of a group until it is full. Returns the number of keys.
fn fill(client: &mut Client, tag: &str) -> u64 {
    for number in 0.. {
        match client.patch(format!("{tag}{number:02}"), 0, vec![7; VALUE]) {
            Ok(_) => {}
            Err(Error::Refused(Refusal::OutOfMemory { .. })) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("its memory is bounded")
}

fn check(client: &mut Client, filled: [u64; 2]) {
    for (tag, keys) in TAGS.iter().zip(filled) {
        for number in 0..keys {
            let value = client.get(format!("{tag}{number:02}")).unwrap();
            assert!(value.is_some_and(|value| value.len() == VALUE), "{tag}{number:02}");
        }
    }
}

/// Waits until the replicas of each group report that they hold the same.
fn until_equal(cluster: &Cluster, replicas: usize) {
    let started = Instant::now();
    loop {
        let status = cluster.status();
        let held = |group| {
            let reports = status.iter().flat_map(|engine| &engine.replicas);
            let of_group = reports.filter(move |report| report.order.group == group);
            let held: Vec<_> = of_group.map(|it| (it.keys, it.store_bytes)).collect();
            held
        };
        let groups = [held(0), held(1)];
        let equal =
            |held: &Vec<_>| held.len() == replicas && held.iter().all(|one| *one == held[0]);
        if groups.iter().all(equal) {
            return;
        }
        assert!(started.elapsed() < LONG, "replicas hold different keys and bytes: {groups:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Four nodes: two host one replica each, and two host two.
#[test]
fn replicas_of_a_full_group_hold_the_same_however_many_their_nodes_host() {
    let limits = Limits { memory_bytes_max: 32 << 20, ..Limits::default() };
    let cluster = builder().nodes(4).groups(2).replicas(3).limits(limits).start().unwrap();
    let mut client = cluster.client().unwrap();
    client.set_timeout(LONG);
    let filled = TAGS.map(|tag| fill(&mut client, tag));
    assert!(filled.iter().all(|keys| (14..16).contains(keys)), "half of 32 MiB each: {filled:?}");
    until_equal(&cluster, 3);
    for group in [0, 1, 0] {
        let leader = cluster.leader_of(group).expect("somebody leads");
        cluster.kill_node(leader).unwrap();
        check(&mut client, filled);
        cluster.restart_node(leader).unwrap();
        assert!(cluster.wait_until_whole(LONG));
        until_equal(&cluster, 3);
    }
}
