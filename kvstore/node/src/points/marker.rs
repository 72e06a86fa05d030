//! Makes restore points: a session of the node's own, on a thread of its own.
//!
//! Several times per `lag_ms_max` it tells each group what the node's disk holds, by a message of one group. Only when all
//! groups have answered, if something is on too few disks, and if no other node has made a point meanwhile, it sends a point to all
//! groups: a point that one group cannot deliver would hold up all others. A group without a quorum thus gets no more points, and
//! once it has not answered for some seconds, this node's leaders take commands without them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use skein_fabric::any::AnyFabric;
use skein_fabric::wait::{Waiter, Waiting};
use skein_fabric::{Fabric as _, FabricError};
use skein_kvstore::plan::Plan;
use skein_kvstore::points::{self, Holds, PointAnswer, RestorePoint};
use skein_kvstore::reply::{Refusal, Reply};
use skein_kvstore::slots::SlotMap;
use skein_multicast::config::Tuning;
use skein_multicast::layout::Layout;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::GroupId;

use super::log::EnginePoints;

/// Points per `lag_ms_max`, while something changes.
const POINTS_PER_LAG: u32 = 4;
/// Reports per point. More of them make it known sooner that a point is on f+1 disks, at little cost.
const REPORTS_PER_POINT: u32 = 2;
/// A group that does not answer for so long has no quorum, unless `lag_ms_max` is longer. One whose nodes have no time answers late,
/// and others must not take that for a reason to go on without points.
const SILENT_AFTER: Duration = Duration::from_secs(5);
/// The longest sleep: then the thread looks whether it is to end.
const NAP: Duration = Duration::from_millis(20);
/// Interval at which a message without all its replies is sent again.
const SEND_AGAIN_EVERY: Duration = Duration::from_secs(1);

/// What is known of the cluster's restore points.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// The last point that was made.
    pub(crate) last: u64,
    /// The newest one that f+1 replicas of every group hold on disk.
    pub(crate) floor: u64,
    /// Something has changed since the last point.
    pub(crate) changed: bool,
    /// Everything that was acknowledged before this time, in microseconds, is on f+1 disks of every group.
    pub(crate) saved: u64,
    /// Groups that have not answered for so long that they have no quorum: no points are made.
    pub(crate) silent: Vec<u16>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    close: AtomicBool,
    known: Mutex<Known>,
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that makes points. Dropping it ends it.
pub(crate) struct Marker {
    shared: Arc<Shared>,
    engines: Vec<EnginePoints>,
    thread: Option<JoinHandle<()>>,
}

impl Marker {
    /// Begins to make points.
    pub(crate) fn start(
        fabric: AnyFabric,
        layout: &Layout,
        tuning: Tuning,
        lag_ms_max: u64,
        engines: Vec<EnginePoints>,
    ) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let transport = SessionTransport::new(fabric, layout, tuning);
        let maker = Maker {
            transport,
            session: None,
            waiter: Waiter::new(Waiting::Park),
            slots: SlotMap::even(layout.topology().groups),
            engines: engines.clone(),
            shared: Arc::clone(&shared),
            lag_max: Duration::from_millis(lag_ms_max),
            newest: (0, Instant::now()),
        };
        let thread =
            thread::Builder::new().name("skein-points".to_owned()).spawn(|| maker.run())?;
        Ok(Self { shared, engines, thread: Some(thread) })
    }

    /// What is known of the points.
    pub(crate) fn known(&self) -> Known {
        self.shared.known().clone()
    }

    /// Makes a last point, which closes the cluster.
    pub(crate) fn close(&self) {
        if !self.shared.close.swap(true, Ordering::SeqCst) {
            tracing::info!("the cluster is closed with a last restore point");
        }
    }

    /// Groups for which the node's disk leads to the point that closed the cluster.
    pub(crate) fn closed(&self) -> Vec<u16> {
        let mut closed: Vec<u16> = self.engines.iter().flat_map(EnginePoints::closed).collect();
        closed.sort_unstable();
        closed
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that makes restore points has panicked");
        }
    }
}

