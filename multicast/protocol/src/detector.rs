//! Who seems to be alive: a bounded score per replica slot, raised and lowered by pulled heartbeats.
//!
//! After Mu (OSDI '20, section 5.2): replicas *read* each other's counters, so that a late message
//! condemns nobody, and the score is bounded, so that a long good life is no reason to wait long.
//!
//! **Eventually perfect.** Nobody knows how long a host keeps a live process from running. So a
//! replica that was suspected by its silence, and turns out to live, is given twice the time from
//! then on, up to a bound, and gets no more of it back than a long calm time takes away: on a host
//! that is crowded, suspicions end after a few mistakes instead of following each other for ever.
//! A known death is never waited for. After Chandra and Toueg (JACM '96, section 6.1), whose
//! time-outs only rise. One look is one miss at most, however late it comes: who is kept from
//! looking blames nobody for the time.

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
/// The most that mistakes raise the misses that are borne: with 20 of 5 ms, from 0.1 s to 1.6 s.
const PATIENCE_MAX: u32 = 16;
/// So many looks without a long silence halve what mistakes have doubled: 5 s of 5 ms.
const CALM: u32 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Health {
    score: u32,
    /// Misses in a row that it may have: more after each mistake.
    patience: u32,
    /// Looks since it was last silent for long.
    calm: u32,
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
        let score = score_max * UNSEEN_PATIENCE;
        let unseen = Health { score, patience: score_max, calm: 0, dead: false, since_ms: 0 };
        Self { slots: vec![unseen; usize::from(replicas)], score_max }
    }

    /// Takes in a look. Returns whether the slot has become suspected by it.
    pub fn look(&mut self, slot: u8, pulse: Pulse, now_ms: u64) -> bool {
        let base = self.score_max;
        let health = &mut self.slots[usize::from(slot)];
        let before = health.score;
        match pulse {
            Pulse::Beat => {
                if before == 0 && !health.dead {
                    health.patience = (health.patience * 2).min(base * PATIENCE_MAX);
                    health.score = health.patience;
                    health.calm = 0;
                }
                health.dead = false;
                health.grow_calm(base);
                health.score = (health.score + BEAT).min(health.patience);
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

    /// How many misses in a row the slot may have before it is suspected.
    pub fn patience(&self, slot: u8) -> u32 {
        self.slots[usize::from(slot)].patience
    }
}

impl Health {
    /// Whoever beats for long enough without a silence of three quarters of the time that is borne at
    /// least is as good as new, step by step.
    fn grow_calm(&mut self, base: u32) {
        let silent = self.patience.saturating_sub(self.score);
        self.calm = if silent > base * 3 / 4 { 0 } else { self.calm + 1 };
        if self.calm >= CALM {
            self.calm = 0;
            self.patience = (self.patience / 2).max(base);
            self.score = self.score.min(self.patience);
        }
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

    /// So many misses in a row are borne.
    fn borne(detector: &mut Detector) -> u32 {
        (1..=1_000).find(|_| detector.look(1, Pulse::Missed, 1)).expect("patience is bounded")
    }

    #[test]
    fn whoever_was_suspected_and_lives_is_given_twice_the_time_up_to_a_bound() {
        let mut detector = Detector::new(3, 4);
        detector.look(1, Pulse::Beat, 0);
        for expected in [4, 8, 16, 32, 64, 64, 64] {
            assert_eq!((detector.patience(1), borne(&mut detector)), (expected, expected));
            detector.look(1, Pulse::Beat, 2);
            assert!(!detector.suspects(1), "one beat shows that it lives");
        }
        assert_eq!(detector.patience(0), 4, "each for its own mistakes");
    }

    #[test]
    fn whoever_sleeps_through_ten_looks_and_gets_up_late_is_not_suspected_and_calm() {
        let mut detector = Detector::new(3, 20);
        detector.look(1, Pulse::Beat, 0);
        borne(&mut detector);
        detector.look(1, Pulse::Beat, 0);
        assert_eq!(detector.patience(1), 40);
        for _ in 0..2 * CALM {
            assert!((0..15).all(|_| !detector.look(1, Pulse::Missed, 1)));
            detector.look(1, Pulse::Beat, 1);
        }
        assert_eq!(detector.patience(1), 20, "what was given for a mistake is taken back");
        for _ in 0..20 {
            (0..16).for_each(|_| _ = detector.look(1, Pulse::Missed, 1));
            detector.look(1, Pulse::Beat, 1);
        }
        assert!(detector.patience(1) > 20, "who misses more than it makes up for is suspected");
    }

    #[test]
    fn a_death_is_no_mistake_and_is_not_waited_for() {
        let mut detector = Detector::new(3, 4);
        for _ in 0..3 {
            detector.look(1, Pulse::Beat, 0);
            assert!(detector.look(1, Pulse::Dead, 1) && detector.suspects(1));
        }
        detector.look(1, Pulse::Beat, 2);
        assert_eq!(detector.patience(1), 4, "who comes back is somebody else");
        borne(&mut detector);
        detector.look(1, Pulse::Beat, 3);
        assert_eq!(detector.patience(1), 8);
        assert!(detector.look(1, Pulse::Dead, 4), "however much time it was given");
    }

    #[test]
    fn what_mistakes_gave_a_calm_time_takes_away_step_by_step() {
        let mut detector = Detector::new(3, 4);
        detector.look(1, Pulse::Beat, 0);
        for _ in 0..2 {
            borne(&mut detector);
            detector.look(1, Pulse::Beat, 0);
        }
        for expected in [16, 8, 4, 4] {
            assert_eq!(detector.patience(1), expected);
            (0..CALM).for_each(|_| _ = detector.look(1, Pulse::Beat, 0));
        }
        borne(&mut detector);
        for _ in 0..10 * CALM {
            detector.look(1, Pulse::Beat, 0);
            (0..5).for_each(|_| _ = detector.look(1, Pulse::Missed, 0));
        }
        assert_eq!(detector.patience(1), 8, "silences that would be mistakes again are not calm");
    }
}
