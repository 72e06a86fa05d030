//! Promise 3 against a writer that writes continuously, is stopped, or is killed in the middle of a write.
//!
//! Each write covers a prefix of the region with its number, and a second write puts the number at the region's end.
//! The memory that the owner keeps at a revocation must then contain everything that was reported to the writer as
//! done, next to words of the denied write or of its predecessor, and must never change.
//!
//! A revocation landed *inside* a write if the denied write's number is in that memory: its writer then found the grant
//! open before its first byte and closed after its last.

use std::env;
use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::sim::Rng;
use skein_fabric::{Fabric, Outcome, Peer, Permission, Region, Source};

use crate::harness::{
    Ground, Hand, Harness, WATCHDOG, Wire, ends, keys, look, mail, meet_owner, put, words,
};

/// Deaths of each kind that are tried between machines.
const DEATHS: usize = 8;

/// Writes under way of a continuous writer.
const UNDER_WAY_MAX: u32 = 16;
/// Bodies among them: every other write is a tail.
const BODIES: usize = UNDER_WAY_MAX as usize / 2;
const SIZE_MAX: usize = 256 << 10;
const INSIDE_MIN: u32 = 1_000;
/// Overrides that number.
const INSIDE_ENV: &str = "SKEIN_HAMMER";
/// Regions granted at once, to be revoked one after the other: on a busy machine each exchange of control messages
/// costs several turns of the scheduler.
const BATCH: usize = 8;

// Words of the shared region in which the writer publishes its progress.
const WHERE: usize = 0;
const BEGUN: usize = 64;
const ENDED: usize = 128;

/// A writer's report about a grant.
#[derive(Debug)]
struct Report {
    /// The number before its first write.
    earlier: u64,
    /// The last body, and the last tail, that were reported as done; 0 if none.
    body: u64,
    tail: u64,
    /// The first denied write: its number, and whether it was a tail.
    denied: u64,
    denied_tail: u64,
}

const REPORT: usize = 40;

impl Report {
    fn to_bytes(&self) -> Vec<u8> {
        let Self { earlier, body, tail, denied, denied_tail } = *self;
        [earlier, body, tail, denied, denied_tail].map(u64::to_le_bytes).concat()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let field = |i: usize| u64::from_le_bytes(bytes[i * 8..][..8].try_into().unwrap());
        let (earlier, body, tail) = (field(0), field(1), field(2));
        Self { earlier, body, tail, denied: field(3), denied_tail: field(4) }
    }
}

/// Writes under each grant that it is given until it is denied, then under the next.
pub(crate) fn hammer<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    fabric.send(owner, b"ready").unwrap();
    let (_, letter) = mail(&mut fabric);
    let progress = keys(&letter).next().unwrap();
    let progress = fabric.attach(owner, &progress).unwrap();
    // Each body under way has its own span, because it may be read late.
    let source = fabric.create(BODIES * SIZE_MAX, Permission::Shared).unwrap();
    let mut bytes = vec![0; SIZE_MAX];
    let (mut i, mut grants) = (0u64, 0u64);
    loop {
        let (_, letter) = mail(&mut fabric);
        if letter == b"enough" {
            return;
        }
        // For each grant: its key, the length of the body, and the offset of the tail.
        let granted: Vec<_> = letter
            .as_chunks::<48>()
            .0
            .iter()
            .map(|order| {
                let key = keys(order).next().unwrap();
                let number = |at: usize| u64::from_le_bytes(order[at..at + 8].try_into().unwrap());
                let remote = fabric.attach(owner, &key).unwrap();
                (remote, number(32) as usize, number(40) as usize)
            })
            .collect();
        let mut reports = Vec::new();
        for (remote, size, tail_at) in granted {
            let mut report = Report { earlier: i, body: 0, tail: 0, denied: 0, denied_tail: 0 };
            grants += 1;
            put(&mut fabric, progress, WHERE, grants, None);
            // Completions still to come: several at a time on backends that report them late.
            let mut under_way = 0;
            while report.denied == 0 || under_way > 0 {
                if report.denied == 0 && under_way < UNDER_WAY_MAX {
                    i += 1;
                    under_way += 2;
                    bytes[..size].as_chunks_mut::<8>().0.fill(i.to_ne_bytes());
                    let at = i as usize % BODIES * SIZE_MAX;
                    fabric.copy_in(source, at, &bytes[..size]);
                    put(&mut fabric, progress, BEGUN, i, None);
                    let from = Source::Span { region: source, at, len: size };
                    fabric.write(remote, 0, from, Some(2 * i)).unwrap();
                    put(&mut fabric, remote, tail_at, i, Some(2 * i + 1));
                    put(&mut fabric, progress, ENDED, i, None);
                }
                let ended = ends(&mut fabric);
                if ended.is_empty() {
                    thread::yield_now();
                }
                for (tag, outcome) in ended {
                    under_way -= 1;
                    let (number, is_tail) = (tag / 2, tag % 2);
                    match outcome {
                        Outcome::Done if is_tail == 1 => report.tail = number,
                        Outcome::Done => report.body = number,
                        Outcome::Denied if report.denied == 0 => {
                            (report.denied, report.denied_tail) = (number, is_tail);
                        }
                        Outcome::Denied => {}
                        Outcome::Unknown => panic!("the owner lives"),
                    }
                }
            }
            fabric.detach(remote);
            reports.extend(report.to_bytes());
        }
        fabric.send(owner, &reports).unwrap();
    }
}

