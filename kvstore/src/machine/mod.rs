//! The deterministic state machine of one replica.
//!
//! **Invariant (all or nothing, in all groups).** All groups of a command take the same branch, or all refuse
//! it. Checks of the command's bytes (`rules`) and of its session have the same result in every group, without
//! communication. A group's verdict contains the checks of its keys: whether its guards hold, and whether its
//! part of a branch can be executed. The group sends its verdict to the others when it executes the command,
//! before it waits for theirs. Then each group has every group's verdict and concludes the same from them.
//!
//! A recreated group starts without state and has lost its sessions. It objects to a command of an unknown
//! session, because the other groups wait for its verdict.
//!
//! **Invariant (serial equivalence).** While a command waits, those behind it that do not conflict with it take
//! effect and are answered (`under_way`). Every answer, and the state when all are over, is the same as if each
//! command had waited for those before it.
//!
//! Waiting cannot deadlock. A group waits only for groups that deliver the same command, each group sends its
//! verdict before it waits unless the command conflicts with one before it, and the order in which groups
//! deliver common commands has no cycle. So among the commands that wait there is always a lowest one, about
//! which all its groups send their verdicts.

pub(crate) mod answer;
mod application;
mod backup;
mod branch;
mod checkpoints;
mod completed;
mod conflict_index;
mod control;
mod copy;
pub mod digest;
mod exchange;
mod execute;
mod fetching;
mod moves;
mod part;
mod points;
mod read_write_set;
mod resume;
mod sessions;
mod share;
mod start;
mod stop;
mod stuck;
mod under_way;
mod unordered_read;
mod writes;

use std::cell::Cell;

use skein_fabric::Constants;
use skein_multicast::layout::Layout;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};

use self::backup::BackupCopy;
pub use self::branch::PAIR_OVERHEAD;
use self::completed::Completed;
use self::copy::Progress;
use self::exchange::Early;
use self::fetching::Queries;
use self::points::RestorePoints;
use self::sessions::Sessions;
use self::under_way::{Change, UnderWay};
use crate::command::{Transaction, Version};
use crate::limits::Limits;
use crate::slots::SlotMap;
use crate::store::Store;
use crate::store::memory::Memory;
use crate::store::tracked::Tracked;
use crate::wire::{Bytes, PartWriter};

/// One replica's keys, values and sessions.
///
/// Keys, values and what is retained for sessions are bounded by the group's share of
/// `limits.memory_bytes_max`, or `limits.store_bytes_max` if they are on disk: writes beyond it are refused. The ceiling decides outcomes, so it is the same at
/// every replica: it is computed from the layout and the limits, never from the replicas that this node hosts.
pub struct Machine<S = Memory> {
    group: GroupId,
    /// The replica's slot in its group.
    slot: u8,
    /// The map of hash slots to groups.
    slots: SlotMap,
    /// All groups of the cluster: `groups == slots.groups()`.
    groups: GroupSet,
    limits: Limits,
    ceiling: u64,
    store: Tracked<S>,
    sessions: Sessions,
    early: Early,
    under_way: UnderWay,
    /// Not part of the replicated state.
    queries: Queries,
    completed: Completed,
    writer: PartWriter,
    progress: Progress,
    /// Not part of the replicated state.
    backup: Option<Box<BackupCopy>>,
    points: RestorePoints,
    /// The last call has left commands that nothing blocks. Nothing is delivered before they have had their
    /// turn.
    unfinished: bool,
    /// Bytes that were copied, filled or scanned since the last `Application::take_work`.
    work: Cell<u64>,
}

/// Bytes of the store that count against the ceiling, and the digest of the store and the slot map.
#[derive(Clone, Copy)]
struct Stock {
    bytes: u64,
    digest: u64,
}

/// Version of the results of commands. It is incremented with every change of a result: all replicas of a group
/// must have the same version, and so must the programs that execute one log.
const BEHAVIOUR: u32 = 3;

/// Constants that decide a command's result besides the configuration: the version of the behaviour, the bytes
/// counted for pairs and sessions, and the sizes of the session table.
pub fn behaviour() -> Constants {
    Constants::default()
        .with("behaviour", BEHAVIOUR)
        .with("word_bits", usize::BITS)
        .with("pair_overhead", PAIR_OVERHEAD)
        .and(sessions::constants())
}

