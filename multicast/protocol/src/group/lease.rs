//! Leases: while a leader holds one, no other replica is elected, so no client can have been answered on the basis of
//! anything that the leader has not delivered. The leader may then answer unordered reads.
//!
//! A leader *requests* a lease from its followers and records the time. A follower *promises* to grant no other replica
//! for one lease by its own clock, counted from when it sends the promise. The leader holds a lease while the promises
//! of f others last, counted from its *request*, by its own clock, and shortened by the possible difference between the
//! rates of two clocks.
//!
//! **Invariant (lease).** While a leader holds its lease, no ballot above its own has f+1 grants. A promise is
//! requested before it is given, so it ends, in true time, after the leader has ceased to count on it. If a clock's
//! rate is off by at most ρ, the leader counts at most L·(1-ρ)/(1+ρ) by its clock, which is at most L/(1+ρ) of true
//! time, and the promise lasts at least that long. The leader and f others are f+1 replicas, so every f+1 that grant
//! another ballot have one of these slots in common with them. If it is the leader's, the leader has stopped leading.
//! If it is another, the replica grants after its promise has ended, unless it is another incarnation of that slot. A
//! new incarnation grants only when its `Join` is committed, and by then the log of the current leader contains it. The
//! leader counts no promise of an incarnation that is not in the view at the end of its own log, and an incarnation
//! that is not admitted promises nothing.
//!
//! **A replica that is known to be dead** answers nobody: promises made to it are void at once. So a crashed leader is
//! replaced as fast as without leases.
//!
//! **Check after the read.** A leader may be paused between any two of its steps, and nothing that it knew before holds
//! now. It needs one moment, after the arrival of the read and before its answer, at which it held its lease:
//! everything that was answered before the read arrived is in what it reads from there on. So it reads, and then checks
//! its clock: if the lease is valid then, it was valid when the value was read. After that the answer may be delayed
//! without bound.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::record::{GroupRecord, LogRecord};
use super::uncommitted::Uncommitted;
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::{Mutant, planted};

/// A leader repeats its request, while it needs a lease, after this fraction of a lease.
const ASK_EVERY: u32 = 8;
/// When a read arrives and less than this fraction of the lease is left, a new one is requested.
pub(crate) const RENEW_AT: u32 = 2;
/// Number of remembered requests: those of a few leases. Answers to earlier ones are useless.
pub(crate) const ASKED_MAX: usize = 32;
/// Number of leases for which a replica promises nothing after a promise of its own has delayed a candidacy.
const CLOSED_FOR: u64 = 3;

/// Lease promises made to this replica, and made by it.
pub(super) struct Lease {
    /// As leader: requests that may still be answered, by number, and their times.
    asked: VecDeque<(u64, Duration)>,
    last_number: u64,
    /// By slot: the incarnation that promised, and the time of the request.
    promised: Vec<Option<(u32, Duration)>>,
    /// Until this time we may support no candidacy, except that of the leader of this ballot.
    bound: Option<(Option<Ballot>, u64)>,
    /// Until this time we promise nothing, because a candidacy waits for our promises to end.
    closed_until: u64,
}

impl Lease {
    pub(super) fn new(replicas: u8) -> Self {
        let promised = vec![None; usize::from(replicas)];
        let (asked, last_number) = (VecDeque::new(), 0);
        Self { asked, last_number, promised, bound: None, closed_until: 0 }
    }

    /// The obligations of a replica that starts anew in the same incarnation.
    pub(super) fn kept_promises(&self) -> Self {
        let bound = self.bound;
        Self { bound, ..Self::new(self.promised.len() as u8) }
    }

    /// Resets promises made to us, because we lead in another ballot, or do not lead any more.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
        self.promised.fill(None);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Time for which a leader counts on a promise, by its own clock.
    pub(crate) fn counted_on(&self) -> Duration {
        let skew = u32::from(self.config.clock_skew_percent);
        let lease = Duration::from_millis(self.config.lease_ms);
        if planted(Mutant::LeaseOfEqualClocks) {
            return lease;
        }
        lease * (100 - skew) / (100 + skew)
    }

    /// The incarnation of a slot in the view at the end of our log.
    pub(super) fn named_at_end(&self, slot: u8) -> u32 {
        let joins = |entry: &Uncommitted<R>| match entry.record.of_group() {
            Some(GroupRecord::Join { slot: joined, incarnation }) if joined == slot => {
                Some(incarnation)
            }
            _ => None,
        };
        let changes = self.members.changing & 1 << slot != 0;
        let joined =
            changes.then(|| self.entries.uncommitted.iter().rev().find_map(joins)).flatten();
        joined.unwrap_or_else(|| self.members.view.member(slot).incarnation)
    }

