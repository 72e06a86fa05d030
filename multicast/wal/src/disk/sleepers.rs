//! Threads that sleep when they have nothing to do, and how they are woken.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::{self, Thread};
use std::time::Duration;

#[derive(Debug, Default)]
struct Sleeper {
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
}

/// The threads that wait for the same work.
///
/// A thread says that it sleeps, and then looks for work once more; whoever has work publishes it, and
/// then looks whether a thread sleeps. The fences order the two on both sides, so one of them sees
/// the other.
#[derive(Debug)]
pub(super) struct Sleepers(Vec<Sleeper>);

impl Sleepers {
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Sleeper::default()).collect())
    }

    /// Wakes one thread, if one sleeps. Without one, this reads a word for each thread.
    pub(super) fn wake_one(&self) {
        fence(Ordering::SeqCst);
        for sleeper in &self.0 {
            if sleeper.asleep.load(Ordering::Relaxed)
                && sleeper.asleep.swap(false, Ordering::AcqRel)
                && let Some(thread) = sleeper.thread.get()
            {
                thread.unpark();
                return;
            }
        }
    }

    /// Wakes all threads.
    pub(super) fn wake_all(&self) {
        for _ in &self.0 {
            self.wake_one();
        }
    }

    /// Sleeps as thread `me` until woken, or until the time is over, unless there is `work` after
    /// all. True if the time is over.
    pub(super) fn sleep(
        &self,
        me: usize,
        timeout: Option<Duration>,
        work: impl FnOnce() -> bool,
    ) -> bool {
        let sleeper = &self.0[me];
        sleeper.thread.get_or_init(thread::current);
        sleeper.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !work() {
            match timeout {
                Some(timeout) => thread::park_timeout(timeout),
                None => thread::park(),
            }
        }
        // Still set: nobody woke us. It may also be a leftover wake-up, after which nothing is found.
        sleeper.asleep.swap(false, Ordering::AcqRel) && timeout.is_some()
    }
}
