//! Checkpoints of simulated machines: a part of a machine's state in files of its own, which its snapshots name.
//!
//! A disk writes a checkpoint while the machine goes on, and may have synced it before or after the end of the snapshot. A
//! process that ends, or its power, leaves the checkpoints that were synced. One that is being written when its machine is
//! dropped is never synced.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use skein_fabric::sim::Rng;
use skein_protocol::ids::GroupId;

/// A checkpoint on a disk.
enum Checkpoint {
    /// It is to be written.
    Asked(Vec<u8>),
    /// It is synced at that time.
    Begun(Vec<u8>, Duration),
    Synced(Vec<u8>),
}

/// The checkpoints on the disk of a process, by group and number.
#[derive(Default)]
pub(super) struct Shelf {
    all: BTreeMap<(GroupId, u64), Checkpoint>,
}

impl Shelf {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A process ends, or its power.
    pub(super) fn lose_power(&mut self) {
        self.all.retain(|_, it| matches!(it, Checkpoint::Synced(_)));
    }

    /// Syncs the checkpoints that are due, and begins those that can begin. Returns whether any was synced.
    pub(super) fn go_on(&mut self, now: Duration, full: bool, rng: &mut Rng) -> bool {
        let mut any = false;
        for it in self.all.values_mut() {
            match it {
                Checkpoint::Asked(bytes) if !full => {
                    let usual = rng.between(50, 2_000);
                    let takes = if rng.one_in(4) { rng.between(1, 50) * usual } else { usual };
                    let due = now + Duration::from_micros(takes);
                    *it = Checkpoint::Begun(std::mem::take(bytes), due);
                }
                Checkpoint::Begun(bytes, due) if *due <= now => {
                    *it = Checkpoint::Synced(std::mem::take(bytes));
                    any = true;
                }
                _ => {}
            }
        }
        any
    }

    /// When the next one is synced.
    pub(super) fn next_due(&self) -> Option<Duration> {
        let due = |it: &Checkpoint| match it {
            Checkpoint::Begun(_, due) => Some(*due),
            _ => None,
        };
        self.all.values().filter_map(due).min()
    }
}

/// The checkpoints of a process, to which its machines write.
#[derive(Clone)]
pub(super) struct Writer {
    shelf: Arc<Mutex<Shelf>>,
    /// The start of the node, in the upper half.
    start: u64,
    given: Arc<AtomicU64>,
}

impl Writer {
    pub(super) fn new(shelf: Arc<Mutex<Shelf>>, start: u32) -> Self {
        Self { shelf, start: u64::from(start) << 32, given: Arc::default() }
    }

    pub(super) fn of(&self, group: GroupId) -> Checkpoints {
        Checkpoints { writer: self.clone(), group, last: 0, heard: true }
    }
}

/// The checkpoints of a machine.
pub(super) struct Checkpoints {
    writer: Writer,
    group: GroupId,
    /// Number of the last one, or zero.
    last: u64,
    /// The machine knows that the last one is synced.
    heard: bool,
}

impl Checkpoints {
    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<(GroupId, u64), Checkpoint>) -> T) -> T {
        look(&mut self.writer.shelf.lock().expect("nobody panics with it").all)
    }

    /// A number for the next one, which no other has.
    pub(super) fn next(&mut self) -> u64 {
        let given = self.writer.given.fetch_add(1, Ordering::Relaxed);
        (self.last, self.heard) = (self.writer.start + given + 1, false);
        self.last
    }

    /// Begins to write a checkpoint.
    pub(super) fn write(&mut self, number: u64, bytes: Vec<u8>) {
        self.with(|all| all.insert((self.group, number), Checkpoint::Asked(bytes)));
    }

    /// The content of a checkpoint, if it is synced.
    pub(super) fn read(&self, number: u64) -> Option<Vec<u8>> {
        self.with(|all| match all.get(&(self.group, number)) {
            Some(Checkpoint::Synced(bytes)) => Some(bytes.clone()),
            _ => None,
        })
    }

    /// Whether the last one is synced.
    pub(super) fn are_written(&self) -> bool {
        let synced = |all: &mut BTreeMap<_, _>| {
            matches!(all.get(&(self.group, self.last)), Some(Checkpoint::Synced(_)))
        };
        self.last == 0 || self.with(synced)
    }

    pub(super) fn has_news(&self) -> bool {
        !self.heard && self.are_written()
    }

    pub(super) fn take_news(&mut self) -> bool {
        let news = self.has_news();
        self.heard |= news;
        news
    }

    /// Removes all but the last one.
    pub(super) fn drop_earlier(&mut self) {
        let (group, last) = (self.group, self.last);
        self.with(|all| all.retain(|(of, number), _| *of != group || *number >= last));
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let name = (self.group, self.last);
        self.with(|all| {
            if !matches!(all.get(&name), Some(Checkpoint::Synced(_))) {
                all.remove(&name);
            }
        });
    }
}
