//! RamCast on a group log: genuine atomic multicast.
//!
//! Each destination group's leader logs a `Local` with its next clock value and announces it to the other destination
//! groups' leaders; each of these logs the announcements that it reads as `Remote`s. Followers acknowledge what they
//! accept, to their own group and to the groups that share the message. Delivery is a function of the group's committed
//! log and of monotone acknowledgement words; leader and followers run the same code (`delivery`).
//!
//! **Invariant (order).** A message is delivered at its final timestamp, the highest proposal of its destination
//! groups, only when nothing that this replica has yet to deliver can end below it. A leader's clock is at least every
//! timestamp in its log, so whatever is logged later ends above; for messages in the pending table it is enough to look
//! at the known proposals.
//!
//! **Invariant (quorum).** Everything a delivery depends on is held by f+1 replicas of each destination group, in one
//! ballot each: entries of our own log by [`GroupLog::commit_index`]; another group's proposal by its acceptance words,
//! which count only for the ballot they name, or by a committed `Decided`, whose leader has seen all that.
//!
//! **Invariant (leader change).** Everything in the pending table is committed, so a leader change removes nothing from
//! it. Uncommitted entries stay in the log behind `commit`, and may be cut off. (`group`, `hooks`, and
//! `docs/protocols/failover.md`.)
//!
//! Implements RamCast (Middleware '21) section 3.4, Algorithm 2. Departs from it as `docs/protocols/ramcast.md` says:
//! timestamps are in one dense log per group instead of a slot per client, so a follower cannot miss an entry;
//! acknowledgements are one word per replica; a replica accepts a payload only if it holds it; a leader change concerns
//! the group's log alone.

pub mod announcement;
mod boundary;
mod commit;
mod deliveries;
mod delivery;
mod follower;
mod hooks;
mod inspect;
mod leader;
pub mod log;
mod passed;
mod paths;
mod quorums;
mod reads;
mod record;
mod replayed;
mod retained;
mod revival;
mod saved;
#[cfg(test)]
mod testing;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hashbrown::HashSet;

use self::delivery::{DeliveryQueue, Lists};
pub use self::inspect::Inspection;
use self::leader::Unreceived;
use self::passed::Passed;
pub use self::paths::Paths;
use self::quorums::Quorums;
pub use self::record::{Effect, Event, PeerEffect, PeerEvent, Record};
use self::replayed::Replayed;
use self::retained::Retained;
use crate::ballot::Ballot;
use crate::group::GroupLog;
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
pub use crate::group::{Cause, Role};
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::logged_set::LoggedSet;
use crate::mutants::Mutant;
pub use crate::ordering::Config;
use crate::ordering::OrderingProtocol;
use crate::ramcast::log::{Decision, Remote};
use crate::step::Deliver;
use crate::timestamp::Timestamp;

/// One replica of one group.
pub struct Ramcast {
    config: Config,
    /// The log of our own group.
    log: GroupLog<Record>,
    /// The highest ballot seen of each other group's leaders.
    ballots: Vec<Ballot>,
    clock: u64,
    /// Acceptance words of other groups' replicas.
    quorums: Quorums,
    logged: LoggedSet,
    order: DeliveryQueue,
    /// Multi-group messages that this leader has logged and not committed.
    uncommitted_multi_group: HashSet<MessageId>,
    /// Multi-group messages that were delivered here and may still be needed by some destination.
    retained: Retained,
    /// Which messages are passed: replies depend on them.
    passed: Passed,
    /// As leader: index of the last entry that a replica other than this one may have answered, or may answer: an entry
    /// of a former ballot, or of a message to several groups.
    last_shared: u64,
    /// As leader: messages that were announced to this replica and have not arrived.
    unreceived: BTreeMap<MessageId, Unreceived>,
    /// Announcements of this turn, to be logged together.
    remotes: Vec<Remote>,
    /// Announcements that the last turn's end logged; `logged_from` is the index of their first entry.
    logged_remotes: Vec<Remote>,
    logged_from: u64,
    /// Spare proposal lists, for pending and unreceived messages.
    lists: Lists,
    /// Decisions of this turn, to be logged together.
    decisions: Vec<Decision>,
    /// Decisions that the last turn's end logged; `decided_from` is the index of their first entry.
    logged_decisions: Vec<Decision>,
    decided_from: u64,
    /// Time at which this replica last asked for what pending messages lack: other groups as leader, its leader as
    /// follower.
    asked_ms: u64,
    asking: leader::Asking,
    /// As follower: whether the leader was asked in the last round, and whether a decision has been committed since.
    asked: bool,
    answered: bool,
    replayed: Replayed,
    paths: Paths,
}

