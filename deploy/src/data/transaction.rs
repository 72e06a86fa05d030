//! The JSON form of a transaction: docs/txn.md.
//!
//! Errors name their place, as in `then[1].by: …`. The parser is strict: unknown, missing and
//! repeated fields are errors.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use skein_client::{Compare, Guard, KeyRange, Operation, Test, Transaction};

use super::bytes::from_hex;

/// Limit of a scan that names none.
const SCAN_LIMIT: u32 = 1_000;

/// A transaction from its JSON form, or the error and its place.
pub(crate) fn parse(text: &str) -> Result<Transaction, String> {
    let node: Node = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut fields = Fields::of("the transaction", String::new(), node)?;
    let list = |fields: &mut Fields, name| match fields.take(name) {
        Some((at, Node::List(nodes))) => Ok(nodes
            .into_iter()
            .enumerate()
            .map(|(i, node)| (format!("{at}[{i}]"), node))
            .collect::<Vec<_>>()),
        Some((at, other)) => Err(format!("{at}: {} is not a list", other.kind())),
        None => Ok(Vec::new()),
    };
    let guards = list(&mut fields, "guards")?;
    let then = list(&mut fields, "then")?;
    let otherwise = list(&mut fields, "else")?;
    fields.no_more(&["guards", "then", "else"])?;
    let operations = |nodes: Vec<(String, Node)>| {
        nodes.into_iter().map(|(at, node)| operation(at, node)).collect::<Result<_, String>>()
    };
    Ok(Transaction {
        guards: guards.into_iter().map(|(at, node)| guard(at, node)).collect::<Result<_, _>>()?,
        then: operations(then)?,
        otherwise: operations(otherwise)?,
    })
}

const TESTS: [&str; 8] =
    ["exists", "equals", "version", "less", "at_most", "equal", "at_least", "greater"];

fn guard(at: String, node: Node) -> Result<Guard, String> {
    let mut fields = Fields::of("a guard", at, node)?;
    let key = fields.bytes("key")?;
    let name = fields.only_one("a guard", &TESTS)?;
    let number = |fields: &mut Fields, compare| {
        fields.integer(name).map(|number| Test::Number { compare, number })
    };
    let test = match name {
        "exists" if fields.truth(name)? => Test::Exists,
        "exists" => Test::Missing,
        "equals" => Test::Equals(fields.bytes(name)?),
        "version" => Test::Version(fields.natural(name)?),
        "less" => number(&mut fields, Compare::Less)?,
        "at_most" => number(&mut fields, Compare::AtMost)?,
        "equal" => number(&mut fields, Compare::Equal)?,
        "at_least" => number(&mut fields, Compare::AtLeast)?,
        _ => number(&mut fields, Compare::Greater)?,
    };
    fields.no_more(&["key", name])?;
    Ok(Guard { key, test })
}

const OPERATIONS: [&str; 8] =
    ["get", "exists", "put", "delete", "append", "increment", "patch", "scan"];

fn operation(at: String, node: Node) -> Result<Operation, String> {
    let mut fields = Fields::of("an operation", at, node)?;
    let name = fields.only_one("an operation", &OPERATIONS)?;
    if name == "scan" {
        let (at, node) = fields.take(name).expect("it is the one that is there");
        fields.no_more(&[name])?;
        return scan(at, node);
    }
    let key = fields.bytes(name)?;
    let (operation, others): (_, &[&str]) = match name {
        "get" => (Operation::Get { key }, &[]),
        "exists" => (Operation::Exists { key }, &[]),
        "delete" => (Operation::Delete { key }, &[]),
        "put" => (Operation::Put { key, value: fields.bytes("value")? }, &["value"]),
        "append" => (Operation::Append { key, value: fields.bytes("value")? }, &["value"]),
        "increment" => {
            let by = if fields.has("by") { fields.integer("by")? } else { 1 };
            (Operation::Increment { key, by }, &["by"])
        }
        _ => {
            let (offset, bytes) = (fields.small("offset")?, fields.bytes("bytes")?);
            (Operation::Patch { key, offset, bytes }, &["offset", "bytes"])
        }
    };
    fields.no_more(&[&[name], others].concat())?;
    Ok(operation)
}

fn scan(at: String, node: Node) -> Result<Operation, String> {
    let mut fields = Fields::of("a scan", at, node)?;
    let mut given = |name| fields.has(name).then(|| fields.bytes(name)).transpose();
    let (prefix, start, end) = (given("prefix")?, given("start")?, given("end")?);
    let range = match (prefix, start, end) {
        (Some(prefix), None, None) => KeyRange::prefix(prefix),
        (Some(_), ..) => {
            return Err(format!("{}: prefix stands alone, without start and end", fields.at));
        }
        (None, start, end) => KeyRange { start: start.unwrap_or_default(), end },
    };
    let limit = if fields.has("limit") { fields.small("limit")? } else { SCAN_LIMIT };
    fields.no_more(&["prefix", "start", "end", "limit"])?;
    Ok(Operation::Scan { start: range.start, end: range.end, limit })
}

