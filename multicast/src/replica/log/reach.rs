//! How far back our memory holds our log, and how far back a leader writes it to others.
//!
//! A state stands for the log in front of it. A voting replica that lags may need that log all the same, and
//! may have applied more than the state: then only a log brings it up to date, and the log must be in the
//! memory of every replica that may lead. So a leader also writes that log to replicas that received a state.

use skein_fabric::Fabric;
use skein_protocol::group::frame::{self, Cursor, Frame};

use super::memory::{LogMemory, announced};

impl LogMemory {
    /// Position from which on our memory holds our log: an earlier part was replaced by a state, or is
    /// overwritten. What a later leader writes in front of this position counts only if all of it is there.
    ///
    /// **Invariant.** `begun_at` <= the committed end <= where any later leader begins to write. Such a
    /// leader may have begun already, and have overwritten what we have read and not seen committed.
    pub(in crate::replica) fn held_from<F: Fabric>(&mut self, fabric: &F) -> u64 {
        let (found, committed) = (self.found_from(fabric), self.commit_end());
        let earlier = if found.position <= committed.position { found } else { committed };
        (self.begun_at, self.filled_from) = (earlier, None);
        found.position
    }

    /// Where our log begins in our memory. A leader that is gone may have written more than was kept, over
    /// what stood there a lap before.
    pub(crate) fn found_from<F: Fabric>(&self, fabric: &F) -> Cursor {
        let begin = self.filled(fabric).unwrap_or(self.begun_at);
        let (end, first) = (self.runs.end(), begin.position.max(self.overwritten_to()));
        self.first_entry(first, end.position, fabric).unwrap_or(end)
    }

    /// Position up to which our log in memory may be overwritten.
    fn overwritten_to(&self) -> u64 {
        self.runs.end().position.saturating_sub(self.space.capacity())
    }

    /// Where our log begins in our memory, if the leader has written the part in front of a state, and all of
    /// it is there.
    pub(super) fn filled<F: Fabric>(&self, fabric: &F) -> Option<Cursor> {
        // The first entry may be cut off in the middle, since later ones went round the ring.
        let first = self.filled_from?.max(self.overwritten_to());
        let begin = self.first_entry(first, self.begun_at.position, fabric)?;
        let (mut at, mut bytes) = (begin, Vec::new());
        while at.position < self.begun_at.position {
            self.copy_entry(&mut at, &mut bytes, fabric).then_some(())?;
            let entry = Frame::parse(&bytes, at).filter(|it| self.holds(it, at.index))?;
            entry.step_over(&mut at, announced(&bytes));
        }
        (self.place(at) == self.place(self.begun_at)).then_some(begin)
    }

    /// The place of an entry that follows `end`: the ring's last bytes may be too few for it.
    pub(in crate::replica) fn place(&self, mut end: Cursor) -> Cursor {
        end.offset(self.space.capacity());
        end
    }

    /// The first entry of our log that our memory holds between two positions.
    pub(in crate::replica) fn first_entry<F: Fabric>(
        &self,
        from: u64,
        to: u64,
        fabric: &F,
    ) -> Option<Cursor> {
        let capacity = self.space.capacity();
        // Most positions are within an entry.
        let begins = |it: &Cursor| {
            let mut at = *it;
            fabric.load(self.region, at.offset(capacity) + frame::POSITION_AT) == it.position
        };
        let places = (from..to).step_by(8).map(|position| self.found_at(position, fabric));
        places.filter(begins).find(|it| {
            let bytes = self.raw_entry(&mut it.clone(), fabric);
            let entry = bytes.as_ref().and_then(|bytes| Frame::parse(bytes, *it));
            entry.is_some_and(|entry| self.holds(&entry, it.index))
        })
    }

    /// The cursor of the entry at a position, if one begins there.
    fn found_at<F: Fabric>(&self, position: u64, fabric: &F) -> Cursor {
        let offset = Cursor { index: 0, position }.offset(self.space.capacity());
        Cursor { index: fabric.load(self.region, offset + frame::INDEX_AT), position }
    }
}
