//! The workloads on a whole cluster in this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use skein_checker::check::{OrderReport, check};
use skein_checker::history::{BankHeader, FORMAT, Header, Reader, Record, Recorder};
use skein_checker::verify::{Judgement, verify};
use skein_client::ReadMode;
use skein_client::local::Cluster;
use skein_client::{Driver, Operation, Transaction};
use skein_fabric::any::AnyFabric;
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Topology;
use skein_workloads::bank::Bank;
use skein_workloads::bench::{self, BankPlan, Phase, Terms, Watch, YcsbPlan};
use skein_workloads::chaos::state::Survey;
use skein_workloads::generator::{self, Progress, Settings};
use skein_workloads::mix::{CORE, Kind, RECORD};
use skein_workloads::recorded::Recorded;
use skein_workloads::report::Report;

const GROUPS: u16 = 4;
const ACCOUNTS: usize = 16;

struct Nobody;

impl Watch for Nobody {
    fn begin(&mut self, _: Phase) {}

    fn progress(&mut self, _: Progress) -> bool {
        true
    }
}

fn cluster() -> (Cluster, bench::Cluster) {
    let facts = bench::Cluster {
        topology: Topology { nodes: 3, groups: GROUPS, replicas: 3, engines: 1 },
        durability: "memory".to_owned(),
        store: "memory".to_owned(),
        slots: SlotMap::even(GROUPS),
        window: 64,
        skein: "test".to_owned(),
        cross_core_ns: None,
    };
    (Cluster::builder().groups(GROUPS).start().unwrap(), facts)
}

fn bank_plan() -> BankPlan {
    BankPlan {
        hot: None,
        accounts: ACCOUNTS,
        clients: 6,
        readers: 2,
        terms: Terms {
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(500),
            sessions: None,
            rate: None,
            read_mode: ReadMode::Ordered,
            seed: 1,
        },
    }
}

fn at_the_bank(cluster: &Cluster, facts: &bench::Cluster) -> Report {
    bench::bank(&mut cluster.driver().unwrap(), facts, &bank_plan(), &mut Nobody)
}

#[test]
fn every_core_workload_runs_twice_without_an_error() {
    let (cluster, facts) = cluster();
    for mix in CORE.into_iter().chain(CORE) {
        let plan = YcsbPlan {
            mix,
            distribution: mix.distribution,
            records: 1_000,
            load: true,
            clients: 8,
            terms: Terms {
                warm_up: Duration::from_millis(20),
                duration: Duration::from_millis(200),
                sessions: None,
                rate: None,
                read_mode: ReadMode::Ordered,
                seed: 1,
            },
        };
        let report = bench::ycsb(&mut cluster.driver().unwrap(), &facts, &plan, &mut Nobody);
        assert!(report.is_good(), "{report:#?}");
        assert!(report.operations.values().all(|operation| operation.count > 0), "{report:#?}");
    }
}

#[test]
fn the_bank_adds_up() {
    let (cluster, facts) = cluster();
    let report = at_the_bank(&cluster, &facts);
    assert_eq!((report.errors, &report.ended_early), (0, &None), "{report:#?}");
    let bank = report.bank.unwrap();
    assert_eq!(bank.final_sum, Some(bank.expected_sum));
    assert!(bank.right_sums > 0 && bank.declined > 0, "{bank:?}");
}

