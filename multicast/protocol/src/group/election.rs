//! Leader change: who may set out to lead, who lets whom, and what a new leader takes over.
//!
//! **Invariant (promise).** A replica grants a ballot only if it is above every ballot it has granted,
//! and its memory is closed to the old leader before it reports what its log holds. So what was
//! committed in an earlier ballot, which f+1 replicas hold, is in at least one of the f+1 logs that
//! a candidate hears of, and the log with the highest (birth of the last entry, length) holds all
//! of it.
//!
//! **Invariant (memory).** A grant counts only from an incarnation that the adopted log's view names: one
//! that lost its memory may have promised, or held, anything before. And an incarnation grants nothing
//! before its `Join` is committed.
//!
//! *Who knows that a `Join` is committed.* The replica itself, when it has folded it; and before that any
//! candidate that has. So a candidate sends the incarnations of its committed view, and a replica with a state
//! that finds its own among them grants, whatever it has read. Its grant is as good as any other. Let `Join(s, i)`
//! be committed at index j. An entry up to j is held by whoever holds the `Join`: f+1 slots other than s. An
//! entry behind j was logged when the former incarnation of s was gone, and i has acknowledged nothing yet: it
//! is held by f+1 slots other than s as well. Of f+1 granters, f at least are other slots than s, so one of
//! them holds the entry. What s itself reports need not. For the same reason no promise of the former
//! incarnation elects anybody any more: whoever was granted it adopts a log with the `Join`, which does not
//! name that incarnation.
//!
//! Follows the design of protected-memory Paxos in Mu (OSDI '20, section 4), with quorums instead of
//! everybody, ballots that no two candidates share, and a log whose entries keep their birth.

use alloc::vec;
use alloc::vec::Vec;

use super::record::{GroupRecord, LogRecord};
use super::spread::TRANSFER_TIMEOUTS;
use super::{GroupConfig, GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::ids::ReplicaId;
use crate::mutants::{Mutant, planted};
use crate::view::View;

/// How often the wait for somebody who was let lead is doubled when nothing comes of it.
const DOUBLINGS_MAX: u32 = 3;

/// Why a replica set out to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The group had no leader yet.
    Start,
    /// The leader's process has ended.
    Death,
    /// The leader's heartbeats stopped, or nothing came of somebody's candidacy.
    Silence,
    /// An operator asked for it.
    Operator,
    /// The leader asked for it: it is left behind, or hands over so that leaders spread.
    Transfer,
    /// A member has promised itself to a higher ballot, and takes nothing of ours.
    Preempted,
}

/// What to answer a replica that asks for permission to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantDecision {
    /// Close our log to everybody else, promise, and report.
    Grant,
    /// It is our leader already, and lost its connection: let it write again, and report.
    GrantAgain,
    /// Our promise is higher, or our leader is well.
    Refuse,
    /// We count for nothing, or it does.
    Ignore,
    /// Another leader may hold a lease that we have promised: it shall ask again.
    Wait,
}

/// What a replica reports with its grant.
#[derive(Clone, Debug)]
struct Grant {
    incarnation: u32,
    last: (Ballot, u64),
    /// The incarnations that its log's view names, by slot.
    named: Vec<u32>,
}

/// An attempt at leading.
pub(super) struct Campaign {
    pub(super) ballot: Ballot,
    pub(super) cause: Cause,
    /// When it is given up.
    pub(super) until_ms: u64,
    grants: Vec<Option<Grant>>,
    /// Whether a leader that seems well is to be replaced all the same.
    pub(super) forced: bool,
    /// What was committed when we set out: who grants may not have heard of a `Join` behind it.
    pub(super) commit: u64,
}

