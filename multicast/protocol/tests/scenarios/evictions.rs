//! When a leader continues without replicas that delay it.

use skein_protocol::detector::Pulse;
use skein_protocol::group::{Backlog, GroupEffect};
use skein_protocol::step::{Effect, Event};

use crate::played::{Played, both};
use crate::stage::{Stage, config, replica};

both!(
    a_full_log_waits_for_a_while_and_goes_on_without_who_holds_it_up,
    a_learner_that_holds_the_log_up_is_given_up_when_it_has_read_nothing_for_long,
    who_does_not_lead_waits_for_nobody,
    who_is_dead_for_long_is_waited_for_no_more,
    who_was_evicted_and_is_elected_is_waited_for_again,
);

/// How long a learner may read nothing.
const STOPPED_AFTER_MS: u64 = 1_000;

/// Positions up to which each of three slots needs the log no more. Only the last slot's counts here.
fn given_up<O: Played>(
    core: &mut O,
    now_ms: u64,
    has_room: bool,
    freed: [u64; 3],
) -> Option<GroupEffect> {
    let mut effects = Vec::new();
    core.step(Event::Tick { now_ms }, &mut effects);
    let (refused, waited_for, lag) = (false, 0b100, 10);
    let backlog = Backlog { has_room, refused, waited_for, freed: &freed, lag };
    core.relieve(&backlog, &mut effects);
    effects.into_iter().find_map(|effect| match effect {
        Effect::Group(effect @ GroupEffect::GiveUp { .. }) => Some(effect),
        _ => None,
    })
}

fn a_full_log_waits_for_a_while_and_goes_on_without_who_holds_it_up<O: Played>() {
    let (leader, after) = (replica(0, 0), config(replica(0, 0), 0, 1, 3).group.evict_after_ms);
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(leader);
    let (full, room, behind) = (false, true, [100, 0, 90]);
    assert_eq!(given_up(core, 1, full, behind), None);
    assert_eq!(given_up(core, after, full, behind), None, "it may read on in a moment");
    assert_eq!(given_up(core, after + 1, room, behind), None, "and has");
    assert_eq!(given_up(core, after + 2, full, behind), None, "now it is full once more");
    let full_for_long = 2 * after + 2;
    assert_eq!(given_up(core, full_for_long, full, [100, 0, 91]), None, "that one is not behind");
    let gone = Some(GroupEffect::GiveUp { slot: 2, evicted: true });
    assert_eq!(given_up(core, full_for_long, full, behind), gone);
    assert_eq!(given_up(core, full_for_long + 1, full, behind), None, "it is logged already");
}

fn a_learner_that_holds_the_log_up_is_given_up_when_it_has_read_nothing_for_long<O: Played>() {
    let leader = replica(0, 0);
    let mut stage = Stage::<O>::new(1, 3);
    assert!(stage.evict(leader, 2));
    for id in [replica(0, 1), leader] {
        stage.turn(id);
    }
    let core = stage.core(leader);
    assert!(core.log().view().member(2).evicted);
    let mut at = |now_ms: u64, freed: u64| given_up(core, now_ms, false, [100, 0, freed]);
    let full_for_long = 1_000;
    assert_eq!((at(1, 50), at(full_for_long, 50)), (None, None), "it is looked at from now on");
    let reads = full_for_long + STOPPED_AFTER_MS - 1;
    assert_eq!((at(reads, 50), at(reads, 51)), (None, None), "it reads");
    let stopped = reads + STOPPED_AFTER_MS;
    let given_up_now = Some(GroupEffect::GiveUp { slot: 2, evicted: false });
    assert_eq!((at(stopped - 1, 51), at(stopped, 51)), (None, given_up_now));
    assert_eq!(at(stopped + 1, 52), None, "it reads again");
    core.step(Event::Heartbeat { slot: 2, pulse: Pulse::Dead }, &mut Vec::new());
    assert_eq!(given_up(core, stopped + 2, false, [100, 0, 52]), given_up_now, "it is dead");
}

fn who_does_not_lead_waits_for_nobody<O: Played>() {
    let mut stage = Stage::<O>::new(1, 3);
    let core = stage.core(replica(0, 1));
    assert_eq!(
        [1, 10_000].map(|now_ms| given_up(core, now_ms, false, [100, 100, 0])),
        [None, None]
    );
}

fn who_is_dead_for_long_is_waited_for_no_more<O: Played>() {
    let (dead, for_ms) = (replica(0, 2), 4 * config(replica(0, 0), 0, 1, 3).group.timeout_ms);
    let mut stage = Stage::<O>::new(1, 3);
    stage.pass(5, &[]);
    stage.pass(5, &[dead]);
    stage.pass(for_ms - 6, &[dead]);
    assert_eq!(stage.told(), "", "a connection that broke looks the same for a moment");
    stage.pass(1, &[dead]);
    assert_eq!(stage.told(), "g0.0 logs 2: Evict 2\n");
    stage.pass(for_ms, &[dead]);
    assert_eq!(stage.told(), "", "once is enough");
}

fn who_was_evicted_and_is_elected_is_waited_for_again<O: Played>() {
    let (old, evicted, other) = (replica(0, 0), replica(0, 1), replica(0, 2));
    let mut stage = Stage::<O>::new(1, 3);
    assert!(stage.evict(old, evicted.slot));
    for id in [other, evicted, old] {
        stage.turn(id);
    }
    stage.run(evicted, &[other]);
    stage.told();
    stage.pass(5, &[]);
    assert_eq!(stage.told(), "", "its own first entry is not committed");
    stage.turn(other);
    stage.turn(evicted);
    stage.told();
    stage.pass(5, &[]);
    assert_eq!(stage.told(), "g0.1 logs 4: Join 1, incarnation 0\n");
}
