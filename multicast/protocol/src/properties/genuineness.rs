//! Genuineness: only a message's sender and its destinations read or write anything for it.
//! (RamCast, section 2.2. Heartbeats are exempt.)
//!
//! An acceptance word stands for a stretch of its writer's log, so it may go to another group only
//! if that stretch, since the last word to the same replica, holds a message shared with it.

use alloc::collections::BTreeMap;
use alloc::format;

use super::{About, History, Violation};
use crate::step::Record;

/// Holds at any time.
pub fn check_genuineness(history: &History) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "genuineness", evidence });
    let mut told = BTreeMap::new();
    for touch in &history.touches {
        match touch.about {
            About::Message(message) => {
                let Some((destinations, _)) = history.multicasts.get(&message) else { continue };
                for party in [touch.by, touch.to] {
                    if !destinations.contains(party.group) {
                        return violated(format!(
                            "{} told {} about {message} to {destinations}",
                            touch.by, touch.to
                        ));
                    }
                }
            }
            About::Log(index) => {
                let since = told.insert((touch.by, touch.to), index).unwrap_or(0);
                if touch.by.group == touch.to.group {
                    continue;
                }
                let log = history.logs.get(&touch.by).map_or(&[][..], |log| log.as_slice());
                let start = log.partition_point(|(i, _)| *i <= since);
                let shared = log[start..].iter().take_while(|(i, _)| *i <= index).any(|(_, r)| {
                    matches!(r, Record::Local { destinations, .. }
                        if destinations.contains(touch.to.group))
                });
                if !shared {
                    return violated(format!(
                        "{} told {} of its log from {since} to {index}, where they share nothing",
                        touch.by, touch.to
                    ));
                }
            }
        }
    }
    Ok(())
}
