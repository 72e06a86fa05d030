//! RamCast on a group log: genuine atomic multicast, normal operation.
//!
//! Each destination group's leader logs a `Local` with its next clock value and announces it to the
//! other destination groups' leaders; each logs what it reads as a `Remote`. Followers acknowledge
//! what they accept, to their own group and to the groups they share the message with. Delivery is
//! a function of the group's committed log and of monotone acknowledgement words, the same code at
//! leader and followers (`delivery`).
//!
//! **Invariant (order).** A message is delivered at its final timestamp, the highest proposal of
//! its destination groups, only when nothing this replica has yet to deliver can end below it. A
//! leader's clock is at least every timestamp in its log, so whatever is logged later ends above;
//! for what is in the table it is enough to look at the proposals known.
//!
//! **Invariant (quorum).** What a delivery rests on is held by f+1 replicas of each destination
//! group, in one ballot each: the entries of our own log by [`Ramcast::commit_index`], another
//! group's proposal by its acceptance words, which count only for the ballot they name.
//!
//! Implements RamCast (Middleware '21) section 3.4, Algorithm 2. Departs from it as
//! `docs/protocols/ramcast.md` says: timestamps live in one dense log per group instead of a slot
//! per client, so a follower cannot miss an entry; acknowledgements are one word per replica; a
//! payload is accepted only by who holds it. Leader change (Tasks 7 to 9) is not here yet.

mod delivery;
mod follower;
mod leader;
mod paths;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use self::delivery::Order;
use self::follower::Stalled;
use self::leader::Early;
pub use self::paths::Paths;
use crate::ballot::{Acceptance, Ballot};
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::known::Known;
use crate::log::Remote;
use crate::step::{Deliver, Effect, Event};

/// What a replica is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Who it is.
    pub me: ReplicaId,
    /// Groups of the cluster.
    pub groups: u16,
    /// Replicas of each group.
    pub replicas: u8,
    /// How long a payload may be missing before it is fetched.
    pub fetch_after_ms: u64,
}

/// One replica of one group.
pub struct Ramcast {
    config: Config,
    /// The ballot each group's leader is known to hold; our own group's is the one we log in.
    ballots: Vec<Ballot>,
    /// Index of our ballot's first entry: nothing is committed below it alone.
    new_ballot_index: u64,
    clock: u64,
    now_ms: u64,
    /// The last index in our log: appended as leader, accepted as follower.
    last: u64,
    commit: u64,
    /// Acceptance words as read here, by [`Ramcast::ordinal`].
    words: Vec<Acceptance>,
    /// Up to where our writes to each follower completed.
    completed: Vec<u64>,
    /// Entries whose payload some follower may not hold yet, rising.
    large: VecDeque<Large>,
    known: Known,
    order: Order,
    /// Messages announced to us that we have not received: leaders only.
    early: BTreeMap<MessageId, Early>,
    /// Announcements of this turn, to be logged together.
    remotes: Vec<Remote>,
    /// Groups owed our acceptance word at the end of this turn.
    owed: GroupSet,
    stalled: Option<Stalled>,
    scratch: Vec<u64>,
    paths: Paths,
}

/// A leader's entry whose payload is not in the log.
#[derive(Clone, Copy, Debug)]
struct Large {
    index: u64,
    message: MessageId,
    delivered: bool,
}

impl Ramcast {
    /// A replica with an empty log. Slot 0 leads every group in its first ballot.
    pub fn new(config: Config) -> Self {
        assert!(config.replicas % 2 == 1 && config.me.slot < config.replicas);
        let members = usize::from(config.groups) * usize::from(config.replicas);
        Self {
            config,
            ballots: vec![Ballot::new(1, 0, 0); usize::from(config.groups)],
            new_ballot_index: u64::MAX,
            clock: 0,
            now_ms: 0,
            last: 0,
            commit: 0,
            words: vec![Acceptance::default(); members],
            completed: vec![0; usize::from(config.replicas)],
            large: VecDeque::new(),
            known: Known::default(),
            order: Order::default(),
            early: BTreeMap::new(),
            remotes: Vec::new(),
            owed: GroupSet::EMPTY,
            stalled: None,
            scratch: Vec::new(),
            paths: Paths::default(),
        }
    }

