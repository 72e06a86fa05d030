//! The names and unsynced bytes that exist in this process alone.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::files::{FileError, FileName, Files};
use crate::format::BLOCK;

/// Files without a durable name are spares from this number on: no log has so many segments.
const NAMELESS: u64 = 1 << 48;

/// A change of names. Files are numbered, since their names change.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Create { number: u64, name: FileName },
    Rename { from: FileName, to: FileName },
    Remove { name: FileName },
}

/// Which files there are, for this process and below.
///
/// **Invariant.** `visible` are the durable names with the changes in `held`, in their order.
#[derive(Debug, Default)]
pub(super) struct Names {
    visible: BTreeMap<FileName, u64>,
    /// The durable name of each file.
    places: BTreeMap<u64, FileName>,
    /// Changes that are not durable.
    held: VecDeque<Change>,
    /// Blocks that are not durable though their writes have returned, by file and offset.
    unsynced: BTreeMap<(u64, u64), Vec<u8>>,
    next: u64,
}

impl Names {
    /// What has survived below. Files that had no durable name are removed.
    pub(super) fn read(inner: &impl Files) -> Result<Self, FileError> {
        let mut this = Self::default();
        for (name, _) in inner.list()? {
            if matches!(name, FileName::Spare(number) if number >= NAMELESS) {
                inner.remove(name)?;
                continue;
            }
            this.visible.insert(name, this.next);
            this.places.insert(this.next, name);
            this.next += 1;
        }
        Ok(this)
    }

    pub(super) fn list(&self, inner: &impl Files) -> Result<Vec<(FileName, u64)>, FileError> {
        let lengths: BTreeMap<FileName, u64> = inner.list()?.into_iter().collect();
        let length = |number| lengths.get(self.places.get(number)?).copied();
        let listed =
            self.visible.iter().filter_map(|(name, number)| Some((*name, length(number)?)));
        Ok(listed.collect())
    }

    /// The file of this name.
    pub(super) fn number(&self, name: FileName, operation: &'static str) -> Result<u64, FileError> {
        self.visible.get(&name).copied().ok_or_else(|| FileError::Io {
            operation,
            file: name.to_string(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    /// Where the file is below.
    pub(super) fn place(&self, number: u64) -> Option<FileName> {
        self.places.get(&number).copied()
    }

    /// A new file, and its place below until its name is durable.
    pub(super) fn nameless(&mut self) -> (u64, FileName) {
        let number = self.next;
        self.next += 1;
        let place = FileName::Spare(NAMELESS + number);
        self.places.insert(number, place);
        (number, place)
    }

    /// Makes a change in this process.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Create { number, name } => _ = self.visible.insert(name, number),
            Change::Rename { from, to } => {
                if let Some(number) = self.visible.remove(&from) {
                    self.visible.insert(to, number);
                }
            }
            Change::Remove { name } => _ = self.visible.remove(&name),
        }
        self.held.push_back(change);
    }

    /// Passes on the oldest change. Returns whether there was one.
    pub(super) fn pass_on(&mut self, inner: &impl Files) -> Result<bool, FileError> {
        let Some(change) = self.held.pop_front() else { return Ok(false) };
        match change {
            Change::Create { number, name } => {
                let place = self.places[&number];
                if self.places.values().any(|other| *other == name) {
                    self.remove(inner, name)?;
                }
                inner.rename(place, name)?;
                self.places.insert(number, name);
            }
            Change::Rename { from, to } => {
                inner.rename(from, to)?;
                let moved = self.places.values_mut().find(|place| **place == from);
                *moved.expect("it has a durable name") = to;
            }
            Change::Remove { name } => self.remove(inner, name)?,
        }
        Ok(true)
    }

    fn remove(&mut self, inner: &impl Files, name: FileName) -> Result<(), FileError> {
        self.places.retain(|_, place| *place != name);
        inner.remove(name)
    }

    /// Keeps a write in this process alone.
    pub(super) fn keep_unsynced(&mut self, number: u64, offset: u64, bytes: &[u8]) {
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            self.unsynced.insert((number, offset + (index * BLOCK) as u64), block.to_vec());
        }
    }

    /// Puts what this process alone has into what was read from below.
    pub(super) fn read_unsynced(&self, number: u64, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        for ((_, at), block) in self.unsynced.range((number, offset)..(number, end)) {
            let at = (at - offset) as usize;
            into[at..at + block.len()].copy_from_slice(block);
        }
    }
}
