//! The group log: 2f+1 replicas hold one log in each other's memory, one of them writes it, and what f+1 of them hold
//! outlives it. An ordering of messages between groups stands on it.
//!
//! | struct | what it owns |
//! |---|---|
//! | `Entries` | which entries there are, which of them are committed, and in which ballot we log |
//! | `Election` | what was promised to whom, our own candidacy, and when it is due |
//! | `Membership` | whose memory counts, and changes of that which are not committed |
//! | `Followers` | what we know to be in the memory of those whose logs we write |
//! | `AcceptanceWords` | what the replicas of our group have said to hold |
//! | `Progress` | how far each replica has applied what its log says |
//! | `Lag` | how many deliveries a follower is behind |
//! | `Payloads` | payloads that are not in the log, and who may lack them |
//! | `Lease` | promises to let nobody else lead |
//! | `Spread` | when leadership goes back to slot 0 |
//! | `Eviction` | since when others hold us up |
//! | `Wish` | until when an operator wants us to lead |
//! | `Transfer` | who is sent our state, whose state we take, and who asks for one |
//! | `detector: Detector` | which replicas seem to be alive, by their heartbeats |
//! | `suspended: bool` | our group is recreated from another's state: ours counts for nothing |
//! | `seeded: Option<u16>` | our group is recreated from our state: the slots that have it |
//!
//! **Invariant.** `commit <= last`, and what stands behind `commit` is in the uncommitted records, in rising index.
//! `ballot <= promised`: whoever has let another lead counts nobody's words, and says nothing of what it holds, until
//! that one's first words are read. `suspended` excludes `seeded`, and `seeded` is `None` once somebody leads.
//!
//! The log knows what a record says of the group ([`GroupRecord`]) and nothing else of it: the ordering has a type of
//! its own for records ([`LogRecord`]), takes them as they are committed (`next_committed`), and is told what is cut off.
//! Nor does it know how the ordering counts what it delivers: it compares those numbers ([`Rank`](crate::rank::Rank)), and asks for two of
//! them (`Ordering`).
//!
//! **Public methods of [`GroupLog`]**, for the driver:
//!
//! | kind | methods |
//! |---|---|
//! | role and ballot | `role`, `leads`, `ballot`, `promised`, `leader`, `won`, `first_index` |
//! | log and time | `last_index`, `commit_index`, `now_ms` |
//! | view | `view`, `admitted`, `named`, `is_silent`, `is_suspended` |
//! | leases and confirmed reads | `holds_lease`, `is_confirmed` |
//! | followers | `admits`, `keeps_log_for`, `is_somebody_behind` |
//! | payloads outside the log | `stalled_on`, `keeps`, `keeps_payloads`, `keeps_delivered` |
//! | state transfer | `lagging`, `sends_state`, `is_lost`, `has_lost_its_memory` |
//! | state transfer, `&mut self` | `takes_part`, `sends_part` |
//! | inspection | `inspect` |
//!
//! The driver owns the log's bytes and uses these modules of the boundary directly: [`body`] and [`frame`] to read and write
//! entries, [`space`] for room in the ring, [`runs`] for births by index.

pub(crate) mod acceptance_words;
pub mod admission;
pub mod body;
mod candidacy;
pub(crate) mod commit;
mod confirm;
mod control;
#[cfg(test)]
mod double;
pub(crate) mod election;
pub(crate) mod entries;
mod eviction;
pub(crate) mod followers;
pub mod frame;
mod inspect;
mod lag;
pub(crate) mod leadership_transfer;
pub(crate) mod lease;
mod membership;
pub(crate) mod on_log;
pub(crate) mod ordering;
mod paths;
pub(crate) mod payloads;
mod progress;
pub(crate) mod record;
mod role;
pub mod runs;
pub mod space;
mod spread;
#[cfg(test)]
pub(crate) mod testing;
pub mod transfer;
pub(crate) mod uncommitted;
mod wish;

