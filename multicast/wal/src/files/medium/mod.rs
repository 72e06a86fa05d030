//! The simulated files: a disk that loses power, tears, fails, rots and lies, as its seed and its
//! [`Faults`] say.

mod state;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use state::{Content, NameChange, SECTOR, State, UnderWay, gone};

use super::{FileError, FileName, Files};

/// What goes wrong, and when. Operations are counted by [`Medium::operations`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Power is lost in this operation.
    pub power_at: Option<u64>,
    /// This operation fails, and leaves what it wrote in the cache or not.
    pub error_at: Option<u64>,
    /// From this operation on, the next change of a name or sync finds no space, and does nothing.
    pub no_space_from: Option<u64>,
    /// Bytes that all files together may have.
    pub capacity: Option<u64>,
    /// Syncs return at once, and sync nothing.
    pub lies: bool,
    /// The next write goes to this offset of its file instead.
    pub misdirect_to: Option<u64>,
}

/// A write that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteId(u64);

/// What the disk held at some time, names included.
#[derive(Clone, Debug)]
pub struct Snapshot(BTreeMap<FileName, Vec<u8>>);

/// A disk in memory. A seed makes all of its choices.
///
/// A [`crash`](Self::crash) of the process keeps what was cached; the [loss of
/// power](Self::power_loss) keeps any subset of the sectors that were not synced, and the names up to
/// any of the changes since the directory was.
#[derive(Debug)]
pub struct Medium(Mutex<State>);

