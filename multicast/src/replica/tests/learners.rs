//! Learners, and followers that lag far behind: what they ask for, what they receive, and when they count.

use super::*;

#[test]
fn who_is_behind_is_told_so_however_much_waits_for_it() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.told(2);
    assert!(before > 0, "it has not taken the question");
    scene.grant(2, 3, false);
    assert_eq!(scene.told(2), before + 1, "nobody knows what it shares with this log");
    assert_eq!(scene.replica.paths.behind, 1);
}

#[test]
fn what_an_earlier_leader_says_late_keeps_nobody_from_asking_for_the_state() {
    let mut scene = Scene::new();
    let (earlier, later) = (scene.let_lead(1), scene.let_lead(2));
    scene.hear(2, &Election::Behind { ballot: later.to_word() }, &[]);
    scene.hear(1, &Election::Behind { ballot: earlier.to_word() }, &[]);
    assert_eq!(
        scene.replica.core.log().lagging(),
        Some(later),
        "the later one does not say it again"
    );
}

#[test]
fn what_a_former_life_has_applied_hides_not_that_the_next_one_has() {
    // A replica that we admitted, and one that another leader admitted: its incarnation counts by now.
    for incarnation in [1 << 10, 0] {
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        let slot = ReplicaId::new(GroupId(0), 2);
        scene.applies(2, 77);
        assert_eq!(scene.words(), [(slot, 77)]);
        scene.applies(2, 77);
        assert_eq!(scene.words(), [], "it says nothing new");
        let (granted, tail) = scene.granted(2, 0, true);
        let granted = Granted { incarnation, ..granted };
        scene.hear(2, &Election::Granted(granted), &tail);
        assert_eq!(scene.words(), [], "it has said nothing yet");
        scene.applies(2, 77);
        assert_eq!(
            scene.words(),
            [(slot, 77)],
            "what the former incarnation had said counts no more"
        );
    }
}

#[test]
fn who_has_a_state_is_not_given_another_but_asked_to_be_admitted() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let incarnation = 1 << 10;
    scene.hear(2, &Election::Ask { incarnation, needs: None, applied: 0, taken: None }, &[]);
    assert!(scene.sends_to().is_none() && scene.replica.has_lost_its_memory(2));
    // A replica whose `Join` is committed counts even before it has seen that: it will grant.
    scene.hear(1, &Election::Ask { incarnation: 0, needs: None, applied: 0, taken: None }, &[]);
    assert!(!scene.replica.has_lost_its_memory(1));
    scene.hear(2, &Election::Ask { incarnation, needs: Some(0), applied: 0, taken: None }, &[]);
    assert_eq!(scene.sends_to(), Some(2));
}

#[test]
fn a_copy_goes_on_where_it_stood_when_its_giver_leads_again() {
    let taken = |number, next| Some(Taken { copy: CopyId { giver: 0, number }, next });
    #[rustfmt::skip]
    let cases = [
        // says        begun  because
        (taken(1, 0),  1,     "it has all that was sent"),
        (taken(1, 1),  2,     "it has another part than was sent"),
        (taken(2, 0),  2,     "it has another copy"),
        (None,         2,     "it has nothing"),
    ];
    for (taken, begun, because) in cases {
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        let asks = |scene: &mut Scene, taken| {
            let (incarnation, needs) = (1 << 10, Some(Ballot::ZERO.to_word()));
            scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken }, &[]);
            scene.is_sending()
        };
        assert!(asks(&mut scene, None));
        scene.replica.set_out(Cause::Preempted, &mut scene.links);
        assert!(!asks(&mut scene, taken), "who does not lead gives nothing");
        scene.grant(1, 0, true);
        assert!(!scene.is_sending(), "who takes it may take another's by now");
        assert!(asks(&mut scene, taken));
        assert_eq!(scene.replica.application.begun, begun, "{because}");
    }
}

