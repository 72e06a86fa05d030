//! Which groups a damage harms: each group's records are a chain, and a chain shows what it lacks.

use std::collections::BTreeMap;

use super::{RecoveredGroup, Verdict};
use crate::format::{Damage, Record, TableEntry};
use crate::{Group, Lsn};

/// A part of the log that cannot be read, from here to the next sound block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    pub(super) damage: Damage,
    pub(super) from: Lsn,
}

/// Records of a group that are missing: none is above `through`, and none of what is replayed may be
/// at or above `from`.
#[derive(Clone, Copy, Debug)]
struct Gap {
    damage: Damage,
    from: Lsn,
    through: Lsn,
}

#[derive(Debug, Default)]
struct Chain {
    /// The last record that is known of, read or not.
    last: Lsn,
    keep: Lsn,
    gaps: Vec<Gap>,
    /// The first hole since the last record: it may have held more of them.
    suspect: Option<Hole>,
    table: Vec<u8>,
}

impl Chain {
    /// Takes note that the record before the next one, or before a header, is `previous`.
    fn expect(&mut self, previous: Lsn, place: Damage, from: Lsn) {
        let suspect = self.suspect.take();
        if self.last != previous {
            let (damage, from) = suspect.map_or((place, from), |hole| (hole.damage, hole.from));
            self.gaps.push(Gap { damage, from, through: previous });
        }
    }

    /// The first loss that the group cannot do without.
    fn loss(&self) -> Option<Hole> {
        let gap = self.gaps.iter().find(|gap| gap.through >= self.keep);
        let gap = gap.map(|&Gap { damage, from, .. }| Hole { damage, from });
        // No header is behind a suspect, and what a group keeps was said in front of it.
        gap.or(self.suspect)
    }
}

/// The chains of all groups, as the walk reads them.
#[derive(Debug, Default)]
pub(super) struct Chains {
    known: BTreeMap<Group, Chain>,
    /// A hole since the last header: groups may have begun in it of which nothing else is left.
    unlisted: Option<Damage>,
}

impl Chains {
    /// A record, in the block at `place`.
    pub(super) fn record(&mut self, record: &Record<'_>, place: Damage) {
        let unlisted = self.unlisted;
        let chain = self.known.entry(record.group).or_default();
        if record.begins {
            let table = std::mem::take(&mut chain.table);
            *chain = Chain { keep: record.lsn, table, ..Chain::default() };
        } else {
            chain.expect(record.previous, unlisted.unwrap_or(place), record.lsn);
        }
        chain.last = record.lsn;
    }

    /// The table of a segment that begins at `base`.
    pub(super) fn table(&mut self, entries: &[TableEntry], base: Lsn, place: Damage) {
        let place = self.unlisted.take().unwrap_or(place);
        for entry in entries {
            let chain = self.known.entry(entry.group).or_default();
            // Records in front of the oldest segment are gone, which is no loss if the group does not need them.
            chain.expect(entry.last, place, base);
            chain.last = entry.last;
            chain.keep = chain.keep.max(entry.keep);
            chain.table.clone_from(&entry.bytes);
            if let Some(damage) = entry.damage {
                chain.gaps.push(Gap { damage, from: Lsn::NONE, through: base });
            }
        }
    }

    /// The walk goes on behind a hole.
    pub(super) fn hole(&mut self, hole: Hole) {
        for chain in self.known.values_mut() {
            chain.suspect.get_or_insert(hole);
        }
        self.unlisted.get_or_insert(hole.damage);
    }

    /// Everything may be lost, and only a new beginning ends that.
    pub(super) fn harm_all(&mut self, damage: Damage) {
        for chain in self.known.values_mut() {
            chain.gaps.push(Gap { damage, from: Lsn::NONE, through: Lsn(u64::MAX) });
        }
        self.unlisted.get_or_insert(damage);
    }

    /// What may have harmed a group of which nothing is known.
    pub(super) fn unlisted(&self) -> Option<Damage> {
        self.unlisted
    }

    pub(super) fn into_groups(self) -> Vec<RecoveredGroup> {
        let group = |(group, chain): (Group, Chain)| {
            let loss = chain.loss();
            RecoveredGroup {
                group,
                verdict: loss.map_or(Verdict::Whole, |hole| Verdict::Damaged(hole.damage)),
                table: chain.table,
                last: chain.last,
                keep: chain.keep,
                until: loss.map_or(Lsn(u64::MAX), |hole| hole.from),
            }
        };
        self.known.into_iter().map(group).collect()
    }
}
