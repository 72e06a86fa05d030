//! Sessions: their windows, their replies, and when one is dead.

use super::*;

fn head(sequence: u64) -> Head {
    Head { sequence, low_water: sequence, destinations: GroupSet::first(1) }
}

#[test]
fn what_was_cut_off_of_a_session_that_is_gone_is_forgotten() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (here, gone) = (SessionId(1), SessionId(2));
    scene.links.session_opened(here, scene.replica.id, 0);
    scene.replica.relayed(FOLLOWER, &relay(here, 1), &mut scene.links);
    scene.replica.relayed(FOLLOWER, &relay(gone, 1), &mut scene.links);
    assert_eq!((scene.replica.core.inspect().pending(), scene.replica.payloads.len()), (2, 2));

    let ballot = scene.let_lead(1);
    let (base, grant) = (Cursor::START, scene.replica.reader.grants);
    let header = Leadership { ballot, base, grant, first: 1, held_from: base.position }.encode();
    scene.links.endpoint.fabric.copy_in(scene.replica.memory.region, 0, &header);
    scene.replica.read_log(&mut scene.links, usize::MAX);
    assert_eq!(
        (scene.replica.core.log().ballot(), scene.replica.core.inspect().pending()),
        (ballot, 0)
    );
    assert_eq!(scene.replica.payloads.messages(), [MessageId::new(here, 1)]);
}

#[test]
fn what_is_relayed_too_late_is_kept_for_nobody() {
    let mut scene = Scene::new();
    scene.let_lead(1);
    let (here, gone) = (SessionId(1), SessionId(2));
    scene.links.session_opened(here, scene.replica.id, 0);
    scene.replica.relayed(FOLLOWER, &relay(here, 1), &mut scene.links);
    scene.replica.relayed(FOLLOWER, &relay(gone, 1), &mut scene.links);
    assert_eq!(scene.replica.payloads.messages(), [MessageId::new(here, 1)]);
}

#[test]
fn a_session_that_goes_beyond_its_window_waits_and_no_other_does() {
    let mut scene = Scene::new();
    let (one, other) = (SessionId(1), SessionId(2));
    scene.links.session_opened(one, scene.replica.id, 0);
    let window = Tuning::default().window as u64;
    for sequence in 1..=window {
        assert!(scene.replica.admits(one, 1, 0, || Some(head(sequence))), "{sequence}");
        scene.replica.relayed(FOLLOWER, &relay(one, sequence), &mut scene.links);
    }
    let mut admits = |session| scene.replica.admits(session, 1, 0, || Some(head(1)));
    assert!(!admits(one) && admits(other));
    assert_eq!(scene.replica.paths.window_full, 1);
}

#[test]
fn replies_are_repeated_a_few_mebibytes_in_a_turn() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let asks = |scene: &mut Scene, count| {
        let message = MessageId::new(SessionId(1), 1);
        for _ in 0..count {
            scene.replica.deliveries.repeat(message);
        }
    };
    asks(&mut scene, 12);
    let mut turns = Vec::new();
    for _ in 0..4 {
        let before = scene.replica.application.repeated;
        let any = scene.replica.deliver(&mut scene.links).unwrap();
        let repeated = scene.replica.application.repeated - before;
        scene.replica.rest();
        turns.push((repeated, any, scene.replica.is_stirred()));
    }
    assert_eq!(turns, [(5, true, true), (5, true, true), (2, true, false), (0, false, false)]);
    let admits = |scene: &mut Scene| scene.replica.admits(SessionId(1), 1, 0, || Some(head(1)));
    assert!(admits(&mut scene));
    asks(&mut scene, REPEATS_MAX);
    assert!(!admits(&mut scene), "what it may ask for is kept nowhere");
}

#[test]
fn a_session_that_another_replica_hears_is_not_dead() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (cut_off, dead) = (SessionId(7), SessionId(8));
    for session in [cut_off, dead] {
        scene.replica.dead_sessions.insert(session, 0);
    }
    let mut ended = Vec::new();
    for _ in 0..40 {
        let (over, sought) = scene.replica.count_dead_sessions(10, 3);
        ended.extend(over);
        // A member is asked about both sessions, and has a connection to one.
        if sought.contains(&cut_off.0) {
            scene.hear(1, &Election::Sees { sessions: vec![cut_off.0, 99] }, &[]);
        }
    }
    assert_eq!(ended, [dead; 3], "said so often, and of no other");
    assert!(scene.replica.dead_sessions.contains_key(&cut_off));
    // No member has a connection to it any more.
    ended.clear();
    for _ in 0..11 {
        ended.extend(scene.replica.reap_sessions(10, 3, &mut scene.links));
    }
    assert_eq!(ended.first(), Some(&cut_off));
    // Where connections do not return, no member is asked.
    scene.replica.dead_sessions.insert(dead, 0);
    assert!(scene.replica.reap_sessions(0, 3, &mut scene.links).contains(&dead));
}

#[test]
fn who_has_no_connection_from_a_session_says_nothing_of_it() {
    let mut scene = Scene::new();
    scene.let_lead(1);
    let before = scene.told(1);
    scene.hear(1, &Election::Seeks { sessions: vec![7, 8] }, &[]);
    assert_eq!(scene.told(1), before);
    assert!(!scene.links.hears(SessionId(7), scene.replica.id));
}

