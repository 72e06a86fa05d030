//! Results that state machines exchange: which of them our machine waits for, and what was said.

use std::ops::Deref;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::properties::{About, Touch};
use skein_protocol::ramcast::longer;
use skein_protocol::results::Results;
use skein_protocol::step::Event;
use skein_protocol::timestamp::Timestamp;

use super::Replica;
use crate::application::{Application, EXCHANGE_MAX};
use crate::channel::Kind;
use crate::operate::ResultsStatus;
use crate::wiring::{Note, Wiring};

/// Messages of which other groups' results are asked for in one tick.
const ASKED_PER_TICK: usize = 32;

/// The longest results that share a datagram, and the entry of whoever is told: one of the longest does.
pub(super) const RESULTS_BYTES_MAX: usize = Results::len_of(EXCHANGE_MAX);

/// Another group's result that waits for its log entry to be committed.
pub(super) struct Exchanged {
    pub(super) index: u64,
    pub(super) message: MessageId,
    pub(super) from: GroupId,
    pub(super) result: Told,
}

/// What a state machine tells other groups: a few bytes most often, which need no memory of their own.
pub(super) enum Told {
    Short { len: u8, bytes: [u8; Self::SHORT] },
    Long(Box<[u8]>),
}

impl Told {
    const SHORT: usize = 14;
}

impl From<&[u8]> for Told {
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match bytes.get_mut(..from.len()) {
            Some(short) => {
                short.copy_from_slice(from);
                Self::Short { len: from.len() as u8, bytes }
            }
            None => Self::Long(from.into()),
        }
    }
}

impl Deref for Told {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A message that our machine was given and that is not over.
pub(super) struct Given {
    pub(super) message: MessageId,
    pub(super) timestamp: u64,
    /// What must be passed before it is answered.
    pub(super) rests_on: Timestamp,
    /// When other groups were last asked for their results, and how often.
    pub(super) asked_at: u64,
    pub(super) asked: u32,
}

impl Given {
    pub(super) fn saved(&self) -> (u64, u64, u64, u64) {
        let MessageId { session, sequence } = self.message;
        (session.0, sequence, self.timestamp, self.rests_on.to_word())
    }

    pub(super) fn restored(saved: (u64, u64, u64, u64), asked_at: u64) -> Self {
        let (session, sequence, timestamp, rests_on) = saved;
        let message = MessageId::new(SessionId(session), sequence);
        Self { message, timestamp, rests_on: Timestamp::from_word(rests_on), asked_at, asked: 0 }
    }
}

/// How long something was so, all together.
#[derive(Default)]
struct Spell {
    since: Option<Duration>,
    before: Duration,
}

impl Spell {
    fn note(&mut self, is_so: bool, now: Duration) {
        match self.since {
            None if is_so => self.since = Some(now),
            Some(since) if !is_so => {
                self.before += now.saturating_sub(since);
                self.since = None;
            }
            _ => {}
        }
    }
}

/// How long our machine has waited for results.
#[derive(Default)]
pub(super) struct Waited {
    /// Something was under way.
    any: Spell,
    /// Nothing could be delivered.
    stalled: Spell,
}

impl<A: Application> Replica<A> {
    /// Takes note of the time if our machine has begun or ceased to wait.
    pub(super) fn note_waiting<F: Fabric>(&mut self, wiring: &Wiring<F>) {
        let (waits, stalled) = (!self.given.is_empty(), !self.application.ready());
        let Waited { any, stalled: stands } = &mut self.waited;
        if (any.since.is_some(), stands.since.is_some()) != (waits, stalled) {
            let now = wiring.port.fabric.now();
            any.note(waits, now);
            stands.note(stalled, now);
        }
    }

    /// Results of our machine that are kept, since another group may ask for them.
    pub(crate) fn results(&self) -> usize {
        self.results.len()
    }

    pub(super) fn results_status(&self) -> ResultsStatus {
        ResultsStatus {
            under_way: self.given.len() as u64,
            waited_us: self.waited.any.before.as_micros() as u64,
            stalled_us: self.waited.stalled.before.as_micros() as u64,
        }
    }

