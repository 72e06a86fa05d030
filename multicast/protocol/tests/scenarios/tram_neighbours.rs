//! What a group of a tree takes from its neighbours, asks them for and sends them again: one core of a cluster, by hand.

use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::ordering::{AnswerTo, Inspect as _, OrderingProtocol as _};
use skein_protocol::rank::Rank;
use skein_protocol::step::{Effect as Any, Event};
use skein_protocol::tram::content::Content;
use skein_protocol::tram::edges::{Edge, EdgeNumber};
use skein_protocol::tram::tree::Tree;
use skein_protocol::tram::{Effect, PeerEffect, PeerEvent, Record, Taken, Tram};

use crate::stage::{message, replica};
use crate::tram::{Cluster, set};

/// A chain of two groups whose leaders know each other.
fn chain() -> Cluster {
    let mut cluster = Cluster::new(&Tree::depth(2));
    cluster.settle(3);
    cluster
}

/// The edge with that number, about the message of that number, to both groups.
fn edge(number: u64, inline: bool) -> Edge {
    let content = Content::Message {
        message: message(number),
        low_water: 1,
        destinations: set(&[0, 1]),
        outside: if inline { 0 } else { 5_000 },
        again: false,
    };
    let place = Rank::new(number);
    let number = EdgeNumber { generation: 0, number };
    Edge { number, first: 1, child_generation: 0, place, content }
}

/// The parent's leader passes on an edge to a core of the child, which lacks its payload if that is not in the edge.
fn pass(core: &mut Tram, edge: Edge) -> Vec<Effect> {
    let (from, ballot) = (core.leader_of(GroupId(0)), Ballot::ZERO);
    let held = !edge.content.is_large();
    let mut effects = Vec::new();
    let passed = PeerEvent::Passed { from, ballot, edge, sum: 7, held };
    core.step(Event::Heard(passed), &mut effects);
    effects
}

/// The payload of an edge arrives, and what can be logged by that is.
fn arrive(core: &mut Tram, number: u64) -> Vec<Effect> {
    let (message, destinations) = (message(number), set(&[0, 1]));
    let mut effects = Vec::new();
    core.step(
        Event::Received { message, low_water: 1, destinations, outside: 5_000 },
        &mut effects,
    );
    while core.has_ready() {
        core.take_ready(&mut effects);
    }
    effects
}

fn fetched(effects: &[Effect]) -> Vec<u64> {
    let number = |effect: &Effect| match effect {
        Any::Fetch { message, from } => {
            assert_eq!(*from, replica(0, 0), "the parent's leader has it");
            Some(message.sequence)
        }
        _ => None,
    };
    effects.iter().filter_map(number).collect()
}

#[test]
fn large_payloads_are_asked_for_together() {
    let mut cluster = chain();
    let core = cluster.stage.core(replica(1, 0));
    let asked: Vec<_> =
        (1..=20).flat_map(|number| fetched(&pass(core, edge(number, false)))).collect();
    assert_eq!(asked, (1..=16).collect::<Vec<_>>(), "of the oldest, each once");
    assert_eq!(fetched(&arrive(core, 1)), [17], "one more when one is logged");
    assert_eq!(fetched(&arrive(core, 2)), [18]);
    assert_eq!(fetched(&arrive(core, 5)), [3, 4], "what should have come before that is lost");
    assert_eq!(fetched(&pass(core, edge(4, false))), [], "only the first one is asked for again");
    assert_eq!(fetched(&pass(core, edge(3, false))), [3], "when it comes again");
    assert_eq!(fetched(&arrive(core, 3)), [19]);
    assert_eq!(fetched(&arrive(core, 4)), [20], "the fifth follows it, and no more wait");
}

/// What a leader of the child reports: the edge that it has taken, and which destinations are closed.
fn report(ballot: Ballot, taken: u64, closed: GroupSet) -> Vec<u8> {
    let mut report = vec![0];
    report.extend(ballot.to_word().to_le_bytes());
    report.extend(0_u32.to_le_bytes());
    let closed = closed.iter().map(|group| 1 << group.0).sum();
    for word in [taken, closed, taken + 1] {
        report.extend(word.to_le_bytes());
    }
    report
}

