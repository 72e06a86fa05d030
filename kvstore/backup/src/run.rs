//! Writes and reads one run.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use skein_kvstore::backup::Record;

use crate::error::{BackupError, is_regular};
use crate::format::{
    self, CHUNK_BYTES, CHUNK_BYTES_MAX, CHUNK_HEAD, FORMAT, HEADER, Header, NotRead,
};
use crate::manifest::{FileEntry, hex};

/// Writes a run, record by record, in key order.
pub(crate) struct RunWriter {
    path: PathBuf,
    file: File,
    header: Header,
    /// A chunk that is not written yet, with room for its head.
    chunk: Vec<u8>,
    /// Records in `chunk`.
    count: u32,
    /// The checksum before `chunk` in the file.
    checksum: u64,
    records: u64,
    written: u64,
}

impl RunWriter {
    pub(crate) fn create(dir: &Path, header: Header) -> Result<Self, BackupError> {
        let path = dir.join(format::file_name(header.group, header.run));
        let bytes = header.encode();
        let create = || {
            let mut file = File::create_new(&path)?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        let file = create().map_err(|source| BackupError::system(&path, source))?;
        let (_, checksum) = Header::decode(&bytes).expect("just encoded");
        let chunk = vec![0; CHUNK_HEAD];
        let written = HEADER as u64;
        Ok(Self { path, file, header, chunk, count: 0, checksum, records: 0, written })
    }

    pub(crate) fn add(&mut self, record: &Record<'_>) -> Result<(), BackupError> {
        record.encode(&mut self.chunk);
        self.count += 1;
        self.records += 1;
        if self.chunk.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), BackupError> {
        self.checksum = format::seal(&mut self.chunk, self.count, self.checksum);
        let written = self.file.write_all(&self.chunk);
        written.map_err(|source| BackupError::system(&self.path, source))?;
        self.written += self.chunk.len() as u64;
        self.chunk.truncate(CHUNK_HEAD);
        self.chunk.shrink_to(2 * CHUNK_BYTES);
        self.count = 0;
        Ok(())
    }

    /// Writes the end, and waits until all is on disk.
    pub(crate) fn finish(mut self) -> Result<FileEntry, BackupError> {
        if self.count > 0 {
            self.flush()?;
        }
        self.flush()?;
        self.file.sync_all().map_err(|source| BackupError::system(&self.path, source))?;
        let Header { group, run, .. } = self.header;
        let (bytes, records, checksum) = (self.written, self.records, self.checksum);
        Ok(FileEntry { name: format::file_name(group, run), group, run, bytes, records, checksum })
    }
}

/// Reads a run, and verifies it as it goes.
pub(crate) struct RunReader {
    path: PathBuf,
    file: BufReader<File>,
    pub(crate) header: Header,
    /// The records of the present chunk.
    chunk: Vec<u8>,
    /// The present record is `chunk[at..next]`; there is none if both are equal.
    at: usize,
    next: usize,
    /// Records of the chunk behind the present one.
    count: u32,
    /// The checksum of the present chunk.
    pub(crate) checksum: u64,
    /// Number of the present chunk, from 1.
    chunks: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    last_key: Option<Vec<u8>>,
    has_ended: bool,
}

impl RunReader {
    /// Opens a run, at its first record.
    pub(crate) fn open(path: &Path) -> Result<Self, BackupError> {
        let system = |source| BackupError::system(path, source);
        is_regular(path)?;
        let file = match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(BackupError::Missing(path.to_owned()));
            }
            file => file.map_err(system)?,
        };
        let mut file = BufReader::with_capacity(CHUNK_BYTES, file);
        let mut bytes = [0; HEADER];
        let short = "it ends in its header";
        read(&mut file, &mut bytes, path, short)?;
        let (header, checksum) = Header::decode(&bytes).map_err(|why| match why {
            NotRead::Another => BackupError::damaged(path, "it is no file of a backup"),
            NotRead::Newer(found) => {
                BackupError::Newer { path: path.to_owned(), found, known: FORMAT }
            }
            NotRead::Checksum => {
                BackupError::damaged(path, "its header does not match its checksum")
            }
        })?;
        let mut run = Self {
            path: path.to_owned(),
            file,
            header,
            chunk: Vec::new(),
            at: 0,
            next: 0,
            count: 0,
            checksum,
            chunks: 0,
            records: 0,
            bytes: HEADER as u64,
            last_key: None,
            has_ended: false,
        };
        run.advance()?;
        Ok(run)
    }

    /// The same, if it is the run that the manifest names.
    pub(crate) fn open_listed(
        dir: &Path,
        entry: &FileEntry,
        backup: [u8; 16],
    ) -> Result<Self, BackupError> {
        let path = dir.join(&entry.name);
        let run = Self::open(&path)?;
        if run.header.backup != backup {
            let (found, wanted) = (hex(&run.header.backup), hex(&backup));
            return Err(BackupError::Foreign { path, found, wanted });
        }
        if (run.header.group, run.header.run) != (entry.group, entry.run) {
            let Header { group, run, .. } = run.header;
            let what = format!("it is run {run} of group {group}");
            return Err(BackupError::damaged(&path, what));
        }
        Ok(run)
    }

    /// The present record; `None` behind the last one.
    pub(crate) fn current(&self) -> Option<Record<'_>> {
        Record::take(&mut &self.chunk[self.at..self.next])
    }

    /// Goes to the next record.
    pub(crate) fn advance(&mut self) -> Result<(), BackupError> {
        self.at = self.next;
        if self.has_ended {
            return Ok(());
        }
        if self.count == 0 {
            self.next_chunk()?;
            if self.has_ended {
                return Ok(());
            }
        }
        let mut rest = &self.chunk[self.at..];
        let Some(record) = Record::take(&mut rest) else {
            return Err(self.damaged("has a record that cannot be read"));
        };
        if self.last_key.as_deref().is_some_and(|last| last >= record.key) {
            return Err(self.damaged("is not in key order"));
        }
        let key = self.last_key.get_or_insert_default();
        key.clear();
        key.extend_from_slice(record.key);
        self.next = self.chunk.len() - rest.len();
        self.count -= 1;
        self.records += 1;
        if self.count == 0 && self.next != self.chunk.len() {
            return Err(self.damaged("has bytes behind its last record"));
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> BackupError {
        let Self { chunks, bytes, .. } = self;
        BackupError::damaged(
            &self.path,
            format!("chunk {chunks}, which ends at byte {bytes}, {what}"),
        )
    }

    fn next_chunk(&mut self) -> Result<(), BackupError> {
        self.chunks += 1;
        let start = self.bytes;
        let cut = format!(
            "it ends at chunk {} at byte {start}, and has no end: it was cut short",
            self.chunks
        );
        let mut head = [0; CHUNK_HEAD];
        read(&mut self.file, &mut head, &self.path, &cut)?;
        let (checksum, len, count) = format::head(head);
        let rotten = format!("chunk {} at byte {start} does not match its checksum", self.chunks);
        if len > CHUNK_BYTES_MAX {
            return Err(BackupError::damaged(&self.path, rotten));
        }
        self.chunk.clear();
        self.chunk.extend_from_slice(&head);
        // Grows as bytes arrive: a length that is wrong must not take memory.
        let took = (&mut self.file).take(len as u64).read_to_end(&mut self.chunk);
        let took = took.map_err(|source| BackupError::system(&self.path, source))?;
        if took < len {
            return Err(BackupError::damaged(&self.path, cut));
        }
        if !format::is_sound(&self.chunk, checksum, self.checksum) {
            return Err(BackupError::damaged(&self.path, rotten));
        }
        self.checksum = checksum;
        self.bytes += (CHUNK_HEAD + len) as u64;
        (self.at, self.next, self.count) = (CHUNK_HEAD, CHUNK_HEAD, count);
        if count == 0 {
            let behind = self.file.read(&mut [0]);
            if len > 0 || behind.map_err(|source| BackupError::system(&self.path, source))? > 0 {
                let what = format!("it has bytes behind its end at byte {}", self.bytes);
                return Err(BackupError::damaged(&self.path, what));
            }
            self.has_ended = true;
        }
        Ok(())
    }

    /// Checks that the whole run, which was read to its end, is the one that the manifest names.
    pub(crate) fn check(&self, entry: &FileEntry) -> Result<(), BackupError> {
        let read = (self.bytes, self.records, self.checksum);
        if !self.has_ended || read != (entry.bytes, entry.records, entry.checksum) {
            let what = format!(
                "it has {} bytes, {} records and checksum {:016x}, and the manifest says {}, {} and {:016x}",
                self.bytes, self.records, self.checksum, entry.bytes, entry.records, entry.checksum
            );
            return Err(BackupError::damaged(&self.path, what));
        }
        Ok(())
    }
}

fn read(
    file: &mut impl Read,
    bytes: &mut [u8],
    path: &Path,
    short: &str,
) -> Result<(), BackupError> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => BackupError::damaged(path, short),
        _ => BackupError::system(path, error),
    })
}
