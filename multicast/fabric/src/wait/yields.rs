//! When to yield: as long as yields return in time.
//!
//! A yield to a thread that waits as we do returns within microseconds; one to a thread that works for us, when its
//! turn is over. A yield to a thread that computes returns with the scheduler's tick: since Linux 6.12 a yield forfeits
//! the rest of the slice, so the other thread keeps the core for milliseconds, each time. A thread that sleeps instead
//! forfeits nothing, and preempts the other when it is woken.
//!
//! **Invariant.** `PAUSE_MIN <= pause <= PAUSE_MAX`, so late yields cost a bounded share of the time: after the `n`th
//! in a row none is tried for `PAUSE_MIN << n`, and it is noticed within `PAUSE_MAX` that a neighbour has gone.

use std::time::Duration;

/// A longer yield went to a thread that computes: a slice is some milliseconds. Our own processes, which yield as well,
/// keep each other from a core for up to one millisecond, some fifty times a second.
pub(super) const LATE: Duration = Duration::from_micros(1500);

/// Pause after a late yield: first and shortest, longest.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(1);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pause after a peer has reported that its yields are late.
pub(super) const HEARD: Duration = Duration::from_millis(2);

/// Measurements of one thread's yields. Times are of any clock that only rises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yields {
    /// No yield is tried before this time.
    resume: Duration,
    /// The pause that follows the next late yield.
    pause: Duration,
    /// All yields since this time have returned in time.
    in_time_since: Duration,
    /// Whether the last yield was late.
    late: bool,
    /// Until this time, the core of a cooperating peer counts as contended.
    heard: Duration,
}

impl Default for Yields {
    /// No yield was late so far.
    fn default() -> Self {
        Self {
            resume: Duration::ZERO,
            pause: PAUSE_MIN,
            in_time_since: Duration::ZERO,
            late: false,
            heard: Duration::ZERO,
        }
    }
}

impl Yields {
    /// Whether a yield may be tried.
    pub fn may(&self, now: Duration) -> bool {
        // A thread whose own yields were late finds out by itself whether they still are: if two threads waited for
        // each other's yields to be timely, neither would ever try one.
        now >= self.resume && (self.late || now >= self.heard)
    }

    /// Whether yields are late repeatedly.
    pub fn are_late(&self) -> bool {
        self.late && self.pause > 2 * PAUSE_MIN
    }

    /// The yields of a cooperating peer are late: if this thread went on yielding, it would take what is left of the
    /// core.
    pub fn heard(&mut self, now: Duration) {
        self.heard = now.saturating_add(HEARD);
    }

