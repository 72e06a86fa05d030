//! The restore points of an engine's replicas, in the node's log on disk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_kvstore::points::{Holds, PointEnd, PointLog, PointRecord, Progress};
use skein_multicast::disk::Disk as _;
use skein_protocol::ids::{GroupId, ReplicaId};

use super::lag::{self, Lag};
use crate::engine_log::EngineLog;

/// Bytes of a copy of the whole state that are written at one point.
const COPY_BYTES: usize = 16 << 20;
/// A copy is due when the log is longer than this, and than twice the state.
const COPY_AFTER: u64 = 256 << 20;
/// Bytes of log that an end takes.
const END_BYTES: u64 = 4 << 10;

/// The logs of an engine's replicas. Clones are the same.
#[derive(Clone)]
pub(crate) struct EnginePoints {
    logs: Arc<Mutex<Logs>>,
    generation: u32,
    /// Leaders take no commands while the newest point on f+1 disks is older.
    lag_max: Duration,
    /// No points are made because a group answers nobody.
    suspended: Arc<AtomicBool>,
}

struct Logs {
    disk: EngineLog,
    replicas: BTreeMap<ReplicaId, Replica>,
}

/// The log of one replica.
#[derive(Default)]
struct Replica {
    progress: Progress,
    /// Number of the point that closed the cluster, if an end of it is written.
    closes: Option<u64>,
}

impl Replica {
    /// Whether the disk leads to the point that closed the cluster. An end that is written is not enough: the copy in front of it
    /// may not be whole.
    fn is_closed(&self) -> bool {
        let leads_to = |point| self.progress.held().is_some_and(|(_, to)| to >= point);
        self.closes.is_some_and(leads_to)
    }
}

impl Logs {
    /// Lets what was appended be written, and notes what is on disk by now.
    fn go_on(&mut self) {
        self.disk.go_on();
        self.disk.flush();
        let durable = self.disk.durable();
        for replica in self.replicas.values_mut() {
            replica.progress.reached(durable);
        }
    }

    fn append(&mut self, group: GroupId, record: &PointRecord<'_>) -> (u64, usize) {
        record.encode(|kind, bytes| (self.disk.append(group, kind, &[bytes]), bytes.len()))
    }
}

impl EnginePoints {
    /// The logs of an engine in a cluster that has returned `generation` times. Leaders take no commands while the newest
    /// point on f+1 disks is older than `lag_max`.
    pub(crate) fn new(mut disk: EngineLog, generation: u32, lag_max: Duration) -> Self {
        disk.begin_damaged();
        let logs = Arc::new(Mutex::new(Logs { disk, replicas: BTreeMap::new() }));
        Self { logs, generation, lag_max, suspended: Arc::default() }
    }

    /// Lets leaders take commands though no points are made, or no longer.
    pub(crate) fn suspend(&self, suspended: bool) {
        self.suspended.store(suspended, Ordering::Relaxed);
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log of a replica, for its machine.
    pub(crate) fn of(&self, replica: ReplicaId) -> ReplicaPoints {
        let lag = Lag::new(self.lag_max, Arc::clone(&self.suspended));
        ReplicaPoints { engine: self.clone(), replica, lag }
    }

    /// Waits until the disk holds everything that was written.
    pub(crate) fn sync(&self) {
        self.logs().disk.sync();
    }

    /// What the disk holds of each replica.
    pub(crate) fn holds(&self) -> Vec<Holds> {
        let mut logs = self.logs();
        logs.go_on();
        let holds = |(id, it): (&ReplicaId, &Replica)| {
            let (from, to) = it.progress.held()?;
            Some(Holds { group: id.group.0, slot: id.slot, from, to })
        };
        logs.replicas.iter().filter_map(holds).collect()
    }

    /// Groups for which the disk leads to the point that closed the cluster.
    pub(crate) fn closed(&self) -> Vec<u16> {
        let mut logs = self.logs();
        logs.go_on();
        let closed = logs.replicas.iter().filter(|(_, replica)| replica.is_closed());
        closed.map(|(id, _)| id.group.0).collect()
    }
}

/// The log of one replica, as its machine writes it.
pub(crate) struct ReplicaPoints {
    engine: EnginePoints,
    replica: ReplicaId,
    lag: Lag,
}

impl PointLog for ReplicaPoints {
    fn begin(&mut self, anew: bool) {
        let mut logs = self.engine.logs();
        let generation = self.engine.generation;
        let record = PointRecord::Begin { generation, anew };
        let (position, _) = logs.append(self.replica.group, &record);
        let replica = logs.replicas.entry(self.replica).or_default();
        replica.progress.begins(position, anew);
    }

    fn write(&mut self, records: &[u8]) {
        let mut logs = self.engine.logs();
        let (_, bytes) = logs.append(self.replica.group, &PointRecord::Pairs(records));
        logs.replicas.entry(self.replica).or_default().progress.wrote(bytes as u64);
    }

    fn end(&mut self, end: PointEnd) {
        let PointEnd { number, whole, bytes, closes, floor, .. } = end;
        let mut logs = self.engine.logs();
        let (position, _) = logs.append(self.replica.group, &PointRecord::End(end));
        logs.go_on();
        let replica = logs.replicas.entry(self.replica).or_default();
        // An end is a block of its own, mostly.
        replica.progress.wrote(END_BYTES);
        replica.progress.ends(position, number, whole, bytes);
        replica.closes = closes.then_some(number);
        if let Some(position) = replica.progress.drops(floor) {
            logs.disk.keep_from(self.replica.group, position);
        }
        drop(logs);
        self.lag.point(number, lag::now());
    }

    fn saved(&mut self, floor: u64, all: bool) {
        self.lag.saved(floor, all, lag::now());
    }

    fn takes_commands(&self) -> bool {
        self.lag.takes_commands(lag::now())
    }

    fn copy_bytes(&self) -> usize {
        COPY_BYTES
    }

    fn is_copy_due(&self) -> bool {
        let logs = self.engine.logs();
        let replica = logs.replicas.get(&self.replica);
        replica.is_some_and(|it| it.progress.is_copy_due(COPY_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_closed_when_its_disk_leads_to_the_last_point() {
        let mut replica = Replica::default();
        replica.progress.begins(1, true);
        replica.progress.ends(2, 10, false, 0);
        replica.closes = Some(10);
        replica.progress.reached(2);
        assert!(!replica.is_closed(), "its copy is not whole");
        replica.progress.ends(3, 10, true, 0);
        assert!(!replica.is_closed(), "the disk does not hold the end");
        replica.progress.reached(3);
        assert!(replica.is_closed());
        replica.closes = Some(20);
        assert!(!replica.is_closed(), "the disk leads to an earlier point");
        replica.closes = None;
        assert!(!replica.is_closed(), "that point does not close the cluster");
    }
}
