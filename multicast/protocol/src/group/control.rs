//! The group log's boundary: control messages between the replicas of a group, events, and effects.
//!
//! A replica closes its log to writers before it reports its content. Only the caller can close memory. So the effect
//! [`CloseLog`](GroupEffect::CloseLog) carries the step that follows, and the caller returns that step in the event
//! [`LogClosed`](GroupEvent::LogClosed). Between the two, the caller reports every entry that it reads.

use alloc::vec::Vec;
use core::time::Duration;

use super::durable::{OnDisk, Replay};
use super::election::{Cause, GrantDecision};
use super::frame::Cursor;
use super::record::LogRecord;
use super::transfer::{Ask, CopyId, Request, Stage};
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::divergence::Slots;
use crate::guard;
use crate::mutants::Mutant;
use crate::rank::Rank;

/// A request by a candidate or a leader for a grant of its ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The ballot to be granted.
    pub ballot: Ballot,
    /// True if the sender is already elected in it, and only needs to write the log.
    pub leads: bool,
    /// True if a follower must give up even a leader that is well.
    pub forced: bool,
}

/// A [`Question`] as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Slot of the sender.
    pub by: u8,
    pub question: Question,
    /// Number of the attempt: the sender raises it when a grant was lost.
    pub attempt: u32,
    /// End of the log that the sender knows to be committed. It may lack every entry behind this.
    pub from: Cursor,
}

/// A message from another replica of our group.
#[derive(Clone, Copy, Debug)]
pub enum Control<'a> {
    /// The sender wants to write our log.
    Prepare {
        asked: Asked,
        /// The incarnations in the sender's committed view, by slot.
        admitted: &'a [u32],
    },
    /// The sender lets us write its log.
    Granted {
        /// The granted ballot.
        ballot: Ballot,
        /// Incarnation of the sender.
        incarnation: u32,
        /// Birth and index of the last entry of its log.
        last: (Ballot, u64),
        /// The incarnations that count at the end of its log, by slot.
        named: &'a [u32],
        /// The rank up to which it has applied its deliveries.
        applied: Rank,
    },
    /// The sender refuses our ballot, because it has granted this one, or its leader is well.
    Refused {
        /// The highest ballot that it has granted.
        promised: Ballot,
    },
    /// The sender knows that the `Join` of an incarnation of ours is committed.
    Admitted {
        /// Ballot in which the sender leads or follows.
        ballot: Ballot,
        /// The admitted incarnation of ours.
        incarnation: u32,
    },
    /// Our leader asks us to promise a lease: to let no other replica lead for a while.
    Lease {
        /// Ballot in which it leads.
        ballot: Ballot,
        /// Number of the request for promises.
        number: u64,
        /// Our clock, read after the request arrived.
        now: Duration,
    },
    /// A follower has promised us a lease.
    LeasePromised {
        /// Our ballot.
        ballot: Ballot,
        /// Number of the request that it answers.
        number: u64,
        /// Incarnation of the sender.
        incarnation: u32,
        /// Our clock, read after the promise arrived.
        now: Duration,
    },
    /// A leader or a candidate asks us to lead in its place.
    TimeoutNow {
        /// Ballot of the sender.
        ballot: Ballot,
    },
    /// The sender leads, and its log does not contain what we lack.
    Behind {
        /// Ballot of the sender.
        ballot: Ballot,
    },
    /// The sender asks for our state, or to be admitted.
    Asks {
        request: Request,
        /// Whether our state is known to be the group's. Otherwise it is sent to no replica.
        trusted: bool,
    },
    /// The sender refuses a copy of our state, because the copy does not match its digest.
    CopyRefused {
        /// Its incarnation.
        incarnation: u32,
        copy: CopyId,
    },
}

