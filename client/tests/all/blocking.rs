//! The blocking client over a cluster in this process.

use std::time::Duration;

use skein_client::{
    Client, Commit, Compare, Error, Interactive, KeyRange, Operation, Outcome, Refusal, Swap, Test,
    Transaction, Unavailability,
};
use skein_kvstore::limits::Limits;

use crate::clusters::{builder, local};

#[test]
fn every_operation_does_what_it_says() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    assert_eq!(client.get("a").unwrap(), None);
    assert!(!client.exists("a").unwrap());
    let first = client.put("a", "1").unwrap();
    let second = client.put("a", "2").unwrap();
    assert!(first > 0 && second > first, "versions rise");
    assert_eq!(client.get_versioned("a").unwrap(), Some((b"2".to_vec(), second)));
    assert_eq!(client.append("a", "3").unwrap(), 2);
    assert_eq!(client.increment("a", -24).unwrap(), -1);
    assert_eq!(client.patch("a", 4, "x").unwrap(), 5);
    assert_eq!(client.get("a").unwrap().unwrap(), b"-1\0\0x");
    assert!(matches!(client.compare_and_swap("a", None, "no").unwrap(), Swap::Different(Some(_))));
    assert!(client.compare_and_swap("a", Some(b"-1\0\0x"), "yes").unwrap().swapped());
    assert!(client.delete("a").unwrap() && !client.delete("a").unwrap());
    assert_eq!(client.compare_and_swap("a", Some(b"yes"), "no").unwrap(), Swap::Different(None));
}

#[test]
fn keys_and_values_are_any_bytes() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let every: Vec<u8> = (0..=u8::MAX).collect();
    for key in [&b""[..], b"\0", b"\xff\xfe", b"{", b"a\nb", &every] {
        assert_eq!(client.get(key).unwrap(), None);
        client.put(key, &every).unwrap();
        assert_eq!(client.get(key).unwrap().as_deref(), Some(&every[..]));
        client.put(key, "").unwrap();
        assert_eq!(client.get(key).unwrap().as_deref(), Some(&b""[..]), "empty is not absent");
    }
}

#[test]
fn the_largest_values_go_through_and_larger_ones_do_not() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let limits = client.shape().limits;
    let value: Vec<u8> = (0..limits.value_bytes_max).map(|i| (i * 7 + i / 1000) as u8).collect();
    for key in ["a", "b", "c"] {
        client.put(key, &value).unwrap();
    }
    for key in ["a", "b", "c"] {
        assert!(client.get(key).unwrap().unwrap() == value, "a value of 1 MiB comes back");
    }
    let both = Transaction::of(Operation::Get { key: b"a".to_vec() })
        .then(Operation::Get { key: b"foo".to_vec() })
        .then(Operation::Put { key: b"foo".to_vec(), value: value.clone() });
    assert_eq!(client.transact(&both).unwrap().outcomes.len(), 3);

    let error = client.put("a", [value, vec![0]].concat()).unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "a value", .. }), "{error}");
    assert!(error.to_string().contains("limits.value_bytes_max"), "{error}");
    let error = client.put(vec![b'k'; limits.key_bytes_max + 1], "").unwrap_err();
    assert!(matches!(error, Error::TooLarge { what: "a key", len: 4097, max: 4096, .. }));
    let mut many = Transaction::default();
    for n in 0..=limits.transaction_keys_max {
        many = many.then(Operation::Get { key: n.to_string().into_bytes() });
    }
    let error = client.transact(&many).unwrap_err();
    assert!(matches!(error, Error::TooLarge { unit: "keys", len: 129, .. }), "{error}");
    let error = client.append("a", "x").unwrap_err();
    assert!(matches!(error, Error::Refused(Refusal::ValueTooLarge { .. })), "{error}");
    assert!(error.had_no_effect());
}

#[test]
fn what_the_store_refuses_is_told() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    client.put("a", "word").unwrap();
    client.put("foo", "1").unwrap();
    // The transaction is on both shards, and one of them refuses it.
    let both = Transaction::default()
        .then(Operation::Increment { key: b"foo".to_vec(), by: 1 })
        .then(Operation::Increment { key: b"a".to_vec(), by: 1 });
    assert_eq!(
        client.transact(&both),
        Err(Error::Refused(Refusal::NotANumber { key: b"a".to_vec() }))
    );
    assert_eq!(client.get("foo").unwrap().unwrap(), b"1", "nothing was changed");
    assert!(matches!(client.scan(&KeyRange::all(), 0), Err(Error::Refused(Refusal::Malformed(_)))));
}

