//! Files that are not this log's, or not in their place, are refused by name; nothing panics.

use std::collections::BTreeMap;

use crate::harness::{Log, OWNER, SHORT_FIRST, SMALL, VALUE};
use proptest::prelude::*;
use skein_wal::files::{FileName, Files, Medium, SegmentName};
use skein_wal::format::BLOCK;
use skein_wal::{Group, Lsn, Owner, RecoverError, Recovery};

/// A log of two starts and some segments.
fn log() -> Log {
    let mut log = Log::new(1, SMALL);
    for start in 0..2 {
        for i in 0..30_u8 {
            log.append(Group(u16::from(i % 2)), VALUE, &[i; 5000]).unwrap();
            log.turn();
        }
        if start == 0 {
            log.restart().unwrap();
        }
    }
    log
}

fn read(log: &Log) -> Result<Recovery, RecoverError> {
    Recovery::read(&log.medium, OWNER, &[])
}

#[test]
fn a_log_is_read_by_its_owner_alone() {
    let log = log();
    let other = Owner { cluster: *b"another cluster!", ..OWNER };
    let error = Recovery::read(&log.medium, other, &[]).unwrap_err();
    assert!(matches!(error, RecoverError::WrongCluster { found, .. } if found == OWNER.cluster));
    let error = Recovery::read(&log.medium, Owner { node: 8, ..OWNER }, &[]).unwrap_err();
    assert!(matches!(error, RecoverError::WrongNode { found: 7, expected: 8, .. }));
    assert!(read(&log).is_ok());
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let log = log();
    for file in log.segments() {
        for copy in [0, 1] {
            log.medium.overwrite(file, copy * BLOCK as u64 + 12, &9_u16.to_le_bytes());
        }
    }
    let error = read(&log).unwrap_err();
    assert!(matches!(error, RecoverError::Format { format: 9, .. }), "{error}");
}

#[test]
fn files_with_each_others_names_are_refused() {
    let log = log();
    let files = log.segments();
    let (a, b) = (files[1], files[2]);
    for (from, to) in [(a, FileName::Spare(0)), (b, a), (FileName::Spare(0), b)] {
        log.medium.rename(from, to).unwrap();
    }
    assert!(matches!(read(&log).unwrap_err(), RecoverError::Misnamed { .. }));
}

#[test]
fn a_copy_under_a_second_name_is_refused() {
    let log = log();
    let all = log.medium.snapshot();
    let FileName::Segment(name) = log.segments()[1] else { unreachable!() };
    let copy = FileName::Segment(SegmentName { sequence: name.sequence + 100, ..name });
    log.medium.rename(FileName::Segment(name), copy).unwrap();
    log.medium.restore(&all, Some(&[FileName::Segment(name)]));
    assert!(matches!(read(&log).unwrap_err(), RecoverError::Misnamed { .. }));
}

/// The start stands in the name, and counts before anything else is read.
#[test]
fn a_file_with_the_number_of_another_start_is_refused() {
    let log = log();
    let FileName::Segment(name) = log.segments()[1] else { unreachable!() };
    let renamed = FileName::Segment(SegmentName { start: name.start + 1, ..name });
    log.medium.rename(FileName::Segment(name), renamed).unwrap();
    let RecoverError::Misnamed { file, .. } = read(&log).unwrap_err() else { panic!() };
    assert_eq!(file, renamed);
}

#[test]
fn two_files_of_one_sequence_are_refused() {
    let log = log();
    let FileName::Segment(name) = log.segments()[1] else { unreachable!() };
    let second = FileName::Segment(SegmentName { salt: !name.salt, ..name });
    log.medium.create(second, SMALL.segment_bytes).unwrap();
    assert!(matches!(read(&log).unwrap_err(), RecoverError::Disordered { .. }));
}

