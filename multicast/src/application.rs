//! What delivery does is somebody else's business: the boundary to the replicated state machine.

use serde::{Deserialize, Serialize};
use skein_fabric::Constants;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};

/// A message whose place in the order is decided.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its name.
    pub message: MessageId,
    /// The session needs no reply, and will send no retry, below this sequence number.
    pub low_water: u64,
    /// All the groups that deliver it.
    pub destinations: GroupSet,
    /// The ordering's clock there: it falls from no delivery of a group to the next, and a group that is recreated goes on
    /// above all that its former self may have reached.
    pub clock: u64,
    /// Its place in this group's order: rises by one with each delivery, the same at every replica.
    pub position: u64,
    /// The leader's clock when it logged the message, in milliseconds: replicated time.
    pub time_ms: u64,
    /// The payload that was multicast.
    pub payload: &'a [u8],
    /// Whether what this replica answers goes out, as it leads. The one thing in which replicas differ: one
    /// that does not answer may leave undone what changes nothing, and has nothing to
    /// [repeat](Application::repeat) then.
    pub answers: bool,
}

/// What a state machine holds, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// The last message that counts.
    pub position: u64,
    /// Equal at replicas of a group whose states and answers are equal up to there.
    pub digest: u64,
}

/// A deterministic state machine, one per replica. Everything it does follows from the calls below,
/// which every replica of a group makes in the same order with the same arguments, but for
/// [`Delivery::answers`].
pub trait Application {
    /// What every replica's machine must have alike besides its state, because an outcome depends on it:
    /// limits, for instance. Engines whose machines differ in an entry refuse each other.
    fn constants(&self) -> Constants {
        Constants::default()
    }

    /// Takes the next message of the order.
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox);

    /// Takes what group `from` [exchanged](Outbox::exchange) about `message`. May come before this
    /// group has delivered the message. What comes again, from a leader that does not know what the
    /// last one said, is the same.
    fn exchanged(&mut self, message: MessageId, from: GroupId, result: &[u8], out: &mut dyn Outbox);

    /// Goes on with what earlier calls have made possible and left undone, since it was too much for one call. Returns
    /// whether there was anything. Nothing else is given to the machine before it returns false.
    fn go_on(&mut self, _out: &mut dyn Outbox) -> bool {
        false
    }

    /// Whether the next message may be delivered. False makes the order wait, for instance for
    /// another group's result.
    fn ready(&self) -> bool;

    /// Bytes that were copied, filled or scanned in the calls since this was last asked, about. When they
    /// are many, the engine does something else before the next delivery, so that no turn takes long.
    fn take_work(&mut self) -> u64 {
        0
    }

    /// How many of the messages delivered are not *over*: the last so many. A message is over when it
    /// has taken effect and all before it are over; nobody's results about it are of use any more. As
    /// it stands, a machine waits for the last one only, and takes no other meanwhile.
    fn under_way(&self) -> usize {
        usize::from(!self.ready())
    }

    /// Digests of the state and of all that was said, for replicas of a group to compare: the last one that
    /// was taken at a place where every replica takes one, and the present one. One that differs from
    /// another replica's at the same position shows that the replicas have gone apart.
    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    /// The digest that it had at this position of the order, if it knows.
    fn digest_at(&self, position: u64) -> Option<u64> {
        let _ = position;
        None
    }

    /// A message came again after it was delivered: repeat its reply, if it still is owed one.
    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox);

    /// Answers from the state as it is, which it leaves as it is, by appending to `answer`. False is "not
    /// now": what the answer depends on is being decided. A machine that does not say how is asked
    /// nothing.
    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> bool {
        let _ = (query, answer);
        true
    }

    /// Begins to copy the state for a replica that has none, while deliveries go on. There is at
    /// most one copy at a time; beginning another gives up the first.
    fn begin_copy(&mut self);

    /// Appends the next part of the copy, of about `bytes` bytes, to `part`: what was not copied
    /// yet, and then what has changed since it was copied. Returns whether so little is left that
    /// [`finish_copy`](Self::finish_copy) takes no longer than this did.
    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> bool;

    /// Appends the last part: all that is missing to make the parts together the state as it is at
    /// this moment, and what is [under way](Self::under_way): what other groups wait for may need the
    /// learner's word before it comes.
    fn finish_copy(&mut self, part: &mut Vec<u8>);

    /// Gives up the copy: whoever needed it is gone.
    fn give_up_copy(&mut self);

    /// Takes the next part of another replica's state, in the order in which they were made, into a
    /// machine that has delivered nothing. After the `last` it is the same as the one copied.
    fn restore(&mut self, part: &[u8], last: bool) -> Result<(), Malformed>;
}

/// Bytes that should be part of a state machine's state are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of a copied state makes no sense")]
pub struct Malformed;

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

/// Answers each message with its sequence number: what is left is what the order costs. It has no
/// state, so whoever loses its own has lost nothing, and a reply can be repeated without being kept.
#[derive(Clone, Copy, Debug)]
pub struct Answer;

impl Application for Answer {
    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) {
        self.repeat(delivery.message, out);
    }

    fn exchanged(&mut self, _: MessageId, _: GroupId, _: &[u8], _: &mut dyn Outbox) {}

    fn ready(&self) -> bool {
        true
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        out.reply(message, &message.sequence.to_le_bytes());
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> bool {
        true
    }

    fn finish_copy(&mut self, _: &mut Vec<u8>) {}

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, _: &[u8], _: bool) -> Result<(), Malformed> {
        Ok(())
    }
}

/// The longest exchanged result, in bytes.
pub const EXCHANGE_MAX: usize = 1 << 10;
