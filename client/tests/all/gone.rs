//! Clusters that go away, and how soon their clients report it.

use std::time::{Duration, Instant};

use skein_client::{Client, ConnectError, Error, Operation, Transaction};

use crate::clusters::local;

const SOON: Duration = Duration::from_secs(1);

#[test]
fn a_stopped_cluster_is_unavailable_at_once() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    client.put("a", "b").unwrap();
    drop(cluster);
    for _ in 0..3 {
        let started = Instant::now();
        let error = client.get("a").unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(error.to_string().contains("skein up"), "{error}");
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
    let started = Instant::now();
    drop(client);
    assert!(started.elapsed() < SOON, "nobody is there to say goodbye to");
}

#[test]
fn operations_under_way_are_told_when_the_cluster_goes() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    client.put("a", "b").unwrap();
    let put = |n: u8| Transaction::of(Operation::Put { key: vec![n], value: vec![n; 100_000] });
    let pending: Vec<_> = (0..60).map(|n| client.submit(&put(n)).unwrap()).collect();
    drop(cluster);
    let started = Instant::now();
    for operation in pending {
        match client.wait(operation) {
            Ok(_) | Err(Error::Unavailable { sent: true, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn a_client_that_never_spoke_finds_out_too() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    drop(cluster);
    let started = Instant::now();
    let error = client.put("a", "b").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
}

#[test]
fn where_no_cluster_is_there_is_no_connection() {
    let error = Client::connect("/no/such/place").err().unwrap();
    assert!(matches!(error, ConnectError::Directory(_)));
    assert!(error.to_string().contains("/no/such/place"), "{error}");
    let connecting = skein_client::asynchronous::Client::connect("/no/such/place");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(matches!(runtime.block_on(connecting), Err(ConnectError::Directory(_))));
}

#[test]
fn starting_takes_milliseconds_and_stopping_too() {
    let started = Instant::now();
    for _ in 0..10 {
        let cluster = local();
        cluster.client().unwrap().put("a", "b").unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn many_clusters_share_the_cores() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let cluster = local();
                let mut client = cluster.client().unwrap();
                for n in 0..100 {
                    assert_eq!(client.increment("n", 1).unwrap(), n + 1);
                }
            });
        }
    });
}
