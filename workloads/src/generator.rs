//! The generator: N clients, each with one operation under way, on one thread, in a closed or an open
//! loop. Each has a session of its own, or many share a few.
//!
//! In a **closed loop** a client's next operation is invoked when its last one has returned, so the
//! load adapts to the cluster: its latencies are those at the throughput reported beside them and say
//! nothing about any other. An operation lasts from when it is invoked until the poll that brought its
//! reply has returned.
//!
//! In an **open loop** operations are due at times drawn beforehand, whoever is free then invokes them,
//! and the latency of each runs from when it was *due*. What waited for a client, because all of them
//! waited for the cluster, counts with all of its wait; what was never invoked is counted, too.

use std::collections::{BTreeMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use skein_client::{Driver, Error, ReadMode, SessionKey, Ticket, Transaction};
use skein_fabric::Fabric;
use skein_fabric::wait::{Yields, ask_for_short_slices};
use skein_kvstore::reply::Reply;

use crate::arrivals::Arrivals;

/// Sessions to a store, polled on the caller's thread. The cluster's is [`Driver`]; tests have one
/// that loses, swaps and forgets.
pub trait Sessions {
    /// Opens a session.
    fn open(&mut self) -> SessionKey;
    /// Sends a transaction on its way.
    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error>;
    /// Hands over what has finished, without waiting. Returns whether there was anything to do.
    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error>;
    /// Waits a little after a poll that found nothing.
    fn wait(&mut self, longest: Duration);
    /// Ends a session.
    fn close(&mut self, session: SessionKey);
    /// What only reads is done so from now on, if there is another way than one.
    fn set_read_mode(&mut self, mode: ReadMode) {
        let _ = mode;
    }
    /// Whether what `transaction` reads may be of any age.
    fn reads_stale(&self, transaction: &Transaction) -> bool {
        let _ = transaction;
        false
    }
}

impl<S: Sessions> Sessions for &mut S {
    fn open(&mut self) -> SessionKey {
        (**self).open()
    }

    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error> {
        (**self).submit(session, transaction)
    }

    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        (**self).poll(finished)
    }

    fn wait(&mut self, longest: Duration) {
        (**self).wait(longest);
    }

    fn close(&mut self, session: SessionKey) {
        (**self).close(session);
    }

    fn set_read_mode(&mut self, mode: ReadMode) {
        (**self).set_read_mode(mode);
    }

    fn reads_stale(&self, transaction: &Transaction) -> bool {
        (**self).reads_stale(transaction)
    }
}

impl<F: Fabric> Sessions for Driver<F> {
    fn open(&mut self) -> SessionKey {
        self.open()
    }

    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error> {
        self.submit(session, transaction)
    }

    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error> {
        self.poll(finished)
    }

    fn wait(&mut self, longest: Duration) {
        self.wait(longest);
    }

    fn close(&mut self, session: SessionKey) {
        self.close(session);
    }

    fn set_read_mode(&mut self, mode: ReadMode) {
        self.set_read_mode(mode);
    }

    fn reads_stale(&self, transaction: &Transaction) -> bool {
        self.read_mode() == ReadMode::Stale && transaction.only_reads()
    }
}

/// What the clients ask for, and whether the answers are right.
pub trait Workload {
    /// The names of its kinds of operation. A kind is an index into them.
    fn kinds(&self) -> &'static [&'static str];

    /// Writes `client`'s next operation over `transaction`, the client's last one, and returns its
    /// kind; or the client has nothing more to do.
    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize>;

    /// Looks at the reply to `client`'s operation. What is wrong is counted as an error.
    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault>;

    /// `client`'s operation gave no reply: whether it took effect may be unknown.
    fn failed(&mut self, client: usize) {
        let _ = client;
    }
}

/// How far an operation has come with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is complete.
    Complete,
    /// Its next transaction was written over the last one: read, then write.
    More,
}

/// A reply that a right store would not have given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The name it is counted by.
    pub kind: &'static str,
    /// What is wrong with it.
    pub what: String,
}

/// How to drive a workload.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many clients the workload sees.
    pub clients: usize,
    /// Sessions, which the clients share evenly: one each at most.
    pub sessions: usize,
    /// How long to run before measuring.
    pub warm_up: Duration,
    /// How long to measure; until no client has anything more to do if `None`.
    pub duration: Option<Duration>,
    /// Of an open loop.
    pub pace: Option<Pace>,
}

impl Settings {
    /// Everything that there is to do, as fast as it goes: not to be measured.
    /// Each of the `sessions` has `depth` operations under way.
    pub const fn to_the_end(sessions: usize, depth: usize) -> Self {
        let clients = sessions * depth;
        Self { clients, sessions, warm_up: Duration::ZERO, duration: None, pace: None }
    }
}

