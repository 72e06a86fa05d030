//! What orders messages to several groups: entries of `[order]`, and what works with them.

use skein_multicast::config::Conflict;
use skein_multicast::protocol::tram::tree::Tree;
use skein_multicast::trees::Shape;

use super::draft::{Draft, Setting};
use super::{ClusterConfig, ConfigError};

/// The ordering of a cluster. It is chosen when the cluster is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Among the groups of each message.
    Ramcast,
    /// Along a tree of the groups.
    Tram,
}

impl Protocol {
    /// The names that a configuration may contain.
    pub const WORDS: &'static [&'static str] = &["ramcast", "tram"];

    /// The ordering of that name, which must be one of [`WORDS`](Self::WORDS).
    pub fn of(name: &str) -> Self {
        if name == "tram" { Self::Tram } else { Self::Ramcast }
    }

    /// Its name in a configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ramcast => "ramcast",
            Self::Tram => "tram",
        }
    }
}

impl ClusterConfig {
    /// What orders messages to several groups.
    pub const fn protocol(&self) -> Protocol {
        if self.tree.is_some() { Protocol::Tram } else { Protocol::Ramcast }
    }

    /// The parent of each group in the tree, if there is one.
    pub fn parents(&self) -> Option<Vec<Option<u16>>> {
        self.tree.as_ref().map(|tree| tree.parents().iter().collect())
    }
}

/// The entries of the section, by name.
pub(super) fn settings(config: &ClusterConfig) -> Vec<(String, Setting)> {
    let tree = match config.tree.as_ref().map(Shape::from) {
        None => Setting::Text(String::new()),
        Some(shape) => setting(&shape),
    };
    let protocol = Setting::Text(config.protocol().name().to_owned());
    vec![("protocol".to_owned(), protocol), ("tree".to_owned(), tree)]
}

/// A tree as the entry holds it: its name, or the parents as text.
pub(super) fn setting(shape: &Shape) -> Setting {
    match shape {
        Shape::Parents(parents) => {
            let number =
                |parent: &Option<u16>| parent.map_or("-1".to_owned(), |parent| parent.to_string());
            Setting::List(parents.iter().map(number).collect())
        }
        named => Setting::Text(named.to_string()),
    }
}

/// The shape that the entry holds, if there is one.
fn shape(setting: &Setting) -> Option<Shape> {
    let read = |text: &str| text.parse().expect("only trees are put in");
    match setting {
        Setting::Text(name) if name.is_empty() => None,
        Setting::Text(name) => Some(read(name)),
        Setting::List(parents) if parents.is_empty() => Some(Shape::Parents(Vec::new())),
        Setting::List(parents) => Some(read(&parents.join(","))),
        Setting::Number(_) => unreachable!("no tree is a number"),
    }
}

impl Draft {
    /// The tree along which messages are ordered, if they are.
    pub(super) fn tree(&self, groups: u16) -> Result<Option<Tree>, ConfigError> {
        let protocol = match self.value("order", "protocol") {
            Setting::Text(name) => Protocol::of(name),
            Setting::Number(_) | Setting::List(_) => unreachable!("put in as text"),
        };
        let shape = shape(self.value("order", "tree"));
        match (protocol, shape) {
            (Protocol::Ramcast, None) => Ok(None),
            (Protocol::Ramcast, Some(shape)) => Err(self.blame(&Conflict {
                first: format!("order.tree = {shape}"),
                second: "order.protocol = ramcast".to_owned(),
                why: "only tram orders along a tree: choose it, or leave the tree away",
            })),
            (Protocol::Tram, None) => Ok(Some(Tree::breadth(groups))),
            (Protocol::Tram, Some(shape)) => shape.tree(groups).map(Some).map_err(|why| {
                let what =
                    format!("order.tree = {shape} is no tree of topology.groups = {groups}: {why}");
                self.error_at("order", "tree", what)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(text: &str) -> Result<ClusterConfig, ConfigError> {
        Draft::parse(text, Path::new("skein.toml")).and_then(Draft::finish)
    }

    #[test]
    fn groups_are_ordered_along_a_tree() {
        let config = of("[topology]\ngroups = 3\n[order]\nprotocol = \"tram\"\n").unwrap();
        assert_eq!((config.protocol(), config.tree), (Protocol::Tram, Some(Tree::breadth(3))));
        assert_eq!(config.layout().tree(), config.tree);
        assert_eq!(of(&config.print()), Ok(config), "it is the same when it is read again");
        let config = of("").unwrap();
        assert_eq!((config.protocol(), config.layout().tree()), (Protocol::Ramcast, None));
        assert_eq!(config, ClusterConfig { limits: config.limits, ..ClusterConfig::default() });
    }

    #[test]
    fn a_tree_is_printed_by_its_name_or_its_parents() {
        for (tree, printed) in [
            (Tree::base(8), "tree = \"base\"\n"),
            (Tree::depth(8), "tree = \"depth\"\n"),
            (Tree::of(&[Some(1), None, Some(0)]).unwrap(), "tree = [1, -1, 0]\n"),
        ] {
            let topology = skein_multicast::config::Topology {
                groups: tree.groups(),
                ..ClusterConfig::default().topology
            };
            let config = ClusterConfig { topology, tree: Some(tree), ..ClusterConfig::default() };
            let text = config.print();
            assert!(text.contains(printed) && text.contains("protocol = \"tram\""), "{text}");
            let read = Draft::parse(&text, Path::new("skein.toml")).unwrap();
            assert_eq!(read.tree(tree.groups()), Ok(Some(tree)));
        }
    }

    #[test]
    fn what_is_no_tree_is_refused_at_its_line_with_advice() {
        #[rustfmt::skip]
        let cases = [
            ("tree = \"depth\"",                       "order.tree = depth does not work with order.protocol = ramcast (the default)"),
            ("tree = \"wide\"\nprotocol = \"tram\"",   "tree is \"wide\"; it takes \"base\", \"breadth\""),
            ("tree = [-1, 2, 1]\nprotocol = \"tram\"", "the groups {g1 g2} are each other's ancestors: one needs another parent"),
            ("tree = [-1, -1, 0]\nprotocol = \"tram\"", "both g0 and g1 have no parent"),
            ("tree = [-1, 1, 0]\nprotocol = \"tram\"", "g1 is its own parent: name another group"),
            ("tree = [-1, 0, 3]\nprotocol = \"tram\"", "group 3, the parent of g2, does not exist: groups are 0 to 2"),
            ("tree = [-1, 0]\nprotocol = \"tram\"",    "parents for 2, and the number of groups is 3: name one parent for each group"),
            ("tree = [-1, 0, 0, 0]\nprotocol = \"tram\"", "parents for 4, and the number of groups is 3"),
            ("tree = []\nprotocol = \"tram\"",         "parents for 0, and the number of groups is 3"),
            ("tree = [-1, -2, 0]\nprotocol = \"tram\"", "tree is a list with -2 in it"),
            ("tree = [-1, \"0\", 0]\nprotocol = \"tram\"", "tree is a list with a string in it"),
            ("tree = 3\nprotocol = \"tram\"",          "tree is of type integer; it takes"),
            ("protocol = \"paxos\"",                   "protocol is \"paxos\"; it takes one of \"ramcast\", \"tram\""),
        ];
        for (lines, why) in cases {
            let text = format!("[topology]\ngroups = 3\n\n[order]\n{lines}\n");
            let error = of(&text).unwrap_err().to_string();
            assert!(error.starts_with("skein.toml:5: ") && error.contains(why), "{lines}: {error}");
        }
    }
}
