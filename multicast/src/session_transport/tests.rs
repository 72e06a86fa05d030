//! Sessions against fake replicas, which record what they are sent, and fail.

use std::collections::BTreeMap;

use skein_fabric::sim::{SimConfig, SimFabric, World};

use super::leaders::SPREAD_AFTER;
use super::*;
use crate::channel::AssemblingBytes;
use crate::config::Topology;

const TOPOLOGY: Topology = Topology { nodes: 3, groups: 2, replicas: 3, engines: 1 };
/// Group 0's slots run on nodes 0, 1, 2, and group 1's on 1, 2, 0.
const G0: GroupId = GroupId(0);
const G1: GroupId = GroupId(1);

fn both() -> GroupSet {
    GroupSet::first(2)
}

/// A node that records what its replicas are sent.
struct Fake {
    endpoint: Endpoint<SimFabric>,
    admits: bool,
    /// The receiving group and the sequence number.
    seen: Vec<(GroupId, u64)>,
    /// Likewise, of hints.
    hints: Vec<(GroupId, u64)>,
    /// Whether it has room for hints, and the bytes of those that were being assembled.
    has_room: bool,
    assembled: Vec<usize>,
    channels: BTreeMap<GroupId, u32>,
}

impl Fake {
    fn turn(&mut self) {
        let mut mail = Vec::new();
        while let Some(from) = self.endpoint.fabric.recv(&mut mail) {
            let introduction = Introduction::decode(&mail).unwrap();
            if let Opening::Accepted(id) =
                self.endpoint.receive_mail(from, introduction, |_| self.admits)
            {
                let Purpose::Session { replica: to, .. } = self.endpoint.channel(id).purpose else {
                    panic!("only sessions open channels here");
                };
                self.channels.insert(replica(to).group, id);
            }
        }
        let mut ready = Vec::new();
        self.endpoint.look(&mut ready);
        let mut datagram = Vec::new();
        for id in ready {
            while let Some(next) = self.endpoint.next(id) {
                let has_room = |len| {
                    self.assembled.push(len);
                    self.has_room
                };
                let whole = self.endpoint.take_if(id, next, has_room, &mut datagram);
                assert!(self.has_room || self.endpoint.assembling().hints == 0);
                if !whole {
                    break;
                }
                if datagram.is_empty() {
                    continue; // It was skipped.
                }
                let Purpose::Session { replica: to, .. } = self.endpoint.channel(id).purpose else {
                    continue;
                };
                let (head, payload) = Head::decode(&datagram).unwrap();
                assert!(payload.iter().all(|byte| *byte == head.sequence as u8));
                let seen = if next.kind == Kind::Hint { &mut self.hints } else { &mut self.seen };
                seen.push((replica(to).group, head.sequence));
            }
        }
        self.endpoint.tell();
    }

    fn reply(&mut self, group: GroupId, sequence: u64) {
        let channel = self.channels[&group];
        self.endpoint.send(channel, Kind::Reply, &sequence.to_le_bytes(), b"done");
        self.endpoint.tell();
    }

    /// The sequence numbers received for the group since the last call.
    fn take(&mut self, group: GroupId) -> Vec<u64> {
        let taken = self.seen.extract_if(.., |(to, _)| *to == group);
        taken.map(|(_, sequence)| sequence).collect()
    }
}

struct Scene {
    world: World,
    nodes: Vec<Option<Fake>>,
    access: SessionTransport<SimFabric>,
    replies: Vec<(u64, GroupId)>,
}

impl Scene {
    fn new() -> Self {
        Self::of(&Layout::propose(TOPOLOGY).unwrap())
    }

    fn of(layout: &Layout) -> Self {
        let world = World::new(1, SimConfig { tear_one_in: 0, ..SimConfig::default() });
        let access = SessionTransport::new(world.join("client"), layout, Tuning::default());
        let mut scene = Self { world, nodes: vec![None, None, None], access, replies: Vec::new() };
        (0..3).for_each(|node| scene.start(node));
        scene
    }

    fn start(&mut self, node: usize) {
        let sizes = RingSizes {
            session: 16 << 10,
            session_max: 64 << 10,
            replica: 4 << 10,
            total_max: 1 << 30,
        };
        let endpoint = Endpoint::new(self.world.join(&format!("n{node}e0")), sizes);
        let (seen, hints, channels) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (admits, has_room, assembled) = (true, true, Vec::new());
        let fake = Fake { endpoint, admits, seen, hints, has_room, assembled, channels };
        self.nodes[node] = Some(fake);
    }

