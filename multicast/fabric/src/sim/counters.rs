//! Counts of what a run exposed the code under test to.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers of events. A test that is meant to cover an event checks that its counter is not zero.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Names and counts, for output and to find events that never happened.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counts of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    writes,
    torn_writes,
    /// Looks at memory while a write to it had landed in part.
    torn_reads,
    /// Looks at memory immediately before which, or in the middle of which, something landed.
    stirred_looks,
    /// Writes that landed after a write to the same process that was posted later on another connection.
    reorders,
    /// Writes whose grant was revoked or whose region was destroyed before they landed.
    denied,
    /// Denied writes that had landed in part.
    denied_half_way,
    /// Operations that ended with an unknown outcome.
    unknown,
    /// Writes whose source span changed between posting and landing.
    late_spans,
    /// One-sided reads that were posted.
    reads,
    /// Control messages delivered.
    mails,
    /// Wake-ups of parked processes.
    wakes,
    parks,
    crashes,
    /// Writes of a crashed process, or on a lost connection, that remain landed in part forever.
    cut_writes,
    /// Writes that landed in the memory of a crashed process.
    writes_to_the_dead,
    /// Steps held back by a partition.
    stalls,
    /// Connections broken between live processes.
    flaps,
    /// Operations in flight on a connection that was broken.
    flapped_operations,
    /// Turns in the middle of which the process was stopped.
    stopped_turns,
    /// Regions that were not created or not attached, for lack of memory.
    refused_regions,
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, count)) in self.all().enumerate() {
            write!(f, "{}{name} {count}", if i > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
