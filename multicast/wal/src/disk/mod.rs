//! The threads that write the log, and the engines' way to it.
//!
//! Each engine has a [`Handle`], a ring of bytes of its own. Once an engine wants its records on disk,
//! a disk thread that is free takes what is in all rings, forms a block of it, writes it, and tells
//! each engine how many of its records are durable. The mutex is among the disk threads alone, and is not held during a write, so several
//! writes are under way at once. One more thread makes files ahead of need.
//!
//! A log that is idle for [`SEAL_AFTER`] is sealed.

mod handle;
mod latency;
mod sleepers;
mod staging;
mod threads;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use handle::{Handle, LogEnd, StageError};
pub use latency::FlushTimes;

use handle::Told;
use latency::Latencies;
use sleepers::Sleepers;
use staging::{Lane, Stage, Taken};

use crate::files::{FileError, FileName, Files, Shortage, perform};
use crate::{AppendError, Lsn, Sizes, Writer};

/// How long nothing is appended before the log is sealed.
pub const SEAL_AFTER: Duration = Duration::from_millis(10);

const PREPARER: &str = "skein-segments";

/// How the disk threads work.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Threads that write. With one, an append waits for the write before it; with two, only for
    /// its own.
    pub threads: usize,
    /// Bytes of each engine's ring. Half of it is the longest record.
    pub ring_bytes: usize,
    /// How long a thread without work looks for some before it sleeps. For engines that make no
    /// system call, long enough that it never does.
    pub spin: Duration,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { threads: 2, ring_bytes: 4 << 20, spin: Duration::ZERO }
    }
}

