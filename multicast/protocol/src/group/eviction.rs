//! When a leader continues without followers that block it.
//!
//! A full log can take no entry until all replicas for which it waits have read on. Sessions wait while payloads are
//! kept for a follower, or while a follower lags by too many deliveries. Either may end soon. If it does not, the
//! follower that blocks the leader is evicted. A follower without which no quorum would remain is not evicted, and its
//! log is still written.

use alloc::vec;
use alloc::vec::Vec;

use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::mutants::{Mutant, planted};

/// Time for which a learner that blocks our log may read nothing before it is given up.
const STOPPED_AFTER_MS: u64 = 1_000;

/// The followers for which a leader's log waits, as the caller finds them once a tick.
#[derive(Clone, Copy, Debug)]
pub struct Backlog<'a> {
    /// Whether the log can take another entry.
    pub has_room: bool,
    /// Whether a message was refused since the last tick because of what is kept for followers.
    pub refused: bool,
    /// Bitmap of the slots that may still need what our log contains.
    pub waited_for: u16,
    /// By slot, our own included: the position up to which its replica has freed our log.
    pub freed: &'a [u64],
    /// Number of bytes by which a slot must be behind our own position to count as blocking the log.
    pub lag: u64,
}

/// Since when a leader is blocked.
///
/// **Invariants.** `since_ms <= now` if the leader was blocked at the last check, and `None` otherwise. In every slot,
/// `moved[slot].0 <= now`.
pub(super) struct Eviction {
    since_ms: Option<u64>,
    /// By slot: the time at which `freed` was last seen to rise, and its value.
    moved: Vec<(u64, u64)>,
}

impl Eviction {
    pub(super) fn new(replicas: u8) -> Self {
        Self { since_ms: None, moved: vec![(0, 0); usize::from(replicas)] }
    }

    /// Resets a slot when we begin to write its log: what its former incarnation has read does not count.
    pub(super) fn forget(&mut self, slot: u8) {
        self.moved[usize::from(slot)] = (0, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: the slots that have blocked us for too long: by their place in the log, by a payload that is kept for
    /// them, or because they are [behind](Self::is_behind). Evicted slots, for which only this leader waits, are among
    /// them if they have stopped, or cannot deliver what is written to them: they must take the state anew.
    ///
    /// The slots are in the order in which they are to be evicted: the slot that is furthest behind comes first. Since
    /// a quorum must remain, perhaps not all can be evicted. If the slot that is furthest behind remained, the log would
    /// stay full while the others return and are evicted again. Each such round logs view changes. In the end these
    /// would exceed the room that is reserved for them, and overwrite entries that the slot has not freed.
    pub(crate) fn holds_up(&mut self, backlog: &Backlog<'_>) -> Vec<u8> {
        let Backlog { has_room, refused, waited_for, freed, lag } = *backlog;
        if self.role != Role::Leader || has_room && !refused {
            self.eviction.since_ms = None;
            return Vec::new();
        }
        let now = self.now_ms;
        let since = *self.eviction.since_ms.get_or_insert(now);
        if now < since + self.config.evict_after_ms {
            return Vec::new();
        }
        let ours = freed[usize::from(self.config.me.slot)];
        let holds_up = |log: &Self, slot: u8| {
            let log_up = freed[usize::from(slot)] + lag <= ours;
            log_up || refused && (log.keeps_payload_for(slot) || log.is_behind(slot))
        };
        let mut slots: Vec<u8> = self.others().filter(|slot| waited_for >> slot & 1 == 1).collect();
        slots.retain(|slot| holds_up(self, *slot));
        slots.retain(|slot| {
            !self.members.view.member(*slot).evicted
                || self.has_stopped(*slot, freed[usize::from(*slot)])
                || refused && self.is_behind(*slot)
        });
        if !planted(Mutant::BlockersEvictedBySlot) {
            slots.sort_by_key(|slot| freed[usize::from(*slot)]);
        }
        slots
    }

    /// Whether a learner that blocks our log has stopped: it is suspected, or has read nothing for long.
    fn has_stopped(&mut self, slot: u8, freed: u64) -> bool {
        let now = self.now_ms;
        let moved = &mut self.eviction.moved[usize::from(slot)];
        if moved.1 != freed || moved.0 == 0 {
            *moved = (now, freed);
        }
        let stopped = self.detector.suspects(slot) || now >= moved.0 + STOPPED_AFTER_MS;
        stopped && !planted(Mutant::StoppedLearnerKept)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::leader;
    use super::*;

    #[test]
    fn who_is_furthest_behind_is_evicted_first() {
        let mut log = leader();
        let freed = [40, 100, 30, 90, 20];
        let full = Backlog {
            has_room: false,
            refused: false,
            waited_for: 0b11101,
            freed: &freed,
            lag: 10,
        };
        assert_eq!(log.holds_up(&full), [], "they may read on in a moment");
        log.tick(log.now_ms + log.config.evict_after_ms);
        assert_eq!(log.holds_up(&full), [4, 2, 0, 3]);
        let nearly = Backlog { lag: 11, ..full };
        assert_eq!(log.holds_up(&nearly), [4, 2, 0]);
    }
}
