//! Histories: what clients requested and received, and the faults and final states of the cluster.
//!
//! A history is a file of JSON lines, one [`Record`] each, described in `docs/histories.md`. The
//! first line is the [header](Header). Then come the records in the order in which they happened,
//! then the final values and digests. A history is the whole evidence: [`verify`](crate::verify)
//! uses nothing else.
//!
//! **Invariant (every effect has an invocation).** An invocation is recorded before the operation
//! is sent. A killed client leaves invocations without an end, never an effect without an
//! invocation.

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

/// Version of the format.
pub const FORMAT: u32 = 3;
/// Oldest version that can be read. Newer versions write the same facts in the same words.
pub const FORMAT_OLDEST: u32 = 2;

/// A sequential process: it has at most one operation in flight. A client takes a new number after
/// an operation of unknown outcome.
pub type Process = u64;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// First line.
    Header(Box<Header>),
    /// A client sends an operation.
    Invoke(Invoke),
    /// The operation was answered.
    Ok(Return),
    /// The operation had no effect and never will.
    Fail(Unanswered),
    /// The client cannot say whether the operation had an effect or will have one.
    Unknown(Unanswered),
    /// A fault was injected into the cluster, or a change of it was observed.
    Fault(Fault),
    /// The final value of a key, read through the cluster.
    Final(Final),
    /// The final state of a replica, as it reports it.
    Digest(Digest),
    /// Last line: the history is complete.
    End(End),
}

/// The header of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub format: u32,
    pub workload: String,
    /// Version of Skein, with its commit.
    pub skein: String,
    pub cluster: Topology,
    /// Seed of all random choices.
    pub seed: u64,
    /// Start of the history in nanoseconds of the machine's monotonic clock, like all times in
    /// records.
    pub t: u64,
    /// Start of the history in milliseconds since 1970.
    pub unix_ms: u64,
    /// Bytes per token of a list. List values are concatenated tokens.
    pub token_bytes: usize,
    /// Accounts of the bank workload.
    pub bank: Option<BankHeader>,
    /// Layout of values that are records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<RecordHeader>,
    /// Whether keys may have values from before the history.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub before: bool,
}

impl Header {
    /// Why this header is invalid, or `None`.
    pub(crate) fn contradiction(&self) -> Option<String> {
        if let Err(conflict) = self.cluster.check() {
            return Some(format!("its cluster cannot be: {conflict}"));
        }
        if !(1..=TOKEN_BYTES_MAX).contains(&self.token_bytes) {
            let bytes = self.token_bytes;
            return Some(format!("token_bytes is {bytes}: tokens have 1 to {TOKEN_BYTES_MAX}"));
        }
        let record = self.record.filter(|record| !record.is_possible())?;
        Some(format!("impossible record layout: {record:?}"))
    }
}

/// Most bytes of a token of a list.
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

    /// Offset just behind a field.
    pub(crate) fn end_of(self, field: usize) -> usize {
        field.saturating_add(1).saturating_mul(self.field_bytes)
    }
}

/// Layout of a record: fields of equal length, one after the other. In a history a field is
/// represented by its token, a few of its bytes that are unique to the write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordHeader {
    pub fields: usize,
    /// Bytes per field.
    pub field_bytes: usize,
    /// Offset of the token in its field.
    pub token_at: usize,
    pub token_bytes: usize,
}

/// The accounts of a bank and their opening balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BankHeader {
    /// Keys of the accounts.
    pub accounts: Vec<String>,
    /// Opening balance of each account.
    pub opening: i64,
    /// Whether money is also paid in and out. Then only the balance of each account is checked, not
    /// the sum.
    #[serde(default)]
    pub open: bool,
}

