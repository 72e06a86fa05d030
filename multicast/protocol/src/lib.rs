//! The ordering protocols as arithmetic: events in, effects out.
//!
//! No clock, no socket, no random number, no address and no memory that is not its own: this crate
//! is `no_std` and holds no `unsafe`, so it cannot have them. [`step`] has what happens and what follows. Elections,
//! state transfer and recreation are calls besides: of [`ramcast::Ramcast`], and of its [group log](group::GroupLog) where
//! they concern one group alone.
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
pub mod log;
pub mod message;
pub mod mutants;
pub mod paths;
mod patience;
pub mod properties;
pub mod ramcast;
pub mod results;
pub mod ring;
pub mod step;
pub mod timestamp;
pub mod view;
