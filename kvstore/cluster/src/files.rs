//! Small files that are written atomically.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces the file at `path`, durably once this returns. After a kill or a power loss, the file holds the old text or
/// the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let early = early(path);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&early)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Frees space that other writers may need.
        let _ = fs::remove_file(&early);
        return Err(error);
    }
    fs::rename(&early, path)?;
    // Makes the new name durable.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Same as `replace`, but overwrites the file in place if the file system is full; this needs no more space as long as
/// the text is not longer than a block. After a kill, the file then holds the old text or the new one, unless the new
/// one is shorter; after a power loss it may hold neither.
pub fn replace_or_overwrite(path: &Path, text: &str) -> io::Result<()> {
    match replace(path, text) {
        Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            let file = OpenOptions::new().write(true).open(path)?;
            file.write_all_at(text.as_bytes(), 0)?;
            file.set_len(text.len() as u64)?;
            file.sync_all()
        }
        replaced => replaced,
    }
}

/// Creates `path` and its missing parents, for this user alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Temporary name of a file that is not complete yet.
fn early(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}
