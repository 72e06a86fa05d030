//! Logs: quiet unless asked; JSON from nodes and supervisors, plain lines from all other commands.
//!
//! **Invariant.** Logging never ends a process and never keeps a thread waiting. A line goes into a
//! bounded queue ([`outlet`]) that one thread writes out; a line that finds the queue full or cannot
//! be written is counted and dropped. Lines of one place in the code are limited in number
//! ([`limit`]), and a log file in size ([`mod@file`]).

mod file;
mod limit;
mod outlet;

use std::io::{self, IsTerminal, Write};
use std::panic::{self, PanicHookInfo};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use limit::Limiter;
use outlet::Outlet;
use skein_node::status::LogLosses;
use tracing_subscriber::filter::Directive;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::exit::usage;

const VARIABLE: &str = "SKEIN_LOG";
/// Target of lines about the log itself and about panics: they are not counted against any limit.
const OWN: &str = "skein::log";
/// How long a command waits until its line is written. A pipe that nobody reads takes for ever.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// How long a process waits at its end until its log is written.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// For whom a process logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Nodes and supervisors: warnings are worth a line, as JSON unless standard error is a terminal.
    Service,
    /// The supervisor in the background: its lines go to a file in the end.
    File,
    /// Commands: warnings, as plain lines.
    Person,
    /// Commands that run clusters of their own, which are killed on purpose: errors alone.
    Experiment,
    /// The simulator: the same, but for nodes that are refused, since it spoils their counts of starts itself.
    Simulation,
    /// Clients: their error says what is wrong, so that nothing is logged unless asked for.
    Client,
}

impl Audience {
    fn default_filter(self) -> &'static str {
        match self {
            Self::Service | Self::File | Self::Person => "warn",
            Self::Experiment => "error",
            Self::Simulation => "error,skein_multicast::roster=off",
            Self::Client => "off",
        }
    }

    fn is_json(self) -> bool {
        match self {
            Self::Service => !io::stderr().is_terminal(),
            Self::File => true,
            Self::Person | Self::Experiment | Self::Simulation | Self::Client => false,
        }
    }
}

/// Starts logging as `-v` and `SKEIN_LOG` say.
pub(crate) fn start(verbose: u8, audience: Audience) -> anyhow::Result<()> {
    let filter = match std::env::var(VARIABLE) {
        Ok(filter) if !filter.is_empty() => filter,
        _ => match verbose {
            0 => audience.default_filter().into(),
            1 => "info".into(),
            2 => "debug".into(),
            _ => "trace".into(),
        },
    };
    let filter = EnvFilter::try_new(&filter)
        .map_err(|error| usage(format_args!("{VARIABLE}={filter} is no log filter: {error}")))?
        .add_directive(format!("{OWN}=warn").parse::<Directive>().expect("a constant"));
    let limiter = Arc::new(Limiter::default());
    if outlet::start(Arc::clone(&limiter)).is_err() {
        // Without a thread that writes there is no log. The command itself can still do its work.
        return Ok(());
    }
    let json = audience.is_json();
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false).with_writer(ToOutlet);
    let lines = if json {
        lines.json().boxed()
    } else {
        lines.with_ansi(io::stderr().is_terminal()).boxed()
    };
    let limits = limit::Limits(limiter);
    let _ = tracing_subscriber::registry().with(filter).with(limits).with(lines).try_init();
    panic::set_hook(Box::new(move |info| told_of_panic(info, json)));
    Ok(())
}

/// From now on the log is the file at `path`, which is rotated.
pub(crate) fn to_file(path: &Path) {
    if let Some(outlet) = Outlet::get() {
        outlet.to_file(path);
    }
}

/// Lines that were lost or left out so far.
pub(crate) fn losses() -> Arc<LogLosses> {
    Outlet::get().map(Outlet::losses).unwrap_or_default()
}

/// Writes a line to where the log goes, in order with it. Returns when it is written, or after a
/// fifth of a second.
pub(crate) fn tell(line: &str) {
    match Outlet::get() {
        Some(outlet) => {
            outlet.send(format!("{line}\n").into_bytes());
            outlet.flush(TOLD_WITHIN);
        }
        None => _ = writeln!(io::stderr(), "{line}"),
    }
}

/// Waits until everything is written, for at most a second.
pub(crate) fn flush() {
    if let Some(outlet) = Outlet::get() {
        outlet.flush(FLUSHED_WITHIN);
    }
}

/// The standard hook writes to standard error itself, and would wait for a pipe that nobody reads
/// before the thread can end.
fn told_of_panic(info: &PanicHookInfo<'_>, json: bool) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed").to_owned();
    if json {
        let place = info.location().map(ToString::to_string);
        let why = info.payload_as_str().unwrap_or("a panic");
        tracing::error!(target: OWN, thread, place, "panicked: {why}");
    } else {
        tell(&format!("thread {thread} {info}"));
    }
    flush();
}

/// Where the formatting layer writes to, a whole line at a time.
struct ToOutlet;

impl<'a> MakeWriter<'a> for ToOutlet {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

impl Write for ToOutlet {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(outlet) = Outlet::get() {
            outlet.send(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
