//! What the writer knows of each group: its chain, what it keeps, its entry in the table.

use super::{AppendError, CarriedDamage};
use crate::format::{SegmentHeader, TableEntry};
use crate::{Group, Lsn};

/// A group's chain. `keep <= last` unless the group has dropped everything.
#[derive(Clone, Debug)]
pub(crate) struct GroupState {
    pub(crate) group: Group,
    /// Its last record, or none.
    pub(crate) last: Lsn,
    /// It needs nothing below this.
    pub(crate) keep: Lsn,
    /// Found by recovery, until the group begins anew.
    pub(crate) damage: CarriedDamage,
    pub(crate) table: Vec<u8>,
    /// The next record begins a chain.
    pub(crate) begins: bool,
}

impl GroupState {
    fn new(group: Group) -> Self {
        let (last, keep) = (Lsn::NONE, Lsn::NONE);
        Self { group, last, keep, damage: None, table: Vec::new(), begins: true }
    }

    /// Whether nothing is known of it.
    pub(crate) fn is_new(&self) -> bool {
        self.last == Lsn::NONE && self.damage.is_none() && self.table.is_empty()
    }

    /// Notes a record. Returns whether it begins a chain, and which record is before it.
    pub(super) fn log(&mut self, lsn: Lsn) -> (bool, Lsn) {
        let begins = std::mem::take(&mut self.begins);
        if begins {
            (self.last, self.keep, self.damage) = (Lsn::NONE, lsn, None);
        }
        (begins, std::mem::replace(&mut self.last, lsn))
    }

    pub(super) fn set_table(&mut self, bytes: &[u8]) {
        self.table.clear();
        self.table.extend_from_slice(bytes);
    }

    pub(super) fn keep(&mut self, lsn: Lsn) {
        self.keep = self.keep.max(lsn);
    }

    pub(super) fn begin(&mut self) {
        self.begins = true;
    }

    /// Whether the group holds segments back: only records that it has, needs, and can use.
    fn pins(&self) -> bool {
        self.last >= self.keep && self.last != Lsn::NONE && self.damage.is_none()
    }
}

/// The groups, sorted by number. `states.len() <= max`.
#[derive(Debug)]
pub(super) struct Groups {
    states: Vec<GroupState>,
    max: u16,
}

impl Groups {
    pub(super) fn new(mut states: Vec<GroupState>, max: u16) -> Self {
        states.sort_unstable_by_key(|state| state.group);
        Self { states, max }
    }

    pub(super) fn insert(&mut self, group: Group) -> Result<(), AppendError> {
        if let Err(at) = self.states.binary_search_by_key(&group, |state| state.group) {
            if self.states.len() >= usize::from(self.max) {
                return Err(AppendError::TooManyGroups { max: self.max });
            }
            self.states.insert(at, GroupState::new(group));
        }
        Ok(())
    }

    pub(super) fn get_mut(&mut self, group: Group) -> Option<&mut GroupState> {
        let at = self.states.binary_search_by_key(&group, |state| state.group).ok()?;
        Some(&mut self.states[at])
    }

    /// The lowest place that a group needs. None if none needs anything.
    pub(super) fn needed(&self) -> Option<Lsn> {
        self.states.iter().filter(|state| state.pins()).map(|state| state.keep).min()
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Length of a header block with the table of these groups, in bytes.
    pub(super) fn header_bytes(&self) -> usize {
        SegmentHeader::block_bytes(self.states.iter().map(|state| state.table.len()))
    }

    /// Writes the table at `at` and returns where it ends.
    pub(super) fn put_table(&self, block: &mut [u8], at: usize) -> usize {
        self.states.iter().fold(at, |at, state| {
            let fields = (state.group, state.last, state.keep, state.damage);
            TableEntry::put(block, at, fields, &state.table)
        })
    }
}
