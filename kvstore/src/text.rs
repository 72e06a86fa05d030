//! Debug output of commands and replies: keys and values are [shown](show) as text, truncated if long, instead of as
//! lists of numbers.

use std::fmt::{Debug, Formatter, Result};

use crate::command::{Guard, Operation, Test, Transaction};
use crate::reply::{Outcome, Page, Reply, show};

struct Shown<'a>(&'a [u8]);

impl Debug for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(&show(self.0))
    }
}

fn shown<B: AsRef<[u8]>>(bytes: &B) -> Shown<'_> {
    Shown(bytes.as_ref())
}

impl<B: AsRef<[u8]>> Debug for Transaction<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Transaction")
            .field("guards", &self.guards)
            .field("then", &self.then)
            .field("otherwise", &self.otherwise)
            .finish()
    }
}

impl<B: AsRef<[u8]>> Debug for Guard<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.debug_struct("Guard").field("key", &shown(&self.key)).field("test", &self.test).finish()
    }
}

impl<B: AsRef<[u8]>> Debug for Test<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Exists => f.write_str("Exists"),
            Self::Missing => f.write_str("Missing"),
            Self::Equals(value) => f.debug_tuple("Equals").field(&shown(value)).finish(),
            Self::Version(version) => f.debug_tuple("Version").field(version).finish(),
            Self::Number { compare, number } => {
                let mut it = f.debug_struct("Number");
                it.field("compare", compare).field("number", number).finish()
            }
            Self::Unchanged { end, held } => {
                let mut it = f.debug_struct("Unchanged");
                it.field("end", &end.as_ref().map(shown)).field("held", held).finish()
            }
        }
    }
}

impl<B: AsRef<[u8]>> Debug for Operation<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (name, key) = match self {
            Self::Get { key } => ("Get", key),
            Self::Exists { key } => ("Exists", key),
            Self::Put { key, .. } => ("Put", key),
            Self::Delete { key } => ("Delete", key),
            Self::Append { key, .. } => ("Append", key),
            Self::Increment { key, .. } => ("Increment", key),
            Self::Patch { key, .. } => ("Patch", key),
            Self::Scan { start, end, limit } => {
                let mut it = f.debug_struct("Scan");
                it.field("start", &shown(start)).field("end", &end.as_ref().map(shown));
                return it.field("limit", limit).finish();
            }
        };
        let mut it = f.debug_struct(name);
        it.field("key", &shown(key));
        match self {
            Self::Put { value, .. } | Self::Append { value, .. } => {
                it.field("value", &shown(value));
            }
            Self::Increment { by, .. } => {
                it.field("by", by);
            }
            Self::Patch { offset, bytes, .. } => {
                it.field("offset", offset).field("bytes", &shown(bytes));
            }
            Self::Get { .. } | Self::Exists { .. } | Self::Delete { .. } | Self::Scan { .. } => {}
        }
        it.finish()
    }
}

impl<B: AsRef<[u8]>> Debug for Reply<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut it = f.debug_struct("Reply");
        it.field("held", &self.held).field("outcomes", &self.outcomes).finish()
    }
}

impl<B: AsRef<[u8]>> Debug for Outcome<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Value(value) => {
                let value = value.as_ref().map(|(value, version)| (shown(value), version));
                f.debug_tuple("Value").field(&value).finish()
            }
            Self::Flag(flag) => f.debug_tuple("Flag").field(flag).finish(),
            Self::Written(version) => f.debug_tuple("Written").field(version).finish(),
            Self::Length(length) => f.debug_tuple("Length").field(length).finish(),
            Self::Number(number) => f.debug_tuple("Number").field(number).finish(),
            Self::Page(page) => f.debug_tuple("Page").field(page).finish(),
        }
    }
}

impl<B: AsRef<[u8]>> Debug for Page<B> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let pairs: Vec<_> =
            self.pairs.iter().map(|(key, value)| (shown(key), shown(value))).collect();
        let mut it = f.debug_struct("Page");
        it.field("pairs", &pairs).field("next", &self.next.as_ref().map(shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Bytes;

    #[test]
    fn keys_and_values_are_text_where_they_are_and_never_long() {
        let put = Operation::Put { key: b"ap".to_vec(), value: vec![0, 255] };
        assert_eq!(format!("{put:?}"), r#"Put { key: "ap", value: 0x00ff }"#);
        let get = Operation::Get { key: Bytes(b"ap") };
        assert_eq!(format!("{get:?}"), r#"Get { key: "ap" }"#);
        let command = Transaction::of(put).guard("g", Test::Equals(b"v".to_vec()));
        assert_eq!(
            format!("{command:?}"),
            r#"Transaction { guards: [Guard { key: "g", test: Equals("v") }], then: [Put { key: "ap", value: 0x00ff }], otherwise: [] }"#
        );
        let page = Page { pairs: vec![(b"a".to_vec(), b"1".to_vec())], next: Some(b"b".to_vec()) };
        let reply = Reply { held: true, outcomes: vec![Outcome::Page(page)] };
        assert_eq!(
            format!("{reply:?}"),
            r#"Reply { held: true, outcomes: [Page(Page { pairs: [("a", "1")], next: Some("b") })] }"#
        );
        for long in [vec![b'x'; 100_000], vec![0; 100_000]] {
            let value = Outcome::Value(Some((long, 7)));
            assert!(format!("{value:?}").len() < 100, "{value:?}");
        }
    }
}
