//! How long the last flushes took.

use std::time::Duration;

/// The last flushes, in a ring.
#[derive(Debug)]
pub(super) struct Latencies {
    micros: [u32; Self::KEPT],
    /// Flushes ever noted.
    count: u64,
}

impl Latencies {
    const KEPT: usize = 128;

    pub(super) fn new() -> Self {
        Self { micros: [0; Self::KEPT], count: 0 }
    }

    pub(super) fn note(&mut self, took: Duration) {
        let at = self.count as usize % Self::KEPT;
        self.micros[at] = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.count += 1;
    }

    pub(super) fn report(&self) -> FlushTimes {
        let kept = (self.count as usize).min(Self::KEPT);
        if kept == 0 {
            return FlushTimes::default();
        }
        let mut sorted = self.micros;
        sorted[..kept].sort_unstable();
        let at = |percent: usize| duration(sorted[(kept * percent / 100).min(kept - 1)]);
        let last = duration(self.micros[(self.count as usize - 1) % Self::KEPT]);
        FlushTimes { count: self.count, last, median: at(50), p99: at(99) }
    }
}

fn duration(micros: u32) -> Duration {
    Duration::from_micros(micros.into())
}

/// How long flushes took: median and p99 of the last 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushTimes {
    /// Flushes since the start.
    pub count: u64,
    pub last: Duration,
    pub median: Duration,
    pub p99: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_last_flushes() {
        let mut latencies = Latencies::new();
        assert_eq!(latencies.report(), FlushTimes::default());
        for micros in 0..1000 {
            latencies.note(Duration::from_micros(micros));
        }
        let report = latencies.report();
        assert_eq!((report.count, report.last.as_micros()), (1000, 999));
        assert_eq!((report.median.as_micros(), report.p99.as_micros()), (936, 998));
    }
}
