//! In the steady state neither an engine nor the sessions allocate for messages to one group. A table
//! that is hashed may still grow once, late, when deleted entries have filled it.

mod crew;

use allocation_counter::measure;

use self::crew::Crew;

/// Log entries, enough for every ring, table and pool to have its size; and of those that are looked
/// at.
const WARM_UP: usize = 30_000;
const COUNTED: usize = 6_000;
/// Tables that may grow meanwhile.
const TABLES_MAX: u64 = 6;

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
fn a_message_to_one_group_costs_no_allocation() {
    for (groups, clients, depth) in [(1, 1, 1), (1, 4, 32)] {
        let found = allocations(groups, clients, depth);
        println!("{groups} groups, {clients} sessions with {depth} under way: {found:?}");
        let [engines, sessions] = found;
        assert!(
            engines <= TABLES_MAX && sessions <= TABLES_MAX,
            "{found:?} for {COUNTED} messages"
        );
    }
}
