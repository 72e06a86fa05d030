//! When an engine does what it does once in a while.

use std::time::Duration;

use skein_protocol::mutants::{Mutant, planted};

use crate::config::Tuning;

/// After how long without anything to do an engine sleeps through so many ticks, or half of the misses
/// that are borne if they are fewer: no more than a beat makes up for to one who looks in every tick.
const IDLE_AFTER: Duration = Duration::from_millis(100);
const IDLE_TICKS: u32 = 10;
/// Of an idle engine's liveness probes, one in so many asks after sessions' processes, too: of a hundred of
/// them that would be all that it does, and nobody waits for one who asked for nothing.
const IDLE_PROBES: u32 = 10;
/// How often a leader of an engine hands over, at most, so that leaders spread.
const SPREAD_EVERY: Duration = Duration::from_secs(1);
/// How often the system is asked whether peers are alive.
const PROBE_EVERY: Duration = Duration::from_millis(100);

/// When what was done last.
///
/// **Invariant.** None of these times is above the last one that was told, and `last_work` is that of the end of a turn.
pub(super) struct Pace {
    tick: Duration,
    /// So many of them pass between two looks of an engine that is idle.
    idle_ticks: u32,
    last_tick: Duration,
    last_work: Duration,
    probes: u32,
    last_probe: Duration,
    /// When a leader here last handed over so that leaders spread, and how often one may at most.
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

    /// Whether a tick is due, which is to follow now.
    pub(super) fn ticks(&mut self, now: Duration) -> bool {
        let due = now >= self.last_tick + self.tick;
        if due {
            self.last_tick = now;
        }
        due
    }

    /// A turn has found something to do.
    pub(super) const fn has_worked(&mut self, now: Duration) {
        self.last_work = now;
    }

    fn is_idle(&self, now: Duration) -> bool {
        now > self.last_work + IDLE_AFTER
    }

    /// For how long an engine may sleep after a turn that found nothing: for some ticks if it is idle, and nobody is to be
    /// woken by the next one.
    pub(super) fn longest_wait(&self, now: Duration, none_to_wake: bool) -> Duration {
        let ticks = if none_to_wake && self.is_idle(now) { self.idle_ticks } else { 1 };
        ticks * self.tick
    }

    /// How many liveness probes are to follow now: one, if it is time, however late it is. Who may come back is given so many
    /// calls, and not so much time.
    pub(super) fn probes_due(&mut self, now: Duration) -> u128 {
        if now < self.last_probe + PROBE_EVERY {
            return 0;
        }
        let late = now.saturating_sub(self.last_probe).as_millis() / PROBE_EVERY.as_millis();
        self.last_probe = now;
        if planted(Mutant::ProbesMadeUpFor) { late.min(200) } else { 1 }
    }

    /// Whether this liveness probe asks after the processes of sessions.
    pub(super) fn calls_sessions(&self) -> bool {
        !self.is_idle(self.last_probe) || self.probes.is_multiple_of(IDLE_PROBES)
    }

    /// Counts a liveness probe. Whether it is one of so many.
    pub(super) const fn counts_probe(&mut self, of: u32) -> bool {
        self.probes += 1;
        self.probes.is_multiple_of(of)
    }

    /// Whether a leader may hand over now so that leaders spread.
    pub(super) fn may_hand_over(&self, now: Duration) -> bool {
        now >= self.last_hand_over + self.spread_every
    }

    /// A leader has handed over.
    pub(super) const fn has_handed_over(&mut self, now: Duration) {
        self.last_hand_over = now;
    }
}
