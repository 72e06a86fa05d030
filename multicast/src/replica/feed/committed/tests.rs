use skein_protocol::ballot::Ballot;
use skein_protocol::rank::Rank;

use super::*;

/// The records of a log, as a disk has them.
#[derive(Default)]
struct Log(Vec<(u8, Vec<u8>)>);

impl Log {
    fn record(mut self, record: &DiskRecord<'_>) -> Self {
        self.0.push(record.written());
        self
    }

    /// An entry with a mark in its last byte, so that two with one index can be told apart.
    fn entry(self, index: u64, content: u8) -> Self {
        self.record(&DiskRecord::Entry(&entry(index, content)))
    }

    fn entries(self, indices: std::ops::Range<u64>) -> Self {
        indices.fold(self, |log, index| log.entry(index, 0))
    }

    fn payload(self, content: u8) -> Self {
        self.record(&DiskRecord::Payload(&[content]))
    }

    fn delivered(self, commit: u64, delivered: u64) -> Self {
        let (delivered, passed) = (Rank::new(delivered), Rank::NOTHING);
        self.record(&DiskRecord::Delivered { commit, delivered, given: commit, passed })
    }

    fn cut(self, index: u64) -> Self {
        self.record(&DiskRecord::Cut { base: Cursor { index, position: 64 * index } })
    }

    /// The pieces that are handed out of it behind the entry in front of `from`, in words; or that there is a gap.
    fn behind(&self, from: u64) -> Result<String, Gap> {
        let mut committed = Committed::behind(Cursor { index: from, position: 64 * from });
        for (kind, record) in &self.0 {
            committed.take(*kind, record)?;
        }
        let part = committed.part(usize::MAX);
        assert_eq!(committed.ready_bytes(), 0);
        let mut words = Vec::new();
        let (mut rest, mut last) = (&part[..], from - 1);
        while let Some(piece) = Piece::next(&mut rest) {
            words.push(match piece {
                Piece::Entry(bytes) => {
                    last = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
                    let content = bytes.last().unwrap();
                    if *content == 0 { format!("{last}") } else { format!("{last}:{content}") }
                }
                Piece::Payload(bytes) => format!("p{}", bytes[0]),
                Piece::Mark { commit, delivered } => format!("{commit}@{delivered}"),
            });
        }
        assert_eq!(committed.end(), Cursor { index: last + 1, position: 64 * (last + 1) });
        Ok(words.join(" "))
    }
}

/// 64 bytes with an index and a place.
fn entry(index: u64, content: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    bytes[16..24].copy_from_slice(&(64 * index).to_le_bytes());
    bytes[63] = content;
    bytes
}

#[test]
fn what_is_committed_is_handed_out_behind_where_the_receiver_ends() {
    let log = Log::default().entries(1..6).delivered(3, 30).entries(6..8).delivered(6, 60);
    assert_eq!(log.behind(1).unwrap(), "1 2 3 3@30 4 5 6 6@60");
    assert_eq!(log.behind(3).unwrap(), "3 3@30 4 5 6 6@60");
    assert_eq!(log.behind(5).unwrap(), "5 6 6@60", "an earlier mark says nothing of it");
    assert_eq!(
        log.behind(7).unwrap(),
        "6@60",
        "the receiver has it all, and learns what was delivered"
    );
    assert_eq!(log.behind(8).unwrap(), "");
}

#[test]
fn marks_without_entries_between_them_are_one() {
    let log = Log::default()
        .entries(1..3)
        .delivered(2, 10)
        .delivered(2, 20)
        .entries(3..4)
        .delivered(3, 20);
    assert_eq!(log.behind(1).unwrap(), "1 2 2@20 3 3@20");
}

