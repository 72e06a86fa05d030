//! Reading of channels: which are read, how far, and which replica receives their datagrams.

use skein_fabric::Fabric;
use skein_protocol::ids::{MessageId, ReplicaId, SessionId};
use skein_protocol::message::{Head, decode_name};
use skein_protocol::results::Results;

use super::{DATAGRAMS_PER_TURN, Engine, READ_PER_TURN};
use crate::application::{Application, Stopped};
use crate::batches::Sizes;
use crate::channel::Kind;
use crate::introductions::{Purpose, replica};
use crate::ordering::Links;

/// The channels that are to be read.
///
/// **Invariant.** A channel with unread data is in `ready`, `left` or `later`, or the endpoint's next scan finds it.
#[derive(Default)]
pub(super) struct Reading {
    /// Channels with data: found by this turn's scan, or left over by the last turn.
    ready: Vec<u32>,
    left: Vec<u32>,
    /// Channels with messages that a follower leaves unread, since it will find them in its log.
    later: Vec<u32>,
    /// This turn leaves none unread: once a tick, messages that no log contains are read too.
    pub(super) leaves_none: bool,
    datagram: Vec<u8>,
    /// Sizes of the batches of datagrams read from one channel in one scan.
    pub(super) datagrams: Sizes,
}

impl Reading {
    /// Schedules a channel to be read in the next turn, whatever the scan finds.
    pub(super) fn read_again(&mut self, channel: u32) {
        if !self.left.contains(&channel) {
            self.left.push(channel);
        }
    }
}

impl<F: Fabric, A: Application, O: Links> Engine<F, A, O> {
    pub(super) fn read_channels(&mut self) -> Result<bool, Stopped<A::Failure>> {
        let mut ready = std::mem::take(&mut self.reading.ready);
        ready.append(&mut self.reading.left);
        let read_on = self.replicas.iter_mut().fold(false, |any, replica| replica.reads_on() | any);
        if read_on || self.links.endpoint.take_asked_to_grow() || self.reading.leaves_none {
            for id in self.reading.later.drain(..) {
                self.links.endpoint.read_on(id);
                ready.push(id);
            }
        }
        self.links.endpoint.look(&mut ready);
        let mut any = false;
        for _ in 0..self.links.loopback.len() {
            let Some(datagram) = self.links.next_here() else { break };
            let Some(to) = self.replicas.iter().position(|r| r.id == datagram.to) else { continue };
            let len = datagram.bytes.len();
            if self.replicas[to].admits_from_replica(datagram.from.group, datagram.kind, len) {
                any = true;
                self.take_from_replica(to, datagram.from, datagram.kind, &datagram.bytes)?;
                self.links.buffers.keep(datagram.bytes);
            } else {
                self.links.keep_here(datagram);
            }
        }
        let mut room = READ_PER_TURN;
        for channel in ready.drain(..) {
            any |= self.read_channel(channel, &mut room)?;
        }
        self.reading.ready = ready;
        self.reading.leaves_none = false;
        Ok(any)
    }

    /// Schedules a channel with messages that a follower will find in its log.
    fn leave(&mut self, id: u32) {
        if self.links.endpoint.read_later(id) {
            self.reading.later.push(id);
        }
    }

