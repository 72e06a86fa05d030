//! What only a follower does: accept, and say so.

use alloc::vec::Vec;

use super::Ramcast;
use crate::ballot::Acceptance;
use crate::ids::{GroupSet, MessageId};
use crate::step::{Effect, Record};

/// A logged message whose payload is not here: accepting it would vouch for bytes nobody may have.
pub(super) struct Stalled {
    pub(super) message: MessageId,
    /// When it stalled, or when we last asked for it.
    pub(super) since_ms: u64,
    time_ms: u64,
    record: Record,
    last: bool,
}

impl Ramcast {
    /// Task 3: takes the next record of the log.
    pub(super) fn accept(&mut self, time_ms: u64, record: Record, held: bool, last: bool) {
        assert!(self.stalled.is_none(), "the log waits for a payload");
        match record {
            Record::NewBallot => self.new_ballot_index = self.last + 1,
            Record::Local { message, inline: false, .. } if !held => {
                self.paths.stalled += 1;
                let since_ms = self.now_ms;
                self.stalled = Some(Stalled { message, since_ms, time_ms, record, last });
                return;
            }
            Record::Local { message, low_water, timestamp, destinations, .. } => {
                self.clock = self.clock.max(timestamp.clock());
                self.known.insert(message, low_water);
                let index = self.last + 1;
                self.order.local(message, low_water, timestamp, destinations, index, time_ms);
                self.owed = destinations.iter().fold(self.owed, GroupSet::with);
            }
            Record::Remote(remote) => {
                self.clock = self.clock.max(remote.timestamp.clock());
                self.order.remote(remote, self.last + 1);
            }
            Record::Exchange => {}
        }
        if last {
            self.last += 1;
            self.owed = self.owed.with(self.group());
        }
    }

    /// The payload of `message` is here.
    pub(super) fn unstall(&mut self, message: MessageId) {
        if let Some(stalled) = self.stalled.take_if(|stalled| stalled.message == message) {
            self.accept(stalled.time_ms, stalled.record, true, stalled.last);
        }
    }

    /// One word covers everything accepted in this turn. It goes to our own group, and to the
    /// groups with which we share one of its messages: nobody else hears of it.
    pub(super) fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        let groups = core::mem::take(&mut self.owed);
        if !groups.is_empty() {
            let acceptance = Acceptance { tag: self.ballot().tag(), index: self.last };
            effects.push(Effect::Acknowledge { groups, acceptance });
        }
    }
}
