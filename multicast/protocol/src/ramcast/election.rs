//! Leader change: who may set out to lead, who lets whom, and what a new leader takes over.
//!
//! **Invariant (promise).** A replica grants a ballot only if it is above every ballot it has granted,
//! and its memory is closed to the old leader before it reports what its log holds. So what was
//! committed in an earlier ballot, which f+1 replicas hold, is in at least one of the f+1 logs that
//! a candidate hears of, and the log with the highest (birth of the last entry, length) holds all
//! of it.
//!
//! **Invariant (memory).** A grant counts only from a life that the adopted log's view names: one
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

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use super::{Config, Ramcast, Role, Uncommitted};
use crate::ballot::Ballot;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::leader::{Asking, Large};
use crate::step::{Effect, Record};

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
    Transfer,
    /// The leader asked for it: it is [left behind](Ramcast::heir), or [hands over](Ramcast::hands_over).
    Succession,
    /// A member has promised itself to a higher ballot, and takes nothing of ours.
    Outbid,
}

/// What to answer a replica that asks for permission to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Close our log to everybody else, [promise](Ramcast::promise), and report.
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
    /// The lives that its log's view names, by slot.
    named: Vec<u32>,
}

/// An attempt at leading.
pub(super) struct Campaign {
    ballot: Ballot,
    cause: Cause,
    /// When it is given up.
    pub(super) until_ms: u64,
    grants: Vec<Option<Grant>>,
    /// Whether a leader that seems well is to be replaced all the same.
    forced: bool,
    /// What was committed when we set out: who grants may not have heard of a `Join` behind it.
    pub(super) commit: u64,
}

impl Ramcast {
    /// Whether it is time for us to set out to lead, and why.
    pub fn wants_to_lead(&self) -> Option<Cause> {
        if matches!(self.role, Role::Leader | Role::Blank) || self.is_silent() || self.is_bound() {
            return None;
        }
        if self.is_still_seeding() {
            return None;
        }
        if let Some(campaign) = &self.campaign {
            let over = self.now_ms >= campaign.until_ms && self.heard > campaign.ballot.counter();
            return (over && self.now_ms >= self.retry_ms).then_some(campaign.cause);
        }
        let me = self.config.me.slot;
        let leader = self.promised.slot();
        if self.promised == Ballot::ZERO && me == 0 {
            return Some(Cause::Start);
        }
        // We were deposed, or let somebody lead of whom nothing came, or nobody ever led.
        let doubted = leader != me && self.detector.suspects(leader);
        let stuck = leader == me
            || doubted
            || self.promised != self.ballot()
            || self.promised == Ballot::ZERO;
        let since = if doubted && self.is_suspected_since(leader) {
            self.detector.since_ms(leader)
        } else if let Some(since) = self.replaced_ms {
            since
        } else if stuck && self.now_ms >= self.retry_ms {
            self.retry_ms
        } else {
            return None;
        };
        let due = self.now_ms >= since + self.rank_after(leader) * self.config.patience_ms;
        let cause = match () {
            () if self.promised == Ballot::ZERO => Cause::Start,
            () if self.replaced_ms.is_some() || self.detector.is_dead(leader) => Cause::Death,
            () => Cause::Silence,
        };
        due.then_some(cause)
    }

    /// Whether we came to suspect our leader after we had let it lead. If its heartbeats do not reach us, and its
    /// words do, we may have suspected it before: it has as long then as one of whom we hear nothing. Else we would
    /// outbid it at once, and it us, for as long as that lasts, and nobody of us would commit anything.
    fn is_suspected_since(&self, leader: u8) -> bool {
        let anew = self.detector.since_ms(leader) > self.promised_ms;
        anew || self.detector.is_dead(leader)
    }

    /// A life of a slot asks for a state: if an earlier one led us, or should have, it is dead,
    /// however well the slot's heart beats.
    pub fn saw_learner(&mut self, slot: u8, incarnation: u32) {
        let leads = slot == self.promised.slot() && slot != self.config.me.slot;
        if leads && incarnation > self.promised.incarnation() && self.replaced_ms.is_none() {
            self.replaced_ms = Some(self.now_ms);
            self.paths.leader_replaced += 1;
        }
    }

