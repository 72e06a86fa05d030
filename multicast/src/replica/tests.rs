//! A replica that stands for election, and members of its group that only grant their logs.

use std::ops::Range;
use std::time::Duration;

use skein_fabric::sim::{SimConfig, SimFabric, World};
use skein_fabric::{Fabric, Permission};
use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::check::check;
use skein_protocol::group::body::Payload;
use skein_protocol::group::frame::{Cursor, Leadership, PREAMBLE};
use skein_protocol::group::runs::Runs;
use skein_protocol::group::transfer::{Left, Stage};
use skein_protocol::group::{
    Asked, Closing, Control, GroupConfig, GroupEffect, GroupEvent, GroupRecord, Question,
};
use skein_protocol::group::{Cause, Role};
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::message::{Head, encode_name};
use skein_protocol::ordering::Config;
use skein_protocol::ordering::{At, Inspect as _, OrderingProtocol as _, Revival};
use skein_protocol::ramcast::Ramcast;
use skein_protocol::ramcast::announcement::{Announcement, Proposed};
use skein_protocol::ramcast::log::{Body, Entry, Remote};
use skein_protocol::ramcast::{Effect, Event};
use skein_protocol::rank::Rank;
use skein_protocol::results::Results;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use super::Replica;
use super::log::RESERVE_FOR_CONTROL;
use super::reply_buffer::REPEATS_MAX;
use super::results::{RESULTS_BYTES_MAX, Saved};
use crate::application::{
    Application, Delivery, Digest, EXCHANGE_MAX, Malformed, NotRestored, Outbox,
};
use crate::channel::{Channel, Kind};
use crate::config::{Topology, Tuning, endpoint_name};
use crate::election::{
    Content, CopyId, Election, Granted, Part, Piece, Prepare, SentCursor, Taken, place,
};
use crate::endpoint::{Endpoint, RingSizes};
use crate::introductions::Purpose;
use crate::layout::Layout;
use crate::ordering::Links;
use crate::replica_links::{ReplicaLinks, StatusColumn};

mod disks;
mod divergence;
mod elections;
mod failures;
mod feeding;
mod hints;
mod leaders;
mod learners;
mod reads;
mod recreation;
mod results;
mod rings;
mod serving;
mod sessions;
mod states;
mod trees;
mod waking;

/// Another replica of the group, which relays messages.
const FOLLOWER: ReplicaId = ReplicaId::new(GroupId(0), 1);

const TOPOLOGY: Topology = Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 };
const OLD: Ballot = Ballot::new(1, 1, 0);

/// A part of a state that is refused.
const NONSENSE: &[u8] = b"nonsense";
/// A part of a snapshot that names files which are gone.
const LOST: &[u8] = b"lost";

/// A call of a state machine in which it may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Deliver,
    Exchanged,
    GoOn,
    Query,
    Copy,
    FinishCopy,
    Restore,
}

#[derive(Debug, thiserror::Error)]
#[error("it was to fail in this call: {0:?}")]
struct Failed(Call);

/// A state machine without a state. It records for each message whether its answer is sent.
#[derive(Default)]
struct Nothing {
    answered: Vec<bool>,
    /// Copies of it that were begun, and copies that were given up.
    begun: u32,
    given_up: u32,
    /// Replies that it was asked to repeat, each of a mebibyte, and the bytes of those since
    /// [`Application::take_work`].
    repeated: u64,
    work: u64,
    /// Results that it received, and their number when it was copied.
    results: usize,
    copied_with: Option<usize>,
    /// Parts of the size asked for that are left to copy.
    parts: u32,
    /// The copy was hastened.
    hastened: bool,
    digest: Option<Digest>,
    /// What its last snapshot names is not on disk.
    keeps_late: bool,
    /// Calls of [`Application::drop_earlier`].
    dropped: u64,
    /// The call in which it is to fail, and whether it has. None follows that one.
    fails_in: Option<Call>,
    has_failed: bool,
}

impl Nothing {
    fn begin(&mut self, call: Call) -> Result<(), Failed> {
        assert!(!self.has_failed, "{call:?} after a failure in {:?}", self.fails_in);
        self.has_failed = self.fails_in == Some(call);
        if self.has_failed { Err(Failed(call)) } else { Ok(()) }
    }
}

impl Application for Nothing {
    type Failure = Failed;