/// What a replica has promised, and its own candidacy.
///
/// **Invariants.** `heard >= promised.counter()`. While there is a `campaign`, `campaign.ballot == promised`.
pub(crate) struct Election {
    /// The highest ballot that we have granted: nobody below it may write our log.
    pub(super) promised: Ballot,
    /// The highest ballot counter that we have heard of in our group.
    pub(super) heard: u32,
    pub(super) campaign: Option<Campaign>,
    /// The lowest ballot of whose candidate, or leader, we know that its committed view contains our incarnation:
    /// our `Join` is committed in its log, though we may not have folded it.
    pub(super) admitted_below: Option<Ballot>,
    /// Time at which the leader was seen to have restarted without its state.
    pub(super) replaced_ms: Option<u64>,
    /// When we made our last promise.
    pub(super) promised_ms: u64,
    /// When we may set out to lead again, after that came to nothing.
    pub(super) retry_ms: u64,
    /// Why we would set out to lead if we had not promised our leader not to.
    pub(super) put_off: Option<Cause>,
    /// When we last asked for grants.
    pub(super) asked_ms: Option<u64>,
    /// When we last told a replica that it may write our log.
    pub(super) granted_ms: u64,
    /// Ballots that we have promised ourselves to since we last knew a leader.
    pub(super) failed_ballots: u32,
}

