//! Buffers that are empty again, for what comes next: the steady state allocates nothing.

/// The most that are kept.
const BUFFERS_MAX: usize = 1 << 10;

pub(crate) struct Buffers {
    empty: Vec<Vec<u8>>,
    /// One that has grown beyond this is not kept.
    bytes_max: usize,
}

impl Buffers {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { empty: Vec::new(), bytes_max }
    }

    /// A buffer with nothing in it.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.empty.pop().unwrap_or_default()
    }

    /// A buffer with these bytes in it.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut buffer = self.take();
        buffer.extend_from_slice(bytes);
        buffer
    }

    /// Nobody needs what is in it any more.
    pub(crate) fn keep(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= self.bytes_max && self.empty.len() < BUFFERS_MAX {
            buffer.clear();
            self.empty.push(buffer);
        }
    }
}
