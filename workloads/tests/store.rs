//! The whole store on the simulated fabric: the results that clients receive, for each seed.
//!
//! `SKEIN_SEEDS=100..200` runs other seeds, and so does `skein sim --store`.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use skein_checker::history::{Coverage, Record};
use skein_multicast::config::Topology;
use skein_multicast::simulate::Ordering::Tram;
use skein_workloads::simulate::{Run, Small, run, run_ordered_by, run_small};

/// Seeds of every test run.
const RUNS: Range<u64> = 0..150;

/// The same, with messages ordered along a tree.
const RUNS_ALONG_A_TREE: Range<u64> = 0..50;

fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(range) = std::env::var("SKEIN_SEEDS") else { return usual };
    let (from, to) = range.split_once("..").expect("SKEIN_SEEDS=FIRST..END");
    from.parse().expect("a number")..to.parse().expect("a number")
}

/// Runs these seeds, and returns the coverage of all. Their histories must be strictly serializable.
fn campaign(seeds: &Range<u64>, run: impl Fn(u64) -> Run + Sync) -> Coverage {
    let next = AtomicU64::new(seeds.start);
    let failures = Mutex::new(Vec::new());
    let coverage = Mutex::new(Coverage::default());
    let counts: [AtomicU64; 5] = Default::default();
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let run = run(seed);
            for (count, more) in
                counts.iter().zip([run.operations, run.unknown, run.faults, run.crashes, run.moves])
            {
                count.fetch_add(more, Ordering::Relaxed);
            }
            coverage.lock().unwrap().add(&run.coverage());
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
    let [operations, unknown, faults, crashes, moves] = counts.map(AtomicU64::into_inner);
    println!(
        "{operations} operations, {unknown} unknown, {faults} faults, {crashes} nodes died, {moves} slots moved"
    );
    let coverage = coverage.into_inner().unwrap();
    println!("{}", coverage.text());
    assert!(failures.is_empty(), "{} seeds fail\n{}", failures.len(), failures.join("\n\n"));
    let tried = seeds.end - seeds.start;
    assert!(
        operations > 100 * tried
            && faults > tried
            && crashes > tried / 4
            && unknown > 0
            && moves > tried / 8
    );
    coverage
}

#[test]
fn what_clients_are_told_is_strictly_serializable() {
    let coverage = campaign(&seeds(RUNS), run);
    // Otherwise little was tested.
    if std::env::var_os("SKEIN_SEEDS").is_none() {
        assert_eq!(
            coverage.missing(),
            Vec::<String>::new(),
            "of what a command can be and come to"
        );
    }
}

#[test]
fn what_clients_are_told_along_a_tree_is_strictly_serializable() {
    campaign(&seeds(RUNS_ALONG_A_TREE), |seed| {
        run_ordered_by(seed, Tram).expect("it orders several groups")
    });
}

#[test]
fn a_seed_is_one_run() {
    let (one, two) = (run(7), run(7));
    assert_eq!(one.fingerprint, two.fingerprint);
    assert!(one.records == two.records);
}

/// So small that many writes are refused, and so large that many are not.
const GROUP_BYTES_MAX: u64 = 28 << 10;

/// Every shape of one to eight nodes and one to eight groups. Some nodes host more replicas than
/// others, which must not change what is refused.
#[test]
fn replicas_refuse_the_same_writes_in_every_shape() {
    let mut shapes = Vec::new();
    for (nodes, groups) in (1..=8).flat_map(|nodes| (1..=8).map(move |groups| (nodes, groups))) {
        for replicas in [1, 3, 5].into_iter().filter(|replicas| u16::from(*replicas) <= nodes) {
            shapes.push(Topology { nodes, groups, replicas, engines: 1 });
        }
    }
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let [done, refused]: [AtomicU64; 2] = Default::default();
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(topology) = shapes.get(number) else { return };
            let small = Small { topology: *topology, group_bytes_max: GROUP_BYTES_MAX };
            let run = run_small(number as u64, small);
            let count = |is: fn(&Record) -> bool| run.records.iter().filter(|it| is(it)).count();
            let ok = count(|record| matches!(record, Record::Ok(_)));
            done.fetch_add(ok as u64, Ordering::Relaxed);
            let fail = count(|record| matches!(record, Record::Fail(_)));
            refused.fetch_add(fail as u64, Ordering::Relaxed);
            if let Some(wrong) = run.wrong {
                failures.lock().unwrap().push(format!("{topology:?}, seed {number}: {wrong}"));
            }
        }
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(2, Into::into);
        (0..cores).for_each(|_| _ = scope.spawn(work));
    });
    let failures = failures.into_inner().unwrap();
    let [done, refused] = [done, refused].map(AtomicU64::into_inner);
    println!("{} shapes, {done} operations done, {refused} refused", shapes.len());
    assert!(failures.is_empty(), "{} shapes fail\n{}", failures.len(), failures.join("\n\n"));
    let tried = shapes.len() as u64;
    assert!(done > 50 * tried && refused > 10 * tried, "{done} done, {refused} refused");
}
