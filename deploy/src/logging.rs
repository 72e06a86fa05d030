//! Logs: quiet unless asked, to standard error, for people on a terminal and as JSON elsewhere.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::exit::usage;

const VARIABLE: &str = "SKEIN_LOG";

/// Starts logging as `-v` and `SKEIN_LOG` say; what goes to a file in the end, not for people. What
/// simulated clusters warn of, thousands of times, is news to nobody who has not asked.
pub(crate) fn start(verbose: u8, to_file: bool, simulates: bool) -> anyhow::Result<()> {
    let filter = match std::env::var(VARIABLE) {
        Ok(filter) if !filter.is_empty() => filter,
        _ => match verbose {
            0 if simulates => "error".into(),
            0 => "warn".into(),
            1 => "info".into(),
            2 => "debug".into(),
            _ => "trace".into(),
        },
    };
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| usage(format_args!("{VARIABLE}={filter} is no log filter: {error}")))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if io::stderr().is_terminal() && !to_file {
        log.init();
    } else {
        log.json().init();
    }
    Ok(())
}
