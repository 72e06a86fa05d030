//! The restore points of a node: how old they are, and the last one, which closes the cluster.

use super::Node;
use crate::points::marker::now_us;
use crate::status::PointsStatus;

impl Node {
    /// Begins to close the cluster with a last restore point, if it has restore points.
    pub(super) fn close(&self) {
        if let Some(marker) = &self.marker {
            marker.close();
        }
    }

    pub(super) fn points(&self) -> Option<PointsStatus> {
        let marker = self.marker.as_ref()?;
        let known = marker.known();
        let age = |point: u64| (point > 0).then(|| now_us().saturating_sub(point) / 1_000);
        Some(PointsStatus {
            last: known.last,
            last_age_ms: age(known.last),
            floor: known.floor,
            floor_age_ms: age(known.floor),
            saved_age_ms: age(known.saved),
            all_on_disk: known.last > 0 && known.floor == known.last && !known.changed,
            lag_ms_max: self.config.lag_ms_max,
            closed: marker.closed(),
            silent: known.silent,
        })
    }
}
