use serde_json::{Value, json};
use skein_client::ReadMode;
use skein_kvstore::slots::SlotMap;

use super::*;
use crate::generator::{Settings, once, run};
use crate::model::Model;

fn measured() -> (Measured, Bank) {
    let mut bank = Bank::new(&SlotMap::even(2), 2, 4, 2, 1, 1);
    let mut model = Model::default();
    once(&mut model, &bank.opening()).unwrap();
    let settings = Settings {
        clients: 3,
        sessions: 3,
        warm_up: Duration::ZERO,
        duration: Some(Duration::from_millis(100)),
        pace: None,
    };
    let measured = run(&mut model, &mut bank, settings, &mut |_| true);
    (measured, bank)
}

fn report(measured: &Measured) -> Report {
    let about = About {
        workload: "ycsb-a".into(),
        records: 1_000,
        clients: 3,
        terms: Terms {
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(1),
            sessions: None,
            rate: None,
            read_mode: ReadMode::default(),
            seed: 7,
        },
        skein: "0.1.0 (abc)".into(),
        topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
        durability: "memory".into(),
        store: "memory".into(),
        cross_core_ns: Some(120.0),
    };
    Report::new(about, &["transfer", "sum"], measured)
}

fn bank_report(measured: &Measured, bank: &Bank, sum: Option<i64>, pending: Option<u64>) -> Report {
    let mut report = report(measured).with_bank(bank, sum);
    report.bank.as_mut().unwrap().pending = pending;
    report
}

/// Replaces every number and text by its type, so that only the shape is left.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), shape(value))).collect()
        }
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        other => other.clone(),
    }
}

#[test]
fn the_names_that_scripts_read_do_not_change() {
    let (measured, bank) = measured();
    let mut report = bank_report(&measured, &bank, Some(400), Some(0));
    report.bank.as_mut().unwrap().waiting.push(WaitingReport {
        group: 0,
        results: 0.25,
        stalled: 0.0,
        replies_held: 3,
        held_us: 12.5,
    });
    let latency = json!({"p50": "number", "p95": "number", "p99": "number",
                         "p999": "number", "max": "number"});
    let operation = json!({"count": "number", "latency_us": latency,
                           "distribution_us": [["number"]]});
    let bank = json!({"accounts": "number", "readers": "number", "declined": "number",
                      "right_sums": "number", "expected_sum": "number", "final_sum": "number",
                      "pending": "number", "hot": "number", "transfers_least": "number",
                      "transfers_most": "number",
                      "waiting": [{"group": "number", "results": "number", "stalled": "number",
                                   "replies_held": "number", "held_us": "number"}]});
    let wanted = json!({
        "workload": "text",
        "ops_per_s": "number",
        "errors": "number",
        "errors_by_kind": {},
        "first_error": null,
        "ended_early": null,
        "operations": {"transfer": operation, "sum": operation},
        "records": "number",
        "load": null,
        "clients": "number",
        "sessions": "number",
        "read_mode": "text",
        "durability": "text",
        "store": "text",
        "duration_s": "number",
        "warmup_s": "number",
        "rate": null,
        "never_invoked": "number",
        "neighbours": null,
        "events": [],
        "seed": "number",
        "skein": "text",
        "date": "text",
        "command": "text",
        "machine": {"cores": "number", "model": "text"},
        "cross_core_ns": "number",
        "topology": {"nodes": "number", "groups": "number", "replicas": "number",
                     "engines": "number"},
        "timeline": {"interval_ms": "number", "ops": ["number"]},
        "bank": bank,
    });
    let found = serde_json::to_value(&report).unwrap();
    assert_eq!(shape(&found), wanted);
    assert_described(&found, "## `bench ycsb`");
}

#[test]
fn percentiles_rise_and_are_in_microseconds() {
    let mut latencies = Histogram::new_with_bounds(1, 1_000_000_000, 3).unwrap();
    (1..=1_000u64).for_each(|micros| latencies.record(micros * 1_000).unwrap());
    let Latency { p50, p95, p99, p999, max } = Latency::from(&latencies);
    for (found, wanted) in [(p50, 500.0), (p95, 950.0), (p99, 990.0), (p999, 999.0), (max, 1e3)] {
        assert!((found / wanted - 1.0_f64).abs() < 0.002, "{found} instead of {wanted}");
    }
}

#[test]
fn only_a_whole_run_without_errors_is_good() {
    let (measured, bank) = measured();
    assert!(report(&measured).is_good());
    let bank_report = |sum, pending| bank_report(&measured, &bank, sum, pending);
    assert!(bank_report(Some(400), Some(0)).is_good());
    assert!(!bank_report(None, Some(0)).is_good());
    assert!(!bank_report(Some(400), Some(3)).is_good());
    assert!(!bank_report(Some(400), None).is_good());
    let mut cut = measured.clone();
    cut.ended_early = Some("interrupted".into());
    assert!(!report(&cut).is_good());
    assert!(report(&cut).table(false).contains("ended early: interrupted"));
    let mut wrong = measured;
    wrong.errors.add("wrong_sum", || "401 instead of 400".into());
    assert!(!report(&wrong).is_good());
    let table = report(&wrong).table(false);
    assert!(table.contains("1 errors: 1 wrong_sum") && table.contains("401 instead of 400"));
}
