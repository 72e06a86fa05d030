//! Payloads that are not in the log: which followers may lack one, and which entry waits for one.
//!
//! **Invariants.** `kept` rises in index. It is in log order, so the payload of a delivered message may be kept behind
//! one that is not delivered. A follower is [stalled](Payloads::stalled_on) on at most one message, and reads no entry
//! behind it.

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

/// A logged message whose payload is not here. To accept it would acknowledge bytes that no replica may hold.
pub(super) struct Stalled<R> {
    message: MessageId,
    /// Time from which the payload is to be requested.
    ask_from_ms: u64,
    entry: Uncommitted<R>,
    last: bool,
}

/// State of the payloads outside the log.
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
    /// As leader: keeps the payload of an entry until all followers for which the log waits have it.
    pub(crate) fn keep(&mut self, index: u64, message: MessageId) {
        self.kept.push_back(Large { index, message, delivered: false });
    }

    /// As new leader: keeps the payloads of all undelivered entries, in log order.
    pub(crate) fn rebuild(&mut self, rising: impl IntoIterator<Item = Large>) {
        self.kept.extend(rising);
    }

    /// Records a delivery. Returns whether the message's payload is kept.
    #[inline]
    pub(crate) fn note_delivered(&mut self, message: MessageId) -> bool {
        let large = self.kept.iter_mut().find(|large| large.message == message);
        large.map(|large| large.delivered = true).is_some()
    }

    /// The entry at this index is not delivered here, and counts as if it were.
    pub(crate) fn note_not_delivered(&mut self, index: u64) {
        if let Some(large) = self.kept.iter_mut().find(|large| large.index == index) {
            large.delivered = true;
        }
    }

    /// Whether the message's payload is kept, delivered or not.
    pub(crate) fn keeps(&self, message: MessageId) -> bool {
        self.kept.iter().any(|large| large.message == message)
    }

    /// Drops all, and returns their messages.
    pub(crate) fn forget(&mut self) -> impl Iterator<Item = MessageId> {
        self.kept.drain(..).map(|large| large.message)
    }

    /// Stalls on an entry that waits for its payload, which is to be requested from `ask_from_ms` on. `last` says whether this
    /// is the entry's last record.
    pub(crate) fn stall(
        &mut self,
        message: MessageId,
        ask_from_ms: u64,
        entry: Uncommitted<R>,
        last: bool,
    ) {
        self.stalled = Some(Stalled { message, ask_from_ms, entry, last });
    }

    /// The payload has arrived: returns the entry that waited for it, if there is one.
    pub(crate) fn unstall(&mut self, message: MessageId) -> Option<(Uncommitted<R>, bool)> {
        let stalled = self.stalled.take_if(|stalled| stalled.message == message)?;
        Some((stalled.entry, stalled.last))
    }

    /// The message for whose payload the log waits.
    pub(crate) fn stalled_on(&self) -> Option<MessageId> {
        self.stalled.as_ref().map(|stalled| stalled.message)
    }

    /// The message whose payload is to be requested now, and once more after `timeout_ms` if it does not come.
    pub(crate) fn ask_for_stalled(&mut self, now_ms: u64, timeout_ms: u64) -> Option<MessageId> {
        let stalled = self.stalled.as_mut().filter(|it| now_ms >= it.ask_from_ms)?;
        stalled.ask_from_ms = now_ms + timeout_ms;
        Some(stalled.message)
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// As leader: drops payloads of delivered messages that every follower for which the log waits has accepted. A
    /// follower for which the log does not wait may lack such a payload for ever: completed writes to it do not count
    /// until its word covers the entry. It calls `gone` with the message of each dropped payload, which no other entry
    /// needs.
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
            self.payloads.kept.pop_front();
            if !self.payloads.keeps(message) {
                gone(message);
            }
        }
    }

    /// The logged message whose payload is missing here. No further entry of the log may be reported until it is
    /// received.
    pub fn stalled_on(&self) -> Option<MessageId> {
        self.payloads.stalled_on()
    }

    /// Whether the message's payload is kept although it may be delivered, because a follower may request it. An effect
    /// says when to drop it.
    pub fn keeps(&self, message: MessageId) -> bool {
        self.payloads.keeps(message)
    }

    /// Whether we keep payloads that are not in the log, as leader or since we led.
    pub fn keeps_payloads(&self) -> bool {
        !self.payloads.kept.is_empty()
    }

    /// Whether the oldest kept payload is of a delivered message: a follower for which the log waits lacks it. The
    /// payloads behind it are dropped after it.
    pub fn keeps_delivered(&self) -> bool {
        let kept = &self.payloads.kept;
        let later = planted(Mutant::RelaysRefusedForLater);
        kept.iter().take(if later { kept.len() } else { 1 }).any(|large| large.delivered)
    }

    /// Number of kept payloads of delivered messages that were logged before we led. A follower for which the log waits
    /// may lack them. No budget has admitted them.
    pub(crate) fn inherited_payloads(&self) -> usize {
        let first = self.entries.first;
        let inherited = |large: &&Large| large.delivered && large.index < first;
        self.payloads.kept.iter().filter(inherited).count()
    }

    /// Whether the oldest payload that we keep outside the log is of a delivered message and is kept for that slot.
    pub(super) fn keeps_payload_for(&self, slot: u8) -> bool {
        let oldest = self.payloads.kept.front().filter(|large| large.delivered);
        oldest.is_some_and(|large| self.accepted(slot) < large.index)
    }
}
