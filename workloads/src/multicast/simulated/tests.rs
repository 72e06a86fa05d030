use std::time::Duration;

use skein_protocol::tram::tree::Tree;

use super::profile::Hardware;
use super::*;

fn plan(groups: u16, clients: usize) -> Plan {
    Plan {
        groups,
        destinations: groups,
        adjacent: None,
        payload_bytes: 64,
        clients,
        idle: 0,
        depth: 1,
        window: 64,
        rate: None,
        warm_up: Duration::from_micros(500),
        duration: Duration::from_millis(2),
        seed: 1,
    }
}

fn measure_on(hardware: Hardware, plan: &Plan) -> Measured {
    measure_with(3, hardware, plan)
}

fn measure_with(replicas: u8, hardware: Hardware, plan: &Plan) -> Measured {
    let layout = Layout::propose(hardware.topology(plan.groups, replicas)).unwrap();
    measure_in(&layout, hardware, plan, false)
}

fn measure_in(layout: &Layout, hardware: Hardware, plan: &Plan, ungated: bool) -> Measured {
    let measured = run(plan, layout, hardware, ungated, &mut |_| true).unwrap();
    assert!(measured.errors.total() == 0 && measured.ended_early.is_none(), "{measured:?}");
    measured
}

/// Along a tree.
fn measure_along(tree: &Tree, plan: &Plan, ungated: bool) -> Measured {
    let layout = Layout::propose(Hardware::Xl170.topology(plan.groups, 3)).unwrap();
    measure_in(&layout.along(tree).unwrap(), Hardware::Xl170, plan, ungated)
}

fn measure(groups: u16, clients: usize) -> Measured {
    measure_on(Hardware::Xl170, &plan(groups, clients))
}

fn p50(measured: &Measured) -> u64 {
    measured.latency_ns.value_at_quantile(0.5)
}

#[test]
fn a_message_takes_a_few_writes_and_more_clients_do_more() {
    let one = measure(1, 1);
    let half = p50(&one);
    println!("1 group: p50 {half} ns");
    assert!((3 * 1_700..12 * 1_700).contains(&half), "{half} ns");
    let many = measure(1, 16);
    assert!(many.latency_ns.len() > 3 * one.latency_ns.len());
    let two = measure(2, 1);
    println!("2 groups: p50 {} ns; 16 clients: {} messages", p50(&two), many.latency_ns.len());
    assert!(p50(&two) > half, "groups that agree take longer than one that need not");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let figures = |seed| {
        let measured = measure_on(Hardware::Xl170, &Plan { seed, ..plan(2, 3) });
        let latencies: Vec<_> =
            measured.latency_ns.iter_recorded().map(|v| v.value_iterated_to()).collect();
        (latencies, measured.utilisation)
    };
    assert_eq!(figures(1), figures(1));
    assert_ne!(figures(1), figures(2));
}

#[test]
fn a_slower_core_and_a_thinner_cable_take_longer() {
    let [fast, slow] =
        [Hardware::Xl170, Hardware::R320].map(|it| p50(&measure_on(it, &plan(1, 1))));
    assert!(slow > fast, "{slow} ns on slower cores, {fast} ns");
    // A long message occupies the thinner cable for longer.
    let long = Plan { payload_bytes: 32 << 10, duration: Duration::from_millis(20), ..plan(1, 1) };
    let [thin, thick] = [Hardware::Xl170, Hardware::R320].map(|it| {
        let measured = measure_on(it, &long);
        measured.utilisation.unwrap().engines.link / measured.latency_ns.len() as f64
    });
    assert!(thin > 1.5 * thick, "{thin} % for a message at 25 Gbit/s, {thick} % at 40");
}

#[test]
fn a_saturated_leader_is_what_is_busy() {
    let idle = measure(1, 1).utilisation.unwrap();
    let busy = measure(1, 64).utilisation.unwrap();
    println!("1 client: {idle:?}; 64: {busy:?}");
    assert!(busy.engines.core > 90.0 && busy.engines.core <= 100.5, "{busy:?}");
    assert!(idle.engines.core < 60.0, "{idle:?}");
    assert!(busy.sessions.core < busy.engines.core);
    assert!(busy.engines.nic > 2.0 * idle.engines.nic);
    assert!(busy.engines.link > 2.0 * idle.engines.link);
}

#[test]
fn engines_that_share_a_core_wait_for_each_other() {
    let one = measure_on(Hardware::TwoCores, &plan(1, 1));
    let many = measure_on(Hardware::TwoCores, &plan(1, 64));
    println!("two cores: p50 {} ns, 64 sessions: {}", p50(&one), many.latency_ns.len());
    assert!(many.latency_ns.len() > one.latency_ns.len());
    // Three replicas take turns on one core: more of them take longer.
    let five = measure_with(5, Hardware::TwoCores, &plan(1, 1));
    assert!(p50(&five) > p50(&one));
}

#[test]
fn a_tree_orders_what_goes_to_all_its_groups_with_less_work() {
    let all = plan(4, 16);
    let rates = [
        measure(4, 16).latency_ns.len(),
        measure_along(&Tree::breadth(4), &all, false).latency_ns.len(),
    ];
    println!("messages by RamCast and along a tree: {rates:?}");
    assert!(rates[1] > rates[0], "{rates:?}");
}

#[test]
fn answers_of_mixed_sets_wait_unless_they_are_ungated() {
    let mixed = Plan { destinations: 2, ..plan(8, 16) };
    let halves = [false, true].map(|ungated| p50(&measure_along(&Tree::depth(8), &mixed, ungated)));
    println!("p50 along a chain, gated and not: {halves:?} ns");
    assert!(halves[0] > halves[1] * 5 / 4, "{halves:?}");
}

#[test]
fn adjacent_groups_are_sooner_than_any_along_a_chain() {
    let chain = Tree::depth(8);
    let any = Plan { destinations: 2, ..plan(8, 8) };
    let adjacent = Plan { adjacent: Some(chain.parents()), ..any };
    let halves = [&any, &adjacent].map(|plan| p50(&measure_along(&chain, plan, false)));
    println!("p50 along a chain, any groups and adjacent ones: {halves:?} ns");
    assert!(halves[1] < halves[0], "{halves:?}");
}

/// More than a group keeps for a child: what it refuses for that waits, and is lost to nobody.
#[test]
fn all_that_is_in_flight_is_answered_however_much_that_is() {
    let much = Plan { depth: 64, duration: Duration::from_millis(6), ..plan(3, 24) };
    let measured = measure_along(&Tree::depth(3), &much, false);
    println!("messages along a chain, 1,536 in flight: {}", measured.latency_ns.len());
    // Each message that is lost leaves a place in its session's window empty for ever.
    assert!(measured.latency_ns.len() > 3_000, "{measured:?}");
}
