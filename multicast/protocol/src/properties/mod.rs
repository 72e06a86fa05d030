//! Properties that must hold in every run, as executable checks: one file for each property, stated on the history and
//! on the world, never on the implementation.
//!
//! A history is what an external observer saw: which messages were multicast, what each replica logged, delivered and
//! answered, and which replica wrote to which other about which message. The definitions are RamCast's (section 2.2). A
//! property that can be decided at once is checked with each observation. A property about what must happen eventually
//! is checked by [`History::check_complete`].
//!
//! Replicas crash, restart without state, receive a state from another replica and continue from there. So a replica's
//! deliveries come in *stretches*: each has no gap and begins behind some position.

mod agreement;
mod durability;
mod genuineness;
mod integrity;
mod memory;
mod order;
mod quorum;
mod realtime;
mod validity;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use self::genuineness::Shares;
pub use memory::{Footprint, check_memory};
pub use quorum::{Held, check_quorum};

use crate::ballot::Acceptance;
use crate::group::{LogRecord, LoggedMessage};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::rank::Rank;
use crate::step::Deliver;
use crate::tram::tree::Tree;

/// A property that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub property: &'static str,
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.evidence)
    }
}

/// A write to another replica about a message or about the writer's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The writer.
    pub by: ReplicaId,
    /// The replica whose memory was written.
    pub to: ReplicaId,
    pub about: About,
}

/// The subject of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Message(MessageId),
    /// An acceptance word: it covers the writer's log up to its index.
    Log(Acceptance),
    /// What was delivered and passed.
    Passed,
}

/// A message, as its sender sees it.
#[derive(Clone, Copy, Debug)]
struct Multicast {
    destinations: GroupSet,
    /// The sender has not crashed.
    correct: bool,
    /// The groups that have answered.
    answered: GroupSet,
    /// When it was multicast, and when the last group's answer arrived, as numbers in the order of all such moments.
    sent_at: u64,
    answered_at: Option<u64>,
}

/// An unordered read, as its session sees it.
#[derive(Clone, Copy, Debug)]
struct Read {
    group: GroupId,
    /// The last delivery of the group that the read saw.
    position: u64,
    /// When it was sent, and when its answer arrived.
    asked_at: u64,
    answered_at: u64,
}

/// Everything that the observer saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    multicasts: BTreeMap<MessageId, Multicast>,
    /// Number of moments that have a number.
    moments: u64,
    /// Answered reads.
    reads: Vec<Read>,
    /// The deliveries of each group, by position: the first is number 1.
    sequences: BTreeMap<GroupId, Vec<Deliver>>,
    delivered: BTreeSet<(GroupId, MessageId)>,
    finals: BTreeMap<MessageId, (ReplicaId, Rank)>,
    /// Number of deliveries that each live replica has made or received in a state.
    reached: BTreeMap<ReplicaId, u64>,
    shares: Shares,
    /// Messages that were multicast, before its recreation, to a group that had lost more than it tolerates. What the
    /// group decided about them may be lost, and it may decide differently now. Along a tree, those that pass through the
    /// group are among them: it has had a part in their order, and some destinations may have had them from it and others
    /// not.
    lost: BTreeSet<MessageId>,
    /// Messages are ordered along this tree. Then each group has ranks of its own: only the search for cycles compares
    /// orders of groups.
    tree: Option<Tree>,
}

impl History {
    /// The history of an ordering along this tree, which gives a message a rank of its own in each group.
    pub fn along(tree: &Tree) -> Self {
        Self { tree: Some(*tree), ..Self::default() }
    }

    /// Records that a message was multicast. The destinations of a name never change.
    pub fn multicast(&mut self, message: MessageId, destinations: GroupSet) {
        self.moments += 1;
        let (sent_at, answered_at) = (self.moments, None);
        let answered = GroupSet::EMPTY;
        let new = Multicast { destinations, correct: true, answered, sent_at, answered_at };
        self.multicasts.entry(message).or_insert(new).correct = true;
    }

    /// Records that the message's sender has crashed.
    pub fn sender_crashed(&mut self, message: MessageId) {
        if let Some(multicast) = self.multicasts.get_mut(&message) {
            multicast.correct = false;
        }
    }

    /// A replica begins behind delivery number `reached`: it is new, or it has received a state.
    pub fn begins(&mut self, replica: ReplicaId, reached: u64) -> Result<(), Violation> {
        self.reached.insert(replica, reached);
        self.shares.restored(replica);
        order::check_beginning(self, replica, reached)
    }

