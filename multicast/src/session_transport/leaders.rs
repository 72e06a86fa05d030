//! The assumed leaders of the groups: messages go to them first, and to their followers if no answer comes soon.

use std::collections::VecDeque;
use std::time::Duration;

use skein_fabric::Fabric;
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};
use skein_protocol::mutants::{Mutant, planted};

use super::{Route, SessionKey, SessionTransport};

/// Time without an answer after which a message is sent to the followers too. They have not noticed by then
/// that their leader is dead, so whichever leads next has the message.
pub(super) const SPREAD_AFTER: Duration = Duration::from_millis(2);

/// The replica that answered last for its group.
#[derive(Clone, Copy)]
struct Leader {
    slot: u8,
    /// A message in flight since a later turn than this one, and sent to a leader alone, was sent to this replica.
    since: Duration,
    /// It has answered since a message waited too long for it.
    trusted: bool,
}

/// A message that was sent to leaders alone.
struct First {
    /// Time of the first turn with it in flight; `None` before that turn, since senders do not read the clock.
    at: Option<Duration>,
    session: SessionKey,
    sequence: u64,
    /// The groups whose leaders it was sent to.
    groups: GroupSet,
}

/// The assumed leaders, and the messages that wait for them.
pub(super) struct Leaders {
    of: Vec<Leader>,
    /// Oldest first. Answered messages stay until their time is over.
    first: VecDeque<First>,
}

impl Leaders {
    pub(super) fn new(groups: u16) -> Self {
        let nobody = Leader { slot: 0, since: Duration::ZERO, trusted: false };
        Self { of: vec![nobody; usize::from(groups)], first: VecDeque::new() }
    }

    /// Records an answer that only a leader sends.
    pub(super) fn answered(&mut self, now: Duration, by: ReplicaId) {
        let leader = &mut self.of[by.group.index()];
        if leader.slot != by.slot {
            (leader.slot, leader.since) = (by.slot, now);
        }
        leader.trusted = true;
    }

    /// The slot that answered last; 0 before the first answer.
    pub(super) fn slot(&self, group: GroupId) -> u8 {
        self.of[group.index()].slot
    }

    /// Records a message that was sent to the leaders alone of some of its groups.
    pub(super) fn sent_first(&mut self, session: SessionKey, sequence: u64, groups: GroupSet) {
        self.first.push_back(First { at: None, session, sequence, groups });
    }

    /// Time from `now` until followers may have to be sent something; `None` if no message waits for leaders.
    pub(super) fn wait_for_them(&self, now: Duration) -> Option<Duration> {
        let oldest = self.first.front()?;
        Some((oldest.at.unwrap_or(now) + SPREAD_AFTER).saturating_sub(now))
    }
}

impl<F: Fabric> SessionTransport<F> {
    /// The session's channel to a group's leader, if the leader can be trusted to order a message that no
    /// other replica is sent: it answers, and all of the group would notice the session's death.
    pub(super) fn way_to_leader(&mut self, session: SessionKey, group: GroupId) -> Option<u32> {
        let Leader { slot, trusted, .. } = self.leaders.of[group.index()];
        let at = self.route_to(ReplicaId::new(group, slot));
        let session = self.get(session);
        match session.routes[at] {
            Route::Open(channel) if trusted && session.met.contains(group) => Some(channel),
            _ => None,
        }
    }

    /// Sends messages that were sent to leaders alone, and not answered in time, to all of their groups.
    pub(super) fn spread(&mut self, now: Duration) {
        for new in self.leaders.first.iter_mut().rev().take_while(|it| it.at.is_none()) {
            new.at = Some(now);
        }
        let due = |first: &mut First| first.at.is_some_and(|at| now >= at + SPREAD_AFTER);
        while let Some(late) = self.leaders.first.pop_front_if(due) {
            let First { at, session, sequence, groups } = late;
            let Some(Some(of)) = self.sessions.get_mut(session.0 as usize) else { continue };
            let Some(message) = of.under_way(sequence) else { continue };
            if planted(Mutant::NeverSpread) {
                continue;
            }
            for group in message.waited_for().intersection(groups).iter() {
                let leader = &mut self.leaders.of[group.index()];
                leader.trusted = false;
                let sent = (Some(leader.since) < at).then_some(leader.slot);
                for to in
                    self.layout.topology().replicas_of(group).filter(|to| Some(to.slot) != sent)
                {
                    if let Some(channel) = self.route(session, to) {
                        self.write(session, sequence, channel);
                    }
                }
            }
        }
    }
}
