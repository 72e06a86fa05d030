//! Our own memory, its registrations with the device, and which peers may reach it.
//!
//! Memory is registered once for our own requests, when the first of them needs it, and once more each time it is
//! opened to others: permanently if it is shared, and for one grant if it is granted. Taking that second registration
//! back is the fence (promise 3): it returns when the device has stopped using the memory. The key is fenced, and not
//! the peer, whose other requests continue.

use std::io;
use std::sync::{Arc, OnceLock};

use super::raw::{Adapter, Reach, Registration};
use crate::memory::{Memory, WORD, check_remote_span};
use crate::slab::Slab;
use crate::{FabricError, Peer, Permission, Region, RegionKey};

/// Keeps memory alive that our own requests use: they hold it until they have ended.
#[derive(Debug)]
pub(super) struct Held {
    /// Declared before the memory, so that it is dropped first.
    ours: OnceLock<Registration>,
    pub(super) memory: Arc<Memory>,
}

impl Held {
    /// The local key for our own requests.
    pub(super) fn local(&self, adapter: &Arc<Adapter>) -> io::Result<u32> {
        if let Some(ours) = self.ours.get() {
            return Ok(ours.local());
        }
        let ours = Registration::new(adapter, &self.memory, Reach::Ours)?;
        Ok(self.ours.get_or_init(|| ours).local())
    }
}

/// The device's view of the control channel's memory. That fabric has made the memory, serves peers without a card, and
/// owns the grants.
#[derive(Debug)]
pub(super) struct Regions {
    adapter: Arc<Adapter>,
    device: String,
    slab: Slab<RegionState>,
}

#[derive(Debug)]
struct RegionState {
    /// Declared before the memory, so that it is dropped first.
    open: Option<Open>,
    permission: Permission,
    held: Arc<Held>,
}

/// How a region is open to others.
#[derive(Debug)]
struct Open {
    registration: Registration,
    grant: u32,
    /// The only peer that may write; `None` if every peer may.
    writer: Option<Writer>,
}

/// The peer to which a region is granted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writer {
    pub(super) peer: Peer,
    pub(super) incarnation: u64,
    pub(super) card: bool,
}

/// The fields of a [`RegionKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The owner's.
    pub(super) incarnation: u64,
    pub(super) address: u64,
    pub(super) remote: u32,
    words: u32,
    pub(super) grant: u32,
    /// Lower half of the incarnation that may write; 0 for every peer.
    writer: u32,
}

/// Half of an incarnation, never 0.
fn half(incarnation: u64) -> u32 {
    (incarnation as u32).max(1)
}

impl Key {
    fn to_bytes(self) -> RegionKey {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.incarnation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        for (into, half) in
            bytes[16..].chunks_exact_mut(4).zip([self.remote, self.words, self.grant, self.writer])
        {
            into.copy_from_slice(&half.to_le_bytes());
        }
        RegionKey(bytes)
    }

    pub(super) fn from_bytes(key: &RegionKey) -> Self {
        let word = |at: usize| {
            u64::from_le_bytes(*key.0[at..].first_chunk().expect("a key has four words"))
        };
        let (third, fourth) = (word(16), word(24));
        Self {
            incarnation: word(0),
            address: word(8),
            remote: third as u32,
            words: (third >> 32) as u32,
            grant: fourth as u32,
            writer: (fourth >> 32) as u32,
        }
    }

    /// Whether a process of that incarnation may write.
    pub(super) fn lets_write(&self, incarnation: u64) -> bool {
        self.writer == 0 || self.writer == half(incarnation)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// The address of a span of the region, and its key.
    pub(super) fn place(&self, at: usize, len: usize) -> Result<(u64, u32), FabricError> {
        check_remote_span(self.words as usize * WORD, at, len)?;
        Ok((self.address.wrapping_add(at as u64), self.remote))
    }
}

impl Regions {
    pub(super) fn new(adapter: &Arc<Adapter>, device: &str) -> Self {
        Self { adapter: Arc::clone(adapter), device: device.to_owned(), slab: Slab::default() }
    }

    /// Registers a region that was just made. `grant` is the grant under which it is open to all, if it is shared.
    pub(super) fn adopt(
        &mut self,
        region: Region,
        memory: Arc<Memory>,
        grant: Option<u64>,
    ) -> Result<(), FabricError> {
        let permission = if grant.is_some() { Permission::Shared } else { Permission::Granted };
        let held = Arc::new(Held { ours: OnceLock::new(), memory });
        let same = self.slab.insert(RegionState { open: None, permission, held });
        assert_eq!(same, region.0, "both are made and destroyed in the same order");
        let Some(grant) = grant else { return Ok(()) };
        self.open(region, grant, None).inspect_err(|_| _ = self.slab.remove(region.0))
    }

