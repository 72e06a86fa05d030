//! Errors on a few keys are found where the search for an order of the whole history is cut off.

use std::fmt::Write as _;
use std::path::Path;

use skein_checker::check::{Effort, OrderReport, check_within};
use skein_checker::history::Reader;

const HEADER: &str = r#"{"header":{"format":3,"workload":"projections","skein":"test","cluster":{"nodes":1,"groups":1,"replicas":1,"engines":1},"seed":1,"t":0,"unix_ms":0,"token_bytes":2,"bank":null}}"#;

/// A transaction's request and answer as in a history. Without an answer the outcome is unknown.
type Step = (&'static str, Option<&'static str>);

/// Checks sequential transactions. The search for an order of the whole is cut off at once.
fn judge(steps: &[Step], effort: Effort) -> OrderReport {
    let mut text = format!("{HEADER}\n");
    for (number, (asked, told)) in steps.iter().enumerate() {
        let (p, t) = (number + 1, 10 * number);
        let _ = writeln!(text, "{{\"invoke\":{{\"t\":{t},\"p\":{p},{asked}}}}}");
        if let Some(told) = told {
            let _ = writeln!(text, "{{\"ok\":{{\"t\":{},\"p\":{p},{told}}}}}", t + 5);
        }
    }
    text += "{\"end\":{\"t\":100000}}\n";
    let reader = Reader::over(text.as_bytes(), Path::new("projections")).unwrap();
    let header = reader.header.clone();
    check_within(&header, reader, effort).unwrap()
}

/// The whole is not searched.
const CUT_OFF: Effort = Effort { whole: Some(0), parts: None };

const BOTH_SET: Step = (
    r#""ops":[{"put":["x","p1"]},{"put":["y","p2"]}]"#,
    Some(r#""out":[{"version":1},{"version":1}]"#),
);
const X_REMOVED: Step = (r#""ops":[{"delete":"x"}]"#, Some(r#""out":[{"flag":true}]"#));

/// For each anomaly the keys on which it is found, a wrong history and a correct one.
#[rustfmt::skip]
fn planted() -> Vec<(&'static str, &'static str, Vec<Step>, Vec<Step>)> {
    let scan = r#""ops":[{"scan":["x","z",9]}]"#;
    let x = r#""ops":[{"get":"x"}]"#;
    let guarded = r#""if":[{"exists":"x"},{"missing":"q"}],"ops":[{"put":["x","p3"]}]"#;
    let equals = r#""if":[{"equals":["x","p1"]}],"ops":[{"put":["x","p3"]}],"else":[{"put":["y","p7"]}]"#;
    let cas = r#""if":[{"equals":["x","p1"]}],"ops":[{"put":["x","p8"]}]"#;
    let appends = [r#""ops":[{"append":["l","0a"]}]"#, r#""ops":[{"append":["l","0b"]}]"#];
    let unknown = (r#""ops":[{"put":["x","p5"]},{"put":["y","p6"]}]"#, None);
    let two = r#""ops":[{"get":"x"},{"get":"y"}]"#;
    vec![
        ("phantom", "x",
            vec![BOTH_SET, (scan, Some(r#""out":[{"page":[[["y","p2"]],null]}]"#))],
            vec![BOTH_SET, (scan, Some(r#""out":[{"page":[[["x","p1"],["y","p2"]],null]}]"#))]),
        ("phantom below a limit", "x",
            vec![BOTH_SET, (r#""ops":[{"scan":["w","z",0]}]"#, Some(r#""out":[{"page":[[],"y"]}]"#))],
            vec![BOTH_SET, (r#""ops":[{"scan":["w","z",0]}]"#, Some(r#""out":[{"page":[[],"x"]}]"#))]),
        ("removed and there", "x",
            vec![BOTH_SET, X_REMOVED, (x, Some(r#""out":[{"value":["p1",1]}]"#))],
            vec![BOTH_SET, X_REMOVED, (x, Some(r#""out":[{"value":null}]"#))]),
        ("refused though it held", "q and x",
            vec![BOTH_SET, (guarded, Some(r#""out":[],"held":false"#))],
            vec![BOTH_SET, X_REMOVED, (guarded, Some(r#""out":[],"held":false"#))]),
        ("else though it held", "x",
            vec![BOTH_SET, (equals, Some(r#""out":[{"version":2}],"held":false"#))],
            vec![BOTH_SET, X_REMOVED, (equals, Some(r#""out":[{"version":2}],"held":false"#))]),
        ("cas wrong", "x",
            vec![BOTH_SET, (cas, Some(r#""out":[{"version":2}]"#)), (cas, Some(r#""out":[{"version":3}]"#))],
            vec![BOTH_SET, (cas, Some(r#""out":[{"version":2}]"#)), (cas, Some(r#""out":[],"held":false"#))]),
        ("appended twice by its length", "l",
            vec![(appends[0], Some(r#""out":[{"length":2}]"#)), (appends[1], Some(r#""out":[{"length":6}]"#))],
            vec![(appends[0], Some(r#""out":[{"length":2}]"#)), (appends[1], Some(r#""out":[{"length":4}]"#))]),
        ("half of an unknown outcome", "x and y",
            vec![BOTH_SET, unknown, (two, Some(r#""out":[{"value":["p5",2]},{"value":["p2",1]}]"#))],
            vec![BOTH_SET, unknown, (two, Some(r#""out":[{"value":["p5",2]},{"value":["p6",2]}]"#))]),
    ]
}

#[test]
fn what_is_wrong_on_a_few_keys_is_found_without_an_order_of_the_whole() {
    // Another key, so that these keys are not all.
    let other: Step = (r#""ops":[{"incr":["n",1]}]"#, Some(r#""out":[{"number":1}]"#));
    for (name, keys, wrong, right) in planted() {
        let order = judge(&[&[other], &wrong[..]].concat(), CUT_OFF);
        assert!(order.decided && !order.strictly_serializable, "{name}: {order:#?}");
        let what = &order.evidence[0].what;
        assert!(what.starts_with(&format!("on {keys} alone: ")), "{name}: {what}");
        assert!(!order.evidence[0].transactions.is_empty(), "{name}");
        let order = judge(&[&[other], &right[..]].concat(), CUT_OFF);
        assert!(order.is_open() && order.anomalies.is_empty(), "{name}: {order:#?}");
        let parts = order.parts.as_ref().unwrap();
        assert_eq!((parts.keys_right, parts.sets_right), (parts.keys, parts.sets), "{name}");
        assert!(order.basis().contains(" keys alone is in order"), "{}", order.basis());
    }
}

#[test]
fn without_effort_nothing_is_decided() {
    for (name, _, wrong, _) in planted() {
        let order = judge(&wrong, Effort { whole: Some(0), parts: Some(0) });
        assert!(order.is_open(), "{name}: {order:#?}");
        assert!(order.basis().contains("0 of "), "{}", order.basis());
    }
}

#[test]
fn a_history_that_is_decided_as_a_whole_has_no_parts() {
    for (name, _, wrong, right) in planted() {
        for (steps, is_right) in [(&wrong, false), (&right, true)] {
            let order = judge(steps, Effort::default());
            assert!(order.decided && order.parts.is_none(), "{name}: {order:#?}");
            assert_eq!(order.strictly_serializable, is_right, "{name}");
        }
    }
}