    /// How many replicas that seem well come before us, counted round from the old leader.
    fn rank_after(&self, leader: u8) -> u64 {
        let (n, me) = (self.config.replicas, self.config.me.slot);
        let between = (1..n).map(|step| (leader + step) % n).take_while(|slot| *slot != me);
        let well = |slot: &u8| !self.detector.suspects(*slot) && !self.view.member(*slot).evicted;
        between.filter(well).count() as u64
    }

    /// Sets out to lead, in a ballot above all we have heard of. Our own memory must be closed to the
    /// old leader, and read to its end, before. Returns the ballot, for which every other replica of
    /// the group is to be asked.
    ///
    /// # Panics
    /// If [no ballot is left](Self::has_ballots_left).
    pub fn campaign(&mut self, cause: Cause) -> Ballot {
        let counter = Ballot::next_attempt(self.ballot_counter()).expect("a ballot is left");
        let ballot = Ballot::new(counter, self.config.me.slot, self.config.incarnation);
        self.promise(ballot);
        let mut grants = vec![None; usize::from(self.config.replicas)];
        grants[usize::from(self.config.me.slot)] = Some(Grant {
            incarnation: self.config.incarnation,
            last: (self.last_birth(), self.last),
            named: self.named(),
        });
        self.shared.forget_granted();
        self.retry_ms = self.after(2 + u64::from(self.config.me.slot));
        let forced = matches!(cause, Cause::Transfer | Cause::Succession | Cause::Outbid);
        let until_ms = self.now_ms + self.config.patience_ms;
        let commit = self.commit;
        self.campaign = Some(Campaign { ballot, cause, until_ms, grants, forced, commit });
        self.spread.set_out(cause);
        self.role = Role::Candidate;
        self.paths.campaigns += 1;
        ballot
    }

    /// Whether there is a ballot above all that we have heard of, in our group's generation.
    pub fn has_ballots_left(&self) -> bool {
        Ballot::next_attempt(self.ballot_counter()).is_some()
    }

    /// The ballot for which we ask the slots that have not answered yet, and whether they shall give
    /// up a leader that seems well.
    pub fn asks(&self) -> Option<(Ballot, bool)> {
        let campaign = self.campaign.as_ref()?;
        Some((campaign.ballot, campaign.forced))
    }

    /// Whether the slot has granted what we ask for.
    pub fn has_grant_of(&self, slot: u8) -> bool {
        let campaign = self.campaign.as_ref();
        campaign.is_some_and(|campaign| campaign.grants[usize::from(slot)].is_some())
    }

    /// What to answer who asks for `ballot`. `leads` says that it is elected, and only wants to
    /// write our log; `forced`, that even a leader that is well shall be given up.
    pub fn judge(&mut self, ballot: Ballot, leads: bool, forced: bool) -> Verdict {
        self.hear_of(ballot);
        let told = !planted(Mutant::JoinUnseenIsNone) && self.admitted_below.is_some();
        let speaks = leads || told || !self.is_silent();
        let counts = self.role != Role::Blank && !self.suspended && speaks;
        if !guard!(Mutant::AmnesiacGrants, counts) {
            return Verdict::Ignore;
        }
        if ballot == self.promised {
            // A candidate's question asked twice, or a leader that comes back to us. Something has come
            // of the one that is elected, though we may be slow to see what.
            if leads && !self.leads() {
                self.retry_ms = self.retry_ms.max(self.stands_back());
            }
            return if self.leads() { Verdict::Ignore } else { Verdict::GrantAgain };
        }
        if !guard!(Mutant::GrantOfLowerBallot, ballot > self.promised) {
            self.paths.refused_lower += 1;
            return Verdict::Refuse;
        }
        let leader = self.promised.slot();
        let content = self.leads() && self.has_quorum_alive()
            || self.role == Role::Follower
                && self.promised == self.ballot()
                && self.promised != Ballot::ZERO
                && leader != self.config.me.slot
                && leader != ballot.slot()
                && self.replaced_ms.is_none()
                && !self.detector.suspects(leader);
        if content && !leads && !forced {
            self.paths.refused_content += 1;
            return Verdict::Refuse;
        }
        // Who is elected has the grants of f+1 that were not bound.
        if !leads && self.is_bound_against(ballot) {
            self.paths.grant_put_off += 1;
            self.stop_promising();
            return Verdict::Wait;
        }
        Verdict::Grant
    }

