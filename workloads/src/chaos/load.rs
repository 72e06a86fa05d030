//! The loop that asks, records what it asked and was told, and goes on whatever happens.
//!
//! Two kinds of lanes share a thread. A *client* has a session with one operation under way and asks
//! again when it was answered, at a pace if one is given. A *prober* has a session to one group and
//! asks every millisecond whether or not it was answered: so there is always an operation that was
//! sent right after a kill, and the first of them to be answered tells when the group went on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use skein_checker::history::{Invoke, Process, Record, Unanswered, now};
use skein_client::{Error, Operation, ReadMode, Reply, SessionKey, Ticket, Transaction};

use super::objects::{Asker, Mix, Objects};
use crate::generator::Sessions;
use crate::recorded::end;

/// Where records go: to a history, or to another process that keeps one.
pub trait Sink {
    /// An operation is about to be sent. It must not be sent before this has returned.
    fn invoked(&mut self, record: Record);
    /// It has ended.
    fn ended(&mut self, record: Record);
    /// Nothing happens for a moment.
    fn idle(&mut self) {}
}

impl Sink for skein_checker::history::Scribe {
    fn invoked(&mut self, record: Record) {
        self.note(record);
    }

    fn ended(&mut self, record: Record) {
        self.note(record);
    }
}

/// What to ask for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sessions with one operation under way each.
    pub clients: usize,
    /// Operations that they ask for in a second, all together; as many as are answered if `None`.
    pub rate: Option<f64>,
    /// Of what kinds.
    pub mix: Mix,
    /// How those that only read are done: each in one of these modes.
    pub read_modes: Vec<ReadMode>,
    /// Whether to probe every group.
    pub probe: bool,
    /// How many operations a session may have under way.
    pub window: usize,
    /// What all choices are drawn from.
    pub seed: u64,
    /// The number of this writer, one of its own for each process.
    pub writer: u16,
}

/// Others look at this while it runs, and stop it.
#[derive(Debug, Default)]
pub struct Gauge {
    /// Set to stop.
    pub stop: AtomicBool,
    /// Operations answered so far.
    pub answered: AtomicU64,
    /// Operations that failed, or of which nobody knows, so far.
    pub unanswered: AtomicU64,
}

/// An operation of a client that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub returned: u64,
    /// How long it took.
    pub took: u64,
    /// Whether it concerned several groups.
    pub many: bool,
}

/// A probe that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// When it was sent.
    pub invoked: u64,
    /// When it was answered.
    pub returned: u64,
}

/// What came of a load.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Operations of clients that were answered, as they were.
    pub samples: Vec<Sample>,
    /// Those of clients that were not: when they were given up, and after how long.
    pub given_up: Vec<Sample>,
    /// Probes of each group that were answered, as they were.
    pub probes: Vec<Vec<Probe>>,
    /// The first operation without an answer, in full.
    pub first_error: Option<String>,
}

/// How often a group is probed.
const PROBE_EVERY: u64 = 1_000_000;
/// How long a client waits after an operation that could not be done: others may be able to.
const PAUSE: u64 = 10_000_000;
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// How long operations under way are waited for at the end: longer than their time-out.
const DRAIN: u64 = 12_000_000_000;

/// Asks until it is told to stop. `connect` is called at the start, and again when a connection has
/// become useless; what it returned may not become useless at once, over and over.
pub fn run<S: Sessions>(
    connect: &mut dyn FnMut() -> Option<S>,
    objects: &Objects,
    plan: &Plan,
    sink: &mut impl Sink,
    gauge: &Gauge,
) -> Loaded {
    let mut load = Load::new(objects, plan, sink, gauge);
    while !gauge.stop.load(Ordering::Relaxed) {
        let Some(mut sessions) = connect() else {
            std::thread::sleep(LONGEST_WAIT);
            continue;
        };
        load.open(&mut sessions);
        load.drive(&mut sessions);
        load.abandon();
    }
    load.loaded
}

/// A session, and what is asked in it.
struct Lane {
    session: SessionKey,
    asks: Asks,
    /// Those who ask nothing at the moment.
    free: Vec<Process>,
    interval: u64,
    due: u64,
}

#[derive(Clone, Copy)]
enum Asks {
    Mixed,
    Probes(u16),
}

