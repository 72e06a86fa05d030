//! Records, of which a history has a part of each field.
//!
//! A value that has the tokens of all fields is a record, and its length is that of all fields. What is no record, and
//! what is made of one by anything but setting a field, is not known. Of its length is known what it is at least.

use super::{Misfit, State, Value};
use crate::history::RecordHeader;

impl State<'_> {
    /// How long the value is; `None` if that is not known.
    fn length(&self, key: u32, record: RecordHeader) -> Option<usize> {
        match &self.slots[key as usize].value {
            Value::Absent => Some(0),
            Value::Bytes { bytes, .. } if bytes.len() == record.fields * record.token_bytes => {
                Some(record.fields * record.field_bytes)
            }
            _ => None,
        }
    }

    pub(super) fn append_to_record(
        &mut self,
        key: u32,
        record: RecordHeader,
        more: usize,
        told: Option<u64>,
    ) -> Result<(), Misfit> {
        let now = self.length(key, record).map(|length| length.saturating_add(more));
        self.blur(key);
        Self::fits_length(now, more, told)
    }

    /// Bytes before `end` are overwritten.
    pub(super) fn overwrite_record(
        &mut self,
        key: u32,
        record: RecordHeader,
        end: usize,
        told: Option<u64>,
    ) -> Result<(), Misfit> {
        let now = self.length(key, record).map(|length| length.max(end));
        self.blur(key);
        Self::fits_length(now, end, told)
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
        let now = self.length(key, record).map(|length| length.max(end));
        // What is missing before it is zero bytes, also of the tokens.
        if now == Some(whole) && end <= whole {
            self.overwrite(key, field * record.token_bytes, token);
        } else {
            self.blur(key);
        }
        Self::fits_length(now, end, told)
    }
}
