//! Which names are called, which callers are accepted, and which of two connections stays.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::door::Arrival;
use super::hello::{Answer, Hello, NotMet, Side};
use super::link::{Ended, TcpLink};
use super::stream::Stream;
use super::{PeerState, TcpFabric};
use crate::Peer;

/// How soon a name that did not answer is called again.
const CALL_AGAIN: Duration = Duration::from_millis(25);

/// State of the calls to one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// Whether a call is under way, and whether its result has become useless meanwhile.
    pub(super) under_way: bool,
    pub(super) overtaken: bool,
    /// Whether it has taken longer than [`set_dial_timeout`](TcpFabric::set_dial_timeout) allows.
    slow: bool,
    /// No new call before this time.
    again: Option<Instant>,
    /// Why the last call failed.
    pub(super) failed: Option<Failed>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    Absent,
    /// The other side calls us.
    Later,
    Refused(String),
}

impl TcpFabric {
    /// Turns arrivals into peers. Returns whether there were any.
    pub(super) fn accept_new(&mut self) -> bool {
        let arrivals = self.door.arrivals();
        let any = !arrivals.is_empty();
        for arrival in arrivals {
            match arrival {
                Arrival::Caller { stream, hello } => self.answer(stream, &hello),
                Arrival::Called { name, met } => self.called(&name, met),
            }
        }
        any
    }

    /// Welcomes a caller, unless there is a better connection.
    fn answer(&mut self, mut stream: Stream, hello: &Hello) {
        let Hello { from, side, .. } = hello;
        let known = self.by_name.get(from).copied();
        let known = known.and_then(|peer| Some((peer, self.peers.get(peer.0)?.side)));
        let known = known.filter(|(_, known)| known.incarnation == side.incarnation);
        let met = known.is_some_and(|(_, known)| side.meeting <= known.meeting);
        // If both sides call, the call of the name that sorts first wins.
        if met || self.is_calling(from) && self.name < *from {
            let _ = stream.send(&Answer::Later.encode());
            return;
        }
        if let Some((peer, _)) = known {
            self.end(peer.0, &Ended::Closed);
        }
        if let Some(call) = self.calls.get_mut(from) {
            call.overtaken = call.under_way;
        }
        let ours = self.side(from);
        self.meet(from, *side, stream, &Answer::Welcome(ours).encode());
    }

    /// A call of ours has ended.
    fn called(&mut self, name: &str, met: Result<(Stream, Side), NotMet>) {
        let call = self.calls.entry(name.to_owned()).or_default();
        let overtaken = call.overtaken;
        (call.under_way, call.overtaken) = (false, false);
        call.again = Some(Instant::now() + CALL_AGAIN);
        if overtaken {
            return;
        }
        match met {
            Ok((stream, side)) => {
                *call = Call::default();
                self.meet(name, side, stream, &[]);
            }
            Err(error) => {
                let refused = |kind| kind == ErrorKind::ConnectionRefused;
                let failed = match error {
                    NotMet::Absent(error) => {
                        tracing::trace!(peer = name, %error, "no process there");
                        call.slow &= !refused(error.kind());
                        Failed::Absent
                    }
                    NotMet::Later => Failed::Later,
                    NotMet::Refused(why) => Failed::Refused(why),
                };
                // A refusal is retried again and again, but logged once.
                if let Failed::Refused(why) = &failed
                    && call.failed.as_ref() != Some(&failed)
                {
                    tracing::error!(peer = name, why, "no connection");
                }
                call.failed = Some(failed);
            }
        }
    }

    fn meet(&mut self, name: &str, side: Side, stream: Stream, first: &[u8]) {
        let mut link = TcpLink::new(stream);
        link.say(first);
        let name = name.to_owned();
        let state = PeerState {
            name: name.clone(),
            side,
            link: None,
            blocked: false,
            posted: false,
            known: false,
        };
        let peer = self.peers.insert(state);
        let data = epoll::EventData::new_u64(peer.into());
        if let Err(error) = epoll::add(&self.epoll, &link, data, epoll::EventFlags::IN) {
            tracing::warn!(name, %error, "cannot wait for a connection");
            self.peers.remove(peer);
            return;
        }
        tracing::debug!(name, incarnation = side.incarnation, "connected");
        self.peers.get_mut(peer).expect("just put in").link = Some(link);
        // A peer that is another incarnation of that name stays until its connection ends.
        self.by_name.insert(name, Peer(peer));
        self.owe(peer);
        // Frames that came together with the handshake raise no event.
        self.unread.push(peer);
    }

    /// Our side of the handshake with `name`.
    fn side(&self, name: &str) -> Side {
        let meeting = self.meetings.get(name).copied().unwrap_or_default();
        Side { incarnation: self.incarnation, meeting, card: self.net.has_cards() }
    }

    /// Calls `name`, unless a call is under way or has only just ended.
    pub(super) fn call(&mut self, name: &str) {
        let Some(address) = self.net.book().find(name).filter(|_| name != self.name) else {
            return;
        };
        let side = self.side(name);
        let call = self.calls.entry(name.to_owned()).or_default();
        if call.under_way || call.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        let (cluster, from) = (self.net.cluster().to_owned(), self.name.clone());
        let constants = self.net.constants().clone();
        let hello = Hello { cluster, constants, from, to: name.to_owned(), side };
        match self.door.call(name, address, hello) {
            Ok(()) => call.under_way = true,
            Err(error) => {
                tracing::warn!(name, %error, "cannot start a thread to connect");
                call.again = Some(Instant::now() + CALL_AGAIN);
            }
        }
    }

    /// Waits for the end of a call, after beginning one if need be, for as long as [`dial`](crate::Fabric::dial) may.
    pub(super) fn await_call(&mut self, name: &str) {
        if self.timeout.is_zero() || self.calls.get(name).is_none_or(|call| call.slow) {
            return;
        }
        let end = Instant::now() + self.timeout;
        let mut called = false;
        while !self.by_name.contains_key(name) {
            self.call(name);
            let Some(call) = self.calls.get_mut(name) else { return };
            if called && !call.under_way && call.failed != Some(Failed::Later) {
                return;
            }
            called |= call.under_way;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                call.slow = true;
                return;
            }
            self.look(left.min(CALL_AGAIN));
        }
    }
}
