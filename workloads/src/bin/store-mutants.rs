//! Disables one guard after the other, and prints for each the seed of the store's simulation that
//! detects it and the findings of the check, which reads the history from a file as `skein check`
//! does.
//!
//! ```console
//! $ cargo run --profile simulation -p skein-workloads --features mutants --bin store-mutants
//! $ … --bin store-mutants -- --only LeaseNotCheckedAgain --history lease.jsonl   # for `skein check`
//! ```
//!
//! `--only` also takes mutants that are not listed here. A mutant of the ordering along a tree is planted in a store that
//! is ordered along a tree, as in `skein sim --store --ordering tram`.
//!
//! A seed that also fails with all guards proves nothing, so each failing seed is run again without
//! the mutant and must pass. Only histories that end regularly and that the checks reject count,
//! because a run in which a replica panics shows clients nothing. A mutant that survives all its
//! seeds is a gap in the tests: the exit code is 1.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use skein_checker::check::check;
use skein_checker::history::{ReadError, Reader};
use skein_checker::verify::verify;
use skein_multicast::simulate::{Ordering, keep_panics_quiet};
use skein_protocol::mutants::{Mutant, plant};
use skein_workloads::simulate::{Run, run_ordered_by};

/// Seeds that a mutant may survive.
const SEEDS: u64 = 2_000;
/// Guards of the protocol whose loss clients observe, with the default ordering.
const OF_THE_PROTOCOL: [Mutant; 3] =
    [Mutant::RepliesNotGated, Mutant::LeaseNotCheckedAgain, Mutant::DuplicateExecuted];
/// Guards of the ordering along a tree whose loss clients observe. For these, the store's groups are ordered along a
/// tree. The others of [`Mutant::OF_TRAM`] are left to the multicast simulator's `mutants --ordering tram` and to unit
/// tests: no history was found that is wrong without them. Without some, operations are never answered, and there is no
/// history to judge.
const OF_TRAM: [Mutant; 6] = [
    Mutant::NotGatedAlongTree,
    Mutant::UpIgnored,
    Mutant::DownIgnored,
    Mutant::StableWithoutSubtree,
    Mutant::SubtreeExempt,
    Mutant::CommonDestinationExempt,
];
/// Seeds that are tried before all others, for mutants that few seeds detect. An old seed costs one run or two.
const TRIED_FIRST: [(Mutant, u64); 2] =
    [(Mutant::StableWithoutSubtree, 19), (Mutant::CommonDestinationExempt, 130)];

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

/// The ordering that has the mutant's guard.
fn ordering_of(mutant: Mutant) -> Ordering {
    if Mutant::OF_TRAM.contains(&mutant) { Ordering::Tram } else { Ordering::DEFAULT }
}

/// Searches for a seed that fails with the mutant and passes without it. Returns it with its run.
fn hunt(mutant: Mutant, seeds: u64) -> Option<(u64, Run)> {
    let ordering = ordering_of(mutant);
    let run = |seed| run_ordered_by(seed, ordering).expect("it orders several groups");
    let first = TRIED_FIRST.iter().filter(|(of, _)| *of == mutant).map(|(_, seed)| *seed);
    for seed in first.chain(0..seeds) {
        plant(Some(mutant));
        let planted = run(seed);
        plant(None);
        if planted.wrong.is_none() {
            continue;
        }
        match run(seed).wrong {
            None if !planted.judged => {
                let wrong = planted.wrong.as_deref().unwrap_or_default();
                println!("seed {seed} has no history to judge: {}", wrong.trim());
            }
            None => return Some((seed, planted)),
            Some(wrong) => println!("seed {seed} fails without any mutant:\n{wrong}"),
        }
    }
    None
}

/// Writes the history to `path`, then reads and checks it. Returns whether it is correct.
fn look_again(run: &Run, path: &Path) -> Result<bool, ReadError> {
    run.keep(path).map_err(|source| ReadError::System { path: path.to_owned(), source })?;
    let header = Reader::open(path)?.header;
    let order = check(&header, Reader::open(path)?)?;
    Ok(order.strictly_serializable && verify(&header, Reader::open(path)?)?.is_good())
}

fn main() -> ExitCode {
    let Some(Args { only, seeds, history }) = args() else {
        eprintln!("usage: store-mutants [--only NAME] [--seeds COUNT] [--history FILE]");
        return ExitCode::from(2);
    };
    keep_panics_quiet();
    let listed = OF_THE_PROTOCOL.iter().chain(&OF_TRAM).chain(Mutant::OF_THE_STORE).copied();
    let chosen = only.map_or_else(|| listed.collect(), |only| vec![only]);
    let mut alive = Vec::new();
    for mutant in chosen {
        let begun = Instant::now();
        let (name, about) = (mutant.name(), mutant.about());
        let Some((seed, run)) = hunt(mutant, seeds.unwrap_or(SEEDS)) else {
            println!("{name}: SURVIVES ({:.1} s)\n", begun.elapsed().as_secs_f64());
            alive.push(name);
            continue;
        };
        let took = begun.elapsed().as_secs_f64();
        println!("{name}: seed {seed} ({took:.1} s), which passes without it\n    {about}");
        println!("{}", run.wrong.as_deref().unwrap_or_default());
        let own = std::env::temp_dir().join(format!("skein-{}-{name}.jsonl", std::process::id()));
        let looked = look_again(&run, history.as_deref().unwrap_or(&own));
        let _ = std::fs::remove_file(&own);
        match looked {
            Ok(false) => {}
            Ok(true) => {
                println!("{name}: the same history, read from a file, passes\n");
                alive.push(name);
            }
            Err(error) => {
                eprintln!("the history of seed {seed}: {error}");
                return ExitCode::from(2);
            }
        }
    }
    if alive.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("no seed detects the loss of these guards: {alive:?}");
    ExitCode::FAILURE
}
