//! A benchmark from the load of records to the report.

use std::time::Duration;

use rand::RngExt;
use skein_client::{Error, ReadMode};
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Topology;

use crate::bank::Bank;
use crate::generator::{self, Errors, Measured, Pace, Progress, Sessions, Settings, Workload};
use crate::keys::Distribution;
use crate::mix::Mix;
use crate::report::{About, LoadReport, Report, millis};
use crate::retwis::{self, Retwis};
use crate::smallbank::{Audit, Opening, SmallBank};
use crate::ycsb::{self, Load, Ycsb};

/// The cluster that is measured.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub topology: Topology,
    /// The name of its durability.
    pub durability: String,
    /// The name of its store.
    pub store: String,
    /// Group of each key.
    pub slots: SlotMap,
    /// Most operations in flight per session.
    pub window: usize,
    /// Version of Skein that it runs.
    pub skein: String,
    /// Nanoseconds from one core of the machine to another and back, measured just before.
    pub cross_core_ns: Option<f64>,
}

/// A YCSB run.
#[derive(Clone, Debug)]
pub struct YcsbPlan {
    pub mix: Mix,
    /// Popularity of records. It may differ from the workload's own.
    pub distribution: Distribution,
    /// Number of records.
    pub records: u64,
    /// Whether to put the records first.
    pub load: bool,
    /// At most [`ycsb::CLIENTS_MAX`].
    pub clients: usize,
    pub terms: Terms,
}

/// A run of the bank.
#[derive(Clone, Debug)]
pub struct BankPlan {
    /// At least two, and at most as many as a transaction may have keys.
    pub accounts: usize,
    /// Money moves only among the first `hot` accounts; among all if `None`.
    pub hot: Option<usize>,
    /// Clients that move money.
    pub clients: usize,
    /// Clients that add up all accounts.
    pub readers: usize,
    pub terms: Terms,
}

/// A run of `SmallBank`.
#[derive(Clone, Debug)]
pub struct SmallBankPlan {
    /// At least two.
    pub customers: u64,
    pub clients: usize,
    pub terms: Terms,
}

/// A run of Retwis.
#[derive(Clone, Debug)]
pub struct RetwisPlan {
    /// More records than one transaction accesses.
    pub records: u64,
    /// Popularity of records.
    pub distribution: Distribution,
    /// Whether to put the records first.
    pub load: bool,
    pub clients: usize,
    pub terms: Terms,
}

/// Duration, load and randomness of a run.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Number of sessions that the clients share; one per client if `None`.
    pub sessions: Option<usize>,
    /// Arrivals per second of all clients together; a closed loop if `None`.
    pub rate: Option<f64>,
    /// Mode of read-only operations during the measurement.
    pub read_mode: ReadMode,
    /// Seed of all random choices.
    pub seed: u64,
}

impl Terms {
    /// Number of sessions of `clients` clients.
    pub fn sessions_of(&self, clients: usize) -> usize {
        self.sessions.unwrap_or(clients)
    }
}

/// A phase of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Puts this many records.
    Load(u64),
    /// Runs the workload for this time, warm-up included.
    Run(Duration),
}

/// Observer of a benchmark.
pub trait Watch {
    /// A phase begins.
    fn begin(&mut self, phase: Phase);
    /// Reports progress. Returning false stops the run.
    fn progress(&mut self, progress: Progress) -> bool;
}

/// A random seed.
pub fn any_seed() -> u64 {
    rand::rng().random_range(0..1 << 32)
}

/// Loads the records and measures the workload. If the cluster fails, the report covers the part
/// before and says so.
pub fn ycsb(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    plan: &YcsbPlan,
    watch: &mut impl Watch,
) -> Report {
    let workload = format!("ycsb-{}", plan.mix.letter);
    let mut about = about(workload, plan.records, plan.clients, plan.terms, cluster);
    let (existing, loaded) = match prepare(sessions, cluster, plan, watch) {
        Ok(prepared) => prepared,
        Err(measured) => return Report::new(about, &[], &measured),
    };
    about.records = existing;
    let YcsbPlan { mix, distribution, clients, terms, .. } = *plan;
    let mut workload = Ycsb::new(mix, distribution, existing, clients, terms.seed);
    workload.take_stale(terms.read_mode == ReadMode::Stale);
    let measured = measure(sessions, &mut workload, clients, terms, watch);
    Report { load: loaded, ..Report::new(about, workload.kinds(), &measured) }
}

