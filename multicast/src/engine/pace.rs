//! The schedule of an engine's periodic work.

use std::time::Duration;

use skein_protocol::mutants::{Mutant, planted};

use crate::config::Tuning;
use crate::replica::PART_EVERY;

/// Time without work after which an engine is idle, and number of ticks that an idle engine sleeps through. If
/// half of the tolerated missed heartbeats are fewer, it sleeps through as many: one beat makes up for them at
/// an observer that checks every tick.
const IDLE_AFTER: Duration = Duration::from_millis(100);
const IDLE_TICKS: u32 = 10;
/// One in so many liveness probes of an idle engine covers sessions' processes too. With a hundred sessions,
/// these would be all of the engine's work, and nobody waits for the end of a session without requests.
const IDLE_PROBES: u32 = 10;
/// Minimum interval between hand-overs of an engine's leaders for spreading.
const SPREAD_EVERY: Duration = Duration::from_secs(1);
/// Interval between liveness probes of peers.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// Times of the last periodic work.
///
/// **Invariant.** None of these times is later than the last `now` that was passed in, and `last_work` is the
/// time of the end of a turn.
pub(super) struct Pace {
    tick: Duration,
    /// Longest wait of an idle engine, in ticks.
    idle_ticks: u32,
    last_tick: Duration,
    last_work: Duration,
    probes: u32,
    last_probe: Duration,
    /// Time of the last hand-over for spreading here, and the minimum interval between two.
    last_hand_over: Duration,
    spread_every: Duration,
}

impl Pace {
    pub(super) fn new(now: Duration, tuning: &Tuning) -> Self {
        Self {
            tick: Duration::from_millis(tuning.heartbeat_ms),
            idle_ticks: (tuning.heartbeats_missed_max / 2).clamp(1, IDLE_TICKS),
            last_tick: now,
            last_work: now,
            probes: 0,
            last_probe: now,
            last_hand_over: now,
            spread_every: SPREAD_EVERY.min(Duration::from_millis(tuning.spread_after_ms)),
        }
    }

    /// Returns whether a tick is due; if so, it counts as done now.
    pub(super) fn ticks(&mut self, now: Duration) -> bool {
        let due = now >= self.last_tick + self.tick;
        if due {
            self.last_tick = now;
        }
        due
    }

    /// Records a turn that found something to do.
    pub(super) const fn has_worked(&mut self, now: Duration) {
        self.last_work = now;
    }

    /// Time since the end of the last turn that found something to do.
    pub(super) const fn idle_for(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_work)
    }

    fn is_idle(&self, now: Duration) -> bool {
        now > self.last_work + IDLE_AFTER
    }

    /// The longest time that an engine may sleep after a turn that found nothing: several ticks if it is idle
    /// and no peer is to be woken at the next tick. Less if it awaits the time of a snapshot's next part.
    pub(super) fn longest_wait(
        &self,
        now: Duration,
        none_to_wake: bool,
        awaits_part: bool,
    ) -> Duration {
        let ticks = if none_to_wake && self.is_idle(now) { self.idle_ticks } else { 1 };
        let longest = ticks * self.tick;
        if awaits_part { longest.min(PART_EVERY) } else { longest }
    }

    /// Number of liveness probes that are due now: at most one, however late it is. A peer that may return is
    /// given a number of probes to do so, not a length of time.
    pub(super) fn probes_due(&mut self, now: Duration) -> u128 {
        if now < self.last_probe + PROBE_EVERY {
            return 0;
        }
        let late = now.saturating_sub(self.last_probe).as_millis() / PROBE_EVERY.as_millis();
        self.last_probe = now;
        if planted(Mutant::ProbesMadeUpFor) { late.min(200) } else { 1 }
    }

    /// Returns whether this liveness probe covers the processes of sessions.
    pub(super) fn calls_sessions(&self) -> bool {
        !self.is_idle(self.last_probe) || self.probes.is_multiple_of(IDLE_PROBES)
    }

    /// Counts a liveness probe. Returns whether it is the last of `of` probes.
    pub(super) const fn counts_probe(&mut self, of: u32) -> bool {
        self.probes += 1;
        self.probes.is_multiple_of(of)
    }

    /// Returns whether a leader may hand over now for spreading.
    pub(super) fn may_hand_over(&self, now: Duration) -> bool {
        now >= self.last_hand_over + self.spread_every
    }

    /// Records a hand-over.
    pub(super) const fn has_handed_over(&mut self, now: Duration) {
        self.last_hand_over = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_does_not_sleep_through_the_time_of_a_snapshots_part() {
        let tuning = Tuning { heartbeat_ms: 1000, ..Tuning::default() };
        let pace = Pace::new(Duration::ZERO, &tuning);
        let waits = |awaits_part| pace.longest_wait(IDLE_AFTER * 2, true, awaits_part);
        assert!(waits(false) >= Duration::from_secs(1));
        assert_eq!(waits(true), PART_EVERY);
    }
}
