//! Atomic multicast: Skein's protocols on a fabric.

pub mod access;
pub mod application;
pub mod config;
pub mod engine;

pub use skein_fabric as fabric;
pub use skein_protocol as protocol;
