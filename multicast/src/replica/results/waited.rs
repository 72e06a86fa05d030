//! Times for which the state machine has waited for other groups' results.

use std::time::Duration;

/// Total time for which a condition has held.
#[derive(Default)]
struct Spell {
    since: Option<Duration>,
    before: Duration,
}

impl Spell {
    fn note(&mut self, is_so: bool, now: Duration) {
        match self.since {
            None if is_so => self.since = Some(now),
            Some(since) if !is_so => {
                self.before += now.saturating_sub(since);
                self.since = None;
            }
            _ => {}
        }
    }
}

/// Time spent with deliveries in flight, and with a machine that takes no further one.
#[derive(Default)]
pub(super) struct Waited {
    any: Spell,
    stalled: Spell,
}

impl Waited {
    /// Records the time if either condition has changed.
    pub(super) fn note(&mut self, any: bool, stalled: bool, now: impl FnOnce() -> Duration) {
        if (self.any.since.is_some(), self.stalled.since.is_some()) != (any, stalled) {
            let now = now();
            self.any.note(any, now);
            self.stalled.note(stalled, now);
        }
    }

    pub(super) const fn any_us(&self) -> u64 {
        self.any.before.as_micros() as u64
    }

    pub(super) const fn stalled_us(&self) -> u64 {
        self.stalled.before.as_micros() as u64
    }
}
