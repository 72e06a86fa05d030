//! The ordering protocols as pure state machines: events in, effects out.
//!
//! This crate has no clock, no socket, no random number generator and no memory that it does not own. It is `no_std`
//! and holds no `unsafe`, so it cannot have them.
//!
//! The boundary to the caller has three parts:
//! - the trait [`ordering::OrderingProtocol`]. [`step`] has its events and effects, [`group::Control`] the control
//!   messages between the replicas of a group;
//! - the [group log](group) that the trait lends, through the public methods that [`group`] lists;
//! - the log's bytes: [`group::frame`], [`group::space`], [`group::runs`] and [`group::body`]. The caller owns the
//!   ring, and therefore a [`Space`](group::space::Space) and [`Runs`](group::runs::Runs).
//!
//! RamCast has three more methods, for batches from other groups: [`hear_together`](ramcast::Ramcast::hear_together),
//! [`hear_passed`](ramcast::Ramcast::hear_passed) and [`report_passed`](ramcast::Ramcast::report_passed).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod backoff;
pub mod ballot;
pub mod by_session;
mod bytes;
pub mod check;
pub mod detector;
pub mod divergence;
pub mod group;
pub mod ids;
pub mod logged_set;
pub mod message;
pub mod mutants;
pub mod ordering;
pub mod paths;
pub mod properties;
pub mod ramcast;
pub mod rank;
pub mod results;
pub mod ring;
pub mod single;
pub mod step;
pub mod timestamp;
pub mod tram;
pub mod view;
