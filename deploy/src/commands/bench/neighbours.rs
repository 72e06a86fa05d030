//! Processes that compute beside a benchmark. They are children of the benchmark's process and end
//! with it.

use std::hint;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, getppid, nice, set_parent_process_death_signal, setsid};
use skein_workloads::neighbours::{Neighbours, Priority};

use crate::exit::Exit;

/// Running neighbours. They end when this is dropped.
pub(in super::super) struct Running(Vec<Child>);

impl Running {
    /// Starts the neighbours, if any are requested.
    pub(in super::super) fn start(neighbours: Option<Neighbours>) -> anyhow::Result<Self> {
        let mut running = Self(Vec::new());
        let Some(Neighbours { count, priority, own_session }) = neighbours else {
            return Ok(running);
        };
        let us = std::env::current_exe().context("cannot find this program")?;
        for _ in 0..count {
            let mut command = match priority {
                Priority::Normal | Priority::Nice => Command::new(&us),
                Priority::Idle => {
                    let mut command = Command::new("chrt");
                    command.args(["--idle", "0"]).arg(&us);
                    command
                }
            };
            command.args(["bench", "neighbour", "--with-parent", &std::process::id().to_string()]);
            command.args((priority == Priority::Nice).then_some("--nice"));
            command.args(own_session.then_some("--own-session"));
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
            running.0.push(child.with_context(|| {
                let program = command.get_program().to_string_lossy().into_owned();
                format!("cannot start a neighbour with {program}; is it installed?")
            })?);
        }
        Ok(running)
    }

    /// Ends the neighbours. It is an error if one has ended before, because then the measurement
    /// was not made beside all of them.
    pub(in super::super) fn end(mut self) -> anyhow::Result<()> {
        for child in &mut self.0 {
            if let Some(status) = child.try_wait().context("cannot look after a neighbour")? {
                bail!(
                    "a neighbour ended while it should compute ({status}), so this measured something else: see its output above, and run it again"
                );
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Computes until the process that started it ends
#[derive(clap::Args)]
pub(super) struct Args {
    /// The process that started it
    #[arg(long, value_name = "PID")]
    with_parent: i32,
    /// Runs at niceness 19
    #[arg(long)]
    nice: bool,
    /// Has a session of its own
    #[arg(long)]
    own_session: bool,
}

impl Args {
    pub(super) fn run(&self) -> anyhow::Result<Exit> {
        let parent = self.with_parent;
        set_parent_process_death_signal(Some(Signal::KILL))
            .context("cannot follow the benchmark")?;
        // The parent may have ended before the death signal was set.
        if getppid() != Pid::from_raw(parent) {
            bail!("the benchmark, process {parent}, has ended");
        }
        if self.own_session {
            setsid().context("cannot begin a session")?;
        }
        if self.nice {
            nice(19).context("cannot become nice")?;
        }
        let mut sum = 0_u64;
        loop {
            sum = hint::black_box(sum.wrapping_mul(31).wrapping_add(1));
        }
    }
}
