//! The commands on keys and values, and the library on the same cluster.

use std::fs;
use std::io::Write;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use skein_client::asynchronous;
use skein_client::{Client, ConnectError, Error, Unavailability};

use crate::support::{Sandbox, halt, kill, until};

/// Bound for a command that must fail at once and not by a timeout, on a busy machine.
const SOON: Duration = Duration::from_secs(4);

fn up(groups: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach", "--groups", groups]);
    sandbox
}

/// Runs a command with `input`.
#[track_caller]
fn feed(sandbox: &Sandbox, code: i32, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = sandbox.command(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    // A command that refuses its input need not read all of it.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let output = child.wait_with_output().expect("our child");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "skein {arguments:?}\n{err}");
    output
}

#[track_caller]
fn json_of(sandbox: &Sandbox, code: i32, arguments: &[&str]) -> Value {
    let out = sandbox.expect(code, &[arguments, &["--json"]].concat()).out;
    serde_json::from_str(&out).expect("one JSON object")
}

#[test]
fn values_come_back_as_they_went_in() {
    let sandbox = up("2");
    let every: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    for value in [&b""[..], b"plain", b"line\n", &every] {
        feed(&sandbox, 0, &["put", "key", "-"], value);
        let got = feed(&sandbox, 0, &["get", "key"], b"").stdout;
        assert!(got == value, "{} bytes", value.len());
    }
    fs::write(sandbox.dir.with_file_name("value"), &every).unwrap();
    sandbox.expect(0, &["put", "from file", "--file", "value"]);
    assert!(feed(&sandbox, 0, &["get", "from file"], b"").stdout == every);
    sandbox.expect(0, &["put", "--hex", "00ff", "DEADbeef"]);
    assert_eq!(sandbox.expect(0, &["get", "--hex", "00ff"]).out, "deadbeef\n");
    sandbox.expect(0, &["put", "", "of the empty key"]);
    assert_eq!(sandbox.expect(0, &["get", ""]).out, "of the empty key");
}

#[test]
fn the_answer_no_is_exit_code_1() {
    let sandbox = up("2");
    let missing = sandbox.expect(1, &["get", "key"]);
    assert!(missing.out.is_empty() && missing.err.contains("\"key\" has no value"));
    assert_eq!(json_of(&sandbox, 1, &["get", "key"])["value"], Value::Null);
    assert_eq!(sandbox.expect(1, &["exists", "key"]).out, "false\n");
    sandbox.expect(1, &["del", "key"]);
    sandbox.expect(1, &["cas", "key", "a", "b"]);
    sandbox.expect(0, &["cas", "key", "--missing", "a"]);
    sandbox.expect(1, &["cas", "key", "--missing", "b"]);
    let different = sandbox.expect(1, &["cas", "key", "x", "b"]);
    assert!(different.err.contains("is \"a\""), "{}", different.err);
    assert_eq!(json_of(&sandbox, 0, &["cas", "key", "a", "b"])["swapped"], true);
    assert_eq!(sandbox.expect(0, &["exists", "key"]).out, "true\n");
    sandbox.expect(0, &["del", "key"]);
    sandbox.expect(1, &["get", "key"]);
}

#[test]
fn numbers_and_lengths_are_printed() {
    let sandbox = up("2");
    assert_eq!(sandbox.expect(0, &["incr", "n"]).out, "1\n");
    assert_eq!(sandbox.expect(0, &["incr", "n", "-43"]).out, "-42\n");
    assert_eq!(json_of(&sandbox, 0, &["incr", "n"])["number"], -41);
    assert_eq!(sandbox.expect(0, &["append", "n", "7"]).out, "4\n");
    sandbox.expect(0, &["append", "n", "x"]);
    let refused = sandbox.expect(2, &["incr", "n"]);
    assert!(refused.err.contains("\"n\" is not a decimal"), "{}", refused.err);
    sandbox.expect(0, &["put", "n", "9223372036854775807"]);
    assert!(sandbox.expect(2, &["incr", "n"]).err.contains("overflows"));
}

#[test]
fn scans_are_in_order_over_all_shards() {
    let sandbox = up("4");
    let mut client = Client::connect(&sandbox.dir).unwrap();
    for n in 0..2_500 {
        client.put(format!("k{n:04}"), n.to_string()).unwrap();
    }
    client.put("a\tb", "c\nd").unwrap();
    let out = sandbox.expect(0, &["scan", "--prefix", "k"]).out;
    let lines: Vec<_> = out.lines().collect();
    assert!(lines.iter().copied().eq((0..2_500).map(|n| format!("k{n:04}\t{n}"))));
    let out = sandbox.expect(0, &["scan", "--start", "k0007", "--end", "k0010", "--keys-only"]).out;
    assert_eq!(out, "k0007\nk0008\nk0009\n");
    let out = sandbox.expect(0, &["scan", "--limit", "1"]).out;
    assert_eq!(out, "a\\tb\tc\\nd\n", "one pair is one line");
    let out = sandbox.expect(0, &["scan", "--limit", "1", "--json"]).out;
    let pair: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(pair, json!({ "key": "a\tb", "value": "c\nd" }));
    assert_eq!(sandbox.expect(0, &["scan", "--limit", "1", "--hex"]).out, "610962\t630a64\n");
    assert_eq!(sandbox.expect(0, &["scan", "--limit", "0"]).out, "");
}

#[test]
fn transactions_come_from_json() {
    let sandbox = up("4");
    let transfer = br#"{
        "guards": [{"key": "alice", "at_least": 30}],
        "then": [{"increment": "alice", "by": -30}, {"increment": "bob", "by": 30}],
        "else": [{"get": "alice"}]
    }"#;
    sandbox.expect(0, &["put", "alice", "50"]);
    let held = feed(&sandbox, 0, &["txn", "-", "--json"], transfer).stdout;
    let held: Value = serde_json::from_slice(&held).unwrap();
    assert_eq!(held, json!({ "held": true, "outcomes": [{ "number": 20 }, { "number": 30 }] }));
    fs::write(sandbox.dir.with_file_name("transfer.json"), transfer).unwrap();
    let not = sandbox.expect(1, &["txn", "transfer.json"]).out;
    assert!(not.contains("did not hold") && not.contains("get \"alice\": \"20\""), "{not}");
    let wrong = br#"{"then": [{"get": "a"}, {"increment": "b", "by": "1"}]}"#;
    let wrong = feed(&sandbox, 2, &["txn", "-"], wrong).stderr;
    let wrong = String::from_utf8(wrong).unwrap();
    assert!(wrong.contains("standard input: then[1].by: a 64-bit integer"), "{wrong}");
    assert!(sandbox.expect(2, &["txn", "nowhere.json"]).err.contains("nowhere.json"));
}

