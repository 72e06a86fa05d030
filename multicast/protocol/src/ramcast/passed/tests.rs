//! Rows told in any order, late, twice or never, against the rule itself.

use alloc::collections::BTreeSet;

use super::*;
use crate::ids::SessionId;

/// Groups with their deliveries and what each knows, under a total order of messages: message i has
/// the final timestamp i + 1.
struct World {
    messages: Vec<GroupSet>,
    /// So many messages of the order has each group delivered, its own or not.
    reached: Vec<usize>,
    groups: Vec<Passed>,
}

fn at(i: usize) -> Timestamp {
    Timestamp::new(i as u64 + 1, GroupId(0))
}

impl World {
    fn new(groups: u16, messages: Vec<GroupSet>) -> Self {
        let all = (0..groups).map(|group| Passed::new(GroupId(group), groups)).collect();
        Self { messages, reached: vec![0; usize::from(groups)], groups: all }
    }

    fn ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.groups.len() as u16).map(GroupId)
    }

    /// The group delivers its next message, if there is one.
    fn deliver(&mut self, group: GroupId) {
        let reached = &mut self.reached[group.index()];
        let mut left = self.messages.iter().enumerate().skip(*reached);
        let Some((i, destinations)) = left.find(|(_, to)| to.contains(group)) else {
            *reached = self.messages.len();
            return;
        };
        *reached = i + 1;
        let next = Deliver {
            message: MessageId::new(SessionId(1), i as u64 + 1),
            low_water: 1,
            destinations: *destinations,
            timestamp: at(i),
            position: 0,
            time_ms: 0,
        };
        self.groups[group.index()].deliver(&next, GroupSet::EMPTY);
    }

    fn report(&mut self, from: GroupId, rows: GroupSet, asks: bool) -> Vec<u8> {
        let mut report = Vec::new();
        let passed = &self.groups[from.index()];
        passed.report(rows, passed.row(from).delivered, asks, &mut report);
        report
    }

    /// What a leader tells another, as soon as it has something to tell.
    fn tell(&mut self, from: GroupId, to: GroupId, lost: bool) {
        let passed = &mut self.groups[from.index()];
        if from == to || !passed.concerns(to) {
            return;
        }
        let rows = passed.take_owed(to);
        let report = self.report(from, rows, false);
        if !lost {
            assert_eq!(self.groups[to.index()].hear(from, &report), Some(false));
        }
    }

    /// What it does about what it has waited for in vain.
    fn ask(&mut self, from: GroupId) {
        for to in self.groups[from.index()].row(from).shares.iter() {
            let (rows, _) = self.groups[from.index()].reach();
            let question = self.report(from, rows, true);
            assert_eq!(self.groups[to.index()].hear(from, &question), Some(true));
            let (rows, _) = self.groups[to.index()].reach();
            let answer = self.report(to, rows, false);
            assert_eq!(self.groups[from.index()].hear(to, &answer), Some(false));
        }
    }

    /// Another replica of the group leads: it has delivered less, and knows what a state says.
    fn change_leader(&mut self, group: GroupId, known: &[u8], reached: usize) {
        let groups = self.groups.len() as u16;
        let restored = Passed::restore(&mut Reader(known), group, groups).unwrap();
        self.groups[group.index()] = restored;
        self.groups[group.index()].lead();
        self.reached[group.index()] = reached;
    }

    fn save(&self, group: GroupId) -> Vec<u8> {
        let mut saved = Vec::new();
        self.groups[group.index()].save(&mut Writer(&mut saved));
        saved
    }

    /// The rule: all that the group's messages up to `passed` rest on was delivered everywhere.
    /// `ever` is what each group had delivered, by whichever leader.
    fn check(&mut self, group: GroupId, ever: &[usize]) {
        self.groups[group.index()].look();
        let passed = self.groups[group.index()].row(group).passed;
        let (mut left, mut seen) = (vec![(group, passed.clock() as usize)], BTreeSet::new());
        while let Some((group, until)) = left.pop() {
            if !seen.insert((group, until)) {
                continue;
            }
            let ours = |(_, to): &(usize, &GroupSet)| to.contains(group);
            for (i, to) in self.messages.iter().enumerate().take(until).filter(ours) {
                for other in to.iter() {
                    assert!(ever[other.index()] > i, "{passed} is not passed: {other} lacks {i}");
                    left.push((other, i));
                }
            }
        }
    }
}

/// A generator as good as the test needs.
fn random(state: &mut u64) -> impl FnMut(usize) -> usize + '_ {
    move |below| {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) as usize % below
    }
}

fn draw(groups: u16, count: usize, random: &mut impl FnMut(usize) -> usize) -> Vec<GroupSet> {
    let draw = |_| {
        let first = random(usize::from(groups));
        let second = (first + 1 + random(usize::from(groups) - 1)) % usize::from(groups);
        let third = if random(4) == 0 { random(usize::from(groups)) } else { first };
        [first, second, third].into_iter().map(|group| GroupId(group as u16)).collect()
    };
    (0..count).map(draw).collect()
}