    /// Whoever asks in `ballot` has folded our `Join`: it is committed, whether we have read that or not. Once
    /// known this stays true.
    pub fn hear_admitted(&mut self, ballot: Ballot) {
        let lowest = self.admitted_below.map_or(ballot, |known| known.min(ballot));
        self.admitted_below = Some(lowest);
    }

    /// Whether we know that our group has admitted us, though we may not have folded our `Join`.
    pub fn is_admitted(&self) -> bool {
        let Config { me, incarnation, .. } = self.config;
        self.admitted_below.is_some() || self.view.names(me.slot, incarnation)
    }

    /// Whether, as far as heartbeats tell, f others are there.
    pub fn has_quorum_alive(&self) -> bool {
        let alive = self.others().filter(|slot| !self.detector.suspects(*slot)).count();
        alive + 1 >= self.quorum()
    }

    /// Grants `ballot`: from here on nobody below it may write our log. The caller has made sure of
    /// that, and has told us everything that the log holds.
    pub fn promise(&mut self, ballot: Ballot) {
        let rises = guard!(Mutant::GrantOfLowerBallot, ballot > self.promised);
        assert!(rises, "a promise is never taken back");
        self.paths.deposed += u64::from(self.leads());
        self.step_down();
        self.role = Role::Follower;
        self.campaign = None;
        self.replaced_ms = None;
        self.promised_ms = self.now_ms;
        self.promised = ballot;
        self.heard = self.heard.max(ballot.counter());
        self.fruitless += 1;
        self.retry_ms = self.stands_back();
        self.paths.promised += 1;
    }

    /// When whoever we let lead must have begun to.
    fn stands_back(&self) -> u64 {
        self.after(4 * (2 + u64::from(self.config.me.slot)))
    }

    /// We are given the state of whoever leads, for whose words we wait: that one is well until then, and
    /// would have to begin again if we led.
    pub fn stand_back_until(&mut self, until_ms: u64) {
        self.retry_ms = self.retry_ms.max(until_ms);
    }

    /// A tick that comes late has kept us from reading what came meanwhile: whoever was let lead has
    /// not had the time that has passed.
    pub(super) fn wait_for_late(&mut self, now_ms: u64) {
        let late = now_ms.saturating_sub(self.now_ms + self.config.patience_ms);
        if late > 0 && self.now_ms > 0 {
            self.retry_ms = self.retry_ms.saturating_add(late);
            if let Some(campaign) = &mut self.campaign {
                campaign.until_ms += late;
            }
        }
    }

    /// When so many patiences are over, doubled for each ballot of which nothing came, within bounds:
    /// where elections take long, candidates who do not wait for each other would outdo each other
    /// for ever.
    fn after(&self, patiences: u64) -> u64 {
        let doublings = self.fruitless.saturating_sub(1).min(DOUBLINGS_MAX);
        self.now_ms + (patiences << doublings) * self.config.patience_ms
    }

    /// We lead no more: what we did not see committed is not ours to commit.
    pub(super) fn step_down(&mut self) {
        if !self.leads() {
            return;
        }
        self.role = Role::Follower;
        self.lease.clear();
        // A grant that comes late elects nobody twice in one ballot.
        if !planted(Mutant::LateGrantElects) {
            self.campaign = None;
        }
        self.paths.stepped_down += 1;
        self.early.clear();
        self.remotes.clear();
        self.decisions.clear();
        self.large.retain(|large| large.delivered);
        self.afloat.clear();
        self.changing = 0;
        self.fed.fill(None);
        self.retry_ms = self.now_ms + 4 * self.config.patience_ms;
    }

    /// A replica has refused our ballot, because it has granted `promised`.
    pub fn refused(&mut self, promised: Ballot) {
        // Whom we have asked to succeed us is not outbid, though its question be late: we would take
        // back with every tick what we ask for.
        if self.heir() != Some(promised.slot()) && !self.is_successor(promised.slot()) {
            self.hear_of(promised);
        }
    }

