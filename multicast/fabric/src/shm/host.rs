//! The meeting place of the processes of one cluster.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ShmFabric;
use super::bell::Bell;
use super::dir;
use super::room::{self, Lobby, Room};
use crate::memory::Memory;
use crate::{FabricError, is_name};

/// The meeting place of the processes of one cluster on one machine.
#[derive(Clone, Debug)]
pub struct Host(pub(super) Backing);

#[derive(Clone, Debug)]
pub(super) enum Backing {
    /// Processes, which share files.
    Dir(PathBuf),
    /// Threads of this process, which share its memory.
    Lobby(Arc<Lobby>),
}

/// What [`Host::clean_dead`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Incarnations that had left something.
    pub processes: u64,
    pub files: u64,
    /// As the file system counts them.
    pub bytes: u64,
}

impl Host {
    /// The host whose files are below `dir`. The directory is made, for this user alone, if it is missing. It should be
    /// in a file system that is held in memory.
    pub fn at(dir: &Path) -> Result<Self, FabricError> {
        Ok(Self(Backing::Dir(dir::open(dir)?)))
    }

    /// A host inside this process, for threads that own a fabric each: no files and no sockets. All threads that
    /// connect hold clones of it.
    pub fn anonymous() -> Self {
        Self(Backing::Lobby(Arc::default()))
    }

    /// Joins under a name of ASCII letters, digits, `-` and `_`. The name is ours until the fabric is dropped or the
    /// process ends. Also removes what dead processes left on the host.
    pub fn join(&self, name: &str) -> Result<ShmFabric, FabricError> {
        assert!(is_name(name), "{name:?} is not a process name");
        let incarnation = loop {
            // In the headers of regions, zero means no process.
            match rand::random() {
                0 => {}
                fresh => break fresh,
            }
        };
        let (home, bell) = match &self.0 {
            Backing::Dir(dir) => {
                let report = dir::clean(dir);
                if report != CleanReport::default() {
                    tracing::info!(?report, "removed what dead processes left");
                }
                let (home, bell) = dir::Home::claim(dir, name, incarnation)?;
                (Home::Dir(home), bell)
            }
            Backing::Lobby(lobby) => {
                let (home, bell) = lobby.claim(name, incarnation)?;
                (Home::Room(home), bell)
            }
        };
        Ok(ShmFabric::new(self.clone(), name, incarnation, home, bell))
    }

    /// Removes what dead processes left. A process that is only stopped is not dead.
    pub fn clean_dead(&self) -> Result<CleanReport, FabricError> {
        match &self.0 {
            Backing::Dir(dir) => {
                fs::read_dir(dir).map_err(|e| dir::failed("open", dir, 0, e))?;
                Ok(dir::clean(dir))
            }
            Backing::Lobby(_) => Ok(CleanReport::default()),
        }
    }

    /// The names of the live processes on this host, sorted.
    pub fn live(&self) -> Vec<String> {
        match &self.0 {
            Backing::Dir(dir) => dir::live(dir),
            Backing::Lobby(lobby) => lobby.live(),
        }
    }

    /// Cleans up and removes the directory. Fails if a live process has joined there. Files that do not belong to the
    /// fabric stay, and the directory with them.
    pub fn remove(&self) -> Result<(), FabricError> {
        let Backing::Dir(dir) = &self.0 else { return Ok(()) };
        dir::clean(dir);
        if let Some(name) = dir::live(dir).into_iter().next() {
            return Err(FabricError::NameTaken { name, dir: dir.clone() });
        }
        match fs::remove_dir(dir) {
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty) => {
                Err(dir::failed("rmdir", dir, 0, e))
            }
            _ => Ok(()),
        }
    }

    /// Memory that all processes together have reserved on this host.
    pub fn bytes_reserved(&self) -> u64 {
        match &self.0 {
            Backing::Dir(dir) => dir::bytes_reserved(dir),
            Backing::Lobby(lobby) => lobby.bytes_reserved(),
        }
    }

    /// The directory, unless the host is inside this process.
    pub fn dir(&self) -> Option<&Path> {
        match &self.0 {
            Backing::Dir(dir) => Some(dir),
            Backing::Lobby(_) => None,
        }
    }

    pub(super) fn is_incarnation_alive(&self, incarnation: u64) -> bool {
        match &self.0 {
            Backing::Dir(dir) => dir::is_incarnation_alive(dir, incarnation),
            Backing::Lobby(lobby) => lobby.is_incarnation_alive(incarnation),
        }
    }

    /// The incarnation that has the name `name` now; it may be dead. Fails where that cannot be determined now.
    pub(super) fn incarnation(&self, name: &str) -> io::Result<Option<u64>> {
        match &self.0 {
            Backing::Dir(dir) => dir::Away::incarnation(dir, name),
            Backing::Lobby(lobby) => Ok(lobby.find(name).map(|room| room.incarnation)),
        }
    }

    /// Finds that incarnation, if it lives. Fails where that cannot be determined now.
    pub(super) fn find(&self, name: &str, incarnation: u64) -> io::Result<Option<(Away, Bell)>> {
        match &self.0 {
            Backing::Dir(dir) => {
                let found = dir::Away::find(dir, name, incarnation)?;
                Ok(found.map(|(away, bell)| (Away::Dir(away), bell)))
            }
            Backing::Lobby(lobby) => {
                let room = lobby.find(name).filter(|room| room.incarnation == incarnation);
                Ok(room.map(|room| {
                    let bell = room.bell();
                    (Away::Room(room), bell)
                }))
            }
        }
    }
}

/// Our own place on a host.
#[derive(Debug)]
pub(super) enum Home {
    Dir(dir::Home),
    Room(room::Home),
}

impl Home {
    /// Makes a zeroed file that peers can open. Its memory is reserved when this returns.
    pub(super) fn create(&self, file: u64, len: usize) -> Result<Arc<Memory>, FabricError> {
        match self {
            Self::Dir(home) => home.create(file, len).map(Arc::new),
            Self::Room(home) => home.create(file, len),
        }
    }

    /// How many bytes there is room for, for all processes here.
    pub(super) fn room(&self) -> u64 {
        match self {
            Self::Dir(home) => home.room(),
            Self::Room(_) => u64::MAX,
        }
    }

    /// Whether this process has made it, and not one that it was forked from.
    pub(super) fn is_ours(&self) -> bool {
        match self {
            Self::Dir(home) => home.is_ours(),
            Self::Room(home) => home.is_ours(),
        }
    }

    /// Removes a file. A process that has it mapped keeps the unlinked memory.
    pub(super) fn remove(&self, file: u64) {
        match self {
            Self::Dir(home) => home.remove(file),
            Self::Room(home) => home.remove(file),
        }
    }
}

/// A peer's place on a host.
#[derive(Debug)]
pub(super) enum Away {
    Dir(dir::Away),
    Room(Arc<Room>),
}

impl Away {
    pub(super) fn is_alive(&self) -> bool {
        match self {
            Self::Dir(away) => away.is_alive(),
            Self::Room(room) => room.is_alive(),
        }
    }

    pub(super) fn open(&self, file: u64) -> Result<Arc<Memory>, FabricError> {
        match self {
            Self::Dir(away) => away.open(file).map(Arc::new),
            Self::Room(room) => room.open(file),
        }
    }
}