/// Runs a workload on recorded sessions, reads everything back, and returns the findings of both
/// checks.
fn recorded(
    cluster: &Cluster,
    facts: &bench::Cluster,
    bank: Option<BankHeader>,
    run: impl FnOnce(&mut Recorded<Driver<AnyFabric>>),
) -> (Judgement, OrderReport) {
    let record = bank.is_none().then_some(RECORD);
    let header = Header {
        format: FORMAT,
        workload: "test".into(),
        skein: "test".into(),
        cluster: facts.topology,
        seed: 1,
        t: 0,
        unix_ms: 0,
        token_bytes: 1,
        before: true,
        bank,
        record,
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let recorder = Recorder::create(&path, header.clone()).unwrap();
    let mut sessions = Recorded::new(cluster.driver().unwrap(), recorder.scribe(), record);
    run(&mut sessions);
    let mut driver = sessions.finish();
    let mut survey = Survey::new(recorder.keys().into_iter().collect(), 8, record);
    let settings = Settings::to_the_end(8, 1);
    generator::run(&mut driver, &mut survey, settings, &mut |_| true);
    let mut scribe = recorder.scribe();
    survey.found.into_iter().for_each(|found| scribe.note(Record::Final(found)));
    drop(scribe);
    recorder.finish().unwrap();
    let read = || Reader::open(&path).unwrap();
    (verify(&header, read()).unwrap(), check(&header, read()).unwrap())
}

#[test]
fn what_is_recorded_of_every_workload_is_right() {
    let (cluster, facts) = cluster();
    for mix in CORE {
        let plan = YcsbPlan {
            mix,
            distribution: mix.distribution,
            records: 200,
            load: true,
            clients: 8,
            terms: Terms {
                warm_up: Duration::ZERO,
                duration: Duration::from_millis(200),
                sessions: None,
                rate: None,
                read_mode: ReadMode::Ordered,
                seed: 1,
            },
        };
        let (verdict, order) = recorded(&cluster, &facts, None, |sessions| {
            let report = bench::ycsb(sessions, &facts, &plan, &mut Nobody);
            assert!(report.is_good(), "{report:#?}");
        });
        assert!(verdict.is_good() && order.serializable, "{mix:?}: {verdict:#?} {order:#?}");
        assert!(verdict.acknowledged > 200, "{mix:?}: {verdict:?}");
        let updates = mix.percent_of(Kind::Update) + mix.percent_of(Kind::ReadModifyWrite) > 0;
        assert_eq!(order.keys.contains_key("records"), updates, "{mix:?}: {order:?}");
    }
    let plan = bank_plan();
    let header = bench::open_bank(&facts, &plan).header();
    let (verdict, order) = recorded(&cluster, &facts, Some(header), |sessions| {
        bench::bank(sessions, &facts, &plan, &mut Nobody);
    });
    assert!(verdict.is_good() && order.serializable, "{verdict:#?} {order:#?}");
    assert_eq!(order.keys["others"], ACCOUNTS as u64);
}

/// The report of a bank whose accounts `disturb` changes repeatedly during the run.
fn disturbed_by(disturb: impl Fn(&mut dyn FnMut(Operation), &[Vec<u8>]) + Send + Sync) -> Report {
    let (cluster, facts) = cluster();
    let accounts = Bank::new(&facts.slots, GROUPS, ACCOUNTS, 1, 1, 1).reading().then;
    let key = |operation: &Operation| match operation {
        Operation::Get { key } => key.clone(),
        other => panic!("a reading gets: {other:?}"),
    };
    let accounts: Vec<_> = accounts.iter().map(key).collect();
    let closed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = cluster.client().unwrap();
            while !closed.load(Ordering::Relaxed) {
                let mut alone = |operation| _ = client.transact(&Transaction::of(operation));
                disturb(&mut alone, &accounts);
            }
        });
        let report = at_the_bank(&cluster, &facts);
        closed.store(true, Ordering::Relaxed);
        report
    })
}

#[test]
fn a_transfer_in_two_steps_is_noticed() {
    // In both directions: otherwise an account would be emptied, and noticed because it is
    // overdrawn.
    let report = disturbed_by(|alone, accounts| {
        for (from, to) in [(0, 1), (1, 0)] {
            alone(Operation::Increment { key: accounts[from].clone(), by: -1 });
            alone(Operation::Increment { key: accounts[to].clone(), by: 1 });
        }
    });
    assert!(report.errors_by_kind.contains_key("wrong_sum"), "{report:#?}");
    assert!(!report.is_good());
}

#[test]
fn a_transfer_without_a_guard_is_noticed() {
    let report = disturbed_by(|alone, accounts| {
        alone(Operation::Increment { key: accounts[3].clone(), by: -1_000 });
        alone(Operation::Increment { key: accounts[3].clone(), by: 1_000 });
    });
    assert!(report.errors_by_kind.contains_key("overdraft"), "{report:#?}");
}
