//! `skein del`: removes a key and its value.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, failed, say_json_done};
use crate::exit::Exit;
use crate::output::tell;

/// Removes a key and its value, or exits 1 if there is none
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let deleted = self.form.connect(global)?.delete(&key).map_err(failed(global))?;
        if self.form.json {
            let done = if deleted { "the key was removed" } else { "the key had no value" };
            say_json_done(done, &json!({ "key": self.form.to_json(&key), "deleted": deleted }))?;
        } else if !deleted {
            tell(format!("skein: {} has no value", self.form.quoted(&key)));
        }
        Ok(if deleted { Exit::Ok } else { Exit::No })
    }
}
