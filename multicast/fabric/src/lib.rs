//! One-sided access to the memory of other processes. Bytes have no meaning here.
//!
//! [`Fabric`] offers what RDMA reliable connections offer, and nothing more. Its promises are numbered;
//! `tests/conformance/` holds every backend to each of them. This is the only crate of the workspace that contains
//! `unsafe` code.

use std::time::Duration;

pub mod adapters;
pub mod any;
mod clock;
mod constants;
pub mod counted;
mod error;
pub mod fork;
mod memory;
pub mod shm;
pub mod sim;
mod slab;
pub mod tcp;
#[cfg(feature = "verbs")]
pub mod verbs;
pub mod wait;

pub use constants::{Constants, Difference};
pub use error::FabricError;

/// One incarnation of a connected process. Valid only on the fabric that returned it; never reused, so that nothing
/// addressed to an earlier incarnation reaches a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub u32);

/// Memory of this process to which peers may be given access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(pub u32);

/// A peer's region, as seen by a process that may write or read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Remote(pub u32);

/// What a peer needs to reach a region under its present grant: an address and a key, in a format of the backend. Plain
/// bytes, sent in control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionKey(pub [u8; 32]);

/// Who may reach a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Every peer that has the key may write and read. Each *word* still has a single writer.
    Shared,
    /// Every peer that has the key may read; the peer named by [`Fabric::grant`] may write, until [`Fabric::revoke`].
    /// The grant's own file, memory registration or table entry is what fences it.
    Granted,
}

/// Where a write's bytes come from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A span of one of our own regions, which is registered already: nothing is copied before the write. It may be
    /// read as late as the write's end; if it is changed before, it is undefined which bytes are written.
    Span {
        region: Region,
        /// Offset of the first byte.
        at: usize,
        /// In bytes.
        len: usize,
    },
    /// A few bytes that travel with the request.
    Inline(&'a [u8]),
}

impl Source<'_> {
    /// Number of bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Span { len, .. } => *len,
            Self::Inline(bytes) => bytes.len(),
        }
    }
}

/// How a posted operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes are in the target's memory (for a read: in ours).
    Done,
    /// The peer no longer lets us write there. This is how a deposed leader finds out.
    Denied,
    /// No answer: the peer is gone. The bytes may or may not have arrived.
    Unknown,
}

/// A signalled operation has ended. `tag` is what the poster gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's own name for the operation.
    pub tag: u64,
    pub outcome: Outcome,
}

impl Completion {
    /// The completion of an operation whose outcome will never be known.
    fn lost(tag: u64) -> Self {
        Self { tag, outcome: Outcome::Unknown }
    }
}

/// One-sided access to the memory of other processes.
///
/// Backends differ in speed, never in meaning. `tests/conformance/` holds each of them, the simulator included, to
/// these promises:
///
/// 1. **In order.** Writes to one peer become visible there in the order they were posted.
/// 2. **Whole words.** An aligned 8-byte word is never seen half written. Nothing longer is
///    promised: a longer write can be seen torn.
/// 3. **Fenced.** Once [`revoke`](Self::revoke) returned, no write posted under the old grant becomes visible to the
///    owner, not even one already in flight. The writer learns of it by [`Outcome::Denied`].
/// 4. **Completion.** [`Outcome::Done`] means that the bytes are in the target's memory. An unknown outcome is
///    distinguished from a denied one.
/// 5. **Single writer.** A word is written by one peer (or by its owner) alone. There are no remote
///    atomics.
/// 6. **Waiting.** [`park`](Self::park) returns soon after a peer that wrote called
///    [`wake`](Self::wake), even if both came just before the call. No wake-up is lost.
/// 7. **Incarnations.** A restarted process is a new peer; nothing addressed to the old one reaches
///    the new one, and what the old one left behind is refused and cleaned up.
/// 8. **Successors.** Once a process has joined under the name of one that died, no write to the dead one that is posted
///    then is `Done`, even by a peer that has not noticed the death.
///
/// Misuse, such as a span that leaves one of our own regions, is a bug and panics. A span that leaves a peer's region
/// is an error, because the region's bounds come from the peer. Offsets and lengths of writes are multiples of 8,
/// except that the last word may be shorter.
pub trait Fabric {
    /// A clock that only rises, from an arbitrary start, also while the host sleeps. Virtual in the simulator.
    fn now(&self) -> Duration;

    /// Connects to the process that now has the name `name` (`n0e1` is engine 1 of node 0). Returns the same peer again
    /// while that process and the connection live. Where connecting takes time, the name is unreachable until the
    /// connection is made: dial again.
    fn dial(&mut self, name: &str) -> Result<Peer, FabricError>;

    /// Whether the peer's process is known to be dead, or our connection to it to have ended. Makes a system call: not
    /// for the hot path.
    fn is_gone(&mut self, peer: Peer) -> bool;

    /// Whether the process of a peer that is [gone](Self::is_gone) may be alive, and return on another connection. True
    /// for backends where the end of a connection does not show that the process has died.
    fn may_return(&self) -> bool {
        false
    }

    /// Whether the peer's process is known to have ended, so that it sends nothing any more. Never known on backends
    /// where a [gone peer may return](Self::may_return).
    fn has_died(&mut self, peer: Peer) -> bool {
        !self.may_return() && self.is_gone(peer)
    }

    /// The name of the peer, until it is hung up on. Where peers show certificates, the peer's certificate is valid for
    /// it.
    fn name_of(&self, peer: Peer) -> Option<String>;