impl Election {
    /// Nothing is promised. Nobody sets out to lead before `retry_ms` who is not to be the first.
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
        }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Our group begins anew above a ballot counter.
    pub(crate) fn begin_above(&mut self, counter: u32) {
        self.election.heard = counter;
    }

    /// Sets out to lead, in a ballot above all we have heard of. Our own memory must be closed to the
    /// old leader, and read to its end, before, and we lead no more.
    ///
    /// # Panics
    /// If [no ballot is left](Self::has_ballots_left).
    pub(crate) fn campaign(&mut self, cause: Cause) -> Ballot {
        self.progress.forget_granted();
        self.election.asked_ms = None;
        let counter = Ballot::next_attempt(self.ballot_counter()).expect("a ballot is left");
        let ballot = Ballot::new(counter, self.config.me.slot, self.config.incarnation);
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
        self.spread.set_out(cause);
        self.role = Role::Candidate;
        self.paths.campaigns += 1;
        ballot
    }

    /// Grants `ballot`: from here on nobody below it may write our log. The caller has made sure of
    /// that, and has told us everything that the log holds; and we lead no more.
    pub(crate) fn promise(&mut self, ballot: Ballot) {
        let rises = guard!(Mutant::GrantOfLowerBallot, ballot > self.election.promised);
        assert!(rises, "a promise is never taken back");
        self.role = Role::Follower;
        self.election.campaign = None;
        self.election.replaced_ms = None;
        self.election.promised_ms = self.now_ms;
        self.election.promised = ballot;
        self.election.heard = self.election.heard.max(ballot.counter());
        self.election.failed_ballots += 1;
        self.election.retry_ms = self.stands_back();
        self.transfer.sender.pause();
        self.paths.promised += 1;
    }

    /// The replica that we granted our log to can write it now. A leader is told anew where our log ends, and says anew
    /// whether its own reaches back to there.
    pub(crate) fn opened(&mut self) {
        self.lags_no_more();
        self.election.granted_ms = self.now_ms;
    }

    /// We lead no more: what we did not see committed is not ours to commit.
    pub(crate) fn step_down(&mut self) {
        self.role = Role::Follower;
        self.lease.clear();
        // A grant that comes late elects nobody twice in one ballot.
        if !planted(Mutant::LateGrantElects) {
            self.election.campaign = None;
        }
        self.paths.stepped_down += 1;
        self.payloads.kept.retain(|large| large.delivered);
        self.members.changing = 0;
        self.followers.progress.fill(None);
        self.election.retry_ms = self.now_ms + 4 * self.config.timeout_ms;
    }

    /// As the survivor of a group that is recreated: our log, which is all committed, goes on in the `marker`, in a group
    /// of this view. We have promised the marker.
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

    /// As any other replica of a group that is recreated: nothing of ours counts until we have taken the survivor's state.
    /// One that has a state has promised the marker.
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

    /// An incarnation of a slot asks for a state. If an earlier one led us, or should have, that one is dead,
    /// whatever the slot's heartbeats say.
    pub(super) fn saw_learner(&mut self, slot: u8, incarnation: u32) {
        let leads = slot == self.election.promised.slot() && slot != self.config.me.slot;
        if leads
            && incarnation > self.election.promised.incarnation()
            && self.election.replaced_ms.is_none()
        {
            self.election.replaced_ms = Some(self.now_ms);
            self.paths.leader_replaced += 1;
        }
    }

    /// Whether the slot has granted what we ask for.
    pub(super) fn has_grant_of(&self, slot: u8) -> bool {
        let campaign = self.election.campaign.as_ref();
        campaign.is_some_and(|campaign| campaign.grants[usize::from(slot)].is_some())
    }

    /// What to answer who asks for `ballot`. `leads` says that it is elected, and only wants to
    /// write our log; `forced`, that even a leader that is well shall be given up.
    pub(crate) fn judge(&mut self, ballot: Ballot, leads: bool, forced: bool) -> GrantDecision {
        self.hear_of(ballot);
        let told = !planted(Mutant::JoinUnseenIsNone) && self.election.admitted_below.is_some();
        let speaks = leads || told || !self.is_silent();
        let counts = self.role != Role::Blank && !self.suspended && speaks;
        if !guard!(Mutant::AmnesiacGrants, counts) {
            return GrantDecision::Ignore;
        }
        if ballot == self.election.promised {
            // A candidate's question asked twice, or a leader that comes back to us. Something has come
            // of the one that is elected, though we may be slow to see what.
            if leads && !self.leads() {
                self.election.retry_ms = self.election.retry_ms.max(self.stands_back());
            }
            return if self.leads() { GrantDecision::Ignore } else { GrantDecision::GrantAgain };
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
                && !self.detector.suspects(leader);
        if has_live_leader && !leads && !forced {
            self.paths.refused_content += 1;
            return GrantDecision::Refuse;
        }
        // Who is elected has the grants of f+1 that were not bound.
        if !leads && self.is_bound_against(ballot) {
            self.paths.grant_put_off += 1;
            self.stop_promising();
            return GrantDecision::Wait;
        }
        GrantDecision::Grant
    }

    /// Whoever asks in `ballot` has folded our `Join`: it is committed, whether we have read that or not. Once
    /// known this stays true.
    pub(crate) fn hear_admitted(&mut self, ballot: Ballot) {
        let lowest = self.election.admitted_below.map_or(ballot, |known| known.min(ballot));
        self.election.admitted_below = Some(lowest);
    }

    /// Whether we know that our group has admitted us, though we may not have folded our `Join`.
    pub(crate) fn is_admitted(&self) -> bool {
        let GroupConfig { me, incarnation, .. } = self.config;
        self.election.admitted_below.is_some() || self.members.view.names(me.slot, incarnation)
    }

    /// Whether, as far as heartbeats tell, f others are there.
    pub(crate) fn has_quorum_alive(&self) -> bool {
        let alive = self.others().filter(|slot| !self.detector.suspects(*slot)).count();
        alive + 1 >= self.quorum()
    }

    /// When whoever we let lead must have begun to.
    fn stands_back(&self) -> u64 {
        self.after(4 * (2 + u64::from(self.config.me.slot)))
    }

    /// We are given the state of whoever leads, for whose words we wait: that one is well until then, and
    /// would have to begin again if we led.
    pub(super) fn stand_back_until(&mut self, until_ms: u64) {
        self.election.retry_ms = self.election.retry_ms.max(until_ms);
    }

    /// A tick that comes late has kept us from reading what came meanwhile: whoever was let lead has
    /// not had the time that has passed.
    pub(super) fn wait_for_late(&mut self, now_ms: u64) {
        let late = now_ms.saturating_sub(self.now_ms + self.config.timeout_ms);
        if late > 0 && self.now_ms > 0 {
            self.election.retry_ms = self.election.retry_ms.saturating_add(late);
            if let Some(campaign) = &mut self.election.campaign {
                campaign.until_ms += late;
            }
        }
    }

    /// When so many timeouts are over, doubled for each ballot of which nothing came, within bounds:
    /// where elections take long, candidates who do not wait for each other would outdo each other
    /// for ever.
    fn after(&self, timeouts: u64) -> u64 {
        let doublings = self.election.failed_ballots.saturating_sub(1).min(DOUBLINGS_MAX);
        self.now_ms + (timeouts << doublings) * self.config.timeout_ms
    }

    /// Somebody has a ballot of our group. One that has our own counter and a higher slot is above
    /// ours too.
    pub(crate) fn hear_of(&mut self, ballot: Ballot) {
        self.election.heard = self.election.heard.max(ballot.counter());
        if matches!(self.role, Role::Leader | Role::Candidate) && ballot > self.election.promised {
            let promised = self.election.promised.counter();
            self.election.heard =
                self.election.heard.max(Ballot::next_attempt(promised).unwrap_or(promised));
        }
    }

    /// A replica has granted our ballot and reports the end of its log, and the incarnations that its view
    /// names. Returns the slot whose log is to be adopted, once f+1 incarnations that count have granted.
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
        // Our own first, so that nothing is copied when it is as good.
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
        self.paths.adopted_other += u64::from(grant.last != own);
        Some(best as u8)
    }

    /// Whether our incarnation counts in the view that `slot` has reported.
    pub(super) fn is_named_by(&self, slot: u8) -> bool {
        let grant =
            self.election.campaign.as_ref().and_then(|c| c.grants[usize::from(slot)].as_ref());
        grant.is_some_and(|grant| {
            grant.named.get(usize::from(self.config.me.slot)) == Some(&self.config.incarnation)
        })
    }

    /// The incarnations that are admitted, by slot, as far as it is committed here.
    pub fn admitted(&self) -> Vec<u32> {
        self.members.view.members().iter().map(|member| member.incarnation).collect()
    }

    /// The incarnations that the view at the end of our log names.
    pub fn named(&self) -> Vec<u32> {
        let mut view = self.members.view.clone();
        for entry in self.entries.uncommitted.iter() {
            if let Some(GroupRecord::Join { slot, incarnation }) = entry.record.of_group() {
                view.join(slot, incarnation);
            }
        }
        view.members().iter().map(|member| member.incarnation).collect()
    }

    /// Index of our ballot's first entry.
    pub const fn first_index(&self) -> u64 {
        self.entries.first
    }

    /// Why we set out to lead, if we lead and our first entry is committed.
    pub fn won(&self) -> Option<Cause> {
        let campaign = self.election.campaign.as_ref().filter(|_| self.leads())?;
        (self.entries.commit >= self.entries.first).then_some(campaign.cause)
    }

    /// The replica that leads us, or that we let lead, if there is one.
    pub fn leader(&self) -> Option<ReplicaId> {
        let known =
            self.election.promised != Ballot::ZERO && self.election.promised == self.ballot();
        let deposed = self.election.promised.slot() == self.config.me.slot && !self.leads();
        (known && !deposed)
            .then(|| ReplicaId::new(self.config.me.group, self.election.promised.slot()))
    }

    /// Whether fewer than f others have been given our state: nobody could elect us yet.
    pub(super) fn is_still_seeding(&self) -> bool {
        self.seeded.is_some_and(|seeded| (seeded.count_ones() as usize) + 1 < self.quorum())
    }

    /// As the survivor, until somebody leads: whether we give our state to a slot's incarnation.
    pub(super) fn seeds(&self, slot: u8, incarnation: u32) -> bool {
        self.seeded.is_some() && self.members.view.names(slot, incarnation)
    }

    /// As the survivor: a slot has been given our state.
    pub(super) fn has_seeded(&mut self, slot: u8) {
        if let Some(seeded) = &mut self.seeded {
            *seeded |= 1 << slot;
        }
    }

    /// Whether our state counts for nothing until we have taken another's.
    pub const fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// Whether we have led for so long that whoever can deliver more has told us so.
    pub(crate) fn has_led_for_long(&self) -> bool {
        let until_ms = self.election.campaign.as_ref().map_or(0, |campaign| campaign.until_ms);
        self.now_ms >= until_ms + TRANSFER_TIMEOUTS * self.config.timeout_ms
    }
}
