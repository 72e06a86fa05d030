//! Logs that lose power, are damaged, or are not theirs who open them: one program, as each one more takes seconds to build.

mod cuts;
mod damage;
mod directory;
mod disk;
mod failures;
mod harness;
mod identity;
mod inspect;
mod power;
mod reading;
mod segments;
mod volatile;
