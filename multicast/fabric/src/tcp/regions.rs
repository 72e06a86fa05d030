//! Our own memory, and which peers may reach it: the equivalent of a network card's tables.
//!
//! Only the thread that owns the fabric touches the memory, for itself and on behalf of its peers. So a revocation is
//! exact, and costs a store: whatever is placed was looked up in this table just before, by the same thread.

use std::collections::HashMap;
use std::sync::Arc;

use crate::memory::{Memory, WORD, check_remote_span};
use crate::slab::Slab;
use crate::{FabricError, Permission, Region, RegionKey};

use super::frame::RegionOffset;

#[derive(Debug)]
pub(super) struct Regions {
    slab: Slab<RegionState>,
    /// Number of grants so far. None is ever repeated.
    grants: u32,
    /// Whether the keys are used by cards too, and have room for the count alone.
    for_cards: bool,
    /// The region that each present grant opens.
    open: HashMap<u64, u32>,
}

#[derive(Debug)]
struct RegionState {
    memory: Arc<Memory>,
    open: Open,
}

/// Which peers may reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Every peer that has the key, as long as the region exists.
    ToAll {
        grant: u64,
    },
    /// Every peer that has the key may read, and `writer` may write.
    To {
        writer: u64,
        grant: u64,
    },
    ToNobody,
}

impl Open {
    fn grant(self) -> Option<u64> {
        match self {
            Self::ToAll { grant } | Self::To { grant, .. } => Some(grant),
            Self::ToNobody => None,
        }
    }
}

/// The fields of a [`RegionKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The owner's.
    pub(super) incarnation: u64,
    pub(super) grant: u64,
    pub(super) region: u32,
    pub(super) len: u64,
}

/// Stands for the region in keys that contain only the grant.
const BY_GRANT: u32 = u32::MAX;

impl Key {
    fn to_bytes(self) -> RegionKey {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.grant.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.region.to_le_bytes());
        bytes[24..].copy_from_slice(&self.len.to_le_bytes());
        RegionKey(bytes)
    }

    /// The place of a span of the region.
    pub(super) fn place(&self, at: usize, len: usize) -> Result<RegionOffset, FabricError> {
        check_remote_span(self.len as usize, at, len)?;
        Ok(RegionOffset { region: self.region, grant: self.grant, at: at as u64 })
    }

    pub(super) fn from_bytes(key: &RegionKey) -> Self {
        let word = |at: usize| {
            u64::from_le_bytes(*key.0[at..].first_chunk().expect("a key has four words"))
        };
        Self { incarnation: word(0), grant: word(8), region: word(16) as u32, len: word(24) }
    }
}

/// The fields that a process without a card needs of the keys of a fabric of cards: the owner's incarnation, and half
/// words of the length in words and of the grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CardKey {
    pub(crate) incarnation: u64,
    pub(crate) words: u32,
    pub(crate) grant: u32,
}

impl CardKey {
    pub(crate) const WORDS: usize = 20;
    pub(crate) const GRANT: usize = 24;

    pub(crate) fn from_bytes(key: &RegionKey) -> Self {
        let half = |at: usize| {
            u32::from_le_bytes(*key.0[at..].first_chunk().expect("a key has eight half words"))
        };
        let incarnation = u64::from(half(0)) | u64::from(half(4)) << 32;
        Self { incarnation, words: half(Self::WORDS), grant: half(Self::GRANT) }
    }
}

impl From<CardKey> for Key {
    fn from(CardKey { incarnation, words, grant }: CardKey) -> Self {
        let len = u64::from(words) * WORD as u64;
        Self { incarnation, grant: grant.into(), region: BY_GRANT, len }
    }
}

impl Regions {
    pub(super) fn new(for_cards: bool) -> Self {
        Self { slab: Slab::default(), grants: 0, for_cards, open: HashMap::new() }
    }

    pub(super) fn create(
        &mut self,
        len: usize,
        permission: Permission,
    ) -> Result<Region, FabricError> {
        let memory = Memory::of_region(len)?;
        let region = self.slab.insert(RegionState { memory: memory.into(), open: Open::ToNobody });
        if permission == Permission::Shared {
            let grant = self.next_grant(region);
            self.state_mut(Region(region)).open = Open::ToAll { grant };
        }
        Ok(Region(region))
    }

    pub(super) fn destroy(&mut self, region: Region) {
        let destroyed = self.slab.remove(region.0).expect("the region was destroyed before");
        self.close(destroyed.open);
    }

    pub(super) fn key(&self, region: Region, incarnation: u64) -> RegionKey {
        let state = self.state(region);
        let Open::ToAll { grant } = state.open else {
            panic!("the keys of granted regions are grants'")
        };
        let len = state.memory.len() as u64;
        Key { incarnation, grant, region: region.0, len }.to_bytes()
    }

    pub(super) fn grant(&mut self, region: Region, writer: u64, incarnation: u64) -> RegionKey {
        assert!(
            self.state(region).open == Open::ToNobody,
            "the region is granted, or not for granting"
        );
        let grant = self.next_grant(region.0);
        let state = self.state_mut(region);
        state.open = Open::To { writer, grant };
        let len = state.memory.len() as u64;
        Key { incarnation, grant, region: region.0, len }.to_bytes()
    }