fn hear(core: &mut Tram, from: ReplicaId, report: &[u8]) {
    core.hear_report(from, report, &mut Vec::new());
}

#[test]
fn a_deposed_leader_of_a_child_does_not_close_what_its_successor_has_opened() {
    let mut cluster = chain();
    let parent = replica(0, 0);
    let old = cluster.stage.core(replica(1, 0)).log().ballot();
    let core = cluster.stage.core(parent);
    hear(core, replica(1, 0), &report(old, 0, set(&[1])));
    assert_eq!(core.closed(), set(&[1]));
    let next = Ballot::new(old.counter() + 1, 1, 0);
    hear(core, replica(1, 1), &report(next, 0, GroupSet::EMPTY));
    assert_eq!(core.closed(), GroupSet::EMPTY);
    hear(core, replica(1, 0), &report(old, 0, set(&[1])));
    assert_eq!(core.closed(), GroupSet::EMPTY, "its word came late");
}

#[test]
fn a_child_is_asked_whether_what_it_has_closed_is_open_again() {
    let mut cluster = chain();
    let ballot = cluster.stage.core(replica(1, 0)).log().ballot();
    let core = cluster.stage.core(replica(0, 0));
    let mut now_ms = 1_000;
    let mut asked = |core: &mut Tram| {
        let mut effects = Vec::new();
        for _ in 0..100 {
            now_ms += 1;
            core.step(Event::Tick { now_ms }, &mut effects);
        }
        let asks = |effect: &&Effect| matches!(effect, Any::Tell(PeerEffect::Report { to, asks: true }) if to.group == GroupId(1));
        effects.iter().filter(asks).count()
    };
    asked(core);
    assert_eq!(asked(core), 0, "nothing is owed");
    hear(core, replica(1, 0), &report(ballot, 0, set(&[1])));
    assert!(asked(core) >= 3, "all of its replicas: any may lead");
    hear(core, replica(1, 0), &report(ballot, 0, GroupSet::EMPTY));
    assert_eq!(asked(core), 0);
}

/// Each millisecond one more edge is passed on, and the one before is acknowledged.
#[test]
fn what_a_child_is_about_to_acknowledge_is_not_sent_again() {
    let mut cluster = chain();
    let child = replica(1, 0);
    let ballot = cluster.stage.core(child).log().ballot();
    let (root, mut passed) = (replica(0, 0), Vec::new());
    cluster.stage.core(root).step(Event::Tick { now_ms: 1_000 }, &mut Vec::new());
    for number in 1..=200 {
        cluster.stage.land(root, message(number), set(&[0, 1]));
        for _ in 0..2 {
            for slot in 0..3 {
                cluster.stage.turn(replica(0, slot));
                cluster.stage.complete(replica(0, slot));
            }
        }
        let mut effects = Vec::new();
        let core = cluster.stage.core(root);
        hear(core, child, &report(ballot, number - 1, GroupSet::EMPTY));
        core.step(Event::Tick { now_ms: 1_000 + number }, &mut effects);
        passed.extend(effects.into_iter().filter_map(|effect| match effect {
            Any::Tell(PeerEffect::Pass { edge, .. }) => Some(edge.number.number),
            _ => None,
        }));
    }
    let edges = cluster.stage.core(root).inspect().edges().expect("it orders along a tree");
    assert_eq!((edges.children[0].sent, edges.children[0].acknowledged), (200, 199));
    assert_eq!(passed, [], "each tick follows news");
}

/// Whether a core may answer a read of all that it has delivered.
fn may_answer(core: &Tram) -> bool {
    core.has_passed(core.reply_dependency(AnswerTo::Read))
}