/// An operation that a client sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invoke {
    pub t: u64,
    pub p: Process,
    /// Conditions. If one does not hold, `otherwise` is executed instead of `ops`.
    #[serde(default, rename = "if", skip_serializing_if = "Vec::is_empty")]
    pub guards: Vec<Guard>,
    /// Executed atomically, in this order.
    pub ops: Vec<Op>,
    /// The else branch.
    #[serde(default, rename = "else", skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<Op>,
    /// Whether it is a stale read: any replica may answer, with a state of any age, each group by
    /// itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// The number at the key is at least this.
    AtLeast(String, i64),
    /// The value has this version; 0 means that the key has no value.
    Version(String, u64),
    /// The key has a value.
    Exists(String),
    /// The key has no value.
    Missing(String),
    /// The value equals this.
    Equals(String, String),
    /// The number at the key is less than this.
    Less(String, i64),
    /// The number at the key is at most this.
    AtMost(String, i64),
    /// The number at the key equals this.
    Equal(String, i64),
    /// The number at the key is greater than this.
    Greater(String, i64),
    /// The range from the first key (inclusive) to the second (exclusive, `None` is no bound) still
    /// holds what these groups held, and nothing in other groups.
    Unchanged(String, Option<String>, Vec<Held>),
}

/// What a group held of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    pub group: u16,
    pub pairs: u32,
    /// Bytes of the keys and values.
    pub bytes: u64,
    /// Hash of the keys and values, in hexadecimal (`RangeDigest` of the client).
    pub digest: String,
}

/// One operation on a key or a range. Keys and values are text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Read the value of a key.
    Get(String),
    /// Append to the value of a key.
    Append(String, String),
    /// Set the value of a key.
    Put(String, String),
    /// Add to the number at a key.
    Incr(String, i64),
    /// Overwrite a field of the record at a key: field number, token.
    Patch(String, usize, String),
    /// Overwrite bytes of the value of a key from an offset on. A gap before the offset is filled
    /// with zero bytes.
    Overwrite(String, u32, String),
    /// Remove the value of a key.
    Delete(String),
    /// Whether a key has a value.
    Exists(String),
    /// Read a page: first key, end of the range (exclusive, `None` is no bound), most keys.
    Scan(String, Option<String>, u32),
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Return {
    pub t: u64,
    pub p: Process,
    /// Whether all conditions held. If not, `otherwise` was executed, and `out` holds its results.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub held: bool,
    /// One result per operation.
    pub out: Vec<Out>,
}

fn yes() -> bool {
    true
}

/// The result of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Out {
    /// Get: the value and its version.
    Value(Option<(String, u64)>),
    /// Append, patch or overwrite: the new length in bytes.
    Length(u64),
    /// Put: the new version.
    Version(u64),
    /// Incr: the new number.
    Number(i64),
    /// Exists: whether the key has a value. Delete: whether it had one.
    Flag(bool),
    /// Scan: keys and values, and the start of the next page if there is one.
    Page(Vec<(String, String)>, Option<String>),
}

/// Why an operation has no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unanswered {
    /// Time at which the client stopped waiting for it.
    pub t: u64,
    pub p: Process,
    pub why: String,
}

/// A fault that was injected into the cluster, or a change of it that was observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub t: u64,
    /// One of `kill`, `stop`, `stutter`, `pause`, `continue`, `restart`, `transfer`, `evict`,
    /// `client-kill`, `partition`, `mend`, `recovered`.
    pub what: String,
    /// The node concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u16>,
    /// The process concerned, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Groups that the node led.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub led: Vec<u16>,
}

/// The final value of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Final {
    /// Time of the read.
    pub t: u64,
    pub key: String,
    /// Value and version; `None` if the key had no value.
    pub value: Option<(String, u64)>,
}

/// The final state of a replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digest {
    /// Time of the report.
    pub t: u64,
    pub group: u16,
    /// Slot of the replica in its group.
    pub slot: u8,
    /// Node that the replica runs on.
    pub node: u16,
    /// Position up to which the replica has delivered.
    pub position: u64,
    /// Hash of the replica's whole state, in hexadecimal.
    pub digest: String,
}

/// The end of a complete history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub t: u64,
}

/// The machine's monotonic clock in nanoseconds. All processes of the machine share it.
pub fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let time = Duration::try_from(time).expect("the clock counts from the machine's start");
    time.as_nanos() as u64
}

impl Record {
    /// The record of the reply that process `p` received at `t`.
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
