//! Results that machines exchange, each logged once.

use super::*;

#[test]
fn results_that_come_together_share_an_entry_and_those_that_come_again_are_not_in_it() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.replica.core.log().last_index();
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(2..6, 1));
    let entries =
        scene.replica.exchange.waiting().map(|it| (it.message.sequence, it.index - before));
    assert!(entries.eq([(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]));
    assert_eq!(scene.replica.core.log().last_index(), before + 2);
    assert_eq!((scene.replica.paths.exchanged, scene.replica.paths.result_again), (5, 5));
    scene.exchange(&[told(6..7, 1), told(6..7, 1)].concat());
    assert_eq!((scene.replica.paths.exchanged, scene.replica.paths.result_again), (6, 6));
}

#[test]
fn a_copy_ends_when_the_machine_has_all_results_that_are_committed() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    // One entry has three of them, and another one two.
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(4..6, 1));
    let by = ReplicaId::new(GroupId(0), 1);
    let core = &scene.replica.core;
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
    scene.replica.told(StatusColumn::Accepted, by, acceptance.to_word());
    scene.replica.core.advance_commit();
    scene.replica.core.log_mut().sends_part(Left::Little);
    scene.replica.finish_sending(&mut scene.links).unwrap();
    assert_eq!(scene.replica.application.copied_with, None, "its log will not tell of them again");
    scene.replica.deliver(&mut scene.links).unwrap();
    assert_eq!(scene.replica.application.copied_with, Some(5), "not between two of them");
    assert_eq!(scene.replica.core.log().sends_state(), Some((2, Stage::Sent)));
}

#[test]
fn results_of_a_former_state_are_not_logged_in_another() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.exchange(&told(1..4, 1));
    assert_eq!(scene.replica.exchange.waiting().count(), 3);
    let core = Ramcast::new(scene.replica.config, View::first(3));
    let Scene { replica, links, .. } = &mut scene;
    replica.begin_at(core, Nothing::default(), Runs::EMPTY, links);
    assert!(replica.exchange.is_drained(), "or another group would be said to have told them");
    replica.set_out(Cause::Start, links);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.log().leads());
    scene.replica.exchange(GroupId(2), Results(&told(7..9, 1)), &mut scene.links);
    let logged = scene.replica.exchange.waiting().map(|it| (it.from, it.message.sequence));
    assert!(logged.eq([(GroupId(2), 7), (GroupId(2), 8)]), "the others were another group's");
}

#[test]
fn what_is_longer_than_an_entry_of_results_is_not_logged() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.replica.core.log().last_index();
    let (fits, too_long) = (told(1..2, EXCHANGE_MAX), told(2..3, EXCHANGE_MAX + 1));
    assert_eq!(fits.len(), RESULTS_BYTES_MAX);
    scene.exchange(&too_long);
    assert_eq!(scene.replica.core.log().last_index(), before);
    scene.exchange(&fits);
    assert_eq!(scene.replica.core.log().last_index(), before + 1);
}

#[test]
fn what_the_machine_says_in_a_turn_goes_out_in_as_few_datagrams_as_hold_it() {
    let Scene { mut replica, mut links, .. } = Scene::new();
    let groups = GroupSet::single(GroupId(0));
    let (count, len) = (20, 200);
    for sequence in 1..=count {
        let message = MessageId::new(SessionId(1), sequence);
        let result = vec![7; len];
        replica.exchange.outgoing.tell_later(message, groups, &result, &replica.core, &mut links);
    }
    for _ in 0..2 {
        // There is nothing more the second time.
        replica.exchange.outgoing.tell(&replica.core, &mut links);
    }
    let sent = links.loopback.iter().map(|datagram| &datagram.bytes[..]);
    let together = RESULTS_BYTES_MAX / Results::len_of(len);
    assert_eq!(sent.clone().count(), (count as usize).div_ceil(together));
    assert!(sent.clone().all(|results| results.len() <= RESULTS_BYTES_MAX));
    assert_eq!(sent.flatten().copied().collect::<Vec<_>>(), told(1..count + 1, len));
}

