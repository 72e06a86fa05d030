use super::*;

const fn part(number: u64) -> Part {
    Part { incarnation: 0, copy: copy(1), number }
}

#[test]
fn who_needs_a_state_or_is_to_be_admitted_asks_and_nobody_else() {
    let (mut suspended, mut lagging, mut unnamed) = (follower(), follower(), log(1, STRANGER));
    suspended.suspend(Ballot::new(9, 2, 0));
    lagging.lags_behind(LED);
    unnamed.restore(4, LED, 0, View::first(3), LED);
    let cases = [
        (log(1, STRANGER), Some(Some(Ballot::ZERO)), "it has no state"),
        (suspended, Some(Some(Ballot::ZERO)), "its own counts for nothing"),
        (lagging, Some(Some(LED)), "its leader left it behind"),
        (unnamed, Some(None), "it has a state, and is not let in"),
        (follower(), None, "it follows"),
    ];
    for (mut log, needs, because) in cases {
        assert_eq!(log.asks_for_state().map(|asked| asked.needs), needs, "{because}");
    }
}

#[test]
fn a_learner_asks_every_fifty_milliseconds() {
    let mut log = log(1, STRANGER);
    let asked = [1_000, 1_049, 1_050, 1_099, 1_100].map(|at_ms| {
        log.tick(at_ms);
        log.asks_for_state().is_some()
    });
    assert_eq!(asked, [true, false, true, false, true]);
}

#[test]
fn who_said_that_it_has_no_state_says_so_when_it_has_one() {
    let mut former = log(1, 0);
    former.suspend(Ballot::new(9, 2, 0));
    assert!(former.asks_for_state().is_some());
    let mut log = follower();
    log.replaces(&former);
    let asked = [1_049, 1_050, 1_100].map(|at_ms| {
        log.tick(at_ms);
        log.asks_for_state()
    });
    assert_eq!(asked, [None, Some(Ask { needs: None, taken: None, log: false }), None], "once");
}

#[test]
fn who_is_given_parts_asks_for_none_until_they_fail_to_come() {
    let stranger = Part { incarnation: STRANGER, ..part(0) };
    let taken = Some((2, Extent { copy: copy(1), next: 1 }));
    for (at_ms, needs) in [(1_299, None), (1_300, Some(Ballot::ZERO))] {
        let mut log = log(1, STRANGER);
        assert_eq!(log.takes_part(2, &stranger, false), Reception::First);
        for (at_ms, needs) in [(START_MS, None), (at_ms, needs)] {
            log.tick(at_ms);
            assert_eq!(log.asks_for_state(), Some(Ask { needs, taken, log: false }), "at {at_ms}");
        }
        log.stops_receiving();
        log.tick(1_350);
        assert_eq!(log.asks_for_state().and_then(|asked| asked.taken), None);
    }
}

#[test]
fn a_part_is_taken_if_it_is_the_next_one_of_a_state_that_is_needed() {
    use Reception::{First, Ignored, Lost, Next};
    let other = Part { copy: copy(2), ..part(1) };
    let stray = Part { incarnation: STRANGER, ..part(1) };
    #[rustfmt::skip]
    let cases = [
        // from  part     taken    because
        (0,      part(1), Next,    "it is behind the first"),
        (0,      part(2), Lost,    "one is missing"),
        (0,      other,   Lost,    "it is of another copy"),
        (0,      part(0), First,   "it is begun anew"),
        (0,      stray,   Ignored, "it is for another incarnation"),
        (2,      part(1), Ignored, "it is another's state, who has not left us behind"),
    ];
    for (from, second, taken, because) in cases {
        let mut log = follower();
        assert_eq!(log.takes_part(0, &part(0), false), Ignored, "it needs none");
        log.lags_behind(LED);
        assert_eq!(log.takes_part(0, &part(0), false), First);
        assert_eq!(log.takes_part(from, &second, false), taken, "{because}");
        let next = Part { number: second.number + 1, ..second };
        let goes_on = if matches!(taken, Next | First) { next } else { part(1) };
        let kept = log.takes_part(0, &goes_on, false) == Next;
        assert_eq!(kept, taken != Lost, "{because}");
    }
}

#[test]
fn what_comes_while_an_election_is_open_is_kept_and_becomes_no_state() {
    let mut log = follower();
    log.lags_behind(LED);
    assert_eq!(log.takes_part(0, &part(0), false), Reception::First);
    log.lags_no_more();
    assert_eq!(log.takes_part(0, &part(1), false), Reception::Next, "the copy has no gap");
    assert_eq!(log.takes_part(0, &part(2), true), Reception::Ignored, "it needs no state");
    log.lags_behind(LED);
    assert_eq!(log.takes_part(0, &part(2), true), Reception::Next);
    log.follow(LED, 1);
    assert_eq!(log.takes_part(0, &part(3), false), Reception::Lost, "its log is written anew");
}

#[test]
fn whoever_is_given_parts_leaves_the_lead_to_who_leads() {
    let mut log = follower();
    log.lags_behind(LED);
    let before = log.election.retry_ms;
    assert!(before < 5_000);
    log.tick(5_000);
    log.takes_part(0, &part(0), false);
    assert_eq!(log.election.retry_ms, 5_300);
}

