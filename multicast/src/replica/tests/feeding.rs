//! Feeding a follower from a leader's disk, and being fed.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::*;
use crate::disk::{Disk, ReadOn, Reader};
use crate::election::LogPart;

/// Records: a kind and bytes each.
type Records = Vec<(u8, Vec<u8>)>;
/// What a disk hands out with each call.
type Reads = VecDeque<(ReadOn, Records)>;

/// A disk that is read as a test has prepared it. Clones are of the same disk.
#[derive(Clone, Default)]
struct Prepared {
    appended: Arc<Mutex<Records>>,
    reads: Arc<Mutex<Reads>>,
}

impl Prepared {
    /// Its next read hands out everything that was appended.
    fn reads_all(&self) {
        let all = self.appended.lock().unwrap().clone();
        self.then(ReadOn::Some, all);
    }

    fn then(&self, read: ReadOn, records: Records) {
        self.reads.lock().unwrap().push_back((read, records));
    }
}

impl Disk for Prepared {
    fn append(&mut self, _: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        let mut appended = self.appended.lock().unwrap();
        appended.push((kind, record.concat()));
        appended.len() as u64
    }
    fn flush(&mut self) {}
    fn durable(&self) -> u64 {
        self.appended.lock().unwrap().len() as u64
    }
    fn sync(&mut self) {}
    fn keep_from(&mut self, _: GroupId, _: u64) {}
    fn begin(&mut self, _: GroupId) {}
    fn snapshot_after(&self) -> u64 {
        u64::MAX
    }
    fn replay(&mut self, _: GroupId, _: &mut Reader<'_>) -> Result<(), String> {
        Ok(())
    }
    fn feeds(&self, _: GroupId, log: u64, _: u64) -> bool {
        log < 10_000
    }
    fn read_on(&mut self, _: GroupId, each: &mut dyn FnMut(u8, &[u8])) -> ReadOn {
        let Some((read, records)) = self.reads.lock().unwrap().pop_front() else {
            return ReadOn::Pending;
        };
        for (kind, bytes) in &records {
            each(*kind, bytes);
        }
        read
    }
}

/// A leader whose disk holds four entries of results, all of them committed.
fn leading() -> (Scene, Prepared) {
    let mut scene = Scene::new();
    let disk = Prepared::default();
    scene.links.disk = Some(Box::new(disk.clone()));
    scene.replica.tick(1, &mut scene.links);
    scene.grant(1, 0, true);
    for sequence in 1..4 {
        scene.exchange(&told(sequence..sequence + 1, 1));
    }
    scene.commit();
    scene.replica.free_log(&mut scene.links);
    scene.replica.record_moment(&mut scene.links);
    assert_eq!(scene.replica.core.log().commit_index(), 4);
    (scene, disk)
}

/// Slot 2 asks for the state of the leader, or the log behind the entry in front of `from`.
fn asks(scene: &mut Scene, from: Cursor, taken: Option<Taken>) {
    let needs = Some(scene.replica.core.log().ballot().to_word());
    let end = Election::encode_log_end(from);
    scene.hear(2, &Election::Ask { incarnation: 0, needs, applied: 0, taken }, &end);
}

/// Whether the state is sent.
fn sends_state(scene: &Scene) -> bool {
    scene.sends_to().is_some() && scene.replica.transfer.feed.is_none()
}

fn is_fed(scene: &Scene) -> bool {
    scene.sends_to().is_some() && scene.replica.transfer.feed.is_some()
}

/// Everything that was told is on its way.
fn sends(scene: &mut Scene) -> bool {
    if scene.told(2) > 0 {
        scene.refuse(2);
    }
    scene.replica.send_state(&mut scene.links).expect("it goes on")
}

#[test]
fn what_a_follower_lacks_is_sent_from_the_disk_and_the_rest_is_kept_in_memory() {
    let (mut scene, disk) = leading();
    let before = scene.told(2);
    asks(&mut scene, Cursor::START, None);
    assert!(is_fed(&scene));
    assert_eq!(scene.told(2), before + 1, "it learns at once that it is fed");
    disk.then(ReadOn::Pending, Vec::new());
    assert!(sends(&mut scene), "nobody wakes the leader when more was read");
    disk.reads_all();
    assert!(sends(&mut scene));
    assert!(is_fed(&scene), "more may be there");
    let attempt = scene.replica.writer.followers[2].attempt;
    disk.then(ReadOn::End, Vec::new());
    assert!(sends(&mut scene));
    assert_eq!(scene.replica.core.log().sends_state(), Some((2, Stage::Sent)));
    let (end, follower) = (scene.replica.memory.commit_end(), &scene.replica.writer.followers[2]);
    assert_eq!((follower.freed, follower.attempt), (end.position, attempt + 1));
    assert!(scene.replica.memory.space.freed() <= end.position);
    assert!(scene.replica.transfer.feed.is_none());
}

