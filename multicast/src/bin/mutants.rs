//! Removes one guard after the other, and reports for each the seed that detects it.
//!
//! ```console
//! $ cargo run --profile simulation -p skein-multicast --features mutants --bin mutants
//! $ … --bin mutants -- --part 3/8 --seeds 1000      # every eighth of them, from the third on
//! $ … --bin mutants -- --only LapNotChecked
//! $ … --bin mutants -- --only LapNotChecked --profile slow-replicas --fresh 1000000
//! $ … --bin mutants -- --ordering tram           # the guards of the ordering along a tree
//! ```
//!
//! Seeds that detected something once are tried first. With `--fresh` they are not: seeds count from the
//! given number instead, so that a detection does not depend on a seed that was kept. A mutant that
//! `killing-seeds.txt` lists takes longer than others, and may survive a budget of such seeds; it is reported
//! then.
//!
//! A seed that fails with all guards in place proves nothing. So each seed that fails is run again without
//! the mutant and must pass; otherwise the next one is tried. A mutant that survives all its seeds is a hole
//! in the simulator: it is named, and the exit code is 1.
//!
//! Each mutant runs in a process of its own, since it may crash or hang the process. As many run at a time as
//! there are cores.

use std::io;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use skein_multicast::protocol::mutants::{Mutant, plant};
use skein_multicast::simulate::{Failure, Kept, Ordering, Profile, run};

/// Seeds tried for a mutant, over all profiles, before it counts as a survivor.
const SEEDS: u64 = 5000;
/// Seeds of the profiles along a tree that are tried in one round, too.
const ROUND_ALONG_TREES: [(&str, u64); 2] = [("inner-groups", 12), ("dead-leaf", 4)];
/// The profiles, and the number of seeds of each that are tried in one round.
const ROUND: [(&str, u64); 29] = [
    ("default", 10),
    ("elections", 14),
    ("crashes", 6),
    ("slow-replicas", 8),
    ("divergent-logs", 8),
    ("unreachable-sessions", 4),
    ("partitions", 3),
    ("absent", 2),
    ("stalls", 2),
    ("severed", 2),
    ("twins", 3),
    ("overlaps", 3),
    ("leases", 4),
    ("confirmed", 8),
    ("losses", 2),
    ("learners", 4),
    ("clients", 3),
    ("networks", 3),
    ("calm", 2),
    ("uneven", 3),
    ("clocks", 3),
    ("scarce", 3),
    ("starts", 3),
    ("stops", 3),
    ("aged", 3),
    ("bare-quorums", 8),
    ("power", 6),
    ("disks", 3),
    ("mixed", 6),
];

struct Args {
    part: (usize, usize),
    seeds: u64,
    only: Option<Mutant>,
    hunt: Ground,
}

/// The seeds to try.
#[derive(Clone, Copy)]
struct Ground {
    ordering: Ordering,
    /// Start at this seed in each profile, and skip the seeds that were kept.
    fresh: Option<u64>,
    /// Try this profile only.
    profile: Option<Profile>,
}

fn args() -> Option<Args> {
    let hunt = Ground { ordering: Ordering::DEFAULT, fresh: None, profile: None };
    let mut args = Args { part: (0, 1), seeds: SEEDS, only: None, hunt };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let value = given.next()?;
        match name.as_str() {
            "--part" => {
                let (k, n) = value.split_once('/')?;
                args.part = (k.parse().ok()?, n.parse().ok().filter(|n| *n > 0)?);
            }
            "--seeds" => args.seeds = value.parse().ok()?,
            "--only" => args.only = Some(Mutant::named(&value)?),
            "--fresh" => args.hunt.fresh = Some(value.parse().ok()?),
            "--ordering" => args.hunt.ordering = value.parse().ok()?,
            "--profile" => args.hunt.profile = Some(Profile::named(&value)?),
            _ => return None,
        }
    }
    Some(args)
}

/// The outcome of the search for one mutant.
struct Hunt {
    tried: u64,
    /// Seeds that fail with all guards in place too.
    failing: Vec<(&'static str, u64)>,
    killer: Option<Box<Failure>>,
}

impl Hunt {
    /// Searches for a seed that fails with the mutant and passes without it.
    fn run(mutant: Mutant, seeds: u64, ground: Ground) -> Self {
        let mut hunt = Self { tried: 0, failing: Vec::new(), killer: None };
        let seeds = usize::try_from(seeds).unwrap_or(usize::MAX);
        for (name, seed) in ground.schedule(mutant).take(seeds) {
            let profile = Profile::named(name).expect("a profile of that name");
            let Some(profile) = profile.ordered_by(ground.ordering) else { continue };
            hunt.tried += 1;
            plant(Some(mutant));
            let planted = run(seed, profile, false);
            plant(None);
            let Err(failure) = planted else { continue };
            if run(seed, profile, false).is_ok() {
                hunt.killer = Some(failure);
                break;
            }
            hunt.failing.push((name, seed));
        }
        hunt
    }
}

/// The last seed that detected the mutant, if it took long to find: `multicast/tests/killing-seeds.txt`.
fn known_killer(mutant: Mutant) -> Option<(&'static str, u64)> {
    let lines = include_str!("../../tests/killing-seeds.txt").lines();
    lines.filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut words = line.split(' ');
        let (name, seed, profile) = (words.next()?, words.next()?, words.next()?);
        (name == mutant.name()).then(|| (profile, seed.parse().expect("a number")))
    })
}

