use super::*;

/// Slot 2 asks for the rest of a copy of which it has all parts below `next`.
fn rest(number: u64, next: u64) -> Request {
    Request { taken: Some(Extent { copy: copy(number), next }), ..request(2, STRANGER) }
}

#[test]
fn a_state_is_sent_to_who_needs_it_by_who_leads_and_is_trusted() {
    use Answer::{Begin, Nothing};
    let ours = leader().ballot();
    let other = Ballot::new(0, 1, 0);
    let needs = |needs| Request { needs, ..request(2, STRANGER) };
    #[rustfmt::skip]
    let cases = [
        // who asks                  trusted  answer   because
        (needs(Some(Ballot::ZERO)),  true,    Begin,   "it has none"),
        (needs(Some(ours)),          true,    Begin,   "we have left it behind"),
        (needs(Some(other)),         true,    Nothing, "we have not told it yet that we have left it behind"),
        (needs(None),                true,    Nothing, "it has one"),
        (needs(Some(Ballot::ZERO)),  false,   Nothing, "ours is not what the group holds"),
    ];
    for (request, trusted, answer, because) in cases {
        let mut log = leader();
        let answered = log.asked_for_state(&request, trusted, None, &NoOthers);
        assert_eq!(answered, answer, "{because}");
        assert_eq!(log.sends_state().is_some(), answer == Begin, "{because}");
    }
    assert_eq!(ask(&mut follower(), &request(2, STRANGER)), Nothing, "it does not lead");
}

#[test]
fn a_survivor_sends_its_state_to_whom_its_view_names_until_a_quorum_has_it() {
    let mut log = survivor();
    assert_eq!(ask(&mut log, &request(2, STRANGER)), Answer::Nothing);
    assert_eq!(ask(&mut log, &request(2, 0)), Answer::Begin);
    assert!(log.is_still_seeding());
    log.sends_part(Left::Little);
    assert!(log.is_still_seeding());
    log.sends_part(Left::Nothing);
    assert!(!log.is_still_seeding(), "the two of them can elect a leader");
}

#[test]
fn one_receiver_is_served_at_a_time() {
    let mut log = leader();
    assert_eq!(ask(&mut log, &request(2, STRANGER)), Answer::Begin);
    assert_eq!(ask(&mut log, &request(1, STRANGER)), Answer::Nothing);
    assert!(!log.stops_sending(1), "nothing is sent to it");
    assert_eq!(log.sends_state(), Some((2, Stage::Sending { ripe: false })));
    assert!(log.stops_sending(2));
    assert_eq!(ask(&mut log, &request(1, STRANGER)), Answer::Begin);
}

#[test]
fn a_slot_that_is_sent_a_state_may_have_applied_less_than_it_said() {
    let mut log = leader();
    log.add_follower(2, 0, 0);
    for slot in [1, 2] {
        log.hear_applied(slot, Rank::new(9));
        log.granter_has_applied(slot, Rank::new(9));
    }
    assert_eq!(ask(&mut log, &request(1, STRANGER)), Answer::Begin);
    let known = [1, 2].map(|slot| log.known_applied(slot).number());
    assert_eq!(known, [0, 9]);
}

#[test]
fn a_copy_that_may_be_on_its_way_is_not_begun_anew_and_each_time_waited_for_longer() {
    let mut log = leader();
    let mut asks = |at_ms| {
        log.tick(at_ms);
        ask(&mut log, &request(2, STRANGER)) == Answer::Begin
    };
    let begun = [1_000, 1_049, 1_050, 1_149, 1_150, 1_349, 1_350].map(&mut asks);
    assert_eq!(begun, [true, false, true, false, true, false, true]);
    log.tick(1_351);
    assert_eq!(ask(&mut log, &request(2, STRANGER + 1)), Answer::Begin, "another incarnation");
    log.tick(1_351 + 50);
    assert_eq!(ask(&mut log, &request(2, STRANGER + 1)), Answer::Begin, "it has waited once");
}

#[test]
fn a_receiver_that_has_all_parts_is_sent_the_next_and_one_that_lacks_some_another_copy() {
    for (has, answer) in [(2, Answer::Resume), (1, Answer::Begin)] {
        let mut log = leader();
        ask(&mut log, &request(2, STRANGER));
        for (at_ms, number) in [(1_010, 0), (1_030, 1)] {
            log.tick(at_ms);
            let part = Part { incarnation: STRANGER, copy: copy(1), number };
            assert_eq!(log.sends_part(Left::Much), part);
        }
        log.tick(1_079);
        assert_eq!(ask(&mut log, &rest(1, has)), Answer::Nothing, "as long as from the last part");
        log.tick(1_080);
        assert_eq!(ask(&mut log, &rest(1, has)), answer);
    }
    let mut log = leader();
    ask(&mut log, &request(2, STRANGER));
    log.tick(1_030);
    log.sends_part(Left::Much);
    log.tick(1_050);
    assert_eq!(ask(&mut log, &rest(9, 1)), Answer::Begin, "it has nothing of this copy");
}

#[test]
fn what_was_resumed_is_on_its_way_again() {
    let mut log = leader();
    ask(&mut log, &request(2, STRANGER));
    log.sends_part(Left::Much);
    let resumed = [1_050, 1_099, 1_100].map(|at_ms| {
        log.tick(at_ms);
        ask(&mut log, &rest(1, 1))
    });
    assert_eq!(resumed, [Answer::Resume, Answer::Nothing, Answer::Resume]);
}

