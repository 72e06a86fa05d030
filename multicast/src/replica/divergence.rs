//! Comparison of our state with the states of the group's other replicas, and the consequences if they differ.
//!
//! From time to time each replica sends the others the digests that its machine has: the one of the last
//! checkpoint, and the present one. A replica that finds a difference sends its own digest at that position
//! to all, so that every replica soon has all digests. [`compare`] decides which replicas differ.
//!
//! A replica whose state differs from the one that f+1 replicas hold answers nobody, gives up leading, and
//! receives the state again from the leader. Its log and its votes stay: it still holds what it has accepted. The same applies to a leader
//! if a learner has refused a copy of its state: its memory does not contain what it has executed. If no
//! digest is held by f+1 replicas, no replica of the group answers, until one is: a replica that was silent
//! may decide it.

use std::collections::VecDeque;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::divergence::{Comparison, Slots, compare};
use skein_protocol::group::{GroupEvent, Role};

use super::Replica;
use crate::application::{Application, Digest};
use crate::election::Election;
use crate::operate::{Diverged, DivergenceStatus};
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

/// Interval between reports of digests while messages are delivered, and while none are and a replica has not
/// reported the same digest.
const TELL_EVERY_MS: u64 = 200;
const TELL_AGAIN_MS: u64 = 1_000;
/// Positions that are compared at a time.
const ROUNDS_MAX: usize = 32;
/// Time for which replicas that have not reported their digests are waited for, once digests differ.
const DECIDE_WITHIN_MS: u64 = 2_000;

/// A position at which digests are compared.
struct Round {
    position: u64,
    /// By slot.
    digests: Vec<Option<u64>>,
    /// This replica has sent its digest at this position because another differed.
    told: bool,
    /// Time at which digests were first seen to differ.
    differ_since: Option<u64>,
}

/// A divergence that was found.
#[derive(Clone, Copy)]
struct Found {
    what: What,
    position: u64,
    at_ms: u64,
    recovered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    We(Slots),
    /// This replica's, by a learner that has refused a copy of its state: digests say nothing of it.
    Accused(Slots),
    Others(Slots),
    Nobody,
}

#[derive(Default)]
pub(super) struct Divergence {
    /// Digests of other ballots are not compared: a recreated group counts positions from the beginning.
    ballot: Option<Ballot>,
    rounds: VecDeque<Round>,
    told: Option<Digest>,
    told_ms: u64,
    /// Time at which our machine was last asked for its digests.
    looked_ms: u64,
    /// The last digest that each slot has reported.
    heard: Vec<Option<Digest>>,
    /// Divergence of this replica, or of all: kept until the node restarts.
    found: Option<Found>,
    /// Divergence of others: kept until all hold the same again.
    others: Option<Found>,
    /// The learners that have refused a copy of our state: for each slot, the last incarnation.
    accusers: Vec<(u8, u32)>,
}

impl Divergence {
    /// Returns whether no unrepaired divergence of our state is known.
    pub(super) fn is_trusted(&self) -> bool {
        self.found.is_none_or(|found| found.recovered)
    }

    /// The replicas that hold the group's state, if ours is known to differ.
    fn takes_anew(&self) -> Option<Slots> {
        match self.found {
            Some(Found {
                what: What::We(others) | What::Accused(others),
                recovered: false,
                ..
            }) => Some(others),
            _ => None,
        }
    }

    fn is_stopped(&self) -> bool {
        self.found.is_some_and(|found| found.what == What::Nobody && !found.recovered)
    }

    fn forget_rounds(&mut self, ballot: Option<Ballot>, replicas: u8) {
        self.ballot = ballot;
        self.rounds.clear();
        self.told = None;
        self.heard = vec![None; usize::from(replicas)];
    }

