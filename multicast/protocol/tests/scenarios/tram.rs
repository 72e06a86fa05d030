//! Ordering along a tree: whole groups, most of them three of three replicas, whose leaders change while messages are
//! on their way.

use std::collections::BTreeMap;

use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{AnswerTo, Inspect as _, NotRestored, OrderingProtocol as _};
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;
use skein_protocol::tram::content::Content;
use skein_protocol::tram::edges::{Edge, EdgeNumber, ROOM};
use skein_protocol::tram::tree::Tree;
use skein_protocol::tram::{Edges, PeerEvent, Tram};

use crate::stage::{Stage, message, replica};

pub(crate) fn set(groups: &[u16]) -> GroupSet {
    groups.iter().copied().map(GroupId).collect()
}

/// The groups, and the messages that sessions have sent.
pub(crate) struct Cluster {
    pub(crate) stage: Stage<Tram>,
    pub(crate) tree: Tree,
    pub(crate) sent: BTreeMap<u64, GroupSet>,
    /// Replicas that have no turns and get no writes.
    pub(crate) down: Vec<ReplicaId>,
    pub(crate) leaders: Vec<u8>,
    /// Replicas of each group.
    count: u8,
}

impl Cluster {
    pub(crate) fn new(tree: &Tree) -> Self {
        Self::of(tree, 3)
    }

    fn of(tree: &Tree, count: u8) -> Self {
        let leaders = vec![0; usize::from(tree.groups())];
        let stage = Stage::along(tree, count);
        Self { stage, tree: *tree, sent: BTreeMap::new(), down: Vec::new(), leaders, count }
    }

    /// A session sends a message to all replicas of the lowest common ancestor.
    pub(crate) fn send(&mut self, destinations: GroupSet) -> u64 {
        let number = self.sent.len() as u64 + 1;
        self.sent.insert(number, destinations);
        for to in self.stage.members(self.tree.lca(destinations)) {
            self.stage.land(to, message(number), destinations);
        }
        number
    }

    pub(crate) fn up(&self) -> Vec<ReplicaId> {
        let members = |group| (0..self.count).map(move |slot| replica(group, slot));
        let all = (0..self.tree.groups()).flat_map(members);
        all.filter(|it| !self.down.contains(it)).collect()
    }

    pub(crate) fn leader(&self, group: u16) -> ReplicaId {
        replica(group, self.leaders[usize::from(group)])
    }

    /// Another replica of the group leads, and the old leader has no part in that.
    pub(crate) fn change_leader(&mut self, group: u16) {
        let old = self.leader(group);
        let after = |steps| replica(group, (old.slot + steps) % self.count);
        let (next, others) = (after(1), (2..self.count).map(after).collect::<Vec<_>>());
        self.leaders[usize::from(group)] = next.slot;
        self.stage.run(next, &others);
    }

    /// Every leader writes the logs of all others from now on.
    pub(crate) fn heal(&mut self) {
        for group in 0..self.tree.groups() {
            let leader = self.leader(group);
            for other in self.stage.members(leader.group).filter(|other| *other != leader) {
                self.stage.ask(leader, other);
            }
        }
    }

    /// Time passes, and all replicas that are up take turns.
    pub(crate) fn settle(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.stage.pass(5, &self.down.clone());
            for id in self.up() {
                self.stage.turn(id);
                self.stage.complete(id);
            }
        }
    }

    /// The edges of a group, by its leader.
    fn edges(&mut self, group: u16) -> Edges {
        self.stage.core(self.leader(group)).inspect().edges().expect("it orders along a tree")
    }

    /// What the leader of each group has delivered.
    pub(crate) fn orders(&self) -> Vec<Vec<u64>> {
        let leaders = (0..self.tree.groups()).map(|group| self.leader(group));
        leaders.map(|leader| self.stage.delivered(leader)).collect()
    }

    /// Everything that was sent is delivered by its destinations and by nobody else, once, in orders without a cycle.
    pub(crate) fn check(&mut self) {
        let orders = self.orders();
        for (group, order) in orders.iter().enumerate() {
            let group = GroupId(group as u16);
            let mut expected: Vec<u64> = self
                .sent
                .iter()
                .filter(|(_, to)| to.contains(group))
                .map(|(number, _)| *number)
                .collect();
            let mut delivered = order.clone();
            delivered.sort_unstable();
            expected.sort_unstable();
            assert_eq!(delivered, expected, "{group}: validity, agreement and integrity");
        }
        for id in self.up() {
            let (order, whole) = (self.stage.delivered(id), &orders[id.group.index()]);
            assert!(whole.starts_with(&order), "{id} delivered {order:?}, and its group {whole:?}");
        }
        check_acyclic(&orders);
    }
}

