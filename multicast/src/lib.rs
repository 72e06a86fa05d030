//! Atomic multicast: Skein's protocols on a fabric.
//!
//! | question | module |
//! |---|---|
//! | who lives where, and how large is everything | [`config`] |
//! | what happens at a replica, in which order | [`engine`], `replica` |
//! | how a session's messages get to the replicas, and replies back | [`access`] |
//! | what delivery does | [`application`], which somebody else implements |
//! | what an operator sees and may ask | [`operate`] |
//! | how many things are done together | [`batches`] |
//! | how two processes share rings | `channel`, `port` |
//! | what holds under every schedule | [`simulate`] |
//! | how replicas reach each other | `wiring`, `mail`, `election` |
//! | what is done for one ordering alone | `ordering`, `ramcast`, `single` |

pub mod access;
pub mod application;
pub mod ascending;
pub mod batches;
mod buffers;
mod channel;
pub mod config;
mod election;
pub mod engine;
mod mail;
pub mod operate;
mod ordering;
mod payloads;
mod port;
mod ramcast;
mod replica;
pub mod roster;
pub mod simulate;
mod single;
mod slots;
mod wakes;
mod wiring;

pub use mail::WIRE_VERSION;
pub use ordering::Links;
pub use skein_fabric as fabric;
pub use skein_protocol as protocol;
