//! Checkpoints: states of a replica's store that no longer change, each in a directory of hard links.
//!
//! A checkpoint has a number that no other has, and its state names that number. It is whole and on disk when
//! [`make`](Checkpoints::make) returns. A store that begins with one links its files into a directory of its own, so the
//! checkpoint stays what it is.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skein_kvstore::store::StoreError;

use crate::database::Database;

/// In front of the number of a checkpoint, in the name of its directory.
const PREFIX: &str = "kept-";
/// The file that says that something in the directory is damaged.
const DAMAGED: &str = "damaged";
/// The file that names the manifest of a database.
const CURRENT: &str = "CURRENT";
/// Text of RocksDB's error after `ENOENT`.
const NO_FILE: &str = "No such file";

/// The directory of a replica, with its checkpoints. Clones are of the same directory.
#[derive(Clone)]
pub struct Checkpoints {
    directory: PathBuf,
    next: Arc<AtomicU64>,
}

impl Checkpoints {
    /// Opens the directory of a replica, which is made if it is not there, and removes everything in it but whole
    /// checkpoints: no store is open there. If something in it was found to be damaged, the checkpoints are removed, too.
    /// The next checkpoint has the number in `next`, which rises with each, and never was that of an earlier one.
    ///
    /// # Errors
    /// The directory cannot be used.
    pub fn open(directory: &Path, next: Arc<AtomicU64>) -> Result<Self, StoreError> {
        let this = Self { directory: directory.to_owned(), next };
        this.make_directory().map_err(|why| system("make", directory, why))?;
        let is_damaged = directory.join(DAMAGED).exists();
        this.remove_all_but(|name| !is_damaged && number_of(name).is_some() || name == DAMAGED)?;
        if is_damaged {
            // Otherwise some would be left if this process ended now, and nothing would say that they are damaged.
            sync(directory)?;
            this.remove_all_but(|_| false)?;
        }
        sync(directory)?;
        Ok(this)
    }

    fn make_directory(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        // The directories above it may be as new.
        let above = self.directory.ancestors().skip(1).take(2);
        for above in above.filter(|above| !above.as_os_str().is_empty()) {
            File::open(above)?.sync_all()?;
        }
        Ok(())
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A number for the next checkpoint.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn path_of(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{number:016x}"))
    }

    /// Keeps the state of `database`, which names the number. Returns when it is on disk.
    pub(crate) fn make(&self, number: u64, database: &Database) -> Result<(), StoreError> {
        let path = self.path_of(number);
        database.checkpoint(&path)?;
        for file in files(&path)? {
            sync(&file)?;
        }
        sync(&path)?;
        sync(&self.directory)
    }

    /// Links the files of a checkpoint into the directory `into`, which is made. Returns what is wrong with it.
    pub(crate) fn link(&self, number: u64, into: &Path) -> Result<Result<(), String>, StoreError> {
        let path = self.path_of(number);
        let files = match files(&path) {
            Ok(files) => files,
            Err(why) => return self.unfit(number, why).map(Err),
        };
        if !files.iter().any(|file| file.ends_with(CURRENT)) {
            return Ok(Err(self.describe(number, "it has no file CURRENT")));
        }
        fs::create_dir_all(into).map_err(|why| system("make", into, why))?;
        for file in files {
            let Some(name) = file.file_name() else { continue };
            let to = into.join(name);
            // RocksDB appends to the others, or writes them again.
            let linked = if file.extension().is_some_and(|it| it == "sst") {
                fs::hard_link(&file, &to)
            } else {
                fs::copy(&file, &to).map(drop)
            };
            linked.map_err(|why| system("link", &file, why))?;
        }
        Ok(Ok(()))
    }

    /// Why a checkpoint is of no use, if that is what the error says of it: another one may be. An error of the system is no
    /// statement about a checkpoint, unless a file is not there.
    pub(crate) fn unfit(&self, number: u64, why: StoreError) -> Result<String, StoreError> {
        match why {
            StoreError::Damaged { what, .. } | StoreError::Foreign { what, .. } => {
                Ok(self.describe(number, &what))
            }
            StoreError::System { source, .. }
                if source.kind() == io::ErrorKind::NotFound
                    || source.to_string().contains(NO_FILE) =>
            {
                Ok(self.describe(number, &source.to_string()))
            }
            why => Err(why),
        }
    }

    pub(crate) fn describe(&self, number: u64, what: &str) -> String {
        format!("{} is of no use: {what}", self.path_of(number).display())
    }

    /// Removes all checkpoints but this one.
    pub(crate) fn remove_others(&self, number: u64) -> Result<(), StoreError> {
        let kept = self.path_of(number);
        self.remove_all_but(|name| number_of(name).is_none() || kept.ends_with(name))
    }

    /// Notes that something here is damaged, for the next start.
    pub(crate) fn mark_damaged(&self, what: &str) -> Result<(), StoreError> {
        let path = self.directory.join(DAMAGED);
        fs::write(&path, what).map_err(|why| system("write", &path, why))?;
        sync(&path)?;
        sync(&self.directory)
    }

    fn remove_all_but(&self, stays: impl Fn(&str) -> bool) -> Result<(), StoreError> {
        for path in files(&self.directory)? {
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(&stays) {
                continue;
            }
            let removed =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(why) if why.kind() != io::ErrorKind::NotFound => {
                    return Err(system("remove", &path, why));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The number in the name of a checkpoint's directory.
fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(PREFIX).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The entries of a directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read = || -> io::Result<_> {
        fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()
    };
    read().map_err(|why| system("read", directory, why))
}

fn sync(path: &Path) -> Result<(), StoreError> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|why| system("sync", path, why))
}

fn system(attempt: &'static str, file: &Path, source: io::Error) -> StoreError {
    if source.kind() == io::ErrorKind::StorageFull {
        return StoreError::Full { file: file.to_owned() };
    }
    StoreError::System { attempt, file: file.to_owned(), source }
}