impl Medium {
    /// An empty disk, whose faults are drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(State::new(seed)))
    }

    /// Begins a write: from now on it is read, and may survive.
    pub fn begin_write(
        &self,
        name: FileName,
        offset: u64,
        bytes: &[u8],
    ) -> Result<WriteId, FileError> {
        let mut state = self.state();
        state.operation("write to", name, |state| {
            let content = state.named(name)?;
            let offset = state.faults.misdirect_to.take().unwrap_or(offset) as usize;
            assert!(offset.is_multiple_of(SECTOR) && bytes.len().is_multiple_of(SECTOR));
            assert!(offset + bytes.len() <= state.contents[content].medium.len(), "in place");
            let first = offset / SECTOR;
            for (index, sector) in bytes.chunks_exact(SECTOR).enumerate() {
                let versions = state.contents[content].cached.entry(first + index).or_default();
                versions.push(sector.try_into().expect("whole sectors"));
            }
            let id = WriteId(state.next_id);
            state.next_id += 1;
            let sectors = first..first + bytes.len() / SECTOR;
            state.under_way.push(UnderWay { id, content, sectors });
            Ok(id)
        })
    }

    /// Ends a write: unless the disk lies, it is durable.
    pub fn finish_write(&self, id: WriteId) -> Result<(), FileError> {
        let mut state = self.state();
        let Some(at) = state.under_way.iter().position(|write| write.id == id) else {
            return Err(gone("finish a write to", "the disk"));
        };
        state.operation("write to", "the disk", |state| {
            let UnderWay { content, sectors, .. } = state.under_way.remove(at);
            if !state.faults.lies {
                state.contents[content].sync(sectors);
            }
            Ok(())
        })
    }

    /// The process ends. Writes that were under way are in the cache.
    pub fn crash(&self) {
        self.state().under_way.clear();
    }

    /// Power is lost, and comes back.
    pub fn power_loss(&self) {
        let mut state = self.state();
        state.lose_power();
        state.down = false;
        state.faults = Faults { capacity: state.faults.capacity, ..Faults::default() };
    }

    /// Changes what goes wrong from here on.
    pub fn faults(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Changes one bit of what the medium holds.
    pub fn flip(&self, name: FileName, bit: u64) {
        let mut state = self.state();
        let content = state.names[&name];
        let content = &mut state.contents[content];
        content.sync(0..content.medium.len() / SECTOR);
        content.medium[bit as usize / 8] ^= 1 << (bit % 8);
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Copies everything that can be read.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let read = |(name, &content): (&FileName, &usize)| (*name, state.read(content));
        Snapshot(state.names.iter().map(read).collect())
    }

    /// Puts back what a snapshot has of these files, or of all and no others.
    pub fn restore(&self, snapshot: &Snapshot, only: Option<&[FileName]>) {
        let mut state = self.state();
        if only.is_none() {
            state.names.clear();
        }
        for (name, bytes) in &snapshot.0 {
            if only.is_none_or(|only| only.contains(name)) {
                let content = Content { medium: bytes.clone(), cached: BTreeMap::new() };
                let at = state.contents.len();
                state.contents.push(content);
                state.names.insert(*name, at);
            }
        }
        state.durable_names = state.names.clone();
        state.changes.clear();
    }

    /// Cuts a file short.
    pub fn truncate(&self, name: FileName, bytes: u64) {
        let mut state = self.state();
        let content = state.names[&name];
        let content = &mut state.contents[content];
        content.sync(0..content.medium.len() / SECTOR);
        content.medium.truncate(bytes as usize);
    }

    /// A file's bytes, as they are read.
    pub fn bytes(&self, name: FileName) -> Vec<u8> {
        let state = self.state();
        state.read(state.names[&name])
    }

    /// Writes to a file what nobody sent there.
    pub fn overwrite(&self, name: FileName, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        let content = state.names[&name];
        let content = &mut state.contents[content];
        content.sync(0..content.medium.len() / SECTOR);
        content.medium[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files for Medium {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.state().operation("list", "files", |state| {
            let length = |content: usize| state.contents[content].medium.len() as u64;
            Ok(state.names.iter().map(|(name, &content)| (*name, length(content))).collect())
        })
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        self.state().operation("make", name, |state| {
            let used: usize = state.names.values().map(|&at| state.contents[at].medium.len()).sum();
            if state.faults.capacity.is_some_and(|capacity| used as u64 + bytes > capacity) {
                return Err(FileError::Full { operation: "make", file: name.to_string() });
            }
            // Without power it ends anywhere.
            let dies = state.faults.power_at == Some(state.operations);
            let sectors = bytes / SECTOR as u64;
            let bytes = if dies { state.below(sectors + 1) * SECTOR as u64 } else { bytes };
            let content = Content { medium: vec![0; bytes as usize], cached: BTreeMap::new() };
            let at = state.contents.len();
            state.contents.push(content);
            state.change(NameChange::Link(name, at));
            Ok(())
        })
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.state().operation("read", name, |state| {
            let content = &state.contents[state.named(name)?];
            let first = offset as usize / SECTOR;
            if offset as usize + into.len() > content.medium.len() {
                let source = io::ErrorKind::UnexpectedEof.into();
                return Err(FileError::Io { operation: "read", file: name.to_string(), source });
            }
            for (index, part) in into.chunks_exact_mut(SECTOR).enumerate() {
                part.copy_from_slice(&content.sector(first + index));
            }
            Ok(())
        })
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let id = self.begin_write(name, offset, bytes)?;
        self.finish_write(id)
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        self.state().operation("sync", name, |state| {
            let content = state.named(name)?;
            if !state.faults.lies {
                let content = &mut state.contents[content];
                content.sync(0..content.medium.len() / SECTOR);
            }
            Ok(())
        })
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.state().operation("rename", from, |state| {
            state.named(from)?;
            state.change(NameChange::Rename(from, to));
            Ok(())
        })
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.state().operation("remove", name, |state| {
            state.named(name)?;
            state.change(NameChange::Unlink(name));
            Ok(())
        })
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        self.state().operation("sync", "the directory", |state| {
            if !state.faults.lies {
                state.changes.clear();
                state.durable_names = state.names.clone();
            }
            Ok(())
        })
    }
}
