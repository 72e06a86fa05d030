//! `skein admin kill`

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::ValueEnum;
use rustix::process::Signal;
use skein_node::admin::is_paused;
use skein_node::nodes::{has_ended, signal_holder};

use super::POLL;
use super::view::Running;
use crate::args::Global;
use crate::exit::Exit;

/// How long the kernel may take to act on a signal: a killed process has memory to return.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// Signals a node's process, for drills: by default kills it
///
/// A node that dies is started again where something supervises it. STOP pauses one until CONT.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The node
    #[arg(value_parser = super::node)]
    node: u16,

    /// What to send
    #[arg(long, value_enum, ignore_case = true, default_value = "KILL")]
    signal: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum What {
    /// Ends it at once; its state is lost
    Kill,
    /// Pauses it
    Stop,
    /// Resumes it
    Cont,
    /// Lets it finish operations in flight, and end
    Term,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let running = Running::find(global)?;
        let node = running.node(self.node)?;
        let Some(pid) = running.directory.node(node).map(|holder| holder.pid) else {
            return Err(running.not_running(node));
        };
        let holder = || running.directory.node(node).map(|holder| holder.pid).filter(|p| *p == pid);
        let (signal, done) = match self.signal {
            What::Kill => (Signal::KILL, "is killed"),
            What::Stop => (Signal::STOP, "is paused; --signal CONT resumes it"),
            What::Cont => (Signal::CONT, "is resumed"),
            What::Term => (Signal::TERM, "has ended"),
        };
        let process = signal_holder(holder, signal)?;
        let deadline = Instant::now() + GONE_WITHIN;
        // A signal takes a moment to reach running threads.
        let still = || holder().is_none_or(is_paused);
        while self.signal == What::Stop && !still() && Instant::now() < deadline {
            std::thread::sleep(POLL);
        }
        let mut text = format!("node {node}, process {pid}, {done}");
        if matches!(self.signal, What::Kill | What::Term) {
            while process.as_ref().is_some_and(|process| !has_ended(process)) {
                if Instant::now() >= deadline {
                    bail!(
                        "node {node}, process {pid}, was signalled and does not end; if it is \
                         paused, --signal CONT resumes it; --signal KILL ends it in any case"
                    );
                }
                std::thread::sleep(POLL);
            }
            let again = running.directory.supervisor().filter(|supervisor| supervisor.restarts);
            let by = match again {
                Some(supervisor) => format!("process {}", supervisor.pid),
                None => format!("`skein node --index {node}`"),
            };
            let _ = write!(text, "; {by} starts it again");
        }
        crate::output::say(text + "\n")?;
        Ok(Exit::Ok)
    }
}
