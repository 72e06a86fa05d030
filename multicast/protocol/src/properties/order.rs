//! Uniform prefix and acyclic order. (RamCast, section 2.2.)
//!
//! A timestamp per message, the same everywhere and rising in every replica's deliveries, is a
//! witness that all deliveries together have no cycle. Comparing replicas in pairs would miss a
//! cycle through three groups. Prefix order within a group is stronger here than the paper's: a
//! replica's deliveries are a prefix of every longer one's, gap-free, under the same positions.

use alloc::collections::BTreeMap;
use alloc::format;

use super::{History, Violation};

/// Holds at any time.
pub fn check_order(history: &History) -> Result<(), Violation> {
    let violated = |evidence| Err(Violation { property: "order", evidence });
    let mut agreed = BTreeMap::new();
    let mut longest = BTreeMap::new();
    for (replica, delivered) in &history.deliveries {
        for pair in delivered.windows(2) {
            if pair[0].timestamp >= pair[1].timestamp {
                return violated(format!(
                    "{replica} delivered {} at {} and then {} at {}",
                    pair[0].message, pair[0].timestamp, pair[1].message, pair[1].timestamp
                ));
            }
        }
        for (i, deliver) in delivered.iter().enumerate() {
            let (message, timestamp) = (deliver.message, deliver.timestamp);
            let (by, other) = *agreed.entry(message).or_insert((*replica, timestamp));
            if other != timestamp {
                return violated(format!(
                    "{message} is final at {timestamp} for {replica} and at {other} for {by}"
                ));
            }
            if deliver.position != i as u64 + 1 {
                let position = deliver.position;
                return violated(format!("{replica} delivered {message} as number {position}"));
            }
        }
        let (other, known) = longest.entry(replica.group).or_insert((*replica, delivered));
        for (mine, theirs) in delivered.iter().zip(known.iter()) {
            if mine != theirs {
                let (number, mine, theirs) = (mine.position, mine.message, theirs.message);
                return violated(format!(
                    "delivery {number} is {mine} at {replica} and {theirs} at {other}"
                ));
            }
        }
        if delivered.len() > known.len() {
            (*other, *known) = (*replica, delivered);
        }
    }
    Ok(())
}
