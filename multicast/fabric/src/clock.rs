//! The system's times.

use std::time::Duration;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// The longest nap, which nobody takes: what is added to a time must not overflow it.
pub(crate) const NAP_MAX: Duration = Duration::from_hours(24);

/// The clock that only rises, while the host sleeps too: what others were promised for so long ends.
pub(crate) fn monotonic() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec.cast_unsigned() as u32)
}

/// For how long to wait, as the system wants to be told.
pub(crate) fn timeout(longest: Duration) -> Timespec {
    Timespec::try_from(longest.min(NAP_MAX)).expect("a day is not too long")
}
