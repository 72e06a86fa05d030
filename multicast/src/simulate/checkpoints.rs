//! Checkpoints of simulated machines: a part of a machine's state in files of its own, which its snapshots name.
//!
//! A disk writes a checkpoint while the machine goes on, and may have synced it before or after the end of the snapshot. A
//! process that ends, or its power, leaves the checkpoints that were synced. One that is being written when its machine is
//! dropped is never synced.
//!
//! Checkpoints go wrong, too. Those that were synced are damaged, or are gone, which the next start finds. And those that were
//! removed last are there again after a loss of power: a removal is on the disk later than the machine asks for it.

use std::collections::{BTreeMap, BTreeSet};
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
    /// It was synced, and has other content since; or none, if it is gone.
    Spoilt(Option<Vec<u8>>),
}

impl Checkpoint {
    /// Whether the disk has said that it is synced.
    const fn was_synced(&self) -> bool {
        matches!(self, Self::Synced(_) | Self::Spoilt(_))
    }
}

/// Checkpoints, by group and number.
type Numbered<T> = BTreeMap<(GroupId, u64), T>;

/// The checkpoints on the disk of a process.
#[derive(Default)]
pub(super) struct Shelf {
    all: Numbered<Checkpoint>,
    /// Those that were removed last of each group, which a loss of power may bring back.
    removed: Numbered<Vec<u8>>,
    /// Groups of which a checkpoint was damaged or is gone, and no later one was synced and took its place.
    spoilt: BTreeSet<GroupId>,
}

impl Shelf {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A process ends, or its power. Of the checkpoints that were removed last, some are back, if that can be. Returns their
    /// number.
    pub(super) fn lose_power(&mut self, mut comes_back: impl FnMut() -> bool) -> u64 {
        self.all.retain(|_, it| it.was_synced());
        let mut back = 0;
        for (name, bytes) in std::mem::take(&mut self.removed) {
            if comes_back() {
                self.all.insert(name, Checkpoint::Synced(bytes));
                back += 1;
            }
        }
        back
    }

    /// The synced checkpoints of a group are damaged, or are gone. Returns whether there were any.
    pub(super) fn spoil(&mut self, group: GroupId, gone: bool) -> bool {
        let mut any = false;
        let of_group = self.all.iter_mut().filter(|((of, _), _)| *of == group);
        for (_, it) in of_group {
            if let Checkpoint::Synced(bytes) = it {
                bytes.truncate(bytes.len() / 2);
                *it = Checkpoint::Spoilt((!gone).then(|| std::mem::take(bytes)));
                any = true;
            }
        }
        if any {
            self.spoilt.insert(group);
            self.removed.retain(|(of, _), _| *of != group);
        }
        any
    }

    /// Whether the log of a group may be of no use to the next start, since checkpoints went wrong.
    pub(super) fn is_spoilt(&self, group: GroupId) -> bool {
        self.spoilt.contains(&group)
    }

    /// A process has started. Returns whether checkpoints of the group had gone wrong.
    pub(super) fn begins(&mut self, group: GroupId) -> bool {
        self.spoilt.remove(&group)
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
    fn with<T>(&self, look: impl FnOnce(&mut Shelf) -> T) -> T {
        look(&mut self.writer.shelf.lock().expect("nobody panics with it"))
    }

    /// A number for the next one, which no other has.
    pub(super) fn next(&mut self) -> u64 {
        let given = self.writer.given.fetch_add(1, Ordering::Relaxed);
        (self.last, self.heard) = (self.writer.start + given + 1, false);
        self.last
    }

    /// Begins to write a checkpoint.
    pub(super) fn write(&mut self, number: u64, bytes: Vec<u8>) {
        self.with(|it| it.all.insert((self.group, number), Checkpoint::Asked(bytes)));
    }

    /// The content of a checkpoint, if it is synced.
    pub(super) fn read(&self, number: u64) -> Option<Vec<u8>> {
        self.with(|it| match it.all.get(&(self.group, number)) {
            Some(Checkpoint::Synced(bytes)) => Some(bytes.clone()),
            Some(Checkpoint::Spoilt(bytes)) => bytes.clone(),
            _ => None,
        })
    }

    /// The machine has begun with this one.
    pub(super) fn began_with(&mut self, number: u64) {
        (self.last, self.heard) = (number, true);
    }

    /// Whether the last one is synced.
    pub(super) fn are_written(&self) -> bool {
        let name = (self.group, self.last);
        self.last == 0 || self.with(|it| it.all.get(&name).is_some_and(Checkpoint::was_synced))
    }

    /// Number of the last one, if a start could not read it although no fault has hit it.
    pub(super) fn lacks(&self) -> Option<u64> {
        let is_spoilt = self.with(|it| it.is_spoilt(self.group));
        let is_there = self.last == 0 || self.read(self.last).is_some();
        (!is_there && !is_spoilt).then_some(self.last)
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
        self.with(|Shelf { all, removed, spoilt }| {
            removed.retain(|(of, _), _| *of != group);
            let is_earlier = |(of, number): &(GroupId, u64)| *of == group && *number < last;
            for (name, it) in all.extract_if(.., |name, _| is_earlier(name)) {
                if let Checkpoint::Synced(bytes) = it {
                    removed.insert(name, bytes);
                }
            }
            if matches!(all.get(&(group, last)), Some(Checkpoint::Synced(_))) {
                spoilt.remove(&group);
            }
        });
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        let name = (self.group, self.last);
        self.with(|Shelf { all, .. }| {
            if !all.get(&name).is_some_and(Checkpoint::was_synced) {
                all.remove(&name);
            }
        });
    }
}