struct UnderWay {
    lane: usize,
    process: Process,
    invoked: u64,
    many: bool,
    asked: Transaction,
}

struct Load<'a, K> {
    objects: &'a Objects,
    plan: &'a Plan,
    sink: &'a mut K,
    gauge: &'a Gauge,
    asker: Asker,
    lanes: Vec<Lane>,
    /// Lanes with somebody free, by the time at which they ask again.
    due: BTreeSet<(u64, usize)>,
    under_way: HashMap<Ticket, UnderWay>,
    processes: Process,
    loaded: Loaded,
}

impl<'a, K: Sink> Load<'a, K> {
    fn new(objects: &'a Objects, plan: &'a Plan, sink: &'a mut K, gauge: &'a Gauge) -> Self {
        let groups = usize::from(objects.groups());
        Self {
            objects,
            plan,
            sink,
            gauge,
            asker: Asker::new(plan.seed, plan.writer),
            lanes: Vec::new(),
            due: BTreeSet::new(),
            under_way: HashMap::new(),
            // No two writers have a process in common.
            processes: u64::from(plan.writer) << 32,
            loaded: Loaded { probes: vec![Vec::new(); groups], ..Loaded::default() },
        }
    }

    fn process(&mut self) -> Process {
        self.processes += 1;
        self.processes
    }

    fn open(&mut self, sessions: &mut impl Sessions) {
        let now = now();
        let clients = self.plan.clients;
        let interval = self.plan.rate.map_or(0.0, |rate| 1e9 * clients as f64 / rate.max(1e-3));
        let interval = skein_checker::chart::whole(interval);
        for client in 0..clients as u64 {
            // Spread over the interval.
            let due = now + interval * client / clients.max(1) as u64;
            let free = vec![self.process()];
            self.lane(Lane { session: sessions.open(), asks: Asks::Mixed, free, interval, due });
        }
        if self.plan.probe {
            for group in 0..self.objects.groups() {
                let free = (0..self.plan.window.div_ceil(2)).map(|_| self.process()).collect();
                let (session, asks) = (sessions.open(), Asks::Probes(group));
                self.lane(Lane { session, asks, free, interval: PROBE_EVERY, due: now });
            }
        }
    }

    fn lane(&mut self, lane: Lane) {
        self.due.insert((lane.due, self.lanes.len()));
        self.lanes.push(lane);
    }

