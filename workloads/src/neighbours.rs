//! Processes that compute beside a benchmark, as reports describe them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Processes that compute for as long as a benchmark runs, as others on a shared machine do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Neighbours {
    pub count: u16,
    /// Scheduling priority.
    pub priority: Priority,
    /// Whether each has a session of its own, which is a scheduling group of its own where the
    /// kernel groups by sessions. Otherwise they share the client's session.
    pub own_session: bool,
}

/// A process's share of a contended core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// An equal share.
    Normal,
    /// A small share: niceness 19.
    Nice,
    /// Only otherwise idle time: `SCHED_IDLE`.
    Idle,
}

/// A text that does not describe neighbours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} does not say which neighbours: give how many, from 1 to {COUNT_MAX}, and if you like :nice or :idle and :own-session, such as 2 or 4:idle:own-session"
)]
pub struct UnknownNeighbours(String);

/// Most neighbours.
const COUNT_MAX: u16 = 256;

impl FromStr for Neighbours {
    type Err = UnknownNeighbours;

    fn from_str(text: &str) -> Result<Self, UnknownNeighbours> {
        let unknown = || UnknownNeighbours(text.to_owned());
        let mut parts = text.split(':').peekable();
        let count = parts.next().and_then(|count| count.parse().ok());
        let count = count.filter(|count| (1..=COUNT_MAX).contains(count)).ok_or_else(unknown)?;
        let priority = match parts.peek() {
            Some(&"nice") => Priority::Nice,
            Some(&"idle") => Priority::Idle,
            _ => Priority::Normal,
        };
        if priority != Priority::Normal {
            parts.next();
        }
        let own_session = parts.next_if_eq(&"own-session").is_some();
        if parts.next().is_some() {
            Err(unknown())
        } else {
            Ok(Self { count, priority, own_session })
        }
    }
}

impl fmt::Display for Neighbours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let priority = match self.priority {
            Priority::Normal => "",
            Priority::Nice => ":nice",
            Priority::Idle => ":idle",
        };
        let session = if self.own_session { ":own-session" } else { "" };
        write!(f, "{}{priority}{session}", self.count)
    }
}

impl Neighbours {
    /// A description without the count: `CPU-bound, idle priority, sessions of their own`.
    pub fn kind(&self) -> String {
        let priority = match self.priority {
            Priority::Normal => "",
            Priority::Nice => ", niceness 19",
            Priority::Idle => ", idle priority",
        };
        let session = if self.own_session { ", sessions of their own" } else { "" };
        format!("CPU-bound{priority}{session}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_told_in_words_and_back() {
        for text in ["1", "2:nice", "4:idle", "2:own-session", "256:idle:own-session"] {
            let neighbours: Neighbours = text.parse().expect(text);
            assert_eq!(neighbours.to_string(), text);
        }
        let four: Neighbours = "4:nice:own-session".parse().expect("four");
        let (priority, own_session) = (Priority::Nice, true);
        assert_eq!(four, Neighbours { count: 4, priority, own_session });
    }

    #[test]
    fn what_says_no_neighbours_is_refused_with_an_example() {
        for text in
            ["", "0", "257", "-1", "two", "2:", "2:idle:nice", "2:own-session:idle", "2::idle"]
        {
            let error = text.parse::<Neighbours>().expect_err(text).to_string();
            assert!(error.contains("4:idle:own-session"), "{error}");
        }
    }
}
