//! Atomic multicast: Skein's protocols on a fabric.
//!
//! | question | module |
//! |---|---|
//! | which replica runs on which engine | [`layout`] |
//! | trees of groups, as they are written | [`trees`] |
//! | sizes and limits | [`config`] |
//! | what replicas write to a disk | [`disk`] |
//! | a replica's and an engine's work, and its order | [`engine`], `replica` |
//! | what a replica says of its group to a session | [`standing`] |
//! | a session's messages to the replicas, and their replies | [`session_transport`] |
//! | the state machine that delivery drives, which the user implements | [`application`] |
//! | an operator's status and commands | [`operate`] |
//! | batch sizes at every stage; amounts of work | [`batches`], [`work`] |
//! | rings between two processes | `channel`, `endpoint` |
//! | properties that hold under every schedule | [`simulate`] |
//! | communication between replicas | `replica_links`, `introductions`, `election` |
//! | the parts that depend on the ordering | `ordering`, `ramcast`, `single`, `tram` |

pub mod application;
pub mod batches;
mod buffers;
mod channel;
pub mod config;
pub mod disk;
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
pub mod standing;
mod tram;
pub mod trees;
mod turn_batches;
mod wakes;
pub mod work;

pub use introductions::WIRE_VERSION;
pub use ordering::Links;
pub use replica::NotReplayed;
pub use skein_fabric as fabric;
pub use skein_protocol as protocol;
