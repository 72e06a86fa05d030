//! A candidate, and members of its group that only let it in.

use std::ops::Range;
use std::time::Duration;

use skein_fabric::sim::{SimConfig, SimFabric, World};
use skein_fabric::{Access, Fabric};
use skein_protocol::ballot::{Acceptance, Ballot};
use skein_protocol::check::check;
use skein_protocol::ids::{GroupId, GroupSet, MessageId, ReplicaId, SessionId};
use skein_protocol::log::{self, Body, Cursor, Entry, Leadership, PREAMBLE, Remote};
use skein_protocol::message::{Announcement, Head, Proposed, encode_name};
use skein_protocol::ramcast::{Cause, Config, Ramcast, Role};
use skein_protocol::results::Results;
use skein_protocol::runs::Runs;
use skein_protocol::step::Event;
use skein_protocol::timestamp::Timestamp;
use skein_protocol::view::View;

use super::log::RESERVE_FOR_CONTROL;
use super::results::{Given, RESULTS_BYTES_MAX};
use super::teaching::Teaching;
use super::{NOTHING, REPEATS_MAX, Replica};
use crate::application::{Application, Delivery, Digest, EXCHANGE_MAX, Malformed, Outbox};
use crate::channel::{Channel, Kind};
use crate::config::{Topology, Tuning, endpoint_name};
use crate::election::{
    Content, CopyId, Election, Granted, Part, Piece, Place, Prepare, Taken, place,
};
use crate::mail::Purpose;
use crate::port::{Port, RingSizes};
use crate::wiring::{Column, Wiring};

mod divergence;
mod elections;
mod reads;
mod recreation;
mod states;

const TOPOLOGY: Topology = Topology { nodes: 3, groups: 1, replicas: 3, engines: 1 };
const OLD: Ballot = Ballot::new(1, 1, 0);

/// A part of a state that is refused.
const NONSENSE: &[u8] = b"nonsense";

/// A state machine without a state, and whether what it answered to each message went out.
#[derive(Default)]
struct Nothing {
    answered: Vec<bool>,
    /// Copies of it that were begun.
    begun: u32,
    /// Replies that it was asked for again, each of a mebibyte, and those that nobody has asked about.
    repeated: u64,
    work: u64,
    /// Results that it was given, and how many those were when it was copied.
    results: usize,
    copied_with: Option<usize>,
    /// Digest of its state, and the position of that digest.
    digest: Option<Digest>,
}

impl Application for Nothing {
    fn deliver(&mut self, delivery: Delivery<'_>, _: &mut dyn Outbox) {
        self.answered.push(delivery.answers);
    }
    fn exchanged(&mut self, _: MessageId, _: GroupId, _: &[u8], _: &mut dyn Outbox) {
        self.results += 1;
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
    fn copy(&mut self, _: usize, _: &mut Vec<u8>) -> bool {
        true
    }
    fn finish_copy(&mut self, _: &mut Vec<u8>) {
        self.copied_with = Some(self.results);
    }
    fn give_up_copy(&mut self) {}
    fn restore(&mut self, part: &[u8], _: bool) -> Result<(), Malformed> {
        if part == NONSENSE { Err(Malformed) } else { Ok(()) }
    }
    fn query(&mut self, query: &[u8], answer: &mut Vec<u8>) -> bool {
        answer.extend_from_slice(query);
        true
    }
}

/// Slot 0 of a group, and the other two processes.
struct Scene {
    replica: Replica<Nothing>,
    wiring: Wiring<SimFabric>,
    members: Vec<SimFabric>,
}

impl Scene {
    /// It has set out to lead, with an empty log.
    fn new() -> Self {
        Self::with(TOPOLOGY)
    }

    fn with(topology: Topology) -> Self {
        let world = World::new(1, SimConfig::default());
        let tuning = Tuning { log_bytes: 16 << 10, ..Tuning::default() };
        let fabric = world.join(&endpoint_name(0, 0));
        let members = (1..topology.nodes).map(|node| world.join(&endpoint_name(node, 0))).collect();
        let sizes =
            RingSizes { session: 4096, session_max: 4096, replica: 4096, total_max: 1 << 20 };
        let mut wiring =
            Wiring::new(Port::new(fabric, sizes), topology, tuning.window, (0, 0)).unwrap();
        let id = ReplicaId::new(GroupId(0), 0);
        let mut replica = Replica::new(id, 0, Nothing::default(), &mut wiring, tuning).unwrap();
        wiring.greet();
        replica.set_out(Cause::Start, &mut wiring);
        Self { replica, wiring, members }
    }

    /// A member lets it write a log of so many entries, all of them there to be taken over, or of
    /// which the first are gone.
    fn grant(&mut self, slot: u8, entries: u64, whole: bool) {
        let (granted, tail) = self.granted(slot, entries, whole);
        self.hear(slot, &Election::Granted(granted), &tail);
    }

