//! Promise 3 against a writer that hammers, is stopped, or is killed in the middle of a write.
//!
//! Each write covers a prefix of the region with its number, and a second one puts the number at
//! the region's end. What the owner keeps at a revocation must then hold everything that the writer
//! was told is done, the denied write's words or its predecessor's beside it, and never change.
//!
//! A revocation landed *inside* a write if the denied write's number is in what the owner kept:
//! its writer then found the grant open before its first byte and closed after its last.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use skein_fabric::shm::ShmFabric;
use skein_fabric::sim::Rng;
use skein_fabric::{Access, Fabric, Outcome, Peer, Region, Source};

use crate::crew::{Crew, Hand, OWNER, WATCHDOG, ends, keys, mail, put, words};

const SIZE_MAX: usize = 256 << 10;
const LEN: usize = SIZE_MAX + 64;
const INSIDE_MIN: u32 = 2_000;

// Words of the shared region in which the writer says what it is doing.
const BEGUN: usize = 0;
const ENDED: usize = 64;

/// What a writer reports when it was denied.
#[derive(Debug)]
struct Report {
    /// The last body, and the last tail, of this grant that it was told is done; 0 if none.
    body: u64,
    tail: u64,
    /// The first that was denied: number, and whether it was the tail's.
    denied: u64,
    denied_tail: u64,
}

