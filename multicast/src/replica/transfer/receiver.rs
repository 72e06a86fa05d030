//! Receiving another replica's state.

use std::time::Instant;

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::GroupEvent;
use skein_protocol::group::runs::Runs;
use skein_protocol::group::transfer::{Ask, Reception};
use skein_protocol::ids::ReplicaId;
use skein_protocol::step::Event;

use super::Replica;
use crate::application::{Application, NotRestored};
use crate::channel::Kind;
use crate::election::{Content, Election, Part};
use crate::ordering::Links;
use crate::replica::on_disk::DiskRecord;
use crate::replica_links::ReplicaLinks;

/// A machine that is restored from the parts of a copy.
pub(in crate::replica) struct Received<A> {
    pub(super) application: A,
    pub(super) bytes: u64,
    /// The last of the machine's parts has been received.
    machine_is_whole: bool,
    pub(super) began: Instant,
}

impl<A> Received<A> {
    /// Nothing is received yet.
    pub(in crate::replica) fn new(application: A) -> Self {
        Self { application, bytes: 0, machine_is_whole: false, began: Instant::now() }
    }
}

impl<A: Application> Received<A> {
    /// Takes a part of the machine's state from a snapshot of our own.
    pub(in crate::replica) fn restore_snapshot(
        &mut self,
        bytes: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, A::Failure> {
        self.bytes += bytes.len() as u64;
        self.machine_is_whole |= last;
        self.application.restore_snapshot(bytes, last)
    }
}

impl<A: Application, O: Links> Replica<A, O> {
    /// Returns whether a part of a state is here, and not all of it.
    pub(crate) const fn takes_state(&self) -> bool {
        self.transfer.received.is_some()
    }

    /// As receiver: bytes of the state that we have received so far.
    pub(crate) fn taken_bytes(&self) -> Option<u64> {
        self.transfer.received.as_ref().map(|received| received.bytes)
    }

    /// Asks all replicas of the group for a state, or to be admitted.
    pub(in crate::replica) fn ask_for_state<F: Fabric>(
        &self,
        ask: Ask,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let (incarnation, needs) = (self.incarnation, ask.needs.map(Ballot::to_word));
        let applied = self.exchange.last_applied();
        let log = ask.log && self.can_be_fed();
        if log && self.freed() < self.memory.freed {
            // The leader keeps its memory's log only from where we end. What our disk lacks of what is here would be asked for again.
            return;
        }
        let end = if log { Election::encode_log_end(self.memory.commit_end()) } else { Vec::new() };
        for slot in self.other_slots() {
            let taken = ask.taken.filter(|(from, _)| *from == slot);
            let taken = taken.map(|(_, extent)| extent.into());
            let applied = applied.number();
            let ask = Election::Ask { incarnation, needs, applied, taken };
            let bytes = [ask.encode(), end.clone()].concat();
            links.ask(self.id, ReplicaId::new(self.id.group, slot), Kind::Election, &bytes);
        }
    }

    /// Takes a part of the state of the replica in slot `from`. `fresh` makes an empty state machine.
    pub(in crate::replica) fn take_part<F: Fabric>(
        &mut self,
        from: u8,
        part: Part,
        bytes: &[u8],
        links: &mut ReplicaLinks<F, O>,
        fresh: &mut dyn FnMut(ReplicaId) -> A,
    ) -> Result<(), A::Failure> {
        let ends = part.content == Content::Order;
        match self.core.log_mut().takes_part(from, &(&part).into(), ends) {
            Reception::Ignored => return Ok(()),
            Reception::Lost => {
                self.transfer.received = None;
                return Ok(());
            }
            Reception::First => {
                // One state at a time is on its way to the disk.
                self.give_up_snapshot();
                self.transfer.received = Some(Received::new(fresh(self.id)));
            }
            Reception::Next => {}
        }
        let first = self.transfer.received.as_ref().is_some_and(|received| received.bytes == 0);
        self.paths.parts_taken += 1;
        if self.take_content(first, part.content, bytes, links)?.is_none() {
            tracing::error!(replica = %self.id, from, ?part,
                "a copy of the state does not match its digest: it is refused, and its sender notified");
            self.stop_receiving();
            let said = Election::Malformed { copy: part.copy, incarnation: self.incarnation };
            self.tell_member(from, &said, &[], links);
        }
        Ok(())
    }

    /// Takes the content of a part, which is the next of a copy. Returns `None` if it is malformed.
    pub(in crate::replica) fn take_content<F: Fabric>(
        &mut self,
        first: bool,
        content: Content,
        bytes: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<Option<()>, A::Failure> {
        let Some(received) = &mut self.transfer.received else { return Ok(None) };
        received.bytes += bytes.len() as u64;
        let whole = match content {
            Content::Machine => received.application.restore(bytes, false)?.is_ok(),
            Content::MachineLast => {
                received.machine_is_whole = true;
                received.application.restore(bytes, true)?.is_ok()
            }
            Content::Order => {
                return Ok(received
                    .machine_is_whole
                    .then(|| self.take_order(bytes, links))
                    .flatten());
            }
        };
        if whole {
            self.record(DiskRecord::Part { first, content, bytes }, links);
        }
        Ok(whole.then_some(()))
    }

    /// Whether the log of our leader brings us up to date: not if our state is wrong, or if that log did not help the last
    /// time.
    pub(in crate::replica) fn can_be_fed(&self) -> bool {
        let helped = self.transfer.fed_at != Some(self.exchange.last_delivered());
        self.is_trusted() && helped
    }

    /// Drops the copy that we were receiving.
    pub(in crate::replica) fn stop_receiving(&mut self) {
        self.core.step(Event::Group(GroupEvent::StopsReceiving), &mut self.effects);
        self.transfer.received = None;
    }

    /// Continues from the end of `runs` with another core and state machine than before.
    pub(in crate::replica) fn begin_at<F: Fabric>(
        &mut self,
        core: O,
        application: A,
        runs: Runs,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let end = runs.end();
        self.core = core;
        // A copy that we were making was of the former machine.
        self.give_up_snapshot();
        self.forget_unkept();
        self.transfer.copying = false;
        self.stop_feeding(links);
        self.application = application;
        // The new core has seen none of the words that the former one had.
        links.look_again(self.id);
        self.reader.cursor = end;
        self.memory.begin_behind(runs);
        self.exchange.forget_logged();
        self.reader.freed_told = 0;
        // A leader whose grant is older began at a place where our log no longer ends: it must begin again.
        self.reader.grants += 1;
        self.reader.await_leader(&self.memory, &links.endpoint.fabric);
        self.reader.answered = None;
        self.state_is_new(false);
    }
}
