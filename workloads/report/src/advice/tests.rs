use serde_json::Value;

use super::choice::Basis;
use super::*;

/// A report that the binary printed, as if by this version.
fn fixture(name: &str) -> String {
    let text = match name {
        "all-groups" => include_str!("fixtures/all-groups.json"),
        "two-groups" => include_str!("fixtures/two-groups.json"),
        "one-group" => include_str!("fixtures/one-group.json"),
        "adjacent" => include_str!("fixtures/adjacent.json"),
        "ycsb-a" => include_str!("fixtures/ycsb-a.json"),
        "ycsb-e" => include_str!("fixtures/ycsb-e.json"),
        "bank" => include_str!("fixtures/bank.json"),
        "smallbank" => include_str!("fixtures/smallbank.json"),
        "retwis" => include_str!("fixtures/retwis.json"),
        "idle" => include_str!("fixtures/idle.json"),
        _ => panic!("no such fixture"),
    };
    text.replace("\"skein\":\"0.1.0 ", &format!("\"skein\":\"{VERSION} "))
}

/// The report with one field changed.
fn changed(text: &str, change: impl Fn(&mut Value)) -> String {
    let mut value: Value = serde_json::from_str(text).unwrap();
    change(&mut value);
    value.to_string()
}

#[track_caller]
fn one(text: &str) -> Load {
    let advice = advise("a.json", text).unwrap();
    let [load] = &advice.loads[..] else { panic!("one load: {advice:?}") };
    load.clone()
}

fn said(text: &str) -> String {
    words(&advise("a.json", text).unwrap())
}

#[track_caller]
fn kind<'a>(load: &'a Load, name: &str) -> &'a Kind {
    load.kinds.iter().find(|kind| kind.kind == name).unwrap()
}

#[test]
fn a_file_with_both_orderings_is_judged_by_its_own_ratios() {
    let text = fixture("all-groups");
    let load = one(&text);
    assert_eq!(load.reports, [1, 2, 3, 4], "they differ in the ordering alone");
    let choice = &load.main().unwrap().choice;
    assert_eq!((choice.verdict, choice.basis, choice.row), (Verdict::Tree, Basis::File, None));
    assert_eq!(choice.tree.as_deref(), Some("breadth"));
    let trees: Vec<_> = choice.ratios.iter().map(|ratio| ratio.tree.as_str()).collect();
    assert_eq!(trees, ["breadth", "base", "depth"], "the best one first");
    let said = said(&text);
    for words in [
        "multicast to 8 of 8 groups, all of them",
        "reports 1, 2, 3, 4 of a.json",
        "use tram along breadth",
        "measured in this file: breadth wins",
        "what a tree costs",
        "an inner group (g0) without a quorum",
        "skein up --order tram --tree breadth",
        "docs/protocols/tram.md",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("the table"), "{said}");
}

#[test]
fn a_file_with_one_ordering_is_judged_by_the_table() {
    let all: Vec<String> = fixture("all-groups").lines().map(str::to_owned).collect();
    for report in &all {
        let choice = one(report).main().unwrap().choice.clone();
        assert_eq!((choice.basis, choice.row), (Basis::Table, Some([8, 8])));
        assert_eq!((choice.verdict, choice.tree.as_deref()), (Verdict::Tree, Some("breadth")));
    }
    let text = fixture("two-groups");
    assert_eq!(one(&text).main().unwrap().choice.verdict, Verdict::Ramcast);
    let said = said(&text);
    for words in [
        "use ramcast\n",
        "the table's row of 2 of 8 groups: ramcast wins",
        "one message in flight",
        table::PAGE,
        "skein bench multicast --simulated --hardware xl170 --groups 8 --dst 2 --payload 64 --clients 1 --window 1 \
         --compare --tree breadth --runs 5 --json",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("what a tree costs"), "{said}");
}