/// The fields of an object that are not yet consumed.
struct Fields {
    at: String,
    fields: Vec<(String, Node)>,
}

impl Fields {
    fn of(what: &str, at: String, node: Node) -> Result<Self, String> {
        match node {
            Node::Object(fields) => Ok(Self { at, fields }),
            other if at.is_empty() => Err(format!("{what} is {}, not an object", other.kind())),
            other => Err(format!("{at}: {what} is an object, and this is {}", other.kind())),
        }
    }

    fn place(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|(field, _)| field == name)
    }

    fn take(&mut self, name: &str) -> Option<(String, Node)> {
        let at = self.fields.iter().position(|(field, _)| field == name)?;
        Some((self.place(name), self.fields.swap_remove(at).1))
    }

    /// The one field of `names` that is present.
    fn only_one(&self, what: &str, names: &[&'static str]) -> Result<&'static str, String> {
        let mut there = names.iter().filter(|name| self.has(name));
        match (there.next(), there.next()) {
            (Some(name), None) => Ok(name),
            (Some(first), Some(second)) => Err(format!(
                "{}: both \"{first}\" and \"{second}\": {what} has one of them",
                self.at
            )),
            (None, _) => Err(match self.fields.first() {
                Some((name, _)) => self.unknown(name, names),
                None => format!("{}: {what} has one of {}", self.at, list(names)),
            }),
        }
    }

    fn no_more(&self, known: &[&str]) -> Result<(), String> {
        self.fields.first().map_or(Ok(()), |(name, _)| Err(self.unknown(name, known)))
    }

    fn unknown(&self, name: &str, known: &[&str]) -> String {
        format!("{}: unknown here; known are {}", self.place(name), list(known))
    }

    fn needed<T>(
        &mut self,
        name: &str,
        what: &str,
        from: impl FnOnce(Node) -> Result<T, Node>,
    ) -> Result<T, String> {
        let Some((at, node)) = self.take(name) else {
            let others: Vec<_> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
            let instead = match &others[..] {
                [] => String::new(),
                others => format!(", and here stands {} instead", list(others)),
            };
            return Err(format!("{}: missing; it is {what}{instead}", self.place(name)));
        };
        from(node).map_err(|node| format!("{at}: {what}, and this is {}", node.kind()))
    }

    fn bytes(&mut self, name: &str) -> Result<Vec<u8>, String> {
        match self.needed(name, "text or {\"hex\": \"00ff\"}", |node| match node {
            Node::Text(text) => Ok((text.into_bytes(), None)),
            Node::Object(fields) => Ok((Vec::new(), Some(fields))),
            other => Err(other),
        })? {
            (bytes, None) => Ok(bytes),
            (_, Some(fields)) => {
                let mut object = Self { at: self.place(name), fields };
                let digits =
                    object.needed("hex", "text of hexadecimal digits", |node| match node {
                        Node::Text(text) => Ok(text),
                        other => Err(other),
                    })?;
                object.no_more(&["hex"])?;
                from_hex(digits.as_bytes()).map_err(|why| format!("{}: {why}", object.place("hex")))
            }
        }
    }

    fn truth(&mut self, name: &str) -> Result<bool, String> {
        self.needed(name, "true or false", |node| match node {
            Node::Truth(truth) => Ok(truth),
            other => Err(other),
        })
    }

    fn integer(&mut self, name: &str) -> Result<i64, String> {
        self.needed(name, "a 64-bit integer", |node| match node {
            Node::Integer(number) => i64::try_from(number).map_err(|_| Node::Integer(number)),
            other => Err(other),
        })
    }

    fn natural(&mut self, name: &str) -> Result<u64, String> {
        self.needed(name, "a whole number of 64 bits", |node| match node {
            Node::Integer(number) => u64::try_from(number).map_err(|_| Node::Integer(number)),
            other => Err(other),
        })
    }

    fn small(&mut self, name: &str) -> Result<u32, String> {
        self.needed(name, "a whole number of 32 bits", |node| match node {
            Node::Integer(number) => u32::try_from(number).map_err(|_| Node::Integer(number)),
            other => Err(other),
        })
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

/// JSON in which no field is repeated and every number is an integer.
enum Node {
    Null,
    Truth(bool),
    Integer(i128),
    Text(String),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl Node {
    fn kind(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Truth(truth) => truth.to_string(),
            Self::Integer(number) => number.to_string(),
            Self::Text(_) => "text".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Object(_) => "an object".to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON with whole numbers")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Node, E> {
        Ok(Node::Truth(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Integer(number.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(node) = nodes.next_element()? {
            list.push(node);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Node, A::Error> {
        let mut object: Vec<(String, Node)> = Vec::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.iter().any(|(known, _)| *known == name) {
                return Err(A::Error::custom(format!("\"{name}\" stands here twice")));
            }
            object.push((name, fields.next_value()?));
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_form_is_read() {
        let text = r#"{
            "guards": [
                {"key": "a", "exists": true}, {"key": "b", "exists": false},
                {"key": "c", "equals": "x"}, {"key": {"hex": "00ff"}, "version": 12},
                {"key": "d", "at_least": 30}, {"key": "d", "less": -1}
            ],
            "then": [
                {"get": "a"}, {"exists": "a"}, {"put": "a", "value": {"hex": ""}}, {"delete": "a"},
                {"append": "a", "value": "x"}, {"increment": "d"}, {"increment": "d", "by": -30},
                {"patch": "a", "offset": 3, "bytes": "x"},
                {"scan": {"prefix": "a", "limit": 10}}
            ],
            "else": [{"scan": {"start": "a"}}]
        }"#;
        let number = |compare, number| Test::Number { compare, number };
        let key = || b"a".to_vec();
        let expected = Transaction::default()
            .guard("a", Test::Exists)
            .guard("b", Test::Missing)
            .guard("c", Test::Equals(b"x".to_vec()))
            .guard(vec![0, 0xff], Test::Version(12))
            .guard("d", number(Compare::AtLeast, 30))
            .guard("d", number(Compare::Less, -1))
            .then(Operation::Get { key: key() })
            .then(Operation::Exists { key: key() })
            .then(Operation::Put { key: key(), value: vec![] })
            .then(Operation::Delete { key: key() })
            .then(Operation::Append { key: key(), value: b"x".to_vec() })
            .then(Operation::Increment { key: b"d".to_vec(), by: 1 })
            .then(Operation::Increment { key: b"d".to_vec(), by: -30 })
            .then(Operation::Patch { key: key(), offset: 3, bytes: b"x".to_vec() })
            .then(Operation::Scan { start: key(), end: Some(b"b".to_vec()), limit: 10 })
            .otherwise(Operation::Scan { start: key(), end: None, limit: SCAN_LIMIT });
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse("{}"), Ok(Transaction::default()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        #[rustfmt::skip]
        let cases = [
            ("",                                       "line 1"),
            ("[]",                                     "the transaction is a list, not an object"),
            (r#"{"then": [{"get": "a"},]}"#,           "line 1 column 24"),
            (r#"{"than": []}"#,                        "than: unknown here; known are \"guards\", \"then\", \"else\""),
            (r#"{"then": {}}"#,                        "then: an object is not a list"),
            (r#"{"then": [{"get": "a"}, 7]}"#,         "then[1]: an operation is an object, and this is 7"),
            (r#"{"then": [{"fetch": "a"}]}"#,          "then[0].fetch: unknown here; known are \"get\""),
            (r#"{"then": [{}]}"#,                      "then[0]: an operation has one of \"get\""),
            (r#"{"then": [{"get": "a", "put": "b"}]}"#, "then[0]: both \"get\" and \"put\""),
            (r#"{"then": [{"put": "a"}]}"#,            "then[0].value: missing"),
            (r#"{"then": [{"put": "a", "valeu": "b"}]}"#, "here stands \"valeu\" instead"),
            (r#"{"then": [{"get": "a", "by": 1}]}"#,   "then[0].by: unknown here; known are \"get\""),
            (r#"{"then": [{"get": "a", "get": "b"}]}"#, "\"get\" stands here twice"),
            (r#"{"then": [{"increment": "a", "by": "1"}]}"#, "then[0].by: a 64-bit integer, and this is text"),
            (r#"{"then": [{"increment": "a", "by": 1.5}]}"#, "whole numbers"),
            (r#"{"then": [{"increment": "a", "by": 9223372036854775808}]}"#, "then[0].by: a 64-bit integer, and this is 9223372036854775808"),
            (r#"{"else": [{"get": {"hex": "0"}}]}"#,   "else[0].get.hex: 1 digits"),
            (r#"{"else": [{"get": {"hax": "0"}}]}"#,   "else[0].get.hex: missing"),
            (r#"{"else": [{"get": null}]}"#,           "else[0].get: text or {\"hex\": \"00ff\"}, and this is null"),
            (r#"{"guards": [{"key": "a"}]}"#,          "guards[0]: a guard has one of \"exists\""),
            (r#"{"guards": [{"exists": true}]}"#,      "guards[0].key: missing"),
            (r#"{"guards": [{"key": "a", "version": -1}]}"#, "guards[0].version: a whole number"),
            (r#"{"then": [{"scan": {"prefix": "a", "end": "b"}}]}"#, "then[0].scan: prefix stands alone"),
            (r#"{"then": [{"scan": {"limit": -1}}]}"#, "then[0].scan.limit: a whole number"),
        ];
        for (text, error) in cases {
            let got = parse(text).unwrap_err();
            assert!(got.contains(error), "{text}\n  {got}\n  {error}");
        }
    }

    #[test]
    fn depth_is_no_way_to_crash() {
        assert!(parse(&"[".repeat(1 << 20)).is_err());
    }
}
