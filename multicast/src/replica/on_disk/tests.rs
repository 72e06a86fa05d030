use proptest::prelude::*;
use skein_protocol::ids::GroupId;

use super::*;
use crate::disk::Reader;

/// A disk that keeps the last record.
#[derive(Default)]
struct Last {
    kind: u8,
    bytes: Vec<u8>,
}

impl Disk for Last {
    fn append(&mut self, _: GroupId, kind: u8, record: &[&[u8]]) -> u64 {
        (self.kind, self.bytes) = (kind, record.concat());
        1
    }
    fn flush(&mut self) {}
    fn durable(&self) -> u64 {
        1
    }
    fn sync(&mut self) {}
    fn keep_from(&mut self, _: GroupId, _: u64) {}
    fn begin(&mut self, _: GroupId) {}
    fn snapshot_after(&self) -> u64 {
        u64::MAX
    }
    fn replay(&mut self, _: GroupId, each: &mut Reader<'_>) -> Result<(), String> {
        each(self.kind, &self.bytes)
    }
}

/// A record as the disk has it.
fn written(record: DiskRecord<'_>) -> Last {
    let mut disk = Last::default();
    record.append(ReplicaId::new(GroupId(3), 1), &mut disk);
    disk
}

impl DiskRecord<'_> {
    /// The kind and the bytes of the record, as a disk has them.
    pub(in crate::replica) fn written(&self) -> (u8, Vec<u8>) {
        let Last { kind, bytes } = written(*self);
        (kind, bytes)
    }
}

/// One record of each kind, with these values.
fn of_each_kind(words: [u64; 4], number: u32, flag: bool, bytes: &[u8]) -> [DiskRecord<'_>; 13] {
    let [word, index, position, first] = words;
    let (ballot, base) = (Ballot::from_word(word), Cursor { index, position });
    let content = [Content::Machine, Content::MachineLast, Content::Order][number as usize % 3];
    [
        DiskRecord::Began { incarnation: number },
        DiskRecord::Resumed,
        DiskRecord::Promised { ballot },
        DiskRecord::Ballot { ballot, base, first },
        DiskRecord::Cut { base },
        DiskRecord::Entry(bytes),
        DiskRecord::Payload(bytes),
        DiskRecord::Delivered {
            commit: index,
            delivered: Rank::new(word),
            given: first,
            passed: Rank::new(index),
        },
        DiskRecord::Snapshot { incarnation: number, promised: ballot },
        DiskRecord::SnapshotPart { content, bytes },
        DiskRecord::SnapshotEnd,
        DiskRecord::Earlier { from: position, bytes },
        DiskRecord::Part { first: flag, content, bytes },
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        words: [u64; 4],
        number: u32,
        flag: bool,
        bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        for record in of_each_kind(words, number, flag, &bytes) {
            let disk = written(record);
            prop_assert_eq!(DiskRecord::decode(disk.kind, &disk.bytes), Some(record));
        }
    }

    #[test]
    fn garbage_is_decoded_or_refused(kind: u8, bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let known = DiskRecord::decode(kind, &bytes);
        prop_assert!(known.is_none() || (kind::BEGAN..=kind::EARLIER).contains(&kind));
    }
}

#[test]
fn a_record_that_is_too_short_is_none() {
    for record in of_each_kind([1 << 40, 2, 3, 4], 1, true, &[]) {
        let Last { kind, bytes } = written(record);
        for len in 0..bytes.len() {
            if kind == kind::DELIVERED && [16, 24].contains(&len) {
                continue; // It is one of an earlier version, or of an ordering that keeps less.
            }
            assert_eq!(DiskRecord::decode(kind, &bytes[..len]), None, "{record:?} of {len} bytes");
        }
    }
}

#[test]
fn what_an_earlier_version_says_of_deliveries_is_read() {
    let words = [7_u64, 9].map(u64::to_le_bytes).concat();
    let expected = DiskRecord::Delivered {
        commit: 7,
        delivered: Rank::new(9),
        given: 7,
        passed: Rank::NOTHING,
    };
    assert_eq!(DiskRecord::decode(kind::DELIVERED, &words), Some(expected));
}

