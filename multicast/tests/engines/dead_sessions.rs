//! An engine's handling of sessions whose process has died.

use std::time::{Duration, Instant};

use skein_fabric::shm::Host;
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::session_transport::SessionTransport;
use skein_protocol::ids::{GroupSet, SessionId};

use crate::echo::Echo;

#[test]
fn the_dead_are_told_of_no_faster_than_the_group_listens() {
    let layout =
        Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
    let (tuning, host) = (Tuning::default(), Host::anonymous());
    let fabric = host.join(&endpoint_name(0, 0)).unwrap();
    let identity = Identity::first(0, 0);
    let mut engine = Engine::new(fabric, &layout, tuning, identity, |_| Echo::default()).unwrap();
    let client = host.join("c-1").unwrap();
    let mut access = SessionTransport::new(client, &layout, tuning);
    for session in 1..=5 {
        let key = access.open(SessionId(10 * session));
        access.multicast(key, GroupSet::first(1), &[1]).unwrap();
    }
    let (start, mut answered) = (Instant::now(), 0);
    while answered < 5 {
        engine.turn();
        access.turn(&mut |_| answered += 1).unwrap();
        assert!(start.elapsed() < Duration::from_mins(1), "{answered} of 5 are answered");
    }
    access.fabric().vanish();
    drop(access);

    let mut told = Vec::new();
    while told.is_empty() {
        engine.turn();
        told = engine.take_dead_sessions(2);
        assert!(start.elapsed() < Duration::from_mins(1), "nobody has noticed");
    }
    for expected in [2, 2, 1] {
        assert_eq!(told.len(), expected, "{told:?}");
        engine.originate(&[1]);
        assert!(engine.take_dead_sessions(2).is_empty(), "the last message is under way");
        engine.turn();
        told = engine.take_dead_sessions(2);
    }
    assert!(told.is_empty());
}
