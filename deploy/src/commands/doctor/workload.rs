//! `skein doctor --workload`: which ordering suits a load, from a benchmark's report.

use std::fs;
use std::path::Path;

use skein_report::advice::{advise, words};

use crate::exit::{Exit, usage};

/// Prints the advice for the loads in `file`. Needs no cluster.
pub(super) fn run(file: &Path, json: bool) -> anyhow::Result<Exit> {
    let name = file.display().to_string();
    let bytes = fs::read(file).map_err(|error| usage(format!("cannot read {name}: {error}")))?;
    // A file that is not text is not a report, and is refused as such.
    let text = String::from_utf8_lossy(&bytes);
    let advice = advise(&name, &text).map_err(|why| usage(format!("{name}: {why}")))?;
    let text = if json { serde_json::to_string(&advice)? + "\n" } else { words(&advice) };
    crate::output::say(text)?;
    Ok(Exit::Ok)
}
