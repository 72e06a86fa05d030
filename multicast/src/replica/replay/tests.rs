use skein_protocol::ballot::Ballot;
use skein_protocol::rank::Rank;

use super::*;

const BALLOT: Ballot = Ballot::new(1, 0, 0);
const BEGAN: DiskRecord<'_> = DiskRecord::Began { incarnation: 0 };
const RESUMED: DiskRecord<'_> = DiskRecord::Resumed;
const PROMISED: DiskRecord<'_> = DiskRecord::Promised { ballot: BALLOT };
const ENTRY: DiskRecord<'_> = DiskRecord::Entry(&[]);
const DELIVERED: DiskRecord<'_> =
    DiskRecord::Delivered { commit: 1, delivered: Rank::new(1), given: 1, passed: Rank::NOTHING };
/// A snapshot: its head, its parts, of which `ORDER` is the last, and its end.
const HEAD: DiskRecord<'_> = DiskRecord::Snapshot { incarnation: 0, promised: BALLOT };
const PART: DiskRecord<'_> = DiskRecord::SnapshotPart { content: Content::Machine, bytes: &[] };
const LAST: DiskRecord<'_> = DiskRecord::SnapshotPart { content: Content::MachineLast, bytes: &[] };
const ORDER: DiskRecord<'_> = DiskRecord::SnapshotPart { content: Content::Order, bytes: &[] };
const END: DiskRecord<'_> = DiskRecord::SnapshotEnd;

/// Each record, with whether it is to be read.
type Sequence = &'static [(DiskRecord<'static>, bool)];

/// What a log holds when it was read in this way to its end.
fn read(what: &str, sequence: Sequence) -> From {
    let mut from = From::Nothing;
    for (at, (record, expected)) in sequence.iter().enumerate() {
        assert_eq!(from.reads(record), *expected, "{what}: {record:?} at {at}");
    }
    from
}

#[test]
fn a_log_is_read_from_its_beginning() {
    let end = read(
        "a log",
        &[
            (BEGAN, true),
            (PROMISED, true),
            (ENTRY, true),
            (DELIVERED, true),
            (RESUMED, false),
            (ENTRY, true),
        ],
    );
    assert!(end == From::State);
}

#[test]
fn a_snapshot_behind_the_log_is_skipped_and_what_is_between_its_parts_is_not() {
    let whole = read(
        "a whole one",
        &[
            (BEGAN, true),
            (HEAD, false),
            (ENTRY, true),
            (PART, false),
            (DELIVERED, true),
            (LAST, false),
            (ORDER, false),
            // These stand in the log already.
            (
                DiskRecord::Ballot {
                    ballot: BALLOT,
                    base: skein_protocol::group::frame::Cursor::START,
                    first: 1,
                },
                false,
            ),
            (ENTRY, false),
            (END, false),
            (ENTRY, true),
        ],
    );
    assert!(whole == From::State);
}

#[test]
fn a_torn_snapshot_ends_where_another_process_begins() {
    let parts = read(
        "torn between its parts",
        &[(BEGAN, true), (HEAD, false), (PART, false), (RESUMED, false), (ENTRY, true)],
    );
    assert!(parts == From::State);
    let rest = read(
        "torn in the rest of the log",
        &[
            (BEGAN, true),
            (HEAD, false),
            (ORDER, false),
            (ENTRY, false),
            (RESUMED, false),
            (ENTRY, true),
        ],
    );
    assert!(rest == From::State);
}

#[test]
fn with_nothing_in_front_a_snapshot_is_read_and_what_is_between_its_parts_is_not() {
    let whole = read(
        "a snapshot",
        &[
            // The rest of a segment whose beginning is gone.
            (ENTRY, false),
            (DELIVERED, false),
            (PART, false),
            (HEAD, true),
            (ENTRY, false),
            (PART, true),
            (PROMISED, true),
            (DELIVERED, false),
            (LAST, true),
            (ORDER, true),
            (ENTRY, true),
            (END, true),
            (DELIVERED, true),
        ],
    );
    assert!(whole == From::State);
}

#[test]
fn of_two_snapshots_the_second_is_skipped() {
    let two = read(
        "two",
        &[
            (HEAD, true),
            (ORDER, true),
            (END, true),
            (ENTRY, true),
            (HEAD, false),
            (PART, false),
            (ENTRY, true),
            (ORDER, false),
            (ENTRY, false),
            (END, false),
            (ENTRY, true),
        ],
    );
    assert!(two == From::State);
}

#[test]
fn a_snapshot_that_was_given_up_gives_way_to_the_next() {
    let next = read(
        "given up for a learner's copy",
        &[(HEAD, true), (PART, true), (ENTRY, false), (HEAD, true), (ORDER, true), (END, true)],
    );
    assert!(next == From::State);
    let resumed = read(
        "torn, with nothing in front",
        &[
            (HEAD, true),
            (PART, true),
            (RESUMED, false),
            (ENTRY, false),
            (HEAD, true),
            (ORDER, true),
            (END, true),
        ],
    );
    assert!(resumed == From::State);
}

#[test]
fn what_ends_in_a_snapshot_with_nothing_in_front_is_no_state() {
    assert!(read("no part", &[(HEAD, true)]) == From::Snapshot);
    assert!(read("no end", &[(HEAD, true), (ORDER, true), (ENTRY, true)]) == From::Parts);
    assert!(read("neither", &[(ENTRY, false), (RESUMED, false)]) == From::Nothing);
    let lost =
        read("its end is lost", &[(HEAD, true), (ORDER, true), (RESUMED, false), (ENTRY, false)]);
    assert!(lost == From::Nothing);
    let skipped =
        read("the log in front is enough", &[(BEGAN, true), (HEAD, false), (ORDER, false)]);
    assert!(skipped == From::StateAndParts);
}
