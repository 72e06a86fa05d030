//! State transfer: a replica is given the state of another, because it has none, or because the log of its leader does not
//! reach back to where its own ends.
//!
//! The *receiver* asks all replicas of its group, again and again, until one of them answers (`receiver.rs`). The *sender*
//! leads, or is the survivor of a group that is recreated. It sends a copy of its state in parts, to one receiver at a
//! time, and then keeps its log for the receiver until that lets it write (`sender.rs`). Every replica remembers who asks:
//! where so many ask that no quorum is left, the group is lost (`learners.rs`).
//!
//! All that is decided by state and time is decided here. The driver holds the bytes: it has its machine make the parts,
//! sends them, and puts a machine together from those that it is given. Whenever a call here says that a transfer is
//! over, the driver drops what it holds of it. Without such a call a transfer to others is over when we grant a ballot and had
//! sent all, of which the driver holds nothing any more; and one to us when a leader begins to write our log, or when a
//! state takes the place of our own: what was received until then, the driver drops by itself.

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
use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::rank::Rank;

/// How often a replica asks that needs a state, or to be let in.
const ASK_EVERY_MS: u64 = 50;

/// Names a copy of a replica's state. No two copies that a slot has sent have one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyId {
    /// Incarnation of the sender.
    pub sender: u32,
    /// Counts the copies that this incarnation has begun, from 1 on.
    pub number: u64,
}

/// How far a copy has come, at its sender or at its receiver: all parts below `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The copy.
    pub copy: CopyId,
    /// Number of the next part.
    pub next: u64,
}

/// The name of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Incarnation of the receiver.
    pub incarnation: u32,
    /// Which copy it is of.
    pub copy: CopyId,
    /// Its number there, from 0 on.
    pub number: u64,
}

/// What a replica says that asks for a state, or to be let in.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Who asks.
    pub slot: u8,
    /// Its incarnation.
    pub incarnation: u32,
    /// Whose state it needs: that of the leader of this ballot, or of anybody if it is [zero](Ballot::ZERO). `None` if it
    /// needs none, or takes one at this moment.
    pub needs: Option<Ballot>,
    /// What it has applied.
    pub applied: Rank,
    /// What it has of a copy of ours.
    pub taken: Option<Extent>,
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
    /// This log takes the place of a former one of the same replica: it remembers who has asked for a state and how many
    /// copies were begun. No transfer goes on: what was sent or taken was of the former state.
    pub(crate) fn replaces(&mut self, former: &Self) {
        self.transfer.sender = former.transfer.sender.replaced();
        self.transfer.receiver = former.transfer.receiver.replaced();
        self.transfer.learners = former.transfer.learners.clone();
    }

    /// An operator recreates our group: what was asked, sent or taken before says nothing any more.
    pub(crate) fn forget_transfers(&mut self) {
        self.transfer.sender.stop();
        self.transfer.receiver.drop_copy();
        self.transfer.receiver.catch_up();
        self.transfer.learners.forget();
    }

    /// Whether we have a part of a state that we take.
    pub(super) const fn takes_state(&self) -> bool {
        self.transfer.receiver.takes()
    }

    /// Whether we have no state that counts in our group.
    fn lacks_state(&self) -> bool {
        self.role == Role::Blank || self.suspended
    }
}