#[test]
fn results_of_several_groups_about_one_message_are_all_logged() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    for group in [1, 2, 1] {
        scene.replica.exchange(GroupId(group), Results(&told(1..2, 1)), &mut scene.links);
    }
    let logged = scene.replica.exchange.waiting().map(|it| (it.from, it.message.sequence));
    assert!(logged.eq([(GroupId(1), 1), (GroupId(2), 1)]));
}

#[test]
fn what_is_cut_off_leaves_neither_its_end_nor_its_results() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.exchange(&told(1..2, 1));
    let kept = scene.replica.core.log().last_index();
    scene.exchange(&told(2..4, 1));
    scene.let_lead(1);
    let base = scene.replica.memory.end_of(kept);
    scene.replica.cut_log(base, &mut scene.links);
    let left = scene.replica.exchange.waiting().map(|it| (it.index, it.message.sequence));
    assert!(left.eq([(kept, 1)]), "another entry may stand there");
    assert_eq!(scene.replica.memory.ends.back(), Some(&(kept, base.position)));
}

/// A leader whose machine has received a result early, and that leads again after its entry was cut off.
fn with_a_result_cut_off() -> Scene {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let kept = scene.replica.core.log().last_index();
    scene.exchange(&told(1..2, 1));
    scene.replica.exchange.had_given_to(kept + 1);
    scene.replica.deliver(&mut scene.links).unwrap();
    assert_eq!(scene.replica.application.results, 1, "its entry is not committed");
    scene.let_lead(1);
    scene.replica.cut_log(scene.replica.memory.end_of(kept), &mut scene.links);
    scene.replica.set_out(Cause::Start, &mut scene.links);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.log().leads());
    scene
}

fn logged(scene: &Scene) -> Vec<u64> {
    scene.replica.exchange.waiting().map(|it| it.message.sequence).collect()
}

#[test]
fn a_result_whose_entry_was_cut_off_is_logged_once_more_and_received_once() {
    let mut scene = with_a_result_cut_off();
    assert_eq!(logged(&scene), []);
    scene.exchange(&told(1..2, 1));
    assert_eq!(logged(&scene), [1], "the other replicas' machines wait for it");
    scene.exchange(&told(1..2, 1));
    assert_eq!(logged(&scene), [1]);
    scene.commit();
    scene.replica.deliver(&mut scene.links).unwrap();
    assert_eq!((logged(&scene), scene.replica.application.results), (Vec::new(), 1));
    scene.exchange(&told(1..2, 1));
    assert_eq!(logged(&scene), [], "it is in the log");
}

#[test]
fn who_takes_a_state_logs_what_the_log_of_its_giver_lacked() {
    for lacked in [false, true] {
        let scene = with_a_result_cut_off();
        let early = scene.replica.exchange.save_early();
        assert_eq!(early, [(1, 1, 1)]);
        let saved = scene.replica.exchange.save();
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        let early = if lacked { early } else { Vec::new() };
        scene.replica.exchange.restore(saved, early, 0);
        scene.exchange(&told(1..2, 1));
        assert_eq!(logged(&scene), if lacked { &[1][..] } else { &[] });
    }
}

#[test]
fn a_state_that_is_sent_names_the_results_that_the_log_of_its_giver_lacks() {
    let order = with_a_result_cut_off().replica.save_order();
    let mut scene = Scene::new();
    let leader = scene.let_lead(1);
    scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
    let copy = CopyId { giver: 0, number: 1 };
    let parts =
        [(Content::Machine, &[][..]), (Content::MachineLast, &[]), (Content::Order, &order)];
    for (number, (content, bytes)) in (0..).zip(parts) {
        scene.hear(1, &Election::State(Part { incarnation: 0, copy, number, content }), bytes);
    }
    assert_eq!(scene.replica.exchange.save_early(), [(1, 1, 1)]);
}
