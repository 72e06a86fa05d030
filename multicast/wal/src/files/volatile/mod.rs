//! A disk whose cache is lost with the process: what tests put in front of a real directory, so that killing a
//! process is a loss of power.
//!
//! **Invariant.** What the layer has passed on to the files below is what survives. Whatever a kill leaves, a disk that
//! keeps the promises of [`Files`] may leave:
//!
//! - A write is passed on in pieces, some blocks or some sectors of one at a time, in a random order, with pauses in between.
//!   It returns when all of it was passed on. Until then a kill leaves any of the pieces.
//! - A new name, a changed one and the lack of a removed one exist in this process alone until the directory is
//!   synced. Some changes are passed on before: then all that were made before them are, too.
//!
//! [`Orders`] make it fail besides.

mod names;
mod orders;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use names::{Change, Names};
use orders::{Operation, Settings};
pub use orders::{Orders, OrdersError};

use super::random::Random;
use super::{FileError, FileName, Files};
use crate::aligned::Aligned;
use crate::format::BLOCK;

/// What a disk may write whole, in bytes.
const SECTOR: usize = 512;
/// A long write is passed on in so many pieces at least.
const PIECES_MIN: usize = 8;
/// One change of a name in so many is passed on at once, with those before it.
const EARLY: u64 = 4;

/// The layer, over the files that survive.
#[derive(Debug)]
pub struct Volatile<F> {
    inner: F,
    orders: Orders,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: Random,
    names: Names,
    stalled_until: Option<Instant>,
}

impl State {
    /// The pieces in which so many blocks are passed on, in their order: one block each if there are few.
    fn pieces(&mut self, blocks: usize) -> Vec<Range<usize>> {
        let most = (blocks / PIECES_MIN).max(1) as u64;
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < blocks {
            let to = (from + 1 + self.random.below(most) as usize).min(blocks);
            pieces.push(from..to);
            from = to;
        }
        let order = self.random.order(pieces.len());
        order.into_iter().map(|index| pieces[index].clone()).collect()
    }
}

impl<F: Files> Volatile<F> {
    /// Starts with what has survived below. `orders` are read before each operation.
    pub fn new(inner: F, orders: Orders) -> Result<Self, FileError> {
        let names = Names::read(&inner)?;
        let random = Random::new(orders.seed());
        let state = State { random, names, stalled_until: None };
        Ok(Self { inner, orders, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets an operation begin, or fail.
    fn begin(&self, operation: Operation, file: impl ToString) -> Result<Settings, FileError> {
        let (settings, stall) = {
            let mut state = self.state();
            let (settings, failure) = self.orders.of(operation);
            if let Some(time) = settings.stall {
                state.stalled_until = Some(Instant::now() + time);
            }
            if let Some(failure) = failure {
                return Err(failure.error(operation, file.to_string()));
            }
            (settings, state.stalled_until)
        };
        // One that began during a stall ends with it.
        thread::sleep(
            stall.map_or(Duration::ZERO, |end| end.saturating_duration_since(Instant::now())),
        );
        Ok(settings)
    }

    /// Waits for a random time.
    fn pause(&self, settings: &Settings) {
        let most = settings.pause_max.as_micros() as u64;
        let micros = self.state().random.below(most + 1);
        thread::sleep(Duration::from_micros(micros));
    }

    /// Makes a change of names in this process, and now and then passes on what was changed so far.
    fn change(&self, change: Change) -> Result<(), FileError> {
        let mut state = self.state();
        state.names.change(change);
        if state.random.below(EARLY) == 0 {
            while state.names.pass_on(&self.inner)? {}
        }
        Ok(())
    }

    /// Passes on a piece, which is whole blocks: half of the time some sectors of its first block before.
    fn write_piece(
        &self,
        number: u64,
        offset: u64,
        piece: &[u8],
        settings: &Settings,
    ) -> Result<(), FileError> {
        let (torn, sectors) = {
            let mut state = self.state();
            (state.random.below(2) == 0, state.random.below(1 << (BLOCK / SECTOR)))
        };
        if torn {
            let mut mixed = Aligned::new(BLOCK);
            let state = self.state();
            let Some(place) = state.names.place(number) else { return Ok(()) };
            self.inner.read(place, offset, mixed.bytes_mut())?;
            let mixing = mixed.bytes_mut().chunks_exact_mut(SECTOR).zip(piece.chunks_exact(SECTOR));
            for (index, (old, new)) in mixing.enumerate() {
                if sectors & 1 << index != 0 {
                    old.copy_from_slice(new);
                }
            }
            self.inner.write(place, offset, mixed.bytes())?;
            drop(state);
            self.pause(settings);
        }
        let state = self.state();
        // A file that was removed meanwhile has no place to keep it.
        let Some(place) = state.names.place(number) else { return Ok(()) };
        self.inner.write(place, offset, piece)
    }
}

impl<F: Files> Files for Volatile<F> {
    fn list(&self) -> Result<Vec<(FileName, u64)>, FileError> {
        self.state().names.list(&self.inner)
    }

    fn create(&self, name: FileName, bytes: u64) -> Result<(), FileError> {
        let settings = self.begin(Operation::Create, name)?;
        let (number, nameless) = self.state().names.nameless();
        self.inner.create(nameless, bytes)?;
        self.pause(&settings);
        self.change(Change::Create { number, name })
    }

    fn read(&self, name: FileName, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        self.begin(Operation::Read, name)?;
        let state = self.state();
        let number = state.names.number(name, "read")?;
        let place = state.names.place(number).expect("what has a name has a place");
        self.inner.read(place, offset, into)?;
        state.names.read_unsynced(number, offset, into);
        Ok(())
    }

    fn write(&self, name: FileName, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let settings = self.begin(Operation::Write, name)?;
        let (number, pieces) = {
            let mut state = self.state();
            let number = state.names.number(name, "write to")?;
            if settings.lies {
                state.names.keep_unsynced(number, offset, bytes);
                return Ok(());
            }
            (number, state.pieces(bytes.len() / BLOCK))
        };
        for blocks in pieces {
            let (from, to) = (blocks.start * BLOCK, blocks.end * BLOCK);
            self.write_piece(number, offset + from as u64, &bytes[from..to], &settings)?;
            self.pause(&settings);
        }
        Ok(())
    }

    fn sync(&self, name: FileName) -> Result<(), FileError> {
        let settings = self.begin(Operation::Sync, name)?;
        self.state().names.number(name, "sync")?;
        // What was written was passed on before the write returned.
        self.pause(&settings);
        Ok(())
    }

    fn rename(&self, from: FileName, to: FileName) -> Result<(), FileError> {
        self.begin(Operation::Rename, from)?;
        self.state().names.number(from, "rename")?;
        self.change(Change::Rename { from, to })
    }

    fn remove(&self, name: FileName) -> Result<(), FileError> {
        self.begin(Operation::Remove, name)?;
        self.state().names.number(name, "remove")?;
        self.change(Change::Remove { name })
    }

    fn sync_directory(&self) -> Result<(), FileError> {
        let settings = self.begin(Operation::Sync, "the directory")?;
        if settings.lies {
            return Ok(());
        }
        while self.state().names.pass_on(&self.inner)? {
            self.pause(&settings);
        }
        self.inner.sync_directory()
    }
}
