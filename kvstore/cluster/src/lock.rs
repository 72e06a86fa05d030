//! Lock files that name the process that holds them. The kernel releases the lock when the process ends, in whatever
//! way; the process id in the file counts only while the file is locked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::shared::is_missing;

/// Attempts to lock a file, one millisecond apart: a process that looks up the holder also locks the file for a moment.
const TRIES_MAX: u32 = 100;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// Time that the kernel may take to release the lock of a dying process: it has memory to free.
const DEAD_WITHIN: Duration = Duration::from_secs(30);

/// SIGKILL in a set of signals. It is pending from when it is sent until the process is gone.
const KILL_BIT: u64 = 1 << (9 - 1);

/// Purposes of holding a file: `up` starts a cluster and stays with it, `supervisor` keeps its nodes running from the
/// background, `onlooker` watches them without restarting any, `down` stops the cluster, `node` runs a node. A node
/// that an operator has stopped leaves `stopped` in the file.
pub(crate) const ROLES: [&str; 6] = ["up", "supervisor", "onlooker", "down", "node", "stopped"];

/// A file that this process holds.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    file: File,
    role: String,
}

/// The process that holds a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// `up`, `supervisor`, `onlooker`, `down` or `node`; `node N` in a list of a cluster's processes.
    pub role: String,
    pub pid: u32,
}

impl Lock {
    /// Locks the file at `path`, which is created if it is missing, or returns its holder: `None` if the holder has not
    /// signed the file yet.
    pub fn take(path: &Path, role: &str) -> io::Result<Result<Self, Option<Holder>>> {
        Self::take_or_make(path, role, true)
    }

    /// Same as [`take`](Self::take), for a file that must exist.
    pub fn take_old(path: &Path, role: &str) -> io::Result<Result<Self, Option<Holder>>> {
        Self::take_or_make(path, role, false)
    }

