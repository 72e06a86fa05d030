//! How often a replica's part of the group log took each path that is not the common one.

crate::paths! {
    /// Counts of paths taken by a replica in its group.
    GroupPaths:
    /// A candidate learned of a granter that more of its log is committed than it knew.
    learned_committed,
    /// A completion alone made an entry committed, before any follower's word.
    committed_by_completion,
    /// A completion did not count, because a payload was not in the log.
    completion_not_enough,
    /// A replica set out to lead.
    campaigns,
    /// The leader's slot was seen to live on without its memory.
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
    /// A lower ballot than the one promised was refused.
    refused_lower,
    /// A candidate was refused because the leader seemed well.
    refused_content,
    /// A grant of an incarnation that the adopted view does not name was not counted.
    grant_not_counted,
    /// A new leader adopted another replica's log.
    adopted_other,
    /// A follower accepted a new leader's header.
    followed,
    /// An entry was cut off because another log was chosen.
    truncated,
    /// A lost group went on from the log of this replica.
    revived,
    /// A leader asked for promises of a lease.
    lease_asked,
    /// A follower promised one.
    lease_promised,
    /// A candidate had to wait until a promise was over.
    grant_put_off,
    /// A slot was evicted.
    evicted,
    /// A replica was let in.
    joined,
    /// A leader gave nobody its state, since it may lack what others tell nobody any more.
    not_whole,
}