impl Ground {
    /// The seeds in the order in which they are tried: seeds that detected something once, then all seeds of
    /// all profiles.
    fn schedule(self, mutant: Mutant) -> impl Iterator<Item = (&'static str, u64)> {
        let known = known_killer(mutant);
        let kept = Kept::all().into_iter().map(|kept| (kept.profile.name, kept.seed));
        // Seeds were kept for one ordering. Another draws another scenario from them.
        let is_default = self.ordering == Ordering::DEFAULT;
        let known = known.filter(|_| is_default != Mutant::OF_TRAM.contains(&mutant));
        let kept = known.into_iter().chain(kept.filter(move |_| is_default));
        let kept = kept.filter(move |_| self.fresh.is_none());
        let first = self.fresh.unwrap_or(0);
        let of_trees = self.ordering == Ordering::Tram;
        let more = move || ROUND_ALONG_TREES.into_iter().filter(move |_| of_trees);
        let all = (0..).flat_map(move |round| {
            let seeds = move |(name, count)| {
                (first + round * count..first + (round + 1) * count).map(move |seed| (name, seed))
            };
            ROUND.into_iter().chain(more()).flat_map(seeds)
        });
        let fits = move |name: &str| self.profile.is_none_or(|profile| profile.name == name);
        kept.chain(all).filter(move |(name, _)| fits(name))
    }

    /// The arguments that give a child process the same seeds.
    fn to_args(self) -> Vec<String> {
        let fresh = self.fresh.map(|first| ["--fresh".to_owned(), first.to_string()]);
        let profile = self.profile.map(|it| ["--profile".to_owned(), it.name.to_owned()]);
        let ordering = ["--ordering".to_owned(), self.ordering.to_string()];
        fresh.into_iter().chain(profile).chain([ordering]).flatten().collect()
    }
}

/// Tries one mutant, and prints the outcome.
fn try_one(mutant: Mutant, seeds: u64, ground: Ground) -> ExitCode {
    // A panic of a run counts as a detection, so its message is suppressed.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let Hunt { tried, failing, killer } = Hunt::run(mutant, seeds, ground);
    let took = begun.elapsed().as_secs_f64();
    let verdict = killer.as_ref().map_or_else(
        || format!("SURVIVES {tried} seeds"),
        |failure| {
            let (seed, property) = (failure.scenario.seed, failure.violation.property);
            let profile = failure.scenario.profile;
            format!("seed {seed} of {profile} breaks {property}, and passes without it")
        },
    );
    println!("{mutant:?}: {verdict} (number {tried}, {took:.1} s)\n    {}", mutant.about());
    if !failing.is_empty() {
        println!("    not counted, since they fail without it too: {failing:?}");
    }
    if killer.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tries all mutants, each in a process of its own. Returns the survivors.
fn try_all(mutants: &[Mutant], seeds: u64, ground: Ground) -> io::Result<Vec<Mutant>> {
    let program = std::env::current_exe()?;
    let left = Mutex::new(mutants.iter());
    let alive = Mutex::new(Vec::new());
    let work = || -> io::Result<()> {
        loop {
            let Some(mutant) = left.lock().expect("nobody panics with it").next() else {
                return Ok(());
            };
            let (only, count) = (format!("{mutant:?}"), seeds.to_string());
            let mut command = Command::new(&program);
            command.args(["--only", &only, "--seeds", &count]).args(ground.to_args());
            let output = command.output()?;
            let mut alive = alive.lock().expect("nobody panics with it");
            print!("{}", String::from_utf8_lossy(&output.stdout));
            if !output.status.success() {
                eprint!("{}", String::from_utf8_lossy(&output.stderr));
                alive.push(*mutant);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(2, Into::into);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    Ok(alive.into_inner().expect("nobody panics with it"))
}

fn main() -> ExitCode {
    let Some(Args { part: (k, n), seeds, only, hunt }) = args() else {
        eprintln!(
            "usage: mutants [--part K/N] [--seeds COUNT] [--only NAME] [--fresh FIRST] [--profile NAME] [--ordering NAME]"
        );
        return ExitCode::from(2);
    };
    if let Some(mutant) = only {
        return try_one(mutant, seeds, hunt);
    }
    let others = [Mutant::OF_THE_STORE, Mutant::OF_TRAM, Mutant::RARE, Mutant::ON_DEMAND];
    let of_trees = hunt.ordering == Ordering::Tram;
    let ours = Mutant::ALL.iter().filter(|it| {
        let simulated = Mutant::OF_TRAM.contains(it) && !Mutant::UNSIMULATED_OF_TRAM.contains(it);
        if of_trees { simulated } else { !others.iter().any(|those| those.contains(it)) }
    });
    let chosen: Vec<_> = ours.copied().skip(k % n).step_by(n).collect();
    let takes_long = |it: &Mutant| hunt.fresh.is_some() && known_killer(*it).is_some();
    let alive = try_all(&chosen, seeds, hunt).map(|mut alive| {
        let slow: Vec<_> = alive.extract_if(.., |it| takes_long(it)).collect();
        if !slow.is_empty() {
            println!("detected by kept seeds, but not by {seeds} fresh ones: {slow:?}");
        }
        alive
    });
    match alive {
        Ok(alive) if alive.is_empty() => {
            println!("{} mutants, and each was detected", chosen.len());
            ExitCode::SUCCESS
        }
        Ok(alive) => {
            println!("no seed detects the loss of these guards: {alive:?}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot run a process for a mutant: {error}");
            ExitCode::from(2)
        }
    }
}
