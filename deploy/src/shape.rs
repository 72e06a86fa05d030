//! The configuration of a cluster that a command starts: a file, overridden by flags.

use std::path::PathBuf;

use skein_cluster::config::{ClusterConfig, Draft, Durability, FabricKind, Protocol};
use skein_multicast::trees;

use crate::exit::usage;

/// Options of a command that starts a cluster.
#[derive(clap::Args)]
pub(crate) struct Shape {
    /// Node processes [default: 3]
    #[arg(long, value_name = "N")]
    nodes: Option<u16>,

    /// Shards, each replicated by a group [default: 2]
    #[arg(long, value_name = "N")]
    groups: Option<u16>,

    /// Replicas of each group, an odd number [default: 3]
    #[arg(long, value_name = "N")]
    replicas: Option<u8>,

    /// What joins the nodes: shm (shared memory), tcp or verbs (RDMA cards) [default: shm]
    #[arg(long, value_name = "FABRIC", value_parser = clap::builder::PossibleValuesParser::new(FabricKind::WORDS))]
    fabric: Option<String>,

    /// What orders messages to several groups: ramcast, or tram (along a tree of the groups)
    /// [default: ramcast]
    #[arg(long, value_name = "ORDER", value_parser = clap::builder::PossibleValuesParser::new(Protocol::WORDS))]
    order: Option<String>,

    /// With tram, the tree: base, breadth, depth, or the parent of each group, such as -1,0,0 [default: breadth]
    #[arg(long, value_name = "TREE", allow_hyphen_values = true)]
    tree: Option<trees::Shape>,

    /// What survives when all nodes lose their power: memory (nothing), async (a state of the whole cluster at
    /// most node.lag_ms_max old) or sync (all that was acknowledged)
    /// [default of `up`: sync where the cluster's directory is on a disk that can do it, else memory]
    #[arg(long, value_name = "DURABILITY", value_parser = clap::builder::PossibleValuesParser::new(Durability::WORDS))]
    durability: Option<String>,

    /// A TOML file; `skein config print` shows what it may say
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// A configuration, and which entries that a command may choose are not defaults.
pub(crate) struct Settings {
    pub(crate) config: ClusterConfig,
    /// It was said how durable the cluster is.
    pub(crate) durability: bool,
    /// It was said how much a node may take on disk.
    pub(crate) disk_bytes_max: bool,
}

impl Shape {
    /// Whether any option was given.
    pub(crate) fn is_given(&self) -> bool {
        let numbers = self.nodes.is_some() || self.groups.is_some() || self.replicas.is_some();
        let order = self.order.is_some() || self.tree.is_some();
        numbers
            || order
            || self.fabric.is_some()
            || self.durability.is_some()
            || self.config.is_some()
    }

    /// The configuration of the cluster, all of whose nodes are on this host.
    pub(crate) fn config(&self) -> anyhow::Result<ClusterConfig> {
        Ok(self.settings()?.config)
    }

    /// The same, and what of it was said.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let draft = self.config.as_ref().map_or_else(|| Ok(Draft::default()), |f| Draft::read(f));
        let mut draft = draft.map_err(usage)?;
        let flags = [
            ("nodes", self.nodes.map(u64::from)),
            ("groups", self.groups.map(u64::from)),
            ("replicas", self.replicas.map(u64::from)),
        ];
        for (name, value) in flags {
            if let Some(value) = value {
                draft.flag(name, value);
            }
        }
        if let Some(fabric) = &self.fabric {
            draft.flag_fabric(FabricKind::of(fabric));
        }
        if let Some(order) = &self.order {
            draft.flag_protocol(Protocol::of(order));
        }
        if let Some(tree) = &self.tree {
            draft.flag_tree(tree);
        }
        if let Some(durability) = &self.durability {
            draft.flag_durability(Durability::of(durability));
        }
        let (durability, disk_bytes_max) = (draft.says_durability(), draft.says_disk_bytes_max());
        let config = draft.finish().map_err(usage)?;
        if !config.network.is_one_host() {
            let what = "network.addresses are those of several hosts: on each of them, `skein init` once and then `skein node`";
            return Err(usage(what));
        }
        Ok(Settings { config, durability, disk_bytes_max })
    }
}