#[test]
fn scans_go_page_by_page_over_all_shards() {
    let cluster = builder().groups(4).start().unwrap();
    let mut client = cluster.client().unwrap();
    let key = |n: u32| format!("key{n:04}").into_bytes();
    for n in 0..500 {
        client.put(key(n), n.to_string()).unwrap();
    }
    client.put("other", "").unwrap();
    let all: Vec<_> = client.pairs(KeyRange::prefix("key"), 7).collect::<Result<_, _>>().unwrap();
    assert!(all.iter().map(|(key, _)| key.clone()).eq((0..500).map(key)));
    let range = KeyRange::of(key(10)..=key(12));
    let page = client.scan(&range, 100).unwrap();
    assert!(page.pairs.iter().map(|(key, _)| key.clone()).eq((10..=12).map(key)));
    assert_eq!(page.next, None);
    assert_eq!(client.scan(&KeyRange::prefix("nobody"), 10).unwrap().pairs, []);
}

#[test]
fn many_operations_are_under_way_and_each_has_its_own_reply() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let increment = |n: u32| {
        let key = format!("n{}", n % 10).into_bytes();
        Transaction::of(Operation::Increment { key, by: 1 })
    };
    let mut pending = Vec::new();
    for n in 0..1_000 {
        let operation = client.submit(&increment(n)).unwrap();
        // Some are never waited for, and take effect nevertheless.
        if n % 3 > 0 {
            pending.push((n, operation));
        }
    }
    // Not in the order in which they were submitted.
    for (n, operation) in pending.into_iter().rev() {
        let reply = client.wait(operation).unwrap();
        let [Outcome::Number(number)] = reply.outcomes[..] else { panic!("{reply:?}") };
        assert!((1..=100).contains(&number), "{n}: {number}");
    }
    for n in 0..10 {
        assert_eq!(client.increment(format!("n{n}"), 0).unwrap(), 100);
    }
}

