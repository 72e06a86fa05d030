use std::collections::BTreeSet;

use skein_fabric::sim::{SimConfig, World};
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::timestamp::Timestamp;

use super::*;
use crate::endpoint::RingSizes;

#[test]
fn a_word_means_what_it_was_told_as() {
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 4, replicas: 3, engines: 1 }).unwrap();
    let sizes = RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 4096 };
    let fabric = World::new(1, SimConfig::default()).join("n1e0");
    let links =
        ReplicaLinks::<_, Ramcast>::new(Endpoint::new(fabric, sizes), &layout, 1, (1, 0)).unwrap();
    let mut found = BTreeSet::new();
    for (row, reader) in links.local.iter().enumerate() {
        for writer in (0..4).flat_map(|group| layout.topology().replicas_of(GroupId(group))) {
            for column in COLUMNS {
                let to = column.is_to_one().then_some(row);
                if to.is_none() || writer.group == reader.group {
                    let at = links.word_at(*reader, writer, column) / 8;
                    assert_eq!(links.meaning(at), Meaning { column, by: writer, to });
                    found.insert(at);
                }
            }
        }
    }
    assert!(found.into_iter().eq(0..links.words_seen.len()), "there are no others");
}

#[test]
fn each_engine_that_has_somebody_to_hear_is_told_once() {
    let layout =
        Layout::propose(Topology { nodes: 5, groups: 2, replicas: 3, engines: 1 }).unwrap();
    let sizes = RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 4096 };
    let fabric = World::new(1, SimConfig::default()).join("n1e0");
    let mut links =
        ReplicaLinks::<_, Ramcast>::new(Endpoint::new(fabric, sizes), &layout, 1, (1, 0)).unwrap();
    let from = ReplicaId::new(GroupId(0), 1);
    let (own, both) = (GroupSet::single(from.group), GroupSet::first(2));
    #[rustfmt::skip]
    let cases = [
        // to  on nodes              because
        (own,  vec![0, 2],           "nobody else of g0 is here"),
        (both, vec![0, 1, 2, 3],     "g1 is on nodes 1 to 3, and on node 4 there is nobody"),
        (own,  vec![0, 2],           "g1 is not told of what is none of its business"),
    ];
    for (to, nodes, because) in cases {
        links.tell_groups(from, to, StatusColumn::Accepted, 7);
        let engines = links.audiences[0].engines.iter();
        let told: BTreeSet<_> = engines.clone().map(|to| layout.node_of(*to)).collect();
        assert_eq!(told.len(), engines.len(), "{because}");
        assert!(told.into_iter().eq(nodes), "{because}");
        let here = to.contains(GroupId(1));
        assert_eq!(links.take_told_here(), here, "{because}");
    }
}

/// The engine of node 1 of three, which runs g0.1, g1.0 and g2.2.
fn of_three() -> ReplicaLinks<skein_fabric::sim::SimFabric, Ramcast> {
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 3, replicas: 3, engines: 1 }).unwrap();
    let sizes = RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 4096 };
    let fabric = World::new(1, SimConfig::default()).join("n1e0");
    ReplicaLinks::new(Endpoint::new(fabric, sizes), &layout, 1, (1, 0)).unwrap()
}

#[test]
fn what_is_proposed_is_told_to_whom_its_proposer_took_for_the_leader() {
    let mut links = of_three();
    let announcement = |number| Announcement {
        message: MessageId::new(SessionId(1), number),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(number, GroupId(1)),
        ballot: Ballot::new(1, 0, 0),
        index: number,
        again: None,
    };
    links.propose(&announcement(1), |group| ReplicaId::new(group, 0));
    links.propose(&announcement(2), |group| ReplicaId::new(group, 1));
    assert!(links.tell_proposals() && !links.tell_proposals(), "it is told once");
    let here = links.next_here().expect("g0.1 is here");
    assert_eq!((here.to, here.kind), (ReplicaId::new(GroupId(0), 1), Kind::OrderTogether));
    let (proposed, _, rest) = Proposed::decode(&here.bytes).expect("what was told");
    assert_eq!((proposed.message.sequence, rest.len()), (2, 0), "1 is for g0.0, on node 0");
    assert!(links.next_here().is_none());
}

#[test]
fn no_more_is_kept_for_a_leader_without_room_than_a_ring_would_hold() {
    let mut links = of_three();
    let (from, proposed) = (links.local[1], [0; 1000]);
    let kept = |links: &ReplicaLinks<_, Ramcast>| links.loopback.len() * proposed.len();
    for _ in 0..1000 {
        links.keep_together_here(from, links.local[0], &proposed);
    }
    let most = kept(&links);
    assert!((TOGETHER_HERE_MAX..TOGETHER_HERE_MAX + 2000).contains(&most), "{most}");
    links.keep_together_here(from, links.local[2], &proposed);
    assert_eq!(kept(&links), most + proposed.len(), "another has room");
    links.next_here().expect("some are kept");
    links.keep_together_here(from, links.local[0], &proposed);
    assert_eq!(kept(&links), most + proposed.len(), "and so has who has heard some of it");
}

#[test]
fn a_channel_that_is_over_is_not_taken_for_another_that_has_its_number() {
    let world = World::new(1, SimConfig::default());
    let layout =
        Layout::propose(Topology { nodes: 3, groups: 3, replicas: 3, engines: 1 }).unwrap();
    let sizes = RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 1 << 20 };
    let mut links =
        ReplicaLinks::new(Endpoint::new(world.join("n1e0"), sizes), &layout, 1, (1, 0)).unwrap();
    let _there = world.join("n0e0");
    let peer = links.endpoint.fabric.dial("n0e0").unwrap();
    let (from, to) = (links.local[0], ReplicaId::new(GroupId(0), 0));
    let link = usize::from(links.place(to).link.expect("it runs elsewhere"));
    let session = Purpose::Session { session: 7, replica: name(to) };
    let taken = links.endpoint.open(peer, session).unwrap();
    (links.links[link].peer, links.links[link].route) = (Some(peer), Some(taken));
    let announcement = Announcement {
        message: MessageId::new(SessionId(1), 1),
        low_water: 1,
        destinations: GroupSet::first(2),
        timestamp: Timestamp::new(1, GroupId(1)),
        ballot: Ballot::new(1, 0, 0),
        index: 1,
        again: None,
    };
    links.propose(&announcement, |group| ReplicaId::new(group, 0));
    links.tell_proposals();
    let route = links.links[link].route.expect("there is another");
    let purpose = Purpose::Engine { from: name(from), to: name(links.links[link].first) };
    assert_eq!(links.endpoint.channel(route).purpose, purpose);
    assert_eq!(links.endpoint.channel(taken).waiting(), 0);
}