    fn deliver(&mut self, delivery: Delivery<'_>, _: &mut dyn Outbox) -> Result<(), Failed> {
        self.begin(Call::Deliver)?;
        self.answered.push(delivery.answers);
        Ok(())
    }
    fn exchanged(
        &mut self,
        _: MessageId,
        _: GroupId,
        _: &[u8],
        _: &mut dyn Outbox,
    ) -> Result<(), Failed> {
        self.begin(Call::Exchanged)?;
        self.results += 1;
        Ok(())
    }
    fn go_on(&mut self, _: &mut dyn Outbox) -> Result<bool, Failed> {
        self.begin(Call::GoOn).map(|()| false)
    }
    fn ready(&self) -> bool {
        true
    }
    fn repeat(&mut self, _: MessageId, _: &mut dyn Outbox) {
        self.repeated += 1;
        self.work += 1 << 20;
    }
    fn take_work(&mut self) -> u64 {
        std::mem::take(&mut self.work)
    }
    fn digests(&self) -> Vec<Digest> {
        self.digest.into_iter().collect()
    }
    fn digest_at(&self, position: u64) -> Option<u64> {
        self.digest.filter(|it| it.position == position).map(|it| it.digest)
    }
    fn begin_copy(&mut self) {
        self.begun += 1;
    }
    fn copy(&mut self, bytes: usize, part: &mut Vec<u8>) -> Result<bool, Failed> {
        self.begin(Call::Copy)?;
        if self.parts > 0 {
            self.parts -= 1;
            part.resize(part.len() + bytes, 0);
        }
        Ok(self.parts == 0)
    }
    fn has_walked(&self) -> bool {
        self.parts == 0
    }
    fn hasten_copy(&mut self) {
        self.hastened = true;
    }
    fn finish_copy(&mut self, _: &mut Vec<u8>) -> Result<(), Failed> {
        self.begin(Call::FinishCopy)?;
        self.copied_with = Some(self.results);
        Ok(())
    }
    fn give_up_copy(&mut self) {
        self.given_up += 1;
    }
    fn has_kept(&self) -> bool {
        !self.keeps_late
    }
    fn drop_earlier(&mut self) {
        self.dropped += 1;
    }
    fn restore_snapshot(
        &mut self,
        part: &[u8],
        last: bool,
    ) -> Result<Result<(), NotRestored>, Failed> {
        if part == LOST {
            return Ok(Err(NotRestored::NotKept("its files are gone".to_owned())));
        }
        Ok(self.restore(part, last)?.map_err(|Malformed| NotRestored::Malformed))
    }
    fn restore(&mut self, part: &[u8], _: bool) -> Result<Result<(), Malformed>, Failed> {
        self.begin(Call::Restore)?;
        Ok(if part == NONSENSE { Err(Malformed) } else { Ok(()) })
    }
    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> Result<bool, Failed> {
        self.begin(Call::Query)?;
        answer.extend_from_slice(query);
        Ok(true)
    }
}

impl<O: Links> Replica<Nothing, O> {
    /// Stands for election, whatever it has promised.
    fn set_out(&mut self, cause: Cause, links: &mut ReplicaLinks<SimFabric, O>) {
        self.effects.push(GroupEffect::CloseLog { then: Closing::SetOut(cause) }.into());
        self.carry_out(links);
    }
}

/// Slot 0 of a group, and the other two processes.
struct Scene<O: Links = Ramcast> {
    replica: Replica<Nothing, O>,
    links: ReplicaLinks<SimFabric, O>,
    members: Vec<SimFabric>,
}