/// When operations are due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// So many a second, all clients together.
    pub rate: f64,
    /// What their times are drawn from.
    pub seed: u64,
}

/// How a run is doing.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    /// Operations returned so far, those of the warm-up included.
    pub returned: u64,
    /// Errors so far.
    pub errors: u64,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// How long was measured, the warm-up excluded.
    pub measured_for: Duration,
    /// Nanoseconds from invoked to returned, by kind, of the operations that returned meanwhile; in an
    /// open loop, from due to returned, and of those that were due meanwhile and returned later, too.
    pub latency_ns: Vec<Histogram<u64>>,
    /// Operations of an open loop that were due meanwhile and never invoked: the cluster was not fast
    /// enough, and they have no latency.
    pub never_invoked: u64,
    /// What went wrong, at any time.
    pub errors: Errors,
    /// Operations returned in each [`TIMELINE_INTERVAL`] of the time measured.
    pub timeline: Vec<u64>,
    /// Why it ended before its time, if it did.
    pub ended_early: Option<String>,
}

impl Measured {
    /// Operations returned while measuring.
    pub fn operations(&self) -> u64 {
        self.timeline.iter().sum()
    }
}

/// The grain of [`Measured::timeline`].
pub const TIMELINE_INTERVAL: Duration = Duration::from_millis(1);

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3)
        .expect("constants within what the histogram takes")
}

/// Errors, counted by kind, and the first of them in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// How many of each kind.
    pub counts: BTreeMap<&'static str, u64>,
    /// The first one.
    pub first: Option<String>,
}

impl Errors {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Counts one more.
    pub fn add(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        *self.counts.entry(kind).or_default() += 1;
        self.first.get_or_insert_with(what);
    }
}

/// The name an error is counted by.
pub fn kind_of(error: &Error) -> &'static str {
    match error {
        Error::Refused(_) => "refused",
        Error::TooLarge { .. } => "too_large",
        Error::Unavailable { .. } => "unavailable",
        Error::UnknownOutcome { .. } => "timed_out",
        Error::WindowFull { .. } => "window_full",
        _ => "other",
    }
}

/// Drives `workload` until its time is up, nothing is left to do, the cluster is gone, or `watch`,
/// which sees the progress ten times a second, says false. The calling thread has short slices from then on.
pub fn run(
    sessions: &mut impl Sessions,
    workload: &mut impl Workload,
    settings: Settings,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Measured {
    ask_for_short_slices();
    let keys: Vec<_> = (0..settings.sessions).map(|_| sessions.open()).collect();
    let mut run = Run::new(sessions, workload, settings, &keys);
    for client in 0..settings.clients {
        run.next(client);
    }
    run.drive(watch);
    let measured = run.finish();
    for key in keys {
        sessions.close(key);
    }
    measured
}

/// Submits one transaction in a session of its own, and waits for the reply.
pub fn once(sessions: &mut impl Sessions, transaction: &Transaction) -> Result<Reply, Error> {
    let session = sessions.open();
    let reply = ask(sessions, session, transaction);
    sessions.close(session);
    reply
}

/// Submits one transaction, and waits for the reply.
pub fn ask(
    sessions: &mut impl Sessions,
    session: SessionKey,
    transaction: &Transaction,
) -> Result<Reply, Error> {
    let ticket = sessions.submit(session, transaction)?;
    let mut reply = None;
    loop {
        let polled = sessions.poll(&mut |finished, result| {
            if finished == ticket {
                reply = Some(result);
            }
        });
        if let Some(reply) = reply {
            return reply;
        }
        if !polled? {
            sessions.wait(LONGEST_WAIT);
        }
    }
}

const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// Whoever sleeps may wake up so much later.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long operations under way are waited for after the run was told to stop.
const DRAIN: Duration = Duration::from_secs(1);
/// So many errors for each client, without one success between them, and the run gives up.
const ERRORS_IN_A_ROW: u64 = 4;
/// Latencies beyond this count as this: longer than any time-out.
const LATENCY_MAX: Duration = Duration::from_mins(2);

struct Client {
    transaction: Transaction,
    kind: usize,
    invoked: Instant,
}

struct Run<'a, S, W> {
    sessions: &'a mut S,
    workload: &'a mut W,
    keys: &'a [SessionKey],
    clients: Vec<Client>,
    under_way: HashMap<Ticket, u32>,
    arrivals: Option<Arrivals>,
    /// Clients that wait for something to be due.
    free: VecDeque<usize>,
    /// Those while something is due soon.
    yields: Yields,
    started: Instant,
    measure_from: Instant,
    measure_until: Option<Instant>,
    returned: u64,
    errors_in_a_row: u64,
    stop: bool,
    measured: Measured,
}

