//! `skein sim --store`: the store and its clients under faults drawn from seeds.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use skein_workloads::chart::grouped;
use skein_workloads::simulate::run;

use crate::exit::Exit;
use crate::output::say;
use crate::progress::{Bars, Interrupt};

/// What was run, and what came of it.
#[derive(Default, Serialize)]
struct Summary {
    seeds: u64,
    seconds: f64,
    operations: u64,
    unknown: u64,
    faults: u64,
    crashes: u64,
    failure: Option<Failed>,
}

#[derive(Serialize)]
struct Failed {
    seed: u64,
    what: String,
}

/// Runs seeds on all cores until one fails, or `until`; keeps the history of one that does.
pub(super) fn simulate(
    seeds: Range<u64>,
    until: Option<Instant>,
    history: Option<&Path>,
    json: bool,
) -> anyhow::Result<Exit> {
    let begun = Instant::now();
    let interrupt = Interrupt::listen()?;
    let bars = Bars::new(interrupt.clone());
    let bar = bars.line();
    let (next, over) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let summary = Mutex::new((Summary::default(), None));
    let work = || {
        while !over.load(Ordering::Relaxed) && !interrupt.asked() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || until.is_some_and(|until| Instant::now() >= until) {
                return;
            }
            let run = run(seed);
            let mut summary = summary.lock().expect("nobody panics with it");
            let (summary, failed) = &mut *summary;
            summary.seeds += 1;
            summary.operations += run.operations;
            summary.unknown += run.unknown;
            summary.faults += run.faults;
            summary.crashes += run.crashes;
            bar.set_message(format!("{} seeds", grouped(summary.seeds)));
            bar.tick();
            if run.wrong.is_some() && failed.is_none() {
                *failed = Some((seed, run));
                over.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(2, Into::into);
        (0..cores).for_each(|_| _ = scope.spawn(work));
    });
    bar.finish_and_clear();
    let (mut summary, failed) = summary.into_inner().expect("nobody panicked with it");
    summary.seconds = begun.elapsed().as_secs_f64();
    if let Some((seed, run)) = failed {
        if let Some(path) = history {
            run.keep(path).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let what = run.wrong.expect("it failed").trim().to_owned();
        summary.failure = Some(Failed { seed, what });
    }
    if json {
        say(serde_json::to_string(&summary)? + "\n")?;
    } else {
        say(summary.text())?;
    }
    Ok(if summary.failure.is_some() { Exit::No } else { Exit::Ok })
}

impl Summary {
    fn text(&self) -> String {
        let Self { seeds, seconds, operations, unknown, faults, crashes, failure } = self;
        let summary = format!(
            "{} seeds of the store in {seconds:.1} s: {} operations, {} of unknown outcome; {} faults, {} nodes died\n",
            grouped(*seeds),
            grouped(*operations),
            grouped(*unknown),
            grouped(*faults),
            grouped(*crashes),
        );
        match failure {
            Some(Failed { seed, what }) => format!("{summary}\nseed {seed}:\n{what}\n"),
            None => summary,
        }
    }
}
