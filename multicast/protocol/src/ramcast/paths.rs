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
}