#[test]
fn values_that_no_replica_writes_are_none() {
    let large = u64::MAX.to_le_bytes();
    let snapshot = [large, [0; 8]].concat();
    assert_eq!(DiskRecord::decode(kind::BEGAN, &large), None, "incarnations have 32 bits");
    assert_eq!(DiskRecord::decode(kind::SNAPSHOT, &snapshot), None);
    assert_eq!(DiskRecord::decode(kind::SNAPSHOT_PART, &[3]), None, "there is no such content");
    assert_eq!(DiskRecord::decode(kind::PART, &[0, 3]), None);
    for kind in [0, kind::EARLIER + 1, u8::MAX] {
        assert_eq!(DiskRecord::decode(kind, &[0; 64]), None, "there is no kind {kind}");
    }
}

/// The last entries of a log after each of these records.
fn ends<const N: usize>(records: [DiskRecord<'_>; N]) -> [u64; N] {
    let mut end = LogEnd::default();
    records.map(|record| {
        let Last { kind, bytes } = written(record);
        end = end.with(kind, &bytes);
        end.last
    })
}

/// The beginning of an entry, up to its index.
fn entry(index: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&index.to_le_bytes());
    bytes
}

#[test]
fn a_log_ends_with_its_last_entry_and_in_front_of_a_cut() {
    let (entries, ballot) = ([1, 2, 3].map(entry), Ballot::new(1, 0, 0));
    let at = |index| Cursor { index, position: 64 * index };
    let records = [
        DiskRecord::Began { incarnation: 0 },
        DiskRecord::Promised { ballot },
        DiskRecord::Ballot { ballot, base: at(1), first: 1 },
        DiskRecord::Entry(&entries[0]),
        DiskRecord::Payload(b"payload"),
        DiskRecord::Entry(&entries[1]),
        DiskRecord::Delivered {
            commit: 1,
            delivered: Rank::new(1),
            given: 1,
            passed: Rank::NOTHING,
        },
        DiskRecord::Entry(&entries[2]),
        DiskRecord::Cut { base: at(3) },
        DiskRecord::Entry(&entries[2]),
        DiskRecord::Resumed,
        DiskRecord::Ballot { ballot, base: at(2), first: 2 },
    ];
    assert_eq!(ends(records), [0, 0, 0, 1, 1, 2, 2, 3, 2, 3, 3, 1]);
}

#[test]
fn a_snapshot_does_not_change_where_the_log_ends() {
    let (entries, ballot) = ([7, 8, 9].map(entry), Ballot::new(1, 0, 0));
    let part = |content| DiskRecord::SnapshotPart { content, bytes: &[] };
    let base = Cursor { index: 7, position: 64 };
    let records = [
        DiskRecord::Entry(&entries[0]),
        DiskRecord::Snapshot { incarnation: 0, promised: ballot },
        part(Content::Machine),
        // Deliveries continue between the parts.
        DiskRecord::Entry(&entries[1]),
        part(Content::MachineLast),
        part(Content::Order),
        DiskRecord::Ballot { ballot, base, first: 7 },
        DiskRecord::Entry(&entries[0]),
        DiskRecord::Entry(&entries[1]),
        DiskRecord::SnapshotEnd,
        DiskRecord::Entry(&entries[2]),
    ];
    assert_eq!(ends(records), [7, 7, 7, 8, 8, 8, 8, 8, 8, 8, 9]);

    let torn = [
        DiskRecord::Entry(&entries[1]),
        part(Content::Order),
        DiskRecord::Entry(&entries[0]),
        DiskRecord::Resumed,
        DiskRecord::Entry(&entries[2]),
    ];
    assert_eq!(ends(torn), [8, 8, 8, 8, 9], "the process ended in a snapshot");
}
