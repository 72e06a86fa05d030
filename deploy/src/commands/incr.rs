//! `skein incr`: counts.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, failed, say_json};
use crate::exit::Exit;
use crate::output::say;

/// Adds to a number and prints the new one
///
/// The value is a decimal 64-bit integer; a key without one counts as 0.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    /// How much to add; may be negative
    #[arg(default_value_t = 1, allow_negative_numbers = true)]
    by: i64,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let number = self.form.connect(global)?.increment(&key, self.by).map_err(failed(global))?;
        if self.form.json {
            say_json(&json!({ "key": self.form.to_json(&key), "number": number }))?;
        } else {
            say(format!("{number}\n"))?;
        }
        Ok(Exit::Ok)
    }
}
