//! The loads of a file of reports, and the choice for each.

use skein_checker::chart::{grouped, whole};
use skein_client::GroupSet;
use skein_multicast::config::Tuning;

use super::choice::{Basis, Choice};
use super::touched::{Touched, touched};
use super::{Kind, Load, Weight, own, table};
use crate::settings::{Setting, counted};
use crate::source::{Multicast, Source, Store, What};

/// A report of the multicast, and its number in the file.
type Numbered<'a> = (usize, &'a Source, &'a Multicast);

/// The loads of these reports.
///
/// # Errors
/// Which report has no load of messages.
pub(super) fn loads(sources: &[Source]) -> Result<Vec<Load>, String> {
    let mut found: Vec<(String, Load)> = Vec::new();
    let mut multicasts: Vec<(String, Vec<Numbered<'_>>)> = Vec::new();
    for (number, source) in (1..).zip(sources) {
        let key = source.settings().without(Setting::Order).without(Setting::Ended).key();
        let other = match &source.what {
            What::Multicast(multicast) => {
                let one = (number, source, multicast);
                match multicasts.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, reports)) => reports.push(one),
                    None => multicasts.push((key, vec![one])),
                }
                continue;
            }
            What::Store(store) => {
                match found.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, load)) => load.reports.push(number),
                    None => found.push((key, of_store(number, source, store)?)),
                }
                continue;
            }
            What::Chaos(_) => "chaos",
            What::Idle(_) => "idle",
            What::Peers(_) => "peers",
        };
        return Err(format!(
            "report {number} is of `{other}`, which says nothing about groups that messages address: give reports \
             of bench multicast, ycsb, bank, smallbank or retwis"
        ));
    }
    let mut loads = Vec::new();
    for (_, reports) in &multicasts {
        loads.push(of_multicast(reports)?);
    }
    loads.extend(found.into_iter().map(|(_, load)| load));
    loads.sort_by_key(|load| load.reports.first().copied());
    Ok(loads)
}

/// Refuses a number of groups that no cluster has.
fn check_groups(number: usize, groups: u16) -> Result<(), String> {
    let max = GroupSet::CAPACITY;
    let known = (1..=max).contains(&groups);
    known.then_some(()).ok_or_else(|| {
        format!("report {number} is of a cluster of {groups} groups: there are 1 to {max}")
    })
}

/// Loads with fewer messages in flight are compared with the light ones of the table, which has one message
/// in flight or 128. The limit is the geometric mean.
const HEAVY_FROM: f64 = 11.3;

fn weight(in_flight: f64) -> Weight {
    if in_flight < HEAVY_FROM { Weight::Light } else { Weight::Heavy }
}

