//! `skein txn`: executes a transaction given as JSON.

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::PathBuf;

use anyhow::bail;
use serde_json::{Value, json};
use skein_client::{Operation, Outcome, Reply, Transaction};

use crate::args::Global;
use crate::data::{Form, Reading, failed, say_done, say_json_done, transaction};
use crate::exit::{Exit, usage};

const FORM: &str = r#"The form, with text or {"hex": "00ff"} wherever bytes stand:

  {
    "guards": [{"key": "alice", "at_least": 30}, {"key": "bob", "exists": true}],
    "then":   [{"increment": "alice", "by": -30}, {"increment": "bob", "by": 30}],
    "else":   [{"get": "alice"}]
  }

  guards      {"key": K, …} with one of "exists": true|false, "equals": V, "version": N,
              or of a number "less", "at_most", "equal", "at_least", "greater": N
  operations  {"get": K}  {"exists": K}  {"put": K, "value": V}  {"delete": K}
              {"append": K, "value": V}  {"increment": K, "by": N}
              {"patch": K, "offset": N, "bytes": V}
              {"scan": {"prefix": K, "limit": N}}  {"scan": {"start": K, "end": K, "limit": N}}

All three lists may be left out. The keys may be in any shards. More in docs/txn.md.

Examples:
  skein txn transfer.json
  echo '{"then": [{"put": "a", "value": "1"}, {"put": "b", "value": "2"}]}' | skein txn -
  echo '{"then": [{"get": "a"}, {"get": "b"}]}' | skein txn - --json"#;

/// Executes a transaction on any keys atomically: if all guards hold, `then`, otherwise `else`. Exits 1
/// if a guard did not hold
#[derive(clap::Args)]
#[command(after_help = FORM)]
pub(crate) struct Args {
    /// A file with the transaction as JSON; - reads standard input
    file: PathBuf,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    form: Form,
}

/// No transaction is longer, whatever the limits.
const FILE_MAX: u64 = 1 << 30;

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let name =
            if self.is_stdin() { "standard input".into() } else { self.file.display().to_string() };
        let text = self.read().map_err(|error| usage(format!("cannot read {name}: {error}")))?;
        let transaction =
            transaction::parse(&text).map_err(|error| usage(format!("{name}: {error}")))?;
        let reply = self
            .reading
            .connect(&self.form, global)?
            .transact(&transaction)
            .map_err(failed(global))?;
        let branch = if reply.held { &transaction.then } else { &transaction.otherwise };
        if branch.len() != reply.outcomes.len() {
            bail!("{} outcomes for {} operations", reply.outcomes.len(), branch.len());
        }
        let done = "the transaction was done";
        if self.form.json {
            say_json_done(done, &self.json(&reply))?;
        } else {
            say_done(done, self.text(&transaction, branch, &reply))?;
        }
        Ok(if reply.held { Exit::Ok } else { Exit::No })
    }

    fn is_stdin(&self) -> bool {
        self.file.as_os_str() == "-"
    }

    fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        if self.is_stdin() {
            io::stdin().lock().take(FILE_MAX).read_to_string(&mut text)?;
        } else {
            std::fs::File::open(&self.file)?.take(FILE_MAX).read_to_string(&mut text)?;
        }
        Ok(text)
    }

    fn json(&self, reply: &Reply) -> Value {
        let form = &self.form;
        let outcome = |outcome: &Outcome| match outcome {
            Outcome::Value(Some((value, version))) => {
                json!({ "value": form.to_json(value), "version": version })
            }
            Outcome::Value(None) => json!({ "value": null, "version": 0 }),
            Outcome::Flag(flag) => json!({ "exists": flag }),
            Outcome::Written(version) => json!({ "version": version }),
            Outcome::Length(length) => json!({ "length": length }),
            Outcome::Number(number) => json!({ "number": number }),
            Outcome::Page(page) => {
                let pair = |(key, value): &(Vec<u8>, Vec<u8>)| json!({ "key": form.to_json(key), "value": form.to_json(value) });
                let next = page.next.as_ref().map(|key| form.to_json(key));
                json!({ "pairs": page.pairs.iter().map(pair).collect::<Vec<_>>(), "next": next })
            }
        };
        let outcomes: Vec<_> = reply.outcomes.iter().map(outcome).collect();
        json!({ "held": reply.held, "outcomes": outcomes })
    }

    fn text(&self, transaction: &Transaction, branch: &[Operation], reply: &Reply) -> String {
        let form = &self.form;
        let mut text = String::new();
        if !reply.held {
            text.push_str("a guard did not hold: else\n");
        } else if !transaction.guards.is_empty() {
            text.push_str("all guards held: then\n");
        }
        for (operation, outcome) in branch.iter().zip(&reply.outcomes) {
            let (name, key) = named(operation);
            let came_to = match outcome {
                Outcome::Value(Some((value, version))) => {
                    format!("{} (version {version})", form.quoted(value))
                }
                Outcome::Value(None) => "no value".to_owned(),
                Outcome::Flag(flag) => flag.to_string(),
                Outcome::Written(version) => format!("version {version}"),
                Outcome::Length(length) => format!("{length} bytes"),
                Outcome::Number(number) => number.to_string(),
                Outcome::Page(page) => format!("{} pairs", page.pairs.len()),
            };
            let _ = writeln!(text, "{name} {}: {came_to}", form.quoted(key));
            if let Outcome::Page(page) = outcome {
                for (key, value) in &page.pairs {
                    let _ = writeln!(text, "  {}: {}", form.quoted(key), form.quoted(value));
                }
                if let Some(next) = &page.next {
                    let _ = writeln!(text, "  more from {}", form.quoted(next));
                }
            }
        }
        text
    }
}

fn named(operation: &Operation) -> (&'static str, &[u8]) {
    match operation {
        Operation::Get { key } => ("get", key),
        Operation::Exists { key } => ("exists", key),
        Operation::Put { key, .. } => ("put", key),
        Operation::Delete { key } => ("delete", key),
        Operation::Append { key, .. } => ("append", key),
        Operation::Increment { key, .. } => ("increment", key),
        Operation::Patch { key, .. } => ("patch", key),
        Operation::Scan { start, .. } => ("scan", start),
    }
}
