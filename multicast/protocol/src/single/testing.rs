//! Shared by the tests of this module: events for one replica, by hand.

use alloc::vec;
use alloc::vec::Vec;

use super::{Effect, Event, Single};
use crate::ballot::{Acceptance, Ballot};
use crate::group::{Cause, Closing, Control, GroupEvent, testing};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::ordering::{Config, OrderingProtocol as _};
use crate::rank::Rank;
use crate::tram::tree::Tree;
use crate::view::View;

/// Configuration of an incarnation of a replica, in a group of three.
pub(super) fn config(slot: u8, incarnation: u32) -> Config {
    let me = ReplicaId::new(GroupId(0), slot);
    let group = testing::config(me, incarnation, 3);
    let (held_bytes_max, tree) = (64 << 20, Tree::breadth(1).parents());
    Config { group, groups: 1, fetch_after_ms: 20, held_bytes_max, tree }
}

/// The first incarnation of a slot, with an empty log.
pub(super) fn replica(slot: u8) -> Single {
    Single::new(config(slot, 0), View::first(3))
}

pub(super) const fn message(sequence: u64) -> MessageId {
    MessageId::new(SessionId(1), sequence)
}

/// The event that the message has arrived.
pub(super) fn received(sequence: u64, inline: bool) -> Event {
    let (message, destinations) = (message(sequence), GroupSet::first(1));
    let outside = if inline { 0 } else { 5_000 };
    Event::Received { message, low_water: 1, destinations, outside }
}

/// The effects of one event.
pub(super) fn step(core: &mut Single, event: Event) -> Vec<Effect> {
    let mut effects = Vec::new();
    core.step(event, &mut effects);
    effects
}

/// Campaigns, and is elected by another slot whose log ends where ours does.
pub(super) fn elect(core: &mut Single, by: u8) -> Vec<Effect> {
    let then = Closing::SetOut(Cause::Operator);
    step(core, Event::Group(GroupEvent::LogClosed { then }));
    let (ballot, last) = (core.log.promised(), (core.log.last_birth(), core.log.last_index()));
    let (named, applied) = (core.log.named(), Rank::NOTHING);
    let incarnation = named[usize::from(by)];
    let granted = Control::Granted { ballot, incarnation, last, named: &named, applied };
    core.control(by, granted, &mut Vec::new());
    step(core, Event::Group(GroupEvent::TookOver))
}

/// Slot 0 of three leads, and its first entry is committed.
pub(super) fn leader() -> Single {
    let mut core = replica(0);
    elect(&mut core, 1);
    hold(&mut core, 1);
    assert_eq!(core.log.commit_index(), 1);
    core
}

/// Slot 0 of a recreated group with this view, above this clock. It leads.
pub(super) fn anew(view: View, clock: u64, now_ms: u64) -> Single {
    let mut former = replica(0);
    step(&mut former, Event::Tick { now_ms });
    let mut core = former.anew(view, 1, clock);
    elect(&mut core, 1);
    core
}

/// The slot accepts all that the leader has logged.
pub(super) fn hold(core: &mut Single, slot: u8) -> Vec<Effect> {
    let acceptance = Acceptance { tag: core.log.ballot().tag(), index: core.log.last_index() };
    let by = ReplicaId::new(GroupId(0), slot);
    let mut effects = step(core, Event::Acknowledged { by, acceptance });
    effects.extend(step(core, Event::TurnEnd));
    effects
}

/// Promises the ballot, unless that was done. Its leader writes our log from behind `base` on.
pub(super) fn follow(core: &mut Single, ballot: Ballot, base: u64) {
    if core.log.promised() < ballot {
        core.log.promise(ballot);
    }
    step(core, Event::Group(GroupEvent::Followed { ballot, base, first: base + 1 }));
}

/// Everything that can be delivered now: numbers, ranks, positions.
pub(super) fn deliveries(core: &mut Single) -> Vec<(u64, u64, u64)> {
    let mut all = vec![];
    while let Some(next) = core.deliver() {
        assert_eq!(next.clock, next.rank.number());
        all.push((next.message.sequence, next.rank.number(), next.position));
    }
    all
}
