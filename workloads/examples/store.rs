//! Takes out one guard after the other, and shows for each the seed of the store's simulation that
//! notices, and what the checks of histories say of it.
//!
//! ```console
//! $ cargo run --profile simulation -p skein-workloads --features mutants --example store
//! $ … --example store -- --only LeaseNotCheckedAgain --history lease.jsonl   # for `skein check`
//! ```
//!
//! A seed that fails with all guards in place too proves nothing: each that fails is run again without
//! the mutant and must pass. A mutant that lives through all its seeds is a hole: the exit code is 1.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use skein_protocol::mutants::{Mutant, plant};
use skein_workloads::history::{Record, line};
use skein_workloads::simulate::{Run, run};

/// Seeds that a mutant may live through.
const SEEDS: u64 = 2_000;
/// Guards of the protocol whose loss a client sees. The others are of the store.
const OF_THE_PROTOCOL: [Mutant; 3] =
    [Mutant::RepliesNotGated, Mutant::LeaseNotCheckedAgain, Mutant::DuplicateExecuted];

#[derive(Default)]
struct Args {
    only: Option<Mutant>,
    seeds: Option<u64>,
    history: Option<PathBuf>,
}

fn args() -> Option<Args> {
    let mut args = Args::default();
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next()?;
        match name.as_str() {
            "--only" => args.only = Some(Mutant::named(&value)?),
            "--seeds" => args.seeds = Some(value.parse().ok()?),
            "--history" => args.history = Some(PathBuf::from(value)),
            _ => return None,
        }
    }
    Some(args)
}

/// Looks for a seed that fails with the mutant, and passes without it. Returns it, and its run.
fn hunt(mutant: Mutant, seeds: u64) -> Option<(u64, Run)> {
    for seed in 0..seeds {
        plant(Some(mutant));
        let planted = run(seed);
        plant(None);
        if planted.wrong.is_none() {
            continue;
        }
        match run(seed).wrong {
            None => return Some((seed, planted)),
            Some(wrong) => println!("seed {seed} fails without any mutant:\n{wrong}"),
        }
    }
    None
}

fn write(path: &PathBuf, run: Run) -> std::io::Result<()> {
    let mut file = std::fs::File::create_new(path)?;
    line(&mut file, &Record::Header(Box::new(run.header)))?;
    run.records.iter().try_for_each(|record| line(&mut file, record))
}

fn main() -> ExitCode {
    let Some(Args { only, seeds, history }) = args() else {
        eprintln!("usage: store [--only NAME] [--seeds COUNT] [--history FILE]");
        return ExitCode::from(2);
    };
    let all = OF_THE_PROTOCOL.iter().chain(Mutant::OF_THE_STORE).copied();
    let mut alive = Vec::new();
    for mutant in all.filter(|mutant| only.is_none_or(|only| only == *mutant)) {
        let begun = Instant::now();
        let Some((seed, run)) = hunt(mutant, seeds.unwrap_or(SEEDS)) else {
            println!("{}: LIVES ({:.1} s)\n", mutant.name(), begun.elapsed().as_secs_f64());
            alive.push(mutant.name());
            continue;
        };
        let (name, took) = (mutant.name(), begun.elapsed().as_secs_f64());
        println!(
            "{name}: seed {seed} ({took:.1} s), which passes without it\n    {}",
            mutant.about()
        );
        println!("{}", run.wrong.as_deref().unwrap_or_default());
        if let Some(path) = &history
            && let Err(error) = write(path, run)
        {
            eprintln!("cannot write {}: {error}", path.display());
            return ExitCode::from(2);
        }
    }
    if alive.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("nobody notices that these guards are gone: {alive:?}");
    ExitCode::FAILURE
}
