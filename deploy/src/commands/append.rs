//! `skein append`: appends to a value.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, Given, failed, say_done, say_json_done};
use crate::exit::Exit;

/// Adds to the end of a value, creating it, and prints its new length in bytes
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    #[command(flatten)]
    value: Given,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let mut client = self.form.connect(global)?;
        let value = self.value.bytes(&self.form, &client)?;
        let length = client.append(&key, &value).map_err(failed(global))?;
        let done = format!("the value was appended to, and has {length} bytes");
        if self.form.json {
            say_json_done(done, &json!({ "key": self.form.to_json(&key), "length": length }))?;
        } else {
            say_done(done, format!("{length}\n"))?;
        }
        Ok(Exit::Ok)
    }
}
