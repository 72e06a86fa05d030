//! `skein node`: runs one node in this process.

use std::os::unix::net::UnixStream;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};
use skein_cluster::directory::Directory;
use skein_node::process::{self, NodeError};

use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::{logging, signals};

/// Runs one node of a cluster; `up` does this for each
///
/// Ends on SIGTERM, after operations in flight have finished. Logs to standard error.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which node, from 0
    #[arg(long, value_name = "N")]
    index: u16,

    /// Ends when its parent, the process with this number, ends
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<i32>,

    /// Leaves the terminal
    #[arg(long, hide = true, conflicts_with = "with_parent")]
    detached: bool,

    /// Logs to its file in the cluster's directory
    #[arg(long, hide = true)]
    log_file: bool,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        if let Some(parent) = self.with_parent {
            set_parent_process_death_signal(Some(Signal::TERM)).context("cannot follow `up`")?;
            // The parent may have ended before the death signal was set.
            if getppid() != Pid::from_raw(parent) {
                bail!("`up`, process {parent}, has ended");
            }
        }
        if self.detached {
            setsid().context("cannot leave the terminal")?;
        }
        let directory = Directory::at(&global.dir())?;
        if self.log_file {
            logging::to_file(&directory.log(self.index));
        }
        signals::ignore_size_limits().context("cannot catch signals")?;
        let (alarm, alarm_end) = UnixStream::pair().context("cannot make a socket")?;
        signals::to_stream(&alarm_end).context("cannot catch signals")?;
        match process::run(&directory, self.index, alarm, &alarm_end, logging::losses()) {
            Err(error @ NodeError::Elsewhere { .. }) => Err(usage(error)),
            end => Ok(end.map(|()| Exit::Ok)?),
        }
    }
}
