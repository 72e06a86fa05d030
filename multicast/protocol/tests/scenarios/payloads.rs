//! Payloads that are not in the log: which replicas are waited for, which count without the payload, and when it is
//! dropped.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::group::{Cause, GroupRecord};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::ordering::EffectOf;
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect, Event};
use skein_protocol::view::View;

use crate::played::{Played, both};
use crate::stage::{config, message, replica};

both!(
    a_new_life_counts_by_no_word_of_its_former_one,
    completed_writes_count_up_to_the_first_payload_that_is_not_acknowledged,
    a_payload_is_kept_until_it_is_delivered_and_all_that_are_waited_for_have_it,
    payloads_that_go_before_somebody_had_them_are_waited_for_up_to_the_last,
    who_was_evicted_counts_again_once_it_holds_the_payloads_that_nobody_keeps_for_it,
    who_leads_no_more_lets_go_of_what_it_kept_and_of_nothing_else,
    what_was_kept_goes_when_its_leader_is_elected_again_at_once,
    a_follower_stalls_on_a_payload_until_that_one_is_here,
    a_payload_for_which_the_log_waits_is_needed_though_its_session_is_done_with_it,
    a_missing_payload_is_fetched_once_in_a_while,
    an_entry_whose_payload_is_missing_is_forgotten_with_the_log_that_is_cut_off,
);

/// Slot 0 of `replicas`, which leads in ballot 1.r0i0 and feeds all others. Its first entry is committed.
fn leader<O: Played>(replicas: u8) -> O {
    let mut leader = O::new(config(replica(0, 0), 0, 1, replicas), View::first(replicas));
    leader.campaign(Cause::Start);
    for slot in 1..replicas {
        leader.granted(slot, 0, (Ballot::ZERO, 0), vec![0; usize::from(replicas)]);
    }
    leader.begin_to_lead(&mut Vec::new());
    for slot in 1..replicas {
        leader.add_follower(slot, 0);
        leader.step(Event::Applied { slot, rank: Rank::NOTHING }, &mut Vec::new());
        holds(&mut leader, slot, 1);
    }
    assert_eq!(leader.log().commit_index(), 1);
    leader
}

/// A member acknowledges our log up to `index`. Returns the effects of the turn's end.
fn holds<O: Played>(core: &mut O, slot: u8, index: u64) -> Vec<EffectOf<O>> {
    let (by, mut effects) = (replica(0, slot), Vec::new());
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index };
    core.step(Event::Acknowledged { by, acceptance }, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    effects
}

fn receive<O: Played>(core: &mut O, number: u64, inline: bool) {
    let (message, destinations) = (message(number), GroupSet::first(1));
    let outside = if inline { 0 } else { 5_000 };
    let event = Event::Received { message, low_water: 1, destinations, outside };
    core.step(event, &mut Vec::new());
}

fn completed<O: Played>(core: &mut O, slot: u8, index: u64) {
    core.step(Event::Completed { slot, index }, &mut Vec::new());
    core.step(Event::TurnEnd, &mut Vec::new());
}

fn forgets<R, T>(effects: &[Effect<R, T>], number: u64) -> bool {
    let goes = |it: &Effect<R, T>| matches!(it, Effect::Forget { message } if *message == self::message(number));
    effects.iter().any(goes)
}

fn a_new_life_counts_by_no_word_of_its_former_one<O: Played>() {
    // The last entry is large, and the former incarnation of slot 4 had acknowledged exactly that index.
    let (mut leader, slot, incarnation) = (leader::<O>(5), 4, 1 << 10);
    receive(&mut leader, 1, false);
    let last = leader.log().last_index();
    holds(&mut leader, slot, last);
    leader.add_follower(slot, incarnation);
    leader.step(Event::Applied { slot, rank: Rank::NOTHING }, &mut Vec::new());
    leader.caught_up(slot, incarnation, &mut Vec::new());
    assert_eq!(leader.log().last_index(), last + 1);
    for other in [1, 2] {
        holds(&mut leader, other, last + 1);
    }
    assert!(leader.log().view().names(slot, incarnation), "its `Join` is committed");
    receive(&mut leader, 2, true);
    completed(&mut leader, slot, last + 2);
    assert_eq!(
        leader.log().inspect().counts_on(slot),
        last,
        "the new incarnation may lack the payload, and report nothing"
    );
    holds(&mut leader, slot, last + 1);
    assert_eq!(leader.log().inspect().counts_on(slot), last + 2, "it has said so itself");
}