pub(crate) fn check_acyclic(orders: &[Vec<u64>]) {
    let mut rest: Vec<_> = orders.to_vec();
    while let Some(first) = rest.iter().filter_map(|order| order.first().copied()).find(|name| {
        rest.iter().all(|order| order.iter().position(|it| it == name).is_none_or(|at| at == 0))
    }) {
        for order in &mut rest {
            order.retain(|it| *it != first);
        }
    }
    assert!(rest.iter().all(Vec::is_empty), "a cycle among {rest:?}");
}

pub(crate) const TREES: [fn(u16) -> Tree; 3] = [Tree::base, Tree::breadth, Tree::depth];

#[test]
fn messages_to_all_sets_of_groups_are_delivered_by_their_destinations_in_one_order() {
    for tree in TREES {
        let mut cluster = Cluster::new(&tree(3));
        for _ in 0..3 {
            for groups in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]] {
                cluster.send(set(groups));
            }
            cluster.settle(3);
        }
        cluster.settle(30);
        cluster.check();
    }
}

/// All sets of some groups, in turn, while leaders of all groups change.
fn orders_all_sets(tree: &Tree, count: u8) {
    let (mut cluster, groups) = (Cluster::of(tree, count), tree.groups());
    for bits in 1..1_u32 << groups {
        cluster.send((0..groups).filter(|group| bits >> group & 1 == 1).map(GroupId).collect());
        if bits % 5 == 0 {
            cluster.settle(1);
        }
        if bits % 16 == 7 {
            cluster.change_leader((bits / 16) as u16 % groups);
            cluster.heal();
        }
    }
    cluster.heal();
    cluster.settle(60);
    cluster.check();
}

#[test]
fn groups_of_five_replicas_deliver_all_sets_of_uneven_trees_in_one_order() {
    for parents in [&[-1, 0, 0, 1, 1][..], &[1, 2, -1, 2, 3], &[4, 4, 0, 2, -1, 4]] {
        for count in [3, 5] {
            let parents: Vec<_> = parents.iter().map(|it: &i8| u16::try_from(*it).ok()).collect();
            orders_all_sets(&Tree::of(&parents).unwrap(), count);
        }
    }
}

#[test]
fn all_sets_of_eight_groups_are_delivered_in_one_order_along_each_tree_of_the_paper() {
    for tree in TREES {
        orders_all_sets(&tree(8), 3);
    }
}

/// In the paper a follower delivers an entry when there is one behind it, so the last message waits for the next.
#[test]
fn a_follower_delivers_the_last_message_though_nothing_comes_behind_it() {
    let mut cluster = Cluster::new(&Tree::depth(2));
    let number = cluster.send(set(&[0, 1]));
    cluster.settle(20);
    for id in cluster.up() {
        assert_eq!(cluster.stage.delivered(id), [number], "{id}");
    }
}

/// In the paper a new leader takes entries slot by slot, and in its prototype whatever the timestamp: an entry that a deposed
/// leader logged alone can win over one that was delivered in its place.
#[test]
fn a_new_leader_takes_no_entry_of_a_deposed_one_in_the_place_of_a_delivered_one() {
    let mut cluster = Cluster::new(&Tree::depth(2));
    cluster.settle(3);
    let (first, second, third) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let both = set(&[0, 1]);
    for follower in [second, third] {
        cluster.stage.lose_writes(first, follower);
    }
    for number in [1, 3, 4] {
        cluster.stage.land(first, message(number), both);
    }
    cluster.stage.turn(first);
    let alone = cluster.stage.core(first).log().last_index();
    cluster.down.push(first);
    cluster.change_leader(0);
    for to in [second, third] {
        cluster.stage.land(to, message(2), both);
    }
    cluster.settle(20);
    assert!(
        cluster.stage.core(third).log().commit_index() >= alone,
        "in the place of the first message"
    );
    assert_eq!(cluster.stage.delivered(third), [2]);
    // The deposed leader has an entry in each of those places, and leads again by the other's grant.
    cluster.down = vec![second];
    cluster.leaders[0] = first.slot;
    cluster.stage.heal();
    cluster.stage.run(first, &[third]);
    cluster.sent = (1..5).map(|number| (number, both)).collect();
    cluster.settle(60);
    assert_eq!(cluster.stage.delivered(first), [2, 1, 3, 4]);
    cluster.check();
}