    fn kill(&mut self, node: usize) {
        self.world.crash(&format!("n{node}e0"));
        self.nodes[node] = None;
    }

    fn node(&mut self, node: usize) -> &mut Fake {
        self.nodes[node].as_mut().unwrap()
    }

    fn run(&mut self, time: Duration) {
        let (end, step) = (self.world.now() + time, (time / 10).min(Duration::from_millis(1)));
        while self.world.now() < end {
            self.world.advance(step);
            self.nodes.iter_mut().flatten().for_each(Fake::turn);
            let replies = &mut self.replies;
            let take = &mut |reply: GroupReply<'_>| replies.push((reply.sequence, reply.group));
            self.access.turn(take).unwrap();
        }
    }

    fn send(&mut self, session: SessionKey, to: GroupSet, len: usize) -> u64 {
        let sequence = self.access.sessions[session.0 as usize].as_ref().unwrap().next;
        let payload = vec![sequence as u8; len];
        assert_eq!(self.access.multicast(session, to, &payload), Ok(sequence));
        sequence
    }

    fn reply(&mut self, node: usize, group: GroupId, sequence: u64) {
        self.node(node).reply(group, sequence);
    }
}

/// Time enough to notice a death and to find the next incarnation.
const SOON: Duration = Duration::from_millis(150);

#[test]
fn a_replica_that_comes_back_is_sent_all_that_its_group_has_not_answered() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    // Short and long messages, to one group and to both.
    for (to, len) in [(both(), 10), (GroupSet::single(G0), 9_000), (GroupSet::single(G1), 10)] {
        scene.send(session, to, len);
    }
    scene.send(session, GroupSet::single(G0), 3_000);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [1, 2, 4]);
    scene.reply(1, G0, 2);
    scene.reply(1, G1, 1);
    scene.run(SOON);
    assert_eq!(scene.replies, [(2, G0), (1, G1)]);
    scene.kill(0);
    scene.run(SOON);
    scene.send(session, both(), 10);
    scene.start(0);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [1, 4, 5], "2 was answered; the oldest come first");
    assert_eq!(scene.node(0).take(G1), [3, 5], "1 was answered by this group");
    scene.send(session, both(), 10);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [6], "nothing comes twice");
    assert_eq!(scene.node(1).take(G0), [1, 2, 4, 5, 6], "the others see nothing of it");
}

/// Group 2's slots run on nodes 2, 0, 1.
#[test]
fn along_a_tree_destinations_below_have_a_large_message_as_a_hint() {
    let g2 = GroupId(2);
    let below: GroupSet = [G1, g2].into_iter().collect();
    let layout = Layout::propose(Topology { groups: 3, ..TOPOLOGY }).unwrap();
    let mut scene = Scene::of(&layout.along(&Tree::breadth(3)).unwrap());
    let session = scene.access.open(SessionId(7));
    let large = scene.access.tuning.inline_bytes_max + 1;
    for (to, len) in [(both(), large), (below, large), (both(), large - 1), (below, 20 * large)] {
        scene.send(session, to, len);
    }
    scene.send(session, GroupSet::single(G1), large);
    scene.run(SOON);
    for node in 0..3 {
        let mut hints = std::mem::take(&mut scene.node(node).hints);
        hints.sort_unstable();
        assert_eq!(hints, [(G1, 1), (G1, 2), (G1, 4), (g2, 2), (g2, 4)]);
        assert_eq!(scene.node(node).take(G0), [1, 2, 3, 4]);
        assert_eq!((scene.node(node).take(G1), scene.node(node).take(g2)), (vec![5], vec![]));
    }
}

#[test]
fn a_hint_without_room_is_skipped_and_what_is_behind_it_is_read() {
    let layout = Layout::propose(TOPOLOGY).unwrap().along(&Tree::breadth(2)).unwrap();
    for has_room in [true, false] {
        let mut scene = Scene::of(&layout);
        (0..3).for_each(|node| scene.node(node).has_room = has_room);
        let session = scene.access.open(SessionId(7));
        scene.send(session, both(), 70_000);
        scene.send(session, GroupSet::single(G1), 10);
        scene.run(SOON);
        for node in 0..3 {
            let fake = scene.node(node);
            let head = fake.assembled.first().map(|len| len - 70_000);
            assert!(head.is_some_and(|head| head < 64), "its length was asked for");
            assert_eq!(fake.assembled.len(), 1, "once");
            assert_eq!(fake.endpoint.assembling(), AssemblingBytes::default());
            assert_eq!(fake.hints, [(G1, 1)][..usize::from(has_room)]);
            assert_eq!((fake.take(G0), fake.take(G1)), (vec![1], vec![2]), "not skipped");
        }
    }
}

