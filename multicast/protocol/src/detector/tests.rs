use super::*;

/// Time between two looks in ms, and the base timeout in looks: a replica is suspected after 100 ms.
const LOOK_MS: u64 = 5;
const BASE: u32 = 20;

/// An observer of slot 1 that looks every 5 ms.
struct Observer {
    detector: Detector,
    now_ms: u64,
    suspicions: u32,
}

impl Observer {
    fn new() -> Self {
        let mut this =
            Self { detector: Detector::new(3, BASE, LOOK_MS), now_ms: 1_000, suspicions: 0 };
        this.look(Pulse::Beat);
        this
    }

    fn look(&mut self, pulse: Pulse) -> bool {
        self.look_after(LOOK_MS, pulse)
    }

    fn look_after(&mut self, ms: u64, pulse: Pulse) -> bool {
        self.now_ms += ms;
        let newly = self.detector.look(1, pulse, self.now_ms);
        self.suspicions += u32::from(newly);
        newly
    }

    /// The replica is silent for `ms` and then beats again. Returns the time until it was suspected, if it was.
    fn pause(&mut self, ms: u64) -> Option<u64> {
        let began = self.now_ms;
        let mut suspected = None;
        for _ in 0..ms / LOOK_MS {
            if self.look(Pulse::Missed) {
                suspected = Some(self.now_ms - began);
            }
        }
        self.look(Pulse::Beat);
        assert!(!self.detector.suspects(1), "one beat shows that it lives");
        suspected
    }

    fn quiet(&mut self, ms: u64) {
        for _ in 0..ms / LOOK_MS {
            self.look(Pulse::Beat);
        }
    }

    fn timeout_ms(&self) -> u64 {
        u64::from(self.detector.timeout(1)) * LOOK_MS
    }
}

#[test]
fn one_late_heartbeat_condemns_nobody_and_a_long_life_saves_nobody() {
    let mut detector = Detector::new(3, 4, LOOK_MS);
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
    let mut detector = Detector::new(3, 4, LOOK_MS);
    assert!((0..39).all(|_| !detector.look(0, Pulse::Missed, 1)));
    assert!(detector.look(0, Pulse::Missed, 2));
    assert!(detector.look(2, Pulse::Dead, 3) && detector.is_dead(2) && detector.suspects(2));
}

#[test]
fn each_premature_suspicion_doubles_the_timeout_up_to_a_bound() {
    let mut observer = Observer::new();
    for expected in [100, 200, 400, 800, 1_600, 1_600, 1_600] {
        assert_eq!(observer.timeout_ms(), expected);
        assert_eq!(observer.pause(expected + 50), Some(expected));
    }
    assert_eq!(observer.detector.timeout(0), BASE, "each slot for its own mistakes");
}

#[test]
fn silences_that_end_late_after_the_suspicion_leave_the_timeout_as_it_is() {
    for pauses in [&[450, 700, 500, 620, 550, 480, 660][..], &[2_000, 10_000, 3_500, 9_800]] {
        let mut observer = Observer::new();
        for (n, ms) in pauses.iter().enumerate() {
            assert_eq!(observer.pause(*ms), Some(100), "pause {n} of {ms} ms");
            observer.quiet(300);
        }
        assert_eq!(observer.timeout_ms(), 100);
    }
}

#[test]
fn whatever_pauses_came_before_four_quiet_seconds_restore_the_base() {
    let mut observer = Observer::new();
    for ms in [120, 230, 430, 850, 1_650] {
        observer.pause(ms);
    }
    assert_eq!(observer.timeout_ms(), 1_600);
    for expected in [800, 400, 200, 100] {
        observer.quiet(CALM_MS + 2 * LOOK_MS);
        assert_eq!(observer.timeout_ms(), expected);
    }
}

#[test]
fn pauses_of_mixed_length_with_short_gaps_keep_the_timeout_low() {
    let mut observer = Observer::new();
    let mut worst = 0;
    for round in 0..50 {
        for ms in [450, 150, 2_000, 700, 300, 9_800, 520] {
            worst = worst.max(observer.pause(ms + round).unwrap_or(0));
            observer.quiet(1_500);
        }
    }
    assert!(worst <= 200, "a silence was noticed after {worst} ms");
}

#[test]
fn silences_that_would_be_mistakes_again_are_not_calm() {
    let mut observer = Observer::new();
    observer.pause(120);
    for _ in 0..100 {
        observer.quiet(100);
        assert_eq!(observer.pause(130), None);
    }
    assert_eq!(observer.timeout_ms(), 200);
}

