//! A leader wakes followers at once or at its next tick.

use super::super::log::writer::UNREAD_MAX;
use super::*;

/// The number of followers woken at the end of the turn, and at the next tick; all are woken then.
fn woken(scene: &mut Scene) -> (usize, usize) {
    let endpoint = &mut scene.links.endpoint;
    let woken = (endpoint.wakes.now().len(), endpoint.wakes.by_tick().len());
    endpoint.wakes.tick();
    endpoint.tell();
    assert!(endpoint.wakes.now().is_empty() && endpoint.wakes.by_tick().is_empty());
    woken
}

/// A session's message of so many bytes comes, and the turn ends.
fn take(scene: &mut Scene, sequence: u64, destinations: GroupSet, len: usize) {
    let head = Head { sequence, low_water: sequence, destinations };
    scene.replica.receive(SessionId(1), head, &vec![7; len], &mut scene.links);
    scene.replica.end_turn(&mut scene.links);
}

#[test]
fn a_leader_wakes_followers_at_once_for_what_somebody_waits_for() {
    let topology = Topology { groups: 2, ..TOPOLOGY };
    let (own, both) = (GroupSet::first(1), GroupSet::first(2));
    #[rustfmt::skip]
    let cases = [
        // destinations  bytes    woken   because
        (own,            100,     (0, 2), "it is committed when its writes complete"),
        (own,            8 << 10, (2, 0), "only followers can say whether they hold the payload"),
        (both,           100,     (2, 0), "the other group counts what followers accept"),
    ];
    for (destinations, len, expected, because) in cases {
        let mut scene = Scene::with(topology);
        scene.grant(1, 0, true);
        scene.grant(2, 0, true);
        scene.replica.end_turn(&mut scene.links);
        assert_eq!(woken(&mut scene), (2, 0), "what a ballot begins with");
        take(&mut scene, 1, destinations, len);
        assert_eq!(woken(&mut scene), expected, "{because}");
    }
}

#[test]
fn a_follower_is_woken_before_it_has_too_much_to_read() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    scene.replica.end_turn(&mut scene.links);
    woken(&mut scene);
    let most = UNREAD_MAX.min(scene.replica.tuning.log_bytes as u64 / 16);
    let (mut since, mut times) = (scene.replica.writer.followers[1].sent, 0);
    for sequence in 1..=12 {
        take(&mut scene, sequence, GroupSet::first(1), 100);
        let unread = scene.replica.writer.followers[1].sent - since;
        if unread >= most {
            (since, times) = (scene.replica.writer.followers[1].sent, times + 1);
        }
        let expected = if unread >= most { (2, 0) } else { (0, 2) };
        assert_eq!(woken(&mut scene), expected, "{unread} of {most} bytes");
    }
    assert!(times > 1, "it begins to count again");
}
