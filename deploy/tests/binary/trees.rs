//! Clusters that order along a tree, of which an inner group has no quorum.

use std::iter;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use skein_client::{
    Client, Driver, Error, GroupId, GroupSet, Operation, Shape, Transaction, Unavailability,
};

use crate::support::{Sandbox, halt, kill, until};

const SHORT: Duration = Duration::from_millis(500);

/// A chain of four groups on six nodes. Group g has replicas on the nodes g, g + 1 and g + 2.
fn chain() -> Sandbox {
    let sandbox = Sandbox::new();
    let config = sandbox.config("[tuning]\nspread_after_ms = 0\n");
    let sizes = ["--nodes", "6", "--groups", "4", "--order", "tram", "--tree", "-1,0,1,2"];
    let up = ["up", "--detach", "--no-restart", "--config", &config];
    sandbox.expect(0, &[&up[..], &sizes].concat());
    sandbox
}

/// A key of each group.
fn keys(shape: &Shape) -> Vec<String> {
    let of = |group| {
        let mut keys = (0..).map(|number| format!("key{number}"));
        keys.find(|key| shape.slots.owner(key.as_bytes()) == GroupId(group)).unwrap()
    };
    (0..4).map(of).collect()
}

fn put(keys: &[&String]) -> Transaction {
    let put = |key: &&String| Operation::Put { key: key.as_bytes().to_vec(), value: b"x".to_vec() };
    Transaction { then: keys.iter().map(put).collect(), ..Transaction::default() }
}

fn leader(status: &Value, group: usize) -> &Value {
    let replicas = status["groups"][group]["replicas"].as_array().unwrap();
    replicas.iter().find(|replica| replica["role"] == "leader").unwrap()
}

#[test]
fn a_status_shows_the_edges_of_the_tree() {
    let sandbox = chain();
    let mut client = Client::connect(&sandbox.dir).unwrap();
    let keys = keys(client.shape());
    client.transact(&put(&[&keys[0], &keys[2]])).unwrap();
    until("all edges are acknowledged", || {
        let status = sandbox.status();
        let kept = (0..3).map(|group| &leader(&status, group)["edges"]["children"][0]);
        kept.into_iter().all(|to| to["unacknowledged"] == 0 && to["numbered"] == to["sent"])
    });
    let status = sandbox.status();
    assert_eq!(status["parents"], json!([null, 0, 1, 2]));
    assert_eq!((&status["tree"], &status["held_up"]), (&json!("depth"), &json!([])));
    assert!(leader(&status, 0)["edges"].get("taken").is_none(), "the root has no parent");
    for group in 0..3 {
        let [edges, below] = [group, group + 1].map(|group| &leader(&status, group)["edges"]);
        let to = &edges["children"][0];
        assert_eq!(to["group"], json!(group + 1));
        assert_eq!((&to["acknowledged"], &to["closed"]), (&to["numbered"], &json!([])));
        assert_eq!(below["taken"], json!({ "generation": 0, "number": to["numbered"] }));
        assert_eq!((&edges["closed"], &edges["refused"]), (&json!([]), &json!(0)));
    }
    assert_eq!(leader(&status, 3)["edges"]["children"], json!([]));
    let followers = status["groups"][0]["replicas"].as_array().unwrap();
    assert_eq!(followers.iter().filter(|it| it.get("edges").is_some()).count(), 1);
    let text = sandbox.expect(0, &["status", "--wide"]).out;
    assert!(text.contains("edge      numbered  acknowledged  kept  sent  taken  closed"), "{text}");
    assert!(["g0 to g1", "g1 to g2", "g2 to g3"].iter().all(|edge| text.contains(edge)), "{text}");
    sandbox.expect(0, &["down", "--yes"]);
    let other = Sandbox::new();
    other.expect(0, &["up", "--detach", "--order", "ramcast"]);
    let status = other.status();
    assert!(status.get("held_up").is_none() && status.get("parents").is_none());
    assert!(leader(&status, 0).get("edges").is_none(), "there is no tree");
}

