//! Small shared regions, many to a file.
//!
//! A node serves thousands of sessions with a handful of regions each. A file, a mapping and a page for every region
//! would exceed the system's limits, so regions are carved out of arenas that grow with what the process holds: a
//! client of one session reserves little, a large node little more than it uses. An arena is freed with the last of its
//! regions.

use std::collections::HashMap;
use std::sync::Arc;

use super::block::{Block, HEADER};
use super::host::{Home, Host};
use crate::FabricError;
use crate::memory::Memory;

/// The largest region that goes into an arena. Larger ones get their own file.
pub(super) const REGION_MAX: usize = 256 << 10;

const ARENA_MIN: usize = 128 << 10;
const ARENA_MAX: usize = 4 << 20;

/// Most retired places that one allocation examines, so that none takes long.
const RETIRED_LOOKS_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Arenas {
    by_file: HashMap<u64, Arena>,
    /// The arena from which the next place is taken if none is free.
    current: Option<u64>,
    /// Places for reuse, by size. Regions come in few sizes.
    free: HashMap<usize, Vec<Allocation>>,
    /// Places to which some process may still be writing, by size.
    retired: HashMap<usize, Vec<Allocation>>,
    reserved: usize,
}

#[derive(Debug)]
struct Arena {
    memory: Arc<Memory>,
    used: usize,
    live: usize,
}

/// A place in an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allocation {
    pub(super) file: u64,
    pub(super) header: usize,
    size: usize,
}

impl Arenas {
    /// Zeroed memory for a region of `len` bytes. `file` names a new arena, if one is needed.
    pub(super) fn allocate(
        &mut self,
        len: usize,
        host: &Host,
        home: &Home,
        file: impl FnOnce() -> u64,
    ) -> Result<(Allocation, Block), FabricError> {
        let size = HEADER + len.next_multiple_of(HEADER);
        self.reclaim(size, host);
        if let Some(place) = self.free.get_mut(&size).and_then(Vec::pop) {
            let arena = self.by_file.get_mut(&place.file).expect("places go with their arena");
            arena.live += 1;
            arena.memory.zero(place.header, size);
            return Ok((place, Block::new(Arc::clone(&arena.memory), place.header)));
        }
        let current = self.current.filter(|file| self.by_file[file].room() >= size);
        let current = match current {
            Some(current) => current,
            None => self.grow(size, home, file())?,
        };
        let arena = self.by_file.get_mut(&current).expect("just found");
        let place = Allocation { file: current, header: arena.used, size };
        arena.used += size;
        arena.live += 1;
        Ok((place, Block::new(Arc::clone(&arena.memory), place.header)))
    }

    /// Takes back the memory of a closed region.
    pub(super) fn release(&mut self, place: Allocation, block: &Block, home: &Home) {
        let arena = self.by_file.get_mut(&place.file).expect("places go with their arena");
        arena.live -= 1;
        if arena.live == 0 {
            self.reserved -= arena.memory.len();
            self.by_file.remove(&place.file);
            self.current = self.current.filter(|&file| file != place.file);
            for places in self.free.values_mut().chain(self.retired.values_mut()) {
                places.retain(|other| other.file != place.file);
            }
            home.remove(place.file);
        } else if block.attached().is_some_and(|mut who| who.next().is_none()) {
            self.free.entry(place.size).or_default().push(place);
        } else {
            self.retired.entry(place.size).or_default().push(place);
        }
    }

    fn grow(&mut self, size: usize, home: &Home, file: u64) -> Result<u64, FabricError> {
        let least = size.next_multiple_of(4096);
        let wanted = self.reserved.clamp(ARENA_MIN, ARENA_MAX).max(least).next_multiple_of(4096);
        let (memory, len) = match home.create(file, wanted) {
            // Little room is left: take no more than this region needs.
            Err(FabricError::NoSpace { .. }) if least < wanted => {
                (home.create(file, least)?, least)
            }
            made => (made?, wanted),
        };
        self.by_file.insert(file, Arena { memory, used: 0, live: 0 });
        self.reserved += len;
        self.current = Some(file);
        Ok(file)
    }

    /// Frees retired places of that size whose last users have detached or died.
    fn reclaim(&mut self, size: usize, host: &Host) {
        let Some(retired) = self.retired.get_mut(&size) else { return };
        for _ in 0..RETIRED_LOOKS_MAX.min(retired.len()) {
            let place = retired.swap_remove(0);
            let block = Block::new(Arc::clone(&self.by_file[&place.file].memory), place.header);
            let in_use = match block.attached() {
                None => true,
                Some(mut who) => who.any(|who| host.is_incarnation_alive(who)),
            };
            if in_use {
                retired.push(place);
            } else {
                self.free.entry(size).or_default().push(place);
            }
        }
    }
}

impl Arena {
    fn room(&self) -> usize {
        self.memory.len() - self.used
    }
}