    /// What it says then.
    fn granted(&mut self, slot: u8, entries: u64, whole: bool) -> (Granted, Vec<u8>) {
        let (mut at, mut tail) = (Cursor::START, Vec::new());
        for _ in 0..entries {
            let mut bytes = Vec::new();
            let (birth, body) = (OLD, Body::NewBallot);
            let entry = Entry { birth, written: OLD, time_ms: 0, epoch: 1, body };
            entry.encode(at, &mut bytes);
            at.pass(bytes.len(), body);
            if whole {
                Piece::Entry(&bytes).encode(&mut tail);
            }
        }
        let first = if whole { Cursor::START } else { Cursor { index: 2, position: 64 } };
        let runs: Vec<(u64, Place)> = vec![(OLD.to_word(), place(first))];
        let granted = Granted {
            ballot: self.replica.core.promised().to_word(),
            attempt: self.replica.followers[usize::from(slot)].attempt,
            incarnation: 0,
            grant: 1,
            key: self.open_log(slot),
            named: vec![0; 3],
            runs,
            end: place(at),
            freed: 0,
            whole,
            applied: 0,
            held_from: 0,
        };
        (granted, tail)
    }

    /// It lets a member lead instead.
    fn let_lead(&mut self, slot: u8) -> Ballot {
        let ballot = Ballot::new(self.replica.core.ballot_counter() + 1, slot, 0);
        let (leads, forced, attempt, commit) = (false, true, 0, place(Cursor::START));
        let (ballot_word, admitted) = (ballot.to_word(), vec![0; 3]);
        let prepare = Prepare { ballot: ballot_word, leads, forced, attempt, commit, admitted };
        self.hear(slot, &Election::Prepare(prepare), &[]);
        assert_eq!(self.replica.core.promised(), ballot);
        ballot
    }

    /// A tick at that time, in which nobody is suspected.
    fn pass(&mut self, now_ms: u64) {
        self.replica.core.step(Event::Tick { now_ms }, &mut Vec::new());
        self.replica.pursue_wish(&mut self.wiring);
    }

    /// Memory of a member that slot 0 may write.
    fn open_log(&mut self, slot: u8) -> [u8; 32] {
        let member = &mut self.members[usize::from(slot) - 1];
        let log = member.create(32 << 10, Access::Granted).unwrap();
        let leader = member.dial(&endpoint_name(0, 0)).unwrap();
        member.grant(log, leader).unwrap().0
    }

    fn hear(&mut self, slot: u8, what: &Election, tail: &[u8]) {
        let datagram = [&what.encode()[..], tail].concat();
        let from = ReplicaId::new(GroupId(0), slot);
        self.replica.election(from, &datagram, &mut self.wiring, &mut |_| Nothing::default());
    }

    /// A member has all of our log, and we know it: what is committed by that is delivered.
    fn commit(&mut self) {
        let by = ReplicaId::new(GroupId(0), 1);
        let Replica { core, .. } = &self.replica;
        let acceptance = Acceptance { tag: core.ballot().tag(), index: core.last_index() };
        self.replica.told(Column::Accepted, by, acceptance.to_word());
        self.replica.end_turn(&mut self.wiring);
    }

    /// Whether what was delivered until now was answered.
    fn answered(&mut self) -> &[bool] {
        self.replica.deliver(&mut self.wiring);
        &self.replica.application.answered
    }

    /// A member has applied what it delivers up to a final timestamp, by the word that it writes here.
    fn applies(&mut self, slot: u8, timestamp: u64) {
        let by = ReplicaId::new(GroupId(0), slot);
        self.wiring.tell_word(by, self.replica.id, Column::Applied, timestamp);
    }

    /// The words that say something new, by whom.
    fn words(&mut self) -> Vec<(ReplicaId, u64)> {
        let mut words = Vec::new();
        self.wiring.look_at_words(&mut words);
        words.into_iter().map(|(at, word)| (self.wiring.meaning(at).by, word)).collect()
    }

    /// Another group's leader sends its machine's results.
    fn exchange(&mut self, results: &[u8]) {
        self.replica.exchange(GroupId(1), Results(results), &mut self.wiring);
    }

    /// A part of the state of whoever leads.
    fn is_given(&mut self, slot: u8, number: u64) {
        let copy = CopyId { giver: 0, number: 1 };
        let part = Part { incarnation: 0, copy, number, content: Content::Machine };
        self.hear(slot, &Election::State(part), &[]);
    }

    /// How much a member was told that it has not taken.
    fn told(&self, slot: u8) -> usize {
        self.channels(slot).map(|(_, channel)| channel.waiting()).sum()
    }

    fn channels(&self, slot: u8) -> impl Iterator<Item = (u32, &Channel)> {
        let to_slot =
            move |purpose| matches!(purpose, Purpose::Replica { to, .. } if to == (0, slot));
        self.wiring.port.iter().filter(move |(_, it)| to_slot(it.purpose))
    }

