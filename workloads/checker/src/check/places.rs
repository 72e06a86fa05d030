//! The order of keys, and the keys of each range.

use super::names::Names;
use super::scripts::Span;
use crate::history::bytes;

/// The rank of every key. Empty in a history without ranges.
#[derive(Default)]
pub(super) struct Places {
    ranks: Vec<u32>,
    by_rank: Vec<u32>,
    /// Ranks in each range.
    spans: Vec<(u32, u32)>,
}

impl Places {
    pub(super) fn new(names: &Names, ranges: &[Span]) -> Self {
        if ranges.is_empty() {
            return Self::default();
        }
        let keys = names.len() as u32;
        let mut by_rank: Vec<u32> = (0..keys).collect();
        by_rank.sort_by_cached_key(|key| bytes(names.text(*key)).into_owned());
        let mut ranks = vec![0; by_rank.len()];
        for (rank, key) in (0..).zip(&by_rank) {
            ranks[*key as usize] = rank;
        }
        let place =
            |bound: &[u8]| by_rank.partition_point(|key| *bytes(names.text(*key)) < *bound) as u32;
        let span = |range: &Span| {
            let from = place(&range.start);
            let to = range.end.as_ref().map_or(keys, |end| place(end));
            (from, to.max(from))
        };
        let spans = ranges.iter().map(span).collect();
        Self { ranks, by_rank, spans }
    }

    /// The rank of a key, if there are ranges.
    pub(super) fn rank(&self, key: u32) -> Option<u32> {
        self.ranks.get(key as usize).copied()
    }

    /// The key of a rank.
    pub(super) fn key(&self, rank: u32) -> u32 {
        self.by_rank[rank as usize]
    }

    /// The keys of the ranks in `from..to`.
    pub(super) fn keys(&self, from: u32, to: u32) -> &[u32] {
        &self.by_rank[from as usize..to as usize]
    }

    /// The ranks in a range.
    pub(super) fn span(&self, range: u32) -> (u32, u32) {
        self.spans[range as usize]
    }
}
