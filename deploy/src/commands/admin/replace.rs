//! `skein admin replace`

use std::fmt::Write as _;

use anyhow::bail;
use skein_cluster::directory::Directory;
use skein_cluster::identity::{self, Replacement};
use skein_cluster::network::elsewhere;

use crate::args::Global;
use crate::exit::{Exit, usage};

/// Makes a node a new one, after its directory or host was lost
///
/// Run on the node's own host, in the directory that `skein init` has made. The node must have been
/// started once, so that the others have reported the identity that they remember, unless it cannot
/// start because its nodeN.incarnation or nodeN.identity is missing or damaged.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The node
    #[arg(value_parser = super::node)]
    node: u16,
}

impl Args {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<Exit> {
        let node = self.node;
        let directory = Directory::at(&global.dir())?;
        let manifest = directory.manifest()?;
        manifest.check_build(&directory)?;
        if node >= manifest.nodes {
            return Err(usage(format_args!(
                "no node {node}: this cluster has {}, numbered from 0",
                manifest.nodes
            )));
        }
        if let Some(address) = elsewhere(&directory.config()?, node) {
            return Err(usage(format_args!(
                "node {node} does not belong on this host: {address} is no address of it, and nothing \
                 was changed; give this command on the node's own host, or, if this host is to take \
                 its place, correct network.addresses on all hosts first"
            )));
        }
        let Replacement { incarnation, known, aside } = match identity::replace(&directory, node) {
            Ok(replacement) => replacement,
            Err(error) => bail!(error),
        };
        let dir = global.dir_flag();
        let times = if incarnation == 1 { "once" } else { &format!("{incarnation} times") };
        let mut text = format!(
            "node {node} is a new one, which counts as started {times} before: \
             `skein{dir} node --index {node}` starts it, and it receives the state from the others\n"
        );
        if let Some(aside) = aside {
            let _ = writeln!(
                text,
                "Its former data was out of date and is not read any more: it is in {}; remove that when the node has \
                 its state",
                aside.display()
            );
        }
        if !known {
            let _ = writeln!(
                text,
                "What the others have seen of the old one is not known here. If they refuse this one, \
                 `skein{dir} admin replace {node}`\ncontinues from their answers, and then it \
                 can be started again."
            );
        }
        crate::output::say(text)?;
        Ok(Exit::Ok)
    }
}
