//! `doctor --workload`: which ordering suits the load of a report.

use std::fs;

use serde_json::{Value, json};

use crate::support::Sandbox;

const MULTICAST: [&str; 9] =
    ["bench", "multicast", "--simulated", "--duration", "0.004", "--runs", "1", "--seed", "1"];

/// Writes a file beside the cluster's directory. Returns its path.
fn file(sandbox: &Sandbox, name: &str, text: &str) -> String {
    let path = sandbox.dir.with_file_name(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn multicast(sandbox: &Sandbox, load: &[&str]) -> String {
    sandbox.expect(0, &[&MULTICAST[..], load, &["--json"]].concat()).out
}

#[test]
fn a_comparison_and_a_single_report_are_advised_on_without_a_cluster() {
    let sandbox = Sandbox::new();
    let both = multicast(&sandbox, &["--groups", "8", "--compare", "--tree", "breadth"]);
    let compared = file(&sandbox, "both.json", &both);
    let doctor = ["doctor", "--workload", compared.as_str()];
    let said = sandbox.expect(0, &doctor).out;
    for words in ["use tram along breadth", "measured in this file", "what a tree costs"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let advice = sandbox.expect(0, &[&doctor[..], &["--json"]].concat()).out;
    let advice: Value = serde_json::from_str(&advice).expect("one JSON object");
    let kind = &advice["loads"][0]["kinds"][0];
    assert_eq!((&kind["verdict"], &kind["basis"]), (&json!("tree"), &json!("file")), "{advice}");
    assert_eq!(kind["tree"], "breadth");
    assert_eq!(advice["loads"][0]["reports"], json!([1, 2]));

    let alone =
        multicast(&sandbox, &["--groups", "8", "--dst", "2", "--clients", "8", "--window", "16"]);
    let alone = file(&sandbox, "alone.json", &alone);
    let advice = sandbox.expect(0, &["doctor", "--workload", &alone, "--json"]).out;
    let advice: Value = serde_json::from_str(&advice).expect("one JSON object");
    let load = &advice["loads"][0];
    assert_eq!((&load["weight"], &load["kinds"][0]["basis"]), (&json!("heavy"), &json!("table")));
    assert_eq!(
        (&load["kinds"][0]["row"], &load["kinds"][0]["verdict"]),
        (&json!([2, 8]), &json!("ramcast"))
    );
    assert!(!sandbox.dir.exists(), "no cluster was made");
}

#[test]
fn names_in_the_advice_are_those_of_the_schema() {
    let sandbox = Sandbox::new();
    let report = file(&sandbox, "one.json", &multicast(&sandbox, &["--groups", "3"]));
    let advice = sandbox.expect(0, &["doctor", "--workload", &report, "--json"]).out;
    let advice: Value = serde_json::from_str(&advice).expect("one JSON object");
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schema.md");
    let schema = fs::read_to_string(schema).unwrap();
    let (_, section) = schema.split_once("## `doctor --workload FILE`").expect("a section");
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let load = &advice["loads"][0];
    let all = [&advice, load, &load["kinds"][0], &load["kinds"][0]["ratios"][0]].map(names);
    for name in all.iter().flatten() {
        let said = [format!("`{name}`"), format!(".{name}`")];
        assert!(said.iter().any(|said| section.contains(said)), "{name} is not in docs/schema.md");
    }
}

#[test]
fn a_file_that_is_no_report_of_a_load_is_refused_by_name() {
    let sandbox = Sandbox::new();
    let report = multicast(&sandbox, &["--groups", "2"]);
    let mut other: Value = serde_json::from_str(&report).unwrap();
    other["skein"] = "9.8.7 (abc)".into();
    #[rustfmt::skip]
    let cases = [
        ("empty.json",  "",                  "it is empty"),
        ("text.json",   "hello",             "no report of a benchmark"),
        ("other.json",  &other.to_string(),  "printed by skein 9.8.7"),
        ("cut.json",    &report[..200],      "no report of a benchmark"),
    ];
    for (name, text, why) in cases {
        let path = file(&sandbox, name, text);
        for json in [&[][..], &["--json"]] {
            let refused = sandbox.expect(2, &[&["doctor", "--workload", &path], json].concat());
            assert!(refused.err.contains(&path) && refused.err.contains(why), "{}", refused.err);
            assert_eq!(refused.out, "");
        }
    }
    let bytes = sandbox.dir.with_file_name("bytes.json");
    fs::write(&bytes, [0xff, 0xfe, 0x00]).unwrap();
    let refused = sandbox.expect(2, &["doctor", "--workload", bytes.to_str().unwrap()]);
    assert!(refused.err.contains("bytes.json: it is no report"), "{}", refused.err);
    let refused = sandbox.expect(2, &["doctor", "--workload", "/nowhere/report.json"]);
    assert!(refused.err.contains("cannot read /nowhere/report.json"), "{}", refused.err);
    let refused = sandbox.expect(2, &["doctor", "--workload"]);
    assert!(refused.err.contains("a value is required"), "{}", refused.err);
}
