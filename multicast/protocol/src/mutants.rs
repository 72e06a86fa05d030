//! Guards that can be disabled, to check that the simulator notices.
//!
//! Each [`Mutant`] is a bug that a published algorithm or prototype has, or that a careless refactoring could
//! introduce. The code under test calls [`guard!`](crate::guard) or [`planted`] where the guard is. Without the cargo
//! feature `mutants` both are constants, and the binary contains nothing of this. With it, one mutant at a time can be
//! planted in a process. `cargo run --profile simulation --features mutants --bin mutants` prints for each of them the
//! seed that kills it.

macro_rules! mutants {
    ($($(#[doc = $about:literal])+ $name:ident,)+) => {
        /// A disabled guard. Each variant says which one, and where it is described: holes are those of section 5 of
        /// the founding design, gaps the lettered ones of RamCast's prototype.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Mutant {
            $($(#[doc = $about])+ $name,)+
        }

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// All mutants.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Mutants whose guards are in the store and its clients, which the simulation of the protocol does not
            /// contain. The simulation of the store tries them.
            pub const OF_THE_STORE: &'static [Self] = &[
                Self::VerdictsNotExchanged,
                Self::MeetingPasses,
                Self::ReadInOneRound,
                Self::EpochNotChecked,
                Self::SlotMovedWithKeys,
                Self::VersionsNotRaised,
            ];

            /// Mutants of the ordering along a tree. `multicast/protocol/tests/tram` tries them.
            pub const OF_TRAM: &'static [Self] = &[
                Self::NotGatedAlongTree,
                Self::UpIgnored,
                Self::DownIgnored,
                Self::DownIgnoresParent,
                Self::StableWithoutSubtree,
                Self::UpWithoutOwnMessages,
                Self::WordsWithoutEarlierEntries,
                Self::PassageExempt,
                Self::SubtreeExempt,
                Self::CommonDestinationExempt,
                Self::ReadsUngated,
                Self::EdgeGapTaken,
                Self::EdgeCountNotInState,
                Self::AckOfFormerSelf,
                Self::PlacesIgnored,
                Self::RecreatedOrdersBeforeMarker,
                Self::UnacknowledgedForgotten,
                Self::OrderedBelowLca,
                Self::EdgeDeduplicatedByName,
                Self::BystanderDelivers,
                Self::OwnAppliedIsEnough,
                Self::PlacesOfAnyLca,
                Self::ResultsNotAskedFor,
                Self::SharedNotInState,
                Self::OrderedAgainDelivered,
                Self::LackedNotHandedIn,
                Self::GenerationOfBallotsAlone,
                Self::LostMarkCounts,
                Self::PassedWithoutPayload,
                Self::PayloadNotPassedOn,
                Self::HintBlocksFetch,
                Self::KeptBytesNotCounted,
                Self::RefusedFillBudget,
                Self::LostHintAskedAgain,
            ];

            /// Those of them whose loss simulated clusters are not known to show, or show too rarely to wait for it. Tests of
            /// the protocol have the rules.
            pub const UNSIMULATED_OF_TRAM: &'static [Self] = &[
                Self::PassageExempt,
                Self::AckOfFormerSelf,
                Self::GenerationOfBallotsAlone,
                Self::KeptBytesNotCounted,
                Self::RefusedFillBudget,
                Self::LostHintAskedAgain,
            ];

            /// Those whose loss simulated clusters show about once in 3,000 schedules of `mixed`, or of `losses`, or less often. The
            /// gate does not wait for that: unit tests notice them.
            pub const RARE: &'static [Self] =
                &[Self::EarlierLogNotOnDisk, Self::OwnStateTakenForWhole, Self::VoidProposalKept];

            /// Mutants that do harm only when a key asks for it: for manual tests, and in no simulation.
            pub const ON_DEMAND: &'static [Self] = &[Self::StoreDiverges];

            /// The mutant with that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|mutant| mutant.name() == name)
            }

            /// The variant's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            /// What the mutant does.
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($about,)+).trim_ascii(),)+
                }
            }
        }
    };
}

