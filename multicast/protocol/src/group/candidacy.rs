//! When a replica sets out to lead, and how often it asks for grants.
//!
//! **Liveness.** Of the replicas that are well, the one that comes next behind the old leader sets out first. Each
//! replica waits one timeout for every replica before it, so they rarely race. Time in which it did not run does not
//! count: it may not have read yet that another one asks for its grant. A replica that does not answer is asked again
//! every other heartbeat, because a request or its answer may be lost. A replica that has promised its leader a lease
//! sets out when the lease is over, and promises nothing more in the meantime.

use super::control::Question;
use super::election::Cause;
use super::record::LogRecord;
use super::{GroupLog, Role};
use crate::ballot::Ballot;

/// Heartbeats between two requests for the same grant.
const ASKED_EVERY: u64 = 2;

impl<R: LogRecord> GroupLog<R> {
    /// Whether it is time to set out to lead, and why.
    pub(super) fn wants_to_lead(&self) -> Option<Cause> {
        if self.is_outbid() {
            return Some(Cause::Preempted);
        }
        if matches!(self.role, Role::Leader | Role::Blank) || self.is_silent() || self.is_bound() {
            return None;
        }
        if self.is_still_seeding() {
            return None;
        }
        if let Some(campaign) = &self.election.campaign {
            let over =
                self.now_ms >= campaign.until_ms && self.election.heard > campaign.ballot.counter();
            return (over && self.now_ms >= self.election.retry_ms).then_some(campaign.cause);
        }
        let me = self.config.me.slot;
        let leader = self.election.promised.slot();
        if self.election.promised == Ballot::ZERO && me == 0 {
            return Some(Cause::Start);
        }
        // We were deposed, or granted a leader that did not begin, or the group never had a leader, or has not had one
        // since it started.
        let doubted = leader != me && self.detector.suspects(leader);
        let blocked = leader == me
            || doubted
            || self.election.cold_start.is_left_alone(self.now_ms)
            || self.election.promised != self.ballot()
            || self.election.promised == Ballot::ZERO;
        let waited = if doubted && self.is_suspected_since(leader) {
            self.detector.suspected_for_ms(leader, self.now_ms)
        } else if let Some(since) = self.election.replaced_ms {
            self.now_ms - since
        } else if blocked && self.now_ms >= self.election.retry_ms {
            self.now_ms - self.election.retry_ms
        } else {
            return None;
        };
        let due = waited >= self.rank_after(leader) * self.config.timeout_ms;
        let cause = match () {
            () if self.election.promised == Ballot::ZERO => Cause::Start,
            () if self.election.replaced_ms.is_some() || self.detector.is_dead(leader) => {
                Cause::Death
            }
            () => Cause::Silence,
        };
        due.then_some(cause)
    }

    /// Whether we began to suspect our leader after we had granted its ballot. If its heartbeats do not reach us and
    /// its words do, we may have suspected it before. Then it gets as long as a leader from which we receive nothing.
    /// Otherwise we would preempt it at once, and it us, for as long as that lasts, and neither would commit anything.
    fn is_suspected_since(&self, leader: u8) -> bool {
        let anew = self.detector.since_ms(leader) > self.election.promised_ms;
        anew || self.detector.is_dead(leader)
    }

    /// Number of replicas that seem well and come before us, counted round from the old leader.
    fn rank_after(&self, leader: u8) -> u64 {
        let (n, me) = (self.config.replicas, self.config.me.slot);
        let between = (1..n).map(|step| (leader + step) % n).take_while(|slot| *slot != me);
        let well =
            |slot: &u8| !self.detector.suspects(*slot) && !self.members.view.member(*slot).evicted;
        between.filter(well).count() as u64
    }

    /// Whether our group's generation has a ballot above all that are known here.
    pub(super) fn has_ballots_left(&self) -> bool {
        Ballot::next_attempt(self.ballot_counter()).is_some()
    }

