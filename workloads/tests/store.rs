//! The whole store on the simulated fabric: what clients are told, seed by seed.
//!
//! `SKEIN_SEEDS=100..200` runs other seeds; `skein sim --store` does too.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use skein_workloads::simulate::run;

/// What every test run runs.
const RUNS: Range<u64> = 0..150;

fn seeds() -> Range<u64> {
    let Ok(range) = std::env::var("SKEIN_SEEDS") else { return RUNS };
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn what_clients_are_told_is_strictly_serializable() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    let counts: [AtomicU64; 4] = Default::default();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = run(seed);
            for (count, more) in
                counts.iter().zip([run.operations, run.unknown, run.faults, run.crashes])
            {
                count.fetch_add(more, Ordering::Relaxed);
            }
            if let Some(wrong) = run.wrong {
                failures.lock().unwrap().push(format!("seed {seed}: {wrong}"));
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(2, Into::into);
        (0..cores).for_each(|_| _ = scope.spawn(work));
    });
    let failures = failures.into_inner().unwrap();
    let [operations, unknown, faults, crashes] = counts.map(AtomicU64::into_inner);
    println!("{operations} operations, {unknown} unknown, {faults} faults, {crashes} nodes died");
    assert!(failures.is_empty(), "{} seeds fail\n{}", failures.len(), failures.join("\n\n"));
    // Or little was tried.
    let tried = seeds.end - seeds.start;
    assert!(operations > 100 * tried && faults > tried && crashes > tried / 4 && unknown > 0);
}

#[test]
fn a_seed_is_one_run() {
    let (one, two) = (run(7), run(7));
    assert_eq!(one.fingerprint, two.fingerprint);
    assert!(one.records == two.records);
}