/// Two logs that began alike and went on apart: the first files of one, and the later ones of the other.
#[test]
fn files_of_two_logs_with_one_beginning_are_refused() {
    let mut log = Log::new(1, SHORT_FIRST);
    let beginning = log.medium.snapshot();
    let sequence = |file: &FileName| match file {
        FileName::Segment(SegmentName { sequence, .. }) | FileName::Spare(sequence) => *sequence,
    };
    // Many short segments, and then few long ones.
    for _ in 0..8 {
        log.append(Group(0), VALUE, b"some bytes").unwrap();
        log.turn();
        log.restart().unwrap();
    }
    let short = (log.medium.snapshot(), log.segments());
    log.medium.restore(&beginning, None);
    (log.durable, log.start, log.owed) = (Lsn::NONE, 0, BTreeMap::new());
    log.restart().unwrap();
    for number in 0..30 {
        log.append(Group(0), VALUE, &[number; 5000]).unwrap();
        log.turn();
    }
    let last = log.segments()[3];
    for file in log.segments().into_iter().filter(|file| sequence(file) > sequence(&last)) {
        log.medium.remove(file).unwrap();
    }
    let later: Vec<_> =
        short.1.into_iter().filter(|file| sequence(file) > sequence(&last)).collect();
    log.medium.restore(&short.0, Some(&later));
    assert!(matches!(read(&log).unwrap_err(), RecoverError::Disordered { .. }));
}

#[test]
fn a_file_cut_short_is_refused() {
    for bytes in [0, 512, 4096, 4608, 8192, (64 << 10) - 4096] {
        let log = log();
        let file = log.segments()[1];
        log.medium.truncate(file, bytes);
        let expected = match read(&log) {
            Err(RecoverError::Truncated { expected, .. }) => Some(expected),
            _ => None,
        };
        let refused = expected.is_some();
        if bytes >= 4096 {
            assert_eq!(expected, Some(SMALL.segment_bytes), "{bytes}");
        }
        // Not even one header is left of the shortest.
        assert!(refused || bytes < 4096, "{bytes}");
        assert!(refused, "{bytes}");
    }
}

/// One file of an earlier day among those of today.
#[test]
fn an_older_copy_of_a_file_is_damage_or_refused() {
    let mut log = log();
    log.turn();
    let files = log.segments();
    let current = files[files.len() - 2];
    let old = log.medium.snapshot();
    for i in 0..3_u8 {
        log.append(Group(2), VALUE, &[i; 3000]).unwrap();
        log.turn();
    }
    log.restart().unwrap();
    log.medium.restore(&old, Some(&[current]));
    assert_eq!(log.restart().unwrap().damaged, [Group(2)], "a later start read more of it");
}

/// The whole directory of an earlier day is a log like any other. That its start number does not rise is
/// for the peers to see, who have met a later one.
#[test]
fn an_older_directory_tells_by_its_start_number() {
    let mut log = log();
    let old = log.medium.snapshot();
    let then = read(&log).unwrap().start();
    log.restart().unwrap();
    log.restart().unwrap();
    let now = read(&log).unwrap().start();
    log.medium.restore(&old, None);
    assert_eq!(read(&log).unwrap().start(), then);
    assert!(then < now);
}

#[test]
fn an_empty_directory_and_one_with_an_unborn_log_are_new() {
    let medium = Medium::new(1);
    let recovery = Recovery::read(&medium, OWNER, &[Group(1)]).unwrap();
    assert_eq!((recovery.start(), recovery.groups().len()), (1, 1));
    let name = SegmentName { sequence: 1, start: 1, salt: 9 };
    medium.create(FileName::Segment(name), SMALL.segment_bytes).unwrap();
    let recovery = Recovery::read(&medium, OWNER, &[]).unwrap();
    assert_eq!(recovery.start(), 2, "the start number rises though nothing was said under it");
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever bytes are in the files, reading them ends, and does not panic.
    #[test]
    fn no_bytes_make_recovery_panic(
        places in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..(64_u64 << 10) - 4096, any::<u64>(), 0..3_u8),
            1..12,
        ),
    ) {
        let log = log();
        let files = log.segments();
        for (file, offset, value, how) in places {
            let file = *file.get(&files);
            match how {
                0 => log.medium.overwrite(file, offset, &value.to_le_bytes()),
                // Fields of blocks: numbers that are nearly right.
                1 => {
                    let at = offset / BLOCK as u64 * BLOCK as u64 + value % 12 * 8;
                    log.medium.overwrite(file, at, &(value >> 60).to_le_bytes());
                }
                _ => {
                    let bytes = log.medium.bytes(file);
                    let from = (value as usize % (bytes.len() / BLOCK)) * BLOCK;
                    let at = offset / BLOCK as u64 * BLOCK as u64;
                    log.medium.overwrite(file, at, &bytes[from..from + BLOCK]);
                }
            }
        }
        if let Ok(recovery) = read(&log) {
            _ = recovery.replay(&log.medium, |_| {});
            _ = recovery.writer(SMALL, 1);
        }
    }
}
