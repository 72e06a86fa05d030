//! Status and digests of a node process.

use std::sync::atomic::Ordering;
use std::time::Instant;

use skein_protocol::ids::{GroupId, ReplicaId};
use skein_wal::files::Shortage;

use super::{ENGINE_WAIT_MAX, Node, Phase, Worker};
use crate::admin::{Problem, Response};
use crate::digests::{Digests, GivenUp};
use crate::disk::NodeLog;
use crate::engine::EngineStatus;
use crate::status::{GoneNode, NodeStatus, ReplicaReport, resident_bytes};

impl Node {
    pub(super) fn digested(&mut self, digests: Result<Digests, GivenUp>) -> Response {
        let Ok(digests) = digests else {
            let what = "messages are delivered all the time: ask for digests when nothing goes on";
            return Response::Error(Problem::busy_with(what));
        };
        let mut response = self.response();
        if let Response::Ok(status) = &mut response {
            for report in &mut status.replicas {
                let id = ReplicaId::new(GroupId(report.order.group), report.order.slot);
                let found = digests.iter().find(|(replica, _)| *replica == id);
                report.digest = found.map(|(_, digest)| digest.clone());
            }
        }
        response
    }

    pub(super) fn response(&mut self) -> Response {
        match self.status() {
            Some(status) => Response::Ok(Box::new(status)),
            None => Response::Error(self.busy()),
        }
    }

    /// Why an engine thread does not answer.
    pub(super) fn busy(&self) -> Problem {
        match self.disk.as_ref().and_then(NodeLog::short) {
            Some(Shortage::Disk) => {
                Problem::busy_with("its disk is full, and it waits for room: make some")
            }
            Some(Shortage::Bound) => Problem::busy_with(
                "its log takes all that node.disk_bytes_max allows, and it waits for room: allow more, by `skein down` and \
                 `skein up --config FILE`",
            ),
            None => Problem::busy(),
        }
    }

    pub(super) fn status(&mut self) -> Option<NodeStatus> {
        let ask = |worker: &mut Worker| worker.control.status(ENGINE_WAIT_MAX);
        let engines: Option<Vec<EngineStatus>> = self.workers.iter_mut().map(ask).collect();
        let engines = engines?;
        let mut refused: Vec<_> =
            engines.iter().flat_map(|engine| engine.refused.clone()).collect();
        refused.dedup();
        let replicas: Vec<_> = engines.into_iter().flat_map(|engine| engine.replicas).collect();
        self.look_for_gone();
        let gone = |(node, (incarnation, since)): (&u16, &(u32, Instant))| GoneNode {
            node: *node,
            incarnation: *incarnation,
            for_ms: since.elapsed().as_millis() as u64,
        };
        Some(NodeStatus {
            node: self.number,
            incarnation: self.incarnation,
            life: self.incarnation,
            pid: std::process::id(),
            cluster: self.manifest.cluster.clone(),
            build: self.manifest.build.clone(),
            uptime_ms: self.started.elapsed().as_millis() as u64,
            ready: replicas.iter().all(ReplicaReport::serves)
                && self.disk.as_ref().is_none_or(|log| log.problem().is_none()),
            draining: self.drained || !matches!(self.phase, Phase::Serving),
            resident_bytes: resident_bytes(),
            log_lines_lost: self.log.lost.load(Ordering::Relaxed),
            log_lines_left_out: self.log.left_out.load(Ordering::Relaxed),
            directory_problem: self
                .disk
                .as_ref()
                .and_then(NodeLog::problem)
                .or(self.upkeep.problem())
                .map(str::to_owned),
            disk: self
                .disk
                .as_ref()
                .map(|log| log.status(replicas.iter().map(|it| it.store_bytes))),
            points: self.points(),
            replicas,
            gone: self.gone.iter().map(gone).collect(),
            refused,
        })
    }

    /// Records which of the other nodes do not run, and since when this has been seen.
    pub(super) fn look_for_gone(&mut self) {
        for node in (0..self.manifest.nodes).filter(|node| *node != self.number) {
            let incarnations = self.directory.incarnations(node).unwrap_or_default();
            match (self.directory.node(node), incarnations.checked_sub(1)) {
                (None, Some(incarnation)) => {
                    let since =
                        self.gone.entry(node).or_insert_with(|| (incarnation, Instant::now()));
                    if since.0 != incarnation {
                        *since = (incarnation, Instant::now());
                    }
                }
                _ => _ = self.gone.remove(&node),
            }
        }
    }
}
