//! When the next part of a snapshot is due.
//!
//! A snapshot that takes all that the disk can do leaves the log a fifth of its throughput. So a part follows the one
//! before it when its group has logged half as many bytes, or after a while if the group logs little. While the machine
//! walks through its state, the log thus grows by half of the state at most.
//!
//! What changes meanwhile is copied again. If it changes faster than it is logged, as where a message changes a few bytes of
//! a long value, a copy at the pace of the log has no end. So the pace holds until as many bytes were copied again
//! as the walk had. It does not hold if the disk [hurries](crate::disk::Disk::hurries), or if this snapshot replaces one
//! that was given up: its group's log has become long meanwhile.

use std::time::Duration;

/// Bytes of a part.
pub(super) const PART_BYTES: usize = 64 << 10;
/// Bytes of a snapshot for each byte that its group logs.
const PER_LOGGED: u64 = 2;
/// Time after which a part of [`PART_BYTES`] is followed by the next, however little is logged.
pub(crate) const PART_EVERY: Duration = Duration::from_millis(20);

/// The progress of a snapshot, as far as its pace depends on that.
///
/// **Invariant.** The walk through the state had no more bytes than all parts together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Parts follow each other as fast as the disk takes them.
    at_once: bool,
    /// The last part; `None` before the first.
    last: Option<Part>,
    /// Bytes of all parts.
    bytes: u64,
    /// Bytes of all parts when the walk had ended; `None` until then.
    walked: Option<u64>,
}

/// A part that was made.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Its bytes; at most [`PART_BYTES`] count.
    bytes: u64,
    /// Bytes that its group had logged.
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

    /// Counts a part of so many bytes, made when the group had logged so many. `has_walked` tells whether all of the state was
    /// copied once.
    pub(super) fn made(&mut self, bytes: usize, logged: u64, at: Duration, has_walked: bool) {
        self.bytes += bytes as u64;
        if has_walked {
            self.walked.get_or_insert(self.bytes);
        }
        self.last = Some(Part { bytes: bytes.min(PART_BYTES) as u64, logged, at });
    }

    /// Whether the next part is due when the group has logged so many bytes.
    pub(super) fn is_due(&self, logged: u64, now: Duration) -> bool {
        let repeats_too_much = self.walked.is_some_and(|walked| self.bytes - walked >= walked);
        self.at_once || repeats_too_much || self.last.is_none_or(|part| part.is_over(logged, now))
    }
}

impl Part {
    fn is_over(&self, logged: u64, now: Duration) -> bool {
        let Self { bytes, logged: before, at } = *self;
        let lasts = PART_EVERY * bytes as u32 / PART_BYTES as u32;
        logged >= before + bytes / PER_LOGGED || now >= at + lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = PART_BYTES as u64;
    const AT: Duration = Duration::from_secs(5);

    /// A snapshot whose last part, of so many bytes, was made when 1,000 bytes were logged.
    fn after(bytes: usize) -> Pace {
        let mut pace = Pace::new(false);
        pace.made(bytes, 1_000, AT, false);
        pace
    }

    #[test]
    fn a_part_follows_the_one_before_it_at_the_pace_of_the_log_or_after_a_while() {
        assert!(Pace::new(false).is_due(0, Duration::ZERO), "nothing is in front of the first");
        let whole = after(PART_BYTES);
        let later = AT + PART_EVERY;
        assert!(!whole.is_due(1_000, AT));
        assert!(!whole.is_due(999 + PART / 2, later - Duration::from_nanos(1)));
        assert!(whole.is_due(1_000 + PART / 2, AT), "as much is logged as pays for it");
        assert!(whole.is_due(1_000, later), "little is logged");
    }

    #[test]
    fn a_small_part_has_cost_less_and_a_large_one_no_more() {
        let small = after(PART_BYTES / 4);
        assert!(small.is_due(1_000 + PART / 8, AT) && small.is_due(1_000, AT + PART_EVERY / 4));
        assert!(!small.is_due(999 + PART / 8, AT));
        let large = after(16 * PART_BYTES);
        assert!(large.is_due(1_000 + PART / 2, AT) && large.is_due(1_000, AT + PART_EVERY));
    }

    #[test]
    fn a_snapshot_that_is_wanted_at_once_does_not_wait() {
        let mut pace = Pace::new(true);
        pace.made(PART_BYTES, 0, AT, false);
        assert!(pace.is_due(0, AT));
    }

    #[test]
    fn a_copy_whose_state_changes_faster_than_it_is_logged_has_an_end() {
        let mut pace = Pace::new(false);
        let mut parts = |more: usize, has_walked| {
            (0..more).for_each(|_| pace.made(PART_BYTES, 0, AT, has_walked));
            (pace.bytes(), pace.is_due(0, AT))
        };
        assert_eq!(parts(9, false), (9 * PART, false), "however large the state is");
        assert_eq!(parts(1, true), (10 * PART, false));
        assert_eq!(parts(9, true), (19 * PART, false), "it is copied again at the same pace");
        assert_eq!(parts(1, true), (20 * PART, true), "all of it");
    }
}
