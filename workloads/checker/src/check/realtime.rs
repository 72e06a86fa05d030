//! Real time: a transaction answered before another was invoked precedes it.
//!
//! An edge per pair would need a number of edges quadratic in the transactions. Instead time runs
//! along a chain of barriers, one at each invocation that follows an answer: an answered
//! transaction has an edge to the next barrier, an invoked one has an edge from the last. Two
//! transactions are connected through the chain if and only if one was answered before the other
//! was invoked. Events of the same moment are not ordered, unless they belong to one process.

use super::graph::{Builder, Helper};
use super::model::{Fate, Model, NEVER};

pub(super) fn order(model: &Model, builder: &mut Builder) {
    let mut moments: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * model.transactions.len());
    for (i, one) in (0..).zip(&model.transactions) {
        if one.fate == Fate::Refused {
            continue;
        }
        moments.push((one.invoked, false, i));
        // A stale read may be ahead of what others read, so nothing follows it in time, except
        // transactions that were invoked after it and wrote what it observed (`infer`).
        if one.returned != NEVER && !one.stale {
            moments.push((one.returned, true, i));
        }
    }
    for (one, before) in &model.scripts.ties {
        builder.in_time(*before, *one);
    }
    // Of one moment, invocations come first.
    moments.sort_unstable();
    let mut last = None;
    let mut next = None;
    for (_, answered, transaction) in moments {
        if answered {
            let barrier = *next.get_or_insert_with(|| builder.helper(Helper::Barrier));
            builder.in_time(transaction, barrier);
            continue;
        }
        if let Some(barrier) = next.take()
            && let Some(before) = last.replace(barrier)
        {
            builder.in_time(before, barrier);
        }
        if let Some(barrier) = last {
            builder.in_time(barrier, transaction);
        }
    }
}
