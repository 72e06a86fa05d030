//! State transfer: a replica receives the state of another, because it has none, or because the log of its leader does
//! not reach back to the end of its own.
//!
//! The *receiver* asks all replicas of its group repeatedly until one of them answers (`receiver.rs`). The *sender*
//! leads, or is the survivor of a group that is recreated. It sends a copy of its state in parts, to one receiver at a
//! time, and then keeps its log for the receiver until the receiver grants its ballot (`sender.rs`). Every replica
//! remembers who asks: if so many ask that no quorum is left, the group is lost (`learners.rs`).
//!
//! A receiver that lacks only a part of the log, and whose group is durable, can be *fed* instead: the leader reads what is
//! committed from its disk, and sends that in the parts of a copy. The receiver appends it to its own log. At the end it
//! lets the leader write its log, as it would behind a state.
//!
//! Everything that depends only on state and time is decided here. The driver holds the bytes: its machine makes the
//! parts, and the driver sends them and assembles a machine from the parts that it receives. Whenever a call here says
//! that a transfer is over, the driver drops what it holds of it. Two ends have no such call. A transfer to another
//! replica is over when we grant a ballot after all parts were sent; the driver then holds nothing of it. A transfer to
//! us is over when a leader begins to write our log, or when a state replaces our own; the driver then drops by itself
//! what it has received.

mod learners;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

use self::learners::Learners;
use self::receiver::Receiver;
pub use self::receiver::{Ask, Reception};
use self::sender::Sender;
pub(crate) use self::sender::{Answer, Refusal};
pub use self::sender::{Left, Stage};
use super::frame::Cursor;
use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::rank::Rank;

/// Interval at which a replica asks that needs a state, or to be admitted.
const ASK_EVERY_MS: u64 = 50;

/// Names a copy of a replica's state. No two copies that a slot has sent have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyId {
    /// Incarnation of the sender.
    pub sender: u32,
    /// Number of the copy among those that this incarnation has begun, from 1 on.
    pub number: u64,
}

/// Progress of a copy at its sender or its receiver: all parts below `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub copy: CopyId,
    pub next: u64,
}

/// The name of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Incarnation of the receiver.
    pub incarnation: u32,
    pub copy: CopyId,
    /// Number of the part in its copy, from 0 on.
    pub number: u64,
}

/// A request for a state, or for admission.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Slot of the sender of the request.
    pub slot: u8,
    pub incarnation: u32,
    /// Whose state it needs: that of the leader of this ballot, or of any replica if it is [zero](Ballot::ZERO). `None`
    /// if it needs none, or is receiving one.
    pub needs: Option<Ballot>,
    pub applied: Rank,
    /// What it has received of a copy of ours.
    pub taken: Option<Extent>,
    /// Where its committed log ends, if it can go on from there with the leader's log instead of the state.
    pub log: Option<Cursor>,
}

/// A replica's part in transfers of its group's state.
pub(super) struct Transfer {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    learners: Learners,
}

impl Transfer {
    pub(super) fn new(replicas: u8) -> Self {
        let learners = Learners::new(replicas);
        Self { sender: Sender::default(), receiver: Receiver::default(), learners }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// Replaces a former log of the same replica: keeps who has asked for a state and how many copies were begun. No
    /// transfer continues, because it was of the former state.
    pub(crate) fn replaces(&mut self, former: &Self) {
        self.transfer.sender = former.transfer.sender.replaced();
        self.transfer.receiver = former.transfer.receiver.replaced();
        self.transfer.learners = former.transfer.learners.clone();
    }

    /// Forgets all transfers and requests, because an operator recreates our group.
    pub(crate) fn forget_transfers(&mut self) {
        self.transfer.sender.stop();
        self.transfer.receiver.drop_copy();
        self.transfer.receiver.catch_up();
        self.transfer.learners.forget();
    }

    /// Whether we have received a part of a state.
    pub(super) const fn takes_state(&self) -> bool {
        self.transfer.receiver.takes()
    }

    /// Whether we have no state that counts in our group.
    fn lacks_state(&self) -> bool {
        self.role == Role::Blank || self.suspended
    }
}