/// The load of reports of the multicast that differ in the ordering alone.
fn of_multicast(reports: &[Numbered<'_>]) -> Result<Load, String> {
    let [(number, source, first), ..] = *reports else { return Err("it is empty".to_owned()) };
    let (groups, to) = (first.topology.groups, first.destinations);
    check_groups(number, groups)?;
    if to == 0 || to > groups {
        return Err(format!("report {number} has messages to {to} of {groups} groups"));
    }
    let mut notes = Vec::new();
    let mut usable = Vec::new();
    for (number, source, multicast) in reports {
        if multicast.ungated {
            notes.push(format!("report {number} is ungated, as no cluster runs it: not used"));
        } else if source.ended_early.is_some() || source.errors.is_some_and(|errors| errors > 0) {
            notes.push(format!("report {number} ended early or has errors: not used"));
        } else {
            usable.push(*multicast);
        }
    }
    let in_flight = match first.rate {
        Some(_) => first.messages_per_s.median * first.p50_us.median / 1e6,
        None => first.clients as f64 * first.window as f64,
    };
    let weight = weight(in_flight);
    let adjacent = first.tree.as_deref().filter(|_| first.adjacent);
    let ratios = own::ratios(&usable);
    let inline_bytes_max = Tuning::default().inline_bytes_max;
    let choice = if to == 1 {
        Choice { ratios, ..Choice::same() }
    } else if ratios.is_empty() && first.payload_bytes > inline_bytes_max {
        notes.push(format!(
            "payloads of more than {} B stand in no log entry: clients write them to all destinations, and along a tree \
             groups on the way fetch them, so the table, of 64 B, says nothing of them",
            grouped(inline_bytes_max as u64)
        ));
        Choice::unknown()
    } else if ratios.is_empty() {
        table::choice(to, groups, weight, adjacent)
    } else {
        Choice::of(ratios, Basis::File)
    };
    let kind = Kind { kind: "message".to_owned(), share: 1.0, addressed: Some(to), choice };
    let sets = match adjacent {
        Some(tree) => format!("adjacent in {tree}"),
        None if to == groups => "all of them".to_owned(),
        None => "drawn at random".to_owned(),
    };
    let told = match first.rate {
        Some(rate) => format!("{} messages due a second", grouped(whole(rate))),
        None => format!("{}, {} in flight each", counted(first.clients, "client"), first.window),
    };
    Ok(Load {
        load: format!(
            "multicast to {to} of {}, {sets}; {told}; {} B; {} on {}",
            counted(groups.into(), "group"),
            grouped(first.payload_bytes as u64),
            first.hardware.as_deref().unwrap_or(&first.placement),
            first.fabric,
        ),
        reports: reports.iter().map(|(number, ..)| *number).collect(),
        groups,
        in_flight,
        weight,
        measure: measure_multicast(source, first, &kind.choice),
        kinds: vec![kind],
        notes,
    })
}

/// The command that measures both orderings under the load of a report.
fn measure_multicast(source: &Source, report: &Multicast, choice: &Choice) -> String {
    let Multicast { destinations, payload_bytes, clients, window, topology, .. } = report;
    let tree = match (&report.tree, &choice.tree) {
        (Some(tree), _) | (None, Some(tree)) => tree.replace(' ', ""),
        (None, None) => "breadth".to_owned(),
    };
    let how = match (&report.hardware, report.placement.as_str()) {
        (Some(hardware), _) => format!(" --simulated --hardware {hardware}"),
        (None, "threads") => format!(" --threads --fabric {}", report.fabric),
        (None, _) => format!(" --fabric {}", report.fabric),
    };
    let adjacent = if report.adjacent { " --adjacent" } else { "" };
    let rate = report.rate.map_or_else(String::new, |rate| format!(" --open-loop {rate}"));
    let replicas = match source.topology().replicas {
        3 => String::new(),
        replicas => format!(" --replicas {replicas}"),
    };
    format!(
        "skein bench multicast{how} --groups {} --dst {destinations}{replicas} --payload {payload_bytes} --clients \
         {clients} --window {window}{rate}{adjacent} --compare --tree {tree} --runs 5 --json",
        topology.groups
    )
}

/// The load of a report of the store.
fn of_store(number: usize, source: &Source, store: &Store) -> Result<Load, String> {
    let groups = store.topology.groups;
    let total = store.operations.values().map(|it| it.count).fold(0, u64::saturating_add);
    check_groups(number, groups)?;
    if total == 0 {
        return Err(format!("report {number} has no operations: nothing was measured"));
    }
    let in_flight = match store.rate {
        Some(rate) => rate * store.load().latency / 1e6,
        None => store.clients as f64,
    };
    let weight = weight(in_flight);
    let mut kinds: Vec<Kind> = store
        .operations
        .iter()
        .filter(|(_, operation)| operation.count > 0)
        .map(|(name, operation)| {
            of_kind(store, name, operation.count as f64 / total as f64, weight)
        })
        .collect();
    kinds.sort_by(|one, other| other.share.total_cmp(&one.share));
    let mut notes = Vec::new();
    if source.ended_early.is_some() {
        notes.push(format!("report {number} ended early: its shares are those of a part"));
    }
    let told = match store.rate {
        Some(rate) => format!("{} operations due a second", grouped(whole(rate))),
        None => counted(store.clients, "client"),
    };
    let most = kinds.iter().filter_map(|kind| kind.addressed).max().unwrap_or(groups.min(2));
    let clients = store.clients;
    Ok(Load {
        load: format!("{} on {}; {told}", store.workload, counted(groups.into(), "group")),
        reports: vec![number],
        groups,
        in_flight,
        weight,
        kinds,
        measure: format!(
            "skein bench multicast --groups {groups} --dst {most} --clients {clients} --compare --tree breadth --runs 5 --json"
        ),
        notes,
    })
}

fn of_kind(store: &Store, name: &str, share: f64, weight: Weight) -> Kind {
    let (addressed, choice) = match touched(store, name) {
        Touched::Groups(1) => (Some(1), Choice::same()),
        Touched::Groups(to) => (Some(to), table::choice(to, store.topology.groups, weight, None)),
        Touched::Unordered => (None, Choice::same()),
        Touched::Unreported => (None, Choice::unknown()),
    };
    Kind { kind: name.to_owned(), share, addressed, choice }
}
