//! Stale reads, values from before the history, and records, in histories of a few lines: one
//! answer is correct, and a slightly different one is wrong.

mod earlier;
mod grown;

use std::path::Path;

use skein_checker::check::{OrderReport, check};
use skein_checker::history::Reader;

const HEADER: &str = r#""format":3,"workload":"partial","skein":"test","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":null"#;
const RECORD: &str = r#","record":{"fields":2,"field_bytes":5,"token_at":1,"token_bytes":2}"#;
const BEFORE: &str = r#","before":true"#;

/// A request and its end.
type Done<'a> = (&'a str, &'a str);

/// Whether a history of sequential transactions, with `more` in its header, is correct.
fn is_right(more: &str, done: &[Done<'_>]) -> bool {
    is_right_text(&text(more, done))
}

fn text(more: &str, done: &[Done<'_>]) -> String {
    let mut lines = vec![format!(r#"{{"header":{{{HEADER}{more}}}}}"#)];
    for (i, (asked, ended)) in done.iter().enumerate() {
        let (t, p) = (10 * i + 10, i);
        lines.push(format!(r#"{{"invoke":{{"t":{t},"p":{p},{asked}}}}}"#));
        let (kind, rest) = ended.split_once(' ').unwrap();
        lines.push(format!(r#"{{"{kind}":{{"t":{},"p":{p},{rest}}}}}"#, t + 5));
    }
    lines.push(r#"{"end":{"t":1000}}"#.to_owned());
    lines.join("\n") + "\n"
}

/// The history of these lines, with `more` in its header.
fn of_lines(more: &str, lines: &str) -> String {
    let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let header = format!(r#"{{"header":{{{HEADER}{more}}}}}"#);
    format!("{header}\n{}\n{}\n", lines.join("\n"), r#"{"end":{"t":1000}}"#)
}

fn look(text: &str) -> OrderReport {
    let reader = Reader::over(text.as_bytes(), Path::new("partial")).unwrap();
    let header = reader.header.clone();
    check(&header, reader).unwrap()
}

fn is_right_text(text: &str) -> bool {
    let order = look(text);
    assert!(order.decided && order.overruled == 0, "{text}{order:#?}");
    order.strictly_serializable
}

fn stale(ops: &str) -> String {
    format!(r#""stale":true,"ops":[{ops}]"#)
}

const PUT: Done<'_> = (r#""ops":[{"put":["k","v1"]}]"#, r#"ok "out":[{"version":1}]"#);
const DELETE: Done<'_> = (r#""ops":[{"delete":"k"}]"#, r#"ok "out":[{"flag":true}]"#);
const THERE: &str = r#"ok "out":[{"flag":true}]"#;
const ABSENT: &str = r#"ok "out":[{"flag":false}]"#;
const NOTHING: &str = r#"ok "out":[{"value":null}]"#;
const V1: &str = r#"ok "out":[{"value":["v1",1]}]"#;
const NOT_HELD: &str = r#"ok "held":false,"out":[]"#;

/// Events of one moment may be in any order, but a process is sequential.
#[test]
fn what_a_process_asks_for_comes_after_what_it_was_answered() {
    let history = |reader: u64, asked: u64, read: &str, other: &str| {
        format!(
            r#"{{"header":{{{HEADER}}}}}
{{"invoke":{{"t":10,"p":1,"ops":[{{"put":["k","v1"]}},{{"get":"j"}}]}}}}
{{"ok":{{"t":20,"p":1,"out":[{{"version":1}},{{"value":{other}}}]}}}}
{{"invoke":{{"t":{asked},"p":{reader},"ops":[{{"get":"k"}},{{"put":["j","v2"]}}]}}}}
{read}
{{"end":{{"t":1000}}}}
"#
        )
    };
    let read = |reader: u64, value: &str| {
        format!(r#"{{"ok":{{"t":30,"p":{reader},"out":[{{"value":{value}}},{{"version":1}}]}}}}"#)
    };
    let unknown = r#"{"unknown":{"t":30,"p":1,"why":"gone"}}"#;
    let (new, old, later) = (r#"["v1",1]"#, "null", r#"["v2",1]"#);
    for (reader, asked, value, other, right) in [
        (1, 20, new, "null", true),
        (1, 20, old, later, false),
        (2, 20, old, later, true),
        (2, 21, old, later, false),
        (2, 20, new, "null", true),
    ] {
        let text = history(reader, asked, &read(reader, value), other);
        assert_eq!(is_right_text(&text), right, "{text}");
    }
    assert!(is_right_text(&history(1, 20, unknown, "null")));
    assert!(!is_right_text(&history(1, 20, unknown, later)));
}

#[test]
fn a_stale_read_has_not_seen_what_was_asked_for_later() {
    let (exists, get) = (stale(r#"{"exists":"k"}"#), stale(r#"{"get":"k"}"#));
    let scan = stale(r#"{"scan":["a",null,9]}"#);
    let page = r#"ok "out":[{"page":[[["k","v1"]],null]}]"#;
    let other = (
        r#""if":[{"exists":"z"}],"ops":[],"else":[{"put":["k","v1"]}]"#,
        r#"unknown "why":"gone""#,
    );
    let overwritten = (r#""ops":[{"overwrite":["k",0,"v1"]}]"#, r#"ok "out":[{"length":2}]"#);
    for (asked, told) in [(&exists, THERE), (&get, V1), (&scan, page)] {
        let read = (asked.as_str(), told);
        for write in [PUT, other, overwritten] {
            assert!(is_right("", &[write, read]), "{asked} {write:?}");
            assert!(!is_right("", &[read, write]), "{asked} {write:?}");
        }
        assert!(is_right("", &[PUT, DELETE, read]), "{asked}: it may be behind");
        assert!(!is_right("", &[read, PUT, DELETE]), "{asked}");
    }
    assert!(is_right("", &[(&exists, ABSENT), PUT]));
    assert!(is_right("", &[PUT, (&exists, ABSENT)]), "it may be behind");
    assert!(!is_right("", &[PUT, (&get, r#"ok "out":[{"value":["v1",2]}]"#), PUT]));
}

#[test]
fn what_is_told_of_the_time_before_is_told_once() {
    let guarded = |guard: &str| format!(r#""if":[{guard}],"ops":[{{"get":"z"}}]"#);
    let [exists, missing] = [r#"{"exists":"k"}"#, r#"{"missing":"k"}"#].map(guarded);
    let [at3, at0] = [r#"{"version":["k",3]}"#, r#"{"version":["k",0]}"#].map(guarded);
    let equals = guarded(r#"{"equals":["k","v1"]}"#);
    let both = guarded(r#"{"exists":"k"},{"exists":"y"}"#);
    let (look, get) = (r#""ops":[{"exists":"k"}]"#, r#""ops":[{"get":"k"}]"#);
    let scan = r#""ops":[{"scan":["a","l",9]}]"#;
    let (empty, page) =
        (r#"ok "out":[{"page":[[],null]}]"#, r#"ok "out":[{"page":[[["k","v1"]],null]}]"#);
    let value =
        |value: &str, version: u64| format!(r#"ok "out":[{{"value":["{value}",{version}]}}]"#);
    let (long, longer) = ("x".repeat(40), "x".repeat(41));
    let (long, longer) = (value(&long, 3), value(&longer, 4));
    let (v3, v5) = (value("v1", 3), value("v1", 5));
    let append = |length: u64| format!(r#"ok "out":[{{"length":{length}}}]"#);
    let (a41, a42) = (append(41), append(42));
    let more = r#""ops":[{"append":["k","xx"]}]"#;
    #[rustfmt::skip]
    let cases: [(Done<'_>, Done<'_>, bool); 26] = [
        ((look, THERE), (look, THERE), true),         ((look, THERE), (look, ABSENT), false),
        ((look, THERE), (get, &v3), true),            ((look, THERE), (get, NOTHING), false),
        ((look, ABSENT), (get, NOTHING), true),       ((look, ABSENT), (get, &v3), false),
        ((scan, empty), (get, NOTHING), true),        ((scan, empty), (get, &v3), false),
        ((scan, page), (scan, page), true),           ((scan, page), (scan, empty), false),
        ((&exists, NOTHING), (look, THERE), true),    ((&exists, NOTHING), (look, ABSENT), false),
        ((&exists, NOT_HELD), (look, ABSENT), true),  ((&exists, NOT_HELD), (look, THERE), false),
        ((&missing, NOT_HELD), (look, THERE), true),  ((&missing, NOTHING), (look, THERE), false),
        ((&at3, NOTHING), (get, &v3), true),          ((&at3, NOTHING), (get, &v5), false),
        ((&at0, NOTHING), (look, ABSENT), true),      ((&at0, NOT_HELD), (look, ABSENT), false),
        ((&equals, NOTHING), (get, &v3), true),       ((&equals, NOTHING), (get, &long), false),
        // One of the two keys is missing.
        ((&both, NOT_HELD), (look, THERE), true),     ((&both, NOTHING), (look, ABSENT), false),
        ((get, &long), (more, &a42), true),           ((get, &long), (more, &a41), false),
    ];
    for (one, then, right) in cases {
        assert_eq!(is_right(BEFORE, &[one, then]), right, "{one:?} {then:?}");
    }
    assert!(!is_right(BEFORE, &[(get, &long), (get, &longer)]), "nobody wrote");
}

#[test]
fn long_values_from_before_are_told_apart() {
    let get = r#""ops":[{"get":"k"},{"exists":"k"}]"#;
    let value = |byte: &str| {
        let value = byte.repeat(40);
        format!(r#"ok "out":[{{"value":["{value}",3]}},{{"flag":true}}]"#)
    };
    let remove = (r#""ops":[{"delete":"k"}]"#, THERE);
    let none = (get, r#"ok "out":[{"value":null},{"flag":false}]"#);
    let (x, y) = (value("x"), value("y"));
    assert!(is_right(BEFORE, &[(get, &x), (get, &x), remove, none]));
    assert!(!is_right(BEFORE, &[(get, &x), (get, &y), remove, none]));
}

#[test]
fn lengths_and_conditions_of_records_are_judged() {
    let patch = |field: u64| format!(r#""ops":[{{"patch":["k",{field},"t3"]}}]"#);
    let (first, second, beyond) = (patch(0), patch(1), patch(7));
    let equals =
        |value: &str| format!(r#""if":[{{"equals":["k","{value}"]}}],"ops":[{{"get":"z"}}]"#);
    let (same, other) = (equals("t1t2"), equals("t1t9"));
    let length = |length: u64| format!(r#"ok "out":[{{"length":{length}}}]"#);
    let [l5, l7, l9, l10, l12, l40] = [5, 7, 9, 10, 12, 40].map(length);
    let append = r#""ops":[{"append":["k","xx"]}]"#;
    let overwrite = r#""ops":[{"overwrite":["k",5,"xx"]}]"#;
    let put: Done<'_> = (r#""ops":[{"put":["k","t1t2"]}]"#, r#"ok "out":[{"version":1}]"#);
    let missing: Done<'_> = (r#""ops":[{"get":"k"}]"#, NOTHING);
    #[rustfmt::skip]
    let cases: [(Done<'_>, Done<'_>, bool); 18] = [
        (put, (&first, &l10), true),      (put, (&first, &l9), false),
        (put, (&second, &l10), true),     (put, (&second, &l12), false),
        (put, (&beyond, &l40), true),     (put, (&beyond, &l10), false),
        (missing, (&first, &l5), true),   (missing, (&first, &l10), false),
        (missing, (&second, &l10), true), (missing, (&second, &l5), false),
        (put, (overwrite, &l10), true),   (put, (overwrite, &l9), false),
        (missing, (overwrite, &l7), true), (missing, (overwrite, &l10), false),
        (put, (&same, NOTHING), true),    (put, (&same, NOT_HELD), false),
        (put, (&other, NOT_HELD), true),  (put, (&other, NOTHING), false),
    ];
    for (one, then, right) in cases {
        assert_eq!(is_right(RECORD, &[one, then]), right, "{one:?} {then:?}");
    }
    assert!(is_right(RECORD, &[put, (overwrite, &l10), (&first, &l10)]));
    assert!(!is_right(RECORD, &[missing, (&same, NOTHING)]));
    // The length of a token appended to a key is that of the header.
    assert!(!is_right(RECORD, &[put, (append, &l10), (overwrite, &l10)]));
}

/// A field that is set at a missing or other value makes no record, or one with zero bytes.
#[test]
fn what_is_no_record_is_not_invented() {
    let patch = |field: u64| format!(r#""ops":[{{"patch":["k",{field},"t3"]}}]"#);
    let get = |value: &str| format!(r#"ok "out":[{{"value":["{value}",2]}}]"#);
    let (torn, padded, other) = (get("xt3xx"), get(r"\u0000\u0000t3"), get("t4t3"));
    let (first, second, read) = (patch(0), patch(1), r#""ops":[{"get":"k"}]"#);
    let (l5, l10) = (r#"ok "out":[{"length":5}]"#, r#"ok "out":[{"length":10}]"#);
    assert!(is_right(RECORD, &[(&first, l5), (read, &torn)]));
    assert!(is_right(RECORD, &[(&second, l10), (read, &padded)]));
    assert!(!is_right(RECORD, &[(&second, l10), (read, &other)]));
}

/// A stale read may be older than the first reads of other transactions, and two stale reads may
/// have different ages.
#[test]
fn stale_reads_say_nothing_of_what_was_before() {
    let get = r#""ops":[{"get":"k"}]"#;
    let (old, older) = (stale(r#"{"get":"k"}"#), stale(r#"{"exists":"k"}"#));
    let scan = stale(r#"{"scan":["a","l",9]}"#);
    let v2 = r#"ok "out":[{"value":["v2",2]}]"#;
    let page = r#"ok "out":[{"page":[[["k","v0"]],null]}]"#;
    for more in [BEFORE.to_owned(), format!("{BEFORE}{RECORD}")] {
        for other in [(&*old, V1), (&*old, NOTHING), (&*older, ABSENT), (&*scan, page)] {
            assert!(is_right(&more, &[(get, v2), other]), "{more} {other:?}");
            assert!(is_right(&more, &[other, (get, v2)]), "{more} {other:?}");
        }
    }
    assert!(!is_right("", &[PUT, (get, NOTHING), (&old, V1)]), "it began with nothing");
}

/// If the value was never returned to a client, a stale read of it fits anywhere in the order.
#[test]
fn stale_reads_of_a_value_that_is_not_known_are_right() {
    let append = |length: u64| format!(r#"ok "out":[{{"length":{length}}}]"#);
    let (a2, a4, f5) = (append(2), append(4), append(5));
    let (t1, t2) = (r#""ops":[{"append":["k","t1"]}]"#, r#""ops":[{"append":["k","t2"]}]"#);
    let [field, again] =
        ["t3", "t4"].map(|token| format!(r#""ops":[{{"patch":["k",0,"{token}"]}}]"#));
    let (exists, get) = (stale(r#"{"exists":"k"}"#), stale(r#"{"get":"k"}"#));
    let seen = r#"ok "out":[{"value":["At3xy",1]}]"#;
    for done in [
        [(t1, &*a2), (&*exists, THERE), DELETE],
        [(t1, &*a2), (&*exists, THERE), (t2, &*a4)],
        [(&*field, &*f5), (&*get, seen), (&*again, &*f5)],
        [(&*field, &*f5), (&*again, &*f5), (&*get, seen)],
    ] {
        assert!(is_right(RECORD, &done), "{done:?}");
    }
}

/// A value as long as the tokens of all fields may be a record or stand for itself.
#[test]
fn what_is_as_long_as_a_record_s_tokens_need_not_be_one() {
    let length = |length: u64| format!(r#"ok "out":[{{"length":{length}}}]"#);
    let [l4, l5, l6, l7, l8, l9, l10, l12] = [4, 5, 6, 7, 8, 9, 10, 12].map(length);
    let put = (r#""ops":[{"put":["k","1000"]}]"#, r#"ok "out":[{"version":1}]"#);
    let [first, last] = [0, 1].map(|field| format!(r#""ops":[{{"patch":["k",{field},"t1"]}}]"#));
    let [list, more, short] =
        ["t1t2", "t3t4", "t1"].map(|token| format!(r#""ops":[{{"append":["k","{token}"]}}]"#));
    for (done, right) in [
        ([put, (&*first, &*l5)], true),
        ([put, (&*first, &*l10)], true),
        ([put, (&*first, &*l9)], false),
        ([put, (&*last, &*l10)], true),
        ([put, (&*last, &*l9)], false),
        ([put, (&*short, &*l6)], true),
        ([put, (&*short, &*l12)], true),
        ([put, (&*short, &*l7)], false),
    ] {
        assert_eq!(is_right(RECORD, &done), right, "{done:?}");
    }
    let text = text(RECORD, &[(&list, &l4), (&more, &l8)]);
    assert!(is_right_text(&text.replacen(r#""token_bytes":2"#, r#""token_bytes":4"#, 1)), "a list");
    let get = r#""ops":[{"get":"k"}]"#;
    let read = |value: &str| format!(r#"ok "out":[{{"value":["{value}",2]}}]"#);
    let (set, lost) = (read("t100"), read("1000"));
    assert!(is_right(RECORD, &[put, (&first, &l10), (get, &set)]));
    assert!(!is_right(RECORD, &[put, (&first, &l10), (get, &lost)]), "the field was set");
}

/// Nothing in the history shows a value that is not a record. Then a field that was set is read,
/// and no other is lost.
#[test]
fn fields_that_were_set_are_not_lost() {
    let patch = |field: u64, token: &str| format!(r#""ops":[{{"patch":["k",{field},"{token}"]}}]"#);
    let (first, last, again) = (patch(0, "t3"), patch(1, "t3"), patch(1, "t4"));
    let put: Done<'_> = (r#""ops":[{"put":["k","t1t2"]}]"#, r#"ok "out":[{"version":1}]"#);
    let (get, l10) = (r#""ops":[{"get":"k"}]"#, r#"ok "out":[{"length":10}]"#);
    let read =
        |value: &str, version: u64| format!(r#"ok "out":[{{"value":["{value}",{version}]}}]"#);
    let (lost, kept, after) = (read("t1t2", 2), read("t1t3", 2), read("t1t4", 3));
    assert!(is_right(RECORD, &[put, (&last, l10), (get, &kept), (&again, l10), (get, &after)]));
    assert!(!is_right(RECORD, &[put, (&last, l10), (get, &lost), (&again, l10), (get, &after)]));
    // A write of unknown outcome executes once or never.
    let unknown = r#"unknown "why":"gone""#;
    let (without, with, other) = (read("t1t4", 2), read("t3t4", 3), read("t5t4", 3));
    for (done, right) in [(&without, true), (&with, true), (&other, false)] {
        let done = [put, (&*first, unknown), (&*again, l10), (get, &**done)];
        assert_eq!(is_right(RECORD, &done), right, "{done:?}");
    }
}

#[test]
fn a_stale_transaction_only_reads() {
    let held = r#"ok "out":[{"value":null}]"#;
    let conditional = r#""stale":true,"if":[{"missing":"k"}],"ops":[{"get":"k"}]"#;
    let written = r#"ok "out":[{"version":1}]"#;
    for (asked, ended) in [(conditional, held), (&*stale(r#"{"put":["k","v1"]}"#), written)] {
        assert!(!is_right("", &[(asked, ended)]), "{asked}");
    }
    assert!(is_right("", &[(&stale(r#"{"get":"k"}"#), held)]));
}

/// The explanation of a wrong answer names the conditions in the words of `docs/histories.md`, and
/// shows bytes that are not valid UTF-8 as digits.
#[test]
fn conditions_are_explained_in_words() {
    for (guard, words) in [
        (r#"{"greater":["v",5]}"#, "v is greater than 5"),
        (r#"{"less":["v",-1]}"#, "v is less than -1"),
        (r#"{"at_least":["v",5]}"#, "v is 5 or more"),
        (r#"{"at_most":["v",-5]}"#, "v is -5 or less"),
        (r#"{"equal":["v",5]}"#, "v is 5"),
        (r#"{"equals":["v","t1"]}"#, r#"v equals "t1""#),
        (r#"{"equals":["v","\u0000xfffe"]}"#, "v equals 0xfffe"),
        (r#"{"version":["v",3]}"#, "v is at version 3"),
        (r#"{"exists":"\u0000xfffe"}"#, "0xfffe is there"),
        (r#"{"exists":"v"},{"missing":"w"}"#, "v is there, w is missing"),
    ] {
        let asked = format!(r#""if":[{guard}],"ops":[{{"put":["k","v1"]}}]"#);
        let order = look(&text("", &[(&asked, r#"ok "out":[{"version":1}]"#)]));
        let text = order.text(skein_checker::chart::Paint(false));
        assert!(text.contains(&format!("its conditions held: {words}\n")), "{text}");
        assert!(!text.contains('\0'), "{text}");
    }
    for (end, words) in
        [(r#""c""#, "range a to c is unchanged"), ("null", "range a to the end is unchanged")]
    {
        let held = r#"[{"group":0,"pairs":9,"bytes":9,"digest":"00"}]"#;
        let asked = format!(r#""if":[{{"unchanged":["a",{end},{held}]}}],"ops":[{{"get":"z"}}]"#);
        let order = look(&text("", &[(&asked, NOTHING)]));
        assert!(order.evidence[0].transactions.join(" ").contains(words), "{order:#?}");
    }
}
