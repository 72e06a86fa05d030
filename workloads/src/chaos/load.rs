//! The load loop: sends operations, records them and their results, and continues through any
//! failure.
//!
//! Two kinds of lanes share a thread. A *client* has a session with one operation in flight and
//! sends the next after the answer, at a given rate if there is one. A *prober* has a session to
//! one group and sends every millisecond whether or not it was answered: so there is always an
//! operation that was sent right after a kill, and the first answer shows when the group served
//! again.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use skein_checker::history::{Invoke, Process, Record, Unanswered, now};
use skein_client::{Error, Operation, ReadMode, Reply, SessionKey, Ticket, Transaction};

use super::objects::{Asker, Mix, Objects};
use crate::generator::Sessions;
use crate::recorded::end;

/// Destination of records: a history, or another process that writes one.
pub trait Sink {
    /// An operation is about to be sent. It must not be sent before this has returned.
    fn invoked(&mut self, record: Record);
    /// An operation has ended.
    fn ended(&mut self, record: Record);
    /// The load is idle for a moment.
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

/// Parameters of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Sessions with one operation in flight each.
    pub clients: usize,
    /// Operations per second of all clients together; without pause if `None`.
    pub rate: Option<f64>,
    /// Kinds of operations.
    pub mix: Mix,
    /// Read-only operations are each done in one of these modes.
    pub read_modes: Vec<ReadMode>,
    /// Whether to probe every group.
    pub probe: bool,
    /// Most operations in flight per session.
    pub window: usize,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of this writer, unique among processes.
    pub writer: u16,
}

/// State that other threads read while the load runs, and the flag that stops it.
#[derive(Debug, Default)]
pub struct Gauge {
    pub stop: AtomicBool,
    /// Operations answered so far.
    pub answered: AtomicU64,
    /// Operations so far that failed or have an unknown outcome.
    pub unanswered: AtomicU64,
}

/// An answered operation of a client. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub returned: u64,
    pub took: u64,
    /// Whether it concerned several groups.
    pub many: bool,
}

/// An answered probe. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    pub invoked: u64,
    pub returned: u64,
}

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Answered operations of clients, in the order of answers.
    pub samples: Vec<Sample>,
    /// Operations of clients without an answer: the time they were given up, and how long they
    /// took.
    pub given_up: Vec<Sample>,
    /// Answered probes per group, in the order of answers.
    pub probes: Vec<Vec<Probe>>,
    /// Description of the first operation without an answer.
    pub first_error: Option<String>,
}

/// Interval of probes of a group, in nanoseconds.
const PROBE_EVERY: u64 = 1_000_000;
/// Pause of a client after a failed operation, in nanoseconds.
const PAUSE: u64 = 10_000_000;
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// How long operations in flight are awaited at the end, in nanoseconds: longer than their timeout.
const DRAIN: u64 = 12_000_000_000;

/// Runs the load until it is stopped. `connect` is called at the start, and again when a connection
/// fails. Connections must not fail at once repeatedly.
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

/// A session, and the operations sent on it.
struct Lane {
    session: SessionKey,
    asks: Asks,
    /// Processes that have nothing in flight.
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
    /// Lanes with a free process, by the time at which they send next.
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

    /// Sends and receives until the load is stopped or the connection fails.
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

    /// Sends the operations that are due.
    fn ask(&mut self, sessions: &mut impl Sessions, time: u64) {
        while let Some((due, number)) = self.due.first().copied().filter(|(due, _)| *due <= time) {
            self.due.pop_first();
            let lane = &mut self.lanes[number];
            let process = lane.free.pop().expect("a lane that is due has somebody free");
            // A late lane does not catch up, because that would be a burst.
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
        // After an unknown outcome the client continues as another process.
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

    /// Gives up all operations in flight.
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
mod tests;
