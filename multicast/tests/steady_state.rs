//! Properties of the steady state, for any number of destination groups. Neither engines nor sessions
//! allocate, except for hash tables, which may grow once more, late, when deleted entries have filled them.
//! And no message waits for a tick.

mod harness;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use allocation_counter::measure;
use skein_multicast::Links;
use skein_multicast::application::{Answer, Application, Delivery, Malformed, Outbox};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use skein_protocol::tram::tree::Tree;

use self::harness::Harness;

/// Log entries of the warm-up, enough for every ring, table and pool to have its final size, and of the measurement.
const WARM_UP: usize = 40_000;
const COUNTED: usize = 20_000;
/// Tables of all replicas of a group that may grow during the measurement.
const TABLES_MAX: u64 = 12;

/// Log entries along a tree while no time passes: they fit the log, which groups of a tree free once a tick.
const TREE_ENTRIES: usize = 4_000;

/// Time of a turn with which a burst takes as long as it does on two cores.
const LONG_TURN: Duration = Duration::from_micros(50);

/// Length of a payload that is too large for the log.
const LARGE: usize = 5_000;

/// Limit of the turns that a burst takes.
const TURNS_MAX: usize = 100;

/// Groups, sessions, and messages that each session has in flight.
const CASES: [(u16, usize, usize); 5] = [(1, 1, 1), (1, 4, 32), (4, 1, 1), (4, 4, 8), (8, 1, 32)];

/// Number of allocations of the engines and of the sessions, while each burst is so many messages to so many groups.
fn allocations<O: Links>(mut harness: Harness<Answer, O>, groups: u16, burst: usize) -> [u64; 2] {
    let depth = burst / harness.sessions();
    let bursts = |entries| entries / (usize::from(groups) * burst);
    harness.multicast(bursts(WARM_UP), depth, &mut |turn| turn(), &mut |turn| turn());
    let (mut of_engines, mut of_sessions) = (0, 0);
    harness.multicast(
        bursts(COUNTED),
        depth,
        &mut |turn| of_engines += measure(turn).count_total,
        &mut |turn| of_sessions += measure(turn).count_total,
    );
    [of_engines, of_sessions]
}

#[test]
fn a_message_costs_no_allocation() {
    let mut good = true;
    let mut count = |case: &str, groups, found: [u64; 2]| {
        println!("{case}: {found:?}");
        let [engines, sessions] = found;
        good &= engines <= TABLES_MAX * u64::from(groups) && sessions <= TABLES_MAX;
    };
    for (groups, clients, depth) in CASES {
        let case = format!("{groups} groups, {clients} sessions with {depth} under way");
        let harness = Harness::start(groups, clients);
        count(&case, groups, allocations(harness, groups, clients * depth));
    }
    for (shape, tree) in trees() {
        for (clients, depth) in [(1, 1), (4, 8)] {
            let case = format!("{shape}, {clients} sessions with {depth} under way");
            let groups = tree.groups();
            let mut harness = Harness::start_along(&tree, clients, |_| Answer);
            if groups > 1 && clients > 1 {
                // Followers hear once a tick what they need to keep no more.
                harness.take_turns_of(LONG_TURN);
            }
            count(&case, groups, allocations(harness, groups, clients * depth));
        }
    }
    assert!(good, "more than what tables may grow by, for {COUNTED} log entries");
}

/// Destinations among so many groups: all of them, or with `overlap` overlapping subsets, so that messages to
/// some groups depend on messages to others.
fn destinations(groups: u16, overlap: bool) -> Vec<GroupSet> {
    let all = GroupSet::first(groups);
    if !overlap {
        return vec![all];
    }
    let next = |group: GroupId, by| GroupId((group.0 + by) % groups);
    let pairs = all.iter().map(|group| GroupSet::single(group).with(next(group, 1)));
    let others = all.iter().map(|group| GroupSet::single(group).with(next(group, 2)));
    let each = pairs.zip(others).zip(all.iter()).flat_map(|((pair, other), group)| {
        [pair, other, GroupSet::single(group), pair.union(other), all.without(group)]
    });
    each.collect()
}

#[test]
fn a_message_waits_for_no_tick() {
    let overlapping = CASES.into_iter().filter(|(groups, ..)| *groups > 2).map(|case| (case, true));
    for ((groups, clients, depth), overlap) in
        CASES.map(|case| (case, false)).into_iter().chain(overlapping)
    {
        let mut harness = Harness::start(groups, clients);
        // The first messages wait until there are leaders.
        harness.multicast(10, depth, &mut |turn| turn(), &mut |turn| turn());
        harness.send_to(destinations(groups, overlap));
        let bursts = WARM_UP / (usize::from(groups) * clients * depth);
        let turns = without_ticks(harness, bursts, depth);
        let how = if overlap { "some of" } else { "all of" };
        println!("{how} {groups} groups, {depth} under way: {turns} turns a burst");
    }
}

/// Multicasts so many bursts while the clock stands still. Returns how many turns one of them takes.
fn without_ticks<A: Application + 'static, O: Links>(
    mut harness: Harness<A, O>,
    bursts: usize,
    depth: usize,
) -> usize {
    harness.take_turns_of(Duration::ZERO);
    let mut turns = 0;
    let mut engines = |turn: &mut dyn FnMut()| {
        turns += 1;
        assert!(turns < TURNS_MAX * bursts, "something waits for a tick");
        turn();
    };
    harness.multicast(bursts, depth, &mut engines, &mut |turn| turn());
    turns / bursts
}

