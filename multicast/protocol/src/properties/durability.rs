//! Durability: an answered message is never lost. If a session has a group's answer to a message, a replica of that
//! group has delivered the message, and, with agreement, every replica that is alive in the end has delivered it,
//! whatever crashed meanwhile.

use alloc::format;

use super::{History, Violation};
use crate::ids::{GroupId, MessageId};

/// Checks every answer when it arrives.
pub(super) fn check(history: &History, message: MessageId, by: GroupId) -> Result<(), Violation> {
    if history.delivered.contains(&(by, message)) || history.is_lost(message) {
        return Ok(());
    }
    let evidence = format!("{by} answered {message}, which none of its replicas delivered");
    Err(Violation { property: "durability", evidence })
}
