//! `skein bench chaos --acceptance`: runs chaos on clusters of all kinds, and prints one table of
//! results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;
use skein_checker::chart::{Paint, grouped};
use skein_cluster::config::{ClusterConfig, Draft, Durability, FabricKind};
use skein_workloads::chaos::hosts::Hosts;
use skein_workloads::chaos::report::Report;
use skein_workloads::chaos::run::{End, Plan};
use skein_workloads::chaos::schedule::Kind;
use skein_workloads::chaos::silence::Silences;
use skein_workloads::report::{Machine, date};

use super::on_its_own;
use crate::exit::Exit;
use crate::output::{say, tell};
use crate::progress::Interrupt;

const CASES: usize = 2 * SHAPES.len() * 2;
/// Nodes, groups, replicas. Some shapes place equally many replicas on all nodes, others do not.
const SHAPES: [(u16, u16, u8); 4] = [(3, 3, 3), (4, 2, 3), (5, 5, 5), (7, 3, 5)];

/// Memory limits of a node: with room to spare, and without.
const AMPLE: u64 = 1 << 29;
const TIGHT: u64 = 48 << 20;
/// Percentage of a group's limit that records take before the first fault.
const TAKEN_PERCENT: u64 = 90;
const RECORD_BYTES: usize = 1_000;
/// Upper bound of what is accounted per record: value, key and the store's overhead.
const RECORD_COUNTED: u64 = 1_150;

/// A kind of cluster.
#[derive(Clone, Copy)]
struct Case {
    fabric: FabricKind,
    nodes: u16,
    groups: u16,
    replicas: u8,
    tight: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let fabrics = [FabricKind::Shm, FabricKind::Tcp].into_iter();
        let shapes = fabrics.flat_map(|fabric| SHAPES.map(|shape| (fabric, shape)));
        shapes.flat_map(|(fabric, (nodes, groups, replicas))| {
            [false, true].map(|tight| Self { fabric, nodes, groups, replicas, tight })
        })
    }

    fn config(self) -> anyhow::Result<ClusterConfig> {
        let mut draft = Draft::default();
        draft.flag("nodes", self.nodes.into());
        draft.flag("groups", self.groups.into());
        draft.flag("replicas", self.replicas.into());
        draft.flag_fabric(self.fabric);
        let mut config = draft.finish()?;
        config.limits.memory_bytes_max = if self.tight { TIGHT } else { AMPLE };
        Ok(config)
    }

    /// Number of records after which the rest of the run reaches the limit.
    fn records(self, config: &ClusterConfig) -> u64 {
        if !self.tight {
            return 0;
        }
        let all = config.limits.group_bytes_max(&config.layout()) * u64::from(self.groups);
        all * TAKEN_PERCENT / 100 / RECORD_COUNTED
    }

    fn name(self) -> String {
        let Self { fabric, nodes, groups, replicas, tight } = self;
        let memory = if tight { "at the ceiling" } else { "memory to spare" };
        let fabric = fabric.name();
        format!("{fabric}, {nodes} nodes, {groups} groups × {replicas} replicas, {memory}")
    }
}

/// The result of one case.
#[derive(Serialize)]
struct Line {
    case: String,
    good: bool,
    problems: Vec<String>,
    wrong: BTreeMap<&'static str, u64>,
    strictly_serializable: bool,
    /// Whether an order was found that explains the history, or all were tried.
    decided: bool,
    faults: BTreeMap<&'static str, u64>,
    operations: u64,
    acknowledged: u64,
    failed: u64,
    unknown: u64,
    /// Replicas whose digests were compared.
    replicas: u64,
    duration_s: f64,
    /// The longest time after a fault without an answer to any client, by kind of fault.
    silence_ms: BTreeMap<String, Silences>,
    history: Option<PathBuf>,
}

impl Line {
    fn of(case: Case, report: Report) -> Self {
        let verdict = report.verdict;
        Self {
            case: case.name(),
            good: report.good,
            problems: report.problems,
            wrong: verdict.wrong,
            strictly_serializable: report.order.strictly_serializable,
            decided: report.order.decided,
            faults: report.faults,
            operations: verdict.operations,
            acknowledged: verdict.acknowledged,
            failed: verdict.failed,
            unknown: verdict.unknown,
            replicas: verdict.replicas,
            duration_s: report.duration_s,
            silence_ms: report.silence_ms,
            history: report.history,
        }
    }

    /// The result of a case that could not be run. It counts as bad.
    fn broken(case: Case, error: &anyhow::Error) -> Self {
        Self {
            case: case.name(),
            good: false,
            problems: vec![format!("{error:#}")],
            wrong: BTreeMap::new(),
            strictly_serializable: false,
            decided: false,
            faults: BTreeMap::new(),
            operations: 0,
            acknowledged: 0,
            failed: 0,
            unknown: 0,
            replicas: 0,
            duration_s: 0.0,
            silence_ms: BTreeMap::new(),
            history: None,
        }
    }
}