#[test]
fn who_is_given_a_state_does_not_set_out_to_lead_meanwhile() {
    for taught in [true, false] {
        let mut scene = Scene::new();
        scene.replica.tick(1, &mut scene.links);
        let ballot = scene.let_lead(1);
        scene.hear(1, &Election::Behind { ballot: ballot.to_word() }, &[]);
        // Nothing else comes from the leader, but not for so long that it is suspected.
        for number in 0..18 {
            if taught {
                scene.is_given(1, number);
            }
            scene.replica.tick(1 + 20 * (number + 1), &mut scene.links);
        }
        assert_eq!(scene.replica.core.log().promised() == ballot, taught);
    }
}

#[test]
fn how_far_a_former_life_had_read_says_nothing_of_the_next_one() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    for freed in [960, 64] {
        scene.replica.follower_lost(2);
        let (granted, tail) = scene.granted(2, 0, true);
        scene.hear(2, &Election::Granted(Granted { freed, ..granted }), &tail);
        assert_eq!(scene.replica.writer.followers[2].freed, freed);
    }
}

#[test]
fn nobody_is_admitted_before_it_has_all_that_was_written() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.commit();
    let (granted, tail) = scene.granted(2, 0, true);
    let granted = Granted { incarnation: 1 << 10, ..granted };
    scene.hear(2, &Election::Granted(granted), &tail);
    scene.replica.end_turn(&mut scene.links);
    let last = scene.replica.core.log().last_index();
    scene.replica.admit_caught_up(&mut scene.links);
    assert_eq!(scene.replica.core.log().last_index(), last, "what it lacks may be lost with us");
    scene.replica.completed(2, scene.replica.writer.writes);
    scene.replica.admit_caught_up(&mut scene.links);
    assert_eq!(scene.replica.core.log().last_index(), last, "nobody has said what it had applied");
    scene.replica.told(
        StatusColumn::Applied,
        ReplicaId::new(GroupId(0), 1),
        Rank::NOTHING.to_word(),
    );
    scene.replica.admit_caught_up(&mut scene.links);
    assert_eq!(scene.replica.core.log().last_index(), last + 1);
}

#[test]
fn the_log_is_kept_for_a_learner_from_where_its_state_ends() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    scene.commit();
    scene.replica.free_log(&mut scene.links);
    // A former incarnation had read up to there.
    scene.replica.writer.followers[2].freed = 1 << 20;
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    scene.replica.core.log_mut().sends_part(Left::Little);
    scene.replica.finish_sending(&mut scene.links).unwrap();
    assert_eq!(scene.replica.core.log().sends_state(), Some((2, Stage::Sent)));
    assert_eq!(scene.replica.writer.followers[2].freed, scene.replica.memory.freed);
}

/// It refuses the state, which contains less than its log, and perhaps nothing can be committed without it.
#[test]
fn who_keeps_a_log_beyond_the_state_that_it_was_given_is_fed() {
    for beyond in [false, true] {
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        scene.commit();
        scene.replica.tell_core(GroupEvent::Evict { slot: 2 }, &mut scene.links);
        scene.commit();
        let mut results = 0;
        while scene.replica.memory.space.retains(0, RESERVE_FOR_CONTROL as u64) {
            results += 1;
            scene.exchange(&told(results..results + 1, 512));
        }
        if !beyond {
            scene.commit();
        }
        // It has all of our log and frees nothing, since it has not seen that anything is committed.
        let grants = |scene: &mut Scene| {
            let (mut granted, tail) = scene.granted(2, 0, true);
            let runs = scene.replica.memory.runs.clone();
            granted.runs = runs.iter().map(|(birth, at)| (birth.to_word(), place(at))).collect();
            granted.end = place(runs.end());
            scene.hear(2, &Election::Granted(granted), &tail);
            scene.replica.writer.followers[2].log.is_some()
        };
        assert!(!grants(&mut scene), "what it keeps would outgrow its ring: it needs the state");
        let needs = Some(scene.replica.core.log().ballot().to_word());
        scene.hear(2, &Election::Ask { incarnation: 0, needs, applied: 0, taken: None }, &[]);
        scene.replica.core.log_mut().sends_part(Left::Little);
        scene.replica.finish_sending(&mut scene.links).unwrap();
        assert_eq!(grants(&mut scene), beyond);
        assert_eq!(
            scene.replica.writer.followers[2].joining.is_some(),
            beyond,
            "it is let in later"
        );
    }
}

