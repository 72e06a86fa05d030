//! Values that are numbers: decimal text of 64 bits.

use crate::reply::Refusal;

/// A longer text is no number, and not looked at, however many zeros it begins with.
const NUMBER_BYTES_MAX: usize = 64;

/// A 64-bit integer as text: an optional minus, then digits, nothing else; 64 bytes at most.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    match text.first()? {
        _ if text.len() > NUMBER_BYTES_MAX => None,
        b'-' | b'0'..=b'9' => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The number that `by` more than `value` is, the value of `key`; absent counts as 0.
pub fn add(key: &[u8], value: Option<&[u8]>, by: i64) -> Result<i64, Refusal> {
    let number =
        value.map_or(Some(0), integer).ok_or_else(|| Refusal::NotANumber { key: key.to_vec() })?;
    number.checked_add(by).ok_or_else(|| Refusal::Overflow { key: key.to_vec() })
}