#[test]
fn a_message_to_one_group_concerns_no_other() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.down = (0..6).map(|it| replica(it / 3, (it % 3) as u8)).collect();
    let number = cluster.send(set(&[2]));
    cluster.settle(5);
    assert_eq!(cluster.stage.delivered(replica(2, 0)), [number]);
    let reads = cluster.stage.core(replica(2, 0));
    let rests = reads.reply_dependency(AnswerTo::Read);
    assert!(reads.has_passed(rests), "nothing is shared");
}

#[test]
fn a_reply_waits_until_an_earlier_message_is_stable_at_its_other_destinations() {
    let mut cluster = Cluster::new(&Tree::breadth(3));
    cluster.down = cluster.stage.members(GroupId(2)).collect();
    cluster.send(set(&[0, 2]));
    let alone = cluster.send(set(&[0]));
    cluster.settle(20);
    let root = replica(0, 0);
    assert_eq!(cluster.stage.delivered(root), [1, alone], "what is committed is delivered");
    let core = cluster.stage.core(root);
    let rests = core.reply_dependency(AnswerTo::Message(message(alone)));
    assert!(!core.has_passed(rests), "g2 may still order something in front of it");
    assert!(!core.has_passed(core.reply_dependency(AnswerTo::Read)));
    cluster.down.clear();
    cluster.settle(40);
    let core = cluster.stage.core(root);
    assert!(core.has_passed(rests));
    assert_eq!(core.inspect().retained(), 0);
    cluster.check();
}

/// The leader of an inner group ends after it has logged what it took, and before it has passed that on, or after that,
/// or halfway: in each turn of the way.
#[test]
fn a_leader_that_ends_in_the_middle_of_forwarding_loses_and_repeats_nothing() {
    for tree in TREES {
        for group in 0..3 {
            for turns in 0..14 {
                let mut cluster = Cluster::new(&tree(3));
                for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1], &[2], &[0, 1, 2]] {
                    cluster.send(set(groups));
                }
                for id in cluster.up().into_iter().cycle().take(turns) {
                    cluster.stage.turn(id);
                }
                let old = cluster.leader(group);
                cluster.down.push(old);
                cluster.change_leader(group);
                for groups in [&[0, 1, 2][..], &[1, 2], &[0]] {
                    cluster.send(set(groups));
                }
                cluster.settle(60);
                cluster.check();
            }
        }
    }
}

#[test]
fn an_inner_group_that_stands_still_holds_up_its_subtree_and_nothing_else() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.down = cluster.stage.members(GroupId(1)).collect();
    cluster.send(set(&[0, 2]));
    cluster.send(set(&[0]));
    cluster.send(set(&[2]));
    cluster.settle(20);
    assert_eq!(cluster.orders(), [vec![1, 2], vec![], vec![3]]);
    cluster.down.clear();
    cluster.settle(60);
    cluster.check();
    assert_eq!(cluster.orders(), [vec![1, 2], vec![], vec![3, 1]]);
}

#[test]
fn messages_to_others_go_on_without_a_dead_leaf() {
    let mut cluster = Cluster::new(&Tree::breadth(3));
    cluster.down = cluster.stage.members(GroupId(2)).collect();
    let mut expected = Vec::new();
    cluster.send(set(&[0, 2]));
    expected.push(1);
    for _ in 0..20 {
        expected.push(cluster.send(set(&[0, 1])));
        cluster.settle(2);
    }
    cluster.settle(20);
    assert_eq!(cluster.stage.delivered(replica(1, 0)), expected[1..]);
    cluster.down.clear();
    cluster.settle(60);
    cluster.check();
}

/// A session sends to all destinations, as it does if a payload is long. Only the lowest common ancestor orders it.
#[test]
fn a_message_that_all_destinations_have_is_ordered_by_their_ancestor_alone() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    let number = cluster.send(set(&[0, 1, 2]));
    for to in (1..3).flat_map(|group| cluster.stage.members(GroupId(group))).collect::<Vec<_>>() {
        cluster.stage.land(to, message(number), set(&[0, 1, 2]));
    }
    let below = replica(1, 0);
    cluster.stage.turn(below);
    assert!(
        !cluster.stage.core(below).is_logged(message(number)),
        "its ancestor has not passed it on"
    );
    cluster.settle(30);
    cluster.check();
}

