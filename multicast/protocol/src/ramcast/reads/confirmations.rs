//! Reads that a quorum confirms.

use alloc::vec;
use alloc::vec::Vec;

use crate::ballot::{Acceptance, Ballot};
use crate::group::on_log::OnLog as _;
use crate::ids::{GroupId, ReplicaId};
use crate::ordering::OrderingProtocol as _;
use crate::ramcast::Event;
use crate::ramcast::testing::config;
use crate::ramcast::{Cause, Ramcast};
use crate::timestamp::Timestamp;
use crate::view::View;

/// Slot 0 of `replicas` leads, and feeds all others. Its first entry is not committed.
fn leader(replicas: u8) -> Ramcast {
    let config = config(ReplicaId::new(GroupId(0), 0), 1, replicas);
    let mut core = Ramcast::new(config, View::first(replicas));
    core.log_mut().campaign(Cause::Start);
    for slot in 1..replicas {
        core.log_mut().granted(slot, 0, (Ballot::ZERO, 0), vec![0; usize::from(replicas)]);
    }
    core.lead(&mut Vec::new());
    let timestamp = Timestamp::ZERO;
    for slot in 1..replicas {
        core.log_mut().add_follower(slot, 0, 0);
        core.step(Event::Applied { slot, rank: timestamp.into() }, &mut Vec::new());
    }
    core
}

/// The slot accepts everything that is logged.
fn holds(core: &mut Ramcast, slot: u8) {
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
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
    core.log_mut().landed(1, 7);
    core.log_mut().landed(2, 6);
    core.log_mut().landed(3, 8);
    assert!(core.log().is_confirmed(6), "7 and 8 came behind it");
    assert!(!core.log().is_confirmed(7), "only 8 did");
    core.log_mut().landed(1, 3);
    assert!(core.log().is_confirmed(6), "what completes late takes nothing back");
    core.log_mut().landed(4, 9);
    assert!(core.log().is_confirmed(7));
    core.log_mut().remove_follower(4);
    assert!(!core.log().is_confirmed(7), "that one's log is closed to us");
    core.log_mut().landed(4, 10);
    assert!(!core.log().is_confirmed(7), "of a grant that is over");
}

#[test]
fn who_leads_alone_is_confirmed_and_who_does_not_lead_never_is() {
    let mut core = ready(1);
    core.step(Event::TurnEnd, &mut Vec::new());
    assert!(core.log().is_confirmed(0));
    let mut core = ready(3);
    core.log_mut().landed(1, 1);
    assert!(core.log().is_confirmed(0));
    core.step(Event::Denied, &mut Vec::new());
    assert!(!core.log().is_confirmed(0));
}

#[test]
fn nobody_is_confirmed_before_the_first_entry_of_the_ballot_is_committed() {
    let mut core = leader(3);
    core.log_mut().landed(1, 1);
    assert!(!core.log().is_confirmed(0), "what was answered before may be in another log");
    holds(&mut core, 1);
    assert!(core.log().is_confirmed(0));
}

#[test]
fn a_life_confirms_from_when_its_join_is_committed_and_until_another_one_is_logged() {
    let mut core = ready(3);
    core.log_mut().add_follower(1, 1_024, 0);
    core.log_mut().landed(1, 1);
    assert!(!core.log().is_confirmed(0), "its former incarnation may have let another lead");
    core.join(1, 1_024, &mut Vec::new());
    assert!(!core.log().is_confirmed(0), "whoever leads by now may not know of it");
    holds(&mut core, 2);
    assert!(core.log().is_confirmed(0));
    core.join(1, 2_048, &mut Vec::new());
    assert!(!core.log().is_confirmed(0), "its successor may be let in by whoever leads by now");
}
