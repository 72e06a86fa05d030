//! How long to wait before something is asked again of which nothing came.

/// How often a wait is doubled at most: where others are slow to read, questions that come faster than they are
/// answered would keep everything else from its place.
const DOUBLINGS_MAX: u32 = 4;

/// How long to wait before a question is asked again that was asked so many times.
pub fn longer(timeout_ms: u64, asked: u32) -> u64 {
    timeout_ms << asked.min(DOUBLINGS_MAX)
}
