use super::*;
use crate::group::frame::seal;
use crate::ids::SessionId;
use std::vec;

const BALLOT: Ballot = Ballot::new(3, 1, 0);
const HELD: Payload<'_> = Payload::Held { check: u64::MAX - 6 };

fn local(payload: Payload<'_>) -> Entry<'_> {
    Entry {
        birth: Ballot::new(1, 0, 0),
        written: BALLOT,
        time_ms: 77,
        epoch: 1,
        body: Body::Local {
            message: MessageId::new(SessionId(5), 6),
            low_water: 2,
            timestamp: Timestamp::new(9, GroupId(1)),
            destinations: GroupSet::first(2),
            payload,
        },
    }
}

#[test]
fn an_entry_is_read_as_it_was_written() {
    let cursor = Cursor { index: 12, position: 4096 };
    let remote = Remote {
        message: MessageId::new(SessionId(5), 6),
        timestamp: Timestamp::new(10, GroupId(0)),
        ballot: BALLOT,
        index: 3,
    };
    for inline in 0..20 {
        let payload = vec![7; inline];
        let entry = local(Payload::Inline(&payload));
        let mut bytes = Vec::new();
        entry.encode(cursor, &mut bytes);
        assert_eq!(bytes.len(), Entry::local_len(GroupSet::first(2), inline));
        assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
    }
    let entry = Entry { body: Body::REMOTES, ..local(HELD) };
    let mut bytes = Vec::new();
    entry.encode_remotes(&[remote, remote], cursor, &mut bytes);
    assert_eq!(bytes.len(), Entry::remotes_len(2));
    let Body::Remotes(read) = Entry::decode(&bytes, cursor, BALLOT).unwrap().body else {
        panic!("not remotes")
    };
    assert!(read.iter().eq([remote, remote]));
    let results = Results(b"as they were told");
    let others = [
        (Body::Raise { timestamp: remote.timestamp }, Entry::raise_len()),
        (Body::Exchange { from: GroupId(3), results }, Entry::exchange_len(results.0.len())),
    ];
    for (body, len) in others {
        let entry = Entry { body, ..local(HELD) };
        let mut bytes = Vec::new();
        entry.encode(cursor, &mut bytes);
        assert_eq!(bytes.len(), len);
        assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
    }
}

#[test]
fn every_kind_of_entry_is_read_as_it_was_written() {
    let cursor = Cursor { index: 3, position: 128 };
    let decision = Decision {
        message: MessageId::new(SessionId(5), 6),
        timestamp: Timestamp::new(1 << 40, GroupId(1)),
    };
    let bodies = [
        Body::Group(GroupRecord::NewBallot),
        local(HELD).body,
        local(Payload::Inline(b"")).body,
        Body::Group(GroupRecord::Evict { slot: 255 }),
        Body::Group(GroupRecord::Join { slot: 4, incarnation: (1 << 24) - 1 }),
    ];
    for body in bodies {
        let entry = Entry { epoch: u32::MAX, time_ms: u64::MAX, body, ..local(HELD) };
        let mut bytes = Vec::new();
        entry.encode(cursor, &mut bytes);
        assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Ok(entry));
    }
    let (mut bytes, entry) = (Vec::new(), Entry { body: Body::DECIDED, ..local(HELD) });
    entry.encode_decided(&[decision, decision], cursor, &mut bytes);
    assert_eq!(bytes.len(), Entry::decided_len(2));
    let Body::Decided(read) = Entry::decode(&bytes, cursor, BALLOT).unwrap().body else {
        panic!("no decisions")
    };
    assert!(read.iter().eq([decision, decision]));
}

#[test]
fn an_entry_of_another_form_is_none_though_its_check_fits() {
    let cursor = Cursor { index: 3, position: 128 };
    let whole = |body| {
        let mut bytes = Vec::new();
        Entry { body, ..local(HELD) }.encode(cursor, &mut bytes);
        bytes
    };
    let group = |record| whole(Body::Group(record));
    let long = local(Payload::Inline(&[7; 40]));
    #[rustfmt::skip]
    let cases = [
        // entry                                byte is  because
        (group(GroupRecord::NewBallot),         45,  2,  "another version"),
        (group(GroupRecord::NewBallot),         44,  99, "no kind of entry"),
        (whole(long.body),                      46,  8,  "a whole word of padding"),
        (group(GroupRecord::Evict { slot: 1 }), 65,  1,  "no slot has such a number"),
    ];
    for (mut bytes, at, is, because) in cases {
        assert!(Entry::parse(&bytes, cursor).is_some());
        bytes[at] = is;
        seal(&mut bytes);
        assert_eq!(Entry::parse(&bytes, cursor), None, "{because}");
    }
}

#[test]
fn no_other_place_lap_or_ballot_passes_for_the_entry() {
    let cursor = Cursor { index: 12, position: 4096 };
    let mut bytes = Vec::new();
    local(Payload::Inline(b"payload")).encode(cursor, &mut bytes);
    #[rustfmt::skip]
    let cases = [
        (Cursor { index: 13, ..cursor },              BALLOT,               "another index"),
        (Cursor { position: 4096 + 65536, ..cursor }, BALLOT,               "a lap later"),
        (Cursor { position: 0, ..cursor },            BALLOT,               "a lap earlier"),
        (cursor,                                      Ballot::new(2, 1, 0), "an earlier ballot"),
        (cursor,                                      Ballot::new(3, 1, 1), "another incarnation"),
    ];
    for (cursor, ballot, because) in cases {
        assert_eq!(Entry::decode(&bytes, cursor, ballot), Err(NotThere), "{because}");
    }
}

#[test]
fn an_entry_is_as_long_as_its_header_says_when_it_is_whole() {
    let cursor = Cursor { index: 2, position: 128 };
    let mut bytes = Vec::new();
    local(Payload::Inline(&[9; 40])).encode(cursor, &mut bytes);
    // The header was copied while it still held the length of an earlier lap's entry.
    bytes.extend([0; 64]);
    assert_eq!(Entry::decode(&bytes, cursor, BALLOT), Err(NotThere), "it was shorter");
}

#[test]
fn every_torn_or_flipped_entry_is_told() {
    let cursor = Cursor { index: 2, position: 128 };
    let mut whole = Vec::new();
    local(Payload::Inline(&[9; 40])).encode(cursor, &mut whole);
    for word in 0..whole.len() / 8 {
        let mut torn = whole.clone();
        torn[word * 8..].fill(0);
        assert_eq!(Entry::decode(&torn, cursor, BALLOT), Err(NotThere), "torn at word {word}");
    }
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Entry::decode(&flipped, cursor, BALLOT), Err(NotThere), "bit {bit}");
    }
}

#[test]
fn somebody_waits_for_all_but_messages_to_one_group_that_are_in_the_log_whole() {
    let message = MessageId::new(SessionId(1), 1);
    let timestamp = Timestamp::new(1, GroupId(0));
    let local = |groups, payload| Body::Local {
        message,
        low_water: 1,
        timestamp,
        destinations: GroupSet::first(groups),
        payload,
    };
    let group = Body::Group;
    #[rustfmt::skip]
    let cases = [
        (local(1, Payload::Inline(b"x")),       false),
        (local(2, Payload::Inline(b"x")),       true),
        (local(1, Payload::Held { check: 1 }),  true),
        (group(GroupRecord::NewBallot),         true),
        (group(GroupRecord::Evict { slot: 1 }), true),
        (Body::Raise { timestamp },             false),
    ];
    for (body, expected) in cases {
        assert_eq!(body::Draft::is_awaited(&Draft::One(body)), expected, "{body:?}");
    }
}
