//! Counts the instructions of operations, and compares them with recorded counts.
//!
//! Time varies by factors on a shared machine; instruction counts do not. Each case runs under valgrind's
//! cachegrind twice, the second time with twice as many operations, so that the difference contains neither
//! start nor warm-up.
//!
//! The file of a benchmark records the counts of its cases. A case that takes more than [`TOLERANCE`] more
//! fails; if that is intended, `-- --write` writes the file again, and the commit says why.
//! `-- --against COMMIT` compares with another commit on the same machine: a change that should cost nothing
//! moves no case by more than [`SAME`], up or down.

mod against;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs, process};

use self::against::Other;

/// A case to count.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Operations that are in flight together.
    pub(crate) burst: usize,
    pub(crate) bursts: usize,
}

/// The share by which a count may exceed the recorded one. Two runs on one machine differ by less than a
/// thousandth; on another processor the C library copies bytes in another way.
const TOLERANCE: f64 = 0.05;
/// The share by which a count may differ from another commit's on the same machine.
const SAME: f64 = 0.01;

/// Counts the instructions of each case's `unit`, and compares them with `file` of the package at `package`.
/// `run` does so many bursts of a case.
pub(crate) fn count(
    unit: &str,
    cases: &[Case],
    package: &str,
    file: &str,
    run: impl Fn(usize, usize),
) -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, bursts] = &arguments[..]
        && let (Ok(case), Ok(bursts)) = (case.parse(), bursts.parse())
    {
        run(case, bursts);
        // The process ends here: nothing after this is to be counted.
        process::exit(0);
    }
    let Some(version) = valgrind() else {
        println!("costs: not run: valgrind is not installed");
        return ExitCode::SUCCESS;
    };
    let write = match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--write"] => true,
        ["--against", commit] => return compare(unit, cases, Path::new(package), file, commit),
        _ => {
            eprintln!("costs: {arguments:?} is none of --write and --against COMMIT");
            return ExitCode::FAILURE;
        }
    };
    let path = Path::new(package).join(file);
    let recorded = read(&path);
    let mut text = format!("# Instructions {unit}, by benches/costs.rs under {version}.\n");
    let mut good = true;
    println!("{:<40}{:>14}{:>14}{:>10}", format!("instructions {unit}"), "recorded", "now", "");
    let program = env::current_exe().expect("a program has a name");
    for (at, case) in cases.iter().enumerate() {
        let (name, each) = (case.name, case.instructions(&program, at));
        let _ = writeln!(text, "{each:>8}  {name}");
        let before = recorded.get(name).copied();
        let change = before.map_or(f64::INFINITY, |before| each as f64 / before as f64 - 1.0);
        let fits = change <= TOLERANCE;
        good &= fits;
        let before = before.map_or_else(|| "–".to_owned(), |before| before.to_string());
        let verdict = if fits { "" } else { "  <-" };
        println!("{name:<40}{before:>14}{each:>14}{:>+9.1} %{verdict}", change * 100.0);
    }
    if write {
        fs::write(&path, text).expect("the file of costs can be written");
        return ExitCode::SUCCESS;
    }
    if good {
        return ExitCode::SUCCESS;
    }
    println!(
        "costs: more than {} % above {}: if that is meant, write it anew with -- --write",
        TOLERANCE * 100.0,
        path.display()
    );
    ExitCode::FAILURE
}

/// Counts each case here and in another commit.
fn compare(unit: &str, cases: &[Case], package: &Path, file: &str, commit: &str) -> ExitCode {
    let other = match Other::build(commit, package, file) {
        Ok(other) => other,
        Err(why) => {
            eprintln!("costs: {commit} cannot be compared with: {why}");
            return ExitCode::FAILURE;
        }
    };
    let program = env::current_exe().expect("a program has a name");
    let mut good = true;
    println!("{:<40}{commit:>14}{:>14}", format!("instructions {unit}"), "now");
    for (at, case) in cases.iter().enumerate() {
        let now = case.instructions(&program, at);
        let Some(before) = other.cases.get(case.name).copied() else {
            println!("{:<40}{:>14}{now:>14}", case.name, "–");
            continue;
        };
        let before = case.instructions(&other.program, before);
        let change = now as f64 / before as f64 - 1.0;
        let fits = change.abs() <= SAME;
        good &= fits;
        let verdict = if fits { "" } else { "  <-" };
        println!("{:<40}{before:>14}{now:>14}{:>+9.2} %{verdict}", case.name, change * 100.0);
    }
    if good {
        return ExitCode::SUCCESS;
    }
    println!("costs: differ from {commit}'s by more than {} %", SAME * 100.0);
    ExitCode::FAILURE
}

impl Case {
    /// Instructions of one operation, in a program in which this case has that number.
    fn instructions(&self, program: &Path, number: usize) -> u64 {
        let Self { burst, bursts, .. } = *self;
        let before = instructions(program, number, bursts);
        (instructions(program, number, 2 * bursts) - before) / (bursts * burst) as u64
    }
}

fn valgrind() -> Option<String> {
    let output = Command::new("valgrind").arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Instructions of a whole process that does so many bursts.
fn instructions(program: &Path, case: usize, bursts: usize) -> u64 {
    let out = env::temp_dir().join(format!("skein-costs-{}", process::id()));
    let output = Command::new("valgrind")
        .args(["-q", "--tool=cachegrind", "--cache-sim=no"])
        .arg(format!("--cachegrind-out-file={}", out.display()))
        .arg(program)
        .args([case.to_string(), bursts.to_string()])
        .output()
        .expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind: {}: {said}", output.status);
    let text = fs::read_to_string(&out).expect("cachegrind writes what it counted");
    let _ = fs::remove_file(&out);
    let summary = text.lines().find_map(|line| line.strip_prefix("summary: "));
    summary.and_then(|count| count.trim().parse().ok()).expect("a line with the sum")
}

/// The recorded counts, by case.
fn read(file: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| {
        let (count, name) = line.trim().split_once("  ")?;
        Some((name.to_owned(), count.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}
