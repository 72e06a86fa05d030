//! The receiving side: whose state we need, and how much of it we have.

use super::super::GroupLog;
use super::super::record::LogRecord;
use super::{ASK_EVERY_MS, Extent, Part};
use crate::ballot::Ballot;

/// Time for which a receiver waits for the next part before it asks anew.
const PART_WAIT_MS: u64 = 300;
/// Time for which a follower waits for what the others have applied before it asks for their state, in timeouts.
const LAGGING_TIMEOUTS: u64 = 10;

/// A request to every other replica of our group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// As in a [`Request`](super::Request).
    pub needs: Option<Ballot>,
    /// Slot of the replica whose state we have a part of, and how much of it.
    pub taken: Option<(u8, Extent)>,
    /// Whether we can go on with the leader's log instead of its state.
    pub log: bool,
}

/// The effect of a part that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// It is not for us, or we need none: nothing changes.
    Ignored,
    /// It is not the next one: what we have of this or another copy is useless.
    Lost,
    /// It is taken, as the first of a copy. What we have of another copy is useless.
    First,
    /// It is taken, behind those that we have.
    Next,
}

/// A copy that we are receiving.
struct Receiving {
    /// Slot of the sender.
    from: u8,
    taken: Extent,
    /// Time at which the last part arrived.
    last_ms: u64,
}

impl Receiving {
    /// Whether a part from that slot is the next one.
    fn goes_on_with(&self, from: u8, part: &Part) -> bool {
        (self.from, self.taken) == (from, Extent { copy: part.copy, next: part.number })
    }
}

/// What we need of others' states, and what we have received.
#[derive(Default)]
pub(in crate::group) struct Receiver {
    /// The ballot of a leader whose log does not contain what we lack: `lagging <= promised`.
    lagging: Option<Ballot>,
    receiving: Option<Receiving>,
    /// Time of our last request.
    asked_ms: Option<u64>,
    /// Since when the others have applied what we have not delivered, and our number of deliveries at that time.
    stands_since: Option<(u64, u64)>,
}

impl Receiver {
    /// The receiver after another state has replaced the one before.
    pub(super) const fn replaced(&self) -> Self {
        let Self { asked_ms, stands_since, .. } = *self;
        Self { lagging: None, receiving: None, asked_ms, stands_since }
    }

    pub(in crate::group) fn drop_copy(&mut self) {
        self.receiving = None;
    }

    pub(super) const fn takes(&self) -> bool {
        self.receiving.is_some()
    }

    pub(in crate::group) fn catch_up(&mut self) {
        self.lagging = None;
    }

    /// Time since which a follower has delivered nothing, if it `lacks` what the others have applied. A follower that
    /// is only slow still delivers.
    fn stands_since(&mut self, lacks: bool, delivered: u64, now_ms: u64) -> Option<u64> {
        let since = self.stands_since.filter(|(_, before)| *before == delivered);
        self.stands_since = lacks.then_some(since.unwrap_or((now_ms, delivered)));
        self.stands_since.map(|(since, _)| since)
    }
}

impl<R: LogRecord> GroupLog<R> {
    /// The ballot of the leader whose log does not contain what we lack, if we lag.
    pub const fn lagging(&self) -> Option<Ballot> {
        self.transfer.receiver.lagging
    }

    /// The log of the leader of this ballot, or of the replica elected in it, does not contain what we lack. A late
    /// report about an earlier leader is ignored.
    pub(crate) fn lags_behind(&mut self, ballot: Ballot) {
        if ballot == self.election.promised {
            self.transfer.receiver.lagging = Some(ballot);
        }
    }

    /// Clears the lag: a leader is sent the end of our log again, and reports again if its own does not reach back to
    /// it.
    pub(crate) fn lags_no_more(&mut self) {
        self.transfer.receiver.catch_up();
    }

    /// Whether we may lag without knowing it. A leader does not, and a replica that knows its lag has recorded it.
    pub(crate) fn may_lag(&self) -> bool {
        !self.leads() && self.lagging().is_none()
    }

    /// Whether we have waited so long for what the others no longer send that we need the leader's state, like a
    /// replica whose log ended too early. `lacks` says whether the others have applied what we have not delivered;
    /// `awaits_leader`, whether the header of the leader that we granted has yet to arrive.
    pub(crate) fn notices_lag(&mut self, delivered: u64, awaits_leader: bool, lacks: bool) -> bool {
        let lacks = lacks && self.may_lag();
        let since = self.transfer.receiver.stands_since(lacks, delivered, self.now_ms);
        let follows = self.leader().is_some() && !awaits_leader;
        let wait_ms = LAGGING_TIMEOUTS * self.config.timeout_ms;
        let lags = since.is_some_and(|since| follows && self.now_ms >= since + wait_ms);
        if lags {
            self.lags_behind(self.election.promised);
        }
        lags
    }

