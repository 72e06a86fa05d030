//! Our own regions.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arena::{self, Arenas, Place};
use super::block::{Block, HEADER, Key};
use super::host::{Home, Host};
use super::room::anonymous;
use crate::memory::{Memory, WORD, check_len};
use crate::slab::Slab;
use crate::{Access, FabricError, Region, RegionKey};

#[derive(Debug, Default)]
pub(super) struct Regions {
    slab: Slab<RegionState>,
    arenas: Arenas,
    /// The last file's name; none is used twice in an incarnation.
    files: u64,
    /// The last generation; zero means closed.
    generations: u32,
}

/// A region, wherever its bytes are now.
#[derive(Debug)]
pub(super) struct RegionState {
    len: usize,
    /// The memory that counts: what we load and store, and peers, if anybody, write.
    pub(super) memory: Arc<Memory>,
    /// Where in it the region starts.
    pub(super) start: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Shared, in an arena.
    Small(Block, Place, Key),
    /// Shared, a file of its own.
    Large(Block, Key),
    /// Granted, to nobody now: the bytes are in private memory.
    Private,
    /// Granted to somebody: the bytes are in the grant's file. The private memory is kept for
    /// them, pages and all: revoking cannot fail for lack of room, and takes no longer than a copy.
    /// A change of leaders waits for it. The price is that a granted region takes its size twice.
    Lent { block: Block, file: u64, private: Memory },
}

impl Regions {
    pub(super) fn get(&self, region: Region) -> &RegionState {
        self.slab.get(region.0).expect("the region was destroyed")
    }

    pub(super) fn create(
        &mut self,
        len: usize,
        access: Access,
        incarnation: u64,
        host: &Host,
        home: &Home,
    ) -> Result<Region, FabricError> {
        check_len(len);
        assert!(u32::try_from(len / WORD).is_ok(), "a region of {len} bytes");
        let state = match access {
            Access::Granted => {
                let memory = Arc::new(anonymous(len)?);
                RegionState { len, memory, start: 0, kind: Kind::Private }
            }
            Access::Shared if len <= arena::REGION_MAX => {
                let files = &mut self.files;
                let (place, block) = self.arenas.allocate(len, host, home, || bump(files))?;
                let key = self.key_for(incarnation, place.file, place.header, len);
                let (memory, start) = (Arc::clone(&block.memory), block.data());
                RegionState { len, memory, start, kind: Kind::Small(block, place, key) }
            }
            Access::Shared => {
                let file = bump(&mut self.files);
                let block = Block::new(home.create(file, HEADER + len)?, 0);
                let key = self.key_for(incarnation, file, 0, len);
                let (memory, start) = (Arc::clone(&block.memory), block.data());
                RegionState { len, memory, start, kind: Kind::Large(block, key) }
            }
        };
        if let Kind::Small(block, _, key) | Kind::Large(block, key) = &state.kind {
            block.open(key.generation, len, 0);
        }
        Ok(Region(self.slab.insert(state)))
    }

    pub(super) fn destroy(&mut self, region: Region, home: &Home) {
        let state = self.slab.remove(region.0).expect("the region was destroyed before");
        match state.kind {
            Kind::Private => {}
            Kind::Small(block, place, _) => {
                block.close();
                self.arenas.release(place, &block, home);
            }
            Kind::Large(block, key) => {
                block.close();
                home.remove(key.file);
            }
            Kind::Lent { block, file, .. } => {
                block.close();
                home.remove(file);
            }
        }
    }

    pub(super) fn key(&self, region: Region) -> RegionKey {
        match &self.get(region).kind {
            Kind::Small(_, _, key) | Kind::Large(_, key) => key.to_bytes(),
            Kind::Private | Kind::Lent { .. } => panic!("the keys of granted regions are grants'"),
        }
    }

    pub(super) fn grant(
        &mut self,
        region: Region,
        writer: u64,
        incarnation: u64,
        home: &Home,
    ) -> Result<RegionKey, FabricError> {
        let file = bump(&mut self.files);
        let len = self.get(region).len;
        let key = self.key_for(incarnation, file, 0, len);
        let state = self.slab.get_mut(region.0).expect("looked at above");
        assert!(matches!(state.kind, Kind::Private), "the region is granted, or not for granting");
        let block = Block::new(home.create(file, HEADER + len)?, 0);
        block.memory.copy(block.data(), &state.memory, 0, len);
        block.open(key.generation, len, writer);

        state.start = block.data();
        let private = mem::replace(&mut state.memory, Arc::clone(&block.memory));
        let private = Arc::into_inner(private).expect("private memory is nobody else's");
        state.kind = Kind::Lent { block, file, private };
        Ok(key.to_bytes())
    }

    pub(super) fn revoke(&mut self, region: Region, home: &Home) {
        let state = self.slab.get_mut(region.0).expect("the region was destroyed");
        match mem::replace(&mut state.kind, Kind::Private) {
            Kind::Lent { block, file, private } => {
                block.close();
                private.copy(0, &block.memory, block.data(), state.len);
                state.memory = Arc::new(private);
                state.start = 0;
                home.remove(file);
            }
            Kind::Private => {}
            Kind::Small(..) | Kind::Large(..) => panic!("a shared region has no grant to revoke"),
        }
    }

    fn key_for(&mut self, incarnation: u64, file: u64, header: usize, len: usize) -> Key {
        self.generations = self.generations.wrapping_add(1).max(1);
        let (header, len) = (header as u64, (len / WORD) as u32);
        Key { incarnation, file, header, generation: self.generations, len }
    }
}

impl RegionState {
    pub(super) fn load(&self, at: usize) -> u64 {
        self.memory.word(self.place(at, WORD)).load(Ordering::Acquire)
    }

    pub(super) fn store(&self, at: usize, word: u64) {
        self.memory.word(self.place(at, WORD)).store(word, Ordering::Release);
    }

    pub(super) fn copy_out(&self, at: usize, into: &mut [u8]) {
        self.memory.get(self.place(at, into.len()), into);
    }

    pub(super) fn copy_in(&self, at: usize, bytes: &[u8]) {
        self.memory.put(self.place(at, bytes.len()), bytes);
    }

    /// Where in the memory a span of the region starts.
    pub(super) fn place(&self, at: usize, len: usize) -> usize {
        assert!(at <= self.len && len <= self.len - at, "span {at}+{len} leaves {}", self.len);
        self.start + at
    }
}

fn bump(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}
