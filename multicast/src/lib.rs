//! Atomic multicast: Skein's protocols on a fabric.
//!
//! | question | module |
//! |---|---|
//! | which node and engine each replica lives on | [`layout`] |
//! | how large everything is | [`config`] |
//! | what happens at a replica, in which order | [`engine`], `replica` |
//! | how a session's messages get to the replicas, and replies back | [`access`] |
//! | what delivery does | [`application`], which somebody else implements |
//! | what an operator sees and may ask | [`operate`] |
//! | how many things are done together | [`batches`] |
//! | how two processes share rings | `channel`, `endpoint` |
//! | what holds under every schedule | [`simulate`] |
//! | how replicas reach each other | `replica_links`, `introductions`, `election` |
//! | what is done for one ordering alone | `ordering`, `ramcast`, `single` |

pub mod application;
pub mod batches;
mod buffers;
mod channel;
pub mod config;
mod election;
mod endpoint;
pub mod engine;
mod introductions;
pub mod layout;
pub mod operate;
pub mod ordered_window;
mod ordering;
mod payloads;
mod ramcast;
mod replica;
mod replica_links;
pub mod roster;
pub mod session_transport;
pub mod simulate;
mod single;
mod slots;
mod wakes;

pub use introductions::WIRE_VERSION;
pub use ordering::Links;
pub use skein_fabric as fabric;
pub use skein_protocol as protocol;
