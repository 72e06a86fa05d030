//! Real time: if an operation returned before another was invoked, it precedes the other in the
//! key's order.
//!
//! Every operation known on a key gets two positions in the key's order: the least position that it
//! can have observed, and the position after it. Every operation that is invoked after a return
//! must observe at least the position that the returned one left. So one sweep over invocations and
//! returns, with the highest position left by a returned operation, finds the operations that are
//! out of order.

use super::{Judgement, Moment, NEVER, seconds};
use crate::history::Header;

/// An operation with positions in a key's order. Its name is used only in evidence.
pub(super) struct Seen<'a> {
    pub(super) moment: Moment,
    /// Least position that it can have observed.
    pub(super) saw: u64,
    /// Position after it.
    pub(super) left: u64,
    pub(super) name: &'a str,
}

/// Reports the operations that observed less than had been left when they were invoked.
pub(super) fn check(header: &Header, key: &str, seen: &[Seen<'_>], verdict: &mut Judgement) {
    // An operation invoked at the time of another's return may precede it, so invocations sort
    // first.
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * seen.len());
    for (i, one) in seen.iter().enumerate() {
        events.push((one.moment.invoked, false, i));
        if one.moment.returned != NEVER {
            events.push((one.moment.returned, true, i));
        }
    }
    events.sort_unstable();
    let mut furthest: Option<usize> = None;
    for (_, returned, i) in events {
        let one = &seen[i];
        let Some(before) = furthest.map(|before| &seen[before]) else {
            furthest = returned.then_some(i);
            continue;
        };
        if returned {
            if one.left > before.left {
                furthest = Some(i);
            }
        } else if one.saw < before.left {
            verdict.wrong("out_of_order", || {
                format!(
                    "{key}: {} ({}) is at place {}, though {} was acknowledged before, at {} s, at place {}",
                    one.name,
                    one.moment.show(header),
                    one.saw,
                    before.name,
                    seconds(header, before.moment.returned),
                    before.left,
                )
            });
        }
    }
}