impl<'a, S: Sessions, W: Workload> Run<'a, S, W> {
    fn new(
        sessions: &'a mut S,
        workload: &'a mut W,
        settings: Settings,
        keys: &'a [SessionKey],
    ) -> Self {
        let started = Instant::now();
        let measure_from = started + settings.warm_up;
        let client = |_| Client { transaction: Transaction::default(), kind: 0, invoked: started };
        let arrivals =
            |pace: Pace| Arrivals::new(SmallRng::seed_from_u64(pace.seed), pace.rate, started);
        Self {
            keys,
            clients: (0..settings.clients).map(client).collect(),
            under_way: HashMap::with_capacity(2 * settings.clients),
            arrivals: settings.pace.map(arrivals),
            free: VecDeque::new(),
            yields: Yields::default(),
            started,
            measure_from,
            measure_until: settings.duration.map(|duration| measure_from + duration),
            returned: 0,
            errors_in_a_row: 0,
            stop: false,
            measured: Measured {
                measured_for: Duration::ZERO,
                latency_ns: workload.kinds().iter().map(|_| histogram()).collect(),
                never_invoked: 0,
                errors: Errors::default(),
                timeline: Vec::new(),
                ended_early: None,
            },
            sessions,
            workload,
        }
    }

    fn drive(&mut self, watch: &mut dyn FnMut(Progress) -> bool) {
        let mut finished = Vec::with_capacity(self.clients.len());
        let mut now = self.started;
        let mut watch_at = now + WATCH_INTERVAL;
        let mut drained_by = None;
        while self.has_more() && drained_by.is_none_or(|by| now < by) {
            let polled = self.sessions.poll(&mut |ticket, result| finished.push((ticket, result)));
            if !finished.is_empty() {
                now = Instant::now();
            }
            for (ticket, result) in finished.drain(..) {
                self.finished(ticket, now, result);
            }
            match polled {
                Ok(true) if self.arrivals.is_none() => {}
                Ok(true) => now = self.invoke_due(),
                Ok(false) => {
                    now = self.invoke_due();
                    self.wait(now);
                    now = Instant::now();
                }
                Err(error) => return self.give_up(&error),
            }
            if !self.stop && self.measure_until.is_some_and(|until| now >= until) {
                self.invoke_due();
                self.stop = true;
            }
            if now >= watch_at {
                watch_at = now + WATCH_INTERVAL;
                if !watch(self.progress(now)) && !self.stop {
                    self.end_early("interrupted".to_owned());
                }
            }
            if self.stop && drained_by.is_none() && self.measured.ended_early.is_some() {
                drained_by = Some(now + DRAIN);
            }
        }
    }

    fn progress(&self, now: Instant) -> Progress {
        Progress {
            elapsed: now - self.started,
            returned: self.returned,
            errors: self.measured.errors.total(),
        }
    }

    /// Whether anything is under way, or will be.
    fn has_more(&self) -> bool {
        !self.under_way.is_empty() || (self.arrivals.is_some() && !self.stop)
    }

    /// `client` has nothing under way: it goes on at once, or when something is due.
    fn next(&mut self, client: usize) {
        if self.arrivals.is_some() {
            self.free.push_back(client);
        } else {
            while !self.stop && !self.invoke(client, None) {}
        }
    }

    /// Has clients invoke what is due. Returns the time.
    fn invoke_due(&mut self) -> Instant {
        let now = Instant::now();
        while let Some(arrivals) = &mut self.arrivals
            && !self.stop
        {
            let due = arrivals.next;
            if due > now || self.measure_until.is_some_and(|until| due >= until) {
                break;
            }
            let Some(client) = self.free.pop_front() else { break };
            arrivals.advance();
            if !self.invoke(client, Some(due)) {
                self.free.push_back(client);
            }
        }
        now
    }

    /// Waits for the cluster, and not beyond what is due next. Sleeping is not precise enough for what
    /// is due soon.
    fn wait(&mut self, now: Instant) {
        let due = self.arrivals.as_ref().filter(|_| !self.free.is_empty() && !self.stop);
        let longest = due.map_or(LONGEST_WAIT, |due| due.next.saturating_duration_since(now));
        if longest >= SHORTEST_WAIT {
            self.sessions.wait(longest.min(LONGEST_WAIT).saturating_sub(SHORTEST_WAIT / 2));
        } else if self.yields.may(now - self.started) {
            thread::yield_now();
            self.yields.returned(now - self.started, self.started.elapsed());
        } else {
            // Beside somebody who computes a yield takes longer than a sleep lasts too long.
            self.sessions.wait(longest);
        }
    }

