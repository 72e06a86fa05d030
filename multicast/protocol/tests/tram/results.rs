//! Random schedules of groups that tell each other what they have applied, with the real struct: a result is kept for as
//! long as a replica may ask for it, and no longer.

use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::rank::Rank;
use skein_protocol::tram::shared::{Shared, SharedMessage};
use skein_protocol::tram::tree::Tree;

use crate::random::Random;

/// Replicas of a group. The first one leads.
const REPLICAS: usize = 2;

/// How a schedule ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    AsLongAsNeeded,
    DroppedTooEarly,
    ForEver,
}

struct Replica {
    shared: Shared,
    /// Number of the group's messages that it has delivered, and applied.
    delivered: usize,
}

struct Group {
    /// What it delivers, in its order.
    order: Vec<SharedMessage>,
    replicas: Vec<Replica>,
}

impl Group {
    fn new(tree: &Tree, own: GroupId, messages: &[(GroupSet, Rank)]) -> Self {
        let ours = messages.iter().enumerate().filter(|(_, (to, _))| to.contains(own));
        let order = ours.enumerate().map(|(at, (number, (destinations, place)))| SharedMessage {
            message: MessageId::new(SessionId(1), number as u64),
            destinations: *destinations,
            rank: Rank::new(Rank::LEAST + at as u64),
            place: *place,
        });
        let replica = || Replica { shared: Shared::new(*tree, own), delivered: 0 };
        Self { order: order.collect(), replicas: (0..REPLICAS).map(|_| replica()).collect() }
    }

    fn deliver(&mut self, slot: usize) {
        let replica = &mut self.replicas[slot];
        if let Some(next) = self.order.get(replica.delivered) {
            replica.shared.deliver(*next);
            replica.delivered += 1;
        }
    }

    /// The rank up to which all its replicas have applied everything.
    fn applied(&self) -> Rank {
        let least = self.replicas.iter().map(|it| it.delivered).min().expect("there are some");
        self.order[..least].last().map_or(Rank::NOTHING, |it| it.rank)
    }

    fn has_applied(&self, message: MessageId) -> bool {
        self.replicas
            .iter()
            .all(|it| self.order[..it.delivered].iter().any(|m| m.message == message))
    }
}

/// Plays one schedule. What groups tell each other is lost, repeated and reordered.
pub(crate) fn play(seed: u64) -> Kept {
    let mut random = Random::new(seed);
    let count = 2 + random.below(4) as u16;
    let mut parents = vec![None];
    parents.extend((1..count).map(|group| Some(random.below(group.into()) as u16)));
    let tree = Tree::of(&parents).expect("each parent comes before its children");
    // Logs of groups have their own lengths, so places of different groups have nothing to do with each other.
    let mut logs: Vec<_> = (0..count).map(|_| 2 + random.below(50) as u64).collect();
    let messages: Vec<_> = (0..30)
        .map(|_| {
            let draw = |_| GroupId(random.below(count.into()) as u16);
            let destinations: GroupSet = (0..3).map(draw).collect();
            let log = &mut logs[tree.lca(destinations).index()];
            *log += 1;
            (destinations, Rank::new(*log))
        })
        .collect();
    let mut groups: Vec<_> =
        (0..count).map(|group| Group::new(&tree, GroupId(group), &messages)).collect();
    let mut mail: Vec<(GroupId, Vec<Rank>)> = Vec::new();
    for _ in 0..600 {
        let (group, slot) = (random.below(count.into()), random.below(REPLICAS));
        match random.below(5) {
            0 | 1 => groups[group].deliver(slot),
            2 => {
                let applied = groups[group].applied();
                groups[group].replicas[0].shared.settle(applied);
                groups[group].replicas[slot].shared.settle(applied);
            }
            3 => {
                let told = groups[group].replicas[slot].shared.places().collect();
                mail.push((GroupId(group as u16), told));
            }
            _ if mail.is_empty() => {}
            _ => {
                let (from, told) = &mail[random.below(mail.len())];
                if from.index() != group {
                    groups[group].replicas[slot].shared.hear(*from, Rank::NOTHING, told);
                }
            }
        }
        if drops_too_early(&mut groups) {
            return Kept::DroppedTooEarly;
        }
    }
    for group in &mut groups {
        for slot in 0..REPLICAS {
            (0..messages.len()).for_each(|_| group.deliver(slot));
        }
        let applied = group.applied();
        group.replicas.iter_mut().for_each(|it| it.shared.settle(applied));
    }
    let told: Vec<Vec<_>> =
        groups.iter().map(|it| it.replicas[1].shared.places().collect()).collect();
    for (to, group) in groups.iter_mut().enumerate() {
        for (from, told) in told.iter().enumerate().filter(|(from, _)| *from != to) {
            for replica in &mut group.replicas {
                replica.shared.hear(GroupId(from as u16), Rank::NOTHING, told);
            }
        }
    }
    let early = drops_too_early(&mut groups);
    let over = |it: &Replica| it.shared.is_empty() && it.shared.lacks().is_empty();
    match () {
        () if early => Kept::DroppedTooEarly,
        () if groups.iter().all(|group| group.replicas.iter().all(over)) => Kept::AsLongAsNeeded,
        () => Kept::ForEver,
    }
}

/// Whether a replica drops a message that some replica of a destination has not applied.
fn drops_too_early(groups: &mut [Group]) -> bool {
    for at in 0..groups.len() {
        for slot in 0..REPLICAS {
            let mut dropped = Vec::new();
            groups[at].replicas[slot].shared.trim(|message| dropped.push(message));
            let needed = |message: &MessageId| {
                groups.iter().any(|it| {
                    it.order.iter().any(|m| m.message == *message) && !it.has_applied(*message)
                })
            };
            if dropped.iter().any(needed) {
                return true;
            }
        }
    }
    false
}

#[test]
fn a_result_is_kept_as_long_as_somebody_may_ask_for_it() {
    for seed in 0..3_000 {
        assert_eq!(play(seed), Kept::AsLongAsNeeded, "seed {seed}");
    }
}
