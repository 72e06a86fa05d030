//! A host inside one process: the equivalent of a directory, without files.
//!
//! Here the owner of a [`ShmFabric`](super::ShmFabric), usually a thread, takes the part of a process. It cannot die on
//! its own, so it is gone exactly when its fabric was dropped.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bell::{self, Bell};
use crate::FabricError;
use crate::fork::Process;
use crate::memory::Memory;

/// All rooms, by name.
#[derive(Debug, Default)]
pub(super) struct Lobby(Mutex<BTreeMap<String, Arc<Room>>>);

/// What one fabric shares with the others.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) name: String,
    pub(super) incarnation: u64,
    bell: Bell,
    files: Mutex<BTreeMap<u64, Arc<Memory>>>,
    mail: Mutex<VecDeque<Message>>,
    left: AtomicBool,
}

/// A control message from an incarnation of a name.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: String,
    pub(super) incarnation: u64,
    pub(super) bytes: Vec<u8>,
}

impl Lobby {
    pub(super) fn claim(
        self: &Arc<Self>,
        name: &str,
        incarnation: u64,
    ) -> Result<(Home, Bell), FabricError> {
        let mut rooms = unpoisoned(&self.0);
        if rooms.contains_key(name) {
            return Err(FabricError::NameTaken { name: name.to_owned(), dir: "memory".into() });
        }
        let memory = anonymous(bell::LEN)?;
        let bell = Bell::hang(Arc::new(memory), incarnation);
        let room = Arc::new(Room {
            name: name.to_owned(),
            incarnation,
            bell: bell.clone(),
            files: Mutex::default(),
            mail: Mutex::default(),
            left: AtomicBool::new(false),
        });
        rooms.insert(name.to_owned(), Arc::clone(&room));
        Ok((Home { lobby: Arc::clone(self), room, process: Process::current() }, bell))
    }

    pub(super) fn find(&self, name: &str) -> Option<Arc<Room>> {
        unpoisoned(&self.0).get(name).cloned()
    }

    pub(super) fn live(&self) -> Vec<String> {
        unpoisoned(&self.0).keys().cloned().collect()
    }

    pub(super) fn is_incarnation_alive(&self, incarnation: u64) -> bool {
        unpoisoned(&self.0).values().any(|room| room.incarnation == incarnation)
    }

    pub(super) fn bytes_reserved(&self) -> u64 {
        let rooms = unpoisoned(&self.0);
        let sizes = rooms.values().map(|room| {
            let files: usize = unpoisoned(&room.files).values().map(|file| file.len()).sum();
            files + bell::LEN
        });
        sizes.sum::<usize>() as u64
    }
}

impl Room {
    pub(super) fn bell(&self) -> Bell {
        self.bell.clone()
    }

    pub(super) fn is_alive(&self) -> bool {
        !self.left.load(Ordering::SeqCst)
    }

    pub(super) fn open(&self, file: u64) -> Result<Arc<Memory>, FabricError> {
        unpoisoned(&self.files).get(&file).cloned().ok_or(FabricError::StaleKey)
    }

    pub(super) fn post(&self, message: Message) {
        unpoisoned(&self.mail).push_back(message);
    }

    pub(super) fn take(&self) -> Option<Message> {
        unpoisoned(&self.mail).pop_front()
    }
}

/// Our own room. Dropping it leaves the lobby.
#[derive(Debug)]
pub(super) struct Home {
    lobby: Arc<Lobby>,
    pub(super) room: Arc<Room>,
    process: Process,
}

impl Home {
    pub(super) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    pub(super) fn create(&self, file: u64, len: usize) -> Result<Arc<Memory>, FabricError> {
        let memory = Arc::new(anonymous(len)?);
        unpoisoned(&self.room.files).insert(file, Arc::clone(&memory));
        Ok(memory)
    }

    pub(super) fn remove(&self, file: u64) {
        unpoisoned(&self.room.files).remove(&file);
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        self.room.left.store(true, Ordering::SeqCst);
        unpoisoned(&self.room.files).clear();
        unpoisoned(&self.room.mail).clear();
        unpoisoned(&self.lobby.0).remove(&self.room.name);
    }
}

/// Private memory, or the fabric's error.
pub(super) fn anonymous(len: usize) -> Result<Memory, FabricError> {
    let made = Memory::anonymous(len);
    made.map_err(|source| FabricError::NoSpace { len, dir: "memory".into(), source })
}

/// No operation under a lock of this file can be left half done, so a panic elsewhere does no harm.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
