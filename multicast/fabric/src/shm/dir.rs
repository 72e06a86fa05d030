//! A host that is a directory: processes meet there by name, and their memory is there as files.
//!
//! ```text
//! DIR/n0e1.name                 held by the live process of that name; contains its incarnation
//! DIR/n0e1.00c0ffee00c0ffee/    everything of one incarnation
//!     bell                      held by the process; mapped by its peers
//!     r0000000000000001 …       regions
//!     mail/                     messages to the process
//! ```
//!
//! *Held* means locked by `flock`. The kernel releases the lock when the process ends, however it ends, and after its
//! last thread has stopped writing. Nothing is ever concluded from a pid.
//!
//! **Invariant (successors).** The bell of a dead process says that it has left before a successor has its name. So whoever
//! still maps its memory, and has not noticed its death, does not count a write there as done any more: the successor may
//! have let somebody else write by then.
//!
//! A name is claimed by locking its file. What is below `n0e1.*` is removed only by the holder of that lock, or when
//! the file names another incarnation, which it does before the directory of the new one exists. A peer that checks
//! whether a process lives tries the lock of its bell and never that of its name, so that it does not block a
//! successor.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use super::bell::{self, Bell};
use super::host::CleanReport;
use crate::FabricError;
use crate::fork::Process;
use crate::memory::Memory;

const NAME_SUFFIX: &str = ".name";
const BELL: &str = "bell";
pub(super) const MAIL: &str = "mail";

/// How often a contested name is tried again, a millisecond apart: a process that cleans up after a dead one holds the
/// dead one's name for a moment.
const CLAIM_TRIES_MAX: u32 = 100;

/// Makes the directory, or ensures that an existing one belongs to us alone.
pub(super) fn open(dir: &Path) -> Result<PathBuf, FabricError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|e| failed("mkdir", dir, 0, e))?;
    let dir = dir.canonicalize().map_err(|e| failed("realpath", dir, 0, e))?;
    let about = fs::metadata(&dir).map_err(|e| failed("stat", &dir, 0, e))?;
    if about.uid() != rustix::process::geteuid().as_raw() {
        // The owner of the directory can put other files under our names.
        let source = io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user");
        return Err(FabricError::System { call: "stat", path: dir, source });
    }
    if about.mode() & 0o077 != 0 {
        let set = fs::set_permissions(&dir, Permissions::from_mode(0o700));
        set.map_err(|e| failed("chmod", &dir, 0, e))?;
    }
    Ok(dir)
}

/// Our own place on the host. Dropping it removes every file in it.
#[derive(Debug)]
pub(super) struct Home {
    host: PathBuf,
    dir: PathBuf,
    name_path: PathBuf,
    // Held only for their locks.
    _name: File,
    _bell: File,
    /// The process that claimed the place. A child of it removes nothing here.
    process: Process,
}

impl Home {
    /// Claims the name, and makes a place for a new incarnation.
    pub(super) fn claim(
        host: &Path,
        name: &str,
        incarnation: u64,
    ) -> Result<(Self, Bell), FabricError> {
        let name_path = host.join(format!("{name}{NAME_SUFFIX}"));
        let mut name_file = claim_name(host, name, &name_path)?;
        for path in entries(host) {
            if let Some((_, dead)) = path.file_name().and_then(parse_dir).filter(|it| it.0 == name)
            {
                let bell = path.join(BELL);
                leave_for(&bell, dead).map_err(|e| failed("open", &bell, bell::LEN, e))?;
            }
        }
        let mut report = CleanReport::default();
        remove_incarnations(host, name, None, &mut report);

        let at = |e| failed("write", &name_path, 16, e);
        name_file.set_len(0).map_err(at)?;
        name_file.rewind().map_err(at)?;
        name_file.write_all(format!("{incarnation:016x}").as_bytes()).map_err(at)?;

        let dir = host.join(format!("{name}.{incarnation:016x}"));
        let mail = dir.join(MAIL);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&mail);
        made.map_err(|e| failed("mkdir", &mail, 0, e))?;
        // It is locked before it can be found, because a peer that tries its lock would be in our way.
        let early = dir.join(".bell");
        let (bell_file, memory) = create(&early, bell::LEN, host)?;
        bell_file.try_lock().map_err(|e| failed("flock", &early, 0, e.into()))?;
        let bell = Bell::hang(Arc::new(memory), incarnation);
        let path = dir.join(BELL);
        fs::rename(&early, &path).map_err(|e| failed("rename", &path, 0, e))?;

