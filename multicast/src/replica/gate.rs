//! Replies that wait until what they rest on was passed by all who share it.

use std::collections::VecDeque;
use std::time::Duration;

use hashbrown::HashSet;
use skein_fabric::Fabric;
use skein_protocol::ids::{GroupSet, MessageId, ReplicaId};
use skein_protocol::properties::{About, Touch};
use skein_protocol::timestamp::Timestamp;

use super::Replica;
use crate::application::Application;
use crate::channel::Kind;
use crate::operate::HeldStatus;
use crate::wiring::{Note, Wiring};

struct Held {
    message: MessageId,
    reply: Vec<u8>,
    /// What must be passed.
    until: Timestamp,
    since: Duration,
}

/// A leader's replies that may not leave yet, in the order in which they were given.
#[derive(Default)]
pub(super) struct Gate {
    held: VecDeque<Held>,
    /// Whose they are: what is asked for again and again is held once.
    messages: HashSet<MessageId>,
    /// All that ever waited, and for how long.
    count: u64,
    waited: Duration,
}

impl Gate {
    /// Whoever leads now repeats them.
    pub(super) fn clear(&mut self) {
        self.held.clear();
        self.messages.clear();
    }

    pub(super) fn status(&self) -> HeldStatus {
        HeldStatus {
            waiting: self.held.len() as u64,
            count: self.count,
            waited_us: self.waited.as_micros() as u64,
        }
    }
}

impl<A: Application> Replica<A> {
    /// Answers a session now, or when everything that the answer rests on was passed.
    pub(super) fn reply<F: Fabric>(
        &mut self,
        message: MessageId,
        reply: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        if !self.is_trusted() {
            return; // Whoever leads when the state is right again repeats it.
        }
        // What was delivered behind it meanwhile, it does not rest on.
        let given = self.given(message).map(|given| given.rests_on);
        let until = given.unwrap_or_else(|| self.core.rests_on(message));
        if self.core.has_passed(until) {
            return wiring.reply(message, self.id, reply);
        }
        if self.gate.messages.insert(message) {
            self.paths.reply_held += 1;
            let since = wiring.port.fabric.now();
            let reply = wiring.buffers.copy(reply);
            self.gate.held.push_back(Held { message, reply, until, since });
        }
    }

    /// Everything was delivered that there was: tells other groups what they may wait for, and lets
    /// out what may go.
    pub(super) fn pass_on<F: Fabric>(&mut self, wiring: &mut Wiring<F>) {
        self.core.pass_on(&mut self.effects);
        if !self.effects.is_empty() {
            self.carry_out(wiring);
        }
        if self.gate.held.is_empty() {
            return;
        }
        if !self.core.log().leads() {
            return self.gate.clear();
        }
        let now = wiring.port.fabric.now();
        while let Some(held) = self.gate.held.pop_front_if(|held| self.core.has_passed(held.until))
        {
            self.gate.messages.remove(&held.message);
            self.gate.count += 1;
            self.gate.waited += now.saturating_sub(held.since);
            wiring.reply(held.message, self.id, &held.reply);
            wiring.buffers.keep(held.reply);
        }
    }

    /// Another replica tells what was delivered and passed.
    pub(crate) fn hear_passed<F: Fabric>(
        &mut self,
        from: ReplicaId,
        report: &[u8],
        wiring: &mut Wiring<F>,
    ) {
        self.stir();
        if self.core.hear_passed(from, report, &mut self.effects) && self.log_has_room() {
            self.announced += 1; // It may need an entry. If there is no room, it asks again.
            self.core.raise_for(from.group, &mut self.effects);
        }
        self.carry_out(wiring);
    }

    /// Tells what we know of these groups.
    pub(super) fn tell_passed<F: Fabric>(
        &self,
        to: ReplicaId,
        rows: GroupSet,
        asks: bool,
        wiring: &mut Wiring<F>,
    ) {
        let about = About::Passed;
        wiring.note(|| Note::Told(Touch { by: self.id, to, about }));
        let mut bytes = wiring.borrow();
        self.core.report_passed(rows, asks, &mut bytes);
        if asks {
            wiring.ask(self.id, to, Kind::Passed, &bytes);
        } else {
            wiring.send(self.id, to, Kind::Passed, &bytes, &[]);
        }
        wiring.keep(bytes);
    }

    /// Replies that wait.
    pub(crate) fn held_replies(&self) -> usize {
        self.gate.held.len()
    }
}
