//! When the state of a group is due: it is written to its node's log so that the log in front of it can go.
//!
//! Replicas take turns. The first snapshot of each is due after another part of the log, and all later ones after as much
//! log as each other's. So few of them are written at a time, and a majority of each group seldom waits for any.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skein_cluster::config::{SEGMENT_BYTES, SNAPSHOT_AFTER, held_back_for};
use skein_wal::{Group, Lsn};

/// Bytes that a bounded log may take besides those that are needed: segments that are made ahead, and one that starts keep.
const BESIDE_NEEDED: u64 = 4 * SEGMENT_BYTES;
/// A log near its bound has states written after so much less of a group's log.
const SOONER_NEAR_BOUND: u64 = 4;

/// Groups of a node, of all engines together, and how much log each of them may hold back.
#[derive(Debug)]
pub(crate) struct HeldBackMax {
    groups: u64,
    /// The sum of what all groups' states [are worth](held_back_for).
    bytes: AtomicU64,
}

impl HeldBackMax {
    /// Before anything is known of the groups' states.
    pub(crate) const fn of(groups: u64) -> Self {
        Self { groups, bytes: AtomicU64::new(groups * held_back_for(0)) }
    }

    /// A group's state has another size.
    fn changed(&self, before: u64, now: u64) {
        let more = held_back_for(now).wrapping_sub(held_back_for(before));
        self.bytes.fetch_add(more, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The part of a node's log that the groups of an engine hold back.
#[derive(Debug)]
pub(crate) struct SnapshotsDue {
    /// The engines of a node have it in common.
    most: Arc<HeldBackMax>,
    /// Bytes that the log may take on disk, if that is bounded.
    bytes_max: Option<u64>,
    /// The groups of this engine.
    hosted: Vec<HeldBack>,
}

/// A group of a node, when the node's log is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hosted {
    pub(crate) group: Group,
    /// It needs the log from here on.
    pub(crate) from: Lsn,
    /// Its place among all replicas of the cluster, from 1 on, and their number.
    pub(crate) turn: (u64, u64),
}

/// The part of the log that a group holds back.
#[derive(Debug)]
struct HeldBack {
    group: Group,
    turn: (u64, u64),
    /// It needs what was written since, by whichever group: about where its last whole snapshot begins.
    from: LogSize,
    /// The log when the snapshot that is being written began.
    begun: LogSize,
    /// Its state is to be written, so that segments of earlier starts can go.
    overdue: bool,
    /// Bytes of its state.
    state: Cell<u64>,
}

/// Where the log ends, how many bytes of it are needed, and how many of those that this process wrote are of states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogSize {
    pub(crate) end: Lsn,
    pub(crate) needed: u64,
    pub(crate) states: u64,
}

impl LogSize {
    /// Bytes by which the log has grown since, beside states.
    const fn grown_since(&self, before: &Self) -> u64 {
        let grown = self.end.0.saturating_sub(before.end.0);
        grown.saturating_sub(self.states.saturating_sub(before.states))
    }
}

impl SnapshotsDue {
    /// Those of an engine that has these groups. `crowded` tells whether there are too many segments of earlier starts.
    pub(crate) fn new(
        most: Arc<HeldBackMax>,
        bytes_max: Option<u64>,
        hosted: impl Iterator<Item = Hosted>,
        crowded: bool,
    ) -> Self {
        let held_back = |Hosted { group, from, turn }| {
            let state = Cell::new(0);
            let from = LogSize { end: from, needed: 0, states: 0 };
            HeldBack { group, turn, from, begun: from, overdue: crowded, state }
        };
        Self { most, bytes_max, hosted: hosted.map(held_back).collect() }
    }

    /// Notes that a snapshot of a group begins at the log's end.
    pub(crate) fn begins(&mut self, group: Group, log: LogSize) {
        self.of_mut(group).for_each(|of| of.begun = log);
    }

    /// Bytes by which the log has grown because of a group since its snapshot began, beside states: its own records, and
    /// no less than its share of all groups' if they log as much as each other. Blocks of the log may be half empty.
    pub(crate) fn logged(&self, group: Group, own: u64, log: LogSize) -> u64 {
        let of = self.hosted.iter().find(|of| of.group == group);
        of.map_or(own, |of| own.max(log.grown_since(&of.begun) / self.most.groups))
    }

    /// Notes that the snapshot of a group that was begun last is whole.
    pub(crate) fn is_whole(&mut self, group: Group) {
        for of in self.of_mut(group) {
            (of.from, of.overdue) = (of.begun, false);
        }
    }

    /// Notes that a group needs nothing of the log, which ends here.
    pub(crate) fn holds_back_nothing(&mut self, group: Group, log: LogSize) {
        self.begins(group, log);
        self.is_whole(group);
    }

    fn of_mut(&mut self, group: Group) -> impl Iterator<Item = &mut HeldBack> {
        self.hosted.iter_mut().filter(move |of| of.group == group)
    }

