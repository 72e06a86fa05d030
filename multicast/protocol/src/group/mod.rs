//! The group log: 2f+1 replicas each hold a copy of one log in memory. One of them writes it, and entries that f+1 of
//! them hold survive its crash. An ordering of messages between groups runs on it.
//!
//! | struct | what it owns |
//! |---|---|
//! | `Entries` | the entries, the commit index, and the ballot in which this replica logs |
//! | `Election` | promised ballots, this replica's own candidacy, and when it is due |
//! | `Membership` | the view, and its uncommitted changes |
//! | `Followers` | as leader: what each follower's memory is known to hold |
//! | `AcceptanceWords`, `Owed` | the acceptance words of the group's replicas; who is owed ours |
//! | `Durable` | what our disk holds of the log and of our promises |
//! | `Progress` | how far each replica has applied its log |
//! | `Lag` | how many deliveries a follower is behind |
//! | `Payloads` | payloads that are not in the log, and who may lack them |
//! | `Lease` | promises to let no other replica lead |
//! | `Spread` | when leadership returns to slot 0 |
//! | `Eviction` | since when followers block this leader |
//! | `Wish` | until when an operator wants this replica to lead |
//! | `Transfer` | state transfers: as sender, as receiver, and who asks for one |
//! | `detector: Detector` | which replicas seem to be alive, by their heartbeats |
//! | `suspended: bool` | the group is recreated from another replica's state: ours does not count |
//! | `seeded: Option<u16>` | the group is recreated from our state: the slots that have it |
//!
//! **Invariant.** `commit <= last`; the entries behind `commit` are in the uncommitted records, in rising index.
//! `ballot <= promised`. While `ballot < promised`, this replica has granted another's ballot and not yet read that
//! leader's header: it counts no acceptance words and acknowledges nothing. `suspended` excludes `seeded`, and
//! `seeded` is `None` once a replica leads.
//!
//! The log reads what a record says of the group ([`GroupRecord`]) and nothing else of it. The ordering has its own
//! record type ([`LogRecord`]), takes records as they are committed (`next_committed`), and is called with records that
//! are cut off. The log does not interpret the ordering's ranks either: it compares them ([`Rank`](crate::rank::Rank)),
//! and asks for two of them (`Ordering`).
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
//! The driver owns the log's bytes and uses these modules of the boundary directly: [`body`] and [`frame`] to read and
//! write entries, [`space`] for room in the ring, [`runs`] for births by index.

pub(crate) mod acceptance_words;
pub mod admission;
pub mod body;
mod candidacy;
mod cold_start;
pub(crate) mod commit;
mod confirm;
mod control;
#[cfg(test)]
mod double;
mod durable;
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

use self::acceptance_words::{AcceptanceWords, Owed};
pub use self::control::{Asked, Closing, Control, GroupEffect, GroupEvent, Question};
use self::durable::Durable;
pub use self::durable::{OnDisk, Replay};
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

/// Maximum number of replicas in a group: an acceptance word has four bits for a slot.
pub const SLOTS: usize = 16;

/// Time for which the replicas of a group that never had a leader wait for the first one, in timeouts.
const START_TIMEOUTS: u64 = 40;

/// Configuration of a replica in its group. It never changes.
#[derive(Clone, Copy, Debug)]
pub struct GroupConfig {
    pub me: ReplicaId,
    /// This replica's incarnation. It is a learner unless the view contains it.
    pub incarnation: u32,
    /// The incarnation in which this process began, which no other process had. It is above `incarnation` if the replica
    /// continues with what its disk holds.
    pub began_as: u32,
    /// Number of replicas in the group.
    pub replicas: u8,
    /// Time for which candidates wait for each other, and for grants.
    pub timeout_ms: u64,
    /// Interval at which heartbeats are read.
    pub beat_ms: u64,
    /// Consecutive heartbeats that a replica may miss before it is suspected.
    pub missed_max: u32,
    /// Time for which a follower promises its leader to let no other replica lead.
    pub lease_ms: u64,
    /// Time for which followers may block a leader before it continues without them.
    pub evict_after_ms: u64,
    /// Bound on the error of a clock's rate, in percent.
    pub clock_skew_percent: u8,
    /// Time for which all must have been well before leadership returns to slot 0; 0 means never. It is 0 if there is
    /// only one group, because leaders then need not be spread.
    pub spread_after_ms: u64,
    /// Maximum number of messages that a leader has delivered and a follower has not when the leader accepts another.
    pub lag_max: u64,
    /// Whether replicas say only what their disks hold. It is the same in the whole cluster.
    pub durable: bool,
}

