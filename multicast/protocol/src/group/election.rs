//! Leader change: who may set out to lead, who grants, and which log a new leader adopts.
//!
//! **Invariant (promise).** A replica grants a ballot only if it is above every ballot that it has granted, and its
//! memory is closed to the old leader before it reports what its log contains. An entry that was committed in an
//! earlier ballot is held by f+1 replicas. So at least one of the f+1 logs that a candidate receives reports of
//! contains it, and the log with the highest (birth of the last entry, length) contains all such entries.
//!
//! **Invariant (memory).** A grant counts only if the adopted log's view contains the granting incarnation. A replica
//! that lost its memory may have promised, or held, anything before. An incarnation grants nothing before its `Join` is
//! committed.
//!
//! *How a replica learns that its `Join` is committed.* By folding it, or before that from a candidate that has. So a
//! candidate sends the incarnations of its committed view, and a replica with a state that finds its own among them
//! grants, whatever it has read. Its grant is as good as any other. Let `Join(s, i)` be committed at index j. An entry
//! up to j is held by every replica that holds the `Join`: f+1 slots other than s. An entry behind j was logged when
//! the former incarnation of s was gone, and i has acknowledged nothing yet: so it is held by f+1 slots other than s as
//! well. Of f+1 granters, at least f are in slots other than s, so one of them holds the entry. The report of s itself
//! need not contain it. For the same reason a promise of the former incarnation elects no candidate any more: a
//! candidate with such a grant adopts a log with the `Join`, whose view does not contain that incarnation.
//!
//! This follows the design of protected-memory Paxos in Mu (OSDI '20, section 4), with quorums instead of all replicas,
//! ballots that no two candidates share, and a log whose entries keep their birth.

use alloc::vec;
use alloc::vec::Vec;

use super::cold_start::ColdStart;
use super::record::{GroupRecord, LogRecord};
use super::spread::TRANSFER_TIMEOUTS;
use super::{GroupConfig, GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::ids::ReplicaId;
use crate::mutants::{Mutant, planted};
use crate::view::View;

/// Bound on the doublings of a wait after failed ballots.
const DOUBLINGS_MAX: u32 = 3;

/// Why a replica set out to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The group never had a leader.
    Start,
    /// The leader's process has ended.
    Death,
    /// The leader's heartbeats stopped, or another replica's candidacy led to nothing.
    Silence,
    Operator,
    /// The leader asked for it: it lags, or hands over so that leaders spread.
    Transfer,
    /// A member has promised a higher ballot, and accepts none of our writes.
    Preempted,
}

/// The answer to a replica that asks for a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantDecision {
    /// Close our log to all others, promise, and report.
    Grant,
    /// It is our leader already, and lost its connection: let it write again, and report.
    GrantAgain,
    /// Our promise is higher, or our leader is well.
    Refuse,
    /// This replica does not count, or leads in that ballot itself, or the promise is on its way to the disk.
    Ignore,
    /// We have promised a lease to another leader: the candidate must ask again.
    Wait,
}

/// The report that comes with a grant.
#[derive(Clone, Debug)]
struct Grant {
    incarnation: u32,
    last: (Ballot, u64),
    /// The incarnations in its log's view, by slot.
    named: Vec<u32>,
}

/// A candidacy in one ballot.
pub(super) struct Campaign {
    pub(super) ballot: Ballot,
    pub(super) cause: Cause,
    /// Time at which it is given up.
    pub(super) until_ms: u64,
    grants: Vec<Option<Grant>>,
    /// Whether even a leader that seems well is to be replaced.
    pub(super) forced: bool,
    /// The commit index when we set out: granters may not have learned of a `Join` behind it.
    pub(super) commit: u64,
}

/// What a replica has promised, and its own candidacy.
///
/// **Invariants.** `heard >= promised.counter()`. While there is a `campaign`, `campaign.ballot == promised`.
pub(crate) struct Election {
    /// The highest ballot that we have granted: no replica with a lower one may write our log.
    pub(super) promised: Ballot,
    /// The highest ballot counter of our group that is known here.
    pub(super) heard: u32,
    pub(super) campaign: Option<Campaign>,
    /// The lowest ballot whose candidate or leader has our incarnation in its committed view: our `Join` is committed
    /// in its log, although we may not have folded it.
    pub(super) admitted_below: Option<Ballot>,
    /// Time at which the leader was seen to have restarted without its state.
    pub(super) replaced_ms: Option<u64>,
    /// Time of our last promise.
    pub(super) promised_ms: u64,
    /// Time from which we may set out to lead again, after a candidacy led to nothing.
    pub(super) retry_ms: u64,
    /// The cause for which we would set out to lead if we had not promised our leader a lease.
    pub(super) put_off: Option<Cause>,
    /// Time at which we last asked for grants.
    pub(super) asked_ms: Option<u64>,
    /// Time at which we last sent a grant.
    pub(super) granted_ms: u64,
    /// Number of ballots that we have promised since we last had a leader.
    pub(super) failed_ballots: u32,
    pub(super) cold_start: ColdStart,
}