#[test]
fn a_table_without_room_closes_its_destinations_and_no_others() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.down = cluster.stage.members(GroupId(2)).collect();
    for _ in 0..ROOM / 2 {
        cluster.send(set(&[0, 2]));
    }
    cluster.settle(20);
    cluster.stage.told();
    let refused = [set(&[0, 1, 2]), set(&[1, 2])].map(|groups| cluster.send(groups));
    let taken = [set(&[0, 1]), set(&[0]), set(&[1])].map(|groups| cluster.send(groups));
    cluster.settle(10);
    let told = cluster.stage.told();
    for (by, number) in ["g0.0", "g1.0"].into_iter().zip(refused) {
        assert!(told.contains(&format!("{by} refuses m{number}: {{g2}} are closed")), "{by}");
    }
    let root = cluster.stage.delivered(replica(0, 0));
    assert!(root.ends_with(&taken[..2]), "the rest goes on");
    let full = ROOM as u64 / 2;
    let [root, inner] = [0, 1].map(|group| cluster.edges(group));
    assert_eq!((root.taken, inner.taken.map(|it| it.number)), (None, Some(full + 1)));
    assert_eq!([root.closed, inner.closed], [set(&[2]); 2], "a child tells what is behind it");
    let [to_inner, to_leaf] = [&root, &inner].map(|edges| edges.children[0]);
    assert_eq!((to_inner.child, to_inner.closed), (GroupId(1), set(&[2])));
    assert_eq!(
        (to_inner.numbered, to_inner.acknowledged, to_inner.sent),
        (full + 1, full + 1, full + 1)
    );
    assert_eq!((to_leaf.child, to_leaf.closed), (GroupId(2), set(&[2])));
    assert_eq!((to_leaf.numbered, to_leaf.acknowledged, to_leaf.sent), (full, 0, full));
    assert_eq!([to_inner.unacknowledged, to_leaf.unacknowledged], [0, ROOM / 2]);
    cluster.down.clear();
    cluster.settle(100);
    cluster.check();
    let [root, inner] = [0, 1].map(|group| cluster.edges(group));
    assert_eq!([root.closed, inner.closed], [GroupSet::EMPTY; 2]);
    assert_eq!(inner.children[0].acknowledged, inner.children[0].numbered);
    assert_eq!(inner.children[0].unacknowledged, 0);
}

/// Nothing is asked for and nothing is sent again: no time passes but two ticks at the end.
#[test]
fn followers_keep_nothing_for_other_groups_that_these_have() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1]] {
        cluster.send(set(groups));
    }
    let all = cluster.up();
    let rounds = |cluster: &mut Cluster| {
        for id in all.iter().cycle().take(20 * all.len()).copied() {
            cluster.stage.turn(id);
            cluster.stage.complete(id);
        }
    };
    rounds(&mut cluster);
    for _ in 0..2 {
        cluster.stage.pass(1, &[]);
        rounds(&mut cluster);
    }
    cluster.check();
    for id in &all {
        let retained = cluster.stage.core(*id).inspect().retained();
        assert_eq!(retained, 0, "{id}");
    }
}

/// A replica of an inner group that takes its leader's state passes on the same when it leads.
#[test]
fn a_learner_goes_on_where_the_state_was_saved() {
    let (leader, learner) = (replica(1, 0), replica(1, 1));
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.down = cluster.stage.members(GroupId(2)).collect();
    cluster.send(set(&[0, 1, 2]));
    cluster.send(set(&[1, 2]));
    cluster.settle(10);
    cluster.stage.restart(learner);
    cluster.stage.transfer_state(leader, learner);
    let mut states = [leader, learner].map(|id| {
        let mut state = Vec::new();
        cluster.stage.core(id).save(&mut state);
        state
    });
    let [ours, theirs] = &mut states;
    assert_eq!(ours[9..], theirs[9..], "it could give the same one, but for the ballot");
    for cut in 0..ours.len() {
        let refused = cluster.stage.core(learner).restored(&ours[..cut]).err();
        assert_eq!(refused, Some(NotRestored::Malformed), "cut off at {cut}");
    }
    cluster.settle(1); // It reports that it has applied what its group is done with.
    cluster.stage.admitted(leader, learner);
    cluster.settle(5);
    cluster.down = vec![leader];
    cluster.change_leader(1);
    cluster.send(set(&[0, 2]));
    cluster.settle(60);
    cluster.check();
}