    /// Asks and is answered until it is told to stop, or the connection is useless.
    fn drive(&mut self, sessions: &mut impl Sessions) {
        let mut finished = Vec::new();
        let mut drain_until = None;
        loop {
            let mut time = now();
            if drain_until.is_none() && self.gauge.stop.load(Ordering::Relaxed) {
                drain_until = Some(time + DRAIN);
            }
            match drain_until {
                Some(until) if self.under_way.is_empty() || time >= until => return,
                Some(_) => {}
                None => self.ask(sessions, time),
            }
            let polled =
                sessions.poll(&mut |ticket, result| finished.push((ticket, now(), result)));
            for (ticket, at, result) in finished.drain(..) {
                self.finished(ticket, at, result);
            }
            match polled {
                Ok(true) => {}
                Ok(false) => {
                    self.sink.idle();
                    time = now();
                    let next = self.due.first().filter(|_| drain_until.is_none());
                    let next = next.map(|(due, _)| Duration::from_nanos(due.saturating_sub(time)));
                    if next.is_none_or(|next| !next.is_zero()) {
                        sessions.wait(next.unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT));
                    }
                }
                Err(error) => return self.complain(&error),
            }
        }
    }

    /// Lets everybody ask whose time has come.
    fn ask(&mut self, sessions: &mut impl Sessions, time: u64) {
        while let Some((due, number)) = self.due.first().copied().filter(|(due, _)| *due <= time) {
            self.due.pop_first();
            let lane = &mut self.lanes[number];
            let process = lane.free.pop().expect("a lane that is due has somebody free");
            // Who is late does not catch up: that would be a burst.
            lane.due = (due + lane.interval).max(time);
            if !lane.free.is_empty() {
                self.due.insert((lane.due, number));
            }
            let (session, asks) = (lane.session, lane.asks);
            let (transaction, many) = match asks {
                Asks::Mixed => self.objects.draw(self.plan.mix, &mut self.asker, time),
                Asks::Probes(group) => {
                    let key = self.objects.probe(group);
                    (Transaction::of(Operation::Increment { key, by: 1 }), false)
                }
            };
            if transaction.only_reads() {
                sessions.set_read_mode(self.asker.mode(&self.plan.read_modes));
            }
            let invoked = now();
            let stale = sessions.reads_stale(&transaction);
            let invoke = Invoke { stale, ..Invoke::of(invoked, process, &transaction, None) };
            self.sink.invoked(Record::Invoke(invoke));
            let submitted = sessions.submit(session, &transaction);
            let under_way = UnderWay { lane: number, process, invoked, many, asked: transaction };
            match submitted {
                Ok(ticket) => _ = self.under_way.insert(ticket, under_way),
                Err(error) => self.end(under_way, now(), Err(error)),
            }
        }
    }

    fn finished(&mut self, ticket: Ticket, at: u64, result: Result<Reply, Error>) {
        if let Some(under_way) = self.under_way.remove(&ticket) {
            self.end(under_way, at, result);
        }
    }

    fn end(&mut self, under_way: UnderWay, at: u64, result: Result<Reply, Error>) {
        let UnderWay { lane: number, process, invoked, many, asked } = under_way;
        let record = end(at, process, &result, None);
        // Who does not know what it has done goes on under another name.
        let process = if matches!(record, Record::Unknown(_)) { self.process() } else { process };
        self.sink.ended(record);
        let lane = &mut self.lanes[number];
        let took = at.saturating_sub(invoked);
        let sample = Sample { returned: at, took, many };
        match (&result, lane.asks) {
            (Ok(_), Asks::Mixed) => self.loaded.samples.push(sample),
            (Ok(_), Asks::Probes(group)) => {
                self.loaded.probes[usize::from(group)].push(Probe { invoked, returned: at });
            }
            (Err(_), Asks::Mixed) => self.loaded.given_up.push(sample),
            (Err(_), Asks::Probes(_)) => {}
        }
        if let Ok(reply) = &result {
            self.asker.told(&asked, reply);
            self.gauge.answered.fetch_add(1, Ordering::Relaxed);
        } else {
            lane.due = lane.due.max(at + PAUSE);
        }
        lane.free.push(process);
        if lane.free.len() == 1 {
            self.due.insert((lane.due, number));
        }
        if let Err(error) = result {
            self.complain(&error);
        }
    }

    fn complain(&mut self, error: &Error) {
        self.gauge.unanswered.fetch_add(1, Ordering::Relaxed);
        self.loaded.first_error.get_or_insert_with(|| error.to_string());
    }

    /// Nobody waits for anything any more.
    fn abandon(&mut self) {
        let t = now();
        for (_, UnderWay { process: p, .. }) in self.under_way.drain() {
            let why = "not waited for any longer".to_owned();
            self.sink.ended(Record::Unknown(Unanswered { t, p, why }));
        }
        self.lanes.clear();
        self.due.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use skein_checker::history::{Digest, End, Header, Op};
    use skein_checker::verify::{Judgement, verify};
    use skein_client::GroupSet;
    use skein_kvstore::slots::SlotMap;
    use skein_multicast::config::Topology;

    use super::*;
    use crate::chaos::objects::TOKEN_BYTES;
    use crate::chaos::state::Survey;
    use crate::generator::{Settings, once};
    use crate::model::Model;

    const PLAN: Plan = Plan {
        clients: 4,
        rate: None,
        mix: Mix::Everything,
        read_modes: Vec::new(),
        probe: true,
        window: 8,
        seed: 1,
        writer: 3,
    };

    #[derive(Default)]
    struct Kept(Vec<Record>);

    impl Sink for Kept {
        fn invoked(&mut self, record: Record) {
            self.0.push(record);
        }

        fn ended(&mut self, record: Record) {
            self.0.push(record);
        }
    }

    /// Runs for a moment on a model that may be wrong, and gives the history's verdict.
    fn history_of(prepare: impl Fn(&mut Model)) -> (Judgement, Loaded) {
        let topology = Topology { nodes: 1, groups: 2, replicas: 1, engines: 1 };
        let objects = Objects::new("test", &SlotMap::even(2), 2, now());
        let mut kept = Kept::default();
        let gauge = Gauge::default();
        let mut model = Model::over(SlotMap::even(2));
        once(&mut model, &objects.opening()).unwrap();
        prepare(&mut model);
        let loaded = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(150));
                gauge.stop.store(true, Ordering::Relaxed);
            });
            let mut lent = Some(&mut model);
            run(&mut || lent.take(), &objects, &PLAN, &mut kept, &gauge)
        });
        let header = Header {
            format: skein_checker::history::FORMAT,
            workload: "chaos".into(),
            skein: "test".into(),
            cluster: topology,
            seed: 1,
            t: 0,
            unix_ms: 0,
            token_bytes: TOKEN_BYTES,
            bank: Some(objects.bank()),
            record: None,
            before: false,
        };
        let mut records = kept.0;
        let keys = records.iter().filter_map(|record| match record {
            Record::Invoke(invoke) => Some(invoke.ops.iter().map(Op::key).map(str::to_owned)),
            _ => None,
        });
        let keys: BTreeSet<String> = keys.flatten().collect();
        let mut survey = Survey::new(keys.into_iter().collect(), 1, None);
        let settings = Settings::to_the_end(1, 1);
        (model.before, model.fails) = (None, None);
        crate::generator::run(&mut model, &mut survey, settings, &mut |_| true);
        records.extend(survey.found.into_iter().map(Record::Final));
        let digest = |group| {
            Record::Digest(Digest {
                t: 0,
                group,
                slot: 0,
                node: 0,
                position: 1,
                digest: "0".into(),
            })
        };
        records.extend([digest(0), digest(1), Record::End(End { t: 0 })]);
        let records: Vec<u8> = records
            .iter()
            .flat_map(|record| {
                serde_json::to_string(record).unwrap().into_bytes().into_iter().chain([b'\n'])
            })
            .collect();
        let mut lines =
            serde_json::to_string(&Record::Header(Box::new(header))).unwrap().into_bytes();
        lines.push(b'\n');
        lines.extend(records);
        let reader = skein_checker::history::Reader::over(&lines[..], Path::new("test")).unwrap();
        let header = reader.header.clone();
        (verify(&header, reader).unwrap(), loaded)
    }

    #[test]
    fn the_history_of_a_right_store_is_right() {
        let (verdict, loaded) = history_of(|_| ());
        assert!(verdict.is_good(), "{verdict:#?}");
        assert!(verdict.acknowledged > 100 && verdict.keys > 20, "{verdict:?}");
        assert!(loaded.samples.iter().any(|sample| sample.many));
        for probes in loaded.probes {
            // No more than one a millisecond, however late the thread was.
            let [first, .., last] = &probes[..] else { panic!("a group is not probed") };
            let most = (last.invoked - first.invoked) / PROBE_EVERY + 2;
            assert!(probes.len() as u64 <= most, "{} of {most}", probes.len());
        }
    }

    #[test]
    fn the_history_of_a_store_that_forgets_or_repeats_is_wrong() {
        let (verdict, _) = history_of(|model| {
            model.before = Some(|transaction| {
                let forget = |operation: &Operation| matches!(operation, Operation::Append { value, .. } if value.ends_with(b"0"));
                transaction.then.iter_mut().filter(|operation| forget(operation)).for_each(
                    |operation| {
                        let Operation::Append { key, .. } = operation else { unreachable!() };
                        *operation = Operation::Append { key: key.clone(), value: Vec::new() };
                    },
                );
            });
        });
        assert!(verdict.wrong.contains_key("lost"), "{verdict:?}");
        let (verdict, _) = history_of(|model| {
            model.before = Some(|transaction| {
                if let [Operation::Append { value, .. }] = &mut transaction.then[..] {
                    let twice = value.repeat(2);
                    *value = twice;
                }
            });
        });
        assert!(verdict.wrong.contains_key("twice"), "{verdict:?}");
    }

    #[test]
    fn who_does_not_know_goes_on_under_another_name() {
        let (verdict, loaded) = history_of(|model| {
            let (after, silent) = (Duration::from_secs(1), GroupSet::EMPTY);
            model.fails = Some((200, Error::UnknownOutcome { after, silent }));
        });
        assert!(verdict.unknown > 0 && verdict.is_good(), "{verdict:#?}");
        assert!(loaded.first_error.unwrap().contains("no reply"));
    }
}
