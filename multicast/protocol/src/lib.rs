//! The ordering protocols as arithmetic: events in, effects out.
//!
//! No clock, no socket, no random number, no address and no memory that is not its own: this crate
//! is `no_std` and holds no `unsafe`, so it cannot have them.
//! What crosses its boundary is one trait, [`ordering::OrderingProtocol`], which lists it by kind: [`step`] has what happens and
//! what follows, [`group::Control`] what the replicas of a group tell each other of who leads and whose state is sent. Entries of
//! the log are read and written in the ordering's own bytes ([`group::body`]), and a state is saved and restored whole. What comes
//! in numbers has a form of its own: an entry of many records ([`accept`](ordering::OrderingProtocol::accept)), what is delivered,
//! parts of a state; and, of RamCast alone, other groups' proposals and what they have passed.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod ballot;
pub mod by_session;
mod bytes;
pub mod check;
pub mod detector;
pub mod divergence;
pub mod group;
pub mod ids;
pub mod known;
pub mod message;
pub mod mutants;
pub mod ordering;
pub mod paths;
pub mod patience;
pub mod properties;
pub mod ramcast;
pub mod rank;
pub mod results;
pub mod ring;
pub mod single;
pub mod step;
pub mod timestamp;
pub mod view;
