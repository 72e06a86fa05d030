//! Checks what is passed against the rule itself, with rows that are sent in any order, late, twice or never.

use alloc::collections::BTreeSet;

use super::*;
use crate::ballot::{Acceptance, Ballot};
use crate::group::GroupConfig;
use crate::ids::SessionId;
use crate::ramcast::Event;
use crate::ramcast::testing::config;
use crate::ramcast::{Cause, Config};
use crate::view::View;

/// Groups with their deliveries and rows, under a total order of messages: message i has the final timestamp i + 1.
struct World {
    messages: Vec<GroupSet>,
    /// How many messages of the order each group has gone past, its own or not.
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
            rank: at(i).into(),
            clock: 0,
            position: 0,
            time_ms: 0,
        };
        let passed = &mut self.groups[group.index()];
        passed.deliver(&next);
        passed.note_delivered();
    }

    fn report(&mut self, from: GroupId, rows: GroupSet, asks: bool) -> Vec<u8> {
        let mut report = Vec::new();
        let passed = &self.groups[from.index()];
        passed.report(rows, passed.row(from).delivered, asks, &mut report);
        report
    }

    /// Sends what a leader sends to another as soon as it has something to send.
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

    /// Asks about what the group has waited for too long.
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

    /// Another replica of the group leads. It has delivered less, and begins from a saved state.
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

    /// The rule: everything on which the group's messages up to `passed` depend was delivered everywhere. `ever` is
    /// what each group had delivered, under any leader.
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

/// A pseudo-random generator that is good enough for the test.
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
    // g2 delivers what it shares with g3, which is blocked, and what it shares with g1.
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
    // What g0 shares with g1 now depends on that.
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
fn what_its_group_tells_by_itself_nobody_else_tells() {
    let of = |groups: &[u16]| groups.iter().copied().map(GroupId).collect::<GroupSet>();
    let [g0, g1, g2] = [0, 1, 2].map(GroupId);
    #[rustfmt::skip]
    let cases = [
        // then g0 and g1 share with   and g0 tells g2 of   because
        (of(&[0, 1, 2]),               of(&[0]),            "what g1 delivered last is for g2 too"),
        (of(&[0, 1]),                  of(&[0, 1]),         "g1 tells g2 nothing of that"),
    ];
    for (shared, told, because) in cases {
        let mut world = World::new(3, vec![of(&[0, 2]), of(&[0, 1, 2]), shared]);
        for group in world.ids() {
            (0..3).for_each(|_| world.deliver(group));
        }
        world.tell(g2, g1, false);
        world.groups[0].take_owed(g2);
        // g1 has computed that everything is passed, and shares nothing that is not passed with any group.
        let (g0_row, g1_row) = (world.report(g0, of(&[0]), false), of(&[1]));
        assert_eq!(world.groups[1].hear(g0, &g0_row), Some(false));
        world.groups[1].look();
        assert!(world.groups[1].row(g1).shares.is_empty());
        let report = world.report(g1, g1_row, false);
        assert_eq!(world.groups[0].hear(g1, &report), Some(false));
        world.groups[0].changed(g0, g0);
        assert_eq!(world.groups[0].take_owed(g2), told, "{because}");
    }
}

