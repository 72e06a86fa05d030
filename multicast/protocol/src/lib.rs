//! The ordering protocols as arithmetic: events in, effects out.
//!
//! No clock, no socket, no random number, no address and no memory that is not its own: this crate
//! is `no_std` and holds no `unsafe`, so it cannot have them.
//! What crosses its boundary is of four kinds. [`step`] has what happens and what follows. [`group::Control`] is what the
//! replicas of a group tell each other of who leads it. A state is asked for, sent and taken in parts, as
//! [`group::transfer`] says, and saved and restored whole. An operator evicts a replica, or has a group that was lost go on.
//! Besides, what comes in numbers has calls of its own: other groups' proposals (`hear_together`, `accept_proposals`), what
//! they have passed (`hear_passed`), what is delivered (`deliver`), and once a tick what holds a leader up (`relieve`).
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
