//! How to wait for the writes of others: spin, yield, park.
//!
//! Parking across cores costs more than any step of a protocol (some 30 µs), spinning costs a core, and with more
//! spinning processes than cores all wait for a process that is not running. So the waiter polls a few times in
//! a row only while it seems to have the core to itself, which it measures by the duration of a yield; otherwise it
//! yields after every poll; and it parks when it has been idle for longer than work usually stays away.
//!
//! That time is learned. Work that arrives soon after a park shows that the waiter gave up too early; work that arrives
//! long after shows that the spinning before was useless. So a waiter that only heartbeats wake soon spends next to
//! nothing on them.
//!
//! All that holds while yields return in time. Beside a thread that computes they do not: then the waiter parks as soon
//! as a poll finds nothing, and tries a yield again after a [pause](Yields). A parked thread should run soon after it
//! is woken: the waiter's thread asks for [short slices](ask_for_short_slices).

mod slice;
mod yields;

use std::fmt;
use std::hint;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

pub use self::slice::ask_for_short_slices;
pub use self::yields::Yields;
use crate::Fabric;

/// How a poll loop waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Spin, then yield, then park. Park without yielding while others want the core.
    #[default]
    Adaptive,
    /// Never park; for a dedicated core. It still yields when the core turns out to be shared, because otherwise it
    /// would delay the threads for which it waits.
    Busy,
    /// Park almost at once, and never yield; for machines that are also used otherwise.
    Park,
}

impl FromStr for Waiting {
    type Err = UnknownWaiting;

    fn from_str(text: &str) -> Result<Self, UnknownWaiting> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "busy" => Ok(Self::Busy),
            "park" => Ok(Self::Park),
            _ => Err(UnknownWaiting(text.to_owned())),
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Adaptive => "adaptive",
            Self::Busy => "busy",
            Self::Park => "park",
        })
    }
}

/// A text that names no [`Waiting`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown waiting mode {0:?}: use adaptive, busy or park")]
pub struct UnknownWaiting(String);

/// A longer yield has let another thread run.
const YIELD_ALONE_MAX: Duration = Duration::from_micros(2);
/// Polls between two yields on a core that no other thread wants.
const SPINS_MAX: u32 = 32;

/// Idle time before parking: initial, least, most.
const POLL_FOR_FIRST: Duration = Duration::from_micros(200);
const POLL_FOR_MIN: Duration = Duration::from_micros(10);
const POLL_FOR_MAX: Duration = Duration::from_millis(1);

/// The waiting state of one poll loop.
#[derive(Clone, Debug)]
pub struct Waiter {
    waiting: Waiting,
    /// Polls in a row before the next yield. Falls to one under pressure.
    spins: u32,
    spun: u32,
    /// Start of the present idle time, as of the last look at the clock.
    idle_since: Option<Duration>,
    /// Whether the waiter has parked in the present idle time because `poll_for` was over.
    parked: bool,
    poll_for: Duration,
    yields: Yields,
}

impl Waiter {
    /// A waiter without any measurement of the load.
    pub fn new(waiting: Waiting) -> Self {
        Self::with_yields(waiting, Yields::default())
    }

    /// A waiter that starts with these measurements of its yields.
    pub fn with_yields(waiting: Waiting, yields: Yields) -> Self {
        Self {
            waiting,
            spins: 1,
            spun: 0,
            idle_since: None,
            parked: false,
            poll_for: POLL_FOR_FIRST,
            yields,
        }
    }

    /// How it waits.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// To be called after a poll that found work from outside. Work that the loop does by itself at certain times does
    /// not count.
    pub fn worked<F: Fabric>(&mut self, fabric: &F) {
        self.worked_at(|| fabric.now());
    }

    fn worked_at(&mut self, now: impl FnOnce() -> Duration) {
        self.spun = 0;
        let Some(since) = self.idle_since.take() else { return };
        if !self.parked {
            return;
        }
        self.parked = false;
        self.poll_for = if now().saturating_sub(since) <= POLL_FOR_MAX {
            (self.poll_for * 2).min(POLL_FOR_MAX)
        } else {
            (self.poll_for / 2).max(POLL_FOR_MIN)
        };
    }

    /// To be called after a poll that found nothing. Returns after a moment or, if it parked, when woken or after
    /// `longest`. `idle` is that of [`Fabric::park`].
    pub fn idle<F: Fabric>(
        &mut self,
        fabric: &mut F,
        longest: Duration,
        idle: &mut dyn FnMut(&F) -> bool,
    ) {
        self.spun += 1;
        if self.spun < self.spins {
            hint::spin_loop();
            return;
        }
        self.spun = 0;
        let now = fabric.now();
        if fabric.take_contended() {
            self.yields.heard(now);
        }
        match self.next(now) {
            Next::Poll => {}
            Next::Park => fabric.park(longest, idle),
            Next::Yield => {
                thread::yield_now();
                if self.yielded(now, fabric.now()) {
                    fabric.set_contended(self.yields.are_late());
                }
            }
        }
    }

