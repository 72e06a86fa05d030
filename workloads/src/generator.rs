//! The load generator: N clients, each with one operation in flight, on one thread, in a closed or
//! an open loop. Each has a session of its own, or many share a few.
//!
//! In a **closed loop** a client invokes its next operation when the last one has returned, so the
//! load adapts to the cluster: its latencies are those at the throughput reported beside them and
//! say nothing about any other. A latency is the time from the invocation to the return of the poll
//! that brought the reply.
//!
//! In an **open loop** operations are due at times drawn beforehand, free clients invoke them, and
//! the latency of each is counted from its *due* time. If an operation waited for a client because
//! all of them waited for the cluster, its latency includes that wait; operations that were never
//! invoked are counted too.

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

/// Sessions to a store, polled on the caller's thread. The cluster's implementation is [`Driver`];
/// the tests' one can lose, swap and forget.
pub trait Sessions {
    /// Opens a session.
    fn open(&mut self) -> SessionKey;
    /// Sends a transaction.
    fn submit(&mut self, session: SessionKey, transaction: &Transaction) -> Result<Ticket, Error>;
    /// Passes on the operations that have finished, without waiting. Returns whether there was any
    /// work.
    fn poll(
        &mut self,
        finished: &mut dyn FnMut(Ticket, Result<Reply, Error>),
    ) -> Result<bool, Error>;
    /// Waits a little after a poll that found nothing.
    fn wait(&mut self, longest: Duration);
    /// Ends a session.
    fn close(&mut self, session: SessionKey);
    /// Sets the mode of read-only transactions, if there are several modes.
    fn set_read_mode(&mut self, mode: ReadMode) {
        let _ = mode;
    }
    /// Whether `transaction` may read a stale state.
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

/// The operations of the clients, and the check of their answers.
pub trait Workload {
    /// The names of its kinds of operations. A kind is an index into them.
    fn kinds(&self) -> &'static [&'static str];

    /// Replaces `transaction`, the last one of `client`, by its next operation and returns the
    /// kind, or `None` if the client is finished.
    fn next(&mut self, client: usize, transaction: &mut Transaction) -> Option<usize>;

    /// Checks the reply to `client`'s operation. A fault is counted as an error.
    fn returned(
        &mut self,
        client: usize,
        reply: &Reply,
        transaction: &mut Transaction,
    ) -> Result<Step, Fault>;

    /// `client`'s operation has no reply. Whether it took effect may be unknown.
    fn failed(&mut self, client: usize) {
        let _ = client;
    }
}

/// The progress of an operation after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Complete,
    /// Its next transaction replaced the last one: read, then write.
    More,
}

/// A reply that a correct store would not have sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Kind of error that it is counted as.
    pub kind: &'static str,
    /// Description.
    pub what: String,
}

/// Parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of clients that the workload sees.
    pub clients: usize,
    /// Sessions, which the clients share evenly. `sessions <= clients`.
    pub sessions: usize,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time; until all clients are finished if `None`.
    pub duration: Option<Duration>,
    /// Only in an open loop.
    pub pace: Option<Pace>,
}

impl Settings {
    /// Runs a workload to its end at full speed, without measuring. Each of the `sessions` has
    /// `depth` operations in flight.
    pub const fn to_the_end(sessions: usize, depth: usize) -> Self {
        let clients = sessions * depth;
        Self { clients, sessions, warm_up: Duration::ZERO, duration: None, pace: None }
    }
}