/// The owner's side of the race.
struct Target<F> {
    owner: F,
    writer: Peer,
    progress: Region,
    logs: Vec<Region>,
    len: usize,
    /// For each present grant: the length of its bodies, and what was kept of them.
    sizes: Vec<usize>,
    kept: Vec<Vec<u64>>,
    /// Grants with which the writer had finished before.
    grants: u64,
}

impl<F: Fabric> Target<F> {
    /// Creates `count` regions of `len` bytes. The tail is in the last cache line.
    fn new(harness: &impl Ground<F = F>, count: usize, len: usize) -> (Self, Hand) {
        let mut owner = harness.join_as_owner();
        let hand = harness.launch("hammer", "writer");
        let (writer, _) = mail(&mut owner);
        let progress = owner.create(192, Permission::Shared).unwrap();
        let logs = (0..count).map(|_| owner.create(len, Permission::Granted).unwrap()).collect();
        owner.send(writer, &owner.key(progress).0).unwrap();
        let (sizes, kept) = (Vec::new(), Vec::new());
        (Self { owner, writer, progress, logs, len, sizes, kept, grants: 0 }, hand)
    }

    fn tail_at(&self) -> usize {
        self.len - 64
    }

    fn grant(&mut self, sizes: Vec<usize>) {
        let mut letter = Vec::new();
        for (&size, &log) in sizes.iter().zip(&self.logs) {
            letter.extend(self.owner.grant(log, self.writer).unwrap().0);
            letter.extend([size, self.len - 64].map(|n| (n as u64).to_le_bytes()).concat());
        }
        // The next revocation is prepared for half of them.
        self.logs.iter().step_by(2).for_each(|&log| self.owner.prepare(log));
        self.sizes = sizes;
        self.kept.clear();
        self.owner.send(self.writer, &letter).unwrap();
    }

    /// Waits until the writer has begun to write under the next grant.
    fn wait(&mut self) {
        self.grants += 1;
        let begun = self.begun();
        let end = Instant::now() + WATCHDOG;
        while self.owner.load(self.progress, WHERE) < self.grants || self.begun() == begun {
            look(&mut self.owner);
            assert!(Instant::now() < end, "the writer does not write");
            thread::yield_now();
        }
    }

    fn begun(&mut self) -> u64 {
        look(&mut self.owner);
        self.owner.load(self.progress, BEGUN)
    }

    fn is_inside(&mut self) -> bool {
        let begun = self.begun();
        self.owner.load(self.progress, ENDED) != begun
    }

    /// Revokes the next grant.
    fn revoke(&mut self) -> Duration {
        let log = self.logs[self.kept.len()];
        let before = Instant::now();
        self.owner.revoke(log).unwrap();
        let took = before.elapsed();
        self.kept.push(words(&self.owner, log, self.len / 8));
        took
    }

