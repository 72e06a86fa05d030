//! The hardware that can be simulated, and the source of each figure.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use skein_fabric::sim::{Costs, LinkCosts, NicCosts, PostCosts};
use skein_multicast::config::Topology;

use super::cpu::{Instructions, Speed};

/// Instructions of engines and of sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerKind {
    pub engine: Instructions,
    pub session: Instructions,
}

/// Printed by `cargo bench -p skein-workloads --bench model -- --fit`, in the order of
/// [`Amounts`](super::cpu::Amounts).
pub const INSTRUCTIONS: PerKind = PerKind {
    engine: Instructions([
        919.4, 200.8, 2.4, 1_001.2, 1_168.2, 0.0, 1_400.2, 272.6, 347.4, 0.0, 1.6, 312.8,
    ]),
    session: Instructions([585.6, 0.0, 4.6, 841.9, 580.3, 454.8, 0.0, 0.0, 0.0, 0.0, 1.5, 0.0]),
};

/// Hardware, and what actors share of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hardware {
    /// CloudLab's XL170 nodes, one for each replica and each session: RamCast's figures 4 and 5.
    Xl170,
    /// CloudLab's R320 nodes likewise: RamCast's figure 6.
    R320,
    /// Two cores of a virtual machine that share memory: engines on one, sessions on the other, like `bench
    /// multicast --threads`.
    TwoCores,
}

const fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Times of a network card, on either kind of node. HERD's server answers 26 million requests a second on a
/// ConnectX-3: one in and one out in 38 ns. For the ConnectX-4 no such figure was found; the same is assumed. A
/// completion is one more write to memory. A read from memory over PCIe takes about 400 ns. Skein sends at most 220
/// bytes inline with a request (`verbs/raw.rs`).
const CARD: NicCosts =
    NicCosts { request: ns(38), completion: ns(38), fetch: ns(400), inline_max: 220 };

/// Time of a core to post. Spindle measured 1 µs for a single request through a library (section 3.2). The model
/// assumes 200 ns for a single request, most of it for the doorbell, an uncached write to the card.
const POST: PostCosts = PostCosts { request: ns(60), doorbell: ns(140) };

/// A write of one byte takes 1.73 µs (Spindle, figure 1). This is the part that remains without posting, the two
/// cards, and the bytes on the cable.
const ONE_WAY: Duration = ns(1_430);

impl Hardware {
    /// All kinds, in the order in which the help lists them.
    pub const ALL: [Self; 3] = [Self::Xl170, Self::R320, Self::TwoCores];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xl170 => "xl170",
            Self::R320 => "r320",
            Self::TwoCores => "two-cores",
        }
    }

    /// The speed of its cores. The clock of the papers' nodes is from RamCast, section 5.2; their instructions per
    /// cycle are assumptions. For two cores, the clock is that of a chain of dependent additions, and
    /// `benches/model.rs` measures the product, 11.5 instructions per nanosecond.
    pub const fn speed(self) -> Speed {
        match self {
            Self::Xl170 => Speed { ghz: 2.4, per_cycle: 2.0 },
            Self::R320 => Speed { ghz: 2.1, per_cycle: 1.6 },
            Self::TwoCores => Speed { ghz: 3.67, per_cycle: 3.13 },
        }
    }

    /// Instructions of engines and of sessions on it.
    pub const fn instructions(self) -> PerKind {
        let PerKind { engine, session } = INSTRUCTIONS;
        match self {
            // `POST` has what it takes to post a request to a card.
            Self::Xl170 | Self::R320 => {
                PerKind { engine: engine.without_requests(), session: session.without_requests() }
            }
            Self::TwoCores => INSTRUCTIONS,
        }
    }

    /// Costs of requests on it.
    pub const fn costs(self) -> Costs {
        match self {
            // 25 Gbit/s according to CloudLab. RamCast says 10 (section 5.2), but the 70,000 messages of 32 KB per second
            // of its figure 4 need more. RoCE v2: 62 bytes of Ethernet, IP, UDP and transport headers, 16 of the
            // write, 20 between packets.
            Self::Xl170 => Costs {
                post: POST,
                nic: CARD,
                link: LinkCosts { latency: ONE_WAY, mbit_per_s: 25_000, mtu: 1_024, packet: 98 },
                stores: false,
            },
            // FDR: 56 Gbit/s on the cable, of which RDMC got 40 with this card (section 5.1). 26 bytes of headers, 16 of
            // the write.
            Self::R320 => Costs {
                post: POST,
                nic: CARD,
                link: LinkCosts { latency: ONE_WAY, mbit_per_s: 40_000, mtu: 4_096, packet: 42 },
                stores: false,
            },
            // A round trip between two cores takes 62 ns (`cross_core_ns` of quiet runs), and one core copies 62 GB/s.
            Self::TwoCores => Costs {
                post: PostCosts { request: ns(0), doorbell: ns(0) },
                nic: NicCosts {
                    request: ns(0),
                    completion: ns(0),
                    fetch: ns(0),
                    inline_max: usize::MAX,
                },
                link: LinkCosts { latency: ns(31), mbit_per_s: 496_000, mtu: 4_096, packet: 0 },
                stores: true,
            },
        }
    }

    /// Whether all engines share one core and all sessions another. Otherwise each has a host.
    pub const fn shares_cores(self) -> bool {
        matches!(self, Self::TwoCores)
    }

    /// One node per replica of a group. Each node has one engine per group, so that every replica has a core; where
    /// cores are shared, each node has one engine.
    pub const fn topology(self, groups: u16, replicas: u8) -> Topology {
        let engines = if self.shares_cores() { 1 } else { groups };
        Topology { nodes: replicas as u16, groups, replicas, engines }
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Hardware {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|hardware| hardware.name() == text);
        let names = Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("no hardware {text:?} is modelled, only {names}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_has_a_name() {
        for hardware in Hardware::ALL {
            assert_eq!(hardware.name().parse(), Ok(hardware));
        }
        assert!("m510".parse::<Hardware>().unwrap_err().contains("xl170, r320, two-cores"));
    }
}