#[test]
fn nothing_is_read_while_a_part_is_on_its_way() {
    let (mut scene, disk) = leading();
    asks(&mut scene, Cursor::START, None);
    disk.then(ReadOn::End, Vec::new());
    assert!(!scene.replica.send_state(&mut scene.links).expect("it goes on"));
    assert_eq!(disk.reads.lock().unwrap().len(), 1, "an end is told once");
}

#[test]
fn whoever_cannot_be_fed_is_sent_the_state() {
    let gone = |disk: &Prepared| disk.then(ReadOn::Gone, Vec::new());
    let gap = |disk: &Prepared| {
        let mut all = disk.appended.lock().unwrap().clone();
        all.retain(|(kind, bytes)| crate::disk::entry_index(*kind, bytes) != Some(2));
        disk.then(ReadOn::Some, all);
    };
    for prepare in [&gone as &dyn Fn(&Prepared), &gap] {
        let (mut scene, disk) = leading();
        asks(&mut scene, Cursor::START, None);
        prepare(&disk);
        sends(&mut scene);
        assert_eq!(scene.sends_to(), None, "its disk has no more what it lacks");
        asks(&mut scene, Cursor::START, None);
        assert!(sends_state(&scene));
    }
    let (mut scene, _) = leading();
    asks(&mut scene, Cursor { index: 9, position: 900 }, None);
    assert!(sends_state(&scene), "it knows more to be committed than we do");
    let (mut scene, _) = leading();
    scene.links.disk = None;
    asks(&mut scene, Cursor::START, None);
    assert!(sends_state(&scene), "there is no disk");
}

#[test]
fn who_is_fed_again_and_again_from_one_place_is_sent_the_state() {
    let (mut scene, disk) = leading();
    let fed = |scene: &mut Scene, from: Cursor| {
        asks(scene, from, None);
        let is_fed = is_fed(scene);
        disk.then(ReadOn::End, Vec::new());
        sends(scene);
        scene.replica.stop_sending_to(2);
        scene.replica.carry_out(&mut scene.links);
        is_fed
    };
    assert_eq!([0; 4].map(|_| fed(&mut scene, Cursor::START)), [true, true, true, false]);
    let further = Cursor { index: 2, position: 64 };
    assert!(fed(&mut scene, further), "it has come further");
}

#[test]
fn a_disk_that_reads_too_slowly_is_given_up() {
    let (mut scene, _) = leading();
    asks(&mut scene, Cursor::START, None);
    let copy = CopyId { giver: 0, number: 1 };
    let mut times = 0;
    while is_fed(&scene) {
        times += 1;
        assert!(times < 20, "nothing was read");
        scene.replica.tick(1 + 400 * times, &mut scene.links);
        asks(&mut scene, Cursor::START, Some(Taken { copy, next: 1 }));
    }
    asks(&mut scene, Cursor::START, None);
    assert!(sends_state(&scene));
}

#[test]
fn who_is_wrong_or_was_not_helped_asks_for_the_state() {
    let mut scene = Scene::new();
    assert!(scene.replica.can_be_fed());
    let last = scene.replica.exchange.last_delivered();
    scene.replica.transfer.fed_at = Some(last);
    assert!(!scene.replica.can_be_fed(), "it has delivered nothing since it was fed");
    scene.replica.transfer.fed_at = None;
    let held_by = [1, 2].into_iter().collect();
    scene.replica.accused_by((2, 1 << 10), held_by);
    assert!(!scene.replica.is_trusted() && !scene.replica.can_be_fed());
}

