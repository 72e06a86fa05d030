//! Histories: what clients asked and were told, and what was done to the cluster meanwhile.
//!
//! A history is a file of JSON lines, one [`Record`] each, described in `docs/histories.md`. The
//! first line is the [header](Header); then come records as they happened, then what was found when
//! all was over. It is the whole evidence: [`verify`](crate::verify) looks at nothing else.
//!
//! **Invariant (nothing happened that was not recorded).** An invocation is recorded before the
//! operation is sent. A client that is killed leaves invocations without an end, never an effect
//! without an invocation.

mod coverage;
mod reader;
mod recorder;
mod words;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_kvstore::reply::Reply;
use skein_multicast::config::Topology;

pub use coverage::Coverage;
pub use reader::{ReadError, Reader};
pub use recorder::{Recorder, Scribe, line};
pub(crate) use words::readable;
pub use words::{bytes, short, text};

/// The version of the format.
pub const FORMAT: u32 = 3;
/// The oldest version that is read. Whatever it can say, the newer ones say in the same words.
pub const FORMAT_OLDEST: u32 = 2;

/// One at a time asks and is answered: the name of a client, until it does not know how an operation
/// ended. From then on it has another.
pub type Process = u64;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// What the history is of. The first line.
    Header(Box<Header>),
    /// A client asks.
    Invoke(Invoke),
    /// It was answered.
    Ok(Return),
    /// It was told that nothing was done, nor will be.
    Fail(Unanswered),
    /// It does not know whether something was done, or will be.
    Unknown(Unanswered),
    /// Something was done to the cluster, or seen of it.
    Fault(Fault),
    /// What stood at a key when all was over, read through the cluster.
    Final(Final),
    /// What a replica held when all was over, said by itself.
    Digest(Digest),
    /// Nothing follows: the history is whole.
    End(End),
}

/// What a history is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The workload's name.
    pub workload: String,
    /// The version of Skein, and its commit.
    pub skein: String,
    /// The cluster's shape.
    pub cluster: Topology,
    /// What all choices were drawn from.
    pub seed: u64,
    /// When the history began: nanoseconds of the machine's monotonic clock, as in all records.
    pub t: u64,
    /// The same moment, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Lists are written one after the other by so many bytes each.
    pub token_bytes: usize,
    /// Accounts between which money was moved.
    pub bank: Option<BankHeader>,
    /// What values that are records are made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordHeader>,
    /// Whether keys may have values from before the history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
}

impl Header {
    /// Why no history can begin with it.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let Err(conflict) = self.cluster.check() {
            return Some(format!("its cluster cannot be: {conflict}"));
        }
        if !(1..=TOKEN_BYTES_MAX).contains(&self.token_bytes) {
            let bytes = self.token_bytes;
            return Some(format!("token_bytes is {bytes}: tokens have 1 to {TOKEN_BYTES_MAX}"));
        }
        let record = self.record.filter(|record| !record.is_possible())?;
        Some(format!("no record has the fields that it says: {record:?}"))
    }
}

/// No token of a list has more bytes.
const TOKEN_BYTES_MAX: usize = 1 << 20;

impl RecordHeader {
    fn is_possible(&self) -> bool {
        let Self { fields, field_bytes, token_at, token_bytes } = *self;
        let within = token_at.checked_add(token_bytes).is_some_and(|end| end <= field_bytes);
        fields > 0 && token_bytes > 0 && within && fields.checked_mul(field_bytes).is_some()
    }

    /// Bytes of the tokens of all fields.
    pub(crate) fn tokens_len(self) -> usize {
        self.fields * self.token_bytes
    }

    /// Bytes of all fields.
    pub(crate) fn whole_len(self) -> usize {
        self.fields * self.field_bytes
    }

    /// The offset right behind the bytes of a field.
    pub(crate) fn end_of(self, field: usize) -> usize {
        field.saturating_add(1).saturating_mul(self.field_bytes)
    }
}

/// A record is so many fields, one after the other. In a history each stands for itself by a few bytes
/// of it, which nobody else writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHeader {
    /// How many fields there are.
    pub fields: usize,
    /// Bytes of each.
    pub field_bytes: usize,
    /// Where in it the bytes begin by which it is known.
    pub token_at: usize,
    /// How many they are.
    pub token_bytes: usize,
}

/// Accounts, and what they add up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankHeader {
    /// Their keys.
    pub accounts: Vec<String>,
    /// What each was opened with.
    pub opening: i64,
    /// Money is paid in and out, too: only what becomes of each account can be told, and no sum.
    #[serde(default)]
    pub open: bool,
}