    /// Time, by our own clock, until which we hold a lease, if we lead and f others have promised.
    pub(crate) fn lease_until(&self) -> Option<Duration> {
        if !self.leads() || self.entries.commit < self.entries.first {
            return None;
        }
        let others = self.quorum() - 1;
        if others == 0 {
            return Some(Duration::MAX);
        }
        let mut asked = [Duration::ZERO; u8::MAX as usize];
        let mut count = 0;
        for slot in self.others() {
            let Some((incarnation, at)) = self.lease.promised[usize::from(slot)] else { continue };
            if incarnation == self.named_at_end(slot) {
                asked[count] = at;
                count += 1;
            }
        }
        let asked = &mut asked[..count];
        asked.sort_unstable_by(|a, b| b.cmp(a));
        asked.get(others - 1).map(|at| *at + self.counted_on())
    }

    /// Whether we hold a lease when our clock shows `now`.
    pub fn holds_lease(&self, now: Duration) -> bool {
        self.lease_until().is_some_and(|until| guard!(Mutant::LeaseNotCheckedAgain, now < until))
    }

    /// As leader with a read to answer: the number of a new request for promises, if one is to be sent.
    pub(crate) fn ask_for_lease(&mut self, now: Duration) -> Option<u64> {
        let lease = Duration::from_millis(self.config.lease_ms);
        let fresh = self.lease_until().is_some_and(|until| now + lease / RENEW_AT < until);
        let just_asked =
            self.lease.asked.back().is_some_and(|(_, at)| now < *at + lease / ASK_EVERY);
        if !self.leads() || self.quorum() == 1 || fresh || just_asked {
            return None;
        }
        if self.lease.asked.len() == ASKED_MAX {
            self.lease.asked.pop_front();
        }
        self.lease.last_number += 1;
        self.lease.asked.push_back((self.lease.last_number, now));
        self.paths.lease_asked += 1;
        Some(self.lease.last_number)
    }

    /// The leader of `ballot` requests our promise. Returns whether we give it, from now on.
    pub(crate) fn promise_lease(&mut self, ballot: Ballot, now: Duration) -> bool {
        let follows = self.role == Role::Follower
            && ballot == self.election.promised
            && ballot == self.ballot()
            && self.now_ms >= self.lease.closed_until
            && !self.detector.suspects(ballot.slot())
            && !self.is_silent();
        if follows {
            let until = now + Duration::from_millis(self.config.lease_ms);
            self.lease.bound = Some((Some(ballot), until.as_millis() as u64 + 1));
            self.paths.lease_promised += 1;
        }
        follows
    }

    /// An incarnation of a slot has promised what we requested in `ballot` under `number`.
    pub(crate) fn lease_promised(
        &mut self,
        (slot, incarnation): (u8, u32),
        ballot: Ballot,
        number: u64,
        now: Duration,
    ) {
        if !self.leads() || ballot != self.ballot() || slot >= self.config.replicas {
            return;
        }
        let asked = self.lease.asked.iter().find(|(of, _)| *of == number);
        let Some(&(_, at)) = asked else { return };
        let at = if planted(Mutant::LeaseFromPromise) { now } else { at };
        let promised = &mut self.lease.promised[usize::from(slot)];
        if promised.is_none_or(|(by, before)| by != incarnation || before < at) {
            *promised = Some((incarnation, at));
        }
    }

    /// Whether a promise keeps us from supporting `ballot`.
    pub(super) fn is_bound_against(&self, ballot: Ballot) -> bool {
        let same = |holder: Ballot| {
            (holder.slot(), holder.incarnation()) == (ballot.slot(), ballot.incarnation())
        };
        let bound = self.lease.bound;
        bound.is_some_and(|(holder, until)| self.now_ms < until && !holder.is_some_and(same))
            && !planted(Mutant::PromiseNotKept)
    }

    /// Whether a promise keeps us from setting out to lead.
    pub(crate) fn is_bound(&self) -> bool {
        let (me, began_as) = (self.config.me.slot, self.config.began_as);
        self.is_bound_against(Ballot::new(self.election.promised.counter(), me, began_as))
    }

    /// Stops promising: a replica, perhaps this one, is to lead as soon as our promise has ended, so it must not be
    /// renewed.
    pub(super) fn stop_promising(&mut self) {
        self.lease.closed_until = self.now_ms + CLOSED_FOR * self.config.lease_ms;
    }

    /// The process of the leader that we follow is known to have ended: our promise is void.
    pub(crate) fn leader_has_died(&mut self) {
        self.lease.bound = None;
    }

    /// A replica that starts anew in a recreated group may have promised any lease before.
    pub(super) fn bind_anew(&mut self, now_ms: u64) {
        self.lease.bound = Some((None, now_ms + self.config.lease_ms + 1));
    }
}