#[test]
fn on_a_crowded_host_suspicions_end_after_a_few_mistakes() {
    let mut observer = Observer::new();
    for _ in 0..200 {
        // The observer runs every 80 ms, the replica far more rarely.
        for _ in 0..90 {
            observer.look_after(80, Pulse::Missed);
        }
        for _ in 0..10 {
            observer.look_after(80, Pulse::Beat);
        }
    }
    assert_eq!(observer.detector.timeout(1), 8 * BASE);
    assert_eq!(observer.suspicions, 3, "after 20, 40 and 80 misses of 90");
}

#[test]
fn a_suspicion_was_premature_up_to_one_base_timeout_after_it() {
    for (silence, timeout) in [(200, 200), (205, 100)] {
        let mut observer = Observer::new();
        observer.pause(silence);
        assert_eq!(observer.timeout_ms(), timeout, "after {silence} ms");
    }
}

#[test]
fn two_late_looks_crowd_a_host_for_two_seconds_from_the_first() {
    // A look is late from 75 ms on, the time of 15 looks.
    #[rustfmt::skip]
    let cases = [
        // late looks, ms     quiet  timeout  because
        (&[75, 75][..],       0,     200,      "both are late"),
        (&[75, 70],           0,     100,      "one is late, and one is not"),
        (&[75],               0,     100,      "the first look of all is not late"),
        (&[75, 75],           1_600, 200,      "the silence ends within 2 s of the first"),
        (&[75, 75],           1_700, 100,      "it ends later"),
    ];
    for (looks, quiet, timeout, because) in cases {
        let mut observer = Observer::new();
        for ms in looks {
            observer.look_after(*ms, Pulse::Beat);
        }
        observer.quiet(quiet);
        assert_eq!(observer.pause(300), Some(100), "{because}");
        assert_eq!(observer.timeout_ms(), timeout, "{because}");
    }
}

#[test]
fn an_observer_that_stood_still_once_is_not_on_a_crowded_host() {
    let mut observer = Observer::new();
    observer.look_after(5_000, Pulse::Beat);
    assert_eq!(observer.pause(500), Some(100));
    assert_eq!(observer.timeout_ms(), 100);
}

#[test]
fn replicas_that_sleep_through_ten_looks_are_neither_suspected_nor_troubled() {
    let mut observer = Observer::new();
    observer.pause(120);
    assert_eq!(observer.timeout_ms(), 200);
    for _ in 0..20 {
        assert!((0..15).all(|_| !observer.look(Pulse::Missed)));
        observer.look(Pulse::Beat);
    }
    assert_eq!(observer.timeout_ms(), 100, "what was given for a mistake is taken back");
    for _ in 0..20 {
        (0..16).for_each(|_| _ = observer.look(Pulse::Missed));
        observer.look(Pulse::Beat);
    }
    assert!(observer.timeout_ms() > 100, "it misses more than its beats make up for");
}

#[test]
fn a_death_is_no_mistake_and_is_not_waited_for() {
    let mut observer = Observer::new();
    for _ in 0..3 {
        observer.look(Pulse::Beat);
        assert!(observer.look(Pulse::Dead) && observer.detector.suspects(1));
    }
    observer.look(Pulse::Beat);
    assert_eq!(observer.timeout_ms(), 100, "who comes back is somebody else");
    observer.pause(120);
    assert_eq!(observer.timeout_ms(), 200);
    assert!(observer.look(Pulse::Dead), "however much time it was given");
}

#[test]
fn a_replica_is_well_since_its_last_long_silence() {
    let mut observer = Observer::new();
    observer.quiet(500);
    let well = |observer: &Observer| observer.detector.well_for_ms(1, observer.now_ms);
    assert!(well(&observer) >= 500);
    observer.pause(90);
    assert_eq!(well(&observer), 0, "a long silence, though nobody was suspected");
    observer.quiet(200);
    assert_eq!(well(&observer), 200);
    (0..BASE).for_each(|_| _ = observer.look(Pulse::Missed));
    assert_eq!(well(&observer), 0, "suspected");
}

#[test]
fn a_suspicion_lasts_for_as_long_as_the_observer_has_looked() {
    let mut this = Observer::new();
    this.detector.stood_still(500);
    this.look(Pulse::Dead);
    assert_eq!(this.detector.suspected_for_ms(1, this.now_ms + 30), 30, "that was before");
    this.detector.stood_still(20);
    assert_eq!(this.detector.suspected_for_ms(1, this.now_ms + 10), 0);
    assert_eq!(this.detector.suspected_for_ms(1, this.now_ms + 30), 10);
    this.look(Pulse::Beat);
    this.look(Pulse::Dead);
    assert_eq!(this.detector.suspected_for_ms(1, this.now_ms + 30), 30, "it is another one");
}
