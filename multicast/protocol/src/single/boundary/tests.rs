//! Ranks, reads, repeated replies, and what a leader waits for.

use super::super::testing::{
    anew, config, deliveries, elect, follow, hold, leader, message, received, replica, step,
};
use super::*;
use crate::group::{GroupEffect, GroupEvent};
use crate::ordering::Inspect as _;

#[test]
fn ranks_of_a_group_that_begins_anew_are_above_the_clock_that_it_is_given() {
    let mut former = leader();
    step(&mut former, Event::Tick { now_ms: 5_000 });
    let mut core = former.anew(View::first(3), former.log.ballot_counter(), 100);
    assert_eq!(core.inspect().highest_clock(), 100);
    elect(&mut core, 1);
    assert!(core.log.ballot() > former.log.ballot() && core.log.ballot().generation() == 1);
    assert_eq!(core.log.now_ms(), 5_000);
    for sequence in [1, 2] {
        step(&mut core, received(sequence, true));
    }
    hold(&mut core, 1);
    assert_eq!(deliveries(&mut core), [(1, 102, 1), (2, 103, 2)]);
    assert_eq!(core.inspect().highest_clock(), 103);
}

#[test]
fn a_group_that_goes_on_delivers_what_it_holds_at_the_ranks_of_before_and_the_rest_above_the_clock()
{
    for (clock, first) in [(50, 105), (200, 205)] {
        let mut core = anew(View::first(3), 100, 0);
        step(&mut core, received(1, true));
        hold(&mut core, 1);
        assert_eq!(deliveries(&mut core), [(1, 102, 1)]);
        step(&mut core, received(2, true));
        let marker = Ballot::revived(core.log.ballot_counter(), 0, 0).expect("a generation");
        core.revive(marker, Revival::Survivor { view: View::first(3), clock });
        let mut saved = Vec::new();
        core.save(&mut saved);
        let blank = Single::new(config(2, 1), View::first(3));
        let mut learner = blank.restored(&saved).expect("it is of use");
        assert_eq!(core.waits_first().map(|next| next.least), Some(Rank::new(103)));
        for core in [&mut core, &mut learner] {
            // Another replica may have delivered it, and reported that rank to its session and to others.
            assert_eq!(deliveries(core), [(2, 103, 2)], "all that it holds is committed");
        }
        elect(&mut core, 1);
        step(&mut core, received(3, true));
        hold(&mut core, 1);
        assert_eq!(deliveries(&mut core), [(3, first, 3)]);
    }
}

/// Slot 0, which leads after slot 1. Its log holds an entry of slot 1's ballot.
fn successor() -> Single {
    let mut core = replica(0);
    let ballot = Ballot::new(1, 1, 0);
    follow(&mut core, ballot, 0);
    for (index, record) in [(1, crate::group::GroupRecord::NewBallot.into()), (2, logged(1))] {
        let birth = ballot;
        let event = Event::Logged { index, birth, time_ms: 0, record, held: true, last: true };
        step(&mut core, event);
    }
    elect(&mut core, 2);
    core
}

fn logged(sequence: u64) -> Record {
    Record::Message { message: message(sequence), low_water: 1, inline: true }
}

#[test]
fn a_read_waits_for_what_former_leaders_may_have_answered_and_for_nothing_else() {
    let mut core = successor();
    let asked = core.read_from();
    assert!(!core.has_caught_up(asked), "its predecessor may have answered message 1");
    step(&mut core, received(2, true));
    let later = core.read_from();
    hold(&mut core, 2);
    assert!(!core.has_caught_up(asked), "message 1 is committed and not delivered");
    assert_eq!(core.deliver().map(|it| it.message), Some(message(1)));
    assert!(core.has_caught_up(asked) && core.has_caught_up(later), "2 it answers itself");
    assert_eq!(core.stage_of(message(2)), MessageStage::Pending);
    step(&mut core, received(3, true));
    let last = core.read_from();
    assert!(core.has_caught_up(last), "nor is what is not committed waited for");
}

