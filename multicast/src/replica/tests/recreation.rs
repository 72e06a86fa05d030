//! Groups that are recreated: what remains of a replica's former state.

use super::*;
use crate::operate::Recreation;

const FORMER: MessageId = MessageId::new(SessionId(9), 1);

/// Slot 0 of a lost group is to carry out a plan.
fn prepared(from: Option<u8>) -> (Scene, Recreation) {
    let mut scene = Scene::new();
    for slot in [1, 2] {
        let ask = Election::Ask { incarnation: 1 << 10, needs: None, applied: 0, taken: None };
        scene.hear(slot, &ask, &[]);
    }
    let incarnations = vec![0, 1 << 10, 1 << 10];
    let ballot_counter = scene.replica.core.log().inspect().ballot_counter();
    let plan = Recreation { from, incarnations, ballot_counter, clock: 50, settled_clock: 0 };
    scene.replica.prepare_recreate(1, &plan).expect("the group is lost");
    (scene, plan)
}

fn recreate(scene: &mut Scene) {
    let Scene { replica, links, .. } = scene;
    replica.recreate(1, links, &mut |_| Nothing::default()).expect("it is prepared");
}

#[test]
fn a_group_that_begins_with_nothing_knows_nothing_of_its_former_self() {
    let (mut scene, _) = prepared(None);
    let Scene { replica, .. } = &mut scene;
    let both = GroupSet::first(2);
    let (session, sequence) = (FORMER.session.0, FORMER.sequence);
    let former = Saved {
        heard: vec![(session, sequence, 0), (session, sequence, 1)],
        results: vec![(session, sequence, vec![0, 1], vec![7])],
        last_applied: 7,
        last_delivered: 8,
        given: vec![(session, sequence, 8, 0)],
    };
    replica.exchange.restore(former, Vec::new(), 0);
    replica.payloads.insert(FORMER, 1, both, b"1");
    replica.applied_told = Some(Rank::new(7));
    recreate(&mut scene);
    let Scene { replica, .. } = &scene;
    assert_eq!(replica.exchange.save(), Saved::default());
    assert_eq!(replica.payloads.len(), 0);
    assert_eq!(replica.applied_told, None);
}

#[test]
fn who_was_given_the_survivors_state_first_keeps_it_when_it_hears_of_the_plan() {
    let (mut scene, plan) = prepared(Some(1));
    let marker = Ballot::revived(plan.ballot_counter, 1, plan.incarnations[1])
        .expect("a generation is left");
    // As after it has received the state.
    let question = Question { ballot: marker, leads: false, forced: false };
    let asked = Asked { by: 1, question, attempt: 0, from: Cursor::START };
    scene.happens(GroupEvent::LogClosed { then: Closing::Grant(asked) });
    recreate(&mut scene);
    assert!(!scene.replica.core.log().is_suspended());
    assert_eq!(scene.replica.core.log().promised(), marker);
}

#[test]
fn a_replica_that_is_suspended_takes_no_state_of_the_former_generation() {
    for (generation, taken) in [(0, false), (1, true)] {
        let (mut scene, plan) = prepared(Some(1));
        recreate(&mut scene);
        assert!(scene.replica.core.log().is_suspended());
        let mut giver = giver(&scene);
        if generation > 0 {
            let marker = Ballot::revived(plan.ballot_counter, 1, plan.incarnations[1])
                .expect("a generation is left");
            let (view, clock) = (View::of(plan.incarnations), plan.clock);
            giver.revive(marker, Revival::Survivor { view, clock });
        }
        take_state(&mut scene, &mut giver);
        assert_eq!(!scene.replica.core.log().is_suspended(), taken, "{generation}");
    }
}
