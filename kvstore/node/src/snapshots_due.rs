//! Which groups' states are to be written to a node's log, so that what is in front of them can go, and how soon.

use skein_cluster::config::{SNAPSHOT_AFTER, held_back_max};
use skein_wal::{Group, Lsn};

/// What the groups of an engine hold back of the log.
#[derive(Debug)]
pub(crate) struct SnapshotsDue {
    /// Groups of the node, of all engines together.
    groups: u64,
    /// Bytes that the log may take on disk, if that is bounded.
    bytes_max: Option<u64>,
    /// The groups of this engine, each with the end of the log at about the time when its state was last written: it
    /// holds back what was written since, by whichever group.
    kept_from: Vec<(Group, Lsn)>,
    /// Groups whose state is to be written, so that segments of earlier starts can go.
    overdue: Vec<Group>,
}

impl SnapshotsDue {
    /// Each of the engine's groups needs the log from its place in `kept_from` on. `crowded` tells whether there are
    /// too many segments of earlier starts.
    pub(crate) fn new(
        groups: u64,
        bytes_max: Option<u64>,
        kept_from: Vec<(Group, Lsn)>,
        crowded: bool,
    ) -> Self {
        let all = || kept_from.iter().map(|(group, _)| *group).collect();
        let overdue = if crowded { all() } else { Vec::new() };
        Self { groups, bytes_max, kept_from, overdue }
    }

    /// Notes that a group needs little of the log, which ends here.
    pub(crate) fn holds_back_nothing(&mut self, group: Group, end: Lsn) {
        self.overdue.retain(|overdue| *overdue != group);
        self.kept_from.iter_mut().filter(|(of, _)| *of == group).for_each(|(_, from)| *from = end);
    }

    /// Bytes of the log, of all groups together, that a group holds back.
    fn held_back(&self, group: Group, end: Lsn) -> u64 {
        let from = self.kept_from.iter().find(|(of, _)| *of == group);
        from.map_or(0, |(_, from)| end.0.saturating_sub(from.0))
    }

    /// Whether the state of a group is to be written, when the log ends here. The group has written `log` bytes of it since
    /// the last time, when its state had `state` bytes.
    pub(crate) fn is_due(&self, group: Group, (log, state): (u64, u64), end: Lsn) -> bool {
        log >= SNAPSHOT_AFTER.max(state)
            || self.overdue.contains(&group)
            || self.held_back(group, end) >= held_back_max(self.groups, state)
    }

    /// Whether it is to be written as fast as the disk takes it: to make room for further starts, since the group holds
    /// back twice what it may, or since the log, of which `needed` bytes are needed, is near its bound.
    pub(crate) fn hurries(&self, group: Group, state: u64, end: Lsn, needed: u64) -> bool {
        let is_near = |most| needed >= most - most / 4;
        self.overdue.contains(&group)
            || self.held_back(group, end) >= 2 * held_back_max(self.groups, state)
            || self.bytes_max.is_some_and(is_near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Group = Group(0);
    const QUIET: Group = Group(1);
    const STATE: u64 = 1 << 30;

    fn two_groups(bytes_max: Option<u64>, crowded: bool) -> SnapshotsDue {
        SnapshotsDue::new(2, bytes_max, vec![(BUSY, Lsn(0)), (QUIET, Lsn(0))], crowded)
    }

    #[test]
    fn a_state_is_due_after_as_much_log_as_it_has_itself_and_not_before_there_is_much() {
        let due = two_groups(None, false);
        let is_due = |log, state| due.is_due(BUSY, (log, state), Lsn(log));
        assert!(!is_due(SNAPSHOT_AFTER - 1, 0) && is_due(SNAPSHOT_AFTER, 0));
        assert!(!is_due(STATE - 1, STATE) && is_due(STATE, STATE));
    }

    #[test]
    fn a_group_that_writes_nothing_holds_back_what_others_write_up_to_a_bound() {
        let mut due = two_groups(None, false);
        let most = held_back_max(2, STATE);
        let is_due = |due: &SnapshotsDue, end| due.is_due(QUIET, (0, STATE), Lsn(end));
        let hurries = |due: &SnapshotsDue, end| due.hurries(QUIET, STATE, Lsn(end), 0);
        assert!(!is_due(&due, most - 1) && is_due(&due, most));
        assert!(!hurries(&due, 2 * most - 1) && hurries(&due, 2 * most));
        due.holds_back_nothing(QUIET, Lsn(2 * most));
        assert!(!is_due(&due, 3 * most - 1) && is_due(&due, 3 * most));
        assert!(!hurries(&due, 3 * most) && hurries(&due, 4 * most));
    }

    #[test]
    fn after_many_starts_each_group_writes_its_state_once_and_at_once() {
        let mut due = two_groups(None, true);
        due.holds_back_nothing(BUSY, Lsn(1));
        let wanted = |group| (due.is_due(group, (0, 0), Lsn(1)), due.hurries(group, 0, Lsn(1), 0));
        assert_eq!([wanted(BUSY), wanted(QUIET)], [(false, false), (true, true)]);
    }

    #[test]
    fn a_log_near_its_bound_is_in_a_hurry() {
        let hurries = |most, needed| two_groups(most, false).hurries(BUSY, STATE, Lsn(0), needed);
        assert!(!hurries(Some(400), 299) && hurries(Some(400), 300));
        assert!(!hurries(None, u64::MAX));
    }
}
