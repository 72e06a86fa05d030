//! Who is sent our state, and how far that has come.
//!
//! A copy that its receiver does not see yet is not begun anew with each question: the receiver asks until something is
//! there, and where both are slow a question is read after the answer to the one before was sent.
//!
//! A sender that is deposed keeps the copy for a while. Where elections are frequent, the same replica often leads again
//! after a moment, and copies that began anew each time would never end. The machine has what is committed, whoever
//! leads, so the copy stays what it was: what has changed since is copied again.

use super::super::GroupLog;
use super::super::ordering::{Next, Ordering};
use super::super::record::LogRecord;
use super::{ASK_EVERY_MS, CopyId, Extent, Part, Request};
use crate::backoff::longer;
use crate::ballot::Ballot;
use crate::mutants::{Mutant, planted};

/// How long a receiver may take nothing of a state, or of the log behind it, before it is given up.
const UNANSWERED_MS: u64 = 1_000;

/// What a replica that asks is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing: it asks again if it needs something. What it asked for may be on its way.
    Nothing,
    /// The copy that it was sent goes on. We write its log no more.
    Resume,
    /// A copy is begun, and the one before is over. We write its log no more.
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

/// How far the transfer of a state has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Parts are sent.
    Sending {
        /// [Little](Left::Little) was left behind the last one.
        ripe: bool,
    },
    /// We were deposed: nothing is sent until the receiver asks for the rest, and we may send it.
    Paused {
        /// As when parts are sent.
        ripe: bool,
    },
    /// All was sent: from there on our log is kept for the receiver, until we write its log.
    Sent,
}

/// What becomes of a copy that its receiver has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is none that we send.
    Stray,
    /// It is given up.
    GivenUp,
    /// It is given up, and all other replicas have a state: one of them shall lead, and send its own to both.
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
    /// Time at which this copy began, and at which its last part was sent: `began_ms <= sent_ms`.
    began_ms: u64,
    sent_ms: u64,
    /// Copies that were begun for this receiver before this one.
    times: u32,
}

impl Sending {
    /// Whether what a receiver lacks that has `taken` so much may be on its way. Each time it is given longer.
    fn is_on_its_way(&self, taken: Option<Extent>, now_ms: u64) -> bool {
        let takes = taken.is_some_and(|taken| taken.copy == self.sent.copy);
        let since = if takes { self.sent_ms } else { self.began_ms };
        let under_way = matches!(self.stage, Stage::Sending { .. });
        under_way && now_ms < since + longer(ASK_EVERY_MS, self.times)
    }
}

/// The transfer of our state: one at a time.
#[derive(Default)]
pub(in crate::group) struct Sender {
    sending: Option<Sending>,
    /// Copies that were begun in this incarnation: `sending.sent.copy.number <= copies`.
    copies: u64,
}

impl Sender {
    fn serves_another(&self, slot: u8) -> bool {
        self.sending.as_ref().is_some_and(|sending| sending.slot != slot)
    }

    /// A replica that may be sent our state, incarnation `me`, asks for it.
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

    /// We lead no more. Of a copy that was sent whole, the next leader does not know.
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

    /// What is known when another state takes the place of the one that was sent.
    pub(super) const fn replaced(&self) -> Self {
        Self { sending: None, copies: self.copies }
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// A replica asks for our state, or to be let in: one that has a state is sent no other, and would not be asked to
    /// let us write its log while it is sent one. A replica that another leader left behind takes our state only after we
    /// have told it that we have left it behind, too. `trusted` says that our state is what our group holds.
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
        self.saw_learner(slot, incarnation);
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

    /// Who is sent our state, or was and has not let us write its log, and how far that has come.
    pub fn sends_state(&self) -> Option<(u8, Stage)> {
        self.transfer.sender.sending.as_ref().map(|sending| (sending.slot, sending.stage))
    }

    /// The name of the next part, which is sent now.
    ///
    /// # Panics
    /// If nobody is sent our state.
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

    /// A slot is sent our state no more: we write its log, or it is gone. Returns whether a transfer to it is over.
    pub(crate) fn stops_sending(&mut self, slot: u8) -> bool {
        self.transfer.sender.sending.take_if(|sending| sending.slot == slot).is_some()
    }

    /// Gives up a receiver that takes nothing more, or has all of our state and does not let us write its log: other
    /// learners would not be served for its sake, and the log not be freed. If it goes on it asks anew. Returns who it
    /// was, and how far it had come.
    pub(crate) fn gives_up_unanswered(&mut self) -> Option<(u8, Stage)> {
        let now = self.now_ms;
        let silent = |it: &mut Sending| {
            now >= it.sent_ms + UNANSWERED_MS && !planted(Mutant::StoppedLearnerKept)
        };
        let sending = self.transfer.sender.sending.take_if(silent)?;
        Some((sending.slot, sending.stage))
    }

    /// A receiver refuses a copy of our state, which is not what its digest says. Either memory may have failed, and no
    /// digest tells whose: ours follows what was executed, and not what stands there now. It accuses us unless somebody
    /// else has no state, who may have been told so before.
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