/// The results of all cases.
#[derive(Serialize)]
struct Acceptance {
    /// Why there were no network partitions, if so.
    partitions_not_run: Option<String>,
    workload: &'static str,
    /// That of all clusters.
    durability: Durability,
    good: bool,
    /// Number of faults by kind.
    faults: BTreeMap<&'static str, u64>,
    seed: u64,
    skein: String,
    date: String,
    command: String,
    machine: Machine,
    cases: Vec<Line>,
}

/// Runs every case, even after a bad one. The cases share `faults` equally.
pub(super) fn run(plan: &Plan, faults: u32, verbose: u8, json: bool) -> anyhow::Result<Exit> {
    let interrupt = Interrupt::listen_and_stay()?;
    let partitions_not_run =
        Hosts::join(1).err().map(|why| format!("{:#}", anyhow::Error::new(why)));
    let mut cases = Vec::new();
    for (number, case) in Case::all().enumerate() {
        if interrupt.asked() {
            let why = anyhow::anyhow!("not run: interrupted");
            cases.push(Line::broken(case, &why));
            continue;
        }
        tell(format_args!("{} of {CASES}: {}", number + 1, case.name()));
        let end = End::Faults((faults as usize).div_ceil(CASES));
        let mut plan = Plan { end, ..plan.clone() };
        if case.fabric == FabricKind::Tcp && partitions_not_run.is_none() {
            plan.kinds.push(Kind::Partition);
        }
        let line = match one(case, &plan, number as u64, interrupt.clone(), verbose) {
            Ok(report) => Line::of(case, report),
            Err(error) => Line::broken(case, &error),
        };
        cases.push(line);
    }
    let mut faults = BTreeMap::new();
    for (kind, count) in cases.iter().flat_map(|line| &line.faults) {
        *faults.entry(*kind).or_default() += count;
    }
    let all = Acceptance {
        partitions_not_run,
        workload: "chaos acceptance",
        durability: ClusterConfig::default().durability,
        good: cases.iter().all(|line| line.good),
        faults,
        seed: plan.seed,
        skein: skein_cluster::BUILD.text().to_owned(),
        date: date::now(),
        command: date::command(),
        machine: Machine::here(),
        cases,
    };
    say(if json { serde_json::to_string(&all)? + "\n" } else { table(&all) })?;
    Ok(if all.good { Exit::Ok } else { Exit::No })
}

fn one(
    case: Case,
    plan: &Plan,
    number: u64,
    interrupt: Interrupt,
    verbose: u8,
) -> anyhow::Result<Report> {
    let config = case.config()?;
    let plan = Plan {
        records: case.records(&config),
        value_bytes: RECORD_BYTES,
        seed: plan.seed.wrapping_add(number),
        ..plan.clone()
    };
    on_its_own(config, plan, interrupt, verbose)
}

fn table(all: &Acceptance) -> String {
    let paint = Paint(std::io::IsTerminal::is_terminal(&std::io::stdout()));
    let mut text = String::new();
    let count: u64 = all.faults.values().sum();
    let kinds: Vec<_> = all.faults.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let Acceptance { workload, durability, seed, skein, date, .. } = all;
    let (workload, durability) = (paint.strong(workload), durability.name());
    let _ =
        writeln!(text, "{workload}   durability {durability}, seed {seed}, skein {skein}, {date}");
    let _ = writeln!(text, "  {} faults: {}\n", grouped(count), kinds.join(", "));
    let head = ["faults", "acknowledged", "failed", "unknown", "silence p99"];
    let _ = write!(text, "  {:<58}", "");
    for head in head {
        let _ = write!(text, "{head:>13}");
    }
    text.push('\n');
    for line in &all.cases {
        let worst = line.silence_ms.values().map(|times| times.p99).fold(0.0, f64::max);
        let numbers = [line.faults.values().sum(), line.acknowledged, line.failed, line.unknown];
        let _ = write!(text, "  {:<58}", line.case);
        for number in numbers {
            let _ = write!(text, "{:>13}", grouped(number));
        }
        let _ = writeln!(text, "{worst:>10.0} ms   {}", if line.good { "good" } else { "WRONG" });
        if line.good && !line.decided {
            let _ = writeln!(
                text,
                "    not decided: the bounded search found no order of all transactions"
            );
        }
        for problem in &line.problems {
            let _ = writeln!(text, "    {problem}");
        }
        for (kind, count) in &line.wrong {
            let _ = writeln!(text, "    {kind}: {count}");
        }
        if !line.good && line.operations > 0 && !line.strictly_serializable {
            let _ = writeln!(text, "    the transactions have no strict serial order");
        }
        if let Some(history) = &line.history {
            let _ = writeln!(text, "    the history: {}", history.display());
        }
    }
    let open = all.cases.iter().filter(|line| line.good && !line.decided).count();
    let said = if all.good && open > 0 {
        &format!(
            "nothing was lost, all replicas agree, and nothing was found wrong; of {open} histories it is not decided whether they are strictly serializable"
        )
    } else if all.good {
        "nothing was lost, all replicas agree, and every history is strictly serializable"
    } else {
        "some cases failed: `skein check` explains their histories"
    };
    let _ = writeln!(text, "\n  {said}");
    if let Some(why) = &all.partitions_not_run {
        let _ = writeln!(text, "  not run: partitions, which take network namespaces: {why}");
    }
    text
}
