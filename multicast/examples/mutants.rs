//! Takes out one guard after the other, and shows for each the seed that notices.
//!
//! ```console
//! $ cargo run --profile simulation -p skein-multicast --features mutants --example mutants
//! $ … --example mutants -- --part 3/8 --seeds 1000      # every eighth of them, from the third on
//! $ … --example mutants -- --only LapNotChecked
//! ```
//!
//! A mutant that lives through all the seeds is a hole in the simulator: the exit code is 1, and its
//! name is said.

use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use skein_multicast::protocol::mutants::{Mutant, plant};
use skein_multicast::simulate::{Campaign, Profile, Tally};

/// Seeds that a mutant may live through, over all profiles.
const SEEDS: u64 = 5000;
/// Profiles in the order in which they are tried, and each one's share of the seeds, of a hundred.
const PROFILES: [(&str, u64); 5] =
    [("default", 40), ("crashes", 15), ("partitions", 15), ("clients", 20), ("calm", 10)];

struct Args {
    part: (usize, usize),
    seeds: u64,
    only: Option<String>,
}

fn args() -> Option<Args> {
    let mut args = Args { part: (0, 1), seeds: SEEDS, only: None };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next()?;
        match name.as_str() {
            "--part" => {
                let (k, n) = value.split_once('/')?;
                args.part = (k.parse().ok()?, n.parse().ok().filter(|n| *n > 0)?);
            }
            "--seeds" => args.seeds = value.parse().ok()?,
            "--only" => args.only = Some(value),
            _ => return None,
        }
    }
    Some(args)
}

/// What kills the mutant that is planted: after how many seeds, and how it is said.
fn killer(seeds: u64) -> Option<String> {
    let mut before = 0;
    for (name, share) in PROFILES {
        let profile = Profile::named(name).expect("a profile of that name");
        let campaign = Campaign {
            profile,
            seeds: 0..(seeds * share).div_ceil(100),
            except: Vec::new(),
            kept: Vec::new(),
            until: None,
            cores: thread::available_parallelism().map_or(2, Into::into),
            again_one_in: 0,
        };
        let Tally { seeds: lived, failure, .. } = campaign.run(&|_| true);
        if let Some(failure) = failure {
            let (seed, property) = (failure.scenario.seed, failure.violation.property);
            let after = before + lived + 1;
            return Some(format!("seed {seed} of {name} breaks {property} (after {after} seeds)"));
        }
        before += lived;
    }
    None
}

fn main() -> ExitCode {
    let Some(Args { part: (k, n), seeds, only }) = args() else {
        eprintln!("usage: mutants [--part K/N] [--seeds COUNT] [--only NAME]");
        return ExitCode::from(2);
    };
    // What a run panics with is a way to be killed.
    std::panic::set_hook(Box::new(|_| {}));
    let chosen = Mutant::ALL.iter().enumerate().filter(|(i, mutant)| {
        i % n == k % n && only.as_ref().is_none_or(|only| *only == format!("{mutant:?}"))
    });
    let mut alive = Vec::new();
    for (_, mutant) in chosen {
        plant(Some(*mutant));
        let begun = Instant::now();
        let killed = killer(seeds);
        let took = begun.elapsed().as_secs_f64();
        let verdict = killed.as_deref().unwrap_or("LIVES");
        println!("{mutant:?}: {verdict}, {took:.1} s\n    {}", mutant.about());
        if killed.is_none() {
            alive.push(*mutant);
        }
    }
    plant(None);
    if alive.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("nobody notices that these guards are gone: {alive:?}");
    ExitCode::FAILURE
}
