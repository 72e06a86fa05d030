//! How often a replica's part of the order between groups took each path that is not the common one.

crate::paths! {
    /// Counts of paths taken by a replica in the order between groups.
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
    /// A message came again after it was delivered.
    duplicate_delivered,
    /// A message came again while it was pending.
    duplicate_pending,
    /// A message was delivered at a timestamp above its own group's proposal.
    final_above_local,
    /// A message was overtaken by one with a later local timestamp.
    overtaken,
    /// A leader kept a delivered payload for a follower that might ask.
    payload_kept,
    /// A leader heard that another group has a new leader.
    heard_new_leader,
    /// A leader heard from a leader that is none any more.
    heard_old_leader,
    /// A leader asked another group for what a pending message lacks.
    asked_again,
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
    /// A state was given away.
    saved,
    /// A state was taken.
    restored,
}