impl Machine {
    /// The empty machine of `replica` in a cluster of this layout, with its state in memory.
    pub fn new(replica: ReplicaId, layout: &Layout, slots: SlotMap, limits: Limits) -> Self {
        Self::with_store(Memory::default(), replica, layout, slots, limits)
    }
}

impl<S: Store> Machine<S> {
    /// The same on `store`, which must be empty.
    pub fn with_store(
        store: S,
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Self {
        assert!(store.is_empty(), "a machine starts with nothing in it");
        Self::holding(store, replica, layout, slots, limits)
    }

    /// The machine of `replica` in a cluster that returns to a restore point, where its group had the pairs in `store`.
    /// The versions that it assigns are above `versions`.
    pub fn returning(
        store: S,
        versions: Version,
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Self {
        let mut machine = Self::holding(store, replica, layout, slots, limits);
        machine.completed.raise(versions, 0);
        machine
    }

    fn holding(
        store: S,
        replica: ReplicaId,
        layout: &Layout,
        slots: SlotMap,
        limits: Limits,
    ) -> Self {
        Self {
            group: replica.group,
            slot: replica.slot,
            groups: slots.groups(),
            slots,
            limits,
            ceiling: limits.group_bytes_max(layout),
            store: Tracked::new(store),
            sessions: Sessions::default(),
            early: Early::default(),
            under_way: UnderWay::default(),
            queries: Queries::default(),
            completed: Completed::default(),
            writer: PartWriter::default(),
            progress: Progress::default(),
            backup: None,
            points: RestorePoints::of(layout.topology().replicas),
            unfinished: false,
            work: Cell::new(0),
        }
    }

    /// The slot map as of the moves that this machine has executed.
    pub fn slots(&self) -> &SlotMap {
        &self.slots
    }

    /// The store of keys and values.
    pub fn store(&self) -> &S {
        self.store.store()
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.store.len() as u64
    }

    /// Bytes that count against the [ceiling](Self::ceiling): keys, values and 96 bytes for each pair, open
    /// sessions and retained replies.
    pub fn bytes(&self) -> u64 {
        self.stored() + self.sessions.bytes()
    }

    /// A write that would raise [`bytes`](Self::bytes) above this is refused.
    pub fn ceiling(&self) -> u64 {
        self.ceiling
    }

    /// The part of [`bytes`](Self::bytes) for keys and values.
    fn stored(&self) -> u64 {
        self.store.bytes() + self.keys() * PAIR_OVERHEAD
    }

    /// Position of the last command that is over, and a hash of everything delivered up to it and of the
    /// answers to commands that may have had effects. Only the beginning of a long answer counts. Replicas of a
    /// group at the same position have the same history. Takes constant time.
    pub fn history(&self) -> (Version, u64) {
        (self.completed.position(), self.completed.history())
    }

    /// The last position delivered, over or not.
    fn delivered(&self) -> Version {
        self.under_way.last_position().unwrap_or(self.completed.position())
    }

    /// Number of commands that this replica has not delivered and for which it has verdicts.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    fn stock(&self) -> Stock {
        let digest = self.store.digest().wrapping_add(self.slots.digest());
        Stock { bytes: self.stored(), digest }
    }

    /// The change since the store had the stock `before`.
    fn change_since(&self, before: Stock) -> Change {
        let Stock { bytes, digest } = self.stock();
        let grown = bytes.cast_signed() - before.bytes.cast_signed();
        Change { grown, digest: digest.wrapping_sub(before.digest) }
    }
}

/// Whether a reply is retained.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Memo {
    /// The command had effects or was refused. A duplicate must be answered and never executed, so the reply is
    /// retained.
    #[default]
    Retained,
    /// The command could only read. The client can send it again under another name. Perhaps only the leader
    /// has executed it.
    OnlyRead,
}

impl Memo {
    fn of(transaction: &Transaction<Bytes<'_>>) -> Self {
        if transaction.has_no_effect() { Self::OnlyRead } else { Self::Retained }
    }
}
