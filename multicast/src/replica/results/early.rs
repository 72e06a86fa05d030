//! Results that our machine has received and that our log may lack.
//!
//! A leader's machine receives results before their entries are committed, and keeps them when a loss of power has the
//! entries cut off. The other replicas' machines then still wait for them. So our log must have such a result once more,
//! whoever leads: a leader asks its group for it, which keeps it until all of us have applied its message.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_protocol::backoff::longer;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};

use super::ASKED_PER_TICK;

/// Results that our machine has received from entries that were not committed.
///
/// **Invariant.** Indices of `uncommitted` never fall from front to back. An entry that is cut off takes its results from
/// there to `cut`, where they are until our machine passes over them in another entry.
#[derive(Default)]
pub(super) struct EarlyResults {
    uncommitted: VecDeque<(u64, MessageId, GroupId)>,
    cut: HashMap<MessageId, GroupSet>,
    /// When a leader last asked for those in `cut`, and how often it has.
    asked: (u64, u32),
    /// The last message about which it asked. The next question begins behind it: what all of us have applied meanwhile
    /// stays in `cut`, and must not stand in front of the others for ever.
    asked_last: Option<MessageId>,
}

impl EarlyResults {
    /// Our machine has received a result, now or before, which stands in entry `index`. The log is committed up to
    /// `commit`.
    pub(super) fn note(&mut self, index: u64, message: MessageId, from: GroupId, commit: u64) {
        if !self.cut.is_empty()
            && let Some(groups) = self.cut.get_mut(&message)
        {
            *groups = groups.without(from);
            if groups.is_empty() {
                self.cut.remove(&message);
            }
        }
        while self.uncommitted.pop_front_if(|(at, ..)| *at <= commit).is_some() {}
        if index > commit {
            self.uncommitted.push_back((index, message, from));
        }
    }

    /// The log is cut off from entry `index` on.
    pub(super) fn truncate(&mut self, index: u64) {
        while let Some((_, message, from)) = self.uncommitted.pop_back_if(|(at, ..)| *at >= index) {
            if !planted(Mutant::CutResultForgotten) {
                self.cut.entry(message).or_default().insert(from);
            }
        }
    }

    /// As leader: some of the messages about which our log lacks results, with the groups to ask, if it is time to ask.
    pub(super) fn asks(&mut self, now_ms: u64, timeout_ms: u64) -> Vec<(MessageId, GroupSet)> {
        let (at, count) = self.asked;
        if self.cut.is_empty() || now_ms < at + longer(timeout_ms, count) {
            return Vec::new();
        }
        self.asked = (now_ms, count + 1);
        let mut all: Vec<_> = self.cut.iter().map(|(message, of)| (*message, *of)).collect();
        all.sort_unstable_by_key(|(message, _)| (Some(*message) <= self.asked_last, *message));
        all.truncate(ASKED_PER_TICK);
        self.asked_last = all.last().map(|(message, _)| *message);
        all
    }

    /// As new leader: asks without the delay that earlier questions have led to.
    pub(super) fn ask_soon(&mut self) {
        self.asked = (0, 0);
    }

    /// Whether our machine has this result, and our log lacks it.
    pub(super) fn is_cut(&self, message: MessageId, from: GroupId) -> bool {
        !self.cut.is_empty() && self.cut.get(&message).is_some_and(|groups| groups.contains(from))
    }

    /// The results that the log up to its commit index may lack: name, group.
    pub(super) fn save(&self) -> Vec<(u64, u64, u16)> {
        let cut = self.cut.iter().flat_map(|(message, of)| of.iter().map(|from| (*message, from)));
        let uncommitted = self.uncommitted.iter().map(|(_, message, from)| (*message, *from));
        let all = cut.chain(uncommitted);
        let mut all: Vec<_> = all.map(|(m, from)| (m.session.0, m.sequence, from.0)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Begins with what was saved.
    pub(super) fn restored(saved: Vec<(u64, u64, u16)>) -> Self {
        let mut cut = HashMap::<_, GroupSet>::new();
        for (session, sequence, from) in saved {
            let message = MessageId::new(SessionId(session), sequence);
            cut.entry(message).or_default().insert(GroupId(from));
        }
        Self { cut, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_result_that_is_lacking_is_asked_for_in_turn_and_ever_less_often() {
        let count = 2 * ASKED_PER_TICK as u64 + 1;
        let saved = (0..count).map(|number| (7, number, 1)).collect();
        let mut early = EarlyResults::restored(saved);
        let mut asked = Vec::new();
        for now_ms in [20, 60, 140] {
            assert!(early.asks(now_ms - 1, 20).is_empty(), "at {now_ms}");
            let some = early.asks(now_ms, 20).into_iter();
            asked.extend(some.map(|(message, _)| message.sequence));
        }
        let again = asked.split_off(count as usize);
        assert_eq!(asked, (0..count).collect::<Vec<_>>());
        assert_eq!(again, (0..ASKED_PER_TICK as u64 - 1).collect::<Vec<_>>());
        early.ask_soon();
        assert!(!early.asks(141, 20).is_empty());
    }
}
