//! What must hold of every run, as executable checks: one file each, stated on the history and on
//! the world, never on the implementation.
//!
//! A history is what an onlooker saw: which messages were multicast, what each replica put into its
//! log and delivered, and who told whom about what. The definitions are RamCast's (section 2.2).

mod agreement;
mod genuineness;
mod integrity;
mod memory;
mod order;
mod quorum;
mod validity;

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use agreement::check_agreement;
pub use genuineness::check_genuineness;
pub use integrity::check_integrity;
pub use memory::{Footprint, check_memory};
pub use order::check_order;
pub use quorum::{Places, check_quorum};
pub use validity::check_validity;

use crate::ids::{GroupSet, MessageId, ReplicaId};
use crate::step::{Deliver, Record};

/// A property does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub property: &'static str,
    /// By what.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.evidence)
    }
}

/// Who told whom about a message, or about its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Who wrote.
    pub by: ReplicaId,
    /// Whose memory was written.
    pub to: ReplicaId,
    /// About what.
    pub about: About,
}

/// What a write was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// One message.
    Message(MessageId),
    /// An acceptance word: everything in the writer's log up to this index.
    Log(u64),
}

/// Everything an onlooker saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// What was multicast, to whom, and whether its sender is correct: it did not crash.
    pub multicasts: BTreeMap<MessageId, (GroupSet, bool)>,
    /// What each replica has in its log, by index; several records can share one.
    pub logs: BTreeMap<ReplicaId, Vec<(u64, Record)>>,
    /// What each replica delivered, in order.
    pub deliveries: BTreeMap<ReplicaId, Vec<Deliver>>,
    /// Who told whom.
    pub touches: Vec<Touch>,
    /// The replicas that did not crash.
    pub correct: Vec<ReplicaId>,
}

impl History {
    /// Checks everything that can be said at any time.
    pub fn check_safety(&self) -> Result<(), Violation> {
        check_integrity(self)?;
        check_order(self)?;
        check_genuineness(self)
    }

    /// Checks, besides, what must have happened when nothing is left to happen.
    pub fn check_complete(&self) -> Result<(), Violation> {
        self.check_safety()?;
        check_validity(self)?;
        check_agreement(self)
    }

    fn delivered(&self, by: ReplicaId) -> &[Deliver] {
        self.deliveries.get(&by).map_or(&[], Vec::as_slice)
    }
}
