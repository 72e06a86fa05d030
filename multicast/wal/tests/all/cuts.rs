//! The end of a start's log: what was durable there is missed, and nothing behind it is read.

use crate::damage::{Placed, exchange, one_block_each, records, rot};
use crate::harness::{Log, OWNER, SMALL, VALUE};
use skein_wal::files::{FileError, FileName, Files, perform, sync_everything};
use skein_wal::format::{BLOCK, BlockHeader, BlockKind};
use skein_wal::{Group, Options, RecoverError, Recovery, Task, Verdict};

const G: [Group; 2] = [Group(0), Group(1)];

/// A log whose current segment has no room for another block beside its link.
fn filled() -> Log {
    let mut log = Log::new(1, SMALL);
    for number in 0..6_u8 {
        log.append(G[0], VALUE, &[number; 5000]).unwrap();
    }
    log.turn();
    log.append(G[0], VALUE, &[9; 100]).unwrap();
    log.turn();
    log
}

/// A damage of two blocks, the last one with a record and the link: only the header behind them knows better.
#[test]
fn a_header_says_that_what_stands_in_front_of_it_was_durable() {
    let mut log = filled();
    assert!(log.writer.seal(), "there is no room for a seal, so the next segment's header tells");
    log.turn();
    let last = records(&log).pop().unwrap();
    let FileName::Segment(name) = last.file else { unreachable!() };
    let link = &log.medium.bytes(last.file)[last.offset as usize + BLOCK..];
    let (link, _) = BlockHeader::verify(link, name.salt).unwrap();
    assert!(matches!(link.kind, BlockKind::Link { .. }));
    rot(&log, &last, 100);
    rot(&log, &Placed { offset: last.offset + BLOCK as u64, header: link, ..last }, 100);
    assert_eq!(log.restart().unwrap().damaged, [G[0]]);
}