/// A follower of slot 1, which has left it behind.
fn left_behind() -> Scene {
    let mut scene = Scene::new();
    scene.replica.config.group.durable = true;
    scene.replica.core = Ramcast::new(scene.replica.config, View::first(3));
    let disk = Prepared::default();
    scene.links.disk = Some(Box::new(disk));
    scene.replica.is_all_on_disk();
    let ballot = Ballot::new(9, 1, 0);
    scene.replica.core.step(
        Event::Group(GroupEvent::Replay(skein_protocol::group::Replay::Promised(ballot))),
        &mut Vec::new(),
    );
    scene.hear(1, &Election::Behind { ballot: ballot.to_word() }, &[]);
    assert_eq!(scene.replica.core.log().lagging(), Some(ballot));
    scene
}

/// A part with entries of these indices, of this birth, and a mark behind the last.
fn part(indices: Range<u64>, birth: Ballot) -> Vec<u8> {
    let (mut pieces, last) = (Vec::new(), indices.end - 1);
    for index in indices {
        let at = Cursor { index, position: 64 * (index - 1) };
        let body = Body::Group(GroupRecord::NewBallot);
        let mut bytes = Vec::new();
        Entry { birth, written: birth, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
        assert_eq!(bytes.len(), 64);
        Piece::Entry(&bytes).encode(&mut pieces);
    }
    Piece::Mark { commit: last, delivered: 0 }.encode(&mut pieces);
    pieces
}

fn feed(scene: &mut Scene, from: u8, number: u64, last: bool, pieces: &[u8]) {
    let copy = CopyId { giver: 0, number: 1 };
    scene.hear(from, &Election::Log(LogPart { incarnation: 0, copy, number, last }), pieces);
}

#[test]
fn parts_are_appended_and_committed_and_the_last_one_ends_the_lag() {
    let mut scene = left_behind();
    let grants = scene.replica.reader.grants;
    feed(&mut scene, 1, 0, false, &part(1..4, OLD));
    let log = scene.replica.core.log();
    assert_eq!((log.last_index(), log.commit_index()), (3, 3));
    assert_eq!(scene.replica.memory.freed, 3 * 64);
    assert!(scene.replica.reader.grants > grants, "the header of an older grant counts no more");
    feed(&mut scene, 2, 1, false, &part(4..6, OLD));
    assert_eq!(scene.replica.core.log().last_index(), 3, "slot 2 does not lead");
    feed(&mut scene, 1, 1, true, &part(3..6, OLD));
    let log = scene.replica.core.log();
    assert_eq!((log.last_index(), log.commit_index(), log.lagging()), (5, 5, None));
    assert_eq!(scene.replica.reader.cursor, scene.replica.memory.runs.end());
}

#[test]
fn a_part_that_does_not_follow_is_refused_whole() {
    let first = part(1..3, OLD);
    let gap = part(4..6, OLD);
    let mut ahead = Vec::new();
    Piece::Mark { commit: 7, delivered: 0 }.encode(&mut ahead);
    let torn = &part(3..5, OLD)[..100];
    for pieces in [&gap[..], &ahead, torn] {
        let mut scene = left_behind();
        feed(&mut scene, 1, 0, false, &first);
        feed(&mut scene, 1, 1, false, pieces);
        assert!(scene.replica.core.log().commit_index() <= 3);
        feed(&mut scene, 1, 2, true, &part(3..5, OLD));
        assert!(scene.replica.core.log().lagging().is_some(), "it is to begin anew");
    }
}

#[test]
fn what_is_not_committed_and_differs_gives_way() {
    let mut scene = left_behind();
    let ballot = scene.replica.core.log().promised();
    let other = Ballot::new(3, 2, 0);
    feed(&mut scene, 1, 0, false, &part(1..3, OLD));
    for index in 3..6 {
        let at = Cursor { index, position: 64 * (index - 1) };
        let (mut bytes, body) = (Vec::new(), Body::Group(GroupRecord::NewBallot));
        Entry { birth: other, written: other, time_ms: 0, epoch: 1, body }.encode(at, &mut bytes);
        scene.replica.adopt_entry(&bytes, ballot, &mut scene.links);
    }
    assert_eq!(scene.replica.core.log().last_index(), 5);
    feed(&mut scene, 1, 1, false, &part(3..5, OLD));
    let log = scene.replica.core.log();
    assert_eq!((log.last_index(), log.commit_index()), (4, 4));
    assert!(scene.replica.memory.runs.remembers(OLD, 4));
}