/// An event that concerns one group and is not a message.
#[derive(Clone, Copy, Debug)]
pub enum GroupEvent {
    /// All heartbeats were read: the log decides whether to set out to lead.
    Watched {
        /// False if our state is known to differ from the group's: then this replica does not set out.
        trusted: bool,
    },
    /// An operator wants this replica to lead.
    WantedToLead,
    /// Once a tick, and after [`WantedToLead`](Self::WantedToLead): an operator may want this replica to lead.
    WishTick {
        /// As in [`Watched`](Self::Watched).
        trusted: bool,
        /// As in [`ReceiverTick`](Self::ReceiverTick).
        awaits_leader: bool,
    },
    /// Our log is closed to all writers, and all its entries were reported.
    LogClosed {
        /// The step that [`CloseLog`](GroupEffect::CloseLog) carried.
        then: Closing,
    },
    /// We have adopted the log named by [`TakeOver`](GroupEffect::TakeOver), and the log has room: we lead.
    TookOver,
    /// A granter has reported a higher commit index, and our adopted log contains all entries up to it.
    Learned {
        /// The commit index.
        index: u64,
    },
    /// The leader that we granted has begun to write our log.
    Followed {
        /// The granted ballot.
        ballot: Ballot,
        /// Index of the last entry that is kept.
        base: u64,
        /// Index of the leader's first entry in its ballot.
        first: u64,
    },
    /// Our log is cut off behind an entry, because another log was adopted.
    CutOff {
        /// Index of the last entry that is kept.
        last: u64,
    },
    /// We begin to write the log of a follower.
    FollowerAdded {
        /// Slot of the follower.
        slot: u8,
        /// Incarnation of the follower.
        incarnation: u32,
        /// Position from which its memory holds its log.
        held_from: u64,
    },
    /// A replica lets us write its log, and our log does not reach back to its end.
    OutOfReach {
        /// Slot of the follower.
        slot: u8,
        /// Position up to which its log equals ours; `None` if unknown.
        end: Option<u64>,
    },
    /// We cannot write a follower's log any more, until it grants again.
    FollowerRemoved {
        /// Slot of the follower.
        slot: u8,
    },
    /// A follower that is not admitted yet holds all of our log.
    CaughtUp {
        /// Slot of the follower.
        slot: u8,
        /// Incarnation of the follower.
        incarnation: u32,
    },
    /// A write of ours has reached a follower's memory.
    Landed {
        /// Slot of the follower.
        slot: u8,
        /// Number of the write. Numbers rise over all followers.
        number: u64,
    },
    /// A session reads from us as leader, so a lease would be of use.
    LeaseWanted {
        /// Our clock.
        now: Duration,
    },
    /// An operator wants the log to stop waiting for a follower.
    Evict {
        /// Slot of the follower.
        slot: u8,
    },
    /// We hand leadership over, so that leaders spread.
    HandsOver {
        /// Slot of the next leader.
        to: u8,
    },
    /// The process of our leader has certainly ended, so our promise of a lease is void.
    LeaderDied,
    /// The replica that we granted can write our log now, and is sent the grant.
    Opened,
    /// A replica asks again for a grant that was already sent to it, over a connection that has not changed since.
    AskedAgain {
        /// The request.
        asked: Asked,
        /// As in [`ReceiverTick`](Self::ReceiverTick).
        awaits_leader: bool,
        /// Whether the grant has left this replica: nothing for the asking replica is still queued.
        sent: bool,
    },
    /// As candidate, we cannot adopt the log named by [`TakeOver`](GroupEffect::TakeOver): it does not reach back to
    /// the end of ours.
    CannotAdopt {
        /// Slot of the log.
        of: u8,
    },
    /// Once a tick while our state differs from the group's.
    Diverged {
        /// Slots whose replicas hold the group's state.
        held_by: Slots,
    },
    /// Once a tick: a receiver of our state may have stopped.
    SenderTick,
    /// Once a tick: we may need a state.
    ReceiverTick {
        /// Whether the header of the leader that we granted has yet to arrive.
        awaits_leader: bool,
    },
    /// A slot is not sent our state any more: we write its log, or the replica is gone.
    StopsSending { slot: u8 },
    /// Our copy of another replica's state is dropped: it is malformed, or is a state that we may not take.
    StopsReceiving,
    /// Our disk holds more than before. It occurs only if the cluster is durable.
    Durable(OnDisk),
    /// A replica that begins with what its disk holds: the next of what it had promised, seen committed, or delivered.
    Replay(Replay),
    /// Our leader has fed us its log up to entry `commit`, which it knows to be committed, and it had delivered everything
    /// up to `delivered` by what stands there.
    Fed { commit: u64, delivered: Rank },
    /// Our leader has fed us all that it had of its log: from there on it writes our own.
    FedAll,
}

/// The reason for which our log is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// We set out to lead.
    SetOut(Cause),
    /// We grant this request.
    Grant(Asked),
}