use self::acceptance_words::AcceptanceWords;
pub use self::control::{Asked, Closing, Control, GroupEffect, GroupEvent, Question};
pub use self::election::Cause;
use self::election::Election;
use self::entries::Entries;
pub use self::eviction::Backlog;
use self::eviction::Eviction;
use self::followers::Followers;
pub use self::inspect::GroupInspection;
use self::lag::Lag;
use self::lease::Lease;
use self::membership::Membership;
pub use self::paths::GroupPaths;
use self::payloads::Payloads;
use self::progress::Progress;
pub use self::record::{GroupRecord, LogRecord, LoggedMessage};
use self::spread::Spread;
use self::transfer::Transfer;
use self::wish::Wish;
use crate::ballot::Ballot;
use crate::detector::Detector;
use crate::ids::ReplicaId;
use crate::mutants::{Mutant, planted};
use crate::view::View;

/// Replicas of a group at most: a slot is named in four bits.
pub const SLOTS: usize = 16;

/// How long the replicas of a group that never had a leader wait for the first one, in timeouts.
const START_TIMEOUTS: u64 = 40;

/// What a replica is told once of its group.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    /// Who it is.
    pub me: ReplicaId,
    /// Its incarnation. It is a learner unless the view names it.
    pub incarnation: u32,
    /// Replicas of the group.
    pub replicas: u8,
    /// How long candidates wait for each other, and for grants.
    pub timeout_ms: u64,
    /// How often heartbeats are looked at.
    pub beat_ms: u64,
    /// Heartbeats in a row that a replica may miss before it is suspected.
    pub missed_max: u32,
    /// For how long a follower promises its leader to let nobody else lead.
    pub lease_ms: u64,
    /// For how long a leader may be held up by others before it goes on without them.
    pub evict_after_ms: u64,
    /// By how much a clock's rate may be off, in hundredths.
    pub clock_skew_percent: u8,
    /// How long all must have been well before leadership goes back to slot 0; 0 means never. The leader of the only group
    /// has nobody to spread from.
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

/// One replica's part of its group's log.
pub struct GroupLog<R: LogRecord> {
    config: GroupConfig,
    role: Role,
    detector: Detector,
    now_ms: u64,
    entries: Entries<R>,
    election: Election,
    members: Membership,
    followers: Followers,
    words: AcceptanceWords,
    progress: Progress,
    pub(crate) payloads: Payloads<R>,
    lag: Lag,
    lease: Lease,
    spread: Spread,
    eviction: Eviction,
    wish: Wish,
    transfer: Transfer,
    /// An operator recreates our group from another's state: ours counts for nothing. It excludes `seeded`.
    suspended: bool,
    /// An operator recreates our group from our state, and nobody leads yet: the slots that were given it.
    seeded: Option<u16>,
    pub(crate) paths: GroupPaths,
}

impl<R: LogRecord> GroupLog<R> {
    /// An empty log, in a group that begins with `view`. A replica that the view does not name has lost its memory and is
    /// [blank](Role::Blank).
    pub(crate) fn new(config: GroupConfig, view: View) -> Self {
        assert!(config.replicas % 2 == 1 && config.me.slot < config.replicas);
        let named = view.names(config.me.slot, config.incarnation);
        Self {
            config,
            role: if named { Role::Follower } else { Role::Blank },
            detector: Detector::new(config.replicas, config.missed_max, config.beat_ms),
            now_ms: 0,
            entries: Entries::default(),
            election: Election::new(START_TIMEOUTS * config.timeout_ms),
            members: Membership::new(view),
            followers: Followers::new(config.replicas),
            words: AcceptanceWords::new(config.replicas),
            progress: Progress::default(),
            payloads: Payloads::default(),
            lag: Lag::new(config.lag_max),
            lease: Lease::new(config.replicas),
            spread: Spread::default(),
            eviction: Eviction::new(config.replicas),
            wish: Wish::default(),
            transfer: Transfer::new(config.replicas),
            suspended: false,
            seeded: None,
            paths: GroupPaths::default(),
        }
    }

    /// The same replica's log in a group that begins anew with `view`, above a ballot counter that we may have reached. Its time
    /// goes on where ours was, and so does what we may have promised.
    ///
    /// # Panics
    /// If [no generation is left](Ballot::recreated).
    pub(crate) fn anew(&self, view: View, ballot_counter: u32) -> Self {
        let mut anew = Self::new(self.config, view);
        anew.begin_above(Ballot::recreated(ballot_counter).expect("a generation is left"));
        anew.resume_time(self.now_ms);
        anew.replaces(self);
        anew.forget_transfers();
        anew.wish = self.wish;
        anew
    }

