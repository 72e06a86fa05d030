//! Feeding a replica that lacks a part of the log which memory holds no more.
//!
//! Its leader reads that part from its disk and sends what is committed of it (`committed`, `sender`). The receiver
//! appends that to its own log, and to its disk, as if it had read it there (`receiver`). Entries alone would not do: other
//! groups' acceptance words, which proved deliveries at their time, may be gone. So marks stand between them that say how
//! far the leader had delivered by what stands in front, as a disk says it to a replica that begins with it.
//!
//! The transfer as such, its parts and its end, is the one of a state
//! ([`skein_protocol::group::transfer`]).

mod committed;
mod receiver;
mod sender;

pub(super) use self::sender::Feed;
