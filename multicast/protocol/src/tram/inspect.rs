//! A read-only view of a replica's order, for operators, the simulator and tests.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::edges::{EdgeNumber, Outgoing};
use super::{Record, Taken, Tram};
use crate::ballot::Ballot;
use crate::group::uncommitted::Uncommitted;
use crate::group::{LogRecord as _, Role};
use crate::ids::{GroupId, GroupSet, MessageId};
use crate::mutants::{Mutant, planted};
use crate::ordering::{Inspect, OrderingProtocol as _};
use crate::rank::Rank;
use crate::tram::content::Content;

/// A group's edges, as its leader knows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edges {
    /// The last edge from the parent that is committed. `None` at the root.
    pub taken: Option<EdgeNumber>,
    /// Generation in which edges to children are numbered.
    pub generation: u32,
    /// By child in rising order.
    pub children: Vec<EdgesTo>,
    /// [Groups](Tram::closed) that may make it refuse a message of several groups now.
    pub closed: GroupSet,
}

/// The edges to one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgesTo {
    pub child: GroupId,
    /// The highest number. Edges are numbered from 1.
    pub numbered: u64,
    /// The child holds all edges up to this number.
    pub acknowledged: u64,
    /// Number of edges that are kept because the child has not acknowledged them.
    pub unacknowledged: usize,
    /// The highest number that was sent to the child's leader. `sent <= numbered`
    pub sent: u64,
    /// Destinations at or below the child to which no message of this group's own is ordered now.
    pub closed: GroupSet,
}

/// A replica's part of the order.
#[derive(Clone, Copy)]
pub struct Inspection<'a>(pub(super) &'a Tram);

impl Inspection<'_> {
    /// Messages that will be delivered here when their entries are committed.
    fn uncommitted(&self) -> impl Iterator<Item = MessageId> {
        let order = self.0;
        order.log.uncommitted().filter_map(|entry| {
            let Record::Ordered { content, taken, .. } = entry.record else { return None };
            let lca = content.lca(&order.tree);
            let stale = taken.is_some_and(|taken| !order.incoming.is_new(taken.place, lca));
            let for_us = content.destinations(&order.tree).contains(order.own());
            content.message().filter(|_| for_us && !stale && !entry.record.is_repeat())
        })
    }

    /// The highest generation of another group that something here rests on. We may never have heard of a ballot of the
    /// group, and yet take nothing from it below the places and numbers of that generation.
    fn generation_known_of(self, group: GroupId) -> u32 {
        let Tram { tree, incoming, children, shared, log, .. } = self.0;
        let from_parent = |number: EdgeNumber| {
            if tree.parent(self.0.own()) == Some(group) { number.generation } else { 0 }
        };
        let logged = log.uncommitted().filter_map(|entry| match entry.record {
            Record::Ordered { content: Content::Marker { group: of, generation }, .. }
                if of == group =>
            {
                Some(generation)
            }
            Record::Ordered { content, taken: Some(Taken { number, place }), .. } => {
                let ordered = if content.lca(tree) == group { Tram::generation(place) } else { 0 };
                Some(ordered.max(from_parent(number)))
            }
            _ => None,
        });
        let place = incoming.place_of(group).max(shared.highest_rank_of(group));
        let child = children.iter().find(|(child, _)| *child == group);
        let child = child.map_or(0, |(_, table)| table.child_generation());
        let known = [Tram::generation(place), from_parent(incoming.committed()), child];
        logged.chain(known).max().unwrap_or(0)
    }
}

impl Inspect for Inspection<'_> {
    fn highest_clock(&self) -> u64 {
        self.0.clock + self.0.log.last_index()
    }

    fn counter_known_of(&self, group: GroupId) -> u32 {
        if group == self.0.own() {
            return self.0.log.ballot_counter();
        }
        let ballot = self.0.ballots[group.index()].counter();
        if planted(Mutant::GenerationOfBallotsAlone) {
            return ballot;
        }
        ballot.max(Ballot::first_counter(self.generation_known_of(group)))
    }

    /// A rank in the log of that group.
    fn settled_clock_of(&self, group: GroupId) -> u64 {
        self.0.shared.settled_by(group).number()
    }

    /// This replica may have been evicted while it made no progress, and not have read so. Then the others have applied
    /// what it has yet to deliver, and the results for which its machine would wait may be dropped everywhere.
    fn can_be_revived(&self, settled: u64) -> bool {
        let order = self.0;
        let over = |destinations: GroupSet, rank: Rank| {
            destinations.has_several() && rank.number() <= settled
        };
        let logged = |entry: &Uncommitted<Record>| {
            let rank = Tram::rank(entry.birth, entry.index);
            entry.record.message().is_some_and(|it| over(it.destinations, rank))
        };
        let lacks = || {
            order.pending.iter().any(|it| over(it.destinations, it.rank))
                || order.log.uncommitted().any(logged)
        };
        order.log.role() != Role::Blank && order.log.is_whole(&order.deliveries()) && !lacks()
    }

    fn pending(&self) -> usize {
        self.0.pending.len() + self.uncommitted().count()
    }

    fn oldest_pending(&self) -> Option<(u64, MessageId)> {
        self.0.pending.first().map(|it| (it.since_ms, it.message))
    }

    /// A message that is not stable everywhere, and on which answers wait.
    fn blocked(&self) -> Option<(u64, MessageId, GroupSet)> {
        self.0.gate.holds_up().filter(|_| self.0.log.leads() && !self.0.ungated)
    }

    fn describe_blocked(&self) -> String {
        let Some((_, message, lacks)) = self.blocked() else { return String::new() };
        format!("{message}, which is not known to be stable in {lacks}")
    }

    fn retained(&self) -> usize {
        let edges: usize = self.0.children.iter().map(|(_, it)| it.unacknowledged()).sum();
        self.0.gate.unstable() + edges + self.0.shared.len()
    }

    fn passed(&self) -> Rank {
        self.0.keeps_passed()
    }

    fn edges(&self) -> Option<Edges> {
        let Tram { tree, children, .. } = self.0;
        let to = |(child, table): (GroupId, &Outgoing)| EdgesTo {
            child,
            numbered: table.numbered(),
            acknowledged: table.acknowledged(),
            unacknowledged: table.unacknowledged(),
            sent: table.sent(),
            closed: table.closed(tree.below(child)),
        };
        Some(Edges {
            taken: tree.parent(self.0.own()).map(|_| self.0.incoming.committed()),
            generation: self.0.generation,
            children: children.iter().map(to).collect(),
            closed: self.0.closed(),
        })
    }

    fn undelivered(&self) -> Vec<MessageId> {
        self.0.pending.iter().map(|it| it.message).chain(self.uncommitted()).collect()
    }
}