/// What a client asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoke {
    /// When.
    pub t: u64,
    /// Who.
    pub p: Process,
    /// What must hold for anything to be done.
    #[serde(default, rename = "if", skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Guard>,
    /// What to do, all together and in this order.
    pub ops: Vec<Op>,
    /// What to do instead if a condition does not hold.
    #[serde(default, rename = "else", skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<Op>,
    /// It reads whatever some replica has, of any age, and each group's by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// The number at the key is this or more.
    AtLeast(String, i64),
    /// The key was last written at this version; 0 is "there is no value".
    Version(String, u64),
    /// The key has a value.
    Exists(String),
    /// The key has no value.
    Missing(String),
    /// The value of the key is this.
    Equals(String, String),
    /// The number at the key is less than this.
    Less(String, i64),
    /// The number at the key is this or less.
    AtMost(String, i64),
    /// The number at the key is this.
    Equal(String, i64),
    /// The number at the key is more than this.
    Greater(String, i64),
    /// The range from a key on, to before another if there is one, still holds what each of these groups
    /// held, and nothing in any other group.
    Unchanged(String, Option<String>, Vec<Held>),
}

/// What a group held of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// Its number.
    pub group: u16,
    /// How many pairs.
    pub pairs: u32,
    /// The bytes of their keys and values.
    pub bytes: u64,
    /// A hash of them, in hexadecimal (`RangeDigest` of the client).
    pub digest: String,
}

/// One thing to do. Keys and values are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Read the value of a key.
    Get(String),
    /// Add to the end of the value of a key.
    Append(String, String),
    /// Set the value of a key.
    Put(String, String),
    /// Add to the number at a key.
    Incr(String, i64),
    /// Overwrite a field of the record at a key: the field's number, and its token.
    Patch(String, usize, String),
    /// Overwrite bytes of the value of a key, from a byte on. What is missing before them is zero bytes.
    Overwrite(String, u32, String),
    /// Remove the value of a key.
    Delete(String),
    /// Whether a key has a value.
    Exists(String),
    /// Read a page: from a key on, to before another if there is one, and so many keys at most.
    Scan(String, Option<String>, u32),
}

/// How an operation was answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Return {
    /// When.
    pub t: u64,
    /// Who.
    pub p: Process,
    /// Whether the conditions held. If not, `otherwise` was done, and `out` is what that came to.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub held: bool,
    /// What each thing came to.
    pub out: Vec<Out>,
}

fn yes() -> bool {
    true
}

/// What one thing came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Out {
    /// Of a get: the value, and the version at which it was written.
    Value(Option<(String, u64)>),
    /// Of an append, a patch or an overwrite: the new length in bytes.
    Length(u64),
    /// Of a put: the new version.
    Version(u64),
    /// Of an incr: the new number.
    Number(i64),
    /// Of exists: whether there is a value. Of a delete: whether there was one.
    Flag(bool),
    /// Of a scan: keys and values, and where the next page begins, if there is more.
    Page(Vec<(String, String)>, Option<String>),
}

/// Why an operation was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unanswered {
    /// When the client was told.
    pub t: u64,
    /// Who.
    pub p: Process,
    /// Why.
    pub why: String,
}

/// Something that was done to the cluster, or seen of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// When.
    pub t: u64,
    /// What: `kill`, `stop`, `stutter`, `pause`, `continue`, `restart`, `transfer`, `evict`, `client-kill`,
    /// `partition`, `mend`, `recovered`.
    pub what: String,
    /// The node concerned, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The process concerned, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// The groups that the node led.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led: Vec<u16>,
}

/// What stood at a key when all was over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Final {
    /// When it was read.
    pub t: u64,
    /// The key.
    pub key: String,
    /// Its value and version; `null` if there was none.
    pub value: Option<(String, u64)>,
}

/// What a replica held when all was over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// When it said so.
    pub t: u64,
    /// Its group.
    pub group: u16,
    /// Its place in the group.
    pub slot: u8,
    /// The node it lives on.
    pub node: u16,
    /// Up to which position it has delivered.
    pub position: u64,
    /// A hash of all it holds, in hexadecimal.
    pub digest: String,
}

/// Nothing follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// When.
    pub t: u64,
}

/// The machine's monotonic clock, in nanoseconds: the same for all processes on it.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let time = Duration::try_from(time).expect("the clock counts from the machine's start");
    time.as_nanos() as u64
}

