//! `skein append`: adds to the end of a value.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, failed, say_json};
use crate::exit::Exit;
use crate::output::say;

/// Adds to the end of a value, creating it, and prints its new length in bytes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    /// What to add; - reads it from standard input, as it is
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// A file to read it from, as it is
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let mut client = self.form.connect(global)?;
        let value = self.form.value(&client, self.value.as_deref(), self.file.as_deref())?;
        let length = client.append(&key, &value).map_err(failed(global))?;
        if self.form.json {
            say_json(&json!({ "key": self.form.to_json(&key), "length": length }))?;
        } else {
            say(format!("{length}\n"))?;
        }
        Ok(Exit::Ok)
    }
}
