//! Integrity: a group delivers a message at most once, whichever of its replicas leads or is alive, only if it is a
//! destination, and only if the message was multicast. (RamCast, section 2.2.)

use alloc::format;

use super::{History, Violation};
use crate::ids::ReplicaId;
use crate::step::Deliver;

/// Checks every delivery.
pub(super) fn check(history: &History, by: ReplicaId, deliver: &Deliver) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "integrity", evidence });
    let (message, group) = (deliver.message, by.group);
    let first = deliver.position > history.deliveries_of(group);
    if first && history.delivered.contains(&(group, message)) {
        return violated(format!("{by} delivered {message} a second time"));
    }
    let Some(multicast) = history.multicasts.get(&message) else {
        return violated(format!("{by} delivered {message}, which was never multicast"));
    };
    let (as_if, sent) = (deliver.destinations, multicast.destinations);
    if as_if != sent || !sent.contains(group) {
        return violated(format!(
            "{by} delivered {message} as if to {as_if}; it was multicast to {sent}"
        ));
    }
    Ok(())
}
