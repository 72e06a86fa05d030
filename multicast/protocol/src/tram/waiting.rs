//! As leader: entries that our parent has passed on and that cannot be logged yet. The first one waits for its payload, or
//! for room in the log: a payload may let as many entries go on as wait behind it.
//!
//! **Invariant.** The numbers rise by one, in one generation.

use alloc::collections::VecDeque;
use core::mem;

use super::edges::{Edge, EdgeNumber};
use crate::ids::{GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::tram::content::Content;

/// Most entries that wait. Our parent passes on again what it has sent beyond that.
const WAITING_MAX: usize = super::edges::ROOM;

/// The payloads of so many of the oldest entries are asked for.
const ASKED_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Entry {
    edge: Edge,
    /// Checksum of the payload, if it is outside the log.
    sum: u64,
    /// Whether the payload is here, or in the entry.
    held: bool,
    /// Whether our parent was asked for the payload, and may be about to send it.
    asked: bool,
}

/// The entries that wait, in order.
#[derive(Debug, Default)]
pub(super) struct Waiting(VecDeque<Entry>);

impl Waiting {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of the last one.
    pub(super) fn last(&self) -> Option<EdgeNumber> {
        self.0.back().map(|entry| entry.edge.number)
    }

    /// Appends an entry, if there is room.
    pub(super) fn push(&mut self, edge: Edge, sum: u64, held: bool) {
        if self.0.len() < WAITING_MAX {
            self.0.push_back(Entry { edge, sum, held, asked: false });
        }
    }

    /// An entry of that number has come again. Its payload may be here by now. Returns whether it waits here.
    pub(super) fn hear_again(&mut self, number: EdgeNumber, held: bool) -> bool {
        let entry = self.0.iter_mut().find(|entry| entry.edge.number == number);
        entry.map(|entry| entry.held |= held).is_some()
    }

    /// The payload of the message is here. Our parent sends what it is asked for in turn, so earlier ones that are not here
    /// were lost, and are to be asked for again.
    pub(super) fn arrives(&mut self, message: MessageId) {
        let of_it = |entry: &Entry| entry.edge.content.message() == Some(message);
        let Some(last) = self.0.iter().rposition(of_it) else { return };
        for entry in self.0.range_mut(..=last) {
            entry.held |= of_it(entry);
            entry.asked = false;
        }
    }

    /// The payload of the message is here, and was not fetched: what was asked for before it may be yet to come.
    pub(super) fn hold(&mut self, message: MessageId) {
        let of_it = |entry: &&mut Entry| entry.edge.content.message() == Some(message);
        self.0.iter_mut().filter(of_it).for_each(|entry| entry.held = true);
    }

    /// The payload of the first one is not here after all. It is to be asked for, and those of the next ones with it that
    /// are not `here` either. What was asked for before is on its way: else a session could have its payload fetched as
    /// often as it sends a hint and lets it go.
    pub(super) fn lose(&mut self, here: impl Fn(MessageId) -> bool) {
        for entry in self.0.iter_mut().take(ASKED_MAX).filter(|entry| entry.held) {
            if let Content::Message { message, outside: 1.., .. } = entry.edge.content
                && !here(message)
            {
                entry.held = false;
                entry.asked &= !planted(Mutant::LostHintAskedAgain);
            }
        }
    }

    /// The first one, and the checksum of its payload, if that is outside the log.
    pub(super) fn first(&self) -> Option<(&Edge, u64)> {
        self.0.front().map(|first| (&first.edge, first.sum))
    }

    /// The payload of the first one is to be asked for again.
    pub(super) fn ask_again(&mut self) {
        self.0.front_mut().into_iter().for_each(|first| first.asked = false);
    }

    /// The messages whose payloads are to be asked for now.
    pub(super) fn ask(&mut self) -> impl Iterator<Item = MessageId> + '_ {
        self.0.iter_mut().take(ASKED_MAX).filter_map(|entry| {
            let asks = !entry.held && !mem::replace(&mut entry.asked, true);
            entry.edge.content.message().filter(|_| asks)
        })
    }

    /// Destinations and checksum of the payload with which an entry about the message waits here, or for which it does;
    /// of several, of one that is not here. `None` if there is none outside an entry.
    pub(super) fn awaits(&self, message: MessageId) -> Option<(GroupSet, u64)> {
        let of_it = |entry: &Entry| match entry.edge.content {
            Content::Message { message: it, destinations, outside: 1.., .. } if it == message => {
                Some((entry.held, (destinations, entry.sum)))
            }
            _ => None,
        };
        let (_, payload) = self.0.iter().filter_map(of_it).min_by_key(|(held, _)| *held)?;
        Some(payload)
    }

    /// Whether an entry with the message waits.
    pub(super) fn has(&self, message: MessageId) -> bool {
        self.0.iter().any(|entry| entry.edge.content.message() == Some(message))
    }

    /// Whether the payload of the first one is here.
    pub(super) fn is_ready(&self) -> bool {
        self.0.front().is_some_and(|entry| entry.held)
    }

    /// Takes the first one, if its payload is here.
    pub(super) fn pop_held(&mut self) -> Option<Edge> {
        self.0.pop_front_if(|entry| entry.held).map(|entry| entry.edge)
    }
}

#[cfg(test)]
mod tests;