#[test]
fn words_about_edges_of_a_former_parent_do_not_count() {
    let mut cluster = chain();
    let (parent, child) = (replica(0, 0), replica(1, 0));
    let mut effects = pass(cluster.stage.core(child), edge(1, true));
    cluster.stage.core(child).step(Event::TurnEnd, &mut effects);
    cluster.stage.carry_out(child, effects);
    for slot in [1, 2, 0] {
        cluster.stage.turn(replica(1, slot));
    }
    assert_eq!(cluster.stage.delivered(child), [1]);
    let ballot = cluster.stage.core(parent).log().ballot();
    let core = cluster.stage.core(child);
    for (ours, generation, counts) in [(1, 0, false), (0, 1, false), (0, 0, true)] {
        let mut told = vec![0];
        told.extend(ballot.to_word().to_le_bytes());
        told.extend([ours, generation].map(u32::to_le_bytes).concat());
        told.extend(2_u64.to_le_bytes());
        hear(core, parent, &told);
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(may_answer(core), counts, "to us in {ours}, of edges in {generation}");
    }
}

#[test]
fn words_of_a_child_about_edges_of_our_former_self_do_not_count() {
    let mut cluster = chain();
    let (parent, child) = (replica(0, 0), replica(1, 0));
    cluster.send(set(&[0, 1]));
    for slot in [0, 1, 2, 0, 1, 2, 0] {
        cluster.stage.turn(replica(0, slot));
    }
    assert_eq!(cluster.stage.delivered(parent), [1]);
    let ballot = cluster.stage.core(child).log().ballot();
    let core = cluster.stage.core(parent);
    for (generation, counts) in [(1_u32, false), (0, true)] {
        let mut told = report(ballot, 1, GroupSet::EMPTY);
        told[9..13].copy_from_slice(&generation.to_le_bytes());
        hear(core, child, &told);
        core.step(Event::TurnEnd, &mut Vec::new());
        assert_eq!(may_answer(core), counts, "of edges in generation {generation}");
    }
}

#[test]
fn a_message_that_is_on_its_way_to_a_child_is_not_ordered_again() {
    let mut cluster = chain();
    cluster.down = cluster.stage.members(GroupId(1)).collect();
    let both = set(&[0, 1]);
    let name = message(cluster.send(both));
    cluster.settle(10);
    let again = |cluster: &mut Cluster| {
        let core = cluster.stage.core(replica(0, 0));
        core.hear_lacked(name, both);
        core.orders_again(name)
    };
    assert!(!again(&mut cluster), "the child may be about to have it");
    cluster.down.clear();
    cluster.settle(20);
    assert!(again(&mut cluster), "the child has had it, and may have lost it");
}

/// Two groups order different messages of one name, as a session asks them to. Whoever has both delivers the first.
#[test]
fn one_name_is_delivered_once_whoever_orders_it() {
    for first in [0, 1] {
        let mut cluster = Cluster::new(&Tree::depth(3));
        let one = message(1);
        for by in [first, 1 - first] {
            for to in cluster.stage.members(GroupId(by)) {
                cluster.stage.land(to, one, set(&[by, 2]));
            }
            cluster.settle(15);
        }
        cluster.sent.insert(1, set(&[0, 1, 2]));
        let next = cluster.send(set(&[0, 1, 2]));
        cluster.settle(40);
        let orders = cluster.orders();
        assert_eq!(orders[2], [1, next], "g{first} first");
        assert!(orders.iter().all(|order| order.ends_with(&[next])), "{orders:?}");
    }
}

/// A session that waits no longer for an answer settles the message, which may be on its way.
#[test]
fn a_message_below_its_sessions_mark_is_delivered_when_it_comes_for_the_first_time() {
    let mut cluster = chain();
    let child = replica(1, 0);
    let core = cluster.stage.core(child);
    let (message, destinations) = (message(9), set(&[1]));
    let mut effects = Vec::new();
    core.step(Event::Received { message, low_water: 9, destinations, outside: 0 }, &mut effects);
    effects.extend(pass(core, edge(1, true)));
    core.step(Event::TurnEnd, &mut effects);
    cluster.stage.carry_out(child, effects);
    cluster.settle(5);
    assert_eq!(cluster.stage.delivered(child), [9, 1]);
    let core = cluster.stage.core(child);
    let mut effects = pass(core, edge(2, true));
    core.step(Event::TurnEnd, &mut effects);
    cluster.stage.carry_out(child, effects);
    cluster.settle(5);
    assert_eq!(cluster.stage.delivered(child), [9, 1, 2], "though that one is committed");
}

