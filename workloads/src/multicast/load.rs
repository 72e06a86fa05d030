//! The load generator: sessions of one thread, in a closed or an open loop.
//!
//! In a **closed loop** each session has a fixed number of messages in flight, and multicasts the
//! next when one is answered. In an **open loop** messages are due at times drawn beforehand, like
//! those of many independent clients, and the latency of each is counted from its *due* time: if a
//! message could not be sent in time because the cluster paused, its latency includes that wait.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use skein_fabric::Fabric;
use skein_fabric::wait::{Waiter, Waiting, ask_for_short_slices};
use skein_multicast::batches::Batches;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupSet, SessionId};
use skein_protocol::tram::tree::Parents;

use super::destinations::Destinations;
use super::simulated::utilisation::Utilisation;
use crate::arrivals::Arrivals;
use crate::generator::{Errors, Progress, histogram};

/// Parameters of a load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub groups: u16,
    /// Groups per message, drawn for each message.
    pub destinations: u16,
    /// A tree in which the groups of a message are to be adjacent; `None` if they may be any.
    pub adjacent: Option<Parents>,
    /// Bytes per message.
    pub payload_bytes: usize,
    /// Sessions that multicast.
    pub clients: usize,
    /// Further sessions, which multicast once and are idle from then on.
    pub idle: usize,
    /// Messages in flight per session; in an open loop the maximum.
    pub depth: usize,
    /// Most messages in flight that the replicas allow a session, including answered ones behind an
    /// unanswered one.
    pub window: usize,
    /// Arrivals per second of all sessions together; a closed loop if `None`.
    pub rate: Option<f64>,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// Seed of the destinations and due times.
    pub seed: u64,
}

/// The results of a load.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Measured time.
    pub measured_for: Duration,
    /// Nanoseconds until the last group's reply, of the messages whose last reply arrived in the
    /// measured time.
    pub latency_ns: Histogram<u64>,
    /// Wrong and missing replies at any time.
    pub errors: Errors,
    /// Why the run ended early, if it did.
    pub ended_early: Option<String>,
    /// Batch statistics of the engines, filled in by the caller that runs them.
    pub batches: Batches,
    /// How busy the resources were, where they are simulated.
    pub utilisation: Option<Utilisation>,
}

impl Measured {
    /// A run in which no message was answered has measured nothing, and says so.
    pub(super) fn say_if_empty(&mut self, plan: &Plan) {
        if self.latency_ns.is_empty() {
            self.ended_early.get_or_insert_with(|| {
                format!(
                    "nothing was measured: no message was answered within {} s; give it longer",
                    plan.duration.as_secs_f64()
                )
            });
        }
    }
}

/// Number of destination sets drawn beforehand.
const DRAWS: usize = 4096;
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// If there is no answer for this time, messages that lack replies are sent again. After a further
/// time they are given up.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const GIVE_UP_AFTER: Duration = Duration::from_secs(10);

