//! Messages between the replicas of a group about its leader and its members.

use serde::{Deserialize, Serialize};
use skein_protocol::ballot::Ballot;
use skein_protocol::group::frame::Cursor;
use skein_protocol::group::runs::Runs;

use crate::application::Digest;
use crate::introductions::Key;

/// A cursor of the log, as sent: index of the next entry, and its position.
pub(crate) type SentCursor = (u64, u64);

pub(crate) fn place(cursor: Cursor) -> SentCursor {
    (cursor.index, cursor.position)
}

pub(crate) fn cursor((index, position): SentCursor) -> Cursor {
    Cursor { index, position }
}

/// A message between two replicas of a group. Some are followed by bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Election {
    /// Asks for permission to write the receiver's log, and so to lead.
    Prepare(Prepare),
    /// Grants it: no other replica has the permission any more. Followed by the [`Piece`]s of the log that
    /// the receiver may lack.
    Granted(Granted),
    /// Refuses it: the sender has promised a higher ballot, or its leader is well.
    Refused { promised: u64 },
    /// From a leader to a follower: the log no longer has what the receiver lacks, so the receiver must ask
    /// for the state.
    Behind { ballot: u64 },
    /// From a replica without a state that counts: asks for a state transfer if it needs one, or for its
    /// admission. `needs` is the ballot of the leader that it lags behind, whose state it needs; `None` if
    /// any state will do. It has applied everything up to the final timestamp `applied`, and has received
    /// `taken` of a copy of the receiver's state. Followed by the [end](Self::log_end) of its committed log, if it can
    /// go on from there.
    Ask { incarnation: u32, needs: Option<u64>, applied: u64, taken: Option<Taken> },
    /// From a leader of this ballot or its follower: the `Join` of this incarnation of the receiver is committed.
    Admitted { ballot: u64, incarnation: u32 },
    /// From a follower: it has logged these messages, by session and number, and cannot see that they are decided.
    Lacks { messages: Vec<(u64, u64)> },
    /// From the leader of this ballot: the receiver is to lead instead, since the sender lacks something that
    /// nobody sends any more, or lacks the log that is to be taken over.
    TimeoutNow { ballot: u64 },
    /// A part of the state. Followed by its bytes.
    State(Part),
    /// From the leader: a part of its committed log. Followed by the [`Piece`]s.
    Log(LogPart),
    /// From the leader of this ballot, which has a read to confirm: asks for a lease.
    Lease { ballot: u64, number: u64 },
    /// Promises a lease: this incarnation of the sender lets no other replica lead, for one lease from the
    /// time of sending.
    Promised { ballot: u64, number: u64, incarnation: u32 },
    /// From the leader: the connections of these sessions to it have ended. Asks whether one has a connection
    /// to the receiver.
    Seeks { sessions: Vec<u64> },
    /// Answers `Seeks`: these sessions have.
    Sees { sessions: Vec<u64> },
    /// Digests of the sender's state. The sender follows, or leads, in this ballot.
    Digests { ballot: u64, digests: Vec<Digest> },
    /// Reports that a copy of the receiver's state, which this incarnation of the sender received, does not
    /// match its digest.
    Malformed { copy: CopyId, incarnation: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Prepare {
    pub ballot: u64,
    /// It is elected already.
    pub leads: bool,
    /// Even a leader that is well is to be deposed.
    pub forced: bool,
    /// Raised when a grant was lost: a request that arrives twice is answered once.
    pub attempt: u32,
    /// Up to where the candidate knows the log to be committed.
    pub commit: SentCursor,
    /// Incarnations of its committed view, by slot. A replica among them grants, even if it has not read yet
    /// that its own `Join` is committed.
    pub admitted: Vec<u32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Granted {
    pub ballot: u64,
    /// The attempt of the request that this answers. An answer to a later attempt revokes this grant.
    pub attempt: u32,
    pub incarnation: u32,
    /// The grant's number, and the key to the log.
    pub grant: u64,
    pub key: Key,
    /// The incarnations that count, at the end of the granter's log.
    pub named: Vec<u32>,
    /// The births of its log's entries.
    pub runs: Vec<(u64, SentCursor)>,
    pub end: SentCursor,
    /// Position up to which it no longer needs the log.
    pub freed: u64,
    /// Whether the pieces that follow continue where the candidate's log is committed.
    pub whole: bool,
    /// Final timestamp up to which it has applied everything.
    pub applied: u64,
    /// Position from which on its memory holds its log.
    pub held_from: u64,
}

impl Granted {
    pub(crate) fn runs(&self) -> Runs {
        let run = |(birth, first): &(u64, SentCursor)| (Ballot::from_word(*birth), cursor(*first));
        Runs::new(self.runs.iter().map(run), cursor(self.end))
    }
}

/// The progress of a state transfer: the sender's copy, and the number of the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub copy: CopyId,
    pub next: u64,
}

/// Names a copy of a replica's state: the incarnation of its slot, and the copy's number there. No two copies
/// of a slot have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyId {
    pub giver: u32,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The receiving incarnation.
    pub incarnation: u32,
    pub copy: CopyId,
    /// Rising from 0.
    pub number: u64,
    pub content: Content,
}

