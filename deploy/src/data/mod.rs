//! Shared by the commands on keys and values: the text form of bytes, and the connection to the
//! cluster.

pub(crate) mod bytes;
mod explain;
#[cfg(test)]
pub(crate) use explain::example_replica;
pub(crate) mod transaction;

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use skein_client::{Client, Error, ReadMode, Refusal};

use crate::args::Global;
use crate::exit::usage;

/// Options of every command on data.
#[derive(clap::Args)]
pub(crate) struct Form {
    /// Keys and values are hexadecimal: those given here and those printed
    #[arg(long)]
    pub(crate) hex: bool,

    /// Prints JSON; bytes that are no text are printed as {"hex": "00ff"}
    #[arg(long)]
    pub(crate) json: bool,

    /// How long to wait for the cluster, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    timeout: Duration,
}

/// A value to write.
#[derive(clap::Args)]
pub(crate) struct Given {
    /// The value; - reads it from standard input, as it is
    #[arg(required_unless_present = "file", allow_negative_numbers = true)]
    value: Option<OsString>,
    /// A file to read it from, as it is
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    file: Option<PathBuf>,
}

impl Given {
    /// The bytes of the value. No more are read than the cluster of `client` accepts.
    pub(crate) fn bytes(&self, form: &Form, client: &Client) -> anyhow::Result<Vec<u8>> {
        form.value(client, self.value.as_deref(), self.file.as_deref())
    }
}

/// Options of commands that read.
#[derive(clap::Args)]
pub(crate) struct Reading {
    /// Mode of read-only operations
    #[arg(long, value_name = "MODE", default_value = "confirmed")]
    read_mode: Mode,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Mode {
    /// Answered by a leader that a quorum confirms, if one group has it all, and else ordered: as strict as writes
    Confirmed,
    /// Ordered like everything else
    Ordered,
    /// Answered by leaders that hold a lease: as strict, and cheaper where nodes are far apart
    Lease,
    /// Answered by any replica, however far it lags
    Stale,
}

impl Mode {
    pub(crate) fn mode(self) -> ReadMode {
        match self {
            Self::Confirmed => ReadMode::Confirmed,
            Self::Ordered => ReadMode::Ordered,
            Self::Lease => ReadMode::Lease,
            Self::Stale => ReadMode::Stale,
        }
    }
}

impl Reading {
    pub(crate) fn mode(&self) -> ReadMode {
        self.read_mode.mode()
    }

    /// A client of the cluster with this read mode.
    pub(crate) fn connect(&self, form: &Form, global: &Global) -> anyhow::Result<Client> {
        let mut client = form.connect(global)?;
        client.set_read_mode(self.mode());
        Ok(client)
    }
}

impl Form {
    /// A client of the cluster.
    pub(crate) fn connect(&self, global: &Global) -> anyhow::Result<Client> {
        let mut client = Client::connect(global.dir())?;
        client.set_timeout(self.timeout);
        Ok(client)
    }

    /// The key given as `text`.
    pub(crate) fn key(&self, text: &OsStr) -> anyhow::Result<Vec<u8>> {
        self.bytes("the key", text)
    }

    /// The bytes given as `text`. An error about bad hexadecimal names them as `what`.
    pub(crate) fn bytes(&self, what: &str, text: &OsStr) -> anyhow::Result<Vec<u8>> {
        if self.hex {
            return bytes::from_hex(text.as_bytes()).map_err(|why| {
                usage(format!("{what} is not hexadecimal, as --hex says of keys and values: {why}"))
            });
        }
        Ok(text.as_bytes().to_vec())
    }

    /// The value given as `text`, from standard input if `text` is `-`, or from a file.
    pub(crate) fn value(
        &self,
        client: &Client,
        text: Option<&OsStr>,
        file: Option<&Path>,
    ) -> anyhow::Result<Vec<u8>> {
        let max = client.shape().limits.value_bytes_max;
        match (text, file) {
            (Some(text), None) if text == "-" => whole("standard input", io::stdin().lock(), max),
            (Some(text), None) => self.bytes("the value", text),
            (None, Some(path)) => {
                let name = path.display().to_string();
                let file = File::open(path)
                    .map_err(|error| usage(format!("cannot open {name}: {error}")))?;
                whole(&name, file, max)
            }
            _ => Err(usage("no value: give one, or - for standard input, or --file FILE")),
        }
    }

    /// Bytes as JSON, in the form that `skein txn` reads.
    pub(crate) fn to_json(&self, bytes: &[u8]) -> serde_json::Value {
        bytes::to_json(bytes, self.hex)
    }

    /// Bytes for people, in an unambiguous form.
    pub(crate) fn quoted(&self, bytes: &[u8]) -> String {
        if self.hex { bytes::to_hex(bytes) } else { format!("\"{}\"", bytes::escaped(bytes)) }
    }
}

/// All bytes of `from`, at most as many as a value may have.
fn whole(name: &str, from: impl Read, max: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| usage(format!("cannot read {name}: {error}")))?;
    if bytes.len() > max {
        return Err(usage(format!(
            "{name} has more than {max} bytes, and a value may not: make it smaller, or start the cluster with a higher limits.value_bytes_max"
        )));
    }
    Ok(bytes)
}

/// Maps a failed operation to the exit code: one that cannot succeed unchanged is bad usage. For a
/// group that did not answer, the reason is looked up.
pub(crate) fn failed(global: &Global) -> impl FnOnce(Error) -> anyhow::Error {
    move |error| match error {
        Error::TooLarge { .. }
        | Error::Refused(
            Refusal::NotANumber { .. }
            | Refusal::Overflow { .. }
            | Refusal::ValueTooLarge { .. }
            | Refusal::ReplyTooLarge { .. }
            | Refusal::Malformed(_),
        ) => usage(error),
        other => explain::explained(other, global),
    }
}

/// Whether standard output is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Prints a JSON value on a line of its own.
pub(crate) fn say_json(value: &serde_json::Value) -> io::Result<()> {
    crate::output::say(format!("{value}\n"))
}

/// Prints the result of a write. If it cannot be printed, the error contains `done`: the write has
/// taken effect, and repeating it would apply it twice.
pub(crate) fn say_done(done: impl Display, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    crate::output::say(text)
        .with_context(|| format!("{done}; only the output could not be written"))
}

/// The same with a JSON value on a line of its own.
pub(crate) fn say_json_done(done: impl Display, value: &serde_json::Value) -> anyhow::Result<()> {
    say_done(done, format!("{value}\n"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "a number of seconds above 0, such as 0.5 or 30".to_owned();
    let seconds: f64 = text.parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_above_zero_and_finite() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "nan", "inf", "1e300", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn more_than_a_value_may_have_is_not_read() {
        assert_eq!(whole("x", &[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
        let error = whole("x", io::repeat(0), 1 << 10).unwrap_err().to_string();
        assert!(error.contains("limits.value_bytes_max"), "{error}");
    }
}
