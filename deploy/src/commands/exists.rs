//! `skein exists`: prints whether a key has a value.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, Reading, failed, say_json};
use crate::exit::Exit;
use crate::output::say;

/// Prints whether a key has a value: true, or false and exit code 1
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let exists =
            self.reading.connect(&self.form, global)?.exists(&key).map_err(failed(global))?;
        if self.form.json {
            say_json(&json!({ "key": self.form.to_json(&key), "exists": exists }))?;
        } else {
            say(format!("{exists}\n"))?;
        }
        Ok(if exists { Exit::Ok } else { Exit::No })
    }
}
