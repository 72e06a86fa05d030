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
}

/// The last record of a group.
#[derive(Clone, Debug, Default)]
struct Before {
    last: Lsn,
    /// The beginning of a record whose other pieces follow.
    pieces: Vec<u8>,
}

impl Describer {
    /// Describes the next record. `None` if no replica writes such a record.
    pub fn describe(&mut self, record: &Record<'_>) -> Option<Described> {
        let before = self.groups.entry(record.group).or_default();
        let follows = record.begins || record.previous == before.last;
        if record.begins || !follows {
            before.pieces.clear();
        }
        before.last = record.lsn;
        if record.kind == CONTINUED {
            before.pieces.extend_from_slice(record.bytes);
            let about = format!("{} bytes of a record that goes on", record.bytes.len());
            return Some(Described { name: "piece", about });
        }
        let mut whole = std::mem::take(&mut before.pieces);
        whole.extend_from_slice(record.bytes);
        let described =
            describe(record.kind, &whole).or_else(|| describe_point(record.kind, &whole));
        if described.is_none() && !follows {
            let about = format!("{} bytes of a record whose beginning is not here", whole.len());
            return Some(Described { name: "piece", about });
        }
        described
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
        let lost =
            describer.describe(&record(40, 32, 2, &promise[5..])).expect("it may be a piece");
        assert_eq!(lost.about, "3 bytes of a record whose beginning is not here");
    }
}
