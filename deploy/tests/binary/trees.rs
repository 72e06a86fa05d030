//! Clusters that order along a tree, of which an inner group has no quorum.

use std::fs;
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

/// Time allowed to operations whose errors are to name a group whose nodes run: what its replicas say is seen in it.
const ENOUGH: Duration = Duration::from_secs(3);

/// Checks what clients are told of g1, which does not serve though its nodes run. `client` has opened its session before. The
/// words are those by which `skein put` explains it.
fn assert_g1_is_named(sandbox: &Sandbox, client: &mut Client, keys: &[String], words: &[&str]) {
    let groups: GroupSet = [1, 2, 3].map(GroupId).into_iter().collect();
    let (by, after) = (GroupSet::single(GroupId(1)), ENOUGH);
    let why = Unavailability::HeldUp { by, groups, after };
    let held_up = Err(Error::Unavailable { why, sent: true });
    assert_eq!(client.within(ENOUGH).transact(&put(&[&keys[0], &keys[2]])), held_up);
    let silent = Error::UnknownOutcome { after, silent: by };
    assert_eq!(client.within(ENOUGH).put(keys[1].as_str(), "y"), Err(silent));
    let both =
        json!({ "then": [{ "put": keys[0], "value": "z" }, { "put": keys[2], "value": "z" }] });
    let file = sandbox.dir.with_file_name("both.json");
    fs::write(&file, both.to_string()).unwrap();
    let file = file.to_str().unwrap();
    for command in [["put", &keys[0], "z"].as_slice(), &["txn", file]] {
        let failed = sandbox.expect(3, &[command, &["--timeout", "3"]].concat()).err;
        for part in ["to {g1 g2 g3}", "wait for {g1}"].iter().chain(words) {
            assert!(failed.contains(part), "{part} in {failed}");
        }
        assert!(!failed.contains("g2 is") && !failed.contains("g0 is"), "{failed}");
    }
}

/// Checks that clients are served, old ones and new ones.
fn assert_all_serve(sandbox: &Sandbox, client: &mut Client, keys: &[String]) {
    client.set_timeout(Duration::from_mins(1));
    client.transact(&put(&keys.iter().collect::<Vec<_>>())).unwrap();
    for key in keys {
        sandbox.expect(0, &["put", key, "w", "--timeout", "60"]);
    }
}

#[test]
fn an_inner_group_whose_nodes_are_paused_is_named_until_they_go_on() {
    let sandbox = chain();
    sandbox.expect(0, &["admin", "transfer-leader", "g3", "--node", "4"]);
    let mut client = Client::connect(&sandbox.dir).unwrap();
    let keys = keys(client.shape());
    client.transact(&put(&keys.iter().collect::<Vec<_>>())).unwrap();
    for node in [1, 3] {
        halt(sandbox.pid(node).unwrap());
    }
    assert_g1_is_named(&sandbox, &mut client, &keys, &["1 of its 3 replicas", "is paused"]);
    for node in [1, 3] {
        kill(sandbox.pid(node).unwrap(), Signal::CONT);
    }
    assert_all_serve(&sandbox, &mut client, &keys);
}

#[test]
fn an_inner_group_that_is_lost_is_named_until_it_is_recreated() {
    let sandbox = chain();
    sandbox.expect(0, &["admin", "transfer-leader", "g3", "--node", "4"]);
    let mut client = Client::connect(&sandbox.dir).unwrap();
    let keys = keys(client.shape());
    client.transact(&put(&keys.iter().collect::<Vec<_>>())).unwrap();
    for node in [1, 3] {
        kill(sandbox.pid(node).unwrap(), Signal::KILL);
    }
    sandbox.expect(0, &["supervise", "--detach"]);
    until("g1 is lost, and the others serve", || {
        let status = sandbox.status();
        let available = |group: usize| status["groups"][group]["available"] == json!(true);
        status["groups"][1]["lost"] == json!(true) && [0, 2, 3].into_iter().all(available)
    });
    assert_g1_is_named(&sandbox, &mut client, &keys, &["g1 is lost", "admin recreate g1"]);
    sandbox.expect(0, &["admin", "recreate", "g1", "--from", "2"]);
    assert_all_serve(&sandbox, &mut client, &keys);
}

#[test]
fn a_group_that_commits_in_the_memory_of_paused_followers_is_said_to_serve() {
    let sandbox = chain();
    sandbox.expect(0, &["admin", "transfer-leader", "g3", "--node", "4"]);
    let mut client = Client::connect(&sandbox.dir).unwrap();
    let keys = keys(client.shape());
    client.transact(&put(&keys.iter().collect::<Vec<_>>())).unwrap();
    // The followers of g1, and two of three replicas of g2, with its leader.
    for node in [2, 3] {
        halt(sandbox.pid(node).unwrap());
    }
    let silent = |status: &Value| {
        let members = status["groups"][1]["view"].as_array().unwrap();
        members.iter().filter(|member| member["alive"] == json!(false)).count()
    };
    until("the leader of g1 has noticed, and g2 does not serve", || {
        let status = sandbox.status();
        silent(&status) == 2 && status["held_up"][0]["because"] == json!("no_quorum")
    });
    client.put(keys[1].as_str(), "y").unwrap();
    client.transact(&put(&[&keys[0], &keys[1]])).unwrap();
    let status = sandbox.status();
    assert_eq!(status["groups"][1]["available"], json!(true));
    let held = json!([{ "by": 2, "because": "no_quorum", "groups": [2, 3], "apart": [] }]);
    assert_eq!(status["held_up"], held);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let status = words(&sandbox.expect(1, &["status"]).out);
    let serves = "g1 serves, but g1.1, g1.2 do not answer: its leader writes into their memory.";
    assert!(status.contains(serves) && !status.contains("g1 has no quorum"), "{status}");
    let doctor = words(&sandbox.run(&["doctor"]).out);
    assert!(doctor.contains("g2 does not serve") && !doctor.contains("g1 has no"), "{doctor}");
    let failed = sandbox.expect(3, &["put", &keys[0], "z", "--timeout", "3"]).err;
    assert!(failed.contains("wait for {g2}") && !failed.contains("g1 is"), "{failed}");
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
