//! A leader of a group of a tree that has payloads from sessions before its parent passes their entries on.

use skein_protocol::tram::Tram;
use skein_protocol::tram::content::Content as Ordered;
use skein_protocol::tram::edges::{Edge, EdgeNumber};
use skein_protocol::tram::tree::Tree;

use super::*;
use crate::payloads::Payloads;

const SESSION: SessionId = SessionId(1);
const PARENT: ReplicaId = ReplicaId::new(GroupId(1), 0);

fn named(sequence: u64) -> MessageId {
    MessageId::new(SESSION, sequence)
}

fn both() -> GroupSet {
    GroupSet::first(2)
}

/// Slot 0 leads group 0 below group 1, and has a budget of so many payloads.
struct Child {
    scene: Scene<Tram>,
    len: usize,
}

impl Child {
    fn with_budget(payloads: usize) -> Self {
        let topology = Topology { nodes: 3, groups: 3, replicas: 3, engines: 1 };
        let layout = Layout::propose(topology).unwrap();
        let tree = Tree::of(&[Some(1), None, Some(0)]).unwrap();
        let mut scene = Scene::<Tram>::start(&layout.along(&tree).unwrap(), 0);
        let granted = scene.granted_from(1, Cursor::START, Cursor::START);
        scene.hear(1, &Election::Granted(granted), &[]);
        let replica = &mut scene.replica;
        assert!(replica.core.log().leads());
        let len = replica.inline_bytes_max() + 1;
        replica.tuning.held_bytes_max = payloads * len;
        replica.payloads = Payloads::new(replica.inline_bytes_max(), payloads * len);
        Self { scene, len }
    }

    fn payload(&self, sequence: u64) -> Vec<u8> {
        vec![sequence as u8; self.len]
    }

    /// The session sends its message to these groups as a hint.
    fn hint_to(&mut self, sequence: u64, destinations: GroupSet, payload: &[u8]) {
        let head = Head { sequence, low_water: 1, destinations };
        Tram::hinted(&mut self.scene.replica, SESSION, head, payload, &mut self.scene.links);
    }

    fn hint(&mut self, sequence: u64) {
        self.hint_to(sequence, both(), &self.payload(sequence));
    }

    /// The parent passes on the entry of that number, with the session's message of that number.
    fn pass(&mut self, number: u64) {
        let content = Ordered::Message {
            message: named(number),
            low_water: 1,
            destinations: both(),
            outside: self.len as u32,
            again: false,
        };
        let place = Rank::new(number);
        let sum = check(&self.payload(number)).to_le_bytes();
        let number = EdgeNumber { generation: 0, number };
        let edge = Edge { number, first: 1, child_generation: 0, place, content };
        let mut datagram = Vec::new();
        datagram.extend_from_slice(&OLD.to_word().to_le_bytes());
        datagram.extend_from_slice(&(sum.len() as u32).to_le_bytes());
        edge.encode(&mut datagram);
        datagram.extend_from_slice(&sum);
        let Scene { replica, links, .. } = &mut self.scene;
        Tram::hear(replica, PARENT, Kind::Order, &datagram, links);
    }

    /// The parent's leader sends a payload.
    fn relay(&mut self, sequence: u64) {
        let mut datagram = Vec::new();
        encode_name(named(sequence), &mut datagram);
        Head { sequence, low_water: 1, destinations: both() }.encode(&mut datagram);
        datagram.extend(self.payload(sequence));
        self.scene.replica.relayed(PARENT, &datagram, &mut self.scene.links);
    }

    /// Logs what can be logged.
    fn end_turn(&mut self) {
        self.scene.replica.end_turn(&mut self.scene.links);
    }

    /// Returns the first messages that are logged.
    fn logged(&self, most: u64) -> Vec<u64> {
        (1..=most).filter(|number| self.scene.replica.core.is_logged(named(*number))).collect()
    }

