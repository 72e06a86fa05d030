use super::*;

/// No slot is about to be admitted.
const fn nobody(_: u8) -> Option<u32> {
    None
}

#[test]
fn a_memory_is_lost_that_asks_and_that_no_view_names() {
    let has_state = |slot, incarnation| Request { needs: None, ..request(slot, incarnation) };
    #[rustfmt::skip]
    let cases = [
        // asks                    joins           lost   because
        (None,                     None,           false, "nothing is heard of it"),
        (Some(has_state(2, 0)),    None,           false, "it counts"),
        (Some(has_state(2, 7)),    None,           true,  "it does not count yet"),
        (None,                     Some(0),        false, "it counts already"),
        (None,                     Some(STRANGER), true,  "it is not let in yet"),
    ];
    for (asks, joining, lost, because) in cases {
        let mut log = leader();
        if let Some(request) = &asks {
            ask(&mut log, request);
        }
        assert_eq!(log.has_lost_its_memory(2, joining), lost, "{because}");
    }
}

#[test]
fn who_asked_counts_as_asking_for_a_while_or_until_it_is_admitted() {
    let mut log = follower();
    let asks = |log: &mut GroupLog<Record>, at_ms| {
        log.tick(at_ms);
        log.has_lost_its_memory(2, None)
    };
    ask(&mut log, &request(2, STRANGER));
    assert_eq!([1_399, 1_400].map(|at_ms| asks(&mut log, at_ms)), [true, false]);
    ask(&mut log, &request(2, STRANGER));
    assert!(asks(&mut log, 1_401));
    log.asks_no_more(2);
    assert!(!asks(&mut log, 1_402));
    ask(&mut log, &request(2, STRANGER));
    log.forget_transfers();
    assert!(!asks(&mut log, 1_403), "it asked in the group before it was recreated");
}

#[test]
fn a_named_replica_without_a_state_is_a_lost_memory_unless_somebody_may_send_it_one() {
    let cases = [
        (log(1, 0), true, "nobody leads"),
        (leader(), false, "we lead"),
        (follower(), false, "somebody leads"),
        (survivor(), false, "we are the survivor"),
    ];
    for (mut log, lost, because) in cases {
        ask(&mut log, &request(2, 0));
        assert_eq!(log.has_lost_its_memory(2, None), lost, "{because}");
        ask(&mut log, &Request { needs: None, ..request(2, 0) });
        assert!(!log.has_lost_its_memory(2, None), "it has a state, and only waits to be let in");
    }
}

#[test]
fn without_a_view_whoever_asks_has_lost_its_memory() {
    let mut log = log(1, STRANGER);
    ask(&mut log, &Request { needs: None, ..request(2, 0) });
    assert!(log.has_lost_its_memory(2, None) && log.has_lost_its_memory(2, Some(0)));
}

#[test]
fn who_knows_that_it_is_admitted_has_not_lost_its_memory() {
    let mut log = log(1, STRANGER);
    log.restore(4, LED, 0, View::first(3), LED);
    assert!(log.asks_for_state().is_some());
    assert!(log.has_lost_its_memory(1, None));
    log.hear_admitted(LED);
    assert!(!log.has_lost_its_memory(1, None));
}

#[test]
fn a_group_is_lost_when_no_quorum_remembers() {
    let mut log = follower();
    ask(&mut log, &request(2, STRANGER));
    assert!(!log.is_lost(nobody), "two of three remember");
    assert!(log.is_lost(|slot| (slot == 0).then_some(STRANGER)), "one remembers");
    assert!(!log.is_lost(|slot| (slot == 2).then_some(STRANGER)), "it is the same slot");
    ask(&mut log, &request(0, STRANGER));
    assert!(log.is_lost(nobody));
    let mut next = follower();
    next.replaces(&log);
    assert!(next.is_lost(nobody), "a replica that takes a state knows who has asked");
}

#[test]
fn a_leader_of_whose_slot_another_incarnation_asks_is_dead() {
    let mut log = follower();
    ask(&mut log, &request(0, STRANGER));
    assert_eq!(log.paths().leader_replaced, 1);
}
