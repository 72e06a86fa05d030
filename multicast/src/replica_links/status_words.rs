//! Status words, by which replicas report progress: who reads each word, where it is written, which have changed.

use skein_fabric::{Fabric, Source};
use skein_protocol::ids::{GroupId, GroupSet, ReplicaId};

use super::{ReplicaLinks, member, members};
use crate::config::Topology;
use crate::ordering::Links;

/// Words that are copied together, and words that are skipped together if none of them has changed.
const WORDS_AT_ONCE: usize = 64;
const BLOCK: usize = 8;

/// A column of the status table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StatusColumn {
    /// The writer's acceptance word.
    Accepted,
    /// Final timestamp up to which all replicas of the writer's group are done with messages that they share
    /// with other groups.
    Settled,
    /// Log position up to which a follower no longer needs the leader's log.
    Freed,
    /// Final timestamp up to which a follower has applied its deliveries.
    Applied,
}

impl StatusColumn {
    /// Returns whether the word is for a single replica, of the writer's own group.
    pub(super) const fn is_to_one(self) -> bool {
        matches!(self, StatusColumn::Freed | StatusColumn::Applied)
    }
}

/// The cell of the status table that a word belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meaning {
    pub column: StatusColumn,
    pub by: ReplicaId,
    /// Row of the replica here that reads it; `None` if all replicas here do.
    pub to: Option<usize>,
}

/// All columns, in the order of their numbers.
pub(super) const COLUMNS: [StatusColumn; 4] =
    [StatusColumn::Accepted, StatusColumn::Settled, StatusColumn::Freed, StatusColumn::Applied];

/// Readers of a word for the other replicas of the groups `of`: one replica on each of their engines.
#[derive(Clone, Default)]
pub(super) struct Audience {
    of: GroupSet,
    pub(super) engines: Vec<ReplicaId>,
}

impl<F: Fabric, O: Links> ReplicaLinks<F, O> {
    /// Clears the words that a replica here has received from its group, and those that it has written to any
    /// engine: the replica starts again.
    pub(crate) fn forget_words(&mut self, replica: ReplicaId) {
        let (row, told) = (self.place(replica).row, (self.links.len() + 1) * COLUMNS.len());
        self.told[usize::from(row) * told..][..told].fill(0);
        for slot in 0..self.layout.topology().replicas {
            let other = ReplicaId::new(replica.group, slot);
            for column in COLUMNS {
                let at = self.word_at(replica, other, column);
                self.endpoint.fabric.store(self.words, at, 0);
            }
        }
    }

    /// Clears the word of `writer` at a replica here: a new incarnation of `writer` reports again, perhaps
    /// the same value.
    pub(crate) fn forget_word(
        &mut self,
        reader: ReplicaId,
        writer: ReplicaId,
        column: StatusColumn,
    ) {
        let at = self.word_at(reader, writer, column);
        self.endpoint.fabric.store(self.words, at, 0);
        self.words_seen[at / 8] = 0;
    }

    /// Writes a word from `from` to `to`, a replica of the same group, and to no other. If the link is down,
    /// the word is written when it comes up.
    pub(crate) fn tell_word(
        &mut self,
        from: ReplicaId,
        to: ReplicaId,
        column: StatusColumn,
        word: u64,
    ) {
        debug_assert!(column.is_to_one() && from.group == to.group);
        let at = self.told_at(from, self.place(to).link, column);
        self.told[at] = word;
        self.write_word(from, to, column, word);
    }

    /// Writes a word from `from` to all other replicas of these groups, once for each of their engines. If a
    /// link is down, the word is written when it comes up.
    pub(crate) fn tell_groups(
        &mut self,
        from: ReplicaId,
        groups: GroupSet,
        column: StatusColumn,
        word: u64,
    ) {
        debug_assert!(!column.is_to_one());
        let row = usize::from(self.place(from).row);
        if self.audiences[row].of != groups {
            self.gather(from, groups);
        }
        let audience = std::mem::take(&mut self.audiences[row].engines);
        for to in &audience {
            let at = self.told_at(from, self.place(*to).link, column);
            self.told[at] = word;
            self.write_word(from, *to, column, word);
        }
        self.audiences[row].engines = audience;
    }

    /// Finds one replica of these groups on each engine that runs one, `from` excepted.
    fn gather(&mut self, from: ReplicaId, groups: GroupSet) {
        let Self { places, links, layout, audiences, gathered, .. } = self;
        let topology = layout.topology();
        let audience = &mut audiences[usize::from(places[member(topology, from)].row)];
        audience.of = groups;
        audience.engines.clear();
        *gathered += 1;
        let mut here = false;
        for to in groups.iter().flat_map(|group| topology.replicas_of(group)) {
            let heard = match places[member(topology, to)].link {
                None => to == from || std::mem::replace(&mut here, true),
                Some(link) => {
                    let link = &mut links[usize::from(link)];
                    std::mem::replace(&mut link.gathered_in, *gathered) == *gathered
                }
            };
            if !heard {
                audience.engines.push(to);
            }
        }
    }

    /// Returns whether a replica here has written a word to another replica here since the last call.
    pub(crate) fn take_told_here(&mut self) -> bool {
        std::mem::take(&mut self.told_here)
    }

