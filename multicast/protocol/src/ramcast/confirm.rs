//! Reads that a quorum confirms: who leads finds out, after it was asked, that nobody else did before,
//! and then answers of its own. It takes no place in the log, no clock, and nothing of the followers'
//! processors, but where these place what peers write, as over tcp.
//!
//! A replica closes its log to the leader before it grants another ballot. So a write that was posted
//! behind a question, and landed in the log of a follower, says of a moment behind the question that
//! this follower had granted nobody else yet. Whatever is written anyhow will do; where nothing is, a
//! word in front of the log.
//!
//! **Invariant (confirmation).** When a leader is confirmed, no ballot above its own had f+1 grants when it
//! was asked. It has granted none itself, and neither had f others whose memory it has written since. Every
//! f+1 that grant another ballot have one of these slots in common. Its life there was another one: if a later
//! one, that grants only when its `Join` is committed, and by then the log of whoever leads names it; if
//! an earlier one, its grant counts for nobody, because every log that can be adopted names the one that we
//! count. For both, the leader counts only lives whose `Join` it knows to be committed, with no other one
//! logged behind it. A life that is dead may be counted: it has granted nothing either.
//!
//! So whatever anybody was answered before the question was delivered in our ballot or an earlier one, as a
//! [lease](super::lease) would say of the same moment; what is to be delivered before the read is made is the
//! same, too. Who is confirmed need not look again behind the read: what is read later is of a prefix of the
//! log of whoever leads by then, and nobody can have been answered without it who was before the question.
//!
//! This is the check of permissions by which leaders in Mu (OSDI '20, section 4) know that they lead, used
//! for reads as Raft's dissertation (section 6.4) uses a round of heartbeats.

use super::{Fed, Ramcast};
use crate::guard;
use crate::mutants::Mutant;

impl Ramcast {
    /// As leader: our write under `number` is in the memory of the follower that we feed. Numbers rise, for
    /// all followers together.
    pub fn landed(&mut self, slot: u8, number: u64) {
        if let Some(fed) = &mut self.fed[usize::from(slot)] {
            fed.landed = fed.landed.max(number);
        }
    }

    /// Whether we have led at a moment at which all writes had been posted up to this number, and no other
    /// one: what came before that moment is in our log.
    pub fn is_confirmed(&self, number: u64) -> bool {
        if !self.leads() || self.commit < self.new_ballot_index {
            return false;
        }
        let counts = |slot: &u8| {
            let Some(Fed { incarnation, landed, .. }) = self.fed[usize::from(*slot)] else {
                return false;
            };
            let let_in =
                self.view.names(*slot, incarnation) && self.named_at_end(*slot) == incarnation;
            guard!(Mutant::ConfirmedByUnnamedLife, let_in)
                && guard!(Mutant::ConfirmedBefore, landed > number)
        };
        let others = self.others().filter(counts).count();
        guard!(Mutant::ReadUnconfirmed, others + 1 >= self.quorum())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;
    use crate::ballot::{Acceptance, Ballot};
    use crate::ids::{GroupId, ReplicaId};
    use crate::ramcast::{Cause, Config};
    use crate::step::Event;
    use crate::timestamp::Timestamp;
    use crate::view::View;

    /// Slot 0 of so many leads, and feeds all others. Its first entry is not committed.
    fn leader(replicas: u8) -> Ramcast {
        let config = Config {
            me: ReplicaId::new(GroupId(0), 0),
            incarnation: 0,
            groups: 1,
            replicas,
            fetch_after_ms: 20,
            patience_ms: 20,
            beat_ms: 5,
            missed_max: 20,
            lease_ms: 40,
            clock_skew_percent: 10,
            spread_after_ms: 0,
            lag_max: 64,
        };
        let mut core = Ramcast::new(config, View::first(replicas));
        core.campaign(Cause::Start);
        for slot in 1..replicas {
            core.granted(slot, 0, (Ballot::ZERO, 0), vec![0; usize::from(replicas)]);
        }
        core.lead(&mut Vec::new());
        let timestamp = Timestamp::ZERO;
        for slot in 1..replicas {
            core.feeds(slot, 0);
            core.step(Event::Applied { slot, timestamp }, &mut Vec::new());
        }
        core
    }

    /// All that is logged is held by this slot, too.
    fn holds(core: &mut Ramcast, slot: u8) {
        let acceptance = Acceptance { tag: core.ballot().tag(), index: core.last_index() };
        let by = ReplicaId::new(GroupId(0), slot);
        core.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
        core.step(Event::TurnEnd, &mut Vec::new());
    }

    fn ready(replicas: u8) -> Ramcast {
        let mut core = leader(replicas);
        (1..replicas).for_each(|slot| holds(&mut core, slot));
        core
    }

    #[test]
    fn what_landed_behind_the_question_in_f_other_memories_confirms() {
        let mut core = ready(5);
        core.landed(1, 7);
        core.landed(2, 6);
        core.landed(3, 8);
        assert!(core.is_confirmed(6), "7 and 8 came behind it");
        assert!(!core.is_confirmed(7), "only 8 did");
        core.landed(1, 3);
        assert!(core.is_confirmed(6), "what completes late takes nothing back");
        core.landed(4, 9);
        assert!(core.is_confirmed(7));
        core.feeds_no_more(4);
        assert!(!core.is_confirmed(7), "that one's log is closed to us");
        core.landed(4, 10);
        assert!(!core.is_confirmed(7), "of a grant that is over");
    }

    #[test]
    fn who_leads_alone_is_confirmed_and_who_does_not_lead_never_is() {
        let mut core = ready(1);
        core.step(Event::TurnEnd, &mut Vec::new());
        assert!(core.is_confirmed(0));
        let mut core = ready(3);
        core.landed(1, 1);
        assert!(core.is_confirmed(0));
        core.step(Event::Denied, &mut Vec::new());
        assert!(!core.is_confirmed(0));
    }

    #[test]
    fn nobody_is_confirmed_before_the_first_entry_of_the_ballot_is_committed() {
        let mut core = leader(3);
        core.landed(1, 1);
        assert!(!core.is_confirmed(0), "what was answered before may be in another log");
        holds(&mut core, 1);
        assert!(core.is_confirmed(0));
    }

    #[test]
    fn a_life_confirms_from_when_its_join_is_committed_and_until_another_one_is_logged() {
        let mut core = ready(3);
        core.feeds(1, 1_024);
        core.landed(1, 1);
        assert!(!core.is_confirmed(0), "its former life may have let another lead");
        core.join(1, 1_024, &mut Vec::new());
        assert!(!core.is_confirmed(0), "whoever leads by now may not know of it");
        holds(&mut core, 2);
        assert!(core.is_confirmed(0));
        core.join(1, 2_048, &mut Vec::new());
        assert!(!core.is_confirmed(0), "its successor may be let in by whoever leads by now");
    }
}