mutants! {
    /// A leader does not raise its clock to other groups' proposals (hole 1).
    LeaderClockNotRaised,
    /// A follower does not raise its clock to the timestamps in its log: as leader it proposes below what was delivered
    /// (hole 1).
    FollowerClockNotRaised,
    /// A message is delivered although no quorum of another group holds that group's proposal (hole 4).
    RemoteWithoutQuorum,
    /// One replica fewer than a quorum commits an entry (gap F).
    CommitWithoutQuorum,
    /// Entries below the ballot's first entry are committed by a count in this ballot.
    CommitBelowNewBallot,
    /// An acknowledgement counts for every ballot (hole 4, gap E).
    AcceptanceOfAnyBallot,
    /// A follower acknowledges an entry whose payload it does not hold (hole 2).
    AcceptanceWithoutPayload,
    /// A payload that a session wrote here passes as the payload that the leader logged under the same message name.
    PayloadNotCompared,
    /// A leader writes the log of a learner that keeps more of its log, uncommitted as far as it knows, than a ring
    /// holds.
    LogKeptBeyondRing,
    /// A leader waits for a transferee that is not admitted.
    TransfereeNotAdmitted,
    /// The log of a replica that keeps it, because the state that it received lacks part of it, is not written.
    KeptLogNotWritten,
    /// A leader counts the completion of a write that did not carry the payload (hole 2).
    CompletionWithoutPayload,
    /// A message that is already logged is proposed again (hole 9, gap M).
    DuplicateProposed,
    /// A session's messages count as logged up to the highest number, instead of as a set (hole 14).
    HighestTakenForSet,
    /// The message with the first local timestamp is taken for the least.
    FirstLocalTakenForLeast,
    /// Another group's announcement that arrives before the message is dropped.
    EarlyAnnouncementDropped,
    /// A message known only from another group is never requested (hole 6, gap L).
    NeverFetched,
    /// The position of an entry is not checked: an entry of an earlier lap, or one that is not the next, is accepted
    /// (holes 3 and 12, gaps B and O).
    LapNotChecked,
    /// The checksum of an entry is not checked: a torn entry is accepted (hole 12, gap C).
    TornEntryTaken,
    /// The length of an entry is taken from its header at the first read, while the entry was being written: the next
    /// entry is then expected at a wrong position for ever (hole 12).
    EntryLengthNotChecked,
    /// A torn header of a new leader is accepted (hole 12).
    TornHeaderTaken,
    /// Ring credits are not sent to the writer (hole 7, gap H).
    CreditNotTold,
    /// A ring is written where its reader has not read (hole 7, gap I).
    RingRoomNotChecked,
    /// Ring credit is given for bytes that were written but not taken (gap J).
    CreditForUnread,
    /// A sleeping engine is not woken by what is written to it (hole 10).
    NeverWoken,
    /// An engine that the next tick should wake is not woken.
    NeverWokenLate,
    /// A log is overwritten where a follower has not read it (hole 7, gap I).
    LogRoomNotChecked,
    /// The log of a follower that is admitted late may be overwritten: what the follower has still to read is not
    /// retained.
    LogRoomNotHeld,
    /// A replica that received a state is not sent the part of the log that the state replaces and that others still
    /// need: if they depend on it, it cannot serve them (D6).
    LogBeforeStateNotWritten,
    /// A leader writes again the part of its log that a follower holds: a write that ends halfway destroys it.
    HeldLogWritten,
    /// Space in the log is freed although its entries are not committed.
    FreedBeforeCommit,
    /// A leader takes messages however many deliveries a follower that it writes to is behind.
    LagNotBounded,
    /// Every group receives what concerns one (genuineness).
    BystandersTold,
    /// A replica that grants a ballot does not revoke the old leader's permission (hole 11).
    GrantWithoutRevoking,
    /// A replica grants a ballot below one that it has granted.
    GrantOfLowerBallot,
    /// A candidate leads with fewer grants than a quorum.
    LeadWithoutQuorum,
    /// A candidate waits for the grants of all replicas (hole 5, gap A).
    LeadOnlyWithAll,
    /// A replica grants without reading the old leader's last writes (hole 11).
    LogUnreadAtGrant,
    /// A replica reports an entry whose payload it lacks (hole 2).
    StalledEntryReported,
    /// A candidate keeps its own log, whatever others report (gap G).
    OwnLogAdopted,
    /// A candidate adopts the longest log, whatever the birth of its last entry.
    LongestLogAdopted,
    /// Adopted entries get the new leader's ballot as their birth.
    BirthNotKept,
    /// A new leader continues behind a follower's last entry, whatever that is.
    WrongBase,
    /// A replica without its memory grants, and its grant counts (hole 8). There are two guards, and each alone would
    /// suffice: the replica stays silent, and no log's view contains its incarnation.
    AmnesiacGrants,
    /// A replica whose `Join` is committed, but which has not read that, grants nothing: too few survive a second
    /// failure.
    JoinUnseenIsNone,
    /// A replica without its memory acknowledges (hole 8).
    AmnesiacAccepts,
    /// A completed write counts beyond an entry whose payload was dropped before that follower, for which the log did
    /// not wait, had it.
    CompletionBehindLostPayload,
    /// A replica that restarts from a state forgets its grants (hole 8). There are two guards, and each alone would
    /// suffice: it keeps its own promise, and it promises the ballot of the state's sender.
    PromiseForgotten,
    /// A state replaces a log that continues beyond it and on which others rely (hole 8).
    OlderStateTaken,
    /// The clock is not part of the state that a learner receives (hole 1).
    ClockNotTaken,
    /// A learner counts itself when it computes what is committed (hole 8).
    LearnerCountsItself,
    /// A completed write counts for an incarnation that is not in the view (hole 8).
    CompletionOfUnnamedIncarnation,
    /// A learner counts itself as admitted when it reads its own `Join`, committed or not (hole 8).
    AdmittedTooEarly,
    /// A new leader does not repeat announcements that other groups may have missed.
    NotAnnouncedAgain,
    /// A new leader does not repeat replies (hole 9).
    RepliesNotRepeated,
    /// A denied write counts as complete, and its leader continues (hole 11).
    DeniedLeaderGoesOn,
    /// A replica that blocks the full log is waited for (hole 7).
    NobodyEvicted,
    /// Of the replicas that block the full log, those in the first slots are evicted, not those that are furthest behind.
    BlockersEvictedBySlot,
    /// A stopped learner is waited for, by the log and by other learners.
    StoppedLearnerKept,
    /// A view change leaves fewer than a quorum for which the log waits.
    QuorumEvictedAway,
    /// A new leader announces a message at its old index, below what counts in the new ballot.
    AnnouncedBelowNewBallot,
    /// A message is overtaken because of another group's proposal that is only announced: that group's next leader may
    /// propose the message anew, at a lower timestamp.
    UnprovenRaisesBound,
    /// A proposal of an earlier ballot is kept when a later one arrives (gap D).
    OldProposalKept,
    /// A proposal is kept although a later leader of its group has proposed another message at its timestamp.
    VoidProposalKept,
    /// A recreated group that asks about messages that others have settled and forgotten is not answered.
    OverNotTold,
    /// A session is ended as soon as a connection of its process ends, although that does not prove that the process
    /// has ended.
    EndsWithConnection,
    /// A session that waits for nothing does not check whether its connections are intact.
    IdleStaysAway,
    /// What a session sent to a leader that does not answer is never sent to the followers.
    NeverSpread,
    /// A session that has returned on another connection is ended all the same.
    ReturnNotNoticed,
    /// The proposal of a recreated group replaces its earlier one, on which others may have delivered.
    LostProposalReplaced,
    /// A group that has a message at a lower timestamp than a recreated group, or not at all, never raises its clock to
    /// the recreated group's timestamp.
    NeverRaised,
    /// A group is recreated above the ballots that its own replicas remember, whatever others have seen.
    OwnBallotsAlone,
    /// A deposed leader's truncated proposals are remembered as proposed.
    TruncatedRemembered,
    /// Uncommitted messages are saved in a state as logged for good.
    UncommittedRemembered,
    /// A candidate commits what it adopts in the ballot that it has left: its former leader counts as holding it.
    LeftBallotCommits,
    /// A replica that has granted another ballot still acknowledges in the ballot that it has left.
    LeftBallotAcknowledged,
    /// A leader that stepped down is elected again by a late grant, in the same ballot.
    LateGrantElects,
    /// The header that a leader wrote under an earlier grant is taken for this grant's. There are two guards, and each
    /// alone would suffice: the header contains the number of its grant, and a header that was already there is not
    /// new.
    StaleHeaderTaken,
    /// A leader reports that its whole group is done with a message when only the leader is.
    SettledTooEarly,
    /// A leader that cannot deliver what its group is done with keeps leading.
    LaggingLeads,
    /// A leader sends its state to a learner although it lacks what its group was done with before.
    LaggingSendsState,
    /// An incarnation counts although its state is too old for it to apply what its group is done with.
    AdmittedLagging,
    /// A state lacks the results that its machine received about messages that are not over.
    HeardNotTaken,
    /// A state lacks the results of its machine that other groups may request.
    ResultsNotTaken,
    /// No group objects to a message of which it may never speak.
    NeverObjects,
    /// A group objects to a message although one of its machines may have spoken about it.
    ObjectsAfterSpeaking,
    /// A state lacks its group's proposals for messages that other groups are not done with.
    RetainedNotTaken,
    /// A `Join` does not end an eviction.
    EvictedForEver,
    /// A replica reads its old leader's writes before it closes its log to that leader (hole 11).
    ReadBeforeRevoked,
    /// A candidate counts grants of an earlier attempt of its own.
    GrantOfAnyBallotCounts,
    /// A machine that waits for results counts as having applied its input.
    AppliedTooEarly,
    /// The log is not retained for an incarnation that is about to be admitted.
    LogNotHeldForJoiner,
    /// Another group's result is logged each time that it arrives.
    ResultGivenTwice,
    /// A reply is sent although its dependencies have not passed.
    RepliesNotGated,
    /// A group counts as having passed everything up to its clock.
    ClockTakenForDelivered,
    /// A message counts as passed when all its destinations have delivered it, whatever they delivered before it.
    PassedByNeighboursAlone,
    /// A lease is not checked again after a read: once held, it counts for good.
    LeaseNotCheckedAgain,
    /// A lease is counted from the arrival of its promise, not from its request.
    LeaseFromPromise,
    /// A replica breaks its promise and grants.
    PromiseNotKept,
    /// A leader relies on a promise as if all clocks ran at the same rate.
    LeaseOfEqualClocks,
    /// A leader answers a read without a quorum's confirmation.
    ReadUnconfirmed,
    /// A write from before the read confirms the leader.
    ConfirmedBefore,
    /// The memory of an incarnation that is not admitted confirms a leader.
    ConfirmedByUnnamedIncarnation,
    /// A read is executed before its leader has delivered what other replicas of its group have.
    ReadTooEarly,
    /// Every repeated message is ordered and executed again. There are two guards, and each alone would suffice: a
    /// duplicate is recognised before it is ordered, and again when it is executed.
    DuplicateExecuted,
    /// A leader refuses payloads that other groups' leaders relay beyond its budget while it keeps any delivered
    /// payload that a follower lacks, even if an undelivered one before it is the reason that it is kept.
    RelaysRefusedForLater,
    /// A promise is counted from the beginning of the turn in which its giver was asked for it.
    PromiseFromTurnsBegin,
    /// An engine whose liveness probes were delayed catches up at once: by its clock, processes that may come back have
    /// had their time.
    ProbesMadeUpFor,
    /// An engine sends heartbeats in each turn, although no time passes for it.
    BeatsWithoutTime,
    /// A channel that cannot be attached for lack of memory is kept, and messages to it wait for ever.
    UselessChannelKept,
    /// A process is connected although its start count is not above the highest one seen.
    StaleIncarnationMet,
    /// A group takes its own verdict on a transaction for that of all groups.
    VerdictsNotExchanged,
    /// A command executes while a conflicting command before it waits for verdicts.
    MeetingPasses,
    /// Values read from several groups under leases are taken from one round of reads.
    ReadInOneRound,
    /// A command is done by another slot map than that by which it was sent.
    EpochNotChecked,
    /// A slot is given away though it holds keys.
    SlotMovedWithKeys,
    /// A group that takes a slot goes on with versions of its own, which may be below those of the slot's owner.
    VersionsNotRaised,
    /// A put of the key `diverge/2` writes another value in the replica of slot 2, and likewise for other slots. One of
    /// `diverge/all` writes another value in every replica.
    StoreDiverges,
    /// A replica acknowledges what its disk does not hold.
    WordBeforeDisk,
    /// A replica grants, or asks for grants, before its promise is on its disk.
    PromiseBeforeDisk,
    /// A candidate that has had no leader since it began with its disk takes the first f+1 grants, though other members
    /// are about to start as well.
    ColdStartDoesNotWait,
    /// Such a candidate counts the time for which it waits from its own start, also while nobody else is there.
    ColdStartCountsOwnTime,
    /// A replica that continues with what its disk holds stands in ballots of the process that began with its state, which
    /// the disk may have forgotten.
    BallotsOfFormerProcess,
    /// A leader counts as a holder of what it has logged, whatever its disk holds.
    LeaderTakenForDurable,
    /// A write that has reached a follower's memory counts as one on its disk.
    CompletionTakenForDurable,
    /// A replica lets others overwrite what is committed, whether or not its disk holds it.
    FreedBeforeDisk,
    /// What memory holds of the log in front of a state is not written to disk with the state.
    EarlierLogNotOnDisk,
    /// A disk does not say which results of other groups a machine had when it had applied so much.
    GivenNotOnDisk,
    /// A replica that begins with a state that it saved takes it for one that lacks nothing that its group is done with.
    OwnStateTakenForWhole,
    /// A leader does not log again a result that its machine has, and whose entry was cut off.
    CutResultForgotten,
    /// A leader feeds entries that it does not know to be committed.
    FedUncommitted,
    /// A leader that reads its log to feed another does not cut off what was cut off when the log was written.
    FedCutIgnored,
    /// A replica that is fed keeps its own entries though they differ.
    FedSuffixKept,
    /// A payload that stands in no entry is not written to disk.
    PayloadNotOnDisk,
    /// What is in front of a snapshot is dropped before the disk holds the end of the snapshot.
    FrontDroppedEarly,
    /// The log in front of a snapshot is dropped before the disk holds the files that the snapshot names.
    FrontDroppedBeforeKept,
    /// A snapshot whose files a former machine was still writing counts when the next machine has written all of its own.
    UnkeptSnapshotCounts,
    /// A start reads a snapshot although the files that it names are not there.
    ReadWithoutKept,
    /// The files that a snapshot names contain one write more than the rest of it.
    KeptWithOneMore,
    /// Along a tree: answers wait for nothing.
    NotGatedAlongTree,
    /// Along a tree: an entry is stable in a subtree whatever its children have told.
    UpIgnored,
    /// Along a tree: an entry is stable everywhere whatever the parent has told.
    DownIgnored,
    /// Along a tree: a group tells its children that an entry is stable when it is so in the group's subtree alone.
    DownIgnoresParent,
    /// Along a tree: a group tells its parent what is committed in its own log, whatever its children have.
    StableWithoutSubtree,
    /// Along a tree: a group tells its parent of edges that children hold, whatever stands before them in its log.
    UpWithoutOwnMessages,
    /// Along a tree: no entry waits for earlier ones that share a destination.
    WordsWithoutEarlierEntries,
    /// Along a tree: an answer does not wait for messages whose destinations are on its own message's path.
    PassageExempt,
    /// Along a tree: an answer does not wait for messages below its own message's lowest common ancestor.
    SubtreeExempt,
    /// Along a tree: an answer does not wait for messages that share another destination with its own.
    CommonDestinationExempt,
    /// Along a tree: reads wait for nothing.
    ReadsUngated,
    /// Along a tree: a child takes an edge although one before it is missing.
    EdgeGapTaken,
    /// Along a tree: a state lacks the number of the last edge that was taken.
    EdgeCountNotInState,
    /// Along a tree: an acknowledgement of a child's former self is taken for the child's.
    AckOfFormerSelf,
    /// Along a tree: what was taken once is taken again if a recreated parent sends it.
    PlacesIgnored,
    /// Along a tree: a recreated group orders messages to several groups before its subtree knows.
    RecreatedOrdersBeforeMarker,
    /// Along a tree: a leader that begins keeps nothing of what was not acknowledged to its predecessor.
    UnacknowledgedForgotten,
    /// Along a tree: a destination orders a message that its session has sent it, though another group does.
    OrderedBelowLca,
    /// Along a tree: a child does not log an edge whose message it has had, by its name.
    EdgeDeduplicatedByName,
    /// Along a tree: a group delivers again what it had before, when a recreated group orders it again.
    OrderedAgainDelivered,
    /// Along a tree: a destination that lacks a message does not say so to the group that has ordered it.
    LackedNotHandedIn,
    /// Along a tree: a replica says in which generation another group is by the ballots alone that it has heard of.
    GenerationOfBallotsAlone,
    /// Along a tree: a group on the path delivers what is not addressed to it.
    BystanderDelivers,
    /// Along a tree: a result is dropped when its own group has applied the message, whoever else may ask for it.
    OwnAppliedIsEnough,
    /// Along a tree: a place that a group has applied counts for what any group has ordered first.
    PlacesOfAnyLca,
    /// Along a tree: a leader whose machine waits for a result never asks for it.
    ResultsNotAskedFor,
    /// Along a tree: a state lacks the messages about which other groups may still need results.
    SharedNotInState,
    /// Along a tree: a session's low-water mark counts although the entry that carried it was lost.
    LostMarkCounts,
    /// Along a tree: a child logs an edge although it does not have the payload.
    PassedWithoutPayload,
    /// Along a tree: a group drops a payload when it has delivered it, whatever a child is yet to be sent.
    PayloadNotPassedOn,
    /// Along a tree: a payload that is needed is refused while hints fill the budget.
    HintBlocksFetch,
    /// Along a tree: what is kept for a child is bounded in messages alone, whatever the length of their payloads.
    KeptBytesNotCounted,
    /// Along a tree: large messages that wait until a child has room take up the whole budget for payloads.
    RefusedFillBudget,
    /// Along a tree: a payload that is on its way is asked for once more, each time that a hint for it comes and goes.
    LostHintAskedAgain,
    /// After a restart no answer waits for what had been delivered before.
    DeliveredKeptAsPassed,
}

/// Whether the guard is disabled.
#[cfg(not(feature = "mutants"))]
pub const fn planted(_: Mutant) -> bool {
    false
}

/// A condition that the given mutant takes for granted.
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

    /// Is in every binary that contains mutants, and in no other.
    #[used]
    pub static MARKER: [u8; 24] = *b"skein: mutants are here.";

    const NONE: u32 = u32::MAX;
    static PLANTED: AtomicU32 = AtomicU32::new(NONE);

    /// Disables this guard from now on, in the whole process, and enables all others.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::Relaxed);
    }

    /// Whether the guard is disabled.
    pub fn planted(mutant: Mutant) -> bool {
        PLANTED.load(Ordering::Relaxed) == mutant as u32
    }
}
