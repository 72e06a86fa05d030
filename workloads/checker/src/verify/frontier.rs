//! Real time: what was acknowledged before something else was asked for comes before it.
//!
//! Everything that is known to have happened to a key is given places in the key's order: the least
//! place it can have seen, and the place it left behind. When it returned, everybody who asks from
//! then on must be at that place at least. So one sweep over invocations and returns, with the
//! furthest place that anybody has returned from, finds what is out of order.

use super::{Judgement, Moment, NEVER, seconds};
use crate::history::Header;

/// Something with places in a key's order. Its name is made only when it is evidence.
pub(super) struct Seen<'a> {
    pub(super) moment: Moment,
    /// It saw the key at this place.
    pub(super) saw: u64,
    /// It left the key at this place.
    pub(super) left: u64,
    pub(super) name: &'a str,
}

/// Finds those who saw less than had been left when they asked.
pub(super) fn check(header: &Header, key: &str, seen: &[Seen<'_>], verdict: &mut Judgement) {
    // What is asked at the very moment at which something returns may come before it.
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