    fn check_unchanged(&self) {
        for (kept, &log) in self.kept.iter().zip(&self.logs) {
            assert_eq!(&words(&self.owner, log, self.len / 8), kept, "late bytes");
        }
    }

    /// For each present grant: whether its revocation came inside a write.
    fn check(&mut self) -> Vec<bool> {
        let (from, reports) = mail(&mut self.owner);
        assert_eq!(from, self.writer);
        self.check_unchanged();
        let reports = reports.as_chunks::<REPORT>().0;
        assert_eq!(reports.len(), self.kept.len());
        let each = reports.iter().zip(&self.kept).zip(&self.sizes);
        each.map(|((report, kept), size)| {
            let report = Report::from_bytes(report);
            let (body, tail) = (&kept[..size / 8], kept[self.tail_at() / 8]);
            let (low, high) = (*body.iter().min().unwrap(), *body.iter().max().unwrap());
            assert!(low >= report.body, "done and not kept: {low}, {report:?}");
            assert!(tail >= report.tail, "done and not kept: {tail}, {report:?}");
            assert!(high <= report.denied, "after the first denied write: {high}, {report:?}");
            // A tail of an earlier grant belongs to a body that may have been shorter.
            let floor = low.max(report.earlier);
            assert!(tail <= floor, "tail {tail} before all of its body, {low}, {report:?}");
            if report.denied_tail == 1 { tail == report.denied } else { high == report.denied }
        })
        .collect()
    }

    fn end(mut self, hand: Hand, harness: &impl Ground<F = F>) {
        self.owner.send(self.writer, b"enough").unwrap();
        hand.finish();
        drop(self);
        harness.check_empty();
    }
}

/// Runs until `usual` revocations came inside a write, or as many as the environment asks for.
fn race(harness: &impl Ground, usual: u32) {
    let asked = env::var(INSIDE_ENV).ok();
    let inside_min = asked.map_or(usual, |asked| asked.parse().expect("a number of revocations"));
    let (mut target, hand) = Target::new(harness, BATCH, SIZE_MAX + 64);
    let mut rng = Rng::new(1);
    let sizes = [8, 64, 1 << 10, 16 << 10, 64 << 10, SIZE_MAX];
    let (mut inside, mut revoked) = ([0u32; 6], [0u32; 6]);
    let (mut count, mut counted) = (0, Instant::now());
    while count < inside_min {
        // Enough for a machine that many others use.
        assert!(counted.elapsed() < 2 * WATCHDOG, "inside {inside:?} of {revoked:?} revocations");
        // Short writes are hit less often; long ones make this slow.
        let picks: Vec<usize> =
            (0..BATCH).map(|_| *rng.pick(&[0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5])).collect();
        target.grant(picks.iter().map(|&pick| sizes[pick]).collect());
        for _ in 0..BATCH {
            target.wait();
            for _ in 0..rng.below(2_000) {
                hint::spin_loop();
            }
            // Mostly while the writer reports that it is writing; now and then at any moment.
            let wait = Instant::now() + Duration::from_millis(2);
            while !rng.one_in(200) && !target.is_inside() && Instant::now() < wait {
                if rng.one_in(8) {
                    thread::yield_now();
                }
            }
            target.revoke();
        }
        for (pick, hit) in picks.into_iter().zip(target.check()) {
            revoked[pick] += 1;
            inside[pick] += u32::from(hit);
        }
        let before = std::mem::replace(&mut count, inside.iter().sum());
        if count > before {
            counted = Instant::now();
        }
        if count / 100 > before / 100 {
            println!("{count} revocations inside a write, of {}", revoked.iter().sum::<u32>());
        }
    }
    println!("sizes {sizes:?}: {inside:?} inside a write of {revoked:?} revocations");
    target.end(hand, harness);
}

