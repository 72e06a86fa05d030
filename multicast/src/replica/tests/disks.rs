//! Records on disk besides the log: the log in front of a state, snapshots, and which results of other groups the machine
//! has.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::disk::{Disk, Reader};
use crate::replica::on_disk::{DiskRecord, SNAPSHOT_DUE};
use crate::replica::snapshot_pace::{PART_BYTES, PART_EVERY, PER_LOGGED};

/// A record: its kind and its bytes.
type Record = (u8, Vec<u8>);

/// A disk that keeps what is appended. Clones are of the same disk.
#[derive(Clone, Default)]
struct Records {
    appended: Arc<Mutex<Vec<Record>>>,
    /// It hurries with states of so many bytes, or more; with none if 0.
    hurries_from: Arc<AtomicU64>,
    /// Bytes by which its log has grown.
    grown: Arc<AtomicU64>,
}

impl Records {
    /// A disk with these records.
    fn of(records: Vec<Record>) -> Self {
        Self { appended: Arc::new(Mutex::new(records)), ..Self::default() }
    }

    /// Everything that was appended.
    fn all(&self) -> Vec<Record> {
        self.appended.lock().expect("nobody panics with it in hand").clone()
    }

    /// The position of the last record.
    fn last(&self) -> u64 {
        self.all().len() as u64
    }
}

impl Disk for Records {
    fn append(&mut self, _: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        self.appended.lock().expect("nobody panics with it in hand").push((kind, record.concat()));
        self.last()
    }
    fn flush(&mut self) {}
    fn durable(&self) -> u64 {
        self.last()
    }
    fn sync(&mut self) {}
    fn keep_from(&mut self, _: GroupId, _: u64) {}
    fn begin(&mut self, _: GroupId) {
        self.appended.lock().expect("nobody panics with it in hand").clear();
    }
    fn snapshot_after(&self) -> u64 {
        SNAPSHOT_DUE - 1
    }
    fn logged(&self, _: GroupId, own: u64) -> u64 {
        own.max(self.grown.load(Ordering::Relaxed))
    }
    fn hurries(&self, _: GroupId, state: u64) -> bool {
        let from = self.hurries_from.load(Ordering::Relaxed);
        from > 0 && state >= from
    }
    fn replay(&mut self, _: GroupId, read: &mut Reader<'_>) -> Result<(), String> {
        self.all().into_iter().try_for_each(|(kind, record)| read(kind, &record))
    }
}

