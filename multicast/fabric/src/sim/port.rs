//! A host's port: the cable to the switch, with a queue for each direction.

use std::time::Duration;

use super::queue::Queue;

/// Times of the path between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkCosts {
    /// From the departure of the last byte at one host to its arrival at the other: two cables and a cut-through
    /// switch, and the time of cards and memory that is not in their queues.
    pub latency: Duration,
    /// Bandwidth of each cable in each direction.
    pub mbit_per_s: u64,
    /// Longest payload of a packet, in bytes.
    pub mtu: usize,
    /// Bytes of headers and gaps around the payload of each packet.
    pub packet: usize,
}

impl LinkCosts {
    /// Time on the cable for a request of `bytes` bytes, in nanoseconds.
    pub(super) fn carries(&self, bytes: usize) -> u64 {
        let packets = bytes.div_ceil(self.mtu).max(1);
        let all = (bytes + packets * self.packet) as u64;
        all * 8_000 / self.mbit_per_s
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Port {
    out: Queue,
    into: Queue,
}

impl Port {
    /// Sends a request. Returns when its last byte has left.
    pub(super) fn leave(&mut self, at: u64, bytes: usize, costs: &LinkCosts) -> u64 {
        self.out.serve(at, costs.carries(bytes))
    }

    /// Receives a request whose last byte would arrive at `at` on a free cable. Returns when it arrives.
    pub(super) fn arrive(&mut self, at: u64, bytes: usize, costs: &LinkCosts) -> u64 {
        let carries = costs.carries(bytes);
        self.into.serve(at.saturating_sub(carries), carries)
    }

    /// Busy time of the busier direction.
    pub(super) fn busy(&self) -> u64 {
        self.out.busy.max(self.into.busy)
    }
}