    /// A member has no memory for the channel that was opened to it.
    fn refuse(&mut self, slot: u8) {
        let open = self.channels(slot).find(|(_, channel)| !channel.leaving);
        let (channel, _) = open.expect("something was said to it");
        self.wiring.refused(channel);
    }
}

/// A member's core, in the same group and without anything in its log.
fn giver(scene: &Scene) -> Ramcast {
    let id = ReplicaId::new(GroupId(0), 1);
    Ramcast::new(Config { me: id, ..scene.replica.config }, View::first(3))
}

/// Slot 1 gives its state, which stands at the log's beginning: its machine was told of a message by g1 and
/// g2, has told them of it, and is not done with it. What it answers rests on what ends at clock 4.
fn take_state(scene: &mut Scene, giver: &mut Ramcast) {
    let rests_on = Timestamp::new(4, GroupId(0)).to_word();
    let (mut core, runs, payloads) = (Vec::new(), [0; 0], [0; 0]);
    giver.save(&mut core);
    let heard: [(u64, u64, u16); 2] = [(9, 1, 1), (9, 1, 2)];
    let results: [(u64, u64, &[u16], &[u8]); 1] = [(9, 1, &[1, 2], &[7])];
    let given: [(u64, u64, u64, u64); 1] = [(9, 1, 5, rests_on)];
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

/// What another replica sends of a session's message to this group.
fn relay(session: SessionId, sequence: u64) -> Vec<u8> {
    let (mut bytes, destinations) = (Vec::new(), GroupSet::first(1));
    encode_name(MessageId::new(session, sequence), &mut bytes);
    Head { sequence, low_water: 1, destinations }.encode(&mut bytes);
    bytes
}

/// Results of so many bytes about a session's messages.
fn told(messages: Range<u64>, len: usize) -> Vec<u8> {
    let mut results = Vec::new();
    for sequence in messages {
        Results::push(MessageId::new(SessionId(1), sequence), &vec![7; len], &mut results);
    }
    results
}

#[test]
fn results_that_come_together_share_an_entry_and_those_that_come_again_are_not_in_it() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.replica.core.last_index();
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(2..6, 1));
    let entries = scene.replica.exchanged.iter().map(|it| (it.message.sequence, it.index - before));
    assert!(entries.eq([(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)]));
    assert_eq!(scene.replica.core.last_index(), before + 2);
    assert_eq!((scene.replica.paths.exchanged, scene.replica.paths.result_again), (5, 5));
    scene.exchange(&[told(6..7, 1), told(6..7, 1)].concat());
    assert_eq!((scene.replica.paths.exchanged, scene.replica.paths.result_again), (6, 6));
}

#[test]
fn a_copy_ends_when_the_machine_has_all_results_that_are_committed() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.wiring);
    scene.grant(1, 0, true);
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    // One entry has three of them, and another one two.
    scene.exchange(&told(1..4, 1));
    scene.exchange(&told(4..6, 1));
    let by = ReplicaId::new(GroupId(0), 1);
    let core = &scene.replica.core;
    let acceptance = Acceptance { tag: core.ballot().tag(), index: core.last_index() };
    scene.replica.told(Column::Accepted, by, acceptance.to_word());
    scene.replica.core.advance_commit();
    scene.replica.teaching.as_mut().expect("slot 2 is taught").ripe = true;
    scene.replica.finish_teaching(&mut scene.wiring);
    assert_eq!(scene.replica.application.copied_with, None, "its log will not tell of them again");
    scene.replica.deliver(&mut scene.wiring);
    assert_eq!(scene.replica.application.copied_with, Some(5), "not between two of them");
    assert!(scene.replica.teaching.as_ref().is_some_and(Teaching::is_done));
}

#[test]
fn results_of_a_former_state_are_not_logged_in_another() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.exchange(&told(1..4, 1));
    assert_eq!(scene.replica.exchanged.len(), 3);
    let core = Ramcast::new(scene.replica.config, View::first(3));
    let Scene { replica, wiring, .. } = &mut scene;
    replica.begin_at(core, Nothing::default(), Runs::EMPTY, wiring);
    assert!(replica.exchanged.is_empty(), "or another group would be said to have told them");
    replica.set_out(Cause::Start, wiring);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.leads());
    scene.replica.exchange(GroupId(2), Results(&told(7..9, 1)), &mut scene.wiring);
    let logged = scene.replica.exchanged.iter().map(|it| (it.from, it.message.sequence));
    assert!(logged.eq([(GroupId(2), 7), (GroupId(2), 8)]), "the others were another group's");
}

#[test]
fn what_is_longer_than_an_entry_of_results_is_not_logged() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.replica.core.last_index();
    let (fits, too_long) = (told(1..2, EXCHANGE_MAX), told(2..3, EXCHANGE_MAX + 1));
    assert_eq!(fits.len(), RESULTS_BYTES_MAX);
    scene.exchange(&too_long);
    assert_eq!(scene.replica.core.last_index(), before);
    scene.exchange(&fits);
    assert_eq!(scene.replica.core.last_index(), before + 1);
}

