//! Trees of groups as configurations and command lines write them.

use std::fmt;
use std::str::FromStr;

use skein_protocol::tram::tree::{Tree, TreeError};

/// A tree as it is written: the name of a shape for any number of groups, or the parent of each group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The paper's first tree: two children a group below group 1, the only child of group 0.
    Base,
    /// Every other group is a child of group 0.
    Breadth,
    /// A chain.
    Depth,
    /// The parent of each group in turn; the root has none.
    Parents(Vec<Option<u16>>),
}

/// Why a shape is no tree of a number of groups.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// It has another number of groups.
    #[error(
        "it has parents for {found}, and the number of groups is {groups}: name one parent for each group, -1 for the root"
    )]
    Length { found: usize, groups: u16 },
    /// It is no tree.
    #[error("{0}")]
    NoTree(TreeError),
}

impl Shape {
    /// The names, which may stand in place of parents.
    pub const WORDS: &'static [&'static str] = &["base", "breadth", "depth"];

    /// What a text may say, for error messages.
    pub const EXPECTED: &'static str =
        "\"base\", \"breadth\", \"depth\", or the parent of each group, such as [-1, 0, 0]";

    /// The tree of this shape with so many groups.
    ///
    /// # Errors
    /// The reason why there is none.
    ///
    /// # Panics
    /// If a shape with a name is to have no groups, or more than a set of groups can have.
    pub fn tree(&self, groups: u16) -> Result<Tree, ShapeError> {
        match self {
            Self::Base => Ok(Tree::base(groups)),
            Self::Breadth => Ok(Tree::breadth(groups)),
            Self::Depth => Ok(Tree::depth(groups)),
            Self::Parents(parents) if parents.len() != usize::from(groups) => {
                Err(ShapeError::Length { found: parents.len(), groups })
            }
            Self::Parents(parents) => Tree::of(parents).map_err(ShapeError::NoTree),
        }
    }

    /// The parent of a group as it is written; `None` if the number can be no group.
    pub fn parent(number: i64) -> Option<Option<u16>> {
        if number == -1 { Some(None) } else { u16::try_from(number).ok().map(Some) }
    }
}

/// By its name, if it has one. Some trees of few groups have several, of which this is the simplest.
impl From<&Tree> for Shape {
    fn from(tree: &Tree) -> Self {
        let named = [Self::Breadth, Self::Depth, Self::Base];
        let found = named.into_iter().find(|shape| shape.tree(tree.groups()).as_ref() == Ok(tree));
        found.unwrap_or_else(|| Self::Parents(tree.parents().iter().collect()))
    }
}

impl FromStr for Shape {
    type Err = String;

    /// Parses `depth`, `[-1, 0, 0]` or `-1,0,0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parents = || {
            let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let numbers = inner.unwrap_or(text).split(',');
            numbers.map(|number| Self::parent(number.trim().parse().ok()?)).collect()
        };
        match text {
            "base" => Ok(Self::Base),
            "breadth" => Ok(Self::Breadth),
            "depth" => Ok(Self::Depth),
            _ => match parents() {
                Some(parents) => Ok(Self::Parents(parents)),
                None => Err(format!("a tree is {}", Self::EXPECTED)),
            },
        }
    }
}

/// As it is parsed.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parents = match self {
            Self::Base => return f.write_str("base"),
            Self::Breadth => return f.write_str("breadth"),
            Self::Depth => return f.write_str("depth"),
            Self::Parents(parents) => parents,
        };
        let number = |parent: &Option<u16>| parent.map_or("-1".to_owned(), |it| it.to_string());
        write!(f, "[{}]", parents.iter().map(number).collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_read_as_it_is_written() {
        for text in ["base", "breadth", "depth", "[-1, 0, 0, 1, 3]"] {
            let shape: Shape = text.parse().unwrap();
            assert_eq!(shape.to_string(), text);
            let tree = shape.tree(5).unwrap();
            assert_eq!(Shape::from(&tree), shape);
        }
        for (groups, simplest) in [(1, Shape::Breadth), (2, Shape::Breadth), (3, Shape::Depth)] {
            assert_eq!(Shape::from(&Tree::base(groups)), simplest);
        }
        assert_eq!("-1,0".parse(), Ok(Shape::Parents(vec![None, Some(0)])));
        for text in ["", "wide", "[-1, 0", "-2,0", "-1,,0", "70000,-1", "[]"] {
            let error = text.parse::<Shape>().unwrap_err();
            assert!(error.contains("depth") && error.contains("[-1, 0, 0]"), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_tree_is_refused_with_its_reason() {
        #[rustfmt::skip]
        let cases = [
            ("-1,0",      "parents for 2, and the number of groups is 3"),
            ("-1,0,0,0",  "parents for 4, and the number of groups is 3"),
            ("-1,2,1",    "are each other's ancestors"),
            ("-1,-1,0",   "both g0 and g1 have no parent"),
            ("-1,1,0",    "g1 is its own parent"),
            ("-1,0,3",    "group 3, the parent of g2, does not exist"),
            ("1,2,0",     "are each other's ancestors"),
        ];
        for (text, why) in cases {
            let error = text.parse::<Shape>().unwrap().tree(3).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
