//! One file per command: a `clap::Args` struct named `Args`, and what it does in `Args::run`.

use clap::Subcommand;

use crate::args::Global;
use crate::exit::Exit;

mod bench;
mod config;

/// The commands, in the order of `--help`.
#[derive(Subcommand)]
pub(crate) enum Command {
    // Clusters
    Config(config::Args),
    // Data
    // Measurements
    Bench(bench::Args),
    // This binary
}

impl Command {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            // Clusters
            Self::Config(args) => args.run(global),
            // Data
            // Measurements
            Self::Bench(args) => args.run(global),
            // This binary
        }
    }
}
