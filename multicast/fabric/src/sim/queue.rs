//! A resource that serves one request at a time.

/// A FIFO queue with one server, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    free_at: u64,
    /// Sum of all service times.
    pub(super) busy: u64,
}

impl Queue {
    /// Serves a request that arrives at `at` and takes `takes`. Returns when it is served.
    pub(super) fn serve(&mut self, at: u64, takes: u64) -> u64 {
        self.free_at = self.free_at.max(at) + takes;
        self.busy += takes;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_while_the_queue_is_busy_and_no_longer() {
        let mut queue = Queue::default();
        assert_eq!(queue.serve(10, 5), 15);
        assert_eq!(queue.serve(12, 5), 20, "the one before is not done at 12");
        assert_eq!(queue.serve(100, 5), 105, "nobody is before it");
        assert_eq!(queue.busy, 15);
    }
}