/// It may never receive the whole state, and may have applied more of the log than another state that was sent before.
#[test]
fn who_is_given_the_state_may_need_the_log_until_it_lets_us_in() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    scene.commit();
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    scene.replica.core.log_mut().sends_part(Left::Little);
    scene.replica.finish_sending(&mut scene.links).unwrap();
    assert_eq!(scene.replica.core.log().sends_state(), Some((2, Stage::Sent)));
    // Slot 1 received a state that stands for all of our log.
    let (mut granted, _) = scene.granted(1, 0, true);
    let end = scene.replica.memory.runs.end();
    granted.held_from = end.position;
    let fabric = &mut scene.links.endpoint.fabric;
    assert_eq!(scene.replica.written_before(1, &granted, end, fabric), 0..end.position);
}

/// A network card reads the bytes of a write when it sends them, and again when it retransmits them.
#[test]
fn what_is_under_way_to_a_lost_follower_may_be_of_a_later_lap() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    scene.replica.end_turn(&mut scene.links);
    let last = scene.replica.writer.writes;
    for slot in 1..3 {
        assert!(!scene.replica.writer.followers[slot].has_all());
    }
    // All of the writes to slot 2 have arrived.
    (0..=last).for_each(|number| scene.replica.completed(2, number));
    (1..3).for_each(|slot| scene.replica.follower_lost(slot));
    scene.replica.memory.space.free(64);
    assert_eq!([1, 2].map(|slot| scene.replica.overwrites_to(slot)), [64, 0]);
}

#[test]
fn the_machine_gives_a_copy_up_that_is_not_finished_when_its_transfer_is_over() {
    // The fate of a copy for slot 2, and whether the machine has to give it up.
    type Then = fn(&mut Scene);
    let finish: Then = |scene| {
        scene.replica.core.log_mut().sends_part(Left::Little);
        scene.replica.finish_sending(&mut scene.links).unwrap();
        scene.replica.stop_sending();
    };
    let answer_nothing: Then = |scene| {
        for now_ms in (1..2_000).step_by(5) {
            scene.replica.tick(now_ms, &mut scene.links);
        }
    };
    let take_another_state: Then = |scene| {
        let core = Ramcast::new(scene.replica.config, View::first(3));
        let Scene { replica, links, .. } = scene;
        replica.begin_at(core, Nothing::default(), Runs::EMPTY, links);
        replica.stop_sending();
    };
    #[rustfmt::skip]
    let cases: [(Then, u32, &str); 6] = [
        // then                                               given up  because
        (|scene| scene.replica.stop_sending_to(2),              1,        "it is gone"),
        (|scene| scene.replica.stop_sending_to(1),              0,        "another one is"),
        (answer_nothing,                                      1,        "it does not answer"),
        (|scene| scene.replica.forget_transfers(&mut scene.links), 1,        "the group is recreated"),
        (finish,                                              0,        "the copy is finished"),
        (take_another_state,                                  0,        "the machine is gone"),
    ];
    for (then, given_up, because) in cases {
        let mut scene = Scene::new();
        scene.replica.tick(1, &mut scene.links);
        scene.grant(1, 0, true);
        let (incarnation, needs) = (1 << 10, Some(0));
        scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
        assert_eq!(scene.sends_to(), Some(2));
        then(&mut scene);
        scene.replica.carry_out(&mut scene.links);
        assert_eq!(scene.replica.application.given_up, given_up, "{because}");
    }
}
