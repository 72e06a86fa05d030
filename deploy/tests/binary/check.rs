//! `skein check`, on histories of the catalogue.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::Sandbox;

fn catalogue(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = path.join("../workloads/checker/tests/catalogue").join(format!("{name}.jsonl"));
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_right_history_is_right_and_a_wrong_one_is_explained() {
    let sandbox = Sandbox::new();
    let right = sandbox.expect(0, &["check", &catalogue("right")]);
    assert!(right.out.contains("strictly serializable"), "{}", right.out);
    let wrong = sandbox.expect(1, &["check", &catalogue("write-skew")]);
    for part in ["1 × write skew", "G2-item; not serializable", "T1 before T2: ", "and only then T"]
    {
        assert!(wrong.out.contains(part), "{part}: {}", wrong.out);
    }
    let path = catalogue("real-time-inversion-across-shards");
    let wrong = sandbox.expect(1, &["check", &path, "--json"]);
    let report: Value = serde_json::from_str(&wrong.out).expect("one JSON object");
    let order = &report["order"];
    assert_eq!(
        (&report["good"], &order["serializable"]),
        (&false.into(), &true.into()),
        "{report}"
    );
    assert_eq!(order["anomalies"], serde_json::json!({"real-time inversion across shards": 1}));
    assert_eq!(order["evidence"][0]["class"], "G1c-realtime", "{report}");
}

#[test]
fn what_is_no_history_is_said() {
    let sandbox = Sandbox::new();
    let root = sandbox.dir.parent().expect("a directory in another").join("histories");
    fs::create_dir(&root).expect("a directory");
    let whole = fs::read_to_string(catalogue("right")).expect("it is there");
    let header = whole.lines().next().expect("a header");
    let end = "{\"end\":{\"t\":1000}}\n";
    #[rustfmt::skip]
    let cases = [
        ("empty",    2, String::new(),                                     "does not begin with the header"),
        ("idle",     2, format!("{header}\n{end}"),                         "nothing to judge: of 0 operations none was answered"),
        ("silent",   2, format!("{header}\n{{\"invoke\":{{\"t\":1,\"p\":1,\"ops\":[{{\"get\":\"k\"}}]}}}}\n{{\"unknown\":{{\"t\":2,\"p\":1,\"why\":\"no reply\"}}}}\n{end}"),
                        "nothing to judge: of 1 operations none was answered"),
        ("picture",  2, "\u{7f}ELF\0\0\0".to_owned(),                      "does not begin with the header"),
        ("other",    2, whole.replace("\"format\":", "\"format\":9"),      "this program reads format"),
        ("spoilt",   2, format!("{header}\nnot JSON\n{end}"),              "spoilt:2: not a record"),
        ("short",    1, whole.replace(end, ""),                            "breaks off"),
        ("torn",     1, whole[..whole.len() - 5].to_owned(),               "breaks off"),
        ("twice",    1, format!("{header}\n{{\"ok\":{{\"t\":1,\"p\":1,\"out\":[]}}}}\n{end}"), "without"),
        ("tokens",   2, whole.replace("\"token_bytes\":2", "\"token_bytes\":0"), "tokens:1: not a record"),
        ("width",    1, whole.replace("\"token_bytes\":2", "\"token_bytes\":1"), "writes the token"),
        ("no group", 2, whole.replace("\"groups\":2", "\"groups\":0"),       "groups = 0"),
        ("renamed",  2, whole.replacen("\"ops\":", "\"if_any\":[],\"ops\":", 1), "unknown field `if_any`"),
        ("early",    1, whole.replacen("{\"t\":10,", "{\"t\":5000,", 1),       "invoked at 5000 and answered at"),
        ("goes on",  1, format!("{whole}{{\"final\":{{\"t\":1,\"key\":\"k\",\"value\":null}}}}\n"), "after its end"),
    ];
    for (name, code, text, wanted) in cases {
        let path = root.join(name);
        fs::write(&path, text).expect("a file");
        let ended = sandbox.expect(code, &["check", path.to_str().expect("text")]);
        let said = format!("{}{}", ended.out, ended.err);
        assert!(said.contains(wanted), "{name}: {said}");
    }
    let ended = sandbox.expect(2, &["check", root.join("nothing").to_str().expect("text")]);
    assert!(ended.err.contains("cannot read") && ended.err.contains("nothing"), "{}", ended.err);
}

#[test]
fn what_benchmarks_record_is_checked_and_can_be_judged_by_others() {
    let sandbox = Sandbox::new();
    sandbox.expect(0, &["up", "--detach"]);
    let root = sandbox.dir.parent().expect("a directory in another").to_owned();
    let file = |name: &str| root.join(name).to_str().expect("text").to_owned();
    let (ycsb, bank, name) = (file("ycsb.jsonl"), file("bank.jsonl"), file("bank"));
    let brief = ["--duration", "0.5", "--warmup", "0", "--history"];
    let workload = ["bench", "ycsb", "-w", "f", "--records", "500"];
    sandbox.expect(0, &[&workload[..], &brief, &[&ycsb]].concat());
    sandbox.expect(0, &[&["bench", "bank"][..], &brief, &[&bank]].concat());
    for (path, keys) in [(&ycsb, "records"), (&bank, "others")] {
        let ended = sandbox.run(&["check", path, "--json"]);
        let report: Value = serde_json::from_str(&ended.out).expect("one JSON object");
        assert_eq!(report["order"]["serializable"], true, "{report}");
        assert_eq!(report["verdict"]["wrong"], serde_json::json!({}), "{report}");
        assert!(report["order"]["keys"][keys].as_u64() > Some(0), "{report}");
    }
    let write_skew = catalogue("write-skew");
    sandbox.expect(1, &["check", &write_skew, "--edn", &name]);
    let lists = fs::read_to_string(format!("{name}.list-append.edn")).expect("it was written");
    assert!(
        lists.starts_with("{:index 0, :time 10, :type :invoke, :process 1, :f :txn"),
        "{lists}"
    );
    let registers = fs::read_to_string(format!("{name}.rw-register.edn")).expect("it was written");
    assert_eq!(registers, "", "there are none");
    let ended = sandbox.expect(3, &["check", &write_skew, "--edn", &name]);
    assert!(ended.err.contains("cannot write"), "what is there stays: {}", ended.err);
}
