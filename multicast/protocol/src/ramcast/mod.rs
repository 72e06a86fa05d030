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
//! group, in one ballot each: the entries of our own log by [`Ramcast::commit_index`], another
//! group's proposal by its acceptance words, which count only for the ballot they name; or by a
//! committed `Decided`, whose leader saw all that.
//!
//! **Invariant (leader change).** Everything in the pending table is committed, so a leader change
//! takes nothing out of it. What is logged and not committed stands in the `suffix`, and may be cut
//! off. (`election`, and `docs/protocols/failover.md`.)
//!
//! Implements RamCast (Middleware '21) section 3.4, Algorithm 2. Departs from it as
//! `docs/protocols/ramcast.md` says: timestamps live in one dense log per group instead of a slot
//! per client, so a follower cannot miss an entry; acknowledgements are one word per replica; a
//! payload is accepted only by who holds it; a leader change is one of the group's log alone.

mod commit;
mod confirm;
mod delivery;
mod election;
mod follower;
mod lag;
mod leader;
mod lease;
mod membership;
mod passed;
mod paths;
mod revival;
mod saved;
mod shared;
mod spread;
mod succession;
mod suffix;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use hashbrown::HashSet;

use self::delivery::{Lists, Order};
use self::election::Campaign;
pub use self::election::{Cause, Verdict};
use self::follower::Stalled;
use self::lag::Lag;
pub use self::leader::longer;
use self::leader::{Early, Large};
use self::lease::Lease;
use self::passed::Passed;
pub use self::paths::Paths;
use self::shared::Shared;
use self::spread::Spread;
use self::suffix::{Suffix, Uncommitted};
use crate::ballot::{Acceptance, Ballot};
use crate::detector::Detector;
use crate::guard;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use crate::known::Known;
use crate::log::{Decision, Remote};
use crate::mutants::{Mutant, planted};
use crate::step::{Deliver, Effect, Event, Record};
use crate::timestamp::Timestamp;
use crate::view::View;

/// How long the replicas of a group that never had a leader wait for the first one, in patiences.
const START_PATIENCE: u64 = 40;

/// What a replica is told once.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Who it is.
    pub me: ReplicaId,
    /// In which of its lives. A view that does not name it makes it a learner.
    pub incarnation: u32,
    /// Groups of the cluster.
    pub groups: u16,
    /// Replicas of each group.
    pub replicas: u8,
    /// How long a payload may be missing before it is fetched.
    pub fetch_after_ms: u64,
    /// How long the candidates of a group wait for each other, and for grants.
    pub patience_ms: u64,
    /// How often heartbeats are looked at.
    pub beat_ms: u64,
    /// Heartbeats in a row that a replica may miss before it is suspected.
    pub missed_max: u32,
    /// For how long a follower promises its leader to let nobody else lead.
    pub lease_ms: u64,
    /// By how much a clock's rate may be off, in hundredths.
    pub clock_skew_percent: u8,
    /// How long all must have been well before leadership goes back to slot 0; 0 means never.
    pub spread_after_ms: u64,
    /// Messages that a leader has delivered and a follower has not, at most, when the leader takes another.
    pub lag_max: u64,
}

/// What a replica does in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It writes the log.
    Leader,
    /// It reads the log, or waits for somebody to write it.
    Follower,
    /// It asks for permission to lead.
    Candidate,
    /// It has no state: it is to be given one.
    Blank,
}

/// A follower to which we write.
#[derive(Clone, Copy, Debug)]
struct Fed {
    /// Its life.
    incarnation: u32,
    /// Up to here the log may hold entries whose payload it lacks and we have let go: completed writes
    /// count when its word covers this.
    from: u64,
    /// The number of our last write that is in its memory.
    landed: u64,
    /// It has told us what it has applied.
    told: bool,
    /// It was not admitted yet when it let us write its log.
    joins: bool,
}

