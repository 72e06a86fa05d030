//! Ordering along a tree of groups: TRAM (Middleware '22), on the group log.
//!
//! The lowest common ancestor (LCA) of a message's destinations gives it a place in its log and passes it on to the
//! children on its path, each of which logs it behind what came before and passes it on in turn. A group delivers what
//! is committed in its log and addressed to it, in log order.
//!
//! **Invariant (order).** What a group takes from its parent is a subsequence of the parent's log, in the same order, and
//! a group's own messages stand in no log above it. So the orders of all groups together have no cycle.
//!
//! **Invariant (leader change).** Only committed entries are passed on and told, so another leader passes on and tells
//! the same. All state but that of a leader follows from the committed log and from what other groups have told.
//!
//! `docs/protocols/tram.md` says what of the protocol is built, and how it departs from the paper.

mod boundary;
pub mod content;
pub mod edges;
mod entries;
pub mod gate;
pub mod held_up;
mod hooks;
mod inspect;
mod names;
mod neighbours;
mod pending;
mod results;
mod saved;
pub mod shared;
pub mod tree;
mod waiting;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::content::Content;
use self::edges::{Children, Edge, Incoming, Judgement};
pub use self::entries::{Body, Draft, Record, Taken};
use self::gate::Gate;
pub use self::inspect::{Edges, EdgesTo, Inspection};
use self::names::Names;
use self::neighbours::Retries;
use self::pending::{Pending, PendingQueue};
use self::shared::{Shared, SharedMessage};
use self::tree::Tree;
use self::waiting::Waiting;
use crate::ballot::Ballot;
use crate::group::GroupLog;
use crate::group::on_log::OnLog as _;
use crate::group::uncommitted::Uncommitted;
use crate::ids::{GroupId, GroupSet, MessageId, ReplicaId};
use crate::mutants::{Mutant, planted};
use crate::ordering::{Config, OrderingProtocol as _};
use crate::rank::Rank;
use crate::step::Deliver;

/// An event of this ordering.
pub type Event = crate::step::Event<Record, PeerEvent>;
/// An effect of this ordering.
pub type Effect = crate::step::Effect<Record, PeerEffect>;

/// Bits of a rank below the generation. An acceptance word has as many for an index.
const INDEX_BITS: u32 = 48;

/// Events from replicas of other groups.
#[derive(Clone, Copy, Debug)]
pub enum PeerEvent {
    /// Our parent passes on an entry.
    Passed {
        /// The sender, and the ballot in which it leads.
        from: ReplicaId,
        ballot: Ballot,
        edge: Edge,
        /// Checksum of the payload, if it is not in the entry.
        sum: u64,
        /// Whether we hold the payload, if there is one.
        held: bool,
    },
}

/// Effects for replicas of other groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEffect {
    /// Pass on an entry to a replica of a child, with our ballot.
    Pass { to: ReplicaId, edge: Edge },
    /// Send a replica of our parent or of a child what we [report](Tram::report).
    Report {
        to: ReplicaId,
        /// Whether the receiver is to report, too.
        asks: bool,
    },
    /// Send a replica of a group that shares messages with us what our group has [applied](Tram::report_applied).
    Applied {
        to: ReplicaId,
        /// Instead, ask how far its group has.
        asks: bool,
    },
    /// [Ask](Tram::ask_result) a replica of another group for its machine's result about a message.
    AskResult { to: ReplicaId, message: MessageId },
    /// A message is not ordered, because these groups cannot take it now: the driver hands it in again when one of them is
    /// not [closed](Tram::closed) any more, or its session does.
    Refuse { message: MessageId, closed: GroupSet },
}

/// The reasons to keep the payloads of messages, delivered or not: edges that a child is yet to acknowledge, and entries with
/// messages that are here already.
#[derive(Clone, Copy)]
struct Needed<'a> {
    children: &'a Children,
    repeats: &'a VecDeque<(u64, MessageId)>,
    waiting: &'a Waiting,
}

impl Needed<'_> {
    #[inline]
    fn has(self, message: MessageId) -> bool {
        self.children.keep(message)
            || self.repeats.iter().any(|(_, it)| *it == message)
            || self.waiting.has(message)
    }
}