/// Present time in microseconds.
pub(crate) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_micros()).unwrap_or(u64::MAX)
}

/// Why a round ends early.
enum Stop {
    /// The node is to end.
    Told,
    /// The session has ended, or the groups refuse.
    Refused(Refusal),
    Fabric(FabricError),
}

impl From<FabricError> for Stop {
    fn from(error: FabricError) -> Self {
        Self::Fabric(error)
    }
}

struct Maker {
    transport: SessionTransport<AnyFabric>,
    /// The session, once all groups have opened it.
    session: Option<SessionKey>,
    waiter: Waiter,
    slots: SlotMap,
    engines: Vec<EnginePoints>,
    shared: Arc<Shared>,
    /// `lag_ms_max`
    lag_max: Duration,
    /// The newest point that was heard of, and when.
    newest: (u64, Instant),
}

impl Maker {
    fn run(mut self) {
        let mut closed = false;
        while !self.is_told() {
            match self.round(closed) {
                Ok(has_closed) => closed |= has_closed,
                Err(Stop::Told) => break,
                Err(Stop::Refused(Refusal::Stopping)) => closed = true,
                Err(Stop::Refused(why)) => {
                    tracing::debug!(%why, "the session that makes restore points begins anew");
                    if let Some(session) = self.session.take() {
                        self.transport.close(session);
                    }
                }
                Err(Stop::Fabric(error)) => {
                    tracing::warn!(%error, "restore points cannot be made here for now");
                }
            }
            let mut left = self.lag_max / (POINTS_PER_LAG * REPORTS_PER_POINT);
            while !left.is_zero() && !self.is_told() && !self.wants_to_close(closed) {
                let nap = left.min(NAP);
                thread::sleep(nap);
                left -= nap;
            }
        }
    }

    fn is_told(&self) -> bool {
        self.shared.stop.load(Ordering::SeqCst)
    }

    fn wants_to_close(&self, closed: bool) -> bool {
        !closed && self.shared.close.load(Ordering::SeqCst)
    }

    /// Tells all groups what the disk holds, and makes a point if one is due. Returns whether it closed the cluster.
    fn round(&mut self, closed: bool) -> Result<bool, Stop> {
        if closed {
            return Ok(true);
        }
        let session = self.opened()?;
        let holds: Vec<Holds> = self.engines.iter().flat_map(EnginePoints::holds).collect();
        let groups: Vec<GroupId> = self.slots.groups().iter().collect();
        let report = |group: &GroupId| {
            let it = RestorePoint { number: 0, after: 0, closes: false, holds: holds.clone() };
            Plan::restore_point(&self.slots, it, Some(*group))
        };
        let reports: Vec<Plan> = groups.iter().map(report).collect();
        let asked = now_us();
        let (mut last, mut floor, mut changed) = (0, u64::MAX, false);
        for reply in self.ask(session, &reports)? {
            for answer in PointAnswer::of(&reply).into_iter().flatten() {
                last = answer.last.max(last);
                floor = answer.floor.min(floor);
                changed |= answer.changed;
            }
        }
        self.resume();
        let closes = self.wants_to_close(closed);
        let now = now_us();
        if closes || (changed || floor < last) && self.is_due(last, now) {
            let number = now.max(last + 1);
            let it = RestorePoint { number, after: last, closes, holds };
            self.ask(session, &[Plan::restore_point(&self.slots, it, None)])?;
            (last, changed) = (number, false);
        }
        let mut known = self.shared.known();
        let saved = if floor == last && !changed { asked } else { floor };
        let saved = known.saved.max(saved);
        *known = Known { last, floor, changed, saved, silent: Vec::new() };
        Ok(closes)
    }

