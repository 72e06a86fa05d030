//! Integrity: a replica delivers a message at most once, only if its group is a destination, and
//! only if it was multicast. (RamCast, section 2.2.)

use alloc::collections::BTreeSet;
use alloc::format;

use super::{History, Violation};

/// Holds at any time.
pub fn check_integrity(history: &History) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "integrity", evidence });
    for (replica, delivered) in &history.deliveries {
        let mut seen = BTreeSet::new();
        for deliver in delivered {
            let message = deliver.message;
            if !seen.insert(message) {
                return violated(format!("{replica} delivered {message} twice"));
            }
            let Some((destinations, _)) = history.multicasts.get(&message) else {
                return violated(format!("{replica} delivered {message}, which nobody multicast"));
            };
            if *destinations != deliver.destinations || !destinations.contains(replica.group) {
                let to = deliver.destinations;
                return violated(format!(
                    "{replica} delivered {message} as if to {to}; it was multicast to {destinations}"
                ));
            }
        }
    }
    Ok(())
}
