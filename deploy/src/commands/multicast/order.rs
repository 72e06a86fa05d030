//! Options of `skein bench multicast` about the order of messages: by RamCast, along a tree, or by both in turn.

use clap::ValueEnum;
use skein_multicast::protocol::tram::tree::{Parents, Tree};
use skein_multicast::trees::Shape;

use crate::exit::usage;

/// What orders the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Order {
    /// RamCast, among the groups of each message
    Ramcast,
    /// TRAM, along a tree of the groups
    Tram,
}

#[derive(clap::Args)]
pub(super) struct Orders {
    /// What orders messages to several groups
    #[arg(long, default_value = "ramcast", value_name = "ORDER")]
    order: Order,
    /// The tree of groups: base, breadth, depth, or the parent of each group, such as -1,0,0 [default of tram: breadth]
    #[arg(long, value_name = "TREE", allow_hyphen_values = true)]
    tree: Option<Shape>,
    /// Sends each message to groups that are adjacent in the tree, by whatever it is ordered
    #[arg(long)]
    adjacent: bool,
    /// Along a tree, lets replies leave without waiting, as in TRAM's paper. The order is then not strictly real-time: no
    /// cluster runs so
    #[arg(long)]
    pub(super) ungated: bool,
    /// Measures RamCast and the tree in turn, each run beside the other, and draws both
    #[arg(long, conflicts_with = "order")]
    pub(super) compare: bool,
}

impl Orders {
    /// The trees along which messages are ordered, one for each ordering to be measured: RamCast has none.
    pub(super) fn trees(&self, groups: u16) -> anyhow::Result<Vec<Option<Tree>>> {
        let along = self.compare || self.order == Order::Tram;
        if self.tree.is_some() && !along && !self.adjacent {
            return Err(usage(
                "--tree is of no use here: add --order tram, --compare or --adjacent",
            ));
        }
        if self.ungated && !along {
            return Err(usage(
                "--ungated is for messages along a tree: add --order tram or --compare",
            ));
        }
        let tree = || self.shape(groups).map(Some);
        match (self.compare, along) {
            (true, _) => Ok(vec![None, tree()?]),
            (false, true) => Ok(vec![tree()?]),
            (false, false) => Ok(vec![None]),
        }
    }

    /// The tree in which the groups of each message are to be adjacent, if they are.
    pub(super) fn adjacent(&self, groups: u16) -> anyhow::Result<Option<Parents>> {
        if !self.adjacent {
            return Ok(None);
        }
        if self.tree.is_none() && !self.compare && self.order == Order::Ramcast {
            return Err(usage(
                "--adjacent needs a tree: add --tree base, breadth, depth or parents",
            ));
        }
        Ok(Some(self.shape(groups)?.parents()))
    }

    fn shape(&self, groups: u16) -> anyhow::Result<Tree> {
        let shape = self.tree.as_ref().unwrap_or(&Shape::Breadth);
        shape.tree(groups).map_err(|error| usage(format!("--tree {shape}: {error}")))
    }
}