#[test]
fn a_deposed_sender_keeps_what_is_not_sent_whole_and_goes_on_when_it_leads_again() {
    for ripe in [false, true] {
        let mut log = leader();
        ask(&mut log, &request(2, STRANGER));
        log.sends_part(if ripe { Left::Little } else { Left::Much });
        log.step_down();
        log.promise(Ballot::new(9, 1, 0));
        assert_eq!(log.sends_state(), Some((2, Stage::Paused { ripe })));
        assert_eq!(ask(&mut log, &rest(1, 1)), Answer::Nothing, "it does not lead");
        lead(&mut log);
        assert_eq!(log.sends_state(), Some((2, Stage::Paused { ripe })), "it may take another's");
        assert_eq!(ask(&mut log, &rest(1, 1)), Answer::Resume, "at once: nothing is on its way");
        assert_eq!(log.sends_state(), Some((2, Stage::Sending { ripe })));
    }
    let mut log = leader();
    ask(&mut log, &request(2, STRANGER));
    log.sends_part(Left::Nothing);
    log.step_down();
    log.promise(Ballot::new(9, 1, 0));
    assert_eq!(log.sends_state(), None, "the next leader does not know that it has one");
}

#[test]
fn a_receiver_of_all_parts_is_asked_at_once_and_begins_anew_if_it_asks() {
    let mut log = leader();
    ask(&mut log, &request(2, STRANGER));
    assert!(log.asks_now().is_some() && log.asks_now().is_none());
    log.sends_part(Left::Nothing);
    assert_eq!(log.sends_state(), Some((2, Stage::Sent)));
    assert!(log.asks_now().is_some(), "it could not answer before");
    assert_eq!(ask(&mut log, &rest(1, 1)), Answer::Begin, "it has lost what it had");
}

#[test]
fn a_receiver_that_takes_nothing_more_is_given_up() {
    for stage in [Stage::Sending { ripe: false }, Stage::Paused { ripe: false }, Stage::Sent] {
        let mut log = leader();
        ask(&mut log, &request(2, STRANGER));
        log.tick(1_500);
        log.sends_part(if stage == Stage::Sent { Left::Nothing } else { Left::Much });
        if stage == (Stage::Paused { ripe: false }) {
            log.step_down();
            log.promise(Ballot::new(9, 1, 0));
        }
        log.tick(2_499);
        assert_eq!(log.gives_up_unanswered(), None, "from the last part on");
        log.tick(2_500);
        assert_eq!(log.gives_up_unanswered(), Some((2, stage)));
        assert_eq!((log.gives_up_unanswered(), log.sends_state()), (None, None), "once");
    }
}

#[test]
fn no_two_copies_have_one_name_whatever_became_of_the_state_that_was_copied() {
    let mut former = leader();
    assert_eq!(ask(&mut former, &request(2, STRANGER)), Answer::Begin);
    assert_eq!(former.sends_part(Left::Much).copy, copy(1));
    let mut log = leader();
    log.replaces(&former);
    assert_eq!(log.sends_state(), None, "it is a copy of the former state");
    log.tick(1_001);
    assert_eq!(ask(&mut log, &request(2, STRANGER)), Answer::Begin);
    assert_eq!(log.sends_part(Left::Much).copy, copy(2));
    log.forget_transfers();
    assert_eq!(log.sends_state(), None);
    assert_eq!(ask(&mut log, &request(2, STRANGER)), Answer::Begin);
    assert_eq!(log.sends_part(Left::Much).copy, copy(3));
}

#[test]
fn who_refuses_a_copy_accuses_its_sender_unless_another_has_no_state() {
    use Refusal::{Accuses, GivenUp, Stray};
    // Slot 2 is sent a copy at 1_000, and a copy is refused later. Slot 1 may have asked, too.
    let refused = |asks: bool, at_ms, (slot, incarnation, number)| {
        let mut log = leader();
        if asks {
            assert_eq!(ask(&mut log, &Request { needs: None, ..request(1, 0) }), Answer::Nothing);
        }
        ask(&mut log, &request(2, STRANGER));
        log.tick(at_ms);
        let refusal = log.copy_is_refused(slot, incarnation, copy(number));
        assert_eq!(log.sends_state().is_some(), refusal == Stray);
        refusal
    };
    #[rustfmt::skip]
    let cases = [
        // asks   at     refuses           what follows  because
        (false, 1_000, (2, STRANGER, 1),     Accuses,    "it is ours"),
        (false, 1_000, (1, STRANGER, 1),     Stray,      "it is sent to another slot"),
        (false, 1_000, (2, STRANGER + 1, 1), Stray,      "it is sent to another incarnation"),
        (false, 1_000, (2, STRANGER, 2),     Stray,      "another copy is sent"),
        (true,  1_000, (2, STRANGER, 1),     GivenUp,    "slot 1 may have refused one before"),
        (true,  1_399, (2, STRANGER, 1),     GivenUp,    "it asked a moment ago"),
        (true,  1_400, (2, STRANGER, 1),     Accuses,    "it asks no more"),
    ];
    for (asks, at_ms, refuses, follows, because) in cases {
        assert_eq!(refused(asks, at_ms, refuses), follows, "{because}");
    }
    let mut log = leader();
    ask(&mut log, &request(2, STRANGER));
    log.step_down();
    assert_eq!(log.copy_is_refused(2, STRANGER, copy(1)), Stray, "it leads no more");
}
