//! `skein get`: prints the value of a key.

use std::ffi::OsString;

use serde_json::json;

use crate::args::Global;
use crate::data::{Form, Reading, bytes, failed, is_terminal, say_json};
use crate::exit::Exit;
use crate::output::{say, tell};

/// Prints the value of a key, or exits 1 if there is none
///
/// In a pipe or a file the value is exactly its bytes. On a terminal a newline follows, and what a
/// terminal cannot show is escaped.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The key. The empty one is a key like any other
    key: OsString,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let found = self
            .reading
            .connect(&self.form, global)?
            .get_versioned(&key)
            .map_err(failed(global))?;
        if self.form.json {
            let value = found.as_ref().map(|(value, _)| self.form.to_json(value));
            let version = found.as_ref().map_or(0, |(_, version)| *version);
            let key = self.form.to_json(&key);
            say_json(&json!({ "key": key, "value": value, "version": version }))?;
        } else if let Some((value, _)) = &found {
            if self.form.hex {
                say(bytes::to_hex(value) + "\n")?;
            } else if is_terminal() {
                say(bytes::readable(value) + "\n")?;
            } else {
                say(value)?;
            }
        } else {
            tell(format!("skein: {} has no value", self.form.quoted(&key)));
        }
        Ok(if found.is_some() { Exit::Ok } else { Exit::No })
    }
}
