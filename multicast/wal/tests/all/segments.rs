//! Which segments are held, and which go: a segment that goes too early is lost, and one that never goes fills the disk.

use std::io;

use crate::damage::{one_block_each, records, rot};
use crate::harness::{Log, OWNER, SMALL, VALUE};
use skein_wal::files::{FileError, FileName, Files, SegmentName};
use skein_wal::format::{BLOCK, BlockHeader, BlockKind};
use skein_wal::{Group, Lsn, Recovery, Task};

const G: [Group; 2] = [Group(0), Group(1)];

/// Appends as many records of a group as fill some segments, each in a block of its own.
fn fill(log: &mut Log, group: Group) {
    for number in 0..30 {
        log.append(group, VALUE, &[number; 5000]).expect("there is room");
        log.turn();
    }
}

/// Does the same, and needs none of them.
fn pass(log: &mut Log, group: Group) {
    for _ in 0..2 {
        fill(log, group);
        log.keep_from(group, log.durable);
    }
    fill(log, group);
}

/// A log of which the first record of group 0 is damaged, as its next start found.
fn damaged() -> Log {
    let mut log = Log::new(1, SMALL);
    for _ in 0..2 {
        log.append(G[0], VALUE, &[1; 100]).unwrap();
        log.turn();
    }
    // The header stands twice in front of the first record.
    log.medium.flip(log.segments()[0], (2 * BLOCK as u64 + 100) * 8);
    assert_eq!(log.restart().unwrap().damaged, [G[0]]);
    log
}

#[test]
fn a_damaged_group_holds_no_segment() {
    let mut log = damaged();
    log.append(G[0], VALUE, b"of no use").unwrap();
    pass(&mut log, G[1]);
    assert!(log.writer.sizes().recycled > 3, "{:?}", log.writer.sizes());
    assert_eq!(log.restart().unwrap().damaged, [G[0]], "until it begins anew");
}

#[test]
fn a_group_that_began_anew_after_a_damage_holds_its_segments() {
    let mut log = damaged();
    log.begin(G[0]);
    fill(&mut log, G[0]);
    pass(&mut log, G[1]);
    // Some headers were written since: they do not speak of the damage any more.
    let found = log.restart().unwrap();
    assert_eq!(found.damaged, []);
    assert!(found.records > 30, "{}", found.records);
}

