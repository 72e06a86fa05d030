//! Groups of a tree that are lost and begin anew: what others still send them, and what they may order.

use std::collections::BTreeSet;

use skein_protocol::ballot::Ballot;
use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::{Inspect as _, OrderingProtocol as _};
use skein_protocol::step::Event;
use skein_protocol::tram::tree::Tree;

use crate::stage::{message, replica};
use crate::tram::{Cluster, TREES, check_acyclic, set};
#[cfg(feature = "mutants")]
use crate::tram_neighbours::what_a_child_has_taken_it_does_not_take_again_when_the_name_is_settled;

impl Cluster {
    /// A group loses all that it has and begins anew under slot 0.
    fn recreate(&mut self, group: u16) {
        self.stage.recreate(GroupId(group));
        // They are bound by leases that they may have promised.
        self.stage.pass(60, &[]);
        self.leaders[usize::from(group)] = 0;
        self.stage.run(replica(group, 0), &[replica(group, 1), replica(group, 2)]);
    }

    /// A group loses all but what one replica has read, and goes on from there.
    fn revive(&mut self, group: u16, slot: u8) {
        let survivor = replica(group, slot);
        self.stage.revive(survivor);
        self.stage.pass(60, &[]);
        self.leaders[usize::from(group)] = slot;
        let others: Vec<_> =
            self.stage.members(survivor.group).filter(|it| *it != survivor).collect();
        self.stage.run(survivor, &others);
    }

    /// A session sends a message again: to the group that orders it, and to the destinations that have not delivered it. The
    /// leaders of those hand it in if they may never have it otherwise.
    fn send_again(&mut self, number: u64) {
        let (name, destinations) = (message(number), self.sent[&number]);
        let first = self.tree.lca(destinations);
        let lacks = |group: &GroupId| !self.stage.delivered(self.leader(group.0)).contains(&number);
        let lack: GroupSet = destinations.iter().filter(lacks).collect();
        for group in lack.iter() {
            let (leader, orders) = (self.leader(group.0), self.leader(first.0));
            if group != first && !self.stage.core(leader).hands_in(name, destinations) {
                continue;
            }
            let (core, mut effects) = (self.stage.core(orders), Vec::new());
            if group != first {
                core.hear_lacked(name, destinations);
            }
            if core.log().leads() {
                let (message, low_water, outside) = (name, 1, 0);
                core.step(
                    Event::Received { message, low_water, destinations, outside },
                    &mut effects,
                );
            }
            self.stage.carry_out(orders, effects);
        }
    }

    /// Sessions send again what has no answers, until everything has.
    fn answer_all(&mut self, context: &str) {
        for _ in 0..12 {
            self.settle(40);
            let orders = self.orders();
            let lacks = |(number, to): (&u64, &GroupSet)| {
                to.iter().any(|group| !orders[group.index()].contains(number)).then_some(*number)
            };
            let lacking: Vec<_> = self.sent.iter().filter_map(lacks).collect();
            if lacking.is_empty() {
                return;
            }
            for number in lacking {
                self.send_again(number);
            }
        }
        panic!("{context}: not all is answered: {:?}", self.orders());
    }

    /// No group has delivered a message twice. Without those that are `gone`, the orders have no cycle.
    fn check_again(&mut self, gone: &BTreeSet<u64>, context: &str) {
        let mut orders = self.orders();
        for (group, order) in orders.iter_mut().enumerate() {
            let distinct: BTreeSet<_> = order.iter().collect();
            assert_eq!(
                distinct.len(),
                order.len(),
                "{context}: g{group} delivers twice: {order:?}"
            );
            order.retain(|number| !gone.contains(number));
        }
        check_acyclic(&orders);
    }

    /// The messages in whose order a group has had a part.
    fn through(&self, group: u16) -> impl Iterator<Item = u64> {
        let passes =
            move |(_, to): &(&u64, &GroupSet)| self.tree.path(**to).contains(GroupId(group));
        self.sent.iter().filter(passes).map(|(number, _)| *number)
    }