/// Tiny regions, so that the owner copies what the writer has only just written: the bytes are in the writer's store
/// buffer and not in memory yet, unless both sides fence.
#[test]
fn a_write_that_is_done_is_not_in_a_store_buffer() {
    let harness = Harness::of_threads();
    let (mut target, hand) = Target::new(&harness, 64, 128);
    let mut rng = Rng::new(2);
    let end = Instant::now() + Duration::from_secs(4);
    let (mut inside, mut revoked) = (0, 0);
    while Instant::now() < end {
        target.grant(vec![8; 64]);
        for _ in 0..64 {
            target.wait();
            for _ in 0..rng.below(60) {
                hint::spin_loop();
            }
            target.revoke();
        }
        revoked += 64;
        inside += target.check().into_iter().filter(|&hit| hit).count();
    }
    println!("{inside} of {revoked} revocations inside a write");
    target.end(hand, &harness);
}

#[test]
fn no_late_byte_of_a_process_that_hammers() {
    race(&Harness::of_processes(), INSIDE_MIN);
}

#[test]
fn no_late_byte_of_a_thread_that_hammers() {
    race(&Harness::of_threads(), INSIDE_MIN);
}

/// Only the longest writes are sent in several frames, so that a revocation can come between them.
#[test]
fn no_late_byte_of_a_process_elsewhere_that_hammers() {
    race(&Wire::plain(), INSIDE_MIN / 20);
}

/// Long writes are many packets: most of their revocations come between two of them.
#[cfg(feature = "verbs")]
#[test]
fn no_late_byte_of_a_process_with_a_card_that_hammers() {
    if let Some(cards) = crate::harness::Cards::plain() {
        race(&cards, INSIDE_MIN / 10);
    }
}

/// Stops the writer in the middle of a write.
fn stop_inside(target: &mut Target<impl Fabric>, hand: &Hand) {
    let end = Instant::now() + WATCHDOG;
    loop {
        hand.stop();
        if target.is_inside() {
            return;
        }
        hand.go_on();
        assert!(Instant::now() < end, "it is never stopped inside a write");
        thread::yield_now();
    }
}

#[test]
fn a_writer_stopped_in_a_write_holds_nothing_up_and_lands_nothing_later() {
    let harness = Harness::of_processes();
    let (mut target, hand) = Target::new(&harness, 1, SIZE_MAX + 64);
    let mut took = Vec::new();
    let mut inside = 0;
    for _ in 0..40 {
        target.grant(vec![SIZE_MAX]);
        target.wait();
        stop_inside(&mut target, &hand);
        took.push(target.revoke());
        // The next writer is not delayed either: the next grant is one more file.
        target.owner.grant(target.logs[0], target.writer).unwrap();
        hand.go_on();
        inside += target.check().into_iter().filter(|&hit| hit).count();
        target.owner.revoke(target.logs[0]).unwrap();
        target.check_unchanged();
    }
    took.sort_unstable();
    println!("{inside} of 40 inside a write; revoking took {:?}, at most {:?}", took[20], took[39]);
    assert!(inside > 0);
    // The median, since a shared machine may take the processor away from any process.
    assert!(took[20] < Duration::from_millis(5), "{took:?}");
    target.end(hand, &harness);
}

#[test]
fn a_writer_killed_in_a_write_holds_nothing_up_and_is_gone() {
    let harness = Harness::of_processes();
    for round in 0..5 {
        let (mut target, hand) = Target::new(&harness, 1, SIZE_MAX + 64);
        target.grant(vec![SIZE_MAX]);
        target.wait();
        stop_inside(&mut target, &hand);
        let peer = target.writer;
        assert!(!target.owner.is_gone(peer), "a stopped process is not gone");
        hand.kill();
        let took = target.revoke();
        assert!(took < Duration::from_secs(1), "round {round}: revoking took {took:?}");
        assert!(target.owner.is_gone(peer));
        assert!(target.owner.grant(target.logs[0], peer).is_err(), "nobody to grant to");
        target.check_unchanged();
        let cleaned = harness.host().clean_dead().unwrap();
        assert_eq!(cleaned.processes, 1);
        assert!(cleaned.bytes >= SIZE_MAX as u64, "{cleaned:?}");
        drop(target);
        assert_eq!(harness.host().bytes_reserved(), 0);
    }
}

