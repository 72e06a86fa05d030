//! A pool of empty buffers, so that the steady state allocates nothing.

/// Buffers that the pool keeps at most.
const BUFFERS_MAX: usize = 1 << 10;

pub(crate) struct Buffers {
    empty: Vec<Vec<u8>>,
    /// A buffer with a larger capacity is freed instead of kept.
    bytes_max: usize,
}

impl Buffers {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { empty: Vec::new(), bytes_max }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.empty.pop().unwrap_or_default()
    }

    /// A buffer that holds a copy of `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Returns a buffer to the pool.
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= self.bytes_max && self.empty.len() < BUFFERS_MAX {
            buffer.clear();
            self.empty.push(buffer);
        }
    }
}
