//! The follower logs that a leader writes, the replicas that it admits, and those that it evicts.

use std::ops::Range;

use skein_fabric::{Fabric, RegionKey, Source};
use skein_protocol::group::admission::{Admission, OpenedLog, written_before};
use skein_protocol::group::frame::{Cursor, Leadership};
use skein_protocol::group::{Backlog, GroupEvent, SLOTS};
use skein_protocol::ids::{MessageId, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::step::Event;

use super::Replica;
use super::log::RESERVE_FOR_CONTROL;
use crate::application::Application;
use crate::election::{Election, Granted, cursor};
use crate::ordering::Links;
use crate::replica_links::{ReplicaLinks, StatusColumn};
use crate::wakes::Hurry;

impl<A: Application, O: Links> Replica<A, O> {
    /// As leader: begins to write a follower's log that was granted to us, from where it differs from ours.
    pub(super) fn admit<F: Fabric>(
        &mut self,
        slot: u8,
        granted: &Granted,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let follower = ReplicaId::new(self.id.group, slot);
        let Some(peer) = links.peer_of(follower) else { return };
        let shared = self.memory.runs.shared(&granted.runs());
        let theirs = cursor(granted.end);
        let wrong =
            planted(Mutant::WrongBase) && theirs.position <= self.memory.runs.end().position;
        let base = if wrong { Some(theirs) } else { shared };
        // Room for entries that must always be written, or the leader could never let the others go on.
        // Uncommitted entries are kept anyway, full or not, and no state contains them.
        let reserve = RESERVE_FOR_CONTROL as u64;
        let kept = |base: &Cursor| base.position >= self.memory.freed;
        let base =
            base.filter(|base| kept(base) || self.memory.space.retains(base.position, reserve));
        let (incarnation, held_from) = (granted.incarnation, granted.held_from);
        let fits = self.memory.space.retains(granted.freed, reserve);
        let opened = OpenedLog { slot, incarnation, base, fits };
        let Admission { base, joins } = self.core.log().admits(&opened);
        let base = base.filter(|base| self.rewrite_from(*base, &mut links.endpoint.fabric));
        let Some(base) = base else {
            // The replica answers this ballot again only until it receives this.
            self.paths.behind += 1;
            let end = shared.map(|base| self.memory.place(base).position);
            let event = GroupEvent::OutOfReach { slot, end };
            self.core.step(Event::Group(event), &mut self.effects);
            let ballot = self.core.log().ballot().to_word();
            return self.tell_member(slot, &Election::Behind { ballot }, &[], links);
        };
        let log = match links.endpoint.fabric.attach(peer, &RegionKey(granted.key)) {
            Ok(log) => log,
            Err(error) => {
                self.writer.followers[usize::from(slot)].attempt += 1;
                return tracing::warn!(%error, %follower, "cannot attach a granted log");
            }
        };
        let (ballot, grant) = (self.core.log().ballot(), granted.grant);
        let before = self.written_before(slot, granted, base, &mut links.endpoint.fabric);
        let first = self.core.log().first_index();
        let header = Leadership { ballot, base, grant, first, held_from: before.start }.encode();
        // It reports again once it has this header. An earlier report may be of a former incarnation, or of a former
        // process of this one, which knew more to be committed than its disk.
        links.forget_word(self.id, follower, StatusColumn::Applied);
        links.forget_word(self.id, follower, StatusColumn::Freed);
        if let Err(error) = links.endpoint.fabric.write(log, 0, Source::Inline(&header), None) {
            links.endpoint.fabric.detach(log);
            self.writer.followers[usize::from(slot)].attempt += 1;
            return tracing::debug!(%error, %follower, "a granted log cannot be written");
        }
        links.endpoint.wake_later(peer);
        let ours = &mut self.writer.followers[usize::from(slot)];
        ours.attached(log, base.position, granted.freed);
        // A quorum may lack entries that this follower is yet to be sent.
        self.writer.awaited = true;
        self.memory.space.hold(if fits { base.position.min(granted.freed) } else { base.position });
        ours.joining = joins.then_some(incarnation);
        self.stop_sending_to(slot);
        self.paths.admitted += 1;
        let event = GroupEvent::FollowerAdded { slot, incarnation, held_from };
        self.core.step(Event::Group(event), &mut self.effects);
        self.write_log(slot, before, 0, Hurry::Now, links);
        tracing::info!(replica = %self.id, %follower, base = base.index - 1, "writes a follower's log");
    }

    /// As leader: the part of our log in front of `base` that we [also write](written_before) to a replica
    /// whose log we write from `base` on, as far as our memory holds it. That part is rewritten in our ballot
    /// first, since a later follower may need it so: bytes of a write in flight must not change, because a
    /// network card reads them when it sends them.
    pub(super) fn written_before<F: Fabric>(
        &mut self,
        slot: u8,
        granted: &Granted,
        base: Cursor,
        fabric: &mut F,
    ) -> Range<u64> {
        // A learner whose log is written counts as soon as its `Join` is committed. So does one whose `Join` an earlier
        // leader logged: what that leader wrote to this follower may not be there any more, if the follower has begun
        // again with a snapshot.
        let view = self.core.log().view_at_end();
        let others = (0..self.topology.replicas).filter(|it| {
            let joins = self.writer.followers[usize::from(*it)].joining.is_some();
            let counts = *it != self.id.slot && !view.member(*it).evicted;
            *it != slot && (counts || self.core.log().keeps_log_for(*it, joins))
        });
        let needed = others.map(|it| {
            let follower = &self.writer.followers[usize::from(it)];
            // A replica that has not granted us its log may need all of ours, even if it is being sent our
            // state: the transfer may never complete.
            if follower.log.is_some() { follower.freed } else { 0 }
        });
        let needed = needed.fold(self.freed(), u64::min);
        let nothing = base.position..base.position;
        let Range { start, end } = written_before(base.position, granted.held_from, needed);
        if start == end {
            return nothing;
        }
        let from = start.max(self.memory.held_from(fabric)).min(end);
        let Some(first) = self.memory.first_entry(from, end, fabric) else { return nothing };
        if self.rewrite_from(first, fabric) { from..end } else { nothing }
    }

    /// Rewrites our log from `base` on in our ballot, as followers expect it. Returns false if our memory
    /// does not hold it.
    pub(super) fn rewrite_from<F: Fabric>(&mut self, base: Cursor, fabric: &mut F) -> bool {
        self.memory.rewrite_from(base, self.core.log().ballot(), fabric)
    }

    /// As follower: asks our leader about messages that we cannot deliver.
    pub(super) fn ask_for_decisions<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        let Some(leader) = self.core.log().leader().filter(|leader| *leader != self.id) else {
            return;
        };
        let lacks = self.core.lacks();
        if !lacks.is_empty() {
            let name = |message: MessageId| (message.session.0, message.sequence);
            let messages = lacks.into_iter().map(name).collect();
            self.ask_member(leader.slot, &Election::Lacks { messages }, links);
        }
    }

    /// As leader: admits the replicas that have all of our log by now.
    pub(super) fn admit_caught_up<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        if !self.core.log().leads() {
            return;
        }
        for slot in 0..self.topology.replicas {
            let follower = &self.writer.followers[usize::from(slot)];
            let Some(incarnation) = follower.joining.filter(|_| follower.has_all()) else {
                continue;
            };
            let event = GroupEvent::CaughtUp { slot, incarnation };
            self.core.step(Event::Group(event), &mut self.effects);
        }
        self.carry_out(links);
    }

    /// As leader: evicts a replica that lags and for whose sake a full log cannot go on. The same applies to
    /// a replica for which sessions wait: because payloads are kept for it, or because it has yet to deliver
    /// too many messages.
    pub(super) fn evict_blockers(&mut self) {
        let still = |len: &usize| self.core.log().keeps_delivered() && self.exceeds_budget(*len);
        self.intake.refused_relay = self.intake.refused_relay.filter(still);
        let refused =
            std::mem::take(&mut self.intake.refused) || self.intake.refused_relay.is_some();
        let mut freed = [0; SLOTS];
        for (freed, follower) in freed.iter_mut().zip(&self.writer.followers) {
            *freed = follower.freed;
        }
        freed[usize::from(self.id.slot)] = self.memory.freed;
        let backlog = Backlog {
            has_room: self.log_has_room(),
            refused,
            waited_for: self.waited_for().fold(0, |slots, slot| slots | 1 << slot),
            freed: &freed,
            lag: self.memory.space.capacity() / 8,
        };
        self.core.relieve(&backlog, &mut self.effects);
    }
}
