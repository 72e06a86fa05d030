//! RamCast on a group log: genuine atomic multicast.
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
//! group, in one ballot each: the entries of our own log by [`GroupLog::commit_index`], another
//! group's proposal by its acceptance words, which count only for the ballot they name; or by a
//! committed `Decided`, whose leader saw all that.
//!
//! **Invariant (leader change).** Everything in the pending table is committed, so a leader change
//! takes nothing out of it. What is logged and not committed stands in the log behind `commit`, and may be cut
//! off. (`group`, `election`, and `docs/protocols/failover.md`.)
//!
//! Implements RamCast (Middleware '21) section 3.4, Algorithm 2. Departs from it as
//! `docs/protocols/ramcast.md` says: timestamps live in one dense log per group instead of a slot
//! per client, so a follower cannot miss an entry; acknowledgements are one word per replica; a
//! payload is accepted only by who holds it; a leader change is one of the group's log alone.

mod commit;
mod delivery;
mod election;
mod follower;
mod inspect;
mod lag;
mod leader;
mod membership;
mod passed;
mod paths;
mod quorums;
mod reads;
mod revival;
mod saved;
mod shared;
#[cfg(test)]
mod testing;

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use hashbrown::HashSet;

use self::delivery::{Lists, Order};
pub use self::inspect::Inspection;
use self::lag::Lag;
use self::leader::Early;
use self::passed::Passed;
pub use self::paths::Paths;
use self::quorums::Quorums;
use self::shared::Shared;
use crate::ballot::Ballot;
use crate::group::uncommitted::Uncommitted;
pub use crate::group::{Cause, Role};
use crate::group::{GroupConfig, GroupLog};
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::known::Known;
use crate::log::{Decision, Remote};
use crate::mutants::Mutant;
pub use crate::patience::longer;
use crate::step::{Deliver, Effect, Event, Record};
use crate::view::View;

/// What a replica is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Of its own group.
    pub group: GroupConfig,
    /// Groups of the cluster.
    pub groups: u16,
    /// How long a payload may be missing before it is fetched.
    pub fetch_after_ms: u64,
    /// Messages that a leader has delivered and a follower has not, at most, when the leader takes another.
    pub lag_max: u64,
}

/// One replica of one group.
pub struct Ramcast {
    config: Config,
    /// The log of our own group, on which the order stands.
    log: GroupLog<Record>,
    /// The highest ballot known of each other group's leaders.
    ballots: Vec<Ballot>,
    clock: u64,
    /// What other groups' replicas hold.
    quorums: Quorums,
    known: Known,
    order: Order,
    /// Multi-group messages that we have logged as leader and not committed.
    afloat: HashSet<MessageId>,
    /// Multi-group messages that we have delivered and some destination may not be done with.
    shared: Shared,
    /// What replies may rest on.
    passed: Passed,
    /// As leader: the last entry of our log that others than we may have answered, or may answer: of a
    /// former ballot, or of a message to several groups.
    last_shared: u64,
    /// Messages announced to us that we have not received: leaders only.
    early: BTreeMap<MessageId, Early>,
    /// Announcements of this turn, to be logged together.
    remotes: Vec<Remote>,
    /// Those of the last one, and the first entry that has some.
    logged_remotes: Vec<Remote>,
    logged_from: u64,
    /// For pending and early messages.
    lists: Lists,
    /// Decisions of this turn, to be logged together.
    decisions: Vec<Decision>,
    /// When other groups were last asked for what pending messages lack.
    asked_ms: u64,
    asking: leader::Asking,
    /// As follower: our leader was asked last, and has not answered; and whether it has since.
    asked: bool,
    answered: bool,
    lag: Lag,
    /// Groups owed our acceptance word at the end of this turn.
    owed: GroupSet,
    paths: Paths,
}