    pub(super) fn revoke(&mut self, region: Region) {
        let state = self.state_mut(region);
        assert!(!matches!(state.open, Open::ToAll { .. }), "a shared region has no grant");
        let open = std::mem::replace(&mut state.open, Open::ToNobody);
        self.close(open);
    }

    fn close(&mut self, open: Open) {
        if let Some(grant) = open.grant() {
            self.open.remove(&grant);
        }
    }

    /// The number of the grant under which a region is open, if it is.
    #[cfg(feature = "verbs")]
    pub(super) fn grant_of(&self, region: Region) -> Option<u64> {
        self.state(region).open.grant()
    }

    /// Whether that grant still opens a region.
    #[cfg(feature = "verbs")]
    pub(super) fn is_open(&self, grant: u64) -> bool {
        self.open.contains_key(&grant)
    }

    pub(super) fn get(&self, region: Region) -> &Arc<Memory> {
        &self.state(region).memory
    }

    /// The memory, unless the region was destroyed.
    pub(super) fn find(&self, region: Region) -> Option<&Memory> {
        self.slab.get(region.0).map(|state| &*state.memory)
    }

    /// Places the bytes that `writer` has written. False if it may not write there.
    #[must_use]
    pub(super) fn place(&self, place: RegionOffset, writer: u64, bytes: &[u8]) -> bool {
        let may = |open| match open {
            Open::ToAll { grant } => grant == place.grant,
            Open::To { writer: whose, grant } => grant == place.grant && whose == writer,
            Open::ToNobody => false,
        };
        let Some((memory, at)) = self.reach(place, bytes.len(), may) else { return false };
        memory.put(at, bytes);
        true
    }

    /// The memory and offset that a peer may read, if it may.
    pub(super) fn reach_to_read(
        &self,
        place: RegionOffset,
        len: usize,
    ) -> Option<(&Memory, usize)> {
        self.reach(place, len, |open| match open {
            Open::ToAll { grant } | Open::To { grant, .. } => grant == place.grant,
            Open::ToNobody => false,
        })
    }

    fn reach(
        &self,
        place: RegionOffset,
        len: usize,
        may: impl FnOnce(Open) -> bool,
    ) -> Option<(&Memory, usize)> {
        let region = match place.region {
            BY_GRANT => *self.open.get(&place.grant)?,
            region => region,
        };
        let state = self.slab.get(region)?;
        let at = usize::try_from(place.at).ok()?;
        let size = state.memory.len();
        let inside = at.is_multiple_of(WORD) && at <= size && len <= size - at;
        (inside && may(state.open)).then_some((&*state.memory, at))
    }

    /// A grant is a count, so that no two are equal, and a random half, so that a connected peer that was given no key
    /// cannot guess it.
    fn next_grant(&mut self, region: u32) -> u64 {
        self.grants = self.grants.checked_add(1).expect("four thousand million grants");
        let drawn: u32 = if self.for_cards { 0 } else { rand::random() };
        let grant = u64::from(self.grants) | u64::from(drawn) << 32;
        self.open.insert(grant, region);
        grant
    }

    fn state(&self, region: Region) -> &RegionState {
        self.slab.get(region.0).expect("the region was destroyed")
    }

    fn state_mut(&mut self, region: Region) -> &mut RegionState {
        self.slab.get_mut(region.0).expect("the region was destroyed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_granted_and_inside_is_placed() {
        let mut regions = Regions::new(false);
        let log = regions.create(64, Permission::Granted).unwrap();
        let (writer, other, me) = (1, 2, 3);
        let first = Key::from_bytes(&regions.grant(log, writer, me));
        regions.revoke(log);
        let now = Key::from_bytes(&regions.grant(log, writer, me));
        let place = |key: Key, at: u64| RegionOffset { region: key.region, grant: key.grant, at };
        #[rustfmt::skip]
        let cases = [
            (place(now, 0),         writer, 64, true,  "all of it"),
            (place(now, 56),        writer, 5,  true,  "a tail"),
            (place(now, 64),        writer, 0,  true,  "nothing, at the end"),
            (place(first, 0),       writer, 8,  false, "of an earlier grant"),
            (place(now, 0),         other,  8,  false, "somebody else's"),
            (place(now, 4),         writer, 8,  false, "not at a word"),
            (place(now, 64),        writer, 1,  false, "beyond the end"),
            (place(now, 8),         writer, 64, false, "across the end"),
            (place(now, u64::MAX - 7), writer, 16, false, "around the world"),
            (RegionOffset { region: 9, ..place(now, 0) }, writer, 8, false, "of no region"),
            (RegionOffset { region: BY_GRANT, ..place(now, 0) }, writer, 8, true,  "by its grant alone"),
            (RegionOffset { region: BY_GRANT, ..place(now, 0) }, other,  8, false, "that, of somebody else"),
            (RegionOffset { region: BY_GRANT, ..place(first, 0) }, writer, 8, false, "by an earlier grant"),
        ];
        for (place, writer, len, taken, because) in cases {
            assert_eq!(regions.place(place, writer, &vec![1; len]), taken, "{because}");
        }
        regions.revoke(log);
        assert!(!regions.place(place(now, 0), writer, &[1; 8]), "it was revoked");
        assert!(regions.reach_to_read(place(now, 0), 8).is_none(), "for readers too");
    }
}
