//! Limits of the search before a history is reported as undecided.

/// Executions for the whole history: at least the first; beyond it, the second per transaction.
const WHOLE_MIN: u64 = 4_000_000;
const WHOLE_EACH: u64 = 8;
/// The same for all projections of a history together.
const PARTS_MIN: u64 = 8_000_000;
const PARTS_EACH: u64 = 4;
/// The same for one projection, by the number of its transactions.
const PART_MIN: u64 = 20_000;
const PART_EACH: u64 = 32;

/// Limits of the search, in executions of a transaction. `None` is a limit that grows with the
/// history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effort {
    pub whole: Option<u64>,
    /// All projections together.
    pub parts: Option<u64>,
}

impl Effort {
    /// The limit for a history of `scripts` transactions.
    pub(super) fn of_whole(self, scripts: usize) -> u64 {
        self.whole.unwrap_or(WHOLE_MIN.max(WHOLE_EACH * scripts as u64))
    }

    /// The limit for all projections of a history of `scripts` transactions.
    pub(super) fn of_parts(self, scripts: usize) -> u64 {
        self.parts.unwrap_or(PARTS_MIN.max(PARTS_EACH * scripts as u64))
    }

    /// The limit for one projection of `scripts` transactions.
    pub(super) fn of_part(scripts: usize) -> u64 {
        PART_MIN.max(PART_EACH * scripts as u64)
    }
}