/// One replica of one group.
pub struct Tram {
    config: Config,
    tree: Tree,
    log: GroupLog<Record>,
    /// Generation of our group in which edges to children are numbered.
    generation: u32,
    /// The highest ballot seen of each other group's leaders.
    ballots: Vec<Ballot>,
    logged: Names,
    incoming: Incoming,
    children: Children,
    gate: Gate,
    waiting: Waiting,
    pending: PendingQueue,
    delivered: u64,
    shared: Shared,
    /// The last delivery: its message, destinations and rank.
    newest: Option<(MessageId, GroupSet, Rank)>,
    /// As leader: index of the last entry that a replica other than this one may have answered, or may answer.
    last_shared: u64,
    retries: Retries,
    /// Answers leave without waiting: see [`ungate`](Self::ungate).
    ungated: bool,
    /// Clocks of deliveries are above this: the clock that was reached before our group was recreated.
    clock: u64,
    /// As leader: the message that is to be ordered again when it comes, because a destination lacks it.
    lacked: Option<MessageId>,
    /// Index and message of each entry that is not committed and whose message's name was here before. Its payload may be
    /// gone for that reason, and is needed.
    repeats: VecDeque<(u64, MessageId)>,
    /// Messages whose entries brought nothing, and whose payloads are to be dropped at the end of the turn.
    stale: Vec<MessageId>,
}

impl Tram {
    /// Lets answers leave at once from now on, as in the paper. Messages are ordered as before, but a client that has an
    /// answer may find that another group orders something new in front of it: the order is not that of real time. For
    /// measurements of what the wait costs.
    pub const fn ungate(&mut self) {
        self.ungated = true;
    }

    const fn own(&self) -> GroupId {
        self.config.group.me.group
    }

    /// The rank of an entry: the generation in which it was born, and its index.
    fn rank(birth: Ballot, index: u64) -> Rank {
        Rank::new(u64::from(birth.generation()) << INDEX_BITS | index)
    }

    /// The generation in which an entry of this rank was born.
    const fn generation(rank: Rank) -> u32 {
        (rank.number() >> INDEX_BITS) as u32
    }

    fn tick(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        self.log.tick(now_ms);
        self.fetch_stalled(effects);
        if self.log.leads() {
            self.log_due_changes(effects);
            self.spread(effects);
            self.retry(effects);
            self.tell_applied(effects);
        } else {
            self.ask_for_reports(effects);
        }
        self.drop_results(effects);
    }

    /// As follower: asks our leader for the payload for which our log waits.
    fn fetch_stalled(&mut self, effects: &mut Vec<Effect>) {
        let after_ms = self.config.fetch_after_ms;
        if let Some(message) = self.log.payloads.ask_for_stalled(self.log.now_ms(), after_ms) {
            let from = self.leader_of(self.own());
            effects.push(Effect::Fetch { message, from });
        }
    }

    /// As leader: a message has arrived from its session. The LCA logs it unless that was done. For a destination below
    /// that, it is a payload that an edge may wait for. A session that sends it again may have missed our reply.
    fn receive(
        &mut self,
        message: MessageId,
        low_water: u64,
        destinations: GroupSet,
        outside: u32,
        effects: &mut Vec<Effect>,
    ) {
        let held = destinations.contains(self.own());
        let known = self.logged.contains(message);
        let lacked = self.lacked.take() == Some(message);
        if known && held && self.has_had(message) {
            effects.push(Effect::Repeat { message });
        }
        self.waiting.arrives(message);
        if !self.orders(destinations) && !planted(Mutant::OrderedBelowLca) {
            return self.ask_payloads(effects);
        }
        if known && !lacked {
            return;
        }
        let closed = self.refuses(destinations);
        if !closed.is_empty() {
            // One that is lacked is handed in again.
            if !known {
                effects.push(Effect::Tell(PeerEffect::Refuse { message, closed }));
            }
            return;
        }
        self.logged.log(message, low_water);
        // Our former self may have ordered it, too.
        let again = known || self.generation > 0 && destinations.has_several();
        let content = Content::Message { message, low_water, destinations, outside, again };
        self.order(content, None, known, effects);
    }

    /// An entry was logged.
    #[inline]
    fn note_repeat(&mut self, index: u64, content: &Content, known: bool) {
        if known {
            self.repeats.extend(content.message().map(|message| (index, message)));
        }
    }

    /// Whether the message is delivered here, or in a state that this replica received.
    fn has_had(&self, message: MessageId) -> bool {
        let logs = |entry: &Uncommitted<Record>| match entry.record {
            Record::Ordered { content, known, .. } => !known && content.message() == Some(message),
            Record::Group(_) | Record::Exchange => false,
        };
        self.logged.contains(message)
            && !self.pending.contains(message)
            && !(self.logged.is_uncommitted(message) && self.log.uncommitted().any(logs))
    }

