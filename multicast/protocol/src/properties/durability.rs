//! Durability: what was answered stays. A session that has a group's answer to a message will find
//! it delivered by that group for ever: by the replica that answered, and, with agreement, by every
//! replica that lives in the end, whoever has died meanwhile.

use alloc::format;

use super::{History, Violation};
use crate::ids::{GroupId, MessageId};

/// Holds at any time.
pub(super) fn check(history: &History, message: MessageId, by: GroupId) -> Result<(), Violation> {
    if history.delivered.contains(&(by, message)) || history.is_lost(message) {
        return Ok(());
    }
    let evidence = format!("{by} answered {message}, which none of its replicas delivered");
    Err(Violation { property: "durability", evidence })
}