#[test]
fn an_inner_group_without_a_quorum_is_named_with_what_it_holds_up() {
    let sandbox = chain();
    // The leaders of the other groups live on, and know what is everywhere: they have answered for what follows it.
    sandbox.expect(0, &["admin", "transfer-leader", "g3", "--node", "4"]);
    let mut client = Client::connect(&sandbox.dir).unwrap();
    let keys = keys(client.shape());
    client.transact(&put(&keys.iter().collect::<Vec<_>>())).unwrap();
    for group in [0, 2, 3] {
        client.put(keys[group].as_str(), "x").unwrap();
    }
    for node in [1, 3] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    let says = |status: &Value| {
        let held =
            json!([{ "by": 1, "because": "no_quorum", "groups": [1, 2, 3], "apart": [[2, 3]] }]);
        status["held_up"] == held
    };
    until("g1 alone does not serve", || says(&sandbox.status()));
    // A message that is sent before the client notices would hold up g0's answers.
    until("the client has noticed", || {
        let alone = client.within(SHORT).put(keys[1].as_str(), "w");
        matches!(alone, Err(Error::Unavailable { sent: false, .. }))
    });

    // g1 is no destination, and its children go on.
    let groups: GroupSet = [1, 2, 3].map(GroupId).into_iter().collect();
    let (by, after) = (GroupSet::single(GroupId(1)), SHORT);
    let held_up =
        Error::Unavailable { why: Unavailability::HeldUp { by, groups, after }, sent: false };
    let through = put(&[&keys[0], &keys[2]]);
    assert_eq!(client.within(SHORT).transact(&through), Err(held_up.clone()));
    assert!(client.transact(&put(&[&keys[2], &keys[3]])).is_ok());
    for group in [0, 2, 3] {
        client.put(keys[group].as_str(), "y").unwrap();
    }
    let why = Unavailability::NoQuorum { groups: by, after };
    let alone = client.within(SHORT).put(keys[1].as_str(), "y");
    assert_eq!(alone, Err(Error::Unavailable { why, sent: false }));

    let sentence = "g1 has no quorum: it holds up messages of several groups to g1, g2 and g3, but for those that go only to g2 and g3.";
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = words(&sandbox.expect(1, &["status"]).out);
    assert!(status.contains(sentence), "{status}");
    // Its exit code is about this machine.
    let doctor = words(&sandbox.run(&["doctor"]).out);
    assert!(doctor.contains(sentence), "{doctor}");
    let failed = sandbox.expect(3, &["put", &keys[0], "z", "--timeout", "0.5"]).err;
    for part in ["to {g1 g2 g3}", "wait for {g1}", "1 of its 3 replicas", "node 1: it does not run"]
    {
        assert!(failed.contains(part), "{part} in {failed}");
    }
}

/// Paused nodes run as far as clients know, so that these send on.
#[test]
fn a_leader_says_which_destinations_are_closed_and_how_many_messages_wait() {
    let sandbox = chain();
    let mut driver = Driver::connect(&sandbox.dir).unwrap();
    driver.set_timeout(Duration::from_secs(100));
    let keys = keys(driver.shape());
    let finish = |driver: &mut Driver<_>| {
        while driver.under_way() > 0 {
            let polled =
                driver.poll(&mut |ticket, ended| assert!(ended.is_ok(), "{ticket:?}: {ended:?}"));
            if !polled.unwrap() {
                driver.wait(Duration::from_millis(100));
            }
        }
    };
    let window = driver.window();
    let room = 512_usize.next_multiple_of(window);
    let sessions: Vec<_> = (0..=room / window).map(|_| driver.open()).collect();
    for session in &sessions {
        driver.submit(*session, &put(&[&keys[0]])).unwrap();
    }
    finish(&mut driver);
    for node in [1, 3] {
        halt(sandbox.pid(node).unwrap());
    }
    let through = put(&[&keys[0], &keys[2]]);
    let (last, others) = sessions.split_last().unwrap();
    for session in others.iter().flat_map(|session| iter::repeat_n(session, window)) {
        driver.submit(*session, &through).unwrap();
    }
    let root = |refused: usize| {
        let status = sandbox.status();
        let edges = &leader(&status, 0)["edges"];
        let to = &edges["children"][0];
        edges["refused"] == json!(refused)
            && to["unacknowledged"] == json!(room)
            && [&edges["closed"], &to["closed"]].iter().all(|it| **it == json!([1, 2, 3]))
    };
    let poll_until = |what: &str, refused: usize, driver: &mut Driver<_>| {
        until(what, || {
            driver.poll(&mut |ticket, ended| panic!("{ticket:?}: {ended:?}")).unwrap();
            root(refused)
        });
    };
    poll_until("the root has no room", 0, &mut driver);
    for _ in 0..window {
        driver.submit(*last, &through).unwrap();
    }
    poll_until("the root refuses the rest", window, &mut driver);
    let text = sandbox.run(&["status"]).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentence = format!(
        "g0 orders no messages of several groups to g1, g2 and g3 for now: what it has passed on there is not acknowledged. {window} messages wait for that."
    );
    assert!(text.contains(&sentence), "{text}");
    for node in [1, 3] {
        kill(sandbox.pid(node).unwrap(), Signal::CONT);
    }
    finish(&mut driver);
    until("the root has room", || {
        let status = sandbox.status();
        let edges = &leader(&status, 0)["edges"];
        edges["closed"] == json!([]) && edges["refused"] == json!(0)
    });
}
