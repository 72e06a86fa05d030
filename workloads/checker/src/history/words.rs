//! Conversion of the store's commands and results to the words of a history.
//!
//! Keys and values are bytes, and a history is text. Bytes that are valid UTF-8 are written as they
//! are. All others are written in hexadecimal behind a mark that no plain text begins with. So
//! different bytes have different texts, and every byte can be recovered.

use std::borrow::Cow;
use std::fmt::Write as _;

use skein_kvstore::command::{
    Compare, Guard as ClientGuard, Operation as ClientOperation, Test, Transaction,
};
use skein_kvstore::reply::Outcome;

use super::{Guard, Held, Invoke, Op, Out, Process, RecordHeader};

/// Prefix of hexadecimal digits.
const MARK: &str = "\0x";

impl Invoke {
    /// The invocation of `transaction` by process `p` at `t`. `record` is the layout of values that
    /// are records.
    pub fn of(
        t: u64,
        p: Process,
        transaction: &Transaction,
        record: Option<&RecordHeader>,
    ) -> Self {
        let ops = |branch: &[ClientOperation]| branch.iter().map(|one| op(one, record)).collect();
        Self {
            t,
            p,
            guards: transaction.guards.iter().map(|one| guard(one, record)).collect(),
            ops: ops(&transaction.then),
            otherwise: ops(&transaction.otherwise),
            stale: false,
        }
    }
}

fn guard(guard: &ClientGuard, record: Option<&RecordHeader>) -> Guard {
    let key = text(&guard.key);
    match &guard.test {
        Test::Exists => Guard::Exists(key),
        Test::Missing => Guard::Missing(key),
        Test::Equals(value) => Guard::Equals(key, short(value, record)),
        Test::Version(version) => Guard::Version(key, *version),
        Test::Number { compare, number } => match compare {
            Compare::Less => Guard::Less(key, *number),
            Compare::AtMost => Guard::AtMost(key, *number),
            Compare::Equal => Guard::Equal(key, *number),
            Compare::AtLeast => Guard::AtLeast(key, *number),
            Compare::Greater => Guard::Greater(key, *number),
        },
        Test::Unchanged { end, held } => {
            let held = held.iter().map(|held| Held {
                group: held.group,
                pairs: held.pairs,
                bytes: held.bytes,
                digest: format!("{:032x}", held.digest),
            });
            Guard::Unchanged(key, end.as_deref().map(text), held.collect())
        }
    }
}

fn op(operation: &ClientOperation, record: Option<&RecordHeader>) -> Op {
    match operation {
        ClientOperation::Get { key } => Op::Get(text(key)),
        ClientOperation::Append { key, value } => Op::Append(text(key), text(value)),
        ClientOperation::Put { key, value } => Op::Put(text(key), short(value, record)),
        ClientOperation::Delete { key } => Op::Delete(text(key)),
        ClientOperation::Increment { key, by } => Op::Incr(text(key), *by),
        ClientOperation::Exists { key } => Op::Exists(text(key)),
        ClientOperation::Scan { start, end, limit } => {
            Op::Scan(text(start), end.as_deref().map(text), *limit)
        }
        ClientOperation::Patch { key, offset, bytes } => match record {
            Some(record) if record.is_field(*offset, bytes) => {
                let field = *offset as usize / record.field_bytes;
                Op::Patch(text(key), field, text(record.token(bytes)))
            }
            _ => Op::Overwrite(text(key), *offset, text(bytes)),
        },
    }
}

impl RecordHeader {
    /// Whether `bytes` at `offset` are exactly one field.
    fn is_field(&self, offset: u32, bytes: &[u8]) -> bool {
        bytes.len() == self.field_bytes && (offset as usize).is_multiple_of(self.field_bytes)
    }

    /// The token of a field.
    fn token<'a>(&self, field: &'a [u8]) -> &'a [u8] {
        &field[self.token_at..self.token_at + self.token_bytes]
    }
}

pub(super) fn out(outcome: &Outcome, record: Option<&RecordHeader>) -> Out {
    match outcome {
        Outcome::Value(found) => {
            Out::Value(found.as_ref().map(|(value, version)| (short(value, record), *version)))
        }
        Outcome::Length(length) => Out::Length(*length),
        Outcome::Written(version) => Out::Version(*version),
        Outcome::Number(number) => Out::Number(*number),
        Outcome::Flag(flag) => Out::Flag(*flag),
        Outcome::Page(page) => {
            let pair = |(key, value): &(Vec<u8>, Vec<u8>)| (text(key), short(value, record));
            Out::Page(page.pairs.iter().map(pair).collect(), page.next.as_deref().map(text))
        }
    }
}

/// A value as a history holds it. A record is written as the tokens of its fields, any other value
/// as it is.
pub fn short(value: &[u8], record: Option<&RecordHeader>) -> String {
    let Some(record) = record.filter(|one| value.len() == one.whole_len()) else {
        return text(value);
    };
    let tokens: Vec<&[u8]> =
        value.chunks(record.field_bytes).map(|field| record.token(field)).collect();
    text(&tokens.concat())
}

