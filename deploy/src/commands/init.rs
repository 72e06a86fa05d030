//! `skein init`: prepares a host to run nodes of a cluster on several hosts.

use std::fmt::Write as _;
use std::path::PathBuf;

use skein_cluster::config::Draft;
use skein_cluster::directory::Directory;

use crate::args::Global;
use crate::exit::{Exit, usage};
use crate::output::tell;

/// Makes the directory of a host of a cluster on several hosts
///
/// Run once on each host, before `skein node` starts there for the first time. The directory records
/// the incarnations of its nodes: a node whose directory was lost must not return as if it had never
/// run, because the others rely on its promises.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The TOML file that all hosts of the cluster share
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let config = Draft::read(&self.config).and_then(Draft::finish).map_err(usage)?;
        let network = &config.network;
        if !network.fabric.is_network()
            || network.cluster.is_empty()
            || network.addresses.is_empty()
        {
            return Err(usage(format!(
                "{}: a cluster on several hosts needs network.fabric = \"tcp\", network.cluster and network.addresses",
                self.config.display()
            )));
        }
        let directory = Directory::at(&global.dir())?;
        if directory.manifest().is_ok() {
            return Err(usage(format!(
                "{} is the directory of a cluster already: `skein node` continues from its content",
                directory.path().display()
            )));
        }
        let mut claim = directory.claim_new()?;
        claim.lay_out(&config, &mut |warning| tell(format_args!("warning: {warning}")))?;
        claim.leave()?;
        let mut text = String::new();
        let dir = global.dir_flag();
        let _ = writeln!(
            text,
            "{} is ready for cluster {}",
            directory.path().display(),
            network.cluster
        );
        let _ = writeln!(text, "  start      skein{dir} node --index N");
        crate::output::say(text)?;
        Ok(Exit::Ok)
    }
}