    /// Whether the payload is to be fetched.
    fn awaits(&self, sequence: u64) -> bool {
        let (replica, message) = (&self.scene.replica, named(sequence));
        replica.core.awaits(message).is_some() && !replica.payloads.is_here(message)
    }

    /// The bytes of hints and of payloads, counted in payloads.
    fn held(&self) -> (usize, usize) {
        let payloads = &self.scene.replica.payloads;
        assert_eq!(payloads.hint_bytes(), payloads.hints() * self.len);
        (payloads.hints(), payloads.large_bytes() / self.len)
    }
}

#[test]
fn an_entry_whose_payload_is_a_hint_is_logged_at_once() {
    let mut child = Child::with_budget(8);
    child.hint(1);
    assert_eq!((child.held(), child.logged(1)), ((1, 0), vec![]), "a hint is not ordered");
    child.end_turn();
    assert_eq!(child.logged(1), [], "whatever time passes");
    child.pass(1);
    assert_eq!((child.held(), child.logged(1)), ((0, 1), vec![1]));
    let held = child.scene.replica.payloads.get(named(1)).map(|held| held.bytes.clone());
    assert_eq!(held, Some(child.payload(1)));
    child.hint(1);
    assert_eq!(child.held(), (0, 1), "it comes too late");
    child.scene.replica.drop_useless();
    assert_eq!(child.held(), (0, 1), "followers may ask for it");
}

#[test]
fn a_hint_that_differs_is_dropped_and_the_payload_is_fetched() {
    let all = GroupSet::first(3);
    for (destinations, bytes) in [(both(), 7), (all, 1)] {
        let mut child = Child::with_budget(8);
        let payload = vec![bytes; child.len];
        child.hint_to(1, destinations, &payload);
        assert_eq!(child.held(), (1, 0));
        child.pass(1);
        assert_eq!((child.held(), child.logged(1), child.awaits(1)), ((0, 0), vec![], true));
        child.hint_to(1, destinations, &payload);
        assert_eq!((child.held(), child.awaits(1)), ((0, 0), true), "by now that is known");
        child.relay(1);
        child.end_turn();
        assert_eq!((child.held(), child.logged(1)), ((0, 1), vec![1]));
    }
}

#[test]
fn what_is_no_hint_is_dropped() {
    let mut child = Child::with_budget(8);
    let own = GroupSet::single(GroupId(0));
    let others = [1, 2].map(GroupId).into_iter().collect();
    let below = own.with(GroupId(2));
    for (destinations, len, because) in [
        (both(), child.len - 1, "its payload is in the log"),
        (own, child.len, "we order it, and nobody passes it on"),
        (below, child.len, "we order it, and pass it on"),
        (others, child.len, "it is not for us"),
        (both().with(GroupId(9)), child.len, "there is no such group"),
    ] {
        child.hint_to(1, destinations, &vec![1; len]);
        child.end_turn();
        assert_eq!((child.held(), child.logged(1)), ((0, 0), vec![]), "{because}");
    }
    let window = child.scene.replica.window() as u64;
    child.hint_to(window + 1, both(), &child.payload(1));
    assert_eq!(child.held(), (0, 0), "no session has so many under way");
}

#[test]
fn a_hint_comes_in_time_while_its_entry_waits() {
    let mut child = Child::with_budget(8);
    for number in 1..=3 {
        child.pass(number);
    }
    child.hint(2);
    assert_eq!([1, 2, 3].map(|number| child.awaits(number)), [true, false, true]);
    child.end_turn();
    assert_eq!((child.held(), child.logged(3)), ((1, 0), vec![]), "the first one has none");
    child.hint(1);
    child.end_turn();
    assert_eq!((child.held(), child.logged(3)), ((0, 2), vec![1, 2]));
}

