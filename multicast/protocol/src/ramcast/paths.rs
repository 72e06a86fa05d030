//! How often a replica took each path that is not the common one.

/// Declares a struct of counts, whose names can be listed: a simulation that never takes a path of
/// it has a hole.
#[macro_export]
macro_rules! paths {
    ($(#[$about:meta])* $type:ident: $($(#[$doc:meta])* $name:ident,)*) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type { $($(#[$doc])* pub $name: u64,)* }

        impl $type {
            /// Names and counts.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

paths! {
    /// Counts of paths taken by a replica.
    Paths:
    /// A message was announced by another group before it was received.
    announced_early,
    /// A leader asked for a message that it knew only from an announcement.
    fetched_as_leader,
    /// A follower asked for the payload of a logged message.
    fetched_as_follower,
    /// A follower's log waited for a payload.
    stalled,
    /// Several announcements shared an entry.
    remotes_merged,
    /// A candidate learned of a granter that more of its log is committed than it knew.
    learned_committed,
    /// A message came again after it was delivered.
    duplicate_delivered,
    /// A message came again while it was pending.
    duplicate_pending,
    /// A message was delivered at a timestamp above its own group's proposal.
    final_above_local,
    /// A message was overtaken by one with a later local timestamp.
    overtaken,
    /// A completion alone made an entry committed, before any follower's word.
    committed_by_completion,
    /// A completion did not count, because a payload was not in the log.
    completion_not_enough,
    /// A leader kept a delivered payload for a follower that might ask.
    payload_kept,
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
    /// A grant of a life that the adopted view does not name was not counted.
    grant_not_counted,
    /// A new leader adopted another replica's log.
    adopted_other,
    /// A follower accepted a new leader's header.
    followed,
    /// An entry was cut off because another log was chosen.
    truncated,
    /// A leader heard that another group has a new leader.
    heard_new_leader,
    /// A leader heard from a leader that is none any more.
    heard_old_leader,
    /// A leader asked another group for what a pending message lacks.
    asked_again,
    /// A lost group went on from the log of this replica.
    revived,
    /// A group that was recreated was told that others are done with a message.
    told_over,
    /// A decision was logged for replicas that lag.
    decided,
    /// A decision was logged because a follower asked.
    decided_for_follower,
    /// A follower whose leader had answered asked for the next ones at once.
    asked_at_once,
    /// A message was delivered on a logged decision.
    delivered_on_decision,
    /// A leader told another group of a third one's progress.
    rows_relayed,
    /// A replica was asked what it knows to be passed.
    asked_what_passed,
    /// A leader raised its clock to where another group, recreated, has what both had shared.
    raised,
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
    /// A state was given away.
    saved,
    /// A state was taken.
    restored,
}
