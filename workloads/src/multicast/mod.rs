//! The multicast by itself, as RamCast's authors measured theirs: from a session's message to the
//! last of its groups' replies, with a state machine that only replies.
//!
//! | question | module |
//! |---|---|
//! | who delivers | [`engines`] |
//! | to which groups | `destinations` |
//! | who multicasts, and how long does it take | [`load`] |
//! | how fast is the machine at this moment | [`cores`] |
//! | what would it be on other hardware | [`simulated`] |
//! | what came of several runs | [`report`] |
//! | and of two orderings | [`compare`] |
//!
//! Follows RamCast, §5.3 and §5.4, and TRAM, §8.

pub mod compare;
pub mod cores;
mod destinations;
pub mod engines;
pub mod load;
pub mod report;
pub mod simulated;