fn completed_writes_count_up_to_the_first_payload_that_is_not_acknowledged<O: Played>() {
    let mut leader = leader::<O>(5);
    for (number, inline) in [(1, true), (2, false), (3, true), (4, false), (5, true)] {
        receive(&mut leader, number, inline);
    }
    // Entry 3 and entry 5 are large.
    completed(&mut leader, 1, 6);
    #[rustfmt::skip]
    let cases = [
        // acknowledged  counts up to  because
        (1,              2,            "entry 3 may be there without its payload"),
        (2,              2,            "the same"),
        (3,              4,            "it has that payload, and perhaps not the next"),
        (4,              4,            "the same"),
        (5,              6,            "it has both"),
    ];
    for (acknowledged, counts, because) in cases {
        holds(&mut leader, 1, acknowledged);
        assert_eq!(leader.log().inspect().counts_on(1), counts, "{because}");
    }
    completed(&mut leader, 1, 2);
    assert_eq!(
        leader.log().inspect().counts_on(1),
        6,
        "a completion that comes late takes nothing back"
    );
}

fn a_payload_is_kept_until_it_is_delivered_and_all_that_are_waited_for_have_it<O: Played>() {
    let mut leader = leader::<O>(3);
    receive(&mut leader, 1, false);
    let (index, kept) = (leader.log().last_index(), message(1));
    assert!(!leader.log().inspect().keeps_payload_for(2), "it is not delivered");
    assert!(!forgets(&holds(&mut leader, 1, index), 1));
    assert_eq!(leader.log().commit_index(), index);
    assert!(!forgets(&holds(&mut leader, 2, index), 1), "all have it, and it is not delivered");
    holds(&mut leader, 2, index - 1);
    assert_eq!(leader.deliver().map(|it| it.message), Some(kept));
    assert!(leader.log().keeps(kept) && leader.may_need(kept) && leader.log().keeps_payloads());
    assert_eq!(leader.log().inspect().inherited_payloads(), 0, "it was logged by this leader");
    assert!(leader.waits_for(GroupId(0)), "for the word of slot 2");
    assert!(
        leader.log().inspect().keeps_payload_for(2) && !leader.log().inspect().keeps_payload_for(1)
    );
    let mut effects = Vec::new();
    leader.step(Event::TurnEnd, &mut effects);
    assert!(!forgets(&effects, 1), "slot 2 may ask for it");
    assert!(forgets(&holds(&mut leader, 2, index), 1));
    assert!(!leader.log().keeps(kept) && !leader.may_need(kept) && !leader.waits_for(GroupId(0)));
}

fn payloads_that_go_before_somebody_had_them_are_waited_for_up_to_the_last<O: Played>() {
    let mut leader = leader::<O>(5);
    assert!(leader.evicts(4, &mut Vec::new()));
    let evict = leader.log().last_index();
    (1..4).for_each(|slot| _ = holds(&mut leader, slot, evict));
    receive(&mut leader, 1, false);
    receive(&mut leader, 2, false);
    let last = leader.log().last_index();
    (1..4).for_each(|slot| _ = holds(&mut leader, slot, last));
    while leader.deliver().is_some() {}
    let mut effects = Vec::new();
    leader.step(Event::TurnEnd, &mut effects);
    assert!(forgets(&effects, 1) && forgets(&effects, 2), "slot 4 is not waited for");
    receive(&mut leader, 3, true);
    for slot in [3, 4] {
        completed(&mut leader, slot, last + 1);
    }
    assert_eq!(leader.log().inspect().counts_on(3), last + 1, "it had both");
    for acknowledged in [evict, last - 1] {
        holds(&mut leader, 4, acknowledged);
        assert_eq!(
            leader.log().inspect().counts_on(4),
            acknowledged,
            "it lacks the second for ever"
        );
    }
    holds(&mut leader, 4, last);
    assert_eq!(leader.log().inspect().counts_on(4), last + 1);
}

fn who_was_evicted_counts_again_once_it_holds_the_payloads_that_nobody_keeps_for_it<O: Played>() {
    let (mut leader, slot) = (leader::<O>(5), 4);
    assert!(leader.evicts(slot, &mut Vec::new()));
    receive(&mut leader, 1, false);
    let last = leader.log().last_index();
    (1..4).for_each(|slot| _ = holds(&mut leader, slot, last));
    assert!(leader.log().view().member(slot).evicted);
    // It lets us write its log again, and waits for a payload that we may have dropped.
    leader.add_follower(slot, 0);
    for (acknowledged, counts) in [(last - 1, false), (last, true)] {
        holds(&mut leader, slot, acknowledged);
        leader.caught_up(slot, 0, &mut Vec::new());
        assert_eq!(
            leader.log().last_index() > last,
            counts,
            "acknowledged {acknowledged} of {last}"
        );
    }
}

