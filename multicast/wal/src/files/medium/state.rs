//! The state of the simulated disk: what its cache and its medium hold, and what power leaves of it.

use std::collections::BTreeMap;
use std::io;

use super::{Faults, WriteId};
use crate::files::random::Random;
use crate::files::{FileError, FileName};

/// What the disk writes whole, in bytes.
pub(super) const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// A file: what the medium holds, and what only a cache does.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pub(super) medium: Vec<u8>,
    /// By sector, every version since the last sync. Any of them may be the one that survives.
    pub(super) cached: BTreeMap<usize, Vec<Sector>>,
}

impl Content {
    pub(super) fn sector(&self, index: usize) -> Sector {
        let newest = self.cached.get(&index).and_then(|versions| versions.last()).copied();
        newest.unwrap_or_else(|| {
            let at = index * SECTOR;
            self.medium[at..at + SECTOR].try_into().expect("whole sectors")
        })
    }

    pub(super) fn sync(&mut self, sectors: std::ops::Range<usize>) {
        for index in sectors {
            if let Some(versions) = self.cached.remove(&index) {
                self.settle(index, versions.last().expect("one version at least"));
            }
        }
    }

    pub(super) fn settle(&mut self, index: usize, sector: &Sector) {
        self.medium[index * SECTOR..(index + 1) * SECTOR].copy_from_slice(sector);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum NameChange {
    Link(FileName, usize),
    Unlink(FileName),
    Rename(FileName, FileName),
}

#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) id: WriteId,
    pub(super) content: usize,
    pub(super) sectors: std::ops::Range<usize>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) random: Random,
    pub(super) contents: Vec<Content>,
    pub(super) names: BTreeMap<FileName, usize>,
    /// Names that survive, and changes that may, in their order.
    pub(super) durable_names: BTreeMap<FileName, usize>,
    pub(super) changes: Vec<NameChange>,
    pub(super) under_way: Vec<UnderWay>,
    pub(super) next_id: u64,
    pub(super) operations: u64,
    pub(super) faults: Faults,
    pub(super) down: bool,
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            contents: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            under_way: Vec::new(),
            next_id: 0,
            operations: 0,
            faults: Faults::default(),
            down: false,
        }
    }

    /// Runs an operation, unless it is the one in which something happens to the disk.
    pub(super) fn operation<T>(
        &mut self,
        operation: &'static str,
        file: impl ToString,
        run: impl FnOnce(&mut Self) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        if self.down {
            return Err(gone(operation, file));
        }
        self.operations += 1;
        let now = Some(self.operations);
        if self.faults.error_at == now {
            let source = io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            return Err(FileError::Io { operation, file: file.to_string(), source });
        }
        let takes_space = matches!(operation, "make" | "rename" | "remove" | "sync");
        let no_space =
            self.faults.no_space_from.filter(|from| takes_space && *from <= self.operations);
        if no_space.is_some() {
            self.faults.no_space_from = None;
            return Err(FileError::Full { operation, file: file.to_string() });
        }
        // Its effects reach the cache, and the power decides what stays of them.
        let dies = self.faults.power_at == now;
        self.faults.lies |= dies;
        let done = run(self);
        if dies {
            self.lose_power();
            return Err(gone(operation, file));
        }
        done
    }

    pub(super) fn lose_power(&mut self) {
        self.down = true;
        self.under_way.clear();
        for at in 0..self.contents.len() {
            for (index, versions) in std::mem::take(&mut self.contents[at].cached) {
                // Half of the time nothing survives, so that long writes often lose something.
                let chosen = self.below(2 * versions.len() as u64) as usize;
                if let Some(sector) = versions.get(chosen) {
                    self.contents[at].settle(index, sector);
                }
            }
        }
        let survive = self.below(self.changes.len() as u64 + 1) as usize;
        let mut names = self.durable_names.clone();
        for change in self.changes.drain(..).take(survive) {
            apply(&mut names, change);
        }
        self.names = names.clone();
        self.durable_names = names;
    }

    pub(super) fn change(&mut self, change: NameChange) {
        apply(&mut self.names, change);
        self.changes.push(change);
    }

    pub(super) fn named(&self, name: FileName) -> Result<usize, FileError> {
        self.names.get(&name).copied().ok_or_else(|| FileError::Io {
            operation: "find",
            file: name.to_string(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    pub(super) fn read(&self, content: usize) -> Vec<u8> {
        let content = &self.contents[content];
        let mut bytes = content.medium.clone();
        for &index in content.cached.keys() {
            bytes[index * SECTOR..(index + 1) * SECTOR].copy_from_slice(&content.sector(index));
        }
        bytes
    }

    /// A number below `bound`.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }
}

fn apply(names: &mut BTreeMap<FileName, usize>, change: NameChange) {
    match change {
        NameChange::Link(name, content) => _ = names.insert(name, content),
        NameChange::Unlink(name) => _ = names.remove(&name),
        NameChange::Rename(from, to) => {
            if let Some(content) = names.remove(&from) {
                names.insert(to, content);
            }
        }
    }
}

pub(super) fn gone(operation: &'static str, file: impl ToString) -> FileError {
    let source = io::Error::other("the power is off");
    FileError::Io { operation, file: file.to_string(), source }
}
