//! `skein sim --store`: the store and its clients under faults drawn from seeds.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context as _;
use serde::Serialize;
use skein_checker::chart::grouped;
use skein_checker::history::Coverage;
use skein_multicast::simulate::on_threads;
use skein_workloads::simulate::{Run, run_ordered_by};

use super::failures::STORE;
use super::{Args, Files, of_the_store};
use crate::exit::{Exit, usage};
use crate::output::say;
use crate::progress::{Bars, Interrupt};

/// The result of a campaign.
#[derive(Default, Serialize)]
struct Summary {
    ordering: String,
    from: u64,
    seeds: u64,
    failed: u64,
    seconds: f64,
    seeds_per_second: f64,
    operations: u64,
    unknown: u64,
    faults: u64,
    crashes: u64,
    /// Command forms by outcome.
    #[serde(skip)]
    coverage: Coverage,
    /// The first failure.
    failure: Option<Failed>,
}

#[derive(Serialize)]
struct Failed {
    seed: u64,
    what: String,
}

/// Runs seeds until one fails, or all seeds if failures are kept in a file. Keeps the history of
/// the first failure.
pub(super) fn simulate(args: &Args) -> anyhow::Result<Exit> {
    if !args.ordering.orders_several_groups() {
        return Err(usage(format!(
            "the ordering {} orders a single group, and the store of a seed may have several; name another",
            args.ordering
        )));
    }
    let (begun, seeds) = (Instant::now(), args.seeds.range(args.from).map_err(usage)?);
    let until = args.until(begun);
    let files = Files::open(args)?;
    let read = |line: &str| line.split(' ').next()?.parse().ok();
    let kept: Vec<u64> = match &files.failures {
        Some(failures) => failures.known(of_the_store, read)?,
        None => Vec::new(),
    };
    let interrupt = Interrupt::listen()?;
    let bars = Bars::new(interrupt.clone());
    let bar = bars.line();
    let (first, next) = (AtomicUsize::new(0), AtomicU64::new(seeds.start));
    let over = AtomicBool::new(false);
    let (ordering, from) = (args.ordering.to_string(), seeds.start);
    let none = Summary { ordering, from, ..Summary::default() };
    let summary = Mutex::new((none, None::<Run>));
    let unkept = Mutex::new(None);
    on_threads(args.jobs(), || {
        if over.load(Relaxed) || interrupt.asked() {
            return false;
        }
        let seed = match kept.get(first.fetch_add(1, Relaxed)) {
            Some(seed) => *seed,
            None => next.fetch_add(1, Relaxed),
        };
        let late = until.is_some_and(|until| Instant::now() >= until);
        if !kept.contains(&seed) && (late || seed >= seeds.end) {
            return false;
        }
        let run = run_ordered_by(seed, args.ordering).expect("it orders several groups");
        let written = if let Some(wrong) = &run.wrong {
            files.failed(STORE, seed, wrong.trim())
        } else {
            files.passed(STORE, seed, run.fingerprint);
            Ok(())
        };
        if let Err(error) = written {
            unkept.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            over.store(true, Relaxed);
        }
        let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
        let (summary, failed) = &mut *summary;
        summary.add(seed, &run);
        bar.set_message(format!("{} seeds, {} failed", grouped(summary.seeds), summary.failed));
        bar.tick();
        if run.wrong.is_some() {
            failed.get_or_insert(run);
            if summary.failed >= files.failures_max() as u64 {
                over.store(true, Relaxed);
            }
        }
        true
    });
    bar.finish_and_clear();
    if let Some(error) = unkept.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let (mut summary, failed) = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.seconds = begun.elapsed().as_secs_f64();
    summary.seeds_per_second = summary.seeds as f64 / summary.seconds;
    if let (Some(run), Some(path)) = (&failed, &args.history) {
        run.keep(path).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (compared, same) = files.close(summary.seeds >= kept.len() as u64, of_the_store)?;
    if args.json {
        say(serde_json::to_string(&summary)? + "\n")?;
    } else {
        say(summary.text() + &compared)?;
    }
    Ok(if summary.failure.is_some() || !same { Exit::No } else { Exit::Ok })
}

impl Summary {
    fn add(&mut self, seed: u64, run: &Run) {
        self.seeds += 1;
        self.operations += run.operations;
        self.unknown += run.unknown;
        self.faults += run.faults;
        self.crashes += run.crashes;
        self.coverage.add(&run.coverage());
        if let Some(wrong) = &run.wrong {
            self.failed += 1;
            let what = wrong.trim().to_owned();
            self.failure.get_or_insert(Failed { seed, what });
        }
    }

    fn text(&self) -> String {
        let Self { ordering, from, seeds, failed, seconds, seeds_per_second, .. } = self;
        let Self { operations, unknown, faults, crashes, failure, coverage, .. } = self;
        let summary = format!(
            "{} seeds of the store, ordered by {ordering}, from {from} on, in {seconds:.1} s: {seeds_per_second:.1} seeds/s, {failed} failed; {} \
             operations, {} of unknown outcome; {} faults, {} nodes died\n\n{}\n",
            grouped(*seeds),
            grouped(*operations),
            grouped(*unknown),
            grouped(*faults),
            grouped(*crashes),
            coverage.text(),
        );
        match failure {
            Some(Failed { seed, what }) => format!("{summary}\nseed {seed}:\n{what}\n"),
            None => summary,
        }
    }
}