#[test]
fn a_time_out_is_an_unknown_outcome_and_the_session_goes_on() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    let mut known = client.increment("n", 1).unwrap();
    let mut unknown = 0;
    for _ in 0..500 {
        match client.within(Duration::from_nanos(1)).increment("n", 1) {
            Ok(number) => known = number,
            Err(Error::UnknownOutcome { after, .. }) => {
                assert_eq!(after, Duration::from_nanos(1));
                unknown += 1;
            }
            // The session's window is full of operations with unknown outcomes.
            Err(Error::Unavailable { why: Unavailability::NotSent { .. }, sent: false }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(unknown > 0);
    let last = client.increment("n", 1).unwrap();
    assert!(last > known, "the session goes on, with 5 s again");
    // Messages that were sent and are not settled yet may still take effect.
    let mut other = cluster.client().unwrap();
    drop(client);
    let total = other.increment("n", 0).unwrap();
    assert!(total <= 502, "{total}: nothing took effect twice");
}

#[test]
fn guards_decide_across_shards() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    client.put("alice", "100").unwrap();
    let transfer = |amount: i64| {
        Transaction::default()
            .guard("alice", Test::Number { compare: Compare::AtLeast, number: amount })
            .then(Operation::Increment { key: b"alice".to_vec(), by: -amount })
            .then(Operation::Increment { key: b"foo".to_vec(), by: amount })
            .otherwise(Operation::Get { key: b"foo".to_vec() })
    };
    assert!(client.transact(&transfer(70)).unwrap().held);
    let reply = client.transact(&transfer(70)).unwrap();
    assert!(!reply.held);
    assert!(matches!(&reply.outcomes[..], [Outcome::Value(Some((value, _)))] if value == b"70"));
    let (_, version) = client.get_versioned("alice").unwrap().unwrap();
    let stale = Transaction::default()
        .guard("alice", Test::Version(version - 1))
        .then(Operation::Delete { key: b"foo".to_vec() });
    assert!(!client.transact(&stale).unwrap().held);
    assert!(client.exists("foo").unwrap());
}

#[test]
fn clusters_of_every_shape_serve() {
    for (nodes, groups, replicas, engines) in
        [(1, 1, 1, 1), (3, 8, 3, 2), (5, 4, 5, 1), (5, 2, 3, 2)]
    {
        let builder = builder().nodes(nodes).groups(groups).replicas(replicas);
        let cluster = builder.engines(engines).start().unwrap();
        let mut client = cluster.client().unwrap();
        for n in 0..50_u8 {
            client.put([n], [n]).unwrap();
        }
        assert_eq!(client.scan(&KeyRange::all(), 100).unwrap().pairs.len(), 50);
    }
}

#[test]
fn a_shape_that_cannot_be_is_refused() {
    let error = builder().nodes(2).start().err().unwrap().to_string();
    assert!(error.contains("replicas = 3") && error.contains("nodes = 2"), "{error}");
    let limits = Limits { value_bytes_max: 1 << 30, ..Limits::default() };
    let error = builder().limits(limits).start().err().unwrap().to_string();
    assert!(error.contains("value_bytes_max"), "{error}");
}

#[test]
fn sessions_come_and_go() {
    let cluster = local();
    for n in 0..200 {
        let mut client = cluster.client().unwrap();
        assert_eq!(client.increment("n", 1).unwrap(), n + 1);
    }
}

#[test]
fn an_interactive_transaction_is_overtaken_by_whoever_commits_first() {
    let cluster = builder().groups(3).start().unwrap();
    let (mut one, mut two) = (cluster.client().unwrap(), cluster.client().unwrap());
    one.put("a", "1").unwrap();
    let mut slow = one.begin();
    assert_eq!(slow.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(slow.get("b").unwrap(), None);
    slow.put("b", "2").unwrap();
    assert_eq!(slow.get("b").unwrap().as_deref(), Some(&b"2"[..]), "its own write");
    slow.delete("a").unwrap();
    assert_eq!(slow.get("a").unwrap(), None);
    let mut quick = two.begin();
    quick.put("b", "quick").unwrap();
    assert_eq!(quick.commit().unwrap(), Commit::Done, "it has read nothing");
    assert_eq!(slow.commit().unwrap(), Commit::Overtaken);
    assert_eq!(two.get("a").unwrap().as_deref(), Some(&b"1"[..]), "nothing was changed");
    assert_eq!(two.get("b").unwrap().as_deref(), Some(&b"quick"[..]));
    // Transactions that only read commit too: their values must have existed together.
    let mut reads = one.begin();
    reads.get("a").unwrap();
    reads.get("b").unwrap();
    two.put("a", "3").unwrap();
    assert_eq!(reads.commit().unwrap(), Commit::Overtaken);
}

#[test]
fn attempts_on_hot_keys_lose_nothing() {
    const CLIENTS: usize = 8;
    const TIMES: usize = 25;
    let cluster = builder().groups(3).start().unwrap();
    let attempts = 1000;
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = cluster.client().unwrap();
                for _ in 0..TIMES {
                    let move_one =
                        |transaction: &mut Interactive<&mut Client>| -> Result<(), Error> {
                            for (key, by) in [("from", -1), ("to", 1)] {
                                let value = transaction.get(key)?.unwrap_or_else(|| b"0".to_vec());
                                let number: i64 =
                                    String::from_utf8(value).unwrap().parse().unwrap();
                                transaction.put(key, (number + by).to_string())?;
                            }
                            Ok(())
                        };
                    client.attempt(attempts, move_one).unwrap();
                }
            });
        }
    });
    let mut client = cluster.client().unwrap();
    let moved = (CLIENTS * TIMES).to_string();
    assert_eq!(client.get("to").unwrap(), Some(moved.clone().into_bytes()));
    assert_eq!(client.get("from").unwrap(), Some(format!("-{moved}").into_bytes()));
    // Another client always changes the value that this one has read.
    let mut other = cluster.client().unwrap();
    let overtaken = client.attempt(3, |transaction| {
        transaction.get("from")?;
        other.increment("from", 1)?;
        transaction.put("from", "gone")?;
        Ok::<_, Error>(())
    });
    assert_eq!(overtaken, Err(Error::Overtaken { attempts: 3 }));
    let once = client.attempt(0, |transaction| transaction.get("from"));
    assert!(once.unwrap().is_some(), "it is tried once at least");
}

#[test]
fn a_time_out_may_be_as_long_as_there_is() {
    let cluster = local();
    let mut client = cluster.client().unwrap();
    client.within(Duration::MAX).put("key", "value").unwrap();
    client.set_timeout(Duration::MAX);
    assert!(client.get("key").unwrap().is_some());
    drop(client);
    let tasks = cluster.async_client().unwrap().with_timeout(Duration::MAX);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(tasks.get("key")).unwrap().is_some());
}
