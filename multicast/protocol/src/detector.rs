//! Who seems to be alive: a bounded score per replica slot, raised and lowered by pulled heartbeats.
//!
//! After Mu (OSDI '20, section 5.2): replicas *read* each other's counters, so that a late message
//! condemns nobody, and the score is bounded, so that a long good life is no reason to wait long.

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

/// A beat makes up for so many misses: one who has nothing to do may sleep through a few of the
/// looks of one who has.
const BEAT: u32 = 5;
/// How much longer replicas that were never seen are waited for: a cluster is starting.
const UNSEEN_PATIENCE: u32 = 10;

#[derive(Clone, Copy, Debug)]
struct Health {
    score: u32,
    dead: bool,
    /// When the score fell to nothing.
    since_ms: u64,
}

/// The health of each slot of a group.
#[derive(Clone, Debug)]
pub struct Detector {
    slots: Vec<Health>,
    score_max: u32,
}

impl Detector {
    /// Nobody is suspected yet. `score_max` misses in a row make a healthy replica suspected.
    pub fn new(replicas: u8, score_max: u32) -> Self {
        let unseen = Health { score: score_max * UNSEEN_PATIENCE, dead: false, since_ms: 0 };
        Self { slots: vec![unseen; usize::from(replicas)], score_max }
    }

    /// Takes in a look. Returns whether the slot has become suspected by it.
    pub fn look(&mut self, slot: u8, pulse: Pulse, now_ms: u64) -> bool {
        let health = &mut self.slots[usize::from(slot)];
        let before = health.score;
        match pulse {
            Pulse::Beat => {
                health.dead = false;
                health.score = (before + BEAT).min(self.score_max);
            }
            Pulse::Missed => health.score = before.saturating_sub(1),
            Pulse::Dead => {
                health.dead = true;
                health.score = 0;
            }
        }
        let newly = before > 0 && health.score == 0;
        if newly {
            health.since_ms = now_ms;
        }
        newly
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_late_heartbeat_condemns_nobody_and_a_long_life_saves_nobody() {
        let mut detector = Detector::new(3, 4);
        for _ in 0..100 {
            assert!(!detector.look(1, Pulse::Beat, 0));
        }
        assert!((0..3).all(|_| !detector.look(1, Pulse::Missed, 1)));
        detector.look(1, Pulse::Beat, 2);
        assert!((0..3).all(|_| !detector.look(1, Pulse::Missed, 3)));
        assert!(detector.look(1, Pulse::Missed, 4) && detector.suspects(1));
        assert!(!detector.look(1, Pulse::Missed, 5), "it is suspected once");
        assert_eq!(detector.since_ms(1), 4);
        detector.look(1, Pulse::Beat, 6);
        assert!(!detector.suspects(1));
    }

    #[test]
    fn a_known_death_counts_at_once_and_a_start_is_given_time() {
        let mut detector = Detector::new(3, 4);
        assert!((0..39).all(|_| !detector.look(0, Pulse::Missed, 1)));
        assert!(detector.look(0, Pulse::Missed, 2));
        assert!(detector.look(2, Pulse::Dead, 3) && detector.is_dead(2) && detector.suspects(2));
    }
}