    /// Records a yield. A late one doubles the pause after the next late one; yields that are in time for as long as a
    /// pause halve it.
    pub fn returned(&mut self, began: Duration, ended: Duration) {
        self.late = ended.saturating_sub(began) > LATE;
        if self.late {
            self.resume = ended.saturating_add(self.pause);
            self.in_time_since = self.resume;
            self.pause = (self.pause * 2).min(PAUSE_MAX);
        } else if ended.saturating_sub(self.in_time_since) >= self.pause {
            self.pause = (self.pause / 2).max(PAUSE_MIN);
            self.in_time_since = ended;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_millis(4);

    /// Makes every yield that is tried from `now` on return late, until `n` have. Returns the pauses.
    fn late(yields: &mut Yields, now: &mut Duration, n: usize) -> Vec<Duration> {
        let pause = |_| {
            assert!(yields.may(*now));
            yields.returned(*now, *now + LATER);
            *now += LATER;
            assert!(!yields.may(*now), "a late yield is followed by a pause");
            let pause = yields.resume.saturating_sub(*now);
            assert!(!yields.may(yields.resume.saturating_sub(Duration::from_nanos(1))));
            *now = yields.resume;
            pause
        };
        (0..n).map(pause).collect()
    }

    #[test]
    fn yields_that_return_in_time_go_on() {
        let mut yields = Yields::default();
        let mut now = Duration::from_secs(5);
        for _ in 0..1000 {
            assert!(yields.may(now));
            yields.returned(now, now + LATE);
            now += LATE;
        }
        assert_eq!(yields.pause, PAUSE_MIN);
    }

    #[test]
    fn a_pause_is_twice_the_one_before_up_to_the_longest() {
        let (mut yields, mut now) = (Yields::default(), Duration::from_secs(5));
        let pauses = late(&mut yields, &mut now, 14);
        assert_eq!(pauses[0], PAUSE_MIN);
        for pair in pauses.windows(2) {
            assert_eq!(pair[1], (pair[0] * 2).min(PAUSE_MAX));
        }
        assert_eq!(pauses.last(), Some(&PAUSE_MAX));
    }

    #[test]
    fn one_yield_in_time_does_not_forgive_those_that_were_late() {
        let (mut yields, mut now) = (Yields::default(), Duration::from_secs(5));
        let before = *late(&mut yields, &mut now, 6).last().expect("six pauses");
        yields.returned(now, now + Duration::from_micros(1));
        assert_eq!(late(&mut yields, &mut now, 1), [before * 2]);
    }

    #[test]
    fn yields_in_time_for_as_long_as_a_pause_halve_it_down_to_the_shortest() {
        let (mut yields, mut now) = (Yields::default(), Duration::from_secs(5));
        late(&mut yields, &mut now, 6);
        let mut pause = yields.pause;
        while pause > PAUSE_MIN {
            let since = now;
            while yields.pause == pause {
                assert!(yields.may(now));
                yields.returned(now, now + Duration::from_micros(100));
                now += Duration::from_micros(100);
            }
            assert!(now.saturating_sub(since) >= pause);
            assert_eq!(yields.pause, pause / 2);
            pause = yields.pause;
        }
        yields.returned(now, now + PAUSE_MIN.min(LATE));
        assert_eq!(yields.pause, PAUSE_MIN);
        assert_eq!(late(&mut yields, &mut now, 1), [PAUSE_MIN]);
    }

    #[test]
    fn who_hears_of_late_yields_does_without_for_a_while() {
        let (mut yields, now) = (Yields::default(), Duration::from_secs(5));
        yields.heard(now);
        let just_before = now + HEARD.saturating_sub(Duration::from_nanos(1));
        assert!(!yields.may(now) && !yields.may(just_before));
        assert!(yields.may(now + HEARD) && !yields.are_late());
    }

    /// Two threads that receive each other's reports both try yields again; otherwise they would never learn that
    /// yields are timely again.
    #[test]
    fn who_was_late_itself_tries_again_whatever_it_hears() {
        let (mut yields, mut now) = (Yields::default(), Duration::from_secs(5));
        late(&mut yields, &mut now, 4);
        yields.heard(now);
        assert!(yields.may(now) && yields.are_late());
        yields.returned(now, now + Duration::from_micros(1));
        assert!(!yields.are_late() && !yields.may(now + Duration::from_micros(1)));
    }

    #[test]
    fn one_late_yield_is_no_reason_to_tell_others() {
        let (mut yields, mut now) = (Yields::default(), Duration::from_secs(5));
        let told = (0..3).map(|_| {
            late(&mut yields, &mut now, 1);
            yields.are_late()
        });
        assert_eq!(told.collect::<Vec<_>>(), [false, true, true]);
    }

    /// A thread that tries all the time beside a computing thread loses little by it.
    #[test]
    fn late_yields_take_a_small_share_of_the_time() {
        let mut yields = Yields::default();
        let (began, mut now, mut lost) =
            (Duration::from_secs(5), Duration::from_secs(5), Duration::ZERO);
        while now.saturating_sub(began) < Duration::from_mins(1) {
            if yields.may(now) {
                yields.returned(now, now + LATER);
                lost += LATER;
                now += LATER;
            } else {
                now += Duration::from_micros(50);
            }
        }
        assert!(lost * 100 < now.saturating_sub(began), "{lost:?}");
    }
}
