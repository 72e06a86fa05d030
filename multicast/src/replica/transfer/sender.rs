//! Sending our state.
//!
//! The machine copies itself part by part, a few each turn; what changes meanwhile is copied again. When
//! little is left, it ends the copy between two deliveries, with the ordering state at the commit index. From
//! there on the log holds whatever the receiver lacks, and the receiver is admitted like any follower. A part
//! is made only when the part before it is in the receiver's ring, so the copy takes hardly any memory.

use skein_fabric::Fabric;
use skein_protocol::group::GroupEvent;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::transfer::{self, Left, Stage};
use skein_protocol::ids::ReplicaId;
use skein_protocol::step::Event;

use super::Replica;
use crate::application::Application;
use crate::election::{Content, Election, Part};
use crate::ordering::Links;
use crate::replica_links::{Note, ReplicaLinks};

/// Bytes of a part: it travels in one frame of a ring between replicas.
const PART_BYTES: usize = 48 << 10;
/// Limit of parts made in one turn.
const PARTS_PER_TURN: usize = 2;

impl<A: Application, O: Links> Replica<A, O> {
    /// Begins to send our state to a replica: a copy that is begun `anew`, or the one of which it has a part.
    /// A replica whose committed log ends at `from` is fed ours instead, if that is to be had.
    pub(in crate::replica) fn begin_sending<F: Fabric>(
        &mut self,
        (slot, incarnation): (u8, u32),
        anew: bool,
        from: Option<Cursor>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.follower_lost(slot);
        if !anew {
            self.paths.copy_resumed += 1;
            return self.resume_feeding(links);
        }
        self.stop_feeding(links);
        if from.is_some_and(|from| self.begin_feeding(slot, from, links)) {
            self.give_up_copy();
            return;
        }
        self.give_up_snapshot();
        self.give_up_copy();
        tracing::info!(replica = %self.id, slot, incarnation, "sends its state to a learner");
        self.application.begin_copy();
        (self.transfer.copying, self.transfer.sent_bytes) = (true, 0);
    }

    /// Stops sending our state to a slot: we write its log, or it is gone.
    pub(in crate::replica) fn stop_sending_to(&mut self, slot: u8) {
        self.core.step(Event::Group(GroupEvent::StopsSending { slot }), &mut self.effects);
    }

    /// Stops sending our state to anybody.
    pub(in crate::replica) fn stop_sending(&mut self) {
        if let Some((slot, _)) = self.core.log().sends_state() {
            self.stop_sending_to(slot);
        }
    }

    /// Gives up a receiver that takes nothing more.
    pub(in crate::replica) fn give_up_receiver<F: Fabric>(
        &mut self,
        slot: u8,
        stage: Stage,
        links: &mut ReplicaLinks<F, O>,
    ) {
        if !matches!(stage, Stage::Paused { .. }) {
            tracing::warn!(replica = %self.id, slot, "gives up a learner that does not answer");
            self.paths.learner_given_up += 1;
        }
        self.drop_copy(links);
    }

    /// Drops what is sent to a replica: the machine's copy, or our log.
    pub(in crate::replica) fn drop_copy<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        self.stop_feeding(links);
        self.give_up_copy();
    }

    /// Drops the machine's copy, if there is one.
    pub(in crate::replica) fn give_up_copy(&mut self) {
        if std::mem::take(&mut self.transfer.copying) {
            self.application.give_up_copy();
        }
    }

    /// Sends the next parts of the state, if the receiver has room. Returns whether there were any.
    pub(crate) fn send_state<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<bool, A::Failure> {
        if self.transfer.feed.is_some() {
            return Ok(self.send_log(links));
        }
        let mut any = false;
        for _ in 0..PARTS_PER_TURN {
            let Some((slot, Stage::Sending { .. })) = self.core.log().sends_state() else { break };
            let receiver = ReplicaId::new(self.id.group, slot);
            if !links.has_sent_all(self.id, receiver) || !self.application.can_copy() {
                break;
            }
            any = true;
            let mut part = Vec::with_capacity(PART_BYTES + 1024);
            let ripe = self.application.copy(PART_BYTES, &mut part)?;
            let left = if ripe { Left::Little } else { Left::Much };
            self.send_part(slot, Content::Machine, &part, left, links);
            self.finish_sending(links)?;
        }
        Ok(any)
    }

    /// Sends the last part of the state, if little is left and the machine is at the commit index: under load
    /// that is between two deliveries, and rarely at the end of a turn. The machine may be waiting for other
    /// groups' results: these may depend on what our group commits, and that on the receiver.
    pub(in crate::replica) fn finish_sending<F: Fabric>(
        &mut self,
        links: &mut ReplicaLinks<F, O>,
    ) -> Result<(), A::Failure> {
        let Some((slot, Stage::Sending { ripe: true })) = self.core.log().sends_state() else {
            return Ok(());
        };
        let drained = || self.exchange.is_drained_to(self.core.log().commit_index());
        if !drained() {
            return Ok(());
        }
        let mut part = Vec::new();
        self.application.finish_copy(&mut part)?;
        self.transfer.copying = false;
        self.send_part(slot, Content::MachineLast, &part, Left::Little, links);
        let order = self.save_order();
        self.send_part(slot, Content::Order, &order, Left::Nothing, links);
        let (by, delivered) = (self.id, self.core.delivered());
        links.note(|| Note::Gave { by, delivered });
        // The receiver must grant its log again. Our log is kept for it until it has what it lacks.
        debug_assert_eq!(
            self.memory.freed_index,
            self.core.log().commit_index(),
            "the log is kept from there on"
        );
        let follower = &mut self.writer.followers[usize::from(slot)];
        follower.attempt += 1;
        follower.freed = self.memory.freed;
        Ok(())
    }

    fn send_part<F: Fabric>(
        &mut self,
        slot: u8,
        content: Content,
        bytes: &[u8],
        left: Left,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let transfer::Part { incarnation, copy, number } = self.core.log_mut().sends_part(left);
        let part = Part { incarnation, copy: copy.into(), number, content };
        self.transfer.sent_bytes += bytes.len() as u64;
        self.paths.parts_given += 1;
        self.tell_member(slot, &Election::State(part), bytes, links);
    }
}
