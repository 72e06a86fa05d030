//! States that learners receive, and replicas that may lead or serve without one.

use skein_protocol::group::GroupRecord;

use super::*;

#[test]
fn a_state_is_given_to_whom_the_same_leader_left_behind() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (incarnation, ours) = (0, scene.replica.core.log().ballot());
    let earlier = Ballot::new(0, 1, 0);
    for (by, given) in [(earlier, false), (ours, true)] {
        let needs = Some(by.to_word());
        scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
        assert_eq!(scene.sends_to().is_some(), given, "it takes none before we have asked it");
    }
}

#[test]
fn a_learner_that_asks_while_its_state_is_on_its_way_is_not_given_another() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let needs = Some(Ballot::ZERO.to_word());
    // Number of copies begun, if the learner has `taken` so much when it asks.
    let asks = |scene: &mut Scene, now_ms: u64, taken: Option<Taken>| {
        scene.replica.tick(now_ms, &mut scene.links);
        scene.hear(2, &Election::Ask { incarnation: 7, needs, applied: 0, taken }, &[]);
        scene.replica.application.begun
    };
    let nothing = |scene: &mut Scene, times: [u64; 6]| times.map(|at| asks(scene, at, None));
    assert_eq!(nothing(&mut scene, [1_000, 1_049, 1_050, 1_149, 1_150, 1_349]), [1, 1, 2, 2, 3, 3]);
    let giver = scene.replica.incarnation;
    let taken = |next| Some(Taken { copy: CopyId { giver, number: 3 }, next });
    for _ in 0..2 {
        scene.replica.core.log_mut().sends_part(Left::Much);
    }
    assert_eq!(asks(&mut scene, 1_548, taken(1)), 3, "it is given a part after the other");
    assert_eq!(asks(&mut scene, 1_549, taken(2)), 3, "it has all of them, and is given the next");
    assert_eq!(asks(&mut scene, 1_749, taken(1)), 4, "a part is lost");
}

#[test]
fn a_replica_that_lacks_a_state_leads_for_an_operator_when_it_has_it_and_not_before() {
    let mut scene = Scene::new();
    let leader = scene.let_lead(1);
    scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
    scene.pass(1_000);
    scene.replica.transfer_here(&mut scene.links).unwrap();
    scene.pass(2_000);
    assert_eq!(
        scene.replica.core.log().promised(),
        leader,
        "it would depose a leader that is well"
    );
    scene.happens(GroupEvent::Opened); // As after it has received the state.
    scene.pass(2_005);
    assert_eq!(
        (scene.replica.core.log().role(), scene.replica.core.log().promised().slot()),
        (Role::Candidate, 0)
    );
}

#[test]
fn a_campaign_for_an_operator_is_repeated_until_the_operator_waits_no_more() {
    let mut scene = Scene::new();
    scene.let_lead(1);
    scene.pass(1_000);
    scene.replica.transfer_here(&mut scene.links).unwrap();
    assert_eq!(scene.replica.core.log().role(), Role::Candidate, "the first comes at once");
    let mut campaigns = 1;
    for ms in (1_005..20_000).step_by(5) {
        if scene.replica.core.log().role() == Role::Candidate {
            // Another replica prevails, and its header is here.
            scene.let_lead(1);
            scene.replica.reader.awaiting = false;
        }
        let before = scene.replica.core.log().inspect().paths().campaigns;
        scene.pass(ms);
        campaigns += scene.replica.core.log().inspect().paths().campaigns - before;
    }
    assert!((10..=26).contains(&campaigns), "{campaigns} in ten seconds");
    assert_eq!(scene.replica.core.log().role(), Role::Follower, "it gives up");
}

#[test]
fn a_learner_that_does_not_answer_keeps_no_other_from_being_served() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    let ask = |scene: &mut Scene, slot| {
        let needs = Some(0);
        scene.hear(
            slot,
            &Election::Ask { incarnation: 1 << 10, needs, applied: 0, taken: None },
            &[],
        );
    };
    ask(&mut scene, 2);
    ask(&mut scene, 1);
    assert_eq!(scene.sends_to(), Some(2), "one after the other");
    for now_ms in (1..2_000).step_by(5) {
        scene.replica.tick(now_ms, &mut scene.links);
    }
    assert_eq!(
        scene.sends_to(),
        None,
        "it was asked for nothing more of it, and let nobody write its log"
    );
    ask(&mut scene, 1);
    assert_eq!(scene.sends_to(), Some(1));
}

