//! A gate in front of a log's files: while it is shut, whoever would change a file waits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{FileError, FileName, Files};

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

/// Files behind a gate. Reading is not kept from going on.
#[derive(Debug)]
pub struct Gated<F> {
    inner: F,
    gate: Arc<Gate>,
}

impl<F: Files> Gated<F> {
    pub fn new(inner: F, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }
}

impl<F: Files> Files for Gated<F> {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.inner.list()
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        self.gate.pass("make", &name)?;
        self.inner.create(name, bytes)
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.inner.read(name, offset, into)
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.gate.pass("write to", &name)?;
        self.inner.write(name, offset, bytes)
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        self.gate.pass("sync", &name)?;
        self.inner.sync(name)
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.gate.pass("rename", &from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.gate.pass("remove", &name)?;
        self.inner.remove(name)
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        self.gate.pass("sync", &"the directory of the log")?;
        self.inner.sync_directory()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::files::Medium;

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
}
