//! The command line: options shared by all commands, and the list of commands.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use skein_cluster::directory;

use crate::commands::Command;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  done, and the answer is no: a missing key, a failed guard, a check that found something
  2  bad usage or configuration; nothing was done
  3  the cluster is unavailable, or something failed
  4  not decided within the limits of a check
  5  the cluster runs, and some of it does not serve";

/// A replicated, sharded key-value store: every operation takes effect in one strict order.
#[derive(Parser)]
#[command(name = "skein", version = skein_cluster::BUILD.text(), after_help = EXIT_CODES)]
#[command(propagate_version = true, max_term_width = 100)]
pub(crate) struct Skein {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(clap::Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// The cluster's directory; for clients, also the TOML file that its hosts share [default: $XDG_STATE_HOME/skein/default, else
    /// $HOME/.local/state/skein/default, else skein-UID/default in the temporary directory]
    #[arg(long, global = true, env = "SKEIN_DIR", hide_env_values = true, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Logs more: -v events, -vv details too. SKEIN_LOG takes filters, e.g. skein=debug
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// The cluster's directory.
    pub(crate) fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(directory::default_path)
    }

    /// The cluster's directory, if the command line or the environment names one.
    pub(crate) fn dir_if_named(&self) -> Option<PathBuf> {
        self.dir.clone()
    }

    /// The directory that the command line names, not the environment.
    pub(crate) fn named_dir(&self) -> Option<&PathBuf> {
        let said = std::env::var_os("SKEIN_DIR");
        self.dir.as_ref().filter(|dir| said.is_none_or(|said| said != dir.as_os_str()))
    }

    /// The flag that makes another command line use the same directory.
    pub(crate) fn dir_flag(&self) -> String {
        let Some(dir) = self.named_dir() else { return String::new() };
        let text = dir.display().to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:=@,".contains(c);
        if text.chars().all(plain) {
            format!(" --dir {text}")
        } else {
            format!(" --dir '{}'", text.replace('\'', r"'\''"))
        }
    }
}
