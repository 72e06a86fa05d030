//! Failure detector: a bounded score per replica slot, raised and lowered by pulled heartbeats.
//!
//! After Mu (OSDI '20, section 5.2): replicas *read* each other's counters, so that a late message
//! condemns nobody, and the score is bounded, so that a long good life is no reason to wait long.
//!
//! **Timeout** is the number of looks in a row that a replica may miss before it is suspected. On a
//! crowded host live processes are not scheduled for longer than that, and each change of leaders costs the
//! processor time that brings on the next one. So a mistake doubles the timeout with that replica, up to a
//! bound (after Chandra and Toueg, JACM '96, section 6.1). But a replica that really stood still was
//! rightly suspected, and the next one that does is to be replaced just as soon. A suspicion is a mistake
//! in two cases:
//!
//! - it was *premature*: the silence ended within one base timeout after it;
//! - the observer was itself kept from looking, twice within a short time: the host is crowded, and no
//!   silence says much about one process.
//!
//! A calm time halves the timeout again, down to its base. A known death is never waited for. One look is
//! one miss at most, however late it comes: an observer that is kept from looking blames nobody for the time.

use alloc::vec;
use alloc::vec::Vec;

/// What a look at a replica's heartbeat came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// It has changed since the last look.
    Beat,
    /// It is what it was, or could not be read.
    Missed,
    /// The replica's process is known to have ended.
    Dead,
}

/// A beat makes up for so many misses: one who has nothing to do may sleep through ten looks of one who
/// has, and get up late.
const BEAT: u32 = 15;
/// How much longer replicas that were never seen are waited for: a cluster is starting.
const UNSEEN_PATIENCE: u32 = 10;
/// The most that mistakes raise the timeout: with 20 looks of 5 ms, from 0.1 s to 1.6 s.
const TIMEOUT_FACTOR_MAX: u32 = 16;
/// A time without a long silence that halves a raised timeout.
const CALM_MS: u64 = 1_000;
/// Two late looks of the observer's own within this time mean that the host is crowded, for as long.
const CROWDED_MS: u64 = 2_000;

#[derive(Clone, Copy, Debug)]
struct Health {
    score: u32,
    /// Misses in a row that it may have: more after each mistake.
    timeout: u32,
    /// Misses since it was suspected.
    over: u32,
    dead: bool,
    /// When the score fell to nothing.
    since_ms: u64,
    /// When it was last silent for long, or its timeout changed.
    troubled_ms: u64,
}

/// The health of each slot of a group.
#[derive(Clone, Debug)]
pub struct Detector {
    slots: Vec<Health>,
    score_max: u32,
    /// A time between two of our own looks that is as bad as a long silence.
    late_ms: u64,
    looked_ms: u64,
    /// When our last two late looks were.
    late: [Option<u64>; 2],
}

impl Detector {
    /// Nobody is suspected yet. `score_max` misses in a row make a healthy replica suspected; there is a
    /// look every `look_ms`, or more rarely when nothing is to be done.
    pub fn new(replicas: u8, score_max: u32, look_ms: u64) -> Self {
        let score = score_max * UNSEEN_PATIENCE;
        let timeout = score_max;
        let unseen = Health { score, timeout, over: 0, dead: false, since_ms: 0, troubled_ms: 0 };
        Self {
            slots: vec![unseen; usize::from(replicas)],
            score_max,
            late_ms: (u64::from(long_silence(score_max)) * look_ms).max(2),
            looked_ms: 0,
            late: [None; 2],
        }
    }

    /// Takes in a look. Returns whether the slot has become suspected by it.
    pub fn look(&mut self, slot: u8, pulse: Pulse, now_ms: u64) -> bool {
        self.note_look(now_ms);
        let base = self.score_max;
        let crowded = self.is_crowded(now_ms);
        let health = &mut self.slots[usize::from(slot)];
        let before = health.score;
        match pulse {
            Pulse::Beat => {
                if before == 0 {
                    health.troubled_ms = now_ms;
                }
                if before == 0 && !health.dead {
                    if health.over <= base || crowded {
                        health.timeout = (health.timeout * 2).min(base * TIMEOUT_FACTOR_MAX);
                    }
                    health.score = health.timeout;
                }
                health.dead = false;
                health.calm_down(base, now_ms);
                health.score = (health.score + BEAT).min(health.timeout);
            }
            Pulse::Missed => {
                health.score = before.saturating_sub(1);
                health.over = health.over.saturating_add(1);
            }
            Pulse::Dead => {
                health.dead = true;
                health.score = 0;
            }
        }
        let newly = before > 0 && health.score == 0;
        if newly {
            health.since_ms = now_ms;
            health.over = 0;
        }
        newly
    }

    /// Takes note of when we look: one tick's looks at all slots count as one.
    fn note_look(&mut self, now_ms: u64) {
        if self.looked_ms > 0 && now_ms >= self.looked_ms + self.late_ms {
            self.late = [self.late[1], Some(now_ms)];
        }
        self.looked_ms = self.looked_ms.max(now_ms);
    }

    /// Whether we were ourselves kept from looking, more than once and not long ago.
    fn is_crowded(&self, now_ms: u64) -> bool {
        self.late[0].is_some_and(|first| now_ms < first + CROWDED_MS)
    }

    /// Whether the slot does not seem to be alive.
    pub fn suspects(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].score == 0
    }

    /// Whether the slot's process is known to have ended.
    pub fn is_dead(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].dead
    }

    /// Since when it has been suspected.
    pub fn since_ms(&self, slot: u8) -> u64 {
        self.slots[usize::from(slot)].since_ms
    }

    /// How many misses in a row the slot may have before it is suspected.
    pub fn timeout(&self, slot: u8) -> u32 {
        self.slots[usize::from(slot)].timeout
    }

    /// For how long the slot has beaten without a long silence: nothing while it is suspected.
    pub fn well_for_ms(&self, slot: u8, now_ms: u64) -> u64 {
        let health = &self.slots[usize::from(slot)];
        if health.score == 0 { 0 } else { now_ms.saturating_sub(health.troubled_ms) }
    }
}

/// Misses in a row that are not calm.
const fn long_silence(base: u32) -> u32 {
    base * 3 / 4
}

impl Health {
    /// A beat: a long silence before it starts the calm time anew, and a whole calm time halves what
    /// mistakes have doubled.
    fn calm_down(&mut self, base: u32, now_ms: u64) {
        let silent = self.timeout.saturating_sub(self.score);
        if silent > long_silence(base) {
            self.troubled_ms = now_ms;
        }
        if self.timeout > base && now_ms >= self.troubled_ms + CALM_MS {
            self.troubled_ms = now_ms;
            self.timeout = (self.timeout / 2).max(base);
            self.score = self.score.min(self.timeout);
        }
    }
}

#[cfg(test)]
mod tests;
