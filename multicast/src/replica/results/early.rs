//! Results that our machine has received and that our log may lack.
//!
//! A leader's machine receives results before their entries are committed, and keeps them when a loss of power has the
//! entries cut off. The other replicas' machines then still wait for them. So our log must have such a result once more,
//! whoever leads: other groups tell it again until all of us have applied its message.

use std::collections::VecDeque;

use hashbrown::HashMap;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};

/// Results that our machine has received from entries that were not committed.
///
/// **Invariant.** Indices of `uncommitted` never fall from front to back. An entry that is cut off takes its results from
/// there to `cut`, where they are until our machine passes over them in another entry.
#[derive(Default)]
pub(super) struct EarlyResults {
    uncommitted: VecDeque<(u64, MessageId, GroupId)>,
    cut: HashMap<MessageId, GroupSet>,
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
        Self { uncommitted: VecDeque::new(), cut }
    }
}
