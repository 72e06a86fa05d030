//! Clients of all kinds over clusters inside this process: one program, as each one more takes seconds to build.

mod backup;
mod blocking;
mod ceiling;
mod clusters;
mod failover;
mod gone;
mod interactive;
mod model;
mod reads;
mod tasks;
