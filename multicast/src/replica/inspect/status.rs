//! A replica's status for an operator.

use skein_protocol::group;
use skein_protocol::group::transfer::Stage;
use skein_protocol::ids::GroupSet;
use skein_protocol::ordering::Inspect as _;
use skein_protocol::tram::Edges;

use crate::application::Application;
use crate::operate::{
    BlockedStatus, Cause, ChildStatus, EdgeStatus, EdgesStatus, Elections, FailoverStatus,
    LearnerStatus, MemberStatus, ReplicaStatus, Role, Waiting,
};
use crate::ordering::Links;
use crate::replica::Replica;

impl<A: Application, O: Links> Replica<A, O> {
    pub(crate) fn status(&self, sessions: u64, rings_bytes: u64) -> ReplicaStatus {
        let core = &self.core;
        let now = core.log().now_ms();
        let blank = core.log().role() == group::Role::Blank;
        let role = self.role();
        let leader = core.log().leader().filter(|_| !blank);
        let alive =
            |slot: u8| slot == self.id.slot || !core.log().inspect().detector().suspects(slot);
        let members = core.log().view().members().iter().enumerate();
        let view = members.map(|(slot, member)| MemberStatus {
            slot: slot as u8,
            incarnation: member.incarnation,
            evicted: member.evicted,
            alive: alive(slot as u8),
        });
        let oldest = core.inspect().oldest_pending().map_or(now, |(since, _)| since);
        let blocked = core.inspect().blocked().map(|(since, message, groups)| BlockedStatus {
            message: message.to_string(),
            age_ms: now.saturating_sub(since),
            held_up_by: groups.iter().map(|group| group.0).collect(),
        });
        ReplicaStatus {
            group: self.id.group.0,
            slot: self.id.slot,
            role,
            incarnation: self.incarnation,
            leader: leader.map(|leader| leader.slot),
            ballot: core.log().ballot().to_string(),
            ballot_counter: core.log().inspect().ballot_counter(),
            ballot_counters: self
                .topology
                .all_groups()
                .iter()
                .map(|group| core.inspect().counter_known_of(group))
                .collect(),
            clock: core.inspect().highest_clock(),
            settled_clocks: self
                .topology
                .all_groups()
                .iter()
                .map(|group| core.inspect().settled_clock_of(group))
                .collect(),
            view: view.collect(),
            learners: self.learners(),
            lost: self.is_lost(),
            available: self.serves(),
            divergence: self.divergence_status(),
            last_failover: self.campaign.won.map(|won| FailoverStatus {
                cause: cause(won.cause),
                took_us: won.took_us,
                ago_ms: now.saturating_sub(won.at_ms),
            }),
            elections: self.elections(),
            waits_for: self.waits_for(),
            holds_state: !blank,
            log_index: core.log().last_index(),
            log_birth: core.log().inspect().last_birth().to_word(),
            log_position: self.reader.cursor.position,
            commit_index: core.log().commit_index(),
            delivered: core.delivered(),
            pending: core.inspect().pending() as u64,
            oldest_pending_ms: now.saturating_sub(oldest),
            stuck: blocked.clone(),
            blocked,
            held: self.gate.status(),
            edges: (role == Role::Leader).then(|| self.edges()).flatten(),
            results: self.exchange.status(),
            sessions,
            disk: self.disk_status(),
            memory_bytes: (self.log_bytes() + self.payloads.bytes()) as u64 + rings_bytes,
        }
    }

    fn edges(&self) -> Option<EdgesStatus> {
        let Edges { taken, generation, children, closed } = self.core.inspect().edges()?;
        let numbers = |groups: GroupSet| groups.iter().map(|group| group.0).collect();
        let taken =
            taken.map(|taken| EdgeStatus { generation: taken.generation, number: taken.number });
        let children = children.into_iter().map(|to| ChildStatus {
            group: to.child.0,
            numbered: to.numbered,
            acknowledged: to.acknowledged,
            unacknowledged: to.unacknowledged as u64,
            sent: to.sent,
            closed: numbers(to.closed),
        });
        Some(EdgesStatus {
            taken,
            generation,
            children: children.collect(),
            closed: numbers(closed),
            refused: O::refused(&self.outgoing) as u64,
        })
    }

    fn elections(&self) -> Elections {
        let paths = self.core.log().inspect().paths();
        Elections {
            campaigns: paths.campaigns,
            won: paths.led,
            stepped_down: paths.stepped_down,
            granted: paths.promised - paths.campaigns,
        }
    }

    fn waits_for(&self) -> Option<Waiting> {
        let follows = self.core.log().role() == group::Role::Follower;
        if follows && self.reader.awaiting {
            Some(Waiting::Leader)
        } else if let Some(message) = self.core.log().stalled_on() {
            Some(Waiting::Payload(message.to_string()))
        } else {
            let given = self.exchange.first_given();
            given.map(|message| Waiting::Results(message.to_string()))
        }
    }

    fn learners(&self) -> Vec<LearnerStatus> {
        let sent = self.core.log().sends_state().map(|(slot, stage)| LearnerStatus {
            slot,
            bytes: self.transfer.sent_bytes,
            caught_up: stage == Stage::Sent,
        });
        let taken = self.taken_bytes().map(|bytes| LearnerStatus {
            slot: self.id.slot,
            bytes,
            caught_up: false,
        });
        sent.into_iter().chain(taken).collect()
    }
}

fn cause(cause: group::Cause) -> Cause {
    match cause {
        group::Cause::Start => Cause::Start,
        group::Cause::Death => Cause::Death,
        group::Cause::Operator => Cause::Operator,
        group::Cause::Transfer => Cause::HandedOver,
        group::Cause::Silence | group::Cause::Preempted => Cause::Silence,
    }
}