/// An action that the group log requires of its caller, other than appending an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEffect {
    /// Close our log to all writers, read its complete entries, and [report that](GroupEvent::LogClosed).
    CloseLog {
        /// The step that follows.
        then: Closing,
    },
    /// We have set out to lead. Stop writing the followers' logs: their grants were for an earlier ballot.
    SetsOut {
        /// Our ballot.
        ballot: Ballot,
        cause: Cause,
    },
    /// We cannot set out to lead: no ballot is left.
    NoBallotLeft,
    /// Ask a replica to let us write its log.
    Ask {
        /// Slot of the receiver.
        to: u8,
        question: Question,
    },
    /// Let the sender of a request write our closed log, and report the log's content to it. Stop writing the
    /// followers' logs, if we led.
    Grant(Asked),
    /// Grant the same request again: the answer or the connection was lost.
    GrantAgain(Asked),
    /// Send a replica our grant once more, after it has [asked again](GroupEvent::AskedAgain).
    TellGrant(Asked),
    /// Refuse a replica's ballot.
    Refuse {
        /// Slot of the receiver.
        to: u8,
        /// The highest ballot that we have granted.
        promised: Ballot,
    },
    /// The grant that was just received counts: keep its content.
    Keep {
        /// Slot of the granter.
        of: u8,
    },
    /// We are elected: adopt a granter's log, report [`TookOver`](GroupEvent::TookOver), and write the logs of all
    /// granters.
    TakeOver {
        /// Slot of the log to adopt; our own if no other is better.
        of: u8,
    },
    /// A replica lets us, its leader, write its log: begin to.
    Admit { slot: u8 },
    /// Ask all others to promise us a lease.
    AskForLease {
        /// Number of the request.
        number: u64,
    },
    /// Send our leader the promise of a lease.
    PromiseLease {
        /// Slot of the leader.
        to: u8,
        /// Ballot of the leader.
        ballot: Ballot,
        /// Number of the request.
        number: u64,
    },
    /// Tell a replica that its `Join` is committed.
    TellAdmitted {
        /// Slot of the receiver.
        to: u8,
        /// The admitted incarnation.
        incarnation: u32,
    },
    /// Stop waiting for a slot: stop writing its log, and send it no state.
    GiveUp {
        slot: u8,
        /// True if it was evicted; false if it is a learner, which must take the state anew.
        evicted: bool,
    },
    /// Ask a replica to lead instead of us.
    TimeoutNow {
        /// Slot of the next leader.
        to: u8,
        /// The ballot in which we lead, or are a candidate.
        ballot: Ballot,
    },
    /// Send our state to a replica, and stop writing its log.
    SendState {
        /// Slot of the receiver.
        slot: u8,
        /// Incarnation of the receiver.
        incarnation: u32,
        /// True if a new copy begins and the one before is over; false if that one continues.
        anew: bool,
        /// Where the receiver's committed log ends, if it may be [fed](super::transfer) with ours instead.
        log: Option<Cursor>,
    },
    /// Our state is not sent any more: drop the copy.
    DropCopy,
    /// Drop the copy: its receiver takes nothing more, or has all of our state and does not let us write its log.
    /// Otherwise other learners would not be served because of it.
    GiveUpReceiver {
        slot: u8,
        /// The stage that the transfer had reached.
        stage: Stage,
    },
    /// A receiver has refused our state, and all other replicas have one: another replica is to lead, and send its own
    /// state to both of us.
    Accused {
        /// Slot of the receiver.
        slot: u8,
        /// Incarnation of the receiver.
        incarnation: u32,
    },
    /// For long the others have applied what we cannot deliver: we need a state.
    LeftBehind,
    /// Ask all other replicas for a state, or to be admitted.
    AskForState(Ask),
    /// A replica that has caught up is a member of the committed view.
    IsMember { slot: u8, incarnation: u32 },
}

