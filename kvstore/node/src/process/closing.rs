//! The restore points of a node: how old they are, and the last one, which closes the cluster.

use std::time::{Duration, Instant};

use super::Node;
use crate::admin::{Answer, Server};
use crate::points::marker::now_us;
use crate::status::PointsStatus;

impl Node {
    /// Begins to close the cluster with a last restore point, or joins the request that does.
    pub(super) fn close(&mut self, from: Answer) {
        if let Some(marker) = &self.marker {
            tracing::info!("the cluster is closed with a last restore point");
            marker.close();
        }
        let within = Duration::from_millis(self.config.stop_within_ms);
        let (_, asked) = self.closing.get_or_insert_with(|| (Instant::now() + within, Vec::new()));
        asked.push(from);
    }

    fn is_closed(&self) -> bool {
        let layout = self.config.layout();
        let hosted = |engine| layout.replicas_on(self.number, engine).len();
        let hosted: Vec<usize> = (0..self.config.topology.engines).map(hosted).collect();
        self.marker.as_ref().is_some_and(|marker| marker.is_closed(&hosted))
    }

    /// Answers the requests to close once the disk holds the last point, or it has taken too long.
    pub(super) fn tell_closed(&mut self, server: &mut Server) {
        let Some((deadline, _)) = self.closing else { return };
        if Instant::now() < deadline && self.marker.is_some() && !self.is_closed() {
            return;
        }
        let response = self.response();
        for from in self.closing.take().map(|(_, asked)| asked).unwrap_or_default() {
            server.answer(from, &response);
        }
    }

    pub(super) fn points(&self) -> Option<PointsStatus> {
        let known = self.marker.as_ref()?.known();
        let age = |point: u64| (point > 0).then(|| now_us().saturating_sub(point) / 1_000);
        Some(PointsStatus {
            last: known.last,
            last_age_ms: age(known.last),
            floor: known.floor,
            floor_age_ms: age(known.floor),
            saved_age_ms: age(known.saved),
            all_on_disk: known.last > 0 && known.floor == known.last && !known.changed,
            lag_ms_max: self.config.lag_ms_max,
            closed: self.is_closed(),
            silent: known.silent,
        })
    }
}