    /// Other groups may not have said, or may have said to a leader that is gone, what our machine waits
    /// for.
    pub(super) fn ask_for_results(&mut self, now_ms: u64) {
        if !self.core.log().leads() {
            return;
        }
        for given in self.given.iter_mut().take(ASKED_PER_TICK) {
            if now_ms >= given.asked_at + longer(self.config.group.patience_ms, given.asked) {
                (given.asked_at, given.asked) = (now_ms, given.asked + 1);
                let heard = self.heard.get(&given.message).copied().unwrap_or_default();
                self.core.wait_for_results(given.message, heard, &mut self.effects);
            }
        }
    }

    /// Another group's leader sent what its state machine says about some messages: one entry has what
    /// was not logged before.
    pub(crate) fn exchange<F: Fabric>(
        &mut self,
        from: GroupId,
        results: Results<'_>,
        wiring: &mut Wiring<F>,
    ) {
        if !self.core.log().leads() || results.0.len() > RESULTS_BYTES_MAX {
            return;
        }
        let (index, logged) = (self.core.log().last_index() + 1, self.exchanged.len());
        for (message, result) in results.iter() {
            if self.has_result(message, from) && !planted(Mutant::ResultGivenTwice) {
                self.paths.result_again += 1;
            } else {
                self.exchanged.push_back(Exchanged { index, message, from, result: result.into() });
            }
        }
        let new = self.exchanged.len() - logged;
        if new > 0 {
            self.paths.exchanged += new as u64;
            self.core.step(Event::Exchanged, &mut self.effects);
            self.carry_out(wiring);
        }
    }

    /// Whether a group's result about a message was given to our machine, or waits to be, or is of no use any
    /// more.
    fn has_result(&self, message: MessageId, from: GroupId) -> bool {
        let waits = |next: &Exchanged| next.message == message && next.from == from;
        let over = || self.given(message).is_none() && self.core.is_delivered(message);
        self.heard.get(&message).is_some_and(|groups| groups.contains(from))
            || self.exchanged.iter().any(waits)
            || over()
    }

    /// What our machine says about a message goes to the leaders of other groups at the end of the turn,
    /// with what it says about others.
    pub(super) fn tell_later<F: Fabric>(
        &mut self,
        message: MessageId,
        to: GroupSet,
        result: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        for group in to.iter() {
            if self.untold[group.index()].len() + Results::len_of(result.len()) > RESULTS_BYTES_MAX
            {
                self.tell_results_to(group, wiring);
            }
            let (by, to, about) = (self.id, self.core.leader_of(group), About::Message(message));
            wiring.note(|| Note::Told(Touch { by, to, about }));
            Results::push(message, result, &mut self.untold[group.index()]);
        }
        self.untold_to = self.untold_to.union(to);
    }

    /// Tells other groups what our machine has said since.
    pub(super) fn tell_results<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        for group in std::mem::take(&mut self.untold_to).iter() {
            self.tell_results_to(group, wiring);
        }
    }

    fn tell_results_to<F: Fabric>(&mut self, group: GroupId, wiring: &mut Wiring<F>) {
        let results = &mut self.untold[group.index()];
        wiring.send(self.id, self.core.leader_of(group), Kind::Exchange, results, &[]);
        results.clear();
    }

    /// The message, if our machine was given it and has not done with it.
    pub(super) fn given(&self, message: MessageId) -> Option<&Given> {
        // It is the last one, most often, or among the first.
        let last = self.given.back().filter(|given| given.message == message);
        last.or_else(|| self.given.iter().find(|given| given.message == message))
    }

    /// Takes note of what our machine has done with.
    pub(super) fn take_over(&mut self) {
        while self.given.len() > self.application.under_way() {
            let over = self.given.pop_front().expect("it is longer than something");
            self.last_applied = over.timestamp;
            if !self.heard.is_empty() {
                self.heard.remove(&over.message);
            }
        }
    }

    /// Sends again what our machine said about a message to another group, unless much else waits.
    pub(super) fn resend<F: Fabric>(
        &mut self,
        message: MessageId,
        to: GroupId,
        wiring: &mut Wiring<F>,
    ) {
        let Some((_, result)) = self.results.get(&message).filter(|(all, _)| all.contains(to))
        else {
            return;
        };
        let mut bytes = wiring.borrow();
        Results::push(message, result, &mut bytes);
        let leader = self.core.leader_of(to);
        let about = About::Message(message);
        self.paths.result_resent += 1;
        wiring.note(|| Note::Told(Touch { by: self.id, to: leader, about }));
        wiring.send(self.id, leader, Kind::Exchange, &bytes, &[]);
        wiring.keep(bytes);
    }
}