#[test]
fn a_look_goes_on_for_as_long_as_it_gains_anything() {
    let pair = |one, other| [GroupId(one), GroupId(other)].into_iter().collect::<GroupSet>();
    // g2 has not delivered all that it shares with g1, and of g0's messages only the last depends on the rest. That
    // shows only once the first one is passed.
    let mut world = World::new(3, vec![pair(0, 1), pair(1, 2), pair(1, 2), pair(0, 1)]);
    let [g0, g1, g2] = [0, 1, 2].map(GroupId);
    (0..2).for_each(|_| world.deliver(g0));
    (0..4).for_each(|_| world.deliver(g1));
    world.deliver(g2);
    world.tell(g2, g1, false);
    world.tell(g1, g0, false);
    world.check(g0, &[4, 4, 2]);
    assert_eq!(world.groups[0].row(g0).passed, at(3).below());
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

/// The leader of g1, of three groups.
fn leader() -> Ramcast {
    let config = config(ReplicaId::new(GroupId(1), 0), 3, 3);
    let mut leader = Ramcast::new(config, View::first(3));
    leader.log_mut().campaign(Cause::Start);
    let won = leader.log_mut().granted(1, 0, (Ballot::ZERO, 0), vec![0; 3]);
    assert_eq!(won, Some(0));
    leader.lead(&mut Vec::new());
    commit(&mut leader);
    leader
}

/// A follower accepts all of the leader's log.
fn commit(leader: &mut Ramcast) {
    let acceptance =
        Acceptance { tag: leader.log().ballot().tag(), index: leader.log().last_index() };
    let by = ReplicaId::new(GroupId(1), 1);
    leader.step(Event::Acknowledged { by, acceptance }, &mut Vec::new());
    assert_eq!(leader.deliver(), None);
}

#[test]
fn what_is_passed_is_told_with_what_was_delivered_or_in_a_tick() {
    let (a, b, both) = (GroupId(0), GroupId(1), GroupSet::first(2));
    let mut world = World::new(2, vec![both, both]);
    world.deliver(a);
    world.deliver(b);
    world.tell(a, b, false);
    world.tell(b, a, false);
    let a = &mut world.groups[a.index()];
    a.look();
    assert_eq!(a.row(a.own).passed, at(0));
    assert_eq!(a.take_owed(b), GroupSet::EMPTY, "b knows what it needs to find that out");
    a.hurry();
    assert_eq!(a.take_owed(b), GroupSet::single(a.own));
    a.hurry();
    assert_eq!(a.take_owed(b), GroupSet::EMPTY, "once");
}

fn receive(leader: &mut Ramcast, destinations: GroupSet) -> Vec<Effect> {
    let (message, mut effects) = (MessageId::new(SessionId(1), 1), Vec::new());
    let event = Event::Received { message, low_water: 1, destinations, outside: 0 };
    leader.step(event, &mut effects);
    effects
}

/// g0 was recreated, and has a message at this clock that it shares with g1. It asks g1 up to where g1 has delivered.
/// Returns what g1's leader logs.
fn asked(leader: &mut Ramcast, clock: u64) -> Vec<Record> {
    let mut anew = Passed::anew(GroupId(0), 3, 7);
    anew.deliver(&Deliver {
        message: MessageId::new(SessionId(9), 1),
        low_water: 1,
        destinations: GroupSet::first(2),
        rank: Timestamp::new(clock, GroupId(0)).into(),
        clock,
        position: 1,
        time_ms: 0,
    });
    let (mut report, mut effects) = (Vec::new(), Vec::new());
    let own = anew.row(GroupId(0)).delivered;
    anew.report(GroupSet::single(GroupId(0)), own, true, &mut report);
    assert!(leader.hear_passed(ReplicaId::new(GroupId(0), 0), &report, &mut effects));
    leader.raise_for(GroupId(0), &mut effects);
    let records = effects.into_iter().filter_map(|effect| match effect {
        Effect::Append { record, .. } => Some(record),
        _ => None,
    });
    records.collect()
}

fn delivered(leader: &Ramcast) -> u64 {
    leader.passed.row(GroupId(1)).delivered.clock()
}

#[test]
fn who_will_never_deliver_what_a_recreated_group_waits_for_comes_to_there_by_its_log() {
    let mut leader = leader();
    let timestamp = Timestamp::new(90, GroupId(0));
    assert_eq!(asked(&mut leader, 90), [Record::Raise { timestamp }]);
    assert_eq!(asked(&mut leader, 90), [], "once is enough");
    assert_eq!(delivered(&leader), 0, "a later leader may not know of it yet");
    commit(&mut leader);
    assert_eq!(delivered(&leader), 90);
    assert_eq!(asked(&mut leader, 90), [], "that was told");
    let logged = receive(&mut leader, GroupSet::first(2));
    let above = |effect: &Effect| {
        matches!(effect, Effect::Append { record: Record::Local { timestamp, .. }, .. }
            if timestamp.clock() == 91)
    };
    assert!(logged.iter().any(above), "nothing comes before it any more: {logged:?}");
}

#[test]
fn what_is_pending_may_be_what_is_waited_for_and_is_delivered_first() {
    let mut shared = leader();
    receive(&mut shared, GroupSet::first(2));
    assert_eq!(asked(&mut shared, 90), [], "it is logged, and ends where g0 has it");
    commit(&mut shared);
    assert_eq!(asked(&mut shared, 90), [], "it is pending");

    let mut other = leader();
    receive(&mut other, [GroupId(1), GroupId(2)].into_iter().collect());
    commit(&mut other);
    assert_eq!(asked(&mut other, 90).len(), 1, "g0 does not wait for that one");
    commit(&mut other);
    assert_eq!(delivered(&other), 0, "but it may end at or below 90, and is not delivered");
    let mut state = Vec::new();
    other.save(&mut state);
    let config =
        Config { group: GroupConfig { incarnation: 1, ..other.config.group }, ..other.config };
    let mut learner = Ramcast::new(config, View::first(3));
    learner.restore(&state).unwrap();
    assert_eq!(learner.passed.raised.clock(), 90, "who takes the state may have to tell");
}

#[test]
fn whoever_leads_again_tells_again_what_it_had_told() {
    let (a, b, both) = (GroupId(0), GroupId(1), GroupSet::first(2));
    let mut world = World::new(2, vec![both]);
    world.deliver(a);
    world.deliver(b);
    world.tell(a, b, false);
    world.tell(b, a, false);
    let a = &mut world.groups[a.index()];
    a.look();
    a.hurry();
    assert_eq!(a.take_owed(b), GroupSet::single(a.own));
    assert!(!a.concerns(b), "it was told all that there is");
    a.lead();
    assert!(a.concerns(b), "it may have heard nothing of that");
    assert_eq!(a.take_owed(b), GroupSet::single(a.own));
}