    /// Somebody has a ballot of our group. One that has our own counter and a higher slot is above
    /// ours too.
    fn hear_of(&mut self, ballot: Ballot) {
        self.heard = self.heard.max(ballot.counter());
        if matches!(self.role, Role::Leader | Role::Candidate) && ballot > self.promised {
            let promised = self.promised.counter();
            self.heard = self.heard.max(Ballot::next_attempt(promised).unwrap_or(promised));
        }
    }

    /// Whether a member takes nothing of ours because it has heard of a higher ballot: we lead, and
    /// must outbid it.
    pub fn is_outbid(&self) -> bool {
        self.leads() && self.heard > self.ballot().counter()
    }

    /// A replica has granted our ballot and reports the end of its log, and the lives that its view
    /// names. Returns the slot whose log is to be adopted, once f+1 lives that count have granted.
    pub fn granted(
        &mut self,
        slot: u8,
        incarnation: u32,
        last: (Ballot, u64),
        named: Vec<u32>,
    ) -> Option<u8> {
        let (quorum, me) = (self.quorum(), self.config.me.slot);
        let campaign = self.campaign.as_mut()?;
        campaign.grants[usize::from(slot)] = Some(Grant { incarnation, last, named });
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

    /// Whether a life of ours counts in the view that `slot` has reported.
    pub fn is_named_by(&self, slot: u8) -> bool {
        let grant = self.campaign.as_ref().and_then(|c| c.grants[usize::from(slot)].as_ref());
        grant.is_some_and(|grant| {
            grant.named.get(usize::from(self.config.me.slot)) == Some(&self.config.incarnation)
        })
    }

    /// The incarnations that are admitted, by slot, as far as it is committed here.
    pub fn admitted(&self) -> Vec<u32> {
        self.view.members().iter().map(|member| member.incarnation).collect()
    }

    /// The lives that the view at the end of our log names.
    pub fn named(&self) -> Vec<u32> {
        let mut view = self.view.clone();
        for entry in self.suffix.iter() {
            if let Record::Join { slot, incarnation } = entry.record {
                view.join(slot, incarnation);
            }
        }
        view.members().iter().map(|member| member.incarnation).collect()
    }

    /// Cuts off what our log holds beyond `index`: another log was chosen.
    pub fn truncate(&mut self, index: u64) {
        assert!(index >= self.commit, "what is committed is in every log that is chosen");
        self.stalled = None;
        while let Some((entry, records)) = self.suffix.pop_back(index) {
            self.paths.truncated += records as u64;
            if let Record::Local { message, .. } = entry.record
                && !planted(Mutant::TruncatedRemembered)
            {
                self.known.remove(message);
            }
        }
        self.last = self.last.min(index);
    }

    /// The leader of the ballot that we granted rewrites our log from behind `base` on. Its own first
    /// entry is, or will be, `first`.
    pub fn follow(&mut self, ballot: Ballot, base: u64, first: u64) {
        assert!(ballot == self.promised && !self.leads(), "only whom we let in writes our log");
        self.truncate(base);
        self.seeded = None;
        let own = self.group().index();
        self.paths.followed += u64::from(self.ballots[own] != ballot);
        self.fruitless = 0;
        self.ballots[own] = ballot;
        self.new_ballot_index = first;
        self.owed = self.owed.with(self.group());
        if base >= first {
            self.owe_everybody();
        }
    }

    /// The campaign is won, and our log is the one adopted: begins to lead. Everything that other
    /// groups may still need is told again, and every reply that a session may have missed.
    pub fn lead(&mut self, effects: &mut Vec<Effect>) {
        let campaign = self.campaign.as_ref().expect("won");
        let ballot = campaign.ballot;
        assert!(self.stalled.is_none() && ballot == self.promised, "the log is adopted whole");
        self.role = Role::Leader;
        self.spread.lead(self.now_ms, self.config.spread_after_ms);
        self.asking = Asking::default();
        self.seeded = None;
        self.lease.clear();
        let own = self.group().index();
        self.ballots[own] = ballot;
        self.fed.fill(None);
        self.completed.fill(0);
        self.shared.forget_told();
        self.shared.lead(self.config.me.slot);
        self.passed.lead();
        self.forget_kept(effects);
        self.rebuild();
        if self.last_time_ms > 0 {
            self.time_offset = self.last_time_ms.cast_signed() - self.now_ms.cast_signed();
        }
        self.new_ballot_index = self.append(Record::NewBallot, effects);
        for group in (0..self.config.groups).map(GroupId) {
            self.tell_all(group, effects);
            self.greet(group, effects);
        }
        let logged: BTreeSet<_> = self.suffix.iter().filter_map(Uncommitted::message).collect();
        for message in self.known.recent() {
            if planted(Mutant::RepliesNotRepeated) {
                break;
            }
            if !self.order.contains(message) && !logged.contains(&message) {
                effects.push(Effect::Repeat { message });
            }
        }
        self.paths.led += 1;
    }

    /// Index of our ballot's first entry.
    pub const fn first_index(&self) -> u64 {
        self.new_ballot_index
    }

    /// What only a leader keeps of its log.
    fn rebuild(&mut self) {
        let mut large: Vec<_> = self
            .order
            .iter()
            .filter(|pending| !pending.inline)
            .map(|p| Large { index: p.index, message: p.message, delivered: false })
            .collect();
        for Uncommitted { index, record, .. } in self.suffix.iter() {
            if let Record::Local { message, destinations, inline, .. } = *record {
                if !inline {
                    large.push(Large { index: *index, message, delivered: false });
                }
                if destinations.has_several() {
                    self.afloat.insert(message);
                }
            }
            if let Record::Evict { slot } | Record::Join { slot, .. } = record {
                self.changing |= 1 << slot;
            }
        }
        large.sort_unstable_by_key(|large| large.index);
        self.large.extend(large);
    }

    /// Announces to a group's leader everything that the group may need, and sends the results.
    pub(super) fn tell_all(&mut self, group: GroupId, effects: &mut Vec<Effect>) {
        if group == self.group() {
            return;
        }
        let to = self.leader_of(group);
        for message in self.shared_with(group) {
            self.tell(message, to, false, effects);
        }
    }

    /// Whoever led a group that we share a message with may have died with our predecessor. One
    /// announcement tells all its replicas who we are, and its next leader will tell us the rest.
    fn greet(&self, group: GroupId, effects: &mut Vec<Effect>) {
        if group == self.group() || planted(Mutant::NotAnnouncedAgain) {
            return;
        }
        let first = self.shared_with(group).first().copied();
        let Some(announcement) = first.and_then(|first| self.announcement(first, false)) else {
            return;
        };
        for slot in 0..self.config.replicas {
            let to = ReplicaId::new(group, slot);
            if to != self.leader_of(group) {
                effects.push(Effect::Announce { to, announcement });
            }
        }
    }

    /// Every message shared with a group that it may not be done with, sorted.
    fn shared_with(&self, group: GroupId) -> Vec<MessageId> {
        let goes = |destinations: GroupSet| destinations.contains(group);
        let pending = self.order.iter().filter(|p| goes(p.destinations)).map(|p| p.message);
        let afloat = self.suffix.iter().filter_map(|entry| match entry.record {
            Record::Local { message, destinations, .. } if goes(destinations) => Some(message),
            _ => None,
        });
        let owed = self.shared.iter();
        let owed = owed.filter(|o| goes(o.destinations) && self.shared.unsettled_in(group, o));
        let mut all: Vec<_> = pending.chain(afloat).chain(owed.map(|o| o.message)).collect();
        all.sort_unstable();
        all
    }

    /// Why we set out to lead, if we lead and our first entry is committed.
    pub fn won(&self) -> Option<Cause> {
        let campaign = self.campaign.as_ref().filter(|_| self.leads())?;
        (self.commit >= self.new_ballot_index).then_some(campaign.cause)
    }

    /// The replica that leads us, or that we let lead, if there is one.
    pub fn leader(&self) -> Option<ReplicaId> {
        let known = self.promised != Ballot::ZERO && self.promised == self.ballot();
        let deposed = self.promised.slot() == self.config.me.slot && !self.leads();
        (known && !deposed).then(|| ReplicaId::new(self.group(), self.promised.slot()))
    }
}
