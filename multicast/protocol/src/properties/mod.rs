//! What must hold of every run, as executable checks: one file each, stated on the history and on
//! the world, never on the implementation.
//!
//! A history is what an onlooker saw: which messages were multicast, what each replica put into its
//! log, delivered and answered, and who told whom about what. The definitions are RamCast's (section
//! 2.2). What can be said at once is checked as it is seen; what must happen in the end, by
//! [`History::check_complete`].
//!
//! Replicas die and come back with nothing, are given the state by others and go on from there. So a
//! replica's deliveries come in *stretches*: each without a gap, beginning behind some position.

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
    /// An acceptance word: everything in the writer's log up to its index.
    Log(Acceptance),
    /// What was delivered and passed.
    Passed,
}

/// A message as its sender knows it.
#[derive(Clone, Copy, Debug)]
struct Multicast {
    destinations: GroupSet,
    /// Its sender did not crash.
    correct: bool,
    /// The groups that have answered it.
    answered: GroupSet,
    /// When it was multicast, and when the last group's answer was here: places in the order of all
    /// such moments.
    sent_at: u64,
    answered_at: Option<u64>,
}

/// A read that was not ordered, as its session knows it.
#[derive(Clone, Copy, Debug)]
struct Read {
    group: GroupId,
    /// The last delivery of the group that it saw.
    position: u64,
    /// When it was asked, and when its answer was here.
    asked_at: u64,
    answered_at: u64,
}

/// Everything an onlooker saw.
#[derive(Clone, Debug, Default)]
pub struct History {
    multicasts: BTreeMap<MessageId, Multicast>,
    /// Moments that were given numbers.
    moments: u64,
    /// Reads that were answered.
    reads: Vec<Read>,
    /// What the replicas of each group delivered, by position: the first is number 1.
    sequences: BTreeMap<GroupId, Vec<Deliver>>,
    /// Which group delivered which message.
    delivered: BTreeSet<(GroupId, MessageId)>,
    finals: BTreeMap<MessageId, (ReplicaId, Rank)>,
    /// How many deliveries each replica that lives has made or been given.
    reached: BTreeMap<ReplicaId, u64>,
    shares: Shares,
    /// What was multicast to a group that had lost more than it tolerates, until it was recreated: what
    /// that group made of it may be gone, and it may make something else of it.
    lost: BTreeSet<MessageId>,
}

impl History {
    /// A message was multicast. Its name keeps its destinations for ever.
    pub fn multicast(&mut self, message: MessageId, destinations: GroupSet) {
        self.moments += 1;
        let (sent_at, answered_at) = (self.moments, None);
        let answered = GroupSet::EMPTY;
        let new = Multicast { destinations, correct: true, answered, sent_at, answered_at };
        self.multicasts.entry(message).or_insert(new).correct = true;
    }

    /// The message's sender has crashed.
    pub fn sender_crashed(&mut self, message: MessageId) {
        if let Some(multicast) = self.multicasts.get_mut(&message) {
            multicast.correct = false;
        }
    }

    /// A replica goes on behind delivery number `reached`: it is new, or it was given a state.
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
        let messages = self.multicasts.iter();
        let to_it = messages.filter(|(_, multicast)| multicast.destinations.contains(group));
        self.lost.extend(to_it.map(|(message, _)| *message));
    }

    /// It begins anew with nothing. What is left of it may have proposed to others, until now, what no
    /// quorum of it will ever hold.
    pub fn recreates(&mut self, group: GroupId) {
        self.loses(group);
        self.sequences.remove(&group);
        self.reads.retain(|read| read.group != group);
        self.delivered.retain(|(of, _)| *of != group);
    }

    /// It goes on from what survivors hold, of whom one has made so many deliveries. Others may have made
    /// more, which are gone; none of those may be.
    pub fn revives(&mut self, group: GroupId, reached: u64) {
        self.loses(group);
        let sequence = self.sequences.entry(group).or_default();
        let gone: Vec<_> = sequence.drain(sequence.len().min(reached as usize)..).collect();
        for deliver in gone {
            self.delivered.remove(&(group, deliver.message));
        }
        self.reads.retain(|read| read.group != group || read.position <= reached);
    }

    /// Whether a replica of a group has delivered a message.
    pub fn has_delivered(&self, group: GroupId, message: MessageId) -> bool {
        self.delivered.contains(&(group, message))
    }

    /// Whether a group that the message was addressed to was lost since.
    pub fn is_lost(&self, message: MessageId) -> bool {
        self.lost.contains(&message)
    }

    /// A replica has put a record into its log.
    pub fn logged(&mut self, by: ReplicaId, record: &impl LogRecord) {
        if let Some(LoggedMessage { message, destinations, .. }) = record.message() {
            self.shares.logged(by, destinations);
            if message.session.is_own() {
                // A leader that is deposed may lose it; its successor has its own to say the same.
                self.multicast(message, destinations);
                self.sender_crashed(message);
            }
        }
    }

    /// A replica has told another something.
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

    /// A session has a group's answer to its message.
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

    /// A read that is not ordered is asked for. Gives the moment.
    pub fn asks(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// A session has the answer to a read of `group` that it had asked at a moment: it saw the group's
    /// deliveries up to that position.
    pub fn read(&mut self, group: GroupId, asked_at: u64, position: u64) {
        self.moments += 1;
        let answered_at = self.moments;
        self.reads.push(Read { group, position, asked_at, answered_at });
    }

    /// How many reads were answered.
    pub fn reads(&self) -> u64 {
        self.reads.len() as u64
    }

    /// How many deliveries a group has made.
    pub fn deliveries_of(&self, group: GroupId) -> u64 {
        self.sequences.get(&group).map_or(0, |sequence| sequence.len() as u64)
    }

    /// Checks what must have happened when nothing is left to happen.
    pub fn check_complete(&self) -> Result<(), Violation> {
        validity::check(self)?;
        agreement::check(self)?;
        realtime::check(self)
    }
}
