//! Writing a history during a load. Records are sent in batches to a thread that writes them as
//! lines.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::{End, Header, Op, Record, now};

/// Records per batch.
const BATCH: usize = 128;
/// Batches that may wait to be written. If the queue is full, scribes block: a complete history
/// matters more than the load.
const BATCHES_MAX: usize = 256;
/// Bytes per write.
const WRITE_BYTES: usize = 256 << 10;

/// Handle of the thread that writes a history.
pub struct Recorder {
    batches: SyncSender<Batch>,
    thread: JoinHandle<io::Result<()>>,
}

/// A source of records. Dropping it sends the records that it still holds.
pub struct Scribe {
    batch: Vec<Record>,
    batches: SyncSender<Batch>,
}

/// A message to the writing thread.
enum Batch {
    Records(Vec<Record>),
    /// Request for the keys of all operations so far.
    Keys(SyncSender<BTreeSet<String>>),
}

impl Recorder {
    /// Begins a history at `path`, which must not exist.
    pub fn create(path: &Path, header: Header) -> io::Result<Self> {
        let file = File::create_new(path)?;
        let (batches, received) = sync_channel(BATCHES_MAX);
        let thread = std::thread::Builder::new()
            .name("history".to_owned())
            .spawn(move || write(file, header, &received))?;
        Ok(Self { batches, thread })
    }

    /// Another source of records.
    pub fn scribe(&self) -> Scribe {
        Scribe { batch: Vec::with_capacity(BATCH), batches: self.batches.clone() }
    }

    /// The keys of all operations that the thread has received so far.
    pub fn keys(&self) -> BTreeSet<String> {
        let (answer, keys) = sync_channel(1);
        // If the thread has ended, `finish` reports why.
        let _ = self.batches.send(Batch::Keys(answer));
        keys.recv().unwrap_or_default()
    }

    /// Writes the end record and waits until everything is written. All scribes must have been
    /// dropped.
    pub fn finish(self) -> io::Result<()> {
        let last = vec![Record::End(End { t: now() })];
        // If the thread has ended, its error is returned below.
        let _ = self.batches.send(Batch::Records(last));
        drop(self.batches);
        self.thread.join().expect("writing lines does not panic")
    }
}

impl Scribe {
    /// Adds a record.
    pub fn note(&mut self, record: Record) {
        self.batch.push(record);
        if self.batch.len() >= BATCH {
            self.hand_over();
        }
    }

    /// Sends the records held so far. A scribe that records little calls this now and then.
    pub fn hand_over(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
            // If the thread has ended, `Recorder::finish` reports why.
            let _ = self.batches.send(Batch::Records(batch));
        }
    }
}

impl Drop for Scribe {
    fn drop(&mut self) {
        self.hand_over();
    }
}

fn write(file: File, header: Header, batches: &Receiver<Batch>) -> io::Result<()> {
    let mut keys = BTreeSet::new();
    let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
    line(&mut out, &Record::Header(Box::new(header)))?;
    for batch in batches {
        match batch {
            Batch::Records(records) => {
                for record in &records {
                    line(&mut out, record)?;
                    collect(record, &mut keys);
                }
            }
            // The receiver may be gone.
            Batch::Keys(answer) => _ = answer.send(keys.clone()),
        }
    }
    out.flush()
}

fn collect(record: &Record, keys: &mut BTreeSet<String>) {
    let Record::Invoke(invoke) = record else { return };
    for key in invoke.ops.iter().chain(&invoke.otherwise).map(Op::key) {
        if !keys.contains(key) {
            keys.insert(key.to_owned());
        }
    }
}

/// Writes one record as a line.
pub fn line(out: &mut impl Write, record: &Record) -> io::Result<()> {
    serde_json::to_writer(&mut *out, record)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use skein_multicast::config::Topology;

    use super::*;
    use crate::history::{FORMAT, Fault, Invoke, Reader};

    fn header() -> Header {
        Header {
            format: FORMAT,
            workload: "test".into(),
            skein: "test".into(),
            cluster: Topology { nodes: 1, groups: 1, replicas: 1, engines: 1 },
            seed: 1,
            t: 0,
            unix_ms: 0,
            token_bytes: 1,
            bank: None,
            record: None,
            before: false,
        }
    }

    fn invoke(p: u64) -> Record {
        let ops = vec![Op::Get(format!("key{}", p % 7)), Op::Get("both".into())];
        Record::Invoke(Invoke {
            t: p,
            p,
            guards: Vec::new(),
            ops,
            otherwise: Vec::new(),
            stale: false,
        })
    }

    #[test]
    fn what_several_have_recorded_is_read_back_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("history");
        let recorder = Recorder::create(&path, header()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..3 {
                let mut scribe = recorder.scribe();
                scope.spawn(move || {
                    for i in 0..1_000 {
                        scribe.note(invoke(writer * 1_000 + i));
                    }
                });
            }
        });
        assert_eq!(recorder.keys().len(), 8);
        let mut late = recorder.scribe();
        let what = "kill".to_owned();
        late.note(Record::Fault(Fault { t: 1, what, node: None, pid: None, led: Vec::new() }));
        drop(late);
        recorder.finish().unwrap();

        let reader = Reader::open(&path).unwrap();
        assert_eq!(reader.header, header());
        let records: Vec<Record> = reader.collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 3_002);
        assert!(matches!(records.last(), Some(Record::End(_))));
        // The records of each writer are in its order.
        for writer in 0..3 {
            let own = records.iter().filter_map(|record| match record {
                Record::Invoke(invoke) if invoke.p / 1_000 == writer => Some(invoke.p),
                _ => None,
            });
            assert!(own.is_sorted());
        }
        let again = Recorder::create(&path, header()).err().expect("it is there already");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    }
}