impl Election {
    /// Nothing is promised. Except for the replica that is to be the first leader, no replica sets out before
    /// `retry_ms`.
    pub(super) const fn new(retry_ms: u64) -> Self {
        Self {
            promised: Ballot::ZERO,
            heard: 0,
            campaign: None,
            admitted_below: None,
            replaced_ms: None,
            promised_ms: 0,
            retry_ms,
            put_off: None,
            asked_ms: None,
            granted_ms: 0,
            failed_ballots: 0,
            cold_start: ColdStart::new(),
        }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Begins a recreated group above a ballot counter.
    pub(crate) fn begin_above(&mut self, counter: u32) {
        self.election.heard = counter;
    }

    /// Sets out to lead, in a ballot above all that are known here. Before this, our own memory must be closed to the
    /// old leader and read to its end, and we must have stopped leading.
    ///
    /// # Panics
    /// If [no ballot is left](Self::has_ballots_left).
    pub(crate) fn campaign(&mut self, cause: Cause) -> Ballot {
        self.progress.forget_granted();
        self.election.asked_ms = None;
        let counter = Ballot::next_attempt(self.ballot_counter()).expect("a ballot is left");
        let GroupConfig { me, incarnation, began_as, .. } = self.config;
        let process = if planted(Mutant::BallotsOfFormerProcess) { incarnation } else { began_as };
        let ballot = Ballot::new(counter, me.slot, process);
        self.promise(ballot);
        let mut grants = vec![None; usize::from(self.config.replicas)];
        grants[usize::from(self.config.me.slot)] = Some(Grant {
            incarnation: self.config.incarnation,
            last: (self.last_birth(), self.entries.last),
            named: self.named(),
        });
        self.election.retry_ms = self.after(2 + u64::from(self.config.me.slot));
        let forced = matches!(cause, Cause::Operator | Cause::Transfer | Cause::Preempted);
        let until_ms = self.now_ms + self.config.timeout_ms;
        let commit = self.entries.commit;
        self.election.campaign = Some(Campaign { ballot, cause, until_ms, grants, forced, commit });
        self.election.cold_start.stands(self.now_ms);
        self.spread.set_out(cause);
        self.role = Role::Candidate;
        self.paths.campaigns += 1;
        ballot
    }

    /// Grants `ballot`: from here on no replica with a lower one may write our log. The caller has ensured that, and
    /// has reported everything that the log contains; and we have stopped leading.
    pub(crate) fn promise(&mut self, ballot: Ballot) {
        let rises = guard!(Mutant::GrantOfLowerBallot, ballot > self.election.promised);
        assert!(rises, "a promise is never taken back");
        self.role = Role::Follower;
        self.election.campaign = None;
        self.durable.forget_awaited();
        self.election.replaced_ms = None;
        self.election.promised_ms = self.now_ms;
        self.election.promised = ballot;
        self.election.heard = self.election.heard.max(ballot.counter());
        self.election.failed_ballots += 1;
        self.election.retry_ms = self.stands_back() + self.election.cold_start.stands_back_ms();
        self.transfer.sender.pause();
        self.paths.promised += 1;
    }

    /// We begin with what our disk held. A leader that ended does not resume, so somebody must stand for election, and
    /// nobody waits as long for that as a group that never had a leader.
    pub(crate) fn replayed(&mut self) {
        self.election.cold_start.begin(self.now_ms);
        if self.election.promised != Ballot::ZERO {
            let retry_ms = self.after(2 + u64::from(self.config.me.slot));
            self.election.retry_ms = self.election.retry_ms.min(retry_ms);
        }
    }

    /// The replica that we granted can write our log now. A leader is sent the end of our log again, and reports again
    /// if its own does not reach back to there.
    pub(crate) fn opened(&mut self) {
        self.lags_no_more();
        self.election.granted_ms = self.now_ms;
    }

    /// Stops leading: what we did not see committed is not ours to commit.
    pub(crate) fn step_down(&mut self) {
        self.role = Role::Follower;
        self.lease.clear();
        // A late grant must not elect us twice in one ballot.
        if !planted(Mutant::LateGrantElects) {
            self.election.campaign = None;
        }
        self.paths.stepped_down += 1;
        self.payloads.kept.retain(|large| large.delivered);
        self.members.changing = 0;
        self.followers.progress.fill(None);
        self.election.retry_ms = self.now_ms + 4 * self.config.timeout_ms;
    }

    /// As the survivor of a group that is recreated: our log, which is all committed, continues in the ballot `marker`,
    /// in a group with this view. We have promised the marker.
    pub(crate) fn revive(&mut self, marker: Ballot, view: View) {
        self.payloads.stalled = None;
        self.entries.ballot = marker;
        self.entries.first = u64::MAX;
        self.members.declare(view);
        self.suspended = false;
        self.seeded = Some(0);
        self.forget_put_off();
        self.paths.revived += 1;
        // Former incarnations may have applied more than those that take our state.
        for slot in self.others() {
            self.progress.forget(slot);
        }
    }

    /// As any other replica of a group that is recreated: our state does not count until we have taken the survivor's.
    /// A replica with a state has promised the marker.
    pub(crate) fn suspend(&mut self, marker: Ballot) {
        if self.role == Role::Blank {
            self.election.promised = self.election.promised.max(marker);
            self.election.heard = self.election.heard.max(marker.counter());
        } else {
            self.suspended = true;
        }
        self.seeded = None;
        self.forget_put_off();
    }

    /// An incarnation of a slot asks for a state, and has none if `stateless`, or asks to be admitted. If an earlier
    /// incarnation of that slot leads us, or was granted, it is dead, whatever the slot's heartbeats show.
    pub(super) fn saw_learner(&mut self, slot: u8, incarnation: u32, stateless: bool) {
        if stateless {
            self.election.cold_start.saw_blank(slot);
        }
        let leads = slot == self.election.promised.slot() && slot != self.config.me.slot;
        if leads
            && incarnation > self.election.promised.incarnation()
            && self.election.replaced_ms.is_none()
        {
            self.election.replaced_ms = Some(self.now_ms);
            self.paths.leader_replaced += 1;
        }
    }

    /// Whether the slot has granted our ballot.
    pub(super) fn has_grant_of(&self, slot: u8) -> bool {
        let campaign = self.election.campaign.as_ref();
        campaign.is_some_and(|campaign| campaign.grants[usize::from(slot)].is_some())
    }

    /// The answer to a request for a grant of `ballot`. `leads` says that the sender is elected, and only wants to
    /// write our log; `forced`, that even a leader that is well must be given up.
    pub(crate) fn judge(&mut self, ballot: Ballot, leads: bool, forced: bool) -> GrantDecision {
        self.hear_of(ballot);
        let told = !planted(Mutant::JoinUnseenIsNone) && self.election.admitted_below.is_some();
        let speaks = leads || told || !self.is_silent();
        let counts = self.role != Role::Blank && !self.suspended && speaks;
        if !guard!(Mutant::AmnesiacGrants, counts) {
            return GrantDecision::Ignore;
        }
        if ballot == self.election.promised {
            // A candidate's request is repeated, or a leader reconnects. An elected leader makes progress, even if we
            // see that late.
            if leads && !self.leads() {
                self.election.retry_ms = self.election.retry_ms.max(self.stands_back());
            }
            let told = self.is_promise_durable() && !self.leads();
            return if told { GrantDecision::GrantAgain } else { GrantDecision::Ignore };
        }
        if !guard!(Mutant::GrantOfLowerBallot, ballot > self.election.promised) {
            self.paths.refused_lower += 1;
            return GrantDecision::Refuse;
        }
        let leader = self.election.promised.slot();
        let has_live_leader = self.leads() && self.has_quorum_alive()
            || self.role == Role::Follower
                && self.election.promised == self.ballot()
                && self.election.promised != Ballot::ZERO
                && leader != self.config.me.slot
                && leader != ballot.slot()
                && self.election.replaced_ms.is_none()
                && !self.election.cold_start.is_leaderless()
                && !self.detector.suspects(leader);
        if has_live_leader && !leads && !forced {
            self.paths.refused_content += 1;
            return GrantDecision::Refuse;
        }
        // An elected leader has the grants of f+1 replicas that were not bound.
        if !leads && self.is_bound_against(ballot) {
            self.paths.grant_put_off += 1;
            self.stop_promising();
            return GrantDecision::Wait;
        }
        GrantDecision::Grant
    }

    /// The sender of a request in `ballot` has folded our `Join`: it is committed, whether we have read that or not.
    /// This remains true.
    pub(crate) fn hear_admitted(&mut self, ballot: Ballot) {
        let lowest = self.election.admitted_below.map_or(ballot, |known| known.min(ballot));
        self.election.admitted_below = Some(lowest);
    }

    /// Whether we know that our group has admitted us, although we may not have folded our `Join`.
    pub(crate) fn is_admitted(&self) -> bool {
        let GroupConfig { me, incarnation, .. } = self.config;
        self.election.admitted_below.is_some() || self.members.view.names(me.slot, incarnation)
    }

    /// Whether, by their heartbeats, f others are alive.
    pub(crate) fn has_quorum_alive(&self) -> bool {
        let alive = self.others().filter(|slot| !self.detector.suspects(*slot)).count();
        alive + 1 >= self.quorum()
    }

    /// Time until which a replica that we granted must have begun to lead.
    fn stands_back(&self) -> u64 {
        self.after(4 * (2 + u64::from(self.config.me.slot)))
    }

    /// We are receiving the state of the leader whose header we wait for. Until then it is well, and it would have to
    /// begin again if we led.
    pub(super) fn stand_back_until(&mut self, until_ms: u64) {
        self.election.retry_ms = self.election.retry_ms.max(until_ms);
    }

    /// A late tick has kept us from reading what arrived in the meantime: the replica that we granted has not had the
    /// time that has passed.
    pub(super) fn wait_for_late(&mut self, now_ms: u64) {
        let late = now_ms.saturating_sub(self.now_ms + self.config.timeout_ms);
        if late > 0 && self.now_ms > 0 {
            self.election.retry_ms = self.election.retry_ms.saturating_add(late);
            if let Some(campaign) = &mut self.election.campaign {
                campaign.until_ms += late;
            }
        }
        if self.now_ms > 0 {
            let passed = now_ms.saturating_sub(self.now_ms);
            self.election.cold_start.postpone(passed, self.config.beat_ms);
        }
    }

    /// Time after so many timeouts. They are doubled, within bounds, for each ballot that led to nothing: where
    /// elections take long, candidates that do not wait for each other would preempt each other for ever.
    fn after(&self, timeouts: u64) -> u64 {
        let doublings = self.election.failed_ballots.saturating_sub(1).min(DOUBLINGS_MAX);
        self.now_ms + (timeouts << doublings) * self.config.timeout_ms
    }

    /// Records that another replica has a ballot of our group. A ballot with our own counter and a higher slot is above
    /// ours, too.
    pub(crate) fn hear_of(&mut self, ballot: Ballot) {
        self.election.heard = self.election.heard.max(ballot.counter());
        if matches!(self.role, Role::Leader | Role::Candidate) && ballot > self.election.promised {
            let promised = self.election.promised.counter();
            self.election.heard =
                self.election.heard.max(Ballot::next_attempt(promised).unwrap_or(promised));
        }
    }

    /// A replica has granted our ballot and reports the end of its log, and the incarnations in its view. Returns the
    /// slot whose log is to be adopted, once f+1 incarnations that count have granted.
    pub(crate) fn granted(
        &mut self,
        slot: u8,
        incarnation: u32,
        last: (Ballot, u64),
        named: Vec<u32>,
    ) -> Option<u8> {
        let campaign = self.election.campaign.as_mut()?;
        campaign.grants[usize::from(slot)] = Some(Grant { incarnation, last, named });
        self.elected()
    }

    /// As candidate: the slot whose log is to be adopted, once f+1 incarnations that count have granted.
    pub(super) fn elected(&mut self) -> Option<u8> {
        let (quorum, me) = (self.quorum(), self.config.me.slot);
        let campaign = self.election.campaign.as_ref()?;
        let grants =
            || campaign.grants.iter().enumerate().filter_map(|(i, g)| Some((i, g.as_ref()?)));
        // Prefer our own log, so that nothing is copied when it is as good as another.
        let own = campaign.grants[usize::from(me)].as_ref().expect("made when we set out").last;
        let good = |(i, grant): &(usize, &Grant)| {
            let (mut birth, len) = grant.last;
            if planted(Mutant::LongestLogAdopted) {
                birth = Ballot::ZERO;
            }
            let own = *i == usize::from(me);
            (planted(Mutant::OwnLogAdopted) && own, birth, len, own)
        };
        let (best, grant) = grants().max_by_key(good)?;
        let counts = |i: usize, of: &Grant| {
            guard!(Mutant::AmnesiacGrants, grant.named.get(i) == Some(&of.incarnation))
        };
        let counted = grants().filter(|(i, of)| counts(*i, of)).count();
        self.paths.grant_not_counted += u64::from(counted < grants().count());
        let all = planted(Mutant::LeadOnlyWithAll).then_some(campaign.grants.len());
        if !guard!(Mutant::LeadWithoutQuorum, counted >= all.unwrap_or(quorum)) {
            return None;
        }
        let granted = grants().fold(0, |slots, (i, _)| slots | 1 << i);
        let (adopts_other, last) = (grant.last != own, grant.last);
        let short = self.are_short(granted, last);
        let (now_ms, replicas) = (self.now_ms, self.config.replicas);
        if self.election.cold_start.awaits_others(now_ms, replicas, granted, short) {
            return None;
        }
        self.paths.adopted_other += u64::from(adopts_other);
        Some(best as u8)
    }

    /// Whether one of the slots that granted, as bits, has held more of the ballot in which we log than the best of their logs
    /// has, whose last entry has this birth and index: an older disk was put back. A log that has entries of a later ballot may
    /// be shorter.
    fn are_short(&self, granted: u16, (birth, last): (Ballot, u64)) -> bool {
        let mut slots = (0..self.config.replicas).filter(|slot| granted >> slot & 1 == 1);
        self.config.durable
            && birth <= self.entries.ballot
            && slots.any(|slot| self.once_accepted(slot) > last)
    }

    /// Whether we need not wait any longer for [all members](super::cold_start), which is told once.
    pub(super) fn waited_long_enough(&mut self) -> bool {
        self.election.cold_start.watch(self.now_ms)
    }

    /// Whether our incarnation is in the view that `slot` has reported.
    pub(super) fn is_named_by(&self, slot: u8) -> bool {
        let grant =
            self.election.campaign.as_ref().and_then(|c| c.grants[usize::from(slot)].as_ref());
        grant.is_some_and(|grant| {
            grant.named.get(usize::from(self.config.me.slot)) == Some(&self.config.incarnation)
        })
    }

    /// The admitted incarnations, by slot, in the view that is committed here.
    pub fn admitted(&self) -> Vec<u32> {
        self.members.view.members().iter().map(|member| member.incarnation).collect()
    }

    /// The incarnations in the view at the end of our log, by slot.
    pub fn named(&self) -> Vec<u32> {
        self.view_at_end().members().iter().map(|member| member.incarnation).collect()
    }

    /// The view at the end of our log: the committed one, with all changes that are not committed.
    pub fn view_at_end(&self) -> View {
        let mut view = self.members.view.clone();
        for entry in self.entries.uncommitted.iter() {
            match entry.record.of_group() {
                Some(GroupRecord::Join { slot, incarnation }) => view.join(slot, incarnation),
                Some(GroupRecord::Evict { slot }) => view.evict(slot),
                _ => {}
            }
        }
        view
    }

    /// Index of our ballot's first entry.
    pub const fn first_index(&self) -> u64 {
        self.entries.first
    }

    /// The cause of our candidacy, if we lead and our first entry is committed.
    pub fn won(&self) -> Option<Cause> {
        let campaign = self.election.campaign.as_ref().filter(|_| self.leads())?;
        (self.entries.commit >= self.entries.first).then_some(campaign.cause)
    }

    /// The replica that leads us, or that we granted, if there is one.
    pub fn leader(&self) -> Option<ReplicaId> {
        let known =
            self.election.promised != Ballot::ZERO && self.election.promised == self.ballot();
        let deposed = self.election.promised.slot() == self.config.me.slot && !self.leads();
        (known && !deposed)
            .then(|| ReplicaId::new(self.config.me.group, self.election.promised.slot()))
    }

    /// Whether fewer than f others have received our state: no quorum could elect us yet.
    pub(super) fn is_still_seeding(&self) -> bool {
        self.seeded.is_some_and(|seeded| (seeded.count_ones() as usize) + 1 < self.quorum())
    }

    /// As the survivor, until a replica leads: whether we send our state to a slot's incarnation.
    pub(super) fn seeds(&self, slot: u8, incarnation: u32) -> bool {
        self.seeded.is_some() && self.members.view.names(slot, incarnation)
    }

    /// As the survivor: a slot has received our state.
    pub(super) fn has_seeded(&mut self, slot: u8) {
        if let Some(seeded) = &mut self.seeded {
            *seeded |= 1 << slot;
        }
    }

    /// Whether our state does not count until we have taken another replica's.
    pub const fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Whether we have led for so long that every replica that can deliver more has reported so.
    pub(crate) fn has_led_for_long(&self) -> bool {
        let until_ms = self.election.campaign.as_ref().map_or(0, |campaign| campaign.until_ms);
        self.now_ms >= until_ms + TRANSFER_TIMEOUTS * self.config.timeout_ms
    }
}