    /// A replica has lost its memory.
    pub fn ends(&mut self, replica: ReplicaId) {
        self.reached.remove(&replica);
        self.shares.forget(replica);
    }

    /// A group has lost more memories than it tolerates.
    pub fn loses(&mut self, group: GroupId) {
        let on_way = |to: GroupSet| self.tree.as_ref().map_or(to, |tree| tree.path(to));
        let messages = self.multicasts.iter();
        let through = messages.filter(|(_, it)| on_way(it.destinations).contains(group));
        self.lost.extend(through.map(|(message, _)| *message));
    }

    /// A group is recreated without any state. Until now, its remaining replicas may have sent proposals to others that
    /// no quorum of the group will ever hold.
    pub fn recreates(&mut self, group: GroupId) {
        self.loses(group);
        self.sequences.remove(&group);
        self.reads.retain(|read| read.group != group);
        self.delivered.retain(|(of, _)| *of != group);
    }

    /// A group continues from the state of a survivor that has made `reached` deliveries. Other replicas may have made
    /// more; these are lost.
    pub fn revives(&mut self, group: GroupId, reached: u64) {
        self.loses(group);
        let sequence = self.sequences.entry(group).or_default();
        let gone: Vec<_> = sequence.drain(sequence.len().min(reached as usize)..).collect();
        for deliver in gone {
            self.delivered.remove(&(group, deliver.message));
        }
        self.reads.retain(|read| read.group != group || read.position <= reached);
    }

    /// Whether a replica of the group has delivered the message.
    pub fn has_delivered(&self, group: GroupId, message: MessageId) -> bool {
        self.delivered.contains(&(group, message))
    }

    /// Whether a destination of the message, or a group on its path, was lost after the message was multicast.
    pub fn is_lost(&self, message: MessageId) -> bool {
        self.lost.contains(&message)
    }

    /// A replica has put a record into its log.
    pub fn logged(&mut self, by: ReplicaId, record: &impl LogRecord) {
        if let Some(LoggedMessage { message, destinations, .. }) = record.message() {
            self.shares.logged(by, destinations);
            if message.session.is_own() {
                // A deposed leader may lose this message. Its successor has a message of its own for the same purpose.
                self.multicast(message, destinations);
                self.sender_crashed(message);
            }
        }
    }

    /// A replica has written to another.
    pub fn told(&mut self, touch: &Touch) -> Result<(), Violation> {
        genuineness::check(self, touch)
    }

    /// A replica has delivered a message.
    pub fn delivers(&mut self, by: ReplicaId, deliver: &Deliver) -> Result<(), Violation> {
        integrity::check(self, by, deliver)?;
        order::check(self, by, deliver)?;
        self.reached.insert(by, deliver.position);
        let sequence = self.sequences.entry(by.group).or_default();
        if sequence.len() as u64 + 1 == deliver.position {
            sequence.push(*deliver);
            self.delivered.insert((by.group, deliver.message));
            self.finals.entry(deliver.message).or_insert((by, deliver.rank));
        }
        Ok(())
    }

    /// A session has received a group's answer to its message.
    pub fn answered(&mut self, message: MessageId, by: GroupId) -> Result<(), Violation> {
        if let Some(multicast) = self.multicasts.get_mut(&message) {
            multicast.answered = multicast.answered.with(by);
            if multicast.answered == multicast.destinations && multicast.answered_at.is_none() {
                self.moments += 1;
                multicast.answered_at = Some(self.moments);
            }
        }
        durability::check(self, message, by)
    }

    /// An unordered read is sent. Returns the moment.
    pub fn asks(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// A session has received the answer to a read of `group` that it sent at `asked_at`. The read saw the group's
    /// deliveries up to `position`.
    pub fn read(&mut self, group: GroupId, asked_at: u64, position: u64) {
        self.moments += 1;
        let answered_at = self.moments;
        self.reads.push(Read { group, position, asked_at, answered_at });
    }

    /// Number of answered reads.
    pub fn reads(&self) -> u64 {
        self.reads.len() as u64
    }

    /// Number of deliveries that the group has made.
    pub fn deliveries_of(&self, group: GroupId) -> u64 {
        self.sequences.get(&group).map_or(0, |sequence| sequence.len() as u64)
    }

    /// Checks what must have happened by the end of the run.
    pub fn check_complete(&self) -> Result<(), Violation> {
        validity::check(self)?;
        agreement::check(self)?;
        realtime::check(self)
    }
}
