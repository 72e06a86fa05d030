//! The pending table: which message is next.
//!
//! **Invariant.** Messages are taken in rising final timestamps. A message whose proposals are
//! not all known may end anywhere at or above the highest one known, its *bound*; so the candidate
//! is always the least bound, and it is delivered only if that bound is final.
//!
//! A message to this group alone is final when it is logged, and local timestamps rise along the
//! log: such messages wait in a queue and cost no search. Only a message whose bound has risen above
//! its local timestamp is moved to a heap.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use hashbrown::HashMap;

use crate::ids::{GroupSet, MessageId};
use crate::log::Remote;
use crate::step::Deliver;
use crate::timestamp::Timestamp;

/// Messages logged and not delivered.
#[derive(Default)]
pub(super) struct Order {
    table: HashMap<MessageId, Pending>,
    /// By local timestamp, which is log order.
    queue: VecDeque<(Timestamp, MessageId)>,
    /// By bound, as it was when pushed; stale ones are pushed again when they surface.
    heap: BinaryHeap<Reverse<(Timestamp, MessageId)>>,
    delivered: u64,
}

/// A logged message and what is known of its place.
pub(super) struct Pending {
    low_water: u64,
    destinations: GroupSet,
    bound: Timestamp,
    index: u64,
    time_ms: u64,
    remotes: Vec<LoggedRemote>,
}

/// The message that heads the order, as far as is known.
pub(super) struct Candidate {
    bound: Timestamp,
    message: MessageId,
    /// Whether it heads the queue; otherwise, the heap.
    queued: bool,
}

/// Another group's proposal, and where our log holds it.
#[derive(Clone, Copy)]
struct LoggedRemote {
    remote: Remote,
    index: u64,
}

impl Pending {
    /// The last entry of our own log on which delivery rests.
    pub(super) fn last_index(&self) -> u64 {
        self.remotes.iter().map(|remote| remote.index).fold(self.index, u64::max)
    }

    /// The other groups' proposals.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &Remote> {
        self.remotes.iter().map(|logged| &logged.remote)
    }

    /// Whether every destination group's proposal is known.
    pub(super) fn is_final(&self) -> bool {
        self.remotes.len() + 1 == self.destinations.len()
    }
}

impl Order {
    /// Our own proposal is in the log.
    pub(super) fn local(
        &mut self,
        message: MessageId,
        low_water: u64,
        timestamp: Timestamp,
        destinations: GroupSet,
        index: u64,
        time_ms: u64,
    ) {
        let remotes = Vec::new();
        let pending =
            Pending { low_water, destinations, bound: timestamp, index, time_ms, remotes };
        let before = self.table.insert(message, pending);
        assert!(before.is_none(), "{message} is logged twice");
        debug_assert!(self.queue.back().is_none_or(|(last, _)| *last < timestamp));
        self.queue.push_back((timestamp, message));
    }

    /// Another group's proposal is in the log. A later ballot's replaces an earlier one's.
    pub(super) fn remote(&mut self, remote: Remote, index: u64) {
        let Some(pending) = self.table.get_mut(&remote.message) else { return };
        pending.bound = pending.bound.max(remote.timestamp);
        let logged = LoggedRemote { remote, index };
        match pending.remotes.iter_mut().find(|old| old.remote.group() == remote.group()) {
            Some(old) if old.remote.ballot >= remote.ballot => {}
            Some(old) => *old = logged,
            None => pending.remotes.push(logged),
        }
    }

    /// Whether logging this proposal would say nothing new.
    pub(super) fn has_remote(&self, remote: &Remote) -> bool {
        self.table.get(&remote.message).is_none_or(|pending| {
            pending.remotes.iter().any(|logged| {
                logged.remote.group() == remote.group() && logged.remote.ballot >= remote.ballot
            })
        })
    }

    /// The message with the least bound: the only one that can be next.
    pub(super) fn least(&mut self) -> Option<Candidate> {
        while let Some(&(local, message)) = self.queue.front() {
            let bound = self.table[&message].bound;
            if bound == local {
                break;
            }
            self.queue.pop_front();
            self.heap.push(Reverse((bound, message)));
        }
        while let Some(&Reverse((pushed, message))) = self.heap.peek() {
            let bound = self.table[&message].bound;
            if bound == pushed {
                break;
            }
            self.heap.pop();
            self.heap.push(Reverse((bound, message)));
        }
        let queued =
            self.queue.front().map(|&(bound, message)| Candidate { bound, message, queued: true });
        let heaped = self.heap.peek().map(|&Reverse((bound, message))| Candidate {
            bound,
            message,
            queued: false,
        });
        match (queued, heaped) {
            (Some(queued), Some(heaped)) => {
                Some(if queued.bound < heaped.bound { queued } else { heaped })
            }
            (queued, heaped) => queued.or(heaped),
        }
    }

    /// Whether a message with an earlier local timestamp is seen to be passed by.
    pub(super) fn overtakes(&self, candidate: &Candidate) -> bool {
        let index = self.table[&candidate.message].index;
        let top = self.heap.peek().filter(|_| candidate.queued);
        top.is_some_and(|Reverse((_, message))| self.table[message].index < index)
    }

    /// What is known of the candidate.
    pub(super) fn pending(&self, candidate: &Candidate) -> &Pending {
        &self.table[&candidate.message]
    }

    /// Takes the candidate out of the table: it is next, and its bound is its final timestamp.
    pub(super) fn take(&mut self, candidate: &Candidate) -> Deliver {
        if candidate.queued {
            self.queue.pop_front();
        } else {
            self.heap.pop();
        }
        let pending = self.table.remove(&candidate.message).expect("candidates are in the table");
        debug_assert!(pending.is_final());
        self.delivered += 1;
        Deliver {
            message: candidate.message,
            low_water: pending.low_water,
            destinations: pending.destinations,
            timestamp: candidate.bound,
            position: self.delivered,
            time_ms: pending.time_ms,
        }
    }

    pub(super) fn contains(&self, message: MessageId) -> bool {
        self.table.contains_key(&message)
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) const fn delivered(&self) -> u64 {
        self.delivered
    }

    /// When the oldest pending message was logged, and which it is.
    pub(super) fn oldest(&self) -> Option<(u64, MessageId)> {
        self.table.iter().map(|(message, pending)| (pending.time_ms, *message)).min()
    }
}
