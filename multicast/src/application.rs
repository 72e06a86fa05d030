//! The boundary to the replicated state machine.

use std::convert::Infallible;
use std::error::Error;

use serde::{Deserialize, Serialize};
use skein_fabric::Constants;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};

/// A message whose position in the order is decided.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub message: MessageId,
    /// The session needs no reply to messages below this sequence number, and will not send them again.
    pub low_water: u64,
    /// All groups that deliver it.
    pub destinations: GroupSet,
    /// The ordering's clock of the message. It never falls from one delivery of a group to the next, and a
    /// recreated group continues above every clock that it may have reached before.
    pub clock: u64,
    /// Position in this group's order: rises by one with each delivery, and is the same at every replica.
    pub position: u64,
    /// The leader's clock when it logged the message, in milliseconds: replicated time.
    pub time_ms: u64,
    pub payload: &'a [u8],
    /// Whether this replica sends its answers, because it leads. Replicas differ in this field only. A
    /// replica that does not answer may skip work that changes no state, and then has nothing to
    /// [repeat](Application::repeat).
    pub answers: bool,
}

/// A digest of a state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest {
    /// Position of the last message that is included.
    pub position: u64,
    /// Equal at replicas of a group whose states and answers are equal up to `position`.
    pub digest: u64,
}

/// The state of a machine's result about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// It has exchanged a result, or had no reason to, or will exchange nothing but an objection.
    Given,
    /// It is yet to speak, and so is every machine of the group that has received the same messages and results: another group's
    /// result about an earlier message is missing.
    Blocked,
    /// Anything else.
    Open,
}

/// A deterministic state machine, one per replica. Everything it does follows from the calls below,
/// which every replica of a group makes in the same order with the same arguments, but for
/// [`Delivery::answers`].
///
/// A call that returns a [`Failure`](Self::Failure) may have done a part of what it was to do. The replica says nothing of
/// what that call said, and the machine is not called again.
pub trait Application {
    /// Why this replica's machine cannot go on, though those of other replicas may: what it holds could not be read or
    /// written, for instance. [`Infallible`] for one that always can.
    type Failure: Error;

    /// Settings, such as limits, that all replicas' machines must have in common because outcomes depend on
    /// them. Engines whose machines differ in an entry refuse each other.
    fn constants(&self) -> Constants {
        Constants::default()
    }

    /// Delivers the next message of the order.
    fn deliver(
        &mut self,
        delivery: Delivery<'_>,
        out: &mut dyn Outbox,
    ) -> Result<(), Self::Failure>;

    /// Delivers the result that group `from` [exchanged](Outbox::exchange) about `message`, perhaps before
    /// this group has delivered the message. A new leader repeats results that its predecessor may have sent;
    /// the repetition is identical.
    ///
    /// An empty result is an *objection*: the group may have forgotten the message, since a group was recreated, and does
    /// nothing for it. So must this one, if the message depends on that result. From this machine's own group, it comes before
    /// the machine has spoken about the message, and is its group's only result: the machine exchanges the same.
    fn exchanged(
        &mut self,
        message: MessageId,
        from: GroupId,
        result: &[u8],
        out: &mut dyn Outbox,
    ) -> Result<(), Self::Failure>;

    /// Continues work that earlier calls have enabled and left undone because it was too much for one call.
    /// Returns whether there was anything to do. The machine receives nothing else before it returns false.
    fn go_on(&mut self, _out: &mut dyn Outbox) -> Result<bool, Self::Failure> {
        Ok(false)
    }

    /// Whether something has arrived, though not from the engine, that [`go_on`](Self::go_on) takes in.
    fn has_news(&self) -> bool {
        false
    }

    /// Waits until there is such news. Returns false if there will be none.
    fn await_news(&mut self) -> bool {
        false
    }

    /// Whether this machine has exchanged a result about `message`, or still may. A machine that exchanges none need not tell.
    fn speech(&self, message: MessageId) -> Speech {
        let _ = message;
        Speech::Given
    }

    /// Returns whether the next message may be delivered. False makes the order wait, for instance for
    /// another group's result.
    fn ready(&self) -> bool;

    /// Returns whether this replica, as leader, may take a message of this session now. Otherwise the session waits, and the
    /// messages that others relay are taken nevertheless.
    fn takes(&self, session: SessionId) -> bool {
        let _ = session;
        true
    }

    /// Approximate number of bytes that were copied, filled or scanned in calls since the last call of this.
    /// If there are many, the engine does something else before the next delivery, so that no turn takes
    /// long.
    fn take_work(&mut self) -> u64 {
        0
    }

    /// Number of delivered messages that are not *over*: the last so many. A message is over when it has
    /// taken effect, results about it are no longer needed, and all earlier messages are over. By default, a
    /// machine waits for its last message only, and takes no other meanwhile.
    fn under_way(&self) -> usize {
        usize::from(!self.ready())
    }

    /// Digests of the state and of all answers, for replicas of a group to compare: the last digest that was
    /// taken at a position where every replica takes one, and the present one. Two digests that differ at one
    /// position show that the replicas have diverged.
    fn digests(&self) -> Vec<Digest> {
        Vec::new()
    }

    /// The digest at this position of the order, if the machine still has it.
    fn digest_at(&self, position: u64) -> Option<u64> {
        let _ = position;
        None
    }