/// Every transaction of docs/txn.md can be executed.
#[test]
fn the_documented_transactions_work() {
    let sandbox = up("2");
    let text = include_str!("../../../docs/txn.md");
    let blocks: Vec<_> = text.split("```json\n").skip(1).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        let (block, _) = block.split_once("```").expect("a block ends");
        let mut command = sandbox.command(&["txn", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(block.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{block}\n{err}");
    }
}

#[test]
fn limits_are_named_with_their_settings() {
    let sandbox = Sandbox::new();
    let config = sandbox.config("[limits]\nkey_bytes_max = 8\nvalue_bytes_max = \"1KiB\"\n");
    sandbox.expect(0, &["up", "--detach", "--config", &config]);
    let key = sandbox.expect(2, &["get", "nine char"]);
    assert!(key.err.contains("9 bytes") && key.err.contains("limits.key_bytes_max"), "{}", key.err);
    let value = "v".repeat(1_025);
    let value = sandbox.expect(2, &["put", "key", &value]);
    assert!(value.err.contains("1025 bytes") && value.err.contains("limits.value_bytes_max"));
    let output = feed(&sandbox, 2, &["put", "key", "-"], &vec![0; 1 << 20]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("limits.value_bytes_max"));
    sandbox.expect(0, &["put", "key", &"v".repeat(1_024)]);
    let full = sandbox.expect(2, &["append", "key", "v"]);
    assert!(full.err.contains("limits.value_bytes_max"), "{}", full.err);
}

#[test]
fn wrong_arguments_are_told_before_anything_happens() {
    let sandbox = Sandbox::new();
    #[rustfmt::skip]
    let cases: [(&[&str], &str); 9] = [
        (&["put", "key"],                            "VALUE"),
        (&["put", "key", "value", "--file", "f"],    "--file"),
        (&["get", "--hex", "0g"],                    "digit 2"),
        (&["cas", "key", "only"],                    "1 values"),
        (&["cas", "key", "-", "-"],                  "standard input"),
        (&["incr", "key", "1.5"],                    "1.5"),
        (&["scan", "--prefix", "a", "--start", "b"], "--start"),
        (&["scan", "--limit", "-1"],                 "-1"),
        (&["get", "key", "--timeout", "0"],          "--timeout"),
    ];
    for (arguments, what) in cases {
        let ended = sandbox.expect(2, arguments);
        assert!(ended.err.contains(what), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn a_cluster_that_is_not_there_is_told_at_once() {
    let sandbox = Sandbox::new();
    assert!(sandbox.expect(3, &["get", "key"]).err.contains("no cluster in"));
    sandbox.expect(0, &["up", "--detach"]);
    let mut client = Client::connect(&sandbox.dir).unwrap();
    client.put("key", "value").unwrap();
    sandbox.kill_all();
    let started = Instant::now();
    let error = client.get("key").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(sandbox.expect(3, &["get", "key"]).err.contains("not running any more"));
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    sandbox.expect(0, &["down", "--yes"]);
    assert!(matches!(Client::connect(&sandbox.dir), Err(ConnectError::Directory(_))));
}

#[test]
fn asynchronous_clients_find_the_cluster_that_runs_now() {
    let sandbox = up("2");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let first = asynchronous::Client::connect(&sandbox.dir).await.unwrap();
        let second = asynchronous::Client::connect(&sandbox.dir).await.unwrap();
        first.put("key", "value").await.unwrap();
        assert_eq!(second.get("key").await.unwrap().as_deref(), Some(&b"value"[..]));
        sandbox.expect(0, &["down", "--yes"]);
        let error = first.get("key").await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        let error = asynchronous::Client::connect(&sandbox.dir).await.err().unwrap();
        assert!(matches!(error, ConnectError::Directory(_)), "{error}");
        sandbox.expect(0, &["up", "--detach"]);
        let third = asynchronous::Client::connect(&sandbox.dir).await.unwrap();
        assert_eq!(third.get("key").await.unwrap(), None, "another cluster");
        assert!(second.get("key").await.is_err(), "of the first cluster");
    });
}

/// Paused nodes cause timeouts. What was sent takes effect when they continue, once.
#[test]
fn what_timed_out_takes_effect_once_when_the_cluster_goes_on() {
    let sandbox = up("2");
    let mut client = Client::connect(&sandbox.dir).unwrap();
    client.increment("n", 1).unwrap();
    let pids = sandbox.pids();
    for pid in &pids {
        halt(*pid);
    }
    let (mut unknown, mut not_sent) = (0, 0);
    let window = client.shape().tuning.window;
    for _ in 0..window + 20 {
        match client.within(Duration::from_millis(5)).increment("n", 1) {
            Err(Error::UnknownOutcome { .. }) => unknown += 1,
            // Once the group has been silent for some time, the error names it.
            Err(Error::Unavailable {
                why: Unavailability::NotSent { .. } | Unavailability::NoQuorum { .. },
                sent: false,
            }) => not_sent += 1,
            other => panic!("{other:?}"),
        }
    }
    // An operation without a reply stays in the window: it must not be forgotten while it is in
    // flight.
    assert_eq!((unknown, not_sent), (window, 20));
    for pid in &pids {
        kill(*pid, Signal::CONT);
    }
    let window = i64::try_from(window).unwrap();
    let sent = 1 + window;
    until("all that was sent has taken effect", || client.increment("n", 0).unwrap() == sent);
    for n in 1..=3 * window {
        assert_eq!(client.increment("n", 1).unwrap(), sent + n);
    }
}

#[test]
fn a_scan_can_be_of_one_group() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let mut keys: Vec<_> = (0..20).map(|i| format!("key{i:02}")).collect();
    for key in &keys {
        sandbox.expect(0, &["put", key, "value"]);
    }
    let of = |group: &str| {
        let out = sandbox.expect(0, &["scan", "--keys-only", "--group", group]).out;
        out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (mut first, second) = (of("g0"), of("1"));
    assert!(!first.is_empty() && !second.is_empty(), "{first:?} {second:?}");
    let limited = ["scan", "--keys-only", "--group", "g1", "--limit", "1"];
    assert_eq!(sandbox.expect(0, &limited).out.trim(), second[0]);
    first.extend(second);
    first.sort();
    keys.sort();
    assert_eq!(first, keys);
    let unknown = sandbox.expect(2, &["scan", "--group", "g2"]);
    assert!(unknown.err.contains("no group 2: this cluster has 2"), "{}", unknown.err);
}
