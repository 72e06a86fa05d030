//! Utilisation of the simulated resources. The one near 100 % bounds the throughput.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_fabric::sim::Busy;

/// Utilisation, in percent, of the busiest core, card and cable among engines or among sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Turns that had something to do, and posting. A core polls in the rest of the time.
    pub core: f64,
    /// The network card works in its busier direction.
    pub nic: f64,
    /// The cable is occupied in its busier direction.
    pub link: f64,
}

/// Utilisation of engines' hosts and of sessions' hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Utilisation {
    pub engines: Shares,
    pub sessions: Shares,
}

impl Utilisation {
    /// The higher of both, for each resource.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        let of = |one: Shares, other: Shares| Shares {
            core: one.core.max(other.core),
            nic: one.nic.max(other.nic),
            link: one.link.max(other.link),
        };
        Self {
            engines: of(self.engines, other.engines),
            sessions: of(self.sessions, other.sessions),
        }
    }
}

/// For how long the core, the card and the cable of each host have been busy.
#[derive(Clone, Debug, Default)]
pub(super) struct BusyTimes {
    pub(super) engines: Hosts,
    pub(super) sessions: Hosts,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Hosts(Vec<[Duration; 3]>);

impl Hosts {
    pub(super) fn push(&mut self, core: Duration, busy: Busy) {
        self.0.push([core, busy.nic, busy.link]);
    }

    fn since(&self, before: &Self, time: Duration) -> Shares {
        let share = |at: usize| {
            let hosts = self.0.iter().zip(&before.0);
            let busiest = hosts.map(|(now, before)| now[at].saturating_sub(before[at])).max();
            let share = busiest.unwrap_or_default().as_secs_f64() / time.as_secs_f64();
            (share * 1_000.0).round() / 10.0
        };
        Shares { core: share(0), nic: share(1), link: share(2) }
    }
}

impl BusyTimes {
    /// The utilisation since `before`, `time` ago.
    pub(super) fn since(&self, before: &Self, time: Duration) -> Utilisation {
        Utilisation {
            engines: self.engines.since(&before.engines, time),
            sessions: self.sessions.since(&before.sessions, time),
        }
    }
}