#[test]
fn the_rest_of_a_hint_that_is_dropped_is_skipped() {
    let layout = Layout::propose(TOPOLOGY).unwrap().along(&Tree::breadth(2)).unwrap();
    let mut scene = Scene::of(&layout);
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 200_000);
    scene.send(session, GroupSet::single(G1), 10);
    for node in 0..3 {
        while scene.node(node).endpoint.assembling().hints == 0 {
            scene.run(Duration::from_micros(10));
        }
        scene.node(node).endpoint.skip_hints();
        assert_eq!(scene.node(node).endpoint.assembling().hints, 0);
    }
    scene.run(SOON);
    for node in 0..3 {
        let fake = scene.node(node);
        assert_eq!((fake.take(G1), fake.hints.len()), (vec![2], 0));
        assert_eq!(fake.endpoint.assembling(), AssemblingBytes::default());
    }
}

/// Messages are answered while hints for them still wait for room.
#[test]
fn a_message_does_not_wait_behind_hints_that_are_not_begun() {
    let layout = Layout::propose(TOPOLOGY).unwrap();
    let mut scene = Scene::of(&layout.along(&Tree::breadth(2)).unwrap());
    let session = scene.access.open(SessionId(7));
    let (large, window) = (scene.access.tuning.inline_bytes_max + 1, scene.access.tuning.window);
    scene.send(session, both(), large);
    scene.run(SOON);
    let slow = scene.nodes[1].take();
    for sequence in 1..3 * window as u64 {
        scene.reply(0, G0, sequence);
        scene.reply(2, G1, sequence);
        scene.run(Duration::from_millis(1));
        scene.access.settle(session, sequence);
        scene.send(session, both(), large);
    }
    scene.nodes[1] = slow;
    scene.node(1).hints.clear();
    // Such a message goes to all replicas.
    let own = [(); 2].map(|()| scene.send(session, GroupSet::single(G1), large));
    while scene.node(1).seen.iter().filter(|(to, _)| *to == G1).count() < own.len() {
        scene.run(Duration::from_micros(10));
    }
    assert_eq!(scene.node(1).take(G1), own, "in their order");
    let hints = scene.node(1).hints.len();
    assert!(hints < window / 2, "{hints} hints were in front");
    scene.run(SOON);
    assert!(scene.node(1).hints.len() > window, "the others follow");
}

#[test]
fn a_replica_that_takes_no_hints_is_sent_a_window_of_them() {
    let layout = Layout::propose(TOPOLOGY).unwrap();
    let mut scene = Scene::of(&layout.along(&Tree::breadth(2)).unwrap());
    let session = scene.access.open(SessionId(7));
    let (large, window) = (scene.access.tuning.inline_bytes_max + 1, scene.access.tuning.window);
    scene.send(session, both(), large);
    scene.run(SOON);
    let _stopped = scene.nodes[1].take();
    for sequence in 1..3 * window as u64 {
        scene.reply(0, G0, sequence);
        scene.reply(2, G1, sequence);
        scene.run(Duration::from_millis(1));
        scene.access.settle(session, sequence);
        scene.send(session, both(), large);
    }
    let channels = scene.access.endpoint.iter().map(|(_, channel)| channel);
    let to_g1 = |it: &&Channel| matches!(it.purpose, Purpose::Session { replica: (1, _), .. });
    assert_eq!(channels.filter(to_g1).map(Channel::waiting).max(), Some(window));
}