#[test]
fn what_the_machine_says_in_a_turn_goes_out_in_as_few_datagrams_as_hold_it() {
    let mut scene = Scene::new();
    let groups = GroupSet::single(GroupId(0));
    let (count, len) = (20, 200);
    for sequence in 1..=count {
        let message = MessageId::new(SessionId(1), sequence);
        scene.replica.tell_later(message, groups, &vec![7; len], &mut scene.wiring);
    }
    for _ in 0..2 {
        scene.replica.tell_results(&mut scene.wiring); // There is nothing more the second time.
    }
    let sent = scene.wiring.loopback.iter().map(|datagram| &datagram.bytes[..]);
    let together = RESULTS_BYTES_MAX / Results::len_of(len);
    assert_eq!(sent.clone().count(), (count as usize).div_ceil(together));
    assert!(sent.clone().all(|results| results.len() <= RESULTS_BYTES_MAX));
    assert_eq!(sent.flatten().copied().collect::<Vec<_>>(), told(1..count + 1, len));
}

#[test]
fn who_is_behind_is_told_so_however_much_waits_for_it() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let before = scene.told(2);
    assert!(before > 0, "it has not taken the question");
    scene.grant(2, 3, false);
    assert_eq!(scene.told(2), before + 1, "nobody knows what it shares with this log");
    assert_eq!(scene.replica.paths.behind, 1);
}

#[test]
fn what_an_earlier_leader_says_late_keeps_nobody_from_asking_for_the_state() {
    let mut scene = Scene::new();
    let (earlier, later) = (scene.let_lead(1), scene.let_lead(2));
    scene.hear(2, &Election::Behind { ballot: later.to_word() }, &[]);
    scene.hear(1, &Election::Behind { ballot: earlier.to_word() }, &[]);
    assert_eq!(scene.replica.behind, Some(later), "the later one does not say it again");
}

#[test]
fn what_was_cut_off_of_a_session_that_is_gone_is_forgotten() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (here, gone) = (SessionId(1), SessionId(2));
    scene.wiring.session_opened(here, scene.replica.id, 0);
    scene.replica.relayed(&relay(here, 1), &mut scene.wiring);
    scene.replica.relayed(&relay(gone, 1), &mut scene.wiring);
    assert_eq!((scene.replica.core.pending(), scene.replica.payloads.len()), (2, 2));

    let ballot = scene.let_lead(1);
    let (base, grant) = (Cursor::START, scene.replica.grants);
    let header = Leadership { ballot, base, grant, first: 1, held_from: base.position }.encode();
    scene.wiring.port.fabric.copy_in(scene.replica.log, 0, &header);
    scene.replica.read_log(&mut scene.wiring, usize::MAX);
    assert_eq!((scene.replica.core.ballot(), scene.replica.core.pending()), (ballot, 0));
    assert_eq!(scene.replica.payloads.messages(), [MessageId::new(here, 1)]);
}

#[test]
fn what_is_relayed_too_late_is_kept_for_nobody() {
    let mut scene = Scene::new();
    scene.let_lead(1);
    let (here, gone) = (SessionId(1), SessionId(2));
    scene.wiring.session_opened(here, scene.replica.id, 0);
    scene.replica.relayed(&relay(here, 1), &mut scene.wiring);
    scene.replica.relayed(&relay(gone, 1), &mut scene.wiring);
    assert_eq!(scene.replica.payloads.messages(), [MessageId::new(here, 1)]);
}

#[test]
fn what_a_former_life_has_applied_hides_not_that_the_next_one_has() {
    // One that we let in, and one that another leader had: its life is named by now.
    for life in [1 << 10, 0] {
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        let slot = ReplicaId::new(GroupId(0), 2);
        scene.applies(2, 77);
        assert_eq!(scene.words(), [(slot, 77)]);
        scene.applies(2, 77);
        assert_eq!(scene.words(), [], "it says nothing new");
        let (granted, tail) = scene.granted(2, 0, true);
        let granted = Granted { incarnation: life, ..granted };
        scene.hear(2, &Election::Granted(granted), &tail);
        assert_eq!(scene.words(), [], "it has said nothing yet");
        scene.applies(2, 77);
        assert_eq!(scene.words(), [(slot, 77)], "what the former life had said counts no more");
    }
}

#[test]
fn who_has_a_state_is_not_given_another_but_asked_to_be_let_in() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let incarnation = 1 << 10;
    scene.hear(2, &Election::Ask { incarnation, needs: None, applied: 0, taken: None }, &[]);
    assert!(scene.replica.teaching.is_none() && scene.replica.has_lost_its_memory(2));
    // One whose `Join` is committed, and that has not seen it, counts: it will grant.
    scene.hear(1, &Election::Ask { incarnation: 0, needs: None, applied: 0, taken: None }, &[]);
    assert!(!scene.replica.has_lost_its_memory(1));
    scene.hear(2, &Election::Ask { incarnation, needs: Some(0), applied: 0, taken: None }, &[]);
    let taught = scene.replica.teaching.as_ref().map(Teaching::slot);
    assert_eq!(taught, Some(2));
}

