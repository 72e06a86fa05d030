//! `skein config`: the entries of the configuration and their values.

use std::path::PathBuf;

use clap::Subcommand;
use skein_cluster::config::Draft;

use crate::args::Global;
use crate::exit::{Exit, usage};

/// Shows the configuration
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Prints every entry with its meaning: the defaults, or what a file makes of them
    Print {
        /// The file to merge with the defaults
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

impl Args {
    pub(crate) fn run(self, _: &Global) -> anyhow::Result<Exit> {
        let Action::Print { config } = self.action;
        let draft = config.map_or_else(|| Ok(Draft::default()), |file| Draft::read(&file));
        let config = draft.and_then(Draft::finish).map_err(usage)?;
        crate::output::say(config.print())?;
        Ok(Exit::Ok)
    }
}