#[test]
fn a_payload_goes_with_its_entry_on_either_side_of_it() {
    let log = Log::default().entry(1, 0).payload(1).payload(2).entry(2, 0).payload(3).entry(3, 0);
    let log = log.delivered(2, 20);
    assert_eq!(log.behind(1).unwrap(), "1 p1 p2 2 p3 2@20");
    assert_eq!(
        log.behind(2).unwrap(),
        "p1 p2 2 p3 2@20",
        "of an entry that is there, one may go too"
    );
    assert_eq!(log.payload(4).delivered(3, 30).behind(3).unwrap(), "p3 2@20 3 p4 3@30");
}

#[test]
fn what_was_cut_off_is_not_handed_out() {
    let cut = Log::default().entry(1, 0).entry(2, 7).entry(3, 7).delivered(1, 10).cut(2);
    assert_eq!(cut.behind(1).unwrap(), "1 1@10");
    let again = cut.entry(2, 8).entry(3, 8).delivered(3, 30);
    assert_eq!(again.behind(1).unwrap(), "1 1@10 2:8 3:8 3@30");
    assert_eq!(
        again.behind(3).unwrap(),
        "3:8 3@30",
        "nothing of the receiver's own is cut off by it"
    );
    let base = Cursor { index: 3, position: 192 };
    let ballot = DiskRecord::Ballot { ballot: Ballot::new(2, 1, 0), base, first: 3 };
    let rewritten = Log::default().entry(1, 0).entry(2, 0).entry(3, 7).record(&ballot).entry(3, 8);
    assert_eq!(rewritten.delivered(3, 30).behind(1).unwrap(), "1 2 3:8 3@30");
}

#[test]
fn a_snapshot_repeats_what_is_not_committed_and_nothing_comes_twice() {
    let base = Cursor { index: 2, position: 128 };
    let promised = Ballot::new(1, 0, 0);
    let log = Log::default().entries(1..4).delivered(1, 10);
    let log = log.record(&DiskRecord::Snapshot { incarnation: 0, promised });
    let order = DiskRecord::SnapshotPart { content: Content::Order, bytes: &[] };
    let log = log.record(&order).record(&DiskRecord::Ballot { ballot: promised, base, first: 1 });
    let log = log.entries(2..4).record(&DiskRecord::SnapshotEnd).entries(4..5).delivered(4, 40);
    assert_eq!(log.behind(1).unwrap(), "1 1@10 2 3 4 4@40");
    assert_eq!(log.behind(3).unwrap(), "3 4 4@40");
}

#[test]
fn a_log_that_begins_too_late_has_a_gap() {
    let late = || Log::default().entries(5..8);
    assert_eq!(late().behind(4), Err(Gap));
    assert_eq!(late().delivered(7, 70).behind(5).unwrap(), "5 6 7 7@70");
    assert_eq!(Log::default().delivered(7, 70).behind(5), Err(Gap), "its entries stood in front");
    let torn = Log::default().entries(1..3).entries(4..5);
    assert_eq!(torn.behind(1), Err(Gap));
    assert_eq!(Log(vec![(99, Vec::new())]).behind(1), Err(Gap), "it is of a later version");
}

#[test]
fn a_replica_that_begins_anew_has_nothing_of_its_former_log() {
    let anew = Log::default().entry(1, 0).entry(2, 7).record(&DiskRecord::Began { incarnation: 1 });
    let anew = anew.entry(1, 0).entry(2, 8).delivered(2, 20);
    assert_eq!(anew.behind(1).unwrap(), "1 2:8 2@20");
}

#[test]
fn parts_end_behind_pieces() {
    let log = Log::default().entries(1..4).delivered(3, 30);
    let mut committed = Committed::behind(Cursor { index: 1, position: 64 });
    log.0.iter().for_each(|(kind, record)| committed.take(*kind, record).unwrap());
    let whole = committed.ready_bytes();
    let first = committed.part(1);
    assert_eq!(committed.end(), Cursor { index: 2, position: 128 });
    assert_eq!(first.len() + committed.ready_bytes(), whole);
    assert_eq!(committed.part(usize::MAX).len(), whole - first.len());
    assert_eq!(committed.part(usize::MAX).len(), 0);
}
