//! `skein incr`: adds to a number.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, failed, say_done, say_json_done};
use crate::exit::Exit;

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
        let done = format!("the increment was done, and the number is {number}");
        if self.form.json {
            say_json_done(done, &json!({ "key": self.form.to_json(&key), "number": number }))?;
        } else {
            say_done(done, format!("{number}\n"))?;
        }
        Ok(Exit::Ok)
    }
}