    /// The request to send to all others, if one is due: for a state, or for admission. A learner sends requests until
    /// it is admitted, whether it needs a state or not: so all members count the same learners, and agree on whether
    /// the group is lost. A replica that has reported that it has no state also reports once that it has one.
    pub(crate) fn asks_for_state(&mut self) -> Option<Ask> {
        let (me, now) = (self.config.me.slot, self.now_ms);
        let stateless = self.lacks_state();
        let needs = if stateless { Some(Ballot::ZERO) } else { self.lagging() };
        let asks = needs.is_some() || self.is_silent() || self.transfer.learners.was_stateless(me);
        let receiver = &mut self.transfer.receiver;
        if !asks || receiver.asked_ms.is_some_and(|last| now < last + ASK_EVERY_MS) {
            return None;
        }
        receiver.asked_ms = Some(now);
        let receiving = receiver.receiving.as_ref();
        let takes = receiving.is_some_and(|receiving| now < receiving.last_ms + PART_WAIT_MS);
        let taken = receiving.map(|receiving| (receiving.from, receiving.taken));
        self.transfer.learners.asks(me, self.config.incarnation, now, stateless);
        Some(Ask { needs: needs.filter(|_| !takes), taken, log: self.can_be_fed() })
    }

    /// Whether our leader may feed us the log that we lack: everything that we know to be committed is committed there.
    ///
    /// It is not so if our group was recreated since, which may have undone what was committed; nor without disks, from
    /// which a leader reads what its memory has no more.
    fn can_be_fed(&self) -> bool {
        let promised = self.election.promised;
        let same = self.entries.ballot.generation() == promised.generation();
        let lags = self.lagging() == Some(promised) && promised.slot() != self.config.me.slot;
        self.config.durable && lags && same && !self.lacks_state()
    }

    /// A part of the log of our leader, in slot `from`, has arrived. It is taken only from the leader of the ballot that we
    /// have promised, while that leader writes nothing in our memory.
    pub fn takes_log(&mut self, from: u8, part: &Part) -> Reception {
        let of_our_leader = self.election.promised.slot() == from && self.can_be_fed();
        let incarnation = part.incarnation == self.config.incarnation;
        if !incarnation || !of_our_leader {
            return Reception::Ignored;
        }
        self.takes(from, part)
    }

    /// A part of the state of the replica in slot `from` has arrived. `ends` says that with it the received copy
    /// becomes our state.
    ///
    /// A replica that still has a log gives it up only for the leader behind which it lags: that leader has committed
    /// everything in it that was ever committed. Another election may have cleared the lag for the moment. Parts that
    /// arrive until its winner reports the lag again are kept, so that the copy has no gap; but the copy becomes our
    /// state only if we need it.
    pub fn takes_part(&mut self, from: u8, part: &Part, ends: bool) -> Reception {
        let needs = self.lacks_state() || self.lagging().is_some_and(|by| by.slot() == from);
        let receiver = &self.transfer.receiver;
        let next = receiver.receiving.as_ref().is_some_and(|it| it.goes_on_with(from, part));
        let gathers = next && !ends;
        if !(needs || gathers) || part.incarnation != self.config.incarnation {
            return Reception::Ignored;
        }
        self.takes(from, part)
    }

    /// Takes a part if it is the next one, or the first of a copy.
    fn takes(&mut self, from: u8, part: &Part) -> Reception {
        let receiver = &mut self.transfer.receiver;
        let next = receiver.receiving.as_ref().is_some_and(|it| it.goes_on_with(from, part));
        let first = part.number == 0;
        if !first && !next {
            receiver.drop_copy();
            return Reception::Lost;
        }
        let Part { copy, number, .. } = *part;
        let taken = Extent { copy, next: number + 1 };
        receiver.receiving = Some(Receiving { from, taken, last_ms: self.now_ms });
        // Until then the leader is well, and it would have to begin again if we led.
        self.stand_back_until(self.now_ms + PART_WAIT_MS);
        if first { Reception::First } else { Reception::Next }
    }

    /// Drops what was received: it is malformed, or a state that we may not take.
    pub(crate) fn stops_receiving(&mut self) {
        self.transfer.receiver.drop_copy();
    }
}
