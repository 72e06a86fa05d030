//! The loop of an engine thread, and how other threads communicate with it between two turns.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::Fabric;
use skein_fabric::wait::{Waiter, Waiting, ask_for_short_slices};
use skein_kvstore::machine::Machine;
use skein_kvstore::store::Store;
use skein_kvstore::wire::Request;
use skein_multicast::Links;
use skein_multicast::application::Stopped;
use skein_multicast::engine::Engine;
use skein_multicast::operate::{Command, CommandError};

use crate::digests::{Digests, Taking};
use crate::status::{RefusedNode, ReplicaReport};

/// Queries that may wait for one engine.
const QUERIES_MAX: usize = 8;

/// Sessions that one message expires: few enough for the message to be inline in the log, where a node that needs it
/// finds it at once.
const EXPIRED_MAX: usize = 256;

/// Time for which a status waits, at most, until the memory of followers that do not answer has taken a write or has not.
const PROOFS_MAX: Duration = Duration::from_millis(20);

/// Interval at which a paused engine checks whether it still is paused.
const PAUSE_NAP: Duration = Duration::from_millis(1);

/// Status of an engine, for operators.
#[derive(Clone, Debug, Default)]
pub struct EngineStatus {
    /// Whether it has connected to every replica that it communicates with.
    pub connected: bool,
    pub replicas: Vec<ReplicaReport>,
    /// Other nodes that it refuses, with the reasons.
    pub refused: Vec<RefusedNode>,
}

/// A request of another thread, and the channel for the answer.
#[derive(Debug)]
enum Query {
    Status(SyncSender<EngineStatus>),
    Command(Command, SyncSender<Result<(), CommandError>>),
    Digest(SyncSender<Digests>),
}

/// Handle by which other threads control an engine. Dropping it stops the engine.
pub struct Control {
    queries: SyncSender<Query>,
    shared: Arc<Shared>,
    wake: Box<dyn FnMut() + Send>,
}

/// The engine's end of a [`Control`].
#[derive(Debug)]
pub struct Requests {
    queries: Receiver<Query>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    pause: AtomicBool,
    /// Whether the engine takes no turn: it is paused, or has ended.
    stands: AtomicBool,
    /// Queries that were sent and not taken yet.
    asked: AtomicUsize,
}

/// Creates the two ends between an engine and other threads. `wake` must wake the engine if it is parked; see
/// [`Waker`](skein_fabric::shm::Waker).
pub fn control(wake: impl FnMut() + Send + 'static) -> (Control, Requests) {
    let (sender, receiver) = sync_channel(QUERIES_MAX);
    let shared = Arc::<Shared>::default();
    let control = Control { queries: sender, shared: shared.clone(), wake: Box::new(wake) };
    (control, Requests { queries: receiver, shared })
}

impl Control {
    /// Status of the engine; `None` if it does not answer within `longest`.
    pub fn status(&mut self, longest: Duration) -> Option<EngineStatus> {
        self.ask(Query::Status, longest)
    }

    /// Result of `command`; `None` if the engine does not answer within `longest`.
    pub fn command(
        &mut self,
        command: Command,
        longest: Duration,
    ) -> Option<Result<(), CommandError>> {
        self.ask(|answer| Query::Command(command, answer), longest)
    }

    /// Asks for digests of its replicas. They arrive once nothing has been delivered for long enough to compute them.
    pub(super) fn digests(&mut self) -> Receiver<Digests> {
        let (sender, answer) = sync_channel(1);
        // If the query is dropped, the receiver reports a disconnect.
        self.send(Query::Digest(sender));
        answer
    }

    fn ask<T>(
        &mut self,
        query: impl FnOnce(SyncSender<T>) -> Query,
        longest: Duration,
    ) -> Option<T> {
        let (sender, answer) = sync_channel(1);
        self.send(query(sender));
        answer.recv_timeout(longest).ok()
    }

    /// Sends a query. If too many queries wait, it is dropped, and its receiver reports a disconnect.
    fn send(&mut self, query: Query) {
        self.shared.asked.fetch_add(1, Ordering::SeqCst);
        if self.queries.try_send(query).is_err() {
            self.shared.asked.fetch_sub(1, Ordering::SeqCst);
            return;
        }
        (self.wake)();
    }

    /// Keeps the engine from taking turns, as if its process were stopped, or lets it continue. Returns when the turn
    /// is over that it was in.
    pub fn pause(&mut self, pause: bool) {
        self.shared.pause.store(pause, Ordering::SeqCst);
        (self.wake)();
        while pause && !self.shared.stands.load(Ordering::SeqCst) {
            thread::sleep(PAUSE_NAP);
        }
    }

