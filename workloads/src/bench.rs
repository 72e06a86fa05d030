//! A benchmark from the first record loaded to the report.

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
    /// Its shape.
    pub topology: Topology,
    /// Which group owns which keys.
    pub slots: SlotMap,
    /// How many operations a session may have under way.
    pub window: usize,
    /// The version of Skein that it runs.
    pub skein: String,
    /// Nanoseconds from one core of the machine to another and back, just now.
    pub cross_core_ns: Option<f64>,
}

/// What to measure with YCSB.
#[derive(Clone, Debug)]
pub struct YcsbPlan {
    /// Which core workload.
    pub mix: Mix,
    /// Which records are popular: as the workload says, or otherwise.
    pub distribution: Distribution,
    /// How many records there shall be.
    pub records: u64,
    /// Whether to put them first.
    pub load: bool,
    /// How many clients, at most [`ycsb::CLIENTS_MAX`].
    pub clients: usize,
    /// How long and how fast.
    pub terms: Terms,
}

/// What to do at the bank.
#[derive(Clone, Debug)]
pub struct BankPlan {
    /// How many accounts: two at least, and as many at most as a transaction may have keys.
    pub accounts: usize,
    /// Money moves among the first so many of them; all, if nothing is said.
    pub hot: Option<usize>,
    /// How many clients move money.
    pub clients: usize,
    /// How many clients add all accounts up.
    pub readers: usize,
    /// How long and how fast.
    pub terms: Terms,
}

/// What to do at `SmallBank`'s.
#[derive(Clone, Debug)]
pub struct SmallBankPlan {
    /// How many customers, two at least.
    pub customers: u64,
    /// How many clients.
    pub clients: usize,
    /// How long and how fast.
    pub terms: Terms,
}

/// What to do on Retwis.
#[derive(Clone, Debug)]
pub struct RetwisPlan {
    /// How many records there shall be: more than one transaction takes.
    pub records: u64,
    /// Which of them are popular.
    pub distribution: Distribution,
    /// Whether to put them first.
    pub load: bool,
    /// How many clients.
    pub clients: usize,
    /// How long and how fast.
    pub terms: Terms,
}

/// How long a workload runs, how fast, and on whose dice.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// How long to measure.
    pub duration: Duration,
    /// How many sessions the clients share; each has its own if `None`.
    pub sessions: Option<usize>,
    /// Operations a second that are due, all clients together; a closed loop if `None`.
    pub rate: Option<f64>,
    /// How what only reads is done while that is measured.
    pub read_mode: ReadMode,
    /// What all choices are drawn from.
    pub seed: u64,
}

impl Terms {
    /// How many sessions so many clients have.
    pub fn sessions_of(&self, clients: usize) -> usize {
        self.sessions.unwrap_or(clients)
    }
}

/// A part of a benchmark that takes a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// So many records are put.
    Load(u64),
    /// The workload runs for so long, warm-up included.
    Run(Duration),
}

/// Somebody who looks on.
pub trait Watch {
    /// A part begins.
    fn begin(&mut self, phase: Phase);
    /// How it goes. False stops it.
    fn progress(&mut self, progress: Progress) -> bool;
}

/// A seed, for who does not care which.
pub fn any_seed() -> u64 {
    rand::rng().random_range(0..1 << 32)
}

/// Loads the records and measures the workload. The report is of what was possible: of a cluster
/// that is gone it says so.
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

/// Makes the records, and returns how many there are.
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

/// Puts what a workload needs, `count` transactions. Many at a time: it is not loading that is
/// measured.
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

/// The bank that `plan` is about.
pub fn open_bank(cluster: &Cluster, plan: &BankPlan) -> Bank {
    let BankPlan { accounts, hot, clients, readers, terms } = *plan;
    Bank::new(&cluster.slots, cluster.topology.groups, accounts, clients, readers, terms.seed)
        .with_hot(hot.unwrap_or(accounts))
}

/// Opens the customers' accounts, has clients do business, and adds up at the end.
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
        // What nobody was told of may be in the sum.
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

/// What all accounts add up to, when nobody does business any more.
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

/// Puts the records, and has users write and read.
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
    let skein = cluster.skein.clone();
    About { workload, records, clients, terms, skein, topology, cross_core_ns }
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

/// A run that did not come to measuring anything.
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
mod tests {
    use std::collections::BTreeMap;

    use skein_client::{Reply, SessionKey, Ticket, Transaction};

    use super::*;
    use crate::mix::CORE;
    use crate::model::Model;

    struct Looker {
        phases: Vec<Phase>,
        stop_after: u32,
    }

    impl Watch for Looker {
        fn begin(&mut self, phase: Phase) {
            self.phases.push(phase);
        }

        fn progress(&mut self, _: Progress) -> bool {
            self.stop_after = self.stop_after.saturating_sub(1);
            self.stop_after > 0
        }
    }

    fn looker() -> Looker {
        Looker { phases: Vec::new(), stop_after: u32::MAX }
    }