/// Writes under each grant it is given until it is denied.
pub(crate) fn hammer(mut fabric: ShmFabric) {
    let owner = fabric.dial(OWNER).unwrap();
    fabric.send(owner, b"ready").unwrap();
    let (_, letter) = mail(&mut fabric);
    let progress = keys(&letter).next().unwrap();
    let progress = fabric.attach(owner, &progress).unwrap();
    let source = fabric.create(SIZE_MAX, Access::Shared).unwrap();
    let mut bytes = vec![0; SIZE_MAX];
    let mut i = 0u64;
    loop {
        let (_, letter) = mail(&mut fabric);
        if letter == b"enough" {
            return;
        }
        let key = keys(&letter).next().unwrap();
        let size = u64::from_le_bytes(letter[32..40].try_into().unwrap()) as usize;
        let remote = fabric.attach(owner, &key).unwrap();
        let mut report = Report { body: 0, tail: 0, denied: 0, denied_tail: 0 };
        while report.denied == 0 {
            i += 1;
            bytes[..size].as_chunks_mut::<8>().0.fill(i.to_ne_bytes());
            fabric.copy_in(source, 0, &bytes[..size]);
            put(&mut fabric, progress, BEGUN, i, None);
            let from = Source::Span { region: source, at: 0, len: size };
            fabric.write(remote, 0, from, Some(2 * i)).unwrap();
            put(&mut fabric, remote, SIZE_MAX, i, Some(2 * i + 1));
            put(&mut fabric, progress, ENDED, i, None);
            for (tag, outcome) in ends(&mut fabric) {
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
        let Report { body, tail, denied, denied_tail } = report;
        let report = [body, tail, denied, denied_tail].map(u64::to_le_bytes).concat();
        fabric.send(owner, &report).unwrap();
    }
}

/// The owner's side of it.
struct Target {
    owner: ShmFabric,
    writer: Peer,
    progress: Region,
    log: Region,
    kept: Vec<u64>,
    /// The number before the present grant's first.
    earlier: u64,
}

impl Target {
    fn new(crew: &Crew, name: &str) -> (Self, Hand) {
        let mut owner = crew.host().join(OWNER).unwrap();
        let hand = crew.launch("hammer", name);
        let (writer, _) = mail(&mut owner);
        let progress = owner.create(128, Access::Shared).unwrap();
        let log = owner.create(LEN, Access::Granted).unwrap();
        owner.send(writer, &owner.key(progress).0).unwrap();
        (Self { owner, writer, progress, log, kept: Vec::new(), earlier: 0 }, hand)
    }

    /// Grants, and waits until the writer has begun a write under the grant.
    fn grant(&mut self, size: usize) {
        let begun = self.begun();
        self.earlier = begun;
        let key = self.owner.grant(self.log, self.writer).unwrap();
        let letter = [key.0.as_slice(), &(size as u64).to_le_bytes()].concat();
        self.owner.send(self.writer, &letter).unwrap();
        let end = Instant::now() + WATCHDOG;
        while self.begun() == begun {
            assert!(Instant::now() < end, "the writer does not write");
            thread::yield_now();
        }
    }

    fn begun(&self) -> u64 {
        self.owner.load(self.progress, BEGUN)
    }

    fn is_inside(&self) -> bool {
        self.owner.load(self.progress, ENDED) != self.begun()
    }

    fn revoke(&mut self) {
        self.owner.revoke(self.log).unwrap();
        self.kept = words(&self.owner, self.log, LEN / 8);
    }

    fn check_unchanged(&self) {
        assert_eq!(words(&self.owner, self.log, LEN / 8), self.kept, "late bytes");
    }

    /// Whether the revocation came inside a write. `size` is of the grant's writes.
    fn check(&mut self, size: usize) -> bool {
        let (from, report) = mail(&mut self.owner);
        assert_eq!(from, self.writer);
        let field = |i: usize| u64::from_le_bytes(report[i * 8..][..8].try_into().unwrap());
        let report =
            Report { body: field(0), tail: field(1), denied: field(2), denied_tail: field(3) };
        self.check_unchanged();
        let (body, tail) = (&self.kept[..size / 8], self.kept[SIZE_MAX / 8]);
        let (low, high) = (*body.iter().min().unwrap(), *body.iter().max().unwrap());
        assert!(low >= report.body, "done and not kept: {low}, {report:?}");
        assert!(tail >= report.tail, "done and not kept: {tail}, {report:?}");
        assert!(high <= report.denied, "written after the first denied write: {high}, {report:?}");
        // A tail of an earlier grant belongs to a body that may have been shorter.
        assert!(
            tail <= low.max(self.earlier),
            "the tail {tail} came before all of its body, {low}, {report:?}"
        );
        if report.denied_tail == 1 { tail == report.denied } else { high == report.denied }
    }
}

fn race(crew: &Crew) {
    let (mut target, hand) = Target::new(crew, "writer");
    let mut rng = Rng::new(1);
    let sizes = [8, 64, 1 << 10, 16 << 10, 64 << 10, SIZE_MAX];
    let (mut inside, mut revoked) = ([0u32; 6], [0u32; 6]);
    let end = Instant::now() + WATCHDOG;
    while inside.iter().sum::<u32>() < INSIDE_MIN {
        assert!(Instant::now() < end, "inside {inside:?} of {revoked:?} revocations");
        // Short writes are hit less often, and long ones are why this takes time.
        let pick = *rng.pick(&[0, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5]);
        target.grant(sizes[pick]);
        for _ in 0..rng.below(2_000) {
            hint::spin_loop();
        }
        // Mostly while it says that it is writing; now and then at any moment.
        let wait = Instant::now() + Duration::from_millis(2);
        while !rng.one_in(200) && !target.is_inside() && Instant::now() < wait {
            if rng.one_in(8) {
                thread::yield_now();
            }
        }
        target.revoke();
        revoked[pick] += 1;
        inside[pick] += u32::from(target.check(sizes[pick]));
    }
    println!("sizes {sizes:?}: {inside:?} inside a write of {revoked:?} revocations");
    target.owner.send(target.writer, b"enough").unwrap();
    hand.finish();
    drop(target);
    assert_eq!(crew.host().bytes_reserved(), 0);
}

#[test]
fn no_late_byte_of_a_process_that_hammers() {
    race(&Crew::of_processes());
}

#[test]
fn no_late_byte_of_a_thread_that_hammers() {
    race(&Crew::of_threads());
}

/// Stops the writer in the middle of a write.
fn stop_inside(target: &Target, hand: &Hand) {
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
    let crew = Crew::of_processes();
    let (mut target, hand) = Target::new(&crew, "writer");
    let mut took = Vec::new();
    let mut inside = 0;
    for _ in 0..40 {
        target.grant(SIZE_MAX);
        stop_inside(&target, &hand);
        let before = Instant::now();
        target.owner.revoke(target.log).unwrap();
        took.push(before.elapsed());
        target.kept = words(&target.owner, target.log, LEN / 8);
        // Whoever comes next is not held up either: the next grant is one more file.
        let next = target.owner.grant(target.log, target.writer).unwrap();
        hand.go_on();
        inside += u32::from(target.check(SIZE_MAX));
        assert_ne!(next.0, [0; 32]);
        target.owner.revoke(target.log).unwrap();
        target.check_unchanged();
    }
    took.sort_unstable();
    println!("{inside} of 40 inside a body; revoking took {:?}, at most {:?}", took[20], took[39]);
    assert!(inside > 0);
    // The median, since a shared machine may take the processor away from anybody.
    assert!(took[20] < Duration::from_millis(5), "{took:?}");
    target.owner.send(target.writer, b"enough").unwrap();
    hand.finish();
}

#[test]
fn a_writer_killed_in_a_write_holds_nothing_up_and_is_gone() {
    let crew = Crew::of_processes();
    for round in 0..5 {
        let (mut target, hand) = Target::new(&crew, "writer");
        target.grant(SIZE_MAX);
        stop_inside(&target, &hand);
        let peer = target.writer;
        assert!(!target.owner.is_gone(peer), "a stopped process is not gone");
        hand.kill();
        let before = Instant::now();
        target.revoke();
        let took = before.elapsed();
        assert!(took < Duration::from_secs(1), "round {round}: revoking took {took:?}");
        assert!(target.owner.is_gone(peer));
        assert!(target.owner.grant(target.log, peer).is_err(), "nobody to grant to");
        target.check_unchanged();
        let cleaned = crew.host().clean_dead().unwrap();
        assert_eq!(cleaned.processes, 1);
        assert!(cleaned.bytes >= SIZE_MAX as u64, "{cleaned:?}");
        drop(target);
        assert_eq!(crew.host().bytes_reserved(), 0);
    }
}