/// Both copies of a header are damaged, and the only block behind it was formed while the header was on its way: it does
/// not say that the header was durable. It would not be there if the header had not been.
#[test]
fn a_block_proves_that_the_header_in_front_of_it_was_durable() {
    let mut log = filled();
    // Two blocks are closed behind the link and the header before anything is written.
    for _ in 0..2 {
        log.append(G[0], VALUE, &[7; 6000]).unwrap();
    }
    for _ in 0..3 {
        assert!(log.flush());
        log.finish(0);
    }
    let last = records(&log).pop().unwrap();
    assert!(last.offset == 2 * BLOCK as u64 && log.durable == last.header.end());
    assert!(last.header.acked_through.0 <= last.header.lsn.0 - 2 * BLOCK as u64);
    log.medium.overwrite(last.file, 0, &[0; 2 * BLOCK]);
    // No record is lost, and the harness would miss one.
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// The last block before a cut is sound, and another one than the next start read.
#[test]
fn a_start_that_ends_otherwise_than_the_next_one_read_is_refused() {
    let mut log = one_block_each(&[G[0], G[1]]);
    // It reaches the disk, and nobody is told.
    log.append(G[0], VALUE, b"lost").unwrap();
    assert!(log.flush());
    let (flush, _) = log.in_flight.pop().unwrap();
    log.append(G[0], VALUE, b"behind it").unwrap();
    let behind = log.writer.next_flush().unwrap();
    log.medium.write(behind.file(), behind.offset(), behind.bytes()).unwrap();
    log.medium.overwrite(flush.file(), flush.offset(), &[0; BLOCK]);
    log.medium.crash();
    assert_eq!(log.restart().unwrap().records, 2);
    let last = records(&log)[1].clone();
    exchange(&log, &last);
    let refused = Recovery::read(&log.medium, OWNER, &[]).unwrap_err();
    let RecoverError::Diverged { file, offset } = refused else { panic!("{refused}") };
    assert_eq!((file, offset), (last.file, last.offset + BLOCK as u64));
}

#[test]
fn a_block_that_changes_between_the_two_readings_is_noticed() {
    let log = one_block_each(&[G[0], G[1]]);
    let recovery = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    let last = records(&log).pop().unwrap();
    rot(&log, &last, 100);
    let changed = recovery.replay(&log.medium, |_| ()).unwrap_err();
    let RecoverError::Changed { file, offset } = changed else { panic!("{changed}") };
    assert_eq!((file, offset), (last.file, last.offset));
}

/// A log that ended when its link was durable, and nothing of the header behind it.
fn linked() -> Log {
    let mut log = filled();
    log.append(G[1], VALUE, b"lost").unwrap();
    assert!(log.flush());
    log.finish(0);
    log.medium.crash();
    sync_everything(&log.medium).unwrap();
    log
}

/// The link names a file, which would be missed if the next start took it and ended before its own header is durable.
#[test]
fn a_start_without_space_does_not_begin_in_a_file_that_a_link_names() {
    let mut log = linked();
    // Nor in one that is too short, or whose making was cut short.
    for (number, bytes) in [(1, BLOCK), (2, (64 << 10) + 512)] {
        log.medium.create(FileName::Spare(number), bytes as u64).unwrap();
    }
    let used = log.medium.list().unwrap().iter().map(|(_, length)| length).sum();
    log.medium.faults(|faults| faults.capacity = Some(used));
    let mut writer = Recovery::read(&log.medium, OWNER, &[]).unwrap().writer(SMALL, 99);
    let task = writer.next_task().unwrap();
    let full = perform(&log.medium, &task).unwrap_err();
    assert!(matches!(full, FileError::Full { .. }), "{full}");
    assert!(!writer.begins_without_space(task), "no file is without a name in a link");
    log.medium.faults(|faults| faults.capacity = None);
    assert_eq!(log.restart().unwrap().damaged, []);
}

/// It would be tried for ever otherwise.
#[test]
fn a_start_without_space_to_use_a_file_again_does_not_begin() {
    let log = linked();
    log.medium.create(FileName::Spare(1), SMALL.segment_bytes).unwrap();
    let mut writer = Recovery::read(&log.medium, OWNER, &[]).unwrap().writer(SMALL, 99);
    let new = writer.next_task().unwrap();
    assert!(writer.begins_without_space(new));
    let used = writer.next_task().unwrap();
    assert!(matches!(used, Task::Prepare { reuse: Some(FileName::Spare(1)), .. }), "{used:?}");
    assert!(!writer.begins_without_space(used));
}

#[test]
fn a_start_touches_no_file_and_tells_nothing_before_its_header_is_durable() {
    let longer = 2 * SMALL.segment_bytes;
    for (segment_bytes, spare_max) in [(SMALL.segment_bytes, 1), (longer, 1), (longer, 0)] {
        let log = linked();
        let options = Options { segment_bytes, spare_max, ..SMALL };
        let mut writer = Recovery::read(&log.medium, OWNER, &[]).unwrap().writer(options, 99);
        for _ in 0..2 {
            let task = writer.next_task().expect("two segments are made");
            assert!(matches!(task, Task::Prepare { reuse: None, .. }), "{task:?}");
            writer.performed(task, perform(&log.medium, &task)).unwrap();
        }
        assert_eq!(writer.next_task(), None);
        let flush = writer.next_flush().expect("the header");
        assert!(!writer.started());
        log.medium.write(flush.file(), flush.offset(), flush.bytes()).unwrap();
        writer.flushed(flush, Ok(())).unwrap();
        assert!(writer.started());
        assert!(writer.next_task().is_some(), "the former file goes");
    }
}

/// A header's entry for a group holds until the next header, though the group began anew.
#[test]
fn a_group_that_begins_anew_keeps_its_entry_in_the_table() {
    let mut log = filled();
    log.writer.table(G[0], b"promised").unwrap();
    log.append(G[0], VALUE, b"in the next segment").unwrap();
    log.turn();
    log.writer.begin(G[0]).unwrap();
    log.writer.append(G[0], VALUE, &[b"anew"]).unwrap();
    log.turn();
    let found = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    let [group] = found.groups() else { panic!("{:?}", found.groups()) };
    assert_eq!((&group.table[..], group.verdict), (&b"promised"[..], Verdict::Whole));
}

#[test]
fn a_group_that_needs_the_last_record_of_a_segment_is_replayed_from_there() {
    let mut log = filled();
    let last = log.owed[&G[0]].records.last().unwrap().lsn;
    log.keep_from(G[0], last);
    for _ in 0..2 {
        log.append(G[0], VALUE, &[1; 5000]).unwrap();
        log.turn();
    }
    let recovery = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    let mut found = Vec::new();
    recovery.replay_group(G[0], &log.medium, |record| found.push(record.lsn)).unwrap();
    assert_eq!((found.first(), found.len()), (Some(&last), 3));
}

/// The next start may have used the segments of such a group again while it is asked for.
#[test]
fn no_segment_is_read_for_a_group_that_needs_none() {
    let mut log = filled();
    log.keep_from(G[0], log.durable);
    for _ in 0..2 {
        log.append(G[1], VALUE, &[1; 5000]).unwrap();
        log.turn();
    }
    let recovery = Recovery::read(&log.medium, OWNER, &[]).unwrap();
    log.segments().into_iter().for_each(|file| log.medium.remove(file).unwrap());
    recovery.replay_group(G[0], &log.medium, |record| panic!("{}", record.lsn)).unwrap();
    recovery.replay_group(G[1], &log.medium, |_| ()).unwrap_err();
}
