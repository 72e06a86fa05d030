//! A correct history, and the violations found when it is changed.

use std::path::Path;

use super::{Judgement, verify};
use crate::history::Reader;

/// Two lists, a counter, a register and two accounts; a kill in the middle; one killed client.
const RIGHT: &str = r#"
{"header":{"format":2,"workload":"chaos","skein":"test","cluster":{"nodes":3,"groups":1,"replicas":3,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":{"accounts":["acc/a","acc/b"],"opening":10}}}
{"invoke":{"t":10,"p":1,"ops":[{"append":["list","t1"]}]}}
{"ok":{"t":20,"p":1,"out":[{"length":2}]}}
{"invoke":{"t":21,"p":1,"ops":[{"append":["list","t2"]},{"append":["other","t3"]},{"get":"list"}]}}
{"invoke":{"t":22,"p":2,"ops":[{"get":"list"}]}}
{"ok":{"t":30,"p":2,"out":[{"value":["t1",1]}]}}
{"ok":{"t":31,"p":1,"out":[{"length":4},{"length":2},{"value":["t1t2",2]}]}}
{"fault":{"t":32,"what":"kill","node":0,"pid":7,"led":[0]}}
{"invoke":{"t":33,"p":2,"ops":[{"append":["list","t4"]}]}}
{"invoke":{"t":33,"p":3,"ops":[{"append":["list","t5"]}]}}
{"unknown":{"t":40,"p":2,"why":"no reply"}}
{"invoke":{"t":41,"p":4,"ops":[{"get":"list"}]}}
{"ok":{"t":50,"p":4,"out":[{"value":["t1t2t5",4]}]}}
{"invoke":{"t":51,"p":4,"ops":[{"append":["list","t6"]}]}}
{"fail":{"t":52,"p":4,"why":"not sent"}}
{"invoke":{"t":60,"p":1,"ops":[{"incr":["count",1]}]}}
{"ok":{"t":61,"p":1,"out":[{"number":1}]}}
{"invoke":{"t":62,"p":1,"ops":[{"incr":["count",1]}]}}
{"unknown":{"t":63,"p":1,"why":"no reply"}}
{"invoke":{"t":64,"p":5,"ops":[{"incr":["count",1]},{"get":"count"}]}}
{"ok":{"t":65,"p":5,"out":[{"number":2},{"value":["2",9]}]}}
{"invoke":{"t":70,"p":5,"ops":[{"put":["reg","v1"]}]}}
{"ok":{"t":71,"p":5,"out":[{"version":12}]}}
{"invoke":{"t":72,"p":5,"ops":[{"put":["reg","v2"]}]}}
{"invoke":{"t":73,"p":6,"ops":[{"get":"reg"}]}}
{"ok":{"t":74,"p":6,"out":[{"value":["v2",13]}]}}
{"unknown":{"t":75,"p":5,"why":"no reply"}}
{"invoke":{"t":80,"p":6,"if":[{"at_least":["acc/a",4]}],"ops":[{"incr":["acc/a",-4]},{"incr":["acc/b",4]}]}}
{"ok":{"t":81,"p":6,"out":[{"number":6},{"number":14}]}}
{"invoke":{"t":82,"p":6,"if":[{"at_least":["acc/a",9]}],"ops":[{"incr":["acc/a",-9]},{"incr":["acc/b",9]}]}}
{"ok":{"t":83,"p":6,"held":false,"out":[]}}
{"invoke":{"t":84,"p":6,"ops":[{"get":"acc/a"},{"get":"acc/b"}]}}
{"ok":{"t":85,"p":6,"out":[{"value":["6",20]},{"value":["14",20]}]}}
{"final":{"t":90,"key":"list","value":["t1t2t5",4]}}
{"final":{"t":90,"key":"other","value":["t3",2]}}
{"final":{"t":90,"key":"count","value":["2",9]}}
{"final":{"t":90,"key":"reg","value":["v2",13]}}
{"final":{"t":90,"key":"acc/a","value":["6",20]}}
{"final":{"t":90,"key":"acc/b","value":["14",20]}}
{"digest":{"t":91,"group":0,"slot":0,"node":0,"position":30,"digest":"00ff"}}
{"digest":{"t":91,"group":0,"slot":1,"node":1,"position":30,"digest":"00ff"}}
{"digest":{"t":91,"group":0,"slot":2,"node":2,"position":30,"digest":"00ff"}}
{"end":{"t":92}}
"#;

fn look(text: &str) -> Judgement {
    let reader = Reader::over(text.trim_start().as_bytes(), Path::new("history")).unwrap();
    let header = reader.header.clone();
    verify(&header, reader).unwrap()
}

#[test]
fn a_right_history_is_right() {
    let verdict = look(RIGHT);
    assert!(verdict.is_good(), "{verdict:?}");
    let Judgement { operations, acknowledged, failed, unknown, keys, replicas, .. } = verdict;
    assert_eq!((operations, acknowledged, failed, unknown), (16, 11, 1, 4));
    assert_eq!((keys, replicas), (6, 3));
}

#[test]
fn every_way_of_being_wrong_is_found() {
    #[rustfmt::skip]
    let cases: [(&str, &str, &str, &str); 29] = [
        // violation, text to replace, replacement, reason
        ("lost",            r#"final":{"t":90,"key":"list","value":["t1t2t5",4]"#, r#"final":{"t":90,"key":"list","value":["t1t5",4]"#, "an acknowledged append is gone"),
        ("lost",            r#""key":"other","value":["t3",2]"#, r#""key":"other","value":null"#, "a whole list is gone"),
        ("lost",            r#""key":"count","value":["2",9]"#, r#""key":"count","value":["1",9]"#, "an acknowledged increment is gone"),
        ("twice",           r#""key":"list","value":["t1t2t5",4]"#, r#""key":"list","value":["t1t2t5t2",4]"#, "an append was applied twice"),
        ("twice",           r#""key":"count","value":["2",9]"#, r#""key":"count","value":["4",9]"#, "more increments than were asked for"),
        ("twice",           r#""key":"reg","value":["v2",13]"#, r#""key":"reg","value":["v1",14]"#, "a put was applied again"),
        ("invented",        r#""key":"list","value":["t1t2t5",4]"#, r#""key":"list","value":["t1t2t5t9",4]"#, "nobody appended it"),
        ("invented",        r#""key":"list","value":["t1t2t5",4]"#, r#""key":"list","value":["t1t2t5t",4]"#, "half a token"),
        ("invented",        r#""key":"reg","value":["v2",13]"#, r#""key":"reg","value":["v9",14]"#, "nobody put it"),
        ("invented",        r#""key":"count","value":["2",9]"#, r#""key":"count","value":["two",9]"#, "no number"),
        ("not_refused",     r#""key":"list","value":["t1t2t5",4]"#, r#""key":"list","value":["t1t2t5t6",4]"#, "it was said not to have been done"),
        ("diverged",        r#"["t1t2t5",4]}]}}"#, r#"["t2t1t5",4]}]}}"#, "a reader saw another order"),
        ("diverged",        r#"["v2",13]}]}}"#, r#"["v2",12]}]}}"#, "two values at one version"),
        ("out_of_order",    r#""key":"list","value":["t1t2t5",4]"#, r#""key":"list","value":["t1t5t2",4]"#, "t2 was acknowledged before t5 was asked for"),
        ("out_of_order",    r#"["t1t2t5",4]}]}}"#, r#"["t1",4]}]}}"#, "a stale read of a list"),
        ("out_of_order",    r#"["v2",13]}]}}"#, r"null}]}}", "a stale read of a register"),
        ("out_of_order",    r#""key":"reg","value":["v2",13]"#, r#""key":"reg","value":["v1",12]"#, "a value that was seen is gone"),
        ("out_of_order",    r#"{"invoke":{"t":62,"p":1,"ops":[{"incr":["count",1]}]}}"#, r#"{"invoke":{"t":62,"p":1,"ops":[{"get":"count"}]}}{"ok":{"t":63,"p":1,"out":[{"value":null}]}}{"invoke":{"t":63,"p":1,"ops":[{"incr":["count",1]}]}}"#, "a stale read of a counter"),
        ("wrong_reply",     r#"{"number":2},"#, r#"{"number":1},"#, "two made the same number"),
        ("wrong_reply",     r#"[{"length":4}"#, r#"[{"length":2}"#, "a length that it never had"),
        ("wrong_reply",     r#"[{"version":12}]"#, r#"[{"number":12}]"#, "an answer to something else"),
        ("wrong_reply",     r#"[{"version":12}]"#, "[]", "no answer to what was asked"),
        ("wrong_sum",       r#"{"value":["14",20]}"#, r#"{"value":["13",20]}"#, "a sum in the middle"),
        ("wrong_sum",       r#""key":"acc/b","value":["14",20]"#, r#""key":"acc/b","value":["15",20]"#, "a sum at the end"),
        ("overdrawn",       r#"[{"number":6}"#, r#"[{"number":-1}"#, "an account below nothing"),
        ("replicas_differ", r#""slot":1,"node":1,"position":30,"digest":"00ff""#, r#""slot":1,"node":1,"position":30,"digest":"00fe""#, "a replica holds something else"),
        ("replicas_differ", r#""slot":2,"node":2,"position":30"#, r#""slot":2,"node":2,"position":29"#, "a replica is behind"),
        ("replica_silent",  r#"{"digest":{"t":91,"group":0,"slot":2,"node":2,"position":30,"digest":"00ff"}}"#, "", "a replica is not there"),
        ("history",         r#"{"end":{"t":92}}"#, "", "it breaks off"),
    ];
    for (kind, what, by, because) in cases {
        assert_eq!(RIGHT.matches(what).count(), 1, "{because}: {what} should stand there once");
        let spoilt = RIGHT.replace(what, by).replace("}}{\"", "}}\n{\"").replace("\n\n", "\n");
        let verdict = look(&spoilt);
        assert!(verdict.wrong.contains_key(kind), "{because}: {verdict:?}");
        assert!(verdict.evidence.iter().any(|e| e.starts_with(kind)), "{because}: {verdict:?}");
    }
}

#[test]
fn what_nobody_was_told_of_may_have_happened_or_not() {
    for (what, by) in [
        // The append of process 2, and that of the killed process 3, whose value the history holds.
        (r#"["t1t2t5",4]}}"#, r#"["t1t2t5t4",5]}}"#),
        (r#""key":"count","value":["2",9]"#, r#""key":"count","value":["3",9]"#),
    ] {
        assert_eq!(RIGHT.matches(what).count(), 1, "{what}");
        let verdict = look(&RIGHT.replace(what, by));
        assert!(verdict.is_good(), "{by}: {verdict:?}");
    }
}

#[test]
fn evidence_is_counted_and_bounded() {
    let sum = r#"{"invoke":{"t":86,"p":9,"ops":[{"get":"acc/a"},{"get":"acc/b"}]}}
{"ok":{"t":87,"p":9,"out":[{"value":["6",20]},{"value":["1",20]}]}}
"#;
    let spoilt = RIGHT.replace(
        "{\"final\":{\"t\":90,\"key\":\"list\"",
        &(sum.repeat(20) + "{\"final\":{\"t\":90,\"key\":\"list\""),
    );
    let verdict = look(&spoilt);
    assert_eq!((verdict.wrong["wrong_sum"], verdict.evidence.len()), (20, 5));
}

const PLAIN: &str = r#"{"header":{"format":3,"workload":"forms","skein":"test","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":null}}"#;

/// Sequential transactions and the final value of `key`. `held` is part of the answer.
fn one_after_the_other(header: &str, done: &[(&str, &str)], key: &str, value: &str) -> String {
    let mut lines = vec![header.to_owned()];
    for (i, (asked, ended)) in done.iter().enumerate() {
        let (t, p) = (10 * i + 10, i);
        lines.push(format!(r#"{{"invoke":{{"t":{t},"p":{p},{asked}}}}}"#));
        let (kind, rest) = ended.split_once(' ').unwrap();
        lines.push(format!(r#"{{"{kind}":{{"t":{},"p":{p},{rest}}}}}"#, t + 5));
    }
    lines.push(format!(r#"{{"final":{{"t":900,"key":"{key}","value":{value}}}}}"#));
    lines.push(r#"{"end":{"t":1000}}"#.to_owned());
    lines.join("\n") + "\n"
}

/// Transactions with their answers, the final value, and the violations.
type Case<'a> = (Vec<(&'a str, String)>, &'a str, &'a [&'a str]);

#[test]
fn what_several_were_to_write_names_nobody() {
    let put = |value: &str| format!(r#""ops":[{{"put":["r","{value}"]}}]"#);
    let append = |token: &str| format!(r#""ops":[{{"append":["r","{token}"]}}]"#);
    let (v1, v2, get) = (put("v1"), put("v2"), r#""ops":[{"get":"r"}]"#);
    let (t1, t2, wide, ue) = (append("t1"), append("t2"), append("t3t4"), append("ü"));
    let version = |version: u64| format!(r#"ok "out":[{{"version":{version}}}]"#);
    let length = |length: u64| format!(r#"ok "out":[{{"length":{length}}}]"#);
    let value = |value: &str| format!(r#"ok "out":[{{"value":{value}}}]"#);
    let refused = r#"fail "why":"not sent""#.to_owned();
    let unknown = r#"unknown "why":"no reply""#.to_owned();
    #[rustfmt::skip]
    let cases: Vec<Case<'_>> = vec![
        (vec![(&v1, version(1)), (&v1, version(2))], r#"["v1",2]"#, &[]),
        (vec![(&v1, version(1)), (&v1, unknown.clone()), (get, value(r#"["v1",1]"#))], r#"["v1",2]"#, &[]),
        (vec![(&v1, refused.clone()), (&v1, version(2))], r#"["v1",2]"#, &[]),
        (vec![(&v2, version(1)), (&v1, refused.clone()), (&v1, refused.clone())], r#"["v1",2]"#, &["not_refused"]),
        (vec![(&v1, version(2)), (&v1, version(3)), (&v2, version(3))], r#"["v2",3]"#, &["diverged", "out_of_order"]),
        (vec![(&t1, length(2)), (&t1, length(4))], r#"["t1t1",2]"#, &[]),
        (vec![(&t1, length(2)), (&t1, refused.clone())], r#"["t1",2]"#, &[]),
        (vec![(&t1, length(2)), (&t1, length(4)), (get, value(r#"["t1",1]"#))], r#"["t1t1",2]"#, &["out_of_order"]),
        (vec![(&t1, length(2)), (&t1, length(4)), (&t2, length(6))], r#"["t1t1t1",2]"#, &["wrong_reply"]),
        (vec![(&t1, length(2)), (&t1, length(4))], r#"["t1",2]"#, &["out_of_order"]),
        (vec![(&t1, length(2)), (&t1, unknown), (get, value(r#"["t2",1]"#))], r#"["t1t1",2]"#, &["diverged"]),
        (vec![(&t1, length(2)), (&wide, length(6))], r#"["t1t3t4",2]"#, &[]),
        (vec![(&ue, length(2)), (&t1, length(4))], r#"["üt1",2]"#, &[]),
    ];
    for (done, last, wanted) in cases {
        let done: Vec<(&str, &str)> =
            done.iter().map(|(asked, ended)| (*asked, ended.as_str())).collect();
        let text = one_after_the_other(PLAIN, &done, "r", last);
        let verdict = look(&text);
        let found: Vec<&str> = verdict.wrong.keys().copied().collect();
        assert_eq!(found, wanted, "{text}{verdict:?}");
    }
}

#[test]
fn what_may_be_from_before_the_history_names_nobody() {
    let header = PLAIN.replace(r#""bank":null"#, r#""bank":null,"before":true"#);
    for (op, ended, last) in [
        (r#"{"append":["r","t1"]}"#, r#"ok "out":[{"length":5}]"#, r#"["oldt1",2]"#),
        (r#"{"incr":["r",1]}"#, r#"ok "out":[{"number":-6}]"#, r#"["-6",2]"#),
        (r#"{"put":["r","v1"]}"#, r#"fail "why":"not sent""#, r#"["v1",2]"#),
    ] {
        let asked = format!(r#""ops":[{op}]"#);
        let verdict = look(&one_after_the_other(&header, &[(&asked, ended)], "r", last));
        assert!(verdict.is_good(), "{op}: {verdict:?}");
    }
}

#[test]
fn an_account_is_overdrawn_only_below_what_its_condition_leaves() {
    let header = |open| {
        let bank = format!(r#""bank":{{"accounts":["a","b"],"opening":5,"open":{open}}}"#);
        PLAIN.replace(r#""bank":null"#, &bank)
    };
    let guarded = |limit: i64, ops: &str| {
        format!(r#""if":[{{"at_least":["a",{limit}]}}],"ops":[{ops}],"else":[{ops}]"#)
    };
    let (take, twice) = (r#"{"incr":["a",-3]}"#, r#"{"incr":["a",-3]},{"incr":["a",-3]}"#);
    for (limit, ops, held, out, is_right) in [
        (3, take, true, r#"{"number":0}"#, true),
        (3, take, true, r#"{"number":-1}"#, false),
        (-10, take, true, r#"{"number":-13}"#, true),
        (-10, take, true, r#"{"number":-14}"#, false),
        (6, take, false, r#"{"number":-1}"#, true),
        (3, twice, true, r#"{"number":0},{"number":-3}"#, true),
        (3, twice, true, r#"{"number":0},{"number":-4}"#, false),
    ] {
        let asked = guarded(limit, ops);
        let ended = format!(r#"ok "held":{held},"out":[{out}]"#);
        let text = one_after_the_other(&header(true), &[(&asked, &ended)], "z", "null");
        let verdict = look(&text);
        assert_eq!(!verdict.wrong.contains_key("overdrawn"), is_right, "{text}{verdict:?}");
    }
    let moved = r#""ops":[{"incr":["a",-2]},{"incr":["b",2]}]"#;
    let moved = (moved, r#"ok "out":[{"number":3},{"number":7}]"#);
    let gets = |one: &str, other: &str| format!(r#""ops":[{{"get":"{one}"}},{{"get":"{other}"}}]"#);
    let saw =
        |one: &str, other: &str| format!(r#"ok "out":[{{"value":{one}}},{{"value":{other}}}]"#);
    let paid = (r#""ops":[{"incr":["a",9]}]"#, r#"ok "out":[{"number":12}]"#);
    let (three, seven, twelve) = (r#"["3",2]"#, r#"["7",2]"#, r#"["12",3]"#);
    #[rustfmt::skip]
    let cases = [
        (vec![moved], gets("a", "b"), saw(three, seven), true),
        (vec![moved], gets("a", "a"), saw(three, three), true),
        (vec![moved], gets("a", "b"), saw(three, three), false),
        (vec![moved], gets("a", "b"), saw(three, "null"), false),
        (vec![moved, paid], gets("a", "b"), saw(twelve, seven), true),
    ];
    for (mut done, asked, saw, is_right) in cases {
        done.push((&asked, &saw));
        let text = one_after_the_other(&header(false), &done, "z", "null");
        let verdict = look(&text);
        assert_eq!(!verdict.wrong.contains_key("wrong_sum"), is_right, "{text}{verdict:?}");
    }
}

/// The final reads are separate per account, so a transaction of unknown outcome may be executed
/// between two of them.
#[test]
fn what_is_of_unknown_outcome_may_be_done_between_the_readings_at_the_end() {
    let bank = r#""bank":{"accounts":["a","b"],"opening":100,"open":false}"#;
    let header = PLAIN.replace(r#""bank":null"#, bank);
    let history = |ended: &str, a: i64, b: i64| {
        let moved = r#"{"invoke":{"t":10,"p":1,"ops":[{"incr":["a",-6]},{"incr":["b",6]}]}}"#;
        let last = |t: u64, key: &str, value: i64| {
            format!(r#"{{"final":{{"t":{t},"key":"{key}","value":["{value}",2]}}}}"#)
        };
        let (a, b) = (last(30, "a", a), last(40, "b", b));
        let end = r#"{"end":{"t":1000}}"#;
        format!("{header}\n{moved}\n{ended}{a}\n{b}\n{end}\n")
    };
    let unknown = "{\"unknown\":{\"t\":20,\"p\":1,\"why\":\"gone\"}}\n";
    let known = "{\"ok\":{\"t\":20,\"p\":1,\"out\":[{\"number\":94},{\"number\":106}]}}\n";
    let refused = "{\"fail\":{\"t\":20,\"p\":1,\"why\":\"not sent\"}}\n";
    for (ended, a, b, is_right) in [
        (unknown, 100, 106, true),
        ("", 100, 106, true),
        (unknown, 94, 106, true),
        (unknown, 100, 100, true),
        (unknown, 100, 107, false),
        (unknown, 93, 100, false),
        (known, 94, 106, true),
        (known, 94, 107, false),
        (known, 100, 106, false),
        (refused, 100, 100, true),
        (refused, 100, 106, false),
    ] {
        let verdict = look(&history(ended, a, b));
        assert_eq!(
            !verdict.wrong.contains_key("wrong_sum"),
            is_right,
            "{ended}{a} {b} {verdict:?}"
        );
    }
}
