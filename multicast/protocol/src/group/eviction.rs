//! When a leader goes on without those that hold it up.
//!
//! A log that is full can take nothing until all that it waits for have read on; and sessions wait while payloads are kept for
//! a follower, or one has yet to deliver too much. That may be over in a moment. If it is not, whoever it is for is evicted.
//! Whoever cannot be spared stays, and goes on being written to.

use alloc::vec;
use alloc::vec::Vec;

use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::mutants::{Mutant, planted};

/// How long a learner that holds our log up may read nothing before it is given up.
const STOPPED_AFTER_MS: u64 = 1_000;

/// The followers that a leader's log waits for, as its caller finds them once a tick.
#[derive(Clone, Copy, Debug)]
pub struct Backlog<'a> {
    /// Whether the log can take another entry.
    pub has_room: bool,
    /// Whether something was refused since the last tick because of what is kept for followers.
    pub refused: bool,
    /// The slots, as bits, that may still need what our log holds.
    pub waited_for: u16,
    /// By slot, the position up to which each needs our log no more; our own among them.
    pub freed: &'a [u64],
    /// By so much a slot's position is behind ours that it holds the log up.
    pub lag: u64,
}

/// Since when a leader is held up.
///
/// **Invariants.** `since_ms <= now` if something held us up when we looked last, and `None` otherwise. `moved[slot].0 <= now`.
pub(super) struct Eviction {
    since_ms: Option<u64>,
    /// By slot, when `freed` was last seen to have risen, and to where.
    moved: Vec<(u64, u64)>,
}

impl Eviction {
    pub(super) fn new(replicas: u8) -> Self {
        Self { since_ms: None, moved: vec![(0, 0); usize::from(replicas)] }
    }

    /// We begin to write a follower's log: what its former self has read says nothing.
    pub(super) fn forget(&mut self, slot: u8) {
        self.moved[usize::from(slot)] = (0, 0);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: the slots that hold us up for too long by now: by their place in the log, by a payload that is kept for
    /// them, or since they are [behind](Self::is_behind). Those evicted already, which only we wait for, are among them if they have stopped or cannot deliver what they are follower: they
    /// take the state anew.
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
        slots
    }

    /// Whether a learner that holds our log up has stopped: its process seems to, or it has read nothing for long.
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