    /// Postpones setting out to lead, if we have promised our leader a lease: see [`is_due`](Self::is_due). Returns
    /// whether it did.
    pub(crate) fn puts_off(&mut self, cause: Cause) -> bool {
        let bound = self.is_bound();
        if bound {
            self.election.put_off = Some(cause);
            self.stop_promising();
        }
        bound
    }

    /// The cause for which to set out now, if that was [put off](Self::puts_off) and is due.
    pub(crate) fn is_due(&mut self) -> Option<Cause> {
        if self.is_bound() {
            return None;
        }
        let due = self.election.put_off.take();
        due.filter(|_| !self.leads())
    }

    /// The effective cause of a candidacy that has `cause`. A postponed request of an operator keeps its cause,
    /// whatever comes before it is due.
    pub(super) fn prevailing(&self, cause: Cause) -> Cause {
        self.election.put_off.filter(|put_off| *put_off == Cause::Operator).unwrap_or(cause)
    }

    /// Cancels what was postponed: another replica is to lead, or we have set out.
    pub(crate) fn forget_put_off(&mut self) {
        self.election.put_off = None;
    }

    /// As candidate: the ballot for which we ask, and whether followers must give up for it a leader that seems well.
    pub(crate) fn asks(&self) -> Option<(Ballot, bool)> {
        let campaign = self.election.campaign.as_ref()?;
        Some((campaign.ballot, campaign.forced))
    }

    /// The request to all replicas that have not granted our ballot, if it is time to send it.
    pub(crate) fn asks_now(&mut self) -> Option<Question> {
        if !self.is_promise_durable() {
            return None;
        }
        let (leads, now) = (self.leads(), self.now_ms);
        let question = match self.asks() {
            Some((ballot, forced)) if leads || self.role == Role::Candidate => {
                Question { ballot, leads, forced }
            }
            None if leads => Question { ballot: self.ballot(), leads, forced: false },
            _ => return None,
        };
        let every = ASKED_EVERY * self.config.beat_ms;
        if self.election.asked_ms.is_some_and(|at| now < at + every) {
            return None;
        }
        self.election.asked_ms = Some(now);
        Some(question)
    }

    /// Makes the next request due at once, because a slot could not answer before.
    pub(crate) fn ask_soon(&mut self) {
        self.election.asked_ms = None;
    }

    /// Whether a higher ballot is known while we lead. Its holder, and those that granted it, accept none of our
    /// writes, so we must preempt it.
    fn is_outbid(&self) -> bool {
        self.leads() && self.election.heard > self.ballot().counter()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::testing::{Record, log};
    use super::*;
    use crate::detector::Pulse;

    /// Slot 1 of five, which follows `leader`.
    fn follower_of(leader: u8) -> GroupLog<Record> {
        let mut log = log();
        let led = Ballot::new(1, leader, 0);
        log.promise(led);
        log.follow(led, 1);
        log
    }

    /// The time after the tick of a leader's death at which a replica stands whose next ticks come at these times.
    fn stands_after(leader: u8, ticks: &[u64]) -> Option<u64> {
        let mut log = follower_of(leader);
        let died = log.now_ms();
        log.saw_pulse(leader, Pulse::Dead);
        ticks.iter().copied().find(|after| {
            log.tick(died + after);
            log.wants_to_lead() == Some(Cause::Death)
        })
    }

    #[test]
    fn who_comes_first_stands_at_once_and_the_next_one_when_it_has_looked_for_a_timeout() {
        let usual: Vec<u64> = (1..20).map(|tick| 5 * tick).collect();
        assert_eq!(stands_after(0, &usual), Some(5));
        assert_eq!(stands_after(4, &usual), Some(20));
        // The first one is late with the tick that sees the death, and the second one does not look for a timeout.
        assert_eq!(stands_after(0, &[50]), Some(50));
        assert_eq!(stands_after(4, &[50, 55, 60, 65, 70]), Some(65));
        assert_eq!(stands_after(4, &[5, 35, 40, 45, 50]), Some(45));
        assert_eq!(stands_after(4, &[30, 60, 90, 120, 150]), Some(120), "however late it is");
    }
}
