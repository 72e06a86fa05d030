//! Grants that are late, lost or of no use, and logs that are full.

use skein_fabric::Source;
use skein_protocol::group::frame::HEADER;

use super::*;
use crate::operate::{CommandError, Recreation};

#[test]
fn who_granted_a_log_that_could_not_be_taken_over_is_admitted_all_the_same() {
    let mut scene = Scene::new();
    scene.grant(2, 3, false);
    assert!(!scene.replica.core.log().leads(), "the best log is not there to be taken over");
    scene.grant(1, 4, true);
    assert!(scene.replica.core.log().leads());
    for slot in [1, 2] {
        assert!(scene.replica.writer.followers[slot].log.is_some(), "slot {slot} has granted");
    }
}

#[test]
fn who_has_the_best_log_is_asked_to_lead_if_nobody_can_take_it_over() {
    let mut scene = Scene::new();
    let before = scene.told(2);
    scene.grant(2, 3, false);
    assert_eq!(scene.told(2), before + 1);
    assert_eq!(scene.replica.paths.handed_over, 1);
}

#[test]
fn a_new_leader_asks_soon_for_results_that_were_asked_for_in_vain_before() {
    let mut scene = Scene::new();
    let (message, timestamp) = (MessageId::new(SessionId(1), 1), Timestamp::new(1, GroupId(0)));
    scene.replica.exchange.give(message, timestamp.into(), Rank::NOTHING, 0);
    scene.replica.exchange.last_given().asked = 4;
    scene.grant(1, 0, true);
    assert!(scene.replica.core.log().leads());
    assert_eq!(scene.replica.exchange.last_given().asked, 0);
}

#[test]
fn who_has_no_room_for_a_ballot_leads_when_it_learns_what_is_committed() {
    let mut scene = Scene::new();
    let places = scene.replica.memory.space.capacity() / HEADER as u64;
    scene.grant(1, places, true);
    assert!(
        !scene.replica.core.log().leads(),
        "its log is full of what nobody knows to be committed"
    );
    let (granted, tail) = scene.granted(2, places, true);
    let freed = (places - 4) * HEADER as u64;
    scene.hear(2, &Election::Granted(Granted { freed, ..granted }), &tail);
    assert!(scene.replica.core.log().leads(), "slot 2 knows, and has granted too");
    assert_eq!(scene.replica.core.log().last_index(), places + 1);
}

#[test]
fn a_follower_that_lacks_what_is_not_committed_is_admitted_however_full_the_log_is() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let mut results = 0;
    while scene.replica.memory.space.retains(0, RESERVE_FOR_CONTROL as u64) {
        results += 1;
        scene.exchange(&told(results..results + 1, 512));
    }
    assert_eq!(scene.replica.core.log().commit_index(), 0);
    scene.grant(2, 0, true);
    assert!(scene.replica.writer.followers[2].log.is_some(), "no state holds what it lacks");
}

#[test]
fn nobody_leads_whose_slot_lives_another_life_by_the_best_log() {
    for (named, leads) in [(vec![0, 0, 0], true), (vec![1 << 10, 0, 0], false)] {
        let mut scene = Scene::new();
        let (granted, tail) = scene.granted(2, 3, true);
        scene.hear(2, &Election::Granted(Granted { named, ..granted }), &tail);
        scene.grant(1, 0, true);
        assert_eq!(
            scene.replica.core.log().leads(),
            leads,
            "the group may have gone on without us"
        );
    }
}

#[test]
fn an_answer_to_an_earlier_question_opens_no_log() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (late, tail) = scene.granted(2, 0, true);
    scene.replica.follower_lost(2);
    let attempt = scene.replica.writer.followers[2].attempt;
    scene.hear(2, &Election::Granted(late), &tail);
    let follower = &scene.replica.writer.followers[2];
    assert!(follower.log.is_none(), "the answer to the next one takes it back");
    assert_eq!(follower.attempt, attempt, "nor is there a reason to ask once more");
    scene.grant(2, 0, true);
    assert!(scene.replica.writer.followers[2].log.is_some());
}

/// A log's memory is kept for as long as a former leader is attached to it.
#[test]
fn logs_that_are_written_no_more_are_left() {
    let reaches = |scene: &mut Scene, log| {
        scene.links.endpoint.fabric.write(log, 0, Source::Inline(&[0; 8]), None).is_ok()
    };
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    let [one, other] = [1, 2].map(|slot: usize| scene.replica.writer.followers[slot].log.unwrap());
    assert!(reaches(&mut scene, one) && reaches(&mut scene, other));
    scene.replica.follower_lost(1);
    scene.replica.tick(1, &mut scene.links);
    assert!(!reaches(&mut scene, one) && reaches(&mut scene, other));
    // It detaches before it grants memory to the new leader, since memory may be short.
    scene.let_lead(1);
    assert!(!reaches(&mut scene, other));
}

