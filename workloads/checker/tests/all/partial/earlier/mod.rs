//! Values from before the history that are written again in it: they do not identify their writers.

use super::{BEFORE, RECORD, is_right_text, of_lines};

fn is_right(more: &str, lines: &str) -> bool {
    is_right_text(&of_lines(more, lines))
}

const PUT_BOTH: &str = r#"{"invoke":{"t":5,"p":9,"ops":[{"get":"j"}]}}
    {"ok":{"t":6,"p":9,"out":[{"value":null}]}}
    {"invoke":{"t":10,"p":1,"ops":[{"put":["k","v1"]},{"put":["j","w1"]}]}}
    {"unknown":{"t":15,"p":1,"why":"gone"}}"#;

/// Sequential reads of two keys.
fn reads(k: &str, j: &str) -> String {
    format!(
        r#"{{"invoke":{{"t":20,"p":2,"ops":[{{"get":"k"}}]}}}}
        {{"ok":{{"t":25,"p":2,"out":[{{"value":{k}}}]}}}}
        {{"invoke":{{"t":30,"p":2,"ops":[{{"get":"j"}}]}}}}
        {{"ok":{{"t":35,"p":2,"out":[{{"value":{j}}}]}}}}"#
    )
}

#[test]
fn a_value_from_before_does_not_show_that_an_unknown_write_was_done() {
    let seen = reads(r#"["v1",7]"#, "null");
    assert!(is_right(BEFORE, &format!("{PUT_BOTH}\n{seen}")));
    // A version above another known one was written in the history.
    let found = r#"{"invoke":{"t":1,"p":8,"ops":[{"get":"k"}]}}
        {"ok":{"t":2,"p":8,"out":[{"value":["v0",3]}]}}"#;
    assert!(!is_right(BEFORE, &format!("{found}\n{PUT_BOTH}\n{seen}")));
    let nothing = found.replace(r#"["v0",3]"#, "null");
    assert!(!is_right(BEFORE, &format!("{nothing}\n{PUT_BOTH}\n{seen}")));
}

#[test]
fn a_token_from_before_does_not_show_that_an_unknown_write_was_done() {
    let more = format!("{BEFORE}{RECORD}");
    let patch = PUT_BOTH.replace(r#"{"put":["k","v1"]}"#, r#"{"patch":["k",0,"t1"]}"#);
    let seen = reads(r#"["t1t2",7]"#, "null");
    assert!(is_right(&more, &format!("{patch}\n{seen}")));
    let found = r#"{"invoke":{"t":1,"p":8,"ops":[{"get":"k"}]}}
        {"ok":{"t":2,"p":8,"out":[{"value":["t0t2",3]}]}}"#;
    assert!(!is_right(&more, &format!("{found}\n{patch}\n{seen}")));
}

/// A read concurrent with a set of the key.
fn beside(value: &str, version: u64, told: u64) -> String {
    format!(
        r#"{{"invoke":{{"t":20,"p":2,"ops":[{{"get":"k"}}]}}}}
        {{"invoke":{{"t":20,"p":1,"ops":[{{"put":["k","v1"]}}]}}}}
        {{"ok":{{"t":25,"p":2,"out":[{{"value":["{value}",{version}]}}]}}}}
        {{"ok":{{"t":40,"p":1,"out":[{{"version":{told}}}]}}}}"#
    )
}

#[test]
fn a_value_that_is_set_again_may_have_been_there() {
    assert!(is_right(BEFORE, &beside("v1", 7, 9)));
    assert!(is_right(BEFORE, &beside("v1", 9, 9)));
    assert!(!is_right(BEFORE, &beside("v1", 11, 9)), "nobody has set it later");
    assert!(!is_right(BEFORE, &beside("v0", 11, 9)), "nobody has set it later");
    assert!(is_right(BEFORE, &beside("v0", 7, 9)));
}

#[test]
fn a_value_from_before_may_be_one_that_was_refused() {
    let history = |first: &str| {
        let refused = r#"{"invoke":{"t":10,"p":1,"ops":[{"put":["k","v1"]}]}}
            {"fail":{"t":15,"p":1,"why":"not sent"}}"#;
        let read = r#"{"invoke":{"t":20,"p":2,"ops":[{"get":"k"}]}}
            {"ok":{"t":25,"p":2,"out":[{"value":["v1",7]}]}}"#;
        format!("{first}\n{refused}\n{read}")
    };
    assert!(is_right(BEFORE, &history("")));
    let found = r#"{"invoke":{"t":1,"p":8,"ops":[{"get":"k"}]}}
        {"ok":{"t":2,"p":8,"out":[{"value":["v0",3]}]}}"#;
    assert!(!is_right(BEFORE, &history(found)), "it was written after that");
}

#[test]
fn a_value_from_before_may_be_one_that_was_written_over_at_once() {
    let history = |version: u64| {
        format!(
            r#"{{"invoke":{{"t":10,"p":1,"ops":[{{"put":["k","v1"]}},{{"put":["k","v2"]}}]}}}}
            {{"ok":{{"t":15,"p":1,"out":[{{"version":9}},{{"version":9}}]}}}}
            {{"invoke":{{"t":11,"p":2,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":15,"p":2,"out":[{{"value":["v1",{version}]}}]}}}}"#
        )
    };
    assert!(is_right(BEFORE, &history(7)));
    assert!(!is_right(BEFORE, &history(9)), "nobody sees what was written over");
}

#[test]
fn a_value_from_before_may_stand_there_again() {
    let lines = r#"{"invoke":{"t":10,"p":1,"ops":[{"put":["k","v1"]}]}}
        {"invoke":{"t":20,"p":2,"ops":[{"get":"k"},{"put":["j","x"]}]}}
        {"ok":{"t":25,"p":2,"out":[{"value":["v1",7]},{"version":3}]}}
        {"invoke":{"t":30,"p":3,"ops":[{"get":"k"},{"get":"j"}]}}
        {"unknown":{"t":31,"p":1,"why":"gone"}}
        {"ok":{"t":35,"p":3,"out":[{"value":["v1",8]},{"value":["x",3]}]}}"#;
    assert!(is_right(BEFORE, lines));
    let third = r#"{"invoke":{"t":50,"p":3,"ops":[{"get":"k"}]}}
        {"ok":{"t":55,"p":3,"out":[{"value":["v1",9]}]}}"#;
    assert!(!is_right(BEFORE, &format!("{lines}\n{third}")), "it was set once");
}

#[test]
fn a_token_from_before_may_stand_there_again() {
    let more = format!("{BEFORE}{RECORD}");
    let history = |version: u64| {
        format!(
            r#"{{"invoke":{{"t":20,"p":2,"ops":[{{"get":"k"}}]}}}}
            {{"invoke":{{"t":20,"p":1,"ops":[{{"patch":["k",0,"t1"]}}]}}}}
            {{"ok":{{"t":25,"p":2,"out":[{{"value":["t1t2",7]}}]}}}}
            {{"invoke":{{"t":30,"p":2,"ops":[{{"patch":["k",0,"t3"]}}]}}}}
            {{"ok":{{"t":35,"p":2,"out":[{{"length":10}}]}}}}
            {{"invoke":{{"t":36,"p":3,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":40,"p":1,"out":[{{"length":10}}]}}}}
            {{"ok":{{"t":41,"p":3,"out":[{{"value":["t3t2",8]}}]}}}}
            {{"invoke":{{"t":50,"p":3,"ops":[{{"get":"k"}}]}}}}
            {{"ok":{{"t":55,"p":3,"out":[{{"value":["t1t2",{version}]}}]}}}}"#
        )
    };
    assert!(is_right(&more, &history(9)));
    assert!(!is_right(&more, &history(8)));
    // A write that was not observed lies between two reads that found the token from before the
    // history.
    let between = r#"{"invoke":{"t":20,"p":1,"ops":[{"get":"k"}]}}
        {"ok":{"t":25,"p":1,"out":[{"value":["t1t2",7]}]}}
        {"invoke":{"t":30,"p":2,"ops":[{"patch":["k",0,"t3"]}]}}
        {"ok":{"t":35,"p":2,"out":[{"length":10}]}}
        {"invoke":{"t":36,"p":3,"ops":[{"patch":["k",0,"t1"]}]}}
        {"ok":{"t":39,"p":3,"out":[{"length":10}]}}
        {"invoke":{"t":40,"p":1,"ops":[{"get":"k"}]}}
        {"ok":{"t":45,"p":1,"out":[{"value":["t1t2",9]}]}}"#;
    assert!(is_right(&more, between));
}