/// Why nothing becomes durable any more. The process ends; nothing is tried again.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("the log on disk failed")]
    File(#[from] FileError),
    #[error("the log does not take a record")]
    Append(#[from] AppendError),
    #[error("cannot start a disk thread")]
    Thread(#[source] io::Error),
}

/// Told to the engine of a handle when more of its records are durable. Called by disk threads.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The state of the log, for whoever watches a node.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    pub durable: Lsn,
    pub sizes: Sizes,
    /// Why no new segment can be made, and appends wait. Tried again every second.
    pub short: Option<Shortage>,
    pub flushes: FlushTimes,
    /// Bytes written in blocks since the start.
    pub bytes: u64,
}

/// What the disk threads share under their mutex.
#[derive(Debug)]
struct Core {
    writer: Writer,
    lanes: Vec<Lane>,
    /// The lane to begin with, so that none is always last.
    first: usize,
    /// A ring holds what the writer does not take now.
    blocked: bool,
    short: Option<Shortage>,
    latencies: Latencies,
    bytes: u64,
}

impl Core {
    /// Takes what the rings hold, as far as the writer does, if an engine wants it, or in any case at the `end`.
    fn take(&mut self, end: bool) -> Result<(), AppendError> {
        if !end && !self.lanes.iter().any(Lane::is_wanted) {
            return Ok(());
        }
        let lanes = self.lanes.len();
        self.first = (self.first + 1) % lanes.max(1);
        self.blocked = false;
        for index in 0..lanes {
            let lane = &mut self.lanes[(self.first + index) % lanes];
            match lane.take(&mut self.writer) {
                Taken::All => {}
                Taken::Blocked => self.blocked = true,
                Taken::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether there is something to take that would be taken.
    fn work(&self) -> bool {
        !self.blocked && self.lanes.iter().any(Lane::is_wanted)
    }
}

struct Shared<F> {
    files: Arc<F>,
    core: Mutex<Core>,
    told: Vec<Arc<Told>>,
    wakes: Vec<Wake>,
    flushers: Arc<Sleepers>,
    preparer: Sleepers,
    /// Nothing more is appended.
    stopping: AtomicBool,
    /// The flushers have ended, and need no segment any more.
    finished: AtomicBool,
    failure: OnceLock<DiskError>,
    on_failure: Box<dyn Fn(&DiskError) + Send + Sync>,
    spin: Duration,
}

impl<F> Shared<F> {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything: nothing is written after an error.
    fn fail(&self, error: DiskError) {
        if self.failure.set(error).is_err() {
            return;
        }
        self.stopping.store(true, Ordering::SeqCst);
        self.finished.store(true, Ordering::SeqCst);
        for (told, wake) in self.told.iter().zip(&self.wakes) {
            told.failed.store(true, Ordering::Release);
            wake();
        }
        self.flushers.wake_all();
        self.preparer.wake_all();
        (self.on_failure)(self.failure.get().expect("set above"));
    }
}

impl<F> fmt::Debug for Shared<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("stopping", &self.stopping).finish_non_exhaustive()
    }
}

/// The running log of a node.
pub struct Disk<F: Files + 'static> {
    shared: Arc<Shared<F>>,
    /// The flushers, and then the preparer.
    threads: Vec<JoinHandle<()>>,
}

impl<F: Files + 'static> Disk<F> {
    /// Starts the log: when it returns, the header of the start's first segment is durable, and the
    /// start number may be told. Gives one handle for each engine, which is woken by its `wakes`.
    ///
    /// `on_failure` is called once, in a disk thread, after which the process ends.
    pub fn start(
        files: Arc<F>,
        mut writer: Writer,
        options: DiskOptions,
        wakes: Vec<Wake>,
        on_failure: Box<dyn Fn(&DiskError) + Send + Sync>,
    ) -> Result<(Self, Vec<Handle>), DiskError> {
        let limits = *writer.options();
        open_first_segment(&*files, &mut writer)?;
        let marks_max = limits.in_flight_max + limits.waiting_max + 1;
        let rings = wakes.iter().map(|_| staging::lane(options.ring_bytes, marks_max));
        let (stages, lanes): (Vec<Stage>, Vec<Lane>) = rings.unzip();
        let told: Vec<_> = wakes.iter().map(|_| Arc::new(Told::at(writer.durable()))).collect();
        let flushers = Arc::new(Sleepers::new(options.threads));
        let record_bytes_max =
            limits.record_bytes_max().min(Stage::bytes_max(options.ring_bytes) / 2);
        let handles = stages.into_iter().zip(&told).map(|(stage, told)| Handle {
            stage,
            told: Arc::clone(told),
            sleepers: Arc::clone(&flushers),
            appended: 0,
            record_bytes_max,
            table_bytes_max: limits.table_bytes_max,
        });
        let handles = handles.collect();
        let core = Core {
            writer,
            lanes,
            first: 0,
            blocked: false,
            short: None,
            latencies: Latencies::new(),
            bytes: 0,
        };
        let shared = Arc::new(Shared {
            files,
            core: Mutex::new(core),
            told,
            wakes,
            flushers,
            preparer: Sleepers::new(1),
            stopping: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            failure: OnceLock::new(),
            on_failure,
            spin: options.spin,
        });
        let mut disk = Self { shared, threads: Vec::new() };
        for me in 0..options.threads {
            disk.spawn(format!("skein-disk-{me}"), move |shared| threads::flusher(shared, me))?;
        }
        disk.spawn(PREPARER.to_owned(), threads::preparer)?;
        Ok((disk, handles))
    }

    /// The state of the log.
    pub fn status(&self) -> Status {
        let core = self.shared.core();
        Status {
            durable: core.writer.durable(),
            sizes: core.writer.sizes(),
            short: core.short,
            flushes: core.latencies.report(),
            bytes: core.bytes,
        }
    }

    /// The file of the segment that is written.
    pub fn current(&self) -> Option<FileName> {
        self.shared.core().writer.current()
    }

    /// Ends the log as a failed write does: whoever watches the files has found that they are not kept.
    pub fn fail(&self, error: FileError) {
        self.shared.fail(error.into());
    }

    /// Writes and seals what was appended, and ends the threads. So does dropping it.
    pub fn stop(self) {}

    fn spawn(
        &mut self,
        name: String,
        run: impl FnOnce(&Shared<F>) + Send + 'static,
    ) -> Result<(), DiskError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name).spawn(move || run(&shared));
        self.threads.push(thread.map_err(DiskError::Thread)?);
        Ok(())
    }
}

impl<F: Files + 'static> fmt::Debug for Disk<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<F: Files + 'static> Drop for Disk<F> {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // The preparer is the last: flushers may wait for a segment.
        for thread in self.threads.drain(..) {
            if thread.thread().name() == Some(PREPARER) {
                self.shared.finished.store(true, Ordering::SeqCst);
            }
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a disk thread panicked");
            }
        }
    }
}

/// Prepares the first segment and writes its header.
fn open_first_segment(files: &impl Files, writer: &mut Writer) -> Result<(), DiskError> {
    while !writer.started() {
        if let Some(task) = writer.next_task() {
            match perform(files, &task) {
                Err(error) if error.shortage().is_some() => {
                    if !writer.begins_without_space(task) {
                        return Err(error.into());
                    }
                }
                result => writer.performed(task, result)?,
            }
        }
        while let Some(flush) = writer.next_flush() {
            let result = files.write(flush.file(), flush.offset(), flush.bytes());
            writer.flushed(flush, result)?;
        }
    }
    Ok(())
}
