//! What the replicas of a group tell each other about who leads it and who is in it.

use serde::{Deserialize, Serialize};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::runs::Runs;

use crate::application::Digest;
use crate::introductions::Key;

/// A place in the log, as sent: index of the next entry, and position.
pub(crate) type SentCursor = (u64, u64);

pub(crate) fn place(cursor: Cursor) -> SentCursor {
    (cursor.index, cursor.position)
}

pub(crate) fn cursor((index, position): SentCursor) -> Cursor {
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
    /// I have no state that counts: whoever leads, give me yours if I need one, or let me in. I need that of
    /// whoever leads in this ballot, who left me behind, or of anybody, if it is none. I have applied everything
    /// up to this final timestamp, and have taken so much of a copy of yours.
    Ask { incarnation: u32, needs: Option<u64>, applied: u64, taken: Option<Taken> },
    /// I lead in this ballot, or follow, and the `Join` of this incarnation of yours is committed.
    Admitted { ballot: u64, incarnation: u32 },
    /// I have logged these messages, by session and number, and cannot tell that they are decided.
    Lacks { messages: Vec<(u64, u64)> },
    /// Lead instead of me, whose ballot this is: I lack what nobody tells any more, or the log that is
    /// to be taken over.
    TimeoutNow { ballot: u64 },
    /// A part of the state. Followed by its bytes.
    State(Part),
    /// I lead in this ballot, and am asked to read: promise me a lease.
    Lease { ballot: u64, number: u64 },
    /// This incarnation of me lets nobody else lead, for one lease from when it says so.
    Promised { ballot: u64, number: u64, incarnation: u32 },
    /// I lead, and the connections of these sessions to me have ended: has one to you?
    Seeks { sessions: Vec<u64> },
    /// These have.
    Sees { sessions: Vec<u64> },
    /// What my state is at these positions, in short. I follow, or lead, in this ballot.
    Digests { ballot: u64, digests: Vec<Digest> },
    /// As this incarnation I was given a copy of your state, and it is not what its digest says.
    Malformed { copy: CopyId, incarnation: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub ballot: u64,
    /// Elected already.
    pub leads: bool,
    /// Even a leader that is well shall be given up.
    pub forced: bool,
    /// Raised when what was granted was lost: a question asked twice is answered once.
    pub attempt: u32,
    /// Up to where the asking one knows the log to be committed.
    pub commit: SentCursor,
    /// The incarnations of its committed view, by slot: who is among them grants, though it may not have read
    /// that its `Join` is committed.
    pub admitted: Vec<u32>,
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
    pub runs: Vec<(u64, SentCursor)>,
    pub end: SentCursor,
    /// Up to which position it needs the log no more.
    pub freed: u64,
    /// Whether what follows goes on where the asking one's log is committed.
    pub whole: bool,
    /// Up to which final timestamp it has applied everything.
    pub applied: u64,
    /// From which position on its memory holds its log.
    pub held_from: u64,
}

impl Granted {
    pub(crate) fn runs(&self) -> Runs {
        let run = |(birth, first): &(u64, SentCursor)| (Ballot::from_word(*birth), cursor(*first));
        Runs::new(self.runs.iter().map(run), cursor(self.end))
    }
}

/// How far a copy of a state has come: which copy of its giver's, and the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub copy: CopyId,
    pub next: u64,
}

/// A copy of a replica's state. No two copies of a slot's have one name: its incarnation, and the copy's number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyId {
    pub giver: u32,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// For which incarnation it is.
    pub incarnation: u32,
    /// Of which copy.
    pub copy: CopyId,
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
