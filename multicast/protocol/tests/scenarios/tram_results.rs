//! Results between groups of a tree: who is asked for one, who sends it, and until when a message is kept for that.

use skein_protocol::ids::{GroupId, GroupSet};
use skein_protocol::ordering::{Inspect as _, MessageStage, OrderingProtocol as _};
use skein_protocol::step::{Effect, Event};
use skein_protocol::tram::PeerEffect;
use skein_protocol::tram::tree::Tree;

use crate::stage::{message, replica};
use crate::tram::{Cluster, set};

/// The two ends of a chain share a message, and a replica of the first one has not applied it.
fn ends_share_a_message() -> (Cluster, u64) {
    let mut cluster = Cluster::new(&Tree::depth(3));
    cluster.down = vec![replica(0, 2)];
    let number = cluster.send(set(&[0, 2]));
    cluster.settle(5);
    (cluster, number)
}

#[test]
fn whoever_leads_sends_a_result_to_the_leader_that_asks_though_they_are_no_neighbours() {
    let (mut cluster, number) = ends_share_a_message();
    cluster.change_leader(2);
    cluster.settle(1);
    let asks = cluster.leader(2);
    assert_eq!(asks, replica(2, 1));
    let wait = |cluster: &mut Cluster, heard| {
        let (message, mut effects) = (message(number), Vec::new());
        cluster.stage.core(asks).step(Event::Waits { message, heard }, &mut effects);
        effects
    };
    assert_eq!(wait(&mut cluster, set(&[0])), [], "that one is there");
    let asked = wait(&mut cluster, GroupSet::EMPTY);
    let all = (0..3).map(|slot| {
        let (to, message) = (replica(0, slot), message(number));
        Effect::Tell(PeerEffect::AskResult { to, message })
    });
    assert!(asked.iter().copied().eq(all), "any of them may lead: {asked:?}");
    let mut question = Vec::new();
    cluster.stage.core(asks).ask_result(message(number), &mut question);
    for to in cluster.stage.members(GroupId(0)) {
        let mut effects = Vec::new();
        let core = cluster.stage.core(to);
        core.hear_report(asks, &question, &mut effects);
        let sends = [Effect::Resend { message: message(number), to: GroupId(2) }];
        assert_eq!(effects, if to.slot == 0 { &sends[..] } else { &[] }, "{to}");
        assert_eq!(core.leader_of(GroupId(2)), asks, "{to} sends it there");
    }
}

#[test]
fn a_message_is_kept_until_all_that_count_have_applied_it() {
    let (mut cluster, _) = ends_share_a_message();
    let kept = |cluster: &mut Cluster, slot| {
        let core = cluster.stage.core(replica(2, slot));
        core.inspect().retained()
    };
    assert!((0..3).all(|slot| kept(&mut cluster, slot) > 0), "one of the first group may ask");
    cluster.down.clear();
    cluster.settle(40);
    assert!((0..3).all(|slot| kept(&mut cluster, slot) == 0));
    cluster.check();
}

#[test]
fn a_group_tells_others_the_rank_up_to_which_it_has_applied_what_it_delivers() {
    let (mut cluster, _) = ends_share_a_message();
    let known = |cluster: &mut Cluster, of: u16| {
        let core = cluster.stage.core(replica(2, 1));
        core.inspect().settled_clock_of(GroupId(of))
    };
    assert_eq!(known(&mut cluster, 0), 0, "one of its replicas has not applied it");
    cluster.down.clear();
    cluster.settle(40);
    let applied = cluster.stage.core(replica(0, 1)).inspect().settled_clock_of(GroupId(0));
    assert!(applied > 0);
    assert_eq!(known(&mut cluster, 0), applied, "in that group's own log");
    assert_eq!(known(&mut cluster, 1), 0, "that one shares nothing");
    let mut state = Vec::new();
    cluster.stage.core(replica(2, 1)).save(&mut state);
    let learner = cluster.stage.core(replica(2, 2)).restored(&state).expect("a state");
    assert_eq!(learner.inspect().settled_clock_of(GroupId(0)), applied, "its state has it");
}

#[test]
fn what_a_deposed_leader_has_logged_does_not_pass_for_what_its_successor_has() {
    let mut cluster = Cluster::new(&Tree::depth(2));
    cluster.settle(3);
    let (old, mut effects) = (cluster.leader(1), Vec::new());
    let last = Event::Received {
        message: message(82),
        low_water: 70,
        destinations: set(&[1]),
        outside: 0,
    };
    for other in cluster.stage.members(GroupId(1)).filter(|it| *it != old) {
        cluster.stage.lose_writes(old, other);
    }
    cluster.stage.core(old).step(last, &mut effects);
    cluster.stage.carry_out(old, effects);
    assert!(cluster.stage.core(old).is_logged(message(82)));
    cluster.change_leader(1);
    cluster.heal();
    cluster.settle(5);
    let core = cluster.stage.core(old);
    assert!(!core.log().leads() && !core.is_logged(message(82)), "its entry is cut off");
    let stage = core.stage_of(message(67));
    assert_eq!(stage, MessageStage::Unknown, "a result about it is not to be dropped");
}
