//! Connections: lanes of steps, each of which lands after the one before.
//!
//! A connection has a lane for writes and reads, one for control messages, and one for answers on their way back. Each
//! lane is first in, first out. Steps of different lanes are not ordered, whether of one connection or of two: the
//! fabric promises no more, so the simulator provides no more.

use std::collections::VecDeque;

use crate::Outcome;
use crate::sim::rng::Rng;

/// A lane of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Way {
    Data,
    Mail,
    Back,
}

#[derive(Debug)]
pub(super) struct SimLink {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) data: Lane,
    pub(super) mail: Lane,
    pub(super) back: Lane,
    /// The failure of an untagged write, until a tagged operation reports it.
    pub(super) failed: Option<Outcome>,
    /// Current factor on the latency of this connection.
    pub(super) drag: u64,
    /// A broken connection stays broken. Dialing again makes another.
    pub(super) broken: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Each step with the earliest time at which it may happen.
    pub(super) steps: VecDeque<(u64, Step)>,
    /// Whether the first step is in the calendar, or held back by a partition.
    pub(super) armed: bool,
    /// With costs only: whether the first step has passed the receiving cable and card.
    pub(super) arrived: bool,
}

/// An event that appears atomic to every process.
#[derive(Debug)]
pub(super) enum Step {
    /// Some words of a write become visible.
    Land { op: u32, piece: Piece, last: bool },
    /// Some words of a read are fetched.
    Fetch { op: u32, piece: Piece, last: bool },
    /// The target is woken if it is parked.
    Wake,
    /// A wake-up of the target is lost, because its sender died or the connection broke.
    LostWake,
    /// A control message arrives.
    Mail(Vec<u8>),
    /// Bytes that a read fetched arrive at the reader.
    Deposit { op: u32 },
    /// The poster receives the outcome of an operation.
    Complete { tag: Option<u64>, outcome: Outcome },
}

/// A part of an operation: its bytes `at..at + len`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: usize,
    pub(super) len: usize,
}

impl SimLink {
    pub(super) fn new(from: usize, to: usize) -> Self {
        let lane = Lane::default;
        Self {
            from,
            to,
            data: lane(),
            mail: lane(),
            back: lane(),
            failed: None,
            drag: 1,
            broken: false,
        }
    }

    pub(super) fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::Data => &mut self.data,
            Way::Mail => &mut self.mail,
            Way::Back => &mut self.back,
        }
    }
}

const PIECES_MAX: u64 = 6;
const LINE: usize = 64;

/// Cuts `len` bytes at boundaries of words or of cache lines. Returns the pieces in random order.
pub(super) fn cut(rng: &mut Rng, len: usize) -> Vec<Piece> {
    let unit = if rng.one_in(2) { LINE } else { crate::memory::WORD };
    let cuts_max = (len.div_ceil(unit) as u64).saturating_sub(1).min(PIECES_MAX - 1);
    let cuts = if cuts_max == 0 { 0 } else { rng.between(1, cuts_max) };
    let mut ends: Vec<usize> = (0..cuts)
        .map(|_| unit * rng.between(1, len.div_ceil(unit) as u64 - 1) as usize)
        .chain([len])
        .collect();
    ends.sort_unstable();
    ends.dedup();
    let mut at = 0;
    let mut pieces = Vec::with_capacity(ends.len());
    for end in ends {
        pieces.push(Piece { at, len: end - at });
        at = end;
    }
    rng.shuffle(&mut pieces);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_words_and_make_up_the_write() {
        let mut rng = Rng::new(3);
        for len in [0, 1, 8, 9, 63, 64, 65, 100, 4096, 4099] {
            for _ in 0..200 {
                let mut pieces = cut(&mut rng, len);
                pieces.sort_unstable_by_key(|piece| piece.at);
                let mut end = 0;
                for piece in &pieces {
                    assert_eq!(piece.at, end, "{len}: {pieces:?}");
                    assert!(piece.at.is_multiple_of(8), "{len}: {pieces:?}");
                    end += piece.len;
                }
                assert_eq!(end, len);
            }
        }
    }
}
