//! The driver's part of leader changes: heartbeats, grants and membership.

use skein_fabric::{Fabric, Peer};
use skein_protocol::ballot::Ballot;
use skein_protocol::detector::Pulse;
use skein_protocol::group::Cause;
use skein_protocol::group::{Asked, Closing, Control, GroupEffect, GroupEvent, Question};
use skein_protocol::ids::ReplicaId;
use skein_protocol::mutants::{Mutant, planted};
use skein_protocol::step::Event;

use super::Replica;
use crate::application::Application;
use crate::channel::Kind;
use crate::election::{Election, Prepare, cursor, place};
use crate::ordering::Links;
use crate::replica_links::{Note, ReplicaLinks};

impl<A: Application, O: Links> Replica<A, O> {
    /// Handles a tick of the group: reports heartbeats, stands for election if it is time, repeats questions
    /// without an answer, and admits or evicts the replicas that the log waits for.
    ///
    /// An operator's wish is handled before a candidacy of our own that is due as well. Otherwise that
    /// candidacy would replace the wish; but a leader that is well may refuse it, and leadership may return
    /// to slot 0 after it.
    pub(crate) fn keep_group<F: Fabric>(&mut self, links: &mut ReplicaLinks<F, O>) {
        for slot in self.other_slots() {
            let beats = links.beats(ReplicaId::new(self.id.group, slot));
            let pulse = if beats { Pulse::Beat } else { Pulse::Missed };
            self.core.step(Event::Heartbeat { slot, pulse }, &mut self.effects);
        }
        self.pursue_wish(links);
        self.tell_core(GroupEvent::Watched { trusted: self.is_trusted() }, links);
        self.tell_core(GroupEvent::SenderTick, links);
        self.evict_blockers();
        self.carry_out(links);
    }

    /// Handles the end of a replica's process, or of the connection to it; `died` is set if it is certainly
    /// the process.
    pub(crate) fn saw_death<F: Fabric>(
        &mut self,
        slot: u8,
        died: Option<Peer>,
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.stir();
        if died.is_some() && died == self.reader.granted {
            self.core.step(Event::Group(GroupEvent::LeaderDied), &mut self.effects);
        }
        self.core.step(Event::Heartbeat { slot, pulse: Pulse::Dead }, &mut self.effects);
        self.follower_lost(slot);
        self.stop_sending_to(slot);
        self.carry_out(links);
    }

    /// Hands an event of the group to the protocol.
    pub(super) fn tell_core<F: Fabric>(
        &mut self,
        event: GroupEvent,
        links: &mut ReplicaLinks<F, O>,
    ) {
        self.core.step(Event::Group(event), &mut self.effects);
        self.carry_out(links);
    }

