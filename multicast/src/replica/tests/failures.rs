//! A state machine that fails: its replica says nothing of what it was doing, and it is not called again.

use super::*;

/// A leader whose machine fails in this call.
fn with_a_machine_that_fails_in(call: Call) -> Scene {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    scene.replica.application.fails_in = Some(call);
    scene
}

/// A learner asks for its state, and has taken all that it was told.
fn asks_for_a_state(scene: &mut Scene) {
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    assert!(scene.is_sending());
    scene.refuse(2);
}

#[test]
fn a_failure_ends_what_the_replica_was_doing() {
    for call in [Call::Deliver, Call::Exchanged, Call::GoOn] {
        let mut scene = with_a_machine_that_fails_in(call);
        let head = Head { sequence: 1, low_water: 1, destinations: GroupSet::first(1) };
        scene.replica.receive(SessionId(1), head, &[], &mut scene.links);
        scene.exchange(&told(1..2, 1));
        scene.commit();
        let failed = scene.replica.deliver(&mut scene.links).expect_err("it does not go on");
        assert_eq!(failed.0, call);
        assert!(
            scene.replica.application.answered.len() <= 1,
            "{call:?}: nothing is delivered after"
        );
    }
}

#[test]
fn a_read_in_which_the_machine_fails_is_not_answered_nor_is_another() {
    let mut scene = with_a_machine_that_fails_in(Call::Query);
    for number in 1..=2_u64 {
        let anybody = 1;
        let question = [&number.to_le_bytes()[..], &[anybody], b"what"].concat();
        scene.replica.asked(SessionId(1), &question, &mut scene.links);
    }
    scene.replica.answer_reads(&mut scene.links).expect_err("it does not go on");
    assert_eq!(scene.replica.paths.read_answered, 0);
}

#[test]
fn a_state_of_which_a_part_cannot_be_made_is_not_sent() {
    let mut scene = with_a_machine_that_fails_in(Call::Copy);
    asks_for_a_state(&mut scene);
    scene.replica.send_state(&mut scene.links).expect_err("it does not go on");
    assert_eq!(scene.replica.paths.parts_given, 0);

    let mut scene = with_a_machine_that_fails_in(Call::FinishCopy);
    asks_for_a_state(&mut scene);
    scene.replica.send_state(&mut scene.links).expect_err("the last part follows the first");
    assert_eq!(scene.replica.paths.parts_given, 1);

    let mut scene = with_a_machine_that_fails_in(Call::FinishCopy);
    asks_for_a_state(&mut scene);
    scene.exchange(&told(1..2, 1));
    scene.commit();
    scene.replica.core.log_mut().sends_part(Left::Little);
    scene.replica.deliver(&mut scene.links).expect_err("it is to be sent between two deliveries");
    assert_eq!(scene.replica.paths.parts_given, 0);
}

/// The giver is not told that its copy is damaged: it is well.
#[test]
fn a_state_that_cannot_be_stored_is_no_malformed_one() {
    for last in [false, true] {
        let mut scene = Scene::new();
        scene.let_lead(1);
        scene.replica.effects.clear();
        let leader = scene.replica.core.log().promised();
        scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
        let before = scene.told(1);
        let content = if last { Content::MachineLast } else { Content::Machine };
        let copy = CopyId { giver: 0, number: 1 };
        let part = Election::State(Part { incarnation: 0, copy, number: 0, content });
        let mut fresh = |_| Nothing { fails_in: Some(Call::Restore), ..Nothing::default() };
        scene.hears(1, &part, &[], &mut fresh).expect_err("it does not go on");
        assert_eq!(scene.replica.paths.parts_taken, 1);
        assert_eq!(scene.told(1), before, "nothing is said about it");
    }
}