#[test]
fn the_table_says_nothing_of_payloads_that_stand_in_no_entry() {
    let with =
        |bytes: u64| changed(&fixture("two-groups"), |it| it["payload_bytes"] = bytes.into());
    assert_eq!(one(&with(4_096)).main().unwrap().choice.basis, Basis::Table);
    let large = with(4_097);
    assert_eq!(one(&large).main().unwrap().choice, Choice::unknown());
    let said = said(&large);
    for words in ["use ramcast until both are measured", "of more than 4,096 B", "--payload 4097"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    // What both orderings did with them counts.
    let large = |report| changed(report, |it| it["payload_bytes"] = 16_384.into());
    let both: Vec<_> = fixture("all-groups").lines().map(large).collect();
    assert_eq!(one(&both.join("\n")).main().unwrap().choice.basis, Basis::File);
}

#[test]
fn what_is_in_flight_chooses_the_column() {
    let text = fixture("two-groups");
    let with = |clients: u64, window: u64| {
        let change = |value: &mut Value| {
            value["clients"] = clients.into();
            value["window"] = window.into();
        };
        one(&changed(&text, change)).weight
    };
    assert_eq!(with(11, 1), Weight::Light);
    assert_eq!(with(3, 4), Weight::Heavy);
    let open = |rate: f64| {
        // 15 µs each, whatever the window is.
        let change = |value: &mut Value| {
            value["rate"] = rate.into();
            value["window"] = 64.into();
            value["messages_per_s"]["median"] = rate.into();
        };
        one(&changed(&text, change)).weight
    };
    assert_eq!((open(1e4), open(1e6)), (Weight::Light, Weight::Heavy));
}

#[test]
fn adjacent_destinations_are_compared_in_their_own_tree() {
    let load = one(&fixture("adjacent"));
    let choice = &load.main().unwrap().choice;
    let trees: Vec<_> = choice.ratios.iter().map(|ratio| ratio.tree.as_str()).collect();
    assert_eq!((trees, choice.row), (vec!["depth"], Some([2, 8])));
    assert!(load.load.contains("adjacent in depth"), "{}", load.load);
    assert!(load.measure.contains("--adjacent --compare --tree depth"), "{}", load.measure);

    let other =
        changed(&fixture("adjacent"), |value| value["tree"] = "[-1, 0, 0, 1, 1, 2, 2, 3]".into());
    assert_eq!(one(&other).main().unwrap().choice.verdict, Verdict::Unknown);
    assert!(said(&other).contains("not known: measure it"));
}

#[test]
fn messages_to_one_group_make_no_difference() {
    let text = fixture("one-group");
    let choice = one(&text).main().unwrap().choice.clone();
    assert_eq!((choice.verdict, choice.basis), (Verdict::Either, Basis::Definition));
    assert!(said(&text).contains("only messages to several groups are ordered along a tree"));
}

#[test]
fn ratios_within_noise_are_no_difference() {
    let [ramcast, breadth] =
        [0, 1].map(|line| fixture("all-groups").lines().nth(line).unwrap().to_owned());
    let spread = |median: f64, width: f64| serde_json::json!({"median": median, "low": median - width, "high": median + width});
    let both = |throughput: f64, latency: f64, width: f64| {
        let of = |report: &str, throughput: f64, latency: f64| {
            changed(report, |value| {
                value["messages_per_s"] = spread(throughput, width);
                value["p50_us"] = spread(latency, width);
            })
        };
        let text = of(&ramcast, 100.0, 100.0) + "\n" + &of(&breadth, throughput, latency);
        one(&text).main().unwrap().choice.clone()
    };
    #[rustfmt::skip]
    let cases = [
        (105.0,  95.0,  0.0, Verdict::Either),
        ( 95.0, 105.0,  0.0, Verdict::Either),
        (115.0, 100.0,  0.0, Verdict::Tree),
        (100.0,  85.0,  0.0, Verdict::Tree),
        ( 85.0, 100.0,  0.0, Verdict::Ramcast),
        (100.0, 115.0,  0.0, Verdict::Ramcast),
        (130.0, 120.0,  0.0, Verdict::Mixed),
        ( 80.0,  70.0,  0.0, Verdict::Mixed),
        (130.0,  70.0, 20.0, Verdict::Either),
        (130.0,  70.0, 10.0, Verdict::Tree),
    ];
    for (throughput, latency, width, wanted) in cases {
        let found = both(throughput, latency, width);
        assert_eq!(found.verdict, wanted, "{throughput}, {latency}, {width}");
        assert_eq!(found.basis, Basis::File);
    }
    assert!(both(130.0, 70.0, 20.0).ratios[0].overlap);
}

#[test]
fn another_tree_within_noise_of_the_best_is_named() {
    let lines: Vec<String> = fixture("all-groups").lines().map(str::to_owned).collect();
    let base = changed(&lines[1], |value| value["tree"] = "base".into());
    let choice =
        one(&[&lines[0], &lines[1], &base].map(String::as_str).join("\n")).kinds[0].choice.clone();
    assert_eq!(
        (choice.tree.as_deref(), &choice.equals[..]),
        (Some("base"), &["breadth".to_owned()][..])
    );
}

#[test]
fn what_no_cluster_runs_and_what_failed_is_not_used() {
    let lines: Vec<String> = fixture("all-groups").lines().map(str::to_owned).collect();
    let ungated = changed(&lines[1], |value| value["ungated"] = true.into());
    let failed = changed(&lines[2], |value| value["runs"][0]["errors"] = 1.into());
    let early = changed(&lines[3], |value| value["runs"][0]["ended_early"] = "interrupted".into());
    let text = [&lines[0], &ungated, &failed, &early].map(String::as_str).join("\n");
    let load = one(&text);
    assert_eq!(load.main().unwrap().choice.basis, Basis::Table);
    assert_eq!(load.reports, [1, 2, 3, 4]);
    assert_eq!(load.notes.len(), 3, "{:?}", load.notes);
    let said = said(&text);
    assert!(said.contains("report 2 is ungated"), "{said}");
    assert!(said.contains("report 3 ended early or has errors"), "{said}");
}

#[test]
fn loads_of_the_store_are_judged_by_what_their_operations_address() {
    let ycsb = one(&fixture("ycsb-a"));
    assert!(ycsb.kinds.iter().all(|kind| kind.addressed == Some(1)), "{ycsb:?}");
    assert_eq!(ycsb.main().unwrap().choice.verdict, Verdict::Either);

    let scans = one(&fixture("ycsb-e"));
    let first = scans.main().unwrap();
    assert_eq!(
        (first.kind.as_str(), first.addressed, first.choice.row),
        ("scan", Some(4), Some([4, 4]))
    );
    assert_eq!(kind(&scans, "insert").addressed, Some(1));
    let lease = one(&changed(&fixture("ycsb-e"), |value| value["read_mode"] = "lease".into()));
    let first = lease.main().unwrap();
    assert_eq!((first.addressed, first.choice.basis), (None, Basis::Definition));

    let bank = one(&fixture("bank"));
    let of = |name| kind(&bank, name).addressed;
    assert_eq!((of("transfer"), of("sum")), (Some(2), Some(4)));
    let shares: f64 = bank.kinds.iter().map(|kind| kind.share).sum();
    assert!((shares - 1.0).abs() < 1e-9 && bank.kinds.is_sorted_by(|a, b| a.share >= b.share));
    let alone = one(&changed(&fixture("bank"), |value| value["topology"]["groups"] = 1.into()));
    assert!(alone.kinds.iter().all(|kind| kind.addressed == Some(1)), "{alone:?}");

    let smallbank = one(&fixture("smallbank"));
    let of = |name| kind(&smallbank, name).addressed;
    assert_eq!((of("send_payment"), of("amalgamate")), (Some(2), Some(2)));
    assert_eq!((of("balance"), of("write_check")), (Some(1), Some(1)));
}

#[test]
fn a_load_whose_groups_are_not_reported_is_not_judged() {
    let text = fixture("retwis");
    let load = one(&text);
    assert!(load.kinds.iter().all(|kind| kind.choice.verdict == Verdict::Unknown));
    let said = said(&text);
    for words in [
        "use ramcast until both are measured",
        "the report does not say how many groups",
        "not known: measure it",
        "skein bench multicast --groups 4 --dst 2 --clients 4 --compare",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn several_loads_in_a_file_are_judged_one_by_one() {
    let text = fixture("bank") + "\n" + &fixture("two-groups") + "\n" + &fixture("bank");
    let advice = advise("a.json", &text).unwrap();
    let reports: Vec<_> = advice.loads.iter().map(|load| load.reports.clone()).collect();
    assert_eq!(reports, [vec![1, 3], vec![2]]);
}

#[test]
fn what_is_no_report_of_a_load_is_refused() {
    let two = fixture("two-groups");
    let with = |change: fn(&mut Value)| changed(&two, change);
    #[rustfmt::skip]
    let cases = [
        (String::new(),                                                    "it is empty"),
        ("text".into(),                                                    "no report of a benchmark"),
        ("[1, 2]".into(),                                                  "no report of a benchmark"),
        ("{\"workload\": ".into(),                                         "no report of a benchmark"),
        (two.clone() + "{}",                                               "no report of a benchmark"),
        (fixture("idle"),                                                  "report 1 is of `idle`"),
        (two.clone() + "\n" + &fixture("idle"),                            "report 2 is of `idle`"),
        (with(|value| value["skein"] = "9.8.7 (abc)".into()),              "report 1 was printed by skein 9.8.7 (abc)"),
        (with(|value| value["topology"]["groups"] = 0.into()),             "a cluster of 0 groups"),
        (with(|value| value["topology"]["groups"] = 65.into()),            "a cluster of 65 groups"),
        (with(|value| value["destinations"] = 0.into()),                   "messages to 0 of 8 groups"),
        (with(|value| value["destinations"] = 9.into()),                   "messages to 9 of 8 groups"),
        (changed(&fixture("bank"), |value| value["operations"] = serde_json::json!({})), "nothing was measured"),
        (changed(&fixture("bank"), |value| value["topology"]["groups"] = 1000.into()),   "a cluster of 1000 groups"),
    ];
    for (text, wanted) in cases {
        let why = advise("a.json", &text).unwrap_err();
        assert!(why.contains(wanted), "{wanted}: {why}");
    }
    let old = with(|value| value["skein"] = "9.8.7".into());
    let fields =
        changed(&old, |value| drop(value.as_object_mut().unwrap().remove("payload_bytes")));
    assert!(
        advise("a.json", &fields).unwrap_err().contains("skein 9.8.7"),
        "before its fields are read"
    );
}