#[test]
fn a_copy_goes_on_where_it_stood_when_its_giver_leads_again() {
    let taken = |number, next| Some(Taken { copy: CopyId { giver: 0, number }, next });
    #[rustfmt::skip]
    let cases = [
        // says        begun  because
        (taken(1, 0),  1,     "it has all that was sent"),
        (taken(1, 1),  2,     "it has another part than was sent"),
        (taken(2, 0),  2,     "it has another copy"),
        (None,         2,     "it has nothing"),
    ];
    for (taken, begun, because) in cases {
        let mut scene = Scene::new();
        scene.grant(1, 0, true);
        let asks = |scene: &mut Scene, taken| {
            let (incarnation, needs) = (1 << 10, Some(Ballot::ZERO.to_word()));
            scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken }, &[]);
            scene.replica.teaching.as_ref().is_some_and(Teaching::is_under_way)
        };
        assert!(asks(&mut scene, None));
        scene.replica.set_out(Cause::Outbid, &mut scene.wiring);
        assert!(!asks(&mut scene, taken), "who does not lead gives nothing");
        scene.grant(1, 0, true);
        let gives = scene.replica.teaching.as_ref().is_some_and(Teaching::is_under_way);
        assert!(!gives, "who takes it may take another's by now");
        assert!(asks(&mut scene, taken));
        assert_eq!(scene.replica.application.begun, begun, "{because}");
    }
}

#[test]
fn who_is_given_a_state_does_not_set_out_to_lead_meanwhile() {
    for taught in [true, false] {
        let mut scene = Scene::new();
        scene.replica.tick(1, &mut scene.wiring);
        let ballot = scene.let_lead(1);
        scene.hear(1, &Election::Behind { ballot: ballot.to_word() }, &[]);
        // Nothing else is heard of the leader, but not for so long that it is suspected.
        for number in 0..18 {
            if taught {
                scene.is_given(1, number);
            }
            scene.replica.tick(1 + 20 * (number + 1), &mut scene.wiring);
        }
        assert_eq!(scene.replica.core.promised() == ballot, taught);
    }
}

#[test]
fn a_session_that_goes_beyond_its_window_waits_and_no_other_does() {
    let mut scene = Scene::new();
    let (one, other) = (SessionId(1), SessionId(2));
    scene.wiring.session_opened(one, scene.replica.id, 0);
    let window = Tuning::default().window as u64;
    for sequence in 1..=window {
        assert!(scene.replica.admits(one, 1, 0, || sequence), "{sequence}");
        scene.replica.relayed(&relay(one, sequence), &mut scene.wiring);
    }
    let mut admits = |session| scene.replica.admits(session, 1, 0, || 1);
    assert!(!admits(one) && admits(other));
    assert_eq!(scene.replica.paths.window_full, 1);
}

#[test]
fn replies_are_repeated_a_few_mebibytes_in_a_turn() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let asks = |scene: &mut Scene, count| {
        let message = MessageId::new(SessionId(1), 1);
        scene.replica.repeats.extend(std::iter::repeat_n(message, count));
    };
    asks(&mut scene, 12);
    let mut turns = Vec::new();
    for _ in 0..4 {
        let before = scene.replica.application.repeated;
        let any = scene.replica.deliver(&mut scene.wiring);
        let repeated = scene.replica.application.repeated - before;
        scene.replica.rest();
        turns.push((repeated, any, scene.replica.is_stirred()));
    }
    assert_eq!(turns, [(5, true, true), (5, true, true), (2, true, false), (0, false, false)]);
    let admits = |scene: &mut Scene| scene.replica.admits(SessionId(1), 1, 0, || 1);
    assert!(admits(&mut scene));
    asks(&mut scene, REPEATS_MAX);
    assert!(!admits(&mut scene), "what it may ask for is kept nowhere");
}

#[test]
fn announcements_that_come_together_leave_each_other_room() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let most = (scene.replica.log_bytes() / 4) / 128;
    assert!(scene.replica.log_has_room_for(1 + most), "the first of a turn may be a few more");
    scene.replica.announced = most - 1;
    assert!(scene.replica.log_has_room_for(1));
    assert!(!scene.replica.log_has_room_for(2), "what they take is kept free, and no more");
}

#[test]
fn how_far_a_former_life_had_read_says_nothing_of_the_next_one() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    for freed in [960, 64] {
        scene.replica.follower_lost(2);
        let (granted, tail) = scene.granted(2, 0, true);
        scene.hear(2, &Election::Granted(Granted { freed, ..granted }), &tail);
        assert_eq!(scene.replica.followers[2].freed, freed);
    }
}

#[test]
fn nobody_is_let_in_before_it_has_all_that_was_written() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.commit();
    let (granted, tail) = scene.granted(2, 0, true);
    let granted = Granted { incarnation: 1 << 10, ..granted };
    scene.hear(2, &Election::Granted(granted), &tail);
    scene.replica.end_turn(&mut scene.wiring);
    let last = scene.replica.core.last_index();
    scene.replica.let_in(&mut scene.wiring);
    assert_eq!(scene.replica.core.last_index(), last, "what it lacks may be lost with us");
    scene.replica.completed(2, scene.replica.writes);
    scene.replica.let_in(&mut scene.wiring);
    assert_eq!(scene.replica.core.last_index(), last, "nobody has said what it had applied");
    scene.replica.told(Column::Applied, ReplicaId::new(GroupId(0), 1), NOTHING);
    scene.replica.let_in(&mut scene.wiring);
    assert_eq!(scene.replica.core.last_index(), last + 1);
}

