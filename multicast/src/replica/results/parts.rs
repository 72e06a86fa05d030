//! The parts of the exchange that belong to single messages: results, and deliveries in flight.

use std::ops::Deref;

use skein_protocol::ids::{GroupId, MessageId, SessionId};
use skein_protocol::rank::Rank;

/// Another group's result that waits for its log entry to be committed.
pub(in crate::replica) struct Exchanged {
    pub(in crate::replica) index: u64,
    pub(in crate::replica) message: MessageId,
    pub(in crate::replica) from: GroupId,
    pub(in crate::replica) result: ReceivedResult,
}

/// A state machine's result for other groups. Most results have a few bytes, which need no allocation.
pub(in crate::replica) enum ReceivedResult {
    Short { len: u8, bytes: [u8; Self::SHORT] },
    Long(Box<[u8]>),
}

impl ReceivedResult {
    const SHORT: usize = 14;
}

impl From<&[u8]> for ReceivedResult {
    fn from(from: &[u8]) -> Self {
        let mut bytes = [0; Self::SHORT];
        match bytes.get_mut(..from.len()) {
            Some(short) => {
                short.copy_from_slice(from);
                Self::Short { len: from.len() as u8, bytes }
            }
            None => Self::Long(from.into()),
        }
    }
}

impl Deref for ReceivedResult {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// A delivery in flight: our machine has received the message, and it is not
/// [over](crate::application::Application::under_way).
pub(in crate::replica) struct InFlightDelivery {
    pub(super) message: MessageId,
    pub(super) rank: Rank,
    /// Everything up to this rank must have passed before the reply is sent.
    pub(super) reply_dependency: Rank,
    /// Time in milliseconds at which our machine received it.
    pub(super) since_ms: u64,
    /// Time in milliseconds at which other groups were last asked for their results, and how often they were asked.
    pub(super) asked_at: u64,
    pub(in crate::replica) asked: u32,
}

impl InFlightDelivery {
    pub(super) fn saved(&self) -> (u64, u64, u64, u64) {
        let MessageId { session, sequence } = self.message;
        (session.0, sequence, self.rank.number(), self.reply_dependency.number())
    }

    pub(super) fn restored(saved: (u64, u64, u64, u64), now_ms: u64) -> Self {
        let (session, sequence, rank, reply_dependency) = saved;
        let (rank, reply_dependency) = (Rank::new(rank), Rank::new(reply_dependency));
        let message = MessageId::new(SessionId(session), sequence);
        Self { message, rank, reply_dependency, since_ms: now_ms, asked_at: now_ms, asked: 0 }
    }
}
