//! Reports of other benchmarks, read back.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use skein_client::ReadMode;
use skein_multicast::config::Topology;

use crate::faults;
pub(crate) use crate::faults::{Event, Timeline};
use crate::saturation::Load;
use skein_workloads::multicast::report::Spread;
use skein_workloads::neighbours::Neighbours;
use skein_workloads::report::Machine;

/// A report, and its file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Name of the file.
    pub(crate) file: String,
    /// Version of Skein.
    pub(crate) skein: String,
    pub(crate) machine: Machine,
    /// Date of the end, if reported.
    pub(crate) date: Option<String>,
    /// Command line, if reported.
    told: Option<String>,
    /// Measured time, if reported.
    pub(crate) duration_s: Option<f64>,
    /// Warm-up, if reported.
    pub(crate) warmup_s: Option<f64>,
    /// Why the run ended early, if it did.
    pub(crate) ended_early: Option<String>,
    /// Operations without a correct reply, if reported.
    pub(crate) errors: Option<u64>,
    pub(crate) what: What,
}

/// The kind and content of a report.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// `bench multicast`.
    Multicast(Multicast),
    /// `bench chaos`.
    Chaos(Chaos),
    /// `bench ycsb`, `bank`, `smallbank` and `retwis`.
    Store(Store),
    /// `bench idle`.
    Idle(Idle),
    /// `workloads/peers/run`.
    Peers(Peers),
}

/// A report of `bench multicast`: see [`skein_workloads::multicast::report`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Multicast {
    pub(crate) command: String,
    pub(crate) placement: String,
    pub(crate) fabric: String,
    /// The simulated hardware; `None` if nothing was simulated, and in older reports.
    #[serde(default)]
    pub(crate) hardware: Option<String>,
    pub(crate) waiting: String,
    /// What ordered the messages. Versions that do not report it had RamCast alone.
    #[serde(default = "ramcast")]
    pub(crate) order: String,
    /// The tree along which it ordered, or in which destinations were adjacent.
    #[serde(default)]
    pub(crate) tree: Option<String>,
    #[serde(default)]
    pub(crate) adjacent: bool,
    /// Replies did not wait for the order of real time.
    #[serde(default)]
    pub(crate) ungated: bool,
    pub(crate) destinations: u16,
    pub(crate) payload_bytes: usize,
    pub(crate) clients: usize,
    /// Absent in reports of versions without idle sessions.
    #[serde(default)]
    pub(crate) idle: usize,
    pub(crate) window: usize,
    pub(crate) rate: Option<f64>,
    /// Processes that computed beside it, if any.
    #[serde(default)]
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) topology: Topology,
    pub(crate) messages_per_s: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
    pub(crate) cross_core_ns: Option<Spread>,
    pub(crate) distribution_us: Vec<[f64; 2]>,
    /// Batch sizes per stage, in classes that begin at powers of two.
    #[serde(default)]
    pub(crate) batches: BTreeMap<String, Vec<u64>>,
    /// The end of each run, if reported.
    #[serde(default)]
    runs: Vec<Ended>,
}

fn ramcast() -> String {
    "ramcast".to_owned()
}

/// How a run ended.
#[derive(Clone, Debug, Deserialize)]
struct Ended {
    #[serde(default)]
    errors: u64,
    #[serde(default)]
    ended_early: Option<String>,
}

/// A report of `bench chaos`: see [`skein_workloads::chaos::report`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Chaos {
    pub(crate) seed: u64,
    pub(crate) clients: usize,
    pub(crate) topology: Topology,
    pub(crate) ops_per_s: f64,
    pub(crate) events: Vec<Event>,
    pub(crate) timeline: Timeline,
}