    /// Index in `told` of the last word that `from`, a replica here, wrote to an engine.
    pub(super) fn told_at(
        &self,
        from: ReplicaId,
        link: Option<u16>,
        column: StatusColumn,
    ) -> usize {
        let engine = link.map_or(self.links.len(), usize::from);
        let pair = usize::from(self.place(from).row) * (self.links.len() + 1) + engine;
        pair * COLUMNS.len() + column as usize
    }

    pub(super) fn write_word(
        &mut self,
        from: ReplicaId,
        to: ReplicaId,
        column: StatusColumn,
        word: u64,
    ) {
        let at = self.word_at(to, from, column);
        let Some(link) = self.link_to(to) else {
            self.told_here = true;
            self.endpoint.fabric.store(self.words, at, word);
            return;
        };
        let (Some(peer), Some(words)) = (link.peer, link.words) else { return };
        match self.endpoint.fabric.write(words, at, Source::Inline(&word.to_le_bytes()), None) {
            Ok(()) => self.endpoint.wake_later(peer),
            Err(error) => tracing::debug!(%error, %to, "a status word was not written"),
        }
    }

    /// Byte offset, in the words of `reader`'s engine, of the word that `writer` writes for `reader`.
    pub(super) fn word_at(
        &self,
        reader: ReplicaId,
        writer: ReplicaId,
        column: StatusColumn,
    ) -> usize {
        let (members, replicas) =
            (members(self.layout.topology()), usize::from(self.layout.topology().replicas));
        let (row, slot) = (usize::from(self.place(reader).row), usize::from(writer.slot));
        8 * match column {
            StatusColumn::Accepted => member(self.layout.topology(), writer),
            StatusColumn::Settled => members + member(self.layout.topology(), writer),
            StatusColumn::Freed => 2 * (members + row * replicas) + slot,
            StatusColumn::Applied => 2 * (members + row * replicas) + replicas + slot,
        }
    }

    /// The meaning of word number `at`.
    pub(crate) fn meaning(&self, at: usize) -> Meaning {
        self.meanings[at]
    }

    /// Scans all words once, and appends the number and value of each that has changed since the last scan.
    pub(crate) fn look_at_words(&mut self, news: &mut Vec<(usize, u64)>) {
        let Self { endpoint, words, words_seen, .. } = self;
        let mut from = 0;
        while let Some(at) = endpoint.fabric.changed(*words, words_seen, from) {
            let mut now = [0; WORDS_AT_ONCE * 8];
            // Neighbours of a changed word have often changed too.
            from = (at + WORDS_AT_ONCE).min(words_seen.len());
            let now = &mut now[..8 * (from - at)];
            endpoint.fabric.copy_out(*words, 8 * at, now);
            let (blocks, rest) = now.as_chunks().0.as_chunks::<BLOCK>();
            let (seen_blocks, seen_rest) = words_seen[at..from].as_chunks_mut::<BLOCK>();
            let mut at = at;
            for (now, seen) in blocks.iter().zip(seen_blocks) {
                if now.map(u64::from_ne_bytes) != *seen {
                    note_changes(at, now, seen, news);
                }
                at += BLOCK;
            }
            note_changes(at, rest, seen_rest, news);
        }
    }

    /// A replica here starts again, so every word for it counts as unread. A word that is for other replicas
    /// here too is reported to them again, with the value that they have.
    pub(crate) fn look_again(&mut self, replica: ReplicaId) {
        let row = usize::from(self.place(replica).row);
        for (seen, meaning) in self.words_seen.iter_mut().zip(&self.meanings) {
            if meaning.to.is_none_or(|to| to == row) {
                *seen = 0;
            }
        }
    }
}

/// The meanings of the words of an engine with these replicas, in the order of [`ReplicaLinks::word_at`].
pub(super) fn meanings(topology: Topology, local: &[ReplicaId]) -> Vec<Meaning> {
    let groups = (0..topology.groups).map(GroupId);
    let replicas: Vec<_> = groups.flat_map(|group| topology.replicas_of(group)).collect();
    let to_all = [StatusColumn::Accepted, StatusColumn::Settled]
        .into_iter()
        .flat_map(|column| replicas.iter().map(move |by| Meaning { column, by: *by, to: None }));
    let to_one = local.iter().enumerate().flat_map(|(row, reader)| {
        [StatusColumn::Freed, StatusColumn::Applied].into_iter().flat_map(move |column| {
            topology.replicas_of(reader.group).map(move |by| Meaning { column, by, to: Some(row) })
        })
    });
    to_all.chain(to_one).collect()
}

/// Appends the words that differ from `seen`, and updates it. The first word has number `at`.
fn note_changes(at: usize, now: &[[u8; 8]], seen: &mut [u64], news: &mut Vec<(usize, u64)>) {
    let now = now.iter().map(|word| u64::from_ne_bytes(*word));
    for (at, (now, seen)) in (at..).zip(now.zip(seen)) {
        if now != *seen {
            *seen = now;
            news.push((at, now));
        }
    }
}

/// Number of words of an engine that runs `local` replicas.
pub(super) fn words_of(topology: Topology, local: usize) -> usize {
    2 * (members(topology) + local * usize::from(topology.replicas))
}
