//! The system's clocks.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Cap for naps, longer than any real one: a deadline computed from it must not overflow.
pub(crate) const NAP_MAX: Duration = Duration::from_hours(24);

/// A clock that only rises, also while the host sleeps: promises of a limited duration end meanwhile.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32)
}

/// A duration as the system calls take it.
pub(crate) fn timeout(longest: Duration) -> Timespec {
    Timespec::try_from(longest.min(NAP_MAX)).expect("a day is not too long")
}
