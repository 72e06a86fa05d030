//! The ballot in which each group proposes, as far as it is committed here, and which of its earlier proposals a later
//! one shows to be void.
//!
//! A log holds no two messages at one timestamp. So if a leader proposes a message at a timestamp at which an earlier
//! leader of the same generation had proposed another, the later leader's log does not contain the other message: no
//! quorum held it when the later leader was elected, and none has held it since. It must not be kept as what the group
//! has [proposed](super::Pending::pin) if the group is lost: two messages would end at one timestamp.
//!
//! A proposal of a later leader at a *higher* timestamp shows nothing: that leader may have both in its log, and
//! announce the earlier one when it is asked.

use core::slice;

use hashbrown::HashMap;

use super::{DeliveryQueue, Pending, Proposal};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::ramcast::log::Remote;
use crate::timestamp::Timestamp;

/// What the folded proposals show about their groups' ballots.
pub(super) struct Ballots {
    /// For each group, the highest ballot in which it has proposed something.
    highest: [Ballot; GroupSet::CAPACITY as usize],
    /// Pending messages by the timestamp that a group proposed for them in a lower ballot than its highest. Entries of
    /// messages that were delivered or proposed again since may remain.
    earlier: HashMap<Timestamp, MessageId>,
    /// Every message in `earlier` has a place below this.
    until: u64,
}

impl Default for Ballots {
    fn default() -> Self {
        let highest = [Ballot::ZERO; GroupSet::CAPACITY as usize];
        Self { highest, earlier: HashMap::new(), until: 0 }
    }
}

impl Ballots {
    /// Whether these proposals change nothing here: each group proposes in its highest ballot, and no pending message
    /// has a proposal of an earlier one.
    #[inline]
    pub(super) fn expects(&self, remotes: &[Remote]) -> bool {
        let highest = |remote: &Remote| self.highest[remote.group().index()].to_word();
        let differs = |remote: &Remote| highest(remote) ^ remote.ballot.to_word();
        remotes.iter().fold(0, |any, remote| any | differs(remote)) == 0 && self.earlier.is_empty()
    }

    /// Appends the ballots, up to the last group that has proposed something.
    pub(super) fn save(&self, out: &mut Writer<'_>) {
        let last = self.highest.iter().rposition(|ballot| *ballot > Ballot::ZERO);
        let known = &self.highest[..last.map_or(0, |last| last + 1)];
        out.u16(known.len() as u16);
        for ballot in known {
            out.u64(ballot.to_word());
        }
    }

    /// Reads what [`save`](Self::save) wrote.
    pub(super) fn restore(from: &mut Reader<'_>) -> Option<Self> {
        let mut ballots = Self::default();
        for at in 0..usize::from(from.u16()?) {
            *ballots.highest.get_mut(at)? = Ballot::from_word(from.u64()?);
        }
        Some(ballots)
    }
}

impl DeliveryQueue {
    /// The highest ballot of a group's proposals that are committed here.
    pub(in crate::ramcast) const fn highest_ballot_of(&self, group: GroupId) -> Ballot {
        self.ballots.highest[group.index()]
    }

    /// Takes in those proposals that count, of a list that was not [expected](Ballots::expects).
    #[cold]
    #[inline(never)]
    pub(super) fn take_in_that_count(&mut self, remotes: &[Remote]) {
        for remote in remotes {
            if self.counts(remote) {
                self.take_in(slice::from_ref(remote));
            }
        }
    }

    /// Whether a proposal counts. One of an earlier ballot does not: the present leader of its group announces it again
    /// if its log contains it.
    fn counts(&mut self, remote: &Remote) -> bool {
        let (group, highest) = (remote.group(), self.ballots.highest[remote.group().index()]);
        if remote.ballot < highest {
            return false;
        }
        if remote.ballot > highest {
            self.ballots.highest[group.index()] = remote.ballot;
            self.note_earlier(group);
        }
        self.void_earlier(remote);
        true
    }

    /// Notes the pending messages for which the group proposed in an earlier ballot of its present generation.
    fn note_earlier(&mut self, group: GroupId) {
        let Ballots { highest, earlier, until } = &mut self.ballots;
        let highest = highest[group.index()];
        let may_be_void = |it: &Proposal, pending: &Pending| {
            let in_generation = it.ballot.generation() == highest.generation();
            in_generation && it.ballot < highest && pending.may_be_void(it)
        };
        earlier.retain(|timestamp, _| timestamp.group() != group);
        for pending in self.queue.iter().flatten() {
            let proposal = pending.remotes.iter().find(|it| it.group() == group);
            if let Some(proposal) = proposal.filter(|it| may_be_void(it, pending)) {
                earlier.insert(proposal.timestamp, pending.message);
            }
        }
        *until = self.front + self.queue.len() as u64;
    }

    /// [Notes](Self::note_earlier) the earlier proposals of all groups.
    pub(super) fn note_all_earlier(&mut self) {
        let spoke = |group: &GroupId| self.ballots.highest[group.index()] > Ballot::ZERO;
        let groups: GroupSet = GroupSet::first(GroupSet::CAPACITY).iter().filter(spoke).collect();
        groups.iter().for_each(|group| self.note_earlier(group));
    }

    /// Voids what the group of this new proposal has proposed in an earlier ballot for another message at the same
    /// timestamp.
    fn void_earlier(&mut self, remote: &Remote) {
        if self.front >= self.ballots.until {
            self.ballots.earlier.clear();
        }
        let earlier = self.ballots.earlier.remove(&remote.timestamp);
        let Some(message) = earlier.filter(|message| *message != remote.message) else { return };
        let Some(place) = self.place_of(message) else { return };
        let pending = self.at_mut(place).expect("what has a place is pending");
        let it = |it: &&Proposal| it.timestamp == remote.timestamp && it.ballot < remote.ballot;
        let void = pending.remotes.iter().find(it).is_some_and(|it| pending.may_be_void(it));
        if void && !planted(Mutant::VoidProposalKept) {
            pending.void(remote.group());
        }
    }
}
