//! A bound on what the files of a log take together: beyond it they behave as on a full disk.

use super::{FileError, FileName, Files};

/// Files of a log that take so many bytes at most.
#[derive(Debug)]
pub struct Bounded<F> {
    inner: F,
    bytes_max: u64,
    /// Length of a segment. A file that is shorter is the first of a start.
    segment_bytes: u64,
}

impl<F: Files> Bounded<F> {
    /// Bounds `inner`, whose segments have `segment_bytes`. One segment less may be taken while a log runs, so that many
    /// starts find room: otherwise a log at its bound could not be read any more.
    pub fn new(inner: F, bytes_max: u64, segment_bytes: u64) -> Self {
        Self { inner, bytes_max, segment_bytes }
    }
}

impl<F: Files> Files for Bounded<F> {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.inner.list()
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        let there: u64 = self.inner.list()?.into_iter().map(|(_, length)| length).sum();
        let for_starts = if bytes < self.segment_bytes { 0 } else { self.segment_bytes };
        if there + bytes + for_starts > self.bytes_max {
            let (file, bytes_max) = (name.to_string(), self.bytes_max);
            return Err(FileError::Bound { file, bytes_max });
        }
        self.inner.create(name, bytes)
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.inner.read(name, offset, into)
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.inner.write(name, offset, bytes)
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        self.inner.sync(name)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        self.inner.sync_directory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Medium, Shortage};

    #[test]
    fn what_is_beyond_the_bound_is_not_made_and_starts_find_room() {
        let files = Bounded::new(Medium::new(1), 5 << 16, 1 << 16);
        let create = |number, bytes| files.create(FileName::Spare(number), bytes);
        for number in 0..4 {
            create(number, 1 << 16).unwrap();
        }
        let refused = create(4, 1 << 16).unwrap_err();
        assert_eq!(refused.shortage(), Some(Shortage::Bound), "{refused}");
        assert!(refused.to_string().contains("327680"), "{refused}");
        for number in 4..8 {
            create(number, 1 << 14).expect("the first of a start is short");
        }
        assert_eq!(create(8, 1 << 14).unwrap_err().shortage(), Some(Shortage::Bound));
        files.remove(FileName::Spare(0)).unwrap();
        files.sync_directory().unwrap();
        create(8, 1 << 14).expect("there is room again");
    }
}