    /// Whether the state of a group is to be written. The group has written `logged` bytes of the log since
    /// the last time, when its state had `state` bytes; 0 if it was never written. Near the bound, one that holds back most of the log does not wait
    /// until it is long.
    pub(crate) fn is_due(&self, group: Group, logged: u64, state: u64, log: LogSize) -> bool {
        self.note(group, state);
        let Some(of) = self.hosted.iter().find(|of| of.group == group) else { return false };
        let after = SNAPSHOT_AFTER.max(state);
        let in_turn = if state == 0 { after * of.turn.0 / of.turn.1 } else { after };
        let frees_most = || self.is_near_bound(log) && of.length(log) >= log.needed / 2;
        logged >= in_turn
            || logged >= after / SOONER_NEAR_BOUND && frees_most()
            || of.holds_back(self.most.bytes(), log)
    }

    /// Whether it is to be written as fast as the disk takes it: to make room for further starts, since the group holds
    /// back twice what it may, or since the log is near its bound.
    pub(crate) fn hurries(&self, group: Group, state: u64, log: LogSize) -> bool {
        self.note(group, state);
        let most = 2 * self.most.bytes();
        let mut of = self.hosted.iter().filter(|of| of.group == group);
        self.is_near_bound(log) || of.any(|of| of.holds_back(most, log))
    }

    /// Notes how large the state of a group is.
    fn note(&self, group: Group, state: u64) {
        for of in self.hosted.iter().filter(|of| of.group == group) {
            let before = of.state.replace(state);
            if before != state {
                self.most.changed(before, state);
            }
        }
    }

    /// Whether no more may be free than a snapshot of each group takes with the log that is written meanwhile: a bound is at
    /// least twice the states, and as much log.
    fn is_near_bound(&self, log: LogSize) -> bool {
        self.bytes_max.is_some_and(|most| log.needed + BESIDE_NEEDED >= most / 2)
    }
}

impl HeldBack {
    /// Bytes of the log that it needs.
    const fn length(&self, log: LogSize) -> u64 {
        log.end.0.saturating_sub(self.from.end.0)
    }

