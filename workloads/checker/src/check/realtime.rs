//! Real time: who was answered before another was asked for comes before it.
//!
//! An edge for each such pair would be as many as the square of the transactions. Instead time runs
//! along a chain of barriers, one wherever somebody asks after somebody was answered: who is answered
//! leads to the next barrier, who asks comes from the last. Two transactions are joined through the
//! chain exactly if the one was answered before the other was asked for. What happens at the very
//! same moment is not in order, unless one process did it.

use super::graph::{Builder, Helper};
use super::model::{Fate, Model, NEVER};

pub(super) fn order(model: &Model, builder: &mut Builder) {
    let mut moments: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * model.transactions.len());
    for (i, one) in (0..).zip(&model.transactions) {
        if one.fate == Fate::Refused {
            continue;
        }
        moments.push((one.invoked, false, i));
        // A stale read may be ahead of what others are told: nobody comes after it in time, but for those
        // who had not asked for what it saw (`infer`).
        if one.returned != NEVER && !one.stale {
            moments.push((one.returned, true, i));
        }
    }
    for (one, before) in &model.scripts.ties {
        builder.in_time(*before, *one);
    }
    // Of one moment, those who ask come first.
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