    /// The groups that may make us refuse a message now: destinations behind a child without room, and our own group
    /// before its [marker](Content::Marker).
    pub fn closed(&self) -> GroupSet {
        let closed = self.children.closed(&self.tree);
        let may_order = self.incoming.may_order(self.log.ballot().generation());
        if may_order { closed } else { closed.with(self.own()) }
    }

    /// The destinations because of which a message of which we are the lowest common ancestor is not ordered now.
    pub fn refuses(&self, destinations: GroupSet) -> GroupSet {
        if !destinations.has_several() {
            return GroupSet::EMPTY;
        }
        if !self.incoming.may_order(self.log.ballot().generation()) {
            return GroupSet::single(self.own());
        }
        self.children.closed(&self.tree).intersection(destinations)
    }

    /// As leader: logs what is ordered, here first or by our parent.
    fn order(
        &mut self,
        content: Content,
        taken: Option<Taken>,
        known: bool,
        effects: &mut Vec<Effect>,
    ) {
        let index = self.append(Record::Ordered { content, taken, known }, effects);
        self.note_repeat(index, &content, known);
        if let Content::Message { message, outside: 1.., .. } = content {
            self.log.payloads.keep(index, message);
            self.children.log(&self.tree, self.own(), &content);
        }
        if taken.is_some() || content.destinations(&self.tree).has_several() {
            self.last_shared = index;
        }
    }

    /// As leader: our parent has passed on an entry. It is logged when the payload is here, too: whoever follows us, or
    /// takes the entry from us, gets it here.
    fn hear_edge(
        &mut self,
        from: ReplicaId,
        edge: &Edge,
        (sum, held): (u64, bool),
        effects: &mut Vec<Effect>,
    ) {
        let is_parent = self.tree.parent(self.own()) == Some(from.group);
        if !is_parent || !edge.content.passes(self.own(), &self.tree) || edge.first == 0 {
            return;
        }
        let held = held || !edge.content.is_large() || planted(Mutant::PassedWithoutPayload);
        let last = self.waiting.last();
        match self.incoming.judge(edge, self.log.ballot().generation()) {
            Judgement::Next if held => {
                if !self.waiting.hear_again(edge.number, true) {
                    self.waiting.clear();
                    self.take(edge, effects);
                }
            }
            Judgement::Next => {
                if !self.waiting.hear_again(edge.number, false) {
                    self.waiting.clear();
                    self.waiting.push(*edge, sum, false);
                }
                self.waiting.ask_again();
                self.ask_payloads(effects);
            }
            Judgement::Early if last.is_some_and(|last| last.follows(edge.number)) => {
                self.waiting.push(*edge, sum, held);
                self.ask_payloads(effects);
            }
            Judgement::Early if self.waiting.hear_again(edge.number, held) => {}
            Judgement::Early => self.ask_parent(effects),
            Judgement::Known => self.retries.owes_parent = true,
            Judgement::Former => {}
        }
    }

    /// As leader: whether an entry that waited for its payload, or behind one that did, can be [logged](Self::take_ready).
    pub fn has_ready(&self) -> bool {
        self.log.leads() && self.waiting.is_ready()
    }

    /// As leader: the first entry that waits, and the checksum of its payload, if that is outside the log.
    pub fn ready(&self) -> Option<(&Edge, u64)> {
        self.waiting.first().filter(|_| self.has_ready())
    }

    /// As leader: the payload of the first entry that waits was a hint, and is gone. It is asked for, and those of the next
    /// ones with it that are not `here` either.
    pub fn lose_ready(&mut self, here: impl Fn(MessageId) -> bool, effects: &mut Vec<Effect>) {
        self.waiting.lose(here);
        self.ask_payloads(effects);
    }

    /// As leader: the payload of a message that is [awaited](crate::ordering::OrderingProtocol::awaits) is here as a hint.
    pub fn hear_hint(&mut self, message: MessageId) {
        self.waiting.hold(message);
    }

    /// As leader: logs the first entry that waited, if it can be. The driver has room for it in the log.
    pub fn take_ready(&mut self, effects: &mut Vec<Effect>) {
        if !self.log.leads() {
            return;
        }
        if let Some(edge) = self.waiting.pop_held()
            && self.incoming.judge(&edge, self.log.ballot().generation()) == Judgement::Next
        {
            self.take(&edge, effects);
        }
        self.ask_payloads(effects);
    }

    /// As leader: asks our parent for payloads of the oldest entries that wait.
    fn ask_payloads(&mut self, effects: &mut Vec<Effect>) {
        let Some(parent) = self.tree.parent(self.own()) else { return };
        let from = self.leader_of(parent);
        effects.extend(self.waiting.ask().map(|message| Effect::Fetch { message, from }));
    }

