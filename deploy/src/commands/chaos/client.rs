//! `skein bench chaos-client`: the command line of a client process of `skein bench chaos`.

use std::io;
use std::path::Path;
use std::process::Command;

use skein_workloads::chaos::clients::{self, Task};

use crate::args::Global;
use crate::exit::Exit;

/// Sends transactions of several groups until it is killed, and records them on standard output
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the run whose objects it uses
    #[arg(long)]
    run: String,
    /// When the run began, in nanoseconds of the monotonic clock
    #[arg(long)]
    began: u64,
    #[arg(long)]
    seed: u64,
    /// A number that no other process of the run has
    #[arg(long)]
    writer: u16,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let Self { run, began, seed, writer } = self;
        clients::run(&global.dir(), &Task { run, began, seed, writer })?;
        Ok(Exit::Ok)
    }
}

/// The command line whose [`Args`] describe `task`.
pub(super) fn command(dir: &Path, task: &Task) -> io::Result<Command> {
    let Task { run, began, seed, writer } = task;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["bench", "chaos-client", "--dir"]).arg(dir);
    command.args(["--run", run, "--began", &began.to_string()]);
    command.args(["--seed", &seed.to_string(), "--writer", &writer.to_string()]);
    Ok(command)
}