/// Between machines, the bytes of a writer that is killed in a long write are under way: what has arrived when the
/// grant is revoked stays as it is, torn or whole, and nobody has to wait for the rest.
fn killed_inside<G: Ground>(ground: impl Fn() -> Option<G>) {
    let (mut torn, mut took) = (0, Vec::new());
    for _ in 0..DEATHS {
        let Some(ground) = ground() else { return };
        let (mut target, hand) = Target::new(&ground, 1, SIZE_MAX + 64);
        target.grant(vec![SIZE_MAX]);
        target.wait();
        let end = Instant::now() + WATCHDOG;
        while !target.is_inside() {
            assert!(Instant::now() < end, "it is never inside a write");
        }
        hand.kill();
        took.push(target.revoke());
        let body = &target.kept[0][..SIZE_MAX / 8];
        torn += usize::from(body.iter().any(|word| *word != body[0]));
        until_gone(&mut target.owner, target.writer);
        assert!(target.owner.grant(target.logs[0], target.writer).is_err(), "nobody to grant to");
        target.owner.hang_up(target.writer);
        look(&mut target.owner);
        target.check_unchanged();
    }
    println!("{torn} of {DEATHS} torn; revoking took {took:?}");
    assert!(took.iter().all(|took| *took < Duration::from_secs(2)), "{took:?}");
}

fn until_gone<F: Fabric>(fabric: &mut F, peer: Peer) {
    let end = Instant::now() + WATCHDOG;
    while !fabric.is_gone(peer) {
        assert!(Instant::now() < end, "it is not seen to be gone");
        thread::yield_now();
    }
}

/// Shares memory until it is killed.
pub(crate) fn victim<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    let region = fabric.create(SIZE_MAX, Permission::Shared).unwrap();
    fabric.send(owner, &fabric.key(region).0).unwrap();
    loop {
        fabric.park(WATCHDOG, &mut |_| true);
    }
}

/// Each write to a process that is killed is reported, and soon, as done or as unknown; none is reported as denied.
fn target_killed<G: Ground>(ground: impl Fn() -> Option<G>) {
    let mut unknown = 0;
    for _ in 0..DEATHS {
        let Some(ground) = ground() else { return };
        let mut writer = ground.join_as_owner();
        let hand = ground.launch("victim", "victim");
        let (victim, letter) = mail(&mut writer);
        let remote = writer.attach(victim, &keys(&letter).next().unwrap()).unwrap();
        let region = writer.create(SIZE_MAX, Permission::Shared).unwrap();
        let from = Source::Span { region, at: 0, len: SIZE_MAX };
        let tags = 0..u64::from(UNDER_WAY_MAX);
        for tag in tags.clone() {
            writer.write(remote, 0, from, Some(tag)).unwrap();
        }
        writer.flush();
        hand.kill();
        let mut ended = Vec::new();
        let end = Instant::now() + WATCHDOG;
        while ended.len() < UNDER_WAY_MAX as usize {
            ended.extend(ends(&mut writer));
            assert!(Instant::now() < end, "only these end: {ended:?}");
        }
        assert!(ended.iter().map(|(tag, _)| *tag).eq(tags), "each once, and in order: {ended:?}");
        assert!(ended.is_sorted_by_key(|(_, outcome)| *outcome == Outcome::Unknown), "{ended:?}");
        assert!(
            ended.iter().all(|(_, outcome)| *outcome != Outcome::Denied),
            "nobody has denied it"
        );
        unknown += ended.iter().filter(|(_, outcome)| *outcome == Outcome::Unknown).count();
        until_gone(&mut writer, victim);
        assert!(writer.write(remote, 0, Source::Inline(&[0; 8]), None).is_ok(), "not hung up yet");
        writer.hang_up(victim);
        assert!(writer.write(remote, 0, Source::Inline(&[0; 8]), None).is_err(), "hung up");
    }
    println!("{unknown} writes of which nobody knows");
    assert!(unknown > 0);
}

/// Grants its owner the right to write, revokes it on request, and waits to be killed.
pub(crate) fn revoker<F: Fabric>(mut fabric: F) {
    let owner = meet_owner(&mut fabric);
    let region = fabric.create(64, Permission::Granted).unwrap();
    let key = fabric.grant(region, owner).unwrap();
    fabric.send(owner, &key.0).unwrap();
    mail(&mut fabric);
    fabric.revoke(region).unwrap();
    fabric.send(owner, b"revoked").unwrap();
    loop {
        fabric.park(WATCHDOG, &mut |_| true);
    }
}

