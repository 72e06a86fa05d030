//! `skein completions`: completion scripts for shells.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::{Global, Skein};
use crate::exit::Exit;

/// Prints a completion script for a shell
///
/// For instance: skein completions bash > ~/.local/share/bash-completion/completions/skein
#[derive(clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self, _: &Global) -> anyhow::Result<Exit> {
        let mut script = Vec::new();
        generate(self.shell, &mut Skein::command(), "skein", &mut script);
        crate::output::say(script)?;
        Ok(Exit::Ok)
    }
}
