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
        durability: "memory".to_owned(),
        store: "memory".to_owned(),
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

/// Counts the operations in flight of each session.
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

    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error> {
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
        let plan = YcsbPlan { clients: 5, load: false, terms, ..plan(Mix::named('c').unwrap()) };
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
    // Loading takes 200 operations; workload d then checks whether record 200 exists.
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
