//! An engine whose replica says only what its disk holds, and begins with that.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use skein_fabric::shm::{Host, ShmFabric};
use skein_multicast::config::{Topology, Tuning, endpoint_name};
use skein_multicast::disk::{Disk, Reader};
use skein_multicast::engine::Engine;
use skein_multicast::layout::Layout;
use skein_multicast::operate::Identity;
use skein_multicast::roster::Roster;
use skein_multicast::session_transport::{SessionKey, SessionTransport};
use skein_protocol::ids::{GroupId, GroupSet, SessionId};

use crate::echo::Echo;

/// For how long something that must not happen is waited for.
const MOMENT: Duration = Duration::from_millis(60);

/// Records of a group: their kind and bytes.
type Record = (GroupId, u8, Vec<u8>);

#[derive(Default)]
struct Medium {
    records: Vec<Record>,
    durable: usize,
    /// Nothing more reaches the disk.
    stalls: bool,
    /// Bytes of log after which a snapshot is due; none ever is if it is 0.
    snapshot_after: u64,
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Default)]
struct InMemory(Arc<Mutex<Medium>>);

impl InMemory {
    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap()
    }

    fn stall(&self, stalls: bool) {
        let mut medium = self.medium();
        medium.stalls = stalls;
        if !stalls {
            medium.durable = medium.records.len();
        }
    }

    /// The number of records that were appended.
    fn appended(&self) -> usize {
        self.medium().records.len()
    }

    /// So many of the records have reached the disk while it stalls.
    fn reach(&self, records: usize) {
        self.medium().durable = records;
    }

    /// What is not on disk is gone.
    fn lose_power(&self) {
        let mut medium = self.medium();
        let durable = medium.durable;
        medium.records.truncate(durable);
        medium.stalls = false;
    }
}

impl Disk for InMemory {
    fn append(&mut self, group: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        let mut medium = self.medium();
        medium.records.push((group, kind, record.concat()));
        medium.records.len() as u64
    }

    fn flush(&mut self) {
        let mut medium = self.medium();
        if !medium.stalls {
            medium.durable = medium.records.len();
        }
    }

    fn durable(&self) -> u64 {
        self.medium().durable as u64
    }

    fn sync(&mut self) {
        self.stall(false);
    }

    fn keep_from(&mut self, _: GroupId, _: u64) {}

    fn begin(&mut self, _: GroupId) {}

    fn snapshot_after(&self) -> u64 {
        match self.medium().snapshot_after {
            0 => u64::MAX,
            after => after,
        }
    }

    fn replay(&mut self, group: GroupId, each: &mut Reader<'_>) -> Result<(), String> {
        let medium = self.medium();
        let mut ours = medium.records.iter().filter(|(of, ..)| *of == group);
        ours.try_for_each(|(_, kind, bytes)| each(*kind, bytes))
    }
}

/// A node with the only replica of a group, and a session.
struct Node {
    engine: Engine<ShmFabric, Echo>,
    access: SessionTransport<ShmFabric>,
    session: SessionKey,
    answered: Vec<u64>,
}

impl Node {
    fn start(disk: &InMemory, session: u64) -> Self {
        let layout =
            Layout::propose(Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 }).unwrap();
        let (tuning, host, me) = (Tuning::default(), Host::anonymous(), Identity::first(0, 0));
        let roster = Arc::new(Roster::unrecorded(0, 0));
        let fabric = host.join(&endpoint_name(0, 0)).unwrap();
        let disk: Box<dyn Disk> = Box::new(disk.clone());
        let application = |_| Echo::default();
        let mut engine =
            Engine::with_roster(fabric, &layout, tuning, me, roster, Some(disk), application)
                .unwrap();
        engine.replay().unwrap();
        let mut access = SessionTransport::new(host.join("c-1").unwrap(), &layout, tuning);
        let session = access.open(SessionId(session));
        Self { engine, access, session, answered: Vec::new() }
    }

    fn send(&mut self) {
        self.access.multicast(self.session, GroupSet::first(1), &[]).unwrap();
    }

    /// Takes turns for a moment, or until so many messages are answered.
    fn turn(&mut self, moment: Duration, messages: usize) {
        let start = Instant::now();
        while start.elapsed() < moment && self.answered.len() < messages {
            self.engine.turn();
            let Self { access, session, answered, .. } = self;
            let before = answered.len();
            access.turn(&mut |reply| answered.push(reply.sequence)).unwrap();
            answered[before..].iter().for_each(|sequence| access.settle(*session, *sequence));
        }
    }

    /// Takes turns until so many messages are answered.
    fn answers(&mut self, messages: usize) {
        self.turn(Duration::from_mins(1), messages);
        assert_eq!(self.answered.len(), messages);
    }

    /// Whether a message that was sent is not answered for a moment.
    fn keeps_silent(&mut self) -> bool {
        let before = self.answered.len();
        self.turn(MOMENT, before + 1);
        self.answered.len() == before
    }

    fn delivered(&self) -> usize {
        self.engine.applications().map(|(_, echo)| echo.order.len()).sum()
    }

    fn ballot_counter(&self) -> u32 {
        self.engine.status()[0].ballot_counter
    }
}