impl<O: Links> Scene<O> {
    /// Slot 0 has stood for election, with an empty log. Its process began in that incarnation.
    fn start(layout: &Layout, process: u32) -> Self {
        let topology = layout.topology();
        let world = World::new(1, SimConfig::default());
        let tuning = Tuning { log_bytes: 16 << 10, ..Tuning::default() };
        let fabric = world.join(&endpoint_name(0, 0));
        let members = (1..topology.nodes).map(|node| world.join(&endpoint_name(node, 0))).collect();
        let sizes =
            RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 1 << 20 };
        let mut links =
            ReplicaLinks::new(Endpoint::new(fabric, sizes), layout, tuning.window, (0, 0)).unwrap();
        let id = ReplicaId::new(GroupId(0), 0);
        let mut replica =
            Replica::new(id, process, Nothing::default(), &mut links, tuning).unwrap();
        links.handshake();
        replica.set_out(Cause::Start, &mut links);
        Self { replica, links, members }
    }

    /// The grant of a member whose log has entries from `first` on and ends at `end`.
    fn granted_from(&mut self, slot: u8, first: Cursor, end: Cursor) -> Granted {
        let runs: Vec<(u64, SentCursor)> = vec![(OLD.to_word(), place(first))];
        Granted {
            ballot: self.replica.core.log().promised().to_word(),
            attempt: self.replica.writer.followers[usize::from(slot)].attempt,
            incarnation: 0,
            grant: 1,
            key: self.open_log(slot),
            named: vec![0; 3],
            runs,
            end: place(end),
            freed: 0,
            whole: first == Cursor::START,
            applied: 0,
            held_from: 0,
        }
    }

    /// Memory of a member that slot 0 may write.
    fn open_log(&mut self, slot: u8) -> [u8; 32] {
        let member = &mut self.members[usize::from(slot) - 1];
        let log = member.create(32 << 10, Permission::Granted).unwrap();
        let leader = member.dial(&endpoint_name(0, 0)).unwrap();
        member.grant(log, leader).unwrap().0
    }

    fn hear(&mut self, slot: u8, what: &Election, tail: &[u8]) {
        self.hears(slot, what, tail, &mut |_| Nothing::default()).expect("it goes on");
    }

    /// What comes of that, if `fresh` makes its state machine.
    fn hears(
        &mut self,
        slot: u8,
        what: &Election,
        tail: &[u8],
        fresh: &mut dyn FnMut(ReplicaId) -> Nothing,
    ) -> Result<(), Failed> {
        let datagram = [&what.encode()[..], tail].concat();
        let from = ReplicaId::new(GroupId(0), slot);
        self.replica.election(from, &datagram, &mut self.links, fresh)
    }

    /// A member reports that it has all of our log. The entries that this commits are delivered.
    fn commit(&mut self) {
        let by = ReplicaId::new(GroupId(0), 1);
        let Replica { core, .. } = &self.replica;
        let acceptance =
            Acceptance { tag: core.log().ballot().tag(), index: core.log().last_index() };
        self.replica.told(StatusColumn::Accepted, by, acceptance.to_word());
        self.replica.end_turn(&mut self.links);
    }
}

impl Scene {
    fn new() -> Self {
        Self::with(TOPOLOGY)
    }

    fn with(topology: Topology) -> Self {
        Self::start(&Layout::propose(topology).unwrap(), 0)
    }

    fn of_process(incarnation: u32) -> Self {
        Self::start(&Layout::propose(TOPOLOGY).unwrap(), incarnation)
    }

    /// A member grants its log of so many entries, either all of them there to be taken over, or the first ones gone.
    fn grant(&mut self, slot: u8, entries: u64, whole: bool) {
        let (granted, tail) = self.granted(slot, entries, whole);
        self.hear(slot, &Election::Granted(granted), &tail);
    }

    /// The grant that the member would send then.
    fn granted(&mut self, slot: u8, entries: u64, whole: bool) -> (Granted, Vec<u8>) {
        let (mut at, mut tail) = (Cursor::START, Vec::new());
        for _ in 0..entries {
            let mut bytes = Vec::new();
            let (birth, body) = (OLD, Body::Group(GroupRecord::NewBallot));
            let entry = Entry { birth, written: OLD, time_ms: 0, epoch: 1, body };
            entry.encode(at, &mut bytes);
            at.pass(bytes.len());
            if whole {
                Piece::Entry(&bytes).encode(&mut tail);
            }
        }
        let first = if whole { Cursor::START } else { Cursor { index: 2, position: 64 } };
        let granted = self.granted_from(slot, first, at);
        (granted, tail)
    }

    /// Slot 0 grants its log to a member.
    fn let_lead(&mut self, slot: u8) -> Ballot {
        let ballot = Ballot::new(self.replica.core.log().inspect().ballot_counter() + 1, slot, 0);
        let (leads, forced, attempt, commit) = (false, true, 0, place(Cursor::START));
        let (ballot_word, admitted) = (ballot.to_word(), vec![0; 3]);
        let prepare = Prepare { ballot: ballot_word, leads, forced, attempt, commit, admitted };
        self.hear(slot, &Election::Prepare(prepare), &[]);
        assert_eq!(self.replica.core.log().promised(), ballot);
        ballot
    }

