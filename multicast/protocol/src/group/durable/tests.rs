use alloc::vec::Vec;
use std::vec;

use super::super::control::{Asked, Closing, GroupEffect, Question};
use super::super::election::GrantDecision;
use super::super::frame::Cursor;
use super::super::ordering::NoOthers;
use super::super::testing::{Record, all_on_disk, leads, log_of};
use super::super::{Cause, GroupConfig};
use super::*;
use crate::ballot::Acceptance;
use crate::ids::{GroupId, ReplicaId};
use crate::view::View;

/// Ballots of slots 0 and 2, in rising order.
const FIRST: Ballot = Ballot::new(1, 0, 0);
const SECOND: Ballot = Ballot::new(2, 2, 0);
const THIRD: Ballot = Ballot::new(3, 0, 0);

/// What the holder of a ballot asks.
const fn asked(ballot: Ballot) -> Asked {
    let question = Question { ballot, leads: false, forced: false };
    Asked { by: ballot.slot(), question, attempt: 0, from: Cursor::START }
}

/// The log of the only replica of a group.
fn alone(durable: bool) -> GroupLog<Record> {
    let me = ReplicaId::new(GroupId(0), 0);
    let config = GroupConfig { me, replicas: 1, ..log_of(3, durable).config };
    GroupLog::new(config, View::first(1))
}

/// Our log is closed. Returns what follows at once.
fn closed(log: &mut GroupLog<Record>, then: Closing) -> Vec<GroupEffect> {
    let mut effects = Vec::new();
    log.closed(then, &mut effects);
    effects
}

/// The disk holds a promise. Returns what follows.
fn on_disk(log: &mut GroupLog<Record>, promised: Ballot) -> Vec<GroupEffect> {
    let mut effects = Vec::new();
    log.has_on_disk(OnDisk { promised, ..OnDisk::default() });
    log.speak_of_promise(&mut effects);
    effects
}

/// What it does by itself at the next tick.
fn watched(log: &mut GroupLog<Record>) -> Vec<GroupEffect> {
    let mut effects = Vec::new();
    log.tick(log.now_ms + 1);
    log.watched(true, &mut effects);
    effects
}

fn asks_others(ballot: Ballot) -> Vec<GroupEffect> {
    let question = Question { ballot, leads: false, forced: false };
    [0, 2].map(|to| GroupEffect::Ask { to, question }).into()
}

#[test]
fn a_grant_waits_for_the_disk() {
    let mut log = log_of(3, true);
    assert_eq!(closed(&mut log, Closing::Grant(asked(FIRST))), []);
    assert_eq!(log.promised(), FIRST);
    assert_eq!(on_disk(&mut log, Ballot::ZERO), [], "the disk holds something else");
    assert_eq!(on_disk(&mut log, FIRST), [GroupEffect::Grant(asked(FIRST))]);
    assert_eq!(on_disk(&mut log, FIRST), [], "it was granted");
}

#[test]
fn a_repeated_request_is_not_answered_from_memory() {
    let mut log = log_of(3, true);
    closed(&mut log, Closing::Grant(asked(FIRST)));
    assert_eq!(log.judge(FIRST, false, false), GrantDecision::Ignore);
    assert_eq!(log.judge(FIRST, true, false), GrantDecision::Ignore);
    on_disk(&mut log, FIRST);
    assert_eq!(log.judge(FIRST, false, false), GrantDecision::GrantAgain);
}

#[test]
fn a_candidate_asks_when_its_own_promise_is_on_disk() {
    let mut log = log_of(3, true);
    let effects = closed(&mut log, Closing::SetOut(Cause::Start));
    let ballot = log.promised();
    assert_eq!(effects, [GroupEffect::SetsOut { ballot, cause: Cause::Start }]);
    assert_eq!(watched(&mut log), [], "nor with a tick");
    assert_eq!(on_disk(&mut log, ballot), asks_others(ballot));
    assert_eq!(on_disk(&mut log, ballot), []);
}

#[test]
fn one_replica_alone_leads_when_its_promise_is_on_disk() {
    let mut log = alone(true);
    let effects = closed(&mut log, Closing::SetOut(Cause::Start));
    let ballot = log.promised();
    let sets_out = GroupEffect::SetsOut { ballot, cause: Cause::Start };
    assert_eq!(effects, [sets_out]);
    assert_eq!(on_disk(&mut log, ballot), [GroupEffect::TakeOver { of: 0 }]);

    let effects = closed(&mut alone(false), Closing::SetOut(Cause::Start));
    assert_eq!(effects, [sets_out, GroupEffect::TakeOver { of: 0 }], "it has no disk");
}

