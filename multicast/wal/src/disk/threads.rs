//! What the disk threads do.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Core, DiskError, SEAL_AFTER, Shared};
use crate::Flush;
use crate::files::{FileError, Files, Shortage, perform};

/// How long to wait before a full disk is tried again.
const FULL_AGAIN: Duration = Duration::from_secs(1);

/// How many times a spinning thread pauses between two looks, each of which takes the mutex.
const PAUSES: usize = 200;

type Written = (Flush, Result<(), FileError>, Duration);

/// What a turn under the mutex found.
struct Turn {
    next: Option<Flush>,
    /// There is work for the preparer.
    task: bool,
    unsealed: bool,
    /// Nothing is left to do, or to wait for, but the seal.
    over: bool,
}

/// Writes blocks until the log is stopped and everything appended is durable.
pub(super) fn flusher<F: Files>(shared: &Shared<F>, me: usize) {
    let mut wake = vec![false; shared.told.len()];
    let mut idle_since = None;
    let mut flush = None;
    loop {
        let written = flush.take().map(|flush: Flush| {
            let began = Instant::now();
            let result = shared.files.write(flush.file(), flush.offset(), flush.bytes());
            (flush, result, began.elapsed())
        });
        let turn = turn(&mut shared.core(), shared, written, &mut wake);
        let turn = match turn {
            Ok(turn) => turn,
            Err(error) => return shared.fail(error),
        };
        for (woken, wake) in wake.iter_mut().zip(&shared.wakes) {
            if std::mem::take(woken) {
                wake();
            }
        }
        if turn.task {
            shared.preparer.wake_one();
        }
        flush = turn.next;
        if flush.is_some() {
            idle_since = None;
            continue;
        }
        let stopping = shared.stopping.load(Ordering::Acquire);
        if stopping && turn.over {
            flush = seal(shared);
            if flush.is_none() {
                return;
            }
            continue;
        }
        if idle_since.get_or_insert_with(Instant::now).elapsed() < shared.spin {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            continue;
        }
        // While stopping, another thread's write is waited for by looking again.
        let timeout = if turn.unsealed || stopping { Some(SEAL_AFTER) } else { None };
        let work = || shared.core().work() || shared.stopping.load(Ordering::SeqCst) != stopping;
        if shared.flushers.sleep(me, timeout, work) {
            flush = seal(shared);
        }
    }
}

/// Takes note of a write, takes what the rings hold, and gives the next write.
fn turn<F>(
    core: &mut Core,
    shared: &Shared<F>,
    written: Option<Written>,
    wake: &mut [bool],
) -> Result<Turn, DiskError> {
    if shared.failure.get().is_some() {
        // A write that succeeded meanwhile is not told: the files may be another log's, or nobody's.
        return Ok(Turn { next: None, task: false, unsealed: false, over: true });
    }
    if let Some((flush, result, took)) = written {
        core.latencies.note(took);
        core.bytes += flush.bytes().len() as u64;
        core.writer.flushed(flush, result)?;
        let durable = core.writer.durable();
        for (lane, (told, woken)) in core.lanes.iter_mut().zip(shared.told.iter().zip(wake)) {
            told.log_end.store(durable.0, Ordering::Release);
            if let Some(number) = lane.settle(durable) {
                told.durable.store(number, Ordering::Release);
                *woken = true;
            }
        }
    }
    core.take(shared.stopping.load(Ordering::Acquire))?;
    let next = core.writer.next_flush();
    let empty = core.lanes.iter().all(super::Lane::is_empty);
    Ok(Turn {
        task: core.writer.has_task() && core.short.is_none(),
        unsealed: core.writer.unsealed(),
        over: next.is_none() && !core.writer.busy() && (empty || core.short.is_some()),
        next,
    })
}

fn seal<F>(shared: &Shared<F>) -> Option<Flush> {
    let mut core = shared.core();
    if shared.failure.get().is_some() || core.work() || !core.writer.seal() {
        return None;
    }
    core.writer.next_flush()
}

/// Makes segments ahead of need, and removes old ones.
pub(super) fn preparer<F: Files>(shared: &Shared<F>) {
    while !shared.finished.load(Ordering::Acquire) {
        let task = shared.core().writer.next_task();
        let Some(task) = task else {
            shared.preparer.sleep(0, None, || {
                shared.core().writer.has_task() || shared.finished.load(Ordering::SeqCst)
            });
            continue;
        };
        let result = perform(&*shared.files, &task);
        let short = result.as_ref().err().and_then(FileError::shortage);
        let performed = {
            let mut core = shared.core();
            core.short = short;
            // What the writer refused may go on now.
            core.blocked = false;
            let performed = core.writer.performed(task, result);
            let bytes = core.writer.sizes().bytes;
            shared.told.iter().for_each(|told| told.log_bytes.store(bytes, Ordering::Relaxed));
            performed
        };
        if let Err(error) = performed {
            shared.fail(error.into());
            return;
        }
        shared.flushers.wake_one();
        if let Some(short) = short {
            match short {
                Shortage::Disk => tracing::warn!("the disk is full: the log waits for space"),
                Shortage::Bound => tracing::warn!(
                    "the log takes as much space as it may: it waits until it needs less, or may take more"
                ),
            }
            shared.preparer.sleep(0, Some(FULL_AGAIN), || shared.finished.load(Ordering::SeqCst));
        }
    }
}
