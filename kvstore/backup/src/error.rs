//! Why a backup cannot be written or read.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Why a backup cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Reading or writing has failed.
    #[error("cannot read or write {}: {source}", .path.display())]
    System { path: PathBuf, source: io::Error },
    /// The directory for a new backup has something in it.
    #[error("{} is not empty: a backup needs a directory of its own, which is made if it does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// The directory for a new backup has a backup that was cut short in it.
    #[error("{} holds an incomplete backup, which cannot be restored: remove the directory, or name another one", .0.display())]
    HoldsIncomplete(PathBuf),
    /// The directory has no manifest, and no files of a backup either.
    #[error("{} is no backup: it has no file MANIFEST", .0.display())]
    NoBackup(PathBuf),
    /// The directory has files of a backup and no manifest.
    #[error("{} holds an incomplete backup: it has no file MANIFEST, which is written last. The backup was cut short, or is still being taken; it cannot be restored. Take another one", .0.display())]
    Incomplete(PathBuf),
    /// A file of the backup is not there.
    #[error("{} is missing: the backup is incomplete and cannot be restored; restore another one", .0.display())]
    Missing(PathBuf),
    /// A file of the backup is a pipe, a device or a directory, which is not read: that may take forever.
    #[error("{} is no regular file: it was put there in place of a file of the backup, which cannot be restored; copy the backup again from where it is whole", .0.display())]
    NotRegular(PathBuf),
    /// A newer version has written it.
    #[error("{} has format {found}, and this version of Skein reads format {known} at most: use the version that wrote it", .path.display())]
    Newer { path: PathBuf, found: u16, known: u16 },
    /// A file has the name of one of the backup's files, and belongs to another backup.
    #[error("{} belongs to another backup ({found}, and the manifest's is {wanted}): files of two backups were mixed; copy the whole directory again", .path.display())]
    Foreign { path: PathBuf, found: String, wanted: String },
    /// A file is not as it was written.
    #[error("{} is damaged: {what}. The backup cannot be restored; copy it again from where it is whole, or restore another one", .path.display())]
    Damaged { path: PathBuf, what: String },
    /// The files are whole, and are not what the group had at the mark.
    #[error("{}: {what}. The backup is wrong and cannot be restored; take another one, and report this", .path.display())]
    Wrong { path: PathBuf, what: String },
}

impl BackupError {
    pub(crate) fn system(path: &Path, source: io::Error) -> Self {
        Self::System { path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), what: what.into() }
    }
}

/// Checks that a path names a regular file, or nothing, before it is opened. Opening a pipe would wait for a writer.
pub(crate) fn is_regular(path: &Path) -> Result<(), BackupError> {
    match fs::metadata(path) {
        Ok(about) if !about.is_file() => Err(BackupError::NotRegular(path.to_owned())),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(BackupError::system(path, error)),
        _ => Ok(()),
    }
}
