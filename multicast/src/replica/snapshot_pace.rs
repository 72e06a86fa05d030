//! When the next part of a snapshot is due, and how large it is.
//!
//! A snapshot that takes all that the disk can do leaves the log a fifth of its throughput. So a part follows the one
//! before it when the log has [grown](crate::disk::Disk::logged) by a quarter as many bytes because of its group, or after a
//! while if it grows little. While the machine walks through its state, the log thus grows by about a quarter of the
//! state. A slower pace is no relief: the longer a snapshot takes, the more changes meanwhile and is copied again.
//!
//! Pairs that change meanwhile are copied again. If the state changes faster than it is logged, as where a message
//! changes a few bytes of a long value, a copy at the pace of the log has no end. So the pace holds until half as many
//! bytes were copied again as the walk had. It does not hold if the disk [hurries](crate::disk::Disk::hurries), or if
//! this snapshot replaces one that was given up: its group's log has become long meanwhile.

use std::time::Duration;

/// Bytes of a part at the pace of the log, if the disk keeps up with it.
pub(super) const PART_BYTES: usize = 64 << 10;
/// Bytes of a part at most, but for what the machine adds so that its copy has an end.
pub(super) const PART_BYTES_MAX: usize = 256 << 10;
/// Bytes of a snapshot for each byte by which the log grows because of its group.
pub(super) const PER_LOGGED: u64 = 4;
/// Time after which a part of [`PART_BYTES`] is followed by the next, however little is logged.
pub(crate) const PART_EVERY: Duration = Duration::from_millis(20);

/// The progress of a snapshot, as far as its pace depends on that.
///
/// **Invariant.** `walked <= bytes`, if the walk has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Parts follow each other as fast as the disk takes them.
    at_once: bool,
    /// The last part; `None` before the first.
    last: Option<Part>,
    /// Bytes of all parts.
    bytes: u64,
    /// Bytes of all parts when the walk through the state had ended; `None` until then.
    walked: Option<u64>,
}

/// A part that was made.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Bytes that count.
    bytes: u64,
    /// Bytes that its group had logged then.
    logged: u64,
    at: Duration,
}

impl Pace {
    /// The pace of a snapshot that begins. It may be one that is to be written `at_once`.
    pub(super) const fn new(at_once: bool) -> Self {
        Self { at_once, last: None, bytes: 0, walked: None }
    }

    /// Bytes of all parts that were made.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of the state: what was copied again does not count.
    pub(super) fn state_bytes(&self) -> u64 {
        self.walked.unwrap_or(self.bytes)
    }

    /// Counts a part of so many bytes, made when the group had logged so many. `has_walked` tells whether all of the state was
    /// copied once.
    pub(super) fn made(&mut self, bytes: usize, logged: u64, at: Duration, has_walked: bool) {
        self.bytes += bytes as u64;
        // A part of what was copied again becomes longer the more has changed: waiting for it would only add to that.
        let counts = if self.walked.is_some() { bytes.min(PART_BYTES) } else { bytes };
        if has_walked {
            self.walked.get_or_insert(self.bytes);
        }
        self.last = Some(Part { bytes: counts as u64, logged, at });
    }

    /// Whether parts follow each other as fast as the disk takes them.
    pub(super) fn is_at_once(&self, hurries: bool) -> bool {
        let repeats_too_much = self.walked.is_some_and(|walked| self.bytes - walked > walked / 2);
        self.at_once || hurries || repeats_too_much
    }

    /// Bytes of the next part, if it is due when the group has logged so many bytes.
    pub(super) fn next(&self, logged: u64, now: Duration, hurries: bool) -> Option<usize> {
        if self.is_at_once(hurries) {
            return Some(PART_BYTES_MAX);
        }
        let Some(last) = &self.last else { return Some(PART_BYTES) };
        // The disk may have taken longer than the pace allows.
        let earned = PER_LOGGED.saturating_mul(logged.saturating_sub(last.logged));
        let is_due = earned >= last.bytes || now >= last.over_at();
        is_due.then(|| earned.min(PART_BYTES_MAX as u64).max(PART_BYTES as u64) as usize)
    }
}