    /// Hands an event of the group to the protocol. Its effects are returned, not carried out.
    fn happens(&mut self, event: GroupEvent) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.replica.core.step(Event::Group(event), &mut effects);
        effects
    }

    /// The slot that it asks to lead instead.
    fn asks_to_lead(&mut self) -> Option<u8> {
        let effects = self.happens(GroupEvent::Watched { trusted: true });
        effects.iter().find_map(|effect| match effect {
            Effect::Group(GroupEffect::TimeoutNow { to, .. }) => Some(*to),
            _ => None,
        })
    }

    /// A tick at that time, in which no replica is suspected.
    fn pass(&mut self, now_ms: u64) {
        self.replica.core.step(Event::Tick { now_ms }, &mut Vec::new());
        self.replica.pursue_wish(&mut self.links);
    }

    /// For each message delivered until now, whether it was answered.
    fn answered(&mut self) -> &[bool] {
        self.replica.deliver(&mut self.links).expect("it goes on");
        &self.replica.application.answered
    }

    /// A member writes the word that it has applied its deliveries up to a final timestamp.
    fn applies(&mut self, slot: u8, timestamp: u64) {
        let by = ReplicaId::new(GroupId(0), slot);
        self.links.tell_word(by, self.replica.id, StatusColumn::Applied, timestamp);
    }

    /// The words that have changed, with their writers.
    fn words(&mut self) -> Vec<(ReplicaId, u64)> {
        let mut words = Vec::new();
        self.links.look_at_words(&mut words);
        words.into_iter().map(|(at, word)| (self.links.meaning(at).by, word)).collect()
    }

    /// Another group's leader sends its machine's results.
    fn exchange(&mut self, results: &[u8]) {
        self.replica.exchange(GroupId(1), Results(results), &mut self.links);
    }

    /// A member sends a part of its state.
    fn is_given(&mut self, slot: u8, number: u64) {
        let copy = CopyId { giver: 0, number: 1 };
        let part = Part { incarnation: 0, copy, number, content: Content::Machine };
        self.hear(slot, &Election::State(part), &[]);
    }

    /// The slot that is sent our state, or was and has not granted its log since.
    fn sends_to(&self) -> Option<u8> {
        self.replica.core.log().sends_state().map(|(slot, _)| slot)
    }

    /// Returns whether parts of our state are about to be sent.
    fn is_sending(&self) -> bool {
        matches!(self.replica.core.log().sends_state(), Some((_, Stage::Sending { .. })))
    }

    /// Number of datagrams that wait for a member.
    fn told(&self, slot: u8) -> usize {
        self.channels(slot).map(|(_, channel)| channel.waiting()).sum()
    }

    fn channels(&self, slot: u8) -> impl Iterator<Item = (u32, &Channel)> {
        let to_slot =
            move |purpose| matches!(purpose, Purpose::Replica { to, .. } if to == (0, slot));
        self.links.endpoint.iter().filter(move |(_, it)| to_slot(it.purpose))
    }

    /// A member refuses the channel that was opened to it, for lack of memory.
    fn refuse(&mut self, slot: u8) {
        let open = self.channels(slot).find(|(_, channel)| !channel.leaving);
        let (channel, _) = open.expect("something was said to it");
        self.links.refused(channel);
    }
}

/// A member's core, in the same group and with an empty log.
fn giver(scene: &Scene) -> Ramcast {
    let id = ReplicaId::new(GroupId(0), 1);
    Ramcast::new(
        Config {
            group: GroupConfig { me: id, ..scene.replica.config.group },
            ..scene.replica.config
        },
        View::first(3),
    )
}

/// Slot 1 sends its state, as of the log's beginning: its machine has received results about a message from
/// g1 and g2, has sent them its own, and the message is not over. Its reply depends on everything up to
/// clock 4.
fn take_state(scene: &mut Scene, giver: &mut Ramcast) {
    let reply_dependency = Timestamp::new(4, GroupId(0)).to_word();
    let (mut core, runs, payloads) = (Vec::new(), [0; 0], [0; 0]);
    giver.save(&mut core);
    let heard: [(u64, u64, u16); 2] = [(9, 1, 1), (9, 1, 2)];
    let results: [(u64, u64, &[u16], &[u8]); 1] = [(9, 1, &[1, 2], &[7])];
    let given: [(u64, u64, u64, u64); 1] = [(9, 1, 5, reply_dependency)];
    let order = (core, &runs[..], place(Cursor::START), &payloads[..], &heard[..], &results[..]);
    let order = (order, 3_u64, 5_u64, &given[..]);
    let order = postcard::to_stdvec(&order).expect("plain data");
    let copy = CopyId { giver: 0, number: 1 };
    let parts =
        [(Content::Machine, &[][..]), (Content::MachineLast, &[]), (Content::Order, &order)];
    for (number, (content, bytes)) in (0..).zip(parts) {
        scene.hear(1, &Election::State(Part { incarnation: 0, copy, number, content }), bytes);
    }
}

/// A relay of a session's message to this group.
fn relay(session: SessionId, sequence: u64) -> Vec<u8> {
    let (mut bytes, destinations) = (Vec::new(), GroupSet::first(1));
    encode_name(MessageId::new(session, sequence), &mut bytes);
    Head { sequence, low_water: 1, destinations }.encode(&mut bytes);
    bytes
}

/// Results of so many bytes each about a session's messages.
fn told(messages: Range<u64>, len: usize) -> Vec<u8> {
    let mut results = Vec::new();
    for sequence in messages {
        Results::push(MessageId::new(SessionId(1), sequence), &vec![7; len], &mut results);
    }
    results
}
