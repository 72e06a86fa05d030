//! Records, of whose fields a history holds only tokens.
//!
//! A value that is as long as the tokens of all fields is a record, and its real length is that of
//! all fields. If the history shows that its key has held a value that is not a record, the value
//! may also stand for itself, and a returned length may decide. Conditions on numbers and
//! increments concern the whole value, of which the history holds only the tokens: its number is
//! not known. A value that is not a record, or that is made from a record other than by setting a
//! field, is not known; only a lower bound of its length is.

use super::super::scripts::{Deed, Scripts};
use super::{Misfit, State, Value};
use crate::history::RecordHeader;

/// Longest value that the store parses as a number.
const NUMBER_BYTES_MAX: usize = 64;

/// For each key, whether its value may have been no record at some time: a value of another length
/// than that of the tokens is put; it is appended to, incremented or overwritten; setting a field
/// returns another length than that of a record; or setting a field, with an unknown length, may
/// make a value as long as the tokens where there was none.
pub(super) fn raw_keys(scripts: &Scripts, record: RecordHeader, keys: usize) -> Vec<bool> {
    let (tokens, whole) = (record.tokens_len(), record.whole_len());
    let mut raw = vec![false; keys];
    for deed in &scripts.deeds {
        let (key, is_raw) = match *deed {
            Deed::Put { key, value, .. } => (key, scripts.text(value).len() != tokens),
            Deed::Append { key, .. } | Deed::Overwrite { key, .. } | Deed::Incr { key, .. } => {
                (key, true)
            }
            Deed::Field { key, field, length, .. } => {
                let end = record.end_of(field as usize);
                let is_raw = length.map_or(end == tokens && tokens != whole, |length| {
                    length != whole.max(end) as u64
                });
                (key, is_raw)
            }
            Deed::Get { .. } | Deed::Delete { .. } | Deed::Exists { .. } | Deed::Scan { .. } => {
                continue;
            }
        };
        raw[key as usize] |= is_raw;
    }
    raw
}

impl State<'_> {
    /// Whether a value may become unknown, though present.
    pub(in crate::check) fn may_blur(&self) -> bool {
        let Some(record) = self.record else { return false };
        // A field behind the last one makes a value of which only a part was written.
        let blurs = |deed: &Deed| match *deed {
            Deed::Field { field, length, .. } => {
                length.is_none() || record.end_of(field as usize) > record.whole_len()
            }
            _ => false,
        };
        self.raw.contains(&true) || self.scripts.deeds.iter().any(blurs)
    }

    /// Whether a value may be a record of which the history holds only the tokens, so that its
    /// number is not known. No number is longer than [`NUMBER_BYTES_MAX`].
    pub(super) fn hides_number(&self, value: &[u8]) -> bool {
        let Some(record) = self.record else { return false };
        let (tokens, whole) = (record.tokens_len(), record.whole_len());
        let is_alike = value.len() == tokens && tokens != whole;
        is_alike && (whole <= NUMBER_BYTES_MAX || super::number(value).is_some())
    }

    /// Length of the value if it is not a record, and if it is one; `None` if neither is known.
    fn lengths(&self, key: u32, record: RecordHeader) -> Option<[usize; 2]> {
        let (tokens, whole) = (record.tokens_len(), record.whole_len());
        match &self.slots[key as usize].value {
            Value::Absent => Some([0, 0]),
            Value::Bytes { bytes, .. } if bytes.len() == tokens => {
                Some([if self.raw[key as usize] { tokens } else { whole }, whole])
            }
            _ => None,
        }
    }

    /// Applies a change other than a field: `longer` maps the old length to the new one, which is
    /// at least `least` bytes.
    pub(super) fn change_record(
        &mut self,
        key: u32,
        record: RecordHeader,
        longer: impl Fn(usize) -> usize,
        least: usize,
        told: Option<u64>,
    ) -> Result<(), Misfit> {
        let now = self.lengths(key, record).map(|both| both.map(longer));
        self.blur(key);
        Self::fits_length(now, least, told)
    }

    /// Sets a field.
    pub(super) fn field(
        &mut self,
        key: u32,
        field: usize,
        token: &[u8],
        told: Option<u64>,
    ) -> Result<(), Misfit> {
        let Some(record) = self.record else {
            self.blur(key); // The history has no fields.
            return Ok(());
        };
        let whole = record.whole_len();
        let end = record.end_of(field);
        let now = self.lengths(key, record).map(|both| both.map(|it| it.max(end)));
        // The store fills a gap before the field with zero bytes, and so do the tokens. If both
        // lengths are that of a record, the returned length does not say whether the value was one.
        let may_be_raw = self.raw[key as usize] && self.slots[key as usize].value != Value::Absent;
        let is_record = match now {
            Some([raw, length]) if raw == length => length == whole && !may_be_raw,
            Some([_, length]) => length == whole && told == Some(whole as u64),
            None => false,
        };
        if is_record && end <= whole {
            self.overwrite(key, field * record.token_bytes, token);
        } else {
            self.blur(key);
        }
        Self::fits_length(now, end, told)
    }
}