/// Runs `plan` over `transport`. `watch` receives the progress ten times a second; returning false
/// ends the run.
pub fn run<F: Fabric>(
    transport: &mut SessionTransport<F>,
    waiting: Waiting,
    plan: &Plan,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Measured {
    ask_for_short_slices();
    let mut load = Load::new(transport, plan);
    load.drive(transport, Waiter::new(waiting), watch);
    for client in &load.clients {
        transport.close(client.key);
    }
    load.measured.say_if_empty(plan);
    load.measured
}

struct Client {
    key: SessionKey,
    unanswered: usize,
    /// Indexed by sequence number modulo the window.
    under_way: Vec<UnderWay>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    sequence: u64,
    /// When it was sent or due.
    since: Instant,
    unanswered: GroupSet,
}

struct Load {
    plan: Plan,
    /// Idle sessions last.
    clients: Vec<Client>,
    payload: Vec<u8>,
    destinations: Vec<GroupSet>,
    drawn: usize,
    arrivals: Option<Arrivals>,
    /// The session that sent last. The next due message goes to the one after it.
    turn: usize,
    under_way: usize,
    returned: u64,
    began: Instant,
    measure_from: Instant,
    measure_until: Instant,
    measured: Measured,
}

impl Load {
    fn new<F: Fabric>(transport: &mut SessionTransport<F>, plan: &Plan) -> Self {
        let mut random = SmallRng::seed_from_u64(plan.seed);
        let began = Instant::now();
        let nothing = UnderWay { sequence: 0, since: began, unanswered: GroupSet::EMPTY };
        let client = |_| Client {
            key: transport.open(SessionId::from_random(rand::random())),
            unanswered: 0,
            under_way: vec![nothing; plan.window],
        };
        let measure_from = began + plan.warm_up;
        let destinations = Destinations::of(plan);
        Self {
            plan: *plan,
            clients: (0..plan.clients + plan.idle).map(client).collect(),
            payload: vec![0x5a; plan.payload_bytes],
            destinations: (0..DRAWS).map(|_| destinations.draw(&mut random)).collect(),
            drawn: 0,
            arrivals: plan.rate.map(|rate| Arrivals::new(random, rate, began)),
            turn: 0,
            under_way: 0,
            returned: 0,
            began,
            measure_from,
            measure_until: measure_from + plan.duration,
            measured: Measured {
                measured_for: plan.duration,
                latency_ns: histogram(),
                errors: Errors::default(),
                ended_early: None,
                batches: Batches::default(),
                utilisation: None,
            },
        }
    }

    fn drive<F: Fabric>(
        &mut self,
        transport: &mut SessionTransport<F>,
        mut waiter: Waiter,
        watch: &mut dyn FnMut(Progress) -> bool,
    ) {
        // Sessions are found by their keys, which count from 0.
        assert!(self.clients.iter().enumerate().all(|(i, client)| client.key.0 as usize == i));
        if self.arrivals.is_none() {
            (0..self.plan.clients).for_each(|client| self.fill(transport, client, self.began));
        }
        for client in self.plan.clients..self.clients.len() {
            self.send(transport, client, self.began);
        }
        let mut answered: Vec<(SessionKey, u64)> = Vec::new();
        let mut watch_at = self.began + WATCH_INTERVAL;
        let mut last_answer = self.began;
        let mut again_at = self.began + AGAIN_AFTER;
        loop {
            let turned = transport.turn(&mut |reply| {
                let client = &mut self.clients[reply.session.0 as usize];
                let at = &mut client.under_way[reply.sequence as usize % self.plan.window];
                if at.sequence != reply.sequence || reply.bytes != reply.sequence.to_le_bytes() {
                    self.measured.errors.add("wrong_reply", || {
                        format!("{} replied {:?} to {}", reply.group, reply.bytes, reply.sequence)
                    });
                }
                at.unanswered = at.unanswered.without(reply.group);
                if at.unanswered.is_empty() {
                    answered.push((reply.session, reply.sequence));
                }
            });
            let worked = match turned {
                Ok(worked) => worked,
                Err(error) => return self.end_early(error.to_string()),
            };
            for (session, sequence) in answered.drain(..) {
                let now = Instant::now();
                self.count(session, sequence, now);
                last_answer = now;
                transport.settle(session, sequence);
                let client = session.0 as usize;
                if self.arrivals.is_none() && now < self.measure_until && client < self.plan.clients
                {
                    self.fill(transport, client, now);
                }
            }
            let mut longest = LONGEST_WAIT;
            if self.arrivals.is_some() {
                longest = self.send_due(transport);
            }
            if worked {
                waiter.worked(transport.fabric());
                // A busy generator reads the clock only when something was answered.
                if last_answer < watch_at {
                    continue;
                }
            } else {
                transport.wait(&mut waiter, longest, &|| true);
            }
            let now = Instant::now();
            if now >= self.measure_until && self.under_way == 0 {
                return;
            }
            if now >= watch_at {
                watch_at = now + WATCH_INTERVAL;
                if !watch(self.progress(now)) {
                    return self.end_early("interrupted".to_owned());
                }
                if self.under_way > 0 && now > last_answer + GIVE_UP_AFTER {
                    let seconds = GIVE_UP_AFTER.as_secs();
                    let why = format!("{} messages had no answer for {seconds} s", self.under_way);
                    self.measured.errors.add("timed_out", || why.clone());
                    return self.end_early(why);
                }
                if now > last_answer + AGAIN_AFTER && now >= again_at {
                    again_at = now + AGAIN_AFTER;
                    self.send_again(transport);
                }
            }
        }
    }

    /// Sends messages of `client` until its limit is reached.
    fn fill<F: Fabric>(
        &mut self,
        transport: &mut SessionTransport<F>,
        client: usize,
        now: Instant,
    ) {
        while self.send(transport, client, now) {}
    }

    /// Sends the messages that are due, to the sessions in turn. Returns the time until the next is
    /// due.
    fn send_due<F: Fabric>(&mut self, transport: &mut SessionTransport<F>) -> Duration {
        loop {
            let Some(arrivals) = &mut self.arrivals else { return LONGEST_WAIT };
            let (due, now) = (arrivals.next, Instant::now());
            if now >= self.measure_until {
                return LONGEST_WAIT;
            }
            if due > now {
                return (due - now).min(LONGEST_WAIT);
            }
            // A session with a full window is skipped. If all are full, the message waits.
            let sessions = self.plan.clients;
            let sent = (0..sessions).any(|_| {
                self.turn = (self.turn + 1) % sessions;
                self.send(transport, self.turn, due)
            });
            if !sent {
                return LONGEST_WAIT;
            }
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance();
            }
        }
    }

    fn send<F: Fabric>(
        &mut self,
        transport: &mut SessionTransport<F>,
        client: usize,
        since: Instant,
    ) -> bool {
        let to = self.destinations[self.drawn % DRAWS];
        let Client { key, unanswered, under_way } = &mut self.clients[client];
        if *unanswered == self.plan.depth {
            return false;
        }
        let Ok(sequence) = transport.multicast(*key, to, &self.payload) else { return false };
        *unanswered += 1;
        let at = sequence as usize % self.plan.window;
        under_way[at] = UnderWay { sequence, since, unanswered: to };
        self.drawn += 1;
        self.under_way += 1;
        true
    }

    fn send_again<F: Fabric>(&mut self, transport: &mut SessionTransport<F>) {
        for client in &self.clients {
            for message in client.under_way.iter().filter(|m| !m.unanswered.is_empty()) {
                transport.retry(client.key, message.sequence);
            }
        }
    }

    fn count(&mut self, session: SessionKey, sequence: u64, now: Instant) {
        let client = &mut self.clients[session.0 as usize];
        client.unanswered -= 1;
        self.under_way -= 1;
        self.returned += 1;
        if now < self.measure_from || now >= self.measure_until {
            return;
        }
        let since = client.under_way[sequence as usize % self.plan.window].since;
        let took = now.saturating_duration_since(since).as_nanos() as u64;
        self.measured.latency_ns.saturating_record(took.max(1));
    }

    fn progress(&self, now: Instant) -> Progress {
        Progress {
            elapsed: now - self.began,
            returned: self.returned,
            errors: self.measured.errors.total(),
        }
    }

    fn end_early(&mut self, why: String) {
        let until = Instant::now().min(self.measure_until);
        self.measured.measured_for = until.saturating_duration_since(self.measure_from);
        self.measured.ended_early = Some(why);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use skein_fabric::shm::Host;
    use skein_multicast::config::{Topology, Tuning};
    use skein_multicast::layout::Layout;

    use super::*;
    use crate::multicast::engines::{self, Experiment, Ground, MeetingPlace};

    /// Runs `plan` over engines of three nodes, each on a thread.
    fn measure(plan: &Plan, watch: &mut dyn FnMut(Progress) -> bool) -> Measured {
        let topology = Topology { nodes: 3, groups: plan.groups, replicas: 3, engines: 1 };
        let tuning = Tuning { window: plan.window, ..Tuning::default() };
        let place = MeetingPlace::Tcp { addresses: Vec::new(), papers: None };
        let layout = Layout::propose(topology).unwrap();
        let experiment = Experiment { layout: layout.clone(), tuning, ungated: false, place };
        let ground = Ground::Host(Host::anonymous());
        let stop = AtomicBool::new(false);
        let stop = &stop;
        thread::scope(|scope| {
            for node in 0..topology.nodes {
                let (ground, experiment) = (&ground, &experiment);
                scope.spawn(move || {
                    let engine = [(node, 0)];
                    engines::run(ground, experiment, &engine, Waiting::Adaptive, || (), stop)
                        .unwrap();
                });
            }
            let mut transport = SessionTransport::new(ground.visit().unwrap(), &layout, tuning);
            let measured = run(&mut transport, Waiting::Adaptive, plan, watch);
            drop(transport);
            stop.store(true, Ordering::Relaxed);
            measured
        })
    }

    const PLAN: Plan = Plan {
        groups: 4,
        destinations: 2,
        adjacent: None,
        payload_bytes: 64,
        clients: 3,
        idle: 0,
        depth: 4,
        window: 64,
        rate: None,
        warm_up: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        seed: 1,
    };

    /// Runs until some hundreds of messages were answered, however long that takes.
    fn measure_some(plan: Plan) -> Measured {
        let plan = Plan { warm_up: Duration::ZERO, duration: Duration::from_mins(2), ..plan };
        let measured = measure(&plan, &mut |progress| progress.returned < 300);
        assert_eq!(measured.ended_early.as_deref(), Some("interrupted"));
        assert_eq!(measured.errors.total(), 0, "{measured:?}");
        measured
    }

    #[test]
    fn every_message_is_answered_by_all_its_groups() {
        let measured = measure_some(PLAN);
        assert!(measured.latency_ns.len() > 100, "{measured:?}");
        let whole = measure(&PLAN, &mut |_| true);
        assert!(whole.ended_early.is_none() && whole.errors.total() == 0, "{whole:?}");
    }

    #[test]
    fn those_who_are_idle_are_there_and_in_nobodys_way() {
        for rate in [None, Some(1_000.0)] {
            let measured = measure_some(Plan { idle: 200, rate, ..PLAN });
            assert!(measured.latency_ns.len() > 100, "{measured:?}");
        }
    }

    #[test]
    fn an_open_loop_counts_the_wait_for_what_was_before() {
        let some = measure(&Plan { rate: Some(100.0), ..PLAN }, &mut |_| true);
        assert!(!some.latency_ns.is_empty() && some.errors.total() == 0, "{some:?}");
        // With one message in flight at a time and a hundredfold overload, nearly all messages
        // wait.
        let plan = Plan { rate: Some(1e6), clients: 1, depth: 1, ..PLAN };
        let half = measure(&plan, &mut |_| true).latency_ns.value_at_quantile(0.5);
        assert!(half > 20_000_000, "{half} ns: the wait before sending is not in it");
    }

    #[test]
    fn who_interrupts_gets_what_was_measured() {
        let mut looks = 0;
        let long = Plan { duration: Duration::from_mins(1), ..PLAN };
        let measured = measure(&long, &mut |_| {
            looks += 1;
            looks < 3
        });
        assert_eq!(measured.ended_early.as_deref(), Some("interrupted"));
        assert!(measured.measured_for < Duration::from_secs(10));
    }
}
