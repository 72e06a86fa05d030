//! The sending side: who receives our state, and how far the transfer has come.
//!
//! A copy of which the receiver sees nothing yet is not begun anew with each request. The receiver asks until a part
//! has arrived, and if both are slow, a request is read after the answer to the one before was sent.
//!
//! A deposed sender keeps the copy for a while. If elections are frequent, the same replica often leads again soon, and
//! copies that began anew each time would never end. The machine contains what is committed, under any leader, so the
//! copy remains valid: what has changed since is copied again.

use super::super::GroupLog;
use super::super::ordering::{Next, Ordering};
use super::super::record::LogRecord;
use super::{ASK_EVERY_MS, CopyId, Extent, Part, Request};
use crate::backoff::longer;
use crate::ballot::Ballot;
use crate::mutants::{Mutant, planted};

/// Time for which a receiver may take nothing of a state, or of the log behind it, before it is given up.
const UNANSWERED_MS: u64 = 1_000;

/// The answer to a request for a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No answer: the replica asks again if it needs something. What it asked for may be in flight.
    Nothing,
    /// Its copy continues. We stop writing its log.
    Resume,
    /// A new copy begins, and the one before is over. We stop writing its log.
    Begin,
}

/// What is left to send behind a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Too much to end the copy.
    Much,
    /// So little that the copy can end as soon as the machine has all results that are committed.
    Little,
    /// Nothing: the receiver is asked at once to let us write its log.
    Nothing,
}

/// The stage of a transfer of our state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parts are being sent.
    Sending {
        /// [Little](Left::Little) was left behind the last part.
        ripe: bool,
    },
    /// We were deposed: nothing is sent until the receiver asks for the rest and we may send it.
    Paused {
        /// As in [`Sending`](Self::Sending).
        ripe: bool,
    },
    /// All was sent. From there on our log is kept for the receiver, until we write its log.
    Sent,
}

/// The consequence of a receiver's refusal of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The copy is not one that we are sending.
    Stray,
    /// The copy is given up.
    GivenUp,
    /// The copy is given up, and all other replicas have a state: another replica is to lead, and send its own to both
    /// of us.
    Accuses,
}

/// A transfer of our state.
struct Sending {
    slot: u8,
    /// Incarnation of the receiver.
    incarnation: u32,
    /// What was sent.
    sent: Extent,
    stage: Stage,
    /// Times at which this copy began and at which its last part was sent: `began_ms <= sent_ms`.
    began_ms: u64,
    sent_ms: u64,
    /// Number of copies that were begun for this receiver before this one.
    times: u32,
}

impl Sending {
    /// Whether the parts that a receiver with `taken` lacks may be in flight. The allowed time grows with each copy.
    fn is_on_its_way(&self, taken: Option<Extent>, now_ms: u64) -> bool {
        let takes = taken.is_some_and(|taken| taken.copy == self.sent.copy);
        let since = if takes { self.sent_ms } else { self.began_ms };
        let under_way = matches!(self.stage, Stage::Sending { .. });
        under_way && now_ms < since + longer(ASK_EVERY_MS, self.times)
    }
}

/// The transfers of our state: one at a time.
#[derive(Default)]
pub(in crate::group) struct Sender {
    sending: Option<Sending>,
    /// Number of copies that were begun in this incarnation: `sending.sent.copy.number <= copies`.
    copies: u64,
}

impl Sender {
    fn serves_another(&self, slot: u8) -> bool {
        self.sending.as_ref().is_some_and(|sending| sending.slot != slot)
    }

    /// A replica that may receive our state asks for it. `me` is our own incarnation.
    fn asked(&mut self, request: &Request, me: u32, now_ms: u64) -> Answer {
        let Request { slot, incarnation, taken, .. } = *request;
        let same = |it: &&mut Sending| (it.slot, it.incarnation) == (slot, incarnation);
        let mut times = 0;
        if let Some(before) = self.sending.as_mut().filter(same) {
            if before.is_on_its_way(taken, now_ms) {
                return Answer::Nothing;
            }
            if let Stage::Sending { ripe } | Stage::Paused { ripe } = before.stage
                && taken == Some(before.sent)
            {
                (before.stage, before.sent_ms) = (Stage::Sending { ripe }, now_ms);
                return Answer::Resume;
            }
            times = before.times + 1;
        }
        self.copies += 1;
        let copy = CopyId { sender: me, number: self.copies };
        self.sending = Some(Sending {
            slot,
            incarnation,
            sent: Extent { copy, next: 0 },
            stage: Stage::Sending { ripe: false },
            began_ms: now_ms,
            sent_ms: now_ms,
            times,
        });
        Answer::Begin
    }

