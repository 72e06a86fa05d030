//! A replica whose state differs from the others': what it no longer does.

use super::*;
use crate::operate::{CommandError, Diverged};

/// Slot 0 leads, and holds this digest at position 1.
fn holding(digest: u64) -> Scene {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    scene.commit();
    scene.replica.application.digest = Some(Digest { position: 1, digest });
    scene.replica.compare_states(&mut scene.links);
    scene
}

/// The others report in a ballot the digest that they hold at position 1.
fn hear(scene: &mut Scene, ballot: Ballot, digest: u64) {
    let (ballot, digests) = (ballot.to_word(), vec![Digest { position: 1, digest }]);
    for slot in [1, 2] {
        let digests = digests.clone();
        scene.hear(slot, &Election::Digests { ballot, digests }, &[]);
    }
    scene.replica.compare_states(&mut scene.links);
}

fn ask_for_state(scene: &mut Scene) {
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
}

#[test]
fn a_state_that_has_diverged_is_given_to_nobody() {
    let mut scene = holding(8);
    ask_for_state(&mut scene);
    assert!(scene.sends_to().is_some());
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, ballot, 7);
    assert!(!scene.replica.is_trusted());
    assert!(scene.sends_to().is_none(), "what was under way is given up");
    ask_for_state(&mut scene);
    assert!(scene.sends_to().is_none(), "nor is another begun");
}

#[test]
fn who_has_diverged_does_not_set_out_to_lead() {
    let mut scene = holding(8);
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, ballot, 7);
    let leader = scene.let_lead(1);
    scene.hear(1, &Election::TimeoutNow { ballot: leader.to_word() }, &[]);
    assert_eq!(
        scene.replica.core.log().promised(),
        leader,
        "it would answer from a state of its own"
    );
    let refused = scene.replica.transfer_here(&mut scene.links);
    assert_eq!(refused, Err(CommandError::Learner(GroupId(0))));
}

#[test]
fn who_had_diverged_says_so_whatever_becomes_of_others() {
    let mut scene = holding(8);
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, ballot, 7);
    scene.replica.state_is_new(false);
    let told = |scene: &Scene| scene.replica.divergence_status().map(|it| (it.what, it.recovered));
    assert_eq!(told(&scene), Some((Diverged::Own, true)));
    // Now slot 2 differs from both.
    scene.replica.application.digest = Some(Digest { position: 2, digest: 9 });
    let say = |scene: &mut Scene, position, digest_of: [u64; 2]| {
        for (slot, digest) in [1, 2].into_iter().zip(digest_of) {
            let digests = vec![Digest { position, digest }];
            scene.hear(slot, &Election::Digests { ballot: ballot.to_word(), digests }, &[]);
        }
        scene.replica.compare_states(&mut scene.links);
    };
    scene.replica.compare_states(&mut scene.links);
    say(&mut scene, 2, [9, 1]);
    assert_eq!(told(&scene), Some((Diverged::Others, false)), "that is the matter now");
    assert!(scene.replica.is_trusted());
    scene.replica.application.digest = Some(Digest { position: 3, digest: 5 });
    say(&mut scene, 3, [5, 5]);
    assert_eq!(told(&scene), Some((Diverged::Own, true)), "until its node is started again");
}

/// A learner reports that a copy that it received does not match its digest.
fn refuse(scene: &mut Scene, incarnation: u32) {
    let ask = Election::Ask { incarnation, needs: Some(0), applied: 0, taken: None };
    scene.hear(2, &ask, &[]);
    if scene.sends_to().is_some() {
        let copy = CopyId { giver: 0, number: u64::from(scene.replica.application.begun) };
        scene.hear(2, &Election::Malformed { copy, incarnation }, &[]);
    }
    scene.replica.compare_states(&mut scene.links);
}

#[test]
fn a_leader_of_whose_state_a_copy_is_refused_lets_another_lead_and_takes_the_state_anew() {
    let mut scene = holding(8);
    let stray = CopyId { giver: 0, number: 9 };
    scene.hear(2, &Election::Malformed { copy: stray, incarnation: 1 << 10 }, &[]);
    assert!(scene.replica.is_trusted(), "it is no copy of this replica's");
    refuse(&mut scene, 1 << 10);
    assert!(!scene.replica.is_trusted() && scene.sends_to().is_none());
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, ballot, 8);
    assert!(!scene.replica.is_trusted(), "digests agree, and say nothing of what stands there");
    let told = scene.replica.divergence_status().map(|it| (it.what, it.recovered));
    assert_eq!(told, Some((Diverged::Own, false)));
    scene.replica.state_is_new(false);
    assert!(scene.replica.is_trusted());
}

#[test]
fn a_learner_is_believed_once_and_only_where_another_has_a_state() {
    let mut scene = holding(8);
    scene.hear(1, &Election::Ask { incarnation: 0, needs: Some(0), applied: 0, taken: None }, &[]);
    scene.replica.stop_sending();
    refuse(&mut scene, 1 << 10);
    assert!(scene.replica.is_trusted(), "slot 1 has no state, either: nobody could lead");
    scene.happens(GroupEvent::CaughtUp { slot: 1, incarnation: 0 });
    refuse(&mut scene, 1 << 10);
    assert!(!scene.replica.is_trusted());
    scene.replica.state_is_new(false);
    refuse(&mut scene, 1 << 10);
    assert!(scene.replica.is_trusted(), "its own memory may be what fails");
    refuse(&mut scene, 2 << 10);
    assert!(!scene.replica.is_trusted(), "it is another incarnation");
}

#[test]
fn who_is_given_a_copy_that_is_not_what_its_digest_says_tells_its_giver() {
    let mut scene = Scene::new();
    let leader = scene.let_lead(1);
    scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
    let copy = CopyId { giver: 0, number: 1 };
    for (number, bytes, told) in [(0, &b"pairs"[..], 0), (1, NONSENSE, 1)] {
        let before = scene.told(1);
        let part = Part { incarnation: 0, copy, number, content: Content::Machine };
        scene.hear(1, &Election::State(part), bytes);
        assert_eq!(scene.told(1), before + told);
    }
    assert!(!scene.replica.takes_state());
}

#[test]
fn what_was_told_in_another_ballot_says_nothing_of_this_state() {
    let mut scene = holding(8);
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, Ballot::new(ballot.counter() + 1, 1, 0), 7);
    assert!(scene.replica.is_trusted(), "a group that was recreated counts from the beginning");
    hear(&mut scene, ballot, 7);
    assert!(!scene.replica.is_trusted());
}

#[test]
fn what_was_told_of_a_former_state_says_nothing_of_the_next_one() {
    let mut scene = holding(8);
    let ballot = scene.replica.core.log().ballot();
    hear(&mut scene, ballot, 7);
    assert!(!scene.replica.is_trusted());
    scene.replica.state_is_new(false);
    scene.replica.application.digest = Some(Digest { position: 2, digest: 9 });
    for now_ms in [2, 3] {
        scene.replica.tick(now_ms, &mut scene.links);
    }
    assert!(scene.replica.is_trusted(), "it was taken of one that f+1 hold");
}