impl Ramcast {
    /// A replica with an empty log, in a group that begins with `view`. One that the view does not
    /// name has lost its memory and is [blank](Role::Blank).
    pub fn new(config: Config, view: View) -> Self {
        Self {
            config,
            log: GroupLog::new(config.group, view),
            ballots: vec![Ballot::ZERO; usize::from(config.groups)],
            clock: 0,
            quorums: Quorums::new(config.groups, config.group.replicas),
            known: Known::default(),
            order: Order::default(),
            afloat: HashSet::new(),
            shared: Shared::new(config.groups),
            passed: Passed::new(config.group.me.group, config.groups),
            last_shared: 0,
            early: BTreeMap::new(),
            remotes: Vec::new(),
            logged_remotes: Vec::new(),
            logged_from: 0,
            lists: Lists::default(),
            decisions: Vec::new(),
            asked_ms: 0,
            asking: leader::Asking::default(),
            asked: false,
            answered: false,
            lag: Lag::new(config.lag_max),
            owed: GroupSet::EMPTY,
            paths: Paths::default(),
        }
    }

    /// A replica of a group that begins anew, above a ballot counter and a clock that its former
    /// self may have reached. Its time goes on where that one's was, and so does what that may have promised.
    ///
    /// # Panics
    /// If [no generation is left](Ballot::recreated).
    pub fn anew(config: Config, view: View, ballot_counter: u32, clock: u64, now_ms: u64) -> Self {
        let passed = Passed::anew(config.group.me.group, config.groups, clock);
        let mut anew = Self { clock, passed, ..Self::new(config, view) };
        anew.log.begin_above(Ballot::recreated(ballot_counter).expect("a generation is left"));
        anew.log.resume_time(now_ms);
        anew
    }

