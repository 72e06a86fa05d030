//! What a record on disk says, for people who look at a log.

use std::fmt::Write as _;

use serde::Serialize;
use skein_protocol::group::GroupRecord;
use skein_protocol::group::body::{Body as _, Payload};
use skein_protocol::group::frame::{Cursor, Frame};
use skein_protocol::message::{Head, decode_name};
use skein_protocol::rank::Rank;
use skein_protocol::tram::content::Content as Ordered;
use skein_protocol::{ramcast, tram};

use super::DiskRecord;
use crate::election::Content;

/// A record that a replica wrote to its node's disk, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Described {
    /// The name of its kind.
    pub name: &'static str,
    /// What it says; empty if the name says it all.
    pub about: String,
}

/// Describes a whole record of a log. `None` if no replica writes such a record: it is of an unknown kind, or malformed.
pub fn describe(kind: u8, record: &[u8]) -> Option<Described> {
    let record = DiskRecord::decode(kind, record)?;
    let place = |Cursor { index, position }: Cursor| format!("entry {index} at {position}");
    let (name, about) = match record {
        DiskRecord::Began { incarnation } => ("began", format!("incarnation {incarnation}")),
        DiskRecord::Resumed => ("resumed", String::new()),
        DiskRecord::Promised { ballot } => ("promised", format!("ballot {ballot}")),
        DiskRecord::Ballot { ballot, base, first } => {
            ("ballot", format!("{ballot} writes from {} on, its first is {first}", place(base)))
        }
        DiskRecord::Cut { base } => ("cut", format!("before {}", place(base))),
        DiskRecord::Entry(bytes) => ("entry", entry(bytes)?),
        DiskRecord::Payload(bytes) => ("payload", payload(bytes)?),
        DiskRecord::Delivered { commit, delivered, given, passed } => {
            let mut about = format!("up to rank {delivered}, committed up to entry {commit}");
            if given > commit {
                let _ = write!(about, ", results taken up to entry {given}");
            }
            if passed > Rank::NOTHING {
                let _ = write!(about, ", answers wait for nothing up to rank {passed}");
            }
            ("delivered", about)
        }
        DiskRecord::Snapshot { incarnation, promised } => {
            ("snapshot", format!("incarnation {incarnation}, promised ballot {promised}"))
        }
        DiskRecord::SnapshotPart { content, bytes } => ("snapshot-part", part(content, bytes)),
        DiskRecord::SnapshotEnd => ("snapshot-end", String::new()),
        DiskRecord::Earlier { from, bytes } => (
            "earlier",
            format!("{} bytes of the log from {from} on, in front of a state", bytes.len()),
        ),
        DiskRecord::Part { first, content, bytes } => {
            let begins = if first { ", the first part" } else { "" };
            ("part", format!("{}{begins}", part(content, bytes)))
        }
    };
    Some(Described { name, about })
}

fn part(content: Content, bytes: &[u8]) -> String {
    let what = match content {
        Content::Machine => "of the machine's state",
        Content::MachineLast => "of the machine's state, the last ones",
        Content::Order => "of the order's state",
    };
    format!("{} bytes {what}", bytes.len())
}

fn payload(bytes: &[u8]) -> Option<String> {
    let (message, rest) = decode_name(bytes)?;
    let (head, payload) = Head::decode(rest)?;
    Some(format!("of {message} to {}, {} bytes", head.destinations, payload.len()))
}

/// An entry stands in its record as in the log, and names its own place.
fn entry(bytes: &[u8]) -> Option<String> {
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let cursor = Cursor { index: word(8)?, position: word(16)? };
    let frame = Frame::parse(bytes, cursor)?;
    let mut text = format!("{} at {}, ballot {}", cursor.index, cursor.position, frame.written);
    if frame.birth != frame.written {
        let _ = write!(text, ", first in {}", frame.birth);
    }
    let body = if frame.is_pad() { "a pad".to_owned() } else { body(&frame)? };
    let _ = write!(text, ": {body}");
    Some(text)
}

/// An entry tells by its kind which protocol wrote it.
fn body(frame: &Frame<'_>) -> Option<String> {
    let ramcast = || ramcast::log::Body::read(frame).map(|body| of_ramcast(&body));
    let tram = || tram::Body::read(frame).and_then(|body| of_tram(&body));
    ramcast().or_else(tram)
}

fn of_ramcast(body: &ramcast::log::Body<'_>) -> String {
    use ramcast::log::Body;
    match *body {
        Body::Group(record) => of_group(record),
        Body::Local { message, timestamp, destinations, payload, .. } => {
            let payload = payload_of(payload);
            format!("message {message} to {destinations}, proposed at {timestamp}, {payload}")
        }
        Body::Remotes(remotes) => {
            format!("{} proposals of other groups", remotes.iter().count())
        }
        Body::Exchange { from, .. } => format!("results of {from}"),
        Body::Decided(decisions) => format!("{} final timestamps", decisions.iter().count()),
        Body::Raise { timestamp } => format!("nothing later ends at or below {timestamp}"),
    }
}

