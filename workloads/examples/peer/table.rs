//! Medians of what was measured in turn, and how many times Skein does what another store does.

use std::collections::BTreeMap;
use std::fs;

use crate::{Line, Outcome};

/// Of several runs: the median, the lowest and the highest.
fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    [values[last / 2], values[0], values[last]]
}

/// Prints a table of the lines of a file.
pub(crate) fn print(file: &str) -> Outcome<()> {
    let mut runs: BTreeMap<(String, usize, bool), BTreeMap<String, Vec<Line>>> = BTreeMap::new();
    for line in fs::read_to_string(file)?.lines() {
        let line: Line = serde_json::from_str(line)?;
        let stores = runs.entry((line.asked.clone(), line.clients, line.awake)).or_default();
        stores.entry(line.store.clone()).or_default().push(line);
    }
    println!(
        "| what | clients | store | operations/s (lowest to highest) | p50 µs | p99 µs | errors | skein does × | skein-ordered × |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ((asked, clients, awake), stores) in runs {
        let clients = format!("{clients}{}", if awake { ", awake" } else { "" });
        let rate = |lines: &[Line]| spread(lines.iter().map(|line| line.ops_per_s).collect());
        let ours =
            ["skein", "skein-ordered"].map(|ours| stores.get(ours).map(|lines| rate(lines)[0]));
        for (store, lines) in &stores {
            let [median, low, high] = rate(lines);
            let [p50, ..] = spread(lines.iter().map(|line| line.p50_us).collect());
            let [p99, ..] = spread(lines.iter().map(|line| line.p99_us).collect());
            let errors: u64 = lines.iter().map(|line| line.errors).sum();
            let [skein, ordered] = ours.map(|ours| {
                ours.map_or_else(|| "–".to_owned(), |ours| format!("{:.1}", ours / median))
            });
            println!(
                "| {asked} | {clients} | {store} | {median:.0} ({low:.0} to {high:.0}) | {p50:.1} | {p99:.1} | {errors} | {skein} | {ordered} |"
            );
        }
    }
    Ok(())
}
