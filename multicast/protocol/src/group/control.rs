//! What the replicas of a group tell each other of who leads it, what else happens to who leads, and what follows.
//!
//! A replica closes its log before it says anything of what the log holds. That takes the caller to the memory: so
//! [`CloseLog`](GroupEffect::CloseLog) says what is to come after it, and [`LogClosed`](GroupEvent::LogClosed) says so again.
//! Whatever the log held was told in between.

use alloc::vec::Vec;
use core::time::Duration;

use super::election::{Cause, Verdict};
use super::frame::Cursor;
use super::progress::Applied;
use super::record::LogRecord;
use super::transfer::Stage;
use super::{GroupLog, Role};
use crate::ballot::Ballot;
use crate::guard;
use crate::mutants::Mutant;

/// The question of a candidate or a leader to all who have not granted its ballot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The ballot that is to be granted.
    pub ballot: Ballot,
    /// Whether who asks was elected in it, and only wants to write the log.
    pub leads: bool,
    /// Whether even a leader that is well shall be given up for it.
    pub forced: bool,
}

/// A question that was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Who asks.
    pub by: u8,
    /// What.
    pub question: Question,
    /// Which time it is: raised when what was granted was lost.
    pub attempt: u32,
    /// Up to where the asking one knows the log to be committed: it may lack what comes behind.
    pub from: Cursor,
}

/// What another replica of our group tells us.
#[derive(Clone, Copy, Debug)]
pub enum Control<'a> {
    /// It wants to write our log.
    Prepare {
        /// How it asks.
        asked: Asked,
        /// The incarnations of its committed view, by slot.
        admitted: &'a [u32],
    },
    /// It lets us write its log.
    Granted {
        /// In which ballot.
        ballot: Ballot,
        /// Which incarnation of it does.
        incarnation: u32,
        /// The end of its log: the last entry's birth and index.
        last: (Ballot, u64),
        /// The incarnations that count, by slot, at the end of its log.
        named: &'a [u32],
        /// Up to where it has applied what it delivers.
        applied: Applied,
    },
    /// It does not let us, because it has granted this ballot, or its leader is well.
    Refused {
        /// The highest ballot that it has granted.
        promised: Ballot,
    },
    /// Whoever leads in this ballot, or follows there, knows the `Join` of an incarnation of ours to be committed.
    Admitted {
        /// Which ballot.
        ballot: Ballot,
        /// Which incarnation.
        incarnation: u32,
    },
    /// It leads in this ballot, and asks us to let nobody else lead for a while.
    Lease {
        /// Which ballot.
        ballot: Ballot,
        /// Which time it asks.
        number: u64,
        /// What our clock shows. It may not be of before the question came.
        now: Duration,
    },
    /// It has promised us such a lease.
    LeasePromised {
        /// In which ballot of ours.
        ballot: Ballot,
        /// What it answers.
        number: u64,
        /// Which incarnation of it.
        incarnation: u32,
        /// What our clock shows.
        now: Duration,
    },
    /// It leads in this ballot, or asks to, and wants us to lead instead.
    Succeed {
        /// Which ballot.
        ballot: Ballot,
    },
}

