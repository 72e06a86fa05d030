//! Small files that are there whole, or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes a file in place of the one of that name, for good once this returns. A process that is
/// killed, or a machine that loses power, leaves the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let early = early(path);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&early)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // The room it takes may be what others lack.
        let _ = fs::remove_file(&early);
        return Err(error);
    }
    fs::rename(&early, path)?;
    // The name is the directory's.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// The same on a file system that may be full: there, the file that is there is overwritten, which
/// takes no more room as long as the text is not longer than a block. A process that is killed leaves
/// the old text or the new one here too; a machine that loses power may leave neither.
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

/// Makes `path` and what is missing above it, for this user alone.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What a file is called before it is whole.
fn early(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.new"))
}