/// One replica of one group.
pub struct Ramcast {
    config: Config,
    role: Role,
    view: View,
    detector: Detector,
    /// The highest ballot that we have granted: nobody below it may write our log.
    promised: Ballot,
    /// The highest ballot counter that we have heard of in our group.
    heard: u32,
    campaign: Option<Campaign>,
    /// The lowest ballot of whose candidate, or leader, we know that its committed view contains our incarnation:
    /// our `Join` is committed in its log, though we may not have folded it.
    admitted_below: Option<Ballot>,
    /// Index of the last `Join` of each slot that was folded here; 0 if there was none. Each is <= commit.
    joins: Vec<u64>,
    /// Since when we know that the leader's slot lives on without its memory.
    replaced_ms: Option<u64>,
    /// When we made our last promise.
    promised_ms: u64,
    /// When we may set out to lead again, after that came to nothing.
    retry_ms: u64,
    spread: Spread,
    /// Ballots that we have promised ourselves to since we last knew a leader.
    fruitless: u32,
    /// Our group may be done with what is logged before this, though we have not delivered it.
    doubtful: u64,
    /// The highest ballot known of each group's leaders; our own group's is the one we log in.
    ballots: Vec<Ballot>,
    /// Index of our ballot's first entry: nothing is committed below it alone.
    new_ballot_index: u64,
    clock: u64,
    now_ms: u64,
    /// Added to our time, so that what the log says never falls when the leader changes.
    time_offset: i64,
    last_time_ms: u64,
    /// The last index in our log: appended as leader, accepted as follower.
    last: u64,
    commit: u64,
    /// Ballot of birth of the entry at `commit`.
    commit_birth: Ballot,
    /// What stands in our log behind `commit`.
    suffix: Suffix,
    /// Acceptance words as read here, by [`Ramcast::ordinal`].
    words: Vec<Acceptance>,
    /// Of each group, what [`Ramcast::held`] came to last, until a word of the group changes.
    held: [Cell<(Ballot, u64)>; GroupSet::CAPACITY as usize],
    /// Up to where our writes to each follower completed.
    completed: Vec<u64>,
    /// The followers to which we write.
    fed: Vec<Option<Fed>>,
    /// Entries whose payload some follower may not hold yet, rising.
    large: VecDeque<Large>,
    known: Known,
    order: Order,
    /// Multi-group messages that we have logged as leader and not committed.
    afloat: HashSet<MessageId>,
    /// Multi-group messages that we have delivered and some destination may not be done with.
    shared: Shared,
    /// What replies may rest on.
    passed: Passed,
    lease: Lease,
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
    /// Slots for which a change of the view is in our log and not committed: leaders only.
    changing: u16,
    /// When other groups were last asked for what pending messages lack.
    asked_ms: u64,
    asking: leader::Asking,
    /// As follower: our leader was asked last, and has not answered; and whether it has since.
    asked: bool,
    answered: bool,
    lag: Lag,
    /// An operator recreates our group from another's state: ours counts for nothing.
    suspended: bool,
    /// An operator recreates our group from our state, and nobody leads yet: the slots that were given
    /// it.
    seeded: Option<u16>,
    /// Groups owed our acceptance word at the end of this turn.
    owed: GroupSet,
    stalled: Option<Stalled>,
    paths: Paths,
}

