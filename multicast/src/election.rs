//! What the replicas of a group tell each other about who leads it and who is in it.

use serde::{Deserialize, Serialize};
use skein_protocol::ballot::Ballot;
use skein_protocol::log::Cursor;
use skein_protocol::runs::Runs;

use crate::mail::Key;

/// A place in the log, as sent: index of the next entry, and position.
pub(crate) type Place = (u64, u64);

pub(crate) fn place(cursor: Cursor) -> Place {
    (cursor.index, cursor.position)
}

pub(crate) fn cursor((index, position): Place) -> Cursor {
    Cursor { index, position }
}

/// One of them; some are followed by bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Election {
    /// Let me write your log.
    Prepare(Prepare),
    /// You may: nobody else does. Followed by the [`Piece`]s of the log that the other may lack.
    Granted(Granted),
    /// You may not: I have promised myself to a higher ballot, or my leader is well.
    Refused { promised: u64 },
    /// I lead, and what you lack is not in my log any more: ask for the state.
    Behind { ballot: u64 },
    /// I have no state that counts: whoever leads, give me yours if I need one, or let me in. Silent, if our
    /// group has not let me in as far as I know. I need that of whoever leads in this ballot, who left me
    /// behind, or of anybody, if it is none.
    Ask { incarnation: u32, silent: bool, needs: Option<u64> },
    /// I have logged these messages, by session and number, and cannot tell that they are decided.
    Lacks { messages: Vec<(u64, u64)> },
    /// Lead instead of me, whose ballot this is: I lack what nobody tells any more, or the log that is
    /// to be taken over.
    Succeed { ballot: u64 },
    /// A part of the state. Followed by its bytes.
    State(Part),
    /// I lead in this ballot, and am asked to read: promise me a lease.
    Lease { ballot: u64, number: u64 },
    /// This life of me lets nobody else lead, for one lease from when it says so.
    Promised { ballot: u64, number: u64, incarnation: u32 },
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub ballot: u64,
    /// Elected already.
    pub leads: bool,
    /// Even a leader that is well shall be given up.
    pub forced: bool,
    /// Raised when what was granted was lost: a question asked twice is answered once.
    pub attempt: u32,
    /// Up to where the asking one knows the log to be committed.
    pub commit: Place,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub ballot: u64,
    /// Which question this answers: a later one's answer takes this grant back.
    pub attempt: u32,
    pub incarnation: u32,
    /// The grant's number, and the key to the log.
    pub grant: u64,
    pub key: Key,
    /// The lives that count, at the end of the granter's log.
    pub named: Vec<u32>,
    /// The births of its entries.
    pub runs: Vec<(u64, Place)>,
    pub end: Place,
    /// Up to which position it needs the log no more.
    pub freed: u64,
    /// Whether what follows goes on where the asking one's log is committed.
    pub whole: bool,
}

impl Granted {
    pub(crate) fn runs(&self) -> Runs {
        let run = |(birth, first): &(u64, Place)| (Ballot::from_word(*birth), cursor(*first));
        Runs::new(self.runs.iter().map(run), cursor(self.end))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// For which life it is.
    pub incarnation: u32,
    /// Rising from 0.
    pub number: u64,
    pub content: Content,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// Of the state machine's state.
    Machine,
    /// The last of those.
    MachineLast,
    /// The ordering state, which ends the copy.
    Order,
}

impl Election {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    /// Splits it from the bytes that follow.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        postcard::take_from_bytes(bytes).ok()
    }
}

/// What follows a grant: log entries, and payloads that they do not hold.
pub(crate) enum Piece<'a> {
    /// A whole log entry.
    Entry(&'a [u8]),
    /// A message's name, head and payload.
    Payload(&'a [u8]),
}

impl<'a> Piece<'a> {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (kind, bytes) = match self {
            Piece::Entry(bytes) => (0, bytes),
            Piece::Payload(bytes) => (1, bytes),
        };
        into.push(kind);
        into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        into.extend_from_slice(bytes);
    }

    /// Splits the next piece off.
    pub(crate) fn next(from: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = from.split_first()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        *from = rest;
        Some(if *kind == 0 { Piece::Entry(bytes) } else { Piece::Payload(bytes) })
    }
}