    fn cluster() -> Cluster {
        Cluster {
            topology: Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 },
            slots: SlotMap::even(2),
            window: 64,
            skein: "test".to_owned(),
            cross_core_ns: Some(120.0),
        }
    }

    fn plan(mix: Mix) -> YcsbPlan {
        YcsbPlan {
            mix,
            distribution: mix.distribution,
            records: 200,
            load: true,
            clients: 4,
            terms: TERMS,
        }
    }

    const TERMS: Terms = Terms {
        warm_up: Duration::from_millis(5),
        duration: Duration::from_millis(100),
        sessions: None,
        rate: None,
        read_mode: ReadMode::Confirmed,
        seed: 1,
    };

    fn bank_plan() -> BankPlan {
        BankPlan { accounts: 8, hot: Some(4), clients: 3, readers: 1, terms: TERMS }
    }

    #[test]
    fn a_benchmark_can_run_again_on_what_others_left() {
        let mut model = Model::default();
        for mix in CORE.into_iter().chain(CORE) {
            let mut looker = looker();
            let report = ycsb(&mut model, &cluster(), &plan(mix), &mut looker);
            assert!(report.is_good() && report.ops_per_s > 0.0, "{report:?}");
            assert_eq!(looker.phases[0], Phase::Load(200));
            assert_eq!(report.load.unwrap().records, 200);
            assert_eq!(looker.phases.last(), Some(&Phase::Run(Duration::from_millis(105))));
            let mut report = bank(&mut model, &cluster(), &bank_plan(), &mut looker);
            report.bank.as_mut().unwrap().pending = Some(0);
            assert!(report.is_good(), "{report:?}");
        }
    }

    /// Looks how many operations each session has under way.
    #[derive(Default)]
    struct Watched {
        model: Model,
        now: BTreeMap<SessionKey, usize>,
        most: BTreeMap<SessionKey, usize>,
    }

    impl Sessions for Watched {
        fn open(&mut self) -> SessionKey {
            self.model.open()
        }

        fn submit(
            &mut self,
            session: SessionKey,
            transaction: &Transaction,
        ) -> Result<Ticket, Error> {
            let now = self.now.entry(session).or_default();
            *now += 1;
            let most = self.most.entry(session).or_default();
            *most = (*most).max(*now);
            self.model.submit(session, transaction)
        }

        fn poll(
            &mut self,
            finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
        ) -> Result<bool, Error> {
            let Self { model, now, .. } = self;
            model.poll(&mut |ticket, result| {
                *now.get_mut(&ticket.session).unwrap() -= 1;
                finished(ticket, result);
            })
        }

        fn wait(&mut self, longest: Duration) {
            self.model.wait(longest);
        }

        fn close(&mut self, session: SessionKey) {
            self.model.close(session);
        }
    }

    #[test]
    fn clients_share_sessions_evenly_or_have_their_own() {
        for (sessions, wanted) in [(None, vec![1; 5]), (Some(2), vec![3, 2]), (Some(1), vec![5])] {
            let terms = Terms { sessions, ..TERMS };
            let plan =
                YcsbPlan { clients: 5, load: false, terms, ..plan(Mix::named('c').unwrap()) };
            let mut watched = Watched::default();
            fill(&mut watched, &cluster(), &mut Load::new(0..200, 1), 200, &mut looker()).unwrap();
            watched.most.clear();
            let report = ycsb(&mut watched, &cluster(), &plan, &mut looker());
            assert!(report.is_good(), "{report:?}");
            assert_eq!(watched.most.into_values().collect::<Vec<_>>(), wanted);
            assert_eq!((report.clients, report.sessions), (5, wanted.len()));
            let shared = report.table(false).contains(" 5 clients in ");
            assert_eq!(shared, sessions.is_some(), "{}", report.table(false));
        }
    }

    #[test]
    fn without_records_there_are_only_errors() {
        let plan = YcsbPlan { load: false, ..plan(Mix::named('c').unwrap()) };
        let report = ycsb(&mut Model::default(), &cluster(), &plan, &mut looker());
        assert!(report.errors_by_kind["missing_record"] > 0 && !report.is_good());
    }

    #[test]
    fn who_interrupts_gets_what_was_measured() {
        let mut model = Model::default();
        let mut looker = Looker { stop_after: 2, ..looker() };
        let terms = Terms { duration: Duration::from_mins(1), ..TERMS };
        let plan = YcsbPlan { terms, ..plan(Mix::named('a').unwrap()) };
        let report = ycsb(&mut model, &cluster(), &plan, &mut looker);
        assert_eq!(report.ended_early.as_deref(), Some("interrupted"));
        assert!(report.duration_s < 10.0 && report.ops_per_s > 0.0 && report.errors == 0);
    }

    #[test]
    fn a_cluster_that_goes_away_is_told_at_every_step() {
        // Loading takes 200 operations; workload d then looks whether record 200 is there.
        #[rustfmt::skip]
        let cases = [
            (1,     "while loading: "),
            (150,   "while loading: "),
            (201,   "looking for earlier insertions: the session is closed"),
            (1_000, "gave up after"),
        ];
        for (from, wanted) in cases {
            let mut model = Model::default();
            model.fails = Some((from, Error::Closed));
            let plan = plan(Mix::named('d').unwrap());
            let report = ycsb(&mut model, &cluster(), &plan, &mut looker());
            assert!(report.ended_early.as_deref().unwrap().starts_with(wanted), "{report:?}");
            assert!(report.errors > 0 && !report.is_good());
        }
        for from in [1, 50] {
            let mut model = Model::default();
            model.fails = Some((from, Error::Closed));
            let report = bank(&mut model, &cluster(), &bank_plan(), &mut looker());
            assert!(report.errors_by_kind["other"] > 0 && !report.is_good(), "{report:?}");
        }
    }
}