    fn open(
        &mut self,
        region: Region,
        grant: u64,
        writer: Option<Writer>,
    ) -> Result<(), FabricError> {
        let state = self.slab.get_mut(region.0).expect("a region of ours");
        assert!(state.open.is_none(), "the region is granted already");
        let memory = &state.held.memory;
        // A writer without a card writes by other means; peers with a card may still read.
        let cards_write = writer.is_none_or(|writer| writer.card);
        let reach = if cards_write { Reach::All } else { Reach::Readers };
        let registered = Registration::new(&self.adapter, memory, reach);
        let registration = registered.map_err(|source| FabricError::NotRegistered {
            len: memory.len(),
            device: self.device.clone(),
            source,
        })?;
        let grant = u32::try_from(grant).expect("four thousand million grants");
        state.open = Some(Open { registration, grant, writer });
        Ok(())
    }

    pub(super) fn destroy(&mut self, region: Region) {
        let state = self.slab.remove(region.0).expect("the region was destroyed before");
        if let Some(open) = state.open
            && let Err(error) = open.registration.end()
        {
            // The device may write there for ever, so the memory must never be reused.
            tracing::error!(%error, device = self.device, "memory cannot be released");
            std::mem::forget(state.held);
        }
    }

    pub(super) fn key(&self, region: Region, incarnation: u64) -> RegionKey {
        let state = self.state(region);
        assert!(state.permission == Permission::Shared, "the keys of granted regions are grants'");
        Self::key_of(state, incarnation)
    }

    fn key_of(state: &RegionState, incarnation: u64) -> RegionKey {
        let Open { registration, grant, writer } = state.open.as_ref().expect("it is open");
        let key = Key {
            incarnation,
            address: state.held.memory.address(),
            remote: registration.remote(),
            words: u32::try_from(state.held.memory.len() / WORD).expect("at most 32 GiB"),
            grant: *grant,
            writer: writer.map_or(0, |writer| half(writer.incarnation)),
        };
        key.to_bytes()
    }

    pub(super) fn grant(
        &mut self,
        region: Region,
        grant: u64,
        writer: Writer,
        incarnation: u64,
    ) -> Result<RegionKey, FabricError> {
        assert!(
            self.state(region).permission == Permission::Granted,
            "the region is not for granting"
        );
        self.open(region, grant, Some(writer))?;
        Ok(Self::key_of(self.state(region), incarnation))
    }

    /// The peer whose card may write to a granted region.
    pub(super) fn writer(&self, region: Region) -> Option<Peer> {
        let state = self.state(region);
        assert!(state.permission == Permission::Granted, "a shared region has no grant");
        let writer = state.open.as_ref().and_then(|open| open.writer);
        writer.filter(|writer| writer.card).map(|writer| writer.peer)
    }

    /// Takes a grant back. When this returns, only this process writes there.
    pub(super) fn revoke(&mut self, region: Region) -> io::Result<()> {
        let state = self.slab.get_mut(region.0).expect("a region of ours");
        state.open.take().map_or(Ok(()), |open| open.registration.end())
    }

    fn state(&self, region: Region) -> &RegionState {
        self.slab.get(region.0).expect("a region of ours")
    }

    pub(super) fn hold(&self, region: Region) -> &Arc<Held> {
        &self.state(region).held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::CardKey;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = Key {
            incarnation: 0x0102_0304_0506_0708,
            address: 0x7f00_0000_1000,
            remote: 0xdead_beef,
            words: 8,
            grant: 5,
            writer: half(77),
        };
        assert_eq!(Key::from_bytes(&key.to_bytes()), key);
        let Key { incarnation, words, grant, .. } = key;
        let without_card = CardKey::from_bytes(&key.to_bytes());
        assert_eq!(without_card, CardKey { incarnation, words, grant });
        assert!(key.lets_write(77) && !key.lets_write(78));
        assert_eq!(key.place(56, 8).unwrap(), (0x7f00_0000_1038, 0xdead_beef));
        assert!(Key { writer: 0, ..key }.lets_write(78), "shared");
        assert!(key.place(56, 9).is_err(), "beyond the end");
    }
}