/// A replica with a disk, whose log begins behind a state at 192, and that has three entries in front of that in memory,
/// of which the last two are the log's.
fn begun_behind_a_state() -> (Scene, Records) {
    let mut scene = Scene::new();
    let records = Records::default();
    let Scene { replica, links, .. } = &mut scene;
    links.disk = Some(Box::new(records.clone()));
    let core = Ramcast::new(replica.config, View::first(3));
    let runs = Runs::new([(OLD, Cursor::START)], Cursor { index: 4, position: 192 });
    replica.begin_at(core, Nothing::default(), runs, links);
    let (mut at, mut bytes) = (Cursor::START, Vec::new());
    for birth in [Ballot::new(7, 1, 0), OLD, OLD] {
        let body = Body::Group(GroupRecord::NewBallot);
        Entry { birth, written: OLD, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
        at.pass(64);
    }
    links.endpoint.fabric.copy_in(replica.memory.region, PREAMBLE, &bytes);
    (scene, records)
}

#[test]
fn the_log_in_front_of_a_state_is_on_disk_and_found_again() {
    let (mut scene, records) = begun_behind_a_state();
    scene.replica.memory.filled_from = Some(0);
    scene.replica.record_earlier(&mut scene.links);
    let (kind, bytes) = records.all().pop().expect("it is written");
    let Some(DiskRecord::Earlier { from: 64, bytes }) = DiskRecord::decode(kind, &bytes) else {
        panic!("the log holds two entries in front of its state");
    };
    let mut scene = Scene::new();
    let Scene { replica, links, .. } = &mut scene;
    let core = Ramcast::new(replica.config, View::first(3));
    let runs = Runs::new([(OLD, Cursor::START)], Cursor { index: 4, position: 192 });
    replica.begin_at(core, Nothing::default(), runs, links);
    let fabric = &mut links.endpoint.fabric;
    assert_eq!(replica.memory.put_earlier(128, bytes, fabric), None, "behind the log's end");
    assert_eq!(replica.memory.put_earlier(64, &bytes[..64], fabric), Some(()));
    assert_eq!(replica.memory.put_earlier(128, &bytes[64..], fabric), Some(()));
    assert_eq!(replica.memory.held_from(fabric), 64);
}

#[test]
fn what_a_leader_writes_in_front_of_a_state_is_on_disk_before_we_report() {
    let (mut scene, records) = begun_behind_a_state();
    let ballot = scene.let_lead(1);
    let Scene { replica, links, .. } = &mut scene;
    let (fabric, log) = (&mut links.endpoint.fabric, replica.memory.region);
    let mut there = [0; 64];
    fabric.copy_out(log, PREAMBLE + 64, &mut there);
    fabric.copy_in(log, PREAMBLE + 64, &[0; 64]);
    let (base, grant) = (replica.memory.runs.end(), replica.reader.grants);
    let header = Leadership { ballot, base, grant, first: base.index, held_from: 64 }.encode();
    fabric.copy_in(log, 0, &header);
    replica.read_log(links, usize::MAX);
    links.durable = records.last();
    replica.tick(1, links);
    assert_eq!(replica.applied_told, None, "the part in front of the state is not there");
    links.endpoint.fabric.copy_in(log, PREAMBLE + 64, &there);
    replica.tick(2, links);
    assert_eq!(replica.applied_told, None, "it is not on disk");
    let earlier = |(kind, bytes): &Record| {
        matches!(DiskRecord::decode(*kind, bytes), Some(DiskRecord::Earlier { from: 64, .. }))
    };
    links.durable = records.last();
    assert!(records.all().iter().any(earlier));
    replica.tick(3, links);
    assert_eq!(replica.applied_told, Some(Rank::NOTHING));
}

#[test]
fn others_may_overwrite_what_our_disk_holds_and_nothing_else() {
    let (mut scene, records) = begun_behind_a_state();
    let Scene { replica, links, .. } = &mut scene;
    replica.config.group.durable = true;
    replica.core = Ramcast::new(replica.config, View::first(3));
    replica.memory.freed = 192;
    replica.record_moment(links);
    replica.record(DiskRecord::Resumed, links);
    assert_eq!(replica.freed(), 0, "after a loss of power it would be needed again");
    replica.reached_disk(records.last(), links);
    assert_eq!(replica.freed(), 192);
}

/// A leader with a disk, for which a snapshot is due.
fn with_a_snapshot_due() -> (Scene, Records) {
    let mut scene = Scene::new();
    let records = Records::default();
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    scene.commit();
    scene.links.disk = Some(Box::new(records.clone()));
    scene.replica.disk.bytes = SNAPSHOT_DUE;
    (scene, records)
}

/// Everything is on disk, and the next part of a snapshot is written, if there is one to write. Returns whether a
/// snapshot is whole.
fn writes_snapshot(scene: &mut Scene, records: &Records) -> bool {
    scene.links.durable = records.last();
    scene.replica.write_snapshot(&mut scene.links).expect("it goes on");
    is_whole(records)
}

fn is_whole(records: &Records) -> bool {
    let ends =
        |(kind, bytes): &Record| DiskRecord::decode(*kind, bytes) == Some(DiskRecord::SnapshotEnd);
    records.all().iter().any(ends)
}

#[test]
fn a_snapshot_ends_when_the_machine_has_all_results_that_are_committed() {
    let (mut scene, records) = with_a_snapshot_due();
    scene.exchange(&told(1..4, 1));
    let by = ReplicaId::new(GroupId(0), 1);
    let log = scene.replica.core.log();
    let acceptance = Acceptance { tag: log.ballot().tag(), index: log.last_index() };
    scene.replica.told(StatusColumn::Accepted, by, acceptance.to_word());
    scene.replica.core.advance_commit();
    for _ in 0..4 {
        assert!(!writes_snapshot(&mut scene, &records), "its log would not tell of them again");
    }
    assert!(scene.replica.snapshot.is_ripe(), "all other parts are written");
    scene.replica.deliver(&mut scene.links).unwrap();
    assert_eq!(scene.replica.application.copied_with, Some(3), "not between two of them");
    assert!(is_whole(&records));
}

#[test]
fn a_snapshot_ends_when_the_log_is_written_in_the_ballot_that_was_granted_last() {
    let (mut scene, records) = with_a_snapshot_due();
    let ballot = scene.let_lead(1);
    for _ in 0..4 {
        assert!(!writes_snapshot(&mut scene, &records), "somebody may be writing over its log");
    }
    assert!(scene.replica.snapshot.is_ripe(), "all other parts are written");
    let Scene { replica, links, .. } = &mut scene;
    let (base, grant) = (replica.memory.runs.end(), replica.reader.grants);
    let header = Leadership { ballot, base, grant, first: base.index, held_from: 0 }.encode();
    links.endpoint.fabric.copy_in(replica.memory.region, 0, &header);
    replica.read_log(links, usize::MAX);
    assert!(writes_snapshot(&mut scene, &records), "whether or not there is anything to deliver");
}

/// A leader whose log has become so long that it writes a snapshot, of so many whole parts.
fn with_a_snapshot_of(parts: u32) -> (Scene, Records) {
    let (mut scene, records) = with_a_snapshot_due();
    scene.replica.disk.bytes = SNAPSHOT_DUE - 1;
    scene.replica.application.parts = parts;
    // Its head is on disk before its first part is made.
    (0..2).for_each(|_| assert!(!writes_snapshot(&mut scene, &records)));
    assert_eq!(scene.replica.application.parts, parts - 1, "the first part waits for nothing");
    (scene, records)
}

/// Whether another part of a snapshot is written now.
fn writes_a_part(scene: &mut Scene, records: &Records) -> bool {
    let before = scene.replica.application.parts;
    writes_snapshot(scene, records);
    scene.replica.application.parts < before
}

#[test]
fn parts_of_a_snapshot_follow_each_other_at_the_pace_of_the_log_or_after_a_while() {
    let (mut scene, records) = with_a_snapshot_of(4);
    assert!(!writes_a_part(&mut scene, &records), "messages come first");
    scene.replica.disk.bytes += PART_BYTES as u64 / PER_LOGGED;
    assert!(writes_a_part(&mut scene, &records), "enough of them came");
    assert!(!writes_a_part(&mut scene, &records));
    scene.links.began += PART_EVERY;
    assert!(writes_a_part(&mut scene, &records), "few came");
    assert!(!writes_a_part(&mut scene, &records));
    scene.links.began += PART_EVERY;
    assert!(
        writes_snapshot(&mut scene, &records),
        "that was the last, and the end waits for nothing"
    );
}

#[test]
fn parts_of_a_snapshot_do_not_wait_if_the_disk_is_in_a_hurry() {
    let (mut scene, records) = with_a_snapshot_of(4);
    records.hurries_from.store(1 + PART_BYTES as u64, Ordering::Relaxed);
    assert!(!writes_a_part(&mut scene, &records), "one part is the whole state so far");
    assert!(!scene.replica.application.hastened);
    records.hurries_from.store(PART_BYTES as u64, Ordering::Relaxed);
    assert!(writes_a_part(&mut scene, &records));
    assert!(scene.replica.application.hastened);
    records.hurries_from.store(0, Ordering::Relaxed);
    assert!(!writes_a_part(&mut scene, &records));
}

#[test]
fn parts_of_a_snapshot_keep_the_pace_of_a_log_that_is_longer_than_its_records() {
    let (mut scene, records) = with_a_snapshot_of(3);
    records.grown.store(PART_BYTES as u64 / PER_LOGGED - 1, Ordering::Relaxed);
    assert!(!writes_a_part(&mut scene, &records));
    records.grown.store(PART_BYTES as u64 / PER_LOGGED, Ordering::Relaxed);
    assert!(writes_a_part(&mut scene, &records));
}

#[test]
fn parts_of_a_snapshot_do_not_wait_if_it_replaces_one_that_was_given_up() {
    let (mut scene, records) = with_a_snapshot_of(3);
    scene.replica.give_up_snapshot();
    scene.replica.application.parts = 3;
    writes_snapshot(&mut scene, &records);
    while scene.replica.application.parts > 0 {
        assert!(writes_a_part(&mut scene, &records));
    }
    assert!(is_whole(&records));
}

/// A leader that has written a snapshot, and whose machine has not kept what the snapshot names.
fn with_an_unkept_snapshot() -> (Scene, Records) {
    let (mut scene, records) = with_a_snapshot_due();
    scene.replica.application.keeps_late = true;
    while !writes_snapshot(&mut scene, &records) {}
    writes_snapshot(&mut scene, &records);
    (scene, records)
}

#[test]
fn what_is_in_front_of_a_snapshot_goes_when_the_machine_has_kept_what_it_names() {
    let (mut scene, records) = with_an_unkept_snapshot();
    assert_eq!(
        scene.replica.paths.snapshots, 0,
        "its end is on disk, and a start could not use it"
    );
    assert_eq!(scene.replica.application.dropped, 0, "the earlier one is all that there is");
    scene.replica.application.keeps_late = false;
    writes_snapshot(&mut scene, &records);
    assert_eq!((scene.replica.paths.snapshots, scene.replica.application.dropped), (1, 1));
}

#[test]
fn a_snapshot_whose_files_a_former_machine_has_not_kept_is_forgotten() {
    let (mut scene, records) = with_an_unkept_snapshot();
    let Scene { replica, links, .. } = &mut scene;
    let core = Ramcast::new(replica.config, View::first(3));
    replica.begin_at(core, Nothing::default(), Runs::EMPTY, links);
    scene.replica.disk.bytes = 0;
    writes_snapshot(&mut scene, &records);
    assert_eq!(scene.replica.paths.snapshots, 0, "the present machine knows nothing of it");
    assert!(!scene.replica.awaits_snapshot(), "another one can be written");
}

/// The records of a whole snapshot. What it names is lost if it is `lost`.
fn snapshot(lost: bool) -> Vec<Record> {
    let (mut scene, records) = with_a_snapshot_due();
    while !writes_snapshot(&mut scene, &records) {}
    let mut all = records.all();
    let last = Content::MachineLast;
    let is_last = |(kind, bytes): &&mut Record| {
        let decoded = DiskRecord::decode(*kind, bytes);
        matches!(decoded, Some(DiskRecord::SnapshotPart { content, .. }) if content == last)
    };
    if lost {
        let (_, bytes) = all.iter_mut().find(is_last).expect("it is whole");
        bytes.extend_from_slice(LOST);
    }
    all
}

#[test]
fn a_snapshot_whose_files_are_gone_is_skipped() {
    let records = [snapshot(true), snapshot(false)].concat();
    let scene = begun_with(&Records::of(records));
    assert_eq!(scene.replica.core.log().last_index(), 1);
    assert_eq!(scene.replica.core.log().role(), Role::Follower);
}

#[test]
fn a_log_of_which_no_snapshot_has_its_files_is_given_up() {
    let records = Records::of([snapshot(true), snapshot(true)].concat());
    let scene = begun_with(&records);
    assert_eq!(scene.replica.core.log().last_index(), 0);
    let began = DiskRecord::Began { incarnation: scene.replica.incarnation };
    let all = records.all();
    let [(kind, bytes)] = &all[..] else { panic!("it has begun anew: {all:?}") };
    assert_eq!(DiskRecord::decode(*kind, bytes), Some(began));
}

/// The records of a snapshot whose end was lost with the power, with an entry behind its commit index, up to the next
/// process's.
fn torn_snapshot() -> Vec<Record> {
    let (mut scene, records) = with_a_snapshot_due();
    scene.exchange(&told(1..4, 1));
    while !writes_snapshot(&mut scene, &records) {}
    scene.replica.record(DiskRecord::Resumed, &mut scene.links);
    let mut all = records.all();
    all.retain(|(kind, bytes)| DiskRecord::decode(*kind, bytes) != Some(DiskRecord::SnapshotEnd));
    all
}

/// A process begins with a snapshot whose end is not on disk and a state in front of it, and the next one has lost that
/// state.
#[test]
fn a_whole_snapshot_is_taken_though_a_torn_one_has_a_longer_log() {
    let records = [torn_snapshot(), snapshot(false)].concat();
    let scene = begun_with(&Records::of(records));
    assert_eq!(scene.replica.core.log().last_index(), 1);
    assert_eq!(scene.replica.core.log().role(), Role::Follower);
}

/// The files of a snapshot are gone, and the next one is torn: nothing is left of that in memory.
#[test]
fn a_log_that_is_given_up_leaves_nothing_of_a_torn_snapshot() {
    let scene = begun_with(&Records::of([snapshot(true), torn_snapshot()].concat()));
    let replica = &scene.replica;
    assert_eq!(replica.core.log().last_index(), 0);
    assert_eq!(replica.memory.freed_index, 0, "of the torn snapshot's log");
    assert_eq!(replica.exchange.last_delivered(), Rank::NOTHING);
}

/// A disk that was put back may have forgotten in which ballots its replica led. A process that begins with it takes none
/// of them again.
#[test]
fn no_two_processes_of_a_replica_stand_in_one_ballot() {
    let records = Records::of(snapshot(false));
    let ballots = [0, 1, 2].map(|process| {
        let mut scene = begun_by(process << 10, &records);
        assert_eq!(scene.replica.incarnation, 0, "it continues");
        scene.replica.set_out(Cause::Start, &mut scene.links);
        scene.replica.core.log().promised()
    });
    assert_eq!(ballots.map(Ballot::incarnation), [0, 1 << 10, 2 << 10]);
}

/// A replica that begins with what the disk holds, and writes to it.
fn begun_with(records: &Records) -> Scene {
    begun_by(0, records)
}

/// The same, in a process that began in that incarnation.
fn begun_by(process: u32, records: &Records) -> Scene {
    let mut scene = Scene::of_process(process);
    let Scene { replica, links, .. } = &mut scene;
    links.disk = Some(Box::new(records.clone()));
    replica.replay(links, &mut |_| Nothing::default()).expect("it is what a replica wrote");
    scene
}

/// A leader's machine has received the result of an entry that is not committed, about a message that is not delivered.
/// Whoever leads next cuts the entry off.
#[test]
fn results_that_a_machine_has_are_on_disk_before_their_entries_are_cut_off() {
    let records = Records::default();
    let mut scene = begun_with(&records);
    scene.replica.set_out(Cause::Start, &mut scene.links);
    scene.replica.record_moment(&mut scene.links);
    scene.grant(1, 0, true);
    let kept = scene.replica.core.log().last_index();
    scene.exchange(&told(1..2, 1));
    scene.replica.exchange.had_given_to(kept + 1);
    scene.replica.deliver(&mut scene.links).expect("it goes on");
    let again = begun_with(&Records::of(records.all()));
    assert_eq!(again.replica.exchange.save().heard, [], "nothing says that it had it");
    let ballot = scene.let_lead(1);
    let Scene { replica, links, .. } = &mut scene;
    let (base, grant) = (replica.memory.end_of(kept), replica.reader.grants);
    let header = Leadership { ballot, base, grant, first: base.index, held_from: 0 }.encode();
    links.endpoint.fabric.copy_in(replica.memory.region, 0, &header);
    replica.record_moment(links);
    replica.read_log(links, usize::MAX);
    assert_eq!(replica.core.log().last_index(), kept);
    let again = begun_with(&records);
    let (before, after) = (&scene.replica.exchange, &again.replica.exchange);
    assert_eq!(before.save().heard, [(1, 1, 1)]);
    assert_eq!(after.save(), before.save());
    assert_eq!(after.save_early(), before.save_early());
    assert_eq!(again.replica.application.results, 1);
}
