//! Which ordering suits a load: RamCast, or TRAM along a tree, and along which.
//!
//! A load is read from a benchmark's report. How many groups its messages address decides (`touched.rs`). If the file
//! compares both orderings, its own ratios are judged (`own.rs`), otherwise those of a table that was measured once
//! (`table.rs`). `choice.rs` judges ratios, and `words.rs` puts all of it in words.

mod choice;
mod loads;
mod own;
mod table;
#[cfg(test)]
mod tests;
mod touched;
mod words;

use serde::Serialize;
use serde_json::Value;

use crate::source;

pub use self::choice::{Choice, Ratio, Verdict};
pub use self::words::words;

/// Version of this program. Reports of another version may mean something else by the same names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What is said about a file of reports.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    pub file: String,
    /// One for each load: reports that differ in the ordering alone are of the same load.
    pub loads: Vec<Load>,
    /// The page of the table's measurements.
    pub table: &'static str,
}

/// A load, and which ordering suits it.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// The load in words.
    pub load: String,
    /// Numbers of its reports in the file, from 1.
    pub reports: Vec<usize>,
    /// Groups of the cluster.
    pub groups: u16,
    /// Messages or operations in flight at once.
    pub in_flight: f64,
    /// The column of the table that this is nearer to.
    pub weight: Weight,
    /// The kinds of its operations, the most frequent one first.
    pub kinds: Vec<Kind>,
    /// The command that measures both orderings under such a load.
    pub measure: String,
    /// Reports that were not used, and why.
    pub notes: Vec<String>,
}

/// A column of the table: one message in flight, or 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    Light,
    Heavy,
}

/// The operations of one kind, and which ordering suits them.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    pub kind: String,
    /// Their share of all operations.
    pub share: f64,
    /// How many groups one of them addresses, at most; null if that is not reported, or if they are not ordered.
    pub addressed: Option<u16>,
    #[serde(flatten)]
    pub choice: Choice,
}

impl Load {
    /// The kind that decides: the most frequent one.
    pub fn main(&self) -> Option<&Kind> {
        self.kinds.first()
    }
}

/// What the reports in the text of a file say about the ordering that suits their loads.
///
/// # Errors
/// Why the file says nothing about it.
pub fn advise(file: &str, text: &str) -> Result<Advice, String> {
    check_version(text)?;
    let sources = source::read(file, text)?;
    let loads = loads::loads(&sources)?;
    Ok(Advice { file: file.to_owned(), loads, table: table::PAGE })
}

/// Refuses reports of another version. What cannot be read is left to the reader, which says why.
fn check_version(text: &str) -> Result<(), String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    for (number, value) in (1..).zip(values.map_while(Result::ok)) {
        let Some(skein) = value.get("skein").and_then(Value::as_str) else { continue };
        let version = skein.split(' ').next().unwrap_or_default();
        if version != VERSION {
            return Err(format!(
                "report {number} was printed by skein {skein}, and this is {VERSION}: measure the load again \
                 with this version"
            ));
        }
    }
    Ok(())
}