    /// Ends the engine's loop after the current turn.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        (self.wake)();
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.shared.stands.store(true, Ordering::SeqCst);
    }
}

impl Requests {
    fn is_empty(&self) -> bool {
        self.shared.asked.load(Ordering::SeqCst) == 0 && !self.stopped() && !self.paused()
    }

    fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    fn paused(&self) -> bool {
        self.shared.pause.load(Ordering::SeqCst)
    }

    /// Stands still for as long as it is paused.
    fn stand_while_paused(&self) {
        while self.paused() && !self.stopped() {
            self.shared.stands.store(true, Ordering::SeqCst);
            thread::sleep(PAUSE_NAP);
        }
        self.shared.stands.store(false, Ordering::SeqCst);
    }

    /// Answers the queries that wait. Returns whether there were any: the engine may have work left then.
    fn answer<F: Fabric, S: Store, O: Links>(
        &self,
        engine: &mut Engine<F, Machine<S>, O>,
        digests: &mut Taking,
    ) -> bool {
        if self.shared.asked.load(Ordering::Relaxed) == 0 {
            return false;
        }
        while let Ok(query) = self.queries.try_recv() {
            self.shared.asked.fetch_sub(1, Ordering::SeqCst);
            // The recipient may have given up waiting.
            match query {
                Query::Status(answer) => _ = answer.try_send(status(engine)),
                Query::Command(command, answer) => {
                    tracing::info!(?command, "command from an operator");
                    let _ = answer.try_send(engine.command(&command));
                }
                Query::Digest(answer) => digests.ask(answer),
            }
        }
        true
    }
}

/// The status of the replicas. A leader that sees too few of its followers alive asks their memory first whether its group
/// serves.
fn status<F: Fabric, S: Store, O: Links>(engine: &mut Engine<F, Machine<S>, O>) -> EngineStatus {
    let until = Instant::now() + PROOFS_MAX;
    while engine.seek_proofs() && Instant::now() < until {
        engine.turn();
    }
    let mut replicas: Vec<_> = engine
        .status()
        .into_iter()
        .map(|order| ReplicaReport { order, keys: 0, store_bytes: 0, digest: None })
        .collect();
    for (replica, machine) in engine.applications() {
        let of = |report: &&mut ReplicaReport| {
            (report.order.group, report.order.slot) == (replica.group.0, replica.slot)
        };
        if let Some(report) = replicas.iter_mut().find(of) {
            report.keys = machine.keys();
            report.store_bytes = machine.bytes();
        }
    }
    let refused = engine.refusals();
    let refused = refused.map(|(node, why)| RefusedNode { node, why: why.to_owned() });
    EngineStatus { connected: engine.connected(), refused: refused.collect(), replicas }
}

/// Turns `engine` on a thread of its own until [stopped](Control::stop). Shared by node processes and by clusters
/// inside other processes. `peer_died` is called when the process of a peer has ended: what it left on the
/// host is not for an engine to remove, for that takes longer than a turn should.
///
/// # Errors
/// The store of a replica has failed. The engine says nothing any more, and its process is to end: its other replicas are
/// taken for dead with this one.
pub fn run<F: Fabric, S: Store, O: Links>(
    engine: &mut Engine<F, Machine<S>, O>,
    waiting: Waiting,
    requests: &Requests,
    peer_died: &mut dyn FnMut(),
) -> Result<(), Stopped<S::Error>> {
    ask_for_short_slices();
    let mut waiter = Waiter::new(waiting);
    let mut digests = Taking::default();
    while !requests.stopped() {
        if requests.paused() {
            requests.stand_while_paused();
            continue;
        }
        let mut worked = engine.turn();
        if let Some(stopped) = engine.take_stopped() {
            return Err(stopped);
        }
        worked |= requests.answer(engine, &mut digests);
        worked |= digests.go_on(engine)?;
        let dead = engine.take_dead_sessions(EXPIRED_MAX);
        if !dead.is_empty() {
            tracing::info!(sessions = dead.len(), "their processes have ended; they expire");
            engine.originate(&Request::Expire(dead).encode());
        }
        if engine.take_peer_died() {
            peer_died();
        }
        if worked {
            waiter.worked(engine.fabric());
        } else {
            engine.wait(&mut waiter, &|| requests.is_empty());
        }
    }
    Ok(())
}