#[test]
fn nothing_passes_too_early_and_everything_in_the_end() {
    for seed in 0..60 {
        let mut state = seed;
        let mut random = random(&mut state);
        let groups = 2 + random(5) as u16;
        let messages = draw(groups, 30, &mut random);
        let mut world = World::new(groups, messages);
        let mut saved: Vec<_> = world.ids().map(|group| (world.save(group), 0)).collect();
        let mut ever = vec![0; usize::from(groups)];
        for _ in 0..400 {
            let group = GroupId(random(usize::from(groups)) as u16);
            let other = GroupId(random(usize::from(groups)) as u16);
            match random(24) {
                0 => {
                    let (known, reached) = saved[group.index()].clone();
                    world.change_leader(group, &known, reached);
                }
                1 => saved[group.index()] = (world.save(group), world.reached[group.index()]),
                2 => world.ask(group),
                3..12 => world.tell(group, other, random(8) == 0),
                _ => world.deliver(group),
            }
            let reached = world.reached[group.index()];
            ever[group.index()] = reached.max(ever[group.index()]);
            world.check(group, &ever);
        }
        for group in world.ids() {
            (0..30).for_each(|_| world.deliver(group));
            ever[group.index()] = 30;
        }
        for _ in 0..groups {
            world.ids().for_each(|group| world.ask(group));
            world.ids().for_each(|group| world.check(group, &ever));
        }
        for passed in &world.groups {
            let row = passed.row(passed.own);
            assert_eq!(row.passed, row.delivered, "seed {seed}: {} waits for ever", passed.own);
            assert!(row.shares.is_empty());
        }
    }
}

#[test]
fn a_chain_through_three_groups_is_passed_at_one_look() {
    let pair = |i: usize| [i % 3, (i + 1) % 3].into_iter().map(|group| GroupId(group as u16));
    let mut world = World::new(3, (0..300).map(|i| pair(i).collect()).collect());
    for group in world.ids() {
        (0..300).for_each(|_| world.deliver(group));
    }
    for from in world.ids() {
        world.ids().for_each(|to| world.tell(from, to, false));
    }
    for group in world.ids() {
        world.check(group, &[300; 3]);
        let row = world.groups[group.index()].row(group);
        assert_eq!(row.passed, row.delivered, "each was told once by each");
    }
}

#[test]
fn who_shares_nothing_that_is_not_passed_holds_nobody_up() {
    let of = |groups: &[u16]| groups.iter().copied().map(GroupId).collect::<GroupSet>();
    let messages = vec![of(&[0, 1]), of(&[2, 3]), of(&[1, 2]), of(&[0, 1])];
    let mut world = World::new(4, messages);
    let [g0, g1, g2, g3] = [0, 1, 2, 3].map(GroupId);
    for group in [g0, g1] {
        world.deliver(group);
    }
    world.tell(g0, g1, false);
    world.tell(g1, g0, false);
    world.groups[1].look();
    // g2 delivers what it shares with g3, which stands still, and what it shares with g1.
    world.deliver(g2);
    world.deliver(g2);
    world.deliver(g1);
    world.tell(g2, g1, false);
    world.tell(g1, g2, false);
    world.tell(g1, g0, false);
    let passes = |world: &mut World, group: GroupId, i| {
        world.groups[group.index()].look();
        world.groups[group.index()].row(group).passed >= at(i)
    };
    assert!(passes(&mut world, g0, 0));
    assert!(passes(&mut world, g1, 0) && !passes(&mut world, g1, 2));
    assert!(!passes(&mut world, g2, 1));
    // What g0 shares with g1 now rests on it.
    world.deliver(g0);
    world.deliver(g1);
    world.tell(g1, g0, false);
    world.tell(g0, g1, false);
    assert!(!passes(&mut world, g0, 3));
    world.deliver(g3);
    world.tell(g3, g2, false);
    world.tell(g2, g1, false);
    world.tell(g1, g0, false);
    assert!(passes(&mut world, g0, 3));
}

#[test]
fn a_report_that_makes_no_sense_is_refused() {
    let mut world = World::new(2, vec![GroupSet::first(2)]);
    world.deliver(GroupId(0));
    let report = world.report(GroupId(0), GroupSet::single(GroupId(0)), false);
    let refused = |bytes: &[u8]| Passed::new(GroupId(1), 2).hear(GroupId(0), bytes).is_none();
    assert!((0..report.len()).all(|cut| refused(&report[..cut])));
    let mut of_nobody = report.clone();
    of_nobody[3] = 7;
    assert!(refused(&of_nobody) && refused(&[report, vec![0]].concat()));
}
