//! Uniform agreement: if any replica delivers m, every correct replica of m's destinations delivers m eventually.
//! (RamCast, section 2.2.) A replica that received a state has delivered everything in it.

use alloc::format;

use super::{History, Violation};

/// Checks a complete history: no event is left to happen.
pub(super) fn check(history: &History) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "uniform agreement", evidence });
    for (group, sequence) in &history.sequences {
        for deliver in sequence {
            if history.is_lost(deliver.message) {
                continue;
            }
            for other in deliver.destinations.iter() {
                if !history.delivered.contains(&(other, deliver.message)) {
                    let message = deliver.message;
                    return violated(format!("{group} delivered {message}, and {other} never did"));
                }
            }
        }
        for (replica, reached) in history.reached.iter().filter(|(r, _)| r.group == *group) {
            if let Some(next) = sequence.get(*reached as usize) {
                let message = next.message;
                return violated(format!("{group} delivered {message}, and {replica} never did"));
            }
        }
    }
    Ok(())
}
