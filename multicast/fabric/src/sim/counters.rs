//! What a run has offered to the code under test.

use std::fmt;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each thing happened. A test that means to cover something checks that its
        /// counter is not zero.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Names and counts, for printing and for finding what never happened.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds those of another run.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Writes posted.
    writes,
    /// Writes that landed in more than one piece.
    torn_writes,
    /// Looks at memory while a write to it had landed in part.
    torn_reads,
    /// Looks at memory right before or in the middle of which something landed.
    stirred_looks,
    /// Writes that landed after one that was posted later on another connection to that process.
    reorders,
    /// Writes that found their grant revoked or their region destroyed.
    denied,
    /// Those of them that had landed in part before.
    denied_half_way,
    /// Operations whose end nobody knows.
    unknown,
    /// Spans that had changed between posting and landing.
    late_spans,
    /// One-sided reads posted.
    reads,
    /// Letters delivered.
    mails,
    /// Wake-ups that found their process parked.
    wakes,
    /// Times a process parked.
    parks,
    /// Crashes.
    crashes,
    /// Writes of a crashed process that stay landed in part for ever.
    cut_writes,
    /// Writes into the memory of a process that had crashed, which were done all the same.
    writes_to_the_dead,
    /// Steps held back by a partition.
    stalls,
    /// Connections broken between processes that live.
    flaps,
    /// Operations that were under way then.
    flapped_operations,
    /// Turns in the middle of which their process was stopped.
    stopped_turns,
    /// Regions that were neither created nor attached, for lack of memory.
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
