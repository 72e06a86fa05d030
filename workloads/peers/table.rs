//! Medians of the alternating measurements, and the ratios of Skein to the other stores.

use std::collections::BTreeMap;
use std::fs;

use serde_json::json;
use skein_workloads::multicast::report::Spread;
use skein_workloads::neighbours::Neighbours;
use skein_workloads::report::{Machine, date};

use crate::led_anew::{LedAnew, Took};
use crate::{Line, Outcome};

/// The spread of a value over several runs.
fn spread(lines: &[Line], what: fn(&Line) -> f64) -> Spread {
    Spread::of(lines.iter().map(what))
}

/// Operation, clients, whether the cores were kept awake, neighbours.
type Load = (String, usize, bool, Option<Neighbours>);

/// The lines of a file, by load and store.
fn read(file: &str) -> Outcome<BTreeMap<Load, BTreeMap<String, Vec<Line>>>> {
    let mut runs: BTreeMap<Load, BTreeMap<String, Vec<Line>>> = BTreeMap::new();
    for line in fs::read_to_string(file)?.lines() {
        let line: Line = serde_json::from_str(line)?;
        let load = (line.asked.clone(), line.clients, line.awake, line.neighbours);
        runs.entry(load).or_default().entry(line.store.clone()).or_default().push(line);
    }
    Ok(runs)
}

/// Prints a report for `skein report`.
pub(crate) fn report(file: &str) -> Outcome<()> {
    let mut peers = Vec::new();
    for ((asked, clients, awake, neighbours), stores) in read(file)? {
        for (store, lines) in stores {
            peers.push(json!({
                "store": store, "asked": asked, "clients": clients, "awake": awake,
                "neighbours": neighbours, "rounds": lines.len(),
                "ops_per_s": spread(&lines, |line| line.ops_per_s),
                "p50_us": spread(&lines, |line| line.p50_us),
                "p99_us": spread(&lines, |line| line.p99_us),
                "errors": lines.iter().map(|line| line.errors).sum::<u64>(),
            }));
        }
    }
    let report = json!({
        "workload": "peers", "skein": skein_cluster::BUILD.to_string(), "date": date::now(),
        "command": "workloads/peers/run", "machine": Machine::here(),
        "topology": {"nodes": 3, "groups": 2, "replicas": 3, "engines": 1},
        "peers": peers,
    });
    println!("{report}");
    Ok(())
}

/// Prints a table of the lines of a file.
pub(crate) fn print(file: &str) -> Outcome<()> {
    let runs = read(file)?;
    println!(
        "| what | clients | store | operations/s (lowest to highest) | p50 µs | p99 µs | errors | skein does × | skein-ordered × |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((asked, clients, awake, neighbours), stores) in &runs {
        let beside = neighbours.as_ref().map_or_else(String::new, |it| format!(", beside {it}"));
        let clients = format!("{clients}{}{beside}", if *awake { ", awake" } else { "" });
        let rate = |lines: &[Line]| spread(lines, |line| line.ops_per_s);
        let ours =
            ["skein", "skein-ordered"].map(|ours| stores.get(ours).map(|lines| rate(lines).median));
        for (store, lines) in stores {
            let Spread { median, low, high } = rate(lines);
            let p50 = spread(lines, |line| line.p50_us).median;
            let p99 = spread(lines, |line| line.p99_us).median;
            let errors: u64 = lines.iter().map(|line| line.errors).sum();
            let [skein, ordered] = ours.map(|ours| {
                ours.map_or_else(|| "–".to_owned(), |ours| format!("{:.1}", ours / median))
            });
            println!(
                "| {asked} | {clients} | {store} | {median:.0} ({low:.0} to {high:.0}) | {p50:.1} | {p99:.1} | {errors} | {skein} | {ordered} |"
            );
        }
    }
    print_led_anew(runs.values().flat_map(|stores| stores.values()).flatten());
    Ok(())
}

/// Prints a table of the runs during which leaders changed: a row for each change, and the operations beside them.
fn print_led_anew<'a>(lines: impl Iterator<Item = &'a Line>) {
    let mut runs = lines.filter_map(|line| Some((line, line.led_anew.as_ref()?))).peekable();
    if runs.peek().is_none() {
        return;
    }
    println!(
        "\nChanges of all leaders, in milliseconds. Of the operations of a client that met one, \
         the slowest counts.\n\n\
         | what | clients | change | done | mean | least | most |\n|---|---|---|---|---|---|---|"
    );
    for (Line { asked, clients, .. }, led_anew) in runs {
        let row = |which: String, done: String, took: &Took| {
            let [mean, min, max] = [took.mean_us, took.min_us, took.max_us].map(|us| us / 1e3);
            println!(
                "| {asked} | {clients} | {which} | {done} | {mean:.1} | {min:.1} | {max:.1} |"
            );
        };
        let LedAnew { changes_ms, met, met_total, quiet_total, slowest } = led_anew;
        for (number, (done, took)) in (1..).zip(changes_ms.iter().zip(met)) {
            row(format!("{number}"), format!("{done:.0}"), took);
        }
        row("total".to_owned(), String::new(), met_total);
        row("none, as long".to_owned(), String::new(), quiet_total);
        row(format!("slowest {} of the run", slowest.operations), String::new(), slowest);
    }
}
