//! Records, of which a history has a part of each field.
//!
//! A value that is as long as the tokens of all fields is a record, whose length is that of all fields, or what stands
//! there and no record: a length that is told may say which. What is no record, and what is made of one by anything but
//! setting a field, is not known. Of its length is known what it is at least.

use super::{Misfit, State, Value};
use crate::history::RecordHeader;

impl State<'_> {
    /// How long the value is, if it is no record, and if it is one; `None` if that is not known.
    fn lengths(&self, key: u32, record: RecordHeader) -> Option<[usize; 2]> {
        let tokens = record.fields * record.token_bytes;
        match &self.slots[key as usize].value {
            Value::Absent => Some([0, 0]),
            Value::Bytes { bytes, .. } if bytes.len() == tokens => {
                Some([tokens, record.fields * record.field_bytes])
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
        let end = field.saturating_add(1).saturating_mul(record.field_bytes);
        let now = self.lengths(key, record).map(|both| both.map(|it| it.max(end)));
        // What is missing before it is zero bytes, also of the tokens. If both lengths are that of a record, it is one
        // from here on only if it was one, or nothing, before.
        let is_record = match now {
            Some([raw, _]) if raw == whole => {
                matches!(self.slots[key as usize].value, Value::Absent)
            }
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
