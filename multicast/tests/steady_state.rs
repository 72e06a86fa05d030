//! What holds in the steady state, however many groups a message goes to. Neither an engine nor the
//! sessions allocate, but for a table that is hashed, which may grow once more, late, when deleted
//! entries have filled it. And no message waits for a tick.

mod crew;

use allocation_counter::measure;

use self::crew::Crew;

/// Log entries, enough for every ring, table and pool to have its size; and of those that are looked
/// at.
const WARM_UP: usize = 40_000;
const COUNTED: usize = 20_000;
/// Tables that may grow meanwhile, of all replicas of a group.
const TABLES_MAX: u64 = 12;

/// Turns that a burst takes at most.
const TURNS_MAX: usize = 100;

/// Groups, sessions, and messages that each has under way.
const CASES: [(u16, usize, usize); 5] = [(1, 1, 1), (1, 4, 32), (4, 1, 1), (4, 4, 8), (8, 1, 32)];

/// Allocations of engines and of sessions.
fn allocations(groups: u16, sessions: usize, depth: usize) -> [u64; 2] {
    let mut crew = Crew::start(groups, sessions);
    let bursts = |entries| entries / (usize::from(groups) * sessions * depth);
    crew.multicast(bursts(WARM_UP), depth, &mut |turn| turn(), &mut |turn| turn());
    let (mut of_engines, mut of_sessions) = (0, 0);
    crew.multicast(
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
    for (groups, clients, depth) in CASES {
        let found = allocations(groups, clients, depth);
        println!("{groups} groups, {clients} sessions with {depth} under way: {found:?}");
        let [engines, sessions] = found;
        good &= engines <= TABLES_MAX * u64::from(groups) && sessions <= TABLES_MAX;
    }
    assert!(good, "more than what tables may grow by, for {COUNTED} log entries");
}

#[test]
fn a_message_waits_for_no_tick() {
    for (groups, clients, depth) in CASES {
        let mut crew = Crew::start(groups, clients);
        // The first ones wait until there are leaders.
        crew.multicast(10, depth, &mut |turn| turn(), &mut |turn| turn());
        crew.stop_clock();
        let bursts = WARM_UP / (usize::from(groups) * clients * depth);
        let mut turns = 0_usize;
        let mut engines = |turn: &mut dyn FnMut()| {
            turns += 1;
            assert!(turns < TURNS_MAX * bursts, "{groups} groups: something waits for a tick");
            turn();
        };
        crew.multicast(bursts, depth, &mut engines, &mut |turn| turn());
        println!("{groups} groups, {depth} under way: {} turns a burst", turns / bursts);
    }
}