/// Puts the records if requested. Returns how many there are.
fn prepare(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    plan: &YcsbPlan,
    watch: &mut impl Watch,
) -> Result<(u64, Option<LoadReport>), Box<Measured>> {
    let mut load = |sessions: &mut _, records: std::ops::Range<u64>| {
        let count = records.end - records.start;
        fill(sessions, cluster, &mut Load::new(records, plan.terms.seed), count, watch)
    };
    let loaded = if plan.load { Some(load(sessions, 0..plan.records)?) } else { None };
    if plan.mix.percent_of(crate::mix::Kind::Insert) == 0 {
        return Ok((plan.records, loaded));
    }
    let (existing, again) = ycsb::existing(sessions, plan.records)
        .map_err(|error| Box::new(failed("looking for earlier insertions", &error)))?;
    load(sessions, again)?;
    Ok((existing, loaded))
}

/// Executes `count` transactions that a workload needs beforehand, many concurrently, because
/// loading is not measured.
fn fill(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    load: &mut impl Workload,
    count: u64,
    watch: &mut impl Watch,
) -> Result<LoadReport, Box<Measured>> {
    if count == 0 {
        return Ok(LoadReport { records: 0, duration_s: 0.0 });
    }
    watch.begin(Phase::Load(count));
    let settings = Settings::to_the_end(16, cluster.window.min(8));
    let mut measured = generator::run(sessions, load, settings, &mut |now| watch.progress(now));
    if measured.errors.total() == 0 && measured.ended_early.is_none() {
        let duration_s = millis(measured.measured_for);
        return Ok(LoadReport { records: measured.operations(), duration_s });
    }
    let why = measured
        .ended_early
        .take()
        .unwrap_or_else(|| format!("{} records could not be put", measured.errors.total()));
    Err(Box::new(nothing(measured.errors, format!("while loading: {why}"))))
}

/// Opens the accounts, moves money, and adds up at the end.
pub fn bank(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    plan: &BankPlan,
    watch: &mut impl Watch,
) -> Report {
    let BankPlan { accounts, clients, readers, terms, .. } = *plan;
    let about = about("bank".to_owned(), accounts as u64, clients + readers, terms, cluster);
    let mut bank = open_bank(cluster, plan);
    if let Err(error) = generator::once(sessions, &bank.opening()) {
        let measured = failed("opening the accounts", &error);
        return Report::new(about, &[], &measured).with_bank(&bank, None);
    }
    let mut measured = measure(sessions, &mut bank, clients + readers, terms, watch);
    let errors = &mut measured.errors;
    let last = match generator::once(sessions, &bank.reading()).map(|reply| bank.check(&reply)) {
        Ok(Ok(sum)) => Some(sum),
        Ok(Err(fault)) => {
            errors.add(fault.kind, || format!("at the end, {}", fault.what));
            None
        }
        Err(error) => {
            errors.add(generator::kind_of(&error), || format!("adding up at the end: {error}"));
            None
        }
    };
    Report::new(about, bank.kinds(), &measured).with_bank(&bank, last)
}

/// The bank that `plan` describes.
pub fn open_bank(cluster: &Cluster, plan: &BankPlan) -> Bank {
    let BankPlan { accounts, hot, clients, readers, terms } = *plan;
    Bank::new(&cluster.slots, cluster.topology.groups, accounts, clients, readers, terms.seed)
        .with_hot(hot.unwrap_or(accounts))
}