#[test]
fn who_has_applied_nothing_says_so_to_whoever_leads_it() {
    let mut scene = Scene::new();
    let ballot = scene.let_lead(1);
    let (base, grant) = (Cursor::START, scene.replica.grants);
    let header = Leadership { ballot, base, grant, first: 1, held_from: base.position }.encode();
    scene.wiring.port.fabric.copy_in(scene.replica.log, 0, &header);
    scene.replica.read_log(&mut scene.wiring, usize::MAX);
    scene.replica.tell_applied(&mut scene.wiring);
    assert_eq!(
        scene.replica.applied_told, NOTHING,
        "it waits to hear that before it lets others in"
    );
}

#[test]
fn a_full_log_keeps_nobody_of_the_group_from_being_heard() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let mut sent = 0;
    while scene.replica.log_has_room() {
        sent += 1;
        scene.replica.relayed(&relay(SessionId(1), sent), &mut scene.wiring);
    }
    let last = scene.replica.core.last_index();
    assert_eq!(last, 1 + sent, "nothing is committed");
    let (ours, other) = (GroupId(0), GroupId(1));
    for kind in [Kind::Election, Kind::Fetch, Kind::Relay] {
        assert!(scene.replica.admits_from_replica(ours, kind, 1), "{kind:?}");
    }
    assert!(!scene.replica.admits_from_replica(other, Kind::Announce, 1));
    let engine = "who names a replica of ours may speak for all that run beside it";
    assert!(!scene.replica.admits_from_replica(ours, Kind::Propose, 1), "{engine}");
    scene.replica.relayed(&relay(SessionId(1), sent + 1), &mut scene.wiring);
    assert_eq!(scene.replica.core.last_index(), last, "it has no room");
}

#[test]
fn what_waits_for_room_already_is_not_told_again_behind_it() {
    let mut scene = Scene::new();
    let (ours, other) = (scene.replica.id, ReplicaId::new(GroupId(0), 2));
    #[rustfmt::skip]
    let datagrams: [(_, &[u8], &[u8], _, _); 8] = [
        // kind            head   body   waits  because
        (Kind::Fetch,     b"ab", b"c",  true,  "nothing like it waits"),
        (Kind::Fetch,     b"ab", b"c",  false, "it waits already"),
        (Kind::Fetch,     b"a",  b"bc", false, "it is the same to who reads it"),
        (Kind::Fetch,     b"ab", b"",   true,  "it is the beginning of another"),
        (Kind::Announce,  b"ab", b"c",  true,  "another kind is another datagram"),
        (Kind::Announce,  b"ab", b"c",  false, "whatever else was told meanwhile"),
        (Kind::Relay,     b"ab", b"c",  true,  "its payload is told once"),
        (Kind::Relay,     b"ab", b"c",  true,  "and twice if it is sent twice"),
    ];
    for (kind, head, body, waits, because) in datagrams {
        let before = scene.told(2);
        scene.wiring.send(ours, other, kind, head, body);
        assert_eq!(scene.told(2) - before, usize::from(waits), "{kind:?}: {because}");
    }
}

#[test]
fn what_is_told_again_on_demand_does_not_wait_for_who_stands_still() {
    let mut scene = Scene::new();
    let (ours, other) = (scene.replica.id, ReplicaId::new(GroupId(0), 2));
    for number in 0..1000_u64 {
        scene.wiring.send(ours, other, Kind::Announce, &number.to_le_bytes(), &[]);
    }
    let waiting = scene.told(2);
    assert!(waiting < 200, "{waiting} wait, and each can be told again");
    scene.wiring.send(ours, other, Kind::Election, &[], &[]);
    assert_eq!(scene.told(2), waiting + 1, "nobody asks for this one again");
}

#[test]
fn who_leads_answers_whoever_led_before() {
    let (mut scene, session) = (Scene::new(), SessionId(1));
    scene.let_lead(2);
    scene.replica.set_out(Cause::Start, &mut scene.wiring);
    scene.grant(1, 0, true);
    scene.replica.relayed(&relay(session, 1), &mut scene.wiring);
    scene.commit();
    assert_eq!(scene.answered(), [true]);
    scene.replica.relayed(&relay(session, 2), &mut scene.wiring);
    scene.commit();
    scene.let_lead(1);
    assert_eq!(scene.answered(), [true, false], "another has to answer it now");
}

#[test]
fn what_was_asked_in_an_earlier_ballot_is_not_answered_in_a_later_one() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let mut question = 1_u64.to_le_bytes().to_vec();
    question.push(2);
    scene.replica.asked(SessionId(9), &question);
    assert_eq!(scene.replica.reads_waiting(), 1);
    scene.let_lead(2);
    scene.replica.set_out(Cause::Start, &mut scene.wiring);
    scene.grant(1, 0, true);
    assert!(scene.replica.core.leads());
    assert_eq!(scene.replica.reads_waiting(), 0, "its clock and log were those of another ballot");
}