    /// Repeats the reply to a message that came again after it was delivered, if its session may still need it.
    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox);

    /// Answers a query from the present state, without changing the replicated state, by appending to `answer`. Returns false
    /// if it cannot answer now, because a message that the answer depends on is not over. The default appends
    /// nothing; such a machine receives no queries.
    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> Result<bool, Self::Failure> {
        let _ = (query, answer);
        Ok(true)
    }

    /// Begins to copy the state for a replica that has none, while deliveries continue. There is at most one
    /// copy at a time; beginning another drops the first.
    fn begin_copy(&mut self);

    /// Whether the next part of the copy can be made now. If not, it can after some [news](Self::has_news).
    fn can_copy(&self) -> bool {
        true
    }

    /// Appends the next part of the copy, of about `bytes` bytes, to `part`: first what was not copied yet,
    /// then what has changed since it was copied. Returns whether so little is left that
    /// [`finish_copy`](Self::finish_copy) takes no longer than this call did.
    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> Result<bool, Self::Failure>;

    /// Whether the copy has come to all of the state once, but for what is small: its next parts are of what has changed since.
    /// True for a machine that cannot tell.
    fn has_walked(&self) -> bool {
        true
    }

    /// The copy that was begun is to end soon. A machine that has kept its parts short although much changes lets them catch
    /// up from now on.
    fn hasten_copy(&mut self) {}

    /// Appends the last part: all that is missing to make the parts together the state at this moment, and
    /// the messages that are [under way](Self::under_way): other groups may need the learner's results about
    /// them before their own results arrive.
    fn finish_copy(&mut self, part: &mut Vec<u8>) -> Result<(), Self::Failure>;

    /// Drops the copy: the receiver is gone.
    fn give_up_copy(&mut self);

    /// Begins a copy for the replica's own disk, to which [`copy`](Self::copy) and [`finish_copy`](Self::finish_copy) add
    /// the parts as to any other. A machine that keeps a part of its state in files of its own may leave that part out, and
    /// name the files: it then keeps the state of the moment at which the copy was finished. By default all of the state is
    /// copied.
    fn begin_snapshot(&mut self) {
        self.begin_copy();
    }

    /// Whether everything that the last finished snapshot names is on disk. If not, it will be after some
    /// [news](Self::has_news).
    fn has_kept(&self) -> bool {
        true
    }

    /// The last finished snapshot is on disk with all that it names: what only earlier ones name is not needed any more.
    fn drop_earlier(&mut self) {}

    /// Restores the next part of a snapshot that this replica wrote, as [`restore`](Self::restore) restores that of a copy.
    /// By default they are the same.
    ///
    /// # Errors
    /// The bytes are not a part of a state, or what they name is not there. After the latter, the machine is not called again.
    fn restore_snapshot(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, Self::Failure> {
        Ok(self.restore(part, last)?.map_err(|Malformed| NotRestored::Malformed))
    }

    /// Restores the next part of another replica's state, in the order in which the parts were made, into a
    /// machine that has delivered nothing. After the `last` part it equals the copied state.
    ///
    /// # Errors
    ///
    /// The bytes are not a part of a state.
    fn restore(&mut self, part: &[u8], last: bool) -> Result<Result<(), Malformed>, Self::Failure>;
}

/// A replica's state machine has failed, and with it the engine that ran the replica: it does nothing any more.
#[derive(Debug, thiserror::Error)]
#[error("replica {replica} has stopped: {why}")]
pub struct Stopped<E> {
    /// Whose machine it is.
    pub replica: ReplicaId,
    /// What happened to it.
    pub why: E,
}

/// The bytes are not a part of a state machine's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a part of a copied state is invalid")]
pub struct Malformed;

/// Why a part of a snapshot was not restored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// The bytes are not a part of a state.
    #[error("a part of a snapshot is invalid")]
    Malformed,
    /// Files that it names, besides its parts, are not there or are others. The text says what is wrong.
    #[error("{0}")]
    NotKept(String),
}

/// Takes the output of a state machine. Every replica's machine produces all output; only the leader's is sent.
pub trait Outbox {
    /// Replies to a message's session. The session gets one reply from each destination group.
    fn reply(&mut self, message: MessageId, reply: &[u8]);

    /// Sends this group's result of `message` to every replica of the groups `to`, in at most [`EXCHANGE_MAX`] bytes.
    fn exchange(&mut self, message: MessageId, to: GroupSet, result: &[u8]);

    /// Ends a session that was closed or has expired: the memory that recognises its duplicates may be freed,
    /// some time later. Every replica must call this alike, during delivery.
    fn end_session(&mut self, session: SessionId);
}

/// Answers each message with its sequence number, to measure the cost of ordering alone. It has no state, so
/// a replica that loses its memory has lost nothing, and a reply can be repeated without being kept.
#[derive(Clone, Copy, Debug)]
pub struct Answer;

impl Application for Answer {
    type Failure = Infallible;

    fn deliver(&mut self, delivery: Delivery<'_>, out: &mut dyn Outbox) -> Result<(), Infallible> {
        self.repeat(delivery.message, out);
        Ok(())
    }

    fn exchanged(
        &mut self,
        _: MessageId,
        _: GroupId,
        _: &[u8],
        _: &mut dyn Outbox,
    ) -> Result<(), Infallible> {
        Ok(())
    }

    fn ready(&self) -> bool {
        true
    }

    fn repeat(&mut self, message: MessageId, out: &mut dyn Outbox) {
        out.reply(message, &message.sequence.to_le_bytes());
    }

    fn begin_copy(&mut self) {}

    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> Result<bool, Infallible> {
        Ok(true)
    }

    fn finish_copy(&mut self, _: &mut Vec<u8>) -> Result<(), Infallible> {
        Ok(())
    }

    fn give_up_copy(&mut self) {}

    fn restore(&mut self, _: &[u8], _: bool) -> Result<Result<(), Malformed>, Infallible> {
        Ok(Ok(()))
    }
}

/// The longest exchanged result, in bytes.
pub const EXCHANGE_MAX: usize = 1 << 10;
