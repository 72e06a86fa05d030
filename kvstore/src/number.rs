//! Numeric values: 64-bit integers as decimal text.

use crate::reply::Refusal;

/// A longer text is not a number and is not parsed, however many zeros it begins with.
const NUMBER_BYTES_MAX: usize = 64;

/// Parses a 64-bit integer: an optional minus and digits, nothing else; 64 bytes at most.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    match text.first()? {
        _ if text.len() > NUMBER_BYTES_MAX => None,
        b'-' | b'0'..=b'9' => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Adds `by` to `value`, the value of `key`. An absent value counts as 0.
///
/// # Errors
/// [`Refusal::NotANumber`] if the value is not an integer, [`Refusal::Overflow`] if the sum does not fit 64 bits.
pub fn add(key: &[u8], value: Option<&[u8]>, by: i64) -> Result<i64, Refusal> {
    let number =
        value.map_or(Some(0), integer).ok_or_else(|| Refusal::NotANumber { key: key.to_vec() })?;
    number.checked_add(by).ok_or_else(|| Refusal::Overflow { key: key.to_vec() })
}
