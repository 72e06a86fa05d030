//! What a replica's log of points leads to, as it is written and as the disk holds it.

use std::collections::VecDeque;

/// The points that a log leads to: all that the group executed between the two.
type Range = (u64, u64);

/// A copy of the whole state that has ended.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// Position of its beginning.
    begins: u64,
    /// The point at which it ended.
    whole_at: u64,
}

/// Bookkeeping of a log of points. Positions are those of its records, and rise.
#[derive(Debug, Default)]
pub struct Progress {
    /// Position of the beginning of the copy under way.
    copying: Option<u64>,
    /// What the written records lead to; `None` while what was written last leads to nothing yet.
    written: Option<Range>,
    /// The newest copy that has ended, unless everything in front of it was dropped.
    newest: Option<Copy>,
    /// Ends on their way to the disk: their positions, and what the log leads to with them.
    under_way: VecDeque<(u64, Range)>,
    held: Option<Range>,
    /// Bytes since the beginning of the newest copy.
    bytes: u64,
    /// Bytes of keys and values at the last end.
    state: u64,
}

impl Progress {
    /// A copy begins with the record at `position`. If it begins `anew`, what is in front does not lead to what follows.
    pub fn begins(&mut self, position: u64, anew: bool) {
        self.copying = Some(position);
        self.bytes = 0;
        if anew {
            self.written = None;
        }
    }

    /// So many bytes are written.
    pub fn wrote(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Point `number` ends with the record at `position`, in a state of `bytes` bytes. The copy under way may have ended,
    /// which makes the log `whole`.
    pub fn ends(&mut self, position: u64, number: u64, whole: bool, bytes: u64) {
        self.state = bytes;
        if let Some(begins) = self.copying.take_if(|_| whole) {
            self.newest = Some(Copy { begins, whole_at: number });
            self.written.get_or_insert((number, number));
        }
        if let Some((_, to)) = &mut self.written {
            *to = number;
            self.under_way.extend(self.written.map(|range| (position, range)));
        }
    }

    /// Everything up to `position` is on disk.
    pub fn reached(&mut self, position: u64) {
        while let Some((_, range)) = self.under_way.pop_front_if(|(at, _)| *at <= position) {
            self.held = Some(range);
        }
    }

    /// The points that the disk leads to.
    pub const fn held(&self) -> Option<Range> {
        self.held
    }

    /// Every group has point `floor` on the disks of f+1 replicas. Returns the position in front of which nothing is
    /// needed any more, if there is something to drop.
    pub fn drops(&mut self, floor: u64) -> Option<u64> {
        let (_, to) = self.held?;
        let droppable = |copy: &mut Copy| copy.whole_at <= floor.min(to);
        let Copy { begins, whole_at } = self.newest.take_if(droppable)?;
        let ranges = self.under_way.iter_mut().map(|(_, range)| range);
        for (from, _) in ranges.chain(&mut self.written).chain(&mut self.held) {
            *from = whole_at.max(*from);
        }
        Some(begins)
    }

    /// Whether the log has become so long that another copy should begin: longer than twice the state, and than `least`.
    pub fn is_copy_due(&self, least: u64) -> bool {
        let idle = self.copying.is_none() && self.newest.is_none();
        idle && self.bytes > least.max(2 * self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_leads_to_points_from_its_first_whole_copy_on() {
        let mut log = Progress::default();
        log.begins(1, true);
        log.ends(2, 10, false, 0);
        log.ends(3, 20, true, 0);
        log.ends(4, 30, true, 0);
        log.reached(3);
        assert_eq!(log.held(), Some((20, 20)));
        log.reached(4);
        assert_eq!(log.held(), Some((20, 30)));
        assert_eq!(log.drops(19), None, "an older point may be needed");
        assert_eq!(log.drops(20), Some(1));
        assert_eq!(log.drops(30), None, "once");
    }

    #[test]
    fn an_older_copy_goes_when_a_newer_one_is_below_the_floor() {
        let mut log = Progress::default();
        log.begins(1, true);
        log.ends(2, 10, true, 0);
        log.reached(2);
        assert_eq!(log.drops(10), Some(1));
        log.begins(3, false);
        log.ends(4, 20, false, 0);
        log.ends(5, 30, true, 0);
        log.ends(6, 40, true, 0);
        log.reached(5);
        assert_eq!(log.held(), Some((10, 30)), "the older copy and its changes lead there");
        assert_eq!(log.drops(29), None);
        assert_eq!(log.drops(40), Some(3));
        assert_eq!(log.held(), Some((30, 30)));
        log.reached(6);
        assert_eq!(log.held(), Some((30, 40)));
    }

    #[test]
    fn what_is_written_anew_counts_when_it_is_whole_and_until_then_what_was_held() {
        let mut log = Progress::default();
        log.begins(1, true);
        log.ends(2, 10, true, 0);
        log.reached(2);
        log.begins(3, true);
        log.ends(4, 50, false, 0);
        log.reached(4);
        assert_eq!(log.held(), Some((10, 10)));
        log.ends(5, 60, true, 0);
        assert_eq!(log.drops(60), None, "it is not on this disk");
        log.reached(5);
        assert_eq!(log.held(), Some((60, 60)), "nothing leads from 10 to 50");
        assert_eq!(log.drops(60), Some(3));
    }

    #[test]
    fn a_copy_is_due_when_the_log_is_longer_than_twice_the_state() {
        let mut log = Progress::default();
        log.begins(1, true);
        log.ends(2, 10, true, 1_000);
        log.wrote(2_001);
        assert!(!log.is_copy_due(0), "the copy before it is not dropped");
        log.reached(2);
        log.drops(10);
        assert!(log.is_copy_due(0) && !log.is_copy_due(2_001));
        log.begins(3, false);
        log.wrote(9_000);
        assert!(!log.is_copy_due(0), "one is under way");
    }
}
