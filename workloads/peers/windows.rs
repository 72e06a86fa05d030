//! The operations that meet something which happens during a load. A thread opens and closes windows; the thread of
//! the clients keeps each client's slowest operation of each window.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::histogram;

/// Windows opened and closed so far: `2w + 1` while window `w` is open, and even between windows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Windows(Arc<AtomicUsize>);

impl Windows {
    pub(crate) fn open(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(before.is_multiple_of(2), "one window at a time");
    }

    pub(crate) fn close(&self) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        assert!(!before.is_multiple_of(2), "a window that is open");
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The operations of the clients, in flight and past.
#[derive(Debug)]
pub(crate) struct Met {
    windows: Windows,
    /// By client: when its operation was invoked, and the count of the windows then.
    invoked: Vec<(Instant, usize)>,
    /// By window and client: the slowest operation that was in flight while the window was open; zero if none has
    /// returned.
    slowest: Vec<Vec<Duration>>,
}

impl Met {
    /// For `most` windows at most.
    pub(crate) fn new(windows: Windows, clients: usize, most: usize) -> Self {
        let invoked = vec![(Instant::now(), windows.now()); clients];
        Self { windows, invoked, slowest: vec![vec![Duration::ZERO; clients]; most] }
    }

    pub(crate) fn invoked(&mut self, client: usize) {
        self.invoked[client] = (Instant::now(), self.windows.now());
    }

    pub(crate) fn returned(&mut self, client: usize) {
        let (since, first) = self.invoked[client];
        let met = first / 2..self.windows.now().div_ceil(2);
        if met.is_empty() {
            return;
        }
        let took = since.elapsed();
        for window in met {
            let slowest = &mut self.slowest[window][client];
            *slowest = took.max(*slowest);
        }
    }

    /// The slowest operation of each client in a window, in nanoseconds.
    pub(crate) fn of(&self, window: usize) -> Histogram<u64> {
        let mut nanoseconds = histogram();
        for took in self.slowest[window].iter().filter(|took| !took.is_zero()) {
            nanoseconds.saturating_record(took.as_nanos() as u64);
        }
        nanoseconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_counts_in_the_windows_that_are_open_while_it_is_in_flight() {
        let windows = Windows::default();
        let mut met = Met::new(windows.clone(), 4, 2);
        let counts = |met: &Met| [met.of(0).len(), met.of(1).len()];
        for client in 0..4 {
            met.invoked(client);
        }
        met.returned(0);
        assert_eq!(counts(&met), [0, 0], "client 0: before the first window");
        windows.open();
        met.returned(1);
        met.invoked(1);
        assert_eq!(counts(&met), [1, 0], "client 1: into the window");
        windows.close();
        met.returned(1);
        met.returned(2);
        assert_eq!(counts(&met), [2, 0], "client 1: out of it; client 2: across it");
        met.invoked(2);
        met.returned(2);
        assert_eq!(counts(&met), [2, 0], "client 2: between windows");
        windows.open();
        windows.close();
        met.returned(3);
        assert_eq!(counts(&met), [3, 1], "client 3: across both");
    }
}