    fn round(&mut self, position: u64, replicas: u8) -> &mut Round {
        if let Some(at) = self.rounds.iter().position(|round| round.position == position) {
            return &mut self.rounds[at];
        }
        if self.rounds.len() == ROUNDS_MAX {
            self.rounds.pop_front();
        }
        let digests = vec![None; usize::from(replicas)];
        self.rounds.push_back(Round { position, digests, told: false, differ_since: None });
        self.rounds.back_mut().expect("just pushed")
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Returns whether answers may be sent from here, as far as the comparison of states shows.
    pub(super) fn is_trusted(&self) -> bool {
        self.divergence.is_trusted()
    }

    /// Returns whether the group has stopped because no state is held by f+1 replicas.
    pub(crate) fn is_stopped(&self) -> bool {
        self.divergence.is_stopped()
    }

    /// Our state was replaced by another replica's, or, in a recreation, by an empty one together with all others'.
    pub(super) fn state_is_new(&mut self, recreated: bool) {
        self.divergence.forget_rounds(None, self.topology.replicas);
        let we = self.divergence.takes_anew().is_some();
        match &mut self.divergence.found {
            found if recreated => {
                *found = None;
                self.divergence.others = None;
            }
            Some(found) if we => {
                found.recovered = true;
                tracing::warn!(replica = %self.id, position = found.position,
                    "had diverged, and has received the state again");
            }
            _ => {}
        }
    }

    /// Handles a tick: reports digests if it is time, and draws conclusions from those received.
    pub(super) fn compare_states<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if self.topology.replicas == 1 {
            return;
        }
        let now = self.core.log().now_ms();
        let ballot = self.core.log().promised();
        let follows = self.core.log().leads()
            || self.core.log().role() == Role::Follower && !self.reader.awaiting;
        let has_state =
            follows && !self.core.log().is_silent() && self.core.log().lagging().is_none();
        if self.divergence.ballot != Some(ballot) {
            self.divergence.forget_rounds(Some(ballot), self.topology.replicas);
        }
        if has_state && now >= self.divergence.looked_ms + TELL_EVERY_MS {
            self.divergence.looked_ms = now;
            self.tell_digests(now, links);
        }
        if !self.divergence.rounds.is_empty() {
            self.judge_rounds(now, links);
        }
        if let Some(others) = self.divergence.takes_anew() {
            self.tell_core(GroupEvent::Diverged { held_by: others }, links);
        }
    }

    fn tell_digests<F: Fabric>(&mut self, now: u64, links: &mut ReplicaLinks<F, O>) {
        let digests = self.application.digests();
        let Some(last) = digests.last().copied().filter(|last| last.position > 0) else { return };
        let same = |slot: &u8| self.divergence.heard[usize::from(*slot)] == Some(last);
        if self.divergence.told == Some(last)
            && (now < self.divergence.told_ms + TELL_AGAIN_MS
                || self.other_slots().all(|it| same(&it)))
        {
            return;
        }
        self.divergence.told = Some(last);
        self.divergence.told_ms = now;
        self.tell_all(digests, links);
    }

    fn tell_all<F: Fabric>(&mut self, digests: Vec<Digest>, links: &mut ReplicaLinks<F, O>) {
        let ballot = self.core.log().promised().to_word();
        let told = Election::Digests { ballot, digests };
        for slot in self.other_slots() {
            self.ask_member(slot, &told, links);
        }
    }

    /// Handles another replica's digests of its state.
    pub(super) fn hear_digests(&mut self, slot: u8, ballot: Ballot, digests: &[Digest]) {
        if self.divergence.ballot != Some(ballot) || self.core.log().promised() != ballot {
            return;
        }
        for Digest { position, digest } in digests.iter().copied().take(ROUNDS_MAX) {
            let round = self.divergence.round(position, self.topology.replicas);
            round.digests[usize::from(slot)] = Some(digest);
        }
        if let Some(last) = digests.last() {
            self.divergence.heard[usize::from(slot)] = Some(*last);
        }
    }

    fn judge_rounds<F: Fabric>(&mut self, now: u64, links: &mut ReplicaLinks<F, O>) {
        let mut rounds = std::mem::take(&mut self.divergence.rounds);
        let me = self.id.slot;
        let mut here = None;
        rounds.retain_mut(|round| {
            let ours = &mut round.digests[usize::from(me)];
            if ours.is_none() {
                *ours = self.application.digest_at(round.position);
            }
            if ours.is_none() {
                // We have not reached that position, or no longer have its digest.
                let here = *here.get_or_insert_with(|| {
                    self.application.digests().last().map_or(0, |digest| digest.position)
                });
                return round.position > here;
            }
            let comparison = compare(&round.digests, me);
            match comparison {
                Comparison::Agree => {
                    let whole = round.digests.iter().all(Option::is_some);
                    if whole {
                        self.all_agree(round.position);
                    }
                    return !whole;
                }
                Comparison::OthersDiffer(others) => {
                    self.found_divergence(What::Others(others), round.position, now);
                }
                Comparison::WeDiffer(others) => {
                    self.found_divergence(What::We(others), round.position, now);
                }
                Comparison::Nobody => self.found_divergence(What::Nobody, round.position, now),
                Comparison::Undecided => {
                    let since = *round.differ_since.get_or_insert(now);
                    if now >= since + DECIDE_WITHIN_MS {
                        self.found_divergence(What::Nobody, round.position, now);
                    }
                }
            }
            if !round.told {
                round.told = true;
                let digest = round.digests[usize::from(me)].expect("just found");
                self.tell_all(vec![Digest { position: round.position, digest }], links);
            }
            true
        });
        // If our state was found to be wrong, the rounds are worthless, and new ones are begun.
        if self.divergence.rounds.is_empty() {
            self.divergence.rounds = rounds;
        }
    }