/// What happens to a replica as one of its group, and is no message.
#[derive(Clone, Copy, Debug)]
pub enum GroupEvent {
    /// We have looked at all heartbeats: it is time to see who is to lead.
    Watched {
        /// Whether our state is the group's, as far as is known: one that would answer from another one does not set out.
        trusted: bool,
    },
    /// We are to set out to lead, as soon as what we have promised allows it.
    SetOut {
        /// Why.
        cause: Cause,
    },
    /// Nobody can write our log any more, and all that it holds was told.
    LogClosed {
        /// As it was asked for.
        then: Closing,
    },
    /// Our log is the one that was to be [taken over](GroupEffect::TakeOver), and has room: we lead.
    TookOver,
    /// Everything up to this entry is committed: somebody said so with its grant, and the log that we took over has it.
    Learned {
        /// Index of the last such entry.
        index: u64,
    },
    /// The leader that we have let in has begun to write our log.
    Followed {
        /// Its ballot: the one that we granted.
        ballot: Ballot,
        /// Index of the last entry that stays.
        base: u64,
        /// Index of its own first entry.
        first: u64,
    },
    /// What our log held behind an entry is cut off: another log was chosen.
    CutOff {
        /// Index of the last entry that stays.
        last: u64,
    },
    /// We begin to write the log of a follower.
    Feeds {
        /// Which slot.
        slot: u8,
        /// Which incarnation of it.
        incarnation: u32,
        /// From which position on its memory holds its log.
        held_from: u64,
    },
    /// A replica lets us write its log, and ours does not reach back to where that ends.
    OutOfReach {
        /// Which slot.
        slot: u8,
        /// Position of its end, as far as our logs are known to be the same.
        end: Option<u64>,
    },
    /// We write it no more, until it lets us in again.
    FeedsNoMore {
        /// Which slot.
        slot: u8,
    },
    /// All that our log holds is in a follower's memory, whose incarnation does not count yet.
    CaughtUp {
        /// Which slot.
        slot: u8,
        /// Which incarnation of it.
        incarnation: u32,
    },
    /// A write of ours is in a follower's memory.
    Landed {
        /// Which slot.
        slot: u8,
        /// Which write. Numbers rise, for all followers together.
        number: u64,
    },
    /// Somebody asks us, as leader, for what we hold: a lease is of use.
    LeaseWanted {
        /// What our clock shows.
        now: Duration,
    },
    /// A replica is to be asked to lead instead of us, so that leaders spread.
    HandsOver {
        /// Which slot.
        to: u8,
    },
    /// The process of the leader that we follow has certainly ended: it answers nobody.
    LeaderDied,
}

/// Why our log is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// We set out to lead.
    SetOut(Cause),
    /// We grant what was asked.
    Grant(Asked),
}

/// What is to be done for the group, and is no entry of its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupEffect {
    /// Let nobody write our log any more, read what is whole in it, and [say so](GroupEvent::LogClosed).
    CloseLog {
        /// What comes then.
        then: Closing,
    },
    /// Our log is closed, and we have set out to lead: what others let us write until now, we write no more.
    SetsOut {
        /// In which ballot.
        ballot: Ballot,
        /// Why.
        cause: Cause,
    },
    /// We would set out to lead, and there is no ballot left.
    NoBallotLeft,
    /// Ask a replica to let us write its log.
    Ask {
        /// Whom.
        to: u8,
        /// What.
        question: Question,
    },
    /// Let whoever asked write our log, which is closed to all others, and tell it what the log holds. What others let us
    /// write until now, we write no more.
    Grant(Asked),
    /// It asks again for what it was granted: the answer was lost, or the connection.
    GrantAgain(Asked),
    /// Tell a replica that its ballot is not granted, and what is.
    Refuse {
        /// Whom.
        to: u8,
        /// The highest ballot that we have granted.
        promised: Ballot,
    },
    /// What a replica has just told us with its grant counts: keep it.
    Keep {
        /// Whose.
        of: u8,
    },
    /// We are elected: make our log what a replica told us with its grant, [say so](GroupEvent::TookOver), and write the logs
    /// of all whose grants were kept.
    TakeOver {
        /// Whose log; our own, if it is as good as any.
        of: u8,
    },
    /// We lead, and a replica lets us write its log.
    Admit {
        /// Which one.
        slot: u8,
    },
    /// Ask all others to promise us a lease.
    AskForLease {
        /// Which time we ask.
        number: u64,
    },
    /// Tell our leader that it has its lease.
    PromiseLease {
        /// Whom.
        to: u8,
        /// In which ballot it leads.
        ballot: Ballot,
        /// What it asked.
        number: u64,
    },
    /// Tell a replica that its `Join` is committed.
    TellAdmitted {
        /// Whom.
        to: u8,
        /// Which incarnation of it is admitted.
        incarnation: u32,
    },
    /// A slot is waited for no more: write its log no more, and give it no state.
    GiveUp {
        /// Which slot.
        slot: u8,
        /// Whether it was evicted; otherwise it learns, and takes the state anew.
        evicted: bool,
    },
    /// Ask a replica to lead instead of us.
    Succeed {
        /// Which one.
        to: u8,
    },
}

