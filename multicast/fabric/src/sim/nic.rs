//! A host's network card: a queue for outgoing and a queue for incoming requests.

use std::time::Duration;

use super::nanos;
use super::queue::Queue;

/// Times of a network card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NicCosts {
    /// A request that its host posts, or that arrives.
    pub request: Duration,
    /// The completion of a request that asks for one.
    pub completion: Duration,
    /// A fetch of bytes that are not inline. The card serves other requests meanwhile.
    pub fetch: Duration,
    /// Longest inline request, in bytes.
    pub inline_max: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Nic {
    out: Queue,
    into: Queue,
}

impl Nic {
    /// Serves a posted request. Returns when its first byte leaves for the cable.
    pub(super) fn post(&mut self, at: u64, bytes: usize, costs: &NicCosts) -> u64 {
        let taken = self.out.serve(at, nanos(costs.request));
        if bytes > costs.inline_max { taken + nanos(costs.fetch) } else { taken }
    }

    /// Serves a request that has arrived. Returns when its bytes are in memory.
    pub(super) fn receive(&mut self, at: u64, costs: &NicCosts) -> u64 {
        self.into.serve(at, nanos(costs.request))
    }

    /// Serves an acknowledgement. Returns when the core can see the completion.
    pub(super) fn complete(&mut self, at: u64, costs: &NicCosts) -> u64 {
        self.into.serve(at, nanos(costs.completion))
    }

    /// Busy time of the busier direction.
    pub(super) fn busy(&self) -> u64 {
        self.out.busy.max(self.into.busy)
    }
}