    /// Begins: the leader of the first ballot logs it.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        if self.leads() {
            self.log_new_ballot(effects);
        }
    }

    /// Takes one event to its conclusion, appending what follows from it to `effects`.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => {
                self.now_ms = self.now_ms.max(now_ms);
                self.fetch_missing(effects);
            }
            Event::Received { message, low_water, destinations, inline } => {
                assert!(
                    destinations.contains(self.group()),
                    "a genuine multicast has no bystanders"
                );
                if self.leads() {
                    self.receive(message, low_water, destinations, inline, effects);
                } else {
                    self.unstall(message);
                }
            }
            Event::Announced { from, announcement } => {
                if self.leads() {
                    self.hear(from, announcement);
                }
            }
            Event::Exchanged => {
                assert!(self.leads(), "only the leader logs results");
                self.log_exchange(effects);
            }
            Event::Logged { index, ballot, time_ms, record, held, last } => {
                assert!(!self.leads(), "nobody else writes the leader's log");
                assert_eq!(ballot, self.ballot(), "validated against our ballot");
                assert_eq!(index, self.last + 1, "a follower never skips an entry");
                self.accept(time_ms, record, held, last);
            }
            Event::Acknowledged { by, acceptance } => self.count(by, acceptance),
            Event::Completed { slot, index } => {
                let completed = &mut self.completed[usize::from(slot)];
                *completed = index.max(*completed);
                let barred = self.large.front().is_some_and(|large| large.index <= index);
                self.paths.completion_not_enough += u64::from(barred);
            }
            Event::TurnEnd => {
                if self.leads() {
                    self.log_remotes(effects);
                    self.release(effects);
                } else {
                    self.acknowledge(effects);
                }
                self.advance_commit();
            }
        }
    }

    /// The next message whose turn it is, if there is one.
    pub fn deliver(&mut self, effects: &mut Vec<Effect>) -> Option<Deliver> {
        self.advance_commit();
        let candidate = self.order.least()?;
        let pending = self.order.pending(&candidate);
        let rests_on_quorums = pending.last_index() <= self.commit
            && pending.remotes().all(|remote| self.remote_quorum(remote));
        if !(pending.is_final() && rests_on_quorums) {
            return None;
        }
        if self.order.overtakes(&candidate) {
            self.paths.overtaken += 1;
        }
        let next = self.order.take(&candidate);
        self.paths.final_above_local += u64::from(next.timestamp.group() != self.group());
        assert!(self.clock >= next.timestamp.clock(), "later proposals would end below");
        match self.large.iter_mut().find(|large| large.message == next.message) {
            Some(large) => {
                large.delivered = true;
                self.paths.payload_kept += 1;
            }
            None => effects.push(Effect::Forget { message: next.message }),
        }
        Some(next)
    }

    /// The session has ended: its record goes when enough others have ended after it.
    pub fn end_session(&mut self, session: SessionId) {
        self.known.end(session);
    }

    /// The logged message whose payload is missing here: nothing more of the log may be told until
    /// it is received.
    pub fn stalled_on(&self) -> Option<MessageId> {
        self.stalled.as_ref().map(|stalled| stalled.message)
    }

    /// Whether the message is, or was, in our log.
    pub fn is_known(&self, message: MessageId) -> bool {
        self.known.contains(message)
    }

    /// Whether we hold the highest ballot of our group.
    pub fn leads(&self) -> bool {
        self.ballot().slot() == self.config.me.slot
    }

    /// The ballot in which we log.
    pub fn ballot(&self) -> Ballot {
        self.ballots[self.group().index()]
    }

    /// The replica that leads `group`, as far as we know.
    pub fn leader_of(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.ballots[group.index()].slot())
    }

    /// The last index in our log.
    pub const fn last_index(&self) -> u64 {
        self.last
    }

    /// The last index that we know f+1 replicas of our group to hold.
    pub const fn commit_index(&self) -> u64 {
        self.commit
    }

    /// Our logical clock: at least every timestamp in our log.
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// Messages in the table: logged here and not delivered.
    pub fn pending(&self) -> usize {
        self.order.len()
    }

    /// When the oldest pending message was logged, and which it is.
    pub fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.order.oldest()
    }

    /// Messages delivered.
    pub const fn delivered(&self) -> u64 {
        self.order.delivered()
    }

    /// Where a replica's word stands in per-replica arrays.
    pub fn ordinal(&self, replica: ReplicaId) -> usize {
        replica.group.index() * usize::from(self.config.replicas) + usize::from(replica.slot)
    }

    /// Our time, in milliseconds.
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    const fn group(&self) -> GroupId {
        self.config.me.group
    }

    fn quorum(&self) -> usize {
        usize::from(self.config.replicas) / 2 + 1
    }

    fn count(&mut self, by: ReplicaId, acceptance: Acceptance) {
        let ordinal = self.ordinal(by);
        self.words[ordinal] = acceptance;
    }

    /// Up to which index the word of `slot` in `group` vouches in `ballot`.
    fn accepted(&self, group: GroupId, slot: u8, ballot: Ballot) -> u64 {
        let word = self.words[self.ordinal(ReplicaId::new(group, slot))];
        if word.tag == ballot.tag() { word.index } else { 0 }
    }

    /// Raises the commit index to the highest that f+1 slots of our group are known to hold.
    fn advance_commit(&mut self) {
        let (group, ballot) = (self.group(), self.ballot());
        let mut held = core::mem::take(&mut self.scratch);
        held.clear();
        held.extend((0..self.config.replicas).map(|slot| {
            if slot == self.config.me.slot || slot == ballot.slot() {
                return self.last; // The leader has written all that a follower reads.
            }
            let accepted = self.accepted(group, slot, ballot);
            if self.leads() {
                accepted.max(self.vouched_by_completion(slot, accepted))
            } else {
                accepted
            }
        }));
        held.sort_unstable_by(|a, b| b.cmp(a));
        let index = held[self.quorum() - 1].min(self.last);
        self.scratch = held;
        if index >= self.new_ballot_index && index > self.commit {
            self.commit = index;
            let words = |slot| self.accepted(group, slot, ballot) >= index;
            let by_words = (0..self.config.replicas).filter(|slot| words(*slot)).count();
            let by_completion = self.leads() && by_words + 1 < self.quorum();
            self.paths.committed_by_completion += u64::from(by_completion);
        }
    }

    /// Write completions count only up to the first entry whose payload the follower may lack;
    /// from there on only its word does.
    fn vouched_by_completion(&self, slot: u8, accepted: u64) -> u64 {
        let completed = self.completed[usize::from(slot)];
        let barrier = self.large.partition_point(|large| large.index <= accepted);
        self.large.get(barrier).map_or(completed, |large| completed.min(large.index - 1))
    }

    /// How often each path was taken that is not the common one.
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    /// Whether f+1 replicas of the proposing group hold the proposal, in the ballot it was made in.
    /// The announcing leader is one of them.
    fn remote_quorum(&self, remote: &Remote) -> bool {
        let group = remote.group();
        let others = (0..self.config.replicas)
            .filter(|slot| *slot != remote.ballot.slot())
            .filter(|slot| self.accepted(group, *slot, remote.ballot) >= remote.index)
            .count();
        1 + others >= self.quorum()
    }
}
