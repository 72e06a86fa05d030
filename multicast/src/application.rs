//! What delivery does is somebody else's business: the boundary to the replicated state machine.

use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
use skein_protocol::timestamp::Timestamp;

/// A message whose place in the order is decided.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its name.
    pub message: MessageId,
    /// The session needs no reply, and will send no retry, below this sequence number.
    pub low_water: u64,
    /// All the groups that deliver it.
    pub destinations: GroupSet,
    /// Its place in the order of all groups.
    pub timestamp: Timestamp,
    /// Its place in this group's order: rises by one with each delivery, the same at every replica.
    pub position: u64,
    /// The leader's clock when it logged the message, in milliseconds: replicated time.
    pub time_ms: u64,
    /// What was multicast.
    pub payload: &'a [u8],
}

/// A deterministic state machine, one per replica. Everything it does follows from the calls below,
/// which every replica of a group makes with the same arguments in the same order.
pub trait Application {
    /// Takes the next message of the order.
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox);

    /// Takes what group `from` [exchanged](Outbox::exchange) about `message`. May come before this
    /// group has delivered the message, never twice.
    fn exchanged(&mut self, message: MessageId, from: GroupId, result: &[u8], out: &mut dyn Outbox);

    /// Whether the next message may be delivered. False makes the order wait, for instance for
    /// another group's result.
    fn ready(&self) -> bool;

    /// A message came again after it was delivered: repeat its reply, if it still is owed one.
    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox);
}

/// What a state machine says. Every replica's machine says everything; only the leader's words go
/// out.
pub trait Outbox {
    /// Answers a message's session. The session gets one reply per destination group.
    fn reply(&mut self, message: MessageId, reply: &[u8]);

    /// Gives every replica of the groups `to` this group's result of `message`, at most
    /// [`EXCHANGE_MAX`] bytes.
    fn exchange(&mut self, message: MessageId, to: GroupSet, result: &[u8]);

    /// The session was closed or has expired: what is remembered to recognise its duplicates may
    /// go, some time after. To be called by every replica alike, while it delivers.
    fn end_session(&mut self, session: SessionId);
}

/// The longest exchanged result, in bytes.
pub const EXCHANGE_MAX: usize = 1 << 10;
