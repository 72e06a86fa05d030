//! The choice between RamCast and a tree, from the ratios of what was measured.

use serde::Serialize;

/// Ratios closer to 1 than this are no difference.
pub(super) const NOISE: f64 = 0.10;

/// Ratios of a tree to RamCast under the same load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub tree: String,
    /// Of messages per second: more is better.
    pub throughput: f64,
    /// Of the median latency: less is better.
    pub latency: f64,
    /// Whether the ranges of both orderings' runs overlap, in throughput and in latency.
    pub overlap: bool,
}

/// The ordering that suits a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Ramcast,
    Tree,
    /// No difference, or one within noise.
    Either,
    /// The best tree is better in one of throughput and latency, and worse in the other.
    Mixed,
    /// Not known.
    Unknown,
}

/// What a choice rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Both orderings are in the file.
    File,
    /// The table of measured ratios.
    Table,
    /// Both orderings do the same for such operations.
    Definition,
    /// Nothing.
    None,
}

/// Which ordering suits some operations.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    pub verdict: Verdict,
    /// The best of the trees that were measured; null if none was.
    pub tree: Option<String>,
    /// Other trees within noise of it.
    pub equals: Vec<String>,
    pub basis: Basis,
    /// The row of the table: groups addressed, and of how many; null if it rests on something else.
    pub row: Option<[u16; 2]>,
    /// Each tree's ratios to RamCast, the best tree first.
    pub ratios: Vec<Ratio>,
}

impl Ratio {
    fn better(&self) -> bool {
        !self.overlap && (self.throughput > 1.0 + NOISE || self.latency < 1.0 / (1.0 + NOISE))
    }

    fn worse(&self) -> bool {
        !self.overlap && (self.throughput < 1.0 / (1.0 + NOISE) || self.latency > 1.0 + NOISE)
    }

    /// One number for both ratios; more is better.
    fn gain(&self) -> f64 {
        (self.throughput / self.latency).sqrt()
    }
}

impl Choice {
    /// The choice for operations that both orderings treat alike.
    pub(super) fn same() -> Self {
        Self::without(Verdict::Either, Basis::Definition)
    }

    /// The choice if nothing is known.
    pub(super) fn unknown() -> Self {
        Self::without(Verdict::Unknown, Basis::None)
    }

    fn without(verdict: Verdict, basis: Basis) -> Self {
        let (equals, ratios) = (Vec::new(), Vec::new());
        Self { verdict, tree: None, equals, basis, row: None, ratios }
    }

    /// The choice that ratios make: of the tree with the greatest gain.
    pub(super) fn of(mut ratios: Vec<Ratio>, basis: Basis) -> Self {
        ratios.sort_by(|one, other| other.gain().total_cmp(&one.gain()));
        let Some(best) = ratios.first() else { return Self::unknown() };
        let verdict = match (best.better(), best.worse()) {
            (true, false) => Verdict::Tree,
            (false, true) => Verdict::Ramcast,
            (false, false) => Verdict::Either,
            (true, true) => Verdict::Mixed,
        };
        let near = ratios[1..].iter().filter(|ratio| ratio.gain() * (1.0 + NOISE) > best.gain());
        let equals = near.map(|ratio| ratio.tree.clone()).collect();
        Self { verdict, tree: Some(best.tree.clone()), equals, basis, row: None, ratios }
    }
}
