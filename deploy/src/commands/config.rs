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
        let draft = draft.map_err(usage)?;
        let chosen = draft.says_durability();
        let text = draft.finish().map_err(usage)?.print();
        crate::output::say(if chosen { text } else { without_durability(&text) })?;
        Ok(Exit::Ok)
    }
}

/// Leaves it to `skein up` how durable the cluster is, as it is where nobody says it.
fn without_durability(printed: &str) -> String {
    let left_out = |line: &str| match line.strip_prefix("durability = ") {
        Some(_) => {
            "# durability = \"sync\" or \"memory\": not set, so `skein up` chooses it\n".to_owned()
        }
        None => line.to_owned() + "\n",
    };
    printed.lines().map(left_out).collect()
}