    fn take(&mut self, edge: &Edge, effects: &mut Vec<Effect>) {
        self.incoming.log(edge.number);
        let known =
            edge.content.message().is_some_and(|message| self.has_place(message, &edge.content));
        if planted(Mutant::EdgeDeduplicatedByName) && known {
            return;
        }
        self.note_logged(&edge.content);
        let taken = Taken { number: edge.number, place: edge.place };
        self.order(edge.content, Some(taken), known, effects);
    }

    /// Whether a message that our parent passes on has a place in our log, and is only passed on. A session that settles what
    /// it has no answer to raises its low-water mark above messages on their way: so the mark counts only for what may have
    /// been ordered before.
    fn has_place(&self, message: MessageId, content: &Content) -> bool {
        self.logged.contains(message)
            && (content.is_again() || self.logged.names(message) || self.pending.contains(message))
    }

    /// A message is in our log, whoever ordered it first.
    fn note_logged(&mut self, content: &Content) {
        if let Content::Message { message, low_water, .. } = *content {
            self.logged.log(message, low_water);
        }
    }

    /// As follower: accepts the next record of the log.
    fn accept_record(&mut self, entry: Uncommitted<Record>, held: bool, last: bool) {
        let Uncommitted { index, time_ms, record, .. } = entry;
        if let Record::Ordered { content, taken, known } = record {
            if let Content::Message { message, outside: 1.., .. } = content
                && !held
            {
                // Sessions send it to those who order it, and nobody sends it to us unasked.
                let is_sent = self.orders(content.destinations(&self.tree));
                let patience_ms = if is_sent { self.config.fetch_after_ms } else { 0 };
                let ask_from_ms = self.log.now_ms() + patience_ms;
                return self.log.payloads.stall(message, ask_from_ms, entry, last);
            }
            self.note_logged(&content);
            self.note_repeat(index, &content, known);
            if let Some(taken) = taken {
                self.incoming.log(taken.number);
            }
        }
        self.log.push(entry);
        self.log.note_accepted(index, time_ms, last);
        self.owe(index);
    }

    /// Our group is owed an acceptance word that covers the entry at `index`.
    fn owe(&mut self, index: u64) {
        self.log.owe(index, GroupSet::single(self.own()));
    }

    /// As follower: the payload of a message has arrived. The log may be stalled on it.
    fn unstall(&mut self, message: MessageId) {
        if let Some((entry, last)) = self.log.payloads.unstall(message) {
            self.accept_record(entry, true, last);
        }
    }

    fn end_turn(&mut self, effects: &mut Vec<Effect>) {
        if self.log.leads() {
            let Self { log, children, repeats, waiting, pending, .. } = self;
            let needed = Needed { children, repeats, waiting };
            log.release(|message| {
                if !needed.has(message) && !pending.contains(message) {
                    effects.push(Effect::Forget { message });
                }
            });
        } else {
            self.forget_kept(effects);
            self.fetch_stalled(effects);
        }
        if let Some((groups, acceptance)) = self.log.take_word() {
            effects.push(Effect::Acknowledge { groups, acceptance });
        }
        self.advance_commit();
        for message in core::mem::take(&mut self.stale) {
            // Followers may lack what the log keeps: it goes with its entry.
            let needed = self.logged.contains(message) || self.passes_on(message);
            if !needed && !self.log.keeps(message) {
                effects.push(Effect::Forget { message });
            }
        }
        let news = self.gate.settle();
        if self.log.leads() {
            self.pass_on(effects);
            self.tell(news, effects);
        }
    }

    /// Drops the delivered payloads that this replica kept while it led, but those that it is yet to pass on.
    fn forget_kept(&mut self, effects: &mut Vec<Effect>) {
        let Self { log, children, repeats, waiting, pending, .. } = self;
        let needed = Needed { children, repeats, waiting };
        let over = |message: &MessageId| !needed.has(*message) && !pending.contains(*message);
        let forgotten = log.payloads.forget().filter(over);
        effects.extend(forgotten.map(|message| Effect::Forget { message }));
    }

    fn next(&mut self) -> Option<Deliver> {
        let Pending { message, low_water, destinations, rank, place, time_ms, clock, .. } =
            self.pending.pop()?;
        self.delivered += 1;
        self.shared.deliver(SharedMessage { message, destinations, rank, place });
        self.newest = Some((message, destinations, rank));
        let position = self.delivered;
        let next = Deliver { message, low_water, destinations, rank, position, clock, time_ms };
        self.log.delivers(&next);
        Some(next)
    }
}
