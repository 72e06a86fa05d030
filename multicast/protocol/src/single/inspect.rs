//! A read-only view of a replica's order, for operators, the simulator and tests.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Record, Single};
use crate::group::Role;
use crate::group::ordering::NoOthers;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::ordering::Inspect;
use crate::rank::Rank;

/// A replica's part of the order.
#[derive(Clone, Copy)]
pub struct Inspection<'a>(pub(super) &'a Single);

impl Inspection<'_> {
    fn uncommitted(&self) -> impl Iterator<Item = MessageId> {
        self.0.log.uncommitted().filter_map(|entry| match entry.record {
            Record::Message { message, .. } => Some(message),
            Record::Group(_) => None,
        })
    }
}

impl Inspect for Inspection<'_> {
    fn highest_clock(&self) -> u64 {
        self.0.rank(self.0.log.last_index()).number()
    }

    fn counter_known_of(&self, _: GroupId) -> u32 {
        self.0.log.ballot_counter()
    }

    fn settled_clock_of(&self, _: GroupId) -> u64 {
        0
    }

    fn can_be_revived(&self, _: u64) -> bool {
        self.0.log.role() != Role::Blank && self.0.log.is_whole(&NoOthers)
    }

    fn pending(&self) -> usize {
        self.0.pending.len() + self.uncommitted().count()
    }

    fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.0.pending.front().map(|it| (it.since_ms, it.message))
    }

    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)> {
        None
    }

    fn describe_blocked(&self) -> String {
        String::new()
    }

    fn retained(&self) -> usize {
        0
    }

    fn passed(&self) -> Rank {
        Rank::NOTHING
    }

    fn undelivered(&self) -> Vec<MessageId> {
        self.0.pending.iter().map(|it| it.message).chain(self.uncommitted()).collect()
    }
}