impl Record {
    /// The reply to process `p`'s operation, told at `t`.
    pub fn ok(t: u64, p: Process, reply: &Reply, record: Option<&RecordHeader>) -> Self {
        let out = reply.outcomes.iter().map(|outcome| words::out(outcome, record)).collect();
        Self::Ok(Return { t, p, held: reply.held, out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_documentation() {
        let append = Op::Append("list".into(), "t1".into());
        #[rustfmt::skip]
        let cases = [
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![], ops: vec![append, Op::Get("k".into())], otherwise: vec![], stale: false }),
             r#"{"invoke":{"t":5,"p":2,"ops":[{"append":["list","t1"]},{"get":"k"}]}}"#),
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![], ops: vec![Op::Get("k".into())], otherwise: vec![], stale: true }),
             r#"{"invoke":{"t":5,"p":2,"ops":[{"get":"k"}],"stale":true}}"#),
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![Guard::AtLeast("a".into(), 7)],
                                     ops: vec![Op::Incr("a".into(), -7), Op::Put("b".into(), "v".into())], otherwise: vec![], stale: false }),
             r#"{"invoke":{"t":5,"p":2,"if":[{"at_least":["a",7]}],"ops":[{"incr":["a",-7]},{"put":["b","v"]}]}}"#),
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![Guard::Version("a".into(), 7)], ops: vec![Op::Get("a".into())], otherwise: vec![], stale: false }),
             r#"{"invoke":{"t":5,"p":2,"if":[{"version":["a",7]}],"ops":[{"get":"a"}]}}"#),
            (Record::Ok(Return { t: 9, p: 2, held: true, out: vec![Out::Length(2), Out::Value(None),
                                 Out::Value(Some(("v".into(), 3))), Out::Version(4), Out::Number(-1)] }),
             r#"{"ok":{"t":9,"p":2,"out":[{"length":2},{"value":null},{"value":["v",3]},{"version":4},{"number":-1}]}}"#),
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![], ops: vec![Op::Patch("k".into(), 3, "t1".into()),
                                     Op::Exists("k".into()), Op::Scan("a".into(), None, 9), Op::Scan("a".into(), Some("b".into()), 9)], otherwise: vec![], stale: false }),
             r#"{"invoke":{"t":5,"p":2,"ops":[{"patch":["k",3,"t1"]},{"exists":"k"},{"scan":["a",null,9]},{"scan":["a","b",9]}]}}"#),
            (Record::Ok(Return { t: 9, p: 2, held: true, out: vec![Out::Flag(true),
                                 Out::Page(vec![("a".into(), "v".into())], Some("b".into())), Out::Page(vec![], None)] }),
             r#"{"ok":{"t":9,"p":2,"out":[{"flag":true},{"page":[[["a","v"]],"b"]},{"page":[[],null]}]}}"#),
            (Record::Invoke(Invoke { t: 5, p: 2, guards: vec![Guard::Exists("a".into()), Guard::Missing("b".into()), Guard::Equals("c".into(), "v".into()),
                                     Guard::Less("n".into(), 1), Guard::AtMost("n".into(), 2), Guard::Equal("n".into(), 3), Guard::Greater("n".into(), -4),
                                     Guard::Unchanged("a".into(), None, vec![Held { group: 1, pairs: 2, bytes: 3, digest: "4".into() }])],
                                     ops: vec![Op::Delete("a".into()), Op::Overwrite("b".into(), 7, "v".into())], otherwise: vec![Op::Get("a".into())], stale: false }),
             r#"{"invoke":{"t":5,"p":2,"if":[{"exists":"a"},{"missing":"b"},{"equals":["c","v"]},{"less":["n",1]},{"at_most":["n",2]},{"equal":["n",3]},{"greater":["n",-4]},{"unchanged":["a",null,[{"group":1,"pairs":2,"bytes":3,"digest":"4"}]]}],"ops":[{"delete":"a"},{"overwrite":["b",7,"v"]}],"else":[{"get":"a"}]}}"#),
            (Record::Ok(Return { t: 9, p: 2, held: false, out: vec![] }),
             r#"{"ok":{"t":9,"p":2,"held":false,"out":[]}}"#),
            (Record::Unknown(Unanswered { t: 9, p: 2, why: "w".into() }),
             r#"{"unknown":{"t":9,"p":2,"why":"w"}}"#),
            (Record::Fault(Fault { t: 1, what: "kill".into(), node: Some(0), pid: Some(77), led: vec![1] }),
             r#"{"fault":{"t":1,"what":"kill","node":0,"pid":77,"led":[1]}}"#),
            (Record::Final(Final { t: 1, key: "k".into(), value: None }),
             r#"{"final":{"t":1,"key":"k","value":null}}"#),
            (Record::End(End { t: 1 }), r#"{"end":{"t":1}}"#),
        ];
        for (record, line) in cases {
            assert_eq!(serde_json::to_string(&record).unwrap(), line);
            assert_eq!(serde_json::from_str::<Record>(line).unwrap(), record);
        }
    }
}