    fn take_or_make(
        path: &Path,
        role: &str,
        make: bool,
    ) -> io::Result<Result<Self, Option<Holder>>> {
        let deadline = Instant::now() + DEAD_WITHIN;
        for tries in 1.. {
            let makes = make && is_missing(path);
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(make).truncate(false).mode(0o600);
            let file = options.open(path)?;
            match file.try_lock() {
                // The last holder may just have removed the file: the lock counts only if `path` still names it.
                Ok(()) if is_at(&file, path) => {
                    let mut lock = Self { path: path.to_owned(), file, role: String::new() };
                    // The disk may be full. A file that was created for this is removed.
                    lock.sign(role).inspect_err(|_| {
                        if makes {
                            let _ = fs::remove_file(path);
                        }
                    })?;
                    return Ok(Ok(lock));
                }
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            if tries >= TRIES_MAX {
                let by = signed(&file);
                let dying = by.as_ref().is_some_and(|holder| is_dying(holder.pid));
                if !dying || Instant::now() >= deadline {
                    return Ok(Err(by));
                }
            }
            std::thread::sleep(TRY_AGAIN_AFTER);
        }
        unreachable!("it is tried without end")
    }

    /// Writes the role and the process id into the file. The old text is overwritten and not removed first, because a
    /// file system that is full would not give its space back.
    pub fn sign(&mut self, role: &str) -> io::Result<()> {
        let text = format!("{role} {}\n", std::process::id());
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        role.clone_into(&mut self.role);
        Ok(())
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether `path` still names the file that is held.
    pub fn is_current(&self) -> bool {
        is_at(&self.file, &self.path)
    }

    /// Locks the file that `path` names now, in place of the removed one. Fails if another process holds it.
    pub fn take_again(&mut self) -> io::Result<()> {
        let role = self.role.clone();
        *self = Self::take(&self.path, &role)?.map_err(|_| held_by_another())?;
        Ok(())
    }

    /// Removes the file. The next process that takes the path creates it again.
    pub fn remove(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Releases the lock and leaves the file in place.
    pub fn release(self) -> io::Result<()> {
        self.file.unlock()
    }
}

/// Holder of the file at `path`; `None` if the file is missing or not locked, or if the process that locked it is
/// dying.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    holder_or_dying(path).filter(|holder| !is_dying(holder.pid))
}

/// Same as `holder`, but includes a dying process whose lock the kernel has not released yet.
pub(crate) fn holder_or_dying(path: &Path) -> Option<Holder> {
    for _ in 0..TRIES_MAX {
        let file = File::open(path).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {}
            Ok(()) | Err(TryLockError::Error(_)) => return None,
        }
        if let Some(holder) = signed(&file) {
            return Some(holder);
        }
        // Locked, but not signed yet.
        std::thread::sleep(TRY_AGAIN_AFTER);
    }
    None
}

/// Content of the file, if it can be read.
fn signed(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (role, pid) = text.trim().split_once(' ')?;
    Some(Holder { role: role.to_owned(), pid: pid.parse().ok()? })
}

/// Whether the process was killed or has ended, and only awaits cleanup: it executes none of its code any more, though
/// the kernel may not have released its locks yet.
fn is_dying(pid: u32) -> bool {
    says_dying(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Whether a process with this `/proc/PID/status` is dying.
fn says_dying(status: &str) -> bool {
    status.lines().filter_map(|line| line.split_once(":\t")).any(|(name, value)| match name {
        "State" => value.starts_with(['Z', 'X']),
        // Signals pending for the first thread and for the process.
        "SigPnd" | "ShdPnd" => u64::from_str_radix(value, 16).is_ok_and(|set| set & KILL_BIT != 0),
        _ => false,
    })
}

/// Role that the last holder has left in the file.
pub(crate) fn last_role(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.trim().split_once(' ').map(|(role, _)| role.to_owned())
}

/// Whether a file with this content can be a lock file. After a loss of power zeroes may stand for what was written last.
pub(crate) fn is_signature(text: &[u8]) -> bool {
    let zeroes = text.iter().rev().take_while(|byte| **byte == 0).count();
    let text = &text[..text.len() - zeroes];
    text.is_empty()
        || str::from_utf8(text)
            .ok()
            .and_then(|text| text.trim_end().split_once(' '))
            .is_some_and(|(role, pid)| ROLES.contains(&role) && pid.parse::<u32>().is_ok())
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

/// The error for a file that another process holds.
pub(crate) fn held_by_another() -> io::Error {
    io::Error::new(ErrorKind::ResourceBusy, "another process holds it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_until_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert_eq!(holder(&path), None);
        let lock = Lock::take(&path, "up").unwrap().unwrap();
        let us = Holder { role: "up".into(), pid: std::process::id() };
        assert_eq!(holder(&path).as_ref(), Some(&us));
        assert_eq!(Lock::take(&path, "down").unwrap().unwrap_err(), Some(us));
        lock.remove().unwrap();
        assert!(!path.exists());
        Lock::take(&path, "down").unwrap().unwrap().release().unwrap();
        assert_eq!(holder(&path), None);
    }

    #[test]
    fn who_is_killed_holds_nothing_though_its_lock_is_not_released_yet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path, "node").unwrap().unwrap();
        let mut zombie = std::process::Command::new("true").spawn().unwrap();
        let pid = zombie.id();
        lock.file.set_len(0).unwrap();
        lock.file.write_all_at(format!("node {pid}\n").as_bytes(), 0).unwrap();
        let deadline = Instant::now() + DEAD_WITHIN;
        while holder(&path).is_some() {
            assert!(Instant::now() < deadline, "a process that has ended holds its node");
            std::thread::sleep(TRY_AGAIN_AFTER);
        }
        assert_eq!(holder_or_dying(&path), Some(Holder { role: "node".into(), pid }));
        // `take` waits longer for the kernel than for a process that only looks up the holder.
        let releases = std::thread::spawn(move || {
            std::thread::sleep(3 * TRIES_MAX * TRY_AGAIN_AFTER);
            lock.release().unwrap();
        });
        assert!(Lock::take(&path, "node").unwrap().is_ok());
        releases.join().unwrap();
        zombie.wait().unwrap();
    }

    #[test]
    fn a_lock_file_is_signed_or_was_emptied_by_a_loss_of_power() {
        let ours: [&[u8]; 5] = [b"", b"up 12\n", b"stopped 1\n", &[0; 15], b"up 12\n\0\0\0\0"];
        assert!(ours.into_iter().all(is_signature));
        let foreign: [&[u8]; 4] = [b"up\n", b"go 12\n", b"\0\0up 12\n", b"up 12\nand more"];
        assert!(!foreign.into_iter().any(is_signature));
    }

    #[test]
    fn a_process_is_dying_when_it_was_killed_or_has_ended() {
        #[rustfmt::skip]
        let cases = [
            ("S (sleeping)", "0000000000000000", "0000000000000000", false),
            ("Z (zombie)",   "0000000000000000", "0000000000000000", true),
            ("X (dead)",     "0000000000000000", "0000000000000000", true),
            ("R (running)",  "0000000000000100", "0000000000000000", true),
            ("D (disk sleep)", "0000000000000000", "0000000000000100", true),
            ("T (stopped)",  "0000000000000000", "0000000000004000", false), // SIGTERM, not received yet.
        ];
        for (state, own, shared, dying) in cases {
            let status =
                format!("Name:\tskein\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
            assert_eq!(says_dying(&status), dying, "{status}");
        }
        assert!(!is_dying(std::process::id()));
        assert!(!says_dying(""), "nobody can tell");
    }
}