/// A part of a leader's committed log, which is sent as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogPart {
    /// The receiving incarnation.
    pub incarnation: u32,
    pub copy: CopyId,
    /// Rising from 0.
    pub number: u64,
    /// The leader keeps what follows until the receiver lets it write its log.
    pub last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Content {
    /// A part of the state machine's state.
    Machine,
    /// The last part of the state machine's state.
    MachineLast,
    /// The ordering state, which ends the copy.
    Order,
}

impl Content {
    /// As one byte.
    pub(crate) const fn to_byte(self) -> u8 {
        match self {
            Self::Machine => 0,
            Self::MachineLast => 1,
            Self::Order => 2,
        }
    }

    /// Decodes a byte.
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Machine,
            1 => Self::MachineLast,
            2 => Self::Order,
            _ => return None,
        })
    }
}

impl Election {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data")
    }

    /// The bytes behind an `Ask` of a replica whose committed log ends here.
    pub(crate) fn encode_log_end(end: Cursor) -> Vec<u8> {
        [end.index.to_le_bytes(), end.position.to_le_bytes()].concat()
    }

    /// The end of the log that the bytes behind an `Ask` tell.
    pub(crate) fn log_end(tail: &[u8]) -> Option<Cursor> {
        let (index, position) = tail.split_first_chunk()?;
        let position = u64::from_le_bytes(position.try_into().ok()?);
        Some(Cursor { index: u64::from_le_bytes(*index), position })
    }

    /// Splits the message from the bytes that follow.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        postcard::take_from_bytes(bytes).ok()
    }
}

/// A piece after a grant or of a log: a log entry, or a payload that an entry does not hold.
pub(crate) enum Piece<'a> {
    /// A whole log entry.
    Entry(&'a [u8]),
    /// A message's name, head and payload.
    Payload(&'a [u8]),
    /// The log is committed up to the entry `commit`, and its holder had delivered everything up to the rank `delivered` by
    /// what stands in front.
    Mark { commit: u64, delivered: u64 },
}

/// The kind of a mark.
const MARK: u8 = 2;

impl<'a> Piece<'a> {
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let mut mark = [0; 16];
        let (kind, bytes) = match *self {
            Piece::Entry(bytes) => (0, bytes),
            Piece::Payload(bytes) => (1, bytes),
            Piece::Mark { commit, delivered } => {
                mark[..8].copy_from_slice(&commit.to_le_bytes());
                mark[8..].copy_from_slice(&delivered.to_le_bytes());
                (MARK, &mark[..])
            }
        };
        into.push(kind);
        into.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        into.extend_from_slice(bytes);
    }

    /// Splits off the next piece.
    pub(crate) fn next(from: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = from.split_first()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        *from = rest;
        Some(match *kind {
            0 => Piece::Entry(bytes),
            MARK => {
                let (commit, delivered) = bytes.split_first_chunk()?;
                let delivered = u64::from_le_bytes(delivered.try_into().ok()?);
                Piece::Mark { commit: u64::from_le_bytes(*commit), delivered }
            }
            _ => Piece::Payload(bytes),
        })
    }

    /// Whether an encoded piece is a mark.
    pub(crate) fn is_mark(encoded: &[u8]) -> bool {
        encoded.first() == Some(&MARK)
    }
}