    /// Every message from `first` on is delivered by its destinations. What groups have delivered in all has no cycle
    /// and no message twice, and nothing waits.
    fn check_from(&mut self, first: u64, context: &str) {
        let orders = self.orders();
        for (group, order) in orders.iter().enumerate() {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(
                sorted.len(),
                order.len(),
                "{context}: g{group} delivers one twice: {order:?}"
            );
            for (number, _) in
                self.sent.range(first..).filter(|(_, to)| to.contains(GroupId(group as u16)))
            {
                assert!(
                    order.contains(number),
                    "{context}: g{group} never delivers m{number}: {order:?}"
                );
            }
        }
        check_acyclic(&orders);
        for group in 0..3 {
            let leader = self.leader(group);
            let unstable = self.stage.core(leader).inspect().retained();
            assert_eq!(unstable, 0, "{context}: g{group} waits for words");
        }
    }
}

#[test]
fn a_recreated_inner_group_orders_for_several_groups_when_its_marker_has_come() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2]] {
        cluster.send(set(groups));
    }
    cluster.settle(30);
    cluster.recreate(1);
    let number = cluster.send(set(&[1, 2]));
    cluster.stage.told();
    for slot in [1, 2, 0] {
        cluster.stage.turn(replica(1, slot));
    }
    let told = cluster.stage.told();
    assert!(told.contains(&format!("g1.0 refuses m{number}: {{g1}} are closed")), "{told}");
    let alone = cluster.send(set(&[1]));
    for slot in [0, 1, 2, 0] {
        cluster.stage.turn(replica(1, slot));
    }
    assert_eq!(cluster.stage.delivered(replica(1, 0)), [alone], "its own messages it may order");
    cluster.settle(80);
    cluster.check_from(number, "depth");
}

/// Nobody but the child hears the ballots of a group that passes on markers alone.
#[test]
fn a_group_far_below_knows_in_which_generation_its_entries_were_ordered() {
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.settle(3);
    for generation in 1..=2 {
        cluster.recreate(0);
        cluster.settle(40);
        let core = cluster.stage.core(replica(2, 1));
        let counter = core.inspect().counter_known_of(GroupId(0));
        assert_eq!(
            Ballot::new(counter, 0, 0).generation(),
            generation,
            "the others may be lost too"
        );
    }
}

#[test]
fn a_cluster_goes_on_whichever_group_is_lost_at_whatever_moment() {
    for tree in TREES {
        for lost in 0..3 {
            for turns in 0..20 {
                let mut cluster = Cluster::new(&tree(3));
                for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1], &[2], &[0, 1, 2]] {
                    cluster.send(set(groups));
                }
                for id in cluster.up().into_iter().cycle().take(turns) {
                    cluster.stage.turn(id);
                }
                cluster.recreate(lost);
                cluster.settle(40);
                let first = cluster.sent.len() as u64 + 1;
                for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1]] {
                    cluster.send(set(groups));
                }
                cluster.settle(80);
                cluster.check_from(first, &format!("{:?}, g{lost} after {turns}", cluster.tree));
            }
        }
    }
}

#[test]
fn groups_may_be_lost_one_after_the_other_while_leaders_change() {
    for seed in 0..800 {
        schedule(seed);
    }
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |bound: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    }
}

fn schedule(seed: u64) {
    let mut random = random(seed ^ 0x10_57);
    let mut cluster = Cluster::new(&TREES[(seed % 3) as usize](3));
    for _ in 0..250 {
        let (group, slot) = (random(3) as u16, random(3) as u8);
        match random(60) {
            0..8 => {
                let bits = 1 + random(7);
                let groups = (0..3).filter(|group| bits >> group & 1 == 1).map(GroupId);
                cluster.send(groups.collect());
            }
            8 => cluster.recreate(group),
            9 => cluster.change_leader(group),
            10..14 => cluster.stage.pass(1 + random(5), &[]),
            14 => cluster.stage.lose_mail(replica(group, slot)),
            15..45 => cluster.stage.turn(replica(group, slot)),
            _ => cluster.stage.complete(replica(group, slot)),
        }
    }
    cluster.heal();
    cluster.settle(80);
    let first = cluster.sent.len() as u64 + 1;
    for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1]] {
        cluster.send(set(groups));
    }
    cluster.settle(80);
    cluster.check_from(first, &format!("seed {seed}"));
}