/// Group 2's slots run on nodes 2, 0, 1.
#[test]
fn along_a_tree_a_message_goes_to_the_group_that_orders_it_first_and_all_others_answer() {
    let g2 = GroupId(2);
    let below: GroupSet = [G1, g2].into_iter().collect();
    let layout = Layout::propose(Topology { groups: 3, ..TOPOLOGY }).unwrap();
    let mut scene = Scene::of(&layout.along(&Tree::breadth(3)).unwrap());
    let session = scene.access.open(SessionId(7));
    scene.send(session, GroupSet::first(3), 10);
    scene.send(session, below, 10);
    scene.send(session, GroupSet::single(G1), 10);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [1, 2], "2 is none of its own, and is ordered there");
    assert_eq!((scene.node(0).take(G1), scene.node(0).take(g2)), (vec![3], vec![]));
    for (node, group, sequence) in [(0, G0, 1), (1, G1, 1), (2, g2, 1), (2, g2, 2)] {
        scene.reply(node, group, sequence);
    }
    scene.run(SOON);
    assert_eq!(scene.replies, [(1, G0), (1, G1), (1, g2), (2, g2)]);
    scene.kill(0);
    scene.run(SOON);
    scene.start(0);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [2], "a group has not answered it");
    assert_eq!(scene.node(0).take(G1), [2, 3], "asked for what it has not answered");
    scene.reply(1, G1, 2);
    scene.run(SOON);
    scene.access.retry(session, 2);
    scene.run(SOON);
    assert_eq!(scene.node(0).take(G0), [], "all have answered it");
}

#[test]
fn what_a_dead_replica_had_replied_counts() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    for _ in 0..3 {
        scene.send(session, GroupSet::single(G0), 10);
    }
    scene.run(SOON);
    // The replies arrive while the session takes no turn, and then their sender dies.
    for sequence in 1..=3 {
        scene.reply(0, G0, sequence);
    }
    scene.world.advance(SOON);
    scene.kill(0);
    scene.world.advance(SOON);
    scene.run(SOON);
    assert_eq!(scene.replies, [(1, G0), (2, G0), (3, G0)]);
}

#[test]
fn a_reply_counts_once_whoever_repeats_it() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 10);
    scene.run(SOON);
    for node in 0..3 {
        scene.reply(node, G0, 1);
        scene.reply(node, G0, 1);
    }
    scene.run(SOON);
    assert_eq!(scene.replies, [(1, G0)]);
    assert_eq!(scene.access.under_way, 1, "the other group has not answered");
    scene.reply(2, G1, 1);
    scene.run(SOON);
    assert_eq!(scene.replies, [(1, G0), (1, G1)]);
    assert_eq!(scene.access.under_way, 0);
}

#[test]
fn a_replica_that_refuses_is_asked_again() {
    let mut scene = Scene::new();
    scene.node(2).admits = false;
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 10);
    scene.run(SOON);
    assert_eq!(scene.node(2).take(G0), []);
    scene.node(2).admits = true;
    scene.send(session, both(), 10);
    scene.run(SOON);
    assert_eq!(scene.node(2).take(G0), [1, 2]);
}

#[test]
fn a_peer_cannot_refuse_what_it_has_opened_itself() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    scene.send(session, GroupSet::single(G0), 10);
    scene.run(SOON);
    let endpoint = &mut scene.access.endpoint;
    let opened = endpoint.iter().filter_map(|(_, it)| Some((it.peer, it.out.as_ref()?.channel)));
    for (peer, channel) in opened.collect::<Vec<_>>() {
        endpoint.post(peer, Introduction::Refused { channel });
    }
    scene.run(SOON);
    for node in 0..3 {
        let theirs = &scene.node(node).endpoint;
        assert!(theirs.iter().count() > 0 && theirs.iter().all(|(_, it)| !it.dying), "{node}");
    }
    scene.reply(0, G0, 1);
    scene.run(SOON);
    assert_eq!(scene.replies, [(1, G0)]);
}

#[test]
fn a_session_has_the_name_with_which_it_is_opened() {
    let mut scene = Scene::new();
    for name in [SessionId(1), SessionId(0x534b_5054 << 32), SessionId::from_random(u64::MAX)] {
        let session = scene.access.open(name);
        assert_eq!(scene.access.id(session), name);
    }
}

