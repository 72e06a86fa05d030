//! Validity: if a correct process multicasts m, every correct replica of m's destinations delivers
//! m eventually. (RamCast, section 2.2.)

use alloc::collections::BTreeSet;
use alloc::format;

use super::{History, Violation};

/// Holds of a history in which nothing is left to happen.
pub fn check_validity(history: &History) -> Result<(), Violation> {
    for replica in &history.correct {
        let delivered: BTreeSet<_> =
            history.delivered(*replica).iter().map(|deliver| deliver.message).collect();
        for (message, (destinations, correct)) in &history.multicasts {
            if *correct && destinations.contains(replica.group) && !delivered.contains(message) {
                let evidence = format!("{replica} never delivered {message} to {destinations}");
                return Err(Violation { property: "validity", evidence });
            }
        }
    }
    Ok(())
}
