//! A candidate's use of grants: it takes over the best log, and leads.

use skein_fabric::Fabric;
use skein_protocol::ballot::Ballot;
use skein_protocol::group::body::Body as _;
use skein_protocol::group::frame::{self, Frame};
use skein_protocol::group::{Control, GroupEvent};
use skein_protocol::message::{Head, decode_name};
use skein_protocol::ordering::{At, MessageStage};
use skein_protocol::rank::Rank;
use skein_protocol::step::Event;

use super::Replica;
use super::on_disk::{DiskRecord, soon_of};
use crate::application::Application;
use crate::election::{Granted, Piece, cursor};
use crate::ordering::Links;
use crate::replica_links::ReplicaLinks;

impl<A: Application, O: Links> Replica<A, O> {
    /// Handles another replica's grant of its log.
    pub(super) fn granted<F: Fabric>(
        &mut self,
        slot: u8,
        granted: Granted,
        tail: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let follower = &self.writer.followers[usize::from(slot)];
        let awaited = follower.log.is_none() && granted.attempt == follower.attempt;
        let leads = self.core.log().leads();
        if leads && !awaited {
            return;
        }
        let named = granted.named.clone();
        let grants = Control::Granted {
            ballot: Ballot::from_word(granted.ballot),
            incarnation: granted.incarnation,
            last: (granted.runs().last_birth(), granted.end.0 - 1),
            named: &named,
            applied: Rank::new(granted.applied),
        };
        // A leader adopts no log.
        let tail = if leads { Vec::new() } else { tail.to_vec() };
        self.campaign.heard_grant = Some((granted, tail));
        self.core.control(slot, grants, &mut self.effects);
        self.carry_out(links);
        self.campaign.heard_grant = None;
    }

    /// Takes over the log of slot `best` after an election, and leads.
    pub(super) fn take_over_log<F: Fabric>(&mut self, best: u8, links: &mut ReplicaLinks<F, O>) {
        if best != self.id.slot && !self.adopt(best, links) {
            tracing::info!(replica = %self.id, best, "is too far behind to lead");
            self.paths.handed_over += 1;
            self.tell_core(GroupEvent::CannotAdopt { of: best }, links);
            return;
        }
        self.learn_committed();
        let end = self.memory.runs.end();
        self.memory.space.resume(end, self.memory.freed);
        if !self.memory.space.retains(self.memory.freed, 2 * frame::HEADER as u64) {
            // As far as the granters can tell, the log is full of uncommitted entries. That is no error: they
            // need not know more. The other replicas are still asked, and this is tried again with each
            // grant. A replica that knows of more commits reports them with its grant; or it stands for
            // election itself, if this candidate does not succeed, and has room then.
            //
            // No replica has room only if that knowledge is lost with its holders, and not even room for one
            // ballot is left of the reserve for control: after a full log and some thirty leaders in a row,
            // none of which committed its first entry. Then no entry may be overwritten, since each may be
            // committed. Such a group waits until a replica returns that knows more; `status` reports that it
            // has no leader.
            tracing::info!(replica = %self.id, "has no room in its log for its own ballot yet");
            return;
        }
        self.memory.rewritten = end;
        for follower in &mut self.writer.followers {
            follower.freed = self.memory.freed;
        }
        let ballot = self.core.log().promised();
        tracing::info!(replica = %self.id, %ballot, end = end.index - 1, "leads");
        self.record(DiskRecord::Ballot { ballot, base: end, first: end.index }, links);
        self.tell_core(GroupEvent::TookOver, links);
        self.exchange.ask_soon();
        for (slot, grant) in
            std::mem::take(&mut self.campaign.grants_received).into_iter().enumerate()
        {
            self.campaign.grants_received.push(None);
            // A replica that was asked again since closes its log to this grant, and answers once more.
            if let Some((grant, _)) = grant
                && grant.attempt == self.writer.followers[slot].attempt
            {
                self.admit(slot as u8, &grant, links);
            }
        }
        self.intake.unproposed = true;
        self.write_followers(links);
    }