#[test]
fn a_message_is_answered_when_the_disk_has_it() {
    let disk = InMemory::default();
    let mut node = Node::start(&disk, 1);
    node.send();
    node.answers(1);
    disk.stall(true);
    node.send();
    assert!(node.keeps_silent(), "{:?}", node.answered);
    assert_eq!(node.delivered(), 1);
    disk.stall(false);
    node.answers(2);
}

#[test]
fn of_two_messages_the_one_is_answered_that_the_disk_has() {
    let disk = InMemory::default();
    let mut node = Node::start(&disk, 1);
    node.send();
    node.answers(1);
    disk.stall(true);
    node.send();
    assert!(node.keeps_silent());
    let one = disk.appended();
    node.send();
    assert!(node.keeps_silent());
    assert!(disk.appended() > one);
    disk.reach(one);
    node.answers(2);
    assert!(node.keeps_silent(), "the other is not on disk");
    disk.stall(false);
    node.answers(3);
}

#[test]
fn nobody_leads_before_the_promise_is_on_disk() {
    let disk = InMemory::default();
    let mut node = Node::start(&disk, 1);
    disk.stall(true);
    node.send();
    assert!(node.keeps_silent());
    assert_eq!(node.engine.status()[0].elections.won, 0);
    disk.stall(false);
    node.answers(1);
}

#[test]
fn a_node_begins_with_what_its_disk_holds() {
    let disk = InMemory::default();
    let mut node = Node::start(&disk, 1);
    for messages in 1..=3 {
        node.send();
        node.answers(messages);
    }
    disk.stall(true);
    node.send();
    assert!(node.keeps_silent());
    let promised = node.ballot_counter();
    drop(node);
    disk.lose_power();

    let mut node = Node::start(&disk, 2);
    // That the third was delivered waits for the next record to be written: it is delivered again.
    assert_eq!((node.delivered(), node.ballot_counter()), (2, promised));
    node.send();
    node.answers(1);
    assert_eq!(node.delivered(), 4, "what was never answered is gone");
    assert!(node.ballot_counter() > promised, "a ballot is not used twice");
}

/// Whole snapshots that were written, by the last record of each.
fn snapshots(disk: &InMemory) -> usize {
    const SNAPSHOT_END: u8 = 11;
    disk.medium().records.iter().filter(|(_, kind, _)| *kind == SNAPSHOT_END).count()
}

#[test]
fn a_snapshot_is_due_for_the_log_and_not_for_the_last_snapshot() {
    let disk = InMemory::default();
    let mut node = Node::start(&disk, 1);
    for messages in 1..=400 {
        node.send();
        node.answers(messages);
    }
    assert_eq!(snapshots(&disk), 0);
    // The state alone is longer.
    disk.medium().snapshot_after = 1000;
    assert!(node.keeps_silent());
    assert_eq!(snapshots(&disk), 1);
    drop(node);

    let mut node = Node::start(&disk, 2);
    assert_eq!(node.delivered(), 400);
    node.turn(MOMENT, 1);
    assert!(snapshots(&disk) <= 2, "its log is the whole one, which was kept");
    let (before, mut sent) = (snapshots(&disk), 0);
    while snapshots(&disk) == before {
        node.send();
        sent += 1;
        node.answers(sent);
    }
    assert!(sent > 10, "after {sent} messages");
    assert!(node.keeps_silent());
    assert_eq!(snapshots(&disk), before + 1);
}
