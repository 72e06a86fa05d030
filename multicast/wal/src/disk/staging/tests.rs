use super::*;
use crate::files::{FileError, Files, Medium, perform};
use crate::{Options, Owner, Recovery};

const G: Group = Group(3);

const SMALL: Options = Options {
    segment_bytes: 64 << 10,
    first_bytes: 64 << 10,
    block_bytes_max: 8 << 10,
    groups_max: 6,
    table_bytes_max: 64,
    in_flight_max: 4,
    waiting_max: 8,
    spare_max: 1,
    files_max: usize::MAX,
};

/// A lane, and a log to which its records go.
struct Log {
    medium: Medium,
    writer: Writer,
    stage: Stage,
    lane: Lane,
}

impl Log {
    fn new() -> Self {
        let medium = Medium::new(1);
        let owner = Owner { cluster: [1; 16], node: 1 };
        let writer = Recovery::read(&medium, owner, &[]).unwrap().writer(SMALL, 1);
        let (stage, lane) = lane(64 << 10, SMALL.in_flight_max + SMALL.waiting_max + 1);
        let mut log = Self { medium, writer, stage, lane };
        log.write();
        log
    }

    fn push(&mut self, request: Request, bytes: &[u8]) {
        assert!(self.stage.push(request, G, &[bytes]));
        assert_eq!(self.lane.take(&mut self.writer), Taken::All);
    }

    fn append(&mut self, bytes: &[u8]) {
        self.push(Request::Record { kind: 1 }, bytes);
    }

    /// Writes everything that can be.
    fn write(&mut self) {
        loop {
            if let Some(task) = self.writer.next_task() {
                let result = perform(&self.medium, &task);
                self.writer.performed(task, result).unwrap();
            } else if let Some(flush) = self.writer.next_flush() {
                let result = self.medium.write(flush.file(), flush.offset(), flush.bytes());
                self.writer.flushed(flush, result).unwrap();
            } else {
                return;
            }
        }
    }

    fn settle(&mut self) -> Option<u64> {
        self.lane.settle(self.writer.durable())
    }
}

/// The thread whose write failed knows the file and the cause, and another thread must not be first to tell less.
#[test]
fn a_log_that_failed_is_no_fault_of_the_record_that_it_does_not_take() {
    let Log { mut writer, mut stage, mut lane, .. } = Log::new();
    let source = rustix::io::Errno::IO.into();
    let failed = FileError::Io { operation: "write to", file: "a segment".to_owned(), source };
    writer.append(G, 1, &[b"before"]).unwrap();
    let flush = writer.next_flush().expect("a record waits");
    writer.flushed(flush, Err(failed)).unwrap_err();
    assert!(stage.push(Request::Record { kind: 1 }, G, &[b"too late"]));
    assert_eq!(lane.take(&mut writer), Taken::Blocked);
    assert!(!lane.is_empty() && lane.is_wanted());
}

#[test]
fn records_of_a_block_are_durable_together_and_before_those_of_later_blocks() {
    let mut log = Log::new();
    (0..30).for_each(|_| log.append(b"in one block"));
    assert_eq!((log.lane.marks.len(), log.settle()), (1, None));
    let first = log.writer.next_flush().expect("records wait");
    log.append(b"in the next one");
    assert_eq!(log.lane.marks.len(), 2);
    log.writer.flushed(first, Ok(())).unwrap();
    assert_eq!(log.settle(), Some(30));
    log.write();
    assert_eq!((log.settle(), log.settle()), (Some(31), None));
}

#[test]
fn a_group_keeps_the_segment_of_the_record_that_it_needs_and_those_behind_it() {
    let mut log = Log::new();
    let mut bases = Vec::new();
    for number in 1..=40_u64 {
        log.append(&[1; 5000]);
        log.write();
        bases.push(log.writer.segment_base());
        if number > 20 {
            // About three segments stand behind it.
            log.push(Request::KeepRecord, &(number - 20).to_le_bytes());
            let needed = bases[number as usize - 21];
            assert_eq!(base_of(&log.lane.segments, number - 20), needed, "{number}");
        }
    }
    assert!(log.writer.sizes().recycled > 1, "{:?}", log.writer.sizes());
    assert!(log.lane.segments.len() < 7, "{:?}", log.lane.segments);
    assert_eq!(base_of(&log.lane.segments, 1), Lsn::NONE, "its segment is gone");
}