#[test]
fn a_session_has_no_more_under_way_than_its_window() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (session, window) = (SessionId(9), scene.replica.tuning.window as u64);
    for (sequence, taken) in [(7 + window, false), (6 + window, true)] {
        let head = Head { sequence, low_water: 7, destinations: GroupSet::first(1) };
        scene.replica.receive(session, head, b"1", &mut scene.links);
        let known = scene.replica.core.is_logged(MessageId::new(session, sequence));
        assert_eq!(known, taken, "{sequence}");
    }
}

/// An undelivered message may wait for a message that another group's leader relays. A delivered one does
/// not: its payload is kept for a follower that lags.
#[test]
fn what_is_relayed_exceeds_the_budget_only_if_nothing_delivered_is_kept() {
    const LEN: usize = 8 << 10;
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.replica.tuning.held_bytes_max = 3 * LEN;
    let relays = |scene: &mut Scene, sequence| {
        let mut datagram = relay(SessionId(1), sequence);
        datagram.resize(datagram.len() + LEN, 7);
        scene.replica.relayed(FOLLOWER, &datagram, &mut scene.links);
        (scene.replica.payloads.len(), scene.replica.payloads.beyond())
    };
    let held: Vec<_> = (1..=5).map(|sequence| relays(&mut scene, sequence)).collect();
    assert_eq!(held, [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2)]);
    scene.commit();
    assert_eq!(scene.answered().len(), 5, "slot 2 lacks them");
    let entries_after = |scene: &mut Scene, now_ms| {
        let before = scene.replica.core.log().last_index();
        scene.pass(now_ms);
        scene.replica.evict_blockers();
        scene.replica.core.log().last_index() - before
    };
    let evict_after = scene.replica.tuning.evict_after_ms;
    assert_eq!([1, 2 + evict_after].map(|now| entries_after(&mut scene, now)), [0, 0]);
    assert_eq!(relays(&mut scene, 6), (5, 2));
    // It is not relayed again until then.
    let from = 3 + evict_after;
    let times = [from, from + 1, from + evict_after - 1, from + evict_after];
    assert_eq!(times.map(|now| entries_after(&mut scene, now)), [0, 0, 0, 1], "slot 2 is evicted");

    let by = ReplicaId::new(GroupId(0), 2);
    let core = &scene.replica.core;
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
    scene.replica.told(StatusColumn::Accepted, by, acceptance.to_word());
    scene.replica.end_turn(&mut scene.links);
    scene.answered();
    assert_eq!((scene.replica.payloads.len(), scene.replica.payloads.beyond()), (0, 0));
    assert_eq!(relays(&mut scene, 6), (1, 0));
}

/// Another group's leader takes this replica for the leader. The message is relayed again to the actual leader.
#[test]
fn who_does_not_lead_takes_nothing_beyond_the_budget() {
    const LEN: usize = 8 << 10;
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.let_lead(1);
    scene.replica.tuning.held_bytes_max = 3 * LEN;
    let peer = scene.members[0].dial(&endpoint_name(0, 0)).unwrap();
    scene.links.session_opened(SessionId(1), scene.replica.id, peer.0);
    let held: Vec<_> = (1..=5)
        .map(|sequence| {
            let mut datagram = relay(SessionId(1), sequence);
            datagram.resize(datagram.len() + LEN, 7);
            scene.replica.relayed(FOLLOWER, &datagram, &mut scene.links);
            scene.replica.payloads.len()
        })
        .collect();
    assert_eq!(held, [1, 2, 3, 3, 3]);
}

/// The log waits for the fourth message of a session. The leader may have no connection to the session, and
/// logs the earlier ones when others relay them.
#[test]
fn what_stands_before_a_message_that_the_log_waits_for_may_exceed_the_budget() {
    const LEN: usize = 8 << 10;
    for (waits, counted) in [(true, [0, 0, 0, 1, 2, 2]), (false, [0; 6])] {
        let mut scene = Scene::new();
        scene.let_lead(1);
        scene.replica.tuning.held_bytes_max = 2 * LEN;
        if waits {
            let (session, timestamp) = (SessionId(1), Timestamp::new(1, GroupId(0)));
            let message = MessageId::new(session, 4);
            let destinations = GroupSet::first(1);
            let record = skein_protocol::ramcast::Record::Local {
                message,
                low_water: 1,
                timestamp,
                destinations,
                inline: false,
            };
            let event =
                Event::Logged { index: 1, birth: OLD, time_ms: 0, record, held: false, last: true };
            scene.replica.core.step(event, &mut Vec::new());
            assert_eq!(scene.replica.core.log().stalled_on(), Some(message));
            scene.replica.reader.lacking = (destinations, skein_protocol::check::check(&[7; LEN]));
        }
        let beyond = [1, 2, 2, 3, 4, 5].map(|sequence| {
            let head = Head { sequence, low_water: 1, destinations: GroupSet::first(1) };
            scene.replica.receive(SessionId(1), head, &[7; LEN], &mut scene.links);
            scene.replica.payloads.beyond()
        });
        assert_eq!(beyond, counted, "{waits}");
    }
}