    /// Whether it holds back so much of the log beside states, or is overdue.
    const fn holds_back(&self, most: u64, log: LogSize) -> bool {
        self.overdue || log.grown_since(&self.from) >= most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUSY: Group = Group(0);
    const QUIET: Group = Group(1);
    const STATE: u64 = 1 << 30;

    /// Two groups with states of so many bytes, as both have told.
    fn two_groups(states: [u64; 2], bytes_max: Option<u64>, crowded: bool) -> SnapshotsDue {
        let hosted = |group| Hosted { group, from: Lsn(1), turn: (1, 1) };
        let most = Arc::new(HeldBackMax::of(2));
        let due =
            SnapshotsDue::new(most, bytes_max, [BUSY, QUIET].map(hosted).into_iter(), crowded);
        due.is_due(BUSY, 0, states[0], log(0));
        due.is_due(QUIET, 0, states[1], log(0));
        due
    }

    fn log(end: u64) -> LogSize {
        LogSize { end: Lsn(1 + end), needed: end, states: 0 }
    }

    #[test]
    fn a_state_is_due_after_as_much_log_as_it_has_itself_and_not_before_there_is_much() {
        let due = two_groups([STATE; 2], None, false);
        let is_due = |logged, state| due.is_due(BUSY, logged, state, log(logged));
        assert!(!is_due(SNAPSHOT_AFTER - 1, 0) && is_due(SNAPSHOT_AFTER, 0));
        assert!(!is_due(STATE - 1, STATE) && is_due(STATE, STATE));
    }

    #[test]
    fn groups_that_log_as_much_as_each_other_are_in_no_hurry() {
        let due = two_groups([STATE; 2], None, false);
        // Since its last snapshot began: blocks of the log are half empty.
        let size = |grown, states| LogSize { end: Lsn(1 + grown + states), needed: 0, states };
        let (grown, states) = (2 * STATE * 5 / 4, 2 * STATE * 3 / 2);
        assert!(!due.is_due(BUSY, STATE - 1, STATE, size(grown, states)));
        // And as its next one ends.
        assert!(!due.hurries(BUSY, STATE, size(2 * grown, 2 * states)));
    }

    #[test]
    fn replicas_take_turns() {
        // A start that finds a log without a snapshot is no other than the first one.
        let hosted = |turn| Hosted { group: BUSY, from: Lsn(4096), turn: (turn, 6) };
        for turn in 1..=6 {
            let most = Arc::new(HeldBackMax::of(1));
            let mut due = SnapshotsDue::new(most, None, [hosted(turn)].into_iter(), false);
            let first = SNAPSHOT_AFTER * turn / 6;
            let is_due = |due: &SnapshotsDue, logged| due.is_due(BUSY, logged, 0, log(logged));
            assert!(!is_due(&due, first - 1) && is_due(&due, first), "the {turn}th of six");
            due.begins(BUSY, log(first));
            due.is_whole(BUSY);
            let is_due = |logged| due.is_due(BUSY, logged, 1, log(first + logged));
            assert!(!is_due(SNAPSHOT_AFTER - 1) && is_due(SNAPSHOT_AFTER), "the {turn}th of six");
        }
    }

    #[test]
    fn a_group_that_writes_nothing_holds_back_what_others_write_up_to_a_bound() {
        let mut due = two_groups([STATE; 2], None, false);
        let most = 2 * held_back_for(STATE);
        let is_due = |due: &SnapshotsDue, end| due.is_due(QUIET, 0, STATE, log(end));
        let hurries = |due: &SnapshotsDue, end| due.hurries(QUIET, STATE, log(end));
        assert!(!is_due(&due, most - 1) && is_due(&due, most));
        let late = 2 * most;
        assert!(!hurries(&due, late - 1) && hurries(&due, late));
        due.begins(QUIET, log(most));
        assert!(hurries(&due, late), "it is not whole");
        due.is_whole(QUIET);
        assert!(
            !is_due(&due, 2 * most - 1) && is_due(&due, 2 * most),
            "it counts from where it began"
        );
        assert!(!hurries(&due, most + late - 1) && hurries(&due, most + late));
    }

    #[test]
    fn a_group_holds_back_as_much_as_the_states_of_all_are_worth() {
        let most = held_back_for(0) + held_back_for(STATE);
        for states in [[0, STATE], [STATE, 0]] {
            let due = two_groups([STATE; 2], None, false);
            // One that has become small.
            assert!(!due.hurries(BUSY, states[0], log(0)));
            let is_due = |end| due.is_due(QUIET, 0, states[1], log(end));
            assert!(!is_due(most - 1) && is_due(most), "{states:?}");
        }
    }

    #[test]
    fn engines_of_a_node_have_in_common_what_a_group_may_hold_back() {
        let most = Arc::new(HeldBackMax::of(2));
        let engine = |group| {
            let hosted = Hosted { group, from: Lsn(1), turn: (1, 1) };
            SnapshotsDue::new(Arc::clone(&most), None, [hosted].into_iter(), false)
        };
        let (busy, quiet) = (engine(BUSY), engine(QUIET));
        let before = 2 * held_back_for(0);
        assert!(quiet.is_due(QUIET, 0, 0, log(before)));
        assert!(!busy.hurries(BUSY, STATE, log(0)));
        assert!(!quiet.is_due(QUIET, 0, 0, log(before)), "the other's state is large");
    }

    #[test]
    fn a_group_has_logged_its_share_of_what_the_log_has_grown_by_beside_states() {
        let mut due = two_groups([STATE; 2], None, false);
        let size = |end, states| LogSize { end: Lsn(end), needed: end, states };
        due.begins(BUSY, size(1_000, 600));
        let logged = |own, end, states| due.logged(BUSY, own, size(end, states));
        assert_eq!(logged(100, 1_000, 600), 100, "its records are on their way");
        assert_eq!(logged(100, 1_800, 600), 400, "half of it: blocks are half empty");
        assert_eq!(logged(100, 2_800, 1_600), 400, "with parts of states");
        assert_eq!(logged(900, 1_800, 600), 900, "the other group is quiet");
        assert_eq!(logged(100, 1_000, 5_000), 100, "a state is on its way");
    }

    #[test]
    fn after_many_starts_each_group_writes_its_state_once_and_at_once() {
        let mut due = two_groups([0; 2], None, true);
        due.begins(BUSY, log(0));
        due.is_whole(BUSY);
        let wanted = |group| (due.is_due(group, 0, 0, log(1)), due.hurries(group, 0, log(1)));
        assert_eq!([wanted(BUSY), wanted(QUIET)], [(false, false), (true, true)]);
    }

    #[test]
    fn a_log_near_its_bound_is_in_a_hurry() {
        let due = two_groups([STATE; 2], Some(100 * SEGMENT_BYTES), false);
        let near = 46 * SEGMENT_BYTES;
        let size = |end, needed| LogSize { end: Lsn(1 + end), needed, states: 0 };
        let hurries = |needed| due.hurries(BUSY, STATE, size(0, needed));
        assert!(!hurries(near - 1) && hurries(near));
        let is_due = |logged, end, needed| due.is_due(BUSY, logged, STATE, size(end, needed));
        assert!(!is_due(STATE / 4, near / 2, near - 1) && is_due(STATE / 4, near / 2, near));
        assert!(!is_due(STATE / 4 - 1, near / 2, near), "what was written just now frees nothing");
        assert!(!is_due(STATE / 4, near / 2 - 1, near), "another group holds it back");
        let unbounded = two_groups([STATE; 2], None, false);
        assert!(!unbounded.hurries(BUSY, STATE, size(0, u64::MAX)));
    }
}
