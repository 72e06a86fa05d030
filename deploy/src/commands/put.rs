//! `skein put`: sets the value of a key.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, failed, say_json};
use crate::exit::Exit;

/// Sets the value of a key
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key. The empty one is a key like any other
    key: OsString,
    /// The value; - reads it from standard input, as it is
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// A file to read the value from, as it is
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
        let version = client.put(&key, &value).map_err(failed(global))?;
        if self.form.json {
            say_json(&json!({ "key": self.form.to_json(&key), "version": version }))?;
        }
        Ok(Exit::Ok)
    }
}
