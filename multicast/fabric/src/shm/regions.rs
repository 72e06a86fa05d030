//! Our own regions.

use std::sync::Arc;

use super::arena::{self, Allocation, Arenas};
use super::block::{Block, HEADER, Key};
use super::host::{Home, Host};
use super::room::anonymous;
use crate::memory::{Memory, WORD, check_len, is_inside, is_no_span};
use crate::slab::Slab;
use crate::{FabricError, Permission, Region, RegionKey};

/// Room, in files of the same size, that the file system must have before a spare file is made for the next grant. A
/// spare file only saves time, whereas clients need memory to be served at all.
const SPARE_LEAVES: u64 = 8;
/// Room, in files of the same size, below which a spare file is given up.
const SPARE_YIELDS: u64 = 2;

#[derive(Debug, Default)]
pub(super) struct Regions {
    slab: Slab<RegionState>,
    arenas: Arenas,
    /// The last file's name. None is used twice in an incarnation.
    files: u64,
    /// The last generation. Zero means closed.
    generations: u32,
}

/// A region, wherever its bytes are now.
#[derive(Debug)]
pub(super) struct RegionState {
    len: usize,
    /// The present memory of the region: what we load and store, and what peers with access write.
    pub(super) memory: Arc<Memory>,
    /// Offset of the region in `memory`.
    pub(super) start: usize,
    kind: Kind,
    /// The last grant's file, where late bytes land. Removing it takes as long as a copy.
    orphan: Option<(Block, u64)>,
}

#[derive(Debug)]
enum Kind {
    /// Shared, in an arena.
    Small(Block, Allocation, Key),
    /// Shared, in its own file.
    Large(Block, Key),
    /// Granted to no peer now: the bytes are in the file of the next grant, or in private memory.
    Closed { file: Option<u64> },
    /// Granted to a peer: the bytes are in the grant's file. The file of the next grant is made in advance, pages and
    /// all, so that revoking and granting take no longer than one copy: a leader change waits for both. The price is
    /// that a granted region takes its size twice.
    Lent { block: Block, file: u64, next: Option<(Arc<Memory>, u64)> },
}

impl Regions {
    #[inline]
    pub(super) fn get(&self, region: Region) -> &RegionState {
        self.slab.get(region.0).expect("the region was destroyed")
    }

    pub(super) fn create(
        &mut self,
        len: usize,
        permission: Permission,
        incarnation: u64,
        host: &Host,
        home: &Home,
    ) -> Result<Region, FabricError> {
        match self.try_create(len, permission, incarnation, host, home) {
            Err(FabricError::NoSpace { .. }) if self.free_spares(home) => {
                self.try_create(len, permission, incarnation, host, home)
            }
            made => made,
        }
    }

    /// Gives up files that only save time: those for coming grants, and those of earlier ones. Returns whether there
    /// were any.
    fn free_spares(&mut self, home: &Home) -> bool {
        let handles: Vec<u32> = self.slab.handles().collect();
        let mut any = false;
        for handle in handles {
            let Some(state) = self.slab.get_mut(handle) else { continue };
            let next = match &mut state.kind {
                Kind::Lent { next, .. } => next.take().map(|(_, file)| file),
                Kind::Small(..) | Kind::Large(..) | Kind::Closed { .. } => None,
            };
            for file in next.into_iter().chain(state.orphan.take().map(|(_, file)| file)) {
                any = true;
                home.remove(file);
            }
        }
        any
    }

    fn try_create(
        &mut self,
        len: usize,
        permission: Permission,
        incarnation: u64,
        host: &Host,
        home: &Home,
    ) -> Result<Region, FabricError> {
        check_len(len);
        assert!(u32::try_from(len / WORD).is_ok(), "a region of {len} bytes");
        let (memory, start, kind) = match permission {
            Permission::Granted => {
                let file = bump(&mut self.files);
                (home.create(file, HEADER + len)?, HEADER, Kind::Closed { file: Some(file) })
            }
            Permission::Shared if len <= arena::REGION_MAX => {
                let files = &mut self.files;
                let (place, block) = self.arenas.allocate(len, host, home, || bump(files))?;
                let key = self.key_for(incarnation, place.file, place.header, len);
                (Arc::clone(&block.memory), block.data(), Kind::Small(block, place, key))
            }
            Permission::Shared => {
                let file = bump(&mut self.files);
                let block = Block::new(home.create(file, HEADER + len)?, 0);
                let key = self.key_for(incarnation, file, 0, len);
                (Arc::clone(&block.memory), block.data(), Kind::Large(block, key))
            }
        };
        if let Kind::Small(block, _, key) | Kind::Large(block, key) = &kind {
            block.open(key.generation, len, 0);
        }
        Ok(Region(self.slab.insert(RegionState { len, memory, start, kind, orphan: None })))
    }

    pub(super) fn destroy(&mut self, region: Region, home: &Home) {
        let state = self.slab.remove(region.0).expect("the region was destroyed before");
        if let Some((_, file)) = state.orphan {
            home.remove(file);
        }
        match state.kind {
            Kind::Closed { file } => _ = file.map(|file| home.remove(file)),
            Kind::Small(block, place, _) => {
                block.close();
                self.arenas.release(place, &block, home);
            }
            Kind::Large(block, key) => {
                block.close();
                home.remove(key.file);
            }
            Kind::Lent { block, file, next } => {
                block.close();
                home.remove(file);
                if let Some((_, file)) = next {
                    home.remove(file);
                }
            }
        }
    }