    /// Carries out an effect of the group.
    pub(super) fn carry_out_of_group<F: Fabric>(
        &mut self,
        effect: GroupEffect,
        links: &mut ReplicaLinks<F, O>,
    ) {
        match effect {
            GroupEffect::CloseLog { then } => self.close_log_for(then, links),
            GroupEffect::SetsOut { ballot, cause } => self.sets_out(ballot, cause, links),
            GroupEffect::NoBallotLeft => {
                if !std::mem::replace(&mut self.campaign.exhausted, true) {
                    tracing::error!(
                        replica = %self.id,
                        "has no ballot left to lead in: its group has had 16,777,215 elections since it was created or \
                         recreated; copy its data to a new cluster while somebody leads it"
                    );
                }
            }
            GroupEffect::Ask { to, question } => self.ask_for_grant(to, question, links),
            GroupEffect::Grant(asked) => {
                let ballot = asked.question.ballot;
                links.note(|| Note::Promised { by: self.id, ballot, granted: true });
                self.forget_followers();
                self.report(asked, links);
            }
            GroupEffect::GrantAgain(asked) => {
                let peer = links.peer_of(ReplicaId::new(self.id.group, asked.by));
                match self.reader.answered.filter(|answered| answered.answers(&asked, peer)) {
                    None => {
                        self.close_log(links);
                        self.report(asked, links);
                    }
                    Some(_) => self.asked_again(asked, links),
                }
            }
            GroupEffect::TellGrant(asked) => {
                if let Some(answered) = self.reader.answered {
                    self.paths.granted_again += 1;
                    self.tell_granted(asked, answered, links);
                }
            }
            GroupEffect::Refuse { to, promised } => {
                let promised = promised.to_word();
                self.tell_member(to, &Election::Refused { promised }, &[], links);
            }
            GroupEffect::Keep { of } => {
                self.campaign.grants_received[usize::from(of)] = self.campaign.heard_grant.take();
            }
            GroupEffect::TakeOver { of } => self.take_over_log(of, links),
            GroupEffect::Admit { slot } => {
                if let Some((granted, _)) = self.campaign.heard_grant.take() {
                    self.admit(slot, &granted, links);
                }
            }
            GroupEffect::AskForLease { number } => {
                let ballot = self.core.log().ballot().to_word();
                for slot in self.other_slots() {
                    self.ask_member(slot, &Election::Lease { ballot, number }, links);
                }
            }
            GroupEffect::PromiseLease { to, ballot, number } => {
                let (ballot, incarnation) = (ballot.to_word(), self.incarnation);
                let promised = Election::Promised { ballot, number, incarnation };
                self.ask_member(to, &promised, links);
            }
            GroupEffect::TellAdmitted { to, incarnation } => {
                let ballot = self.core.log().ballot().to_word();
                self.ask_member(to, &Election::Admitted { ballot, incarnation }, links);
            }
            GroupEffect::GiveUp { slot, evicted } => {
                tracing::warn!(replica = %self.id, slot, evicted, "continues without a replica");
                self.paths.learner_given_up += u64::from(!evicted);
                self.stop_sending_to(slot);
                self.follower_lost(slot);
            }
            GroupEffect::SendState { slot, incarnation, anew, log } => {
                self.begin_sending((slot, incarnation), anew, log, links);
            }
            GroupEffect::DropCopy => self.drop_copy(links),
            GroupEffect::GiveUpReceiver { slot, stage } => {
                self.give_up_receiver(slot, stage, links);
            }
            GroupEffect::Accused { slot, incarnation } => {
                let others = self.other_slots().filter(|it| *it != slot).collect();
                self.accused_by((slot, incarnation), others);
            }
            GroupEffect::LeftBehind => {
                tracing::info!(replica = %self.id, "waits for messages that no replica sends any more");
                self.paths.left_behind += 1;
            }
            GroupEffect::AskForState(ask) => self.ask_for_state(ask, links),
            GroupEffect::IsMember { slot, incarnation } => {
                self.writer.followers[usize::from(slot)].joining = None;
                tracing::info!(replica = %self.id, slot, incarnation, "is admitted");
            }
            GroupEffect::TimeoutNow { to, ballot } => {
                let succeed = Election::TimeoutNow { ballot: ballot.to_word() };
                if self.core.log().leads() {
                    self.ask_member(to, &succeed, links); // It is asked again.
                } else {
                    self.tell_member(to, &succeed, &[], links);
                }
            }
        }
    }

    /// Closes the log, then lets the protocol continue with `then`.
    fn close_log_for<F: Fabric>(&mut self, then: Closing, links: &mut ReplicaLinks<F, O>) {
        if matches!(then, Closing::SetOut(_)) {
            self.campaign.set_out_at = Some(links.endpoint.fabric.now());
        }
        if matches!(then, Closing::Grant(_)) && planted(Mutant::GrantWithoutRevoking) {
            self.read_log(links, usize::MAX);
        } else {
            self.close_log(links);
            if links.disk.is_some() {
                // Nobody may write again before the promise is on disk.
                self.reader.await_leader(&self.memory, &links.endpoint.fabric);
            }
        }
        self.tell_core(GroupEvent::LogClosed { then }, links);
    }

