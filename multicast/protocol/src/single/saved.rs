//! The state at the commit index, as given to a replica that has none.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Pending, Record, Single};
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::MessageId;
use crate::known::Known;
use crate::ordering::{NotRestored, OrderingProtocol as _};
use crate::view::View;

const VERSION: u8 = 1;

impl Single {
    /// Appends what a replica needs to go on from our commit index.
    pub(super) fn save_state(&mut self, into: &mut Vec<u8>) {
        let mut out = Writer(into);
        out.u8(VERSION);
        // First what tells whether it is of use.
        out.u64(self.log.ballot().to_word());
        let (commit, birth) = (self.log.commit_index(), self.log.commit_birth().to_word());
        out.words([commit, birth, self.log.last_time_ms(), self.base, self.delivered]);
        for member in self.log.view().members() {
            out.u32(member.incarnation);
            out.u8(u8::from(member.evicted));
        }
        out.u64(self.pending.len() as u64);
        for Pending { message, low_water, index, time_ms, inline, .. } in &self.pending {
            out.message(*message);
            out.words([*low_water, *index, *time_ms]);
            out.u8(u8::from(*inline));
        }
        // What stands behind the commit index may be lost, and then it must not be known.
        let uncommitted = self.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Message { message, low_water, .. } => Some((message, low_water)),
            Record::Group(_) => None,
        });
        let uncommitted: Vec<(MessageId, u64)> = uncommitted.collect();
        for (message, _) in &uncommitted {
            self.known.remove(*message);
        }
        self.known.save(&mut out);
        for (message, low_water) in uncommitted {
            self.known.insert(message, low_water);
        }
    }

    /// A replica of our incarnation that goes on from a saved state.
    pub(super) fn with_state(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        let mut from = Reader(saved);
        let ballot = (|| (from.u8()? == VERSION).then(|| from.u64())?.map(Ballot::from_word))();
        let ballot = ballot.ok_or(NotRestored::Malformed)?;
        if ballot.generation() < self.log.promised().generation() {
            return Err(NotRestored::Outdated);
        }
        self.read(ballot, &mut from).ok_or(NotRestored::Malformed)
    }

    fn read(&self, ballot: Ballot, from: &mut Reader<'_>) -> Option<Self> {
        let [commit, birth, time_ms, base, delivered] = from.words()?;
        let replicas = self.config.group.replicas;
        let mut view = View::first(replicas);
        for slot in 0..replicas {
            view.join(slot, from.u32()?);
            if from.u8()? != 0 {
                view.evict(slot);
            }
        }
        let mut pending = VecDeque::new();
        for _ in 0..from.u64()? {
            let message = from.message()?;
            let [low_water, index, time_ms] = from.words()?;
            let (since_ms, inline) = (self.log.now_ms(), from.u8()? != 0);
            pending.push_back(Pending { message, low_water, index, time_ms, since_ms, inline });
        }
        let known = Known::restore(from)?;
        if !from.0.is_empty() {
            return None;
        }
        let mut log = self.log.blank();
        log.restore(commit, Ballot::from_word(birth), time_ms, view.clone(), ballot);
        Some(Self { log, known, pending, delivered, base, ..Self::new(self.config, view) })
    }
}