impl<R: LogRecord> GroupLog<R> {
    /// Handles a request to write our log.
    pub(crate) fn prepare<E: From<GroupEffect>>(
        &mut self,
        asked: Asked,
        admitted: &[u32],
        effects: &mut Vec<E>,
    ) {
        let Asked { by: to, question: Question { ballot, leads, forced }, .. } = asked;
        if ballot.slot() != to {
            return;
        }
        let me = usize::from(self.config.me.slot);
        if admitted.get(me) == Some(&self.config.incarnation) {
            self.hear_admitted(ballot);
        }
        let effect = match self.judge(ballot, leads, forced) {
            GrantDecision::Ignore | GrantDecision::Wait => return,
            GrantDecision::Refuse => GroupEffect::Refuse { to, promised: self.election.promised },
            GrantDecision::GrantAgain => GroupEffect::GrantAgain(asked),
            GrantDecision::Grant => GroupEffect::CloseLog { then: Closing::Grant(asked) },
        };
        effects.push(effect.into());
    }

    /// Sets out to lead, unless that must wait or is impossible. Returns whether it does.
    pub(crate) fn set_out<E: From<GroupEffect>>(
        &mut self,
        cause: Cause,
        effects: &mut Vec<E>,
    ) -> bool {
        let cause = self.prevailing(cause);
        if self.puts_off(cause) {
            return false;
        }
        let can = self.has_ballots_left();
        let close = GroupEffect::CloseLog { then: Closing::SetOut(cause) };
        effects.push(if can { close } else { GroupEffect::NoBallotLeft }.into());
        can
    }

    /// A replica asks again for a grant that it has. The grant is sent once more, if nothing has come of it for long.
    /// The grant or the answer to it was lost, for example when a channel was refused for lack of memory and its queue
    /// was dropped; nothing else would repeat it. Our log is unchanged until the leader's header arrives.
    pub(crate) fn asked_again<E: From<GroupEffect>>(
        &mut self,
        asked: Asked,
        awaits_leader: bool,
        sent: bool,
        effects: &mut Vec<E>,
    ) {
        let waits = awaits_leader && self.lagging().is_none();
        let due = self.now_ms >= self.election.granted_ms + self.config.timeout_ms;
        if waits && due && sent {
            self.election.granted_ms = self.now_ms;
            effects.push(GroupEffect::TellGrant(asked).into());
        }
    }

    /// Our log is closed, and we do not lead any more: executes the next step.
    pub(crate) fn closed<E: From<GroupEffect>>(&mut self, then: Closing, effects: &mut Vec<E>) {
        self.forget_put_off();
        match then {
            Closing::Grant(asked) => self.promise(asked.question.ballot),
            Closing::SetOut(cause) => {
                let ballot = self.campaign(cause);
                effects.push(GroupEffect::SetsOut { ballot, cause }.into());
            }
        }
        self.await_promise(then);
        self.speak_of_promise(effects);
    }

    /// Says what we have promised, once it may be said: grants what was asked for, or asks for grants.
    pub(crate) fn speak_of_promise<E: From<GroupEffect>>(&mut self, effects: &mut Vec<E>) {
        match self.take_promised() {
            None => {}
            Some(Closing::Grant(asked)) => effects.push(GroupEffect::Grant(asked).into()),
            Some(Closing::SetOut(_)) => {
                let best = self.elected();
                self.take_over(best, effects);
                self.ask_now(effects);
            }
        }
    }

    /// A replica lets us write its log.
    pub(crate) fn hear_grant<E: From<GroupEffect>>(
        &mut self,
        by: u8,
        (ballot, incarnation): (Ballot, u32),
        last: (Ballot, u64),
        named: &[u32],
        applied: Rank,
        effects: &mut Vec<E>,
    ) {
        if self.leads() {
            if ballot == self.ballot() {
                self.granter_has_applied(by, applied);
                effects.push(GroupEffect::Admit { slot: by }.into());
            }
            return;
        }
        let other = |(asked, _)| !guard!(Mutant::GrantOfAnyBallotCounts, asked == ballot);
        if self.asks().is_none_or(other) {
            return;
        }
        self.granter_has_applied(by, applied);
        effects.push(GroupEffect::Keep { of: by }.into());
        let best = self.granted(by, incarnation, last, named.to_vec());
        self.take_over(best, effects);
    }

    /// Adopts the best log once we are elected, if that log's view contains us. The group may have gone on without us,
    /// and have admitted another incarnation of ours.
    fn take_over<E: From<GroupEffect>>(&self, best: Option<u8>, effects: &mut Vec<E>) {
        if let Some(of) = best.filter(|best| self.is_named_by(*best)) {
            effects.push(GroupEffect::TakeOver { of }.into());
        }
    }