impl Ramcast {
    /// A replica with an empty log, in a group that begins with `view`. One that the view does not
    /// name has lost its memory and is [blank](Role::Blank).
    pub fn new(config: Config, view: View) -> Self {
        assert!(config.replicas % 2 == 1 && config.me.slot < config.replicas);
        let (groups, replicas) = (usize::from(config.groups), usize::from(config.replicas));
        let named = view.names(config.me.slot, config.incarnation);
        Self {
            config,
            role: if named { Role::Follower } else { Role::Blank },
            view,
            detector: Detector::new(config.replicas, config.missed_max, config.beat_ms),
            promised: Ballot::ZERO,
            heard: 0,
            campaign: None,
            admitted_below: None,
            joins: vec![0; usize::from(config.replicas)],
            replaced_ms: None,
            promised_ms: 0,
            retry_ms: START_PATIENCE * config.patience_ms,
            spread: Spread::default(),
            fruitless: 0,
            doubtful: 0,
            ballots: vec![Ballot::ZERO; groups],
            new_ballot_index: u64::MAX,
            clock: 0,
            now_ms: 0,
            time_offset: 0,
            last_time_ms: 0,
            last: 0,
            commit: 0,
            commit_birth: Ballot::ZERO,
            suffix: Suffix::default(),
            words: vec![Acceptance::default(); groups * replicas],
            held: [const { Cell::new((Ballot::ZERO, 0)) }; GroupSet::CAPACITY as usize],
            completed: vec![0; replicas],
            fed: vec![None; replicas],
            large: VecDeque::new(),
            known: Known::default(),
            order: Order::default(),
            afloat: HashSet::new(),
            shared: Shared::new(config.groups),
            passed: Passed::new(config.me.group, config.groups),
            lease: Lease::new(config.replicas),
            early: BTreeMap::new(),
            remotes: Vec::new(),
            logged_remotes: Vec::new(),
            logged_from: 0,
            lists: Lists::default(),
            decisions: Vec::new(),
            changing: 0,
            asked_ms: 0,
            asking: leader::Asking::default(),
            asked: false,
            answered: false,
            lag: Lag::new(config.lag_max),
            suspended: false,
            seeded: None,
            owed: GroupSet::EMPTY,
            stalled: None,
            paths: Paths::default(),
        }
    }

    /// A replica of a group that begins anew, above a ballot counter and a clock that its former
    /// self may have reached.
    ///
    /// # Panics
    /// If [no generation is left](Ballot::recreated).
    pub fn anew(config: Config, view: View, ballot_counter: u32, clock: u64) -> Self {
        let passed = Passed::anew(config.me.group, config.groups, clock);
        let heard = Ballot::recreated(ballot_counter).expect("a generation is left");
        Self { heard, clock, passed, ..Self::new(config, view) }
    }

