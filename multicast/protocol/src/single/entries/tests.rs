//! Entries as bytes.

use alloc::vec;

use super::*;
use crate::ballot::Ballot;
use crate::group::body::{Body as _, Draft as _};
use crate::group::frame::PAD;
use crate::ids::SessionId;

const BALLOT: Ballot = Ballot::new(3, 1, 0);
const STAMP: Stamp = Stamp { ballot: BALLOT, time_ms: 77, epoch: 9 };
const CURSOR: Cursor = Cursor { index: 12, position: 4096 };
const HELD: Payload<'_> = Payload::Held { check: u64::MAX - 6 };

fn logged(inline: bool) -> Record {
    Record::Message { message: MessageId::new(SessionId(5), 6), low_water: 2, inline }
}

/// Records, the contents of their entries, and whether somebody waits for followers to acknowledge the entry.
fn entries() -> [(Record, Contents<'static>, bool); 6] {
    [
        (GroupRecord::NewBallot.into(), Contents::None, true),
        (GroupRecord::Evict { slot: 15 }.into(), Contents::None, true),
        (GroupRecord::Join { slot: 4, incarnation: (1 << 24) - 1 }.into(), Contents::None, true),
        (logged(true), Contents::Payload(Payload::Inline(b"")), false),
        (logged(true), Contents::Payload(Payload::Inline(b"thirteen char")), false),
        (logged(false), Contents::Payload(HELD), true),
    ]
}

fn written(record: &Record, contents: Contents<'static>) -> Vec<u8> {
    let (draft, mut bytes) = (Draft::of(record, contents), Vec::new());
    draft.encode(STAMP, CURSOR, &mut bytes);
    assert_eq!(bytes.len(), draft.entry_len());
    bytes
}

fn records(each: impl FnOnce(&mut dyn FnMut(Record))) -> Vec<Record> {
    let mut records = vec![];
    each(&mut |record| records.push(record));
    records
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    for (record, contents, awaited) in entries() {
        let draft = Draft::of(&record, contents);
        assert_eq!(draft.is_awaited(), awaited, "{record:?}");
        assert_eq!(draft.items(), 0);
        assert_eq!(records(|each| draft.for_each_record(each)), [record]);
        let bytes = written(&record, contents);
        let frame = Frame::decode(&bytes, CURSOR, BALLOT).expect("it is whole");
        assert_eq!((frame.birth, frame.time_ms, frame.epoch), (BALLOT, 77, 9));
        let body = Body::read(&frame).expect("it makes sense");
        assert_eq!(records(|each| body.for_each_record(each)), [record]);
        assert_eq!(body, draft.0, "with what it holds");
        assert_eq!(body.results(), None);
        let (message, read) = (record.message(), body.message());
        assert_eq!(message.map(|it| it.message), read.map(|it| it.message));
        assert_eq!(message.map(|it| it.destinations), read.map(|it| it.destinations));
        let inline = read.map(|it| matches!(it.payload, Payload::Inline(_)));
        assert_eq!(message.map(|it| it.inline), inline);
        assert!(message.is_none_or(|it| it.least.number() == Rank::LEAST), "it may be the first");
    }
}

#[test]
fn an_entry_that_is_torn_or_cut_off_is_refused() {
    for (record, contents, _) in entries() {
        let bytes = written(&record, contents);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::parse(&bytes[..cut], CURSOR), None, "{record:?}, {cut}");
        }
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert_eq!(Frame::parse(&torn, CURSOR), None, "{record:?}, {at}");
        }
    }
}

#[test]
fn a_body_that_is_too_short_or_of_no_kind_says_nothing() {
    for (record, contents, _) in entries() {
        let bytes = written(&record, contents);
        let frame = Frame::parse(&bytes, CURSOR).expect("it is whole");
        // An inline payload ends where the entry does, and the frame's check covers the entry's length.
        let fixed = match contents {
            Contents::Payload(Payload::Inline(_)) => 25,
            _ => frame.body.len(),
        };
        for cut in 0..fixed {
            let cut = Frame { body: &frame.body[..cut], ..frame };
            assert_eq!(Body::read(&cut), None, "{record:?}: {cut:?}");
        }
        for kind in [PAD, 3, 4, 5, 8, u8::MAX] {
            assert_eq!(Body::read(&Frame { kind, ..frame }), None, "kind {kind}");
        }
    }
}

#[test]
fn no_entry_is_longer_than_it_may_be() {
    for payload in 0..40 {
        let bytes = vec![7; payload];
        let contents = Contents::Payload(Payload::Inline(&bytes));
        let longest = Body::longest(GroupSet::first(1), payload, 0);
        assert_eq!(Draft::of(&logged(true), contents).entry_len(), longest);
    }
    for (record, contents, _) in entries() {
        let longest = Body::longest(GroupSet::first(1), 8, 0);
        let inline = matches!(contents, Contents::Payload(Payload::Inline(_)));
        assert!(inline || Draft::of(&record, contents).entry_len() <= longest);
    }
}

#[test]
#[should_panic(expected = "is not an entry of None")]
fn a_message_is_not_logged_without_a_payload() {
    Draft::of(&logged(true), Contents::None);
}
