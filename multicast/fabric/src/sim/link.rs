//! Connections: lanes of steps that land one after the other.
//!
//! A connection has a lane for what is written and read, one for mail, and one for answers on their
//! way back. Each lane is first in, first out, and nothing orders one lane against another, be it
//! of the same connection or not: that is all the fabric promises, and so all that is given.

use std::collections::VecDeque;

use crate::Outcome;
use crate::sim::rng::Rng;

/// Which lane of a connection.
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
    /// How an untagged write failed, until a tagged one reports it.
    pub(super) failed: Option<Outcome>,
    /// How much slower than others this connection is now.
    pub(super) drag: u64,
    /// It has broken: another takes its place when one side dials again.
    pub(super) broken: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Each with the earliest time at which it may happen.
    pub(super) steps: VecDeque<(u64, Step)>,
    /// The first step is in the calendar.
    pub(super) armed: bool,
    /// Where operations have costs: the first step has passed the receiving cable and card.
    pub(super) arrived: bool,
}

/// Something that happens at one moment, as far as anybody can see.
#[derive(Debug)]
pub(super) enum Step {
    /// Some words of a write become visible.
    Land { op: u32, piece: Piece, last: bool },
    /// Some words of a read are fetched.
    Fetch { op: u32, piece: Piece, last: bool },
    /// The target is woken if it is parked.
    Wake,
    /// It would have been woken here by a process that has died or a connection that has broken.
    LostWake,
    /// A letter arrives.
    Mail(Vec<u8>),
    /// What a read fetched arrives at its reader.
    Deposit { op: u32 },
    /// The poster learns how an operation ended.
    Complete { tag: Option<u64>, outcome: Outcome },
}

/// A part of an operation: bytes `at..at + len` of it.
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

/// Cuts `len` bytes at words or cache lines, in any order.
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