    /// Pauses the transfer because we do not lead any more. A completely sent copy is over: the next leader does not
    /// know of it.
    pub(in crate::group) fn pause(&mut self) {
        let Some(sending) = &mut self.sending else { return };
        match sending.stage {
            Stage::Sending { ripe } => sending.stage = Stage::Paused { ripe },
            Stage::Paused { .. } => {}
            Stage::Sent => self.sending = None,
        }
    }

    pub(super) fn stop(&mut self) {
        self.sending = None;
    }

    /// The sender after another state has replaced the one that was sent.
    pub(super) const fn replaced(&self) -> Self {
        Self { sending: None, copies: self.copies }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// A replica asks for our state, or to be admitted. A replica with a state is sent no other: while it is sent one,
    /// it would not be asked for its grant. A replica that lags behind another leader takes our state only after we
    /// have reported that our log does not reach back to its end either. `trusted` says that our state is the group's.
    pub(crate) fn asked_for_state(
        &mut self,
        request: &Request,
        trusted: bool,
        next: Option<Next>,
        ordering: &impl Ordering,
    ) -> Answer {
        let Request { slot, incarnation, needs, applied, .. } = *request;
        let stateless = needs == Some(Ballot::ZERO);
        self.transfer.learners.asks(slot, incarnation, self.now_ms, stateless);
        self.saw_learner(slot, incarnation, stateless);
        let takes = needs.is_some_and(|by| by == Ballot::ZERO || by == self.ballot());
        let sends = self.seeds(slot, incarnation)
            || self.leads() && self.may_send_state(applied, next, ordering);
        if !takes || !sends || !trusted || self.transfer.sender.serves_another(slot) {
            return Answer::Nothing;
        }
        let answer = self.transfer.sender.asked(request, self.config.incarnation, self.now_ms);
        if answer != Answer::Nothing {
            self.gives_state(slot);
        }
        answer
    }

    /// The slot that is being sent our state, or was sent it and has not let us write its log; and the stage of the
    /// transfer.
    pub fn sends_state(&self) -> Option<(u8, Stage)> {
        self.transfer.sender.sending.as_ref().map(|sending| (sending.slot, sending.stage))
    }

    /// The name of the next part, which is sent now.
    ///
    /// # Panics
    /// If our state is sent to no replica.
    pub fn sends_part(&mut self, left: Left) -> Part {
        let sending = self.transfer.sender.sending.as_mut().expect("somebody is sent our state");
        let Extent { copy, next: number } = sending.sent;
        sending.sent.next += 1;
        sending.sent_ms = self.now_ms;
        let part = Part { incarnation: sending.incarnation, copy, number };
        if left == Left::Nothing {
            sending.stage = Stage::Sent;
            let slot = sending.slot;
            self.has_seeded(slot);
            self.ask_soon();
        } else {
            sending.stage = Stage::Sending { ripe: left == Left::Little };
        }
        part
    }

    /// Stops sending our state to a slot: we write its log, or its replica is gone. Returns whether there was a
    /// transfer to it.
    pub(crate) fn stops_sending(&mut self, slot: u8) -> bool {
        self.transfer.sender.sending.take_if(|sending| sending.slot == slot).is_some()
    }

    /// Gives up a receiver that takes nothing more, or that has all of our state and does not let us write its log:
    /// otherwise other learners would not be served, and the log would not be freed. A receiver that continues asks
    /// anew. Returns the slot and its stage.
    pub(crate) fn gives_up_unanswered(&mut self) -> Option<(u8, Stage)> {
        let now = self.now_ms;
        let silent = |it: &mut Sending| {
            now >= it.sent_ms + UNANSWERED_MS && !planted(Mutant::StoppedLearnerKept)
        };
        let sending = self.transfer.sender.sending.take_if(silent)?;
        Some((sending.slot, sending.stage))
    }

    /// A receiver refuses a copy of our state, because the copy does not match its digest. Either memory may have
    /// failed, and the digest does not show which: ours follows what was executed, not what memory contains now. The
    /// refusal accuses us, unless a third replica asks for a state: it may have been accused or refused before.
    pub(crate) fn copy_is_refused(&mut self, slot: u8, incarnation: u32, copy: CopyId) -> Refusal {
        let ours =
            |it: &Sending| (it.slot, it.incarnation, it.sent.copy) == (slot, incarnation, copy);
        if !self.leads() || !self.transfer.sender.sending.as_ref().is_some_and(ours) {
            return Refusal::Stray;
        }
        self.transfer.sender.stop();
        let others = self.others().filter(|it| *it != slot);
        let asks = self.transfer.learners.any_asks(others, self.now_ms);
        if asks { Refusal::GivenUp } else { Refusal::Accuses }
    }
}