    /// Drops the connection and everything attached through it; the peer is not notified. Nothing that the peer had
    /// posted becomes visible to us any more, so memory that it could write can be given to others.
    fn hang_up(&mut self, peer: Peer);

    /// Makes `len` zeroed bytes of memory that peers can reach. `len` is a multiple of 8.
    fn create(&mut self, len: usize, permission: Permission) -> Result<Region, FabricError>;

    /// Revokes all access to a region and frees its memory.
    fn destroy(&mut self, region: Region);

    /// The key with which peers [`attach`](Self::attach) a [`Permission::Shared`] region.
    fn key(&self, region: Region) -> RegionKey;

    /// Allows `writer`, and no other peer, to write to our [`Permission::Granted`] region. The key is fresh: keys of
    /// earlier grants open nothing any more. The region must not be granted already.
    fn grant(&mut self, region: Region, writer: Peer) -> Result<RegionKey, FabricError>;

    /// Allows no peer to write to our region any more. What was whole in it stays readable by us.
    fn revoke(&mut self, region: Region) -> Result<(), FabricError>;

    /// Does in advance the slow part of the next [`revoke`](Self::revoke) and [`grant`](Self::grant) of a
    /// [`Permission::Granted`] region, because others wait for these two. To be called now and then, when nobody waits;
    /// a call takes a few milliseconds at most, and most calls find nothing to do.
    fn prepare(&mut self, region: Region) {
        let _ = region;
    }

    /// Opens a peer's region by the key it sent. A stale key is an error here, or, where only the owner can detect it,
    /// every operation on the region is denied.
    fn attach(&mut self, peer: Peer, key: &RegionKey) -> Result<Remote, FabricError>;

    /// Gives up access to a peer's region.
    fn detach(&mut self, remote: Remote);

    /// Posts a write. With a `tag`, its end is reported by [`poll`](Self::poll). Without one, only a failure shows, as
    /// the failure of the next tagged write to that peer. The write is visible to the peer at the latest after
    /// [`flush`](Self::flush).
    fn write(
        &mut self,
        to: Remote,
        at: usize,
        from: Source<'_>,
        tag: Option<u64>,
    ) -> Result<(), FabricError>;

    /// Posts a read of a peer's memory into our own region.
    fn read(
        &mut self,
        from: Remote,
        at: usize,
        len: usize,
        into: (Region, usize),
        tag: u64,
    ) -> Result<(), FabricError>;

    /// Ends a batch of posted operations: one doorbell, one system call, or nothing, depending on the backend.
    fn flush(&mut self);

    /// Appends the ends of tagged operations that have become known. Never blocks. On backends where neither hardware
    /// nor another process does it, the writes of peers are placed in our memory, and their reads answered, during this
    /// call, [`recv`](Self::recv) and [`park`](Self::park).
    fn poll(&mut self, completions: &mut Vec<Completion>);

    /// Wakes the peer if it is parked. To be called after the writes that it should see were flushed.
    fn wake(&mut self, peer: Peer);

    /// Sleeps until a peer wakes us, a control message arrives, or `longest` has passed. `idle` is called once more
    /// after peers can see that we are parked, and we sleep only if it returns true: it must look at everything that a
    /// peer could have written.
    fn park(&mut self, longest: Duration, idle: &mut dyn FnMut(&Self) -> bool)
    where
        Self: Sized;

    /// Publishes whether our core is *contended*: others compute on it, and we sleep in place of yielding. This is a
    /// hint, and a fabric need not transmit it.
    fn set_contended(&mut self, _contended: bool) {}

    /// Whether a peer whose core is contended was [woken](Self::wake) since the last call.
    fn take_contended(&mut self) -> bool {
        false
    }

    /// Sends a small control message (at most [`MAIL_MAX`] bytes), in order per peer, and wakes it.
    fn send(&mut self, to: Peer, bytes: &[u8]) -> Result<(), FabricError>;

    /// Takes the next control message, if there is one. Cheap when there is none.
    fn recv(&mut self, into: &mut Vec<u8>) -> Option<Peer>;

    /// A word of our own memory, which peers may be writing. Once the word is seen, everything that its writer wrote
    /// before it is visible.
    fn load(&self, region: Region, at: usize) -> u64;

    /// Number of the first word of a region, from number `from` on, that differs from the word at its place in `seen`:
    /// one scan of many words of which few change. It shows that a word is to be loaded, and not what is visible:
    /// [`load`](Self::load) does.
    fn changed(&self, region: Region, seen: &[u64], from: usize) -> Option<usize>;

    /// Sets a word of our own memory, for peers to read.
    fn store(&mut self, region: Region, at: usize, word: u64);

    /// Copies bytes out of our own memory, which peers may be writing: they can be torn.
    fn copy_out(&self, region: Region, at: usize, into: &mut [u8]);

    /// Copies bytes into our own memory.
    fn copy_in(&mut self, region: Region, at: usize, bytes: &[u8]);
}

/// The longest control message, in bytes.
pub const MAIL_MAX: usize = 16 << 10;

/// Whether bytes can be sent as a control message.
fn check_mail(bytes: &[u8]) -> Result<(), FabricError> {
    let fits = bytes.len() <= MAIL_MAX;
    fits.then_some(()).ok_or(FabricError::Mail { len: bytes.len(), why: "it is too long" })
}

/// The error for a control message that finds the mailbox full.
fn mailbox_is_full(bytes: &[u8]) -> FabricError {
    FabricError::Mail { len: bytes.len(), why: "the mailbox is full" }
}

/// Whether a process may have that name.
fn is_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !name.is_empty() && name.len() <= 64 && name.bytes().all(allowed)
}