#[test]
fn a_message_is_sent_again_on_demand_where_nothing_waits() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 10);
    scene.run(SOON);
    scene.reply(0, G0, 1);
    scene.run(SOON);
    for node in 0..3 {
        scene.node(node).seen.clear();
    }
    scene.access.retry(session, 1);
    scene.run(SOON);
    for node in 0..3 {
        assert_eq!(scene.node(node).take(G0), [], "it has answered");
        assert_eq!(scene.node(node).take(G1), [1]);
    }
    // However often messages are repeated, one window at most waits for room in a ring.
    scene.send(session, GroupSet::single(G1), 60_000);
    for _ in 0..1_000 {
        scene.access.retry(session, 1);
        scene.access.retry(session, 2);
    }
    let waiting = scene.access.endpoint.iter().map(|(_, channel)| channel.waiting()).max();
    assert_eq!(waiting, Some(1));
    scene.reply(1, G1, 1);
    scene.run(SOON);
    scene.access.retry(session, 1);
    scene.access.settle(session, 1);
    scene.access.retry(session, 1);
    scene.run(SOON);
    assert_eq!(scene.node(1).take(G1), [2], "what is answered is not sent again");
}

#[test]
fn a_group_has_a_quorum_while_most_of_its_engines_run() {
    let mut scene = Scene::new();
    let none = GroupSet::EMPTY;
    let here = |without_quorum, nobody| Presence { without_quorum, nobody };
    assert_eq!(scene.access.presence(), here(none, false));
    scene.kill(0);
    scene.run(SOON);
    assert_eq!(scene.access.presence(), here(none, false), "whichever slot it is that died");
    scene.kill(1);
    scene.run(SOON);
    assert_eq!(scene.access.presence(), here(both(), false));
    scene.kill(2);
    scene.run(SOON);
    assert_eq!(scene.access.presence(), here(both(), true));
    scene.start(1);
    scene.start(0);
    assert_eq!(scene.access.presence(), here(none, false));
}

#[test]
fn who_lacks_memory_for_rings_to_replicas_that_are_there_is_told() {
    let mut scene = Scene::new();
    assert!(!scene.access.presence().nobody);
    scene.world.scarce("client", true);
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 10);
    let lack = scene.access.turn(&mut |_| ()).unwrap_err();
    assert!(lack.is_lack(), "{lack}");
}

#[test]
fn buffers_are_used_again() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    for sequence in 1..=200 {
        scene.send(session, both(), 10);
        scene.run(Duration::from_millis(3));
        scene.reply(0, G0, sequence);
        scene.reply(1, G1, sequence);
        scene.run(Duration::from_millis(3));
        scene.access.settle(session, sequence);
    }
    assert_eq!(scene.access.pool.len(), 1);
    scene.send(session, both(), 10);
    assert_eq!(scene.access.pool.len(), 0);
    scene.access.close(session);
    assert_eq!((scene.access.pool.len(), scene.access.under_way), (1, 0));
}

#[test]
fn an_idle_session_finds_the_next_life_too() {
    let mut scene = Scene::new();
    let session = scene.access.open(SessionId(7));
    scene.send(session, both(), 10);
    scene.run(SOON);
    scene.reply(0, G0, 1);
    scene.reply(1, G1, 1);
    scene.run(SOON);
    scene.access.settle(session, 1);
    scene.kill(0);
    scene.run(SOON);
    scene.start(0);
    scene.run(SOON);
    assert!(scene.node(0).channels.contains_key(&G0), "it would not know when the session dies");
    assert_eq!(scene.node(0).take(G0), []);
}

/// Sequence numbers that each slot of group 0 was sent since the last call.
fn taken(scene: &mut Scene) -> [Vec<u64>; 3] {
    [0, 1, 2]
        .map(|node| if scene.nodes[node].is_some() { scene.node(node).take(G0) } else { vec![] })
}

/// Time enough for a message and its answer, and shorter than any timeout.
const MOMENT: Duration = Duration::from_micros(600);

/// A session whose message 1 to group 0 was answered by slot 0, and that group.
fn led_by_slot_0() -> (Scene, SessionKey, GroupSet) {
    let mut scene = Scene::new();
    let (session, g0) = (scene.access.open(SessionId(7)), GroupSet::single(G0));
    scene.send(session, g0, 10);
    scene.run(SOON);
    scene.reply(0, G0, 1);
    scene.run(MOMENT);
    taken(&mut scene);
    (scene, session, g0)
}

