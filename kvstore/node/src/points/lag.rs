//! How long what a group has executed may be on too few disks: its leader takes no commands when that is too long ago.
//!
//! **Invariant.** Everything that the replica executed before `saved` is on the disks of f+1 replicas of every group.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since some moment, as of the last tick of the system's clock: a few milliseconds old at most, and read at a third of the
/// cost. Leaders ask before every message.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::try_from(now).unwrap_or_default()
}

/// The lag of a replica's group, as that replica sees it.
pub(super) struct Lag {
    /// Commands wait while `saved` is longer ago.
    most: Duration,
    /// `None` until it is asked for: a machine may be made long before its engine takes turns.
    saved: Cell<Option<Duration>>,
    /// Points behind the floor, and when this replica executed them. Both rise.
    points: VecDeque<(u64, Duration)>,
    /// No points are made because a group answers nobody.
    suspended: Arc<AtomicBool>,
}

impl Lag {
    pub(super) fn new(most: Duration, suspended: Arc<AtomicBool>) -> Self {
        Self { most, saved: Cell::new(None), points: VecDeque::new(), suspended }
    }

    /// Notes that the replica executes point `number`.
    pub(super) fn point(&mut self, number: u64, now: Duration) {
        self.points.push_back((number, now));
    }

    /// Notes that `floor` is on the disks of f+1 replicas of every group, and that there is nothing newer if `all`.
    pub(super) fn saved(&mut self, floor: u64, all: bool, now: Duration) {
        let mut saved = self.saved.get().unwrap_or(now);
        while let Some((_, at)) = self.points.pop_front_if(|(number, _)| *number <= floor) {
            saved = saved.max(at);
        }
        self.saved.set(Some(if all { now } else { saved }));
    }

    /// Whether commands may be taken.
    pub(super) fn takes_commands(&self, now: Duration) -> bool {
        let saved = self.saved.get().unwrap_or(now);
        self.saved.set(Some(saved));
        now.saturating_sub(saved) <= self.most || self.suspended.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_millis(750);

    fn lag() -> (Lag, Arc<AtomicBool>, impl Fn(u64) -> Duration) {
        let suspended = Arc::<AtomicBool>::default();
        let at = Duration::from_millis;
        (Lag::new(MOST, Arc::clone(&suspended)), suspended, at)
    }

    #[test]
    fn commands_wait_while_the_newest_point_that_is_on_enough_disks_is_too_old() {
        let (mut lag, _, at) = lag();
        assert!(lag.takes_commands(at(0)), "it begins now");
        assert!(lag.takes_commands(at(750)) && !lag.takes_commands(at(751)));
        lag.point(7, at(200));
        lag.point(8, at(400));
        lag.saved(6, false, at(760));
        assert!(!lag.takes_commands(at(760)), "neither point is on enough disks");
        lag.saved(7, false, at(770));
        assert!(lag.takes_commands(at(950)) && !lag.takes_commands(at(951)));
        lag.saved(8, false, at(960));
        assert!(lag.takes_commands(at(1150)) && !lag.takes_commands(at(1151)));
        lag.saved(7, false, at(1200));
        assert!(!lag.takes_commands(at(1200)), "an older report");
    }

    #[test]
    fn while_everything_is_saved_no_time_counts() {
        let (mut lag, _, at) = lag();
        lag.point(7, at(0));
        lag.saved(7, true, at(60_000));
        assert!(lag.takes_commands(at(60_750)) && !lag.takes_commands(at(60_751)));
        lag.saved(7, false, at(60_800));
        assert!(!lag.takes_commands(at(60_800)), "something has changed since");
    }

    #[test]
    fn a_group_that_answers_nobody_keeps_no_other_from_serving() {
        let (lag, suspended, at) = lag();
        assert!(lag.takes_commands(at(0)) && !lag.takes_commands(at(800)));
        suspended.store(true, Ordering::Relaxed);
        assert!(lag.takes_commands(at(800)));
        suspended.store(false, Ordering::Relaxed);
        assert!(!lag.takes_commands(at(800)));
    }
}
