//! Files that say who holds them. The lock is the kernel's, which releases it when the process ends,
//! however it ends; the process id in the file is believed only while the file is locked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::shared::is_missing;

/// How often a lock is tried again, a millisecond apart: whoever asks who holds a file locks it for
/// a moment.
const TRIES_MAX: u32 = 100;
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// How long the kernel may take to release the lock of a process that is dying: it has memory to give
/// back.
const DEAD_WITHIN: Duration = Duration::from_secs(30);

/// SIGKILL in a set of signals. It is pending from when it is sent until the process is gone.
const KILL_BIT: u64 = 1 << (9 - 1);

/// What a file can be held for: to start a cluster and stay with it, to keep its nodes running from
/// the background, to watch them without that, to stop the cluster, to run a node. A node that was
/// told to stop leaves `stopped` behind.
pub(crate) const ROLES: [&str; 6] = ["up", "supervisor", "onlooker", "down", "node", "stopped"];

/// A file that we hold.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    file: File,
    role: String,
}

/// Who holds a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// What for: `up`, `supervisor`, `onlooker`, `down` or `node`.
    pub role: String,
    /// Its process id.
    pub pid: u32,
}

impl Lock {
    /// Takes the file at `path`, which is made if it is missing, or says who has it. `None`:
    /// somebody who has not said yet.
    pub fn take(path: &Path, role: &str) -> io::Result<Result<Self, Option<Holder>>> {
        Self::take_or_make(path, role, true)
    }

    /// The same for a file that must be there.
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
                // The last holder may just have removed it: only the file that is there counts.
                Ok(()) if is_at(&file, path) => {
                    let mut lock = Self { path: path.to_owned(), file, role: String::new() };
                    // On a full disk; the file was made in vain.
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

    /// Says what it is held for. The old text is overwritten and not removed first, because a file
    /// system that is full would not give its room back.
    pub fn sign(&mut self, role: &str) -> io::Result<()> {
        let text = format!("{role} {}\n", std::process::id());
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        role.clone_into(&mut self.role);
        Ok(())
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file that we hold is still the one of that name.
    pub fn is_current(&self) -> bool {
        is_at(&self.file, &self.path)
    }

    /// Takes the file of that name in place of the one that was removed. Fails if another process
    /// has it by now.
    pub fn take_again(&mut self) -> io::Result<()> {
        let role = self.role.clone();
        *self = Self::take(&self.path, &role)?.map_err(|_| held_by_another())?;
        Ok(())
    }

    /// Removes the file. From then on whoever wants it makes it anew.
    pub fn remove(self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Lets go of the file and leaves it where it is.
    pub fn release(self) -> io::Result<()> {
        self.file.unlock()
    }
}

/// Who holds the file at `path`: nobody if it is missing or not locked, or if the process that locked
/// it is dying.
pub(crate) fn holder(path: &Path) -> Option<Holder> {
    holder_or_dying(path).filter(|holder| !is_dying(holder.pid))
}

/// The same; a process that is dying holds the file until the kernel has released it.
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
        // Locked, and not yet signed.
        std::thread::sleep(TRY_AGAIN_AFTER);
    }
    None
}

/// Who signed the file, if that can be read.
fn signed(mut file: &File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (role, pid) = text.trim().split_once(' ')?;
    Some(Holder { role: role.to_owned(), pid: pid.parse().ok()? })
}

/// Whether the process was killed, and has only to be cleared away: it runs no instruction of ours any
/// more, though the kernel may not have released its locks yet.
fn is_dying(pid: u32) -> bool {
    says_dying(&fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

/// Whether the system says so of a process, in its `status`.
fn says_dying(status: &str) -> bool {
    status.lines().filter_map(|line| line.split_once(":\t")).any(|(name, value)| match name {
        "State" => value.starts_with(['Z', 'X']),
        // Of the first thread, and of the process.
        "SigPnd" | "ShdPnd" => u64::from_str_radix(value, 16).is_ok_and(|set| set & KILL_BIT != 0),
        _ => false,
    })
}

/// What the last one who held the file left in it.
pub(crate) fn last_words(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.trim().split_once(' ').map(|(role, _)| role.to_owned())
}

/// Whether a file with this content can be one of these.
pub(crate) fn is_signature(text: &[u8]) -> bool {
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

/// A file that another process holds.
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
        // Whoever wants the lock waits for the kernel, longer than for one who only looks at it.
        let releases = std::thread::spawn(move || {
            std::thread::sleep(3 * TRIES_MAX * TRY_AGAIN_AFTER);
            lock.release().unwrap();
        });
        assert!(Lock::take(&path, "node").unwrap().is_ok());
        releases.join().unwrap();
        zombie.wait().unwrap();
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
            ("T (stopped)",  "0000000000000000", "0000000000004000", false), // SIGTERM, that it has not seen yet.
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
