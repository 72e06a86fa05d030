//! The real files, to be read only: for whoever looks at a log that another process may be writing.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{FileError, FileName, Files};

/// The files of a log in a directory on any file system. Nothing in it is changed: what would is refused.
#[derive(Clone, Debug)]
pub struct View {
    path: PathBuf,
}

impl View {
    /// A view of the directory at `path`.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    fn refuse(operation: &'static str, file: FileName) -> FileError {
        let source = io::ErrorKind::ReadOnlyFilesystem.into();
        FileError::Io { operation, file: file.to_string(), source }
    }
}

/// The log's files in a directory, and their lengths in bytes.
pub(super) fn listed(path: &Path) -> io::Result<Vec<(FileName, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Some(name) = entry.file_name().to_str().and_then(|text| text.parse().ok()) else {
            continue;
        };
        match entry.metadata() {
            Ok(metadata) => found.push((name, metadata.len())),
            // Whoever writes the log has removed it meanwhile, or given it another name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

impl Files for View {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        let file = || self.path.display().to_string();
        listed(&self.path).map_err(|source| FileError::Io {
            operation: "list",
            file: file(),
            source,
        })
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        let file = File::open(self.path.join(name.to_string()));
        let read = file.and_then(|file| file.read_exact_at(into, offset));
        let file = || name.to_string();
        read.map_err(|source| FileError::Io { operation: "read", file: file(), source })
    }

    fn create(&self, name: FileName, _: u64) -> Result<(), FileError> {
        Err(Self::refuse("make", name))
    }

    fn write(&self, name: FileName, _: u64, _: &[u8]) -> Result<(), FileError> {
        Err(Self::refuse("write to", name))
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        Err(Self::refuse("sync", name))
    }

    fn rename(&self, from: FileName, _: FileName) -> Result<(), FileError> {
        Err(Self::refuse("rename", from))
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        Err(Self::refuse("remove", name))
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        let source = io::ErrorKind::ReadOnlyFilesystem.into();
        Err(FileError::Io { operation: "sync", file: self.path.display().to_string(), source })
    }
}