    /// Takes one event to its conclusion, appending what follows from it to `effects`.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "whoever calls it knows which event it is, and need not look"
    )]
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => self.tick(now_ms, effects),
            Event::Received { message, low_water, destinations, inline } => {
                assert!(
                    destinations.contains(self.group()),
                    "a genuine multicast has no bystanders"
                );
                if self.log.leads() {
                    self.receive(message, low_water, destinations, inline, effects);
                } else {
                    self.unstall(message);
                }
            }
            Event::Announced { from, announcement } => self.hear(from, &announcement, effects),
            Event::Exchanged => {
                assert!(self.log.leads(), "only the leader logs results");
                self.append(Record::Exchange, effects);
            }
            Event::Logged { index, birth, time_ms, record, held, last } => {
                assert!(!self.log.leads(), "nobody else writes the leader's log");
                assert_eq!(index, self.log.last_index() + 1, "a follower never skips an entry");
                let entry = Uncommitted { index, birth, time_ms, record };
                self.accept(entry, held, last);
            }
            Event::Acknowledged { by, acceptance } => self.acknowledged(by, acceptance),
            Event::Completed { slot, index } => self.log.complete(slot, index),
            Event::Heartbeat { slot, pulse } => {
                self.log.saw_pulse(slot, pulse);
            }
            Event::Settled { group, timestamp } => self.shared.settled(group, timestamp),
            Event::Applied { slot, timestamp } => self.log.hear_applied(slot, timestamp.into()),
            Event::Waits { message, heard } => self.wait_for_results(message, heard, effects),
            Event::AllDelivered => self.pass_on(effects),
            Event::Awaited { by } => self.raise_for(by, effects),
            Event::SessionEnded { session } => self.known.end(session),
            Event::Lacked { message } => self.decide_for_follower(message),
            Event::Denied => self.step_down(),
            Event::Group(event) => self.step_in_group(event, effects),
            Event::TurnEnd => self.end_turn(effects),
        }
    }

    fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.log.tick(now_ms);
        self.fetch_missing(effects);
        if self.log.leads() {
            self.ask_again(effects);
            self.settle_own(effects);
            self.settle_passed(effects);
            self.log_due_changes(effects);
        }
        self.shared.trim(effects);
    }

    fn end_turn(&mut self, effects: &mut Vec<Effect>) {
        if self.log.leads() {
            self.log_remotes(effects);
            self.log_decisions(effects);
            self.release(effects);
        } else {
            self.forget_kept(effects);
            self.acknowledge(effects);
        }
        self.advance_commit();
    }

    /// The next message whose turn it is, if there is one.
    pub fn deliver(&mut self) -> Option<Deliver> {
        if let Some(next) = self.next() {
            return Some(next);
        }
        let before = self.log.commit_index();
        self.advance_commit();
        let next = if self.log.commit_index() > before { self.next() } else { None };
        if next.is_none() {
            self.stand();
        }
        next
    }

    #[inline]
    fn next(&mut self) -> Option<Deliver> {
        let next = match self.order.deliver_alone() {
            Some(next) => next,
            None => self.next_of_several()?,
        };
        assert!(self.clock >= next.timestamp.clock(), "later proposals would end below");
        self.lag.note(next.position, next.timestamp);
        let kept = self.log.payloads.note_delivered(next.message);
        self.paths.payload_kept += u64::from(kept);
        Some(next)
    }

    /// The next message, when messages to several groups are pending.
    fn next_of_several(&mut self) -> Option<Deliver> {
        let candidate = loop {
            let candidate = self.order.least()?;
            let pending = self.order.pending(&candidate);
            if pending.is_final() {
                break candidate;
            }
            let (mut proven, mut bound) = (pending.proven(), pending.bound());
            for remote in pending.remotes() {
                if guard!(Mutant::RemoteWithoutQuorum, self.quorums.hold(remote)) {
                    proven = proven.with(remote.group());
                    bound = bound.max(remote.timestamp);
                }
            }
            if proven == pending.proven() {
                return None;
            }
            // It may rise above others.
            if let Some(first) = self.order.prove(&candidate, proven, bound) {
                break first;
            }
        };
        if self.order.overtakes(&candidate) {
            self.paths.overtaken += 1;
        }
        let next = self.order.deliver(&candidate);
        let pending = self.order.pending(&candidate);
        self.paths.delivered_on_decision += u64::from(pending.is_decided());
        self.paths.final_above_local += u64::from(next.timestamp.group() != self.group());
        if next.destinations.has_several() {
            self.shared.push(&next, pending);
            self.passed.deliver(&next);
        }
        self.lists.keep(self.order.remove(&candidate));
        Some(next)
    }

    /// Whether the session is known to have ended.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.known.has_ended(session)
    }

    /// The logged message whose payload is missing here: nothing more of the log may be told until
    /// it is received.
    pub fn stalled_on(&self) -> Option<MessageId> {
        self.log.payloads.stalled_on()
    }

    /// Whether the message is, or was, in our log.
    pub fn is_known(&self, message: MessageId) -> bool {
        self.known.contains(message)
    }

    /// Whether the message's payload may be needed here: it is not in our log yet, or not delivered, or
    /// kept for others. One that is known by its session's mark alone never will be.
    pub fn may_need(&self, message: MessageId) -> bool {
        !self.known.contains(message)
            || self.awaits_delivery(message)
            || self.stalled_on() == Some(message)
            || self.keeps(message)
    }

    /// Whether the message's payload is kept though it is delivered, until an effect says to forget it: a
    /// follower may ask for it.
    pub fn keeps(&self, message: MessageId) -> bool {
        self.log.payloads.keeps(message)
    }

    /// Whether the message is committed here and not delivered.
    pub fn is_pending(&self, message: MessageId) -> bool {
        self.order.contains(message)
    }

    /// Whether the message was delivered here, before or after the state was taken over.
    pub fn is_delivered(&self, message: MessageId) -> bool {
        self.known.contains(message) && !self.awaits_delivery(message)
    }

    /// Whether the message is in our log, committed or not, and not delivered here. Looks at what is
    /// not committed entry by entry: for the rare message that comes again.
    fn awaits_delivery(&self, message: MessageId) -> bool {
        let logs = |entry: &Uncommitted<Record>| entry.record.message() == Some(message);
        self.order.contains(message) || self.log.uncommitted().any(logs)
    }

    /// The replica that leads `group`, as far as we know.
    pub fn leader_of(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.ballot_of(group).slot())
    }

    /// Messages delivered.
    pub const fn delivered(&self) -> u64 {
        self.order.delivered()
    }

    /// The log of our own group.
    pub const fn log(&self) -> &GroupLog<Record> {
        &self.log
    }

    /// The log of our own group, for what concerns it alone.
    pub const fn log_mut(&mut self) -> &mut GroupLog<Record> {
        &mut self.log
    }

    /// The highest ballot known of a group's leaders; of our own group, the one in which we log.
    fn ballot_of(&self, group: GroupId) -> Ballot {
        if group == self.group() { self.log.ballot() } else { self.ballots[group.index()] }
    }

    const fn group(&self) -> GroupId {
        self.config.group.me.group
    }

    /// Groups whose proposal of a pending message, or whose quorum for it, is missing here.
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