#[test]
fn who_cannot_be_served_is_served_by_one_whose_memory_reaches_back_further() {
    let topology = Topology { nodes: 5, groups: 2, replicas: 5, engines: 1 };
    let mut scene = Scene::with(topology);
    scene.replica.tick(1, &mut scene.links);
    let both = GroupSet::first(2);
    let message = MessageId::new(SessionId(1), 1);
    let timestamp = Timestamp::new(1, GroupId(0));
    // Slot 0 was evicted after a message that its group may be done with.
    let payload = Payload::Inline(b"");
    let bodies = [
        Body::Group(GroupRecord::NewBallot),
        Body::Local { message, low_water: 1, timestamp, destinations: both, payload },
        Body::Group(GroupRecord::Evict { slot: 0 }),
    ];
    let (mut at, mut tail) = (Cursor::START, Vec::new());
    for body in bodies {
        let mut bytes = Vec::new();
        Entry { birth: OLD, written: OLD, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
        at.pass(bytes.len());
        Piece::Entry(&bytes).encode(&mut tail);
    }
    let end = place(at);
    // Our own memory holds only the log behind that.
    scene.replica.memory.begun_at = at;
    let logs = [(1, end, 0), (2, end, 1), (3, place(Cursor { index: 2, position: 64 }), 0)];
    for (slot, end, held_from) in logs {
        let (granted, _) = scene.granted(slot, 0, true);
        let runs = vec![(OLD.to_word(), place(Cursor::START))];
        let applied = if slot == 3 { 77 } else { 0 };
        let granted = Granted { runs, end, held_from, applied, named: vec![0; 5], ..granted };
        if slot == 3 {
            let (fabric, log) = (&mut scene.links.endpoint.fabric, scene.replica.memory.region);
            fabric.copy_in(log, PREAMBLE + 64, &[0; 128]);
        }
        scene.hear(slot, &Election::Granted(granted), &tail);
    }
    assert!(scene.replica.core.log().leads());
    assert_eq!(scene.asks_to_lead(), None, "what the one lacks may come yet");
    for now_ms in (1..400).step_by(5) {
        scene.replica.tick(now_ms, &mut scene.links);
    }
    assert_eq!(scene.asks_to_lead(), Some(1), "the log of slot 2 begins too late");
    let capacity = scene.replica.memory.space.capacity();
    let end = scene.replica.memory.place(Cursor { index: 0, position: capacity - 8 }).position;
    scene.happens(GroupEvent::OutOfReach { slot: 3, end: Some(end) });
    let mut server = |held_from: u64| {
        for (slot, held_from) in [(1, held_from), (2, u64::MAX)] {
            scene.happens(GroupEvent::FollowerAdded { slot, incarnation: 0, held_from });
        }
        scene.asks_to_lead()
    };
    assert_eq!(server(capacity), Some(1), "no entry fits into the ring's last bytes");
    assert_eq!(server(capacity + 8), None);
}

#[test]
fn a_log_is_held_from_where_it_was_written_in_front_of_a_state_if_it_is_whole() {
    let other = Ballot::new(7, 1, 0);
    let begin = Cursor { index: 4, position: 192 };
    // Three entries of 64 bytes each are in front of the state; a leader has written the last two of them.
    let cases = [
        ("they are there", OLD, None, begin, 64),
        ("a byte is not", OLD, Some(64 + 70), begin, 192),
        ("one is of another log", other, None, begin, 192),
        ("they do not lead to the state", OLD, None, Cursor { index: 5, ..begin }, 192),
    ];
    for (what, birth, spoilt, begin, held_from) in cases {
        let mut scene = Scene::new();
        let Scene { replica, links, .. } = &mut scene;
        let core = Ramcast::new(replica.config, View::first(3));
        let runs = Runs::new([(OLD, Cursor::START)], begin);
        replica.begin_at(core, Nothing::default(), runs, links);
        let (mut at, mut bytes) = (Cursor::START, Vec::new());
        for birth in [OLD, OLD, birth] {
            let body = Body::Group(GroupRecord::NewBallot);
            Entry { birth, written: OLD, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
            at.pass(64);
        }
        if let Some(byte) = spoilt {
            bytes[byte] ^= 1;
        }
        let (fabric, log) = (&mut links.endpoint.fabric, replica.memory.region);
        fabric.copy_in(log, PREAMBLE + 64, &bytes[64..]);
        assert_eq!(replica.memory.held_from(fabric), 192, "nobody has written anything");
        replica.memory.filled_from = Some(64);
        assert_eq!(replica.memory.held_from(fabric), held_from, "{what}");
    }
}

#[test]
fn a_log_is_held_from_the_first_entry_on_that_is_there() {
    let mut scene = Scene::new();
    scene.grant(1, 3, true);
    scene.commit();
    scene.replica.free_log(&mut scene.links);
    let Scene { replica, links, .. } = &mut scene;
    let (fabric, log) = (&mut links.endpoint.fabric, replica.memory.region);
    assert_eq!(replica.memory.held_from(fabric), 0);
    let mut there = [0; 128];
    fabric.copy_out(log, PREAMBLE, &mut there);
    // A leader that is gone had begun to write a part that would have gone round the ring.
    fabric.copy_in(log, PREAMBLE, &[1; 72]);
    assert_eq!(replica.memory.held_from(fabric), 128);
    // Another leader writes it again, and ends halfway.
    replica.memory.filled_from = Some(0);
    fabric.copy_in(log, PREAMBLE, &there[..64]);
    assert_eq!(replica.memory.held_from(fabric), 128, "an entry is missing in between");
    assert_eq!(replica.gap_from(Cursor::START, fabric), Some(Cursor { index: 2, position: 64 }));
    replica.memory.filled_from = Some(0);
    fabric.copy_in(log, PREAMBLE, &there);
    assert_eq!(replica.memory.held_from(fabric), 0);
    assert_eq!(replica.gap_from(Cursor::START, fabric), None);
}

#[test]
fn what_a_next_leader_has_begun_to_write_takes_nothing_from_the_log() {
    let mut scene = Scene::new();
    scene.grant(1, 3, true);
    let Scene { replica, links, .. } = &mut scene;
    let (fabric, log) = (&mut links.endpoint.fabric, replica.memory.region);
    assert_eq!(replica.memory.commit_end(), Cursor::START);
    let mut there = [0; 64];
    fabric.copy_out(log, PREAMBLE, &mut there);
    fabric.copy_in(log, PREAMBLE, &[1; 64]);
    assert_eq!(replica.memory.held_from(fabric), 64);
    fabric.copy_in(log, PREAMBLE, &there);
    assert_eq!(
        replica.memory.held_from(fabric),
        0,
        "nothing of it was committed, and so overwritten"
    );
}

#[test]
fn who_was_given_a_state_is_written_what_others_still_need_of_the_log() {
    let mut scene = Scene::new();
    scene.grant(1, 3, true);
    scene.commit();
    scene.replica.free_log(&mut scene.links);
    let (end, adopted) = (scene.replica.memory.runs.end(), scene.replica.memory.rewritten.position);
    assert_eq!((adopted, end.position), (192, 256));
    // Whether a part in front of its log's end is written to it; and the position from which on all is
    // written in our ballot, and stays as it is.
    let written = |scene: &mut Scene, held_from: u64| {
        scene.replica.follower_lost(2);
        let (granted, _) = scene.granted(2, 0, true);
        let runs =
            scene.replica.memory.runs.iter().map(|(birth, first)| (birth.to_word(), place(first)));
        let runs = runs.collect();
        let granted = Granted { runs, end: place(end), held_from, freed: end.position, ..granted };
        scene.hear(2, &Election::Granted(granted), &[]);
        let follower = &scene.replica.writer.followers[2];
        assert_eq!((follower.log.is_some(), follower.sent), (true, end.position));
        (!follower.has_all(), scene.replica.memory.rewritten.position)
    };
    let behind = end.position;
    scene.replica.writer.followers[1].freed = behind;
    assert_eq!(written(&mut scene, behind), (false, adopted), "nobody needs it");
    scene.replica.writer.followers[1].freed = 0;
    assert_eq!(written(&mut scene, 0), (false, adopted), "it holds that itself");
    assert_eq!(written(&mut scene, behind), (true, 0));
    scene.replica.writer.followers[1].freed = behind;
    scene.replica.follower_lost(1);
    assert_eq!(written(&mut scene, behind), (true, 0), "slot 1 may need it: it has not let us in");
}

#[test]
fn a_named_replica_without_the_groups_state_is_a_lost_memory_while_nobody_leads() {
    let mut scene = Scene::new();
    let ask = |scene: &mut Scene, slot, incarnation, needs| {
        scene.hear(slot, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    };
    // As after a group was recreated, and its first leader died before it had served slot 1.
    ask(&mut scene, 1, 0, Some(0));
    assert!(scene.replica.has_lost_its_memory(1) && !scene.replica.is_lost());
    ask(&mut scene, 2, 1 << 10, Some(0));
    assert!(scene.replica.is_lost(), "an operator may recreate the group");
    ask(&mut scene, 1, 0, None);
    assert!(!scene.replica.has_lost_its_memory(1), "it has a state, and only waits to be let in");
    scene.grant(1, 0, true);
    ask(&mut scene, 1, 0, Some(0));
    assert!(!scene.replica.has_lost_its_memory(1), "a leader gives it the state");
}

#[test]
fn whoever_has_said_that_it_has_no_state_says_so_when_it_has_one() {
    let mut scene = Scene::new();
    let Scene { replica, links, .. } = &mut scene;
    let marker = Ballot::recreated(7).map(|counter| Ballot::new(counter, 1, 0)).unwrap();
    replica.core.revive(marker, Revival::Other);
    replica.tick(1_000, links);
    assert!(replica.has_lost_its_memory(0), "nobody leads who would give it one");
    let core = Ramcast::new(replica.config, View::first(3));
    replica.begin_at(core, Nothing::default(), Runs::EMPTY, links);
    replica.tick(1_100, links);
    assert!(!replica.has_lost_its_memory(0), "what it asked a moment ago counts no more");
}

#[test]
fn who_takes_a_state_knows_of_results_and_answers_what_its_giver_knew() {
    let mut scene = Scene::new();
    let leader = scene.let_lead(1);
    scene.hear(1, &Election::Behind { ballot: leader.to_word() }, &[]);
    let mut giver = giver(&scene);
    take_state(&mut scene, &mut giver);
    let Scene { replica, .. } = &scene;
    let reply_dependency = Timestamp::new(4, GroupId(0));
    let saved = Saved {
        heard: vec![(9, 1, 1), (9, 1, 2)],
        results: vec![(9, 1, vec![1, 2], vec![7])],
        last_applied: 3,
        last_delivered: 5,
        given: vec![(9, 1, 5, reply_dependency.to_word())],
    };
    assert_eq!(replica.exchange.save(), saved);
    let message = MessageId::new(SessionId(9), 1);
    assert_eq!(
        replica.exchange.reply_dependency(message),
        Some(reply_dependency.into()),
        "its machine is not done with it"
    );
}

#[test]
fn what_another_log_has_left_in_front_of_a_state_is_told_to_nobody() {
    let (begin, other) = (Cursor { index: 4, position: 192 }, Ballot::new(7, 1, 0));
    let cases = [
        ("it is ours", OLD, Cursor::START, true),
        ("it is another log's", other, Cursor::START, false),
        ("nobody remembers whose it is", OLD, begin, false),
    ];
    for (what, birth, first, ours) in cases {
        // Number of entries that a candidate without any knowledge is sent, if memory has so many.
        let told = |entries: usize| {
            let mut scene = Scene::new();
            let Scene { replica, links, .. } = &mut scene;
            let core = Ramcast::new(replica.config, View::first(3));
            replica.begin_at(core, Nothing::default(), Runs::new([(birth, first)], begin), links);
            let (mut at, mut bytes) = (Cursor::START, Vec::new());
            for _ in 0..entries {
                let (birth, body) = (OLD, Body::Group(GroupRecord::NewBallot));
                Entry { birth, written: OLD, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
                at.pass(64);
            }
            links.endpoint.fabric.copy_in(replica.memory.region, PREAMBLE, &bytes);
            replica.memory.rewritten = begin;
            let rewritten = replica.rewrite_from(Cursor::START, &mut links.endpoint.fabric);
            let waits = |scene: &Scene| scene.channels(1).map(|(_, it)| it.waiting_bytes()).sum();
            let before: usize = waits(&scene);
            scene.let_lead(1);
            (rewritten, waits(&scene) - before)
        };
        let (nothing, (rewritten, all)) = (told(0), told(3));
        assert_eq!((rewritten, all >= nothing.1 + 192), (ours, ours), "{what}");
    }
}
