//! Concurrent interactive transactions of several clients.

use std::thread;

use skein_client::{Client, Commit, Error, Interactive, KeyRange, Operation, Transaction};

use crate::clusters::{builder, local};

/// Keys in group 1 and in group 0, of two groups.
const IN_G1: &str = "foo";
const IN_G0: &str = "";

const TEN: u32 = 10;
const ONCE: u32 = 1;

/// Sets both keys to this value, in one transaction.
fn both(value: &str) -> Transaction {
    let put = |key: &str| Operation::Put { key: key.into(), value: value.into() };
    Transaction::of(put(IN_G1)).then(put(IN_G0))
}

/// Conclusions of a body from the values that it has read.
#[derive(Debug, PartialEq)]
enum Failure {
    /// Two values that are always written together differ.
    Torn,
    Empty,
    Cluster(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Cluster(error)
    }
}

#[test]
fn an_error_that_rests_on_what_never_was_is_not_returned() {
    let cluster = local();
    let (mut client, mut other) = (cluster.client().unwrap(), cluster.client().unwrap());
    client.transact(&both("old")).unwrap();
    let mut attempts = 0;
    let seen = client.attempt(TEN, |transaction| {
        attempts += 1;
        let first = transaction.get(IN_G1)?;
        if attempts == 1 {
            other.transact(&both("new"))?;
        }
        let second = transaction.get(IN_G0)?;
        if first == second { Ok(first) } else { Err(Failure::Torn) }
    });
    assert_eq!((seen, attempts), (Ok(Some(b"new".to_vec())), 2));

    // An error that rests on values which existed together is returned, and nothing is written.
    let failed = client.attempt(TEN, |transaction| -> Result<(), Failure> {
        transaction.get(IN_G1)?;
        transaction.get(IN_G0)?;
        transaction.put(IN_G0, "never")?;
        Err(Failure::Empty)
    });
    assert_eq!(failed, Err(Failure::Empty));
    assert_eq!(client.get(IN_G0).unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn tasks_are_told_no_error_that_rests_on_what_never_was() {
    let cluster = local();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let client = cluster.async_client().unwrap();
        client.transact(&both("old")).await.unwrap();
        let mut attempts = 0;
        let seen = client
            .attempt(TEN, async |transaction| {
                attempts += 1;
                let first = transaction.get(IN_G1).await?;
                if attempts == 1 {
                    client.transact(&both("new")).await?;
                }
                let second = transaction.get(IN_G0).await?;
                if first == second { Ok(first) } else { Err(Failure::Torn) }
            })
            .await;
        assert_eq!((seen, attempts), (Ok(Some(b"new".to_vec())), 2));
    });
}

#[test]
fn what_two_have_scanned_only_one_may_add_to() {
    // Write skew by a phantom: each adds a key that the other has not seen, and no key is read or written by both.
    let cluster = builder().groups(3).start().unwrap();
    let (mut one, mut two) = (cluster.client().unwrap(), cluster.client().unwrap());
    let on_call = KeyRange::prefix("on-call:");
    one.put("on-call:ann", "").unwrap();
    for round in 0..5 {
        let add = |client: &mut Client, name: &str| {
            let mut transaction = client.begin();
            let others = transaction.scan(&on_call, 100).unwrap().pairs.len();
            transaction.put(format!("on-call:{name}{round}"), others.to_string()).unwrap();
            let seen = transaction.scan(&on_call, 100).unwrap().pairs.len();
            assert_eq!(seen, others + 1, "it sees its own writes");
            others
        };
        add(&mut one, "dropped");
        let mut first = one.begin();
        let others = first.scan(&on_call, 100).unwrap().pairs.len();
        assert_eq!(others, 1 + round);
        let mut second = two.begin();
        assert_eq!(second.scan(&on_call, 100).unwrap().pairs.len(), others);
        first.put(format!("on-call:bob{round}"), "").unwrap();
        second.put(format!("on-call:cid{round}"), "").unwrap();
        assert_eq!(first.commit().unwrap(), Commit::Done);
        assert_eq!(second.commit().unwrap(), Commit::Overtaken, "bob{round} came");
    }
    // A deleted key overtakes as well, and a key beside the range does not.
    for (key, overtakes) in [("on-call:ann", true), ("on-duty:ann", false)] {
        let mut scans = one.begin();
        scans.scan(&on_call, 2).unwrap();
        scans.put("checked", "yes").unwrap();
        two.delete(key).unwrap();
        let commit = if overtakes { Commit::Overtaken } else { Commit::Done };
        assert_eq!(scans.commit().unwrap(), commit, "{key}");
    }
}

#[test]
fn counters_that_are_only_raised_are_not_hot() {
    const CLIENTS: usize = 6;
    const TIMES: usize = 20;
    let cluster = local();
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let mut client = cluster.client().unwrap();
            scope.spawn(move || {
                let count = |transaction: &mut Interactive<&mut Client>| {
                    let mine = transaction.get(format!("mine{number}"))?;
                    let mine = mine.map_or(0, |mine| mine.len());
                    transaction.put(format!("mine{number}"), "x".repeat(mine + 1))?;
                    transaction.increment("hits", 1)?;
                    transaction.append("log", number.to_string())
                };
                for _ in 0..TIMES {
                    client.attempt(ONCE, count).expect("nobody else writes what it has read");
                }
            });
        }
    });
    let mut client = cluster.client().unwrap();
    assert_eq!(client.increment("hits", 0), Ok(i64::try_from(CLIENTS * TIMES).unwrap()));
    assert_eq!(client.get("log").unwrap().unwrap().len(), CLIENTS * TIMES);
}

#[test]
fn versions_are_those_of_what_was_read() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let version = client.put("key", "value").unwrap();
    let mut transaction = client.begin();
    let read = transaction.get_versioned("key").unwrap();
    assert_eq!(read, Some((b"value".to_vec(), Some(version))));
    transaction.put("key", "mine").unwrap();
    assert_eq!(transaction.get_versioned("key").unwrap(), Some((b"mine".to_vec(), None)));
    drop(transaction);
    let swap = client.compare_and_swap("key", Some(b"other"), "new").unwrap();
    assert_eq!(swap, skein_client::Swap::Different(Some((b"value".to_vec(), version))));
}
