//! Counters of uncommon code paths in the group log.

crate::paths! {
    /// Counters of a replica in its group.
    GroupPaths:
    /// A candidate learned a higher commit index from a granter.
    learned_committed,
    /// An entry was committed by a write completion, before any follower's word.
    committed_by_completion,
    /// A completion did not count, because a payload was not in the log.
    completion_not_enough,
    /// A replica set out to lead.
    campaigns,
    /// The leader was seen to have restarted without its state.
    leader_replaced,
    /// A replica was elected.
    led,
    /// A leader's first entry was committed.
    new_ballots,
    /// A replica granted a ballot.
    promised,
    /// A leader granted another's ballot.
    deposed,
    /// A leader stepped down.
    stepped_down,
    /// A leader asked the replica in slot 0 to lead, so that leaders spread.
    spread,
    /// A ballot below the promised one was refused.
    refused_lower,
    /// A candidate was refused because the leader seemed alive.
    refused_content,
    /// A grant of an incarnation that the adopted view does not contain was not counted.
    grant_not_counted,
    /// A new leader adopted another replica's log.
    adopted_other,
    /// A follower accepted a new leader's header.
    followed,
    /// An entry was cut off because another log was adopted.
    truncated,
    /// A lost group continued from the log of this replica.
    revived,
    /// A leader asked for promises of a lease.
    lease_asked,
    /// A follower promised a lease.
    lease_promised,
    /// A candidate had to wait until a promise expired.
    grant_put_off,
    /// A slot was evicted.
    evicted,
    /// A replica was admitted.
    joined,
    /// A leader sent its state to no replica, because it may lack what others no longer send.
    not_whole,
}