    /// Submits the next operation of `client`, which counts from when it was due. Returns whether it is
    /// under way, or nothing will be.
    fn invoke(&mut self, client: usize, due: Option<Instant>) -> bool {
        let state = &mut self.clients[client];
        let Some(kind) = self.workload.next(client, &mut state.transaction) else {
            // In an open loop, everybody's work is done when one's is.
            self.stop |= due.is_some();
            return true;
        };
        state.kind = kind;
        state.invoked = due.unwrap_or_else(Instant::now);
        match self.submit(client) {
            Ok(()) => true,
            Err(error) => {
                self.failed(client, &error);
                false
            }
        }
    }

    fn submit(&mut self, client: usize) -> Result<(), Error> {
        let key = self.keys[client % self.keys.len()];
        let ticket = self.sessions.submit(key, &self.clients[client].transaction)?;
        self.under_way.insert(ticket, client as u32);
        Ok(())
    }

    fn finished(&mut self, ticket: Ticket, at: Instant, result: Result<Reply, Error>) {
        // What is left of an earlier run's session may still come in.
        let Some(client) = self.under_way.remove(&ticket) else { return };
        let client = client as usize;
        match result {
            Ok(reply) => {
                let transaction = &mut self.clients[client].transaction;
                match self.workload.returned(client, &reply, transaction) {
                    Ok(Step::Complete) => self.count(client, at),
                    Ok(Step::More) => match self.submit(client) {
                        Ok(()) => return,
                        Err(error) => self.failed(client, &error),
                    },
                    Err(fault) => {
                        self.measured.errors.add(fault.kind, || fault.what);
                        self.errors_in_a_row += 1;
                        self.give_up_if_nothing_works();
                    }
                }
            }
            Err(error) => self.failed(client, &error),
        }
        self.next(client);
    }

    fn count(&mut self, client: usize, at: Instant) {
        self.returned += 1;
        self.errors_in_a_row = 0;
        let Client { kind, invoked, .. } = self.clients[client];
        // An open loop waits for what was due meanwhile, and has that in its latencies.
        let due = self.arrivals.is_some() && self.is_measured(invoked);
        if due || self.is_measured(at) {
            let latency = at.saturating_duration_since(invoked).as_nanos() as u64;
            self.measured.latency_ns[kind].saturating_record(latency.max(1));
        }
        if !self.is_measured(at) {
            return;
        }
        let interval = (at - self.measure_from).as_millis() / TIMELINE_INTERVAL.as_millis();
        let interval = interval as usize;
        if interval >= self.measured.timeline.len() {
            self.measured.timeline.resize(interval + 1, 0);
        }
        self.measured.timeline[interval] += 1;
    }

    fn is_measured(&self, at: Instant) -> bool {
        at >= self.measure_from && self.measure_until.is_none_or(|until| at < until)
    }

    fn failed(&mut self, client: usize, error: &Error) {
        self.workload.failed(client);
        self.measured.errors.add(kind_of(error), || error.to_string());
        self.errors_in_a_row += 1;
        if matches!(error, Error::Unavailable { .. }) {
            self.end_early(error.to_string());
        }
        self.give_up_if_nothing_works();
    }

    fn give_up_if_nothing_works(&mut self) {
        if self.errors_in_a_row >= ERRORS_IN_A_ROW * self.clients.len() as u64 {
            let first = self.measured.errors.first.as_deref().unwrap_or_default();
            self.end_early(format!(
                "gave up after {} errors in a row; the first error was: {first}",
                self.errors_in_a_row
            ));
        }
    }

    fn give_up(&mut self, error: &Error) {
        self.measured.errors.add(kind_of(error), || error.to_string());
        self.end_early(error.to_string());
    }

    /// Invokes nothing any more, and measures nothing: a second in which clients stop is not one of
    /// throughput.
    fn end_early(&mut self, why: String) {
        if self.measured.ended_early.is_none() {
            let now = Instant::now();
            self.measure_until = Some(self.measure_until.map_or(now, |until| until.min(now)));
            self.measured.ended_early = Some(why);
        }
        self.stop = true;
    }

    fn finish(mut self) -> Measured {
        let now = Instant::now();
        let until = self.measure_until.map_or(now, |until| until.min(now));
        self.measured.measured_for = until.saturating_duration_since(self.measure_from);
        if let Some(arrivals) = self.arrivals {
            self.measured.never_invoked = arrivals.between(self.measure_from, until);
        }
        self.measured
    }
}