    /// Takes one event to its conclusion, appending what follows from it to `effects`.
    #[inline] // Whoever calls it knows which event it is, and need not look.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Tick { now_ms } => self.tick(now_ms, effects),
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
            Event::Announced { from, announcement } => self.hear(from, &announcement, effects),
            Event::Exchanged => {
                assert!(self.leads(), "only the leader logs results");
                self.append(Record::Exchange, effects);
            }
            Event::Logged { index, birth, time_ms, record, held, last } => {
                assert!(!self.leads(), "nobody else writes the leader's log");
                assert_eq!(index, self.last + 1, "a follower never skips an entry");
                let entry = Uncommitted { index, birth, time_ms, record };
                self.accept(entry, held, last);
            }
            Event::Acknowledged { by, acceptance } => self.acknowledged(by, acceptance),
            Event::Completed { slot, index } => self.complete(slot, index),
            Event::Heartbeat { slot, pulse } => {
                self.detector.look(slot, pulse, self.now_ms);
            }
            Event::Settled { group, timestamp } => self.shared.settled(group, timestamp),
            Event::Applied { slot, timestamp } => {
                // Of one whose log we do not write it says nothing: it may be about to take a state.
                if let Some(fed) = &mut self.fed[usize::from(slot)] {
                    self.shared.applied(slot, timestamp);
                    fed.told = true;
                    if self.view.names(slot, fed.incarnation) {
                        self.shared.told_by(slot, timestamp);
                    }
                }
            }
            Event::Denied => self.step_down(),
            Event::TurnEnd => self.end_turn(effects),
        }
    }

    fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.now_ms == 0 {
            self.retry_ms = now_ms + START_PATIENCE * self.config.patience_ms;
        }
        self.wait_for_late(now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        self.fetch_missing(effects);
        if self.leads() {
            self.ask_again(effects);
            self.settle_own(effects);
            self.settle_passed(effects);
            self.evict_dead(effects);
        }
        self.shared.trim(effects);
    }

    fn end_turn(&mut self, effects: &mut Vec<Effect>) {
        if self.leads() {
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
        let before = self.commit;
        self.advance_commit();
        let next = if self.commit > before { self.next() } else { None };
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
        let large = self.large.iter_mut().find(|large| large.message == next.message);
        if let Some(large) = large {
            large.delivered = true;
            self.paths.payload_kept += 1;
        }
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
                if guard!(Mutant::RemoteWithoutQuorum, self.remote_quorum(remote)) {
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

    /// The session has ended: its record goes when enough others have ended after it.
    pub fn end_session(&mut self, session: SessionId) {
        self.known.end(session);
    }

    /// Whether the session is known to have ended.
    pub fn has_ended(&self, session: SessionId) -> bool {
        self.known.has_ended(session)
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
        self.large.iter().any(|large| large.message == message)
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
        let logs = |entry: &Uncommitted| entry.message() == Some(message);
        self.order.contains(message) || self.suffix.iter().any(logs)
    }

    /// What we do in our group.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Whether we write our group's log.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    /// The ballot in which we log.
    pub fn ballot(&self) -> Ballot {
        self.ballots[self.group().index()]
    }

    /// The highest ballot that we have granted.
    pub const fn promised(&self) -> Ballot {
        self.promised
    }

    /// The highest ballot counter that we have heard of in our group.
    pub fn ballot_counter(&self) -> u32 {
        self.heard.max(self.promised.counter())
    }

    /// The highest ballot counter of a group that stands anywhere in our memory: announced, logged and not
    /// delivered, or in a word. A group that begins anew above all of these is taken for its former self by
    /// nobody.
    pub fn counter_known_of(&self, group: GroupId) -> u32 {
        if group == self.group() {
            return self.ballot_counter();
        }
        let pending = self.order.iter().flat_map(|pending| pending.remotes().iter());
        let pending = pending.filter(|remote| remote.group() == group);
        let logged = self.suffix.proposals().filter(|remote| remote.group() == group);
        let ballots = pending.map(|it| it.ballot).chain(logged.map(|it| it.ballot));
        let known = ballots.fold(self.ballots[group.index()], Ballot::max).counter();
        let words = (0..self.config.replicas)
            .map(|slot| self.words[self.ordinal(ReplicaId::new(group, slot))])
            .filter(|word| *word != Acceptance::default());
        words.fold(known, |most, word| most.max(word.counter_beyond(known)))
    }

    /// The replica that leads `group`, as far as we know.
    pub fn leader_of(&self, group: GroupId) -> ReplicaId {
        ReplicaId::new(group, self.ballots[group.index()].slot())
    }

    /// Who counts in our group, as far as it is committed here.
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Who seems to be alive.
    pub const fn detector(&self) -> &Detector {
        &self.detector
    }

    /// The last index in our log.
    pub const fn last_index(&self) -> u64 {
        self.last
    }

    /// The ballot of birth of the last entry in our log.
    pub fn last_birth(&self) -> Ballot {
        self.suffix.back().map_or(self.commit_birth, |entry| entry.birth)
    }

    /// The last index that we know f+1 replicas of our group to hold.
    pub const fn commit_index(&self) -> u64 {
        self.commit
    }

    /// The ballot of birth of the entry there.
    pub const fn commit_birth(&self) -> Ballot {
        self.commit_birth
    }

    /// Our logical clock: at least every timestamp in our log.
    pub const fn clock(&self) -> u64 {
        self.clock
    }

    /// Messages logged here and not delivered.
    pub fn pending(&self) -> usize {
        let local = |entry: &&Uncommitted| matches!(entry.record, Record::Local { .. });
        self.order.len() + self.suffix.iter().filter(local).count()
    }

    /// Since when the oldest pending message waits, and which it is.
    pub fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.order.oldest()
    }

    /// The pending message to several groups that no other such can pass by: since when it waits,
    /// which it is, and the groups whose proposal, or whose quorum for it, is missing here.
    pub fn stuck(&self) -> Option<(u64, MessageId, GroupSet)> {
        let several = self.order.iter().filter(|pending| pending.destinations.has_several());
        let pending = several.min_by_key(|pending| pending.bound())?;
        Some((pending.since_ms, pending.message, self.lacking(pending)))
    }

    /// What keeps the next message from being delivered, for an onlooker.
    pub fn describe_stuck(&self) -> String {
        let Some((_, message, lacks)) = self.stuck() else { return String::new() };
        let settled = self.shared.settled_by(self.group());
        let pending = self.order.get(message).expect("it waits");
        format!("{message} lacks {lacks}, of all that is settled up to {settled}: {pending:?}")
    }

    /// Delivered messages to several groups that are kept, since somebody may not be done with them.
    pub fn owes(&self) -> usize {
        self.shared.len()
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

    /// How often each path was taken that is not the common one.
    pub const fn paths(&self) -> &Paths {
        &self.paths
    }

    const fn group(&self) -> GroupId {
        self.config.me.group
    }

    fn quorum(&self) -> usize {
        usize::from(self.config.replicas) / 2 + 1
    }

    /// Every slot of our group but our own.
    fn others(&self) -> impl Iterator<Item = u8> + use<> {
        let me = self.config.me.slot;
        (0..self.config.replicas).filter(move |slot| *slot != me)
    }

    /// The time that an entry of ours carries: it never falls, whoever led before.
    fn time(&mut self) -> u64 {
        let now = self.now_ms.saturating_add_signed(self.time_offset);
        self.last_time_ms = self.last_time_ms.max(now);
        self.last_time_ms
    }

    /// Groups whose proposal of a pending message, or whose quorum for it, is missing here.
    fn lacking(&self, pending: &delivery::Pending) -> GroupSet {
        if pending.is_decided() {
            return GroupSet::EMPTY;
        }
        let there = |group: &GroupId| {
            let remote = pending.unproven().find(|remote| remote.group() == *group);
            pending.proven().contains(*group) || remote.is_some_and(|it| self.remote_quorum(it))
        };
        pending.destinations.without(self.group()).iter().filter(|group| !there(group)).collect()
    }

    /// Up to which final timestamp every replica that counts has applied what it delivers, and every one
    /// that a logged `Join` may have count: what is settled meanwhile it would lack when it does. One that is
    /// about to count is waited for, too: while there is load it would never reach what is settled otherwise,
    /// if what it tells takes longer to come than what others do.
    fn applied_by_all(&self) -> Timestamp {
        let joins = |slot: u8| self.changing >> slot & 1 == 1 || self.is_about_to_count(slot);
        let counts = |slot: &u8| !self.view.member(*slot).evicted || joins(*slot);
        let counted = self.others().filter(counts);
        let counted = counted.filter(|_| !planted(Mutant::SettledTooEarly));
        let slots = counted.chain([self.config.me.slot]);
        slots.map(|slot| self.shared.applied_by(slot)).min().expect("we are one of them")
    }

    /// Whether a slot is well, and a life of it that does not count yet has applied what was settled before we
    /// led.
    fn is_about_to_count(&self, slot: u8) -> bool {
        let learns = |fed: &Fed| !self.view.names(slot, fed.incarnation);
        let before = self.shared.settled_before(self.quorum());
        let caught_up = |before: Timestamp| self.shared.applied_by(slot) >= before;
        self.fed[usize::from(slot)].as_ref().is_some_and(learns)
            && before.is_some_and(caught_up)
            && !self.detector.suspects(slot)
    }
}