        let host = host.to_owned();
        let process = Process::current();
        let home = Self { host, dir, name_path, _name: name_file, _bell: bell_file, process };
        Ok((home, bell))
    }

    pub(super) fn create(&self, file: u64, len: usize) -> Result<Memory, FabricError> {
        create(&self.dir.join(region_file(file)), len, &self.host).map(|(_, memory)| memory)
    }

    /// Bytes that the file system has left; `u64::MAX` if it does not report that.
    pub(super) fn room(&self) -> u64 {
        let about = statvfs(&self.dir).ok().filter(|about| about.f_blocks > 0);
        about.map_or(u64::MAX, |about| about.f_bavail.saturating_mul(about.f_frsize))
    }

    pub(super) fn remove(&self, file: u64) {
        // An error is harmless: all that is left goes with the directory.
        let _ = fs::remove_file(self.dir.join(region_file(file)));
    }

    /// Whether this process has claimed it.
    pub(super) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    pub(super) fn mail_dir(&self) -> PathBuf {
        self.dir.join(MAIL)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        // A process that stops the whole cluster may have removed it before us.
        if let Err(e) = fs::remove_dir_all(&self.dir)
            && e.kind() != ErrorKind::NotFound
        {
            tracing::warn!(dir = %self.dir.display(), error = %e, "shared memory left behind");
        }
        // Last, and while it is locked: from here on the name is free.
        let _ = fs::remove_file(&self.name_path);
    }
}

/// A peer's place on the host.
#[derive(Debug)]
pub(super) struct Away {
    dir: PathBuf,
}

