//! `skein admin replace`

use anyhow::bail;
use skein_kvstore::node::directory::Directory;
use skein_kvstore::node::identity;

use crate::args::Global;
use crate::exit::{Exit, usage};

/// Makes a node a new one, in the place of one whose directory or host was lost
///
/// On the node's own host, with the directory that `skein init` has made there. The node must have
/// been started once, so that the others have said which one they remember.
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
        let life = match identity::replace(&directory, node) {
            Ok(life) => life,
            Err(error) => bail!(error),
        };
        let dir = global.dir_flag();
        crate::output::say(format!(
            "node {node} is a new one, which counts as started {life} times before: \
             `skein{dir} node --index {node}` starts it, and it is given the state by the others\n"
        ))?;
        Ok(Exit::Ok)
    }
}
