//! Power is lost everywhere, and the cluster returns to one restore point of all groups.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use skein_kvstore::backup::Mark;
use skein_kvstore::command::Transaction;
use skein_kvstore::plan::Plan;
use skein_kvstore::points::{Disks, Lost, Point, PointAnswer, RestorePoint, Survey};
use skein_kvstore::reply::Refusal;
use skein_kvstore::store::Store as _;
use skein_kvstore::wire::Part;
use skein_protocol::ids::{GroupId, MessageId, ReplicaId, SessionId};

use crate::cluster::{Cluster, REPLICAS, Random, layout};
use crate::strategy::{LIMITS, transaction};
use crate::tape::{Records, Tape};
use crate::tested::Machine;

const WRITER: SessionId = SessionId(7);
const NODE: SessionId = SessionId(8);

/// What is done next.
#[derive(Clone, Debug)]
enum Step {
    Write(Transaction),
    Point,
}

/// More versions than are assigned between two points.
const GAP: u64 = 1_000;

/// A cluster, from one loss of power to the next.
struct Run {
    cluster: Cluster,
    tapes: BTreeMap<(u16, u8), Tape>,
    random: Random,
    written: u64,
    said: u64,
    /// Number of the last point.
    number: u64,
    /// The state of each group at each point, as all its replicas told it.
    states: BTreeMap<Point, Vec<Mark>>,
    generation: u32,
    /// The point with which it began.
    began_with: Option<Point>,
    /// Versions of this generation are above this one.
    base: u64,
    floor: u64,
    /// What disks held that were taken out.
    aside: BTreeMap<(u16, u8), Records>,
}

/// Lets all machines write their restore points to `tapes`.
fn write_points_to(cluster: &mut Cluster, tapes: &BTreeMap<(u16, u8), Tape>) {
    for (id, machine) in &mut cluster.machines {
        machine.write_points_to(Box::new(tapes[id].clone()));
    }
    let tapes = tapes.clone();
    cluster.point_logs = Some(Box::new(move |id| Box::new(tapes[&id].clone())));
}

fn opened(mut cluster: Cluster) -> Cluster {
    let open = Plan::open(&cluster.slots);
    for session in [WRITER, NODE] {
        cluster.order(MessageId::new(session, 1), 1, open.destinations(), open.request());
    }
    cluster
}

impl Run {
    fn new(groups: u16, seed: u64) -> Self {
        let mut cluster = opened(Cluster::new(groups, LIMITS, seed));
        let tapes: BTreeMap<_, _> =
            cluster.machines.keys().map(|id| (*id, Tape::default())).collect();
        write_points_to(&mut cluster, &tapes);
        let states = BTreeMap::new();
        Self {
            cluster,
            tapes,
            random: Random(seed.rotate_left(7) | 1),
            written: 1,
            said: 1,
            number: 0,
            states,
            generation: 0,
            began_with: None,
            base: 0,
            floor: 0,
            aside: BTreeMap::new(),
        }
    }

    fn write(&mut self, transaction: &Transaction) {
        let plan = Plan::of(transaction, &self.cluster.slots, &LIMITS).expect("a good form");
        self.written += 1;
        let message = MessageId::new(WRITER, self.written);
        self.cluster.order(message, 1, plan.destinations(), plan.request());
    }

    fn say(&mut self, plan: &Plan) -> MessageId {
        self.said += 1;
        let message = MessageId::new(NODE, self.said);
        self.cluster.order(message, 1, plan.destinations(), plan.request());
        message
    }

