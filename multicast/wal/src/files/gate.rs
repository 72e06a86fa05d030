//! A gate in front of a log's files: while it is shut, whoever would change a file waits.
//!
//! Whoever does not find a file waits, too, until the directory was [looked at](LOOKED_WITHIN): if the directory is gone,
//! it is not the thread that misses a file first which decides what the process does.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{FileError, FileName, Files};

/// Whoever watches the directory shuts or breaks the gate within this time if the directory is gone.
const LOOKED_WITHIN: Duration = Duration::from_secs(5);

/// State of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Shut,
    /// Whoever waits fails, and whoever comes.
    Broken,
}

/// Opens, shuts and breaks the way to the files.
#[derive(Debug)]
pub struct Gate {
    /// Nobody has to look at the state.
    open: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Default for Gate {
    /// A gate that is open.
    fn default() -> Self {
        let state = Mutex::new(State::Open);
        Self { open: AtomicBool::new(true), state, changed: Condvar::new() }
    }
}

impl Gate {
    /// From now on files are changed; those who waited go on. A gate that is broken stays so.
    pub fn open(&self) {
        self.set(State::Open);
    }

    /// From now on nobody begins to change a file.
    pub fn shut(&self) {
        self.set(State::Shut);
    }

    /// From now on nobody waits, and no file is changed.
    pub fn break_down(&self) {
        self.set(State::Broken);
    }

    fn set(&self, to: State) {
        let mut state = self.state();
        if *state != State::Broken {
            *state = to;
        }
        self.open.store(*state == State::Open, Ordering::Release);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while the gate is shut.
    fn pass(&self, operation: &'static str, file: &impl ToString) -> Result<(), FileError> {
        if self.open.load(Ordering::Acquire) {
            return Ok(());
        }
        let shut = |state: &mut State| *state == State::Shut;
        let state = self.changed.wait_while(self.state(), shut);
        match *state.unwrap_or_else(PoisonError::into_inner) {
            State::Open | State::Shut => Ok(()),
            State::Broken => {
                let source = io::Error::other("the log was given up");
                Err(FileError::Io { operation, file: file.to_string(), source })
            }
        }
    }
}

impl Gate {
    /// Something was not there, and the gate was open. Waits until it is not, and returns whether that is so in time.
    fn closes(&self) -> bool {
        let open = |state: &mut State| *state == State::Open;
        let waited = self.changed.wait_timeout_while(self.state(), LOOKED_WITHIN, open);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

/// Files behind a gate. Reading is not kept from going on.
#[derive(Debug)]
pub struct Gated<F> {
    inner: F,
    gate: Arc<Gate>,
}

impl<F: Files> Gated<F> {
    /// Files that are changed when the gate is open.
    pub fn new(inner: F, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }

    /// Changes a file when the gate is open.
    fn change(
        &self,
        operation: &'static str,
        file: &impl ToString,
        change: impl Fn(&F) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        loop {
            self.gate.pass(operation, file)?;
            let changed = change(&self.inner);
            let is_missing = matches!(&changed, Err(FileError::Io { source, .. })
                if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory));
            if !is_missing || !self.gate.closes() {
                return changed;
            }
        }
    }
}

impl<F: Files> Files for Gated<F> {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.inner.list()
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        self.change("make", &name, |files| files.create(name, bytes))
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.inner.read(name, offset, into)
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.change("write to", &name, |files| files.write(name, offset, bytes))
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        self.change("sync", &name, |files| files.sync(name))
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.change("rename", &from, |files| files.rename(from, to))
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.change("remove", &name, |files| files.remove(name))
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        self.change("sync", &"the directory of the log", F::sync_directory)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::files::{Directory, Medium};

    #[test]
    fn who_writes_waits_until_the_gate_is_open_or_broken() {
        let gate = Arc::new(Gate::default());
        let files = Arc::new(Gated::new(Medium::new(1), Arc::clone(&gate)));
        let name = FileName::Spare(1);
        files.create(name, 1 << 16).unwrap();
        let (ended, has_ended) = channel();
        for opens in [true, false] {
            gate.shut();
            let (files, ended) = (Arc::clone(&files), ended.clone());
            let writer = thread::spawn(move || ended.send(files.write(name, 0, &[1; 4096])));
            assert!(has_ended.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
            if opens {
                gate.open();
            } else {
                gate.break_down();
            }
            assert_eq!(has_ended.recv().unwrap().is_ok(), opens);
            writer.join().unwrap().unwrap();
        }
        gate.open();
        assert!(files.sync(name).is_err(), "what is broken stays so");
    }

    #[test]
    fn who_misses_a_file_waits_for_whoever_watches_the_directory() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("log");
        std::fs::create_dir(&dir).unwrap();
        let gate = Arc::new(Gate::default());
        let gated = Gated::new(Directory::open(&dir).unwrap(), Arc::clone(&gate));
        std::fs::remove_dir(&dir).unwrap();
        let (ended, has_ended) = channel();
        let writer = thread::spawn(move || ended.send(gated.create(FileName::Spare(1), 1 << 16)));
        assert!(has_ended.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        gate.shut();
        assert!(has_ended.recv_timeout(Duration::from_millis(50)).is_err(), "it still waits");
        std::fs::create_dir(&dir).unwrap();
        gate.open();
        has_ended.recv().unwrap().unwrap();
        writer.join().unwrap().unwrap();
    }
}