/// Both protocols have the group's own records; the other one has described them.
fn of_tram(body: &tram::Body<'_>) -> Option<String> {
    let (content, taken, known, payload) = match *body {
        tram::Body::Group(_) => return None,
        tram::Body::Exchange { from, .. } => return Some(format!("results of {from}")),
        tram::Body::Ordered { content, taken, known, payload } => (content, taken, known, payload),
    };
    let mut text = match content {
        Ordered::Message { message, destinations, again, .. } => {
            let again = if again { ", again" } else { "" };
            format!("message {message} to {destinations}{again}, {}", payload_of(payload?))
        }
        Ordered::Marker { group, generation } => {
            format!("{group} is recreated in generation {generation}")
        }
    };
    if let Some(tram::Taken { number, place }) = taken {
        let _ = write!(
            text,
            ", edge {}.{} from above, ordered at {place}",
            number.generation, number.number
        );
    }
    if known {
        text.push_str(", here before");
    }
    Some(text)
}

fn of_group(record: GroupRecord) -> String {
    match record {
        GroupRecord::NewBallot => "a new ballot".to_owned(),
        GroupRecord::Evict { slot } => format!("slot {slot} is evicted"),
        GroupRecord::Join { slot, incarnation } => {
            format!("incarnation {incarnation} of slot {slot} joins")
        }
    }
}

fn payload_of(payload: Payload<'_>) -> String {
    match payload {
        Payload::Inline(bytes) => format!("{} bytes", bytes.len()),
        Payload::Held { .. } => "its payload beside it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use skein_protocol::ballot::Ballot;
    use skein_protocol::group::body::{Contents, Draft as _, Stamp};
    use skein_protocol::ids::{GroupId, GroupSet, MessageId, SessionId};
    use skein_protocol::message::encode_name;
    use skein_protocol::results::Results;
    use skein_protocol::timestamp::Timestamp;
    use skein_protocol::tram::edges::EdgeNumber;

    use super::super::kind;
    use super::*;

    #[track_caller]
    fn says(kind: u8, record: &[u8], name: &str, about: &str) {
        let described = describe(kind, record).expect("a record");
        assert_eq!((described.name, &*described.about), (name, about));
    }

    #[test]
    fn entries_and_payloads_are_described_and_what_is_none_is_refused() {
        let (ballot, timestamp) = (Ballot::new(1, 0, 0), Timestamp::new(4, GroupId(0)));
        let message = MessageId::new(SessionId(256), 3);
        let destinations = GroupSet::first(2);
        let body = ramcast::log::Body::Local {
            message,
            low_water: 1,
            timestamp,
            destinations,
            payload: Payload::Inline(b"some bytes"),
        };
        let entry =
            ramcast::log::Entry { birth: ballot, written: ballot, time_ms: 9, epoch: 1, body };
        let mut bytes = Vec::new();
        entry.encode(Cursor { index: 7, position: 640 }, &mut bytes);
        let about = format!(
            "7 at 640, ballot {ballot}: message {message} to {destinations}, proposed at {timestamp}, 10 bytes"
        );
        says(kind::ENTRY, &bytes, "entry", &about);
        bytes[70] ^= 1;
        assert_eq!(describe(kind::ENTRY, &bytes), None, "its checksum is wrong");

        let mut bytes = Vec::new();
        encode_name(message, &mut bytes);
        Head { sequence: 3, low_water: 1, destinations }.encode(&mut bytes);
        bytes.extend_from_slice(b"four");
        says(kind::PAYLOAD, &bytes, "payload", &format!("of {message} to {destinations}, 4 bytes"));
        assert_eq!(describe(200, b""), None, "no such kind");
        assert_eq!(describe(kind::BALLOT, &[0; 24]), None, "cut short");
    }

    #[test]
    fn entries_of_a_tree_are_described() {
        let ballot = Ballot::new(1, 0, 0);
        let message = MessageId::new(SessionId(256), 3);
        let taken =
            tram::Taken { number: EdgeNumber { generation: 1, number: 6 }, place: Rank::new(40) };
        let destinations = GroupSet::first(2);
        let content =
            Ordered::Message { message, low_water: 1, destinations, outside: 0, again: false };
        let payload = Contents::Payload(Payload::Inline(b"abc"));
        let passed = tram::Record::Ordered { content, taken: Some(taken), known: true };
        let group = GroupId(1);
        let marker = tram::Record::Ordered {
            content: Ordered::Marker { group, generation: 2 },
            taken: None,
            known: false,
        };
        let from = GroupId(3);
        let results = Contents::Results { from, results: Results(b"") };
        for (record, contents, about) in [
            (
                passed,
                payload,
                format!(
                    "message {message} to {destinations}, 3 bytes, edge 1.6 from above, ordered at {}, here before",
                    taken.place
                ),
            ),
            (marker, Contents::None, format!("{group} is recreated in generation 2")),
            (tram::Record::Exchange, results, format!("results of {from}")),
            (GroupRecord::NewBallot.into(), Contents::None, "a new ballot".to_owned()),
        ] {
            let mut bytes = Vec::new();
            let stamp = Stamp { ballot, time_ms: 9, epoch: 1 };
            let cursor = Cursor { index: 7, position: 640 };
            tram::Draft::of(&record, contents).encode(stamp, cursor, &mut bytes);
            says(kind::ENTRY, &bytes, "entry", &format!("7 at 640, ballot {ballot}: {about}"));
        }
    }
}