    /// Whether the last point is old enough for the next one. Its number is the time of another node, or of this one before
    /// its clock was set back.
    fn is_due(&mut self, last: u64, now: u64) -> bool {
        if self.newest.0 != last {
            self.newest = (last, Instant::now());
        }
        let age = now.checked_sub(last).map_or(self.newest.1.elapsed(), Duration::from_micros);
        age >= self.lag_max / POINTS_PER_LAG
    }

    /// Lets leaders go on without points, since these groups do not answer.
    fn suspend(&self, silent: Vec<u16>) {
        let mut known = self.shared.known();
        if known.silent != silent {
            tracing::warn!(groups = ?silent, "no restore points are made: these groups do not answer");
            known.silent = silent;
        }
        self.engines.iter().for_each(|engine| engine.suspend(true));
    }

    /// All groups answer.
    fn resume(&self) {
        let mut known = self.shared.known();
        if !known.silent.is_empty() {
            tracing::info!(groups = ?known.silent, "restore points are made again");
            known.silent.clear();
        }
        self.engines.iter().for_each(|engine| engine.suspend(false));
    }

    /// The session, which is opened if there is none.
    fn opened(&mut self) -> Result<SessionKey, Stop> {
        if let Some(session) = self.session {
            return Ok(session);
        }
        let session = self.transport.open(points::maker(rand::random()));
        self.session = Some(session);
        self.ask(session, &[Plan::open(&self.slots)])?;
        Ok(session)
    }

    /// Sends requests, and waits for the replies of all their groups, however long that takes.
    fn ask(&mut self, session: SessionKey, plans: &[Plan]) -> Result<Vec<Reply>, Stop> {
        let mut awaited = BTreeMap::new();
        for (at, plan) in plans.iter().enumerate() {
            let sent = self.transport.multicast(session, plan.destinations(), plan.request());
            awaited.insert(sent.expect("one round at a time fits into the window"), at);
        }
        let mut parts = vec![Vec::new(); plans.len()];
        let missing = |parts: &[Vec<(GroupId, Vec<u8>)>]| -> BTreeSet<u16> {
            let missing = |(parts, plan): (&Vec<(GroupId, _)>, &Plan)| {
                let told = |group: &GroupId| parts.iter().any(|(of, _)| of == group);
                plan.destinations().iter().filter(|group| !told(group)).collect::<Vec<_>>()
            };
            parts.iter().zip(plans).flat_map(missing).map(|group| group.0).collect()
        };
        let begun = Instant::now();
        let mut sent_at = self.transport.fabric().now();
        loop {
            let silent = missing(&parts);
            if silent.is_empty() {
                break;
            }
            if self.is_told() {
                return Err(Stop::Told);
            }
            if begun.elapsed() > self.lag_max.max(SILENT_AFTER) {
                self.suspend(silent.into_iter().collect());
            }
            let worked = self.transport.turn(&mut |reply| {
                if let Some(at) = awaited.get(&reply.sequence) {
                    parts[*at].push((reply.group, reply.bytes.to_vec()));
                }
            })?;
            if worked {
                let fabric = self.transport.fabric();
                self.waiter.worked(fabric);
            } else {
                self.transport.wait(&mut self.waiter, NAP, &|| true);
            }
            let now = self.transport.fabric().now();
            if now > sent_at + SEND_AGAIN_EVERY {
                for sequence in awaited.keys() {
                    self.transport.retry(session, *sequence);
                }
                sent_at = now;
            }
        }
        for sequence in awaited.keys() {
            self.transport.settle(session, *sequence);
        }
        let join = |(parts, plan): (&Vec<(GroupId, Vec<u8>)>, &Plan)| {
            let parts = parts.iter().map(|(group, bytes)| (*group, &bytes[..]));
            plan.join(parts.collect::<Vec<_>>()).map_err(Stop::Refused)
        };
        parts.iter().zip(plans).map(join).collect()
    }
}