/// Leaders of random groups change at random moments and edges are lost, under load to random sets of groups.
#[test]
fn random_schedules_with_changes_of_leaders_keep_the_properties() {
    for seed in 0..200 {
        println!("seed {seed}");
        random_schedule(seed);
    }
}

fn random_schedule(seed: u64) {
    let mut state = seed;
    let mut random = move |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let mut cluster = Cluster::new(&TREES[(seed % 3) as usize](3));
    for _ in 0..200 {
        match random(21) {
            0..4 => {
                let bits = 1 + random(7);
                let groups = (0..3).filter(|group| bits >> group & 1 == 1).map(GroupId);
                cluster.send(groups.collect());
            }
            4 => cluster.change_leader(random(3) as u16),
            5 => {
                let down = cluster.down.clone();
                cluster.stage.pass(1 + random(5), &down);
            }
            20 => cluster.stage.lose_mail(replica(random(3) as u16, random(3) as u8)),
            it => {
                let id = replica(random(3) as u16, random(3) as u8);
                if it < 15 { cluster.stage.turn(id) } else { cluster.stage.complete(id) }
            }
        }
    }
    cluster.settle(80);
    cluster.check();
}

#[cfg(feature = "mutants")]
#[test]
fn each_guard_that_is_taken_out_is_noticed() {
    use skein_protocol::mutants::{Mutant, plant};

    let mutants: [(Mutant, fn(u64)); 7] = [
        (Mutant::EdgeGapTaken, random_schedule),
        (Mutant::UnacknowledgedForgotten, random_schedule),
        (Mutant::BystanderDelivers, random_schedule),
        (Mutant::NotGatedAlongTree, |_| {
            a_reply_waits_until_an_earlier_message_is_stable_at_its_other_destinations();
        }),
        (Mutant::OrderedBelowLca, |_| {
            a_message_that_all_destinations_have_is_ordered_by_their_ancestor_alone();
        }),
        (Mutant::EdgeCountNotInState, |_| a_learner_goes_on_where_the_state_was_saved()),
        (Mutant::LongestLogAdopted, |_| {
            a_new_leader_takes_no_entry_of_a_deposed_one_in_the_place_of_a_delivered_one();
        }),
    ];
    for (mutant, schedule) in mutants {
        plant(Some(mutant));
        let noticed = (0..40).any(|seed| std::panic::catch_unwind(|| schedule(seed)).is_err());
        plant(None);
        assert!(noticed, "{} survives", mutant.name());
    }
}

/// The driver has room for one entry at a time.
#[test]
fn what_waited_for_a_payload_is_logged_one_by_one() {
    let mut cluster = Cluster::new(&Tree::depth(2));
    cluster.settle(3);
    let (leader, from) = (cluster.leader(1), cluster.leader(0));
    let ballot = cluster.stage.core(from).log().ballot();
    let destinations = set(&[0, 1]);
    let core = cluster.stage.core(leader);
    let logged = |core: &Tram| (1..=3).filter(|it| core.is_logged(message(*it))).count();
    let mut effects = Vec::new();
    for number in 1..=3 {
        let content = Content::Message {
            message: message(number),
            low_water: 1,
            destinations,
            outside: if number == 1 { 5_000 } else { 0 },
            again: false,
        };
        let place = Rank::new(number);
        let number = EdgeNumber { generation: 0, number };
        let edge = Edge { number, first: 1, child_generation: 0, place, content };
        let held = edge.number.number != 1;
        let event = PeerEvent::Passed { from, ballot, edge, sum: 7, held };
        core.step(Event::Heard(event), &mut effects);
    }
    assert_eq!((logged(core), core.has_ready()), (0, false), "the first one has no payload");
    assert_eq!(core.awaits(message(1)), Some((destinations, 7)));
    let received =
        Event::Received { message: message(1), low_water: 1, destinations, outside: 5_000 };
    core.step(received, &mut effects);
    for done in 0..3 {
        assert_eq!((logged(core), core.has_ready()), (done, true));
        core.take_ready(&mut effects);
    }
    assert_eq!((logged(core), core.has_ready()), (3, false));
}
