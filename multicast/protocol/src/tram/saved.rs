//! The state at the commit index, as sent to a replica that has none.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Tram;
use super::content::Content;
use super::edges::{Children, EdgeNumber, Incoming, Outgoing, bytes_for_each};
use super::gate::{Gate, Unstable};
use super::names::Names;
use super::pending::{Pending, PendingQueue};
use super::shared::Shared;
use super::tree::Tree;
use crate::ballot::Ballot;
use crate::bytes::{Reader, Writer};
use crate::ids::GroupId;
use crate::ordering::{NotRestored, OrderingProtocol as _};
use crate::rank::Rank;
use crate::view::View;

const VERSION: u8 = 4;

impl Tram {
    /// Appends what a replica needs to go on from our commit index.
    pub(super) fn save_state(&self, into: &mut Vec<u8>) {
        let mut out = Writer(into);
        out.u8(VERSION);
        // The ballot comes first: it decides whether the state is of use.
        out.u64(self.log.ballot().to_word());
        let (commit, birth) = (self.log.commit_index(), self.log.commit_birth().to_word());
        out.words([commit, birth, self.log.last_time_ms(), self.delivered]);
        for member in self.log.view().members() {
            out.u32(member.incarnation);
            out.u8(u8::from(member.evicted));
        }
        out.u32(self.generation);
        out.u64(self.clock);
        self.incoming.save(&mut out);
        self.children.save(&mut out);
        self.gate.save(&mut out);
        self.shared.save(&mut out);
        out.u64(self.pending.len() as u64);
        for it in self.pending.iter() {
            out.message(it.message);
            out.groups(it.destinations);
            let (rank, place) = (it.rank.number(), it.place.number());
            out.words([it.low_water, it.index, rank, place, it.time_ms, it.clock]);
            out.u8(u8::from(it.inline));
        }
        self.logged.save(&mut out);
    }

    /// A replica of our incarnation that continues from a saved state.
    pub(super) fn with_state(&self, saved: &[u8]) -> Result<Self, NotRestored> {
        let mut from = Reader(saved);
        let ballot = (|| (from.u8()? == VERSION).then(|| from.u64())?.map(Ballot::from_word))();
        let ballot = ballot.ok_or(NotRestored::Malformed)?;
        if ballot.generation() < self.log.promised().generation() {
            return Err(NotRestored::Outdated);
        }
        self.read(ballot, &mut from).ok_or(NotRestored::Malformed)
    }

    fn read(&self, ballot: Ballot, from: &mut Reader<'_>) -> Option<Self> {
        let [commit, birth, time_ms, delivered] = from.words()?;
        let replicas = self.config.group.replicas;
        let mut view = View::first(replicas);
        for slot in 0..replicas {
            view.join(slot, from.u32()?);
            if from.u8()? != 0 {
                view.evict(slot);
            }
        }
        let generation = from.u32()?;
        let clock = from.u64()?;
        let incoming = Incoming::read(self.config.groups, from)?;
        let children = Children::read(&self.tree, self.own(), self.config.held_bytes_max, from)?;
        let gate =
            Gate::read(&self.tree, (self.own(), self.log.now_ms()), &incoming, &children, from)?;
        let shared = Shared::restore(&self.tree, self.own(), from)?;
        let mut pending = PendingQueue::default();
        for _ in 0..from.u64()? {
            let (message, destinations) = (from.message()?, from.groups()?);
            let [low_water, index, rank, place, time_ms, clock] = from.words()?;
            let (rank, place, since_ms) = (Rank::new(rank), Rank::new(place), self.log.now_ms());
            let inline = from.u8()? != 0;
            pending.restore(Pending {
                message,
                low_water,
                destinations,
                index,
                rank,
                place,
                time_ms,
                since_ms,
                inline,
                clock,
            })?;
        }
        let logged = Names::restore(from)?;
        if !from.0.is_empty() {
            return None;
        }
        let mut log = self.log.blank();
        log.restore(commit, Ballot::from_word(birth), time_ms, view.clone(), ballot);
        let ballots = self.ballots.clone();
        let anew = Self::new(self.config, view);
        Some(Self {
            log,
            generation,
            ballots,
            logged,
            incoming,
            children,
            gate,
            pending,
            delivered,
            shared,
            clock,
            ungated: self.ungated,
            ..anew
        })
    }
}

