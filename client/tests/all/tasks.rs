//! The asynchronous client over a cluster in this process.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use skein_client::asynchronous;

use skein_client::{Client, Commit, Error, KeyRange, Operation, Swap, Transaction, Unavailability};

use crate::clusters::{builder, local};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn every_operation_does_what_it_says() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    block_on(async {
        assert_eq!(client.get("a").await.unwrap(), None);
        assert!(!client.exists("a").await.unwrap());
        let version = client.put("a", "2").await.unwrap();
        assert_eq!(client.get_versioned("a").await.unwrap(), Some((b"2".to_vec(), version)));
        assert_eq!(client.append("a", "3").await.unwrap(), 2);
        assert_eq!(client.increment("a", -24).await.unwrap(), -1);
        assert_eq!(client.patch("a", 0, "x").await.unwrap(), 2);
        let swap = client.compare_and_swap("a", Some(b"x1"), "y").await.unwrap();
        assert!(swap.swapped());
        let swap = client.compare_and_swap("a", None, "z").await.unwrap();
        assert!(matches!(&swap, Swap::Different(Some((value, _))) if value == b"y"), "{swap:?}");
        assert!(client.delete("a").await.unwrap());
        for n in 0..30_u8 {
            client.put([b'k', n], [n]).await.unwrap();
        }
        let mut pairs = client.pairs(KeyRange::prefix("k"), 7);
        for n in 0..30 {
            assert_eq!(pairs.next().await.unwrap(), Some((vec![b'k', n], vec![n])));
        }
        assert_eq!(pairs.next().await.unwrap(), None);
        let error = client.put(vec![0; 5_000], "").await.unwrap_err();
        assert!(matches!(error, Error::TooLarge { .. }));
    });
}

#[test]
fn many_tasks_on_many_threads_share_a_client() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                block_on(async {
                    let tasks: Vec<_> = (0..100_u32)
                        .map(|n| {
                            let client = client.clone();
                            tokio::spawn(async move {
                                for _ in 0..5 {
                                    client.increment(format!("n{}", n % 10), 1).await.unwrap();
                                }
                            })
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            });
        }
    });
    block_on(async {
        for n in 0..10 {
            assert_eq!(client.increment(format!("n{n}"), 0).await.unwrap(), 200);
        }
    });
}

#[test]
fn an_interactive_transaction_is_overtaken_by_whoever_commits_first() {
    let cluster = builder().groups(3).start().unwrap();
    let client = cluster.async_client().unwrap();
    block_on(async {
        client.put("a", "1").await.unwrap();
        let (mut slow, mut quick) = (client.begin(), client.begin());
        assert_eq!(slow.get("a").await.unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(slow.get("b").await.unwrap(), None);
        slow.delete("a").unwrap();
        assert_eq!(slow.get("a").await.unwrap(), None, "its own write");
        quick.put("b", "quick").unwrap();
        assert_eq!(quick.commit().await.unwrap(), Commit::Done, "it has read nothing");
        assert_eq!(slow.commit().await.unwrap(), Commit::Overtaken);
        assert_eq!(client.get("a").await.unwrap().as_deref(), Some(&b"1"[..]), "as it was");
        assert_eq!(client.begin().commit().await.unwrap(), Commit::Done, "there is nothing to do");
    });
}

#[test]
fn attempts_of_many_tasks_on_hot_keys_lose_nothing() {
    const TASKS: i64 = 8;
    const TIMES: i64 = 25;
    let cluster = builder().groups(3).start().unwrap();
    let client = cluster.async_client().unwrap();
    let attempts = 1000;
    block_on(async {
        let moving = (0..TASKS).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..TIMES {
                    client
                        .attempt(attempts, async |transaction| {
                            for (key, by) in [("from", -1), ("to", 1)] {
                                let value = transaction.get(key).await?;
                                let value = value.unwrap_or_else(|| b"0".to_vec());
                                let number = String::from_utf8(value).unwrap();
                                let number: i64 = number.parse().unwrap();
                                transaction.put(key, (number + by).to_string())?;
                            }
                            Ok::<_, Error>(())
                        })
                        .await
                        .unwrap();
                }
            })
        });
        for task in moving.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(client.increment("to", 0).await.unwrap(), TASKS * TIMES);
        assert_eq!(client.increment("from", 0).await.unwrap(), -TASKS * TIMES);
        // Another client always changes the value that this one has read.
        let overtaken = client
            .attempt(3, async |transaction| {
                transaction.get("from").await?;
                client.increment("from", 1).await?;
                transaction.put("from", "gone")?;
                Ok::<_, Error>(())
            })
            .await;
        assert_eq!(overtaken, Err(Error::Overtaken { attempts: 3 }));
    });
}

