//! Logs: quiet by default; JSON from nodes and supervisors, plain lines from all other commands.
//!
//! **Invariant.** Logging never ends a process and never blocks a thread. A line goes into a
//! bounded queue ([`outlet`]) that one thread writes; a line that finds the queue full or cannot be
//! written is counted and dropped. Lines per call site are limited ([`limit`]), and so is the size
//! of a log file ([`mod@file`]).

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
/// Target of lines about the log itself and about panics. They are exempt from the limits.
const OWN: &str = "skein::log";
/// How long a command waits until its line is written. A write to a pipe without a reader takes
/// forever.
const TOLD_WITHIN: Duration = Duration::from_millis(200);
/// How long a process waits at its end until its log is written.
const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// The audience of a process's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Nodes and supervisors: warnings, as JSON unless standard error is a terminal.
    Service,
    /// The supervisor in the background, which logs to a file once it is ready.
    File,
    /// Commands: warnings, as plain lines.
    Person,
    /// Commands that run clusters of their own and kill them on purpose: errors only.
    Experiment,
    /// The simulator: the same without refused nodes, because it corrupts their start counts
    /// itself.
    Simulation,
    /// Clients: nothing by default, because the error of the command says what is wrong.
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

/// Starts logging according to `-v` and `SKEIN_LOG`.
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
        // Without the writing thread there is no log. The command can still do its work.
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

/// Lines that were lost or suppressed so far.
pub(crate) fn losses() -> Arc<LogLosses> {
    Outlet::get().map(Outlet::losses).unwrap_or_default()
}

/// Writes a line to the log's destination, in order with the log. Returns when it is written, or
/// after [`TOLD_WITHIN`].
pub(crate) fn tell(line: &str) {
    match Outlet::get() {
        Some(outlet) => {
            outlet.send(format!("{line}\n").into_bytes());
            outlet.flush(TOLD_WITHIN);
        }
        None => _ = writeln!(io::stderr(), "{line}"),
    }
}

/// Waits until everything is written, at most [`FLUSHED_WITHIN`].
pub(crate) fn flush() {
    if let Some(outlet) = Outlet::get() {
        outlet.flush(FLUSHED_WITHIN);
    }
}

/// Replaces the standard panic hook, which writes to standard error itself and could block the
/// thread on a pipe without a reader.
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

/// The formatting layer's writer. It receives a whole line at a time.
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
