//! Costs of requests: cores, network cards and cables.
//!
//! A request passes five queues: the core of its process, the card and the outgoing cable of its host, the incoming
//! cable and the card of the other host. Each queue serves one request at a time, and all work at the same time: a host
//! computes while its card sends, and sends while it receives. Processes of one host share its card and its cable.
//! Requests within a host pass no cable.
//!
//! A turn is executed at one moment of virtual time, and its duration is added afterwards. Its requests therefore wait
//! in an outbox until the harness calls [`World::post_all`](super::World::post_all) at the end of the turn.

use std::time::Duration;

use super::link::{Step, Way};
use super::nanos;
use super::nic::{Nic, NicCosts};
use super::port::{LinkCosts, Port};
use super::state::State;

/// Costs of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    pub post: PostCosts,
    /// Each host has one card.
    pub nic: NicCosts,
    /// Each host has one cable to a switch.
    pub link: LinkCosts,
    /// There are no cards: a write is a store into the other host's memory, and completes at once.
    pub stores: bool,
}

/// Time of a core to post requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostCosts {
    /// Writes one request into the card's queue.
    pub request: Duration,
    /// Notifies the card, once for all requests to one peer that are flushed together.
    pub doorbell: Duration,
}

/// The resources that processes of one machine share.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Host {
    nic: Nic,
    port: Port,
}

/// Busy time of a host's resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// The busier direction of its card.
    pub nic: Duration,
    /// The busier direction of its cable.
    pub link: Duration,
}

/// Requests of a turn that is not over.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    requests: Vec<Request>,
    flushes: u64,
}

#[derive(Debug)]
struct Request {
    link: usize,
    way: Way,
    step: Step,
    /// The number of flushes before it.
    flush: u64,
}

impl Outbox {
    pub(super) fn push(&mut self, link: usize, way: Way, step: Step) {
        self.requests.push(Request { link, way, step, flush: self.flushes });
    }

    /// Later requests need a doorbell of their own.
    pub(super) fn flush(&mut self) {
        self.flushes += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

impl State {
    /// Posts the outbox of a process, beginning now. Returns when the core has posted all.
    pub(super) fn post_all(&mut self, process: usize, costs: &Costs) -> u64 {
        let mut core = self.now;
        let mut requests = std::mem::take(&mut self.processes[process].outbox.requests);
        // Requests to one peer leave together, in their order.
        requests.sort_by_key(|request| (request.flush, request.link));
        let mut rest = requests.into_iter().peekable();
        let mut together = Vec::new();
        while let Some(request) = rest.next() {
            core += nanos(costs.post.request);
            let more = rest
                .peek()
                .is_some_and(|next| (next.flush, next.link) == (request.flush, request.link));
            together.push(request);
            if more {
                continue;
            }
            core += nanos(costs.post.doorbell);
            for Request { link, way, step, .. } in together.drain(..) {
                let ready = self.depart(link, &step, core, costs);
                self.schedule(link, way, step, ready);
            }
        }
        core
    }

    /// Passes a request through card and cable. Returns when its last byte reaches the other host's cable if that is
    /// free.
    fn depart(&mut self, link: usize, step: &Step, at: u64, costs: &Costs) -> u64 {
        let bytes = step.bytes();
        let (from, to) = (self.links[link].from, self.links[link].to);
        let (here, there) = (self.processes[from].host, self.processes[to].host);
        let host = &mut self.hosts[here];
        let posted = host.nic.post(at, bytes, &costs.nic);
        if here == there {
            return posted;
        }
        host.port.leave(posted, bytes, &costs.link) + nanos(costs.link.latency)
    }

    /// Passes a request through the other host's cable and card. Returns when it is in memory.
    pub(super) fn arrive(&mut self, link: usize, step: &Step, costs: &Costs) -> u64 {
        let (from, to) = (self.links[link].from, self.links[link].to);
        let (here, there) = (self.processes[from].host, self.processes[to].host);
        let host = &mut self.hosts[there];
        let mut at = self.now;
        if here != there {
            at = host.port.arrive(at, step.bytes(), &costs.link);
        }
        host.nic.receive(at, &costs.nic)
    }

    /// Passes an acknowledgement, or the bytes of a read, back. Returns when the process can see it. An acknowledgement
    /// occupies no cable. The bytes of a read occupy the outgoing cable of the host that they come from, and no other.
    pub(super) fn answered(&mut self, link: usize, step: &Step, costs: &Costs) -> u64 {
        let (from, to) = (self.links[link].from, self.links[link].to);
        let (here, there) = (self.processes[from].host, self.processes[to].host);
        let mut at = self.now;
        if here != there {
            at += nanos(costs.link.latency);
            if let Step::Deposit { op } = step {
                let bytes = self.ops.get(*op).map_or(0, |op| op.bytes.len());
                at = self.hosts[there].port.leave(at, bytes, &costs.link);
            }
        }
        match step {
            Step::Complete { tag: None, .. } => at,
            _ => self.hosts[here].nic.complete(at, &costs.nic),
        }
    }

    /// Busy time of the resources of a process's host.
    pub(super) fn busy(&self, process: usize) -> Busy {
        let host = &self.hosts[self.processes[process].host];
        let time = Duration::from_nanos;
        Busy { nic: time(host.nic.busy()), link: time(host.port.busy()) }
    }
}

impl Step {
    /// Bytes on the cable without headers.
    fn bytes(&self) -> usize {
        match self {
            Self::Land { piece, .. } => piece.len,
            Self::Mail(bytes) => bytes.len(),
            _ => 0,
        }
    }
}