    /// Our log is closed, and we stand for election.
    fn sets_out<F: Fabric>(
        &mut self,
        ballot: Ballot,
        cause: Cause,
        links: &mut ReplicaLinks<F, O>,
    ) {
        links.note(|| Note::Promised { by: self.id, ballot, granted: false });
        tracing::info!(replica = %self.id, %ballot, ?cause, "stands for election");
        // Nothing more is read: only we, or a replica that we grant, may write our log.
        self.reader.await_leader(&self.memory, &links.endpoint.fabric);
        self.forget_followers();
        self.campaign.grants_received.fill_with(|| None);
    }

    pub(super) fn forget_followers(&mut self) {
        for slot in 0..self.topology.replicas {
            self.follower_lost(slot);
            self.writer.followers[usize::from(slot)].forget_writes();
        }
        self.reads.forget_led();
    }

    fn ask_for_grant<F: Fabric>(&self, to: u8, question: Question, links: &mut ReplicaLinks<F, O>) {
        let Question { ballot, leads, forced } = question;
        let (ballot, attempt) = (ballot.to_word(), self.writer.followers[usize::from(to)].attempt);
        let (commit, admitted) = (place(self.memory.commit_end()), self.core.log().admitted());
        let prepare = Prepare { ballot, leads, forced, attempt, commit, admitted };
        self.ask_member(to, &Election::Prepare(prepare), links);
    }

    pub(super) fn other_slots(&self) -> impl Iterator<Item = u8> + use<A, O> {
        let me = self.id.slot;
        (0..self.topology.replicas).filter(move |slot| *slot != me)
    }

    /// Sends a message that is repeated until it is answered.
    pub(super) fn ask_member<F: Fabric>(
        &self,
        slot: u8,
        what: &Election,
        links: &mut ReplicaLinks<F, O>,
    ) {
        links.ask(self.id, ReplicaId::new(self.id.group, slot), Kind::Election, &what.encode());
    }

    pub(super) fn tell_member<F: Fabric>(
        &mut self,
        slot: u8,
        what: &Election,
        tail: &[u8],
        links: &mut ReplicaLinks<F, O>,
    ) {
        let to = ReplicaId::new(self.id.group, slot);
        links.send(self.id, to, Kind::Election, &what.encode(), tail);
    }

    /// Handles another replica's request to write our log.
    pub(super) fn prepare<F: Fabric>(
        &mut self,
        by: u8,
        asked: &Prepare,
        links: &mut ReplicaLinks<F, O>,
    ) {
        let Prepare { ballot, leads, forced, attempt, commit, ref admitted } = *asked;
        self.look_whether_leader_lives(by, links);
        let question = Question { ballot: Ballot::from_word(ballot), leads, forced };
        let asked = Asked { by, question, attempt, from: cursor(commit) };
        self.core.control(by, Control::Prepare { asked, admitted }, &mut self.effects);
    }

    /// Probes the leader before another replica's request is decided: to refuse it for a dead leader would cost time.
    fn look_whether_leader_lives<F: Fabric>(&mut self, asks: u8, links: &mut ReplicaLinks<F, O>) {
        let other = |leader: &ReplicaId| *leader != self.id && leader.slot != asks;
        let Some(leader) = self.core.log().leader().filter(other) else { return };
        let Some(peer) = links.peer_of(leader) else { return };
        if links.endpoint.fabric.is_gone(peer) {
            let event = Event::Heartbeat { slot: leader.slot, pulse: Pulse::Dead };
            self.core.step(event, &mut self.effects);
            if self.reader.granted == Some(peer) && links.endpoint.fabric.has_died(peer) {
                self.core.step(Event::Group(GroupEvent::LeaderDied), &mut self.effects);
            }
        }
    }
}