/// A revocation stays valid when the revoker dies: a write is not reported as done to a writer that has not noticed the
/// death, though both still map the memory.
fn revoked_by_the_dead<G: Ground>(ground: impl Fn() -> Option<G>) {
    for _ in 0..DEATHS {
        let Some(ground) = ground() else { return };
        let mut writer = ground.join_as_owner();
        let hand = ground.launch("revoker", "revoker");
        let (revoker, letter) = mail(&mut writer);
        let remote = writer.attach(revoker, &keys(&letter).next().unwrap()).unwrap();
        put(&mut writer, remote, 0, 1, Some(1));
        assert_eq!(one_end(&mut writer), Outcome::Done);
        writer.send(revoker, b"revoke").unwrap();
        assert_eq!(mail(&mut writer).1, b"revoked");
        hand.kill();
        put(&mut writer, remote, 0, 2, Some(2));
        assert_ne!(one_end(&mut writer), Outcome::Done, "the dead had revoked it");
    }
}

/// Once the successor of a dead process runs, no write to the dead one is reported as done, by whoever has not noticed its
/// death: the successor may have let another write in the writer's place.
fn written_after_the_successor_came<G: Ground>(ground: impl Fn() -> Option<G>) {
    for _ in 0..DEATHS {
        let Some(ground) = ground() else { return };
        let mut writer = ground.join_as_owner();
        let hand = ground.launch("victim", "victim");
        let (victim, letter) = mail(&mut writer);
        let remote = writer.attach(victim, &keys(&letter).next().unwrap()).unwrap();
        put(&mut writer, remote, 0, 1, Some(1));
        assert_eq!(one_end(&mut writer), Outcome::Done);
        hand.kill();
        let _successor = ground.launch("victim", "victim");
        assert_ne!(mail(&mut writer).0, victim);
        put(&mut writer, remote, 0, 2, Some(2));
        assert_ne!(one_end(&mut writer), Outcome::Done, "its successor runs");
    }
}

#[test]
fn a_write_to_the_dead_is_not_done_when_the_successor_runs() {
    written_after_the_successor_came(|| Some(Harness::of_processes()));
    written_after_the_successor_came(|| Some(Wire::plain()));
}

#[cfg(feature = "verbs")]
#[test]
fn a_write_over_a_card_to_the_dead_is_not_done_when_the_successor_runs() {
    written_after_the_successor_came(crate::harness::Cards::plain);
}

/// The outcome of the only write that is under way.
fn one_end<F: Fabric>(writer: &mut F) -> Outcome {
    writer.flush();
    let end = Instant::now() + WATCHDOG;
    loop {
        if let Some((_, outcome)) = ends(writer).pop() {
            return outcome;
        }
        assert!(Instant::now() < end, "it never ends");
    }
}

#[test]
fn what_was_revoked_stays_so_when_the_revoker_dies() {
    revoked_by_the_dead(|| Some(Harness::of_processes()));
    revoked_by_the_dead(|| Some(Wire::plain()));
}

#[cfg(feature = "verbs")]
#[test]
fn what_was_revoked_over_a_card_stays_so_when_the_revoker_dies() {
    revoked_by_the_dead(crate::harness::Cards::plain);
}

#[test]
fn a_process_elsewhere_killed_in_a_write_is_gone_and_lands_nothing_later() {
    killed_inside(|| Some(Wire::plain()));
}

#[test]
fn writes_to_a_process_elsewhere_that_is_killed_end() {
    target_killed(|| Some(Wire::plain()));
}

#[cfg(feature = "verbs")]
#[test]
fn a_process_with_a_card_killed_in_a_write_is_gone_and_lands_nothing_later() {
    killed_inside(crate::harness::Cards::plain);
}

#[cfg(feature = "verbs")]
#[test]
fn writes_to_a_process_with_a_card_that_is_killed_end() {
    target_killed(crate::harness::Cards::plain);
}