#[test]
fn followers_are_sent_what_their_leader_does_not_answer() {
    let mut scene = Scene::new();
    let (session, g0) = (scene.access.open(SessionId(7)), GroupSet::single(G0));
    scene.send(session, g0, 10);
    scene.run(SOON);
    assert_eq!(taken(&mut scene), [[1], [1], [1]], "nobody knows who leads");
    scene.reply(1, G0, 1);
    scene.run(MOMENT);
    scene.send(session, g0, 10);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [vec![], vec![2], vec![]], "who answers leads");
    scene.reply(1, G0, 2);
    scene.run(SOON);
    assert_eq!(taken(&mut scene), [[], [], []], "others find it in their logs");
    scene.send(session, g0, 10);
    scene.run(SPREAD_AFTER + MOMENT);
    assert_eq!(taken(&mut scene), [[3], [3], [3]], "it does not answer");
    scene.send(session, g0, 10);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [[4], [4], [4]], "it is not trusted");
    scene.reply(2, G0, 3);
    scene.run(MOMENT);
    scene.send(session, g0, 10);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [vec![], vec![], vec![5]], "another leads");
    scene.run(SPREAD_AFTER);
    assert_eq!(
        taken(&mut scene),
        [vec![5], vec![5], vec![]],
        "whoever was sent it is not sent it again"
    );
}

#[test]
fn what_waits_for_a_leader_goes_to_the_next_one_too() {
    let mut scene = Scene::new();
    let (session, g0) = (scene.access.open(SessionId(7)), GroupSet::single(G0));
    for _ in 0..2 {
        scene.send(session, g0, 10);
    }
    scene.run(SOON);
    scene.reply(0, G0, 1);
    scene.run(MOMENT);
    taken(&mut scene);
    scene.send(session, g0, 10);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [vec![3], vec![], vec![]]);
    // Slot 1 answers, and message 3 was sent to slot 0.
    scene.reply(1, G0, 2);
    scene.run(SPREAD_AFTER + MOMENT);
    assert_eq!(taken(&mut scene), [[3], [3], [3]], "who leads now was not sent it");
}

#[test]
fn what_no_log_carries_and_what_a_leader_that_is_gone_would_get_goes_to_all() {
    let (mut scene, session, g0) = led_by_slot_0();
    scene.send(session, g0, scene.access.tuning.inline_bytes_max + 1);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [[2], [2], [2]], "payloads are not in the log");
    let other = scene.access.open(SessionId(8));
    assert_eq!(scene.access.multicast(other, g0, &[1]), Ok(1));
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [[1], [1], [1]], "all are to notice when the session dies");
    scene.kill(0);
    scene.run(SOON);
    scene.send(session, g0, 10);
    scene.run(MOMENT);
    assert_eq!(taken(&mut scene), [vec![], vec![3], vec![3]], "the leader is gone");
}

#[test]
fn what_was_sent_to_all_is_sent_once() {
    let (mut scene, session, _) = led_by_slot_0();
    scene.send(session, both(), 10);
    scene.run(SPREAD_AFTER + MOMENT);
    assert_eq!(taken(&mut scene), [[2], [2], [2]], "to the leader, and then to the others");
    let g1 = [0, 1, 2].map(|node| scene.node(node).take(G1));
    assert_eq!(g1, [[2], [2], [2]], "nobody knew who leads the other group");
}

#[test]
fn what_is_answered_is_not_late_however_late_anybody_looks() {
    let (mut scene, session, g0) = led_by_slot_0();
    scene.send(session, g0, 10);
    scene.access.turn(&mut |_| ()).unwrap();
    scene.world.advance(MOMENT);
    scene.node(0).turn();
    scene.reply(0, G0, 2);
    scene.world.advance(2 * SPREAD_AFTER);
    scene.run(MOMENT);
    assert_eq!(scene.replies.last(), Some(&(2, G0)));
    assert_eq!(taken(&mut scene), [vec![2], vec![], vec![]]);
}

#[test]
fn nobody_sleeps_past_the_time_at_which_followers_are_sent_what_is_late() {
    let (mut scene, session, g0) = led_by_slot_0();
    // An unreachable replica is retried, at a longer interval.
    scene.kill(2);
    scene.run(SOON);
    scene.send(session, g0, 10);
    scene.access.turn(&mut |_| ()).unwrap();
    let mut waiter = Waiter::new(skein_fabric::wait::Waiting::Park);
    while !scene.world.is_parked("client") {
        scene.access.wait(&mut waiter, Duration::from_secs(1), &|| true);
        scene.world.advance(Duration::from_micros(20));
    }
    let until = scene.world.parked_until("client").expect("not for ever");
    assert!(until <= scene.world.now() + SPREAD_AFTER, "{until:?}");
}