/// Bytes as a history holds them.
pub fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with(MARK) => text.to_owned(),
        _ => bytes.iter().fold(MARK.to_owned(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    }
}

/// A message for people: encoded bytes in it are shown as hexadecimal digits after `0x`.
pub(crate) fn readable(said: &str) -> String {
    said.replace(MARK, "0x").replace('\0', "\\0")
}

/// The bytes that a history holds as `text`. A text with the mark but without valid digits stands
/// for itself.
pub fn bytes(text: &str) -> Cow<'_, [u8]> {
    let digits = text.strip_prefix(MARK).filter(|digits| digits.len().is_multiple_of(2));
    let Some(digits) = digits else { return Cow::Borrowed(text.as_bytes()) };
    let digit = |digit: &u8| char::from(*digit).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| Some(digit(&pair[0])? << 4 | digit(&pair[1])?);
    let decoded: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
    decoded.map_or(Cow::Borrowed(text.as_bytes()), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use skein_kvstore::range::RangeDigest;
    use skein_kvstore::reply::Page;

    use super::*;

    #[test]
    fn a_record_is_told_by_the_tokens_of_its_fields() {
        let record = RecordHeader { fields: 2, field_bytes: 5, token_at: 2, token_bytes: 2 };
        for (value, wanted) in [("ABt1xCDt2x", "t1t2"), ("ABt1x", "ABt1x"), ("ABt1xC", "ABt1xC")] {
            assert_eq!(short(value.as_bytes(), Some(&record)), wanted);
        }
        assert_eq!(short(b"ABt1x", None), "ABt1x");
    }

    #[test]
    fn no_two_are_written_alike_and_no_byte_is_lost() {
        let all: [&[u8]; 7] =
            [b"", b"x", b"\0x", b"\0x00", b"\xff", "ü".as_bytes(), "ü\0".as_bytes()];
        let mut texts: Vec<String> = all.iter().map(|bytes| text(bytes)).collect();
        for (bytes_of, text) in all.iter().zip(&texts) {
            assert_eq!(&*bytes(text), *bytes_of);
        }
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), all.len());
        assert_eq!(&*bytes("\0x0"), b"\0x0", "it was never written so");
        assert_eq!(&*bytes("\0xzz"), b"\0xzz", "nor was this");
    }

    #[test]
    fn every_command_of_the_store_has_a_word() {
        let key = || b"k\xff".to_vec();
        let value = || b"\xfev".to_vec();
        let number = |compare| Test::Number { compare, number: -1 };
        let held = vec![RangeDigest { group: 3, pairs: 1, bytes: 9, digest: 7 }];
        let tests = [
            Test::Exists,
            Test::Missing,
            Test::Equals(value()),
            Test::Version(u64::MAX),
            number(Compare::Less),
            number(Compare::AtMost),
            number(Compare::Equal),
            number(Compare::AtLeast),
            number(Compare::Greater),
            Test::Unchanged { end: Some(key()), held },
        ];
        let operations = vec![
            ClientOperation::Get { key: key() },
            ClientOperation::Exists { key: key() },
            ClientOperation::Put { key: key(), value: value() },
            ClientOperation::Delete { key: key() },
            ClientOperation::Append { key: key(), value: value() },
            ClientOperation::Increment { key: key(), by: i64::MIN },
            ClientOperation::Patch { key: key(), offset: u32::MAX, bytes: value() },
            ClientOperation::Scan { start: key(), end: None, limit: 1 },
        ];
        let page = Page { pairs: vec![(key(), value())], next: Some(key()) };
        let outcomes = [
            Outcome::Value(Some((value(), 1))),
            Outcome::Flag(true),
            Outcome::Written(2),
            Outcome::Flag(false),
            Outcome::Length(3),
            Outcome::Number(4),
            Outcome::Length(5),
            Outcome::Page(page),
        ];
        let transaction = Transaction {
            guards: tests.map(|test| ClientGuard { key: key(), test }).into(),
            then: operations.clone(),
            otherwise: operations,
        };
        let record = RecordHeader { fields: 2, field_bytes: 5, token_at: 2, token_bytes: 2 };
        for record in [None, Some(&record)] {
            let invoke = Invoke::of(1, 2, &transaction, record);
            let text = serde_json::to_string(&invoke).unwrap();
            assert_eq!(serde_json::from_str::<Invoke>(&text).unwrap(), invoke);
            assert_eq!((invoke.guards.len(), invoke.ops.len()), (10, 8));
            assert_eq!(invoke.ops, invoke.otherwise);
            let [guards, ops] = [
                invoke.guards.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>(),
                invoke.ops.iter().map(|one| format!("{one:?}")).collect(),
            ];
            for all in [guards, ops] {
                let mut forms: Vec<&str> =
                    all.iter().map(|one| one.split('(').next().unwrap()).collect();
                forms.sort_unstable();
                forms.dedup();
                assert_eq!(forms.len(), all.len(), "{all:?}");
            }
            for outcome in &outcomes {
                let out = out(outcome, record);
                let text = serde_json::to_string(&out).unwrap();
                assert_eq!(serde_json::from_str::<Out>(&text).unwrap(), out);
            }
        }
    }
}
