//! Time of the check: writes a history of a million operations, or of the number given, reads it
//! back and checks it.
//!
//! ```console
//! $ cargo run --release -p skein-workloads --bin million
//! $ cargo run --release -p skein-workloads --bin million -- 100000 hot
//! ```
//!
//! With `hot`, there is one list, which is read whole each time: the bytes read are quadratic in
//! the bytes written.

#[path = "../../checker/tests/all/serializable/simulated/mod.rs"]
mod simulated;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Instant;

use simulated::{Plan, header, history};
use skein_checker::check::check;
use skein_checker::history::{Reader, Record, line};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let transactions = match arguments.first() {
        Some(count) => count.parse()?,
        None => 1_000_000,
    };
    let hot = arguments.get(1).is_some_and(|argument| argument == "hot");
    let plan = Plan {
        seed: 1,
        transactions,
        clients: 32,
        keys: if hot { 1 } else { 64 },
        list_for: if hot { usize::MAX } else { 2_000 },
        unknown: 1,
        refused: 1,
    };
    let path = std::env::temp_dir().join(format!("skein-million-{}.jsonl", std::process::id()));
    let mut file = BufWriter::new(File::create_new(&path)?);
    line(&mut file, &Record::Header(Box::new(header())))?;
    let records = history(plan);
    records.iter().try_for_each(|record| line(&mut file, record))?;
    file.flush()?;
    drop((file, records));
    let bytes = path.metadata()?.len();

    // Memory used to make the history does not count.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = memory();
    let clock = Instant::now();
    let reader = Reader::open(&path)?;
    let header = reader.header.clone();
    let order = check(&header, reader)?;
    let took = clock.elapsed();
    std::fs::remove_file(&path)?;
    println!(
        "{} transactions, {:.1} MB: {:.2} s, {} edges; at most {} MiB, of which {} before",
        order.transactions,
        bytes as f64 / 1e6,
        took.as_secs_f64(),
        order.edges,
        memory() / 1024,
        before / 1024,
    );
    assert!(order.strictly_serializable, "{order:#?}");
    Ok(())
}

/// Peak of this process's resident memory, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or_default()
}
