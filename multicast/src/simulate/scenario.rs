//! What a seed runs: drawn once, before anything happens.

use std::time::Duration;

use skein_fabric::sim::{Rng, SimConfig};

use crate::config::{Topology, Tuning};

/// Everything that is drawn before the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed it was drawn from.
    pub seed: u64,
    /// Nodes, groups, replicas, engines.
    pub topology: Topology,
    /// Sizes: as small as they may be, so that everything is lapped.
    pub tuning: Tuning,
    /// Client processes, and sessions in each.
    pub clients: (usize, usize),
    /// Messages to send at least.
    pub messages: u64,
    /// The client process that crashes, and after how many messages of all; and whether its
    /// successor sends again what it had sent.
    pub crash: Option<(usize, u64, bool)>,
    /// After how many messages every other session is closed and another opened.
    pub reopen_at: Option<u64>,
    /// One in so many messages has a payload that is too large for the log.
    pub large_one_in: u64,
    /// Messages to several groups, of a hundred.
    pub shared_percent: u64,
    /// Of the steps taken, so many of a hundred land something under way.
    pub landing_percent: u64,
    /// How rough the world is.
    pub rough: bool,
    /// Whether processes are cut off from each other for a while.
    pub partitions: bool,
}

impl Scenario {
    /// Draws the scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5ce4_a210);
        let replicas = match rng.below(20) {
            0 => 1,
            1..=4 => 5,
            _ => 3,
        };
        let groups = if rng.one_in(250) { 16 } else { 1 + rng.below(4) as u16 };
        let topology = Topology {
            nodes: u16::from(replicas) + rng.below(2) as u16,
            groups,
            replicas,
            engines: 1 + rng.below(2) as u16 % groups,
        };
        let payload_bytes_max = 4 << (10 + rng.below(3));
        let ring_bytes = 4 << 10;
        let tuning = Tuning {
            log_bytes: 16 << 10,
            inline_bytes_max: 64 << rng.below(4),
            ring_bytes,
            ring_bytes_max: ring_bytes << rng.below(2),
            rings_bytes_max: if rng.one_in(4) { 8 * ring_bytes } else { 1 << 20 },
            peer_ring_bytes: 4 << 10,
            window: 1 << (1 + rng.below(4)),
            payload_bytes_max,
            held_bytes_max: 2 * payload_bytes_max,
            fetch_after_ms: 1 + rng.below(10),
            ..Tuning::default()
        };
        let clients = (1 + rng.index(3), 1 + rng.index(3));
        let messages = 200 + rng.below(200);
        let crash =
            rng.one_in(2).then(|| (rng.index(clients.0), rng.below(messages), rng.one_in(2)));
        Self {
            seed,
            topology,
            tuning,
            clients,
            messages,
            crash,
            reopen_at: rng.one_in(3).then(|| rng.below(messages)),
            large_one_in: 4 + rng.below(30),
            shared_percent: 20 + rng.below(80),
            landing_percent: 20 + rng.below(70),
            rough: rng.one_in(3),
            partitions: rng.one_in(3),
        }
    }

    /// The world in which it runs.
    pub(super) fn world(&self) -> SimConfig {
        let usual = SimConfig { mail_waiting_max: 64, ..SimConfig::default() };
        if !self.rough {
            return usual;
        }
        SimConfig {
            latency: (Duration::from_nanos(100), Duration::from_micros(50)),
            hiccup_one_in: 16,
            hiccup_max: Duration::from_millis(3),
            drag_one_in: 32,
            drag_max: 50,
            tear_one_in: 1,
            ..usual
        }
    }
}