/// Opens the customers' accounts, runs the workload, and adds up at the end.
pub fn smallbank(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    plan: &SmallBankPlan,
    watch: &mut impl Watch,
) -> Report {
    let SmallBankPlan { customers, clients, terms } = *plan;
    let about = about("smallbank".to_owned(), 2 * customers, clients, terms, cluster);
    let mut bank = SmallBank::new(customers, clients, terms.seed);
    let loaded = match fill(sessions, cluster, &mut Opening::new(customers), customers, watch) {
        Ok(loaded) => loaded,
        Err(measured) => return Report::new(about, &[], &measured).with_smallbank(&bank, None),
    };
    let mut measured = measure(sessions, &mut bank, clients, terms, watch);
    let last = match audit(sessions, cluster, customers, watch) {
        // Operations of unknown outcome may be in the sum.
        Ok(sum) if measured.errors.total() > 0 || sum == bank.expected_sum() => Some(sum),
        Ok(sum) => {
            let wanted = bank.expected_sum();
            let what = || format!("all accounts add up to {sum} instead of {wanted}");
            measured.errors.add("wrong_sum", what);
            None
        }
        Err(why) => {
            measured.errors.add("not_read", || format!("adding up at the end: {why}"));
            None
        }
    };
    let report = Report::new(about, bank.kinds(), &measured).with_smallbank(&bank, last);
    Report { load: Some(loaded), ..report }
}

/// The sum of all accounts, once no client is active.
fn audit(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    customers: u64,
    watch: &mut impl Watch,
) -> Result<i64, String> {
    let mut audit = Audit::new(customers);
    let done = fill(sessions, cluster, &mut audit, customers, watch);
    done.map(|_| audit.sum).map_err(|measured| measured.errors.first.unwrap_or_default())
}

/// Puts the records, and runs the workload.
pub fn retwis(
    sessions: &mut impl Sessions,
    cluster: &Cluster,
    plan: &RetwisPlan,
    watch: &mut impl Watch,
) -> Report {
    let RetwisPlan { records, distribution, clients, terms, .. } = *plan;
    let about = about("retwis".to_owned(), records, clients, terms, cluster);
    let mut load = retwis::Load::new(records, terms.seed);
    let count = if plan.load { records } else { 0 };
    let loaded = match fill(sessions, cluster, &mut load, count, watch) {
        Ok(loaded) => plan.load.then_some(loaded),
        Err(measured) => return Report::new(about, &[], &measured),
    };
    let mut workload = Retwis::new(records, distribution, clients, terms.seed);
    let measured = measure(sessions, &mut workload, clients, terms, watch);
    Report { load: loaded, ..Report::new(about, workload.kinds(), &measured) }
}

fn about(workload: String, records: u64, clients: usize, terms: Terms, cluster: &Cluster) -> About {
    let Cluster { topology, cross_core_ns, .. } = *cluster;
    let Cluster { skein, durability, store, .. } = cluster.clone();
    About { workload, records, clients, terms, skein, topology, durability, store, cross_core_ns }
}

fn measure(
    sessions: &mut impl Sessions,
    workload: &mut impl Workload,
    clients: usize,
    terms: Terms,
    watch: &mut impl Watch,
) -> Measured {
    let Terms { warm_up, duration, rate, read_mode, seed, .. } = terms;
    watch.begin(Phase::Run(warm_up + duration));
    let pace = rate.map(|rate| Pace { rate, seed });
    let settings = Settings {
        clients,
        sessions: terms.sessions_of(clients),
        warm_up,
        duration: Some(duration),
        pace,
    };
    sessions.set_read_mode(read_mode);
    let measured =
        generator::run(sessions, workload, settings, &mut |progress| watch.progress(progress));
    sessions.set_read_mode(ReadMode::Ordered);
    measured
}

fn failed(doing: &str, error: &Error) -> Measured {
    let mut errors = Errors::default();
    errors.add(generator::kind_of(error), || error.to_string());
    nothing(errors, format!("{doing}: {error}"))
}

/// The result of a run that measured nothing.
fn nothing(errors: Errors, why: String) -> Measured {
    Measured {
        measured_for: Duration::ZERO,
        latency_ns: Vec::new(),
        never_invoked: 0,
        errors,
        timeline: Vec::new(),
        ended_early: Some(why),
    }
}

#[cfg(test)]
mod tests;
