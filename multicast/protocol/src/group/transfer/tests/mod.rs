//! Tests of each guard and each timer of a transfer, on the logs of a group of three whose time the test sets.

mod learners;
mod receiver;
mod sender;

use std::vec;

use super::super::ordering::NoOthers;
use super::super::testing::{Record, config};
use super::super::{Cause, GroupRecord};
use super::*;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, ReplicaId};
use crate::view::View;

/// Time at which all logs begin.
const START_MS: u64 = 1_000;
/// An incarnation that no view contains.
const STRANGER: u32 = 7;
/// The ballot of slot 0, which `follower` follows.
const LED: Ballot = Ballot::new(1, 0, 0);

/// The log of an incarnation of a slot: incarnation 0 has a state, later ones have none.
fn log(slot: u8, incarnation: u32) -> GroupLog<Record> {
    let me = ReplicaId::new(GroupId(0), slot);
    let mut log = GroupLog::new(config(me, incarnation, 3), View::first(3));
    log.tick(START_MS);
    log
}

/// Elects slot 0.
fn lead(log: &mut GroupLog<Record>) {
    log.campaign(Cause::Start);
    log.granted(1, 0, (log.last_birth(), log.last_index()), vec![0; 3]);
    log.begin_to_lead();
    let (index, birth, time_ms) = log.next_entry();
    log.push(Uncommitted { index, birth, time_ms, record: GroupRecord::NewBallot.into() });
    log.led_from(index);
}

fn leader() -> GroupLog<Record> {
    let mut log = log(0, 0);
    lead(&mut log);
    log
}

/// Slot 1 follows slot 0.
fn follower() -> GroupLog<Record> {
    let mut log = log(1, 0);
    log.promise(LED);
    log.follow(LED, 1);
    log
}

/// Slot 1 is the survivor of a group that is recreated: no replica leads, and it sends its state to the replicas in the
/// view.
fn survivor() -> GroupLog<Record> {
    let mut log = log(1, 0);
    let marker = Ballot::new(9, 1, 0);
    log.promise(marker);
    log.revive(marker, View::first(3));
    log
}

/// A request of an incarnation of a slot that needs any replica's state.
fn request(slot: u8, incarnation: u32) -> Request {
    let needs = Some(Ballot::ZERO);
    Request { slot, incarnation, needs, applied: Rank::NOTHING, taken: None, log: None }
}

/// Sends the request to a replica that trusts its own state.
fn ask(log: &mut GroupLog<Record>, request: &Request) -> Answer {
    log.asked_for_state(request, true, None, &NoOthers)
}

/// Name of a copy that incarnation 0 of some slot sends.
const fn copy(number: u64) -> CopyId {
    CopyId { sender: 0, number }
}
