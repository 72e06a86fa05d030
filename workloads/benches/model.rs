//! Instructions by the model of costs beside those counted: `cargo bench -p skein-workloads --bench model`.
//!
//! Engines and sessions take turns on one thread, over shared memory. Callgrind counts the instructions of each kind
//! of turn. The same run without callgrind counts the work done, like the simulation. The instructions for each kind
//! of work (`multicast/simulated/profile.rs`) are a non-negative least-squares fit of relative errors. `-- --fit`
//! computes and prints a new fit; otherwise the recorded fit is used. The bench fails if the error of the fit exceeds
//! [`TOLERANCE`] in any case.

#[path = "../../multicast/tests/harness/clocked.rs"]
mod clocked;
#[path = "model/fit.rs"]
mod fit;
#[path = "model/scene.rs"]
mod scene;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use skein_workloads::multicast::simulated::cpu::{Amounts, Instructions};
use skein_workloads::multicast::simulated::profile::INSTRUCTIONS;

use self::fit::Row;
use self::scene::{Load, Scene};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The largest relative error that the model may have in a case.
const TOLERANCE: f64 = 0.4;

/// Groups, destinations, replicas, engines per node; sessions, outstanding messages per session, bytes per message;
/// bursts.
type Case = (u16, u16, u8, u16, usize, usize, usize, usize);

#[rustfmt::skip]
const CASES: [Case; 27] = [
    (1, 1, 3, 1,   1,  1,    64,  400),
    (1, 1, 3, 1,   1,  8,    64,   60),
    (1, 1, 3, 1,   1, 64,    64,   20),
    (1, 1, 3, 1,  16,  1,    64,   40),
    (1, 1, 3, 1,  64,  1,    64,   15),
    (1, 1, 3, 1,   1,  1, 1_000,  200),
    (1, 1, 3, 1,   1, 64, 1_000,   12),
    (1, 1, 3, 1,   1,  1, 4_000,  100),
    (1, 1, 3, 1,   1,  8, 4_000,   20),
    (1, 1, 3, 1,   1,  1, 32_768,  60),
    (1, 1, 3, 1,   4,  1, 32_768,  20),
    (1, 1, 1, 1,   1,  1,    64,  400),
    (1, 1, 5, 1,  16,  1,    64,   40),
    (2, 2, 3, 1,   1,  1,    64,  200),
    (2, 2, 3, 1,  16,  1,    64,   25),
    (4, 1, 3, 1,  64,  1,    64,   15),
    (4, 4, 3, 1,   1,  1,    64,   60),
    (4, 4, 3, 4,   1,  1,    64,   60),
    (4, 4, 3, 1,  64,  1,    64,    6),
    (4, 4, 3, 4,  64,  1,    64,    6),
    (8, 8, 3, 1,   1,  1,    64,   25),
    (8, 8, 3, 8,   1,  1,    64,   25),
    (8, 8, 3, 8,  64,  1,    64,    5),
    (1, 1, 3, 1,  64,  0,    64, 1_000),
    (8, 8, 3, 1,   1,  0,    64,  400),
    (8, 8, 3, 8,   1,  0,    64,  100),
    (8, 8, 3, 8,  64,  0,    64,  100),
];

fn load(case: usize) -> Load {
    let (groups, destinations, replicas, engines, sessions, depth, payload, bursts) = CASES[case];
    Load { groups, destinations, replicas, engines, sessions, depth, payload, bursts }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case] = &arguments[..]
        && let Ok(case) = case.parse::<usize>()
    {
        Scene::plain(load(case)).run(load(case).bursts);
        // Ends before destructors run, which are not measured.
        process::exit(0);
    }
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("model: not run: valgrind is not installed");
        return ExitCode::SUCCESS;
    }
    let program = env::current_exe().expect("a program has a name");
    let mut engines = Vec::new();
    let mut sessions = Vec::new();
    let mut per_ns = Vec::new();
    for case in 0..CASES.len() {
        let load = load(case);
        let mut scene = Scene::counted(load);
        let before = scene.done();
        scene.run(load.bursts);
        let done = scene.done() - before;
        let [by_leaders, by_followers, by_sessions] = callgrind(&program, case);
        let took = time(load);
        per_ns.push((by_leaders + by_followers + by_sessions) / took);
        let messages = load.messages() as f64;
        println!(
            "{load}: {:.0} + {:.0} + {:.0} instructions and {:.0} ns a message",
            by_leaders / messages,
            by_followers / messages,
            by_sessions / messages,
            took / messages
        );
        engines.push((format!("leaders,   {load}"), done.leaders, by_leaders));
        // If every engine leads a group, there are no followers.
        if done.followers != Amounts::default() {
            engines.push((format!("followers, {load}"), done.followers, by_followers));
        }
        sessions.push((format!("sessions,  {load}"), done.sessions, by_sessions));
    }
    per_ns.sort_by(f64::total_cmp);
    println!("instructions a nanosecond: {per_ns:.2?}");
    let fit = arguments.iter().any(|argument| argument == "--fit");
    let engine = report(&engines, &INSTRUCTIONS.engine, fit);
    let session = report(&sessions, &INSTRUCTIONS.session, fit);
    if engine && session { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the error of each case. Returns whether all are within the tolerance.
fn report(rows: &[Row], recorded: &Instructions, fit: bool) -> bool {
    let found = if fit { fit::fit(rows) } else { *recorded };
    if fit {
        println!("{found:.1?}");
    }
    let mut good = true;
    for (case, amounts, took) in rows {
        let says = found.of(amounts);
        let off = says / took - 1.0;
        let near = off.abs() <= TOLERANCE;
        good &= near;
        let (off, verdict) = (off * 100.0, if near { "" } else { "  <-" });
        println!("{case}: {took:>10.0}, and by the model {says:>10.0} {off:>+6.1} %{verdict}");
        if fit {
            println!("    {:?}", amounts.0);
        }
    }
    good
}

/// Instructions of a case within the turns of leaders, of followers and of sessions.
fn callgrind(program: &Path, case: usize) -> [f64; 3] {
    let out = env::temp_dir().join(format!("skein-model-{}", process::id()));
    let run = |command: &mut Command| {
        let output = command.output().expect("valgrind is installed");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    run(Command::new("valgrind")
        .args(["-q", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg(case.to_string()));
    let annotate = ["--inclusive=yes", "--threshold=100", "--auto=no"];
    let text = run(Command::new("callgrind_annotate").args(annotate).arg(&out));
    let _ = fs::remove_file(&out);
    ["turn_of_leaders", "turn_of_followers", "turn_of_sessions"].map(|name| {
        let line = text.lines().find(|line| line.contains(name));
        let count = line.and_then(|line| line.split_whitespace().next());
        count.map_or(0.0, |count| count.replace(',', "").parse().expect("a count"))
    })
}

/// Nanoseconds of the bursts of a load without valgrind: the minimum of nine runs, since neighbours only make it
/// longer.
fn time(load: Load) -> f64 {
    let once = || {
        let mut scene = Scene::plain(load);
        let began = Instant::now();
        scene.run(load.bursts);
        began.elapsed()
    };
    (0..9).map(|_| once()).min().unwrap_or(Duration::ZERO).as_nanos() as f64
}
