//! Counts of the uncommon paths of the order between groups.

crate::paths! {
    /// How often a replica took each uncommon path in the order between groups.
    Paths:
    /// A message was announced by another group before it was received.
    announced_early,
    /// A leader asked for a message of which it had only an announcement.
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
    /// A leader received an announcement of another group's new leader.
    heard_new_leader,
    /// A leader received an announcement of a deposed leader.
    heard_old_leader,
    /// A leader asked other groups for what a pending message lacks.
    asked_again,
    /// A leader reported to a recreated group that a message is over.
    told_over,
    /// A decision was logged for lagging replicas.
    decided,
    /// A decision was logged because a follower asked.
    decided_for_follower,
    /// A follower asked for the next decisions at once, because its leader had answered.
    asked_at_once,
    /// A message was delivered on a logged decision.
    delivered_on_decision,
    /// A leader relayed a third group's progress to another group.
    rows_relayed,
    /// Another replica asked for this replica's rows of passed messages.
    asked_what_passed,
    /// A leader logged a `Raise` for a recreated group that waits for this one.
    raised,
    /// A state was saved for another replica.
    saved,
    /// A state was restored.
    restored,
}
