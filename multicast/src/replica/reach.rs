//! How far back our memory holds our log, and how far back a leader writes it to others.
//!
//! A state stands for the log in front of it. A replica that counts and lags may need that log all the same, and
//! may have applied more than the state: then only a log brings it up to date, and it must be in the memory of
//! whoever may lead. So a leader writes it to those that were given a state, too.

use skein_fabric::Fabric;
use skein_protocol::log::{self, Cursor, Entry};
use skein_protocol::mutants::{Mutant, planted};

use super::Replica;
use super::election::announced;
use crate::application::Application;
use crate::election::Granted;

impl<A: Application> Replica<A> {
    /// From which position on our memory holds our log: an earlier part was given away with a state, or is
    /// overwritten.
    pub(super) fn held_from<F: Fabric>(&mut self, fabric: &F) -> u64 {
        if let Some(begin) = self.filled(fabric) {
            (self.begun_at, self.filled_from) = (begin, None);
        }
        self.reach(fabric)
    }

    /// Where our log begins in our memory, as far as we have looked.
    pub(crate) const fn begun_at(&self) -> u64 {
        self.begun_at.position
    }

    /// From which position on our memory holds our log, whether we have looked or not.
    pub(crate) fn reach<F: Fabric>(&self, fabric: &F) -> u64 {
        let begin = self.filled(fabric).unwrap_or(self.begun_at);
        begin.position.max(self.overwritten_to())
    }

    /// Up to which position what our memory held of our log may be overwritten.
    fn overwritten_to(&self) -> u64 {
        self.runs.end().position.saturating_sub(self.space.capacity())
    }

    /// Where our log begins in our memory, if the leader has written what stood in front of a state, and all of
    /// that is there.
    fn filled<F: Fabric>(&self, fabric: &F) -> Option<Cursor> {
        // The first of them may be cut off in the middle: what is behind it went round the ring.
        let first = self.filled_from?.max(self.overwritten_to());
        let positions = (first..self.begun_at.position).step_by(8);
        let begin = positions.map(|position| self.found_at(position, fabric)).find(|it| {
            let bytes = self.raw_entry(&mut it.clone(), fabric);
            bytes.is_some_and(|bytes| Entry::parse(&bytes, *it).is_some())
        })?;
        let mut at = begin;
        while at.position < self.begun_at.position {
            let bytes = self.raw_entry(&mut at, fabric)?;
            let entry = Entry::parse(&bytes, at).filter(|it| self.is_of_our_log(it, at.index))?;
            at.pass(announced(&bytes), entry.body);
        }
        (at == self.begun_at).then_some(begin)
    }

    /// The entry that stands at a position, if one does.
    fn found_at<F: Fabric>(&self, position: u64, fabric: &F) -> Cursor {
        let offset = Cursor { index: 0, position }.offset(self.space.capacity());
        Cursor { index: fabric.load(self.log, offset + log::INDEX_AT), position }
    }

    /// As leader: from which position on we write a log that its replica has opened to us, if that is in front of
    /// where it goes on. **Invariant.** Of what a replica still needs that counts, every log that counts has
    /// all that is committed, in memory: else, once the others are gone, a leader that was given a state can bring
    /// nobody up to date who has applied more than that state, and must not give it away either.
    pub(super) fn written_from<F: Fabric>(
        &mut self,
        slot: u8,
        granted: &Granted,
        fabric: &F,
    ) -> u64 {
        let counts = |it: &u8| *it != slot && !self.core.view().member(*it).evicted;
        let needed = self.waited_for().filter(counts).map(|it| {
            let follower = &self.followers[usize::from(it)];
            // One that has not let us in may need all that we have.
            if follower.log.is_some() { follower.freed } else { 0 }
        });
        let needed = needed.fold(self.freed, u64::min);
        if needed >= granted.held_from || planted(Mutant::LogBeforeStateNotWritten) {
            return u64::MAX;
        }
        needed.max(self.held_from(fabric))
    }
}
