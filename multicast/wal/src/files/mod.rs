//! Where the segments lie: a small interface to a directory of files, real or simulated.

mod bounded;
mod directory;
mod gate;
mod measure;
mod medium;
mod name;
mod prepare;
mod random;
mod view;
mod volatile;

use std::io;

pub use bounded::Bounded;
pub use directory::{Directory, OpenError, PROBE, check};
pub use gate::{Gate, Gated};
pub use measure::{AppendTimes, measure};
pub use medium::{Faults, Medium, Snapshot, WriteId};
pub use name::{FileName, NotOurs, SegmentName};
pub use prepare::{perform, sync_everything};
pub use view::View;
pub use volatile::{Orders, OrdersError, Volatile};

/// Why an operation on a file failed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The disk failed, or is gone. What was written since the last success is unknown, and asking again
    /// tells nothing: after an error, cached pages look clean. The process ends.
    #[error("cannot {operation} {file}")]
    Io { operation: &'static str, file: String, source: io::Error },
    /// There is no room. Nothing is lost; it may be tried again when there is some.
    #[error("no space is left to {operation} {file}")]
    Full { operation: &'static str, file: String },
    /// The files together take as much as they may. Nothing is lost; it may be tried again when they take less.
    #[error("with {file} the log would take more than the {bytes_max} bytes that it may")]
    Bound { file: String, bytes_max: u64 },
}

/// Why there is no room for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The disk is full.
    Disk,
    /// The log takes as much as it may.
    Bound,
}

impl FileError {
    /// Why there is no room, if that is the error: then it may be tried again.
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::Full { .. } => Some(Shortage::Disk),
            Self::Bound { .. } => Some(Shortage::Bound),
            Self::Io { .. } => None,
        }
    }
}

/// The files of a log.
///
/// The real ones are a [`Directory`], the simulated ones a [`Medium`]. Both keep these promises:
///
/// 1. **Durable.** When [`write`](Self::write) or [`create`](Self::create) returns, the bytes survive
///    the loss of power. A name does when [`sync_directory`](Self::sync_directory) returns.
/// 2. **In place.** A write changes nothing but its own range of a file that is already as long.
/// 3. **No repair.** An operation that failed is not tried again here.
///
/// Offsets and lengths are multiples of [`BLOCK`](crate::format::BLOCK), and buffers are aligned to it
/// ([`Aligned`](crate::Aligned)).
pub trait Files: Send + Sync {
    /// The log's files and their lengths in bytes, in no order. Other files are left out.
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError>;

    /// Makes a file of `bytes` zeroes and syncs it. Replaces one of that name.
    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError>;

    /// Fills `into` from `offset` on. The file is long enough.
    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError>;

    /// Writes and syncs `bytes`.
    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError>;

    /// Makes everything durable that the file has.
    fn sync(&self, name: FileName) -> Result<(), FileError>;

    /// Changes a name. Replaces a file of the new one, which is there only if a task is done again.
    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError>;

    /// Removes a file.
    fn remove(&self, name: FileName) -> Result<(), FileError>;

    /// Makes the names durable.
    fn sync_directory(&self) -> Result<(), FileError>;
}

macro_rules! files_through {
    ($($type:ty),*) => {$(
        impl<F: Files + ?Sized> Files for $type {
            fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
                (**self).list()
            }

            fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
                (**self).create(name, bytes)
            }

            fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
                (**self).read(name, offset, into)
            }

            fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
                (**self).write(name, offset, bytes)
            }

            fn sync(&self, name: FileName) -> Result<(), FileError> {
                (**self).sync(name)
            }

            fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
                (**self).rename(from, to)
            }

            fn remove(&self, name: FileName) -> Result<(), FileError> {
                (**self).remove(name)
            }

            fn sync_directory(&self) -> Result<(), FileError> {
                (**self).sync_directory()
            }
        }
    )*};
}

files_through!(&F, Box<F>);
