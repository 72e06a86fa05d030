//! Leases: while a leader holds one, nobody else is elected, and what it has delivered is all that
//! anybody can have been answered. So it may answer reads that are not ordered.
//!
//! A leader *asks* its followers, and notes when. Whoever follows it *promises* to grant nobody else
//! for one lease by its own clock, counted from when it says so. A leader holds a lease for as long as
//! the promises of f others last, counted from when it *asked*, by its own clock, and shortened by what
//! the rates of two clocks may differ.
//!
//! **Invariant (lease).** At a moment at which a leader holds its lease, no ballot above its own has
//! f+1 grants. A promise is asked for before it is given, so it ends, in true time, after the leader
//! has ceased to count on it: if a clock's rate is off by at most ρ, the leader counts at most
//! L·(1-ρ)/(1+ρ) by its clock, which is at most L/(1+ρ) of true time, and the promise lasts that long
//! at least. The leader and f others are f+1, so every f+1 that grant another ballot have one of them
//! in common. If that is the leader, it leads no more. If not, it grants after its promise is over,
//! unless it is another incarnation of that slot: which grants only when its `Join` is committed, and by then
//! the log of whoever leads names it. The leader counts no promise of an incarnation that the end of its own
//! log does not name, and an incarnation that is not admitted promises nothing.
//!
//! **Who is known to be dead** answers nobody: promises made to it are void at once. So a leader that
//! is killed is followed as fast as if there were no leases.
//!
//! **Check after the read.** A leader may stand still between any two of its steps, and nothing that it
//! knew before says anything of now. What it needs is one moment, behind the question and before the
//! answer, at which it held its lease: whatever was answered before the question is in what it reads
//! from there on. So it reads, and then looks at the clock: if the lease is good, it was when the value
//! was read. From there on the answer may take as long as it likes.

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

/// A leader asks again, while it has reason to, after this part of a lease.
const ASK_EVERY: u32 = 8;
/// A lease of which this part is left is asked for anew when somebody reads.
pub(crate) const RENEW_AT: u32 = 2;
/// Questions that are remembered: those of a few leases. Answers to earlier ones are of no use.
pub(crate) const ASKED_MAX: usize = 32;
/// For how many leases who has kept somebody waiting promises nothing.
const CLOSED_FOR: u64 = 3;

/// What a replica knows of promises: of those made to it, and of its own.
pub(super) struct Lease {
    /// As leader: what was asked and may still be answered, by number, and when that was.
    asked: VecDeque<(u64, Duration)>,
    last_number: u64,
    /// By slot: the incarnation that promised, and when it had been asked.
    promised: Vec<Option<(u32, Duration)>>,
    /// Until when we may support nobody's candidacy, but that of the leader of this ballot.
    bound: Option<(Option<Ballot>, u64)>,
    /// Until when we promise nothing, for somebody waits for our promises to be over.
    closed_until: u64,
}

impl Lease {
    pub(super) fn new(replicas: u8) -> Self {
        let promised = vec![None; usize::from(replicas)];
        let (asked, last_number) = (VecDeque::new(), 0);
        Self { asked, last_number, promised, bound: None, closed_until: 0 }
    }

    /// What a replica that begins anew in the same incarnation goes on to owe.
    pub(super) fn kept_promises(&self) -> Self {
        let bound = self.bound;
        Self { bound, ..Self::new(self.promised.len() as u8) }
    }

    /// We lead in another ballot, or no more.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
        self.promised.fill(None);
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// For how long a leader counts on a promise, by its own clock.
    pub(crate) fn counted_on(&self) -> Duration {
        let skew = u32::from(self.config.clock_skew_percent);
        let lease = Duration::from_millis(self.config.lease_ms);
        if planted(Mutant::LeaseOfEqualClocks) {
            return lease;
        }
        lease * (100 - skew) / (100 + skew)
    }

    /// The incarnation of a slot that the end of our log names.
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

    /// Until when we hold a lease, by our own clock, if we lead and f others have promised.
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

    /// Whether we hold a lease, when our clock shows `now`.
    pub fn holds_lease(&self, now: Duration) -> bool {
        self.lease_until().is_some_and(|until| guard!(Mutant::LeaseNotCheckedAgain, now < until))
    }

    /// As leader whom somebody asks for what it holds: whether to ask for promises, and under which
    /// number.
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

    /// The leader of `ballot` asks for our promise. Returns whether it has it, from now on.
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

    /// An incarnation of a slot has promised what we asked in `ballot` under `number`.
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
        let (me, own) = (self.config.me.slot, self.config.incarnation);
        self.is_bound_against(Ballot::new(self.election.promised.counter(), me, own))
    }

    /// Somebody is to lead, we perhaps, as soon as our promise is over: it must not go on for ever.
    pub(super) fn stop_promising(&mut self) {
        self.lease.closed_until = self.now_ms + CLOSED_FOR * self.config.lease_ms;
    }

    /// The process of the leader that we follow is known to have ended: it answers nobody.
    pub(crate) fn leader_has_died(&mut self) {
        self.lease.bound = None;
    }

    /// A replica that begins anew in a group that does may have promised anything before.
    pub(super) fn bind_anew(&mut self, now_ms: u64) {
        self.lease.bound = Some((None, now_ms + self.config.lease_ms + 1));
    }
}