impl Ramcast {
    fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.log.tick(now_ms);
        self.fetch_missing(effects);
        if self.log.leads() {
            self.ask_again(effects);
            self.settle_own(effects);
            self.settle_passed(effects);
            self.log_due_changes(effects);
        }
        self.retained.trim(effects);
    }

    fn end_turn(&mut self, effects: &mut Vec<Effect>) {
        if self.log.leads() {
            self.log_remotes(effects);
            self.log_decisions(effects);
            self.release(effects);
        } else {
            self.forget_kept(effects);
        }
        self.acknowledge(effects);
        self.advance_commit();
    }

    #[inline]
    fn next(&mut self) -> Option<Deliver> {
        let next = match self.order.deliver_alone() {
            Some(next) => next,
            None => self.next_of_several()?,
        };
        let timestamp = Timestamp::from(next.rank);
        assert!(self.clock >= timestamp.clock(), "later proposals would end below");
        let kept = self.log.delivers(&next);
        self.paths.payload_kept += u64::from(kept);
        Some(next)
    }

    /// The next message, if messages to several groups are pending.
    fn next_of_several(&mut self) -> Option<Deliver> {
        let candidate = loop {
            let candidate = self.order.least()?;
            let pending = self.order.pending(&candidate);
            if pending.is_final() {
                break candidate;
            }
            let (mut proven, mut bound) = self.replayed.known_of(pending);
            for remote in pending.remotes() {
                if guard!(Mutant::RemoteWithoutQuorum, self.quorums.hold(remote)) {
                    proven = proven.with(remote.group());
                    bound = bound.max(remote.timestamp);
                }
            }
            if (proven, bound) == (pending.proven(), pending.bound()) {
                return None;
            }
            // Its bound has risen, perhaps above another message's.
            if let Some(first) = self.order.prove(&candidate, proven, bound) {
                break first;
            }
        };
        if self.order.overtakes(&candidate) {
            self.paths.overtaken += 1;
        }
        let next = self.order.deliver(&candidate);
        let timestamp = Timestamp::from(next.rank);
        let pending = self.order.pending(&candidate);
        self.paths.delivered_on_decision += u64::from(pending.is_decided());
        self.paths.final_above_local += u64::from(timestamp.group() != self.group());
        if next.destinations.has_several() {
            self.retained.push(&next, pending, timestamp);
            self.passed.deliver(&next);
        }
        self.lists.keep(self.order.remove(&candidate));
        Some(next)
    }

    /// The highest ballot seen of a group's leaders; for our own group, the ballot in which we log.
    fn ballot_of(&self, group: GroupId) -> Ballot {
        if group == self.group() { self.log.ballot() } else { self.ballots[group.index()] }
    }

    const fn group(&self) -> GroupId {
        self.config.group.me.group
    }

    /// Groups whose proposal for a pending message, or whose quorum for it, is missing here.
    fn lacking(&self, pending: &delivery::Pending) -> GroupSet {
        if pending.is_decided() {
            return GroupSet::EMPTY;
        }
        let there = |group: &GroupId| {
            let remote = pending.unproven().find(|remote| remote.group() == *group);
            pending.proven().contains(*group) || remote.is_some_and(|it| self.quorums.hold(it))
        };
        pending.destinations.without(self.group()).iter().filter(|group| !there(group)).collect()
    }
}
