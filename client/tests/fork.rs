//! Processes that fork.

use skein_client::local::Cluster;
use skein_client::{Client, Error, Unavailability};
use skein_fabric::fork::holds_in_child;

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Unavailable { why: Unavailability::Forked, sent: false }))
}

#[test]
fn a_child_is_refused_its_parent_s_session_and_the_parent_goes_on() {
    let cluster = Cluster::local().unwrap();
    let mut client = cluster.client().unwrap();
    client.put("key", "parent").unwrap();
    let writes = |client: &mut Client| {
        let put = is_refused(client.put("key", "child"));
        put && is_refused(client.get("key")) && is_refused(client.increment("count", 1))
    };
    assert!(holds_in_child(|| writes(&mut client)));
    for count in 1..=10 {
        assert_eq!(client.increment("count", 1), Ok(count), "nothing is swallowed");
    }
    assert_eq!(client.get("key").unwrap().as_deref(), Some(&b"parent"[..]));
}

#[test]
fn a_child_s_tasks_are_refused_too_and_do_not_wait_for_a_thread_that_it_has_not() {
    let cluster = Cluster::local().unwrap();
    let client = cluster.async_client().unwrap();
    let block_on = |client: &skein_client::asynchronous::Client| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(client.put("key", "value"))
    };
    assert!(block_on(&client).is_ok());
    assert!(holds_in_child(|| is_refused(block_on(&client))));
    assert!(block_on(&client).is_ok());
}