/// A report of `bench ycsb` and similar benchmarks: see [`skein_workloads::report::Report`].
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Store {
    pub(crate) workload: String,
    pub(crate) ops_per_s: f64,
    pub(crate) clients: usize,
    /// Number of sessions, if reported. There may be fewer than clients.
    #[serde(default)]
    pub(crate) sessions: Option<usize>,
    /// Mode of read-only operations, if reported.
    #[serde(default)]
    pub(crate) read_mode: Option<String>,
    /// Durability of the cluster. Clusters of versions that do not report it were in memory.
    #[serde(default = "in_memory")]
    pub(crate) durability: String,
    pub(crate) records: u64,
    pub(crate) seed: u64,
    pub(crate) cross_core_ns: Option<f64>,
    /// Arrivals per second of an open loop.
    #[serde(default)]
    pub(crate) rate: Option<f64>,
    /// Operations that were due and never invoked.
    #[serde(default)]
    pub(crate) never_invoked: u64,
    /// Processes that computed beside it, if any.
    #[serde(default)]
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) topology: Topology,
    pub(crate) operations: BTreeMap<String, Operation>,
    #[serde(default)]
    pub(crate) events: Vec<Event>,
    pub(crate) timeline: Timeline,
}

fn in_memory() -> String {
    "memory".to_owned()
}

/// A report of `bench idle`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Idle {
    pub(crate) sessions: usize,
    /// Processor time of all processes together.
    pub(crate) percent_of_a_core: f64,
    pub(crate) duration_s: f64,
    pub(crate) cross_core_ns: Option<f64>,
    pub(crate) topology: Topology,
}

/// A report of `workloads/peers/run`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Peers {
    pub(crate) topology: Topology,
    pub(crate) peers: Vec<Peer>,
}

/// One store under one load, over several rounds.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Peer {
    /// Its name in `workloads/peers/settings.md`.
    pub(crate) store: String,
    /// `put`, `get` or `mixed`.
    pub(crate) asked: String,
    pub(crate) clients: usize,
    /// Whether a process of idle priority kept the cores from sleeping.
    pub(crate) awake: bool,
    pub(crate) neighbours: Option<Neighbours>,
    pub(crate) ops_per_s: Spread,
    pub(crate) p99_us: Spread,
}

/// The operations of one kind.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Operation {
    pub(crate) count: u64,
    pub(crate) latency_us: Percentiles,
    /// Pairs of a share of all operations and the microseconds within which they returned; empty in
    /// reports of older versions.
    #[serde(default)]
    pub(crate) distribution_us: Vec<[f64; 2]>,
}

/// Percentiles of latency in microseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    #[serde(default)]
    pub(crate) p95: Option<f64>,
    pub(crate) p99: f64,
    #[serde(default)]
    pub(crate) p999: Option<f64>,
    #[serde(default)]
    pub(crate) max: Option<f64>,
}

#[derive(Deserialize)]
struct Origin {
    workload: String,
    skein: String,
    machine: Machine,
    #[serde(default)]
    date: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    duration_s: Option<f64>,
    #[serde(default)]
    warmup_s: Option<f64>,
    #[serde(default)]
    ended_early: Option<String>,
    #[serde(default)]
    errors: Option<u64>,
}

/// The reports in the text of a file, one object after the other; or why there is none.
pub(crate) fn read(file: &str, text: &str) -> Result<Vec<Source>, String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let sources: Result<Vec<_>, serde_json::Error> =
        values.map(|value| value.and_then(|value| one(file, value))).collect();
    match sources {
        Ok(sources) if sources.is_empty() => Err("it is empty".to_owned()),
        Ok(sources) => Ok(sources),
        Err(error) => Err(format!("it is no report of a benchmark: {error}")),
    }
}

fn one(file: &str, value: Value) -> Result<Source, serde_json::Error> {
    let origin = Origin::deserialize(&value)?;
    let Origin { workload, skein, machine, date, command, .. } = origin;
    let Origin { duration_s, warmup_s, mut ended_early, mut errors, .. } = origin;
    let what: What = match workload.as_str() {
        "multicast" => What::Multicast(Deserialize::deserialize(value)?),
        "chaos" => What::Chaos(Deserialize::deserialize(value)?),
        "idle" => What::Idle(Deserialize::deserialize(value)?),
        "peers" => What::Peers(Deserialize::deserialize(value)?),
        _ => What::Store(Deserialize::deserialize(value)?),
    };
    if let What::Chaos(Chaos { events, timeline, .. })
    | What::Store(Store { events, timeline, .. }) = &what
    {
        faults::check(events, timeline).map_err(serde::de::Error::custom)?;
    }
    if let What::Multicast(Multicast { runs, .. }) = &what
        && !runs.is_empty()
    {
        errors = Some(runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.errors)));
        ended_early = runs.iter().find_map(|run| run.ended_early.clone());
    }
    let (file, told) = (file.to_owned(), command);
    Ok(Source { file, skein, machine, date, told, duration_s, warmup_s, ended_early, errors, what })
}