/// A replica's role in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes the log.
    Leader,
    /// Reads the log, or waits for a leader to write it.
    Follower,
    /// Asks for grants of its ballot.
    Candidate,
    /// Has no state, and waits to receive one.
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
    owed: Owed,
    durable: Durable,
    progress: Progress,
    pub(crate) payloads: Payloads<R>,
    lag: Lag,
    lease: Lease,
    spread: Spread,
    eviction: Eviction,
    wish: Wish,
    transfer: Transfer,
    /// An operator recreates our group from another replica's state: ours does not count. It excludes `seeded`.
    suspended: bool,
    /// An operator recreates our group from our state, and no replica leads yet: the slots that have received it.
    seeded: Option<u16>,
    pub(crate) paths: GroupPaths,
}

impl<R: LogRecord> GroupLog<R> {
    /// An empty log, in a group that begins with `view`. A replica that is not in the view has lost its memory and is
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
            owed: Owed::default(),
            durable: Durable::default(),
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

    /// The same replica's log in a group that is recreated with `view`, above a ballot counter that the group may have
    /// reached before. It keeps its time, and remains bound by leases that it may have promised.
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

    /// A replica of the same incarnation that discards its log, because the others went on without it. It keeps its
    /// promises.
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
        // The leader is about to write the log that continues from the state: this is no time to set out.
        blank.election.retry_ms = self.now_ms + 16 * self.config.timeout_ms;
        blank.detector = self.detector.clone();
        blank.words = self.words.clone();
        blank.durable = self.durable;
        blank.lease = self.lease.kept_promises();
        blank.wish = self.wish;
        blank.paths = self.paths;
        blank.replaces(self);
        blank
    }

    /// Takes a state that ends with the entry at `commit`. The replica keeps its promises, and also promises the ballot
    /// of the leader that saved the state: no earlier leader's log need contain everything that the state contains.
    pub(crate) fn restore(
        &mut self,
        commit: u64,
        birth: Ballot,
        time_ms: u64,
        view: View,
        ballot: Ballot,
    ) {
        if ballot > self.election.promised {
            self.durable.forget_awaited();
        }
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

    /// Sets the clock of a replica that begins with what its disk holds.
    pub(crate) const fn begin_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Continues the clock of the former instance of this replica, and the lease that the former instance may have
    /// promised.
    pub(crate) fn resume_time(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        self.bind_anew(now_ms);
    }

    /// Handles a tick.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        if self.now_ms == 0 {
            self.election.retry_ms = now_ms + START_TIMEOUTS * self.config.timeout_ms;
        }
        self.wait_for_late(now_ms);
        self.detector.stood_still(now_ms.saturating_sub(self.now_ms + self.config.beat_ms));
        self.now_ms = self.now_ms.max(now_ms);
    }

    /// Records one read of the heartbeat of the replica in `slot`.
    pub(crate) fn saw_pulse(&mut self, slot: u8, pulse: crate::detector::Pulse) {
        self.detector.look(slot, pulse, self.now_ms);
    }

    /// Counters of uncommon code paths.
    pub(crate) const fn paths(&self) -> &GroupPaths {
        &self.paths
    }

    /// This replica's role.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// Whether this replica leads its group.
    pub fn leads(&self) -> bool {
        self.role == Role::Leader
    }

    /// The ballot in which this replica logs.
    pub fn ballot(&self) -> Ballot {
        self.entries.ballot
    }

    /// The highest ballot that this replica has granted.
    pub const fn promised(&self) -> Ballot {
        self.election.promised
    }

    /// The highest ballot counter of our group that is known here.
    pub(crate) fn ballot_counter(&self) -> u32 {
        self.election.heard.max(self.election.promised.counter())
    }

    /// The committed view, as far as it is committed here.
    pub const fn view(&self) -> &View {
        &self.members.view
    }

    /// The failure detector.
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

    /// The commit index: f+1 replicas of our group are known to hold all entries up to it.
    pub const fn commit_index(&self) -> u64 {
        self.entries.commit
    }

    /// The ballot of birth of the entry at the commit index.
    pub(crate) const fn commit_birth(&self) -> Ballot {
        self.entries.commit_birth
    }

    /// The time of the last tick, in milliseconds.
    pub const fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Number of replicas in a quorum: f+1.
    pub(crate) fn quorum(&self) -> usize {
        usize::from(self.config.replicas) / 2 + 1
    }

    /// Every slot of our group but our own.
    pub(crate) fn others(&self) -> impl Iterator<Item = u8> + use<R> {
        let me = self.config.me.slot;
        (0..self.config.replicas).filter(move |slot| *slot != me)
    }
}
