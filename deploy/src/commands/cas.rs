//! `skein cas`: compare and set.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use serde_json::json;
use skein_client::Swap;

use crate::args::Global;
use crate::data::{Form, failed, say_json_done};
use crate::exit::{Exit, usage};
use crate::output::tell;

/// Sets the value of a key if it is the expected one, or exits 1 and prints the current value
#[derive(clap::Args)]
#[command(
    override_usage = "skein cas [OPTIONS] KEY EXPECTED NEW\n       skein cas [OPTIONS] KEY --missing NEW"
)]
pub(crate) struct Args {
    /// The key
    key: OsString,
    /// The value expected, unless --missing, and the new value, unless --file. One of them may be -,
    /// which reads it from standard input, as it is
    #[arg(value_name = "EXPECTED NEW", num_args = 0..=2, allow_negative_numbers = true)]
    values: Vec<OsString>,
    /// Expects that the key has no value
    #[arg(long)]
    missing: bool,
    /// A file to read the new value from, as it is
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let key = self.form.key(&self.key)?;
        let (expected, new) = self.expected_and_new()?;
        if expected.is_some_and(|text| text == "-") && new.is_some_and(|text| text == "-") {
            return Err(usage("only one value can come from standard input"));
        }
        let mut client = self.form.connect(global)?;
        let expected =
            expected.map(|text| self.form.value(&client, Some(text), None)).transpose()?;
        let new = self.form.value(&client, new, self.file.as_deref())?;
        let swap =
            client.compare_and_swap(&key, expected.as_deref(), &new).map_err(failed(global))?;
        self.tell(&key, &swap)?;
        Ok(if swap.swapped() { Exit::Ok } else { Exit::No })
    }

    fn expected_and_new(&self) -> anyhow::Result<(Option<&OsStr>, Option<&OsStr>)> {
        match (self.values.as_slice(), self.missing, self.file.is_some()) {
            ([expected, new], false, false) => Ok((Some(expected), Some(new))),
            ([new], true, false) => Ok((None, Some(new))),
            ([expected], false, true) => Ok((Some(expected), None)),
            ([], true, true) => Ok((None, None)),
            (given, missing, file) => {
                let (given, wanted) = (given.len(), 2 - usize::from(missing) - usize::from(file));
                Err(usage(format!(
                    "{given} values after the key, and {wanted} are needed: skein cas KEY EXPECTED NEW, with --missing in place of EXPECTED, and --file FILE in place of NEW"
                )))
            }
        }
    }

    fn tell(&self, key: &[u8], swap: &Swap) -> anyhow::Result<()> {
        let form = &self.form;
        if form.json {
            let key = form.to_json(key);
            let done = if swap.swapped() {
                "the value was set"
            } else {
                "the value was not the expected one"
            };
            say_json_done(
                done,
                &match swap {
                    Swap::Swapped(version) => {
                        json!({ "key": key, "swapped": true, "version": version })
                    }
                    Swap::Different(found) => {
                        let value = found.as_ref().map(|(value, _)| form.to_json(value));
                        let version = found.as_ref().map_or(0, |(_, version)| *version);
                        json!({ "key": key, "swapped": false, "value": value, "version": version })
                    }
                },
            )?;
        } else if let Swap::Different(found) = swap {
            let key = form.quoted(key);
            match found {
                Some((value, _)) => {
                    tell(format!("skein: the value of {key} is {}", form.quoted(value)));
                }
                None => tell(format!("skein: {key} has no value")),
            }
        }
        Ok(())
    }
}
