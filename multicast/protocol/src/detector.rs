//! Failure detector: a bounded score for each replica slot, raised and lowered by heartbeats that the observer reads.
//!
//! It follows Mu (OSDI '20, section 5.2). Replicas *read* each other's counters, so a delayed message makes nobody
//! suspected. The score is bounded, so a long healthy period does not delay suspicion. A *look* is one read of a
//! replica's counter.
//!
//! **Timeout** is the number of consecutive looks that a replica may miss before it is suspected. On a crowded host the
//! scheduler may pause live processes for longer than that, and each change of leaders costs processor time that causes
//! the next one. So a mistaken suspicion doubles the timeout of that replica, up to a bound (after Chandra and Toueg,
//! JACM '96, section 6.1). A replica that was really paused was rightly suspected, and the timeout stays as it is, so
//! that its next pause is noticed as early. A suspicion is a mistake in two cases:
//!
//! - it was *premature*: the silence ended within one base timeout after it;
//! - the observer itself was twice prevented from looking within a short time: the host is crowded, and a silence says
//!   little about a single process.
//!
//! A calm period halves the timeout again, down to its base. A replica whose process is known to have ended is
//! suspected at once. One look counts as at most one miss, however late it comes: a delay of the observer itself is not
//! counted against others.

use alloc::vec;
use alloc::vec::Vec;

/// Result of one look at a replica's heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulse {
    /// The counter has changed since the last look.
    Beat,
    /// The counter is unchanged, or could not be read.
    Missed,
    Dead,
}

/// Number of misses for which one beat compensates. An idle replica may sleep for ten looks of a busy one, and wake up
/// late.
const BEAT: u32 = 15;
/// Factor on the first timeout of a replica that was never seen: the cluster is starting.
const UNSEEN_FACTOR: u32 = 10;
/// Bound on the factor by which mistakes raise the timeout: with 20 looks of 5 ms, from 0.1 s to 1.6 s.
const TIMEOUT_FACTOR_MAX: u32 = 16;
/// Time without a long silence that halves a raised timeout.
const CALM_MS: u64 = 1_000;
/// If two looks of the observer are late within this time, the host counts as crowded for as long.
const CROWDED_MS: u64 = 2_000;

#[derive(Clone, Copy, Debug)]
struct Health {
    score: u32,
    /// Consecutive misses until suspicion: `base <= timeout <= base * TIMEOUT_FACTOR_MAX`.
    timeout: u32,
    /// Misses since the last suspicion.
    over: u32,
    dead: bool,
    /// Time at which the score last fell to zero.
    since_ms: u64,
    /// How long the observer has been prevented from looking since then.
    unseen_ms: u64,
    /// Time of the last long silence, or of the last change of the timeout.
    troubled_ms: u64,
}

/// The health of each slot of a group.
#[derive(Clone, Debug)]
pub struct Detector {
    slots: Vec<Health>,
    score_max: u32,
    /// Time between two looks of the observer from which the second counts as late.
    late_ms: u64,
    looked_ms: u64,
    /// Times of the observer's last two late looks.
    late: [Option<u64>; 2],
}

impl Detector {
    /// No slot is suspected. A healthy replica is suspected after `score_max` consecutive misses. The observer looks
    /// every `look_ms`, or less often while it is idle.
    pub fn new(replicas: u8, score_max: u32, look_ms: u64) -> Self {
        let score = score_max * UNSEEN_FACTOR;
        let timeout = score_max;
        let unseen = Health {
            score,
            timeout,
            over: 0,
            dead: false,
            since_ms: 0,
            unseen_ms: 0,
            troubled_ms: 0,
        };
        Self {
            slots: vec![unseen; usize::from(replicas)],
            score_max,
            late_ms: (u64::from(long_silence(score_max)) * look_ms).max(2),
            looked_ms: 0,
            late: [None; 2],
        }
    }

    /// Records a look. Returns whether it has made the slot suspected.
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
            (health.since_ms, health.unseen_ms) = (now_ms, 0);
            health.over = 0;
        }
        newly
    }

    /// Records the time of a look. All looks of one tick count as one.
    fn note_look(&mut self, now_ms: u64) {
        if self.looked_ms > 0 && now_ms >= self.looked_ms + self.late_ms {
            self.late = [self.late[1], Some(now_ms)];
        }
        self.looked_ms = self.looked_ms.max(now_ms);
    }

    /// Whether the observer was recently prevented from looking more than once.
    fn is_crowded(&self, now_ms: u64) -> bool {
        self.late[0].is_some_and(|first| now_ms < first + CROWDED_MS)
    }

    /// Whether the slot is suspected.
    pub fn suspects(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].score == 0
    }

    /// Whether the slot's process is known to have ended.
    pub fn is_dead(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].dead
    }

    /// Time at which the slot was last suspected.
    pub fn since_ms(&self, slot: u8) -> u64 {
        self.slots[usize::from(slot)].since_ms
    }

    /// How long the slot has been suspected, without the time in which the observer [stood still](Self::stood_still).
    pub fn suspected_for_ms(&self, slot: u8, now_ms: u64) -> u64 {
        let Health { since_ms, unseen_ms, .. } = self.slots[usize::from(slot)];
        now_ms.saturating_sub(since_ms + unseen_ms)
    }

    /// The observer was prevented from looking for `ms`. In that time it has not read what others sent it either.
    pub fn stood_still(&mut self, ms: u64) {
        for health in &mut self.slots {
            health.unseen_ms += ms;
        }
    }

    /// Consecutive misses after which the slot is suspected.
    pub fn timeout(&self, slot: u8) -> u32 {
        self.slots[usize::from(slot)].timeout
    }

    /// Time for which the slot has had no long silence; 0 while it is suspected.
    pub fn well_for_ms(&self, slot: u8, now_ms: u64) -> u64 {
        let health = &self.slots[usize::from(slot)];
        if health.score == 0 { 0 } else { now_ms.saturating_sub(health.troubled_ms) }
    }
}

/// Misses that make a silence long.
const fn long_silence(base: u32) -> u32 {
    base * 3 / 4
}

impl Health {
    /// Handles a beat. If a long silence preceded it, the calm period begins anew. A whole calm period halves a raised
    /// timeout.
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