#[test]
fn a_newer_promise_replaces_one_that_is_awaited() {
    let mut log = log_of(3, true);
    closed(&mut log, Closing::Grant(asked(FIRST)));
    assert_eq!(closed(&mut log, Closing::Grant(asked(SECOND))), []);
    assert_eq!(on_disk(&mut log, FIRST), [], "another is promised by now");
    assert_eq!(on_disk(&mut log, SECOND), [GroupEffect::Grant(asked(SECOND))]);

    let mut log = log_of(3, true);
    closed(&mut log, Closing::SetOut(Cause::Start));
    let own = log.promised();
    assert!(own < SECOND);
    assert_eq!(closed(&mut log, Closing::Grant(asked(SECOND))), []);
    assert_eq!(on_disk(&mut log, own), []);
    assert_eq!(on_disk(&mut log, SECOND), [GroupEffect::Grant(asked(SECOND))], "it asks nobody");
}

#[test]
fn a_promise_that_was_not_asked_for_replaces_one_that_is_awaited() {
    let mut log = log_of(3, true);
    closed(&mut log, Closing::Grant(asked(FIRST)));
    log.promise(SECOND);
    assert_eq!(on_disk(&mut log, SECOND), []);
}

#[test]
fn a_state_of_a_higher_ballot_replaces_a_promise_that_is_awaited() {
    for (ballot, granted) in [(FIRST, true), (SECOND, true), (THIRD, false)] {
        let mut log = log_of(3, true);
        closed(&mut log, Closing::Grant(asked(SECOND)));
        let mut log = log.blank();
        log.restore(7, FIRST, 0, View::first(3), ballot);
        let promised = log.promised();
        let grant = granted.then_some(GroupEffect::Grant(asked(SECOND)));
        assert_eq!(on_disk(&mut log, promised), Vec::from_iter(grant), "{ballot}");
    }
}

#[test]
fn without_disks_a_promise_is_spoken_of_at_once() {
    let mut log = log_of(3, false);
    let effects = closed(&mut log, Closing::SetOut(Cause::Start));
    let ballot = log.promised();
    let mut expected = vec![GroupEffect::SetsOut { ballot, cause: Cause::Start }];
    expected.extend(asks_others(ballot));
    assert_eq!(effects, expected);
    let effects = closed(&mut log, Closing::Grant(asked(SECOND)));
    assert_eq!(effects, [GroupEffect::Grant(asked(SECOND))]);
    assert_eq!(log.judge(SECOND, false, false), GrantDecision::GrantAgain);
}

#[test]
fn a_replica_keeps_the_highest_promise_that_its_disk_holds() {
    let mut log = log_of(3, true);
    for (found, kept) in [(SECOND, SECOND), (FIRST, SECOND), (SECOND, SECOND), (THIRD, THIRD)] {
        log.promised_before(found);
        assert_eq!((log.promised(), log.role()), (kept, Role::Follower));
    }
    assert!(log.ballot_counter() >= THIRD.counter());
}

#[test]
fn a_replica_without_a_state_keeps_its_promise_for_the_state_that_comes() {
    let config = GroupConfig { incarnation: 1, ..log_of(3, true).config };
    let mut log = GroupLog::<Record>::new(config, View::first(3));
    log.promised_before(SECOND);
    log.promised_before(FIRST);
    assert_eq!((log.promised(), log.role()), (SECOND, Role::Blank));
    assert_eq!(log.ballot_counter(), SECOND.counter());
    let mut log = log.blank();
    log.restore(7, FIRST, 0, View::first(3), FIRST);
    assert_eq!((log.promised(), log.role()), (SECOND, Role::Follower));
}

#[test]
fn a_durable_leader_admits_nobody_that_has_not_reported() {
    for durable in [false, true] {
        let mut log = leads(log_of(5, durable));
        for slot in [0, 2] {
            log.acknowledged(slot, Acceptance { tag: log.ballot().tag(), index: log.last_index() });
            log.add_follower(slot, 0, 0);
            log.hear_applied(slot, Rank::NOTHING);
        }
        all_on_disk(&mut log);
        let committed = log.newly_committed().expect("a quorum holds it");
        log.commit_to(committed);
        log.add_follower(4, 7, 0);
        assert_eq!(
            log.join(4, 7, &NoOthers).is_none(),
            durable,
            "its writes may be in memory only"
        );
        if durable {
            log.hear_applied(4, Rank::NOTHING);
            assert!(log.join(4, 7, &NoOthers).is_some());
        }
    }
}
