//! A leader's messages: what it sends, takes and answers.

use super::*;

#[test]
fn announcements_that_come_together_leave_each_other_room() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let most = (scene.replica.log_bytes() / 4) / 128;
    assert!(scene.replica.log_has_room_for(1 + most), "the first of a turn may be a few more");
    scene.replica.intake.may_log = most - 1;
    assert!(scene.replica.log_has_room_for(1));
    assert!(!scene.replica.log_has_room_for(2), "what they take is kept free, and no more");
}

#[test]
fn who_has_applied_nothing_says_so_to_whoever_leads_it() {
    let mut scene = Scene::new();
    let ballot = scene.let_lead(1);
    let (base, grant) = (Cursor::START, scene.replica.reader.grants);
    let header = Leadership { ballot, base, grant, first: 1, held_from: base.position }.encode();
    scene.links.endpoint.fabric.copy_in(scene.replica.memory.region, 0, &header);
    scene.replica.read_log(&mut scene.links, usize::MAX);
    scene.replica.tell_applied(&mut scene.links);
    assert_eq!(
        scene.replica.applied_told,
        Some(Rank::NOTHING),
        "it waits to hear that before it lets others in"
    );
}

#[test]
fn who_leads_answers_whoever_led_before() {
    let (mut scene, session) = (Scene::new(), SessionId(1));
    scene.let_lead(2);
    scene.replica.set_out(Cause::Start, &mut scene.links);
    scene.grant(1, 0, true);
    scene.replica.relayed(FOLLOWER, &relay(session, 1), &mut scene.links);
    scene.commit();
    assert_eq!(scene.answered(), [true]);
    scene.replica.relayed(FOLLOWER, &relay(session, 2), &mut scene.links);
    scene.commit();
    scene.let_lead(1);
    assert_eq!(scene.answered(), [true, false], "another has to answer it now");
}

#[test]
fn what_was_asked_in_an_earlier_ballot_is_not_answered_in_a_later_one() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let mut question = 1_u64.to_le_bytes().to_vec();
    question.push(2);
    scene.replica.asked(SessionId(9), &question, &mut scene.links);
    assert_eq!(scene.replica.reads_waiting(), 1);
    scene.let_lead(2);
    scene.replica.set_out(Cause::Start, &mut scene.links);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.log().leads());
    assert_eq!(scene.replica.reads_waiting(), 0, "its clock and log were those of another ballot");
}

#[test]
fn an_engine_proposes_for_the_groups_that_are_led_there_and_for_no_other() {
    let mut scene = Scene::with(Topology { groups: 3, ..TOPOLOGY });
    scene.grant(1, 0, true);
    let to = |groups: &[u16]| groups.iter().map(|group| GroupId(*group)).collect::<GroupSet>();
    #[rustfmt::skip]
    let cases = [
        // from  by      to                heard  because
        ((1, 0), (1, 0), to(&[0, 1]),      true,  "it is who speaks"),
        ((1, 0), (2, 2), to(&[0, 2]),      true,  "it runs beside who speaks"),
        ((1, 0), (1, 1), to(&[0, 1]),      false, "it runs elsewhere"),
        ((2, 0), (1, 0), to(&[0, 1]),      false, "so does this one, though it leads"),
        ((1, 0), (1, 9), to(&[0, 1]),      false, "there is no such slot"),
        ((1, 0), (1, 0), to(&[1, 2]),      false, "we are not meant"),
        ((1, 0), (1, 0), to(&[0, 2]),      false, "it has nothing to propose"),
        ((1, 0), (1, 0), to(&[0, 1, 40]),  false, "no such group is there"),
    ];
    for (number, (from, (group, slot), destinations, heard, because)) in (1..).zip(cases) {
        let from = ReplicaId::new(GroupId(from.0), from.1);
        let message = MessageId::new(SessionId(1), number);
        let timestamp = Timestamp::new(number, GroupId(group));
        let remote = Remote { message, timestamp, ballot: Ballot::new(1, slot, 0), index: number };
        let mut bytes = Vec::new();
        Proposed { message, low_water: 1, destinations }.encode(1, &mut bytes);
        Proposed::encode_proposal(&remote, &mut bytes);
        let (proposed, proposals, _) = Proposed::decode(&bytes).unwrap();
        let before = scene.replica.core.paths().announced_early;
        if scene.links.may_propose(from, proposed.destinations, &proposals) {
            scene.replica.proposed(&proposed, &proposals);
        }
        let after = scene.replica.core.paths().announced_early;
        assert_eq!(after - before, u64::from(heard), "{because}");
    }
}

#[test]
fn nobody_is_announced_who_leads_in_a_slot_that_is_not_there() {
    let mut scene = Scene::with(Topology { groups: 3, ..TOPOLOGY });
    scene.grant(1, 0, true);
    for (slot, heard) in [(9, 0), (1, 1)] {
        let announcement = Announcement {
            message: MessageId::new(SessionId(1), 1),
            low_water: 1,
            destinations: GroupSet::first(3),
            timestamp: Timestamp::new(1, GroupId(2)),
            ballot: Ballot::new(1, slot, 0),
            index: 1,
            again: None,
        };
        scene.replica.announced(ReplicaId::new(GroupId(2), 1), announcement);
        assert_eq!(scene.replica.core.paths().announced_early, heard);
    }
}

#[test]
fn a_promise_ends_with_the_process_of_its_leader_and_of_nobody_else() {
    let mut scene = Scene::new();
    scene.pass(1);
    let ballot = scene.let_lead(1);
    scene.happens(GroupEvent::Followed { ballot, base: 0, first: 1 });
    let now = Duration::from_millis(1);
    let (lease, mut effects) = (Control::Lease { ballot, number: 1, now }, Vec::new());
    scene.replica.core.control(1, lease, &mut effects);
    let promises = GroupEffect::PromiseLease { to: 1, ballot, number: 1 };
    assert_eq!(effects, [Effect::Group(promises)]);
    let peer = |scene: &Scene, slot| scene.links.peer_of(ReplicaId::new(GroupId(0), slot));
    let (leader, other) = (peer(&scene, 1), peer(&scene, 2));
    assert!(leader.is_some() && other.is_some() && leader != other);
    scene.replica.saw_death(2, other, &mut scene.links);
    assert!(
        scene.replica.core.log().inspect().is_bound(),
        "its leader may answer by what was promised"
    );
    scene.replica.saw_death(1, None, &mut scene.links);
    assert!(
        scene.replica.core.log().inspect().is_bound(),
        "a connection may end that a process outlives"
    );
    scene.replica.saw_death(1, leader, &mut scene.links);
    assert!(!scene.replica.core.log().inspect().is_bound(), "who is dead answers nobody");
}