    /// Makes a point, and asks for the state there. Meanwhile writes go on.
    fn point(&mut self, closes: bool) {
        self.number += 10;
        let number = self.number;
        let holds = self.tapes.iter().filter_map(|(id, tape)| tape.holds(*id)).collect();
        let point = RestorePoint { number, after: self.number - 10, closes, holds };
        let point = Plan::restore_point(&self.cluster.slots, point, None);
        let (told, mark) = (self.say(&point), Plan::mark(&self.cluster.slots));
        let marked = self.say(&mark);
        self.cluster.run();
        let reply = point.join(self.cluster.parts(told)).expect("it is not refused");
        for answer in PointAnswer::of(&reply).expect("an answer of each group") {
            assert_eq!((answer.last, answer.changed), (number, false));
            self.floor = self.floor.max(answer.floor);
        }
        if !closes {
            let reply = mark.join(self.cluster.parts(marked)).expect("it is not refused");
            self.states.insert((self.generation, number), Mark::of(&reply).expect("marks"));
        }
        for tape in self.tapes.values() {
            tape.flush(&mut self.random);
        }
    }

    fn carry_out(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Write(transaction) => self.write(transaction),
                Step::Point => self.point(false),
            }
        }
        self.cluster.run();
    }

    /// All power is lost, and disks of some groups; others come back as they were before the last return. Returns to the newest
    /// point that every group has, if there is one. If more disks are lost than are tolerated, an operator accepts that.
    fn return_to(&mut self) -> (Disks, Option<Point>) {
        let groups = self.tapes.len() as u16 / u16::from(REPLICAS);
        let next = self.generation + 1;
        for tape in self.tapes.values() {
            tape.lose_power(next, &mut self.random);
        }
        let mut disks = Disks::All;
        for group in 0..groups {
            let slot = self.random.below(2 * usize::from(REPLICAS)) as u8;
            // Before a point is known to be on f+1 disks, a single disk may be all that a group has.
            if slot < REPLICAS && self.floor > 0 {
                disks = disks.max(self.lose(group, slot));
            }
            if self.floor > 0 && self.random.below(4) == 0 {
                for more in 0..REPLICAS {
                    self.lose(group, (slot + more) % REPLICAS);
                    disks = Disks::TooFew;
                    if more > 0 && self.random.below(2) == 0 {
                        break;
                    }
                }
            }
        }
        let mut survey = Survey::new(groups, self.generation, self.began_with);
        let ends = self.tapes.iter().flat_map(|((group, _), tape)| {
            tape.ends().into_iter().map(|(generation, end)| (*group, generation, end))
        });
        for (group, generation, end) in ends {
            survey.take(group, generation, &end);
        }
        let newest = self.newest();
        let refused = Lost { floor: 0, newest: newest.map(|point| point.1) };
        let found = survey.choose(disks, false).map_err(|lost| Lost { floor: 0, ..lost });
        if disks == Disks::TooFew {
            assert_eq!(found, Err(refused), "a newer point may have been on the lost disks");
            let accepted = survey.choose(disks, true).ok().map(|choice| choice.point);
            assert_eq!(accepted, newest.map(Some));
            return (disks, newest);
        }
        let choice = found.expect("no more disks are lost than are tolerated");
        assert_eq!(choice.point, newest);
        (disks, newest)
    }

    /// A disk is gone, or it comes back as it was when it went.
    fn lose(&mut self, group: u16, slot: u8) -> Disks {
        let id = (group, slot);
        let old = self.aside.remove(&id);
        let gone = self.tapes[&id].lose_disk(self.generation + 1, old.clone());
        self.aside.insert(id, gone);
        if old.is_some() { Disks::All } else { Disks::Enough }
    }

    /// The newest point that every group has and that is not void.
    fn newest(&self) -> Option<Point> {
        let groups = self.tapes.len() as u16 / u16::from(REPLICAS);
        let counts = |point: &Point| point.0 == self.generation || Some(*point) == self.began_with;
        let of_group = |group| -> BTreeSet<Point> {
            let tapes = self.tapes.iter().filter(|((of, _), _)| *of == group);
            tapes.flat_map(|(_, tape)| tape.points()).filter(counts).collect()
        };
        let common = (0..groups).map(of_group).reduce(|one, other| &one & &other);
        common.and_then(|points| points.last().copied())
    }

    /// Begins anew with the states at that point.
    fn begin_with(&mut self, point: Point) {
        let newest = self.states.values().flatten().map(|mark| mark.position).max();
        let base = newest.unwrap_or(0).max(self.base) + GAP;
        let groups = self.tapes.len() as u16 / u16::from(REPLICAS);
        let mut stores = BTreeMap::new();
        for (id, tape) in &self.tapes {
            if tape.points().contains(&point) {
                let (store, end) = tape.state(point);
                let expected = self.states[&point][usize::from(id.0)];
                let found = (store.len() as u64, store.bytes(), store.digest());
                let told = (expected.keys, expected.bytes, expected.digest);
                assert_eq!(found, told, "{id:?} at {point:?}");
                stores.insert(id.0, (*id, end));
            }
        }
        // A replica whose disk does not lead there reads that of another.
        let state = |group: u16| self.tapes[&stores[&group].0].state(point).0;
        let seed = self.random.below(usize::MAX) as u64;
        let mut cluster = Cluster::new(groups, LIMITS, seed);
        for (id, machine) in &mut cluster.machines {
            let (replica, slots) = (ReplicaId::new(GroupId(id.0), id.1), cluster.slots.clone());
            let store = state(id.0);
            *machine = Machine::returning(store, base, replica, &layout(groups), slots, LIMITS);
        }
        write_points_to(&mut cluster, &self.tapes);
        for machine in cluster.machines.values_mut() {
            machine.write_first_point(point.1).expect("a store in memory");
        }
        self.tapes.values().for_each(Tape::sync);
        self.cluster = opened(cluster);
        self.generation += 1;
        self.states.insert((self.generation, point.1), self.states[&point].clone());
        (self.began_with, self.base) = (Some(point), base);
        (self.written, self.said, self.number, self.floor) = (1, 1, point.1, point.1);
    }
}