    /// Reads a channel as far as its datagrams are admitted now and `room` for this turn permits. Returns
    /// whether it read anything.
    fn read_channel(&mut self, id: u32, room: &mut usize) -> Result<bool, Stopped<A::Failure>> {
        // A channel in `later` that was closed since has no ring any more.
        let Some(channel) = self.links.endpoint.get(id).filter(|channel| !channel.leaving) else {
            return Ok(false);
        };
        let (purpose, dying) = (channel.purpose, channel.dying);
        if dying && !self.reads_after_death(purpose) {
            self.remove_channel(id, purpose);
            return Ok(true);
        }
        if !channel.sent_all() && channel.out.is_some() {
            self.links.endpoint.pump(id);
        }
        let to = match purpose {
            Purpose::Session { replica, .. } => replica,
            Purpose::Replica { to, .. } | Purpose::Engine { to, .. } => to,
        };
        // A channel that only the other engine reads has no replica here, and no datagrams.
        let ours = self.replicas.iter().position(|r| r.id == replica(to));
        let mut datagram = std::mem::take(&mut self.reading.datagram);
        let mut taken = 0;
        let drained = loop {
            let mut found_in_log = None;
            if let Purpose::Session { session, .. } = purpose
                && let Some(at) = ours
                && let Some(len_max) = self.replicas[at].finds_in_log(SessionId(session))
            {
                let core = &self.replicas[at].core;
                let name = |sequence| MessageId::new(SessionId(session), sequence);
                let known = |sequence| core.is_logged(name(sequence));
                self.links.endpoint.skip_known(id, len_max, known);
                found_in_log = Some(len_max);
            }
            let Some(next) = self.links.endpoint.next(id) else { break true };
            if next.kind == Kind::Message
                && next.whole
                && found_in_log.is_some_and(|len_max| next.len <= len_max)
                && !self.reading.leaves_none
                && !self.links.endpoint.channel(id).is_crowded()
            {
                self.leave(id);
                break true;
            }
            let at = ours.expect("admitted");
            let admitted = taken < DATAGRAMS_PER_TURN
                && *room > 0
                && match purpose {
                    Purpose::Session { .. } if matches!(next.kind, Kind::Query | Kind::Hint) => {
                        true
                    }
                    Purpose::Session { session, .. } => {
                        next.begun || {
                            let Self { replicas, links, .. } = self;
                            let (assembling, len) = (links.endpoint.assembling().others, next.len);
                            let head = || links.endpoint.peek_head(id, next);
                            replicas[at].admits(SessionId(session), len, assembling, head)
                        }
                    }
                    Purpose::Replica { from, .. } => {
                        let from = replica(from).group;
                        self.replicas[at].admits_from_replica(from, next.kind, next.len)
                    }
                    // Kept for a leader that has no room now, since another leader may wait for it.
                    Purpose::Engine { .. } => true,
                };
            if !admitted {
                break false;
            }
            let payloads = &mut self.replicas[at].payloads;
            let keeps_hint = |len| O::TAKES_HINTS && payloads.make_room_for_hints(len);
            if !self.links.endpoint.take_if(id, next, keeps_hint, &mut datagram) {
                break true;
            }
            taken += 1;
            *room = room.saturating_sub(datagram.len());
            match purpose {
                Purpose::Session { session, .. } if next.kind == Kind::Message => {
                    if let Some((head, payload)) = Head::decode(&datagram) {
                        let session = SessionId(session);
                        self.replicas[at].receive(session, head, payload, &mut self.links);
                    }
                }
                Purpose::Session { session, .. } if next.kind == Kind::Query => {
                    self.replicas[at].asked(SessionId(session), &datagram, &mut self.links);
                }
                Purpose::Session { session, .. } if next.kind == Kind::Hint => {
                    if let Some((head, payload)) = Head::decode(&datagram) {
                        let ours = &mut self.replicas[at];
                        O::hinted(ours, SessionId(session), head, payload, &mut self.links);
                    }
                }
                Purpose::Session { .. } => {}
                Purpose::Replica { from, .. } => {
                    self.take_from_replica(at, replica(from), next.kind, &datagram)?;
                }
                Purpose::Engine { from, .. } => {
                    if next.kind == Kind::OrderTogether {
                        let from = replica(from);
                        O::hear_engine(&mut self.replicas, from, &datagram, &mut self.links);
                    }
                }
            }
        };
        self.reading.datagram = datagram;
        self.reading.datagrams.note(taken);
        self.work.rings += 1;
        self.work.datagrams += taken as u64;
        if !drained {
            self.reading.left.push(id);
        } else if self.links.endpoint.get(id).is_some_and(|channel| channel.dying) {
            self.remove_channel(id, purpose);
        }
        Ok(taken > 0)
    }

    /// Skips hints of which not all has come, if a replica has no room for them any more beside the payloads that it has
    /// now. Nothing depends on them.
    pub(super) fn bound_hints(&mut self) {
        let hints = self.links.endpoint.assembling().hints;
        if hints > 0 && !self.replicas.iter_mut().all(|it| it.payloads.make_room_for_hints(hints)) {
            self.links.endpoint.skip_hints();
        }
    }

    /// Returns whether the last writes of a dead process are of use. A session's messages are of use to a
    /// leader, which proposes them; a follower would hold them and never see them logged.
    fn reads_after_death(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Session { replica: to, .. } => {
                self.replicas.iter().any(|r| r.id == replica(to) && r.core.log().leads())
            }
            Purpose::Replica { .. } | Purpose::Engine { .. } => true,
        }
    }

    fn remove_channel(&mut self, id: u32, purpose: Purpose) {
        if let Purpose::Session { session, replica: to } = purpose {
            let session = SessionId(session);
            let ours = self.replicas.iter_mut().find(|r| r.id == replica(to));
            if self.links.session_closed(session, replica(to), id)
                && let Some(ours) = ours
            {
                ours.session_gone(session);
            }
        }
        self.links.endpoint.close(id);
    }

    fn take_from_replica(
        &mut self,
        at: usize,
        from: ReplicaId,
        kind: Kind,
        datagram: &[u8],
    ) -> Result<(), Stopped<A::Failure>> {
        let ours = &mut self.replicas[at];
        match kind {
            Kind::Order | Kind::OrderTogether | Kind::Progress => {
                O::hear(ours, from, kind, datagram, &mut self.links);
            }
            Kind::Fetch => {
                if let Some((message, _)) = decode_name(datagram) {
                    ours.fetch(message, from, &mut self.links);
                }
            }
            Kind::Relay => ours.relayed(from, datagram, &mut self.links),
            Kind::Exchange => ours.exchange(from.group, Results(datagram), &mut self.links),
            Kind::Objection => {
                if let Some((message, _)) = decode_name(datagram) {
                    ours.asked_to_object(from, message, &mut self.links);
                }
            }
            Kind::Election => {
                let heard = ours.election(from, datagram, &mut self.links, &mut self.application);
                heard.map_err(|why| Stopped { replica: ours.id, why })?;
            }
            Kind::Message | Kind::Reply | Kind::Query | Kind::Answer | Kind::Hint => {}
        }
        Ok(())
    }
}
