//! How to wait for what others write: spin, yield, park.
//!
//! Parking across cores costs more than any step of a protocol (some 30 µs), spinning costs a core,
//! and with more spinning processes than cores everybody waits for somebody who is not running. So
//! the waiter polls a few times in a row only while it seems to have the core to itself, which it
//! measures by how long a yield takes; it yields after every poll otherwise; and it parks when it
//! has been idle for longer than work usually stays away.
//!
//! How long that is follows from experience. Work that came soon after we had parked says that we
//! gave up too early; work that came long after says that the spinning before was for nothing. So
//! one who is woken by heartbeats alone soon spends next to nothing on them.

use std::fmt;
use std::hint;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use crate::Fabric;

/// How a poll loop waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Waiting {
    /// Spin, then yield, then park.
    #[default]
    Adaptive,
    /// Never park; for a core of one's own. It yields when it finds that the core is shared after
    /// all, for otherwise it would keep those from running for whom it waits.
    Busy,
    /// Park almost at once; for machines that have better things to do.
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

/// A text that names no way of waiting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way of waiting: it is adaptive, busy or park")]
pub struct UnknownWaiting(String);

/// A yield that takes longer has let somebody else run.
const YIELD_ALONE_MAX: Duration = Duration::from_micros(2);
/// Polls between two yields on a core that nobody else wants.
const SPINS_MAX: u32 = 32;

/// How long to be idle before parking: at first, at least, at most.
const PATIENCE_FIRST: Duration = Duration::from_micros(200);
const PATIENCE_MIN: Duration = Duration::from_micros(10);
const PATIENCE_MAX: Duration = Duration::from_millis(1);

/// One poll loop's waiting.
#[derive(Clone, Debug)]
pub struct Waiter {
    waiting: Waiting,
    /// Polls in a row before the next yield. Falls to one under pressure.
    spins: u32,
    spun: u32,
    /// When the present idleness began, as far as we looked at the clock.
    idle_since: Option<Duration>,
    parked: bool,
    patience: Duration,
}

impl Waiter {
    /// A waiter that knows nothing yet of the load.
    pub fn new(waiting: Waiting) -> Self {
        Self {
            waiting,
            spins: 1,
            spun: 0,
            idle_since: None,
            parked: false,
            patience: PATIENCE_FIRST,
        }
    }

    /// How it waits.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// To be called after a poll that found work from outside. What one does on one's own at
    /// certain times is no such work.
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
        self.patience = if now().saturating_sub(since) <= PATIENCE_MAX {
            (self.patience * 2).min(PATIENCE_MAX)
        } else {
            (self.patience / 2).max(PATIENCE_MIN)
        };
    }

    /// To be called after a poll that found nothing. Returns after a moment or, if it parked, when
    /// woken or after `longest`. `idle` is that of [`Fabric::park`].
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
        let before = fabric.now();
        let since = *self.idle_since.get_or_insert(before);
        let patience = match self.waiting {
            Waiting::Adaptive => self.patience,
            Waiting::Busy => Duration::MAX,
            Waiting::Park => PATIENCE_MIN,
        };
        if before.saturating_sub(since) >= patience {
            self.parked = true;
            fabric.park(longest, idle);
            return;
        }
        thread::yield_now();
        let took = fabric.now().saturating_sub(before);
        self.spins = if took <= YIELD_ALONE_MAX { (self.spins * 2).min(SPINS_MAX) } else { 1 };
    }
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

    #[test]
    fn patience_follows_how_long_work_stays_away() {
        let mut waiter = Waiter::new(Waiting::Adaptive);
        let mut after = |idle: Duration| {
            waiter.idle_since = Some(Duration::ZERO);
            waiter.parked = true;
            waiter.worked_at(|| idle);
            waiter.patience
        };
        assert_eq!(after(Duration::from_micros(300)), PATIENCE_FIRST * 2);
        assert_eq!(after(Duration::from_millis(50)), PATIENCE_FIRST);
        for _ in 0..10 {
            after(Duration::from_millis(50));
        }
        assert_eq!(after(Duration::from_millis(50)), PATIENCE_MIN);
        for _ in 0..10 {
            after(Duration::from_micros(20));
        }
        assert_eq!(after(Duration::from_micros(20)), PATIENCE_MAX);
    }
}