impl Away {
    /// The incarnation that has the name `name` now, dead or alive. Fails where that cannot be determined now.
    pub(super) fn incarnation(host: &Path, name: &str) -> io::Result<Option<u64>> {
        match fs::read(host.join(format!("{name}{NAME_SUFFIX}"))) {
            Ok(text) => Ok(str::from_utf8(&text).ok().and_then(parse_incarnation)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Finds a process; `None` if it is dead. Fails where that cannot be determined now.
    pub(super) fn find(
        host: &Path,
        name: &str,
        incarnation: u64,
    ) -> io::Result<Option<(Self, Bell)>> {
        let away = Self { dir: host.join(format!("{name}.{incarnation:016x}")) };
        let bell = match OpenOptions::new().read(true).write(true).open(away.dir.join(BELL)) {
            Ok(bell) if is_held(&bell) => bell,
            Ok(_) => return Ok(None),
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let memory = Memory::of_file(&bell, bell::LEN)?;
        Ok(Bell::of(Arc::new(memory), incarnation).map(|bell| (away, bell)))
    }

    /// Whether the process lives, as far as is known. Only a free lock, or a bell that was removed, shows that it is
    /// dead. If no descriptor is left to check with, the process counts as alive.
    pub(super) fn is_alive(&self) -> bool {
        match File::open(self.dir.join(BELL)) {
            Ok(bell) => is_held(&bell),
            Err(error) => !is_missing(&error),
        }
    }

    /// Maps one of its files. A missing file belonged to an earlier grant. A new leader waits for this call, so the
    /// pages are mapped when they are first touched.
    pub(super) fn open(&self, file: u64) -> Result<Memory, FabricError> {
        let path = self.dir.join(region_file(file));
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let opened = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => FabricError::StaleKey,
            _ => failed("open", &path, 0, e),
        })?;
        let len = opened.metadata().map_err(|e| failed("stat", &path, 0, e))?.len() as usize;
        if len == 0 {
            return Err(FabricError::StaleKey);
        }
        Memory::of_file_as_touched(&opened, len).map_err(|e| failed("mmap", &path, len, e))
    }

    pub(super) fn mail_dir(&self) -> PathBuf {
        self.dir.join(MAIL)
    }
}

/// The names of the live processes, sorted.
pub(super) fn live(host: &Path) -> Vec<String> {
    let mut names: Vec<String> = entries(host)
        .filter_map(|entry| {
            let (name, incarnation) = parse_dir(entry.file_name()?)?;
            let away = Away { dir: host.join(format!("{name}.{incarnation:016x}")) };
            away.is_alive().then(|| name.to_owned())
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether a process of that incarnation may live, whatever its name.
pub(super) fn is_incarnation_alive(host: &Path, incarnation: u64) -> bool {
    let listed = fs::read_dir(host).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let Ok(listed) = listed else { return true };
    listed.into_iter().map(|entry| entry.path()).any(|dir| {
        let found = dir.file_name().and_then(parse_dir).map(|(_, incarnation)| incarnation);
        found == Some(incarnation) && Away { dir }.is_alive()
    })
}

/// Removes what dead processes left.
pub(super) fn clean(host: &Path) -> CleanReport {
    let mut report = CleanReport::default();
    // The directories first, the names after: a directory that is listed was named before.
    let listed: Vec<PathBuf> = entries(host).collect();
    let mut names: Vec<&str> = listed
        .iter()
        .filter_map(|path| {
            let file = path.file_name()?;
            let named = file.to_str()?.strip_suffix(NAME_SUFFIX);
            named.or_else(|| parse_dir(file).map(|(name, _)| name))
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let path = host.join(format!("{name}{NAME_SUFFIX}"));
        match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if is_missing(&error) => remove_listed(&listed, name, None, &mut report),
            // The holder may live: a file that cannot be opened now proves nothing.
            Err(_) => {}
            Ok(file) => match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    remove_incarnations(host, name, None, &mut report);
                    if fs::remove_file(&path).is_ok() {
                        report.files += 1;
                    }
                }
                // A live process has the name, or one is claiming it, or is cleaning up after it.
                _ => {
                    if let Ok(Some(keep)) = Away::incarnation(host, name) {
                        remove_listed(&listed, name, Some(keep), &mut report);
                    }
                }
            },
        }
    }
    for path in &listed {
        remove_drafts(host, &path.join(MAIL), &mut report);
    }
    report
}

/// Bytes of all files, as the file system counts them.
pub(super) fn bytes_reserved(dir: &Path) -> u64 {
    entries(dir).map(|path| size(&path)).sum()
}

fn claim_name(host: &Path, name: &str, path: &Path) -> Result<File, FabricError> {
    for _ in 0..CLAIM_TRIES_MAX {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(path).map_err(|e| failed("open", path, 0, e))?;
        match file.try_lock() {
            // The last holder removes the file, so only the lock on the file at the path counts.
            Ok(()) if is_at(&file, path) => return Ok(file),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(e)) => return Err(failed("flock", path, 0, e)),
        }
    }
    Err(FabricError::NameTaken { name: name.to_owned(), dir: host.to_owned() })
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// Whether a process may hold the lock.
fn is_held(file: &File) -> bool {
    file.try_lock_shared().is_err()
}

/// Whether nothing is there, as opposed to something that cannot be examined now.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn remove_incarnations(host: &Path, name: &str, keep: Option<u64>, report: &mut CleanReport) {
    let listed: Vec<PathBuf> = entries(host).collect();
    remove_listed(&listed, name, keep, report);
}

fn remove_listed(listed: &[PathBuf], name: &str, keep: Option<u64>, report: &mut CleanReport) {
    for path in listed {
        let Some((owner, incarnation)) = path.file_name().and_then(parse_dir) else { continue };
        let kept = owner != name || Some(incarnation) == keep;
        // Its successor would not find the bell.
        if kept || leave_for(&path.join(BELL), incarnation).is_err() {
            continue;
        }
        let (files, bytes) = (count(path), size(path));
        // Another process may be cleaning up too; what that one removes is not counted here.
        if fs::remove_dir_all(path).is_ok() {
            report.processes += 1;
            report.files += files;
            report.bytes += bytes;
        }
    }
}

/// Says in the bell of a dead process that it has left. Fails where the bell may be there and cannot be opened now.
fn leave_for(bell: &Path, incarnation: u64) -> io::Result<()> {
    let bell = match OpenOptions::new().read(true).write(true).open(bell) {
        Ok(bell) => bell,
        Err(error) if is_missing(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    // A bell that is shorter was never hung.
    if bell.metadata()?.len() < bell::LEN as u64 {
        return Ok(());
    }
    let memory = Memory::of_file(&bell, bell::LEN)?;
    if let Some(bell) = Bell::of(Arc::new(memory), incarnation) {
        bell.leave();
    }
    Ok(())
}

/// Removes drafts of messages whose senders died while they wrote them.
fn remove_drafts(host: &Path, mail: &Path, report: &mut CleanReport) {
    for draft in entries(mail) {
        let Some(file) = draft.file_name().and_then(OsStr::to_str) else { continue };
        let Some(sender) = file.strip_prefix('.') else { continue };
        // A process writes messages only while its directory exists.
        if !host.join(sender).exists() && fs::remove_file(&draft).is_ok() {
            report.files += 1;
        }
    }
}

/// Reserves the file's memory and maps it. If that fails, nothing is left of it.
fn create(path: &Path, len: usize, host: &Path) -> Result<(File, Memory), FabricError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let file = options.open(path).map_err(|e| no_space_or("open", path, len, host, e))?;
    let made = reserve(&file, len).and_then(|()| Memory::of_file(&file, len));
    match made {
        Ok(memory) => Ok((file, memory)),
        Err(e) => {
            let _ = fs::remove_file(path);
            Err(no_space_or("fallocate", path, len, host, e))
        }
    }
}

fn reserve(mut file: &File, len: usize) -> io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, len as u64) {
        Ok(()) => Ok(()),
        // If the file system cannot reserve, writing zeroes does.
        Err(Errno::OPNOTSUPP) => {
            let zeros = [0; 1 << 12];
            let mut left = len;
            while left > 0 {
                let now = left.min(zeros.len());
                file.write_all(&zeros[..now])?;
                left -= now;
            }
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

fn no_space_or(
    call: &'static str,
    path: &Path,
    len: usize,
    host: &Path,
    e: io::Error,
) -> FabricError {
    use ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    match e.kind() {
        FileTooLarge | OutOfMemory | QuotaExceeded | StorageFull => {
            FabricError::NoSpace { len, dir: host.to_owned(), source: e }
        }
        _ => FabricError::System { call, path: path.to_owned(), source: e },
    }
}

pub(super) fn failed(call: &'static str, path: &Path, len: usize, e: io::Error) -> FabricError {
    let host = path.parent().unwrap_or(path);
    no_space_or(call, path, len, host, e)
}

fn region_file(file: u64) -> String {
    format!("r{file:016x}")
}

fn parse_dir(file: &OsStr) -> Option<(&str, u64)> {
    let (name, incarnation) = file.to_str()?.rsplit_once('.')?;
    Some((name, parse_incarnation(incarnation)?))
}

pub(super) fn parse_incarnation(text: &str) -> Option<u64> {
    let whole = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| whole)
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn count(path: &Path) -> u64 {
    entries(path).map(|path| if path.is_dir() { count(&path) } else { 1 }).sum()
}

fn size(path: &Path) -> u64 {
    let Ok(about) = fs::symlink_metadata(path) else { return 0 };
    if about.is_dir() { bytes_reserved(path) } else { about.blocks() * 512 }
}

/// The content of a file of at most `max` bytes.
pub(super) fn read_small(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A link to itself cannot be opened, just as nothing can be opened when descriptors have run out.
    #[test]
    fn a_process_that_cannot_be_asked_after_is_not_dead() {
        let dir = tempfile::tempdir().unwrap();
        let host = dir.path();
        let unreadable = |path: &Path| symlink(path, path).unwrap();
        let place = |name: &str, incarnation: u64| host.join(format!("{name}.{incarnation:016x}"));
        for (name, incarnation) in [("unknown", 1), ("unnamed", 2), ("dead", 3)] {
            fs::create_dir(place(name, incarnation)).unwrap();
            fs::write(place(name, incarnation).join(BELL), [0; 64]).unwrap();
        }
        unreadable(&host.join("unknown.name"));
        fs::remove_file(place("unknown", 1).join(BELL)).unwrap();
        unreadable(&place("unknown", 1).join(BELL));
        fs::write(host.join("dead.name"), format!("{:016x}", 3)).unwrap();

        let away = |name: &str, incarnation| Away { dir: place(name, incarnation) };
        assert!(away("unknown", 1).is_alive() && is_incarnation_alive(host, 1));
        assert!(Away::find(host, "unknown", 1).is_err());
        assert!(!away("dead", 3).is_alive() && !is_incarnation_alive(host, 3));
        assert!(Away::find(host, "dead", 3).unwrap().is_none());
        assert!(!away("nobody", 4).is_alive());

        assert_eq!(clean(host).processes, 2);
        assert!(place("unknown", 1).is_dir(), "the memory of a process that may live stays");
        assert!(!place("unnamed", 2).exists() && !place("dead", 3).exists());
    }
}
