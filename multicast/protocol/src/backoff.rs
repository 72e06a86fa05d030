//! Exponential backoff of repeated requests.

/// Bound on the doublings of a wait. Backoff is needed because requests that are sent faster than the receivers answer
/// would fill the rings.
const DOUBLINGS_MAX: u32 = 4;

/// Time until a request is repeated that was already sent `asked` times.
pub fn longer(timeout_ms: u64, asked: u32) -> u64 {
    timeout_ms << asked.min(DOUBLINGS_MAX)
}