fn who_leads_no_more_lets_go_of_what_it_kept_and_of_nothing_else<O: Played>() {
    for committed in [false, true] {
        let mut leader = leader::<O>(3);
        receive(&mut leader, 1, false);
        let index = leader.log().last_index();
        holds(&mut leader, 1, index);
        assert!(leader.deliver().is_some());
        receive(&mut leader, 2, false);
        if committed {
            holds(&mut leader, 1, index + 1);
        }
        leader.step(Event::Denied, &mut Vec::new());
        assert!(leader.log().keeps(message(1)), "until the turn's end");
        assert!(!leader.log().keeps(message(2)), "it is not delivered: whoever leads may want it");
        leader.step(Event::TurnEnd, &mut Vec::new());
        assert!(!leader.log().keeps_payloads());
        // It is elected again, and keeps what it has still to deliver.
        leader.campaign(Cause::Silence);
        let last = (leader.log().inspect().last_birth(), leader.log().last_index());
        leader.granted(1, 0, last, vec![0; 3]);
        leader.begin_to_lead(&mut Vec::new());
        assert!(leader.log().keeps(message(2)), "committed: {committed}");
        assert_eq!(leader.log().inspect().inherited_payloads(), 0, "it is not delivered");
        let last = leader.log().last_index();
        holds(&mut leader, 1, last);
        assert!(leader.deliver().is_some() && leader.log().keeps(message(2)));
        assert_eq!(leader.log().inspect().inherited_payloads(), 1);
    }
}

fn what_was_kept_goes_when_its_leader_is_elected_again_at_once<O: Played>() {
    let mut leader = leader::<O>(3);
    receive(&mut leader, 1, false);
    let index = leader.log().last_index();
    holds(&mut leader, 1, index);
    assert!(leader.deliver().is_some() && leader.log().keeps(message(1)));
    leader.campaign(Cause::Silence);
    let birth = leader.log().inspect().last_birth();
    leader.granted(1, 0, (birth, index), vec![0; 3]);
    let mut effects = Vec::new();
    leader.begin_to_lead(&mut effects);
    assert!(forgets(&effects, 1) && !leader.log().keeps_payloads());
}

/// Slot 1 of three, which follows slot 0 in 1.r0i0 and has read its first entry.
fn follower<O: Played>() -> O {
    let mut follower = O::new(config(replica(0, 1), 0, 1, 3), View::first(3));
    follower.step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    let ballot = Ballot::new(1, 0, 0);
    follower.let_lead(ballot);
    follower.begin_to_follow(ballot, 0, 1);
    logged(&mut follower, 1, GroupRecord::NewBallot.into(), true);
    follower
}

fn logged<O: Played>(core: &mut O, index: u64, record: O::Record, held: bool) -> Vec<EffectOf<O>> {
    let (birth, mut effects) = (core.log().ballot(), Vec::new());
    let event = Event::Logged { index, birth, time_ms: 0, record, held, last: true };
    core.step(event, &mut effects);
    core.step(Event::TurnEnd, &mut effects);
    effects
}

fn large<O: Played>(number: u64, low_water: u64) -> O::Record {
    O::record(message(number), low_water, GroupSet::first(1), false)
}

fn a_follower_stalls_on_a_payload_until_that_one_is_here<O: Played>() {
    let mut follower = follower::<O>();
    let effects = logged(&mut follower, 2, large::<O>(5, 1), false);
    assert_eq!((follower.log().stalled_on(), follower.log().last_index()), (Some(message(5)), 1));
    assert!(!effects.iter().any(|it| matches!(it, Effect::Acknowledge { .. })));
    receive(&mut follower, 6, false);
    assert_eq!(follower.log().stalled_on(), Some(message(5)), "that is another one");
    receive(&mut follower, 5, false);
    assert_eq!((follower.log().stalled_on(), follower.log().last_index()), (None, 2));
}

fn a_payload_for_which_the_log_waits_is_needed_though_its_session_is_done_with_it<O: Played>() {
    let mut follower = follower::<O>();
    let other = MessageId::new(SessionId(2), 1);
    assert!(follower.may_need(other), "nobody knows it");
    logged(&mut follower, 2, large::<O>(9, 8), true);
    assert!(!follower.may_need(message(5)), "it is known by its session's mark alone");
    logged(&mut follower, 3, large::<O>(5, 1), false);
    assert!(follower.may_need(message(5)));
}

fn a_missing_payload_is_fetched_once_in_a_while<O: Played>() {
    let mut follower = follower::<O>();
    logged(&mut follower, 2, large::<O>(5, 1), false);
    let mut fetched = Vec::new();
    for now_ms in 1_001..1_060 {
        let mut effects = Vec::new();
        follower.step(Event::Tick { now_ms }, &mut effects);
        let fetches = effects.iter().any(|effect| match effect {
            Effect::Fetch { message, from } => {
                (*message, *from) == (self::message(5), replica(0, 0))
            }
            _ => false,
        });
        fetched.extend(fetches.then_some(now_ms));
    }
    assert_eq!(fetched, [1_020, 1_040], "of whoever leads, every 20 ms");
}

fn an_entry_whose_payload_is_missing_is_forgotten_with_the_log_that_is_cut_off<O: Played>() {
    let mut follower = follower::<O>();
    logged(&mut follower, 2, large::<O>(5, 1), false);
    let later = Ballot::new(2, 2, 0);
    follower.let_lead(later);
    follower.begin_to_follow(later, 1, 2);
    assert_eq!(follower.log().stalled_on(), None);
    logged(&mut follower, 2, GroupRecord::NewBallot.into(), true);
    assert_eq!(follower.log().last_index(), 2);
}
