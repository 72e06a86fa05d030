//! The binary, as its users run it.

mod administration;
mod clusters;
mod configuration;
mod data;
mod measurements;
mod support;
