//! The pairs of a group at the backup's mark, in key order: its runs, merged.

use std::path::Path;

use skein_kvstore::backup::Record;

use crate::error::BackupError;
use crate::manifest::FileEntry;
use crate::run::RunReader;

/// Reads the pairs of a group in key order, and verifies the files as it goes. A file is known to be whole when the last
/// pair was read.
pub struct Pairs<'a> {
    /// In the order of the runs: later ones override earlier ones.
    runs: Vec<(RunReader, &'a FileEntry)>,
    /// The run of the record that was returned last.
    returned: Option<usize>,
}

impl<'a> Pairs<'a> {
    pub(crate) fn open(
        dir: &Path,
        files: impl Iterator<Item = &'a FileEntry>,
        backup: [u8; 16],
    ) -> Result<Self, BackupError> {
        let mut runs = Vec::new();
        for entry in files {
            runs.push((RunReader::open_listed(dir, entry, backup)?, entry));
        }
        runs.sort_by_key(|(_, entry)| entry.run);
        Ok(Self { runs, returned: None })
    }

    /// The next pair: a record with a value. `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "the record borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, BackupError> {
        loop {
            if let Some(returned) = self.returned.take() {
                self.runs[returned].0.advance()?;
            }
            let Some(least) = self.least()? else {
                for (run, entry) in &self.runs {
                    run.check(entry)?;
                }
                return Ok(None);
            };
            self.returned = Some(least);
            if self.runs[least].0.current().is_some_and(|record| record.value.is_some()) {
                return Ok(self.runs[least].0.current());
            }
        }
    }

    /// Bytes of the files that were read.
    pub fn read(&self) -> u64 {
        self.runs.iter().map(|(run, _)| run.bytes).sum()
    }

    /// The latest run with the least key. All earlier ones go past that key.
    fn least(&mut self) -> Result<Option<usize>, BackupError> {
        let mut least: Option<usize> = None;
        for at in 0..self.runs.len() {
            let key = |at: usize| self.runs[at].0.current().map(|record| record.key);
            let Some(here) = key(at) else { continue };
            match least {
                Some(before) if key(before) < Some(here) => {}
                Some(before) if key(before) == Some(here) => {
                    self.runs[before].0.advance()?;
                    least = Some(at);
                }
                _ => least = Some(at),
            }
        }
        Ok(least)
    }
}
