//! `skein put`: sets the value of a key.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, Given, failed, say_json_done};
use crate::exit::Exit;

/// Sets the value of a key
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key. The empty one is a key like any other
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
        let version = client.put(&key, &value).map_err(failed(global))?;
        if self.form.json {
            let done = format!("the value was set, in version {version}");
            say_json_done(done, &json!({ "key": self.form.to_json(&key), "version": version }))?;
        }
        Ok(Exit::Ok)
    }
}
