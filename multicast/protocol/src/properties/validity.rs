//! Validity: if a correct process multicasts m, every correct replica of m's destinations delivers m eventually.
//! (RamCast, section 2.2.) A message that was answered counts as if its sender were correct: nothing that was
//! acknowledged is lost.

use alloc::format;

use super::{History, Violation};

/// Checks a complete history: no event is left to happen. Given agreement, it is enough that one replica of each group
/// has delivered the message.
pub(super) fn check(history: &History) -> Result<(), Violation> {
    for (message, multicast) in &history.multicasts {
        let due = if multicast.correct { multicast.destinations } else { multicast.answered };
        for group in due.iter().filter(|_| !history.is_lost(*message)) {
            if !history.delivered.contains(&(group, *message)) {
                let destinations = multicast.destinations;
                let evidence = format!("{group} never delivered {message} to {destinations}");
                return Err(Violation { property: "validity", evidence });
            }
        }
    }
    Ok(())
}
