//! The table of all runs: parameters, results, and the command to repeat each.

use std::collections::BTreeMap;

use skein_checker::chart::{grouped, whole};

use crate::figures::{Table, main_operations};
use crate::settings::counted;
use crate::source::{Chaos, Idle, Multicast, Peers, Source, Store, What};

/// Entry of a column without a value.
const NOTHING: &str = "–";

/// The results of a run.
#[derive(Default)]
struct Did {
    what: String,
    load: String,
    throughput: Option<f64>,
    latency: Option<[f64; 2]>,
    cross_core_ns: Option<f64>,
}

/// A row for each run.
pub(super) fn table(sources: &[Source]) -> Table {
    let heads = vec![
        "run",
        "file",
        "ended (UTC)",
        "what",
        "groups × replicas",
        "load",
        "throughput (1/s)",
        "p50 (µs)",
        "p99 (µs)",
        "errors",
        "measured (s)",
        "core to core (ns)",
        "command",
    ];
    let main = main_operations(sources);
    let row = |(number, source): (usize, &Source)| {
        let did = did(source, &main);
        let topology = source.topology();
        let micros =
            |us: Option<f64>| us.map_or_else(|| NOTHING.to_owned(), |us| format!("{us:.2}"));
        let count = |count: Option<u64>| count.map_or_else(|| NOTHING.to_owned(), grouped);
        vec![
            (number + 1).to_string(),
            source.file.clone(),
            source.ended().to_owned(),
            did.what,
            format!("{} × {}", topology.groups, topology.replicas),
            did.load,
            count(did.throughput.map(whole)),
            micros(did.latency.map(|[p50, _]| p50)),
            micros(did.latency.map(|[_, p99]| p99)),
            count(source.errors),
            source.duration_s.map_or_else(|| NOTHING.to_owned(), |seconds| format!("{seconds:.1}")),
            count(did.cross_core_ns.map(whole)),
            source.command(),
        ]
    };
    Table { heads, rows: sources.iter().enumerate().map(row).collect() }
}

fn did(source: &Source, main: &BTreeMap<&str, &str>) -> Did {
    let ended =
        source.ended_early.as_ref().map_or_else(String::new, |why| format!(", ended early: {why}"));
    let mut did = match &source.what {
        What::Multicast(multicast) => of_multicast(multicast),
        What::Chaos(Chaos { clients, ops_per_s, events, .. }) => Did {
            what: format!("chaos{}", faults(events.len())),
            load: counted(*clients, "client"),
            throughput: Some(*ops_per_s),
            ..Did::default()
        },
        What::Idle(Idle { sessions, percent_of_a_core, cross_core_ns, .. }) => Did {
            what: format!("idle: {percent_of_a_core:.2} % of a core"),
            load: counted(*sessions, "idle session"),
            cross_core_ns: *cross_core_ns,
            ..Did::default()
        },
        What::Peers(Peers { peers, .. }) => Did {
            what: "stores in turn".to_owned(),
            load: counted(peers.len(), "load"),
            ..Did::default()
        },
        What::Store(store) => of_store(store, main.get(&store.workload[..]).copied()),
    };
    did.what += &ended;
    did
}

fn of_multicast(multicast: &Multicast) -> Did {
    let Multicast { clients, window, rate, p50_us, p99_us, payload_bytes, .. } = multicast;
    let due = due(*rate, multicast.load().is_overloaded());
    let (order, adjacent) = (multicast.order_words(), multicast.adjacent_words());
    let by = if multicast.order == "ramcast" { String::new() } else { format!(", {order}") };
    let to = adjacent.map_or_else(String::new, |words| format!(" {words}"));
    Did {
        what: format!("multicast of {payload_bytes} B to {}{to}{by}", multicast.destinations),
        load: format!("{} × {window} in flight{due}", counted(*clients, "client")),
        throughput: Some(multicast.messages_per_s.median),
        latency: Some([p50_us.median, p99_us.median]),
        cross_core_ns: multicast.cross_core_ns.map(|trip| trip.median),
    }
}

/// `main` is the most frequent operation of the workload over all runs.
fn of_store(store: &Store, main: Option<&str>) -> Did {
    let Store { clients, ops_per_s, operations, rate, cross_core_ns, workload, .. } = store;
    let of_all = main.and_then(|name| operations.get_key_value(name));
    let of_itself = || operations.iter().max_by_key(|(_, operation)| operation.count);
    let most = of_all.or_else(of_itself);
    let of = most.map_or_else(String::new, |(name, _)| format!(", latency of {name}"));
    let due = due(*rate, store.load().is_overloaded());
    let shared = store.shared().map_or_else(String::new, |n| format!(" in {n} sessions"));
    let faults = faults(store.events.len());
    Did {
        what: format!("{workload}{of}{faults}"),
        load: format!("{}{shared}{due}", counted(*clients, "client")),
        throughput: Some(*ops_per_s),
        latency: most.map(|(_, it)| [it.latency_us.p50, it.latency_us.p99]),
        cross_core_ns: *cross_core_ns,
    }
}

/// The offered load of an open loop, and whether it was saturated.
fn due(rate: Option<f64>, saturated: bool) -> String {
    let saturated = if saturated { ", saturated" } else { "" };
    rate.map_or_else(String::new, |rate| format!(", {} due/s{saturated}", grouped(whole(rate))))
}

fn faults(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => ", 1 fault".to_owned(),
        some => format!(", {some} faults"),
    }
}