impl<R: LogRecord> GroupLog<R> {
    /// A replica wants to write our log.
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
            Verdict::Ignore | Verdict::Wait => return,
            Verdict::Refuse => GroupEffect::Refuse { to, promised: self.election.promised },
            Verdict::GrantAgain => GroupEffect::GrantAgain(asked),
            Verdict::Grant => GroupEffect::CloseLog { then: Closing::Grant(asked) },
        };
        effects.push(effect.into());
    }

    /// Sets out to lead, unless that must wait, or we cannot. Returns whether it does.
    pub(crate) fn set_out<E: From<GroupEffect>>(
        &mut self,
        cause: Cause,
        effects: &mut Vec<E>,
    ) -> bool {
        if self.puts_off(cause) {
            return false;
        }
        let can = self.has_ballots_left();
        let close = GroupEffect::CloseLog { then: Closing::SetOut(cause) };
        effects.push(if can { close } else { GroupEffect::NoBallotLeft }.into());
        can
    }

    /// Our log is closed, and we lead no more.
    pub(crate) fn closed<E: From<GroupEffect>>(&mut self, then: Closing, effects: &mut Vec<E>) {
        match then {
            Closing::Grant(asked) => {
                self.promise(asked.question.ballot);
                self.forget_put_off();
                effects.push(GroupEffect::Grant(asked).into());
            }
            Closing::SetOut(cause) => {
                let ballot = self.campaign(cause);
                effects.push(GroupEffect::SetsOut { ballot, cause }.into());
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
        applied: Applied,
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

    /// If we are elected, and the log that is to be adopted names us: the group may have gone on without us, and have let
    /// another incarnation of ours in.
    fn take_over<E: From<GroupEffect>>(&self, best: Option<u8>, effects: &mut Vec<E>) {
        if let Some(of) = best.filter(|best| self.is_named_by(*best)) {
            effects.push(GroupEffect::TakeOver { of }.into());
        }
    }

    /// Our leader, or a candidate, asks us to lead instead.
    pub(crate) fn succeed<E: From<GroupEffect>>(&mut self, ballot: Ballot, effects: &mut Vec<E>) {
        let asked = ballot == self.election.promised;
        if asked && self.role == Role::Follower && !self.is_silent() {
            self.set_out(Cause::Succession, effects);
        }
    }

    /// All heartbeats were looked at: sets out to lead if it is time, and says so; or goes on as before, and tells and asks
    /// again.
    pub(crate) fn watched<E: From<GroupEffect>>(
        &mut self,
        trusted: bool,
        effects: &mut Vec<E>,
    ) -> bool {
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

    /// Asks whoever has not let us write its log, if it is time.
    fn ask_now<E: From<GroupEffect>>(&mut self, effects: &mut Vec<E>) {
        let Some(question) = self.asks_now() else { return };
        let feeds = |to: u8| self.follower(to).is_some();
        let answered = |to: &u8| if question.leads { feeds(*to) } else { self.has_grant_of(*to) };
        // One that is sent our state lets us in when it has it, not with the log that it had.
        let takes = |to: &u8| matches!(self.sends_state(), Some((slot, Stage::Sending { .. })) if slot == *to);
        let asked = self.others().filter(|to| !answered(to) && !takes(to));
        effects.extend(asked.map(|to| GroupEffect::Ask { to, question }.into()));
    }
}