#[test]
fn what_a_lost_group_has_ordered_is_ordered_again_and_delivered_once_by_whoever_has_it() {
    for tree in TREES {
        for lost in 0..3 {
            for turns in 0..24 {
                let context = format!("{:?}, g{lost} after {turns}", tree(3));
                let mut cluster = Cluster::new(&tree(3));
                for groups in [&[0, 1, 2][..], &[1, 2], &[0, 2], &[0, 1], &[2], &[0, 1, 2]] {
                    cluster.send(set(groups));
                }
                for id in cluster.up().into_iter().cycle().take(turns) {
                    cluster.stage.turn(id);
                    cluster.stage.complete(id);
                }
                let gone: BTreeSet<_> = cluster.through(lost).collect();
                cluster.recreate(lost);
                cluster.answer_all(&context);
                cluster.check_again(&gone, &context);
            }
        }
    }
}

#[test]
fn sessions_have_all_answers_whatever_groups_are_lost_while_leaders_change() {
    for seed in 0..400 {
        sessions(seed);
    }
}

fn sessions(seed: u64) {
    let mut random = random(seed ^ 0xa9a1);
    let mut cluster = Cluster::new(&TREES[(seed % 3) as usize](3));
    let mut gone = BTreeSet::new();
    for _ in 0..250 {
        let (group, slot) = (random(3) as u16, random(3) as u8);
        match random(60) {
            0..8 => {
                let bits = 1 + random(7);
                let groups = (0..3).filter(|group| bits >> group & 1 == 1).map(GroupId);
                cluster.send(groups.collect());
            }
            8 => {
                gone.extend(cluster.through(group));
                if random(2) == 0 {
                    cluster.recreate(group);
                } else {
                    cluster.revive(group, slot);
                }
            }
            9 => cluster.change_leader(group),
            10..14 => cluster.stage.pass(1 + random(5), &[]),
            14 => cluster.stage.lose_mail(replica(group, slot)),
            15 if !cluster.sent.is_empty() => {
                cluster.send_again(1 + random(cluster.sent.len() as u64));
            }
            16..45 => cluster.stage.turn(replica(group, slot)),
            _ => cluster.stage.complete(replica(group, slot)),
        }
    }
    cluster.heal();
    let context = format!("seed {seed}");
    cluster.answer_all(&context);
    cluster.check_again(&gone, &context);
}

#[cfg(feature = "mutants")]
#[test]
fn each_guard_of_recreation_that_is_taken_out_is_noticed() {
    use skein_protocol::mutants::{Mutant, plant};

    // No report is late here: the tests of `edges.rs` notice `AckOfFormerSelf`.
    let cases: [(Mutant, fn(u64)); 5] = [
        (Mutant::PlacesIgnored, |_| {
            what_a_child_has_taken_it_does_not_take_again_when_the_name_is_settled();
        }),
        (Mutant::RecreatedOrdersBeforeMarker, schedule),
        (Mutant::OrderedAgainDelivered, sessions),
        (Mutant::LackedNotHandedIn, sessions),
        (Mutant::GenerationOfBallotsAlone, |_| {
            a_group_far_below_knows_in_which_generation_its_entries_were_ordered();
        }),
    ];
    for (mutant, play) in cases {
        plant(Some(mutant));
        let noticed = (0..4000).find(|seed| std::panic::catch_unwind(|| play(*seed)).is_err());
        plant(None);
        println!("{}: {noticed:?}", mutant.name());
        assert!(noticed.is_some(), "{} survives", mutant.name());
    }
}