/// A waker that does nothing: a future that is polled by hand need not wake a task.
struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn dropped_futures_leave_nothing_stuck() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    let waker = Waker::from(Arc::new(Nothing));
    let mut context = Context::from_waker(&waker);
    // Far more than the window: some have been sent when they are dropped, and some wait for room.
    for round in 0..20 {
        let mut futures: Vec<_> = (0..200).map(|_| Box::pin(client.increment("n", 1))).collect();
        for future in &mut futures {
            let polled = future.as_mut().poll(&mut context);
            assert!(!matches!(polled, Poll::Ready(Err(_))), "round {round}: {polled:?}");
        }
    }
    let count = block_on(client.increment("n", 0)).unwrap();
    assert!(count <= 4_000, "{count}");
    // The whole window is free again.
    block_on(async {
        let tasks: Vec<_> = (0..500)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.put("x", "y").await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}

#[test]
fn nothing_is_sent_before_a_future_is_polled() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    drop(client.put("a", "b"));
    assert_eq!(block_on(client.get("a")).unwrap(), None);
}

#[test]
fn a_time_out_is_told_and_the_session_goes_on() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    let hasty = client.with_timeout(Duration::from_nanos(1));
    block_on(async {
        for _ in 0..200 {
            match hasty.increment("n", 1).await {
                Ok(_) | Err(Error::UnknownOutcome { .. }) => {}
                Err(Error::Unavailable { why: Unavailability::NotSent { .. }, sent }) => {
                    assert!(!sent);
                }
                Err(error) => panic!("{error}"),
            }
        }
        let count = client.increment("n", 1).await.unwrap();
        assert!((1..=201).contains(&count), "{count}");
    });
}

#[test]
fn a_cluster_that_goes_away_is_told_soon() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    block_on(async {
        client.put("a", "b").await.unwrap();
        let tasks: Vec<_> = (0..200)
            .map(|n: u32| {
                let client = client.clone();
                tokio::spawn(async move {
                    loop {
                        if let Err(error) = client.increment(format!("n{n}"), 1).await {
                            return error;
                        }
                    }
                })
            })
            .collect();
        let dropper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            drop(cluster);
            Instant::now()
        });
        for task in tasks {
            let error = task.await.unwrap();
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        }
        let took = dropper.join().unwrap().elapsed();
        assert!(took < Duration::from_secs(2), "{took:?}");
        let started = Instant::now();
        let error = client.get("a").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    });
}

#[test]
fn large_values_and_transactions_go_through() {
    let cluster = local();
    let client = cluster.async_client().unwrap();
    let value = vec![7; 1 << 20];
    block_on(async {
        let tasks: Vec<_> = (0..16)
            .map(|n: u8| {
                let (client, value) = (client.clone(), value.clone());
                tokio::spawn(async move { client.put([n], value).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let get = |n: u8| Operation::Get { key: vec![n] };
        let reply = client.transact(&Transaction::of(get(1)).then(get(2))).await.unwrap();
        assert_eq!(reply.outcomes.len(), 2);
        assert!(client.get([3]).await.unwrap().unwrap() == value);
    });
}

#[test]
fn clients_and_futures_can_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn are_shared<T: Clone + Send + Sync>() {}
    fn are_sent<T: Send>() {}
    are_shared::<asynchronous::Client>();
    are_sent::<Client>();
    let cluster = local();
    let client = cluster.async_client().unwrap();
    let future = client.put("a", "b");
    is_send(&future);
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Nothing));
    let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
    block_on(future).unwrap();
}
