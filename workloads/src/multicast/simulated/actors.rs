//! The actors that take turns on simulated cores: engines, and threads with sessions.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use skein_fabric::counted::Counted;
use skein_fabric::sim::SimFabric;
use skein_multicast::Links;
use skein_multicast::application::Answer;
use skein_multicast::engine::Engine;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupSet, SessionId};

use super::cpu::{Amounts, Instructions};
use super::profile::Hardware;
use crate::multicast::destinations::Destinations;
use crate::multicast::load::{Measured, Plan};

/// An engine of this experiment.
pub(super) type SimEngine<O> = Engine<Counted<SimFabric>, Answer, O>;

pub(super) enum Actor<O: Links> {
    Engine(Box<SimEngine<O>>),
    Client(Box<Client>),
}

impl<O: Links> Actor<O> {
    /// The work done so far.
    pub(super) fn amounts(&mut self) -> Amounts {
        match self {
            Self::Engine(engine) => Amounts::new(&engine.work(), &engine.fabric().asked()),
            Self::Client(client) => {
                let work = client.transport.work();
                Amounts::new(&work, &client.transport.fabric().asked())
            }
        }
    }

    /// Instructions for each kind of work.
    pub(super) const fn instructions(&self, hardware: Hardware) -> Instructions {
        match self {
            Self::Engine(_) => hardware.instructions().engine,
            Self::Client(_) => hardware.instructions().session,
        }
    }
}

/// Progress of all clients.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) returned: u64,
    pub(super) last_reply: Duration,
    /// Sessions without a reply so far: their channels are being opened.
    pub(super) without_reply: usize,
}

/// A thread with sessions, in a closed loop.
pub(super) struct Client {
    transport: SessionTransport<Counted<SimFabric>>,
    /// Indexed by session key.
    sessions: Vec<Session>,
    answered: Vec<(SessionKey, u64)>,
    destinations: Destinations,
}

struct Session {
    key: SessionKey,
    random: SmallRng,
    /// Sequence number, groups whose reply is outstanding, and start of each message.
    under_way: Vec<(u64, GroupSet, Duration)>,
    has_had_reply: bool,
}

impl Client {
    pub(super) fn new(
        mut transport: SessionTransport<Counted<SimFabric>>,
        sessions: usize,
        destinations: Destinations,
        random: &mut SmallRng,
    ) -> Self {
        let session = |_| Session {
            key: transport.open(SessionId::from_random(random.random())),
            random: SmallRng::seed_from_u64(random.random()),
            under_way: Vec::new(),
            has_had_reply: false,
        };
        let sessions: Vec<_> = (0..sessions).map(session).collect();
        assert!(sessions.iter().enumerate().all(|(i, session)| session.key.0 as usize == i));
        Self { transport, sessions, answered: Vec::new(), destinations }
    }

    /// Handles replies and multicasts the next messages. Returns whether there was anything to do.
    pub(super) fn turn(
        &mut self,
        plan: &Plan,
        now: Duration,
        measures: bool,
        measured: &mut Measured,
        tally: &mut Tally,
    ) -> bool {
        let Self { transport, sessions, answered, destinations } = self;
        let turned = transport.turn(&mut |reply| {
            let session = &mut sessions[reply.session.0 as usize];
            let found = session.under_way.iter_mut().find(|(it, ..)| *it == reply.sequence);
            match found {
                Some((sequence, left, _)) if reply.bytes == sequence.to_le_bytes() => {
                    *left = left.without(reply.group);
                    if left.is_empty() {
                        answered.push((reply.session, *sequence));
                    }
                }
                _ => {
                    let what = || format!("{} to {}", reply.group, reply.sequence);
                    measured.errors.add("wrong_reply", what);
                }
            }
        });
        let mut worked = turned.unwrap_or_else(|error| {
            measured.errors.add("fabric", || error.to_string());
            true
        });
        for (key, sequence) in answered.drain(..) {
            let session = &mut sessions[key.0 as usize];
            let at = session.under_way.iter().position(|(known, ..)| *known == sequence);
            let (.., since) = session.under_way.swap_remove(at.expect("just answered"));
            transport.settle(key, sequence);
            tally.returned += 1;
            tally.last_reply = now;
            tally.without_reply -=
                usize::from(!std::mem::replace(&mut session.has_had_reply, true));
            if measures {
                let took = now.saturating_sub(since).as_nanos() as u64;
                measured.latency_ns.saturating_record(took.max(1));
            }
        }
        // As in `load`, replicas see these messages at the end of the next turn of the transport.
        for session in sessions {
            while session.under_way.len() < plan.depth {
                let to = destinations.draw(&mut session.random);
                let payload = vec![0x5a; plan.payload_bytes];
                let Ok(sequence) = transport.multicast(session.key, to, &payload) else { break };
                session.under_way.push((sequence, to, now));
                worked = true;
            }
        }
        worked
    }
}