#[test]
fn a_group_that_gave_up_all_that_it_had_holds_no_segment() {
    let mut log = Log::new(1, SMALL);
    log.append(G[0], VALUE, b"given up").unwrap();
    log.turn();
    log.keep_from(G[0], log.durable);
    // A lower place does not bring it back.
    log.keep_from(G[0], Lsn(1));
    pass(&mut log, G[1]);
    assert!(log.writer.sizes().recycled > 3, "{:?}", log.writer.sizes());
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn a_group_gives_up_nothing_that_it_has_not_appended() {
    let mut log = Log::new(1, SMALL);
    log.append(G[0], VALUE, b"given up").unwrap();
    log.turn();
    log.keep_from(G[0], log.durable);
    log.writer.keep_from(G[0], Lsn(u64::MAX));
    fill(&mut log, G[0]);
    pass(&mut log, G[1]);
    // The harness compares the records of the group.
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn no_more_writes_are_under_way_than_may_be() {
    let mut log = Log::new(1, SMALL);
    for _ in 0..SMALL.in_flight_max {
        log.append(G[0], VALUE, &[1; 100]).unwrap();
        assert!(log.flush());
    }
    log.append(G[0], VALUE, &[1; 100]).unwrap();
    assert!(!log.flush());
    log.finish(0);
    assert!(log.flush(), "there is room for one again");
}

#[test]
fn blocks_that_wait_for_a_write_take_no_more_memory_than_they_may() {
    let mut log = Log::new(1, SMALL);
    let taken = (0..20).take_while(|_| log.append(G[0], VALUE, &[1; 5000]).is_some()).count();
    assert!(taken <= SMALL.waiting_max, "{taken}");
    log.turn();
    assert!(log.append(G[0], VALUE, &[1; 5000]).is_some(), "they were written");
}

/// Until then the next start believes an older header, by which the segment is needed.
#[test]
fn a_segment_goes_when_the_header_that_gives_it_up_is_durable() {
    let mut log = Log::new(1, SMALL);
    fill(&mut log, G[0]);
    log.keep_from(G[0], log.durable);
    let before = log.writer.sizes();
    loop {
        log.append(G[0], VALUE, &[1; 5000]).unwrap();
        if log.writer.sizes().segments > before.segments {
            break;
        }
        log.turn();
    }
    let mut written = Vec::new();
    while log.flush() {
        let block = BlockHeader::parse(log.in_flight[0].0.bytes()).unwrap();
        log.finish(0);
        written.push((block.kind, log.writer.sizes().recycled > before.recycled));
    }
    let [(BlockKind::Link { .. }, false), (BlockKind::Header, true), (BlockKind::Records, true)] =
        written[..]
    else {
        panic!("{written:?}")
    };
}

/// The first segment of a start is gone, so nobody knows where the start before it ended. Files of starts that cannot
/// be read go like others that nobody needs.
#[test]
fn files_of_starts_that_cannot_be_continued_are_given_back() {
    let mut log = Log::new(1, SMALL);
    let mut of_starts = Vec::new();
    for _ in 0..4 {
        fill(&mut log, G[0]);
        let begun = |file: &FileName| {
            let FileName::Segment(name) = file else { return false };
            name.start == log.start
        };
        of_starts.push(log.segments().into_iter().filter(begun).collect::<Vec<_>>());
        log.restart().unwrap();
    }
    log.medium.remove(of_starts[2][0]).unwrap();
    log.medium.sync_directory().unwrap();
    let found = log.restart().unwrap();
    assert_eq!((found.damaged, found.records), (vec![G[0]], 0), "nothing may be behind a cut");
    log.begin(G[0]);
    pass(&mut log, G[0]);
    let files = log.segments();
    for old in of_starts[..2].concat() {
        assert!(!files.contains(&old), "{old} takes space for ever");
    }
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// There is no space for some step of a task. The task is done again, and no file is forgotten meanwhile.
#[test]
fn a_task_that_there_was_no_space_for_is_done_again() {
    for (longer, step) in
        [false, true].into_iter().flat_map(|longer| (0..80).map(move |step| (longer, step)))
    {
        let mut log = Log::new(1, SMALL);
        pass(&mut log, G[0]);
        if longer {
            // Files of the former length are removed.
            log.options.segment_bytes *= 2;
            log.reopen().unwrap();
        }
        let from = log.medium.operations() + step;
        log.medium.faults(|faults| faults.no_space_from = Some(from));
        (0..2).for_each(|_| log.turn());
        pass(&mut log, G[0]);
        log.medium.faults(|faults| assert_eq!(faults.no_space_from, None, "it happened"));
        log.turn();
        let files = log.medium.list().unwrap().iter().map(|(_, length)| length).sum();
        assert_eq!(log.writer.sizes().files_bytes, files, "at step {step}");
        assert_eq!(log.restart().unwrap().damaged, []);
    }
}

/// A process ended while it prepared a segment. The next one does not write over that file, which it is to use or remove.
#[test]
fn a_file_that_was_being_prepared_and_a_new_segment_have_different_names() {
    let mut log = Log::new(1, SMALL);
    fill(&mut log, G[0]);
    let sequence = |file: &FileName| match file {
        FileName::Segment(SegmentName { sequence, .. }) | FileName::Spare(sequence) => *sequence,
    };
    let newest = log.segments().iter().map(sequence).max().expect("there are some");
    log.medium.create(FileName::Spare(newest + 1), SMALL.segment_bytes).unwrap();
    log.restart().unwrap();
    pass(&mut log, G[0]);
    assert!(log.writer.sizes().recycled > 3, "{:?}", log.writer.sizes());
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// All that a group had is lost, and nothing else tells of it. What it appends does not end its damage.
#[test]
fn a_group_of_which_nothing_is_left_stays_damaged_until_it_begins_anew() {
    let mut log = one_block_each(&[G[0], G[1], G[0]]);
    let only = records(&log)[1].clone();
    rot(&log, &only, 100);
    assert_eq!(log.restart().unwrap().damaged, [G[1]]);
    log.append(G[1], VALUE, b"more").unwrap();
    log.turn();
    assert_eq!(log.restart().unwrap().damaged, [G[1]]);
    log.begin(G[1]);
    log.append(G[1], VALUE, b"anew").unwrap();
    log.turn();
    assert_eq!(log.restart().unwrap().damaged, []);
}

#[test]
fn nothing_is_sealed_while_a_write_is_under_way_or_after_it_failed() {
    let mut log = Log::new(1, SMALL);
    log.append(G[0], VALUE, b"some bytes").unwrap();
    assert!(!log.writer.seal(), "it is forming");
    assert!(log.flush() && !log.writer.seal(), "it is under way");
    log.finish(0);
    assert!(log.writer.unsealed());
    let task = log.writer.next_task().unwrap_or(Task::Remove { file: FileName::Spare(1) });
    let source = io::Error::other("the disk is gone");
    let failed = FileError::Io { operation: "make", file: "a segment".to_owned(), source };
    log.writer.performed(task, Err(failed)).unwrap_err();
    assert!(!log.writer.seal());
}

#[test]
fn a_start_is_numbered_above_what_it_is_told_and_above_those_of_the_log() {
    let mut log = Log::new(1, SMALL);
    (0..3).for_each(|_| _ = log.restart().unwrap());
    let mut recovery = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    let start = recovery.start();
    recovery.start_above(1);
    assert_eq!(recovery.start(), start, "the log knows of later ones");
    recovery.start_above(start);
    assert_eq!(recovery.start(), start + 1, "it was told of one with this number");
}
