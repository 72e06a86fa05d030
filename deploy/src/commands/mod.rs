//! One file per command: a `clap::Args` struct named `Args`, and what it does in `Args::run`.

use clap::Subcommand;

use crate::args::Global;
use crate::exit::Exit;

mod bench;
mod completions;
mod config;
mod doctor;
mod down;
mod node;
mod screen;
mod status;
mod status_table;
mod up;

/// The commands, in the order of `--help`.
#[derive(Subcommand)]
pub(crate) enum Command {
    // Clusters
    Up(up::Args),
    Down(down::Args),
    Status(status::Args),
    Node(node::Args),
    Config(config::Args),
    // Data
    // Measurements
    Bench(bench::Args),
    // This binary
    Doctor(doctor::Args),
    Completions(completions::Args),
}

impl Command {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            // Clusters
            Self::Up(args) => args.run(global),
            Self::Down(args) => args.run(global),
            Self::Status(args) => args.run(global),
            Self::Node(args) => args.run(global),
            Self::Config(args) => args.run(global),
            // Data
            // Measurements
            Self::Bench(args) => args.run(global),
            // This binary
            Self::Doctor(args) => args.run(global),
            Self::Completions(args) => args.run(global),
        }
    }
}