impl Part {
    /// When the next one is due though nothing is logged.
    fn over_at(&self) -> Duration {
        let whole = PART_EVERY.as_nanos() as u64;
        self.at + Duration::from_nanos(self.bytes * whole / PART_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = PART_BYTES as u64;
    const AT: Duration = Duration::from_secs(5);

    fn before(time: Duration) -> Duration {
        time.saturating_sub(Duration::from_nanos(1))
    }

    /// A snapshot whose last part, of so many bytes, was made when 1,000 bytes were logged.
    fn after(bytes: usize) -> Pace {
        let mut pace = Pace::new(false);
        pace.made(bytes, 1_000, AT, false);
        pace
    }

    #[test]
    fn a_part_follows_the_one_before_it_at_the_pace_of_the_log_or_after_a_while() {
        let first = Pace::new(false).next(0, Duration::ZERO, false);
        assert_eq!(first, Some(PART_BYTES), "nothing is in front of it");
        let next = |logged, now| after(PART_BYTES).next(logged, now, false);
        assert_eq!(next(1_000, AT), None);
        assert_eq!(next(999 + PART / PER_LOGGED, before(AT + PART_EVERY)), None);
        assert_eq!(next(1_000 + PART / PER_LOGGED, AT), Some(PART_BYTES), "enough is logged");
        assert_eq!(next(1_000, AT + PART_EVERY), Some(PART_BYTES), "little is logged");
    }

    #[test]
    fn a_part_is_larger_if_the_log_is_ahead_up_to_a_bound() {
        let next = |logged| after(PART_BYTES).next(1_000 + logged, AT, false);
        assert_eq!(next(3 * PART / PER_LOGGED), Some(3 * PART_BYTES));
        assert_eq!(next(100 * PART), Some(PART_BYTES_MAX));
    }

    #[test]
    fn a_part_is_followed_later_the_longer_it_is() {
        for bytes in [PART_BYTES / 4, 16 * PART_BYTES] {
            let next = |logged, now| after(bytes).next(logged, now, false);
            let enough = bytes as u64 / PER_LOGGED;
            let takes = PART_EVERY * bytes as u32 / PART_BYTES as u32;
            assert_eq!(next(999 + enough, before(AT + takes)), None, "{bytes} bytes");
            assert!(next(1_000 + enough, AT).is_some(), "{bytes} bytes");
            assert!(next(1_000, AT + takes).is_some(), "{bytes} bytes");
        }
    }

    #[test]
    fn a_snapshot_that_is_wanted_at_once_does_not_wait() {
        let mut pace = Pace::new(true);
        pace.made(PART_BYTES, 0, AT, false);
        assert_eq!(pace.next(0, AT, false), Some(PART_BYTES_MAX));
        assert_eq!(after(PART_BYTES).next(1_000, AT, true), Some(PART_BYTES_MAX));
    }

    #[test]
    fn a_copy_whose_state_changes_faster_than_it_is_logged_has_an_end() {
        let mut pace = Pace::new(false);
        let mut parts = |more: usize, bytes, has_walked| {
            (0..more).for_each(|_| pace.made(bytes, 0, AT, has_walked));
            (pace.state_bytes() / PART, pace.next(0, AT, false).is_some())
        };
        assert_eq!(parts(9, PART_BYTES, false), (9, false), "however large the state is");
        assert_eq!(parts(1, PART_BYTES, true), (10, false));
        assert_eq!(parts(5, PART_BYTES, true), (10, false), "it is copied again at the same pace");
        assert_eq!(parts(1, PART_BYTES, true), (10, true), "half of it");
    }

    #[test]
    fn much_that_is_copied_again_at_once_is_followed_as_soon_as_little() {
        let mut pace = after(100 * PART_BYTES);
        pace.made(PART_BYTES, 1_000, AT, true);
        pace.made(16 * PART_BYTES, 1_000, AT, true);
        assert!(pace.next(1_000 + PART / PER_LOGGED, AT, false).is_some());
        assert!(pace.next(1_000, AT + PART_EVERY, false).is_some());
    }
}
