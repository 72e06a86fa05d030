//! The simulated files: a disk that loses power, tears, fails, rots and lies, as its seed and its
//! [`Faults`] say.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{FileError, FileName, Files};

/// What the disk writes whole, in bytes.
const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// What goes wrong, and when. Operations are counted by [`Medium::operations`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Power is lost in this operation.
    pub power_at: Option<u64>,
    /// This operation fails, and leaves what it wrote in the cache or not.
    pub error_at: Option<u64>,
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

/// A file: what the medium holds, and what only a cache does.
#[derive(Clone, Debug, Default)]
struct Content {
    medium: Vec<u8>,
    /// By sector, every version since the last sync. Any of them may be the one that survives.
    cached: BTreeMap<usize, Vec<Sector>>,
}

impl Content {
    fn sector(&self, index: usize) -> Sector {
        let newest = self.cached.get(&index).and_then(|versions| versions.last()).copied();
        newest.unwrap_or_else(|| {
            let at = index * SECTOR;
            self.medium[at..at + SECTOR].try_into().expect("whole sectors")
        })
    }

    fn sync(&mut self, sectors: std::ops::Range<usize>) {
        for index in sectors {
            if let Some(versions) = self.cached.remove(&index) {
                self.settle(index, versions.last().expect("one version at least"));
            }
        }
    }

    fn settle(&mut self, index: usize, sector: &Sector) {
        self.medium[index * SECTOR..(index + 1) * SECTOR].copy_from_slice(sector);
    }
}

#[derive(Clone, Copy, Debug)]
enum NameChange {
    Link(FileName, usize),
    Unlink(FileName),
    Rename(FileName, FileName),
}

#[derive(Debug)]
struct UnderWay {
    id: WriteId,
    content: usize,
    sectors: std::ops::Range<usize>,
}

#[derive(Debug)]
struct State {
    random: u64,
    contents: Vec<Content>,
    names: BTreeMap<FileName, usize>,
    /// Names that survive, and changes that may, in their order.
    durable_names: BTreeMap<FileName, usize>,
    changes: Vec<NameChange>,
    under_way: Vec<UnderWay>,
    next_id: u64,
    operations: u64,
    faults: Faults,
    down: bool,
}

/// A disk in memory. A seed makes all of its choices.
///
/// A [`crash`](Self::crash) of the process keeps what was cached; the [loss of
/// power](Self::power_loss) keeps any subset of the sectors that were not synced, and the names up to
/// any of the changes since the directory was.
#[derive(Debug)]
pub struct Medium(Mutex<State>);

impl Medium {
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(State {
            random: seed,
            contents: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            under_way: Vec::new(),
            next_id: 0,
            operations: 0,
            faults: Faults::default(),
            down: false,
        }))
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

impl State {
    /// Runs an operation, unless it is the one in which something happens to the disk.
    fn operation<T>(
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

    fn lose_power(&mut self) {
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

    fn change(&mut self, change: NameChange) {
        apply(&mut self.names, change);
        self.changes.push(change);
    }

    fn named(&self, name: FileName) -> Result<usize, FileError> {
        self.names.get(&name).copied().ok_or_else(|| FileError::Io {
            operation: "find",
            file: name.to_string(),
            source: io::ErrorKind::NotFound.into(),
        })
    }

    fn read(&self, content: usize) -> Vec<u8> {
        let content = &self.contents[content];
        let mut bytes = content.medium.clone();
        for &index in content.cached.keys() {
            bytes[index * SECTOR..(index + 1) * SECTOR].copy_from_slice(&content.sector(index));
        }
        bytes
    }

    /// A number below `bound` (splitmix64).
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
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

fn gone(operation: &'static str, file: impl ToString) -> FileError {
    let source = io::Error::other("the power is off");
    FileError::Io { operation, file: file.to_string(), source }
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
