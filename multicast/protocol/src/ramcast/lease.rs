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
//! unless it is another life of that slot: which grants only when its `Join` is committed, and by then
//! the log of whoever leads names it. The leader counts no promise of a life that the end of its own
//! log does not name, and a life that is not let in promises nothing.
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

use super::{Ramcast, Role, Uncommitted};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::{Mutant, planted};
use crate::step::Record;
use crate::timestamp::Timestamp;

/// A leader asks again, while it has reason to, after this part of a lease.
const ASK_EVERY: u32 = 8;
/// A lease of which this part is left is asked for anew when somebody reads.
const RENEW_AT: u32 = 2;
/// Questions that are remembered: those of a few leases. Answers to earlier ones are of no use.
const ASKED_MAX: usize = 32;
/// For how many leases who has kept somebody waiting promises nothing.
const CLOSED_FOR: u64 = 3;

/// What a replica knows of promises: of those made to it, and of its own.
pub(super) struct Lease {
    /// As leader: what was asked and may still be answered, by number, and when that was.
    asked: VecDeque<(u64, Duration)>,
    last_number: u64,
    /// By slot: the life that promised, and when it had been asked.
    promised: Vec<Option<(u32, Duration)>>,
    /// As leader: the last entry of our log that others than we may have answered, or may answer: of a
    /// former ballot, or of a message to several groups.
    last_shared: u64,
    /// Until when we may support nobody's candidacy, but that of the leader of this ballot.
    bound: Option<(Option<Ballot>, u64)>,
    /// Until when we promise nothing, for somebody waits for our promises to be over.
    closed_until: u64,
}

impl Lease {
    pub(super) fn new(replicas: u8) -> Self {
        let promised = vec![None; usize::from(replicas)];
        let (asked, last_number, last_shared) = (VecDeque::new(), 0, 0);
        Self { asked, last_number, promised, last_shared, bound: None, closed_until: 0 }
    }

    /// What a replica that begins anew in the same life goes on to owe.
    pub(super) fn owed(&self) -> Self {
        let bound = self.bound;
        Self { bound, ..Self::new(self.promised.len() as u8) }
    }

    /// We lead in another ballot, or no more.
    pub(super) fn clear(&mut self) {
        self.asked.clear();
        self.promised.fill(None);
    }

    /// We have logged a record.
    pub(super) fn logged(&mut self, index: u64, record: &Record) {
        let shared = match record {
            Record::NewBallot | Record::Remote(_) | Record::Decided(_) => true,
            Record::Local { destinations, .. } => destinations.has_several(),
            Record::Exchange
            | Record::Evict { .. }
            | Record::Join { .. }
            | Record::Raise { .. } => false,
        };
        if shared {
            self.last_shared = index;
        }
    }
}

impl Ramcast {
    /// For how long a leader counts on a promise, by its own clock.
    fn counted_on(&self) -> Duration {
        let skew = u32::from(self.config.clock_skew_percent);
        let lease = Duration::from_millis(self.config.lease_ms);
        if planted(Mutant::LeaseOfEqualClocks) {
            return lease;
        }
        lease * (100 - skew) / (100 + skew)
    }

    /// The life of a slot that the end of our log names.
    pub(super) fn named_at_end(&self, slot: u8) -> u32 {
        let joins = |entry: &Uncommitted| match entry.record {
            Record::Join { slot: joined, incarnation } if joined == slot => Some(incarnation),
            _ => None,
        };
        let changes = self.changing & 1 << slot != 0;
        let joined = changes.then(|| self.suffix.iter().rev().find_map(joins)).flatten();
        joined.unwrap_or_else(|| self.view.member(slot).incarnation)
    }

