//! Orderings that run on a group log: the hooks that the log requires, and what is common to all orderings.

use alloc::vec::Vec;

use super::leadership_transfer::is_lagging;
use super::ordering::{Next, Ordering};
use super::transfer::{Answer, Refusal, Request};
use super::{Backlog, Control, GroupEffect, GroupEvent, GroupLog, Replay, Role};
use crate::ballot::Ballot;
use crate::ordering::{EffectOf, OrderingProtocol};
use crate::rank::Rank;
use crate::step::Effect;
use crate::view::View;

/// An ordering on a [`GroupLog`]. It implements the hooks; everything else is provided.
pub(crate) trait OnLog: OrderingProtocol {
    /// Its answers to the log's queries.
    type Deliveries<'a>: Ordering
    where
        Self: 'a;

    // Hooks.

    /// Our log, and the answers to its queries.
    fn log_and_deliveries(&mut self) -> (&mut GroupLog<Self::Record>, Self::Deliveries<'_>);

    /// The first message that waits to be delivered.
    fn waits_first(&mut self) -> Option<Next>;

    /// As leader: logs a record. Returns its index.
    fn append(&mut self, record: Self::Record, effects: &mut Vec<EffectOf<Self>>) -> u64;

    /// Everything up to `index` is committed: it is part of the replicated state from here on.
    fn fold(&mut self, index: u64);

    /// Cuts off the entries of our log behind `index`, because another log was adopted.
    fn truncate(&mut self, index: u64);

    /// The leader of the ballot that we granted rewrites our log from behind `base` on. Its own first entry is, or will
    /// be, at index `first`.
    fn follow(&mut self, ballot: Ballot, base: u64, first: u64);

    /// Begins to lead: the campaign is won, and our log is the adopted one.
    fn lead(&mut self, effects: &mut Vec<EffectOf<Self>>);

    /// Everything up to `rank` was delivered by what is committed in our log, before this replica began or by its leader:
    /// no more is needed to deliver it again.
    fn has_delivered(&mut self, rank: Rank);

    /// Every group that may need our acceptance word in this ballot is owed it.
    fn owe_all(&mut self);

    /// Stops leading: what we did not see committed is not ours to commit. It may be called on a replica that does not
    /// lead.
    fn step_down(&mut self);

    // Provided methods.

    /// Handles a control message of another replica of our group, about elections or state transfer.
    fn hear_control(&mut self, from: u8, control: Control<'_>, effects: &mut Vec<EffectOf<Self>>) {
        let log = self.log_mut();
        match control {
            Control::Prepare { asked, admitted } => log.prepare(asked, admitted, effects),
            Control::Granted { ballot, incarnation, last, named, applied } => {
                log.hear_grant(from, (ballot, incarnation), last, named, applied, effects);
            }
            Control::Refused { promised } => self.refused(promised),
            Control::Admitted { ballot, incarnation } => {
                if incarnation == log.config.incarnation {
                    log.hear_admitted(ballot);
                }
            }
            Control::Lease { ballot, number, now } => {
                if ballot.slot() == from && log.promise_lease(ballot, now) {
                    let promise = GroupEffect::PromiseLease { to: from, ballot, number };
                    effects.push(promise.into());
                }
            }
            Control::LeasePromised { ballot, number, incarnation, now } => {
                log.lease_promised((from, incarnation), ballot, number, now);
            }
            Control::TimeoutNow { ballot } => log.succeed(ballot, effects),
            Control::Behind { ballot } => log.lags_behind(ballot),
            Control::Asks { request, trusted } => self.answer(&request, trusted, effects),
            Control::CopyRefused { incarnation, copy } => {
                let refusal = log.copy_is_refused(from, incarnation, copy);
                if refusal != Refusal::Stray {
                    effects.push(GroupEffect::DropCopy.into());
                }
                if refusal == Refusal::Accuses {
                    effects.push(GroupEffect::Accused { slot: from, incarnation }.into());
                }
            }
        }
    }

    /// Handles an event that concerns our group alone.
    fn happens(&mut self, event: GroupEvent, effects: &mut Vec<EffectOf<Self>>) {
        match event {
            GroupEvent::Watched { trusted } => {
                if !self.log_mut().watched(trusted, effects) {
                    self.hand_to_transferee(effects);
                }
            }
            GroupEvent::WantedToLead => self.log_mut().is_wanted_to_lead(),
            GroupEvent::WishTick { trusted, awaits_leader } => {
                self.log_mut().pursue_wish(trusted, awaits_leader, effects);
            }
            GroupEvent::LogClosed { then } => {
                self.depose();
                self.log_mut().closed(then, effects);
            }
            GroupEvent::TookOver => self.lead(effects),
            GroupEvent::Learned { index } => self.learn_committed(index),
            GroupEvent::Followed { ballot, base, first } => self.follow(ballot, base, first),
            GroupEvent::CutOff { last } => self.truncate(last),
            GroupEvent::FollowerAdded { slot, incarnation, held_from } => {
                self.log_mut().add_follower(slot, incarnation, held_from);
            }
            GroupEvent::OutOfReach { slot, end } => self.log_mut().set_out_of_reach(slot, end),
            GroupEvent::FollowerRemoved { slot } => self.log_mut().remove_follower(slot),
            GroupEvent::CaughtUp { slot, incarnation } => {
                self.caught_up(slot, incarnation, effects);
            }
            GroupEvent::Evict { slot } => {
                if self.evict(slot, effects) {
                    effects.push(GroupEffect::GiveUp { slot, evicted: true }.into());
                }
            }
            GroupEvent::Landed { slot, number } => self.log_mut().landed(slot, number),
            GroupEvent::LeaseWanted { now } => {
                let number = self.log_mut().ask_for_lease(now);
                effects.extend(
                    number.map(|number| Effect::Group(GroupEffect::AskForLease { number })),
                );
            }
            GroupEvent::HandsOver { to } => {
                self.log_mut().has_handed_over();
                effects.push(self.log().timeout_now(to).into());
            }
            GroupEvent::LeaderDied => self.log_mut().leader_has_died(),
            GroupEvent::Opened => self.log_mut().opened(),
            GroupEvent::AskedAgain { asked, awaits_leader, sent } => {
                self.log_mut().asked_again(asked, awaits_leader, sent, effects);
            }
            GroupEvent::CannotAdopt { of } => self.log_mut().cannot_adopt(of, effects),
            GroupEvent::Diverged { held_by } => self.log_mut().gives_up_state(held_by, effects),
            GroupEvent::SenderTick => {
                let silent = self.log_mut().gives_up_unanswered();
                let give_up = |(slot, stage)| GroupEffect::GiveUpReceiver { slot, stage };
                effects.extend(silent.map(|it| Effect::Group(give_up(it))));
            }
            GroupEvent::ReceiverTick { awaits_leader } => {
                if self.lags(awaits_leader) {
                    effects.push(GroupEffect::LeftBehind.into());
                }
                let ask = self.log_mut().asks_for_state();
                effects.extend(ask.map(|ask| Effect::Group(GroupEffect::AskForState(ask))));
            }
            GroupEvent::StopsSending { slot } => {
                if self.log_mut().stops_sending(slot) {
                    effects.push(GroupEffect::DropCopy.into());
                }
            }
            GroupEvent::StopsReceiving => self.log_mut().stops_receiving(),
            GroupEvent::Replay(replay) => self.replay(replay),
            GroupEvent::Fed { commit, delivered } => self.delivered_before(commit, delivered),
            GroupEvent::FedAll => {
                self.log_mut().stops_receiving();
                self.log_mut().lags_no_more();
            }
            GroupEvent::Durable(disk) => {
                self.log_mut().has_on_disk(disk);
                self.log_mut().speak_of_promise(effects);
            }
        }
    }

    /// Takes what the disk held, in the order in which it was written.
    fn replay(&mut self, replay: Replay) {
        match replay {
            Replay::Begins { now_ms } => self.log_mut().begin_time(now_ms),
            Replay::Promised(ballot) => self.log_mut().promised_before(ballot),
            Replay::OwnState { recovery_barrier } => {
                self.log_mut().resumes_own_state(recovery_barrier);
            }
            Replay::Delivered { commit, delivered } => self.delivered_before(commit, delivered),
            Replay::Over { now_ms } => {
                self.log_mut().resume_time(now_ms);
                self.log_mut().replayed();
                // Whoever has lost its memory together with us has lost our words.
                self.owe_all();
            }
        }
    }

    /// The log is committed up to `commit`, and everything up to `delivered` was delivered by what stands there: by this
    /// replica, before it began again, or by its leader.
    fn delivered_before(&mut self, commit: u64, delivered: Rank) {
        if commit > self.log().commit_index() {
            self.fold(commit);
        }
        self.has_delivered(delivered);
    }

    /// A ballot other than ours is promised: stops leading.
    fn depose(&mut self) {
        let leads = self.log().leads();
        self.log_mut().paths.deposed += u64::from(leads);
        self.step_down();
    }

    /// Promises another replica's ballot. The caller has reported everything that the log contains.
    fn promise(&mut self, ballot: Ballot) {
        self.depose();
        self.log_mut().promise(ballot);
    }

    /// A replica has refused our ballot, because it has granted `promised`.
    fn refused(&mut self, promised: Ballot) {
        // A replica that we have asked to lead is not preempted, even if its request arrives late: otherwise we would
        // cancel the handover with every tick.
        if self.transferee() != Some(promised.slot()) && !self.log().is_transferee(promised.slot())
        {
            self.log_mut().hear_of(promised);
        }
    }

    /// As candidate, with the adopted log: everything up to `index` is committed, since a replica that granted our
    /// ballot has folded it. A log fills up with entries that its holder does not know to be committed. If only
    /// replicas without that knowledge campaigned for such a log, it would have no room for their ballots.
    fn learn_committed(&mut self, index: u64) {
        let index = index.min(self.log().last_index());
        if index > self.log().commit_index() {
            self.log_mut().paths.learned_committed += 1;
            self.fold(index);
        }
    }

    /// Logs the eviction of a slot, unless fewer than a quorum would remain for which the log waits. Returns whether an
    /// entry was logged.
    fn evict(&mut self, slot: u8, effects: &mut Vec<EffectOf<Self>>) -> bool {
        let (log, deliveries) = self.log_and_deliveries();
        let evict = log.evict(slot, &deliveries);
        drop(deliveries);
        evict.map(|record| self.append(record.into(), effects)).is_some()
    }

    /// An incarnation of a slot holds all of our log. If it does not count yet, logs its `Join`, if allowed.
    fn caught_up(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<EffectOf<Self>>) {
        let view = self.log().view();
        if view.names(slot, incarnation) && !view.member(slot).evicted {
            self.log_mut().asks_no_more(slot);
            effects.push(GroupEffect::IsMember { slot, incarnation }.into());
        } else {
            self.join(slot, incarnation, effects);
        }
    }

    /// Logs the `Join` of an incarnation of a slot, if allowed.
    fn join(&mut self, slot: u8, incarnation: u32, effects: &mut Vec<EffectOf<Self>>) {
        let (log, deliveries) = self.log_and_deliveries();
        let join = log.join(slot, incarnation, &deliveries);
        drop(deliveries);
        if let Some(record) = join {
            self.append(record.into(), effects);
        }
    }

    /// Logs the view changes that are due.
    fn log_due_changes(&mut self, effects: &mut Vec<EffectOf<Self>>) {
        let (log, deliveries) = self.log_and_deliveries();
        let due = log.due_changes(&deliveries);
        drop(deliveries);
        for record in due {
            self.append(record.into(), effects);
        }
    }

    /// As leader that lags: the slot that should lead instead.
    fn transferee(&mut self) -> Option<u8> {
        let next = self.waits_first();
        let (log, deliveries) = self.log_and_deliveries();
        log.transferee(next, &deliveries)
    }

    /// As leader that lags, or that can send a replica neither its log nor its state: asks another to lead instead.
    fn hand_to_transferee(&mut self, effects: &mut Vec<EffectOf<Self>>) {
        let transferee = self.transferee();
        let (log, deliveries) = self.log_and_deliveries();
        let transferee = transferee.or_else(|| log.other_server(&deliveries));
        effects.extend(transferee.map(|to| Effect::Group(log.timeout_now(to))));
    }

    /// As leader, once a tick: stops waiting for followers that have blocked this leader for too long, if the quorum
    /// can spare them.
    fn go_on_without(&mut self, backlog: &Backlog<'_>, effects: &mut Vec<EffectOf<Self>>) {
        for slot in self.log_mut().holds_up(backlog) {
            let learns = self.log().view().member(slot).evicted;
            if learns || self.evict(slot, effects) {
                effects.push(GroupEffect::GiveUp { slot, evicted: !learns }.into());
            }
        }
    }

    /// Answers a replica that asks for our state, or to be admitted.
    fn answer(&mut self, request: &Request, trusted: bool, effects: &mut Vec<EffectOf<Self>>) {
        let Request { slot, incarnation, log: fed, .. } = *request;
        let next = if self.log().leads() { self.waits_first() } else { None };
        let (log, deliveries) = self.log_and_deliveries();
        let anew = match log.asked_for_state(request, trusted, next, &deliveries) {
            Answer::Nothing => return,
            Answer::Resume => false,
            Answer::Begin => true,
        };
        effects.push(GroupEffect::SendState { slot, incarnation, anew, log: fed }.into());
    }

    /// Whether we have waited so long for what the others no longer send that we need a state.
    fn lags(&mut self, awaits_leader: bool) -> bool {
        let delivered = self.delivered();
        let next = if self.log().may_lag() { self.waits_first() } else { None };
        let (log, deliveries) = self.log_and_deliveries();
        log.notices_lag(delivered, awaits_leader, is_lagging(next, &deliveries))
    }

    /// As the survivor of a lost group: all of our log is committed, in a group with this view. Before this, our log
    /// must be closed to its leader and read to its end.
    fn go_on(&mut self, marker: Ballot, view: View) {
        self.log_mut().forget_transfers();
        self.promise(marker);
        self.fold(self.log().last_index());
        self.log_mut().revive(marker, view);
    }

    /// As any other replica of the group: our state does not count until we have taken the survivor's.
    fn suspend(&mut self, marker: Ballot) {
        self.log_mut().forget_transfers();
        if self.log().role() != Role::Blank {
            self.promise(marker);
        }
        self.log_mut().suspend(marker);
    }
}