#[test]
fn who_waits_for_what_nobody_tells_any_more_notices_that_in_time() {
    let notices = |log: &mut GroupLog<Record>, delivered, at_ms| {
        log.tick(at_ms);
        log.notices_lag(delivered, false, true)
    };
    let mut log = follower();
    assert!(!notices(&mut log, 3, 1_000) && !notices(&mut log, 3, 1_199));
    assert!(notices(&mut log, 3, 1_200));
    assert_eq!(log.lagging(), Some(LED));
    assert!(!notices(&mut log, 3, 1_400), "it is known");
    log.lags_no_more();
    assert!(!notices(&mut log, 3, 1_401) && !notices(&mut log, 3, 1_600), "it waits anew");
    assert!(!notices(&mut log, 4, 1_601), "it is only slow");
    assert!(!notices(&mut log, 4, 1_800) && notices(&mut log, 4, 1_801));

    let mut log = follower();
    for (at_ms, awaits_leader, lacks, lags) in [
        (1_000, false, true, false),
        (1_300, true, true, false), // Its leader may let it deliver what it waits for.
        (1_301, false, false, false), // Nothing is missing any more.
        (1_302, false, true, false),
        (1_501, false, true, false),
        (1_502, false, true, true),
    ] {
        log.tick(at_ms);
        assert_eq!(log.notices_lag(3, awaits_leader, lacks), lags, "at {at_ms}");
    }

    let (mut leads, mut unled) = (leader(), log_without_leader());
    for at_ms in [1_000, 2_000] {
        assert!(!notices(&mut leads, 3, at_ms), "it hands over");
        assert!(!notices(&mut unled, 3, at_ms), "nobody could give it a state");
    }
}

fn log_without_leader() -> GroupLog<Record> {
    let mut log = log(1, 0);
    log.promise(LED);
    log
}

#[test]
fn who_left_us_behind_is_whoever_we_let_lead_last() {
    let (mut log, next) = (follower(), Ballot::new(2, 2, 0));
    log.lags_behind(LED);
    log.promise(next);
    assert_eq!(log.lagging(), Some(LED), "until it is told where our log ends");
    log.lags_no_more();
    log.lags_behind(LED);
    assert_eq!(log.lagging(), None, "an earlier leader says that late");
    log.lags_behind(next);
    assert_eq!(log.lagging(), Some(next));

    let mut log = leader();
    log.lags_behind(log.promised());
    lead(&mut log);
    assert_eq!(log.lagging(), None, "it leads, and has all that is committed");
}

#[test]
fn another_state_or_another_group_lags_behind_nobody_and_takes_no_part() {
    let mut former = follower();
    former.lags_behind(LED);
    former.takes_part(0, &part(0), false);
    let mut log = follower();
    log.replaces(&former);
    former.forget_transfers();
    for mut log in [log, former] {
        assert_eq!(log.lagging(), None);
        assert_eq!(log.takes_part(0, &part(1), false), Reception::Ignored);
        log.lags_behind(LED);
        assert_eq!(log.takes_part(0, &part(1), false), Reception::Lost);
    }
}

/// A follower in a group with disks that lags behind the leader that it has promised.
fn left_behind() -> GroupLog<Record> {
    let mut log = follower();
    log.config.durable = true;
    log.lags_behind(LED);
    log
}

/// Leaves the log as a follower of another leader, or in another state.
type Then = fn(&mut GroupLog<Record>);

#[test]
fn the_log_is_taken_from_the_leader_that_was_promised_and_from_nobody_else() {
    use Reception::{First, Ignored};
    let recreated = Ballot::new(Ballot::first_counter(1), 0, 0);
    assert_ne!(recreated.generation(), LED.generation());
    #[rustfmt::skip]
    let cases: [(Then, u8, Reception, &str); 7] = [
        // then                                              from taken    because
        (|_| (),                                             0,   First,   "it is its leader"),
        (|_| (),                                             2,   Ignored, "another one was not promised"),
        (|log| log.promise(Ballot::new(2, 2, 0)),            0,   Ignored, "it leads no more"),
        (|log| log.lags_no_more(),                           0,   Ignored, "it may write our log by now"),
        (|log| log.config.durable = false,                   0,   Ignored, "there is no disk to read it from"),
        (|log| log.suspend(Ballot::new(9, 2, 0)),            0,   Ignored, "our state does not count"),
        (|log| {
            let recreated = Ballot::new(Ballot::first_counter(1), 0, 0);
            log.promise(recreated);
            log.lags_no_more();
            log.lags_behind(recreated);
        },                                                   0,   Ignored, "what we saw committed may be undone"),
    ];
    for (then, from, taken, because) in cases {
        let mut log = left_behind();
        then(&mut log);
        assert_eq!(log.takes_log(from, &part(0)), taken, "{because}");
        log.tick(START_MS + 1_000);
        let can = log.asks_for_state().is_some_and(|ask| ask.log);
        assert_eq!(can, taken == First || from == 2, "it asks for it otherwise: {because}");
    }
    let mut log = left_behind();
    let stranger = Part { incarnation: STRANGER, ..part(0) };
    assert_eq!(log.takes_log(0, &stranger), Ignored, "it is for another incarnation");
}

#[test]
fn parts_of_a_log_follow_each_other_and_end_the_lag() {
    let mut log = left_behind();
    assert_eq!(log.takes_log(0, &part(0)), Reception::First);
    assert_eq!(log.takes_log(0, &part(1)), Reception::Next);
    assert_eq!(log.takes_log(0, &part(3)), Reception::Lost);
    assert_eq!(log.takes_log(0, &part(2)), Reception::Lost, "it begins anew");
    assert_eq!(log.takes_log(0, &part(0)), Reception::First);
    assert!(log.takes_state());
    log.stops_receiving();
    log.lags_no_more();
    assert_eq!((log.lagging(), log.takes_state()), (None, false));
}
