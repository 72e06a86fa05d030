//! A node's log on disk, for people who look at it while no node does.

use std::collections::BTreeMap;

use skein_kvstore::points::{PointEnd, PointRecord};
use skein_multicast::disk::{Described, describe};
use skein_wal::format::Record;
use skein_wal::{Group, Lsn};

pub use crate::disk::owner;
use crate::engine_log::CONTINUED;

/// Describes the records of a node's log, which are given in the order of the log. They may begin anywhere.
#[derive(Clone, Debug, Default)]
pub struct Describer {
    groups: BTreeMap<Group, Before>,
    /// The start whose records are given.
    start: u64,
}

/// The state of a group in front of its next record.
#[derive(Clone, Debug, Default)]
struct Before {
    last: Lsn,
    /// The start that wrote `last`.
    start: u64,
    /// A start reads nothing of the group in front of this.
    keep: Lsn,
    /// The beginning of a record whose other pieces follow.
    pieces: Vec<u8>,
    /// Pieces may stand in front of `pieces` that were not given.
    cut: bool,
}

impl Describer {
    /// The next records are of this start. No record goes on in a later start than it was begun in.
    pub fn begin_start(&mut self, start: u64) {
        self.start = start;
    }

    /// A start reads nothing of the group in front of `keep`.
    pub fn keeps(&mut self, group: Group, keep: Lsn) {
        let before = self.groups.entry(group).or_default();
        before.keep = before.keep.max(keep);
    }

    /// Describes the next record. `None` if a start would read it, and no replica writes such a record.
    pub fn describe(&mut self, record: &Record<'_>) -> Option<Described> {
        let before = self.groups.entry(record.group).or_default();
        let begins = record.begins || before.start != self.start && before.last == record.previous;
        if begins || record.previous != before.last {
            before.pieces.clear();
            before.cut = !begins;
        }
        (before.last, before.start) = (record.lsn, self.start);
        let unread = record.lsn < before.keep;
        if record.kind == CONTINUED {
            before.pieces.extend_from_slice(record.bytes);
            let about = format!("{} bytes of a record that goes on", record.bytes.len());
            return Some(Described { name: "piece", about });
        }
        let cut = std::mem::take(&mut before.cut);
        let mut whole = std::mem::take(&mut before.pieces);
        whole.extend_from_slice(record.bytes);
        let described =
            describe(record.kind, &whole).or_else(|| describe_point(record.kind, &whole));
        if described.is_some() || !(cut || unread) {
            return described;
        }
        let what = match (cut, unread) {
            (true, true) => "the rest of a record in front of where the log is kept",
            (true, false) => "the rest of a record whose beginning is not here",
            (false, _) => "not read, in front of where the log is kept",
        };
        Some(Described { name: "piece", about: format!("{} bytes: {what}", whole.len()) })
    }
}

/// Describes a record of a log of restore points.
fn describe_point(kind: u8, record: &[u8]) -> Option<Described> {
    let (name, about) = match PointRecord::decode(kind, record).ok()? {
        PointRecord::Begin { generation, anew } => {
            let anew = if anew { ", anew" } else { "" };
            ("copy", format!("of the whole state, in generation {generation}{anew}"))
        }
        PointRecord::Pairs(records) => ("pairs", format!("{} bytes", records.len())),
        PointRecord::End(PointEnd { number, floor, whole, closes, keys, bytes, .. }) => {
            let whole = if whole { "" } else { ", the copy goes on" };
            let closes = if closes { ", the last one" } else { "" };
            (
                "point",
                format!(
                    "{number} of {keys} keys and {bytes} bytes, {floor} is on f+1 disks{whole}{closes}"
                ),
            )
        }
    };
    Some(Described { name, about })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(lsn: u64, previous: u64, kind: u8, bytes: &[u8]) -> Record<'_> {
        let (lsn, previous) = (Lsn(lsn), Lsn(previous));
        Record { group: Group(1), kind, begins: previous == Lsn::NONE, previous, lsn, bytes }
    }

    #[test]
    fn a_record_in_pieces_is_described_at_its_end() {
        let promise = 7_u64.to_le_bytes();
        let whole = Describer::default().describe(&record(8, 0, 2, &promise)).expect("a promise");
        assert_eq!(whole.name, "promised");
        let mut describer = Describer::default();
        let piece = describer.describe(&record(8, 0, CONTINUED, &promise[..5])).expect("a piece");
        assert_eq!(piece.name, "piece");
        assert_eq!(describer.describe(&record(16, 8, 2, &promise[5..])), Some(whole));
        assert_eq!(describer.describe(&record(24, 16, 2, &promise[5..])), None, "too short");
    }

    #[test]
    fn a_rest_of_a_record_is_no_damage() {
        let rest = "3 bytes: the rest of a record whose beginning is not here";
        let mut describer = Describer::default();
        let last = describer.describe(&record(40, 32, 2, &[1; 3])).expect("it may be a piece");
        assert_eq!(last.about, rest);
        assert_eq!(describer.describe(&record(48, 40, 2, &[1; 3])), None, "it begins here");
        // A segment in front of these was recycled, and the record began there.
        let mut describer = Describer::default();
        describer.keeps(Group(1), Lsn(24));
        assert!(describer.describe(&record(8, 4, CONTINUED, &[1])).is_some());
        assert!(describer.describe(&record(16, 8, CONTINUED, &[1])).is_some());
        let last = describer.describe(&record(20, 16, 2, &[1])).expect("its beginning is missing");
        assert_eq!(last.about, "3 bytes: the rest of a record in front of where the log is kept");
        assert_eq!(describer.describe(&record(24, 20, 2, &[1])), None, "a start reads it");
    }

    #[test]
    fn a_record_does_not_go_on_in_a_later_start() {
        let (mut describer, promise) = (Describer::default(), 7_u64.to_le_bytes());
        describer.begin_start(1);
        assert!(describer.describe(&record(8, 0, CONTINUED, &promise)).is_some());
        describer.begin_start(2);
        let whole = describer.describe(&record(16, 8, 2, &promise)).expect("a promise");
        assert_eq!(whole.name, "promised");
    }
}
