//! A catalogue of anomalies, one small history each: the checker reports the anomaly by its name,
//! and no other.

use std::fs;
use std::path::PathBuf;

use skein_checker::check::{Effort, OrderReport, check_within};
use skein_checker::history::Reader;

/// File, anomaly, class in the literature, and a part of the explanation.
#[rustfmt::skip]
const CATALOGUE: [(&str, &str, &str, &str); 47] = [
    ("lost-update",                       "lost update",                        "G-single",        "T2 read x (group 1) as nothing, and only then T1 appended t1 to x"),
    ("lost-update-register",              "lost update",                        "G-single",        "T2 read r (group 0) as v0 (version 2), and after that T1 set r (group 0) to v1 as version 4"),
    ("lost-update-counter",               "lost update",                        "lost update",     "increments of c (group 0) by two transactions both returned 1"),
    ("dirty-write",                       "dirty write",                        "G0",              "appended t4 to z (group 0), and T1 appended t2 to z (group 0) after that"),
    ("stale-read",                        "stale read",                         "G-single-realtime", "was answered at 0.000000020 s, before"),
    ("stale-read-register",               "stale read",                         "G-single-realtime", "read r (group 0) as v1 (version 2), and after that"),
    ("fractured-read",                    "fractured read",                     "G-single",        "read z (group 0) as nothing, and only then"),
    ("fractured-read-unknown",            "fractured read",                     "G-single",        "read x (group 1) as [t1]"),
    ("long-fork",                         "long fork",                          "G-nonadjacent",   "as nothing, and only then"),
    ("write-skew",                        "write skew",                         "G2-item",         "as nothing, and only then"),
    ("real-time-inversion-across-shards", "real-time inversion across shards",  "G1c-realtime",    "before T2 was invoked"),
    ("real-time-inversion-stale",         "real-time inversion",                "G1c-realtime",    "before T2 was invoked"),
    ("real-time-inversion",               "real-time inversion",                "G0-realtime",     "appended t1 to x (group 1) after that"),
    ("real-time-inversion-record",        "real-time inversion across shards",  "G1c-realtime",    "set field 0 of u (group 1) to t4, which was never observed"),
    ("stale-read-record-unseen",          "stale read",                         "G-single-realtime", "read u (group 1) as t1t2 (version 1), which was there before"),
    ("duplicate-application",             "duplicate application",              "duplicate",       "t1 stands in x (group 1) at places 1 and 3"),
    ("duplicate-application-register",    "duplicate application",              "duplicate",       "v1 was written to r (group 0) at versions 2 and 6"),
    ("duplicate-application-counter",     "duplicate application",              "duplicate",       "is 2, which is 1 more than was added to it; 0 more may have been"),
    ("lost-write",                        "lost acknowledged write",            "lost",            "t2 was appended to x (group 1), acknowledged, and is not in it"),
    ("lost-write-register",               "lost acknowledged write",            "lost",            "is at an earlier version when it is read later"),
    ("lost-write-counter",                "lost acknowledged write",            "lost",            "is less when it is read later"),
    ("aborted-read",                      "aborted read",                       "G1a",             "though its client received a refusal"),
    ("aborted-read-register",             "aborted read",                       "G1a",             "though its client received a refusal"),
    ("intermediate-read",                 "intermediate read",                  "G1b",             "in the middle of what one transaction appended"),
    ("intermediate-read-register",        "intermediate read",                  "G1b",             "which its transaction then wrote over"),
    ("intermediate-read-counter",         "intermediate read",                  "G1b",             "in the middle of a transaction"),
    ("internal-inconsistency",            "internal inconsistency",             "internal",        "does not see what it has read or written itself"),
    ("circular-information-flow",         "circular information flow",          "G1c",             "saw it: "),
    ("invented-value",                    "invented value",                     "garbage",         "t7 stands in x (group 1), which no transaction appended"),
    ("invented-value-stale",              "invented value",                     "garbage",         "t7 stands in x (group 1), which no transaction appended"),
    ("invented-value-register",           "invented value",                     "garbage",         "which no transaction wrote"),
    ("invented-value-stale-scan",         "no order",                           "no-order",        "all orders were tried"),
    ("stale-read-record",                 "stale read",                         "G-single-realtime", "T1 set field 0 of u (group 1) to t3"),
    ("lost-write-record",                 "lost acknowledged write",            "lost",            "field 0 of u (group 1) was set to t3, acknowledged, and is what it was before"),
    ("duplicate-application-record",      "duplicate application",              "duplicate",       "was t1 at version 1, then something else, and t1 again at version 5"),
    ("aborted-read-record",               "aborted read",                       "G1a",             "though its client received a refusal"),
    ("invented-value-record",             "invented value",                     "garbage",         "a field of u (group 1) had a value that no transaction wrote"),
    ("incompatible-order-record",         "incompatible order",                 "incompatible-order", "was read in two ways at version 3"),
    ("lost-update-conditions",            "lost update",                        "G-single",        "as version 1, and after that"),
    ("write-skew-conditions",             "write skew",                         "G2-item",         "as version 1, and after that"),
    ("condition-refused",                 "no order in real time",                           "no-order",        "all orders were tried"),
    ("condition-held",                    "no order",                           "no-order",        "all orders were tried"),
    ("phantom",                           "no order",                           "no-order",        "all orders were tried"),
    ("removed-and-there",                 "no order in real time",              "no-order",        "all orders were tried"),
    ("fractured-read-unknown-registers",  "no order",                           "no-order",        "all orders were tried"),
    ("fractured-read-unknown-writer",     "fractured read",                     "G-single",        "an unknown writer"),
    ("incompatible-order",                "incompatible order",                 "incompatible-order", "x (group 1) was read with t1 t2 at place 1 by one, and with t2 t1 by another"),
];