impl Store {
    /// Number of sessions if the clients share them; `None` if each client has its own.
    pub(crate) fn shared(&self) -> Option<usize> {
        self.sessions.filter(|sessions| *sessions < self.clients)
    }

    /// The load and the results.
    pub(crate) fn load(&self) -> Load {
        let most = self.operations.values().max_by_key(|operation| operation.count);
        Load {
            throughput: self.ops_per_s,
            latency: most.map_or(0.0, |operation| operation.latency_us.p50),
            offered: self.rate,
            refused: self.never_invoked,
        }
    }

    /// Mode of read-only operations, if it is not the default.
    pub(crate) fn read(&self) -> Option<&str> {
        let usual = ReadMode::default().to_string();
        self.read_mode.as_deref().filter(|mode| *mode != usual)
    }
}

impl Multicast {
    /// What ordered the messages, and along which tree.
    pub(crate) fn order_words(&self) -> String {
        let along = self.tree.as_ref().filter(|_| self.order == "tram");
        let along = along.map_or_else(String::new, |tree| format!(" along {tree}"));
        let gate = if self.ungated { ", ungated" } else { "" };
        format!("{}{along}{gate}", self.order)
    }

    /// The tree in which the groups of a message were adjacent, if they were.
    pub(crate) fn adjacent_words(&self) -> Option<String> {
        let tree = self.tree.as_ref().filter(|_| self.adjacent)?;
        Some(format!("adjacent in {tree}"))
    }

    /// The load and the results.
    pub(crate) fn load(&self) -> Load {
        Load {
            throughput: self.messages_per_s.median,
            latency: self.p50_us.median,
            offered: self.rate,
            refused: 0,
        }
    }
}

impl Source {
    /// The command line, if reported.
    pub(crate) fn told(&self) -> Option<&str> {
        match &self.what {
            What::Multicast(multicast) => Some(&multicast.command),
            _ => self.told.as_deref(),
        }
    }

    /// Whether the run was one in virtual time.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(&self.what, What::Multicast(multicast) if multicast.placement == "simulated")
    }

    /// Date of the end, as reported.
    pub(crate) fn ended(&self) -> &str {
        self.date.as_deref().unwrap_or("date unknown")
    }

    /// The command line, or what is known of it.
    pub(crate) fn command(&self) -> String {
        if let Some(told) = &self.told {
            return told.clone();
        }
        match &self.what {
            What::Multicast(multicast) => multicast.command.clone(),
            What::Peers(_) => "workloads/peers/run".to_owned(),
            What::Chaos(Chaos { seed, clients, .. }) => {
                format!("skein bench chaos --clients {clients} --seed {seed} --json")
            }
            What::Idle(Idle { sessions, duration_s, .. }) => {
                format!("skein bench idle --sessions {sessions} --duration {duration_s:.0} --json")
            }
            What::Store(store) => {
                let Store { workload, clients, records, seed, rate, .. } = store;
                let command = match (workload.strip_prefix("ycsb-"), workload.as_str()) {
                    (Some(letter), _) => format!("ycsb --workload {letter} --records {records}"),
                    (None, "smallbank") => format!("smallbank --customers {}", records / 2),
                    (None, "retwis") => format!("retwis --records {records}"),
                    (None, other) => other.to_owned(),
                };
                let rate = rate.map_or_else(String::new, |rate| format!(" --rate {rate}"));
                let shared =
                    store.shared().map_or_else(String::new, |n| format!(" --sessions {n}"));
                let read =
                    store.read().map_or_else(String::new, |mode| format!(" --read-mode {mode}"));
                let beside =
                    store.neighbours.map_or_else(String::new, |n| format!(" --neighbours {n}"));
                format!(
                    "skein bench {command} --clients {clients}{shared}{read}{rate}{beside} --seed {seed} --json"
                )
            }
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        match &self.what {
            What::Multicast(Multicast { topology, .. })
            | What::Chaos(Chaos { topology, .. })
            | What::Idle(Idle { topology, .. })
            | What::Peers(Peers { topology, .. })
            | What::Store(Store { topology, .. }) => *topology,
        }
    }
}
