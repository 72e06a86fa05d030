//! Records, of which a history has a part of each field.
//!
//! A value that is as long as the tokens of all fields is a record, whose length is that of all fields. If anything
//! in the history says that its key has held what is no record, it may stand for itself as well, and a length that is
//! told may say which. What is no record, and what is made of one by anything but setting a field, is not known. Of its
//! length is known what it is at least.

use super::super::scripts::{Deed, Scripts};
use super::{Misfit, State, Value};
use crate::history::RecordHeader;

/// For each key, whether the history says that its value was not a record at some time: it is put so, appended to or
/// overwritten, or has another length after a field of it is set.
pub(super) fn raw_keys(scripts: &Scripts, record: RecordHeader, keys: usize) -> Vec<bool> {
    let (tokens, whole) = (record.fields * record.token_bytes, record.fields * record.field_bytes);
    let mut raw = vec![false; keys];
    for deed in &scripts.deeds {
        let (key, is_raw) = match *deed {
            Deed::Put { key, value, .. } => (key, scripts.text(value).len() != tokens),
            Deed::Append { key, .. } | Deed::Overwrite { key, .. } | Deed::Incr { key, .. } => {
                (key, true)
            }
            Deed::Field { key, field, length, .. } => {
                let longest = whole.max(record.end_of(field as usize));
                (key, length.is_some_and(|length| length != longest as u64))
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
    /// Whether it may come to be known of a value that there is one, and not which.
    pub(in crate::check) fn may_blur(&self) -> bool {
        let is_untold = |deed: &Deed| matches!(deed, Deed::Field { length: None, .. });
        self.raw.contains(&true)
            || self.record.is_some() && self.scripts.deeds.iter().any(is_untold)
    }

    /// How long the value is, if it is no record, and if it is one; `None` if that is not known.
    fn lengths(&self, key: u32, record: RecordHeader) -> Option<[usize; 2]> {
        let tokens = record.fields * record.token_bytes;
        let whole = record.fields * record.field_bytes;
        match &self.slots[key as usize].value {
            Value::Absent => Some([0, 0]),
            Value::Bytes { bytes, .. } if bytes.len() == tokens => {
                Some([if self.raw[key as usize] { tokens } else { whole }, whole])
            }
            _ => None,
        }
    }

    /// Anything but a field is changed, which makes `longer` of its length, and at least `least` bytes.
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

    /// A field is set.
    pub(super) fn field(
        &mut self,
        key: u32,
        field: usize,
        token: &[u8],
        told: Option<u64>,
    ) -> Result<(), Misfit> {
        let Some(record) = self.record else {
            self.blur(key); // It has no fields that the history tells of.
            return Ok(());
        };
        let whole = record.fields * record.field_bytes;
        let end = record.end_of(field);
        let now = self.lengths(key, record).map(|both| both.map(|it| it.max(end)));
        // The store fills a gap before the field with zero bytes, and so do the tokens. If both lengths are that of a
        // record, the told length does not say whether the value was one.
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
