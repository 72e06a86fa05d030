//! The smallest ordering on a group log: a cluster of one group, which delivers messages in log order.
//!
//! The rank of a message is the index of its entry, above a base. There are no other groups on which anything could
//! depend: a message is delivered when it is committed, and every reply may be sent at once.
//!
//! **Invariant (order).** `pending` holds the committed messages that are not delivered, in rising index, and every
//! committed message below its first is delivered. All replicas fold the same committed entries, so all deliver the
//! same messages in the same order.
//!
//! This is not the protocol of a paper. It shows the least that an ordering needs in order to be driven.

mod boundary;
mod entries;
mod hooks;
mod inspect;
mod saved;
#[cfg(test)]
mod testing;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use self::entries::{Body, Draft, Record};
pub use self::inspect::Inspection;
use crate::group::GroupLog;
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupSet, MessageId};
use crate::logged_set::LoggedSet;
use crate::ordering::{Config, MessageStage, OrderingProtocol as _};
use crate::rank::Rank;
use crate::step::Deliver;

/// An event of this ordering.
pub type Event = crate::step::Event<Record, Never>;
/// An effect of this ordering.
pub type Effect = crate::step::Effect<Record, Never>;

/// Uninhabited: no other group sends or receives anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

/// A message that is committed and not delivered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    message: MessageId,
    low_water: u64,
    index: u64,
    rank: Rank,
    time_ms: u64,
    /// Our time at which it was committed here.
    since_ms: u64,
    inline: bool,
}

/// One replica of the only group.
pub struct Single {
    config: Config,
    log: GroupLog<Record>,
    logged: LoggedSet,
    pending: VecDeque<Pending>,
    delivered: u64,
    /// The rank of an entry that is not committed is `base + index`: a recreated group continues above the ranks that
    /// it had before. `base` is the same at all replicas that count, without being logged: a recreated group begins
    /// with one clock, and a revived one continues from one state. A committed message keeps the rank at which other
    /// replicas may have delivered it.
    base: u64,
    /// Index of our ballot's first entry. Other leaders may have answered the messages before it.
    last_shared: u64,
}

impl Single {
    const fn rank(&self, index: u64) -> Rank {
        Rank::new(self.base + index)
    }

    fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.log.tick(now_ms);
        let after_ms = self.config.fetch_after_ms;
        if let Some(message) = self.log.payloads.ask_for_stalled(self.log.now_ms(), after_ms) {
            let from = self.leader_of(self.config.group.me.group);
            effects.push(Effect::Fetch { message, from });
        }
        if self.log.leads() {
            self.log_due_changes(effects);
        }
    }

    /// As leader: a message has arrived. Logs it unless that was done.
    fn receive(
        &mut self,
        message: MessageId,
        low_water: u64,
        inline: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !self.logged.insert(message, low_water) {
            if self.stage_of(message) == MessageStage::Delivered {
                effects.push(Effect::Repeat { message });
            }
            return;
        }
        let index = self.append(Record::Message { message, low_water, inline }, effects);
        if !inline {
            self.log.payloads.keep(index, message);
        }
    }

    /// As follower: accepts the next record of the log.
    fn take(&mut self, entry: Uncommitted<Record>, held: bool, last: bool) {
        let Uncommitted { index, time_ms, record, .. } = entry;
        if let Record::Message { message, low_water, inline } = record {
            if !inline && !held {
                let ask_from_ms = self.log.now_ms() + self.config.fetch_after_ms;
                return self.log.payloads.stall(message, ask_from_ms, entry, last);
            }
            self.logged.insert(message, low_water);
        }
        self.log.push(entry);
        self.log.note_accepted(index, time_ms, last);
        self.owe(index);
    }

    /// Our group is owed an acceptance word that covers the entry at `index`.
    fn owe(&mut self, index: u64) {
        self.log.owe(index, GroupSet::single(self.config.group.me.group));
    }

    /// As follower: the payload of a message has arrived. The log may be stalled on it.
    fn unstall(&mut self, message: MessageId) {
        if let Some((entry, last)) = self.log.payloads.unstall(message) {
            self.take(entry, true, last);
        }
    }

    fn end_turn(&mut self, effects: &mut Vec<Effect>) {
        if self.log.leads() {
            self.log.release(|message| effects.push(Effect::Forget { message }));
        } else {
            self.forget_kept(effects);
        }
        self.acknowledge(effects);
        self.advance_commit();
    }

    /// Drops the delivered payloads that this replica kept while it led.
    fn forget_kept(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.log.payloads.forget().map(|message| Effect::Forget { message }));
    }

    /// Sends one word, which covers everything accepted in this turn.
    fn acknowledge(&mut self, effects: &mut Vec<Effect>) {
        if let Some((groups, acceptance)) = self.log.take_word() {
            effects.push(Effect::Acknowledge { groups, acceptance });
        }
    }

    fn next(&mut self) -> Option<Deliver> {
        let Pending { message, low_water, rank, time_ms, .. } = self.pending.pop_front()?;
        self.delivered += 1;
        let next = Deliver {
            message,
            low_water,
            destinations: GroupSet::single(self.config.group.me.group),
            rank,
            position: self.delivered,
            clock: rank.number(),
            time_ms,
        };
        self.log.delivers(&next);
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::testing::{deliveries, follow, hold, leader, message, received, replica, step};
    use super::*;
    use crate::ballot::{Acceptance, Ballot};
    use crate::group::body::{Body as _, Payload};
    use crate::ids::{GroupId, ReplicaId};
    use crate::ordering::At;
    use crate::view::View;

    #[test]
    #[should_panic(expected = "it orders the messages of one group")]
    fn several_groups_are_refused() {
        let config = Config { groups: 2, ..testing::config(0, 0) };
        Single::new(config, View::first(3));
    }

    #[test]
    fn what_is_committed_is_delivered_in_log_order_and_nothing_else() {
        let mut core = leader();
        for (sequence, inline) in [(9, true), (3, false), (5, true)] {
            step(&mut core, received(sequence, inline));
        }
        assert_eq!(deliveries(&mut core), [], "nobody else holds them");
        hold(&mut core, 1);
        step(&mut core, received(4, true));
        assert_eq!(deliveries(&mut core), [(9, 2, 1), (3, 3, 2), (5, 4, 3)]);
    }

    /// Effects of reading an entry at that index, of a message whose payload is not in it.
    fn reads(core: &mut Single, index: u64, sequence: u64, held: bool) -> Vec<Effect> {
        let payload = Payload::Held { check: 7 };
        let body = Body::Message { message: message(sequence), low_water: 1, payload };
        assert_eq!(body.message().map(|it| it.message), Some(message(sequence)));
        let (birth, mut effects) = (core.log.ballot(), Vec::new());
        core.accept(At { index, birth, time_ms: 0 }, &body, held, &mut effects);
        core.step(Event::TurnEnd, &mut effects);
        effects
    }

    /// The acknowledged index.
    fn acknowledges(effects: &[Effect]) -> Option<u64> {
        effects.iter().find_map(|effect| match effect {
            Effect::Acknowledge { acceptance, .. } => Some(acceptance.index),
            _ => None,
        })
    }

    #[test]
    fn a_payload_that_is_missing_stalls_the_log_and_is_fetched_from_whoever_leads() {
        let mut core = replica(1);
        step(&mut core, Event::Tick { now_ms: 1_000 });
        let ballot = Ballot::new(1, 2, 0);
        follow(&mut core, ballot, 0);
        step(&mut core, Event::TurnEnd);
        assert_eq!(acknowledges(&reads(&mut core, 1, 5, true)), Some(1), "it is held");
        assert_eq!(acknowledges(&reads(&mut core, 2, 6, false)), None);
        assert_eq!((core.log.stalled_on(), core.log.last_index()), (Some(message(6)), 1));
        assert!(!core.is_logged(message(6)) && core.may_need(message(6)));
        let mut fetched = vec![];
        for now_ms in 1_001..1_050 {
            for effect in step(&mut core, Event::Tick { now_ms }) {
                fetched.push((now_ms, effect));
            }
        }
        let from = ReplicaId::new(GroupId(0), 2);
        let fetch = Effect::Fetch { message: message(6), from };
        assert_eq!(fetched, [(1_020, fetch), (1_040, fetch)]);
        step(&mut core, received(7, false));
        assert_eq!(core.log.stalled_on(), Some(message(6)), "that is another one");
        step(&mut core, received(6, false));
        assert_eq!((core.log.stalled_on(), core.log.last_index()), (None, 2));
        let acceptance = Acceptance { tag: ballot.tag(), index: 2 };
        let groups = GroupSet::first(1);
        let word = Effect::Acknowledge { groups, acceptance };
        assert_eq!(step(&mut core, Event::TurnEnd), [word]);
        assert_eq!(step(&mut core, Event::TurnEnd), [], "once is enough");
    }
}