impl Incoming {
    fn save(&self, out: &mut Writer<'_>) {
        out.u32(self.committed.generation);
        out.u64(self.committed.number);
        out.u32(self.marked);
        self.places.iter().for_each(|place| out.u64(place.number()));
        out.u8(u8::from(self.disturbed));
    }

    fn read(groups: u16, from: &mut Reader<'_>) -> Option<Self> {
        let committed = EdgeNumber { generation: from.u32()?, number: from.u64()? };
        let marked = from.u32()?;
        let places = (0..groups).map(|_| from.u64().map(Rank::new)).collect::<Option<_>>()?;
        let disturbed = from.u8()? != 0;
        Some(Self::restore(committed, marked, places, disturbed))
    }
}

impl Children {
    fn save(&self, out: &mut Writer<'_>) {
        for (_, table) in self.iter() {
            out.u32(table.child_generation);
            out.u64(table.numbered);
            out.u64(table.kept.len() as u64);
            for (place, content) in &table.kept {
                out.u64(place.number());
                content.encode(out);
            }
        }
    }

    fn read(tree: &Tree, own: GroupId, held_bytes_max: u64, from: &mut Reader<'_>) -> Option<Self> {
        let bytes_max = bytes_for_each(tree, own, held_bytes_max);
        let mut tables = Vec::new();
        for child in tree.children(own).iter() {
            let (generation, numbered, count) = (from.u32()?, from.u64()?, from.u64()?);
            let mut kept = VecDeque::new();
            for _ in 0..count {
                kept.push_back((Rank::new(from.u64()?), Content::decode(from)?));
            }
            let table = (count <= numbered)
                .then(|| Outgoing::restore(bytes_max, generation, numbered, kept))?;
            tables.push((child, table));
        }
        Some(Self::restore(tables))
    }
}

impl Gate {
    fn save(&self, out: &mut Writer<'_>) {
        out.u64(self.entries.len() as u64);
        for entry in &self.entries {
            out.u64(entry.rank.number());
            out.groups(entry.destinations);
            out.u64(entry.from_parent.map_or(u64::MAX, |number| number));
            out.u8(u8::from(entry.in_subtree));
            match entry.delivered {
                Some(message) => {
                    out.u8(1);
                    out.message(message);
                }
                None => out.u8(0),
            }
            out.u16(entry.to_children.len() as u16);
            for (child, number) in &entry.to_children {
                out.u16(child.0);
                out.u64(*number);
            }
        }
    }

    fn read(
        tree: &Tree,
        (own, since_ms): (GroupId, u64),
        incoming: &Incoming,
        children: &Children,
        from: &mut Reader<'_>,
    ) -> Option<Self> {
        let mut gate = Self::new(*tree, own);
        for _ in 0..from.u64()? {
            let (rank, destinations) = (Rank::new(from.u64()?), from.groups()?);
            let number = Some(from.u64()?).filter(|number| *number != u64::MAX);
            let in_subtree = from.u8()? != 0;
            let delivered = if from.u8()? != 0 { Some(from.message()?) } else { None };
            let mut hops = Vec::new();
            for _ in 0..from.u16()? {
                let child = GroupId(from.u16()?);
                hops.push((tree.children(own).contains(child).then_some(child)?, from.u64()?));
            }
            if delivered.is_some() {
                gate.note_delivered(rank, destinations);
            }
            let entry = Unstable::new(rank, delivered, destinations, number, hops);
            gate.entries.push_back(Unstable { in_subtree, since_ms, ..entry });
        }
        let numbers: Vec<_> = children.iter().map(|(child, it)| (child, it.numbered)).collect();
        gate.note_edges(Some(incoming.committed().number), &numbers);
        Some(gate)
    }
}