    pub(super) fn key(&self, region: Region) -> RegionKey {
        match &self.get(region).kind {
            Kind::Small(_, _, key) | Kind::Large(_, key) => key.to_bytes(),
            Kind::Closed { .. } | Kind::Lent { .. } => {
                panic!("the keys of granted regions are grants'")
            }
        }
    }

    pub(super) fn grant(
        &mut self,
        region: Region,
        writer: u64,
        incarnation: u64,
        home: &Home,
    ) -> Result<RegionKey, FabricError> {
        let state = self.slab.get_mut(region.0).expect("the region was destroyed");
        let file = match state.kind {
            Kind::Closed { file: Some(file) } => file,
            Kind::Closed { file: None } => {
                // There may be room for only one of them.
                if let Some((_, orphan)) = state.orphan.take() {
                    home.remove(orphan);
                }
                let (file, len) = (bump(&mut self.files), HEADER + state.len);
                let memory = match home.create(file, len) {
                    Err(FabricError::NoSpace { .. }) if self.free_spares(home) => {
                        home.create(file, len)?
                    }
                    made => made?,
                };
                let state = self.slab.get_mut(region.0).expect("looked at above");
                state.move_to(memory, HEADER, Kind::Closed { file: Some(file) });
                file
            }
            _ => panic!("the region is granted, or not for granting"),
        };
        let state = self.get(region);
        let (len, block) = (state.len, Block::new(Arc::clone(&state.memory), 0));
        let key = self.key_for(incarnation, file, 0, len);
        block.open(key.generation, len, writer);
        let state = self.slab.get_mut(region.0).expect("looked at above");
        state.kind = Kind::Lent { block, file, next: None };
        Ok(key.to_bytes())
    }

    pub(super) fn revoke(&mut self, region: Region, home: &Home) -> Result<(), FabricError> {
        let state = self.slab.get_mut(region.0).expect("the region was destroyed");
        let (block, file, next) = match &mut state.kind {
            Kind::Lent { block, file, next } => (block.clone(), *file, next.take()),
            Kind::Closed { .. } => return Ok(()),
            Kind::Small(..) | Kind::Large(..) => panic!("a shared region has no grant to revoke"),
        };
        let (memory, start, next) = match next {
            Some((memory, file)) => (memory, HEADER, Some(file)),
            None => (Arc::new(anonymous(state.len)?), 0, None),
        };
        block.close();
        state.move_to(memory, start, Kind::Closed { file: next });
        if let Some((_, older)) = state.orphan.replace((block, file)) {
            home.remove(older);
        }
        Ok(())
    }

    /// See [`Fabric::prepare`](crate::Fabric::prepare). If there is no room for it, revoking uses private memory.
    pub(super) fn prepare(&mut self, region: Region, home: &Home) {
        let state = self.slab.get_mut(region.0).expect("the region was destroyed");
        if let Some((_, file)) = state.orphan.take() {
            return home.remove(file);
        }
        let Kind::Lent { next, .. } = &mut state.kind else { return };
        let (len, room) = (HEADER + state.len, home.room());
        if next.is_none() && room >= SPARE_LEAVES * len as u64 {
            let file = bump(&mut self.files);
            *next = home.create(file, len).ok().map(|memory| (memory, file));
        } else if room < SPARE_YIELDS * len as u64
            && let Some((_, file)) = next.take()
        {
            home.remove(file);
        }
    }

    fn key_for(&mut self, incarnation: u64, file: u64, header: usize, len: usize) -> Key {
        self.generations = self.generations.wrapping_add(1).max(1);
        let (header, len) = (header as u64, (len / WORD) as u32);
        Key { incarnation, file, header, generation: self.generations, len }
    }
}

impl RegionState {
    /// Moves the region, with its present bytes, to other memory.
    fn move_to(&mut self, memory: Arc<Memory>, start: usize, kind: Kind) {
        memory.copy(start, &self.memory, self.start, self.len);
        (self.memory, self.start, self.kind) = (memory, start, kind);
    }

    #[inline]
    pub(super) fn load(&self, at: usize) -> u64 {
        self.memory.load(self.place(at, WORD))
    }

    pub(super) fn changed(&self, seen: &[u64], from: usize) -> Option<usize> {
        self.memory.changed(self.place(0, seen.len() * WORD), seen, from)
    }

    pub(super) fn store(&self, at: usize, word: u64) {
        self.memory.store(self.place(at, WORD), word);
    }

    pub(super) fn copy_out(&self, at: usize, into: &mut [u8]) {
        self.memory.get(self.place(at, into.len()), into);
    }

    pub(super) fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.memory.put(self.place(at, bytes.len()), bytes);
    }

    /// Offset in the memory at which a span of the region starts.
    #[inline]
    pub(super) fn place(&self, at: usize, len: usize) -> usize {
        if !is_inside(self.len, at, len) {
            is_no_span(self.len, at, len);
        }
        self.start + at
    }
}

fn bump(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}