#[test]
fn a_session_that_another_replica_hears_is_not_dead() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (cut_off, dead) = (SessionId(7), SessionId(8));
    for session in [cut_off, dead] {
        scene.replica.orphans.insert(session, 0);
    }
    let mut ended = Vec::new();
    for _ in 0..40 {
        let (over, sought) = scene.replica.count_orphans(10, 3);
        ended.extend(over);
        // A member is asked about both of them, and has a connection from one.
        if sought.contains(&cut_off.0) {
            scene.hear(1, &Election::Sees { sessions: vec![cut_off.0, 99] }, &[]);
        }
    }
    assert_eq!(ended, [dead; 3], "said so often, and of no other");
    assert!(scene.replica.orphans.contains_key(&cut_off));
    // Nobody has one from it any more.
    ended.clear();
    for _ in 0..11 {
        ended.extend(scene.replica.mourn(10, 3, &mut scene.wiring));
    }
    assert_eq!(ended.first(), Some(&cut_off));
    // Where connections are not all that there is, nobody is asked.
    scene.replica.orphans.insert(dead, 0);
    assert!(scene.replica.mourn(0, 3, &mut scene.wiring).contains(&dead));
}

#[test]
fn who_has_no_connection_from_a_session_says_nothing_of_it() {
    let mut scene = Scene::new();
    scene.let_lead(1);
    let before = scene.told(1);
    scene.hear(1, &Election::Seeks { sessions: vec![7, 8] }, &[]);
    assert_eq!(scene.told(1), before);
    assert!(!scene.wiring.hears(SessionId(7), scene.replica.id));
}

#[test]
fn a_follower_that_stands_still_is_not_written_words_without_end() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.commit();
    let before = scene.replica.writes;
    for number in 0..1000_u64 {
        let mut question = number.to_le_bytes().to_vec();
        question.push(2);
        scene.replica.asked(SessionId(9), &question);
        scene.replica.seek_confirmation(&mut scene.wiring);
    }
    assert!(scene.replica.writes - before < 100, "{} words wait", scene.replica.writes - before);
}

#[test]
fn a_follower_is_lost_once_however_many_writes_to_it_fail() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.grant(2, 0, true);
    let before = scene.replica.followers[2].attempt;
    for _ in 0..3 {
        scene.replica.touch_followers(u64::MAX, &mut scene.wiring);
    }
    for number in 1..=scene.replica.writes {
        scene.replica.failed(2, number, false);
    }
    assert_eq!(scene.replica.followers[2].attempt, before + 1, "each time it would be asked anew");
}

#[test]
fn an_engine_proposes_for_the_groups_that_are_led_there_and_for_no_other() {
    let mut scene = Scene::with(Topology { groups: 3, ..TOPOLOGY });
    scene.grant(1, 0, true);
    let to = |groups: &[u16]| groups.iter().map(|group| GroupId(*group)).collect::<GroupSet>();
    #[rustfmt::skip]
    let cases = [
        // from  by      to                heard  because
        ((1, 0), (1, 0), to(&[0, 1]),      true,  "it is who speaks"),
        ((1, 0), (2, 2), to(&[0, 2]),      true,  "it runs beside who speaks"),
        ((1, 0), (1, 1), to(&[0, 1]),      false, "it runs elsewhere"),
        ((2, 0), (1, 0), to(&[0, 1]),      false, "so does this one, though it leads"),
        ((1, 0), (1, 9), to(&[0, 1]),      false, "there is no such slot"),
        ((1, 0), (1, 0), to(&[1, 2]),      false, "we are not meant"),
        ((1, 0), (1, 0), to(&[0, 2]),      false, "it has nothing to propose"),
        ((1, 0), (1, 0), to(&[0, 1, 40]),  false, "no such group is there"),
    ];
    for (number, (from, (group, slot), destinations, heard, because)) in (1..).zip(cases) {
        let from = ReplicaId::new(GroupId(from.0), from.1);
        let message = MessageId::new(SessionId(1), number);
        let timestamp = Timestamp::new(number, GroupId(group));
        let remote = Remote { message, timestamp, ballot: Ballot::new(1, slot, 0), index: number };
        let mut bytes = Vec::new();
        Proposed { message, low_water: 1, destinations }.encode(1, &mut bytes);
        Proposed::encode_proposal(&remote, &mut bytes);
        let (proposed, proposals, _) = Proposed::decode(&bytes).unwrap();
        let before = scene.replica.core.paths().announced_early;
        if scene.wiring.may_propose(from, proposed.destinations, &proposals) {
            scene.replica.proposed(&proposed, &proposals);
        }
        let after = scene.replica.core.paths().announced_early;
        assert_eq!(after - before, u64::from(heard), "{because}");
    }
}

#[test]
fn nobody_is_announced_who_leads_in_a_slot_that_is_not_there() {
    let mut scene = Scene::with(Topology { groups: 3, ..TOPOLOGY });
    scene.grant(1, 0, true);
    for (slot, heard) in [(9, 0), (1, 1)] {
        let announcement = Announcement {
            message: MessageId::new(SessionId(1), 1),
            low_water: 1,
            destinations: GroupSet::first(3),
            timestamp: Timestamp::new(1, GroupId(2)),
            ballot: Ballot::new(1, slot, 0),
            index: 1,
            again: None,
        };
        scene.replica.announced(ReplicaId::new(GroupId(2), 1), announcement);
        assert_eq!(scene.replica.core.paths().announced_early, heard);
    }
}

