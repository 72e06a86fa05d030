//! Engines on threads, with peers, sessions and disks that fail: one program, as each one more takes seconds to build.

mod byzantine_peers;
mod dead_sessions;
mod divergence;
mod durable;
mod echo;
mod layouts;
mod threads;
