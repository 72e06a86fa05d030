//! How far back our memory holds our log, and how far back a leader writes it to others.
//!
//! A state stands for the log in front of it. A replica that counts and lags may need that log all the same, and
//! may have applied more than the state: then only a log brings it up to date, and it must be in the memory of
//! whoever may lead. So a leader writes it to those that were given a state, too.

use crate::ordering::Links;
use std::ops::Range;

use skein_fabric::Fabric;
use skein_protocol::group::frame::{self, Cursor, Frame};
use skein_protocol::mutants::{Mutant, planted};

use super::Replica;
use super::admission::announced;
use crate::application::Application;
use crate::election::Granted;

impl<A: Application, O: Links> Replica<A, O> {
    /// From which position on our memory holds our log: an earlier part was given away with a state, or is
    /// overwritten. What is written in front of what we found then counts only if all of it is there.
    ///
    /// **Invariant.** `begun_at` ≤ what is committed ≤ where any later leader begins to write: one may have begun,
    /// and what it has written is found in the place of what we have read and not seen committed.
    pub(super) fn held_from<F: Fabric>(&mut self, fabric: &F) -> u64 {
        let (found, committed) = (self.found_from(fabric), self.commit_end());
        let earlier = if found.position <= committed.position { found } else { committed };
        (self.begun_at, self.filled_from) = (earlier, None);
        found.position
    }

    /// Where our log begins in our memory. A leader that is gone may have written more than was kept, over what had
    /// stood there a lap before.
    pub(crate) fn found_from<F: Fabric>(&self, fabric: &F) -> Cursor {
        let begin = self.filled(fabric).unwrap_or(self.begun_at);
        let (end, first) = (self.runs.end(), begin.position.max(self.overwritten_to()));
        self.first_entry(first, end.position, fabric).unwrap_or(end)
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
        let begin = self.first_entry(first, self.begun_at.position, fabric)?;
        let mut at = begin;
        while at.position < self.begun_at.position {
            let bytes = self.raw_entry(&mut at, fabric)?;
            let entry = Frame::parse(&bytes, at).filter(|it| self.is_of_our_log(it, at.index))?;
            entry.step_over(&mut at, announced(&bytes));
        }
        (self.place(at) == self.place(self.begun_at)).then_some(begin)
    }

    /// Where an entry stands that follows what ends at `end`: a ring's last bytes may be too few for it.
    pub(super) fn place(&self, mut end: Cursor) -> Cursor {
        end.offset(self.space.capacity());
        end
    }

    /// The first entry of our log that our memory holds from one position to another.
    fn first_entry<F: Fabric>(&self, from: u64, to: u64, fabric: &F) -> Option<Cursor> {
        let capacity = self.space.capacity();
        // Most of what is looked at lies within an entry.
        let begins = |it: &Cursor| {
            let mut at = *it;
            fabric.load(self.log, at.offset(capacity) + frame::POSITION_AT) == it.position
        };
        let places = (from..to).step_by(8).map(|position| self.found_at(position, fabric));
        places.filter(begins).find(|it| {
            let bytes = self.raw_entry(&mut it.clone(), fabric);
            let entry = bytes.as_ref().and_then(|bytes| Frame::parse(bytes, *it));
            entry.is_some_and(|entry| self.is_of_our_log(&entry, it.index))
        })
    }

    /// The entry that stands at a position, if one does.
    fn found_at<F: Fabric>(&self, position: u64, fabric: &F) -> Cursor {
        let offset = Cursor { index: 0, position }.offset(self.space.capacity());
        Cursor { index: fabric.load(self.log, offset + frame::INDEX_AT), position }
    }

    /// As leader: the part of our log in front of all that a replica's memory holds of it, which we write to it as
    /// well when it lets us write its log from `base` on. **Invariant.** Of what a replica still needs that counts,
    /// every log that counts has all that is committed, in memory: else, once the others are gone, a leader that was
    /// given a state can bring nobody up to date who has applied more than that state, and must not give it away
    /// either.
    ///
    /// What the replica holds itself is never written again: a write that ends halfway would take from it what it has
    /// acknowledged. And we make that part written in our ballot first, since a later follower may need it so: what
    /// is under way must not change, for a card reads it when it sends it.
    pub(super) fn written_before<F: Fabric>(
        &mut self,
        slot: u8,
        granted: &Granted,
        base: Cursor,
        fabric: &mut F,
    ) -> Range<u64> {
        // A learner that is fed counts as soon as its `Join` is committed.
        let others = self.waited_for().filter(|it| *it != slot);
        let needed = others.map(|it| {
            let follower = &self.followers[usize::from(it)];
            // One that has not let us in may need all that we have, though it is sent our state: it may never have it
            // whole.
            if follower.log.is_some() { follower.freed } else { 0 }
        });
        let needed = needed.fold(self.freed, u64::min);
        let nothing = base.position..base.position;
        if needed >= granted.held_from || planted(Mutant::LogBeforeStateNotWritten) {
            return nothing;
        }
        let again = planted(Mutant::HeldLogWritten);
        let to = if again { base.position } else { granted.held_from.min(base.position) };
        let from = needed.max(self.held_from(fabric)).min(to);
        let Some(first) = self.first_entry(from, to, fabric) else { return nothing };
        if self.rewrite_from(first, fabric) { from..to } else { nothing }
    }

    /// Where our memory does not hold our log as we have read it: at no time anywhere, from what is committed on.
    /// What stands in front of `floor` leaders may have overwritten.
    pub(crate) fn lost_at<F: Fabric>(&self, floor: u64, fabric: &F) -> Option<Cursor> {
        let mut at = self.commit_end();
        if floor > at.position {
            at = self.first_entry(floor, self.runs.end().position, fabric)?;
        }
        self.gap_from(at, fabric)
    }

    /// The first entry of our log, from one on, that our memory does not hold as we have read it.
    pub(crate) fn gap_from<F: Fabric>(&self, mut at: Cursor, fabric: &F) -> Option<Cursor> {
        let last = self.keeps(fabric);
        while at.index <= last {
            let bytes = self.raw_entry(&mut at, fabric);
            let entry = bytes.as_ref().and_then(|bytes| Frame::parse(bytes, at));
            match (&bytes, entry.filter(|it| self.is_of_our_log(it, at.index))) {
                (Some(bytes), Some(entry)) => entry.step_over(&mut at, announced(bytes)),
                _ => return Some(at),
            }
        }
        None
    }
}