    /// Every entry that a granter has committed is part of the adopted log, and is committed here as well.
    fn learn_committed(&mut self) {
        let granted = self.campaign.grants_received.iter().flatten();
        let freed = granted.map(|(granted, _)| granted.freed).max().unwrap_or(0);
        let committed = self.memory.ends.iter().rev().find(|(_, end)| *end <= freed);
        if let Some(index) = committed.map(|(index, _)| *index) {
            self.core.step(Event::Group(GroupEvent::Learned { index }), &mut self.effects);
            self.memory.pass_committed(self.core.log().commit_index());
        }
    }

    /// Replaces our log by the one that slot `best` reported. Returns false if the report does not reach back
    /// to our log.
    fn adopt<F: Fabric>(&mut self, best: u8, links: &mut ReplicaLinks<F, O>) -> bool {
        // The grant stays: whichever log is adopted in the end, this granter is admitted.
        let Some((granted, tail)) = &mut self.campaign.grants_received[usize::from(best)] else {
            return false;
        };
        let (runs, end, tail) = (granted.runs(), cursor(granted.end), std::mem::take(tail));
        let Some(base) = self.memory.runs.shared(&runs).filter(|_| granted.whole) else {
            return false;
        };
        self.cut_log(base, links);
        let ballot = self.core.log().promised();
        let mut rest = &tail[..];
        while let Some(piece) = Piece::next(&mut rest) {
            match piece {
                Piece::Payload(bytes) => self.take_payload(bytes),
                Piece::Entry(bytes) => self.adopt_entry(bytes, ballot, links),
                Piece::Mark { .. } => {} // Who grants says in the grant what is committed.
            }
            if self.core.log().stalled_on().is_some() {
                // No granter has that payload any more: the entries behind it are not ours.
                self.cut_log(self.memory.end_of(self.core.log().last_index()), links);
                break;
            }
        }
        self.core.step(Event::TurnEnd, &mut self.effects);
        self.memory.runs.end() == end
    }

    /// Takes a payload of an entry that we take, whatever the budget.
    pub(super) fn take_payload(&mut self, bytes: &[u8]) {
        let read = decode_name(bytes).and_then(|(name, rest)| Some((name, Head::decode(rest)?)));
        if let Some((message, (Head { low_water, destinations, .. }, payload))) = read {
            let beyond = self.exceeds_budget(payload.len()) && self.payloads.get(message).is_none();
            // What an entry of our log says of the message counts.
            match self.core.stage_of(message) {
                MessageStage::Logged | MessageStage::Pending => {
                    self.payloads.insert(message, low_water, destinations, payload);
                }
                _ => self.payloads.replace(message, low_water, destinations, payload),
            }
            if beyond {
                self.payloads.note_beyond(message);
            }
        }
    }

    /// Appends an entry of another replica's log to ours, as written by us.
    pub(super) fn adopt_entry<F: Fabric>(
        &mut self,
        bytes: &[u8],
        ballot: Ballot,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let Some(position) = bytes.get(16..24).and_then(|word| word.try_into().ok()) else {
            return;
        };
        let fabric = &mut links.endpoint.fabric;
        let at = self.memory.skip_to(u64::from_le_bytes(position), ballot, fabric);
        let Some(frame) = Frame::parse(bytes, at) else { return };
        let Some(body) = O::Body::read(&frame) else { return };
        self.memory.put(at, &mut bytes.to_vec(), ballot, fabric);
        let (index, Frame { birth, time_ms, .. }) = (at.index, frame);
        self.memory.note(index, birth, at.position + bytes.len() as u64);
        self.record_entry(bytes, soon_of(&body), links);
        self.take_entry(At { index, birth, time_ms }, &body, links);
    }
}
