//! Moves a hash slot to another group, by a command that all groups deliver.
//!
//! **Invariant (one map).** A group changes its map only at the turn of a move, when all commands before the
//! move are over, and delivers nothing behind the move until the move is over. All groups deliver a move, so a
//! command to several groups is on the same side of it in each of them: either all its groups find that it was
//! sent with their map, or all refuse it.
//!
//! **Invariant (no key is left behind).** Only an empty slot is moved. The slot's owner alone can decide
//! whether it is empty. The owner sends its verdict to the other groups at its turn, and they wait for no other
//! verdict.
//!
//! **Invariant (versions rise).** The owner's verdict carries the version at the move's position, which is at
//! least every version that the owner has assigned. The group that takes the slot assigns higher versions from
//! then on. So no key of the slot ever has the same version twice, and a condition on a version is reliable.
//!
//! A recreated group starts without state, hence with the initial map. Slots are therefore moved only in
//! simulations, until a group can obtain the map of the others.

use skein_multicast::application::Outbox;
use skein_protocol::ids::GroupId;
use skein_protocol::mutants::{Mutant, planted};

use super::exchange::{ReceivedVerdicts, Verdict};
use super::under_way::{Change, CommandPosition, Deferred, Stage};
use super::{Machine, Memo};
use crate::reply::Refusal;
use crate::slots::{HashSlot, slot_of};
use crate::store::Store;
use crate::wire::{Move, Request};

/// Result of a move at its turn.
pub(super) enum Moved {
    /// It was executed or refused. The writer holds the reply.
    Answered,
    /// The named group owns the slot and has not yet reported whether it is empty.
    Awaits(GroupId),
}

impl<S: Store> Machine<S> {
    /// Starts a new move of an open session. It is executed at once if all commands before it are over;
    /// otherwise it is blocked until its turn.
    pub(super) fn start_move(
        &mut self,
        place: CommandPosition,
        it: Move,
        payload: &[u8],
        heard: ReceivedVerdicts,
        out: &mut dyn Outbox,
    ) -> Result<(), S::Error> {
        // If pairs must be fetched, it is resumed when they are there.
        let its_turn = self.under_way.is_empty() && !S::FETCHES;
        let moved = its_turn.then(|| self.move_slot(place, it, heard, out)).transpose()?;
        if let Some(Moved::Answered) = moved {
            self.answer(place, Some(Memo::Retained), Change::NONE, out);
            return Ok(());
        }
        let mut command = self.under_way.spare();
        command.payload.extend_from_slice(payload);
        (command.growth_max, command.written_max, command.memo) = (0, 0, Memo::Retained);
        self.want_slot(&mut command);
        let stage = match moved {
            Some(Moved::Awaits(owner)) => Stage::Awaits { command, owner },
            _ => Stage::Blocked { command, heard, needs_turn: true },
        };
        self.under_way.push(place, stage);
        if S::FETCHES { self.catch_up(out) } else { Ok(()) }
    }

    /// Notes that a request to move a slot reads all keys, by which its owner learns whether the slot is empty.
    pub(super) fn want_slot(&self, command: &mut Deferred) {
        if let Ok(Request::Move(it)) = Request::decode(&command.payload)
            && S::FETCHES
            && self.slots.owner_of(HashSlot(it.slot)) == Some(self.group)
        {
            command.read_write_set.add_all();
        }
    }

    /// Executes a move at its turn: all commands before it are over.
    pub(super) fn move_slot(
        &mut self,
        place: CommandPosition,
        it: Move,
        heard: ReceivedVerdicts,
        out: &mut dyn Outbox,
    ) -> Result<Moved, S::Error> {
        let owner = match self.owner_before(place, it) {
            Ok(owner) => owner,
            Err(refusal) => {
                self.writer.refused(Some(&refusal));
                return Ok(Moved::Answered);
            }
        };
        if owner == self.group {
            let empty = self.is_empty(HashSlot(it.slot))?;
            let others = place.destinations.without(self.group);
            let verdict = Verdict::new(empty, empty, empty);
            let word = verdict.encode_with(self.completed.version(place.position));
            out.exchange(place.message, others, &word);
            self.conclude_move(place, it, owner, ReceivedVerdicts::of(owner, &word));
            Ok(Moved::Answered)
        } else if heard.from.contains(owner) {
            self.conclude_move(place, it, owner, heard);
            Ok(Moved::Answered)
        } else {
            Ok(Moved::Awaits(owner))
        }
    }

    /// Applies the owner's verdict. The writer holds the reply.
    pub(super) fn conclude_move(
        &mut self,
        place: CommandPosition,
        it: Move,
        owner: GroupId,
        heard: ReceivedVerdicts,
    ) {
        if heard.verdict.held() {
            let to = GroupId(it.to);
            if owner != to {
                self.slots.give(HashSlot(it.slot), to);
            }
            if to == self.group && !planted(Mutant::VersionsNotRaised) {
                self.completed.raise(heard.version, place.position);
            }
            self.writer.done(true, 0);
        } else {
            let refusal = Refusal::SlotInUse { slot: it.slot, group: owner.0 };
            self.writer.refused((owner == self.group).then_some(&refusal));
        }
    }

    /// Checks what depends only on the move's bytes and the map, which is the same in every group. Returns the
    /// slot's owner.
    fn owner_before(&self, place: CommandPosition, it: Move) -> Result<GroupId, Refusal> {
        let malformed = |why: &str| Refusal::Malformed(why.to_owned());
        if place.destinations != self.groups {
            return Err(malformed("a request to move a slot must go to all groups"));
        }
        if it.epoch != self.slots.epoch {
            return Err(self.wrong_epoch());
        }
        if !self.groups.contains(GroupId(it.to)) {
            return Err(malformed("there is no such group"));
        }
        self.slots.owner_of(HashSlot(it.slot)).ok_or_else(|| malformed("there is no such slot"))
    }

    /// Whether this group has no key of the slot. Reads every key.
    fn is_empty(&self, slot: HashSlot) -> Result<bool, S::Error> {
        for pair in self.store.range(&[], None) {
            let (key, _) = pair?;
            if slot_of(&key) == slot {
                return Ok(planted(Mutant::SlotMovedWithKeys));
            }
        }
        Ok(true)
    }
}