    /// Until when we hold a lease, by our own clock, if we lead and f others have promised.
    fn lease_until(&self) -> Option<Duration> {
        if !self.leads() || self.commit < self.new_ballot_index {
            return None;
        }
        let others = self.quorum() - 1;
        if others == 0 {
            return Some(Duration::MAX);
        }
        let mut asked = [Duration::ZERO; u8::MAX as usize];
        let mut count = 0;
        for slot in self.others() {
            let Some((life, at)) = self.lease.promised[usize::from(slot)] else { continue };
            if life == self.named_at_end(slot) {
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
    pub fn ask_for_lease(&mut self, now: Duration) -> Option<u64> {
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
    pub fn promise_lease(&mut self, ballot: Ballot, now: Duration) -> bool {
        let follows = self.role == Role::Follower
            && ballot == self.promised
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

    /// A life of a slot has promised what we asked in `ballot` under `number`.
    pub fn lease_promised(
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
        if promised.is_none_or(|(life, before)| life != incarnation || before < at) {
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
    pub fn is_bound(&self) -> bool {
        let (me, life) = (self.config.me.slot, self.config.incarnation);
        self.is_bound_against(Ballot::new(self.promised.counter(), me, life))
    }

    /// Somebody is to lead, we perhaps, as soon as our promise is over: it must not go on for ever.
    pub fn stop_promising(&mut self) {
        self.lease.closed_until = self.now_ms + CLOSED_FOR * self.config.lease_ms;
    }

    /// The process of the leader that we follow is known to have ended: it answers nobody.
    pub fn leader_has_died(&mut self) {
        self.lease.bound = None;
    }

    /// A replica that begins anew in a group that does may have promised anything before.
    pub(super) fn bind_anew(&mut self, now_ms: u64) {
        self.lease.bound = Some((None, now_ms + self.config.lease_ms + 1));
    }

    /// What a read that comes now must wait for: our clock, and how far our log must be committed.
    pub fn read_from(&self) -> (u64, u64) {
        (self.clock, self.lease.last_shared)
    }

    /// Whether we have delivered everything that anybody can have seen when a read came.
    ///
    /// What our group alone was sent in our ballot, nobody answers but we, when we have delivered it. Of
    /// the rest, whatever was delivered anywhere is in our log, the lease says, with all proposals that
    /// it rests on, and our clock was no lower. So when that much is committed, and no bound is left at
    /// or below that clock, it is delivered here.
    pub fn has_caught_up(&mut self, (clock, shared): (u64, u64)) -> bool {
        let committed = self.commit >= shared;
        let above = |bound: Timestamp| bound.clock() > clock;
        let mut delivered = || self.order.least_bound().is_none_or(above);
        guard!(Mutant::ReadTooEarly, committed && delivered())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ballot::Acceptance;
    use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
    use crate::message::Announcement;
    use crate::ramcast::{Cause, Config, Verdict};
    use crate::step::Event;
    use crate::view::View;

    const LEASE: u64 = 40;
    /// What a leader counts on, if clocks are off by a tenth.
    const COUNTED: u64 = 32;

    fn replica(slot: u8, replicas: u8) -> Ramcast {
        let me = ReplicaId::new(GroupId(0), slot);
        let config = Config {
            me,
            incarnation: 0,
            groups: 2,
            replicas,
            fetch_after_ms: 20,
            patience_ms: 20,
            beat_ms: 5,
            missed_max: 20,
            lease_ms: LEASE,
            clock_skew_percent: 10,
            spread_after_ms: 0,
            lag_max: 64,
        };
        let mut core = Ramcast::new(config, View::first(replicas));
        core.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
        core
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Slot 0 leads, and its first entry is committed.
    fn leader(replicas: u8) -> Ramcast {
        let mut core = replica(0, replicas);
        let ballot = core.campaign(Cause::Start);
        for slot in 1..replicas {
            let named = vec![0; usize::from(replicas)];
            core.granted(slot, 0, (Ballot::ZERO, 0), named);
        }
        core.lead(&mut Vec::new());
        for slot in 1..replicas {
            let by = ReplicaId::new(GroupId(0), slot);
            let acceptance = Acceptance { tag: ballot.tag(), index: core.last_index() };
            core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
            core.feeds(slot, 0);
            core.step(Event::Applied { slot, timestamp: Timestamp::ZERO }, &mut Vec::new());
        }
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(core.commit_index(), 1);
        core
    }

    /// Slot 1 follows slot 0.
    fn follower() -> (Ramcast, Ballot) {
        let mut core = replica(1, 3);
        let ballot = Ballot::new(1, 0, 0);
        core.promise(ballot);
        core.follow(ballot, 0, 1);
        (core, ballot)
    }

    #[test]
    fn a_lease_counts_from_when_f_others_were_asked() {
        let mut core = leader(5);
        assert!(!core.holds_lease(at(1_000)), "nobody has promised");
        let first = core.ask_for_lease(at(1_000)).expect("it was never asked");
        let second = core.ask_for_lease(at(1_010)).expect("it has none");
        assert_eq!(core.ask_for_lease(at(1_011)), None, "it was asked for a moment ago");
        let ballot = core.ballot();
        core.lease_promised((1, 0), ballot, second, at(1_025));
        assert!(!core.holds_lease(at(1_025)), "one other is no quorum");
        core.lease_promised((2, 0), ballot, first, at(1_025));
        assert!(core.holds_lease(at(1_000 + COUNTED)), "two others are");
        assert!(!core.holds_lease(at(1_001 + COUNTED)), "however late their promises came");
        core.lease_promised((3, 0), ballot, second, at(1_030));
        assert!(
            core.holds_lease(at(1_010 + COUNTED)),
            "the earlier promise is not needed any more"
        );
        core.lease_promised((4, 0), Ballot::new(9, 0, 0), second, at(1_030));
        core.lease_promised((4, 0), ballot, 77, at(1_030));
        assert!(!core.holds_lease(at(1_011 + COUNTED)), "what was not asked counts for nothing");
        core.promise(Ballot::new(7, 1, 0));
        assert!(!core.holds_lease(at(1_010)), "who leads no more holds nothing");
    }

    #[test]
    fn a_lease_ends_at_its_end_and_is_renewed_from_its_half_on() {
        let mut core = leader(3);
        let ballot = core.ballot();
        let number = core.ask_for_lease(at(1_000)).expect("it was never asked");
        core.lease_promised((1, 0), ballot, number, at(1_001));
        assert!(core.holds_lease(at(999 + COUNTED)) && core.holds_lease(at(1_000 + COUNTED)));
        let (end, instant) = (at(1_000) + core.counted_on(), Duration::from_nanos(1));
        let before = |at: Duration| at.saturating_sub(instant);
        assert!(!core.holds_lease(end) && core.holds_lease(before(end)));
        let half = end.saturating_sub(Duration::from_millis(LEASE) / RENEW_AT);
        assert_eq!(core.ask_for_lease(before(half)), None, "it is fresh");
        assert!(core.ask_for_lease(half).is_some());
    }

    #[test]
    fn the_first_questions_are_forgotten_first_and_a_later_promise_counts() {
        let mut core = leader(3);
        let ballot = core.ballot();
        let asked: Vec<_> = (0..=ASKED_MAX as u64)
            .map(|i| core.ask_for_lease(at(1_000 + 10 * i)).expect("nobody has promised"))
            .collect();
        core.lease_promised((1, 0), ballot, asked[0], at(1_400));
        assert_eq!(core.lease_until(), None, "that one is forgotten");
        let until = |i: u64| Some(at(1_000 + 10 * i) + counted());
        core.lease_promised((1, 0), ballot, asked[1], at(1_400));
        assert_eq!(core.lease_until(), until(1));
        core.lease_promised((1, 0), ballot, asked[ASKED_MAX], at(1_400));
        assert_eq!(core.lease_until(), until(ASKED_MAX as u64), "the newest is known");
        core.lease_promised((1, 0), ballot, asked[2], at(1_400));
        assert_eq!(
            core.lease_until(),
            until(ASKED_MAX as u64),
            "an earlier one takes nothing back"
        );
    }

    /// What a leader counts on, to the nanosecond.
    fn counted() -> Duration {
        leader(3).counted_on()
    }

    #[test]
    fn nobody_holds_a_lease_before_the_first_entry_of_its_ballot_is_committed() {
        let mut core = replica(0, 3);
        let ballot = core.campaign(Cause::Start);
        core.granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
        core.lead(&mut Vec::new());
        let number = core.ask_for_lease(at(1_000)).expect("it was never asked");
        core.lease_promised((1, 0), ballot, number, at(1_001));
        assert!(!core.holds_lease(at(1_002)), "what was answered before may be in another log");
        let by = ReplicaId::new(GroupId(0), 1);
        let acceptance = Acceptance { tag: ballot.tag(), index: core.last_index() };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        assert!(core.holds_lease(at(1_002)));
    }

    #[test]
    fn a_leader_that_is_elected_anew_counts_on_no_question_of_its_former_ballot() {
        let mut core = leader(3);
        let number = core.ask_for_lease(at(1_000)).expect("it was never asked");
        core.step(Event::Denied, &mut Vec::new());
        let ballot = core.campaign(Cause::Silence);
        core.granted(1, 0, (core.last_birth(), core.last_index()), vec![0; 3]);
        core.lead(&mut Vec::new());
        let by = ReplicaId::new(GroupId(0), 1);
        let acceptance = Acceptance { tag: ballot.tag(), index: core.last_index() };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        core.lease_promised((1, 0), ballot, number, at(1_002));
        assert!(!core.holds_lease(at(1_002)), "another may have led in between");
    }

    #[test]
    fn a_promise_is_to_one_life_of_a_slot_and_to_the_ballot_that_is_followed() {
        let (mut core, ballot) = follower();
        assert!(core.promise_lease(ballot, at(1_000)));
        assert_eq!(core.judge(Ballot::new(2, 0, 7), false, true), Verdict::Wait, "its next life");
        assert_eq!(core.judge(Ballot::new(3, 0, 0), false, true), Verdict::Grant, "the same one");
        let mut granted = replica(1, 3);
        granted.promise(ballot);
        assert!(!granted.promise_lease(ballot, at(1_000)), "nothing of that leader is read yet");
        granted.follow(ballot, 0, 1);
        assert!(granted.promise_lease(ballot, at(1_000)));
    }

    #[test]
    fn who_begins_anew_is_bound_for_a_whole_lease() {
        let mut anew = replica(2, 3);
        anew.resume_time(1_000);
        anew.step(Event::Tick { now_ms: 1_000 + LEASE }, &mut Vec::new());
        assert!(anew.is_bound());
        anew.step(Event::Tick { now_ms: 1_001 + LEASE }, &mut Vec::new());
        assert!(!anew.is_bound());
    }

    #[test]
    fn a_promise_of_a_life_that_is_over_counts_for_nothing() {
        let mut core = leader(3);
        let number = core.ask_for_lease(at(1_000)).expect("it was never asked");
        core.lease_promised((1, 0), core.ballot(), number, at(1_001));
        assert!(core.holds_lease(at(1_002)));
        core.join(1, 1_024, &mut Vec::new());
        assert!(!core.holds_lease(at(1_002)), "from when its successor may be let in");
        core.lease_promised((1, 1_024), core.ballot(), number, at(1_003));
        assert!(core.holds_lease(at(1_004)));
    }

    #[test]
    fn who_has_promised_supports_nobody_else_until_it_is_over() {
        let (mut core, ballot) = follower();
        let other = Ballot::new(2, 2, 0);
        assert!(core.promise_lease(ballot, at(1_000)));
        assert!(core.is_bound());
        assert_eq!(core.judge(other, false, true), Verdict::Wait);
        assert!(!core.promise_lease(ballot, at(1_001)), "somebody waits for it to be over");
        assert_eq!(
            core.judge(Ballot::new(3, 0, 0), false, true),
            Verdict::Grant,
            "to the same one"
        );
        assert_eq!(core.judge(other, true, false), Verdict::Grant, "who is elected already");
        core.step(Event::Tick { now_ms: 1_000 + LEASE }, &mut Vec::new());
        assert_eq!(core.judge(other, false, true), Verdict::Wait);
        core.step(Event::Tick { now_ms: 1_001 + LEASE }, &mut Vec::new());
        assert_eq!(core.judge(other, false, true), Verdict::Grant);
    }

    #[test]
    fn nothing_is_owed_to_who_is_known_to_be_dead_and_everything_by_who_begins_anew() {
        let (mut core, ballot) = follower();
        assert!(core.promise_lease(ballot, at(1_000)));
        let blank = core.blank(core.config);
        assert!(blank.is_bound(), "the life is the same");
        core.leader_has_died();
        assert!(!core.is_bound());
        let mut anew = replica(2, 3);
        anew.resume_time(1_000);
        assert!(anew.is_bound(), "its former self may have promised anything");
    }

    #[test]
    fn a_lease_is_of_one_ballot() {
        let mut core = leader(3);
        let number = core.ask_for_lease(at(1_000)).expect("it was never asked");
        core.lease_promised((1, 0), core.ballot(), number, at(1_001));
        assert!(core.holds_lease(at(1_002)));
        core.step(Event::Denied, &mut Vec::new());
        let ballot = core.campaign(Cause::Silence);
        core.granted(0, 0, (core.last_birth(), core.last_index()), vec![0; 3]);
        core.granted(1, 0, (core.last_birth(), core.last_index()), vec![0; 3]);
        core.lead(&mut Vec::new());
        let acceptance = Acceptance { tag: ballot.tag(), index: core.last_index() };
        let by = ReplicaId::new(GroupId(0), 1);
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(core.commit_index(), core.last_index());
        assert!(!core.holds_lease(at(1_002)), "who has promised may have let another lead since");
    }

    #[test]
    fn a_read_waits_for_what_others_may_have_delivered() {
        let mut core = leader(3);
        let receive = |core: &mut Ramcast, sequence, destinations| {
            let message = MessageId::new(SessionId(1), sequence);
            let (low_water, inline) = (1, true);
            let event = Event::Received { message, low_water, destinations, inline };
            core.step(event, &mut Vec::new());
        };
        receive(&mut core, 1, GroupSet::first(1));
        let from = core.read_from();
        assert!(core.has_caught_up(from), "nobody but us answers that");
        receive(&mut core, 2, GroupSet::first(2));
        let from = core.read_from();
        assert!(!core.has_caught_up(from), "the other group may have delivered it");
    }

    #[test]
    fn a_read_waits_for_what_may_end_at_the_clock_it_came_at() {
        let mut core = leader(3);
        let before = core.read_from();
        let (message, destinations) = (MessageId::new(SessionId(1), 1), GroupSet::first(2));
        let event = Event::Received { message, low_water: 1, destinations, inline: true };
        core.step(event, &mut Vec::new());
        let after = core.read_from();
        let by = ReplicaId::new(GroupId(0), 1);
        let acceptance = Acceptance { tag: core.ballot().tag(), index: core.last_index() };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!((core.commit_index(), core.deliver()), (core.last_index(), None));
        assert!(
            !core.has_caught_up(after),
            "its proposal has that very clock, and it may end there"
        );
        assert!(core.has_caught_up(before), "it cannot end at the clock of an earlier read");
    }

    #[test]
    fn a_read_waits_for_all_that_was_logged_with_others_when_it_came() {
        let mut core = leader(3);
        let theirs = Announcement {
            message: MessageId::new(SessionId(1), 1),
            low_water: 1,
            destinations: GroupSet::first(2),
            timestamp: Timestamp::new(7, GroupId(1)),
            ballot: Ballot::new(1, 0, 0),
            index: 2,
            again: None,
        };
        let (message, destinations) = (theirs.message, theirs.destinations);
        let received = Event::Received { message, low_water: 1, destinations, inline: true };
        core.step(received, &mut Vec::new());
        let announced =
            Event::Announced { from: ReplicaId::new(GroupId(1), 0), announcement: theirs };
        core.step(announced, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        let (clock, shared) = core.read_from();
        assert_eq!(
            (clock, shared),
            (7, core.last_index()),
            "its last entry is of another's proposal"
        );
        let by = ReplicaId::new(GroupId(0), 1);
        let acceptance = Acceptance { tag: core.ballot().tag(), index: shared - 1 };
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(core.commit_index(), shared - 1);
        assert!(!core.has_caught_up((0, shared)) && core.has_caught_up((0, shared - 1)));
    }

    #[test]
    fn who_is_not_let_in_promises_nothing() {
        let mut leader = leader(3);
        let mut state = Vec::new();
        leader.save(&mut state);
        for life in [0, 1_024] {
            let mut core = replica(1, 3);
            let config = Config { incarnation: life, ..core.config };
            core = core.blank(config);
            core.restore(&state).expect("what was saved");
            core.follow(leader.ballot(), core.last_index(), leader.first_index());
            assert_eq!(core.promise_lease(leader.ballot(), at(1_000)), life == 0);
        }
    }

    #[test]
    fn only_the_leader_that_is_followed_and_seems_well_is_promised_anything() {
        let (mut core, ballot) = follower();
        assert!(!core.promise_lease(Ballot::new(2, 2, 0), at(1_000)));
        for _ in 0..2_000 {
            core.step(
                Event::Heartbeat { slot: 0, pulse: crate::detector::Pulse::Missed },
                &mut Vec::new(),
            );
        }
        assert!(!core.promise_lease(ballot, at(1_000)), "or it would be let lead for ever");
    }
}