    /// All replicas hold the same at this position.
    fn all_agree(&mut self, position: u64) {
        if self.divergence.others.take_if(|found| position >= found.position).is_some() {
            tracing::info!(replica = %self.id, position, "all replicas hold the same state again");
        }
        let accused = |it: &Found| matches!(it.what, What::Accused(_));
        let found = self.divergence.found.as_mut().filter(|it| position >= it.position);
        if let Some(found) = found.filter(|it| !accused(it)) {
            found.recovered = true;
        }
    }

    fn found_divergence(&mut self, what: What, position: u64, now: u64) {
        let Divergence { found, others, .. } = &mut self.divergence;
        let before = if let What::Others(_) = what {
            // A replica that was silent has decided for our state.
            found.take_if(|it| it.what == What::Nobody && !it.recovered && it.position <= position);
            others
        } else {
            found
        };
        let (group, replica) = (self.id.group.0, self.id);
        let known = |before: Found| match (before.what, what) {
            (What::We(_) | What::Accused(_), What::We(_)) => true,
            (before, what) => before == what,
        };
        if before.is_some_and(|before| known(before) && !before.recovered) {
            return;
        }
        match what {
            What::Others(slots) => {
                let slots: Vec<_> = slots.iter().collect();
                tracing::error!(group, %replica, ?slots, position,
                    "replicas of these slots have diverged: they hold another state than f+1 replicas do");
            }
            What::We(slots) => {
                let slots: Vec<_> = slots.iter().collect();
                tracing::error!(group, %replica, position, held_by = ?slots,
                    "this replica has diverged: it holds another state than f+1 replicas do; it answers \
                     no requests, and receives the state again");
            }
            What::Accused(_) => {
                tracing::error!(group, %replica, position,
                    "a learner has refused a copy of this replica's state, which does not match its \
                     digest: it answers no requests, gives up leading, and receives the state again");
            }
            What::Nobody => {
                tracing::error!(group, %replica, position,
                    "the replicas of this group have diverged, and no state is held by f+1 of them: the \
                     group has stopped");
            }
        }
        *before = Some(Found { what, position, at_ms: now, recovered: false });
        if !self.is_trusted() {
            self.gate.clear();
            self.reads.forget_all();
            self.stop_sending();
        }
    }

    /// Handles a learner's refusal of a copy of our state; `others` are replicas that have a state.
    pub(super) fn accused_by(&mut self, accuser: (u8, u32), others: Slots) {
        let counts = |slot: &u8| !self.core.log().view().member(*slot).evicted;
        let others: Slots = others.iter().filter(counts).collect();
        if others == Slots::default()
            || self.divergence.accusers.contains(&accuser)
            || !self.is_trusted()
        {
            return;
        }
        self.divergence.accusers.retain(|(slot, _)| *slot != accuser.0);
        self.divergence.accusers.push(accuser);
        let position = self.application.digests().last().map_or(0, |digest| digest.position);
        self.found_divergence(What::Accused(others), position, self.core.log().now_ms());
    }

    /// The present divergence, or else the last one.
    pub(super) fn divergence_status(&self) -> Option<DivergenceStatus> {
        let Divergence { found, others, .. } = self.divergence;
        let present = found.filter(|found| !found.recovered);
        let Found { what, position, at_ms, recovered } = present.or(others).or(found)?;
        let (what, slots) = match what {
            What::We(_) | What::Accused(_) => (Diverged::Own, vec![self.id.slot]),
            What::Others(slots) => (Diverged::Others, slots.iter().collect()),
            What::Nobody => (Diverged::All, (0..self.topology.replicas).collect()),
        };
        let ago_ms = self.core.log().now_ms().saturating_sub(at_ms);
        Some(DivergenceStatus { what, slots, position, ago_ms, recovered })
    }
}