#[test]
fn results_of_several_groups_about_one_message_are_all_logged() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    for group in [1, 2, 1] {
        scene.replica.exchange(GroupId(group), Results(&told(1..2, 1)), &mut scene.wiring);
    }
    let logged = scene.replica.exchanged.iter().map(|it| (it.from, it.message.sequence));
    assert!(logged.eq([(GroupId(1), 1), (GroupId(2), 1)]));
}

#[test]
fn what_is_cut_off_leaves_neither_its_end_nor_its_results() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    scene.exchange(&told(1..2, 1));
    let kept = scene.replica.core.last_index();
    scene.exchange(&told(2..4, 1));
    scene.let_lead(1);
    let base = scene.replica.end_of(kept);
    scene.replica.cut_log(base);
    let left = scene.replica.exchanged.iter().map(|it| (it.index, it.message.sequence));
    assert!(left.eq([(kept, 1)]), "another entry may stand there");
    assert_eq!(scene.replica.ends.back(), Some(&(kept, base.position)));
}

#[test]
fn the_log_is_kept_for_a_learner_from_where_its_state_ends() {
    let mut scene = Scene::new();
    scene.replica.tick(1, &mut scene.wiring);
    scene.grant(1, 0, true);
    scene.commit();
    scene.replica.free_log(&mut scene.wiring);
    // A former life had read as far as that.
    scene.replica.followers[2].freed = 1 << 20;
    let (incarnation, needs) = (1 << 10, Some(0));
    scene.hear(2, &Election::Ask { incarnation, needs, applied: 0, taken: None }, &[]);
    scene.replica.teaching.as_mut().expect("slot 2 is taught").ripe = true;
    scene.replica.finish_teaching(&mut scene.wiring);
    assert!(scene.replica.teaching.as_ref().is_some_and(Teaching::is_done));
    assert_eq!(scene.replica.followers[2].freed, scene.replica.freed);
}

#[test]
fn a_promise_ends_with_the_process_of_its_leader_and_of_nobody_else() {
    let mut scene = Scene::new();
    scene.pass(1);
    let ballot = scene.let_lead(1);
    scene.replica.core.follow(ballot, 0, 1);
    assert!(scene.replica.core.promise_lease(ballot, Duration::from_millis(1)));
    let peer = |scene: &Scene, slot| scene.wiring.peer_of(ReplicaId::new(GroupId(0), slot));
    let (leader, other) = (peer(&scene, 1), peer(&scene, 2));
    assert!(leader.is_some() && other.is_some() && leader != other);
    scene.replica.saw_death(2, other, &mut scene.wiring);
    assert!(scene.replica.core.is_bound(), "its leader may answer by what was promised");
    scene.replica.saw_death(1, None, &mut scene.wiring);
    assert!(scene.replica.core.is_bound(), "a connection may end that a process outlives");
    scene.replica.saw_death(1, leader, &mut scene.wiring);
    assert!(!scene.replica.core.is_bound(), "who is dead answers nobody");
}

#[test]
fn a_session_has_no_more_under_way_than_its_window() {
    let mut scene = Scene::new();
    scene.grant(1, 0, true);
    let (session, window) = (SessionId(9), scene.replica.tuning.window as u64);
    for (sequence, taken) in [(7 + window, false), (6 + window, true)] {
        let head = Head { sequence, low_water: 7, destinations: GroupSet::first(1) };
        scene.replica.receive(session, head, b"1", &mut scene.wiring);
        let known = scene.replica.core.is_known(MessageId::new(session, sequence));
        assert_eq!(known, taken, "{sequence}");
    }
}

#[test]
fn a_log_waits_for_a_payload_to_those_groups_that_it_names() {
    let mut scene = Scene::with(Topology { groups: 2, ..TOPOLOGY });
    let birth = scene.let_lead(1);
    scene.replica.core.follow(birth, 0, 1);
    let message = MessageId::new(SessionId(9), 1);
    let (both, bytes) = (GroupSet::first(2), vec![7; scene.replica.tuning.inline_bytes_max + 1]);
    let (timestamp, payload) = (Timestamp::new(1, GroupId(0)), check(&bytes));
    let payload = log::Payload::Held { check: payload };
    let local = Body::Local { message, low_water: 1, timestamp, destinations: both, payload };
    for (index, body) in [(1, Body::NewBallot), (2, local)] {
        let entry = Entry { birth, written: birth, time_ms: 0, epoch: 1, body };
        scene.replica.take_entry(index, &entry, &mut scene.wiring);
    }
    for (destinations, waits) in [(GroupSet::first(1), true), (both, false)] {
        assert_eq!(scene.replica.core.stalled_on(), Some(message));
        let head = Head { sequence: 1, low_water: 1, destinations };
        scene.replica.receive(message.session, head, &bytes, &mut scene.wiring);
        assert_eq!(scene.replica.core.stalled_on().is_some(), waits, "{destinations}");
    }
}