    /// Chooses the next step after polls that found nothing.
    fn next(&mut self, now: Duration) -> Next {
        let since = *self.idle_since.get_or_insert(now);
        let idle = now.saturating_sub(since);
        match self.waiting {
            Waiting::Busy => Next::Yield,
            Waiting::Adaptive if !self.yields.may(now) => {
                self.spins = 1;
                Next::Park
            }
            Waiting::Adaptive if idle < self.poll_for => Next::Yield,
            Waiting::Park if idle < POLL_FOR_MIN => {
                self.spins = (self.spins * 2).min(SPINS_MAX);
                Next::Poll
            }
            Waiting::Adaptive | Waiting::Park => {
                self.parked = true;
                Next::Park
            }
        }
    }

    /// Records a yield. Returns whether yields have just become late, or timely.
    fn yielded(&mut self, began: Duration, ended: Duration) -> bool {
        let alone = ended.saturating_sub(began) <= YIELD_ALONE_MAX;
        self.spins = if alone { (self.spins * 2).min(SPINS_MAX) } else { 1 };
        let before = self.yields.are_late();
        self.yields.returned(began, ended);
        self.yields.are_late() != before
    }
}

/// A waiter's next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Poll,
    Yield,
    Park,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_of_waiting_have_names() {
        for waiting in [Waiting::Adaptive, Waiting::Busy, Waiting::Park] {
            assert_eq!(waiting.to_string().parse(), Ok(waiting));
        }
        assert!("sleepy".parse::<Waiting>().is_err());
    }

    const NOW: Duration = Duration::from_secs(5);
    const TICK: Duration = Duration::from_millis(4);

    /// Polls without result at `now`, at most a hundred times, until the waiter's next step is another.
    fn after_polls(waiter: &mut Waiter, now: Duration) -> Next {
        let polls = (0..100).map(|_| waiter.next(now));
        polls.into_iter().find(|next| *next != Next::Poll).unwrap_or(Next::Poll)
    }

    #[test]
    fn a_waiter_that_yields_in_time_goes_on_yielding_and_parks_at_its_limit() {
        let mut waiter = Waiter::new(Waiting::Adaptive);
        for micros in 0..POLL_FOR_FIRST.as_micros() as u64 {
            let now = NOW + Duration::from_micros(micros);
            assert_eq!(waiter.next(now), Next::Yield, "after {micros} µs");
            waiter.yielded(now, now + Duration::from_nanos(500));
        }
        assert_eq!(waiter.next(NOW + POLL_FOR_FIRST), Next::Park);
        assert!(waiter.parked);
    }

    #[test]
    fn after_a_late_yield_one_parks_at_once_until_the_pause_is_over() {
        let mut waiter = Waiter::new(Waiting::Adaptive);
        waiter.spins = SPINS_MAX;
        assert_eq!(waiter.next(NOW), Next::Yield);
        waiter.yielded(NOW, NOW + TICK);
        let (late, mut now) = (NOW + TICK, NOW + TICK);
        while !waiter.yields.may(now) {
            assert_eq!(
                waiter.next(now),
                Next::Park,
                "{:?} after a late yield",
                now.saturating_sub(late)
            );
            assert_eq!(waiter.spins, 1, "each poll that finds nothing is followed by a nap");
            waiter.worked_at(|| unreachable!("poll_for was not at its end"));
            now += Duration::from_micros(100);
        }
        assert_eq!(
            waiter.next(now),
            Next::Yield,
            "{:?} after a late yield",
            now.saturating_sub(late)
        );
        assert_eq!(waiter.poll_for, POLL_FOR_FIRST);
    }

    #[test]
    fn who_parks_never_yields() {
        let mut waiter = Waiter::new(Waiting::Park);
        assert_eq!(after_polls(&mut waiter, NOW), Next::Poll);
        assert_eq!(after_polls(&mut waiter, NOW + POLL_FOR_MIN / 2), Next::Poll);
        assert_eq!(after_polls(&mut waiter, NOW + POLL_FOR_MIN), Next::Park);
        assert_eq!(waiter.spins, SPINS_MAX);
    }

    #[test]
    fn who_is_busy_never_parks() {
        let mut waiter = Waiter::new(Waiting::Busy);
        for millis in 0..10_000 {
            let now = NOW + Duration::from_millis(millis);
            assert_eq!(waiter.next(now), Next::Yield);
            waiter.yielded(now, now + TICK);
        }
    }

    #[test]
    fn the_polling_time_follows_how_long_work_stays_away() {
        let mut waiter = Waiter::new(Waiting::Adaptive);
        let mut after = |idle: Duration| {
            waiter.idle_since = Some(Duration::ZERO);
            waiter.parked = true;
            waiter.worked_at(|| idle);
            waiter.poll_for
        };
        assert_eq!(after(Duration::from_micros(300)), POLL_FOR_FIRST * 2);
        assert_eq!(after(Duration::from_millis(50)), POLL_FOR_FIRST);
        for _ in 0..10 {
            after(Duration::from_millis(50));
        }
        assert_eq!(after(Duration::from_millis(50)), POLL_FOR_MIN);
        for _ in 0..10 {
            after(Duration::from_micros(20));
        }
        assert_eq!(after(Duration::from_micros(20)), POLL_FOR_MAX);
    }
}