/// The trees along which messages go in these tests.
fn trees() -> [(&'static str, Tree); 4] {
    let base = Tree::base(8);
    [
        ("base", base),
        ("breadth", Tree::breadth(8)),
        ("depth", Tree::depth(4)),
        ("one", Tree::depth(1)),
    ]
}

#[test]
fn a_message_along_a_tree_waits_for_no_tick() {
    for (shape, tree) in trees() {
        for (clients, depth, overlap) in [(1, 1, false), (1, 1, true), (4, 8, true), (1, 32, false)]
        {
            let mut harness = Harness::start_along(&tree, clients, |_| Answer);
            // The first messages wait until there are leaders.
            harness.multicast(10, depth, &mut |turn| turn(), &mut |turn| turn());
            harness.send_to(destinations(tree.groups(), overlap && tree.groups() > 2));
            let bursts = TREE_ENTRIES / (usize::from(tree.groups()) * clients * depth);
            let turns = without_ticks(harness, bursts, depth);
            let how = if overlap { "some" } else { "all" };
            println!("{shape}, {how} groups, {depth} under way: {turns} turns a burst");
        }
    }
}

/// Destinations have a payload that is too large for the log from its session. If their leaders had to fetch it, it would take
/// two turns more at each level.
#[test]
fn nobody_waits_for_a_large_message_along_a_tree() {
    for (shape, tree) in trees().into_iter().filter(|(_, tree)| tree.groups() > 1) {
        for overlap in [false, true] {
            let [small, large] = [64, LARGE].map(|len| {
                let mut harness = Harness::start_along(&tree, 1, |_| Answer);
                harness.send_bytes(len);
                harness.send_to(destinations(tree.groups(), overlap));
                // The first messages wait until there are leaders, and rings have grown.
                harness.multicast(100, 1, &mut |turn| turn(), &mut |turn| turn());
                without_ticks(harness, 100, 1)
            });
            let how = if overlap { "some" } else { "all" };
            println!("{shape}, {how} groups: {large} turns, {small} if it is small");
            // It goes to followers too, which takes a turn.
            assert!(large <= small + 2, "{shape}, {how} groups: {large} turns and not {small}");
        }
    }
}

/// Sends the other groups a result about each message, and replies once their results about it and all
/// earlier messages are here, as the store does with transactions whose guards are elsewhere.
struct Exchanges {
    group: GroupId,
    /// Messages, and the groups whose results are missing.
    under_way: VecDeque<(MessageId, GroupSet)>,
    /// Results that came before their message.
    early: Vec<(MessageId, GroupId)>,
}

impl Exchanges {
    fn new(replica: ReplicaId) -> Self {
        Self { group: replica.group, under_way: VecDeque::new(), early: Vec::new() }
    }
}

impl Application for Exchanges {
    type Failure = Infallible;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Infallible> {
        let (message, others) = (delivery.message, delivery.destinations.without(self.group));
        out.exchange(message, others, b"so");
        self.under_way.push_back((message, others));
        let early: Vec<_> = self.early.extract_if(.., |(of, _)| *of == message).collect();
        for (message, from) in early {
            self.exchanged(message, from, b"so", out)?;
        }
        Ok(())
    }

    fn exchanged(
        &mut self,
        of: MessageId,
        from: GroupId,
        _: &[u8],
        out: &mut dyn Outbox,
    ) -> Result<(), Infallible> {
        match self.under_way.iter_mut().find(|(message, _)| *message == of) {
            Some((_, missing)) => *missing = missing.without(from),
            None => self.early.push((of, from)),
        }
        while let Some((message, _)) = self.under_way.pop_front_if(|next| next.1.is_empty()) {
            out.reply(message, b"done");
        }
        Ok(())
    }

    fn ready(&self) -> bool {
        true
    }

    fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn repeat(&mut self, _: MessageId, _: &mut dyn Outbox) {
        unreachable!("nothing is lost here");
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn finish_copy(&mut self, _: &mut Vec<u8>) -> Result<(), Infallible> {
        Ok(())
    }

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, _: &[u8], _: bool) -> Result<Result<(), Malformed>, Infallible> {
        Ok(Ok(()))
    }
}

#[test]
fn what_waits_for_results_waits_for_no_tick() {
    for (groups, clients, depth) in [(2, 1, 1), (2, 4, 8), (4, 1, 1), (4, 4, 8)] {
        let mut harness = Harness::start_with(groups, clients, Exchanges::new);
        harness.multicast(10, depth, &mut |turn| turn(), &mut |turn| turn());
        let turns = without_ticks(harness, 1_000 / (clients * depth), depth);
        println!("{groups} groups, {depth} under way: {turns} turns a burst");
    }
}

#[test]
fn what_waits_for_results_along_a_tree_waits_for_no_tick() {
    for (shape, tree) in trees().into_iter().filter(|(_, tree)| tree.groups() > 1) {
        for (clients, depth) in [(1, 1), (4, 8)] {
            let mut harness = Harness::start_along(&tree, clients, Exchanges::new);
            harness.multicast(10, depth, &mut |turn| turn(), &mut |turn| turn());
            let turns = without_ticks(harness, 1_000 / (clients * depth), depth);
            println!("{shape}, {depth} under way: {turns} turns a burst");
        }
    }
}