/// Arrivals of an open loop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Per second, all clients together.
    pub rate: f64,
    /// Seed of the due times.
    pub seed: u64,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the start, warm-up included.
    pub elapsed: Duration,
    /// Operations returned so far, those of the warm-up included.
    pub returned: u64,
    pub errors: u64,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Measured time, warm-up excluded.
    pub measured_for: Duration,
    /// Latencies in nanoseconds by kind, of the operations that returned in the measured time. In
    /// an open loop latencies are counted from the due time, and operations that were due in the
    /// measured time and returned later are included.
    pub latency_ns: Vec<Histogram<u64>>,
    /// Operations of an open loop that were due in the measured time and never invoked: the cluster
    /// was not fast enough, and they have no latency.
    pub never_invoked: u64,
    /// Errors at any time.
    pub errors: Errors,
    /// Operations returned in each [`TIMELINE_INTERVAL`] of the measured time.
    pub timeline: Vec<u64>,
    /// Why the run ended early, if it did.
    pub ended_early: Option<String>,
}

impl Measured {
    /// Operations returned in the measured time.
    pub fn operations(&self) -> u64 {
        self.timeline.iter().sum()
    }
}

/// Interval of [`Measured::timeline`].
pub const TIMELINE_INTERVAL: Duration = Duration::from_millis(1);

/// An empty histogram of nanoseconds.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX.as_nanos() as u64, 3)
        .expect("constants within what the histogram takes")
}

/// Number of errors by kind, and the first error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    pub counts: BTreeMap<&'static str, u64>,
    pub first: Option<String>,
}

impl Errors {
    /// Number of errors of all kinds.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Counts an error.
    pub fn add(&mut self, kind: &'static str, what: impl FnOnce() -> String) {
        *self.counts.entry(kind).or_default() += 1;
        self.first.get_or_insert_with(what);
    }
}

/// The kind that an error is counted as.
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

/// Drives `workload` until its time is up, all clients are finished, the cluster is gone, or
/// `watch`, which receives the progress ten times a second, returns false. The calling thread has
/// short time slices from then on.
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
/// How late a sleeping thread may wake up.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// How long operations in flight are awaited after the end of the run.
const DRAIN: Duration = Duration::from_secs(1);
/// Errors per client, without a success between them, after which the run gives up.
const ERRORS_IN_A_ROW: u64 = 4;
/// Longer latencies count as this, which is longer than any timeout.
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
    /// Clients that wait for the next arrival.
    free: VecDeque<usize>,
    /// Yields while an operation is due soon.
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

    /// Whether an operation is in flight or will be.
    fn has_more(&self) -> bool {
        !self.under_way.is_empty() || (self.arrivals.is_some() && !self.stop)
    }

    /// Handles a `client` without an operation in flight: it continues at once, or at the next
    /// arrival.
    fn next(&mut self, client: usize) {
        if self.arrivals.is_some() {
            self.free.push_back(client);
        } else {
            while !self.stop && !self.invoke(client, None) {}
        }
    }

    /// Invokes the operations that are due. Returns the time.
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

    /// Waits for the cluster, but not past the next due time. If that is soon, a sleep would not be
    /// precise enough.
    fn wait(&mut self, now: Instant) {
        let due = self.arrivals.as_ref().filter(|_| !self.free.is_empty() && !self.stop);
        let longest = due.map_or(LONGEST_WAIT, |due| due.next.saturating_duration_since(now));
        if longest >= SHORTEST_WAIT {
            self.sessions.wait(longest.min(LONGEST_WAIT).saturating_sub(SHORTEST_WAIT / 2));
        } else if self.yields.may(now - self.started) {
            thread::yield_now();
            self.yields.returned(now - self.started, self.started.elapsed());
        } else {
            // Beside a computing process a yield takes longer than the excess of a sleep.
            self.sessions.wait(longest);
        }
    }

    /// Submits the next operation of `client`, whose latency counts from `due`. Returns whether it
    /// is in flight, or none will be.
    fn invoke(&mut self, client: usize, due: Option<Instant>) -> bool {
        let state = &mut self.clients[client];
        let Some(kind) = self.workload.next(client, &mut state.transaction) else {
            // In an open loop, all clients are finished when one is.
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
        // A reply to a session of an earlier run may still arrive.
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
        // An open loop awaits the operations that were due in the measured time, and includes their
        // latencies.
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

    /// Stops invoking and measuring: the time in which clients stop must not count towards
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
