//! Payloads that are not in the log: who may lack one, and who waits for one.
//!
//! **Invariants.** `kept` rises in index. It is in log order, so a payload that is delivered may be kept behind one that is
//! not. A follower is [stalled](Payloads::stalled_on) on one message at most, and reads nothing behind it.

use alloc::collections::VecDeque;

use super::GroupLog;
use super::record::LogRecord;
use super::uncommitted::Uncommitted;
use crate::ids::MessageId;
use crate::mutants::{Mutant, planted};

/// An entry whose payload is not in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Large {
    pub(crate) index: u64,
    pub(crate) message: MessageId,
    pub(crate) delivered: bool,
}

/// A logged message whose payload is not here: accepting it would vouch for bytes nobody may have.
pub(super) struct Stalled<R> {
    message: MessageId,
    /// When it stalled, or when we last asked for it.
    since_ms: u64,
    entry: Uncommitted<R>,
    last: bool,
}

/// What is known of payloads outside the log.
pub(crate) struct Payloads<R> {
    /// As leader: entries whose payload some follower may not hold yet.
    pub(super) kept: VecDeque<Large>,
    /// As follower: the entry that waits for its payload.
    pub(super) stalled: Option<Stalled<R>>,
}

impl<R> Default for Payloads<R> {
    fn default() -> Self {
        Self { kept: VecDeque::new(), stalled: None }
    }
}

impl<R: Copy> Payloads<R> {
    /// As leader: the payload of an entry is kept until everybody has it.
    pub(crate) fn keep(&mut self, index: u64, message: MessageId) {
        self.kept.push_back(Large { index, message, delivered: false });
    }

    /// As new leader: those of all that is not delivered, in log order.
    pub(crate) fn rebuild(&mut self, rising: impl IntoIterator<Item = Large>) {
        self.kept.extend(rising);
    }

    /// A message is delivered. Returns whether its payload is kept.
    #[inline]
    pub(crate) fn note_delivered(&mut self, message: MessageId) -> bool {
        let large = self.kept.iter_mut().find(|large| large.message == message);
        large.map(|large| large.delivered = true).is_some()
    }

    /// Whether the message's payload is kept, though it may be delivered.
    pub(crate) fn keeps(&self, message: MessageId) -> bool {
        self.kept.iter().any(|large| large.message == message)
    }

    /// Lets go of all.
    pub(crate) fn forget(&mut self) -> impl Iterator<Item = MessageId> {
        self.kept.drain(..).map(|large| large.message)
    }

    /// An entry waits for its payload; `last` says that it is its entry's last record.
    pub(crate) fn stall(
        &mut self,
        message: MessageId,
        since_ms: u64,
        entry: Uncommitted<R>,
        last: bool,
    ) {
        self.stalled = Some(Stalled { message, since_ms, entry, last });
    }

    /// The payload is here: the entry that waited for it, if one did.
    pub(crate) fn unstall(&mut self, message: MessageId) -> Option<(Uncommitted<R>, bool)> {
        let stalled = self.stalled.take_if(|stalled| stalled.message == message)?;
        Some((stalled.entry, stalled.last))
    }

    /// The message for whose payload the log waits.
    pub(crate) fn stalled_on(&self) -> Option<MessageId> {
        self.stalled.as_ref().map(|stalled| stalled.message)
    }

    /// The message to ask for, if it was not asked for since `timeout_ms`: it is now.
    pub(crate) fn ask_for_stalled(&mut self, now_ms: u64, timeout_ms: u64) -> Option<MessageId> {
        let stalled = self.stalled.as_mut().filter(|it| now_ms >= it.since_ms + timeout_ms)?;
        stalled.since_ms = now_ms;
        Some(stalled.message)
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: payloads are kept, past delivery, until every follower that the log waits for has its own. Completed
    /// writes to one that it does not wait for, and that may lack this payload for ever, count no more until its word
    /// covers the entry. `gone` is told whose payload is let go of.
    pub(crate) fn release(&mut self, mut gone: impl FnMut(MessageId)) {
        while let Some(&Large { index, message, delivered }) = self.payloads.kept.front() {
            let lacking = |slot: &u8| self.accepted(*slot) < index;
            let waited_for =
                |slot: &u8| !self.members.view.member(*slot).evicted || self.is_changing(*slot);
            if !delivered || self.others().filter(waited_for).any(|slot| lacking(&slot)) {
                break;
            }
            let left: u16 = self.others().filter(lacking).fold(0, |set, slot| set | 1 << slot);
            if !planted(Mutant::CompletionBehindLostPayload) {
                self.lets_go_for(left, index);
            }
            gone(message);
            self.payloads.kept.pop_front();
        }
    }

    /// The logged message whose payload is missing here: nothing more of the log may be told until
    /// it is received.
    pub fn stalled_on(&self) -> Option<MessageId> {
        self.payloads.stalled_on()
    }

    /// Whether the message's payload is kept though it is delivered, until an effect says to forget it: a
    /// follower may ask for it.
    pub fn keeps(&self, message: MessageId) -> bool {
        self.payloads.keeps(message)
    }

    /// Whether we keep payloads that are not in the log, as leader or since we were.
    pub fn keeps_payloads(&self) -> bool {
        !self.payloads.kept.is_empty()
    }

    /// Whether the oldest payload that is kept is of a delivered message: a follower that the log waits for lacks it. Those
    /// behind it go when it has gone.
    pub fn keeps_delivered(&self) -> bool {
        let kept = &self.payloads.kept;
        let later = planted(Mutant::RelaysRefusedForLater);
        kept.iter().take(if later { kept.len() } else { 1 }).any(|large| large.delivered)
    }

    /// How many payloads are kept of messages that were logged before we led, and are delivered: a follower that the
    /// log waits for may lack them. No budget has admitted these.
    pub(crate) fn inherited_payloads(&self) -> usize {
        let first = self.entries.first;
        let inherited = |large: &&Large| large.delivered && large.index < first;
        self.payloads.kept.iter().filter(inherited).count()
    }

    /// Whether we keep the oldest payload that is not in the log, and was delivered, for that slot.
    pub(super) fn keeps_payload_for(&self, slot: u8) -> bool {
        let oldest = self.payloads.kept.front().filter(|large| large.delivered);
        oldest.is_some_and(|large| self.accepted(slot) < large.index)
    }
}
