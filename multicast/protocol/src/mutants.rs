//! Guards that can be taken out, to see whether the simulator notices.
//!
//! Each [`Mutant`] is a bug that a published algorithm or prototype has, or that somebody tidying up
//! could make: code under test asks [`guard!`](crate::guard) or [`planted`] where the guard stands.
//! Without the cargo feature `mutants` both are constants, and nothing of this is in the binary.
//! With it, one mutant at a time can be planted in a process. `cargo run --profile simulation
//! --features mutants --bin mutants` shows for each of them the seed that kills it.

macro_rules! mutants {
    ($($(#[doc = $about:literal])+ $name:ident,)+) => {
        /// A guard that is taken out. Each says which one, and where that is described: holes are
        /// those of the founding design's section 5, gaps the lettered ones of RamCast's prototype.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Mutant {
            $($(#[doc = $about])+ $name,)+
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Those whose guards stand in the store and its clients, which the simulation of the
            /// protocol has not: the simulation of the store tries them.
            pub const OF_THE_STORE: &'static [Self] = &[
                Self::VerdictsNotExchanged,
                Self::MeetingPasses,
                Self::LookedAtOnce,
            ];

            /// Those that do harm only when a key asks for it: for trials by hand, and no simulation's.
            pub const ON_DEMAND: &'static [Self] = &[Self::StoreDiverges];

            /// The one of that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }

            /// What it is called.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What it does.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($about,)+).trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// A leader does not raise its clock to what other groups propose (hole 1).
    LeaderClockNotRaised,
    /// A follower does not raise its clock to what its log says: as leader it proposes below what
    /// was delivered (hole 1).
    FollowerClockNotRaised,
    /// A message is delivered though another group's proposal has no quorum there (hole 4).
    RemoteWithoutQuorum,
    /// One replica fewer than a quorum makes a commit (gap F).
    CommitWithoutQuorum,
    /// What was committed in no ballot counts below the ballot's first entry too.
    CommitBelowNewBallot,
    /// An acknowledgement counts for every ballot (hole 4, gap E).
    AcceptanceOfAnyBallot,
    /// A follower acknowledges an entry whose payload it does not hold (hole 2).
    AcceptanceWithoutPayload,
    /// Whatever a session wrote here under a message's name passes for what the leader logged under it.
    PayloadNotCompared,
    /// A learner is fed though it keeps more of its log, not committed as far as it knows, than a log holds.
    LogKeptBeyondRing,
    /// A leader waits for a replica to lead in its place that is not let in.
    TransfereeNotAdmitted,
    /// A replica that keeps its own log, since the state that it was given lacks what is there, is not written to.
    KeptLogNotWritten,
    /// A leader counts the completion of a write that did not carry the payload (hole 2).
    CompletionWithoutPayload,
    /// A message that is known is proposed again (hole 9, gap M).
    DuplicateProposed,
    /// A session's messages are known up to the highest number, and not as a set (hole 14).
    HighestTakenForSet,
    /// The message with the first local timestamp is taken for the least.
    FirstLocalTakenForLeast,
    /// What another group announces before the message is here is dropped.
    EarlyAnnouncementDropped,
    /// A message known only from another group is never asked for (hole 6, gap L).
    NeverFetched,
    /// An entry's place in the log is not checked: an earlier lap passes as new, and one is taken for
    /// the next that is not (holes 3 and 12, gaps B and O).
    LapNotChecked,
    /// An entry's check is not checked: a torn one passes as whole (hole 12, gap C).
    TornEntryTaken,
    /// An entry is taken for as long as its header said when it was first looked at, while it was
    /// written: the next one is looked for in a wrong place, for ever (hole 12).
    EntryLengthNotChecked,
    /// A new leader's header is taken though it is torn (hole 12).
    TornHeaderTaken,
    /// Ring credits are not told to the sender (hole 7, gap H).
    CreditNotTold,
    /// A ring is written where its reader has not read (hole 7, gap I).
    RingRoomNotChecked,
    /// Ring credit is given for what was written, and not for what was taken (gap J).
    CreditForUnread,
    /// Whoever sleeps is not woken by what is written to it (hole 10).
    NeverWoken,
    /// Whoever was to be woken by the next tick is not.
    NeverWokenLate,
    /// A log is overwritten where a follower has not read it (hole 7, gap I).
    LogRoomNotChecked,
    /// A follower that is let in late may be lapped: what it has still to read is not held.
    LogRoomNotHeld,
    /// A replica that was given a state is written nothing of the log that others still need, and that the state
    /// stands for: should they depend on it, it cannot help them (D6).
    LogBeforeStateNotWritten,
    /// A leader writes again what a follower holds of its log: a write that ends halfway takes it away.
    HeldLogWritten,
    /// A place of the log is given free though what stood there is not committed.
    FreedBeforeCommit,
    /// A leader takes messages however many a follower that it feeds has yet to deliver.
    LagNotBounded,
    /// Every group is told of what concerns one (genuineness).
    BystandersTold,
    /// A replica that grants a ballot leaves the old leader's permission in place (hole 11).
    GrantWithoutRevoking,
    /// A replica grants a ballot below one that it has granted.
    GrantOfLowerBallot,
    /// A candidate leads with fewer grants than a quorum.
    LeadWithoutQuorum,
    /// A candidate waits for everybody's grant (hole 5, gap A).
    LeadOnlyWithAll,
    /// A replica grants without reading what the old leader has written last (hole 11).
    LogUnreadAtGrant,
    /// A replica reports an entry whose payload it lacks (hole 2).
    StalledEntryReported,
    /// A candidate keeps its own log, whatever others report (gap G).
    OwnLogAdopted,
    /// A candidate adopts the longest log, whichever ballot its last entry was born in.
    LongestLogAdopted,
    /// Adopted entries are born again in the new leader's ballot.
    BirthNotKept,
    /// A new leader goes on behind a follower's last entry, whatever that is.
    WrongBase,
    /// A replica without its memory grants, and its grant counts (hole 8). Two guards stand there,
    /// and each alone would do: it stays silent, and no log's view names its incarnation.
    AmnesiacGrants,
    /// A replica whose `Join` is committed, and that has not read so, grants nothing: the survivors of a second
    /// failure are too few.
    JoinUnseenIsNone,
    /// A replica without its memory acknowledges (hole 8).
    AmnesiacAccepts,
    /// A completed write counts behind an entry whose payload was let go before that follower, which
    /// the log did not wait for, had it.
    CompletionBehindLostPayload,
    /// A replica that begins anew with a state forgets what it has granted (hole 8). Two guards stand
    /// there: its own promise is kept, and it promises itself to the ballot of who gave the state.
    PromiseForgotten,
    /// A state is taken in place of a log that goes on behind it, and that others count on (hole 8).
    OlderStateTaken,
    /// The clock is not part of the state that a learner takes (hole 1).
    ClockNotTaken,
    /// A learner counts itself when it looks what is committed (hole 8).
    LearnerCountsItself,
    /// A completed write counts for an incarnation that is not in the view (hole 8).
    CompletionOfUnnamedIncarnation,
    /// A learner counts itself in when it reads its own `Join`, committed or not (hole 8).
    AdmittedTooEarly,
    /// A new leader does not announce again what other groups may have missed.
    NotAnnouncedAgain,
    /// A new leader does not repeat replies (hole 9).
    RepliesNotRepeated,
    /// A denied write counts as complete, and its leader goes on (hole 11).
    DeniedLeaderGoesOn,
    /// A replica that holds the full log back is waited for (hole 7).
    NobodyEvicted,
    /// A learner that has stopped is waited for, by the log and by other learners.
    StoppedLearnerKept,
    /// The view changes although fewer than a quorum are left that the log waits for.
    QuorumEvictedAway,
    /// A new leader announces a message at its old index, below what counts in the new ballot.
    AnnouncedBelowNewBallot,
    /// Messages pass one by because of another group's proposal that is only announced: that group's
    /// next leader may propose it anew, lower.
    UnprovenRaisesBound,
    /// A proposal of an earlier ballot is kept when a later one comes (gap D).
    OldProposalKept,
    /// A proposal is kept though a later leader of its group has proposed another message at its timestamp.
    VoidProposalKept,
    /// A recreated group that asks for what others are done with, and have forgotten, is not answered.
    OverNotTold,
    /// A session is ended as soon as a connection of its process has, where that says nothing of the
    /// process.
    EndsWithConnection,
    /// A session that waits for nothing does not look whether its connections stand.
    IdleStaysAway,
    /// What a leader was sent and does not answer, its followers are never sent.
    NeverSpread,
    /// A session that has come back on another connection is ended all the same.
    ReturnNotNoticed,
    /// What a recreated group proposes replaces what it had proposed before, on which others may have
    /// delivered.
    LostProposalReplaced,
    /// A group that has a message in a lower place than one that was recreated, or not at all, never
    /// comes to where that one has it.
    NeverRaised,
    /// A group is recreated above the ballots that its own replicas remember, whatever others have seen.
    OwnBallotsAlone,
    /// What a deposed leader had proposed is remembered as proposed.
    TruncatedRemembered,
    /// What is logged and not committed is given away as logged for good.
    UncommittedRemembered,
    /// A candidate commits what it takes over in the ballot that it has left: its former leader is
    /// taken to hold it.
    LeftBallotCommits,
    /// A replica that has let another lead goes on to acknowledge in the ballot that it has left.
    LeftBallotAcknowledged,
    /// A leader that stepped down is elected again by a grant that comes late, in the same ballot.
    LateGrantElects,
    /// The header that a leader wrote under an earlier grant is taken for this grant's. Two guards
    /// stand there, and each alone would do: it names its grant, and what was there is no news.
    StaleHeaderTaken,
    /// A leader says that its whole group is done with a message when it is itself.
    SettledTooEarly,
    /// A leader that cannot deliver what its group is done with goes on leading.
    LaggingLeads,
    /// A leader gives its state to a learner though it lacks what its group was done with before.
    LaggingSendsState,
    /// An incarnation counts that was given too little for it to apply what its group is done with.
    AdmittedLagging,
    /// A state lacks the results that its machine was given of messages that are not over.
    HeardNotTaken,
    /// A state lacks what its machine has said to groups that may ask for it.
    ResultsNotTaken,
    /// A state lacks what its group has proposed for messages that others are not done with.
    RetainedNotTaken,
    /// A `Join` does not end an eviction.
    EvictedForEver,
    /// A replica reads what its old leader has written and closes its log to it after that (hole 11).
    ReadBeforeRevoked,
    /// A candidate counts what was granted to an earlier attempt of its own.
    GrantOfAnyBallotCounts,
    /// A machine that waits for results counts as having applied what it was given.
    AppliedTooEarly,
    /// The log is not kept for an incarnation that is about to be let in.
    LogNotHeldForJoiner,
    /// Another group's result is logged as often as it comes.
    ResultGivenTwice,
    /// A reply leaves though what it rests on has not been passed.
    RepliesNotGated,
    /// A group counts as having passed what its clock has reached.
    ClockTakenForDelivered,
    /// A message counts as passed when all its destinations have delivered it, whatever those delivered
    /// before it.
    PassedByNeighboursAlone,
    /// A lease is not looked at again when a read was made: once held, it is taken for good.
    LeaseNotCheckedAgain,
    /// A lease is counted from when its promise came, and not from when it was asked for.
    LeaseFromPromise,
    /// A replica grants what it has promised not to.
    PromiseNotKept,
    /// A leader counts on a promise as if all clocks ran at one rate.
    LeaseOfEqualClocks,
    /// A leader answers without a quorum's confirmation.
    ReadUnconfirmed,
    /// What was written before a question confirms who is asked.
    ConfirmedBefore,
    /// The memory of an incarnation that is not let in confirms a leader.
    ConfirmedByUnnamedIncarnation,
    /// A read is made before its leader has delivered what others of its group have.
    ReadTooEarly,
    /// Whatever comes again is ordered again and executed again. Two guards stand there, and each alone
    /// would do: what a session has sent is known before it is ordered, and when it is executed.
    DuplicateExecuted,
    /// A leader refuses what other groups' leaders relay beyond its budget while it keeps any payload that a follower
    /// lacks, though it keeps that for the sake of one that is not delivered.
    RelaysRefusedForLater,
    /// A promise holds from when its giver began the turn in which it was asked for it.
    PromiseFromTurnsBegin,
    /// An engine that was kept from asking who is gone makes up for it at once: by its clock, those that may
    /// come back have had their time.
    ProbesMadeUpFor,
    /// An engine shows that it is alive in each turn, though no time passes for it.
    BeatsWithoutTime,
    /// A channel that cannot be attached for lack of memory is kept, and what is sent by it waits for ever.
    UselessChannelKept,
    /// A process is met though its count of starts is below one that was seen, or equal to it.
    StaleIncarnationMet,
    /// A group takes its own verdict on a transaction for that of all groups.
    VerdictsNotExchanged,
    /// A command goes on while one before it, which it meets, waits for verdicts.
    MeetingPasses,
    /// What was read of several groups under leases was looked at once.
    LookedAtOnce,
    /// A put of the key `diverge/2` writes something else in the replica of slot 2, and so on; one of
    /// `diverge/all` something else in every replica.
    StoreDiverges,
}

/// Whether the guard is taken out.
#[cfg(not(feature = "mutants"))]
pub const fn planted(_: Mutant) -> bool {
    false
}

/// Whether a condition holds that a mutant takes for granted.
///
/// ```
/// use skein_protocol::guard;
/// use skein_protocol::mutants::Mutant;
///
/// let (acknowledged, quorum) = (2, 2);
/// assert!(guard!(Mutant::CommitWithoutQuorum, acknowledged >= quorum));
/// ```
#[macro_export]
macro_rules! guard {
    ($mutant:expr, $condition:expr) => {
        $crate::mutants::planted($mutant) || $condition
    };
}

#[cfg(feature = "mutants")]
pub use self::switch::{MARKER, plant, planted};

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::Mutant;

    /// Stands in every binary that has mutants in it, and in no other.
    #[used]
    pub static MARKER: [u8; 24] = *b"skein: mutants are here.";

    const NONE: u32 = u32::MAX;
    static PLANTED: AtomicU32 = AtomicU32::new(NONE);

    /// Takes this guard out from here on, in the whole process, and puts all others back.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::Relaxed);
    }

    /// Whether the guard is taken out.
    pub fn planted(mutant: Mutant) -> bool {
        PLANTED.load(Ordering::Relaxed) == mutant as u32
    }
}