    /// A replica of the same incarnation that begins anew without its log, because the others went on without it. It
    /// keeps its promises.
    #[must_use]
    pub(crate) fn blank(&self) -> Self {
        let mut blank = Self::new(self.config, self.members.view.clone());
        blank.role = Role::Blank;
        if !planted(Mutant::PromiseForgotten) {
            blank.election.promised = self.election.promised;
        }
        blank.election.heard = self.election.heard;
        blank.election.admitted_below = self.election.admitted_below;
        blank.election.put_off = self.election.put_off;
        blank.election.asked_ms = self.election.asked_ms;
        (blank.now_ms, blank.election.promised_ms) = (self.now_ms, self.now_ms);
        // Whoever leads is about to write the log that goes on from the state: no time to run.
        blank.election.retry_ms = self.now_ms + 16 * self.config.timeout_ms;
        blank.detector = self.detector.clone();
        blank.words = self.words.clone();
        blank.lease = self.lease.kept_promises();
        blank.wish = self.wish;
        blank.paths = self.paths;
        blank.replaces(self);
        blank
    }

    /// Takes a state that ends with the entry at `commit`. What was promised, is promised; and the replica promises itself to
    /// the ballot of the leader that has saved the state, for no earlier leader's log need hold all that the state holds.
    pub(crate) fn restore(
        &mut self,
        commit: u64,
        birth: Ballot,
        time_ms: u64,
        view: View,
        ballot: Ballot,
    ) {
        if !planted(Mutant::PromiseForgotten) {
            self.election.promised = self.election.promised.max(ballot);
            self.election.promised_ms = self.now_ms;
        }
        self.election.heard = self.election.heard.max(self.election.promised.counter());
        self.entries.restore(commit, birth, time_ms);
        self.members.view = view;
        self.role = Role::Follower;
        let member = self.members.view.member(self.config.me.slot);
        let waited_for = member.incarnation == self.config.incarnation && !member.evicted;
        self.members.recovery_barrier = if waited_for { 0 } else { u64::MAX };
    }

    /// The clock of a replica that begins anew goes on where that of its former self was, and so does
    /// what that may have promised.
    pub(crate) fn resume_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.bind_anew(now_ms);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        if self.now_ms == 0 {
            self.election.retry_ms = now_ms + START_TIMEOUTS * self.config.timeout_ms;
        }
        self.wait_for_late(now_ms);
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// We looked at the heartbeat of the replica in `slot`.
    pub(crate) fn saw_pulse(&mut self, slot: u8, pulse: crate::detector::Pulse) {
        self.detector.look(slot, pulse, self.now_ms);
    }

    /// How often each path was taken that is not the common one.
    pub(crate) const fn paths(&self) -> &GroupPaths {
        &self.paths
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
        self.entries.ballot
    }

    /// The highest ballot that we have granted.
    pub const fn promised(&self) -> Ballot {
        self.election.promised
    }

    /// The highest ballot counter that we have heard of in our group.
    pub(crate) fn ballot_counter(&self) -> u32 {
        self.election.heard.max(self.election.promised.counter())
    }

    /// Who counts in our group, as far as it is committed here.
    pub const fn view(&self) -> &View {
        &self.members.view
    }

    /// Who seems to be alive.
    pub(crate) const fn detector(&self) -> &Detector {
        &self.detector
    }

    /// The last index in our log.
    pub const fn last_index(&self) -> u64 {
        self.entries.last
    }

    /// The ballot of birth of the last entry in our log.
    pub(crate) fn last_birth(&self) -> Ballot {
        self.entries.uncommitted.back().map_or(self.entries.commit_birth, |entry| entry.birth)
    }

    /// The last index that we know f+1 replicas of our group to hold.
    pub const fn commit_index(&self) -> u64 {
        self.entries.commit
    }

    /// The ballot of birth of the entry there.
    pub(crate) const fn commit_birth(&self) -> Ballot {
        self.entries.commit_birth
    }

    /// Our time, in milliseconds.
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// How many replicas make a quorum.
    pub(crate) fn quorum(&self) -> usize {
        usize::from(self.config.replicas) / 2 + 1
    }

    /// Every slot of our group but our own.
    pub(crate) fn others(&self) -> impl Iterator<Item = u8> + use<R> {
        let me = self.config.me.slot;
        (0..self.config.replicas).filter(move |slot| *slot != me)
    }
}