    /// Our leader, or a candidate, asks us to lead instead.
    pub(crate) fn succeed<E: From<GroupEffect>>(&mut self, ballot: Ballot, effects: &mut Vec<E>) {
        let asked = ballot == self.election.promised;
        if asked && self.role == Role::Follower && !self.is_silent() {
            self.election.cold_start.waited_for_us();
            self.set_out(Cause::Transfer, effects);
        }
    }

    /// All heartbeats were read. Sets out to lead if it is time, and returns true; otherwise repeats requests and
    /// reports that may have been lost, and returns false.
    pub(crate) fn watched<E: From<GroupEffect>>(
        &mut self,
        trusted: bool,
        effects: &mut Vec<E>,
    ) -> bool {
        if self.waited_long_enough() && self.role == Role::Candidate && self.is_promise_durable() {
            let best = self.elected();
            self.take_over(best, effects);
        }
        let cause = self.is_due().or_else(|| self.wants_to_lead());
        let cause = cause.filter(|_| trusted);
        if cause.is_some_and(|cause| self.set_out(cause, effects)) {
            return true;
        }
        for to in self.others().filter(|slot| self.may_not_know_its_join(*slot)) {
            let incarnation = self.members.view.member(to).incarnation;
            effects.push(GroupEffect::TellAdmitted { to, incarnation }.into());
        }
        self.ask_now(effects);
        false
    }

    /// Asks all replicas that have not let us write their logs, if it is time.
    fn ask_now<E: From<GroupEffect>>(&mut self, effects: &mut Vec<E>) {
        let Some(question) = self.asks_now() else { return };
        let feeds = |to: u8| self.follower(to).is_some();
        let answered = |to: &u8| if question.leads { feeds(*to) } else { self.has_grant_of(*to) };
        // A receiver of our state grants once it has the state, not with the log that it had.
        let takes = |to: &u8| matches!(self.sends_state(), Some((slot, Stage::Sending { .. })) if slot == *to);
        let asked = self.others().filter(|to| !answered(to) && !takes(to));
        effects.extend(asked.map(|to| GroupEffect::Ask { to, question }.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Record, config};
    use super::*;
    use crate::ids::{GroupId, ReplicaId};
    use crate::view::View;

    const START_MS: u64 = 1_000;
    /// The ballot in which slot 0 leads, granted by slot 1.
    const LED: Ballot = Ballot::new(1, 0, 0);

    fn asked() -> Asked {
        let question = Question { ballot: LED, leads: true, forced: false };
        Asked { by: 0, question, attempt: 0, from: Cursor::START }
    }

    /// Slot 1 of three, which has just opened its log to slot 0.
    fn granter() -> GroupLog<Record> {
        let me = ReplicaId::new(GroupId(0), 1);
        let mut log = GroupLog::new(config(me, 0, 3), View::first(3));
        log.tick(START_MS);
        log.promise(LED);
        log.opened();
        log
    }

    /// Whether it sends its grant once more when it is asked at that time.
    fn tells(log: &mut GroupLog<Record>, now_ms: u64, awaits_leader: bool, sent: bool) -> bool {
        log.tick(now_ms);
        let mut effects: Vec<GroupEffect> = Vec::new();
        log.asked_again(asked(), awaits_leader, sent, &mut effects);
        assert!(effects.iter().all(|it| *it == GroupEffect::TellGrant(asked())), "{effects:?}");
        !effects.is_empty()
    }

    #[test]
    fn a_grant_is_repeated_once_a_timeout() {
        let mut log = granter();
        let asks = [1_000, 1_019, 1_020, 1_021, 1_039, 1_040];
        let told = asks.map(|now_ms| tells(&mut log, now_ms, true, true));
        assert_eq!(told, [false, false, true, false, false, true]);
    }

    #[test]
    fn a_grant_is_told_again_only_while_nothing_has_come_of_it() {
        let mut log = granter();
        assert!(!tells(&mut log, 1_100, false, true), "the leader has begun");
        assert!(!tells(&mut log, 1_100, true, false), "it is still to be sent");
        log.lags_behind(LED);
        assert!(
            !tells(&mut log, 1_100, true, true),
            "the leader's log does not reach back to ours"
        );
        log.lags_no_more();
        assert!(tells(&mut log, 1_100, true, true));
    }
}
