//! Schedules: several cores, and a chosen order of all events.

mod admitted;
mod asking;
mod by_hand;
mod clocks;
mod duplicates;
mod durable;
mod elections;
mod evictions;
mod leaders;
mod memory;
mod payloads;
mod played;
mod quorums;
mod revival;
mod script;
mod spread;
mod stage;
mod states;
mod timeouts;
mod tram;
mod tram_neighbours;
mod tram_realtime;
mod tram_recreation;
mod tram_results;