#[test]
fn a_grant_that_was_lost_is_told_again() {
    let mut scene = Scene::new();
    scene.pass(1);
    let ballot = scene.let_lead(1);
    let (grants, granted) = (scene.replica.reader.grants, scene.replica.reader.granted);
    let asks = |scene: &mut Scene| {
        let (leads, forced, attempt, commit) = (false, true, 0, place(Cursor::START));
        let (ballot, admitted) = (ballot.to_word(), vec![0; 3]);
        let prepare = Prepare { ballot, leads, forced, attempt, commit, admitted };
        scene.hear(1, &Election::Prepare(prepare), &[]);
        scene.told(1)
    };
    let (timeout, told) = (scene.replica.config.group.timeout_ms, scene.told(1));
    assert_eq!(asks(&mut scene), told, "it was told a moment ago");
    scene.pass(1 + timeout);
    assert_eq!(asks(&mut scene), told, "it waits for room");
    scene.refuse(1);
    assert_eq!(scene.told(1), 0, "the other has no memory for the channel");
    assert_eq!(asks(&mut scene), 1, "it is the same grant");
    assert_eq!((scene.replica.reader.grants, scene.replica.reader.granted), (grants, granted));
    scene.refuse(1);
    assert_eq!(asks(&mut scene), 0, "not with every question");
    scene.pass(1 + 2 * timeout);
    scene.hear(1, &Election::Behind { ballot: ballot.to_word() }, &[]);
    assert_eq!(asks(&mut scene), 0, "it was heard, and is of no use");
}

#[test]
fn who_was_asked_anew_is_not_admitted_by_what_it_answered_before() {
    let mut scene = Scene::new();
    let (granted, tail) = scene.granted(1, 1, true);
    // A write of an earlier ballot was denied meanwhile.
    scene.replica.follower_lost(1);
    scene.hear(1, &Election::Granted(granted), &tail);
    assert!(scene.replica.core.log().leads(), "the promise counts all the same");
    assert!(scene.replica.writer.followers[1].log.is_none(), "it was asked anew");
    scene.grant(1, 1, true);
    assert!(scene.replica.writer.followers[1].log.is_some());
}

#[test]
fn a_denial_of_an_earlier_ballot_deposes_nobody() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    let before = scene.replica.writer.writes;
    scene.replica.touch_followers(u64::MAX, &mut scene.links);
    assert_eq!(scene.replica.writer.writes, before + 2);
    let late = scene.replica.writer.writes;
    scene.let_lead(1);
    scene.replica.set_out(Cause::Start, &mut scene.links);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.log().leads());
    // Slot 2, not admitted yet, had granted another replica before the write of the first ballot came.
    scene.replica.failed(2, late, true);
    assert!(scene.replica.core.log().leads(), "it says nothing of this ballot");
}

/// Otherwise leadership would return to slot 0, and a leader that is well would refuse.
#[test]
fn an_operators_wish_comes_before_a_candidacy_that_is_due_in_the_same_tick() {
    for (wished, cause) in [(false, Cause::Silence), (true, Cause::Operator)] {
        let mut scene = Scene::new();
        let leader = scene.let_lead(1);
        scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
        scene.pass(1_000);
        if wished {
            scene.replica.transfer_here(&mut scene.links).unwrap();
        }
        // Nothing comes from the leader, and the state is there only after the timeout.
        (1_005..9_000).step_by(5).for_each(|now_ms| scene.pass(now_ms));
        assert_eq!(scene.replica.core.log().role(), Role::Follower, "it lacks a state");
        scene.happens(GroupEvent::Opened);
        let before = scene.replica.core.log().inspect().paths().campaigns;
        scene.replica.tick(9_000, &mut scene.links);
        assert_eq!(scene.replica.core.log().inspect().paths().campaigns, before + 1, "{cause:?}");
        scene.grant(1, 0, true);
        scene.commit();
        assert_eq!(scene.replica.core.log().won(), Some(cause));
    }
}

/// The last counter of a generation.
const fn last_of(generation: u32) -> u32 {
    generation << 24 | ((1 << 24) - 1)
}

#[test]
fn who_has_no_ballot_left_does_not_set_out() {
    for (counter, sets_out) in [(last_of(0) - 1, true), (last_of(0), false)] {
        let mut scene = Scene::new();
        let ballot = Ballot::new(counter, 1, 0);
        let (leads, forced, attempt, commit) = (false, true, 0, place(Cursor::START));
        let (word, admitted) = (ballot.to_word(), vec![0; 3]);
        let prepare = Prepare { ballot: word, leads, forced, attempt, commit, admitted };
        scene.hear(1, &Election::Prepare(prepare), &[]);
        assert_eq!(scene.replica.core.log().promised(), ballot);
        scene.replica.transfer_here(&mut scene.links).unwrap();
        assert_eq!(scene.replica.core.log().promised() > ballot, sets_out, "{ballot}");
        assert_eq!(scene.replica.core.log().promised().generation(), 0);
    }
}

#[test]
fn a_group_without_a_generation_left_is_not_recreated() {
    let group = GroupId(0);
    #[rustfmt::skip]
    let cases = [
        // had reached   answer                                        because
        (last_of(253),   Ok(()),                                       "two generations are left"),
        (last_of(254),   Ok(()),                                       "one is left"),
        (last_of(255),   Err(CommandError::NoGenerationLeft(group)),   "it is in its last one"),
    ];
    for (ballot_counter, answer, because) in cases {
        let mut scene = Scene::new();
        for slot in [1, 2] {
            let ask = Election::Ask { incarnation: 1 << 10, needs: None, applied: 0, taken: None };
            scene.hear(slot, &ask, &[]);
        }
        let incarnations = vec![0, 1 << 10, 1 << 10];
        let plan =
            Recreation { from: None, incarnations, ballot_counter, clock: 1, settled_clock: 0 };
        assert_eq!(scene.replica.prepare_recreate(1, &plan), answer, "{because}");
    }
    let said = CommandError::NoGenerationLeft(group).to_string();
    assert!(said.starts_with("g0 has been recreated 255 times"), "{said}");
}