const RIGHT: [&str; 9] = [
    "right",
    "right-bank",
    "right-forms",
    "right-own-reads",
    "right-record",
    "right-record-zeros",
    "right-stale",
    "right-stale-ahead",
    "right-stale-scan",
];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/catalogue").join(format!("{name}.jsonl"))
}

fn look(name: &str) -> OrderReport {
    look_within(name, Effort::default())
}

fn look_within(name: &str, effort: Effort) -> OrderReport {
    let reader = Reader::open(&file(name)).unwrap();
    let header = reader.header.clone();
    check_within(&header, reader, effort).unwrap()
}

#[test]
fn every_anomaly_is_found_by_its_name_and_explained() {
    for (name, anomaly, class, explained) in CATALOGUE {
        let order = look(name);
        // An append that follows a read of the list also returned a length that contradicts the
        // read.
        let found: Vec<_> = order.anomalies.keys().filter(|name| **name != "wrong reply").collect();
        assert_eq!(found, [&anomaly], "{name}: {order:#?}");
        let evidence = order.evidence.iter().find(|one| one.anomaly == anomaly).unwrap();
        assert_eq!((evidence.anomaly, evidence.class.as_str()), (anomaly, class), "{name}");
        let (transactions, because) = (evidence.transactions.join(" "), evidence.because.join(" "));
        let text = format!("{} {transactions} {because}", evidence.what);
        assert!(text.contains(explained), "{name}: {order:#?}");
        assert!(!evidence.transactions.is_empty(), "{name}: {order:#?}");
        let only_time = [
            "stale read",
            "real-time inversion",
            "real-time inversion across shards",
            "no order in real time",
        ];
        assert_eq!(order.serializable, only_time.contains(&anomaly), "{name}");
        assert!(!order.strictly_serializable, "{name}");
    }
}

#[test]
fn what_is_right_is_not_found() {
    for name in RIGHT {
        let order = look(name);
        assert!(order.strictly_serializable && order.anomalies.is_empty(), "{name}: {order:#?}");
    }
}

#[test]
fn what_is_right_is_not_found_by_its_projections() {
    for name in RIGHT {
        let order = look_within(name, Effort { whole: Some(0), parts: None });
        assert!(order.is_open() && order.anomalies.is_empty(), "{name}: {order:#?}");
    }
}

#[test]
fn the_catalogue_is_whole() {
    let listed = fs::read_dir(file("right").parent().unwrap()).unwrap();
    let mut listed: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut known: Vec<String> =
        CATALOGUE.iter().map(|(name, ..)| format!("{name}.jsonl")).collect();
    known.extend(RIGHT.map(|name| format!("{name}.jsonl")));
    listed.sort();
    known.sort();
    assert_eq!(listed, known);
}
