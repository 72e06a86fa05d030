//! The meaning of each command and condition to the checker, in histories of a few lines: one
//! answer is correct, and a slightly different one is wrong.

use std::path::Path;

use skein_checker::check::{OrderReport, check};
use skein_checker::history::Reader;

const HEADER: &str = r#"{"header":{"format":3,"workload":"meanings","skein":"test","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":null}}"#;

/// Sequential transactions: request, whether the conditions held, results.
type Done<'a> = &'a [(&'a str, bool, &'a str)];

fn history(done: Done<'_>) -> String {
    let mut lines = vec![HEADER.to_owned()];
    for (i, (asked, held, out)) in done.iter().enumerate() {
        let t = 10 * i + 10;
        lines.push(format!(r#"{{"invoke":{{"t":{t},"p":1,{asked}}}}}"#));
        let end = t + 5;
        lines.push(format!(r#"{{"ok":{{"t":{end},"p":1,"held":{held},"out":[{out}]}}}}"#));
    }
    lines.push(r#"{"end":{"t":1000}}"#.to_owned());
    lines.join("\n") + "\n"
}

fn look(text: &str) -> OrderReport {
    let reader = Reader::over(text.as_bytes(), Path::new("meanings")).unwrap();
    let header = reader.header.clone();
    check(&header, reader).unwrap()
}

/// Whether a history is judged correct. The search must not refute any inferred finding.
fn is_right(text: &str) -> bool {
    let order = look(text);
    assert!(order.decided && order.overruled == 0, "{text}\n{order:#?}");
    order.strictly_serializable
}

#[test]
fn every_answer_has_one_meaning() {
    let put = r#""ops":[{"put":["r","v1"]}]"#;
    let get = r#""ops":[{"get":"r"}]"#;
    let version = |version| format!(r#"{{"version":{version}}}"#);
    let cas = |is| format!(r#""if":[{{"version":["r",{is}]}}],"ops":[{{"put":["r","v2"]}}]"#);
    let branches =
        r#""if":[{"exists":"a"}],"ops":[{"put":["r","v1"]}],"else":[{"put":["r","v2"]}]"#;
    let equals = r#""if":[{"equals":["r","v1"]}],"ops":[{"get":"r"}]"#;
    let scan = r#""ops":[{"scan":["a",null,9]}]"#;
    let mixed = r#""ops":[{"delete":"r"}]"#;
    let removed = r#""ops":[{"put":["r","v1"]},{"delete":"r"},{"exists":"r"}]"#;
    let (v1, v3, v5) = (version(1), version(3), version(5));
    let (cas0, cas5) = (cas(0), cas(5));
    let value = |version| format!(r#"{{"value":["v1",{version}]}}"#);
    let (value1, value2, value3) = (value(1), value(2), value(3));
    let own = r#""ops":[{"put":["r","v1"]},{"get":"r"}]"#;
    let [own_same, own_other] = [&value3, &value2].map(|value| format!("{v3},{value}"));
    let refused3 = r#""if":[{"version":["r",3]}],"ops":[{"get":"a"}]"#;
    let append = r#""ops":[{"append":["r","t1"]}]"#;
    let count = r#""ops":[{"incr":["r",1]},{"get":"r"},{"incr":["r",1]},{"get":"r"}]"#;
    let counted = |last| {
        format!(r#"{{"number":1}},{{"value":["1",1]}},{{"number":2}},{{"value":["2",{last}]}}"#)
    };
    let [counted_once, counted_twice] = [counted(1), counted(2)];
    let less = |number| format!(r#""if":[{{"less":["n",{number}]}}],"ops":[{{"get":"r"}}]"#);
    let [less0, less1] = [less(0), less(1)];
    #[rustfmt::skip]
    let cases: [(&str, Done<'_>, Done<'_>); 15] = [
        ("else is not then",
         &[(branches, false, &v1), (get, true, r#"{"value":["v2",1]}"#)], &[(branches, false, &v1), (get, true, &value1)]),
        ("what is removed does not exist",
         &[(removed, true, r#"{"version":1},{"flag":true},{"flag":false}"#)], &[(removed, true, r#"{"version":1},{"flag":true},{"flag":true}"#)]),
        ("what is absent is not removed",
         &[(mixed, true, r#"{"flag":false}"#)], &[(mixed, true, r#"{"flag":true}"#)]),
        ("what is absent has version 0",
         &[(&cas0, true, &v1)], &[(&cas0, false, "")]),
        ("and no other",
         &[(&cas5, false, "")], &[(&cas5, true, &v5)]),
        ("what is absent equals nothing",
         &[(equals, false, "")], &[(equals, true, r#"{"value":null}"#)]),
        ("a scan shows all there is",
         &[(put, true, &v1), (scan, true, r#"{"page":[[["r","v1"]],null]}"#)], &[(put, true, &v1), (scan, true, r#"{"page":[[],null]}"#)]),
        ("a version does not change within a transaction",
         &[(own, true, &own_same)], &[(own, true, &own_other)]),
        ("a version that was refused is not the one",
         &[(append, true, r#"{"length":2}"#), (refused3, false, ""), (get, true, r#"{"value":["t1",4]}"#)],
         &[(append, true, r#"{"length":2}"#), (refused3, false, ""), (get, true, r#"{"value":["t1",3]}"#)]),
        ("versions rise",
         &[(mixed, true, r#"{"flag":false}"#), (put, true, &v1), (&cas0, false, ""), (put, true, &v3)],
         &[(mixed, true, r#"{"flag":false}"#), (put, true, &v3), (&cas0, false, ""), (put, true, &v1)]),
        ("what was removed begins anew",
         &[(put, true, &v1), (mixed, true, r#"{"flag":true}"#), (append, true, r#"{"length":2}"#)],
         &[(put, true, &v1), (mixed, true, r#"{"flag":true}"#), (append, true, r#"{"length":4}"#)]),
        ("what is absent counts as 0",
         &[(&less1, true, r#"{"value":null}"#)], &[(&less0, true, r#"{"value":null}"#)]),
        ("a transaction makes one version",
         &[(count, true, &counted_once)], &[(count, true, &counted_twice)]),
        ("a removed number begins anew",
         &[(count, true, &counted_once), (mixed, true, r#"{"flag":true}"#), (count, true, &counted_once.replace(",1]", ",5]"))],
         &[(count, true, &counted_once), (mixed, true, r#"{"flag":true}"#), (count, true, &counted_once.replace("\"1\"", "\"3\""))]),
        ("a read is not of before",
         &[(put, true, &v1), (get, true, &value1)], &[(put, true, &v1), (get, true, r#"{"value":null}"#)]),
    ];
    for (meaning, right, wrong) in cases {
        assert!(is_right(&history(right)), "{meaning}");
        assert!(!is_right(&history(wrong)), "{meaning}: this is wrong");
    }
}

/// Of two events at one moment either may be first, and no inference may contradict that.
#[test]
fn who_asks_as_another_is_answered_need_not_see_it() {
    let lines = [
        r#"{"invoke":{"t":10,"p":1,"ops":[{"put":["r","v1"]}]}}"#,
        r#"{"invoke":{"t":50,"p":2,"ops":[{"get":"r"}]}}"#,
        r#"{"ok":{"t":50,"p":1,"out":[{"version":1}]}}"#,
        r#"{"ok":{"t":60,"p":2,"out":[{"value":null}]}}"#,
        r#"{"end":{"t":1000}}"#,
    ];
    let text = format!("{HEADER}\n{}\n", lines.join("\n"));
    assert!(is_right(&text));
    assert!(!is_right(&text.replace("\"t\":50,\"p\":2", "\"t\":51,\"p\":2")));
}

/// The order of answers is not the order of execution: a sum of accounts missed transfers answered
/// before it, and observed transfers answered after it.
#[test]
fn sums_among_transfers_are_decided() {
    let accounts = 8;
    let mut lines = vec![HEADER.to_owned()];
    let mut ends = Vec::new();
    // In each round every account is incremented concurrently. A sum observes every other
    // increment.
    for round in 0..200_u64 {
        let t = round * 1_000;
        for account in 0..accounts {
            let p = account + 1;
            lines.push(format!(
                r#"{{"invoke":{{"t":{},"p":{p},"ops":[{{"incr":["a{account}",1]}},{{"get":"a{account}"}}]}}}}"#,
                t + account
            ));
            let (number, version) = (round + 1, 2 * round + 1);
            // The increments that the sum missed are answered first.
            let end = t + 500 + if account % 2 == 0 { 100 } else { 0 } + account;
            ends.push((end, format!(r#"{{"ok":{{"t":{end},"p":{p},"out":[{{"number":{number}}},{{"value":["{number}",{version}]}}]}}}}"#)));
        }
        let gets: Vec<_> = (0..accounts).map(|a| format!(r#"{{"get":"a{a}"}}"#)).collect();
        lines.push(format!(
            r#"{{"invoke":{{"t":{},"p":99,"ops":[{}]}}}}"#,
            t + 300,
            gets.join(",")
        ));
        let values = (0..accounts).map(|account| {
            let number = round + u64::from(account % 2 == 0);
            if number == 0 {
                return r#"{"value":null}"#.to_owned();
            }
            format!(r#"{{"value":["{number}",{}]}}"#, 2 * number - 1)
        });
        let values: Vec<_> = values.collect();
        let end = t + 700;
        ends.push((end, format!(r#"{{"ok":{{"t":{end},"p":99,"out":[{}]}}}}"#, values.join(","))));
        ends.sort();
        lines.extend(ends.drain(..).map(|(_, line)| line));
    }
    lines.push(r#"{"end":{"t":10000000}}"#.to_owned());
    assert!(is_right(&(lines.join("\n") + "\n")));
}

/// An operation of unknown outcome may change nothing at one time and something at another, so the
/// search must not execute it as soon as it changes nothing.
#[test]
fn an_unknown_outcome_that_changes_nothing_now_may_have_changed_something_later() {
    let unknown = |t: u64, p: u64, asked: &str| {
        let end = t + 5;
        format!(
            "{{\"invoke\":{{\"t\":{t},\"p\":{p},{asked}}}}}\n{{\"unknown\":{{\"t\":{end},\"p\":{p},\"why\":\"no reply\"}}}}"
        )
    };
    let done = |t: u64, asked: &str, out: &str| {
        let end = t + 5;
        format!(
            "{{\"invoke\":{{\"t\":{t},\"p\":9,\"ops\":[{asked}]}}}}\n{{\"ok\":{{\"t\":{end},\"p\":9,\"out\":[{out}]}}}}"
        )
    };
    let get = |value: &str| done(40, r#"{"get":"a"}"#, &format!(r#"{{"value":{value}}}"#));
    let count = unknown(10, 1, r#""ops":[{"incr":["b",1]}]"#);
    let guarded = |op: &str| unknown(20, 2, &format!(r#""if":[{{"exists":"b"}}],"ops":[{op}]"#));
    let put = guarded(r#"{"put":["a","v1"]}"#);
    let append = guarded(r#"{"append":["a","t1"]}"#);
    let known = done(10, r#"{"put":["b","v9"]}"#, r#"{"version":1}"#);
    let gone = unknown(20, 2, r#""if":[{"missing":"b"}],"ops":[{"put":["a","v1"]}]"#);
    let remove = unknown(30, 3, r#""ops":[{"delete":"b"}]"#);
    let nothing = done(40, r#"{"get":"z"}"#, r#"{"value":null}"#);
    let last =
        |key: &str, value: &str| format!(r#"{{"final":{{"t":60,"key":"{key}","value":{value}}}}}"#);
    let seen = r#"["v1",1]"#;
    let right: [&[&str]; 5] = [
        &[&count, &put, &get(seen)],
        &[&count, &append, &get(r#"["t1",1]"#)],
        &[&count, &put, &nothing, &last("a", seen)],
        &[&count, &put, &nothing, &last("a", seen), &last("b", r#"["1",1]"#)],
        // The delete executed when the key was present, and not before, when it would have removed
        // nothing.
        &[&unknown(5, 3, r#""ops":[{"delete":"b"}]"#), &known, &gone, &get(seen)],
    ];
    let text =
        |lines: &[&str]| format!("{HEADER}\n{}\n{{\"end\":{{\"t\":1000}}}}\n", lines.join("\n"));
    for lines in right {
        assert!(is_right(&text(lines)), "{}", text(lines));
    }
    assert!(is_right(&text(&[&known, &gone, &remove, &get(seen)])));
    assert!(!is_right(&text(&[&known, &gone, &get(seen)])), "nobody removed it");
    assert!(!is_right(&text(&[&put, &get(seen)])), "nobody has counted");
}

/// The model keeps reads of a key that is both set and appended to as lengths, which identify no
/// value to show.
#[test]
fn what_was_set_and_appended_to_is_explained_by_its_versions() {
    let put = (r#""ops":[{"put":["a","v1"]}]"#, true, r#"{"version":1}"#);
    let append = r#""ops":[{"append":["a","02"]},{"get":"a"}]"#;
    let own = (append, true, r#"{"length":4},{"value":["v102",2]}"#);
    let old = (r#""ops":[{"get":"a"}]"#, true, r#"{"value":["v1",1]}"#);
    let order = look(&history(&[put, own, old]));
    assert_eq!(order.anomalies.keys().collect::<Vec<_>>(), [&"lost acknowledged write"]);
    let what = &order.evidence[0].what;
    assert!(what.starts_with("a was written as version 2, acknowledged, and is"), "{what}");
}

/// No write can follow the last version.
#[test]
fn the_last_version_is_told_of_one_write() {
    let last = format!(r#"{{"version":{}}}"#, u64::MAX);
    let put = |value: &str| format!(r#""ops":[{{"put":["r","{value}"]}}]"#);
    let (one, other) = (put("v1"), put("v2"));
    assert!(is_right(&history(&[(&one, true, &last)])));
    assert!(!is_right(&history(&[(&one, true, &last), (&other, true, &last)])));
}

#[test]
fn nothing_is_said_of_conditions_where_there_are_none() {
    let put = (r#""ops":[{"put":["r","v1"]}]"#, true, r#"{"version":1}"#);
    let remove = (r#""ops":[{"delete":"r"}]"#, true, r#"{"flag":true}"#);
    let exists = |guards: &str| format!(r#"{guards}"ops":[{{"exists":"r"}}]"#);
    for (guards, said) in [("", false), (r#""if":[{"missing":"z"}],"#, true)] {
        let exists = exists(guards);
        let order = look(&history(&[put, remove, (&exists, true, r#"{"flag":true}"#)]));
        let shown = order.evidence[0].transactions.join(" ");
        assert_eq!(shown.contains("conditions held: "), said, "{shown}");
    }
}