/// The child's leader takes an edge, and all of its group have it.
fn take(cluster: &mut Cluster, edge: Edge) {
    let child = replica(1, 0);
    let core = cluster.stage.core(child);
    let mut effects = pass(core, edge);
    core.step(Event::TurnEnd, &mut effects);
    cluster.stage.carry_out(child, effects);
    cluster.settle(5);
}

/// The child takes two messages, of which the second settles the name of the first.
fn take_and_settle(cluster: &mut Cluster) {
    take(cluster, edge(1, true));
    let mut settling = edge(2, true);
    let Content::Message { low_water, .. } = &mut settling.content else { unreachable!() };
    *low_water = 2;
    take(cluster, settling);
    assert_eq!(cluster.stage.delivered(replica(1, 0)), [1, 2]);
}

/// An edge as a recreated parent numbers it.
fn anew(number: u64, edge: Edge) -> Edge {
    Edge { number: EdgeNumber { generation: 1, number }, ..edge }
}

/// A parent that was recreated may not know what the child has acknowledged, and numbers it anew.
#[test]
pub(crate) fn what_a_child_has_taken_it_does_not_take_again_when_the_name_is_settled() {
    let (mut cluster, child) = (chain(), replica(1, 0));
    take_and_settle(&mut cluster);
    take(&mut cluster, anew(1, edge(1, true)));
    take(&mut cluster, anew(2, edge(3, true)));
    assert_eq!(cluster.stage.delivered(child), [1, 2, 3]);
}

/// A survivor passes on a message at a place above which the child has taken another, with a payload that is not in its
/// entry. A follower that lacks the payload stalls.
#[test]
fn a_payload_that_brings_nothing_is_kept_until_all_followers_have_its_entry() {
    let (mut cluster, child) = (chain(), replica(1, 0));
    let number = EdgeNumber { generation: 0, number: 1 };
    take(&mut cluster, Edge { number, ..edge(2, true) });
    let core = cluster.stage.core(child);
    let mut effects = pass(core, anew(1, edge(1, false)));
    effects.extend(arrive(core, 1));
    core.step(Event::TurnEnd, &mut effects);
    let index = core.log().last_index();
    let acceptance = Acceptance { tag: core.log().ballot().tag(), index };
    let gone = |effect: &Effect| matches!(effect, Any::Forget { message } if message.sequence == 1);
    assert!(core.log().commit_index() < index && !effects.iter().any(gone));
    let mut accepted = |slot| {
        let (by, mut effects) = (replica(1, slot), Vec::new());
        core.step(Event::Acknowledged { by, acceptance }, &mut effects);
        core.step(Event::TurnEnd, &mut effects);
        assert_eq!(core.log().commit_index(), index);
        effects.iter().any(gone)
    };
    assert!(!accepted(1), "the other one may still ask for it");
    assert!(accepted(2), "nobody needs it any more");
}

/// A follower has read an entry without its payload. Sessions send a message to those who order it first, and to nobody else.
#[test]
fn who_is_sent_no_payload_unasked_asks_its_leader_at_once() {
    for (own, taken) in [(GroupId(0), None), (GroupId(1), Some(edge(1, false)))] {
        let mut cluster = chain();
        let follower = cluster.stage.core(ReplicaId::new(own, 1));
        let taken = taken.map(|edge| Taken { number: edge.number, place: edge.place });
        let record = Record::Ordered { content: edge(1, false).content, taken, known: false };
        let (index, birth) = (follower.log().last_index() + 1, follower.log().ballot());
        let logged = Event::Logged { index, birth, time_ms: 0, record, held: false, last: true };
        let mut effects = Vec::new();
        follower.step(logged, &mut effects);
        follower.step(Event::TurnEnd, &mut effects);
        let leader = follower.leader_of(own);
        let asks = |it: &Effect| matches!(it, Any::Fetch { message: it, from } if (*it, *from) == (message(1), leader));
        assert_eq!(effects.iter().any(&asks), taken.is_some(), "{own}");
        effects.clear();
        follower.step(Event::TurnEnd, &mut effects);
        assert!(!effects.iter().any(asks), "once: an answer is on its way");
    }
}
