//! Uniform agreement: if any replica delivers m, even one that crashes afterwards, every correct
//! replica of m's destinations delivers m eventually. (RamCast, section 2.2.)

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;

use super::{History, Violation};

/// Holds of a history in which nothing is left to happen.
pub fn check_agreement(history: &History) -> Result<(), Violation> {
    let mut first = BTreeMap::new();
    for (replica, delivered) in &history.deliveries {
        for deliver in delivered {
            first.entry(deliver.message).or_insert((*replica, deliver.destinations));
        }
    }
    for replica in &history.correct {
        let delivered: BTreeSet<_> =
            history.delivered(*replica).iter().map(|deliver| deliver.message).collect();
        for (message, (by, destinations)) in &first {
            if destinations.contains(replica.group) && !delivered.contains(message) {
                let evidence = format!("{by} delivered {message}, and {replica} never did");
                return Err(Violation { property: "uniform agreement", evidence });
            }
        }
    }
    Ok(())
}