#[test]
fn a_read_waits_until_the_ballots_first_entry_is_committed() {
    let mut core = replica(0);
    elect(&mut core, 1);
    let asked = core.read_from();
    assert!(!core.has_caught_up(asked), "others may hold more than its log");
    hold(&mut core, 1);
    assert!(core.has_caught_up(asked));
    // It leads again. Another replica may have led and answered in between.
    step(&mut core, received(1, true));
    hold(&mut core, 1);
    elect(&mut core, 1);
    let asked = core.read_from();
    hold(&mut core, 1);
    assert!(!core.has_caught_up(asked), "what it logged in its former ballot");
    assert!(core.deliver().is_some() && core.has_caught_up(asked));
}

#[test]
fn nothing_is_waited_for_but_what_is_logged_or_lacks_its_payload() {
    let mut core = leader();
    let group = GroupId(0);
    assert!(!core.waits_for(group));
    step(&mut core, received(1, true));
    assert!(core.waits_for(group), "for a word");
    hold(&mut core, 1);
    assert!(!core.waits_for(group));
    step(&mut core, received(2, false));
    hold(&mut core, 1);
    assert!(core.deliver().is_some() && core.deliver().is_some());
    assert!(core.waits_for(group), "slot 2 may ask for the payload");
    let forgotten = hold(&mut core, 2);
    assert_eq!(forgotten, [Effect::Forget { message: message(2) }]);
    assert!(!core.waits_for(group));
}

#[test]
fn whoever_leads_repeats_what_was_delivered_and_nothing_else() {
    let mut core = leader();
    for sequence in 1..=3 {
        step(&mut core, received(sequence, true));
    }
    hold(&mut core, 1);
    assert_eq!(core.deliver().map(|it| it.message), Some(message(1)));
    step(&mut core, received(4, true));
    let effects = elect(&mut core, 1);
    let repeated = effects.iter().filter(|it| matches!(it, Effect::Repeat { .. }));
    assert!(repeated.eq([&Effect::Repeat { message: message(1) }]), "{effects:?}");
    assert_eq!(core.inspect().pending(), 3);
    assert_eq!(core.inspect().undelivered(), [2, 3, 4].map(message));
}

#[test]
fn a_leader_that_cannot_deliver_for_long_what_a_follower_has_applied_asks_that_one_to_lead() {
    let mut core = leader();
    let slot = 2;
    step(&mut core, Event::Group(GroupEvent::FollowerAdded { slot, incarnation: 0, held_from: 0 }));
    step(&mut core, Event::Tick { now_ms: 1_000 });
    step(&mut core, received(1, true));
    hold(&mut core, 1);
    let watched = |core: &mut Single, applied, now_ms| {
        step(core, Event::Applied { slot, rank: Rank::new(applied) });
        step(core, Event::Tick { now_ms });
        step(core, Event::Group(GroupEvent::Watched { trusted: true }))
    };
    let ballot = core.log().promised();
    let succeed = Effect::Group(GroupEffect::TimeoutNow { to: slot, ballot });
    assert!(!watched(&mut core, 1, 2_000).contains(&succeed), "nobody has applied it");
    assert!(watched(&mut core, 2, 3_000).contains(&succeed));
    assert!(core.deliver().is_some());
    assert!(!watched(&mut core, 2, 4_000).contains(&succeed), "it has caught up");
}

#[test]
fn an_onlooker_sees_a_clock_that_no_delivery_passes() {
    let mut core = leader();
    step(&mut core, received(1, true));
    let seen = core.inspect().highest_clock();
    hold(&mut core, 1);
    assert!(core.deliver().is_some_and(|it| it.clock <= seen));
    assert_eq!(core.inspect().counter_known_of(GroupId(0)), core.log.ballot_counter());
    assert!(core.inspect().can_be_revived(0));
    let blank = Single::new(config(0, 1), View::first(3));
    assert!(!blank.inspect().can_be_revived(0), "it has nothing");
    assert_eq!(core.leader_of(GroupId(0)), ReplicaId::new(GroupId(0), 0));
}