/// Runs one generation after the other, and loses all power in between.
fn check(groups: u16, generations: &[Vec<Step>], seed: u64) {
    let mut run = Run::new(groups, seed);
    for steps in generations {
        run.carry_out(steps);
        let before = run.states.values().flatten().map(|mark| mark.position).max();
        let (disks, point) = run.return_to();
        let Some(point) = point else {
            let empty = (run.floor, run.began_with) == (0, None);
            assert!(empty || disks == Disks::TooFew, "something was known to be on disk");
            return;
        };
        let floor = (run.generation, run.floor);
        assert!(point >= floor || disks == Disks::TooFew, "{point:?}, and {floor:?} was there");
        run.begin_with(point);
        // The first version behind the return is above every one that anybody was told.
        run.point(false);
        let first =
            run.states[&(run.generation, run.number)].iter().map(|mark| mark.position).min();
        assert!(first > before, "{first:?}");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![3 => transaction().prop_map(Step::Write), 1 => Just(Step::Point)];
    vec(step, 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn all_groups_return_to_one_place_in_the_order(
        groups in 1u16..=3,
        generations in vec(steps(), 1..6),
        seed: u64,
    ) {
        check(groups, &generations, seed);
    }
}

#[test]
fn behind_the_last_point_nothing_is_executed_and_no_session_opens() {
    let put = |key: &str| {
        let (key, value) = (key.into(), b"value".to_vec());
        Transaction::of(skein_kvstore::command::Operation::Put { key, value })
    };
    let mut run = Run::new(2, 3);
    run.write(&put("before"));
    run.point(true);
    let keys: u64 = (0..2).map(|group| run.cluster.machines[&(group, 0)].keys()).sum();
    run.write(&put("behind"));
    let late = Plan::open(&run.cluster.slots);
    let opens = MessageId::new(SessionId(9), 1);
    run.cluster.order(opens, 1, late.destinations(), late.request());
    run.cluster.run();
    let after: u64 = (0..2).map(|group| run.cluster.machines[&(group, 0)].keys()).sum();
    assert_eq!((keys, after), (1, 1));
    for (_, part) in run.cluster.parts(opens) {
        assert_eq!(Part::decode(part), Ok(Part::Refused(Refusal::Stopping)));
    }
}

#[test]
fn the_disks_of_all_replicas_lead_to_the_last_point_once_they_are_written() {
    for seed in 0..64 {
        let mut run = Run::new(2, seed);
        for number in 0..40 {
            let (key, value) = (format!("key {number}").into_bytes(), vec![b'v'; 20]);
            let put = skein_kvstore::command::Operation::Put { key, value };
            run.write(&Transaction::of(put));
            // The copies of some are under way at the last point.
            if number % 16 == 0 {
                run.point(false);
            }
        }
        run.point(true);
        // A copy may replace a replica behind the last point.
        run.cluster.run();
        let last = run.number;
        for (id, tape) in &run.tapes {
            tape.sync();
            let held = tape.holds(*id).expect("it is whole");
            assert_eq!(held.to, last, "seed {seed}, {id:?}");
            let (store, end) = tape.state((0, last));
            let machine = &run.cluster.machines[id];
            let (found, expected) = (store.len() as u64, machine.keys());
            assert_eq!((found, end.closes), (expected, true), "seed {seed}, {id:?}");
        }
    }
}

#[test]
fn commands_that_wait_behind_the_last_point_are_refused_in_all_groups() {
    for seed in 0..64 {
        let mut run = Run::new(3, seed);
        let moves = |n: usize| {
            let put = |key: String| skein_kvstore::command::Operation::Put {
                key: key.into_bytes(),
                value: b"value".to_vec(),
            };
            let mut both = Transaction::of(put(format!("{n}")));
            both.then.push(put(format!("other {n}")));
            both
        };
        let before: Vec<_> = (0..4).map(moves).collect();
        for transaction in &before {
            run.write(transaction);
        }
        let closing = RestorePoint { number: 10, after: 0, closes: true, holds: Vec::new() };
        let closing = Plan::restore_point(&run.cluster.slots, closing, None);
        run.say(&closing);
        (4..8).for_each(|n| run.write(&moves(n)));
        run.cluster.run();
        let keys: u64 = (0..3).map(|group| run.cluster.machines[&(group, 0)].keys()).sum();
        assert_eq!(keys, 8, "seed {seed}");
    }
}

#[test]
fn a_point_that_does_not_go_to_all_groups_is_refused_and_a_report_is_taken() {
    let mut run = Run::new(2, 1);
    for (number, refused) in [(10, true), (0, false)] {
        let point = RestorePoint { number, after: 0, closes: false, holds: Vec::new() };
        let plan = Plan::restore_point(&run.cluster.slots, point, Some(GroupId(1)));
        let message = run.say(&plan);
        run.cluster.run();
        let parts = run.cluster.parts(message);
        let [(_, part)] = parts[..] else { panic!("one group") };
        let part = Part::decode(part).expect("a part");
        assert_eq!(matches!(part, Part::Refused(_)), refused, "{part:?}");
    }
}

#[test]
fn of_two_points_that_follow_the_same_one_the_second_is_a_report() {
    let mut run = Run::new(2, 1);
    run.point(false);
    let mut answers = Vec::new();
    for (number, after, closes) in
        [(20, 10, false), (21, 10, false), (22, 20, false), (23, 10, true)]
    {
        let point = RestorePoint { number, after, closes, holds: Vec::new() };
        let plan = Plan::restore_point(&run.cluster.slots, point, None);
        let message = run.say(&plan);
        run.cluster.run();
        let reply = plan.join(run.cluster.parts(message)).expect("it is not refused");
        let answer = PointAnswer::of(&reply).expect("an answer of each group");
        answers.push(answer.iter().map(|it| it.last).collect::<Vec<_>>());
    }
    assert_eq!(answers, [[20, 20], [20, 20], [22, 22], [23, 23]]);
}
