//! What orders in a simulation, and what that asks of an ordering beside what its driver does.

use std::fmt;
use std::str::FromStr;

use skein_protocol::ramcast::log::Remote;
use skein_protocol::ramcast::{self, Ramcast};
use skein_protocol::single::{self, Single};

use super::Coverage;
use crate::ordering::Links;

/// An ordering, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    /// [RamCast](Ramcast), of one group or several.
    Ramcast,
    /// [The smallest one](Single), of one group.
    Single,
}

impl Ordering {
    /// All that there are.
    pub const ALL: [Self; 2] = [Self::Ramcast, Self::Single];
}

impl fmt::Display for Ordering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ramcast => "ramcast",
            Self::Single => "single",
        })
    }
}

impl FromStr for Ordering {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|it| it.to_string() == name);
        named.ok_or_else(|| {
            format!("the orderings are {}", Self::ALL.map(|it| it.to_string()).join(" and "))
        })
    }
}

/// An ordering that can be simulated.
pub(crate) trait Driven: Links {
    /// Another group's proposal, if that is what a record says.
    fn proposal(record: &Self::Record) -> Option<Remote>;

    /// Adds how often each path was taken that is not the common one.
    fn cover(&self, coverage: &mut Coverage);
}

impl Driven for Ramcast {
    fn proposal(record: &ramcast::Record) -> Option<Remote> {
        if let ramcast::Record::Remote(remote) = record { Some(*remote) } else { None }
    }

    fn cover(&self, coverage: &mut Coverage) {
        coverage.protocol.add(self.paths());
    }
}

impl Driven for Single {
    fn proposal(_: &single::Record) -> Option<Remote> {
        None
    }

    /// It counts none.
    fn cover(&self, _: &mut Coverage) {}
}