/// The guard that `Mutant::HintBlocksFetch` takes out.
fn a_payload_finds_room_among_hints() {
    let mut child = Child::with_budget(3);
    child.pass(1);
    for number in 2..=4 {
        child.hint(number);
        child.pass(number);
    }
    child.end_turn();
    assert_eq!((child.held(), child.logged(4)), ((3, 0), vec![]), "the budget is full of hints");
    let own = || Some(Head { sequence: 9, low_water: 9, destinations: GroupSet::first(1) });
    assert!(child.scene.replica.admits(SESSION, child.len, 0, own), "sessions need not wait");
    child.relay(1);
    child.end_turn();
    assert_eq!(child.logged(4), [1], "hints made room for it, the oldest first");
    assert_eq!(child.held(), (2, 1));
    assert!(child.awaits(2) && !child.awaits(3), "the second one's is gone, and is fetched");
    child.relay(2);
    child.end_turn();
    assert_eq!(child.logged(4), [1, 2]);
}

#[test]
fn hints_never_keep_out_a_payload_that_is_needed() {
    a_payload_finds_room_among_hints();
}

#[cfg(feature = "mutants")]
#[test]
fn the_guard_of_the_budget_that_is_taken_out_is_noticed() {
    use skein_protocol::mutants::{Mutant, plant};

    plant(Some(Mutant::HintBlocksFetch));
    let noticed = std::panic::catch_unwind(a_payload_finds_room_among_hints).is_err();
    plant(None);
    assert!(noticed);
}

#[test]
fn a_payload_that_was_fetched_stays_when_the_hint_for_it_goes() {
    let mut child = Child::with_budget(3);
    for number in 1..=2 {
        child.pass(number);
    }
    child.hint(2);
    child.relay(2);
    assert_eq!(child.held(), (0, 1), "it needs no hint any more");
    for number in 3..=9 {
        child.hint(number);
    }
    child.relay(1);
    child.end_turn();
    assert_eq!(child.logged(2), [1, 2], "nothing is fetched twice");
}

#[test]
fn a_hint_that_takes_the_place_of_a_lost_one_is_compared() {
    let mut child = Child::with_budget(2);
    for number in 1..=2 {
        child.pass(number);
    }
    child.hint(2);
    for number in 3..=4 {
        child.hint(number);
    }
    assert_eq!(child.held(), (2, 0), "the first one has gone");
    child.hint_to(2, both(), &vec![7; child.len]);
    assert!(!child.scene.replica.payloads.is_here(named(2)));
}

#[test]
fn hints_that_are_being_assembled_count_to_the_budget() {
    let mut child = Child::with_budget(4);
    for number in 1..=4 {
        child.hint(number);
    }
    let (len, payloads) = (child.len, &mut child.scene.replica.payloads);
    assert!(payloads.make_room_for_hints(3 * len));
    assert_eq!(payloads.hints(), 1, "the oldest ones went");
    payloads.insert(named(9), 1, both(), &vec![9; len]);
    assert!(payloads.make_room_for_hints(3 * len));
    assert_eq!(payloads.hints(), 0);
    assert!(!payloads.make_room_for_hints(3 * len + 1), "there is no room for so much");
    assert!(!payloads.insert_hint((named(1), 1, both()), &vec![1; len], 9, 3 * len));
    assert!(payloads.insert_hint((named(1), 1, both()), &vec![1; len], 9, 2 * len));
    assert!(!payloads.make_room_for_hints(4 * len) && payloads.hints() == 1, "it stays");
}

#[test]
fn a_session_has_a_window_of_hints_and_none_when_it_is_gone() {
    let mut child = Child::with_budget(1 << 10);
    let window = child.scene.replica.window() as u64;
    for sequence in 1..=window + 2 {
        let head = Head { sequence, low_water: sequence, destinations: both() };
        let payload = child.payload(sequence);
        Tram::hinted(&mut child.scene.replica, SESSION, head, &payload, &mut child.scene.links);
    }
    assert_eq!(child.held(), (window as usize, 0));
    child.pass(1);
    assert!(child.awaits(1), "the first ones went");
    child.scene.replica.session_gone(SessionId(2));
    assert_eq!(child.held(), (window as usize, 0));
    child.scene.replica.session_gone(SESSION);
    assert_eq!(child.held(), (0, 0));
}
