//! Entries as bytes.

use alloc::vec;

use super::*;
use crate::ballot::Ballot;
use crate::group::body::{Body as _, Draft as _};
use crate::ids::{MessageId, SessionId};

const BALLOT: Ballot = Ballot::new(3, 1, 0);
const STAMP: Stamp = Stamp { ballot: BALLOT, time_ms: 77, epoch: 9 };
const CURSOR: Cursor = Cursor { index: 12, position: 4096 };

/// Both bits in the first byte of a message, of which there is one.
const INLINE_AND_OUTSIDE: u8 = 1 | 8;

fn message(inline: bool, taken: bool) -> Record {
    of((inline, taken), (false, false))
}

fn of((inline, taken): (bool, bool), (again, known): (bool, bool)) -> Record {
    let (message, destinations) = (MessageId::new(SessionId(5), 6), GroupSet::first(9));
    let outside = if inline { 0 } else { 77 };
    let content = Content::Message { message, low_water: 2, destinations, outside, again };
    Record::Ordered { content, taken: taken.then(edge), known }
}

fn edge() -> Taken {
    let number = EdgeNumber { generation: 3, number: 1 << 40 };
    Taken { number, place: Rank::new(1 << 50) }
}

fn entries() -> Vec<(Record, Contents<'static>)> {
    let (group, generation) = (GroupId(63), 7);
    let marker = Content::Marker { group, generation };
    let inline = Contents::Payload(Payload::Inline(b"thirteen char"));
    let held = Contents::Payload(Payload::Held { check: u64::MAX - 6 });
    let results = Contents::Results { from: GroupId(2), results: Results(b"yes") };
    vec![
        (GroupRecord::NewBallot.into(), Contents::None),
        (GroupRecord::Join { slot: 4, incarnation: 9 }.into(), Contents::None),
        (message(true, false), inline),
        (message(true, true), inline),
        (message(false, false), held),
        (message(false, true), held),
        (of((true, true), (true, false)), inline),
        (of((true, false), (true, true)), inline),
        (of((false, true), (true, true)), held),
        (of((false, false), (false, true)), held),
        (Record::Ordered { content: marker, taken: None, known: false }, Contents::None),
        (Record::Ordered { content: marker, taken: Some(edge()), known: false }, Contents::None),
        (Record::Exchange, results),
    ]
}

#[test]
fn an_entry_is_read_as_it_was_written_and_no_part_of_it() {
    for (record, contents) in entries() {
        let (draft, mut bytes) = (Draft::of(&record, contents), Vec::new());
        draft.encode(STAMP, CURSOR, &mut bytes);
        assert_eq!(bytes.len(), draft.entry_len(), "{record:?}");
        let (longest, results) = (Body::longest(GroupSet::first(9), 13, 3), 3);
        assert!(bytes.len() <= longest, "{record:?} is longer than {longest} with {results}");
        let frame = Frame::decode(&bytes, CURSOR, BALLOT).expect("it is whole");
        let ours = !matches!(record, Record::Group(_));
        assert_eq!(crate::ramcast::log::Body::read(&frame).is_none(), ours, "{record:?}");
        let body = Body::read(&frame).expect("it makes sense");
        assert_eq!(body, draft.0);
        let mut records = vec![];
        body.for_each_record(|record| records.push(record));
        assert_eq!(records, [record]);
        let (message, read) = (record.message(), body.message());
        assert_eq!(message.map(|it| it.message), read.map(|it| it.message));
        assert_eq!(message.map(|it| it.destinations), read.map(|it| it.destinations));
        assert_eq!(body.results().is_some(), record.is_results());
        if matches!(record, Record::Ordered { .. }) {
            // The rest of a held payload's check is too short, and of an inline payload nothing is missed.
            for cut in 0..frame.body.len().min(Content::message_len(GroupSet::first(9))) {
                let torn = Frame { body: &frame.body[..cut], ..frame };
                let whole = Body::read(&torn).filter(|body| *body == draft.0);
                assert_eq!(whole, None, "{record:?}, cut off at {cut}");
            }
        }
    }
}

#[test]
fn the_length_of_a_payload_outside_an_entry_is_part_of_the_entry() {
    let held = Contents::Payload(Payload::Held { check: 5 });
    let mut bytes = Vec::new();
    Draft::of(&message(false, false), held).encode(STAMP, CURSOR, &mut bytes);
    let frame = Frame::decode(&bytes, CURSOR, BALLOT).expect("it is whole");
    let at = frame.body.len() - 4 - (1 + 8);
    assert_eq!(frame.body[at..at + 4], 77_u32.to_le_bytes());
    let mut body = frame.body.to_vec();
    body[at..at + 4].fill(0);
    let without = Frame { body: &body, ..frame };
    assert_eq!(Body::read(&without), None, "a payload outside has a length");
    for kind in [0, 4, INLINE_AND_OUTSIDE] {
        body[1] = kind;
        assert_eq!(Body::read(&Frame { body: &body, ..frame }), None, "no such kind: {kind}");
    }
}

#[test]
fn an_awaited_entry_is_one_whose_payload_a_follower_may_lack() {
    for (record, contents) in entries() {
        let inline = matches!(contents, Contents::Payload(Payload::Inline(_)));
        assert_eq!(Draft::of(&record, contents).is_awaited(), !inline);
    }
}
