//! What one file of a log tells by itself.

use crate::harness::{Log, SMALL, VALUE};
use skein_wal::Group;
use skein_wal::files::{FileName, Files, SegmentName};
use skein_wal::format::{BLOCK, BlockKind};
use skein_wal::inspect::{End, Fault, InspectError, Segment};

/// A segment of two groups' records, a block each, and a seal.
fn sealed() -> (SegmentName, Vec<u8>) {
    let mut log = Log::new(1, SMALL);
    for i in 0..6_u8 {
        log.append(Group(u16::from(i % 2)), VALUE, &[i; 100]).unwrap();
        log.turn();
    }
    assert!(log.writer.seal());
    log.turn();
    let files = log.medium.list().unwrap().into_iter();
    let first = files.filter_map(|(file, _)| match file {
        FileName::Segment(name) => Some(name),
        FileName::Spare(_) => None,
    });
    let first = first.min().expect("a segment");
    (first, log.medium.bytes(FileName::Segment(first)))
}

fn faults(bytes: &[u8], name: SegmentName) -> Vec<Fault> {
    Segment::read(bytes, Some(name)).expect("a segment").faults
}

#[test]
fn a_sound_segment_is_read_under_its_name_and_under_any_other() {
    let (name, bytes) = sealed();
    for name in [Some(name), None] {
        let segment = Segment::read(&bytes, name).unwrap();
        assert_eq!((segment.records, &segment.faults[..]), (6, &[][..]));
        let [records @ .., seal] = &segment.blocks[..] else { panic!("{segment:?}") };
        assert_eq!((records.len(), seal.header.kind), (6, BlockKind::Seal));
        assert!(segment.blocks.iter().all(|block| !block.detached));
        assert_eq!(segment.end, End::Open { offset: seal.offset + BLOCK as u64 });
        let found: Vec<_> = segment.records_of(&records[4]).map(|record| record.bytes).collect();
        assert_eq!(found, [&[4; 100]]);
    }
}

#[test]
fn a_recycled_segment_is_prepared_and_not_damaged() {
    let (former, mut bytes) = sealed();
    let name = SegmentName { sequence: former.sequence + 9, salt: !former.salt, ..former };
    let misnamed = Fault::Misnamed { sequence: former.sequence };
    assert_eq!(faults(&bytes, name), [misnamed], "the former one, renamed");
    bytes[..BLOCK].fill(0);
    let read = Segment::read(&bytes, Some(name));
    assert!(matches!(read, Err(InspectError::Unbegun)), "{read:?}");
}

/// Only the seal itself may look torn: nothing behind it says that it was durable.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    let (name, mut bytes) = sealed();
    let sound = Segment::read(&bytes, Some(name)).unwrap();
    let seal = sound.blocks.last().unwrap().offset as usize;
    for bit in (0..seal * 8).step_by(7) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(faults(&bytes, name), [], "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for bit in 0..BLOCK * 8 {
        let byte = seal + bit / 8;
        bytes[byte] ^= 1 << (bit % 8);
        let segment = Segment::read(&bytes, Some(name)).unwrap();
        let offset = seal as u64;
        let cut = [End::Torn { offset }, End::Open { offset }].contains(&segment.end);
        assert!(cut && segment.faults.is_empty(), "bit {bit}: {:?}", segment.end);
        bytes[byte] ^= 1 << (bit % 8);
    }
}

#[test]
fn what_was_durable_is_lost_and_what_was_not_is_torn() {
    let (name, mut bytes) = sealed();
    let blocks = Segment::read(&bytes, Some(name)).unwrap().blocks;
    bytes[blocks[2].offset as usize + 100] ^= 1;
    let damaged = Segment::read(&bytes, Some(name)).unwrap();
    assert_eq!(damaged.faults, [Fault::Lost { offset: blocks[2].offset }]);
    let detached = damaged.blocks.iter().filter(|block| block.detached);
    assert_eq!(detached.map(|block| block.offset).collect::<Vec<_>>(), [blocks[3].offset]);
    assert!(matches!(damaged.end, End::Open { .. }), "the log goes on behind it");

    // Blocks 4 and 5 reached the disk and 3 did not: they were under way together.
    let mut log = Log::new(1, SMALL);
    log.append(Group(0), VALUE, b"first").unwrap();
    log.turn();
    for _ in 0..3 {
        log.append(Group(0), VALUE, b"under way").unwrap();
        assert!(log.flush());
    }
    log.finish(2);
    log.finish(1);
    let (flush, _) = log.in_flight.pop().unwrap();
    let FileName::Segment(name) = flush.file() else { unreachable!("blocks go to segments") };
    let (offset, mut bytes) = (flush.offset(), log.medium.bytes(flush.file()));
    std::mem::forget(flush);
    bytes[offset as usize + 100] ^= 1;
    let torn = Segment::read(&bytes, Some(name)).unwrap();
    assert_eq!((torn.end, &torn.faults[..]), (End::Torn { offset }, &[][..]));
    assert_eq!(torn.blocks.last().map(|block| block.offset > offset), Some(true));
}

#[test]
fn files_that_are_no_whole_segment_are_told_apart() {
    let (name, bytes) = sealed();
    let read = |bytes: &[u8], name| Segment::read(bytes, name).map(|segment| segment.faults);
    assert_eq!(read(&[], Some(name)), Err(InspectError::Empty));
    assert_eq!(read(b"text", None), Err(InspectError::NotSegment));
    let zeroes = vec![0; 65536];
    assert_eq!(read(&zeroes, None), Err(InspectError::NotSegment));
    assert_eq!(read(&zeroes, Some(name)), Err(InspectError::Unbegun));
    let (short, expected) = (&bytes[..5 * BLOCK + 10], bytes.len() as u64);
    assert_eq!(read(short, Some(name)), Ok(vec![Fault::Length { expected }]));
    let other = SegmentName { sequence: name.sequence + 1, ..name };
    let misnamed = vec![Fault::Misnamed { sequence: name.sequence }];
    assert_eq!(read(&bytes, Some(other)), Ok(misnamed));

    let mut spoilt = bytes.clone();
    spoilt[20] ^= 1;
    assert_eq!(read(&spoilt, Some(name)), Ok(vec![Fault::HeaderCopy { offset: 0 }]));
    spoilt[BLOCK + 20] ^= 1;
    assert_eq!(read(&spoilt, Some(name)), Err(InspectError::Headless { blocks: 7 }));
    assert_eq!(read(&spoilt, None), Err(InspectError::NotSegment));

    let mut newer = bytes;
    for copy in [0, BLOCK] {
        newer[copy + 12] = 2;
    }
    assert_eq!(read(&newer, Some(name)), Err(InspectError::Format(2)));
}
