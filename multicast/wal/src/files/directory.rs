//! The real files: direct I/O in a directory of a file system that has it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::view::listed;
use super::{FileError, FileName, Files};
use crate::aligned::Aligned;
use crate::format::BLOCK;

const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

/// The file that [`check`] writes.
pub const PROBE: &str = ".probe.new";

/// Bytes zeroed by one write when a file is made.
const ZEROED_AT_ONCE: usize = 1 << 20;

/// Files that stay open. The current segment and those around it are used; older ones are read once.
const OPEN_MAX: usize = 8;

/// Why a directory cannot hold a log.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot {operation} {}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "{} is on {filesystem}, which forgets everything with the power: choose a data directory \
         on a disk, or durability = \"memory\"", path.display()
    )]
    Volatile { path: PathBuf, filesystem: &'static str },
    #[error(
        "{} does not allow direct I/O: choose a data directory on a file system that has it \
         (ext4, xfs), or durability = \"memory\"", path.display()
    )]
    NoDirectIo { path: PathBuf, source: io::Error },
}

/// A directory of segments.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory itself, to sync it.
    handle: File,
    open: Mutex<Vec<(FileName, Arc<File>)>>,
}

impl Directory {
    /// Opens the directory, and makes it, readable by its owner alone, if it is not there. Refuses one
    /// whose file system cannot make writes durable.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let error = |operation, source| OpenError::Io { operation, path: path.to_owned(), source };
        if !path.is_dir() {
            DirBuilder::new().mode(0o700).create(path).map_err(|e| error("make", e))?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(parent.unwrap_or(Path::new(".")))
                .and_then(|parent| parent.sync_all())
                .map_err(|e| error("sync the directory of", e))?;
        }
        let handle = File::open(path).map_err(|e| error("open", e))?;
        check(path)?;
        Ok(Self { path: path.to_owned(), handle, open: Mutex::default() })
    }

    fn at(&self, name: FileName) -> PathBuf {
        self.path.join(name.to_string())
    }

    fn opened(&self) -> MutexGuard<'_, Vec<(FileName, Arc<File>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, name: FileName) -> io::Result<Arc<File>> {
        let mut open = self.opened();
        if let Some((_, file)) = open.iter().find(|(known, _)| *known == name) {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(options().open(self.at(name))?);
        if open.len() == OPEN_MAX {
            open.remove(0);
        }
        open.push((name, Arc::clone(&file)));
        Ok(file)
    }

    fn close(&self, name: FileName) {
        self.opened().retain(|(known, _)| *known != name);
    }

    fn zeroed(&self, name: FileName, bytes: u64) -> io::Result<()> {
        self.close(name);
        let file = options().create(true).truncate(true).open(self.at(name))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
        let zeroes = Aligned::new(ZEROED_AT_ONCE);
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(ZEROED_AT_ONCE as u64);
            write_all(&file, offset, &zeroes.bytes()[..length as usize])?;
            offset += length;
        }
        file.sync_all()
    }
}

/// Refuses a directory whose file system cannot make writes durable. Writes a file [`PROBE`] as blocks of the log are
/// written, and removes it. A full disk is not refused: the log may only have to be read.
pub fn check(path: &Path) -> Result<(), OpenError> {
    let error = |operation, source| OpenError::Io { operation, path: path.to_owned(), source };
    let handle = File::open(path).map_err(|e| error("open", e))?;
    if let Some(filesystem) = volatile(&handle).map_err(|e| error("examine", e))? {
        return Err(OpenError::Volatile { path: path.to_owned(), filesystem });
    }
    let probe = path.join(PROBE);
    let written = options().create(true).truncate(true).open(&probe).and_then(|file| {
        let written = write_all(&file, 0, Aligned::new(BLOCK).bytes());
        fs::remove_file(&probe)?;
        written
    });
    let Err(source) = written else { return Ok(()) };
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Some(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {
            Err(OpenError::NoDirectIo { path: path.to_owned(), source })
        }
        _ => Err(error("write to", source)),
    }
}

impl Files for Directory {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        let listed = listed(&self.path);
        listed.map_err(|error| failure("list", &self.path.display(), error))
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        self.zeroed(name, bytes).map_err(|error| {
            // Half a file only takes space that is missing elsewhere.
            _ = fs::remove_file(self.at(name));
            failure("make", &name, error)
        })
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        let mut read = || {
            let file = self.file(name)?;
            let mut done = 0;
            while done < into.len() {
                match rustix::io::pread(&file, &mut into[done..], offset + done as u64) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(more) => done += more,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        read().map_err(|error| failure("read", &name, error))
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let written = self.file(name).and_then(|file| write_all(&file, offset, bytes));
        written.map_err(|error| failure("write to", &name, error))
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        let synced = self.file(name).and_then(|file| file.sync_all());
        synced.map_err(|error| failure("sync", &name, error))
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        let renamed = fs::rename(self.at(from), self.at(to));
        // Afterwards: who reads beside the writing may have opened the file a moment ago.
        self.close(from);
        self.close(to);
        renamed.map_err(|error| failure("rename", &from, error))
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        let removed = fs::remove_file(self.at(name));
        self.close(name);
        removed.map_err(|error| failure("remove", &name, error))
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        let synced = self.handle.sync_all();
        synced.map_err(|error| failure("sync", &self.path.display(), error))
    }
}

pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let direct = OFlags::DIRECT.bits().cast_signed();
    options.read(true).write(true).mode(0o600).custom_flags(direct);
    options
}

/// Writes through every cache. When it returns, the bytes survive the loss of power.
pub(super) fn write_all(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwritev2(file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                bytes = &bytes[written..];
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn failure(operation: &'static str, file: &impl ToString, source: io::Error) -> FileError {
    let file = file.to_string();
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT) => FileError::Full { operation, file },
        _ => FileError::Io { operation, file, source },
    }
}

/// The kind of the directory's file system, if that keeps nothing when power fails. Some of them
/// accept direct I/O.
fn volatile(directory: &File) -> io::Result<Option<&'static str>> {
    match rustix::fs::fstatfs(directory)?.f_type.cast_unsigned() {
        TMPFS => return Ok(Some("tmpfs")),
        RAMFS => return Ok(Some("ramfs")),
        _ => {}
    }
    // An overlay tells in its options whether it syncs.
    let device = directory.metadata()?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let forgets = mounts.lines().any(|mount| {
        let options = mount.rsplit(' ').next().unwrap_or_default();
        mount.split(' ').nth(2) == Some(&*device)
            && mount.contains(" - overlay ")
            && options.split(',').any(|option| option == "volatile")
    });
    Ok(forgets.then_some("a volatile overlay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_waited_for_and_any_other_error_is_not() {
        for (errno, full) in [(Errno::NOSPC, true), (Errno::DQUOT, true), (Errno::IO, false)] {
            let failed = failure("make", &"a segment", errno.into());
            assert_eq!(failed.shortage().is_some(), full, "{failed}");
        }
    }
}
