//! Values that are records only in a part of a history, or that merely have the length of a record.

use super::{Done, HEADER, PUT, RECORD, THERE, is_right, is_right_text, of_lines, stale, text};

const DELETE: Done<'_> = (r#""ops":[{"delete":"k"}]"#, THERE);

/// A header whose records have this many fields, with the bytes, token offset and token length
/// given.
fn record(fields: u64, bytes: u64, at: u64, token: u64) -> String {
    format!(
        r#","record":{{"fields":{fields},"field_bytes":{bytes},"token_at":{at},"token_bytes":{token}}}"#
    )
}

fn length(length: u64) -> String {
    format!(r#"ok "out":[{{"length":{length}}}]"#)
}

fn value(value: &str, version: u64) -> String {
    format!(r#"ok "out":[{{"value":["{value}",{version}]}}]"#)
}

fn patch(field: u64, token: &str) -> String {
    format!(r#""ops":[{{"patch":["k",{field},"{token}"]}}]"#)
}

const GET: &str = r#""ops":[{"get":"k"}]"#;

/// The first field was set before a read of the value, which was too short to be a record.
#[test]
fn a_record_that_was_read_while_it_grew_is_right() {
    let history = |version: u64| {
        let lines = format!(
            r#"{{"invoke":{{"t":10,"p":1,"ops":[{{"patch":["k",0,"t1"]}}]}}}}
            {{"invoke":{{"t":11,"p":2,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":20,"p":2,"out":[{{"value":["xt1yy",1]}}]}}}}
            {{"ok":{{"t":20,"p":1,"out":[{{"length":5}}]}}}}
            {{"invoke":{{"t":30,"p":1,"ops":[{{"patch":["k",1,"t2"]}}]}}}}
            {{"ok":{{"t":40,"p":1,"out":[{{"length":10}}]}}}}
            {{"invoke":{{"t":50,"p":2,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":60,"p":2,"out":[{{"value":["t1t2",{version}]}}]}}}}"#
        );
        of_lines(RECORD, &lines)
    };
    assert!(is_right_text(&history(2)));
    assert!(!is_right_text(&history(1)), "the second field was set after the first was read");
    let (first, last, l5, l10) = (patch(0, "t1"), patch(1, "t2"), length(5), length(10));
    let (short, whole, lost) = (value("xt1yy", 1), value("t1t2", 2), value("t1t2", 1));
    for (read, right) in [(&whole, true), (&lost, false)] {
        let done = [(&*first, &*l5), (GET, &*short), (&*last, &*l10), (GET, &**read)];
        assert_eq!(is_right(RECORD, &done), right, "{read}");
    }
    // No answer shows that the value was short, and a record was put there afterwards.
    let put = |token: &str| format!(r#""ops":[{{"put":["k","{token}t4"]}}]"#);
    let (put, version) = (put("t3"), r#"ok "out":[{"version":2}]"#);
    let unknown = r#"unknown "why":"gone""#;
    for (read, right) in [(value("t3t4", 2), true), (value("t1t4", 2), false)] {
        let done = [(&*first, unknown), (GET, &*short), (&*put, version), (GET, &*read)];
        assert_eq!(is_right(RECORD, &done), right, "{read}");
    }
}

/// The outcomes of the writes are unknown, and one write was observed before the other was invoked.
#[test]
fn a_record_that_grew_by_unknown_outcomes_is_right() {
    for (other, right) in [(r#"["w1",1]"#, true), ("null", false)] {
        let lines = format!(
            r#"{{"invoke":{{"t":10,"p":1,"ops":[{{"patch":["k",0,"t1"]}},{{"put":["j","w1"]}}]}}}}
            {{"unknown":{{"t":15,"p":1,"why":"gone"}}}}
            {{"invoke":{{"t":20,"p":2,"ops":[{{"get":"k"}},{{"get":"j"}}]}}}}
            {{"ok":{{"t":25,"p":2,"out":[{{"value":["xt1yy",1]}},{{"value":{other}}}]}}}}
            {{"invoke":{{"t":30,"p":3,"ops":[{{"patch":["k",1,"t2"]}}]}}}}
            {{"unknown":{{"t":35,"p":3,"why":"gone"}}}}
            {{"invoke":{{"t":40,"p":2,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":45,"p":2,"out":[{{"value":["t1t2",2]}}]}}}}"#
        );
        assert_eq!(is_right_text(&of_lines(RECORD, &lines)), right, "{other}");
    }
}

/// A field that is set at a missing key makes a value as long as the tokens of a record.
#[test]
fn a_value_as_long_as_tokens_need_not_be_a_record() {
    let (first, l4, read) = (patch(0, "t1"), length(4), value("zxt1", 1));
    let tight = record(2, 4, 2, 2);
    assert!(is_right(&tight, &[(&first, &l4), (GET, &read)]));
    assert!(is_right(&tight, &[(&first, r#"unknown "why":"gone""#), (GET, &read)]));
}

/// A field behind the last one makes a value that is not a record and may never be observed.
#[test]
fn a_stale_read_of_a_value_longer_than_a_record_is_right() {
    let put = (r#""ops":[{"put":["k","t1t2"]}]"#, r#"ok "out":[{"version":1}]"#);
    let (beyond, l15, get) = (patch(2, "t3"), length(15), stale(r#"{"get":"k"}"#));
    let (read, never) = (value("xt1yyxt2yyxt3yy", 2), value("xt1yyxt2yyxt3yy", 1));
    assert!(is_right(RECORD, &[put, (&beyond, &l15), (&get, &read), DELETE]));
    assert!(!is_right(RECORD, &[put, (&beyond, &l15), (&get, &never), DELETE]));
    assert!(!is_right(RECORD, &[(&get, &read), put, (&beyond, &l15), DELETE]), "of later");
}

/// A history holds only the tokens of a record, while the store compares and increments the whole
/// value.
#[test]
fn the_number_of_a_record_is_not_known() {
    let put = (r#""ops":[{"put":["k","1234"]}]"#, r#"ok "out":[{"version":1}]"#);
    let guarded = r#""if":[{"greater":["k",5]}],"ops":[{"patch":["k",0,"77"]}]"#;
    let not_held = r#"ok "held":false,"out":[]"#;
    assert!(is_right(RECORD, &[put, (guarded, not_held)]));
    let incr = |told: i64| format!(r#"ok "out":[{{"number":{told}}}]"#);
    let (add, far, near) = (r#""ops":[{"incr":["k",1]}]"#, incr(123_457), incr(1_235));
    let one = record(1, 6, 0, 4);
    assert!(is_right(&one, &[put, (add, &far)]));
    assert!(is_right(&one, &[put, (add, &near)]));
    // A value of another length stands for itself, and so does a record that consists of tokens
    // only.
    let short = (r#""ops":[{"put":["k","123"]}]"#, r#"ok "out":[{"version":1}]"#);
    assert!(!is_right(&one, &[short, (add, &far)]));
    assert!(!is_right(&one, &[short, (guarded, not_held)]));
    let tokens_only = record(1, 4, 0, 4);
    assert!(!is_right(&tokens_only, &[put, (add, &far)]));
    assert!(!is_right(&record(2, 2, 0, 2), &[put, (guarded, not_held)]));
}

/// Tokens that are not valid UTF-8 are encoded as digits, of which a token has more than bytes.
#[test]
fn tokens_that_are_no_text_are_told_apart() {
    let put = (r#""ops":[{"put":["k","\u0000xfffe7432"]}]"#, r#"ok "out":[{"version":1}]"#);
    let (first, last, l10) = (patch(0, "t3"), patch(1, "t4"), length(10));
    let (kept, lost) = (value("t3t2", 2), value("t3t4", 2));
    assert!(is_right(RECORD, &[put, (&first, &l10), (GET, &kept)]));
    assert!(!is_right(RECORD, &[put, (&first, &l10), (GET, &lost)]));
    let coded = value(r"\u0000xfffe7434", 2);
    assert!(is_right(RECORD, &[put, (&last, &l10), (GET, &coded)]));
    assert!(is_right("", &[PUT, (GET, &value(r"\u0000x7631", 1))]), "v1 by its digits");
}

/// The tokens are text, and the list begins like the encoding of bytes that are not valid UTF-8.
#[test]
fn a_list_that_looks_like_digits_is_right() {
    let append = |token: &str| format!(r#""ops":[{{"append":["k","{token}"]}}]"#);
    let (mark, x, l1, l2) = (append(r"\u0000"), append("x"), length(1), length(2));
    for (read, right) in [(r"\u0000x0078", true), (r"\u0000x0079", false)] {
        let text = text("", &[(&mark, &l1), (&x, &l2), (GET, &value(read, 2))]);
        let text = text.replacen(r#""token_bytes":2"#, r#""token_bytes":1"#, 1);
        assert_eq!(is_right_text(&text), right, "{HEADER} {read}");
    }
}

/// One read of a record from before the history determines all its fields, however long they are.
#[test]
fn long_records_from_before_are_judged_field_by_field() {
    let header = format!(r#"{},"before":true"#, record(10, 5, 1, 4));
    let fields = |first: &str, middle: &str| {
        let rest = "o001o002o003o004".to_owned() + middle + "o006o007o008o009";
        format!("{first}{rest}")
    };
    let old = value(&fields("o000", "o005"), 1);
    let (first, l50) = (patch(0, "t001"), length(50));
    for (then, right) in [
        (fields("t001", "o005"), true),
        (fields("t001", "o006"), false),
        (fields("t001", "zzzz"), false),
        (fields("o000", "o005"), false),
    ] {
        let done = [(GET, &*old), (&*first, &*l50), (GET, &*value(&then, 2))];
        assert_eq!(is_right(&header, &done), right, "{then}");
    }
}
